//! E. Queues and the agent.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use pirn::agent::{Agent, AgentError, Listener, QueueMode, Subscription};
use pirn::model::{AssistantBlock, Event, Message, Model, StopReason, Thinking};
use pirn::port::SinkError;
use pirn::testing::{Reply, call};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::doubles::{Log, echo_doing, echo_tool, echoed, pause, terminating, tool};
use super::notation::short_message;
use super::support::{Scene, Stage, calls, echo, model, reply, result, text, user};

fn answers(texts: &[&str]) -> Vec<Reply> {
    texts.iter().map(|answer| text(answer)).collect()
}

/// A call of `echo`, then answers.
fn call_then(texts: &[&str]) -> Vec<Reply> {
    let mut replies = vec![calls(vec![echo("c1", "1")])];
    replies.extend(answers(texts));
    replies
}

/// A scene whose `echo` does something with the agent.
fn acting(replies: Vec<Reply>, deed: impl Fn(&Agent) + Send + Sync + 'static) -> Scene {
    let scene = Scene::new(replies);
    let agent = scene.handle();
    scene.tool(echo_doing("echo", move || deed(&agent)))
}

fn queued(agent: &Agent) -> Vec<String> {
    agent.peek_queued_messages().iter().map(|message| short_message(message)).collect()
}

#[tokio::test(start_paused = true)]
async fn case_75_steering_waits_for_the_whole_batch() {
    let replies = vec![calls(vec![echo("c1", "1"), call("c2", "slow", &json!({"v": "2"}))]), text("d")];
    let run = acting(replies, |agent| agent.steer("s")).prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,c1,c2) ts1 ts2 te1 ok"ok 1" te2 ok"ok 2" R1 ok"ok 1" R2 ok"ok 2" TE[c1,c2]
              TS U"s" A(stop,"d") TE[] AE[u,a,t,t,u,a]"#)
        .asked(&["p", "p | a:c1,c2 | t1 | t2 | s"]);
}

