//! F. Turn control.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pirn::agent::{AfterTurn, NextTurn};
use pirn::model::{Model, Reason, StopReason, Thinking};
use pirn::testing::Reply;

use super::doubles::{Log, TestHooks, echo_doing};
use super::notation::{as_result, short_message};
use super::support::{Scene, calls, echo, model, text, user};

fn call_then(texts: &[&str]) -> Vec<Reply> {
    let mut replies = vec![calls(vec![echo("c1", "1")])];
    replies.extend(texts.iter().map(|answer| text(answer)));
    replies
}

/// An `after_turn` hook with an answer for the first turn only.
fn first_turn(answer: AfterTurn) -> TestHooks {
    let count = AtomicUsize::new(0);
    TestHooks::new().turn(move |_| {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        Ok(if first { answer } else { AfterTurn::Default })
    })
}

#[tokio::test(start_paused = true)]
async fn case_98_a_stop_after_the_turn_leaves_the_queues_alone() {
    let log = Log::default();
    let seen = log.clone();
    let hooks = TestHooks::new().turn(move |turn| {
        seen.add(turn.context.iter().map(|message| message.role()).collect::<Vec<_>>().join("+"));
        seen.add(turn.tool_results.iter().map(|result| as_result(result).tool_call_id.clone()).collect::<String>());
        seen.add(turn.new_messages.len().to_string());
        Ok(AfterTurn::Stop)
    });
    let scene = Scene::new(call_then(&[])).hooks(hooks);
    let agent = scene.handle();
    // Queued behind the poll at the start; nothing polls again.
    let stage = scene.tool(echo_doing("echo", move || agent.steer("s"))).stage();
    stage.agent.follow_up("f");
    let run = stage.prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,c1) ts1 te1 ok"ok 1" R1 ok"ok 1" TE[c1] AE[u,a,t]"#).asked(&["p"]);
    assert_eq!(log.words(), ["user+assistant+toolResult", "c1", "3"]);
    assert_eq!(run.outcome().reason, Reason::Blocked);
    let steering = stage.agent.peek_queued_messages();
    stage.agent.clear_steering_queue();
    let follow_up = stage.agent.peek_queued_messages();
    assert_eq!((short_message(&steering[0]), short_message(&follow_up[0])), ("U\"s\"".into(), "U\"f\"".into()));
}

#[tokio::test(start_paused = true)]
async fn case_99_the_stop_hook_is_not_asked_after_an_error() {
    let log = Log::default();
    let seen = log.clone();
    let hooks = TestHooks::new().turn(move |_| {
        seen.add("asked");
        Ok(AfterTurn::Stop)
    });
    Scene::new(vec![Reply::fail("e")]).hooks(hooks).prompt("p").await.ended(StopReason::Error);
    assert_eq!(log.joined(), "");
}

