//! Cases 114, 117, 122 to 124 and 128: what hooks, bounds and cancellations make of calls.

use std::sync::Arc;
use std::time::Duration;

use pirn::harness::Options;
use pirn::model::session::namespace;
use pirn::model::{AssistantHead, AssistantMessage, CancelCause, EntryBody, Event, Reason, Status, StopReason, Write};
use pirn::port::{AfterToolAnswer, AssistantEvent, BeforeToolAnswer, Clock, Common};
use pirn::testing::{Act, CountingTool, Reply};
use pirn::turn::texts;
use serde_json::{Value, json};

use super::recovery::{blocks, reply_at, result_at, told};
use super::tools::{history, slow, then_done, usage_of};
use super::watch::Watch;
use super::world::{World, baseline, calls, echo, say};

/// A hook that refuses `c2` and asks for the end of the run.
fn refusing() -> Arc<Watch> {
    let watch = Watch::new().before_tool(|asked| BeforeToolAnswer {
        block: (asked.call.id == "c2").then(|| "not here".to_owned()),
        common: Common { stop: asked.call.id == "c2", ..Common::default() },
        ..BeforeToolAnswer::default()
    });
    watch.shared()
}

#[tokio::test(start_paused = true)]
async fn a_refusal_can_end_the_run_behind_its_batch_case_114() {
    let script = || vec![calls(vec![echo("c1", "v"), echo("c2", "v"), echo("c3", "v")])];
    let change = |options: &mut Options| {
        options.hooks = vec![refusing()];
        options.settings.tool_execution = pirn::model::Execution::Sequential;
    };
    let world = World::new().await;
    let process = world.process_with(script(), change).await;
    let result = process.prompt("go").await.result();
    let transactions = process.faults.transactions().len();
    let found = (result.status, result.reason, result.stop_reason);
    assert_eq!(found, (Status::Stopped, Reason::Blocked, Some(StopReason::ToolUse)));
    assert_eq!((world.texts(), process.provider.count()), (stopped_texts(), 1));
    assert_eq!((world.executions.count(), world.tree().as_str()), (1, "u a r r r"));
    let last = process.faults.transactions().pop().unwrap();
    assert!(matches!(last[0], Write::Entry { .. }), "the last result and the end are one transaction: {last:?}");
    assert!(told(&process).ends_with(&["turn_end".to_owned(), "run_end{stopped}".to_owned()]));
    // Killed anywhere from the refusal on, the end is the same, and nothing more runs.
    let refused = (0..transactions).find(|n| {
        let writes = &process.faults.transactions()[*n];
        writes.iter().any(|write| matches!(write, Write::Set { value, .. } if value["stop"] == "blocked"))
    });
    for n in refused.unwrap() + 1..transactions {
        let world = World::new().await;
        let first = world.process_with(script(), change).await;
        first.faults.kill_after(n);
        first.prompt("go").await.killed();
        let next = world.process_with(Vec::new(), change).await;
        let result = next.go_on().await.result();
        assert_eq!(
            (result.reason, result.stop_reason),
            (Reason::Blocked, Some(StopReason::ToolUse)),
            "killed after {n}"
        );
        assert_eq!((world.executions.count(), next.provider.count()), (1, 0), "killed after {n}");
        assert_eq!(next.heard.names().pop().as_deref(), Some("run_end{stopped}"), "killed after {n}");
        assert_eq!((world.texts(), world.open_addresses()), (stopped_texts(), Vec::new()), "killed after {n}");
    }
}

