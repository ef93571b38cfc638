//! Lines of durable runs: retries, fallbacks, recovery, several runs; what the grammar takes of them and what it refuses.

#![cfg(test)]

use std::panic::catch_unwind;
use std::sync::Arc;

use pirn::model::{
    AssistantBlock, BlockEvent, CancelCause, Content, EntryId, Event, Extra, HandlerKind, Message, NamedValue, Reason,
    RecoveryAction, RunId, RunOutcome, StopReason, ToolCall, ToolResultMessage, ToolResultView,
};
use pirn::print::{Encoder, Level, ResultLine};
use serde_json::{Value, json};

use super::cli::grammar;
use super::jsonl::{call, keys, lines, reply, session_line};

/// An event, and whether it tells of a dead process's work.
type Told = (Event, bool);

fn encode(events: &[Told]) -> String {
    let (mut encoder, mut out) = (Encoder::new(Level::Events), Vec::new());
    for (event, recovery) in events {
        encoder.event(event, *recovery, 9, &mut out);
    }
    String::from_utf8(out).unwrap()
}

fn retry(attempt: u32) -> Event {
    let error_message = "overloaded: try later".to_owned();
    Event::RetryScheduled { attempt, max_attempts: 4, delay_ms: 1000, not_before: 7, error_message }
}

fn retried(attempt: u32, success: bool) -> Event {
    Event::RetryEnd { attempt, success, final_error: (!success).then(|| "Run cancelled".to_owned()) }
}

fn fallback() -> Event {
    Event::ModelFallback { from: "p/a".to_owned(), to: "p/b".to_owned(), error_message: "no".to_owned() }
}

fn step(action: RecoveryAction, tool_call_id: Option<&str>) -> Event {
    Event::RecoveryStep {
        run_id: RunId::new("r1"),
        state: "tools".to_owned(),
        action,
        tool_call_id: tool_call_id.map(str::to_owned),
        notice: Some("for people".to_owned()),
    }
}

fn handler(kind: HandlerKind) -> Event {
    Event::HandlerError { kind, name: "fmt".to_owned(), error: "exit 1".to_owned() }
}

#[test]
fn each_event_of_a_durable_run_has_its_line_or_none() {
    let run_id = || RunId::new("r1");
    let table = [
        (Event::RunResume { run_id: run_id() }, json!({"type": "agent_start", "runId": "r1", "recovery": true})),
        (
            retry(2),
            json!({
                "type": "auto_retry_start", "attempt": 2, "maxAttempts": 4, "delayMs": 1000,
                "errorMessage": "overloaded: try later"
            }),
        ),
        (retried(3, true), json!({"type": "auto_retry_end", "success": true, "attempt": 3})),
        (
            retried(3, false),
            json!({"type": "auto_retry_end", "success": false, "attempt": 3, "finalError": "Run cancelled"}),
        ),
        (fallback(), json!({"type": "model_fallback", "from": "p/a", "to": "p/b", "errorMessage": "no"})),
        (
            step(RecoveryAction::Settle, None),
            json!({"type": "recovery", "operationId": "r1", "state": "tools", "action": "settle"}),
        ),
        (
            step(RecoveryAction::Interrupt, Some("c1")),
            json!({"type": "recovery", "operationId": "r1", "state": "tools", "action": "interrupt", "toolCallId": "c1"}),
        ),
        (
            handler(HandlerKind::Hook),
            json!({"type": "warning", "code": "hook", "message": "the hook fmt failed: exit 1"}),
        ),
        (
            handler(HandlerKind::Event),
            json!({"type": "warning", "code": "listener", "message": "the listener fmt failed: exit 1"}),
        ),
    ];
    for (event, expected) in table {
        let line = lines(&encode(&[(event, false)])).remove(0);
        let framed = keys(&line)[..3].to_vec();
        assert_eq!(framed, ["type", "seq", "ts"]);
        let mut wanted = expected.as_object().unwrap().clone();
        wanted.extend([("seq".to_owned(), json!(0)), ("ts".to_owned(), json!(9))]);
        assert_eq!(line, Value::Object(wanted));
    }
    let silent = [
        Event::RetryStart { attempt: 2 },
        Event::OperationAbort { run_id: run_id(), cause: CancelCause::Int, steer: Vec::new(), follow_up: Vec::new() },
        Event::ValueUpdate { value: NamedValue::SessionName(None) },
        Event::LaneCreated { at: None },
    ];
    let told: Vec<Told> = silent.into_iter().map(|event| (event, true)).collect();
    assert_eq!(encode(&told), "");
}

