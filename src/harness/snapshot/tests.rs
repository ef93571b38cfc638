use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{OperationStatus, OperationView, RetryView, RunningTool, SettledTool, Snapshot, reduce};
use crate::model::{
    AssistantHead, AssistantMessage, BlockEvent, CancelCause, Entry, EntryBody, EntryId, ErrorKind, ErrorRecord, Event,
    HandlerKind, InboxKind, LaneConfig, LaneEvent, LaneModel, Message, NamedValue, OperationResult, PendingEntry,
    Queued, Reason, RecoveryAction, RunId, RunOutcome, Status, StopReason, ToolResultMessage, ToolResultView, Usage,
    UsageKind, UsageRow,
};

mod live;

const LANE: &str = "main";

fn id(id: &str) -> EntryId {
    EntryId::new(id)
}

fn on(lane: &str, event: Event) -> LaneEvent {
    LaneEvent { seq: 0, lane: lane.into(), recovery: false, event }
}

fn empty() -> Snapshot {
    Snapshot { lane: LANE.to_owned(), ..Snapshot::default() }
}

fn fold(mut snapshot: Snapshot, events: impl IntoIterator<Item = Event>) -> Snapshot {
    for event in events {
        reduce(&mut snapshot, &on(LANE, event));
    }
    snapshot
}

/// An idle lane of one message, `u0`.
fn idle() -> Snapshot {
    fold(empty(), [added("u0", None, user())])
}

fn run_start() -> Event {
    Event::RunStart { run_id: RunId::new("o1"), started_at: 5 }
}

/// The lane of [`idle`] with an open operation.
fn running() -> Snapshot {
    fold(idle(), [run_start()])
}

/// What [`running`] should become, as far as its operation goes.
#[expect(clippy::unnecessary_wraps, reason = "it is compared with what may be none")]
fn operation(change: impl FnOnce(&mut OperationView)) -> Option<OperationView> {
    let mut operation = OperationView::new(RunId::new("o1"), "run", 5, Some(id("u0")));
    change(&mut operation);
    Some(operation)
}

fn user() -> Message {
    Message::user("hi", Vec::new(), 1)
}

fn pending() -> AssistantMessage {
    AssistantMessage::pending(&AssistantHead { model: "m1".to_owned(), timestamp: 3, ..AssistantHead::default() })
}

fn reply(stop_reason: StopReason) -> Message {
    Message::Assistant(AssistantMessage { stop_reason, ..pending() })
}

fn result_of(call: &str) -> Message {
    Message::ToolResult(ToolResultMessage {
        tool_call_id: call.to_owned(),
        tool_name: "echo".to_owned(),
        content: Vec::new(),
        details: None,
        is_error: false,
        usage: None,
        duration_ms: None,
        timestamp: 1,
        extra: Map::new(),
    })
}

fn entry(name: &str, parent: Option<&str>, message: Message) -> Arc<Entry> {
    let body = EntryBody::Message { message: Arc::new(message), terminate: false };
    Arc::new(Entry { id: id(name), parent_id: parent.map(id), seq: 1, timestamp: 1, body })
}

fn added(name: &str, parent: Option<&str>, message: Message) -> Event {
    Event::EntryAdded { entry: entry(name, parent, message) }
}

fn message_start(message: Message) -> Event {
    Event::MessageStart { message: Arc::new(message) }
}

fn message_end(message: Message) -> Event {
    Event::MessageEnd { message: Arc::new(message), entry_id: None }
}

fn update(index: usize, event: BlockEvent) -> Event {
    Event::MessageUpdate { index, event, usage: None }
}

fn totals(total_tokens: u64) -> Usage {
    Usage { total_tokens, ..Usage::default() }
}

fn usage(total_tokens: u64) -> Event {
    let row = UsageRow {
        id: id("w1"),
        operation_id: None,
        lane: None,
        kind: UsageKind::Request,
        provider: None,
        model_id: None,
        usage: Usage::default(),
        cost: None,
        entry_id: None,
        details: None,
        extra: Map::new(),
    };
    Event::Usage { row: Arc::new(row), totals: totals(total_tokens) }
}

fn config(model: &str) -> LaneConfig {
    let model = LaneModel { provider: "p".to_owned(), model_id: model.to_owned() };
    LaneConfig { model, thinking_level: None, active_tool_names: Vec::new(), extra: Map::new() }
}

fn config_update(model: &str) -> Event {
    Event::ConfigUpdate { config: Arc::new(config(model)), previous: None }
}