#[tokio::test(start_paused = true)]
async fn case_100_continue_makes_one_more_request() {
    let run = Scene::new(vec![text("1"), text("2")]).hooks(first_turn(AfterTurn::Continue)).prompt("p").await;
    run.is(r#"AS TS U"p" A(stop,"1") TE[] TS A(stop,"2") TE[] AE[u,a,a]"#).asked(&["p", r#"p | a:"1""#]);
}

#[tokio::test(start_paused = true)]
async fn case_101_continue_is_satisfied_by_a_turn_the_tools_cause() {
    let run = Scene::new(call_then(&["d"])).hooks(first_turn(AfterTurn::Continue)).prompt("p").await;
    assert_eq!(run.requests.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn case_101_continue_is_satisfied_by_a_queued_message() {
    for steer in [true, false] {
        let stage = Scene::new(vec![text("1"), text("2")]).hooks(first_turn(AfterTurn::Continue)).stage();
        if steer {
            // The first goes with the prompt, the second causes the turn.
            stage.agent.steer("s1");
            stage.agent.steer("s2");
        } else {
            stage.agent.follow_up("f");
        }
        assert_eq!(stage.prompt("p").await.requests.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn case_102_prepare_next_turn_replaces_context_model_and_level() {
    let hooks = TestHooks::new().prepare(|_| {
        Ok(NextTurn {
            context: Some(vec![Arc::new(user("REPL"))]),
            model: Some(Model { id: "m2".to_owned(), ..model() }),
            thinking: Some(Thinking::Off),
            messages: Vec::new(),
        })
    });
    let scene = Scene::new(call_then(&["d"])).hooks(hooks);
    let run = scene.options(|options| options.settings.thinking = Some(Thinking::Low)).prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,c1) ts1 te1 ok"ok 1" R1 ok"ok 1" TE[c1] TS A(stop,"d") TE[] AE[u,a,t,a]"#)
        .asked(&["p", "REPL"]);
    let asked: Vec<_> = run.requests.iter().map(|request| (request.model.id.as_str(), request.thinking)).collect();
    assert_eq!(asked, [("m-1", Some(Thinking::Low)), ("m2", Some(Thinking::Off))]);
}

#[tokio::test(start_paused = true)]
async fn case_103_prepare_next_turn_is_asked_only_when_another_turn_will_run() {
    for (follow_up, asked) in [(false, ""), (true, "2")] {
        let log = Log::default();
        let seen = log.clone();
        let hooks = TestHooks::new().prepare(move |turn| {
            seen.add(turn.new_messages.len().to_string());
            Ok(NextTurn::default())
        });
        let stage = Scene::new(vec![text("1"), text("2")]).hooks(hooks).stage();
        if follow_up {
            stage.agent.follow_up("f");
        }
        stage.prompt("p").await;
        assert_eq!(log.joined(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn case_104_prepared_messages_stand_before_queued_ones() {
    let hooks =
        TestHooks::new().prepare(|_| Ok(NextTurn { messages: vec![Arc::new(user("prep"))], ..NextTurn::default() }));
    let scene = Scene::new(call_then(&["d"])).hooks(hooks);
    let agent = scene.handle();
    let run = scene.tool(echo_doing("echo", move || agent.steer("s"))).prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,c1) ts1 te1 ok"ok 1" R1 ok"ok 1" TE[c1] TS U"prep" U"s" A(stop,"d") TE[]
              AE[u,a,t,u,u,a]"#);
}

// Beyond the numbered cases ------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn steering_queued_during_preparation_joins_that_turn_unless_something_was_pending() {
    for (pending, requests) in [
        (false, vec!["p", "p | a:c1 | t1 | late"]),
        (true, vec!["p", "p | a:c1 | t1 | early", r#"p | a:c1 | t1 | early | a:"2" | late"#]),
    ] {
        let scene = Scene::new(call_then(&["2", "3"]));
        let (agent, once) = (scene.handle(), AtomicUsize::new(0));
        let hooks = TestHooks::new().prepare(move |_| {
            if once.fetch_add(1, Ordering::SeqCst) == 0 {
                agent.steer("late");
            }
            Ok(NextTurn::default())
        });
        let agent = scene.handle();
        let early = echo_doing("echo", move || {
            if pending {
                agent.steer("early");
            }
        });
        scene.hooks(hooks).tool(early).prompt("p").await.asked(&requests);
    }
}

#[tokio::test(start_paused = true)]
async fn the_turn_limit_ends_a_run_that_wants_more() {
    let replies = (1..=9).map(|n| calls(vec![echo(&format!("c{n}"), "1")])).collect();
    let run = Scene::new(replies).options(|options| options.limits.max_turns = 2).prompt("p").await;
    run.ended(StopReason::ToolUse);
    assert_eq!((run.requests.len(), run.outcome().reason), (2, Reason::MaxTurns));
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_the_last_allowed_turn_is_a_normal_end_and_queued_messages_stay() {
    let stage = Scene::new(call_then(&["d"])).options(|options| options.limits.max_turns = 2).stage();
    stage.agent.follow_up("f");
    let run = stage.prompt("p").await;
    run.ended(StopReason::Stop);
    assert_eq!((run.outcome().reason, stage.agent.has_queued_messages()), (Reason::Completed, true));
}

#[tokio::test(start_paused = true)]
async fn endless_continues_meet_the_turn_limit() {
    let hooks = TestHooks::new().turn(|_| Ok(AfterTurn::Continue));
    let replies = vec![text("1"), text("2"), text("3"), text("4"), text("5"), text("6")];
    let run = Scene::new(replies).hooks(hooks).options(|options| options.limits.max_turns = 5).prompt("p").await;
    assert_eq!((run.requests.len(), run.outcome().reason), (5, Reason::MaxTurns));
    // The one warning, before turn ⌈0.8 × 5⌉ + 1.
    assert!(run.short().contains(r#"A(stop,"4") TE[] W(max_turns) TS A(stop,"5")"#), "{}", run.short());
}

#[tokio::test(start_paused = true)]
async fn a_stop_after_a_plain_answer_is_completed() {
    let hooks = TestHooks::new().turn(|_| Ok(AfterTurn::Stop));
    let run = Scene::new(vec![text("1")]).hooks(hooks).prompt("p").await;
    assert_eq!(run.outcome().reason, Reason::Completed);
}
