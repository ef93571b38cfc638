//! Cases 26 to 33 and 125: the calls of a reply, together or one by one, and what they left running.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pirn::harness::Options;
use pirn::model::session::namespace;
use pirn::model::{AssistantBlock, CancelCause, EntryId, Event, Reason, Replay, Status, StopReason, Write};
use pirn::port::{BeforeToolAnswer, Clock, Execution, Orphans, OrphansReport, Tool, ToolCtx, ToolOutput, ToolSpec};
use pirn::testing::{CountingTool, Reply, call};
use pirn::turn::texts;
use serde_json::{Value, json};

use super::invariants::check;
use super::recovery::{blocks, killed_after, result_at, told};
use super::watch::Watch;
use super::world::{World, baseline, calls, echo, say, usage};

pub(super) fn boom(id: &str) -> AssistantBlock {
    call(id, "boom", &json!({}))
}

pub(super) fn slow(id: &str) -> AssistantBlock {
    call(id, "slow", &json!({}))
}

/// `slow` gives `slowed` after a second.
pub(super) fn slowish(world: &World, replay: Replay) -> impl FnOnce(&mut Options) + use<> {
    let schema = json!({"type": "object", "properties": {}});
    let tool = CountingTool::echo().named("slow").schema(schema).replay(replay).delayed(Duration::from_secs(1));
    let tool = Arc::new(tool.counted(&world.executions));
    move |options| options.tools[2] = tool
}

/// The words of the calls' states.
fn statuses(world: &World) -> Vec<String> {
    statuses_of(&world.state())
}

fn statuses_of(state: &Value) -> Vec<String> {
    let calls = state["batch"]["calls"].as_array().cloned().unwrap_or_default();
    calls.iter().map(|call| word_of(&call["status"])).collect()
}

fn word_of(status: &Value) -> String {
    match status {
        Value::String(word) => word.clone(),
        other => other["at"].as_str().or_else(|| other["status"].as_str()).unwrap_or_default().to_owned(),
    }
}

/// What each transaction did with the states of calls, one line each.
pub(super) fn history(transactions: &[Vec<Write>]) -> Vec<String> {
    let of = |writes: &Vec<Write>| {
        writes.iter().find_map(|write| match write {
            Write::Set { namespace, value, .. } if namespace == namespace::OP_STATE && value["at"] == "tools" => {
                Some(statuses_of(value).join(" "))
            }
            _ => None,
        })
    };
    transactions.iter().filter_map(of).collect()
}

/// The events of calls, with the ids of calls.
fn tool_events(process: &super::world::Process) -> Vec<String> {
    let word = |told: pirn::model::LaneEvent| {
        let mark = if told.recovery { " R" } else { "" };
        match told.event {
            Event::ToolStart { tool_call_id, .. } => Some(format!("start {tool_call_id}{mark}")),
            Event::ToolEnd { tool_call_id, .. } => Some(format!("end {tool_call_id}{mark}")),
            _ => None,
        }
    };
    process.heard.events().into_iter().filter_map(word).collect()
}

/// Replies that end with calls, then `done`.
pub(super) fn then_done(content: Vec<AssistantBlock>) -> Vec<Reply> {
    vec![calls(content), say("done")]
}

