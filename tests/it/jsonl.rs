//! Events to JSON lines: cases 115–119 of `tests/cases/loop.md`, framing, levels, merging, the first and the last line.

#![cfg(test)]

use std::sync::Arc;

use pirn::model::{
    AssistantBlock, AssistantHead, AssistantMessage, BlockEvent, Content, EntryId, ErrorKind, ErrorRecord, Event,
    Extra, InboxKind, MERGED_BYTES_MAX, Message, PendingEntry, Queued, Reason, RunId, RunOutcome, StopReason, Thinking,
    ThinkingBlock, ToolCall, ToolResultMessage, ToolResultView, Usage,
};
use pirn::print::{
    Encoder, Level, LimitsLine, ModelRef, ResultLine, SESSION_VERSION, SessionLine, UsageShare, UsageTotals, merge,
};
use serde_json::{Map, Value, json};

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is no object"),
    }
}

pub(crate) fn call(id: &str, name: &str, arguments: Value) -> ToolCall {
    ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: object(arguments), ..ToolCall::default() }
}

pub(crate) fn reply(content: Vec<AssistantBlock>, stop_reason: StopReason) -> Arc<Message> {
    let head = AssistantHead { api: "a".into(), provider: "p".into(), model: "m".into(), timestamp: 5 };
    let mut message = AssistantMessage::pending(&head);
    message.content = content;
    message.stop_reason = stop_reason;
    Arc::new(Message::Assistant(message))
}

fn update(index: usize, event: BlockEvent) -> Event {
    Event::MessageUpdate { index, event, usage: None }
}

fn text_end(content: &str) -> BlockEvent {
    BlockEvent::TextEnd { content: content.to_owned(), signature: Some("sig".to_owned()) }
}

/// One reply between its start and end, in a run of its own.
fn run_of(updates: Vec<Event>, end: &Arc<Message>) -> Vec<Event> {
    let user = Arc::new(Message::user("p", Vec::new(), 1));
    let pending = reply(Vec::new(), StopReason::Pending);
    let mut events = vec![
        Event::RunStart { run_id: RunId::new("r1"), started_at: 1 },
        Event::TurnStart { turn: 1 },
        Event::MessageStart { message: Arc::clone(&user) },
        Event::MessageEnd { message: Arc::clone(&user), entry_id: None },
        Event::MessageStart { message: pending },
    ];
    events.extend(updates);
    events.push(Event::MessageEnd { message: Arc::clone(end), entry_id: None });
    events.push(Event::TurnEnd { turn: 1, message: Some(Arc::clone(end)), tool_results: Vec::new() });
    let messages = vec![user, Arc::clone(end)];
    let outcome = RunOutcome {
        messages: messages.clone(),
        stop_reason: Some(StopReason::Stop),
        reason: Reason::Completed,
        error: None,
        cause: None,
    };
    events.push(Event::RunEnd { messages, outcome: Arc::new(outcome), result: None });
    events
}

fn case_2() -> Vec<Event> {
    let updates = vec![
        update(0, BlockEvent::TextStart),
        update(0, BlockEvent::TextDelta("he".to_owned())),
        update(0, BlockEvent::TextDelta("llo\n\u{2028}\"".to_owned())),
        update(0, text_end("hello\n\u{2028}\"")),
    ];
    run_of(updates, &reply(vec![AssistantBlock::text("hello\n\u{2028}\"")], StopReason::Stop))
}

fn case_3() -> Vec<Event> {
    let echo = call("c1", "echo", json!({"v": "1"}));
    let thinking =
        BlockEvent::ThinkingEnd { content: "hm".to_owned(), signature: Some("sig".to_owned()), redacted: false };
    let updates = vec![
        update(0, BlockEvent::ThinkingStart),
        update(0, BlockEvent::ThinkingDelta("h".to_owned())),
        update(0, BlockEvent::ThinkingDelta("m".to_owned())),
        update(0, thinking),
        update(1, BlockEvent::TextStart),
        update(1, BlockEvent::TextDelta("go".to_owned())),
        update(1, text_end("go")),
        update(2, BlockEvent::ToolCallStart { id: "c1".to_owned(), name: "echo".to_owned() }),
        update(2, BlockEvent::ToolCallDelta("{\"v\":".to_owned())),
        update(2, BlockEvent::ToolCallDelta("\"1\"}".to_owned())),
        update(2, BlockEvent::ToolCallEnd(Box::new(echo.clone()))),
    ];
    let thought = ThinkingBlock { thinking: "hm".to_owned(), ..ThinkingBlock::default() };
    let blocks = vec![AssistantBlock::Thinking(thought), AssistantBlock::text("go"), AssistantBlock::ToolCall(echo)];
    run_of(updates, &reply(blocks, StopReason::ToolUse))
}

