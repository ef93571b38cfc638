//! What a model gets to see of a transcript: healing and projection (T-1 to T-5, T-8, T-9).
//! Numbers are those of `tests/cases/providers.md` unless another page is named.

use std::sync::Arc;

use pirn::model::{
    AssistantBlock, AssistantMessage, Content, ImageBlock, Input, Message, Model, StopReason, TextBlock, ThinkingBlock,
    ToolCall, UserContent,
};
use pirn::turn::{Projection, default_convert, project, texts};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::loop_cases::invariants::check_pairs;
use crate::loop_cases::notation::{as_result, short_message};
use crate::loop_cases::support::{echo, model, reply, result, user};

fn projected(messages: &[Message], model: &Model) -> Projection {
    let messages: Vec<Arc<Message>> = messages.iter().cloned().map(Arc::new).collect();
    let before = messages.clone();
    let projection = project(&messages, model);
    assert_eq!(messages, before, "the transcript changed");
    check_pairs(&projection.messages);
    projection
}

/// The short form of what the model of the transcript gets.
fn shown(messages: &[Message]) -> String {
    let items: Vec<String> = projected(messages, &model()).messages.iter().map(|m| short_message(m)).collect();
    items.join(" ")
}

fn calls(ids: &[&str]) -> Message {
    reply(StopReason::ToolUse, ids.iter().map(|id| echo(id, "1")).collect())
}

fn answer(text: &str) -> Message {
    reply(StopReason::Stop, vec![AssistantBlock::text(text)])
}

fn from_json(message: Value) -> Message {
    serde_json::from_value(message).unwrap()
}

fn image() -> Content {
    Content::Image(ImageBlock { data: "AAAA".to_owned(), mime_type: "image/png".to_owned(), ..ImageBlock::default() })
}

fn user_blocks(blocks: Vec<Content>) -> Message {
    let Message::User(mut message) = user("") else { panic!() };
    message.content = UserContent::Blocks(blocks);
    Message::User(message)
}

fn seeing() -> Model {
    Model { input: vec![Input::Text, Input::Image], ..model() }
}

const NO_RESULT: &str = r#"ERR"No result was recorded for this tool call.""#;

