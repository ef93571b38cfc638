//! G. Cancellation and failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use pirn::agent::{AfterPatch, AfterTurn, Agent, AgentError, BeforeDecision, Listener, NextTurn};
use pirn::model::{AssistantBlock, CancelCause, Content, ErrorKind, Event, Reason, StopReason, ToolResultView};
use pirn::port::{SinkError, ToolOutput};
use pirn::testing::{Act, Reply, call};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::doubles::{Log, TestHooks, TestTool, echo_doing, echoed, pause, terminating, tool};
use super::notation::{short, short_message};
use super::support::{Handle, Run, Scene, Stage, calls, delta, done, echo, end, start, text, text_start};

/// What `te` and `R` show of a call that was cancelled before it ran.
const OVER: &str = r#"ERR"Cancelled before it ran.""#;

fn one_call() -> Vec<Reply> {
    vec![calls(vec![echo("c1", "1")]), text("d")]
}

fn two_calls() -> Vec<Reply> {
    vec![calls(vec![echo("c1", "1"), echo("c2", "2")]), text("d")]
}

/// Plays a prompt and aborts it after a while.
async fn aborted_after(stage: &Stage, milliseconds: u64) -> Run {
    let abort = async {
        pause(milliseconds).await;
        stage.agent.abort();
    };
    tokio::join!(stage.prompt("p"), abort).0
}