#[test]
fn lines_of_a_dead_processs_work_say_so_and_no_others() {
    let answer = text("x", StopReason::Stop);
    let mut marked = vec![
        Event::RunStart { run_id: RunId::new("r1"), started_at: 1 },
        Event::TurnStart { turn: 1 },
        Event::MessageStart { message: Arc::clone(&answer) },
        Event::MessageUpdate { index: 0, event: BlockEvent::TextStart, usage: None },
        Event::MessageEnd { message: Arc::clone(&answer), entry_id: None },
        Event::TurnEnd { turn: 1, message: None, tool_results: Vec::new() },
        retry(2),
        retried(2, true),
    ];
    marked.extend(call_lines(&the_call("c1")));
    let partial = Arc::new(ToolResultView::default());
    marked.push(Event::ToolUpdate { tool_call_id: "c1".to_owned(), tool_name: "bash".to_owned(), partial });
    let plain = [
        end_of(vec![answer], Reason::Completed),
        fallback(),
        step(RecoveryAction::Resume, None),
        Event::QueueUpdate { queues: Vec::new() },
        Event::Warning { code: "w".to_owned(), message: "m".to_owned() },
    ];
    for (events, marks) in [(&marked[..], true), (&plain[..], false)] {
        for event in events {
            let line = |recovery| lines(&encode(&[(event.clone(), recovery)])).remove(0);
            assert_eq!(line(false).get("recovery"), None, "{event:?}");
            let again = line(true);
            assert_eq!(again.get("recovery"), marks.then_some(&Value::Bool(true)), "{event:?}");
            assert!(!marks || keys(&again).last() == Some(&"recovery"), "behind the others: {again}");
        }
    }
}

// Streams.

fn text(text: &str, stop_reason: StopReason) -> Arc<Message> {
    reply(vec![AssistantBlock::text(text)], stop_reason)
}

fn prompt() -> Arc<Message> {
    Arc::new(Message::user("p", Vec::new(), 1))
}

fn the_call(id: &str) -> ToolCall {
    call(id, "bash", json!({"command": "true"}))
}

fn result_of(id: &str) -> Arc<Message> {
    Arc::new(Message::ToolResult(ToolResultMessage {
        tool_call_id: id.to_owned(),
        tool_name: "bash".to_owned(),
        content: vec![Content::text(format!("result of {id}"))],
        details: None,
        is_error: true,
        usage: None,
        duration_ms: None,
        timestamp: 7,
        extra: Extra::new(),
    }))
}

fn call_lines(call: &ToolCall) -> [Event; 2] {
    let (tool_call_id, tool_name) = (call.id.clone(), call.name.clone());
    let content = vec![Content::text(format!("result of {}", call.id))];
    let result = Arc::new(ToolResultView { content, ..ToolResultView::default() });
    [
        Event::ToolStart {
            tool_call_id: tool_call_id.clone(),
            tool_name: tool_name.clone(),
            args: Arc::new(call.arguments.clone()),
            effective_args: None,
        },
        Event::ToolEnd { tool_call_id, tool_name, result, is_error: true, duration_ms: None },
    ]
}

fn end_of(messages: Vec<Arc<Message>>, reason: Reason) -> Event {
    let outcome = RunOutcome { messages: Vec::new(), stop_reason: None, reason, error: None, cause: None };
    Event::RunEnd { messages, outcome: Arc::new(outcome), result: None }
}

fn pair(message: &Arc<Message>, recovery: bool) -> [Told; 2] {
    let entry_id = Some(EntryId::new("e"));
    let start = match message.as_assistant() {
        Some(_) => reply(Vec::new(), StopReason::Pending),
        None => Arc::clone(message),
    };
    [
        (Event::MessageStart { message: start }, recovery),
        (Event::MessageEnd { message: Arc::clone(message), entry_id }, recovery),
    ]
}