#[test]
fn case_96_results_stand_in_the_order_of_their_calls() {
    let transcript = [user("u"), calls(&["ca", "cb"]), result("cb", "B"), result("ca", "A")];
    assert_eq!(shown(&transcript), r#"U"u" A(toolUse,ca,cb) Ra ok"A" Rb ok"B""#);
}

#[test]
fn case_97_a_missing_result_is_supplied_before_the_next_message() {
    let transcript = [user("u"), calls(&["ca", "cb"]), result("ca", "A"), user("go on")];
    assert_eq!(shown(&transcript), format!(r#"U"u" A(toolUse,ca,cb) Ra ok"A" Rb {NO_RESULT} U"go on""#));
}

/// Loop case 24: the supplied result names its tool, and belongs to the moment of the reply.
#[test]
fn a_supplied_result_names_the_tool_it_stands_for() {
    let projection = projected(&[user("u"), calls(&["c1"])], &model());
    let supplied = as_result(&projection.messages[2]);
    assert_eq!((supplied.tool_name.as_str(), supplied.is_error), ("echo", true));
    assert_eq!(supplied.content, [Content::text(texts::NO_RESULT)]);
    assert!(projection.notes.is_empty());
}

/// Loop case 23, T-3: failed and partial replies vanish with the results that answer only their calls.
#[test]
fn case_98_failed_and_partial_replies_vanish_with_their_results() {
    for stop in [StopReason::Aborted, StopReason::Error, StopReason::Deferred, StopReason::Pending] {
        let broken = reply(stop, vec![AssistantBlock::text("so f"), echo("c1", "1")]);
        let transcript = [user("u"), broken, result("c1", "ok"), user("again")];
        assert_eq!(shown(&transcript), r#"U"u" U"again""#);
        // They are expected to go; only a result nobody asked for is worth a note.
        assert!(projected(&transcript, &model()).notes.is_empty());
    }
}

#[test]
fn a_reply_cut_by_the_output_limit_stays() {
    let transcript = [user("u"), reply(StopReason::Length, vec![AssistantBlock::text("half"), echo("c1", "1")])];
    assert_eq!(shown(&transcript), format!(r#"U"u" A(length,"half",c1) R1 {NO_RESULT}"#));
}

#[test]
fn case_98_a_result_of_a_dropped_reply_does_not_answer_an_older_call_of_its_id() {
    let broken = reply(StopReason::Aborted, vec![echo("c1", "2")]);
    let transcript = [user("u"), calls(&["c1"]), broken, result("c1", "of the broken one")];
    assert_eq!(shown(&transcript), format!(r#"U"u" A(toolUse,c1) R1 {NO_RESULT}"#));
}

#[test]
fn case_99_a_result_nobody_asked_for_is_dropped_with_a_note() {
    let projection = projected(&[user("u"), answer("a"), result("zz", "?"), user("v")], &model());
    let items: Vec<String> = projection.messages.iter().map(|message| short_message(message)).collect();
    assert_eq!(items.join(" "), r#"U"u" A(stop,"a") U"v""#);
    assert_eq!(projection.notes.len(), 1);
    assert_eq!(projection.notes[0].code, "tool_result_dropped");
    assert!(projection.notes[0].message.contains("zz"));
}

#[test]
fn a_second_result_for_one_call_is_dropped_with_a_note() {
    let projection = projected(&[user("u"), calls(&["c1"]), result("c1", "A"), result("c1", "B")], &model());
    assert_eq!(short_message(projection.messages.last().unwrap()), r#"R1 ok"A""#);
    assert_eq!((projection.messages.len(), projection.notes.len()), (3, 1));
}

#[test]
fn a_late_result_moves_up_to_its_call() {
    let transcript = [user("u"), calls(&["c1"]), user("hurry"), result("c1", "A"), answer("done")];
    assert_eq!(shown(&transcript), r#"U"u" A(toolUse,c1) R1 ok"A" U"hurry" A(stop,"done")"#);
}

#[test]
fn a_result_before_its_call_answers_nothing() {
    let transcript = [user("u"), result("c1", "early"), calls(&["c1"])];
    assert_eq!(shown(&transcript), format!(r#"U"u" A(toolUse,c1) R1 {NO_RESULT}"#));
}

/// T-6: results belong to the nearest earlier unanswered call of their id.
#[test]
fn an_id_used_again_in_a_later_turn_gets_its_own_result() {
    let transcript = [user("u"), calls(&["c1"]), result("c1", "A"), calls(&["c1"]), result("c1", "B")];
    assert_eq!(shown(&transcript), r#"U"u" A(toolUse,c1) R1 ok"A" A(toolUse,c1) R1 ok"B""#);
    let open = [user("u"), calls(&["c1"]), user("v"), calls(&["c1"]), result("c1", "B")];
    assert_eq!(shown(&open), format!(r#"U"u" A(toolUse,c1) R1 {NO_RESULT} U"v" A(toolUse,c1) R1 ok"B""#));
}

/// T-7: without an id, order and name decide.
#[test]
fn results_without_an_id_are_matched_by_order_and_name() {
    let call = |id: &str, name: &str| {
        AssistantBlock::ToolCall(ToolCall { id: id.to_owned(), name: name.to_owned(), ..ToolCall::default() })
    };
    let result = |name: &str, text: &str| {
        from_json(json!({"role": "toolResult", "toolName": name, "isError": false,
            "content": [{"type": "text", "text": text}]}))
    };
    for ids in [["", "", ""], ["c1", "c2", "c3"]] {
        let blocks = vec![call(ids[0], "read"), call(ids[1], "ls"), call(ids[2], "read")];
        let transcript = [
            user("u"),
            reply(StopReason::ToolUse, blocks),
            result("read", "1"),
            result("read", "2"),
            result("ls", "3"),
        ];
        let projection = projected(&transcript, &model());
        let results: Vec<(&str, &str)> = projection.messages[2..]
            .iter()
            .map(|message| as_result(message))
            .map(|result| (result.tool_call_id.as_str(), result.content[0].as_text().unwrap()))
            .collect();
        assert_eq!(results, [(ids[0], "1"), (ids[1], "3"), (ids[2], "2")]);
    }
}

fn thinking(text: &str, signature: Option<&str>, redacted: bool) -> AssistantBlock {
    AssistantBlock::Thinking(ThinkingBlock {
        thinking: text.to_owned(),
        thinking_signature: signature.map(str::to_owned),
        redacted: redacted.then_some(true),
        ..ThinkingBlock::default()
    })
}

fn signed_text(text: &str, signature: &str) -> AssistantBlock {
    AssistantBlock::Text(TextBlock {
        text: text.to_owned(),
        text_signature: Some(signature.to_owned()),
        ..TextBlock::default()
    })
}

/// What is left of a reply's blocks for a model, as JSON.
fn blocks_for(block: AssistantBlock, model: &Model) -> Value {
    let messages = [user("u"), reply(StopReason::Stop, vec![block])];
    match projected(&messages, model).messages.get(1).and_then(|message| message.as_assistant()) {
        Some(reply) => serde_json::to_value(&reply.content).unwrap(),
        None => json!(null),
    }
}

/// T-4 and T-5, cases 100 and 101 as far as all wires share them.
#[test]
fn case_100_thinking_and_signatures_stay_with_their_model() {
    let others = [
        Model { id: "m-2".to_owned(), ..model() },
        Model { provider: "elsewhere".to_owned(), ..model() },
        Model { api: "anthropic-messages".to_owned(), ..model() },
    ];
    let call = AssistantBlock::ToolCall(ToolCall {
        id: "c1".to_owned(),
        name: "echo".to_owned(),
        thought_signature: Some("s".to_owned()),
        namespace: Some("n".to_owned()),
        ..ToolCall::default()
    });
    let whole = |block: &AssistantBlock| json!([serde_json::to_value(block).unwrap()]);
    for (block, same, other) in [
        (thinking("plan", Some("s"), false), None, json!([{"type": "text", "text": "plan"}])),
        (thinking("plan", None, false), None, json!([{"type": "text", "text": "plan"}])),
        (thinking("", Some("s"), false), None, json!(null)),
        (thinking("[hidden]", Some("enc"), true), None, json!(null)),
        (thinking(" ", None, false), Some(json!(null)), json!(null)),
        (thinking("", Some(""), false), Some(json!(null)), json!(null)),
        (signed_text("a", "s"), None, json!([{"type": "text", "text": "a"}])),
        // Gemini signs an empty text (case 91).
        (signed_text("", "s"), None, json!(null)),
        (AssistantBlock::text(" \n"), Some(json!(null)), json!(null)),
        (call, None, json!([{"type": "toolCall", "id": "c1", "name": "echo", "arguments": {}}])),
        (
            AssistantBlock::Other(json!({"type": "serverToolUse", "id": 1}).as_object().unwrap().clone()),
            Some(json!(null)),
            json!(null),
        ),
    ] {
        assert_eq!(blocks_for(block.clone(), &model()), same.unwrap_or_else(|| whole(&block)), "same: {block:?}");
        for model in &others {
            assert_eq!(blocks_for(block.clone(), model), other, "other: {block:?}");
        }
    }
}

/// T-2: one line for each run of adjacent images.
#[test]
fn case_107_images_become_one_line_for_a_model_that_takes_none() {
    let blocks = || vec![Content::text(""), image(), image(), Content::text("and"), image()];
    let blind = projected(&[user_blocks(blocks())], &model());
    let Message::User(message) = &*blind.messages[0] else { panic!() };
    assert_eq!(message.content.text(), format!("{0}\nand\n{0}", texts::IMAGE_LEFT_OUT));
    let sighted = projected(&[user_blocks(blocks())], &seeing());
    let Message::User(message) = &*sighted.messages[0] else { panic!() };
    assert_eq!(message.content, UserContent::Blocks(vec![image(), image(), Content::text("and"), image()]));
}

#[test]
fn case_107_images_of_tool_results_are_replaced_too() {
    let Message::ToolResult(mut picture) = result("c1", "ok") else { panic!() };
    picture.content = vec![Content::text("ok"), image(), image()];
    let transcript = [user("u"), calls(&["c1"]), Message::ToolResult(picture.clone())];
    let blind = projected(&transcript, &model());
    assert_eq!(as_result(&blind.messages[2]).content, [Content::text("ok"), Content::text(texts::IMAGE_LEFT_OUT)]);
    assert_eq!(*as_result(&projected(&transcript, &seeing()).messages[2]), picture);
}

/// T-9, and MSG-03 of the reports.
#[test]
fn msg_03_blank_text_is_not_sent() {
    for blank in ["", "   ", "\n\t"] {
        let text_form = from_json(json!({"role": "user", "content": blank}));
        assert_eq!(shown(&[text_form, user(blank), user("u")]), r#"U"u""#);
        let mixed = user_blocks(vec![Content::text(blank), Content::text("x"), Content::text(blank)]);
        assert_eq!(shown(&[mixed]), r#"U"x""#);
        let with_call = reply(StopReason::ToolUse, vec![AssistantBlock::text(blank), echo("c1", "1")]);
        assert_eq!(shown(&[user("u"), with_call, result("c1", "A")]), r#"U"u" A(toolUse,c1) R1 ok"A""#);
    }
}

/// T-9, and MSG-04 of the reports.
#[test]
fn msg_04_a_reply_without_content_is_not_sent() {
    for stop in [StopReason::Aborted, StopReason::Stop, StopReason::Length] {
        assert_eq!(shown(&[user("u"), reply(stop, Vec::new()), user("hi")]), r#"U"u" U"hi""#);
    }
}

/// T-1: null content, roles for programs and stored system prompts.
#[test]
fn null_content_and_other_roles_are_left_out() {
    let transcript = [
        from_json(json!({"role": "system", "content": "be nice"})),
        from_json(json!({"role": "note", "text": "n"})),
        from_json(json!({"role": "user", "content": null})),
        from_json(json!({"role": "assistant", "content": null, "stopReason": "stop"})),
        user("u"),
    ];
    assert_eq!(shown(&transcript), r#"U"u""#);
    let kept = default_convert(transcript.iter().cloned().map(Arc::new).collect());
    assert_eq!(kept.len(), 3);
}

#[test]
fn a_message_that_needs_no_change_is_shared_and_not_copied() {
    let transcript: Vec<Arc<Message>> =
        [user("u"), calls(&["c1"]), result("c1", "A"), answer("a")].map(Arc::new).into();
    let projection = project(&transcript, &model());
    assert_eq!(projection.messages.len(), transcript.len());
    assert!(projection.messages.iter().zip(&transcript).all(|(sent, stored)| Arc::ptr_eq(sent, stored)));
}

// Random transcripts -------------------------------------------------------------------------------------------

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just(" ".to_owned()), Just("a".to_owned()), Just("b c".to_owned())]
}

fn any_id() -> impl Strategy<Value = String> {
    prop_oneof![Just(""), Just("c1"), Just("c2"), Just("c3")].prop_map(str::to_owned)
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![Just("echo"), Just("read")].prop_map(str::to_owned)
}

fn any_content() -> impl Strategy<Value = Vec<Content>> {
    let block = prop_oneof![
        any_text().prop_map(Content::text),
        Just(image()),
        Just(Content::Other(json!({"type": "odd"}).as_object().unwrap().clone())),
    ];
    prop::collection::vec(block, 0..4)
}

fn any_signature() -> impl Strategy<Value = Option<String>> {
    prop::option::of(any_text())
}

fn any_block() -> impl Strategy<Value = AssistantBlock> {
    prop_oneof![
        (any_text(), any_signature()).prop_map(|(text, text_signature)| {
            AssistantBlock::Text(TextBlock { text, text_signature, ..TextBlock::default() })
        }),
        (any_text(), any_signature(), any::<bool>()).prop_map(|(text, signature, redacted)| thinking(
            &text,
            signature.as_deref(),
            redacted
        )),
        (any_id(), any_name(), any_signature()).prop_map(|(id, name, thought_signature)| {
            AssistantBlock::ToolCall(ToolCall { id, name, thought_signature, ..ToolCall::default() })
        }),
    ]
}

fn any_stop() -> impl Strategy<Value = StopReason> {
    prop_oneof![
        4 => Just(StopReason::ToolUse),
        1 => Just(StopReason::Stop),
        1 => Just(StopReason::Length),
        1 => Just(StopReason::Error),
        1 => Just(StopReason::Aborted),
        1 => Just(StopReason::Deferred),
        1 => Just(StopReason::Pending),
    ]
}

fn any_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        1 => any_content().prop_map(user_blocks),
        1 => any_text().prop_map(|text| from_json(json!({"role": "user", "content": text}))),
        4 => (any_stop(), prop::collection::vec(any_block(), 0..5), any::<bool>()).prop_map(|(stop, blocks, same)| {
            let Message::Assistant(reply) = reply(stop, blocks) else { panic!() };
            let model = if same { reply.model.clone() } else { "m-2".to_owned() };
            Message::Assistant(AssistantMessage { model, ..reply })
        }),
        6 => (any_id(), any_name(), any_content()).prop_map(|(id, name, content)| {
            let Message::ToolResult(mut answer) = result(&id, "") else { panic!() };
            answer.tool_name = name;
            answer.content = content;
            Message::ToolResult(answer)
        }),
        1 => Just(from_json(json!({"role": "note"}))),
    ]
}

/// What a request may hold at most.
fn is_sendable(message: &Message, sees: bool) -> bool {
    match message {
        Message::User(user) => match &user.content {
            UserContent::Text(text) => !text.trim().is_empty(),
            UserContent::Blocks(blocks) => {
                let blank = |block: &Content| block.as_text().is_some_and(|text| text.trim().is_empty());
                !blocks.is_empty() && !blocks.iter().any(blank)
            }
        },
        Message::Assistant(reply) => {
            let whole = matches!(reply.stop_reason, StopReason::Stop | StopReason::Length | StopReason::ToolUse);
            whole && !reply.content.is_empty()
        }
        Message::ToolResult(result) => sees || !result.content.iter().any(|block| matches!(block, Content::Image(_))),
        Message::Custom(_) => false,
    }
}

proptest! {
    /// `projected` checks that every call is answered exactly once, in order, right behind its reply, and that no
    /// result stands alone.
    #[test]
    fn any_transcript_becomes_a_valid_request(
        transcript in prop::collection::vec(any_message(), 0..12),
        sees in any::<bool>(),
    ) {
        let model = if sees { seeing() } else { model() };
        let once = projected(&transcript, &model);
        let odd = once.messages.iter().find(|message| !is_sendable(message, sees));
        prop_assert!(odd.is_none(), "{:?}", odd);
        let twice = project(&once.messages, &model);
        prop_assert_eq!(&twice.messages, &once.messages);
        prop_assert!(twice.notes.is_empty(), "{:?}", twice.notes);
    }

    /// A transcript of finished turns is sent as it is, so that a provider's prompt cache holds.
    #[test]
    fn a_request_grows_only_at_its_end(turns in prop::collection::vec(0..4_usize, 1..8)) {
        let mut transcript: Vec<Arc<Message>> = Vec::new();
        let mut sent: Vec<Arc<Message>> = Vec::new();
        for (at, count) in turns.into_iter().enumerate() {
            transcript.push(Arc::new(user("u")));
            let ids: Vec<String> = (0..count).map(|n| format!("c{at}-{n}")).collect();
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            transcript.push(Arc::new(if count == 0 { answer("a") } else { calls(&ids) }));
            transcript.extend(ids.iter().map(|id| Arc::new(result(id, "A"))));
            let now = project(&transcript, &model()).messages;
            prop_assert!(now.starts_with(&sent));
            sent = now;
        }
    }
}