#[tokio::test(start_paused = true)]
async fn case_105_cancel_while_streaming_keeps_the_text_so_far() {
    for (stop, error) in [(StopReason::Aborted, None), (StopReason::Error, Some("connection closed"))] {
        // A provider error that the cancellation caused is reported as `aborted`.
        let script = vec![
            start(),
            text_start(0),
            delta(0, "pa"),
            Act::WaitForCancel,
            end(stop, vec![AssistantBlock::text("pa")], error),
        ];
        let stage = Scene::new(vec![Reply::raw(script)]).stage();
        let run = aborted_after(&stage, 5).await;
        run.is(r#"AS TS U"p" A(aborted,"pa"!Run cancelled) TE[] AE[u,a]"#).ended(StopReason::Aborted);
        assert_eq!(stage.agent.state().error_message.as_deref(), Some("Run cancelled"));
        assert_eq!(
            (run.outcome().reason, run.outcome().cause, run.moments.last()),
            (Reason::Interrupted, Some(CancelCause::Steer), Some(&5))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn case_106_a_stream_that_never_answers_is_dropped() {
    let script = vec![start(), text_start(0), delta(0, "pa"), Act::Hang];
    let stage = Scene::new(vec![Reply::raw(script)]).stage();
    let run = aborted_after(&stage, 5).await;
    run.is(r#"AS TS U"p" A(aborted,"pa"!Run cancelled) TE[] AE[u,a]"#).ended(StopReason::Aborted);
    assert_eq!(run.moments.last(), Some(&305));
}

#[tokio::test(start_paused = true)]
async fn case_106_a_stream_that_goes_on_regardless_is_dropped_too() {
    let mut script = vec![start(), text_start(0)];
    for _ in 0..500 {
        script.extend([Act::Sleep(Duration::from_millis(10)), delta(0, ".")]);
    }
    script.push(done("never"));
    let stage = Scene::new(vec![Reply::raw(script)]).stage();
    let run = aborted_after(&stage, 5).await;
    assert_eq!((run.last_reply().stop_reason, run.moments.last()), (StopReason::Aborted, Some(&305)));
}

/// `echo` that aborts the run, then answers.
fn aborting(agent: Handle, answer: impl Fn() -> ToolOutput + Send + Sync + 'static) -> TestTool {
    tool("echo", move |_, _| {
        agent.abort();
        let output = answer();
        async move { output }
    })
}

#[tokio::test(start_paused = true)]
async fn case_107_cancel_inside_a_tool_of_a_sequential_batch() {
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
    let scene = Scene::new(two_calls()).sequential().hooks(hooks);
    let killed = aborting(scene.handle(), || ToolOutput::failure("aborted", "killed"));
    let run = scene.tool(killed).prompt("p").await;
    run.is(&format!(
        r#"AS TS U"p" A(toolUse,c1,c2) ts1 te1 ERR"killed" R1 ERR"killed" ts2 te2 {OVER} R2 {OVER} TE[c1,c2]
           TS A(aborted,""!Run cancelled) TE[] AE[u,a,t,t,a]"#
    ))
    .asked(&["p"]);
    assert_eq!(log.joined(), "before c1");
    assert_eq!((run.code("c2"), run.result("c2").duration_ms), ("aborted".to_owned(), None));
}

#[tokio::test(start_paused = true)]
async fn case_108_cancel_in_a_before_hook_settles_the_whole_batch() {
    let log = Log::default();
    let batch = calls(vec![echo("c1", "1"), echo("c2", "2"), echo("c3", "3")]);
    let scene = Scene::new(vec![batch]);
    let (agent, ran) = (scene.handle(), log.clone());
    // The refusal of the hook loses against the cancellation.
    let hooks = TestHooks::new().before(move |asked| {
        if asked.call.id == "c2" {
            agent.abort();
            return Ok(BeforeDecision::block("blocked"));
        }
        Ok(BeforeDecision::default())
    });
    let run = scene.hooks(hooks).tool(echo_doing("echo", move || ran.add("run"))).prompt("p").await;
    let mut pairs: Vec<String> = (1..=3).map(|n| format!("ts{n} te{n} {OVER}")).collect();
    let tools = run.tools();
    pairs.retain(|pair| tools.contains(pair.as_str()));
    assert_eq!(pairs.len(), 3, "{tools}");
    assert!(
        run.short().ends_with(&format!(
            r#"R1 {OVER} R2 {OVER} R3 {OVER} TE[c1,c2,c3] TS A(aborted,""!Run cancelled) TE[] AE[u,a,t,t,t,a]"#
        )),
        "{}",
        run.short()
    );
    assert_eq!(log.joined(), "");
}

#[tokio::test(start_paused = true)]
async fn case_109_cancel_beats_terminate() {
    let scene = Scene::new(one_call());
    let last = aborting(scene.handle(), || ToolOutput { terminate: true, ..ToolOutput::text("ok 1") });
    let run = scene.tool(last).prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,c1) ts1 te1 ok"ok 1"* R1 ok"ok 1" TE[c1] TS A(aborted,""!Run cancelled) TE[]
              AE[u,a,t,a]"#)
        .ended(StopReason::Aborted);
}

#[tokio::test(start_paused = true)]
async fn case_110_an_answer_that_was_complete_counts() {
    let stage = Scene::new(vec![text("hi")])
        .on(|event, agent| {
            if let Event::TurnEnd { .. } = event {
                agent.steer("s");
                agent.abort();
            }
        })
        .stage();
    let run = stage.prompt("p").await;
    run.is(r#"AS TS U"p" A(stop,"hi") TE[] AE[u,a]"#).asked(&["p"]).ended(StopReason::Stop);
    assert_eq!((run.outcome().reason, run.outcome().cause), (Reason::Completed, None));
    assert_eq!(short_message(&stage.agent.peek_queued_messages()[0]), r#"U"s""#);
}

#[tokio::test(start_paused = true)]
async fn case_110_an_abort_in_the_stop_hook_does_not_undo_a_complete_answer() {
    let scene = Scene::new(vec![text("hi")]);
    let agent = scene.handle();
    let hooks = TestHooks::new().turn(move |_| {
        agent.steer("s");
        agent.abort();
        Ok(AfterTurn::Default)
    });
    let stage = scene.hooks(hooks).stage();
    stage.prompt("p").await.is(r#"AS TS U"p" A(stop,"hi") TE[] AE[u,a]"#).ended(StopReason::Stop);
    assert!(stage.agent.has_queued_messages());
}

#[tokio::test(start_paused = true)]
async fn case_111_a_cancelled_run_consumes_no_steering() {
    let scene = Scene::new(one_call());
    let agent = scene.handle();
    let killed = tool("echo", move |_, _| {
        agent.steer("s");
        agent.abort();
        async { ToolOutput::failure("aborted", "killed") }
    });
    let stage = scene.tool(killed).stage();
    let run = stage.prompt("p").await;
    run.ended(StopReason::Aborted);
    assert!(run.short().ends_with("AE[u,a,t,a]"), "{}", run.short());
    assert_eq!(short_message(&stage.agent.peek_queued_messages()[0]), r#"U"s""#);
}

#[tokio::test(start_paused = true)]
async fn case_112_the_after_hook_is_skipped_once_the_run_is_cancelled() {
    let log = Log::default();
    let seen = log.clone();
    let hooks = TestHooks::new().after(move |_| {
        seen.add("after");
        Ok(AfterPatch { is_error: Some(true), ..AfterPatch::default() })
    });
    let scene = Scene::new(one_call()).hooks(hooks);
    let done = aborting(scene.handle(), || ToolOutput::text("ok 1"));
    let run = scene.tool(done).prompt("p").await;
    assert!(run.short().contains(r#"te1 ok"ok 1" R1 ok"ok 1""#), "{}", run.short());
    assert_eq!(log.joined(), "");
}

#[tokio::test(start_paused = true)]
async fn case_112_an_after_hook_that_runs_already_is_awaited_and_used() {
    let hooks = TestHooks::new()
        .pausing(3_900)
        .after(|_| Ok(AfterPatch { content: Some(vec![Content::text("AFTER")]), ..AfterPatch::default() }));
    let stage = Scene::new(one_call()).hooks(hooks).stage();
    let run = aborted_after(&stage, 5).await;
    run.is(r#"AS TS U"p" A(toolUse,c1) ts1 te1 ok"AFTER" R1 ok"AFTER" TE[c1] TS A(aborted,""!Run cancelled) TE[]
              AE[u,a,t,a]"#);
    assert_eq!(run.moments_of("tool_execution_end"), [3_900]);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_does_not_answer_a_cancellation_is_dropped_after_the_grace_and_a_second() {
    type Hooked = (&'static str, fn(TestHooks) -> TestHooks);
    let hooks: [Hooked; 6] = [
        ("transform", |hooks| hooks.transform(|messages| messages)),
        ("key", |hooks| hooks.key(|| None)),
        ("before", |hooks| hooks.before(|_| Ok(BeforeDecision::default()))),
        ("after", |hooks| hooks.after(|_| Ok(AfterPatch { is_error: Some(true), ..AfterPatch::default() }))),
        ("prepare", |hooks| hooks.prepare(|_| Ok(NextTurn::default()))),
        ("turn", |hooks| hooks.turn(|_| Ok(AfterTurn::Default))),
    ];
    for (name, hooked) in hooks {
        let stage = Scene::new(one_call()).hooks(hooked(TestHooks::new().pausing(1_000_000))).stage();
        let run = aborted_after(&stage, 5).await;
        run.ended(StopReason::Aborted);
        assert_eq!(run.moments_of("agent_end"), [4_005], "{name}: {}", run.short());
        assert!(!run.short().contains("ok 1\"ERR"), "{name}: {}", run.short());
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_listener_ends_the_run_like_a_closed_sink() {
    struct Panicking;
    #[async_trait]
    impl Listener for Panicking {
        async fn on_event(&self, _event: &Event, _cancel: &CancellationToken) -> Result<(), SinkError> {
            panic!("boom")
        }
    }
    let stage = Scene::new(vec![text("1")]).stage();
    stage.agent.subscribe(Arc::new(Panicking)).forever();
    let run = stage.prompt("p").await;
    assert_eq!(run.outcome, Err(AgentError::Sink(SinkError("a listener crashed: boom".to_owned()))));
}

#[tokio::test(start_paused = true)]
async fn case_113_a_failing_turn_hook_ends_the_run_with_a_failed_reply() {
    let prepare = TestHooks::new().prepare(|_| Err("pnt".to_owned()));
    let after_turn = TestHooks::new().turn(|_| Err("pnt".to_owned()));
    for hooks in [prepare, after_turn] {
        let stage = Scene::new(one_call()).hooks(hooks).stage();
        let run = stage.prompt("p").await;
        run.is(r#"AS TS U"p" A(toolUse,c1) ts1 te1 ok"ok 1" R1 ok"ok 1" TE[c1] TS A(error,""!pnt) TE[] AE[u,a,t,a]"#)
            .asked(&["p"])
            .ended(StopReason::Error);
        assert!(run.last_reply().content.is_empty());
        assert_eq!(run.outcome().error.as_ref().unwrap().kind, ErrorKind::Hook);
        assert_eq!(stage.agent.state().error_message.as_deref(), Some("pnt"));
    }
}

/// Fails at the n-th event.
struct Closing {
    count: AtomicUsize,
    at: usize,
}

#[async_trait]
impl Listener for Closing {
    async fn on_event(&self, _event: &Event, _cancel: &CancellationToken) -> Result<(), SinkError> {
        let closed = self.count.fetch_add(1, Ordering::SeqCst) + 1 >= self.at;
        if closed { Err(SinkError("gone".to_owned())) } else { Ok(()) }
    }
}

#[tokio::test(start_paused = true)]
async fn case_114_a_closed_sink_ends_the_run_at_once() {
    let whole = Scene::new(two_calls()).prompt("p").await.events.len();
    for at in 1..=whole {
        let log = Log::default();
        let ran = log.clone();
        let stage = Scene::new(two_calls()).tool(echo_doing("echo", move || ran.add("run"))).stage();
        stage.agent.subscribe(Arc::new(Closing { count: AtomicUsize::new(0), at })).forever();
        let run = stage.prompt("p").await;
        assert_eq!(run.outcome, Err(AgentError::Sink(SinkError("gone".to_owned()))), "event {at}");
        assert_eq!(run.events.len(), at);
        assert!(!stage.agent.state().is_streaming);
        if at == 3 {
            assert_eq!((log.joined(), run.requests.len()), (String::new(), 0));
        }
        // What was told stays, and the agent works.
        let told = run.events.iter().filter(|event| matches!(event, Event::MessageEnd { .. })).count();
        assert_eq!(stage.agent.state().messages.len(), told, "{}", short(&run.events));
    }
}

#[tokio::test(start_paused = true)]
async fn case_114_a_queued_message_is_never_both_told_and_queued() {
    for at in 1..=12 {
        let stage = Scene::new(vec![text("1"), text("2")]).stage();
        stage.agent.steer("s");
        stage.agent.subscribe(Arc::new(Closing { count: AtomicUsize::new(0), at })).forever();
        stage.prompt("p").await;
        let told = stage.agent.state().messages.iter().any(|message| short_message(message) == r#"U"s""#);
        assert_ne!(told, stage.agent.has_queued_messages(), "event {at}");
    }
}

// The table of cancellation, beyond the numbered cases ------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn cancel_before_the_first_request_calls_no_provider_and_polls_no_queue() {
    for moment in ["agent_start", "turn_start", "message_end"] {
        let stage = Scene::new(Vec::new())
            .on(move |event, agent| {
                if event.name() == moment {
                    agent.abort();
                }
            })
            .stage();
        stage.agent.steer("s");
        let run = stage.prompt("p").await;
        run.is(r#"AS TS U"p" A(aborted,""!Run cancelled) TE[] AE[u,a]"#).asked(&[]);
        assert!(stage.agent.has_queued_messages());
    }
}

#[tokio::test(start_paused = true)]
async fn cancel_while_a_request_is_made_ready_calls_no_provider() {
    for hooks in [TestHooks::new().key(|| None), TestHooks::new().transform(|messages| messages)] {
        let stage = Scene::new(Vec::new()).hooks(hooks.pausing(50)).stage();
        let run = aborted_after(&stage, 5).await;
        run.is(r#"AS TS U"p" A(aborted,""!Run cancelled) TE[] AE[u,a]"#).asked(&[]);
    }
}

#[tokio::test(start_paused = true)]
async fn cancel_during_prepare_next_turn_puts_queued_messages_back() {
    let hooks = TestHooks::new()
        .pausing(10)
        .prepare(|_| Ok(NextTurn { messages: vec![Arc::new(super::support::user("prep"))], ..NextTurn::default() }));
    let stage = Scene::new(vec![text("1")]).hooks(hooks).stage();
    stage.agent.follow_up("f1");
    stage.agent.follow_up("f2");
    let run = aborted_after(&stage, 5).await;
    run.is(r#"AS TS U"p" A(stop,"1") TE[] TS A(aborted,""!Run cancelled) TE[] AE[u,a,a]"#).asked(&["p"]);
    // Back at the front, and already there when the closing turn is told.
    assert_eq!(short_message(&stage.agent.peek_queued_messages()[0]), r#"U"f1""#);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_ignores_the_cancellation_is_dropped_after_the_grace() {
    let stubborn = tool("echo", |args, ctx| async move {
        let so_far = ToolResultView { content: vec![Content::text("so far")], ..ToolResultView::default() };
        assert!(ctx.updates.send(so_far, false).await);
        pause(3_600_000).await;
        echoed(&args)
    });
    let silent = tool("slow", |_, _| async { std::future::pending().await });
    let batch = calls(vec![echo("c1", "1"), call("c2", "slow", &json!({"v": "2"}))]);
    let stage = Scene::new(vec![batch]).tool(stubborn).tool(silent).stage();
    let run = aborted_after(&stage, 5).await;
    run.is(r#"AS TS U"p" A(toolUse,c1,c2) ts1 ts2 tu1"so far" te1 ERR"so far\n\nAborted." te2 ERR"Aborted."
              R1 ERR"so far\n\nAborted." R2 ERR"Aborted." TE[c1,c2] TS A(aborted,""!Run cancelled) TE[] AE[u,a,t,t,a]"#);
    // The grace of 3 s and one more; both at the same time.
    assert_eq!(run.moments_of("tool_execution_end"), [4005, 4005]);
    assert_eq!((run.code("c1"), run.code("c2")), ("aborted".to_owned(), "aborted".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_answers_within_the_grace_keeps_its_result() {
    let tidy = tool("echo", |args, ctx| async move {
        ctx.cancel.cancelled().await;
        pause(3_900).await;
        echoed(&args)
    });
    let stage = Scene::new(one_call()).tool(tidy).stage();
    let run = aborted_after(&stage, 5).await;
    assert_eq!(run.tools(), r#"ts1 te1 ok"ok 1""#);
    assert_eq!(run.result("c1").duration_ms, Some(3_905));
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_their_turn_are_settled_by_a_cancellation() {
    let scene = Scene::new(two_calls()).options(|options| options.limits.max_parallel = 1);
    let first = aborting(scene.handle(), || ToolOutput::text("ok 1"));
    let run = scene.tool(first).prompt("p").await;
    assert_eq!(run.tools(), format!(r#"ts1 te1 ok"ok 1" ts2 te2 {OVER}"#));
}

#[tokio::test(start_paused = true)]
async fn an_abort_at_the_start_event_of_a_call_keeps_it_from_running() {
    for sequential in [true, false] {
        let log = Log::default();
        let ran = log.clone();
        let scene = Scene::new(two_calls()).tool(echo_doing("echo", move || ran.add("run"))).on(|event, agent| {
            if let Event::ToolStart { .. } = event {
                agent.abort();
            }
        });
        let run = if sequential { scene.sequential() } else { scene }.prompt("p").await;
        assert_eq!(run.tools(), format!("ts1 te1 {OVER} ts2 te2 {OVER}"));
        assert_eq!(log.joined(), "");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_cause_of_a_cancellation_wins() {
    for (cause, reason) in [
        (CancelCause::Timeout, Reason::Timeout),
        (CancelCause::Pipe, Reason::Pipe),
        (CancelCause::Hook, Reason::Blocked),
        (CancelCause::Int, Reason::Interrupted),
    ] {
        let scene = Scene::new(one_call());
        let agent = scene.handle();
        let killed = echo_doing("echo", move || {
            agent.abort_with(cause);
            agent.abort_with(CancelCause::Term);
        });
        let run = scene.tool(killed).prompt("p").await;
        assert_eq!((run.outcome().reason, run.outcome().cause), (reason, Some(cause)));
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_run_after_an_abort_is_not_cancelled() {
    let scene = Scene::new(vec![calls(vec![echo("c1", "1")]), text("k")]);
    let agent: Handle = scene.handle();
    let stage = scene.tool(echo_doing("echo", move || Agent::abort(&agent))).stage();
    stage.prompt("p").await.ended(StopReason::Aborted);
    stage.prompt("q").await.asked(&["p | a:c1 | t1 | q"]).ended(StopReason::Stop);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_because_of_the_cancellation_is_a_cancellation() {
    let scene = Scene::new(one_call()).tool(terminating("echo"));
    let agent = scene.handle();
    let hooks = TestHooks::new().turn(move |_| {
        agent.abort();
        Err("killed".to_owned())
    });
    let run = scene.hooks(hooks).prompt("p").await;
    run.ended(StopReason::Aborted);
    assert_eq!(run.last_reply().error_message.as_deref(), Some("Run cancelled"));
}