fn turn_end(turn: u32, message: Option<&Arc<Message>>, tool_results: &[&str]) -> Told {
    let tool_results = tool_results.iter().map(|id| result_of(id)).collect();
    (Event::TurnEnd { turn, message: message.cloned(), tool_results }, false)
}

fn plain(event: Event) -> Told {
    (event, false)
}

fn starts(turn: u32, recovery: bool) -> Told {
    (Event::TurnStart { turn }, recovery)
}

fn fresh(id: &str) -> Told {
    (Event::RunStart { run_id: RunId::new(id), started_at: 1 }, false)
}

fn resumed() -> Told {
    (Event::RunResume { run_id: RunId::new("r1") }, true)
}

/// A stream: what happened, and the sums of its result.
struct Stream {
    events: Vec<Told>,
    result: ResultLine,
}

fn stream(events: Vec<Told>, turns: u32, text: &str, reason: Reason, stop_reason: StopReason) -> Stream {
    let code = if reason == Reason::Completed { 0 } else { 130 };
    let tool_calls = u32::from(events.iter().any(|(event, _)| matches!(event, Event::ToolStart { .. })));
    let line = ResultLine::nothing_sent(code, reason, None);
    let result = ResultLine { turns, tool_calls, text: text.to_owned(), stop_reason: Some(stop_reason), ..line };
    Stream { events, result }
}

impl Stream {
    fn text(&self) -> String {
        let (mut encoder, mut out) = (Encoder::new(Level::Events), Vec::new());
        encoder.session(&session_line(), 0, &mut out);
        for (event, recovery) in &self.events {
            encoder.event(event, *recovery, 0, &mut out);
        }
        encoder.result(&self.result, 0, &mut out);
        String::from_utf8(out).unwrap()
    }

    /// Whether the grammar takes it.
    fn fits(&self) -> bool {
        let text = self.text();
        catch_unwind(|| grammar::check(&text)).is_ok()
    }

    /// The same with its events changed.
    fn with(mut self, change: impl FnOnce(&mut Vec<Told>)) -> Self {
        change(&mut self.events);
        self
    }
}

/// A run of one turn whose first attempt failed.
fn retried_run() -> Stream {
    let (half, whole) = (text("half", StopReason::Error), text("whole", StopReason::Stop));
    let mut events = vec![fresh("r1"), starts(1, false)];
    events.extend(pair(&prompt(), false));
    events.extend(pair(&half, false));
    events.extend([plain(retry(2)), plain(Event::RetryStart { attempt: 2 })]);
    events.extend(pair(&whole, false));
    events.extend([plain(retried(2, true)), turn_end(1, Some(&whole), &[])]);
    events.push(plain(end_of(vec![prompt(), half, whole], Reason::Completed)));
    stream(events, 1, "whole", Reason::Completed, StopReason::Stop)
}

/// A reply that a dead process had asked for is settled, and asked for again.
fn settled_run() -> Stream {
    let (half, whole) = (text("half", StopReason::Error), text("whole", StopReason::Stop));
    let mut events = vec![resumed(), starts(3, true), plain(step(RecoveryAction::Settle, None))];
    events.extend(pair(&half, true));
    events.extend([(retry(2), true), plain(Event::QueueUpdate { queues: Vec::new() })]);
    events.extend(pair(&whole, false));
    events.extend([plain(retried(2, true)), turn_end(3, Some(&whole), &[])]);
    events.push(plain(end_of(vec![prompt(), half, whole], Reason::Completed)));
    stream(events, 3, "whole", Reason::Completed, StopReason::Stop)
}

