//! A. Replies and messages.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pirn::agent::Prompt;
use pirn::model::{
    AssistantBlock, BlockEvent, ErrorKind, Event, ImageBlock, Message, Secret, StopReason, ThinkingBlock, Usage,
};
use pirn::port::AssistantEvent;
use pirn::testing::{Act, Reply, call};
use pirn::turn::texts;
use serde_json::json;

use super::doubles::{Log, TestHooks, pause};
use super::notation::as_result;
use super::support::{Run, Scene, block, calls, delta, done, echo, end, reply, result, start, text, text_start, user};

#[tokio::test(start_paused = true)]
async fn case_1_a_plain_answer_is_one_turn() {
    let stage = Scene::new(vec![text("hi")]).stage();
    let run = stage.prompt("p").await;
    run.is(r#"AS TS U"p" A(stop,"hi") TE[] AE[u,a]"#).asked(&["p"]).ended(StopReason::Stop);
    let state = stage.agent.state();
    assert_eq!((state.messages.len(), state.is_streaming, state.error_message), (2, false, None));
}

#[tokio::test(start_paused = true)]
async fn case_2_block_events_become_updates() {
    let script = vec![
        start(),
        text_start(0),
        delta(0, "he"),
        delta(0, "llo"),
        block(0, BlockEvent::TextEnd { content: "hello".to_owned(), signature: None }),
        done("hello"),
    ];
    let run = Scene::new(vec![Reply::raw(script)]).prompt("p").await;
    run.is(r#"AS TS U"p" A(stop,"hello") TE[] AE[u,a]"#);
    assert_eq!(run.updates(), r#"text_start0 text_delta0"he" text_delta0"llo" text_end0"hello""#);
}

/// The reply of case 3; the wire cases use it too.
pub(super) fn thinking_text_and_call() -> Reply {
    let thinking = ThinkingBlock {
        thinking: "hm".to_owned(),
        thinking_signature: Some("sig".to_owned()),
        ..ThinkingBlock::default()
    };
    let AssistantBlock::ToolCall(c1) = echo("c1", "1") else { panic!() };
    Reply::raw(vec![
        start(),
        block(0, BlockEvent::ThinkingStart),
        block(0, BlockEvent::ThinkingDelta("h".to_owned())),
        block(0, BlockEvent::ThinkingDelta("m".to_owned())),
        block(
            0,
            BlockEvent::ThinkingEnd { content: "hm".to_owned(), signature: Some("sig".to_owned()), redacted: false },
        ),
        text_start(1),
        delta(1, "go"),
        block(1, BlockEvent::TextEnd { content: "go".to_owned(), signature: None }),
        block(2, BlockEvent::ToolCallStart { id: "c1".to_owned(), name: "echo".to_owned() }),
        block(2, BlockEvent::ToolCallDelta("{\"v\":".to_owned())),
        block(2, BlockEvent::ToolCallDelta("\"1\"}".to_owned())),
        block(2, BlockEvent::ToolCallEnd(Box::new(c1))),
        end(
            StopReason::ToolUse,
            vec![AssistantBlock::Thinking(thinking), AssistantBlock::text("go"), echo("c1", "1")],
            None,
        ),
    ])
}

#[tokio::test(start_paused = true)]
async fn case_3_thinking_text_and_call_in_one_reply() {
    let run = Scene::new(vec![thinking_text_and_call(), text("d")]).prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,~"hm","go",c1) ts1 te1 ok"ok 1" R1 ok"ok 1" TE[c1]
              TS A(stop,"d") TE[] AE[u,a,t,a]"#);
    let first = run.updates();
    let first = first.split(" text_start0").next().unwrap();
    assert_eq!(
        first,
        r#"thinking_start0 thinking_delta0"h" thinking_delta0"m" thinking_end0"hm" text_start1 text_delta1"go" text_end1"go" toolcall_start2(c1 echo) toolcall_delta2"{\"v\":" toolcall_delta2"\"1\"}" toolcall_end2(c1)"#
    );
    let reply = run.after[1].as_assistant().unwrap();
    let AssistantBlock::Thinking(thinking) = &reply.content[0] else { panic!("{reply:?}") };
    assert_eq!(thinking.thinking_signature.as_deref(), Some("sig"));
}

/// The reply of case 4; the wire cases use it too.
pub(super) fn overlapping_blocks() -> Reply {
    let AssistantBlock::ToolCall(c1) = echo("c1", "1") else { panic!() };
    Reply::raw(vec![
        start(),
        text_start(0),
        delta(0, "a"),
        block(1, BlockEvent::ToolCallStart { id: "c1".to_owned(), name: "echo".to_owned() }),
        delta(0, "b"),
        block(1, BlockEvent::ToolCallDelta("{\"v\":\"1\"}".to_owned())),
        block(0, BlockEvent::TextEnd { content: "ab".to_owned(), signature: None }),
        block(1, BlockEvent::ToolCallEnd(Box::new(c1))),
        end(StopReason::ToolUse, vec![AssistantBlock::text("ab"), echo("c1", "1")], None),
    ])
}

#[tokio::test(start_paused = true)]
async fn case_4_blocks_may_overlap() {
    let run = Scene::new(vec![overlapping_blocks(), text("d")]).prompt("p").await;
    run.is(r#"AS TS U"p" A(toolUse,"ab",c1) ts1 te1 ok"ok 1" R1 ok"ok 1" TE[c1] TS A(stop,"d") TE[] AE[u,a,t,a]"#);
    let wanted = r#"text_start0 text_delta0"a" toolcall_start1(c1 echo) text_delta0"b" toolcall_delta1"{\"v\":\"1\"}" text_end0"ab" toolcall_end1(c1)"#;
    assert!(run.updates().starts_with(wanted), "{}", run.updates());
}

#[tokio::test(start_paused = true)]
async fn case_5_a_missing_start_is_supplied() {
    // The invariants hold every run to an empty, pending message_start.
    let run = Scene::new(vec![Reply::raw(vec![done("x")])]).prompt("p").await;
    run.is(r#"AS TS U"p" A(stop,"x") TE[] AE[u,a]"#);
    assert_eq!(run.updates(), "");
}

#[tokio::test(start_paused = true)]
async fn case_6_an_error_before_the_start_is_a_failed_reply() {
    let stage = Scene::new(vec![Reply::raw(vec![end(StopReason::Error, Vec::new(), Some("boom"))])]).stage();
    let run = stage.prompt("p").await;
    run.is(r#"AS TS U"p" A(error,""!boom) TE[] AE[u,a]"#).ended(StopReason::Error);
    assert_eq!(stage.agent.state().error_message.as_deref(), Some("boom"));
}

#[tokio::test(start_paused = true)]
async fn case_7_an_error_keeps_the_text_so_far() {
    let script = vec![
        start(),
        text_start(0),
        delta(0, "pa"),
        end(StopReason::Error, vec![AssistantBlock::text("pa")], Some("cut")),
    ];
    let stage = Scene::new(vec![Reply::raw(script)]).stage();
    stage.prompt("p").await.is(r#"AS TS U"p" A(error,"pa"!cut) TE[] AE[u,a]"#).ended(StopReason::Error);
    let state = stage.agent.state();
    assert_eq!(state.messages[1].as_assistant().unwrap().text(), "pa");
    assert_eq!(state.error_message.as_deref(), Some("cut"));
}

#[tokio::test(start_paused = true)]
async fn case_8_an_error_without_a_text_gets_one() {
    let stage = Scene::new(vec![Reply::raw(vec![start(), end(StopReason::Error, Vec::new(), None)])]).stage();
    stage.prompt("p").await.is(r#"AS TS U"p" A(error,""!Unknown provider error) TE[] AE[u,a]"#);
    assert_eq!(stage.agent.state().error_message.as_deref(), Some("Unknown provider error"));
}

#[tokio::test(start_paused = true)]
async fn case_9_a_stream_without_an_end_is_an_error() {
    let script = vec![start(), text_start(0), delta(0, "par")];
    let run = Scene::new(vec![Reply::raw(script)]).prompt("p").await;
    run.is(r#"AS TS U"p" A(error,"par"!The stream broke off: no final event.) TE[] AE[u,a]"#);
    // A stream that breaks off is kind `network`.
    let error = run.outcome().error.as_ref().unwrap();
    assert_eq!((error.kind, error.retryable), (ErrorKind::Network, true));
    assert_eq!(error.provider.as_deref(), Some("local"));
    assert_eq!(run.moments.last(), Some(&0));
}

#[tokio::test(start_paused = true)]
async fn case_10_events_behind_the_terminal_are_ignored() {
    let script = vec![start(), done("a"), delta(0, "zz"), done("b")];
    let run = Scene::new(vec![Reply::raw(script)]).prompt("p").await;
    run.is(r#"AS TS U"p" A(stop,"a") TE[] AE[u,a]"#);
    assert_eq!(run.updates(), "");
}

#[tokio::test(start_paused = true)]
async fn case_11_block_events_before_the_start_are_ignored() {
    let run = Scene::new(vec![Reply::raw(vec![delta(0, "z"), done("z")])]).prompt("p").await;
    run.is(r#"AS TS U"p" A(stop,"z") TE[] AE[u,a]"#);
    assert_eq!(run.updates(), "");
}

#[tokio::test(start_paused = true)]
async fn case_12_a_second_start_is_ignored() {
    let script = vec![start(), text_start(0), delta(0, "a"), start(), delta(0, "b"), done("ab")];
    let stage = Scene::new(vec![Reply::raw(script), text("k")]).stage();
    let run = stage.prompt("p").await;
    run.is(r#"AS TS U"p" A(stop,"ab") TE[] AE[u,a]"#);
    assert_eq!(run.updates(), r#"text_start0 text_delta0"a" text_delta0"b""#);
    stage.prompt("q").await.asked(&[r#"p | a:"ab" | q"#]);
}

#[tokio::test(start_paused = true)]
async fn case_13_calls_decide_and_not_the_reason() {
    let run = Scene::new(vec![calls(vec![echo("c1", "1")]).stop(StopReason::Stop), text("d")]).prompt("p").await;
    run.is(r#"AS TS U"p" A(stop,c1) ts1 te1 ok"ok 1" R1 ok"ok 1" TE[c1] TS A(stop,"d") TE[] AE[u,a,t,a]"#);
}

#[tokio::test(start_paused = true)]
async fn case_14_tool_use_without_calls_is_an_error() {
    let run = Scene::new(vec![text("d").stop(StopReason::ToolUse)]).prompt("p").await;
    run.is(r#"AS TS U"p" A(error,"d"!The provider stopped for tool use but sent no tool call.) TE[] AE[u,a]"#)
        .asked(&["p"])
        .ended(StopReason::Error);
    assert_eq!(run.outcome().error.as_ref().unwrap().kind, ErrorKind::Protocol);
    assert_eq!(run.last_reply().error_message.as_deref(), Some(texts::TOOLUSE_EMPTY));
}

/// A `stop` reply without a call and without text other than white space, also with thinking only.
#[tokio::test(start_paused = true)]
async fn case_14_an_empty_answer_is_an_error_that_may_be_retried() {
    let thinking = AssistantBlock::Thinking(ThinkingBlock { thinking: "hm".to_owned(), ..ThinkingBlock::default() });
    for content in [Vec::new(), vec![AssistantBlock::text(" \n")], vec![thinking]] {
        let run = Scene::new(vec![Reply::blocks(content.clone())]).prompt("p").await;
        let error = run.outcome().error.as_ref().unwrap();
        assert_eq!((error.kind, error.retryable), (ErrorKind::Empty, true));
        assert_eq!(run.last_reply().error_message.as_deref(), Some(texts::EMPTY));
        assert_eq!(run.last_reply().content, content);
    }
}

#[tokio::test(start_paused = true)]
async fn case_15_length_without_calls_ends_the_run() {
    let stage = Scene::new(vec![text("half").stop(StopReason::Length)]).stage();
    let run = stage.prompt("p").await;
    run.is(r#"AS TS U"p" A(length,"half") TE[] AE[u,a]"#).asked(&["p"]).ended(StopReason::Length);
    assert_eq!(stage.agent.state().error_message, None);
}

#[tokio::test(start_paused = true)]
async fn case_16_an_error_reply_runs_none_of_its_calls() {
    let failed = calls(vec![echo("c1", "1")]).stop(StopReason::Error).error_message("e");
    let run = Scene::new(vec![failed]).prompt("p").await;
    run.is(r#"AS TS U"p" A(error,c1!e) TE[] AE[u,a]"#).asked(&["p"]);
}

#[tokio::test(start_paused = true)]
async fn case_17_images_stand_behind_the_text_of_a_prompt() {
    let image = ImageBlock { data: "AA".to_owned(), mime_type: "image/png".to_owned(), ..ImageBlock::default() };
    let prompt = Prompt::Text("look".to_owned(), vec![image]);
    let run = Scene::new(vec![text("k")]).prompt(prompt).await;
    let message = serde_json::to_value(&*run.after[0]).unwrap();
    assert_eq!(
        message["content"],
        json!([{"type": "text", "text": "look"}, {"type": "image", "data": "AA", "mimeType": "image/png"}])
    );
}

#[tokio::test(start_paused = true)]
async fn case_18_several_prompt_messages_share_a_turn() {
    let run = Scene::new(vec![text("1")]).prompt(vec![user("a"), user("b")]).await;
    run.is(r#"AS TS U"a" U"b" A(stop,"1") TE[] AE[u,u,a]"#).asked(&["a | b"]);
}

#[tokio::test(start_paused = true)]
async fn case_19_a_custom_message_is_stored_and_told_but_not_sent() {
    let note = json!({"role": "note", "text": "n", "level": 3});
    let custom: Message = serde_json::from_value(note.clone()).unwrap();
    let run = Scene::new(vec![text("k")]).prompt(vec![custom, user("hey")]).await;
    run.is(r#"AS TS X U"hey" A(stop,"k") TE[] AE[x,u,a]"#).asked(&["hey"]);
    let Event::MessageEnd { message, .. } = &run.events[3] else { panic!("{}", run.short()) };
    assert_eq!(serde_json::to_value(&**message).unwrap(), note);
}

#[tokio::test(start_paused = true)]
async fn case_20_transform_context_shapes_the_request_only() {
    let old = vec![user("old"), reply(StopReason::Stop, vec![AssistantBlock::text("o")])];
    let hooks = TestHooks::new().transform(|mut messages| messages.split_off(messages.len() - 1));
    let run = Scene::new(vec![text("k")]).transcript(old).hooks(hooks).prompt("new").await;
    run.asked(&["new"]);
    assert_eq!(run.after.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn case_21_transform_context_runs_for_every_request() {
    let log = Log::default();
    let seen = log.clone();
    let hooks = TestHooks::new().transform(move |messages| {
        seen.add(messages.len().to_string());
        messages
    });
    Scene::new(vec![calls(vec![echo("c1", "1")]), text("d")]).hooks(hooks).prompt("p").await;
    assert_eq!(log.joined(), "1, 3");
}

/// The keys of the requests of a two-turn run.
async fn keys(hook: Option<TestHooks>) -> Vec<String> {
    let mut scene = Scene::new(vec![calls(vec![echo("c1", "1")]), text("d")])
        .options(|options| options.stream_options.api_key = Some(Secret::new("S")));
    if let Some(hooks) = hook {
        scene = scene.hooks(hooks);
    }
    let run = scene.prompt("p").await;
    run.requests.iter().map(|request| request.options.api_key.as_ref().unwrap().expose().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn case_22_a_key_is_resolved_per_request_and_wins() {
    let count = AtomicUsize::new(0);
    let fresh = TestHooks::new().key(move || {
        let n = count.fetch_add(1, Ordering::SeqCst) + 1;
        Some(Secret::new(format!("K{n}")))
    });
    assert_eq!(keys(Some(fresh)).await, ["K1", "K2"]);
    assert_eq!(keys(Some(TestHooks::new().key(|| None))).await, ["S", "S"]);
    assert_eq!(keys(None).await, ["S", "S"]);
}

#[tokio::test(start_paused = true)]
async fn case_23_failed_replies_are_not_replayed() {
    let stage = Scene::new(vec![Reply::fail("e"), text("k")]).stage();
    stage.prompt("p").await.asked(&["p"]);
    let second = stage.prompt("q").await;
    second.asked(&["p | q"]);
    assert_eq!(second.after[1].as_assistant().unwrap().stop_reason, StopReason::Error);
}

#[tokio::test(start_paused = true)]
async fn case_24_missing_results_are_filled_in_for_the_provider() {
    let calls = reply(StopReason::ToolUse, vec![echo("c1", "1"), echo("c2", "2")]);
    let transcript = vec![user("u"), calls, result("c1", "ok 1")];
    let run = Scene::new(vec![text("k")]).transcript(transcript.clone()).prompt("q").await;
    run.asked(&["u | a:c1,c2 | t1 | t2! | q"]);
    let supplied = as_result(&run.requests[0].messages[3]);
    assert_eq!(supplied.content[0].as_text(), Some(texts::NO_RESULT));
    let kept: Vec<&Message> = run.after.iter().take(3).map(|message| &**message).collect();
    assert_eq!(kept, transcript.iter().collect::<Vec<_>>());
}

// Beyond the numbered cases ------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn an_empty_delta_is_dropped() {
    let script = vec![start(), text_start(0), delta(0, ""), delta(0, "a"), done("a")];
    let run = Scene::new(vec![Reply::raw(script)]).prompt("p").await;
    assert_eq!(run.updates(), r#"text_start0 text_delta0"a""#);
}

#[tokio::test(start_paused = true)]
async fn usage_stands_only_on_the_update_that_follows_new_numbers() {
    let numbers = Usage { input: 3, total_tokens: 3, ..Usage::default() };
    let script = vec![
        start(),
        text_start(0),
        Act::Emit(AssistantEvent::Usage(Box::new(numbers))),
        delta(0, "a"),
        delta(0, "b"),
        done("ab"),
    ];
    let run = Scene::new(vec![Reply::raw(script)]).prompt("p").await;
    let usage: Vec<bool> = run
        .events
        .iter()
        .filter_map(|event| match event {
            Event::MessageUpdate { usage, .. } => Some(usage.is_some()),
            _ => None,
        })
        .collect();
    assert_eq!(usage, [false, true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_crashing_provider_is_a_failed_reply_with_the_text_so_far() {
    let script = vec![start(), text_start(0), delta(0, "pa"), Act::Panic("oops".to_owned())];
    let run = Scene::new(vec![Reply::raw(script)]).prompt("p").await;
    run.is(r#"AS TS U"p" A(error,"pa"!The provider crashed: oops) TE[] AE[u,a]"#);
    assert_eq!(run.outcome().error.as_ref().unwrap().kind, ErrorKind::Internal);
}

#[tokio::test(start_paused = true)]
async fn a_reply_knows_its_level_and_how_long_it_took() {
    let script = vec![start(), Act::Sleep(Duration::from_millis(40)), done("a")];
    let run = Scene::new(vec![Reply::raw(script)]).prompt("p").await;
    assert_eq!(run.last_reply().duration_ms, Some(40));
    assert_eq!(run.last_reply().thinking_level, None);
}

#[tokio::test(start_paused = true)]
async fn a_warning_of_the_provider_is_told_and_kept_with_a_reply_that_breaks_off() {
    let warning = AssistantEvent::Warning { code: "odd".to_owned(), message: "strange".to_owned() };
    let run = Scene::new(vec![Reply::raw(vec![start(), Act::Emit(warning)])]).prompt("p").await;
    assert!(run.short().contains("W(odd)"), "{}", run.short());
    assert_eq!(run.last_reply().diagnostics[0].code, "odd");
}

/// The stages of a request: transform, convert, heal.
#[tokio::test(start_paused = true)]
async fn a_transform_that_drops_a_result_leaves_no_call_unanswered() {
    let hooks = TestHooks::new().transform(|mut messages| {
        messages.retain(|message| !matches!(**message, Message::ToolResult(_)));
        messages
    });
    let run: Run = Scene::new(vec![calls(vec![echo("c1", "1")]), text("d")]).hooks(hooks).prompt("p").await;
    run.asked(&["p", "p | a:c1 | t1!"]);
}

#[tokio::test(start_paused = true)]
async fn the_message_of_a_stream_grows_in_the_state() {
    let texts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&texts);
    let script = vec![start(), text_start(0), delta(0, "he"), delta(0, "llo"), done("hello")];
    let scene = Scene::new(vec![Reply::raw(script)]).on(move |event, agent| {
        if let (Event::MessageUpdate { .. }, Some(Message::Assistant(reply))) = (event, agent.state().streaming_message)
        {
            seen.lock().unwrap().push(reply.text());
        }
    });
    scene.prompt("p").await;
    assert_eq!(*texts.lock().unwrap(), ["", "he", "hello"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_may_take_its_time() {
    let stage =
        Scene::new(vec![Reply::raw(vec![start(), Act::Sleep(Duration::from_secs(3600)), done("late")])]).stage();
    let (run, ()) = tokio::join!(stage.prompt("p"), async {
        pause(5).await;
        assert!(stage.agent.state().is_streaming);
    });
    run.is(r#"AS TS U"p" A(stop,"late") TE[] AE[u,a]"#);
}

#[tokio::test(start_paused = true)]
async fn a_call_keeps_its_own_place_in_the_request() {
    let first = Reply::blocks(vec![AssistantBlock::text("go"), call("c1", "echo", &json!({"v": "1"}))]);
    Scene::new(vec![first, text("d")]).prompt("p").await.asked(&["p", r#"p | a:"go",c1 | t1"#]);
}