fn stopped_texts() -> Vec<String> {
    ["go", "", "v", "not here", texts::TOOL_CANCELLED].map(str::to_owned).to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_refusal_in_a_parallel_batch_lets_nothing_start_any_more_case_114() {
    let world = World::new().await;
    let script = vec![calls(vec![echo("c1", "v"), echo("c2", "v"), echo("c3", "v")])];
    let process = world.process_with(script, |options| options.hooks = vec![refusing()]).await;
    let result = process.prompt("go").await.result();
    assert_eq!((result.reason, world.executions.count()), (Reason::Blocked, 0));
    assert_eq!(world.texts(), ["go", "", texts::TOOL_CANCELLED, "not here", texts::TOOL_CANCELLED]);
}

#[tokio::test(start_paused = true)]
async fn a_hook_behind_a_call_can_end_the_run_case_114() {
    let world = World::new().await;
    let watch = Watch::new().after_tool(|asked| AfterToolAnswer {
        common: Common { stop: asked.call.id == "c1", ..Common::default() },
        ..AfterToolAnswer::default()
    });
    let script = vec![calls(vec![echo("c1", "v"), echo("c2", "w")])];
    let process = world
        .process_with(script, |options| {
            options.hooks = vec![watch.shared()];
            options.settings.tool_execution = pirn::model::Execution::Sequential;
        })
        .await;
    let result = process.prompt("go").await.result();
    assert_eq!((result.status, result.reason, world.executions.count()), (Status::Stopped, Reason::Blocked, 1));
    assert_eq!(world.texts(), ["go", "", "v", texts::TOOL_CANCELLED]);
}

#[tokio::test(start_paused = true)]
async fn a_third_truncated_reply_in_a_row_ends_the_run_case_117() {
    let truncated = || Reply::blocks(vec![echo("c1", "v")]).stop(StopReason::Length).usage(usage_of(4096));
    let script = || vec![truncated(), truncated(), late(truncated_message()), say("never")];
    let world = World::new().await;
    let process = world.process(script()).await;
    let queued = async {
        while process.provider.count() < 3 {
            world.clock.sleep(Duration::from_millis(100)).await;
        }
        process.lane.steer("too late").await.unwrap();
    };
    let (ended, ()) = tokio::join!(process.prompt("go"), queued);
    let result = ended.result();
    let found = (result.status, result.reason, result.stop_reason);
    assert_eq!(found, (Status::Completed, Reason::Length, Some(StopReason::Length)));
    assert_eq!((process.provider.count(), world.executions.count()), (3, 0));
    assert!(world.texts().iter().filter(|text| **text == texts::truncated("echo")).count() == 3, "{:?}", world.texts());
    assert_eq!(process.lane.inbox().len(), 1, "what was queued stays queued");
    let last = process.faults.transactions().pop().unwrap();
    assert!(matches!(last[0], Write::Entry { .. }), "the third placement is the end: {last:?}");

    // Placements are TX7 and TX11: prompt, checkpoint, ready, pending, tools, outcome, placement, and four for each turn
    // that follows.
    let world = World::new().await;
    let first = world.process(script()).await;
    first.faults.kill_after(12);
    first.prompt("go").await.killed();
    assert_eq!(world.tree(), "u a r a r");
    let next = world.process(vec![truncated()]).await;
    let result = next.go_on().await.result();
    assert_eq!((result.reason, next.provider.count(), world.tree().as_str()), (Reason::Length, 1, "u a r a r a r"));
}

/// A truncated reply with a call, whole.
fn truncated_message() -> AssistantMessage {
    let mut message = AssistantMessage::pending(&head());
    message.content = vec![echo("c1", "v")];
    message.stop_reason = StopReason::Length;
    message.usage = usage_of(4096);
    message
}

fn head() -> AssistantHead {
    AssistantHead { api: "fake-api".to_owned(), provider: "fake".to_owned(), model: "m1".to_owned(), timestamp: 0 }
}

/// A reply that ends a second after it began.
fn late(message: AssistantMessage) -> Reply {
    Reply::raw(vec![
        Act::Emit(AssistantEvent::Start(head())),
        Act::Sleep(Duration::from_secs(1)),
        Act::Emit(AssistantEvent::End(Box::new(message))),
    ])
}

#[tokio::test(start_paused = true)]
async fn a_hook_can_let_a_call_run_and_end_the_run_behind_it_case_122() {
    let ending = || Watch::new().before_tool(|_| BeforeToolAnswer { terminate: true, ..BeforeToolAnswer::default() });
    let world = World::new().await;
    let process = world.process_with(baseline(), |options| options.hooks = vec![ending().shared()]).await;
    let result = process.prompt("go").await.result();
    assert_eq!((result.reason, result.completion.as_deref()), (Reason::ToolTerminated, Some("tools")));
    assert_eq!((world.executions.count(), process.provider.count(), world.tree().as_str()), (1, 1, "u a r"));
    assert_eq!(world.texts()[2], "v");
    assert!(matches!(world.path()[2].body, EntryBody::Message { terminate: true, .. }));

    // The hook behind the call has the last word.
    let world = World::new().await;
    let not = ending().after_tool(|_| AfterToolAnswer { terminate: Some(false), ..AfterToolAnswer::default() });
    let process = world.process_with(baseline(), |options| options.hooks = vec![not.shared()]).await;
    assert_eq!(process.prompt("go").await.result().reason, Reason::Completed);
    assert_eq!(process.provider.count(), 2);

    // The wish is stored with the intent.
    let world = World::new().await;
    let first = world.process_with(baseline(), |options| options.hooks = vec![ending().shared()]).await;
    first.faults.kill_after(6);
    first.prompt("go").await.killed();
    let watch = Watch::new().shared();
    let next = world.process_with(Vec::new(), |options| options.hooks = vec![watch.clone()]).await;
    assert_eq!(next.go_on().await.result().reason, Reason::ToolTerminated);
    assert!(!watch.asked().join(" ").contains("before_tool"), "{:?}", watch.asked());
    assert_eq!((world.executions.count(), next.provider.count()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn arguments_of_a_hook_go_to_the_tool_and_those_of_the_model_stay_in_the_tree_case_123() {
    for replaced in [true, false] {
        let world = World::new().await;
        let watch = Watch::new().before_tool(move |_| BeforeToolAnswer {
            args: replaced.then(|| json!({"value": "b"})),
            ..BeforeToolAnswer::default()
        });
        let script = then_done(vec![echo("c1", "a")]);
        let process = world.process_with(script, |options| options.hooks = vec![watch.shared()]).await;
        process.prompt("go").await.result();
        let start = process.heard.events().into_iter().find_map(|told| match told.event {
            Event::ToolStart { args, effective_args, .. } => Some((Value::Object((*args).clone()), effective_args)),
            _ => None,
        });
        let (args, effective) = start.unwrap();
        assert_eq!(args, json!({"value": "a"}));
        assert_eq!(effective.as_deref(), replaced.then(|| json!({"value": "b"})).as_ref());
        let stored = process.faults.transactions().into_iter().flatten().find_map(|write| match write {
            Write::Set { namespace, value, .. } if namespace == namespace::TOOL_ARGS => Some(value),
            _ => None,
        });
        let effective = if replaced { "b" } else { "a" };
        assert_eq!(stored.unwrap(), json!({"value": effective}));
        assert_eq!(world.executions.list()[0].args, json!({"value": effective}));
        assert_eq!((reply_at(&world, 1).content[0].clone(), world.texts()[2].as_str()), (echo("c1", "a"), effective));
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_of_a_parallel_batch_is_cleared_before_one_starts_case_124() {
    let world = World::new().await;
    let process = world.process(then_done(vec![echo("c1", "a"), echo("c2", "b")])).await;
    let faults = process.faults.clone();
    let watch = Watch::new().noting(move |word| faults.note(word));
    process.harness.register_hooks(watch.shared()).forever();
    process.prompt("go").await.result();
    let story = process.faults.story();
    let place = |needle: &str| story.iter().position(|line| line.contains(needle)).unwrap();
    assert!(place("before_tool c1") < place("before_tool c2"), "{story:#?}");
    assert!(place("before_tool c2") < place("op.tool_args"), "{story:#?}");
    assert!(place("op.tool_args") < place("after_tool c1"), "{story:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ignores_its_cancellation_is_not_waited_for_case_128() {
    let world = World::new().await;
    let process = world.process(vec![Reply::text_deltas(&["hel", "lo"]).hangs()]).await;
    let abort = async {
        process.provider.stalled(1).await;
        process.lane.abort(CancelCause::Int).await.unwrap();
        world.clock.monotonic_ms()
    };
    let (ended, aborted_at) = tokio::join!(process.prompt("go"), abort);
    let took = world.clock.monotonic_ms() - aborted_at;
    assert_eq!(ended.result().status, Status::Aborted);
    assert!((300..=500).contains(&took), "{took} ms");
    let reply = reply_at(&world, 1);
    assert_eq!((world.tree().as_str(), reply.text().as_str()), ("u a!ab", "hello"));
    assert_eq!(reply.error_message.as_deref(), Some(texts::CANCELLED));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_ignores_its_cancellation_is_not_waited_for_case_128() {
    let world = World::new().await;
    let stuck = Arc::new(CountingTool::stuck().named("slow").counted(&world.executions).checkpoint("half"));
    let grace = Duration::from_secs(2);
    let change = |options: &mut Options| {
        options.tools[2] = stuck;
        options.limits.grace = grace;
    };
    let process = world.process_with(vec![calls(vec![slow("c1")])], change).await;
    let abort = async {
        world.executions.begun(1).await;
        process.lane.abort(CancelCause::Int).await.unwrap();
        world.clock.monotonic_ms()
    };
    let (ended, aborted_at) = tokio::join!(process.prompt("go"), abort);
    let took = world.clock.monotonic_ms() - aborted_at;
    assert_eq!(ended.result().status, Status::Aborted);
    // A second more than its children get: their last output is worth waiting for.
    assert_eq!(took, 3_000);
    let result = result_at(&world, 2);
    assert_eq!((result.is_error, blocks(&result)), (true, vec![format!("half\n\n{}", texts::TOOL_ABORTED)]));
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_a_place_do_not_start_once_the_run_is_to_end_case_114() {
    let world = World::new().await;
    let watch = Watch::new().after_tool(|asked| AfterToolAnswer {
        common: Common { stop: asked.call.id == "c1", ..Common::default() },
        ..AfterToolAnswer::default()
    });
    let script = vec![calls(vec![echo("c1", "v"), echo("c2", "w"), echo("c3", "x")])];
    let process = world
        .process_with(script, |options| {
            options.hooks = vec![watch.shared()];
            options.limits.max_parallel = 1;
        })
        .await;
    let result = process.prompt("go").await.result();
    assert_eq!((result.reason, world.executions.count()), (Reason::Blocked, 1));
    assert_eq!(world.texts(), ["go", "", "v", texts::TOOL_CANCELLED, texts::TOOL_CANCELLED]);
    assert_eq!(
        history(&process.faults.transactions()).iter().filter(|line| line.contains("effect_pending")).count(),
        1
    );
}