#[tokio::test(start_paused = true)]
async fn results_of_a_parallel_batch_are_placed_in_the_order_of_their_calls_case_26() {
    let world = World::new().await;
    let script = then_done(vec![slow("c1"), echo("c2", "v")]);
    let process = world.process_with(script, slowish(&world, Replay::Never)).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (note, store) = (seen.clone(), world.store.clone());
    process.faults.on_commit(8, move || {
        let state = store.values(namespace::OP_STATE, "").unwrap()[0].1.clone();
        *note.lock().unwrap() = statuses_of(&state);
    });
    process.prompt("go").await.result();
    assert_eq!(*seen.lock().unwrap(), ["effect_pending", "outcome_ready"]);
    assert_eq!((world.tree().as_str(), world.texts()[3].as_str()), ("u a r r a", "v"));
    assert_eq!(tool_events(&process), ["start c1", "start c2", "end c2", "end c1"]);
    let placed = process.faults.transactions().into_iter().filter(|writes| {
        let results = writes.iter().filter(|write| matches!(write, Write::Entry { .. }));
        results.count() == 2
    });
    assert_eq!(placed.count(), 1, "one transaction places both");
    let names = told(&process).join(" ");
    assert!(
        names.contains(
            "tool_end tool_end message_start message_end entry_added message_start message_end entry_added turn_end"
        ),
        "{names}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ended_is_told_while_another_one_runs_case_26() {
    let world = World::new().await;
    let process =
        world.process_with(then_done(vec![slow("c1"), echo("c2", "v")]), slowish(&world, Replay::Never)).await;
    let half = async {
        world.executions.begun(2).await;
        world.clock.sleep(Duration::from_millis(500)).await;
        tool_events(&process)
    };
    let (ended, half) = tokio::join!(process.prompt("go"), half);
    ended.result();
    assert_eq!(half, ["start c1", "start c2", "end c2"]);
}

#[tokio::test(start_paused = true)]
async fn a_staged_result_waits_for_the_interrupted_call_before_it_case_27() {
    let world = World::new().await;
    let script = then_done(vec![slow("c1"), echo("c2", "v")]);
    let first = world.process_with(script, slowish(&world, Replay::Never)).await;
    first.faults.kill_after(8);
    first.prompt("go").await.killed();
    assert_eq!((statuses(&world).join(" "), world.executions.count()), ("effect_pending outcome_ready".to_owned(), 2));
    let next = world.process(vec![say("done")]).await;
    next.go_on().await.result();
    assert_eq!(world.executions.count(), 2);
    assert_eq!(tool_events(&next), ["start c1 R", "end c1 R"]);
    assert_eq!(world.tree(), "u a r r a");
    assert_eq!(
        (blocks(&result_at(&world, 2)), world.texts()[3].as_str()),
        (vec![texts::TOOL_INTERRUPTED.to_owned()], "v")
    );
    assert_eq!((next.provider.count(), world.open_addresses()), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn calls_on_both_sides_of_a_kill_keep_their_order_case_28() {
    let world = killed_after(6, then_done(vec![echo("c1", "a"), echo("c2", "b")])).await;
    assert_eq!(statuses(&world), ["effect_pending", "planned"]);
    let watch = Watch::new().shared();
    let next = world.process_with(vec![say("done")], |options| options.hooks = vec![watch.clone()]).await;
    next.go_on().await.result();
    let asked = watch.asked().join(" ");
    assert!(asked.contains("before_tool c2") && !asked.contains("before_tool c1"), "{asked}");
    assert!(asked.contains("after_tool c1") && asked.contains("after_tool c2"), "{asked}");
    assert_eq!(world.texts(), ["go", "", "a", "b", "done"]);
    let begun = tool_events(&next).into_iter().filter(|word| word.starts_with("start")).collect::<Vec<_>>();
    assert_eq!(begun, ["start c1 R", "start c2"]);
}

#[tokio::test(start_paused = true)]
async fn one_sequential_tool_makes_its_batch_sequential_case_29() {
    let world = World::new().await;
    let tool = Arc::new(CountingTool::boom().counted(&world.executions).execution(Execution::Sequential));
    let script = then_done(vec![boom("c1"), echo("c2", "v")]);
    let process = world.process_with(script, |options| options.tools[1] = tool).await;
    process.prompt("go").await.result();
    assert_eq!(
        history(&process.faults.transactions()),
        [
            "planned planned",
            "effect_pending planned",
            "outcome_ready planned",
            "completed planned",
            "completed effect_pending",
            "completed outcome_ready",
        ]
    );
    assert_eq!(world.tree(), "u a r r a");
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_call_of_a_sequential_batch_is_placed_before_the_next_one_is_cleared_case_29() {
    let sequential = |options: &mut Options| options.settings.tool_execution = pirn::model::Execution::Sequential;
    let world = World::new().await;
    let first = world.process_with(then_done(vec![boom("c1"), echo("c2", "v")]), sequential).await;
    first.faults.kill_after(6);
    first.prompt("go").await.killed();
    let next = world.process_with(vec![say("done")], sequential).await;
    next.go_on().await.result();
    assert_eq!(
        history(&next.faults.transactions()),
        ["outcome_ready planned", "completed planned", "completed effect_pending", "completed outcome_ready"]
    );
    assert_eq!(tool_events(&next), ["start c1 R", "end c1 R", "start c2", "end c2"]);
    assert_eq!(world.tree(), "u a r r a");
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_when_every_result_asks_for_it_case_30() {
    for all in [true, false] {
        let world = World::new().await;
        let done = CountingTool::boom().counted(&world.executions).terminating();
        let script = then_done(vec![boom("c1"), if all { boom("c2") } else { echo("c2", "v") }]);
        let process = world.process_with(script, |options| options.tools[1] = Arc::new(done)).await;
        let checkpoint = Arc::new(Mutex::new(Value::Null));
        let (seen, store) = (checkpoint.clone(), world.store.clone());
        process.faults.on_commit(10, move || {
            *seen.lock().unwrap() = store.values(namespace::OP_STATE, "").unwrap()[0].1.clone();
        });
        let result = process.prompt("go").await.result();
        let state = checkpoint.lock().unwrap().clone();
        assert_eq!(state["at"], "checkpoint");
        if all {
            assert_eq!(state["continuation"], json!({"kind": "may_finish", "includeFinalAssistant": false}));
            let found = (result.status, result.reason, result.stop_reason, result.completion.as_deref());
            let expected = (Status::Completed, Reason::ToolTerminated, Some(StopReason::ToolUse), Some("tools"));
            assert_eq!((found, result.final_entry_id.clone()), (expected, None));
            assert_eq!((process.provider.count(), world.tree().as_str()), (1, "u a r r"));
        } else {
            assert_eq!(state["continuation"]["kind"], "need_assistant");
            assert_eq!((process.provider.count(), result.reason), (2, Reason::Completed));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_truncated_reply_do_not_run_case_31() {
    let world = World::new().await;
    let mut spent = usage();
    spent.output = 4096;
    let truncated = Reply::blocks(vec![echo("c1", "v")]).stop(StopReason::Length).usage(spent);
    let process = world.process(vec![truncated, say("done")]).await;
    let counts = Arc::new(Mutex::new(Vec::new()));
    for n in [5, 9] {
        let (seen, store) = (counts.clone(), world.store.clone());
        process.faults.on_commit(n, move || {
            let state = store.values(namespace::OP_STATE, "").unwrap()[0].1.clone();
            seen.lock().unwrap().push((state["at"].clone(), state["counters"]["truncatedInARow"].clone()));
        });
    }
    process.prompt("go").await.result();
    assert_eq!(*counts.lock().unwrap(), [(json!("tools"), json!(1)), (json!("assistant.effect_pending"), json!(1))]);
    assert_eq!((world.executions.count(), process.provider.count()), (0, 2));
    assert_eq!((blocks(&result_at(&world, 2)), world.tree().as_str()), (vec![texts::truncated("echo")], "u a r a"));
    let names = told(&process).join(" ");
    assert!(names.contains("usage tool_start tool_end message_start"), "{names}");
}

#[tokio::test(start_paused = true)]
async fn any_other_reply_ends_a_row_of_truncated_ones_case_31() {
    let world = World::new().await;
    let truncated = || Reply::blocks(vec![echo("c1", "v")]).stop(StopReason::Length).usage(usage_of(4096));
    let whole = calls(vec![echo("c2", "v")]);
    let script = vec![truncated(), truncated(), whole, truncated(), truncated(), say("done")];
    let process = world.process(script).await;
    let result = process.prompt("go").await.result();
    assert_eq!((result.reason, process.provider.count(), world.executions.count()), (Reason::Completed, 6, 1));
}

pub(super) fn usage_of(output: u64) -> pirn::model::Usage {
    pirn::model::Usage { input: 10, output, total_tokens: 10 + output, ..pirn::model::Usage::default() }
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_not_cleared_are_answered_in_order_and_do_not_run_case_32() {
    let world = World::new().await;
    let watch = Watch::new().before_tool(|asked| BeforeToolAnswer {
        block: (asked.call.id == "c3").then(|| "no".to_owned()),
        ..BeforeToolAnswer::default()
    });
    let watch = watch.shared();
    let content = vec![call("c1", "zip", &json!({})), call("c2", "echo", &json!({})), echo("c3", "v")];
    let process = world.process_with(then_done(content), |options| options.hooks = vec![watch.clone()]).await;
    process.prompt("go").await.result();
    let names: Vec<String> = ["boom", "echo", "slow"].map(str::to_owned).to_vec();
    let results: Vec<_> = (2..5).map(|at| result_at(&world, at)).collect();
    assert!(results.iter().all(|result| result.is_error));
    assert_eq!(blocks(&results[0]), [texts::unknown_tool("zip", &names)]);
    assert!(blocks(&results[1])[0].starts_with("Invalid arguments for \"echo\""), "{:?}", blocks(&results[1]));
    assert_eq!(blocks(&results[2]), ["no"]);
    assert_eq!(tool_events(&process), ["start c1", "end c1", "start c2", "end c2", "start c3", "end c3"]);
    let wrote_args = |write: &Write| matches!(write, Write::Set { namespace, .. } if namespace == namespace::TOOL_ARGS);
    assert!(!process.faults.transactions().iter().flatten().any(wrote_args));
    assert_eq!((world.executions.count(), watch.asked()[4].as_str()), (0, "before_tool c3"));
    assert_eq!(world.tree(), "u a r r r a");
}

#[tokio::test(start_paused = true)]
async fn stored_arguments_that_no_longer_fit_are_not_run_again_case_33() {
    let world = killed_after(6, then_done(vec![echo("c1", "42")])).await;
    let schema = json!({"type": "object", "properties": {"value": {"type": "number"}}, "required": ["value"]});
    let tool = Arc::new(CountingTool::echo().counted(&world.executions).schema(schema));
    let next = world.process_with(vec![say("done")], |options| options.tools[0] = tool).await;
    next.go_on().await.result();
    assert_eq!(world.executions.count(), 0, "\"42\" is not made a number");
    assert_eq!(blocks(&result_at(&world, 2)), [texts::TOOL_INTERRUPTED]);
    assert_eq!(tool_events(&next), ["start c1 R", "end c1 R"]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_no_longer_safe_or_no_longer_there_is_not_run_again_case_33() {
    for gone in [false, true] {
        let world = killed_after(6, baseline()).await;
        let tool = CountingTool::echo().counted(&world.executions).replay(Replay::Never);
        let change = |options: &mut Options| {
            if gone {
                options.tools.remove(0);
            } else {
                options.tools[0] = Arc::new(tool);
            }
        };
        let next = world.process_with(vec![say("done")], change).await;
        next.go_on().await;
        assert_eq!((world.executions.count(), world.tree().starts_with("u a r")), (0, true));
        assert_eq!(blocks(&result_at(&world, 2)), [texts::TOOL_INTERRUPTED]);
    }
}

/// Reports progress twice, the second time without a wait before its result.
struct Talker(ToolSpec);

#[async_trait::async_trait]
impl Tool for Talker {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Value, ctx: ToolCtx) -> ToolOutput {
        let view = pirn::model::ToolResultView {
            content: vec![pirn::model::Content::text("half")],
            ..pirn::model::ToolResultView::default()
        };
        ctx.updates.send(view, true).await;
        ToolOutput::text("whole")
    }
}

#[tokio::test(start_paused = true)]
async fn progress_is_told_and_kept_before_the_hook_behind_the_call_is_asked_case_16() {
    let world = World::new().await;
    let spec = CountingTool::boom().spec().clone();
    let script = then_done(vec![boom("c1")]);
    let process = world.process_with(script, |options| options.tools[1] = Arc::new(Talker(spec))).await;
    let (faults, heard) = (process.faults.clone(), process.heard.clone());
    let watch = Watch::new().noting(move |word| {
        if word == "after_tool c1" {
            faults.note(format!("{word} behind {}", heard.names().last().unwrap()));
        }
    });
    process.harness.register_hooks(watch.shared()).forever();
    process.prompt("go").await.result();
    let story = process.faults.story();
    let asked = story.iter().position(|line| line == "after_tool c1 behind tool_update");
    let kept = story.iter().position(|line| line.starts_with("side") && line.contains("pending.tool_output"));
    assert!(kept.is_some() && asked > kept, "{story:#?}");
}

/// Reports three times within a tenth of a second, then works for five seconds.
struct Burst(ToolSpec);

#[async_trait::async_trait]
impl Tool for Burst {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Value, ctx: ToolCtx) -> ToolOutput {
        let clock = pirn::testing::RuntimeClock::new();
        for text in ["one", "two", "three"] {
            let content = vec![pirn::model::Content::text(text)];
            let view = pirn::model::ToolResultView { content, ..pirn::model::ToolResultView::default() };
            ctx.updates.send(view, true).await;
            clock.sleep(Duration::from_millis(40)).await;
        }
        clock.sleep(Duration::from_secs(5)).await;
        ToolOutput::text("whole")
    }
}

#[tokio::test(start_paused = true)]
async fn the_newest_progress_is_kept_though_nothing_follows_it_case_16() {
    let world = World::new().await;
    let spec = CountingTool::boom().spec().clone();
    let script = then_done(vec![boom("c1")]);
    let first = world.process_with(script, |options| options.tools[1] = Arc::new(Burst(spec))).await;
    let killed = async {
        world.clock.sleep(Duration::from_secs(3)).await;
        first.faults.kill();
    };
    let (ended, ()) = tokio::join!(first.prompt("go"), killed);
    ended.killed();
    let story = first.faults.story();
    let kept = story.iter().filter(|line| line.contains("pending.tool_output")).count();
    assert_eq!(kept, 2, "at most one a second: {story:#?}");
    let next = world.process(vec![say("done")]).await;
    next.go_on().await.result();
    assert_eq!(blocks(&result_at(&world, 2)), ["three", texts::TOOL_INTERRUPTED]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_dies_anywhere_has_each_result_once_and_in_order_cases_22_and_28() {
    // A safe slow call, one that may not run twice, one that is refused, and a safe one.
    let script = || then_done(vec![slow("c1"), boom("c2"), call("c3", "zip", &json!({})), echo("c4", "v")]);
    for sequential in [false, true] {
        for n in 5..=18 {
            for m in [1, 2, 3, 5, 8, 12] {
                let world = World::new().await;
                let change = |world: &World| {
                    let slowish = slowish(world, Replay::Safe);
                    move |options: &mut Options| {
                        slowish(options);
                        if sequential {
                            options.settings.tool_execution = pirn::model::Execution::Sequential;
                        }
                    }
                };
                let first = world.process_with(script(), change(&world)).await;
                first.faults.kill_after(n);
                first.prompt("go").await;
                for kill in [Some(m), None] {
                    let next = world.process_with(vec![say("done")], change(&world)).await;
                    if let Some(kill) = kill {
                        next.faults.kill_after(kill);
                    }
                    if !world.state().is_null() {
                        let mut reduced = next.lane.snapshot();
                        next.go_on().await;
                        next.heard.events().iter().for_each(|told| pirn::harness::reduce(&mut reduced, told));
                        if !next.faults.is_killed() {
                            assert_eq!(reduced, next.lane.snapshot(), "killed after {n}, then after {m}");
                        }
                    }
                }
                let what = format!("sequential: {sequential}, killed after {n}, then after {m}: {}", world.tree());
                let tree: Vec<String> = world.tree().split(' ').map(str::to_owned).collect();
                assert_eq!(tree[..6], ["u", "a", "r", "r", "r", "r"], "{what}");
                let ids: Vec<String> = (2..6).map(|at| result_at(&world, at).tool_call_id).collect();
                assert_eq!(ids, ["c1", "c2", "c3", "c4"], "{what}");
                assert!(world.executions.count_of("boom") <= 1, "{what}");
                assert_eq!((world.results(), world.open_addresses()), (1, Vec::new()), "{what}");
                assert_eq!((world.texts()[5].as_str(), tree.last().unwrap().as_str()), ("v", "a"), "{what}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_a_continued_run_began_itself_is_no_recovery_case_13() {
    let world = killed_after(5, vec![calls(vec![slow("c1"), slow("c2")])]).await;
    let next = world.process(Vec::new()).await;
    let abort = async {
        world.executions.begun(2).await;
        next.lane.abort(CancelCause::Int).await.unwrap();
    };
    let (ended, ()) = tokio::join!(next.go_on(), abort);
    assert_eq!(ended.result().status, Status::Aborted);
    let recovered: Vec<String> = next.heard.names().into_iter().filter(|name| name.ends_with(" R")).collect();
    assert_eq!(recovered, ["run_resume R", "turn_start R"]);
    assert_eq!(world.texts()[2..], ["slow was cancelled", "slow was cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_under_an_abort_is_shown_as_it_is_stored_i13() {
    let world = World::new().await;
    let process = world
        .process_with(vec![calls(vec![slow("c1"), boom("c2")])], |options| {
            let slow = CountingTool::slow().terminating().counted(&world.executions);
            let stuck = CountingTool::stuck().named("boom").counted(&world.executions);
            options.tools[1] = Arc::new(stuck);
            options.tools[2] = Arc::new(slow);
        })
        .await;
    let abort = async {
        // Longer than anything but the calls takes.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.executions.count(), 2);
        process.lane.abort(CancelCause::Int).await.unwrap();
    };
    let (ended, ()) = tokio::join!(process.prompt("go"), abort);
    assert_eq!(ended.result().status, Status::Aborted);
    // At every event, the one between the ends of the two calls included.
    check(&world, &[&process]);
}

/// `boom` that keeps which process it started, and stays.
struct Starting(ToolSpec);

#[async_trait::async_trait]
impl Tool for Starting {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Value, ctx: ToolCtx) -> ToolOutput {
        ctx.memos.set("child", json!({"pgid": 7})).await.unwrap();
        std::future::pending().await
    }
}

/// A call and its memos.
type Asked = (EntryId, Vec<(String, Value)>);

/// Stops what it is told of, or is in doubt; and writes down what that was.
struct Stopper {
    report: OrphansReport,
    asked: Mutex<Vec<Asked>>,
}

#[async_trait::async_trait]
impl Orphans for Stopper {
    async fn stop(&self, invocation: &EntryId, memos: &[(String, Value)]) -> OrphansReport {
        self.asked.lock().unwrap().push((invocation.clone(), memos.to_vec()));
        self.report.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_interrupted_call_had_started_is_stopped_first_and_its_result_says_so_case_125() {
    let stopped = OrphansReport { stopped: Some("It was stopped.".to_owned()), warnings: Vec::new() };
    let doubtful = OrphansReport { stopped: None, warnings: vec!["process 7 is left alone".to_owned()] };
    for (report, is_aborted) in [(&stopped, false), (&stopped, true), (&doubtful, false), (&doubtful, true)] {
        let world = World::new().await;
        let starting = Arc::new(Starting(CountingTool::boom().spec().clone()));
        let first = world.process_with(then_done(vec![boom("c1")]), |options| options.tools[1] = starting).await;
        if is_aborted {
            first.faults.kill_after(7);
        } else {
            first.faults.kill_after_side(namespace::TOOL_MEMO, 1);
        }
        let abort = async {
            while world.store.values(namespace::TOOL_MEMO, "").unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            drop(first.lane.abort(CancelCause::Int).await);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            ended = first.prompt("go") => ended.killed(),
            () = abort, if is_aborted => {}
        }
        let orphans = Arc::new(Stopper { report: report.clone(), asked: Mutex::default() });
        let next = world.process_with(vec![say("done")], |options| options.orphans = Some(orphans.clone())).await;
        let result = next.go_on().await.result();
        assert_eq!(result.status, if is_aborted { Status::Aborted } else { Status::Completed });
        let placed = world.path()[2].id.clone();
        let memo = ("child".to_owned(), json!({"pgid": 7}));
        assert_eq!(*orphans.asked.lock().unwrap(), [(placed, vec![memo])]);
        let text = match &report.stopped {
            Some(stopped) => format!("{}\n{stopped}", texts::TOOL_INTERRUPTED),
            None => texts::TOOL_INTERRUPTED.to_owned(),
        };
        assert_eq!(blocks(&result_at(&world, 2)), [text]);
        let warnings: Vec<String> = next
            .heard
            .events()
            .into_iter()
            .filter_map(|told| match told.event {
                Event::Warning { message, .. } => Some(message),
                _ => None,
            })
            .collect();
        assert_eq!(warnings, report.warnings);
        assert_eq!(world.open_addresses(), Vec::<String>::new());
        check(&world, &[&first, &next]);
    }
}
