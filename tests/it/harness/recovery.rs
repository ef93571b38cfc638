//! Cases 3 and 5 to 25: a process that dies behind any commit, and the next one that goes on.

use std::sync::Arc;
use std::time::Duration;

use pirn::harness::{Drive, Options, Retry, RunError, Snapshot, reduce};
use pirn::model::session::namespace;
use pirn::model::{
    AssistantMessage, Content, EntryBody, Event, Message, Reason, RecoveryAction, Status, StopReason,
    ToolResultMessage, UsageKind, UsageRow,
};
use pirn::port::{AssistantEvent, LlmRequest};
use pirn::testing::{Act, CountingTool, Reply, call};
use pirn::turn::texts;
use serde_json::{Value, json};

use super::watch::Watch;
use super::world::{Ended, Process, World, baseline, calls, echo, say};

/// The assistant message at this place of the path.
pub(super) fn reply_at(world: &World, at: usize) -> AssistantMessage {
    let path = world.path();
    match &path[at].body {
        EntryBody::Message { message, .. } => message.as_assistant().unwrap().clone(),
        other => panic!("no message: {other:?}"),
    }
}

/// The tool result at this place of the path.
pub(super) fn result_at(world: &World, at: usize) -> ToolResultMessage {
    let path = world.path();
    match &path[at].body {
        EntryBody::Message { message, .. } => match &**message {
            Message::ToolResult(result) => result.clone(),
            other => panic!("no result: {other:?}"),
        },
        other => panic!("no message: {other:?}"),
    }
}

/// The texts of a result, block by block.
pub(super) fn blocks(result: &ToolResultMessage) -> Vec<String> {
    result.content.iter().filter_map(Content::as_text).map(str::to_owned).collect()
}

/// What a process told, without the steps of recovery.
pub(super) fn told(process: &Process) -> Vec<String> {
    process.heard.names().into_iter().filter(|name| name != "recovery R").collect()
}

/// How a process dealt with what it found.
fn steps(process: &Process) -> Vec<RecoveryAction> {
    let step = |event: &Event| match event {
        Event::RecoveryStep { action, .. } => Some(*action),
        _ => None,
    };
    process.heard.events().iter().filter_map(|told| step(&told.event)).collect()
}