fn queued(name: &str) -> Queued {
    let payload = PendingEntry::Message { payload: Arc::new(user()) };
    Queued { entry_id: id(name), kind: InboxKind::Steer, payload }
}

fn view(text: &str) -> Arc<ToolResultView> {
    Arc::new(ToolResultView { details: Some(json!(text)), ..ToolResultView::default() })
}

fn tool_start(call: &str) -> Event {
    Event::ToolStart {
        tool_call_id: call.to_owned(),
        tool_name: "echo".to_owned(),
        args: Arc::new(Map::new()),
        effective_args: Some(Arc::new(json!({"a": 1}))),
    }
}

fn tool_update(call: &str, text: &str) -> Event {
    Event::ToolUpdate { tool_call_id: call.to_owned(), tool_name: "echo".to_owned(), partial: view(text) }
}

fn tool_end(call: &str, text: &str) -> Event {
    Event::ToolEnd {
        tool_call_id: call.to_owned(),
        tool_name: "echo".to_owned(),
        result: view(text),
        is_error: true,
        duration_ms: Some(4),
    }
}

fn tool(call: &str, partial: Option<&str>, settled: Option<&str>) -> RunningTool {
    RunningTool {
        tool_call_id: call.to_owned(),
        tool_name: "echo".to_owned(),
        args: Arc::new(Map::new()),
        effective_args: Some(Arc::new(json!({"a": 1}))),
        partial: partial.map(view),
        settled: settled.map(|text| SettledTool { result: view(text), is_error: true, duration_ms: Some(4) }),
    }
}

fn retry_scheduled() -> Event {
    Event::RetryScheduled {
        attempt: 2,
        max_attempts: 4,
        delay_ms: 100,
        not_before: 1_100,
        error_message: "busy".to_owned(),
    }
}

fn retry() -> RetryView {
    RetryView { attempt: 2, max_attempts: 4, not_before: 1_100, error_message: "busy".to_owned() }
}

fn operation_abort() -> Event {
    let (steer, follow_up) = (Vec::new(), Vec::new());
    Event::OperationAbort { run_id: RunId::new("o1"), cause: CancelCause::Int, steer, follow_up }
}

fn operation_result(operation: &str, from: Option<&EntryId>, tip: Option<&EntryId>) -> Arc<OperationResult> {
    Arc::new(OperationResult {
        operation_id: RunId::new(operation),
        kind: "run".to_owned(),
        status: Status::Completed,
        reason: Reason::Completed,
        stop_reason: Some(StopReason::Stop),
        error_kind: None,
        error: None,
        cause: None,
        from_tip_id: from.cloned(),
        tip_id: tip.cloned(),
        started_at: 5,
        ended_at: 6,
        completion: None,
        final_entry_id: None,
        extra: Map::new(),
    })
}

fn run_end(result: Option<Arc<OperationResult>>) -> Event {
    let outcome = RunOutcome {
        messages: Vec::new(),
        stop_reason: Some(StopReason::Stop),
        reason: Reason::Completed,
        error: None,
        cause: None,
    };
    Event::RunEnd { messages: Vec::new(), outcome: Arc::new(outcome), result }
}

fn fault() -> Event {
    Event::Fault { error: ErrorRecord::new(ErrorKind::Storage, "full") }
}

#[test]
fn each_event_changes_of_an_operation_what_it_tells() {
    let resume = || Event::RunResume { run_id: RunId::new("o1") };
    let tools = |tools: Vec<RunningTool>| operation(|operation| operation.running_tools = tools);
    for (what, events, want) in [
        ("start", vec![], operation(|_| {})),
        ("abort", vec![operation_abort()], operation(|operation| operation.status = OperationStatus::Aborting)),
        ("retry", vec![retry_scheduled()], operation(|operation| operation.retry = Some(retry()))),
        ("retry start", vec![retry_scheduled(), Event::RetryStart { attempt: 2 }], operation(|_| {})),
        (
            "retry end",
            vec![retry_scheduled(), Event::RetryEnd { attempt: 2, success: false, final_error: None }],
            operation(|_| {}),
        ),
        ("tool start", vec![tool_start("c1")], tools(vec![tool("c1", None, None)])),
        ("tool update", vec![tool_start("c1"), tool_update("c1", "a")], tools(vec![tool("c1", Some("a"), None)])),
        (
            "tool end",
            vec![tool_start("c1"), tool_start("c2"), tool_update("c1", "a"), tool_end("c1", "b"), tool_end("c2", "c")],
            tools(vec![tool("c1", Some("a"), Some("b")), tool("c2", None, Some("c"))]),
        ),
        (
            "a call told again",
            vec![tool_start("c1"), tool_start("c2"), tool_update("c1", "a"), tool_start("c1")],
            tools(vec![tool("c1", None, None), tool("c2", None, None)]),
        ),
        ("a call that never started", vec![tool_update("c1", "a"), tool_end("c1", "b")], operation(|_| {})),
        (
            "placement",
            vec![tool_start("c1"), tool_start("c2"), tool_end("c1", "b"), added("r1", Some("u0"), result_of("c1"))],
            tools(vec![tool("c2", None, None)]),
        ),
        (
            "resume",
            vec![retry_scheduled(), message_start(reply(StopReason::Pending)), tool_start("c1"), resume()],
            operation(|operation| operation.retry = Some(retry())),
        ),
        ("end", vec![run_end(None)], None),
        ("fault", vec![tool_start("c1"), fault()], tools(vec![tool("c1", None, None)])),
    ] {
        assert_eq!(fold(running(), events.clone()).operation, want, "{what}");
        if !events.is_empty() {
            // Without an operation there is nothing to change, and none comes of it.
            assert_eq!(fold(idle(), events).operation, None, "{what}");
        }
    }
}