/// A batch of three calls: the first result was placed before the death, the second had come, the third call was cut off.
fn interrupted_run() -> Stream {
    let calls = ["c1", "c2", "c3"].map(|id| AssistantBlock::ToolCall(the_call(id)));
    let (asked, answer) = (reply(calls.to_vec(), StopReason::ToolUse), text("done", StopReason::Stop));
    let mut events = vec![resumed(), starts(1, true), plain(step(RecoveryAction::Place, Some("c2")))];
    events.extend(pair(&result_of("c2"), true));
    events.push(plain(step(RecoveryAction::Interrupt, Some("c3"))));
    events.extend(call_lines(&the_call("c3")).map(|event| (event, true)));
    events.extend(pair(&result_of("c3"), false));
    events.extend([turn_end(1, Some(&asked), &["c1", "c2", "c3"]), starts(2, false)]);
    events.extend(pair(&answer, false));
    events.push(turn_end(2, Some(&answer), &[]));
    let messages = vec![prompt(), asked, result_of("c1"), result_of("c2"), result_of("c3"), answer];
    events.push(plain(end_of(messages, Reason::Completed)));
    let stream = stream(events, 2, "done", Reason::Completed, StopReason::Stop);
    Stream { result: ResultLine { tool_calls: 3, ..stream.result }, ..stream }
}

/// Nothing was left to do but to say so; then another run.
fn finished_and_another() -> Stream {
    let (old, new) = (text("old", StopReason::Stop), text("new", StopReason::Stop));
    let mut events = vec![resumed(), plain(end_of(vec![prompt(), old], Reason::Completed))];
    events.extend([fresh("r2"), starts(1, false)]);
    events.extend(pair(&prompt(), false));
    events.extend(pair(&new, false));
    events.extend([turn_end(1, Some(&new), &[]), plain(end_of(vec![prompt(), new], Reason::Completed))]);
    stream(events, 2, "new", Reason::Completed, StopReason::Stop)
}

/// Ended before any reply.
fn ended_early() -> Stream {
    let mut events = vec![fresh("r1"), starts(1, false)];
    events.extend(pair(&prompt(), false));
    events.extend([turn_end(1, None, &[]), plain(end_of(vec![prompt()], Reason::Interrupted))]);
    stream(events, 1, "", Reason::Interrupted, StopReason::Aborted)
}

/// Ended in the wait for another attempt, behind a model that was given up.
fn ended_in_a_wait() -> Stream {
    let failed = text("", StopReason::Error);
    let mut events = vec![fresh("r1"), starts(1, false)];
    events.extend(pair(&prompt(), false));
    events.extend(pair(&failed, false));
    events.push(plain(fallback()));
    events.extend(pair(&failed, false));
    events.extend([plain(retry(2)), plain(retried(2, false)), turn_end(1, Some(&failed), &[])]);
    events.push(plain(end_of(vec![prompt(), failed.clone(), failed], Reason::Interrupted)));
    stream(events, 1, "", Reason::Interrupted, StopReason::Aborted)
}

#[test]
fn streams_of_durable_runs_fit_grammar_and_schema() {
    for stream in
        [retried_run(), settled_run(), interrupted_run(), finished_and_another(), ended_early(), ended_in_a_wait()]
    {
        grammar::check(&stream.text());
    }
    // Only what is left of a run: its answer.
    let only = finished_and_another().with(|events| events.truncate(2));
    let only = Stream { result: ResultLine { text: "old".to_owned(), ..only.result }, ..only };
    grammar::check(&only.text());
    // Waits of a dead process end in the next one.
    let waited = settled_run().with(|events| drop(events.drain(2..6)));
    let whole = |message: &Arc<Message>| message.as_assistant().is_none_or(|reply| reply.text() == "whole");
    let waited = waited.with(|events| {
        if let Some((Event::RunEnd { messages, .. }, _)) = events.last_mut() {
            messages.retain(whole);
        }
    });
    grammar::check(&waited.text());
}

fn at(events: &[Told], is: impl Fn(&Event) -> bool) -> usize {
    events.iter().position(|(event, _)| is(event)).unwrap()
}

fn without(events: &mut Vec<Told>, is: impl Fn(&Event) -> bool) {
    let at = at(events, is);
    events.remove(at);
}

fn is_turn_end(event: &Event) -> bool {
    matches!(event, Event::TurnEnd { .. })
}