fn case_4() -> Vec<Event> {
    let echo = call("c1", "echo", json!({"v": "1"}));
    let updates = vec![
        update(0, BlockEvent::TextStart),
        update(0, BlockEvent::TextDelta("a".to_owned())),
        update(1, BlockEvent::ToolCallStart { id: "c1".to_owned(), name: "echo".to_owned() }),
        update(0, BlockEvent::TextDelta("b".to_owned())),
        update(1, BlockEvent::ToolCallDelta("{\"v\":\"1\"}".to_owned())),
        update(0, text_end("ab")),
        update(1, BlockEvent::ToolCallEnd(Box::new(echo.clone()))),
    ];
    run_of(updates, &reply(vec![AssistantBlock::text("ab"), AssistantBlock::ToolCall(echo)], StopReason::ToolUse))
}

fn encode(level: Level, events: &[Event]) -> String {
    let mut encoder = Encoder::new(level);
    let mut out = Vec::new();
    for event in events {
        encoder.event(event, false, 1000, &mut out);
    }
    String::from_utf8(out).unwrap()
}

pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.split_terminator('\n').map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn encoded(events: &[Event]) -> Vec<Value> {
    lines(&encode(Level::Events, events))
}

pub(crate) fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn updates_carry_deltas_only_case_115() {
    let text = encode(Level::Events, &case_2());
    assert!(text.ends_with('\n') && !text.contains('\r'));
    let lines = lines(&text);
    assert_eq!(lines.first().unwrap()["type"], "agent_start");
    assert_eq!(lines.last().unwrap()["type"], "agent_end");
    let updates: Vec<&Value> = lines.iter().filter(|line| line["type"] == "message_update").collect();
    assert_eq!(updates.len(), 4);
    for line in updates {
        assert_eq!(keys(line), ["type", "seq", "ts", "assistantMessageEvent"]);
        assert!(!line.to_string().contains("partial"));
    }
    let events: Vec<&Value> =
        lines.iter().map(|line| &line["assistantMessageEvent"]).filter(|e| !e.is_null()).collect();
    assert_eq!(
        events,
        [
            &json!({"type": "text_start", "contentIndex": 0}),
            &json!({"type": "text_delta", "contentIndex": 0, "delta": "he"}),
            &json!({"type": "text_delta", "contentIndex": 0, "delta": "llo\n\u{2028}\""}),
            &json!({"type": "text_end", "contentIndex": 0, "content": "hello\n\u{2028}\""}),
        ],
        "no signature on the wire"
    );
}