#[test]
fn a_reply_streams_from_its_start_to_its_end() {
    let text = |delta: &str| update(0, BlockEvent::TextDelta(delta.to_owned()));
    let begin = || vec![message_start(reply(StopReason::Pending)), update(0, BlockEvent::TextStart), text("a")];
    for (what, more, want) in [
        ("start", vec![], Some("a")),
        ("deltas", vec![text("b"), text("c")], Some("abc")),
        ("a delta that fits no block", vec![update(1, BlockEvent::TextDelta("x".to_owned()))], Some("a")),
        ("another attempt", vec![message_start(reply(StopReason::Pending))], Some("")),
        ("end", vec![message_end(reply(StopReason::Stop))], None),
        ("after the end", vec![message_end(reply(StopReason::Stop)), text("b")], None),
        ("resume", vec![Event::RunResume { run_id: RunId::new("o1") }], None),
        ("the end of the run", vec![run_end(None)], None),
    ] {
        let snapshot = fold(running(), begin().into_iter().chain(more));
        let message = snapshot.operation.and_then(|operation| operation.streaming_message());
        assert_eq!(message.as_ref().map(AssistantMessage::text).as_deref(), want, "{what}");
        let head = message.map(|message| (message.model, message.timestamp, message.stop_reason));
        assert_eq!(head, want.map(|_| ("m1".to_owned(), 3, StopReason::Pending)), "{what}");
    }
    // What is complete from the start does not stream.
    for message in [user(), result_of("c1"), reply(StopReason::Error)] {
        let snapshot = fold(running(), [message_start(message)]);
        assert_eq!(snapshot, running());
    }
}

