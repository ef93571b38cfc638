//! D. Execution.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use pirn::agent::{AfterPatch, BeforeDecision};
use pirn::model::{AssistantBlock, Content, Event, Reason, StopReason, ToolResultView, Usage};
use pirn::port::{Execution, Tool, ToolCtx, ToolOutput, ToolSpec};
use pirn::testing::{Reply, call};
use pirn::turn::texts;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::doubles::{Log, TestHooks, TestTool, echo_tool, echoed, failing, pause, terminating, tool};
use super::support::{Scene, calls, echo, text};

fn one_call() -> Vec<Reply> {
    vec![calls(vec![echo("c1", "1")]), text("d")]
}

/// The batch of case 63.
fn slow_and_fast() -> Vec<Reply> {
    let first = calls(vec![call("c1", "slow", &json!({"v": "a"})), call("c2", "fast", &json!({"v": "b"}))]);
    vec![first, text("d")]
}

fn view(text: &str) -> ToolResultView {
    ToolResultView { content: vec![Content::text(text)], ..ToolResultView::default() }
}

/// A tool that reports, then answers.
fn reporting(reports: &'static [&'static str], answer: impl Fn() -> ToolOutput + Send + Sync + 'static) -> TestTool {
    tool("echo", move |_, ctx| {
        let output = answer();
        async move {
            for report in reports {
                assert!(ctx.updates.send(view(report), false).await);
            }
            output
        }
    })
}

#[tokio::test(start_paused = true)]
async fn case_56_a_failing_tool_is_an_error_result() {
    let run = Scene::new(one_call()).tool(failing("echo", "boom")).prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,c1) ts1 te1 ERR"boom" R1 ERR"boom" TE[c1] TS A(stop,"d") TE[] AE[u,a,t,a]"#);
    assert_eq!(run.result("c1").details, Some(json!({"error": {"code": "tool_error", "message": "boom"}})));
}