#[test]
fn toolcall_start_carries_id_and_tool_name_case_116() {
    let text = encode(Level::Events, &case_3());
    let start = text.lines().find(|line| line.contains("toolcall_start")).unwrap();
    assert!(start.contains(r#""id":"c1","toolName":"echo""#) && !start.contains("partial"), "{start}");
    let indexes: Vec<u64> =
        lines(&text).iter().filter_map(|line| line["assistantMessageEvent"]["contentIndex"].as_u64()).collect();
    assert_eq!(indexes, [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2]);
}

/// What a reader of updates alone, without `message_end`, can rebuild.
fn rebuilt(lines: &[Value]) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    for line in lines.iter().filter(|line| line["type"] == "message_update") {
        let event = &line["assistantMessageEvent"];
        let index = usize::try_from(event["contentIndex"].as_u64().unwrap()).unwrap();
        if blocks.len() <= index {
            blocks.resize(index + 1, Value::Null);
        }
        let block = &mut blocks[index];
        let text = |key: &str| event[key].as_str().unwrap().to_owned();
        match event["type"].as_str().unwrap() {
            "text_start" => *block = json!({"type": "text", "text": ""}),
            "thinking_start" => *block = json!({"type": "thinking", "thinking": ""}),
            "toolcall_start" => *block = json!({"type": "toolCall", "id": text("id"), "name": text("toolName")}),
            "text_delta" => block["text"] = json!(block["text"].as_str().unwrap().to_owned() + &text("delta")),
            "thinking_delta" => {
                block["thinking"] = json!(block["thinking"].as_str().unwrap().to_owned() + &text("delta"));
            }
            "toolcall_delta" => {}
            "text_end" => assert_eq!(block["text"], event["content"], "deltas and content agree"),
            "thinking_end" => assert_eq!(block["thinking"], event["content"]),
            "toolcall_end" => *block = event["toolCall"].clone(),
            other => panic!("unknown {other}"),
        }
    }
    blocks
}

#[test]
fn a_reply_can_be_rebuilt_from_its_updates_case_117() {
    for events in [case_2(), case_3(), case_4()] {
        let lines = encoded(&events);
        let end =
            lines.iter().rfind(|line| line["type"] == "message_end" && line["message"]["role"] == "assistant").unwrap();
        assert_eq!(Value::Array(rebuilt(&lines)), end["message"]["content"]);
    }
}

#[test]
fn size_is_linear_case_118() {
    let words = 4000;
    let mut updates = vec![update(0, BlockEvent::TextStart)];
    updates.extend((0..words).map(|_| update(0, BlockEvent::TextDelta("word ".to_owned()))));
    let text = "word ".repeat(words);
    updates.push(update(0, text_end(&text)));
    let stream = encode(Level::Events, &run_of(updates, &reply(vec![AssistantBlock::text(text)], StopReason::Stop)));
    assert!(stream.len() < 1_000_000, "{} bytes", stream.len());
}

fn result_message(id: &str, text: &str, details: &Value) -> Arc<Message> {
    Arc::new(Message::ToolResult(ToolResultMessage {
        tool_call_id: id.to_owned(),
        tool_name: "slow".to_owned(),
        content: vec![Content::text(text)],
        details: Some(details.clone()),
        is_error: false,
        usage: None,
        duration_ms: Some(3),
        timestamp: 7,
        extra: Extra::new(),
    }))
}

#[test]
fn lines_of_a_tool_have_exactly_the_documented_fields_case_119() {
    let details = json!({"v": "a"});
    let view =
        ToolResultView { content: vec![Content::text("ok a")], details: Some(details.clone()), ..Default::default() };
    let end = |result: ToolResultView, duration_ms| Event::ToolEnd {
        tool_call_id: "c1".to_owned(),
        tool_name: "slow".to_owned(),
        result: Arc::new(result),
        is_error: false,
        duration_ms,
    };
    let message = result_message("c1", "ok a", &details);
    let start = |effective_args: Option<Value>| Event::ToolStart {
        tool_call_id: "c1".to_owned(),
        tool_name: "slow".to_owned(),
        args: Arc::new(object(json!({"v": "a"}))),
        effective_args: effective_args.map(Arc::new),
    };
    let events = [
        start(None),
        start(Some(json!({"v": "b"}))),
        Event::ToolUpdate {
            tool_call_id: "c1".to_owned(),
            tool_name: "slow".to_owned(),
            partial: Arc::new(ToolResultView { details: None, ..view.clone() }),
        },
        end(view.clone(), Some(3)),
        end(ToolResultView { terminate: true, ..view }, None),
        Event::MessageStart { message: Arc::clone(&message) },
        Event::MessageEnd { message, entry_id: None },
    ];
    let lines = encoded(&events);
    let fields: Vec<Vec<&str>> = lines.iter().map(|line| keys(line)[3..].to_vec()).collect();
    assert_eq!(
        fields,
        [
            vec!["toolCallId", "toolName", "args"],
            vec!["toolCallId", "toolName", "args", "effectiveArgs"],
            vec!["toolCallId", "toolName", "partialResult"],
            vec!["toolCallId", "toolName", "result", "isError", "durationMs"],
            vec!["toolCallId", "toolName", "result", "isError", "terminate"],
            vec!["message"],
            vec!["message", "entryId"],
        ]
    );
    assert_eq!(keys(&lines[2]["partialResult"]), ["content"]);
    assert_eq!(keys(&lines[4]["result"]), ["content", "details"], "terminate stands beside the result");
    for line in &lines[5..] {
        let expected = ["role", "toolCallId", "toolName", "content", "details", "isError", "durationMs", "timestamp"];
        assert_eq!(keys(&line["message"]), expected);
    }
    assert_eq!(lines[6]["entryId"], Value::Null);
}

#[test]
fn seq_has_no_gap_and_time_never_goes_back_g3() {
    for (level, expected) in [(Level::Events, 12), (Level::Messages, 8), (Level::Result, 0)] {
        let mut encoder = Encoder::new(level);
        let mut out = Vec::new();
        for (event, ts) in case_2().iter().zip([50, 40, 60, 55, 70, 10, 71, 72, 73, 1, 2, 3]) {
            encoder.event(event, false, ts, &mut out);
        }
        encoder.result(&ResultLine::nothing_sent(0, Reason::Completed, None), 0, &mut out);
        let text = String::from_utf8(out).unwrap();
        let lines = lines(&text);
        assert_eq!(lines.len(), expected + 1, "{level:?}");
        let mut last = 0;
        for (at, line) in lines.iter().enumerate() {
            assert_eq!(line["seq"], at, "{level:?}");
            let ts = line["ts"].as_u64().unwrap();
            assert!(ts >= last, "{level:?}: {ts} after {last}");
            last = ts;
        }
        assert!(text.lines().all(|line| line.starts_with("{\"type\":\"")));
        assert_eq!(lines.last().unwrap()["type"], "result");
    }
}

#[test]
fn the_levels_leave_out_what_they_promise() {
    let mut events = case_3();
    let partial = Arc::new(ToolResultView::default());
    events.push(Event::ToolUpdate { tool_call_id: "c".to_owned(), tool_name: "t".to_owned(), partial });
    let text = encode(Level::Messages, &events);
    assert!(!text.contains("message_update") && !text.contains("tool_execution_update"), "{text}");
    assert_eq!(text.matches("message_end").count(), 2);
    assert_eq!(encode(Level::Result, &events), "");
}

#[test]
fn usage_queues_warnings_and_faults_have_their_lines() {
    let usage = Usage { input: 40, output: 9, total_tokens: 49, ..Usage::default() };
    let payload = PendingEntry::Message { payload: Arc::new(Message::user("later", Vec::new(), 1)) };
    let queues = vec![Queued { entry_id: EntryId::new("e1"), kind: InboxKind::Steer, payload }];
    let events = [
        Event::MessageUpdate { index: 0, event: BlockEvent::TextDelta("x".to_owned()), usage: Some(Box::new(usage)) },
        Event::QueueUpdate { queues },
        Event::Warning { code: "max_turns".to_owned(), message: "80 %".to_owned() },
        Event::Fault {
            error: ErrorRecord {
                code: Some("commit_failed".to_owned()),
                ..ErrorRecord::new(ErrorKind::Storage, "disk full")
            },
        },
        Event::TurnEnd { turn: 2, message: None, tool_results: Vec::new() },
    ];
    let lines = encoded(&events);
    assert_eq!(lines[0]["usage"]["input"], 40);
    assert_eq!(lines[1]["steering"][0]["content"][0]["text"], "later");
    assert_eq!(lines[1]["followUp"], json!([]));
    assert_eq!((&lines[2]["type"], &lines[2]["code"]), (&json!("warning"), &json!("max_turns")));
    assert_eq!((&lines[3]["type"], &lines[3]["code"]), (&json!("warning"), &json!("commit_failed")));
    assert_eq!((&lines[4]["message"], &lines[4]["toolResults"]), (&Value::Null, &json!([])));
}

#[test]
fn neighbouring_deltas_of_one_block_are_joined_and_nothing_else() {
    let delta = |index, text: &str| update(index, BlockEvent::TextDelta(text.to_owned()));
    let thinking = update(0, BlockEvent::ThinkingDelta("x".to_owned()));
    let with_usage =
        Event::MessageUpdate { index: 0, event: BlockEvent::TextDelta("x".to_owned()), usage: Some(Box::default()) };
    let long = "x".repeat(MERGED_BYTES_MAX);
    for other in [delta(1, "x"), thinking, with_usage, update(0, text_end("x")), delta(0, &long), case_2().remove(0)] {
        assert!(!merge(&mut delta(0, "a"), &other), "{other:?}");
    }
    let mut joined = delta(0, "he");
    assert!(merge(&mut joined, &delta(0, "llo")));
    assert!(matches!(joined, Event::MessageUpdate { event: BlockEvent::TextDelta(text), .. } if text == "hello"));

    let mut events = case_3();
    let before = rebuilt(&encoded(&events));
    let mut merged: Vec<Event> = Vec::new();
    for event in events.drain(..) {
        if !merged.last_mut().is_some_and(|last| merge(last, &event)) {
            merged.push(event);
        }
    }
    assert_eq!(merged.len(), case_3().len() - 2, "two pairs");
    assert_eq!(rebuilt(&encoded(&merged)), before, "concatenation is unchanged");
}

pub(crate) fn session_line() -> SessionLine {
    SessionLine {
        version: SESSION_VERSION,
        pirn: "0.1.0".to_owned(),
        id: "s".to_owned(),
        name: None,
        timestamp: "2026-11-30T15:42:00.000Z".to_owned(),
        cwd: "/w".to_owned(),
        file: None,
        parent: None,
        resumed: false,
        recovered: false,
        leaf_id: None,
        model: ModelRef { provider: "demo".to_owned(), id: "demo".to_owned() },
        thinking: Some(Thinking::Off),
        tools: vec!["ls".to_owned()],
        limits: LimitsLine { max_turns: Some(200), ..LimitsLine::default() },
        config_files: Vec::new(),
    }
}

#[test]
fn the_session_line_has_the_documented_fields() {
    let line = session_line();
    let mut out = Vec::new();
    Encoder::new(Level::Messages).session(&line, 9, &mut out);
    let text = String::from_utf8(out).unwrap();
    assert_eq!(
        text,
        "{\"type\":\"session\",\"seq\":0,\"ts\":9,\"version\":1,\"pirn\":\"0.1.0\",\"id\":\"s\",\
         \"timestamp\":\"2026-11-30T15:42:00.000Z\",\"cwd\":\"/w\",\"file\":null,\"resumed\":false,\"recovered\":false,\
         \"leafId\":null,\"model\":{\"provider\":\"demo\",\"id\":\"demo\"},\"thinking\":\"off\",\"tools\":[\"ls\"],\
         \"limits\":{\"maxTurns\":200,\"maxCost\":null,\"timeoutMs\":null},\"configFiles\":[]}\n"
    );
    let mut out = Vec::new();
    Encoder::new(Level::Result).session(&line, 9, &mut out);
    assert!(out.is_empty(), "the last line only");
}

#[test]
fn the_result_line_has_every_field_of_cli_5_4_in_order() {
    let error = ErrorRecord::new(ErrorKind::RateLimit, "slow down").retryable().with_hint("wait");
    let usage = Usage { input: 12_400, output: 1100, total_tokens: 13_500, ..Usage::default() };
    let share = UsageShare { input: 12_400, output: 1100, cost_usd: None };
    let line = ResultLine {
        usage: UsageTotals::from(&usage),
        usage_by_model: vec![("p/m".to_owned(), share)],
        cost_usd: None,
        ..ResultLine::nothing_sent(75, Reason::Unavailable, Some(error))
    };
    let mut out = Vec::new();
    Encoder::new(Level::Result).result(&line, 9, &mut out);
    let value = lines(&String::from_utf8(out).unwrap()).remove(0);
    let documented = "type seq ts ok exitCode stopReason reason text structured error sessionId sessionFile leafId \
                      resumable model turns requests toolCalls denials usage costUsd usageByModel durationMs \
                      apiDurationMs firstTokenMs pendingFollowUps";
    assert_eq!(keys(&value), documented.split_whitespace().collect::<Vec<_>>());
    assert_eq!(
        (&value["ok"], &value["exitCode"], &value["reason"]),
        (&json!(false), &json!(75), &json!("unavailable"))
    );
    assert_eq!((&value["stopReason"], &value["costUsd"], &value["denials"]), (&Value::Null, &Value::Null, &json!([])));
    assert_eq!(value["error"]["kind"], "rate_limit");
    assert_eq!(keys(&value["usage"]), ["input", "output", "cacheRead", "cacheWrite", "totalTokens"]);
    assert_eq!(value["usageByModel"], json!({"p/m": {"input": 12_400, "output": 1100, "costUsd": null}}));
}
