//! C. Hooks.

use pirn::agent::{AfterPatch, BeforeDecision};
use pirn::model::{Content, Event, StopReason};
use pirn::port::{Denied, Policy, ToolOutput, Verdict};
use pirn::testing::{Reply, call};
use pirn::turn::texts;
use serde_json::{Value, json};

use super::doubles::{Log, TestHooks, echo_doing, echoed, failing, terminating, tool};
use super::notation::as_result;
use super::support::{Run, Scene, calls, echo, text};

/// One call of `echo`, then an answer.
fn one_call() -> Vec<Reply> {
    vec![calls(vec![echo("c1", "1")]), text("d")]
}

/// A scene whose `echo` writes down that it ran.
fn logging(log: &Log, replies: Vec<Reply>) -> Scene {
    let log = log.clone();
    Scene::new(replies).tool(echo_doing("echo", move || log.add("run")))
}

fn terminate_of(run: &Run) -> bool {
    let ends = run.events.iter().find_map(|event| match event {
        Event::ToolEnd { result, .. } => Some(result.terminate),
        _ => None,
    });
    ends.unwrap()
}

#[tokio::test(start_paused = true)]
async fn case_43_the_before_hook_sees_raw_and_coerced_arguments() {
    let log = Log::default();
    let scene = Scene::new(vec![calls(vec![call("c1", "echo", &json!({"v": 1}))]), text("d")]);
    let (seen, agent) = (log.clone(), scene.handle());
    let hooks = TestHooks::new().before(move |asked| {
        seen.add(Value::Object(asked.call.arguments.clone()).to_string());
        seen.add(asked.args.to_string());
        for messages in [asked.context, &agent.state().messages] {
            seen.add(messages.iter().map(|message| message.role().to_owned()).collect::<Vec<_>>().join("+"));
        }
        Ok(BeforeDecision::default())
    });
    scene.hooks(hooks).prompt("p").await;
    assert_eq!(log.words(), [r#"{"v":1}"#, r#"{"v":"1"}"#, "user+assistant", "user+assistant"]);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_tool_hook_is_a_failing_hook() {
    let before = Scene::new(one_call()).hooks(TestHooks::new().before(|_| panic!("boom"))).prompt("p").await;
    assert_eq!((before.result_text("c1").as_str(), before.code("c1").as_str()), ("The hook crashed: boom", "blocked"));
    let after = Scene::new(one_call()).hooks(TestHooks::new().after(|_| panic!("boom"))).prompt("p").await;
    assert_eq!((after.result_text("c1").as_str(), after.code("c1").as_str()), ("The hook crashed: boom", "tool_error"));
}

#[tokio::test(start_paused = true)]
async fn a_panicking_turn_hook_ends_the_run_and_a_shaping_one_changes_nothing() {
    for hooks in [TestHooks::new().prepare(|_| panic!("boom")), TestHooks::new().turn(|_| panic!("boom"))] {
        let run = Scene::new(one_call()).hooks(hooks).prompt("p").await;
        run.ended(StopReason::Error);
        assert_eq!(run.last_reply().error_message.as_deref(), Some("The hook crashed: boom"));
    }
    for hooks in [TestHooks::new().transform(|_| panic!("boom")), TestHooks::new().key(|| panic!("boom"))] {
        let run = Scene::new(vec![text("k")]).hooks(hooks).prompt("p").await;
        run.is(r#"AS TS U"p" A(stop,"k") TE[] AE[u,a]"#).asked(&["p"]);
        assert_eq!(run.last_reply().diagnostics.first().map(|note| note.code.as_str()), Some("hook_crashed"));
    }
}

#[tokio::test(start_paused = true)]
async fn case_44_a_blocked_call_is_an_error_result_with_the_reason() {
    let log = Log::default();
    let after = log.clone();
    let hooks = TestHooks::new().before(|_| Ok(BeforeDecision::block("no way"))).after(move |_| {
        after.add("after");
        Ok(AfterPatch::default())
    });
    let run = logging(&log, one_call()).hooks(hooks).prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,c1) ts1 te1 ERR"no way" R1 ERR"no way" TE[c1] TS A(stop,"d") TE[] AE[u,a,t,a]"#);
    assert_eq!((log.joined(), run.code("c1")), (String::new(), "blocked".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn case_45_a_block_without_a_reason_gets_the_default_text() {
    for reason in [None, Some(String::new())] {
        let decision = BeforeDecision { block: true, reason, ..BeforeDecision::default() };
        let hooks = TestHooks::new().before(move |_| Ok(decision.clone()));
        let run = Scene::new(one_call()).hooks(hooks).prompt("p").await;
        assert_eq!(run.tools(), r#"ts1 te1 ERR"This call was blocked.""#);
    }
}

#[tokio::test(start_paused = true)]
async fn case_46_a_block_may_end_the_run() {
    let hooks = TestHooks::new().before(|_| Ok(BeforeDecision { terminate: true, ..BeforeDecision::block("x") }));
    let run = Scene::new(one_call()).hooks(hooks).prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,c1) ts1 te1 ERR"x"* R1 ERR"x" TE[c1] AE[u,a,t]"#).asked(&["p"]);
    assert!(terminate_of(&run));
    assert!(serde_json::to_value(&*run.after[2]).unwrap().get("terminate").is_none());
}

#[tokio::test(start_paused = true)]
async fn case_47_terminate_without_a_block_runs_the_call_and_ends_the_run() {
    let terminate =
        |_: pirn::agent::BeforeToolCall<'_>| Ok(BeforeDecision { terminate: true, ..BeforeDecision::default() });
    let run = Scene::new(one_call()).hooks(TestHooks::new().before(terminate)).prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,c1) ts1 te1 ok"ok 1"* R1 ok"ok 1" TE[c1] AE[u,a,t]"#)
        .asked(&["p"])
        .ended(StopReason::ToolUse);
    let overridden = TestHooks::new()
        .before(terminate)
        .after(|_| Ok(AfterPatch { terminate: Some(false), ..AfterPatch::default() }));
    let run = Scene::new(one_call()).hooks(overridden).prompt("p").await;
    assert_eq!(run.requests.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn case_48_a_failing_before_hook_is_the_result_of_the_call() {
    let log = Log::default();
    let hooks = TestHooks::new().before(|_| Err("hookfail".to_owned()));
    let run = logging(&log, one_call()).hooks(hooks).prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,c1) ts1 te1 ERR"hookfail" R1 ERR"hookfail" TE[c1] TS A(stop,"d") TE[] AE[u,a,t,a]"#);
    assert_eq!(log.joined(), "");
}

#[tokio::test(start_paused = true)]
async fn case_49_changed_arguments_are_coerced_and_checked_again() {
    let hooks =
        TestHooks::new().before(|_| Ok(BeforeDecision { args: Some(json!({"v": 42})), ..BeforeDecision::default() }));
    let run = Scene::new(one_call()).hooks(hooks).prompt("p").await;
    assert_eq!(run.tools(), r#"ts1{"v":"42"} te1 ok"ok 42""#);
    assert_eq!(run.result("c1").details, Some(json!({"v": "42"})));
    let call = run.after[1].as_assistant().unwrap().calls().next().unwrap().arguments.clone();
    assert_eq!(Value::Object(call), json!({"v": "1"}));
}

#[tokio::test(start_paused = true)]
async fn case_49_changed_arguments_that_break_the_schema_are_an_error_result() {
    let log = Log::default();
    let after = log.clone();
    let hooks = TestHooks::new()
        .before(|_| Ok(BeforeDecision { args: Some(json!({})), ..BeforeDecision::default() }))
        .after(move |_| {
            after.add("after");
            Ok(AfterPatch::default())
        });
    let run = logging(&log, one_call()).hooks(hooks).prompt("p").await;
    let text = run.result_text("c1");
    assert!(text.starts_with("Invalid arguments for \"echo\":\n- v: required but missing\n"), "{text}");
    assert_eq!((log.joined(), run.result("c1").is_error), (String::new(), true));
}

/// Plays one call with an after hook that answers with a patch.
async fn patched(patch: AfterPatch) -> Run {
    Scene::new(one_call()).hooks(TestHooks::new().after(move |_| Ok(patch.clone()))).prompt("p").await
}

#[tokio::test(start_paused = true)]
async fn case_50_the_after_hook_replaces_content_alone() {
    let run = patched(AfterPatch { content: Some(vec![Content::text("AFTER")]), ..AfterPatch::default() }).await;
    assert_eq!(run.tools(), r#"ts1 te1 ok"AFTER""#);
    assert_eq!(run.result_text("c1"), "AFTER");
    assert_eq!(run.result("c1").details, Some(json!({"v": "1"})));
}

#[tokio::test(start_paused = true)]
async fn case_51_the_after_hook_turns_success_into_an_error() {
    let run = patched(AfterPatch { is_error: Some(true), ..AfterPatch::default() }).await;
    run.is(r#"AS TS U"p" A(toolUse,c1) ts1 te1 ERR"ok 1" R1 ERR"ok 1" TE[c1] TS A(stop,"d") TE[] AE[u,a,t,a]"#);
}

#[tokio::test(start_paused = true)]
async fn case_52_the_after_hook_rescues_a_failure() {
    let log = Log::default();
    let seen = log.clone();
    let hooks = TestHooks::new().after(move |asked| {
        seen.add(asked.result.is_error.to_string());
        seen.add(asked.result.content[0].as_text().unwrap());
        Ok(AfterPatch { is_error: Some(false), details: Some(json!({"x": 1})), ..AfterPatch::default() })
    });
    let run = Scene::new(one_call()).tool(failing("echo", "bad")).hooks(hooks).prompt("p").await;
    assert_eq!(run.tools(), r#"ts1 te1 ok"bad""#);
    assert_eq!(run.result("c1").details, Some(json!({"x": 1})));
    assert_eq!(log.joined(), "true, bad");
}

#[tokio::test(start_paused = true)]
async fn case_53_a_failing_after_hook_replaces_the_whole_result() {
    let hooks = TestHooks::new().after(|_| Err("afterfail".to_owned()));
    let run = Scene::new(one_call()).tool(terminating("echo")).hooks(hooks).prompt("p").await;
    assert_eq!((run.tools(), run.requests.len()), (r#"ts1 te1 ERR"afterfail""#.to_owned(), 2));
    assert_eq!(run.result("c1").details, Some(json!({"error": {"code": "tool_error", "message": "afterfail"}})));
}

#[tokio::test(start_paused = true)]
async fn case_54_the_after_hook_may_lift_a_terminate() {
    let hooks = TestHooks::new().after(|_| Ok(AfterPatch { terminate: Some(false), ..AfterPatch::default() }));
    let run = Scene::new(one_call()).tool(terminating("echo")).hooks(hooks).prompt("p").await;
    assert_eq!((run.requests.len(), terminate_of(&run)), (2, false));
}

#[tokio::test(start_paused = true)]
async fn case_55_an_empty_answer_of_the_after_hook_changes_nothing() {
    let run = patched(AfterPatch::default()).await;
    assert_eq!(run.tools(), r#"ts1 te1 ok"ok 1""#);
    assert_eq!(run.result("c1").details, Some(json!({"v": "1"})));
}

// Beyond the numbered cases ------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn replacing_content_drops_the_structured_value_unless_it_is_given_too() {
    for (structured, wanted) in [(None, None), (Some(json!({"s": 2})), Some(json!({"s": 2})))] {
        let patch = AfterPatch { content: Some(vec![Content::text("AFTER")]), structured, ..AfterPatch::default() };
        let hooks = TestHooks::new().after(move |_| Ok(patch.clone()));
        let with_structured =
            tool("echo", |args, _| async move { ToolOutput { structured: Some(json!({"s": 1})), ..echoed(&args) } });
        let run = Scene::new(one_call()).tool(with_structured).hooks(hooks).prompt("p").await;
        let shown = run.events.iter().find_map(|event| match event {
            Event::ToolEnd { result, .. } => Some(result.structured.clone()),
            _ => None,
        });
        assert_eq!(shown, Some(wanted));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_hook_without_a_text_still_says_something() {
    for hooks in [TestHooks::new().before(|_| Err(String::new())), TestHooks::new().after(|_| Err(String::new()))] {
        let run = Scene::new(one_call()).hooks(hooks).prompt("p").await;
        assert_eq!(run.result_text("c1"), texts::TOOL_SILENT);
        assert_eq!(run.result("c1").details.as_ref().unwrap()["error"]["message"], texts::TOOL_SILENT);
    }
}

/// Denies every call whose `v` is "secret".
struct NoSecrets;

impl Policy for NoSecrets {
    fn check(&self, tool: &str, args: &Value) -> Verdict {
        if args["v"] == "secret" {
            return Verdict::Deny(Denied { rule: tool.to_owned(), reason: "Denied by a rule.".to_owned() });
        }
        Verdict::Allow
    }
}

#[tokio::test(start_paused = true)]
async fn permission_rules_are_asked_before_the_hook_and_again_for_changed_arguments() {
    for (model_says, hook_says, hooks_called) in [("secret", "fine", 0), ("fine", "secret", 1)] {
        let log = Log::default();
        let seen = log.clone();
        let hooks = TestHooks::new().before(move |_| {
            seen.add("before");
            Ok(BeforeDecision { args: Some(json!({"v": hook_says})), ..BeforeDecision::default() })
        });
        let scene = Scene::new(vec![calls(vec![echo("c1", model_says)]), text("d")]).hooks(hooks);
        let run = scene.options(|options| options.policy = Some(std::sync::Arc::new(NoSecrets))).prompt("p").await;
        assert_eq!(run.tools(), r#"ts1 te1 ERR"Denied by a rule.""#);
        assert_eq!((run.code("c1"), log.words().len()), ("denied".to_owned(), hooks_called));
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_see_no_result_of_their_own_batch_even_in_sequence() {
    let log = Log::default();
    let (before, after) = (log.clone(), log.clone());
    let hooks = TestHooks::new()
        .before(move |asked| {
            before.add(format!("{}:{}", asked.call.id, asked.context.len()));
            Ok(BeforeDecision::default())
        })
        .after(move |asked| {
            after.add(format!("{}:{}", asked.call.id, asked.context.len()));
            Ok(AfterPatch::default())
        });
    let replies = vec![calls(vec![echo("c1", "1"), echo("c2", "2")]), text("d")];
    let run = Scene::new(replies).sequential().hooks(hooks).prompt("p").await;
    assert_eq!(log.joined(), "c1:2, c1:2, c2:2, c2:2");
    assert_eq!(as_result(&run.after[3]).tool_call_id, "c2");
}