#[tokio::test(start_paused = true)]
async fn case_57_a_soft_error_keeps_its_details() {
    let soft = tool("echo", |_, _| async {
        ToolOutput { details: Some(json!({"k": 1})), is_error: true, ..ToolOutput::text("soft") }
    });
    let run = Scene::new(one_call()).tool(soft).prompt("p").await;
    assert_eq!(run.tools(), r#"ts1 te1 ERR"soft""#);
    assert_eq!((run.result("c1").is_error, run.result("c1").details.clone()), (true, Some(json!({"k": 1}))));
}

#[tokio::test(start_paused = true)]
async fn case_58_a_panicking_tool_is_an_error_result_and_its_sibling_goes_on() {
    for mode in [Execution::Parallel, Execution::Sequential] {
        let crash = tool("crash", |_, _| async { panic!("ouch") });
        let first = calls(vec![call("c1", "crash", &json!({"v": "1"})), call("c2", "fast", &json!({"v": "2"}))]);
        let scene = Scene::new(vec![first, text("d")]).tool(crash);
        let run = scene.options(|options| options.tool_execution = mode).prompt("p").await;
        assert_eq!(run.result_text("c1"), "The tool crashed: ouch");
        assert_eq!((run.code("c1"), run.result_text("c2")), ("tool_error".to_owned(), "ok 2".to_owned()));
        run.ended(StopReason::Stop);
    }
}

/// A tool written without `async`, whose `call` or `prepare` panics at once.
struct Hasty(ToolSpec);

impl Tool for Hasty {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, raw: Value) -> Result<Value, String> {
        assert_ne!(raw["v"], "prepare", "ouch");
        Ok(raw)
    }

    fn call<'a, 'b>(&'a self, _args: Value, _ctx: ToolCtx) -> BoxFuture<'b, ToolOutput>
    where
        'a: 'b,
        Self: 'b,
    {
        panic!("ouch")
    }
}

#[tokio::test(start_paused = true)]
async fn case_58_a_panic_before_the_first_await_is_an_error_result_too() {
    for v in ["prepare", "call"] {
        let spec = echo_tool("hasty", 0).spec().clone();
        let first = calls(vec![call("c1", "hasty", &json!({"v": v})), echo("c2", "2")]);
        let run = Scene::new(vec![first, text("d")]).tool(Hasty(spec)).prompt("p").await;
        assert!(run.result_text("c1").starts_with("The tool crashed: "), "{}", run.result_text("c1"));
        assert!(run.result_text("c1").contains("ouch"));
        assert_eq!(run.result_text("c2"), "ok 2");
    }
}

#[tokio::test(start_paused = true)]
async fn case_59_an_answer_without_content_is_an_empty_list() {
    let silent = tool("echo", |_, _| async { ToolOutput::default() });
    let run = Scene::new(one_call()).tool(silent).prompt("p").await;
    assert_eq!(run.tools(), r#"ts1 te1 ok"""#);
    assert_eq!(run.result("c1").content, []);
}

#[tokio::test(start_paused = true)]
async fn case_60_the_usage_of_a_tool_may_be_replaced_by_the_after_hook() {
    let used = |input| Usage { input, output: 2, total_tokens: input + 2, ..Usage::default() };
    let counting = tool("echo", move |args, _| async move { ToolOutput { usage: Some(used(1)), ..echoed(&args) } });
    let run = Scene::new(one_call()).tool(counting).prompt("p").await;
    assert_eq!(run.result("c1").usage, Some(used(1)));
    let counting = tool("echo", move |args, _| async move { ToolOutput { usage: Some(used(1)), ..echoed(&args) } });
    let hooks = TestHooks::new().after(move |_| Ok(AfterPatch { usage: Some(used(5)), ..AfterPatch::default() }));
    let run = Scene::new(one_call()).tool(counting).hooks(hooks).prompt("p").await;
    assert_eq!(run.result("c1").usage, Some(used(5)));
    assert_eq!(run.after[1].as_assistant().unwrap().usage, Usage::default());
}

#[tokio::test(start_paused = true)]
async fn case_61_updates_stand_between_start_and_end() {
    let run = Scene::new(one_call()).tool(reporting(&["u1", "u2"], || ToolOutput::text("ok 1"))).prompt("p").await;
    assert_eq!(run.tools(), r#"ts1 tu1"u1" tu1"u2" te1 ok"ok 1""#);
}

#[tokio::test(start_paused = true)]
async fn case_62_updates_may_precede_a_failure() {
    let failed = reporting(&["u1"], || ToolOutput::failure("tool_error", "x"));
    let run = Scene::new(one_call()).tool(failed).prompt("p").await;
    assert_eq!(run.tools(), r#"ts1 tu1"u1" te1 ERR"x""#);
}

#[tokio::test(start_paused = true)]
async fn case_63_parallel_calls_end_as_they_finish_and_are_placed_in_source_order() {
    let run = Scene::new(slow_and_fast()).prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,c1,c2) ts1 ts2 te2 ok"ok b" te1 ok"ok a" R1 ok"ok a" R2 ok"ok b" TE[c1,c2]
              TS A(stop,"d") TE[] AE[u,a,t,t,a]"#)
        .asked(&["p", "p | a:c1,c2 | t1 | t2"]);
    assert_eq!(run.moments_of("tool_execution_start"), [0, 0]);
    assert_eq!(run.moments_of("tool_execution_end"), [2, 20]);
    assert_eq!((run.result("c1").duration_ms, run.result("c2").duration_ms), (Some(20), Some(2)));
}

/// The first of two calls waits until the second has started.
fn waiting_for_the_second() -> (Vec<Reply>, TestTool) {
    let started = Arc::new(Notify::new());
    let waiting = tool("echo", move |args, ctx| {
        let started = Arc::clone(&started);
        async move {
            if ctx.tool_call_id == "c2" {
                started.notify_one();
                return echoed(&args);
            }
            tokio::select! {
                () = started.notified() => echoed(&args),
                () = pause(1000) => ToolOutput::failure("timeout", "alone"),
            }
        }
    });
    (vec![calls(vec![echo("c1", "1"), echo("c2", "2")]), text("d")], waiting)
}

#[tokio::test(start_paused = true)]
async fn case_64_parallel_calls_overlap_and_sequential_ones_do_not() {
    let (replies, waiting) = waiting_for_the_second();
    let run = Scene::new(replies).tool(waiting).prompt("p").await;
    assert_eq!(run.result_text("c1"), "ok 1");
    let (replies, waiting) = waiting_for_the_second();
    let run = Scene::new(replies).tool(waiting).sequential().prompt("p").await;
    assert_eq!(run.result_text("c1"), "alone");
}

#[tokio::test(start_paused = true)]
async fn case_65_calls_that_never_run_end_during_preparation() {
    let first = calls(vec![echo("c1", "1"), call("c2", "nope", &json!({})), call("c3", "echo", &json!({}))]);
    let run = Scene::new(vec![first, text("d")]).prompt("p").await;
    let order: Vec<String> = run
        .events
        .iter()
        .filter_map(|event| match event {
            Event::ToolStart { tool_call_id, .. } => Some(format!("ts:{tool_call_id}")),
            Event::ToolEnd { tool_call_id, is_error, .. } => Some(format!("te:{tool_call_id}:{is_error}")),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["ts:c2", "te:c2:true", "ts:c3", "te:c3:true", "ts:c1", "te:c1:false"]);
    let results: Vec<bool> = ["c1", "c2", "c3"].iter().map(|id| run.result(id).is_error).collect();
    assert_eq!(results, [false, true, true]);
}

/// Hooks and tools write down when they start.
fn logged(replies: Vec<Reply>) -> (Scene, Log) {
    let log = Log::default();
    let (before, after) = (log.clone(), log.clone());
    let hooks = TestHooks::new()
        .before(move |asked| {
            before.add(format!("before {}", asked.call.id));
            Ok(BeforeDecision::default())
        })
        .after(move |asked| {
            after.add(format!("after {}", asked.call.id));
            Ok(AfterPatch::default())
        });
    let mut scene = Scene::new(replies).hooks(hooks);
    for (name, milliseconds) in [("echo", 0), ("fast", 2), ("slow", 20)] {
        let log = log.clone();
        scene = scene.tool(tool(name, move |args, ctx| {
            log.add(format!("run {}", ctx.tool_call_id));
            async move {
                pause(milliseconds).await;
                echoed(&args)
            }
        }));
    }
    (scene, log)
}

#[tokio::test(start_paused = true)]
async fn case_66_preparation_precedes_execution() {
    let (scene, log) = logged(slow_and_fast());
    scene.prompt("p").await;
    assert_eq!(log.joined(), "before c1, before c2, run c1, run c2, after c2, after c1");
}

const IN_SEQUENCE: &str = r#"AS TS U"p" A(toolUse,c1,c2) ts1 te1 ok"ok a" R1 ok"ok a" ts2 te2 ok"ok b" R2 ok"ok b"
    TE[c1,c2] TS A(stop,"d") TE[] AE[u,a,t,t,a]"#;

#[tokio::test(start_paused = true)]
async fn case_67_a_sequential_configuration_runs_call_by_call() {
    let (scene, log) = logged(slow_and_fast());
    let run = scene.sequential().prompt("p").await;
    run.is(IN_SEQUENCE);
    assert_eq!(log.joined(), "before c1, run c1, after c1, before c2, run c2, after c2");
    assert_eq!(run.moments_of("tool_execution_end"), [20, 22]);
}

#[tokio::test(start_paused = true)]
async fn case_68_one_sequential_tool_makes_the_batch_sequential() {
    let alone = echo_tool("slow", 10).execution(Execution::Sequential);
    let run = Scene::new(slow_and_fast()).tool(alone).prompt("p").await;
    run.is(IN_SEQUENCE);
    assert_eq!(run.moments_of("tool_execution_start"), [0, 10]);
}

#[tokio::test(start_paused = true)]
async fn case_69_a_parallel_tool_does_not_lift_a_sequential_configuration() {
    let mut scene = Scene::new(slow_and_fast()).sequential();
    for (name, milliseconds) in [("fast", 2), ("slow", 20)] {
        scene = scene.tool(echo_tool(name, milliseconds).execution(Execution::Parallel));
    }
    scene.prompt("p").await.is(IN_SEQUENCE);
}

fn two(second: AssistantBlock) -> Vec<Reply> {
    vec![calls(vec![call("c1", "last", &json!({"v": "1"})), second]), text("d")]
}

#[tokio::test(start_paused = true)]
async fn case_70_a_batch_whose_results_all_terminate_ends_the_run() {
    let replies = two(call("c2", "last", &json!({"v": "2"})));
    let run = Scene::new(replies).tool(terminating("last")).prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,c1,c2) ts1 ts2 te1 ok"ok 1"* te2 ok"ok 2"* R1 ok"ok 1" R2 ok"ok 2" TE[c1,c2]
              AE[u,a,t,t]"#)
        .asked(&["p"])
        .ended(StopReason::ToolUse);
    assert_eq!(run.outcome().reason, Reason::ToolTerminated);
}

#[tokio::test(start_paused = true)]
async fn case_71_any_other_result_vetoes_the_end() {
    for second in [echo("c2", "2"), call("c2", "last", &json!({})), call("c2", "nope", &json!({}))] {
        let run = Scene::new(two(second)).tool(terminating("last")).prompt("p").await;
        assert_eq!(run.requests.len(), 2, "{}", run.short());
    }
}

/// A reply that stopped at the output limit.
fn truncated(blocks: Vec<AssistantBlock>) -> Reply {
    calls(blocks).stop(StopReason::Length)
}

#[tokio::test(start_paused = true)]
async fn case_72_calls_of_a_truncated_reply_never_run() {
    let first = truncated(vec![AssistantBlock::text("a"), echo("c1", "1"), call("c2", "nope", &json!({}))]);
    let (scene, log) = logged(vec![first, text("d")]);
    let run = scene.prompt("p").await;
    let refusal = |name: &str| {
        format!(
            "Not run: the reply stopped at the output limit, so the arguments of \"{name}\" may be incomplete. \
             Repeat the call with full arguments."
        )
    };
    let (first, second) = (format!("{:?}", refusal("echo")), format!("{:?}", refusal("nope")));
    run.is(&format!(
        r#"AS TS U"p" A(length,"a",c1,c2) ts1 te1 ERR{first} R1 ERR{first} ts2 te2 ERR{second} R2 ERR{second} TE[c1,c2]
           TS A(stop,"d") TE[] AE[u,a,t,t,a]"#
    ));
    assert_eq!((log.joined(), run.code("c1")), (String::new(), "invalid_args".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn case_73_endless_truncation_is_bounded() {
    let replies = (1..=9).map(|n| truncated(vec![echo(&format!("c{n}"), "1")])).collect();
    let run = Scene::new(replies).prompt("p").await;
    assert_eq!((run.requests.len(), run.outcome().reason), (3, Reason::Length));
    assert!(run.short().ends_with("TE[c3] AE[u,a,t,a,t,a,t]"), "{}", run.short());
    run.ended(StopReason::Length);
}

#[tokio::test(start_paused = true)]
async fn case_73_a_reply_in_between_starts_the_count_again() {
    let cut = |n: u32| truncated(vec![echo(&format!("c{n}"), "1")]);
    let replies = vec![cut(1), cut(2), calls(vec![echo("c3", "1")]), cut(4), cut(5), text("d")];
    Scene::new(replies).prompt("p").await.ended(StopReason::Stop);
}

#[tokio::test(start_paused = true)]
async fn case_74_a_repeated_id_is_renamed_and_both_calls_run() {
    let run = Scene::new(vec![calls(vec![echo("c1", "1"), echo("c1", "2")]), text("d")]).prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,c1,c1-2) ts1 ts1-2 te1 ok"ok 1" te1-2 ok"ok 2" R1 ok"ok 1" R1-2 ok"ok 2"
              TE[c1,c1-2] TS A(stop,"d") TE[] AE[u,a,t,t,a]"#);
    assert!(run.updates().contains("toolcall_start1(c1-2 echo)"), "{}", run.updates());
}

// Beyond the numbered cases ------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_renamed_id_never_meets_one_that_was_there() {
    for ids in [["c1", "c1-2", "c1"], ["c1", "c1", "c1-2"]] {
        let blocks = ids.iter().map(|id| echo(id, "1")).collect();
        let run = Scene::new(vec![calls(blocks), text("d")]).prompt("p").await;
        let reply = run.after[1].as_assistant().unwrap();
        let distinct: std::collections::BTreeSet<&str> = reply.calls().map(|call| call.id.as_str()).collect();
        assert_eq!(distinct.len(), 3, "{distinct:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_limit_start_when_their_turn_comes() {
    let replies = |count: usize| {
        let blocks = (1..=count).map(|n| call(&format!("c{n}"), "fast", &json!({"v": "x"}))).collect();
        vec![calls(blocks), text("d")]
    };
    for (max_parallel, count, starts) in [(1, 3, vec![0, 2, 4]), (2, 3, vec![0, 0, 2]), (0, 2, vec![0, 2])] {
        let scene = Scene::new(replies(count)).options(|options| options.limits.max_parallel = max_parallel);
        assert_eq!(scene.prompt("p").await.moments_of("tool_execution_start"), starts, "limit {max_parallel}");
    }
    let by_default = Scene::new(replies(17)).prompt("p").await.moments_of("tool_execution_start");
    assert_eq!((by_default[15], by_default[16]), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn an_update_behind_the_answer_is_dropped_while_a_sibling_still_runs() {
    let late = tool("echo", |args, ctx| async move {
        let updates = ctx.updates.clone();
        // The test keeps the sender beyond the call, as a careless tool would.
        std::mem::drop(tokio::spawn(async move {
            pause(5).await;
            assert!(!updates.send(view("late"), false).await);
        }));
        echoed(&args)
    });
    let first = calls(vec![echo("c1", "1"), call("c2", "slow", &json!({"v": "2"}))]);
    let run = Scene::new(vec![first, text("d")]).tool(late).prompt("p").await;
    assert_eq!(run.tools(), r#"ts1 ts2 te1 ok"ok 1" te2 ok"ok 2""#);
}

#[tokio::test(start_paused = true)]
async fn more_updates_than_may_wait_are_told_in_order() {
    let chatty = tool("echo", |args, ctx| async move {
        for n in 0..100 {
            assert!(ctx.updates.send(view(&n.to_string()), false).await);
        }
        echoed(&args)
    });
    let run = Scene::new(one_call()).tool(chatty).prompt("p").await;
    let told: Vec<String> = run
        .events
        .iter()
        .filter_map(|event| match event {
            Event::ToolUpdate { partial, .. } => partial.content[0].as_text().map(str::to_owned),
            _ => None,
        })
        .collect();
    assert_eq!(told, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_silent_failure_gets_a_text() {
    let silent = tool("echo", |_, _| async { ToolOutput { is_error: true, ..ToolOutput::text("") } });
    let run = Scene::new(one_call()).tool(silent).prompt("p").await;
    assert_eq!(run.tools(), format!("ts1 te1 ERR{:?}", texts::TOOL_SILENT));
}

#[tokio::test(start_paused = true)]
async fn a_call_knows_its_run_its_turn_and_the_enabled_tools() {
    let log = Log::default();
    let seen = log.clone();
    let curious = tool("echo", move |args, ctx| {
        seen.add(format!("{} {} {}", ctx.turn_id, ctx.tool_call_id, ctx.enabled_tools.join("+")));
        async move {
            ctx.memos.set("k", json!(1)).await.unwrap();
            assert_eq!(ctx.memos.get("k").await, Some(json!(1)));
            echoed(&args)
        }
    });
    let replies = vec![calls(vec![echo("c1", "1")]), calls(vec![echo("c2", "2")]), text("d")];
    let run = Scene::new(replies).tool(curious).prompt("p").await;
    let Event::RunStart { run_id, .. } = &run.events[0] else { panic!("{}", run.short()) };
    assert_eq!(log.words(), [format!("{run_id}:1 c1 echo+fast+slow"), format!("{run_id}:2 c2 echo+fast+slow")]);
}