#[test]
fn a_streaming_reply_shows_its_numbers_and_what_can_be_read_of_a_call() {
    let start = BlockEvent::ToolCallStart { id: "c1".to_owned(), name: "echo".to_owned() };
    let delta = BlockEvent::ToolCallDelta(r#"{"value":"x"#.to_owned());
    let numbers = Event::MessageUpdate { index: 0, event: delta, usage: Some(Box::new(totals(7))) };
    let snapshot = fold(running(), [message_start(reply(StopReason::Pending)), update(0, start), numbers]);
    let message = snapshot.operation.unwrap().streaming_message().unwrap();
    assert_eq!(message.usage, totals(7));
    assert_eq!(Value::from(message.calls().next().unwrap().arguments.clone()), json!({"value": "x"}));
}

#[test]
fn each_event_changes_of_a_lane_what_it_tells() {
    let with = |change: fn(&mut Snapshot)| {
        let mut snapshot = idle();
        change(&mut snapshot);
        snapshot
    };
    let custom = |type_: &str| Entry {
        id: id("x1"),
        parent_id: Some(id("u0")),
        seq: 2,
        timestamp: 1,
        body: EntryBody::Custom { custom_type: type_.to_owned(), data: None },
    };
    let outcome = RecoveryAction::Resume;
    let run_id = RunId::new("o1");
    for (event, want) in [
        (
            added("u1", Some("u0"), user()),
            with(|snapshot| {
                snapshot.transcript.push(entry("u1", Some("u0"), user()));
                snapshot.tip_id = Some(id("u1"));
                snapshot.stats.message_count = 2;
            }),
        ),
        (Event::QueueUpdate { queues: vec![queued("q1")] }, with(|snapshot| snapshot.queues = vec![queued("q1")])),
        (usage(9), with(|snapshot| snapshot.stats.usage = totals(9))),
        (config_update("m2"), with(|snapshot| snapshot.configuration = Some(config("m2")))),
        (fault(), with(|snapshot| snapshot.faulted = true)),
        (
            run_end(Some(operation_result("o1", None, Some(&id("u0"))))),
            with(|snapshot| snapshot.last_result = Some(operation_result("o1", None, Some(&id("u0"))))),
        ),
        (run_end(None), idle()),
        (Event::TurnStart { turn: 1 }, idle()),
        (Event::TurnEnd { turn: 1, message: None, tool_results: Vec::new() }, idle()),
        (message_start(user()), idle()),
        (message_end(user()), idle()),
        (Event::LaneCreated { at: None }, idle()),
        (Event::ValueUpdate { value: NamedValue::SessionName(None) }, idle()),
        (Event::Warning { code: "c".to_owned(), message: "m".to_owned() }, idle()),
        (Event::HandlerError { kind: HandlerKind::Hook, name: "n".to_owned(), error: "e".to_owned() }, idle()),
        (Event::ModelFallback { from: "a".to_owned(), to: "b".to_owned(), error_message: "e".to_owned() }, idle()),
        (
            Event::RecoveryStep {
                run_id,
                state: "tools".to_owned(),
                action: outcome,
                tool_call_id: None,
                notice: None,
            },
            idle(),
        ),
    ] {
        assert_eq!(fold(idle(), [event.clone()]), want, "{event:?}");
    }
    let added = fold(idle(), [Event::EntryAdded { entry: Arc::new(custom("note")) }]);
    assert_eq!(added.transcript[1], Arc::new(custom("note")));
    assert_eq!((added.tip_id, added.stats.message_count), (Some(id("x1")), 1));
    let emptied =
        fold(idle(), [Event::QueueUpdate { queues: vec![queued("q1")] }, Event::QueueUpdate { queues: vec![] }]);
    assert_eq!(emptied, idle());
}

#[test]
fn a_run_begins_at_the_tip_it_was_accepted_on() {
    assert_eq!(running().operation, operation(|_| {}));
    let first = fold(empty(), [run_start()]).operation.unwrap();
    assert_eq!((first.from_tip_id, first.started_at, first.kind.as_str()), (None, 5, "run"));
    assert_eq!(first.status, OperationStatus::Open);
}

#[test]
fn the_tip_of_a_result_that_is_an_earlier_entry_cuts_the_transcript_there() {
    let (u0, u1, u2, gone) = (id("u0"), id("u1"), id("u2"), id("compacted"));
    for (what, tip, want) in [
        ("nothing refused", Some(&u2), vec!["u0", "u1", "u2"]),
        ("a refused prompt", Some(&u1), vec!["u0", "u1"]),
        ("two refused messages", Some(&u0), vec!["u0"]),
        ("the first prompt refused", None, vec![]),
        ("an entry that is not on the path", Some(&gone), vec!["u0", "u1", "u2"]),
    ] {
        let path = [run_start(), added("u1", Some("u0"), user()), added("u2", Some("u1"), user())];
        let result = operation_result("o1", Some(&u0), tip);
        let snapshot = fold(fold(idle(), path), [run_end(Some(Arc::clone(&result)))]);
        let ids: Vec<&str> = snapshot.transcript.iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(ids, want, "{what}");
        assert_eq!(snapshot.tip_id.as_ref().map(EntryId::as_str), want.last().copied(), "{what}");
        // Refused messages stay in the session.
        assert_eq!(snapshot.stats.message_count, 3, "{what}");
        assert_eq!((snapshot.operation, snapshot.last_result), (None, Some(result)), "{what}");
    }
}

#[test]
fn events_of_another_lane_change_nothing_but_the_statistics() {
    let mut snapshot = running();
    let events = [
        run_start(),
        operation_abort(),
        retry_scheduled(),
        message_start(reply(StopReason::Pending)),
        tool_start("c9"),
        Event::QueueUpdate { queues: vec![queued("q1")] },
        config_update("m2"),
        fault(),
        run_end(Some(operation_result("o9", None, None))),
    ];
    for event in events {
        reduce(&mut snapshot, &on("other", event));
    }
    assert_eq!(snapshot, running());
    reduce(&mut snapshot, &on("other", usage(9)));
    reduce(&mut snapshot, &on("other", added("z1", None, user())));
    let mut want = running();
    want.stats.usage = totals(9);
    want.stats.message_count = 2;
    assert_eq!(snapshot, want);
}