/// The roles of a request's messages.
fn roles(request: &LlmRequest) -> String {
    let word = |message: &Arc<Message>| match &**message {
        Message::User(_) => "u",
        Message::Assistant(_) => "a",
        Message::ToolResult(_) => "r",
        Message::Custom(_) => "m",
    };
    request.messages.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// A session whose process died behind the n-th transaction of the baseline.
pub(super) async fn killed_after(n: usize, script: Vec<Reply>) -> World {
    let world = World::new().await;
    let first = world.process(script).await;
    first.faults.kill_after(n);
    first.prompt("go").await.killed();
    world
}

fn at(world: &World) -> String {
    world.state()["at"].as_str().unwrap_or_default().to_owned()
}

fn requests_of(world: &World) -> Vec<UsageRow> {
    let mut rows = world.store.usage().unwrap();
    rows.retain(|row| row.kind == UsageKind::Request);
    rows
}

/// Start of a stream with a text block.
fn opening() -> Vec<Act> {
    let head = pirn::model::AssistantHead {
        api: "fake-api".to_owned(),
        provider: "fake".to_owned(),
        model: "m1".to_owned(),
        timestamp: 0,
    };
    vec![Act::Emit(AssistantEvent::Start(head)), text_event(pirn::model::BlockEvent::TextStart)]
}

fn text_event(event: pirn::model::BlockEvent) -> Act {
    Act::Emit(AssistantEvent::Block { index: 0, event })
}

/// Text that hangs behind `saved`, which is kept, and `lost`, which is not yet.
fn hanging(saved: &str, lost: &str) -> Reply {
    let mut acts = opening();
    acts.push(text_event(pirn::model::BlockEvent::TextDelta(saved.to_owned())));
    acts.push(Act::Sleep(Duration::from_millis(300)));
    acts.push(text_event(pirn::model::BlockEvent::TextDelta(lost.to_owned())));
    acts.push(Act::Hang);
    Reply::raw(acts)
}

/// Drives until the stream hangs, and kills the process there.
async fn kill_in_the_stream(process: &Process, drive: impl Future<Output = Ended>) {
    let (ended, ()) = tokio::join!(drive, async {
        process.provider.stalled(1).await;
        process.faults.kill();
    });
    ended.killed();
}

#[tokio::test(start_paused = true)]
async fn events_of_a_run_reduce_to_its_snapshot_case_3() {
    let world = World::new().await;
    let process = world.process(baseline()).await;
    let mut reduced: Snapshot = process.lane.snapshot();
    process.prompt("go").await.result();
    for told in process.heard.events() {
        reduce(&mut reduced, &told);
    }
    assert_eq!(reduced, process.lane.snapshot());
    assert!(reduced.operation.is_none());
    assert_eq!(reduced.transcript.len(), 4);
    assert_eq!(reduced.stats.usage.total_tokens, 30);
    let result = reduced.last_result.unwrap();
    assert_eq!((result.status, result.reason), (Status::Completed, Reason::Completed));
    assert_eq!((result.stop_reason, result.completion.as_deref()), (Some(StopReason::Stop), Some("assistant")));
    assert_eq!(result.final_entry_id, Some(world.path()[3].id.clone()));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_died_before_it_stored_anything_leaves_nothing_to_continue_case_5() {
    let world = World::new().await;
    let first = world.process(baseline()).await;
    first.faults.kill_before(1);
    first.prompt("go").await.killed();
    let next = world.process(baseline()).await;
    let ended = next.go_on().await;
    assert!(matches!(ended, Ended::Refused(RunError::NothingToContinue)), "{ended:?}");
    assert_eq!((next.faults.steps().len(), world.path().len(), world.results()), (0, 0, 0));
    assert_eq!(next.heard.names(), Vec::<String>::new());
}

/// Where the first process died, and what the second one does.
struct Row {
    case: u32,
    n: usize,
    at: &'static str,
    requests: usize,
    executions: usize,
    tree: &'static str,
    /// What hooks are asked, behind `before_drive`.
    hooks: &'static str,
    /// The first events, without the steps of recovery.
    events: &'static str,
    step: Option<RecoveryAction>,
}

/// What hooks are asked about a reply, and about a call.
const REPLY: &str = "before_request after_response";
const CALL: &str = "before_tool c1 after_tool c1";

fn rows() -> Vec<Row> {
    use RecoveryAction::{Place, Rerun, Resume, Settle};
    let row = |case, n, at, (requests, executions), tree, hooks, step, events| Row {
        case,
        n,
        at,
        requests,
        executions,
        tree,
        hooks,
        events,
        step,
    };
    let (whole, last, settled) = ("R C R before_run_end", "R before_run_end", "u a r a");
    let streams = "run_resume R turn_start R message_start message_update+";
    let again = "run_resume R turn_start R message_start R message_end R entry_added R usage R retry_scheduled R \
        retry_start message_start message_update+ message_end entry_added usage retry_end";
    vec![
        row(6, 1, "starting", (2, 1), settled, "before_run R C R before_run_end", Some(Resume), streams),
        row(7, 2, "checkpoint", (2, 1), settled, whole, Some(Resume), streams),
        row(8, 3, "assistant.ready", (2, 1), settled, whole, Some(Resume), streams),
        row(9, 4, "assistant.effect_pending", (2, 1), "u a!err a r a", whole, Some(Settle), again),
        row(
            13,
            5,
            "tools",
            (1, 1),
            settled,
            "C R before_run_end",
            None,
            "run_resume R turn_start R tool_start tool_end message_start message_end entry_added turn_end",
        ),
        row(
            14,
            6,
            "tools",
            (1, 1),
            settled,
            "after_tool c1 R before_run_end",
            Some(Rerun),
            "run_resume R turn_start R tool_start R tool_end message_start message_end entry_added turn_end",
        ),
        row(
            17,
            7,
            "tools",
            (1, 0),
            settled,
            last,
            Some(Place),
            "run_resume R turn_start R message_start R message_end R entry_added R turn_end turn_start message_start",
        ),
        row(18, 8, "checkpoint", (1, 0), settled, last, Some(Resume), "run_resume R turn_start message_start"),
        row(18, 9, "assistant.ready", (1, 0), settled, last, Some(Resume), streams),
        row(19, 10, "assistant.effect_pending", (1, 0), "u a r a!err a", last, Some(Settle), again),
        row(20, 11, "checkpoint", (0, 0), settled, "before_run_end", Some(Resume), "run_resume R run_end{completed}"),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_from_where_its_process_died_cases_6_to_9_13_14_and_17_to_20() {
    for row in rows() {
        check(&row).await;
    }
}

async fn check(row: &Row) {
    let Row { case, n, .. } = *row;
    let world = killed_after(n, baseline()).await;
    assert_eq!(at(&world), row.at, "case {case}, killed after {n}");
    let before = world.executions.count();
    let script = if n <= 4 { baseline() } else { vec![say("done")] };
    let watch = Watch::new().shared();
    let next = world.process_with(script, |options| options.hooks = vec![watch.clone()]).await;
    let mut reduced: Snapshot = next.lane.snapshot();
    let settled = next.go_on().await.settled();
    next.heard.events().iter().for_each(|told| reduce(&mut reduced, told));
    assert_eq!(reduced, next.lane.snapshot(), "case {case}, killed after {n}");
    assert_eq!((settled.result.status, settled.text.as_str()), (Status::Completed, "done"), "case {case}");
    assert_eq!(world.tree(), row.tree, "case {case}, killed after {n}");
    assert_eq!(next.provider.count(), row.requests, "case {case}, killed after {n}: requests");
    assert_eq!(world.executions.count() - before, row.executions, "case {case}, killed after {n}: executions");
    let hooks: Vec<&str> = row
        .hooks
        .split(' ')
        .map(|word| match word {
            "R" => REPLY,
            "C" => CALL,
            other => other,
        })
        .collect();
    assert_eq!(watch.asked().join(" "), format!("before_drive {}", hooks.join(" ")), "case {case}, killed after {n}");
    let (events, expected) = (told(&next).join(" "), row.events);
    assert!(events.starts_with(expected), "case {case}, killed after {n}:\n{events}\n{expected}");
    assert!(events.ends_with("run_end{completed}"), "case {case}, killed after {n}: {events}");
    assert_eq!(steps(&next), row.step.into_iter().collect::<Vec<_>>(), "case {case}, killed after {n}");
    assert_eq!((world.results(), world.open_addresses()), (1, Vec::new()), "case {case}, killed after {n}");
}

#[tokio::test(start_paused = true)]
async fn a_reply_of_which_nothing_arrived_is_stored_as_interrupted_and_asked_for_again_case_9() {
    let world = killed_after(4, baseline()).await;
    let (reserved, state) = (world.state()["responseEntryId"].clone(), world.state());
    assert_eq!((state["attempt"].as_u64(), state["generationContext"]["interruptions"].as_u64()), (Some(1), Some(0)));
    let next = world.process(baseline()).await;
    next.faults.kill_after(1);
    next.go_on().await.killed();
    let state = world.state();
    assert_eq!((state["at"].as_str(), state["nextAttempt"].as_u64()), (Some("assistant.retry_wait"), Some(2)));
    assert_eq!(state["notBefore"].as_u64(), Some(pirn::port::Clock::now_ms(&*world.clock)));
    let last = world.process(baseline()).await;
    last.go_on().await.result();
    assert_eq!(world.tree(), "u a!err a r a");
    assert_eq!(world.path()[1].id.as_str(), reserved.as_str().unwrap());
    let x1 = reply_at(&world, 1);
    assert_eq!(
        (x1.content.len(), x1.provider.as_str(), x1.model.as_str(), x1.api.as_str()),
        (0, "fake", "m1", "unknown")
    );
    assert_eq!(x1.error_message.as_deref(), Some(texts::INTERRUPTED));
    assert_eq!(x1.raw_stop_reason.as_deref(), Some("interrupted"));
    assert_eq!(x1.usage, pirn::model::Usage::default());
    let rows = requests_of(&world);
    assert_eq!(rows.len(), 3);
    assert_eq!((rows[0].cost, rows[0].details.clone()), (Some(0.0), Some(json!({"outcome": "unknown"}))));
    assert_eq!(rows[0].usage, pirn::model::Usage::default());
    for row in &rows {
        let known = (row.provider.as_deref(), row.model_id.as_deref(), row.lane.as_deref());
        assert_eq!(known, (Some("fake"), Some("m1"), Some("main")));
        assert!(row.operation_id.is_some() && row.entry_id.is_some());
    }
    assert_eq!(roles(&last.provider.requests()[0]), "u", "a request does not show an interrupted reply");
}

#[tokio::test(start_paused = true)]
async fn what_was_saved_of_an_interrupted_reply_stays_for_people_only_case_10() {
    let world = World::new().await;
    let first = world.process(vec![hanging("hello ", "wor")]).await;
    kill_in_the_stream(&first, first.prompt("go")).await;
    let next = world.process(vec![say("done")]).await;
    next.go_on().await.result();
    assert_eq!((world.tree().as_str(), world.texts()[1].as_str()), ("u a!err a", "hello "));
    assert_eq!(roles(&next.provider.requests()[0]), "u");
    let expected = "run_resume R turn_start R message_start R message_end R entry_added R usage R retry_scheduled R \
        retry_start message_start message_update+ message_end entry_added usage retry_end turn_end run_end{completed}";
    assert_eq!(told(&next).join(" "), expected.split_whitespace().collect::<Vec<_>>().join(" "));
    let events = next.heard.events();
    let scheduled = events.iter().find_map(|told| match told.event {
        Event::RetryScheduled { attempt, delay_ms, .. } => Some((attempt, delay_ms)),
        _ => None,
    });
    assert_eq!(scheduled, Some((2, 0)));
    let end = events.iter().find_map(|told| match &told.event {
        Event::MessageEnd { entry_id, .. } => entry_id.clone(),
        _ => None,
    });
    assert_eq!(end, Some(world.path()[1].id.clone()));
    let notice = events.iter().find_map(|told| match &told.event {
        Event::RecoveryStep { notice, .. } => notice.clone(),
        _ => None,
    });
    assert_eq!(notice.as_deref(), Some("response interrupted after 6 characters"));
    assert!(world.store.list(namespace::FRAMES, "", 0, 10).unwrap().values.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_cut_off_in_the_stream_never_runs_cases_11_and_12() {
    for (case, whole) in [(11, false), (12, true)] {
        let world = World::new().await;
        let reply = if whole { calls(vec![echo("c1", "v")]) } else { Reply::call_deltas("c1", "echo", &["{\"val"]) };
        let first = world.process(vec![reply]).await;
        if whole {
            first.faults.kill_before(5);
        } else {
            first.faults.kill_after_side(namespace::FRAMES, 1);
        }
        first.prompt("go").await.killed();
        let next = world.process(baseline()).await;
        next.go_on().await.result();
        assert_eq!(world.tree(), "u a!err a r a", "case {case}");
        let arguments = if whole { json!({"value": "v"}) } else { json!({}) };
        assert_eq!(reply_at(&world, 1).content, [call("c1", "echo", &arguments)], "case {case}");
        assert_eq!(world.executions.count(), 1, "case {case}: only the call of the second reply runs");
        assert_eq!(first.provider.count() + next.provider.count(), 3, "case {case}");
        assert_eq!(roles(&next.provider.requests()[0]), "u", "case {case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_whole_reply_is_saved_before_a_hook_is_asked_about_it_case_12() {
    let world = World::new().await;
    let watch = Watch::new().hanging_after_response().shared();
    let first = world.process_with(baseline(), |options| options.hooks = vec![watch.clone()]).await;
    let killed = async {
        while !watch.asked().contains(&"after_response".to_owned()) {
            tokio::task::yield_now().await;
        }
        first.faults.kill();
    };
    let (ended, ()) = tokio::join!(first.prompt("go"), killed);
    ended.killed();
    let next = world.process(baseline()).await;
    next.go_on().await.result();
    let x1 = reply_at(&world, 1);
    assert_eq!((x1.text().as_str(), x1.calls().count()), ("hi", 1));
    assert_eq!((world.tree().as_str(), world.executions.count()), ("u a!err a r a", 1));
}

#[tokio::test(start_paused = true)]
async fn a_safe_call_runs_again_with_its_stored_arguments_case_14() {
    let world = killed_after(6, baseline()).await;
    let next = world.process(vec![say("done")]).await;
    next.go_on().await.result();
    let transactions = next.faults.transactions();
    assert!(
        matches!(&transactions[0][..], [pirn::model::Write::Delete { namespace, .. }] if namespace == namespace::TOOL_OUTPUT),
        "{:?}",
        transactions[0]
    );
    let start = next.heard.events().into_iter().find(|told| matches!(told.event, Event::ToolStart { .. })).unwrap();
    let Event::ToolStart { args, effective_args, .. } = start.event else { panic!("{start:?}") };
    assert_eq!((start.recovery, Value::Object((*args).clone()), effective_args), (true, json!({"value": "v"}), None));
    assert_eq!(world.texts(), ["go", "hi", "v", "done"]);
}

/// A run whose one call is `boom`.
fn boom() -> Vec<Reply> {
    vec![calls(vec![call("c1", "boom", &json!({}))])]
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_not_run_twice_is_answered_as_interrupted_case_15() {
    for ran in [false, true] {
        let world = World::new().await;
        let first = world.process(boom()).await;
        if ran {
            first.faults.kill_before(7);
        } else {
            first.faults.kill_after(6);
        }
        first.prompt("go").await.killed();
        assert_eq!(world.executions.count(), usize::from(ran));
        let watch = Watch::new().shared();
        let next = world.process_with(vec![say("done")], |options| options.hooks = vec![watch.clone()]).await;
        next.go_on().await.result();
        assert_eq!(world.executions.count(), usize::from(ran), "it does not run again");
        assert_eq!(watch.asked(), ["before_drive", "before_request", "after_response", "before_run_end"]);
        let result = result_at(&world, 2);
        assert_eq!((result.is_error, blocks(&result)), (true, vec![texts::TOOL_INTERRUPTED.to_owned()]));
        assert_eq!((world.tree().as_str(), next.provider.count()), ("u a r a", 1));
        let expected = "run_resume R turn_start R tool_start R tool_end R message_start message_end entry_added \
            turn_end turn_start message_start message_update+ message_end entry_added usage turn_end run_end{completed}";
        assert_eq!(told(&next).join(" "), expected.split_whitespace().collect::<Vec<_>>().join(" "));
        assert_eq!(steps(&next), [RecoveryAction::Interrupt]);
    }
}

#[tokio::test(start_paused = true)]
async fn saved_progress_stands_above_the_note_of_an_interrupted_call_case_16() {
    let world = World::new().await;
    let tool = Arc::new(CountingTool::boom().counted(&world.executions).checkpoint("step 1"));
    let first = world.process_with(boom(), |options| options.tools[1] = tool).await;
    first.faults.kill_after_side(namespace::TOOL_OUTPUT, 1);
    first.prompt("go").await.killed();
    assert_eq!(world.executions.count(), 1);
    let next = world.process(vec![say("done")]).await;
    next.go_on().await.result();
    let result = result_at(&world, 2);
    assert_eq!(blocks(&result), ["step 1", texts::TOOL_INTERRUPTED]);
    assert_eq!((world.executions.count(), world.tree().as_str()), (1, "u a r a"));
    assert_eq!(world.open_addresses(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_over_is_not_touched_again_case_21() {
    let world = killed_after(12, baseline()).await;
    for _ in 0..2 {
        let next = world.process(Vec::new()).await;
        let ended = next.go_on().await;
        assert!(matches!(ended, Ended::Refused(RunError::NothingToContinue)), "{ended:?}");
        let result = next.lane.last_result().unwrap();
        assert_eq!(
            (result.status, result.final_entry_id.as_ref()),
            (Status::Completed, world.path().last().map(|e| &e.id))
        );
        assert_eq!((next.faults.steps().len(), next.provider.count()), (0, 0));
    }
    assert_eq!(world.texts(), ["go", "hi", "v", "done"]);
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_not_asked_for_again_where_nobody_wants_to_pay_twice_case_23() {
    let world = killed_after(4, baseline()).await;
    let next = world.process(baseline()).await;
    let result = next.go_on_with(Drive { resend: false, ..Drive::default() }).await.result();
    assert_eq!((result.status, next.provider.count(), world.tree().as_str()), (Status::Failed, 0, "u a!err"));
    let kind = result.error_kind.map(|kind| serde_json::to_value(kind).unwrap());
    assert_eq!((result.error.as_ref().unwrap().code.as_str(), kind), ("interrupted", Some(json!("interrupted"))));
    assert!(told(&next).ends_with(&["turn_end".to_owned(), "run_end{failed}".to_owned()]), "{:?}", told(&next));
    let last = world.process(baseline()).await;
    assert_eq!(last.go_on().await.result().status, Status::Completed);
    assert_eq!((last.provider.count(), world.tree().as_str(), world.results()), (2, "u a!err a r a", 2));
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_always_interrupted_is_given_up_case_24() {
    let world = World::new().await;
    let limited = |options: &mut Options| options.limits.max_interruptions = 2;
    let mut requests = 0;
    for n in 0..3 {
        let process = world.process_with(vec![hanging("x", "y")], limited).await;
        if n == 0 {
            kill_in_the_stream(&process, process.prompt("go")).await;
        } else {
            kill_in_the_stream(&process, process.go_on()).await;
        }
        requests += process.provider.count();
    }
    let last = world.process_with(vec![say("done")], limited).await;
    let result = last.go_on().await.result();
    assert_eq!((result.status, result.error.as_ref().unwrap().code.as_str()), (Status::Failed, "interrupted"));
    assert_eq!((world.tree().as_str(), requests + last.provider.count()), ("u a!err a!err a!err", 3));
}

#[tokio::test(start_paused = true)]
async fn to_continue_asks_once_more_though_retries_are_off_case_25() {
    let off = |options: &mut Options| options.retry = Retry { enabled: false, ..options.retry };
    for fails in [false, true] {
        let world = World::new().await;
        let first = world.process_with(baseline(), off).await;
        first.faults.kill_after(4);
        first.prompt("go").await.killed();
        let script = if fails { vec![Reply::fail("503 overloaded"), say("done")] } else { vec![say("done")] };
        let next = world.process_with(script, off).await;
        let stored = Arc::new(std::sync::Mutex::new(Value::Null));
        let (seen, store) = (stored.clone(), world.store.clone());
        next.faults.on_commit(1, move || {
            *seen.lock().unwrap() = store.values(namespace::OP_STATE, "").unwrap()[0].1.clone();
        });
        let result = next.go_on().await.result();
        assert_eq!(stored.lock().unwrap()["generationContext"]["retryPolicy"]["maxAttempts"], json!(2));
        let (status, tree) = if fails { (Status::Failed, "u a!err a!err") } else { (Status::Completed, "u a!err a") };
        assert_eq!((result.status, world.tree().as_str(), next.provider.count()), (status, tree, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_continuation_that_dies_in_its_first_turn_goes_on_inside_it_case_7() {
    // The tip is a reply that failed, one that was cancelled, or a result: in none of them did this operation end a turn.
    for tip in ["a!err", "a!ab", "r"] {
        let world = World::new().await;
        let script = match tip {
            "a!err" => vec![Reply::fail("bad request")],
            "a!ab" => vec![Reply::text_deltas(&["hel"]).stalls()],
            _ => vec![calls(vec![echo("c1", "v")])],
        };
        let first = world.process_with(script, |options| options.limits.max_turns = 1).await;
        if tip == "a!ab" {
            let abort = async {
                first.provider.stalled(1).await;
                first.lane.abort(pirn::model::CancelCause::Int).await.unwrap();
            };
            let (ended, ()) = tokio::join!(first.prompt("go"), abort);
            ended.result();
        } else {
            first.prompt("go").await.result();
        }
        assert!(world.tree().ends_with(tip), "{}", world.tree());
        let second = world.process(Vec::new()).await;
        second.faults.kill_after(2);
        second.go_on().await.killed();
        assert_eq!(at(&world), "checkpoint");
        let next = world.process(vec![say("done")]).await;
        next.go_on().await.result();
        assert_eq!(told(&next)[..3], ["run_resume R", "turn_start R", "message_start"], "behind {tip}");
    }
}

#[tokio::test(start_paused = true)]
async fn recovery_that_dies_anywhere_is_recovered_alike_case_22() {
    // A call that may not run twice: whatever dies when, it ran at most once and has one result.
    for n in 1..=12 {
        for m in 1..=8 {
            let script = || boom().into_iter().chain([say("done")]).collect::<Vec<_>>();
            let world = killed_after(n, script()).await;
            for kill in [Some(m), None] {
                let called = world.tree().split(' ').any(|word| word == "a");
                let next = world.process(if called { vec![say("done")] } else { script() }).await;
                if let Some(kill) = kill {
                    next.faults.kill_after(kill);
                }
                if !world.state().is_null() {
                    next.go_on().await;
                }
            }
            let tree: Vec<String> =
                world.tree().split(' ').filter(|word| !word.contains('!')).map(str::to_owned).collect();
            assert_eq!(tree, ["u", "a", "r", "a"], "killed after {n}, then after {m}");
            assert!(world.executions.count() <= 1, "killed after {n}, then after {m}: it ran twice");
            assert_eq!((world.results(), world.open_addresses()), (1, Vec::new()), "killed after {n}, then after {m}");
            assert_eq!(world.store.stats().usage.total_tokens, 30, "killed after {n}, then after {m}");
        }
    }
}