#[tokio::test(start_paused = true)]
async fn case_76_steering_during_a_plain_answer_is_answered_in_the_same_run() {
    let scene = Scene::new(answers(&["a", "b"])).on(|event, agent| {
        if let Event::MessageStart { message } = event
            && message.as_assistant().is_some()
            && agent.state().messages.len() == 1
        {
            agent.steer("s");
        }
    });
    scene.prompt("p").await.is(r#"AS TS U"p" A(stop,"a") TE[] TS U"s" A(stop,"b") TE[] AE[u,a,u,a]"#);
}

#[tokio::test(start_paused = true)]
async fn case_77_one_at_a_time_gives_each_message_a_turn() {
    let scene = acting(call_then(&["2", "3"]), |agent| {
        agent.steer("s1");
        agent.steer("s2");
    });
    scene.prompt("p").await.is(r#"AS TS U"p" A(toolUse,c1) ts1 te1 ok"ok 1" R1 ok"ok 1" TE[c1]
           TS U"s1" A(stop,"2") TE[] TS U"s2" A(stop,"3") TE[] AE[u,a,t,u,a,u,a]"#);
}

#[tokio::test(start_paused = true)]
async fn case_78_mode_all_gives_them_one_turn() {
    let scene = acting(call_then(&["2"]), |agent| {
        agent.steer("s1");
        agent.steer("s2");
    });
    let run = scene.options(|options| options.steering_mode = QueueMode::All).prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,c1) ts1 te1 ok"ok 1" R1 ok"ok 1" TE[c1]
              TS U"s1" U"s2" A(stop,"2") TE[] AE[u,a,t,u,u,a]"#);
    assert_eq!(run.requests.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn case_78_a_mode_changed_during_the_run_holds_from_the_next_poll() {
    let scene = acting(call_then(&["2"]), |agent| {
        agent.set_steering_mode(QueueMode::All);
        agent.steer("s1");
        agent.steer("s2");
    });
    scene.prompt("p").await.asked(&["p", "p | a:c1 | t1 | s1 | s2"]);
}

#[tokio::test(start_paused = true)]
async fn case_79_steering_precedes_follow_ups() {
    let scene = acting(call_then(&["2", "3"]), |agent| {
        agent.follow_up("f");
        agent.steer("s");
    });
    let run = scene.prompt("p").await;
    run.asked(&["p", "p | a:c1 | t1 | s", r#"p | a:c1 | t1 | s | a:"2" | f"#]);
    assert!(run.short().ends_with("AE[u,a,t,u,a,u,a]"), "{}", run.short());
}

#[tokio::test(start_paused = true)]
async fn case_80_follow_up_modes() {
    for (mode, expected) in [
        (
            QueueMode::OneAtATime,
            r#"AS TS U"p" A(stop,"1") TE[] TS U"f1" A(stop,"2") TE[] TS U"f2" A(stop,"3") TE[] AE[u,a,u,a,u,a]"#,
        ),
        (QueueMode::All, r#"AS TS U"p" A(stop,"1") TE[] TS U"f1" U"f2" A(stop,"2") TE[] AE[u,a,u,u,a]"#),
    ] {
        let stage = Scene::new(answers(&["1", "2", "3"])).options(|options| options.follow_up_mode = mode).stage();
        stage.agent.follow_up("f1");
        stage.agent.follow_up("f2");
        stage.prompt("p").await.is(expected);
    }
}

#[tokio::test(start_paused = true)]
async fn case_81_messages_queued_while_idle_ride_along() {
    let stage = Scene::new(answers(&["1", "2"])).stage();
    stage.agent.steer("s1");
    stage.agent.steer("s2");
    stage.prompt("p").await.is(r#"AS TS U"p" U"s1" A(stop,"1") TE[] TS U"s2" A(stop,"2") TE[] AE[u,u,a,u,a]"#);
}

#[tokio::test(start_paused = true)]
async fn case_82_queues_survive_an_error() {
    let stage = Scene::new(vec![Reply::fail("e")])
        .on(|event, agent| {
            if let Event::MessageEnd { message, .. } = event
                && message.as_assistant().is_some()
            {
                agent.steer("s");
                agent.follow_up("f");
            }
        })
        .stage();
    let run = stage.prompt("p").await;
    assert_eq!((run.requests.len(), stage.agent.has_queued_messages()), (1, true));
    assert_eq!(queued(&stage.agent), [r#"U"s""#]);
    stage.agent.clear_steering_queue();
    assert_eq!(queued(&stage.agent), [r#"U"f""#]);
    stage.agent.clear_follow_up_queue();
    assert!(!stage.agent.has_queued_messages());
}

#[tokio::test(start_paused = true)]
async fn case_83_a_message_queued_at_the_end_stays_queued() {
    let scene = Scene::new(answers(&["1"])).on(|event, agent| {
        if let Event::RunEnd { .. } = event {
            agent.steer("s");
        }
    });
    let stage = scene.stage();
    stage.prompt("p").await.is(r#"AS TS U"p" A(stop,"1") TE[] AE[u,a]"#);
    assert_eq!(queued(&stage.agent), [r#"U"s""#]);
}

#[tokio::test(start_paused = true)]
async fn case_84_a_follow_up_still_runs_behind_terminate() {
    let stage = Scene::new(call_then(&["d"])).tool(terminating("echo")).stage();
    stage.agent.follow_up("f");
    stage
        .prompt("p")
        .await
        .is(r#"AS TS U"p" A(toolUse,c1) ts1 te1 ok"ok 1"* R1 ok"ok 1" TE[c1] TS U"f" A(stop,"d") TE[] AE[u,a,t,u,a]"#);
}

#[tokio::test(start_paused = true)]
async fn case_85_a_second_run_and_a_reset_are_refused_while_one_is_active() {
    let log = Log::default();
    let scene = Scene::new(call_then(&["d"]));
    let (agent, seen) = (scene.handle(), log.clone());
    let meddling = tool("echo", move |args, _| {
        let (agent, seen) = (agent.clone(), seen.clone());
        async move {
            for refused in [
                agent.prompt("q").await.map(drop),
                agent.continue_().await.map(drop),
                agent.reset(),
                agent.set_messages(Vec::new()),
            ] {
                seen.add(format!("{:?}", refused.unwrap_err()));
            }
            echoed(&args)
        }
    });
    let run = scene.tool(meddling).prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,c1) ts1 te1 ok"ok 1" R1 ok"ok 1" TE[c1] TS A(stop,"d") TE[] AE[u,a,t,a]"#);
    assert_eq!(log.words(), ["AlreadyRunning"; 4]);
    assert_eq!(
        AgentError::AlreadyRunning.to_string(),
        "a run is active; queue with steer or follow_up, or wait for it"
    );
}

#[tokio::test(start_paused = true)]
async fn case_86_continue_from_a_user_message() {
    let stage = Scene::new(answers(&["y"])).transcript(vec![user("u")]).stage();
    stage.continue_().await.is(r#"AS TS A(stop,"y") TE[] AE[a]"#).asked(&["u"]);
}

#[tokio::test(start_paused = true)]
async fn case_87_continue_from_a_tool_result() {
    let transcript = vec![user("u"), reply(StopReason::ToolUse, vec![echo("c1", "1")]), result("c1", "ok 1")];
    let stage = Scene::new(answers(&["y"])).transcript(transcript).stage();
    stage.continue_().await.is(r#"AS TS A(stop,"y") TE[] AE[a]"#).asked(&["u | a:c1 | t1"]);
}

fn answered() -> Vec<Message> {
    vec![user("u"), reply(StopReason::Stop, vec![AssistantBlock::text("a")])]
}

#[tokio::test(start_paused = true)]
async fn case_88_continue_needs_something_to_go_on_from() {
    let empty = Scene::new(Vec::new()).stage();
    empty.agent.steer("s");
    let run = empty.continue_().await;
    assert_eq!((run.outcome, run.events.len()), (Err(AgentError::NothingToContinue), 0));
    assert_eq!(queued(&empty.agent), [r#"U"s""#]);
    let answered = Scene::new(Vec::new()).transcript(answered()).stage();
    let run = answered.continue_().await;
    assert_eq!((run.outcome, run.events.len()), (Err(AgentError::LastMessageIsAssistant), 0));
}

#[tokio::test(start_paused = true)]
async fn a_prompt_without_anything_to_send_is_refused_before_anything_is_told() {
    type Refused = (Vec<Message>, Vec<Message>, AgentError);
    let table: [Refused; 4] = [
        (Vec::new(), vec![user("")], AgentError::NothingToSend),
        (Vec::new(), vec![user(" \n"), user("")], AgentError::NothingToSend),
        (answered(), vec![user(" ")], AgentError::NothingToSend),
        (answered(), Vec::new(), AgentError::LastMessageIsAssistant),
    ];
    for (transcript, prompt, error) in table {
        let stage = Scene::new(Vec::new()).transcript(transcript).stage();
        let run = stage.prompt(prompt).await;
        assert_eq!((run.outcome, run.events.len(), run.requests.len()), (Err(error), 0, 0));
        assert_eq!(run.before.len(), run.after.len());
    }
    let steered = Scene::new(answers(&["1"])).transcript(answered()).stage();
    steered.agent.steer("s");
    steered.prompt(Vec::<Message>::new()).await.is(r#"AS TS U"s" A(stop,"1") TE[] AE[u,a]"#);
}

#[tokio::test(start_paused = true)]
async fn case_89_continue_from_a_reply_takes_one_message_a_turn() {
    let stage = Scene::new(answers(&["1", "2"])).transcript(answered()).stage();
    stage.agent.steer("s1");
    stage.agent.steer("s2");
    stage.continue_().await.is(r#"AS TS U"s1" A(stop,"1") TE[] TS U"s2" A(stop,"2") TE[] AE[u,a,u,a]"#);
}

#[tokio::test(start_paused = true)]
async fn case_90_continue_from_a_reply_takes_steering_first() {
    let stage = Scene::new(answers(&["1", "2"])).transcript(answered()).stage();
    stage.agent.follow_up("f");
    stage.agent.steer("s");
    stage.continue_().await.is(r#"AS TS U"s" A(stop,"1") TE[] TS U"f" A(stop,"2") TE[] AE[u,a,u,a]"#);
}

/// Writes down the events it sees, after a while; may leave at one of them.
struct Slow {
    name: &'static str,
    milliseconds: u64,
    leave_at: Option<&'static str>,
    log: Log,
    own: Mutex<Option<Subscription>>,
}

impl Slow {
    fn subscribe(stage: &Stage, name: &'static str, milliseconds: u64, leave_at: Option<&'static str>, log: &Log) {
        let listener = Arc::new(Self { name, milliseconds, leave_at, log: log.clone(), own: Mutex::default() });
        let subscription = stage.agent.subscribe(listener.clone());
        *listener.own.lock().unwrap() = Some(subscription);
    }
}

#[async_trait]
impl Listener for Slow {
    async fn on_event(&self, event: &Event, _cancel: &CancellationToken) -> Result<(), SinkError> {
        pause(self.milliseconds).await;
        self.log.add(format!("{} {}", self.name, event.name()));
        if self.leave_at == Some(event.name()) {
            self.own.lock().unwrap().take().unwrap().unsubscribe();
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn case_91_listeners_are_awaited_in_order_and_may_leave() {
    let log = Log::default();
    let stage = Scene::new(answers(&["1"])).stage();
    Slow::subscribe(&stage, "L1", 1, Some("turn_start"), &log);
    Slow::subscribe(&stage, "L2", 0, None, &log);
    let run = stage.prompt("p").await;
    let words = log.words();
    assert_eq!(words[..4], ["L1 agent_start", "L2 agent_start", "L1 turn_start", "L2 turn_start"]);
    let second: Vec<&str> = words.iter().filter_map(|word| word.strip_prefix("L2 ")).collect();
    assert_eq!(second, run.events.iter().map(Event::name).collect::<Vec<_>>());
    assert_eq!(words.len(), second.len() + 2);
}

#[tokio::test(start_paused = true)]
async fn case_91_a_listener_that_joins_starts_with_the_next_event() {
    let log = Log::default();
    let joined = log.clone();
    let scene = Scene::new(answers(&["1"])).on(move |event, agent| {
        if let Event::TurnStart { .. } = event {
            let newcomer =
                Slow { name: "new", milliseconds: 0, leave_at: None, log: joined.clone(), own: Mutex::default() };
            agent.subscribe(Arc::new(newcomer)).forever();
        }
    });
    scene.prompt("p").await;
    assert_eq!(log.words()[0], "new message_start");
}

#[tokio::test(start_paused = true)]
async fn case_92_the_state_is_up_to_date_at_every_event() {
    let stage = Scene::new(answers(&["hi"])).stage();
    let run = stage.prompt("p").await;
    let mut seen: Vec<String> = Vec::new();
    for (event, state) in run.events.iter().zip(&run.states) {
        let role = state.streaming_message.as_ref().map_or("–", |message| message.role());
        let line = format!("{} {} {role}", event.name(), state.messages.len());
        if seen.last() != Some(&line) {
            seen.push(line);
        }
        assert!(state.is_streaming);
    }
    let expected = "agent_start 0 –; turn_start 0 –; message_start 0 user; message_end 1 –; \
        message_start 1 assistant; message_update 1 assistant; message_end 2 –; turn_end 2 –; agent_end 2 –";
    assert_eq!(seen.join("; "), expected);
    assert!(!stage.agent.state().is_streaming);
}

#[tokio::test(start_paused = true)]
async fn case_93_pending_calls_are_those_between_start_and_end() {
    let first = calls(vec![call("c1", "slow", &json!({"v": "a"})), call("c2", "fast", &json!({"v": "b"}))]);
    let run = Scene::new(vec![first, text("d")]).prompt("p").await;
    let pending: Vec<String> = run
        .events
        .iter()
        .zip(&run.states)
        .filter(|(event, _)| event.name().starts_with("tool_execution"))
        .map(|(_, state)| state.pending_tool_calls.iter().cloned().collect::<Vec<_>>().join("+"))
        .collect();
    assert_eq!(pending, ["c1", "c1+c2", "c1", ""]);
}

#[tokio::test(start_paused = true)]
async fn case_94_idle_comes_after_the_listeners_of_the_end() {
    /// Waits at `agent_end`, then says so.
    struct Last(Log);

    #[async_trait]
    impl Listener for Last {
        async fn on_event(&self, event: &Event, _cancel: &CancellationToken) -> Result<(), SinkError> {
            if let Event::RunEnd { .. } = event {
                pause(20).await;
                self.0.add("listener done");
            }
            Ok(())
        }
    }

    let log = Log::default();
    let stage = Scene::new(answers(&["1"])).stage();
    stage.agent.wait_for_idle().await;
    stage.agent.subscribe(Arc::new(Last(log.clone()))).forever();
    let prompt = async {
        stage.prompt("p").await;
        log.add("prompt done");
    };
    let idle = async {
        pause(10).await;
        assert!(stage.agent.state().is_streaming);
        stage.agent.wait_for_idle().await;
        log.add("idle");
        assert!(!stage.agent.state().is_streaming);
    };
    tokio::join!(prompt, idle);
    assert_eq!(log.joined(), "listener done, prompt done, idle");
}

#[tokio::test(start_paused = true)]
async fn case_95_the_error_message_lasts_until_the_next_run() {
    let stage = Scene::new(vec![Reply::fail("e"), text("ok")]).stage();
    stage.prompt("p").await;
    assert_eq!(stage.agent.state().error_message.as_deref(), Some("e"));
    let second = stage.prompt("q").await;
    assert_eq!(second.states[0].error_message, None);
    assert_eq!(stage.agent.state().error_message, None);
}

#[tokio::test(start_paused = true)]
async fn case_96_settings_take_effect_at_the_next_run() {
    let replies = vec![
        calls(vec![echo("c1", "1")]),
        calls(vec![call("c2", "new", &json!({"v": "1"}))]),
        text("d"),
        calls(vec![call("c3", "new", &json!({"v": "1"}))]),
        text("e"),
    ];
    let scene = acting(replies, |agent| {
        let mut settings = agent.settings();
        settings.thinking = Some(Thinking::High);
        settings.model = Model { id: "m-2".to_owned(), ..model() };
        settings.tools = vec![Arc::new(echo_tool("new", 0))];
        agent.set_settings(settings).unwrap();
    });
    let stage = scene.stage();
    let first = stage.prompt("p").await;
    assert_eq!(first.result_text("c2"), "Unknown tool \"new\". Available: echo, fast, slow.");
    for request in &first.requests {
        assert_eq!((request.model.id.as_str(), request.thinking), ("m-1", None));
    }
    let second = stage.prompt("q").await;
    assert_eq!(second.result_text("c3"), "ok 1");
    assert_eq!((second.requests[0].model.id.as_str(), second.requests[0].thinking), ("m-2", Some(Thinking::High)));
}

#[tokio::test(start_paused = true)]
async fn case_97_an_abort_while_idle_changes_nothing() {
    let stage = Scene::new(answers(&["1", "2"])).stage();
    stage.agent.abort();
    stage.prompt("p").await.ended(StopReason::Stop);
    stage.agent.abort();
    stage.prompt("q").await.ended(StopReason::Stop);
}

// Beyond the numbered cases ------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn an_empty_prompt_needs_a_transcript() {
    let stage = Scene::new(Vec::new()).stage();
    let refused = stage.prompt(Vec::<Message>::new()).await;
    assert_eq!((refused.outcome, refused.events.len()), (Err(AgentError::NothingToSend), 0));
    let asked = Scene::new(answers(&["2"])).transcript(vec![user("p")]).stage();
    asked.prompt(Vec::<Message>::new()).await.is(r#"AS TS A(stop,"2") TE[] AE[a]"#).asked(&["p"]);
}

#[tokio::test(start_paused = true)]
async fn reset_clears_the_conversation_and_keeps_the_settings() {
    let stage = Scene::new(vec![Reply::fail("e")]).stage();
    stage.prompt("p").await;
    stage.agent.steer("s");
    stage.agent.follow_up("f");
    stage.agent.reset().unwrap();
    let state = stage.agent.state();
    assert_eq!((state.messages.len(), state.error_message, stage.agent.has_queued_messages()), (0, None, false));
    assert_eq!(stage.agent.settings().tools.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn two_tools_of_one_name_are_refused() {
    let twice =
        || -> Vec<Arc<dyn pirn::port::Tool>> { vec![Arc::new(echo_tool("echo", 0)), Arc::new(echo_tool("echo", 1))] };
    let stage = Scene::new(Vec::new()).stage();
    let mut settings = stage.agent.settings();
    settings.tools = twice();
    let refused = stage.agent.set_settings(settings.clone()).unwrap_err();
    assert_eq!(refused, AgentError::DuplicateTool("echo".to_owned()));
    let options = pirn::agent::AgentOptions::new(stage.provider.clone(), settings);
    assert_eq!(Agent::new(options).unwrap_err(), refused);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_prompt_leaves_the_agent_idle_and_usable() {
    let stage = Scene::new(vec![Reply::raw(vec![pirn::testing::Act::Hang]), text("k")]).stage();
    tokio::select! {
        _ = stage.agent.prompt("p") => panic!("it hangs"),
        () = pause(5) => {}
    }
    assert!(!stage.agent.state().is_streaming);
    stage.agent.wait_for_idle().await;
    stage.prompt("q").await.asked(&["p | q"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_dropped_run_took_from_a_queue_goes_back_unless_it_was_told() {
    let stage = Scene::new(vec![Reply::raw(vec![pirn::testing::Act::Hang])]).stage();
    stage.agent.steer("s1");
    stage.agent.steer("s2");
    tokio::select! {
        _ = stage.agent.prompt("p") => panic!("it hangs"),
        () = pause(5) => {}
    }
    assert_eq!(stage.agent.state().messages.len(), 2);
    assert_eq!(queued(&stage.agent), [r#"U"s2""#]);
}