fn is_run_end(event: &Event) -> bool {
    matches!(event, Event::RunEnd { .. })
}

fn refused<const N: usize>(broken: [(&str, Stream); N]) {
    for (name, stream) in broken {
        assert!(!stream.fits(), "{name}:\n{}", stream.text());
    }
}

#[test]
fn attempts_that_break_a_rule_are_refused() {
    let is_retry = |event: &Event| matches!(event, Event::RetryScheduled { .. });
    let is_retried = |event: &Event| matches!(event, Event::RetryEnd { .. });
    refused([
        ("a retry without its end", retried_run().with(|events| without(events, is_retried))),
        ("an end without its retry", retried_run().with(|events| without(events, is_retry))),
        ("a retry outside of a turn", retried_run().with(|events| events.insert(1, plain(retry(2))))),
        ("attempts that jump", {
            retried_run().with(|events| {
                let at = at(events, is_retry);
                events.insert(at + 1, plain(retry(4)));
            })
        }),
        ("a fallback outside of a turn", {
            retried_run().with(|events| {
                let at = at(events, is_run_end);
                events.insert(at, plain(fallback()));
            })
        }),
        ("a turn that ends with an earlier attempt", {
            retried_run().with(|events| {
                let at = at(events, is_turn_end);
                events[at] = turn_end(1, Some(&text("half", StopReason::Error)), &[]);
            })
        }),
        ("a reply behind one that did not fail", {
            retried_run().with(|events| {
                let at = at(events, is_turn_end);
                let again = pair(&text("whole", StopReason::Stop), false);
                events.splice(at..at, again);
            })
        }),
    ]);
}

#[test]
fn runs_that_go_on_and_break_a_rule_are_refused() {
    refused([
        ("a mark in a run that did not go on", retried_run().with(|events| events[1].1 = true)),
        ("a mark on the start of a run that is new", settled_run().with(|events| events[0] = fresh("r1"))),
        ("a step in a run that is new", {
            retried_run().with(|events| events.insert(1, plain(step(RecoveryAction::Resume, None))))
        }),
        ("a step of another run", {
            settled_run().with(|events| events[0].0 = Event::RunResume { run_id: RunId::new("r9") })
        }),
        ("a run that goes on twice", finished_and_another().with(|events| events[2] = resumed())),
        ("a first turn that is not the first", retried_run().with(|events| events[1] = starts(2, false))),
        ("a run that lacks a message", {
            settled_run().with(|events| {
                let at = at(events, is_run_end);
                events[at] = plain(end_of(vec![text("whole", StopReason::Stop)], Reason::Completed));
            })
        }),
    ]);
}

#[test]
fn calls_of_runs_that_go_on_and_break_a_rule_are_refused() {
    refused([
        ("a result without its call's lines", {
            interrupted_run().with(|events| {
                let at = at(events, |event| matches!(event, Event::ToolStart { .. }));
                events.drain(at..at + 2);
            })
        }),
        ("results out of order", {
            interrupted_run().with(|events| {
                let at = at(events, is_turn_end);
                let first: Vec<Told> = events.drain(3..5).collect();
                events.splice(at - 2..at - 2, first);
            })
        }),
        ("a turn that lacks a result", {
            interrupted_run().with(|events| {
                let at = at(events, is_turn_end);
                let asked = match &events[at].0 {
                    Event::TurnEnd { message, .. } => message.clone(),
                    _ => None,
                };
                events[at] = turn_end(1, asked.as_ref(), &["c2", "c3"]);
            })
        }),
    ]);
}

#[test]
fn sums_that_do_not_fit_the_stream_are_refused() {
    refused([
        ("sums below what is told", {
            let stream = settled_run();
            Stream { result: ResultLine { turns: 0, ..stream.result }, ..stream }
        }),
        ("sums above what a new run tells", {
            let stream = retried_run();
            Stream { result: ResultLine { turns: 2, ..stream.result }, ..stream }
        }),
        ("a verdict that is not the last reply's", {
            let stream = retried_run();
            Stream { result: ResultLine { stop_reason: Some(StopReason::Error), ..stream.result }, ..stream }
        }),
    ]);
}
