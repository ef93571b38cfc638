//! Requests in the form of Chat Completions (section F of `tests/cases/providers.md`).

use std::sync::Arc;

use pirn::model::{
    AssistantBlock, AssistantHead, AssistantMessage, Content, Extra, ImageBlock, Input, Message, Model, StopReason,
    Thinking, ThinkingBlock, ThinkingStyle, ToolCall, ToolResultMessage, UserContent, UserMessage,
};
use pirn::port::{Cache, LlmRequest, Purpose, Replay, Source, StreamOptions, ToolSpec};
use pirn::provider::compat::{Compat, OptionalField};
use pirn::provider::wire::openai_chat::encode::{RefusedImages, Repair, Repairs, body, repair_for, request_chars};
use serde_json::{Map, Value, json};

fn map(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().expect("an object")
}

fn compat(value: &Value) -> Compat {
    Compat::from_map(&map(value)).unwrap()
}

fn openai() -> Compat {
    compat(&json!({"max_tokens_field": "max_completion_tokens", "developer_role": true, "store": true,
        "tool_call_id": "short40", "reasoning_replay": "none"}))
}

fn model(id: &str) -> Model {
    Model::unknown("test", id, "openai-completions", "http://127.0.0.1:1/v1")
}

fn reasoner(id: &str, levels: &Value) -> Model {
    Model { reasoning: true, thinking_level_map: map(levels), ..model(id) }
}

fn request(model: Model, messages: Vec<Message>) -> LlmRequest {
    LlmRequest {
        model,
        system_prompt: String::new(),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: Arc::from([]),
        thinking: None,
        options: StreamOptions::default(),
        output_schema: None,
        purpose: Purpose::Run,
        session_id: None,
    }
}

fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        label: name.to_owned(),
        description: "Reads.".to_owned(),
        input_schema: json!({"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "string"}},
            "required": ["z", "a"], "additionalProperties": false}),
        output_schema: None,
        replay: Replay::Safe,
        execution: None,
        source: Source::Builtin,
        annotations: Map::new(),
    }
}

fn user(text: &str) -> Message {
    Message::user(text, Vec::new(), 0)
}

fn image() -> ImageBlock {
    ImageBlock { data: "AAAA".to_owned(), mime_type: "image/png".to_owned(), extra: Extra::new() }
}

fn user_blocks(blocks: Vec<Content>) -> Message {
    Message::User(UserMessage { content: UserContent::Blocks(blocks), timestamp: 0, extra: Extra::new() })
}

fn reply(content: Vec<AssistantBlock>) -> Message {
    let head = AssistantHead::default();
    Message::Assistant(AssistantMessage { content, stop_reason: StopReason::Stop, ..AssistantMessage::pending(&head) })
}

fn thinking(text: &str, signature: Option<&str>) -> AssistantBlock {
    AssistantBlock::Thinking(ThinkingBlock {
        thinking: text.to_owned(),
        thinking_signature: signature.map(str::to_owned),
        ..ThinkingBlock::default()
    })
}

fn call(id: &str, arguments: &Value) -> AssistantBlock {
    named_call(id, "read", arguments)
}

fn named_call(id: &str, name: &str, arguments: &Value) -> AssistantBlock {
    AssistantBlock::ToolCall(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: map(arguments),
        ..ToolCall::default()
    })
}

fn result(id: &str, content: Vec<Content>) -> Message {
    Message::ToolResult(ToolResultMessage {
        tool_call_id: id.to_owned(),
        tool_name: "read".to_owned(),
        content,
        details: Some(json!({"never": "sent"})),
        is_error: false,
        usage: None,
        duration_ms: None,
        timestamp: 0,
        extra: Extra::new(),
    })
}

fn text_result(id: &str, text: &str) -> Message {
    result(id, vec![Content::text(text)])
}

fn encode_with(request: &LlmRequest, compat: &Compat, repairs: &Repairs) -> Value {
    let bytes = body(request, compat, repairs).unwrap();
    assert_eq!(bytes, body(request, compat, repairs).unwrap(), "equal requests give equal bytes");
    serde_json::from_slice(&bytes).unwrap()
}

fn encode(request: &LlmRequest, compat: &Compat) -> Value {
    encode_with(request, compat, &Repairs::default())
}

/// The messages of a request made with a dialect.
fn messages(messages: Vec<Message>, compat: &Compat) -> Value {
    encode(&request(model("m"), messages), compat)["messages"].clone()
}

#[test]
fn the_plain_request_is_exactly_this_text() {
    let mut plain = request(model("m"), vec![user("hi")]);
    plain.system_prompt = "S".to_owned();
    plain.tools = Arc::from([tool("read")]);
    plain.options.max_output_tokens = Some(80);
    plain.options.temperature = Some(0.5);
    let bytes = body(&plain, &Compat::default(), &Repairs::default()).unwrap();
    assert_eq!(
        String::from_utf8(bytes).unwrap(),
        concat!(
            r#"{"model":"m","messages":[{"role":"system","content":"S"},{"role":"user","content":"hi"}],"stream":true,"#,
            r#""stream_options":{"include_usage":true},"tools":[{"type":"function","function":{"name":"read","#,
            r#""description":"Reads.","parameters":{"type":"object","properties":{"z":{"type":"string"},"#,
            r#""a":{"type":"string"}},"required":["z","a"],"additionalProperties":false}}}],"temperature":0.5,"#,
            r#""max_tokens":80}"#
        )
    );
}

#[test]
fn a_longer_transcript_repeats_the_bytes_of_the_shorter_one() {
    let turns = vec![
        user("hi"),
        reply(vec![AssistantBlock::text("a"), call("c|1", &json!({"z": 1, "a": 2}))]),
        text_result("c|1", "ok"),
        user("more"),
        reply(vec![call("c|1", &json!({}))]),
        text_result("c|1", "ok"),
    ];
    let text = |turns: &[Message]| {
        let bytes = body(&request(model("m"), turns.to_vec()), &openai(), &Repairs::default()).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let long = text(&turns);
    for length in 1..turns.len() {
        let short = text(&turns[..length]);
        let prefix = short.split("],\"stream\":true").next().unwrap();
        assert!(long.starts_with(prefix), "{length}: {prefix}");
    }
}

#[test]
fn text_and_images_of_a_user_message_case_107() {
    for (blocks, want) in [
        (vec![Content::text("hi")], json!("hi")),
        (
            vec![Content::text("a"), Content::text("b")],
            json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        ),
        (
            vec![Content::text("see"), Content::Image(image())],
            json!([{"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]),
        ),
        (
            vec![Content::Image(image())],
            json!([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]),
        ),
        // As healing leaves it for a text-only model.
        (
            vec![Content::text("[image left out: this model takes no images]")],
            json!("[image left out: this model takes no images]"),
        ),
    ] {
        let got = messages(vec![user_blocks(blocks)], &Compat::default());
        assert_eq!(got, json!([{"role": "user", "content": want}]));
    }
    let plain = Message::User(UserMessage {
        content: UserContent::Text("old form".to_owned()),
        timestamp: 0,
        extra: Extra::new(),
    });
    assert_eq!(messages(vec![plain], &Compat::default()), json!([{"role": "user", "content": "old form"}]));
    assert_eq!(messages(vec![user_blocks(Vec::new())], &Compat::default()), json!([]));
}

#[test]
fn adjacent_user_messages_stay_apart_t_10() {
    let got = messages(vec![user("a"), user("b")], &Compat::default());
    assert_eq!(got, json!([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]));
}

#[test]
fn a_reply_is_one_plain_text_beside_its_calls() {
    let arguments = json!({"path": "a\"b\\n", "n": 12_345_678_901_234_567_u64});
    let got = messages(
        vec![
            reply(vec![AssistantBlock::text("a"), AssistantBlock::text("b"), call("c1", &arguments)]),
            text_result("c1", "ok"),
            reply(vec![AssistantBlock::text(""), call("c2", &json!({}))]),
            text_result("c2", "ok"),
            reply(vec![AssistantBlock::text(" \n")]),
            reply(vec![thinking("alone", None)]),
        ],
        &Compat::default(),
    );
    let call = |id: &str, arguments: &str| json!([{"id": id, "type": "function", "function": {"name": "read", "arguments": arguments}}]);
    assert_eq!(
        got,
        json!([
            {"role": "assistant", "content": "ab", "tool_calls": call("c1", &arguments.to_string())},
            {"role": "tool", "tool_call_id": "c1", "content": "ok"},
            {"role": "assistant", "content": null, "tool_calls": call("c2", "{}")},
            {"role": "tool", "tool_call_id": "c2", "content": "ok"},
        ]),
        "blank replies and thinking alone are not sent (MSG-03, MSG-04)"
    );
}

#[test]
fn results_without_text_say_so_and_their_images_follow_the_run_case_108() {
    let with_image = |text: &str| {
        let mut content = vec![Content::Image(image())];
        if !text.is_empty() {
            content.insert(0, Content::text(text));
        }
        content
    };
    let turns = vec![
        reply(vec![call("a", &json!({})), call("b", &json!({})), call("c", &json!({}))]),
        result("a", with_image("ok")),
        result("b", with_image("")),
        result("c", vec![Content::text(" "), Content::text("\n")]),
        user("next"),
    ];
    let images = json!({"role": "user", "content": [
        {"type": "text", "text": "Images returned by the tools above:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]});
    let got = messages(turns.clone(), &Compat::default());
    assert_eq!(got[1], json!({"role": "tool", "tool_call_id": "a", "content": "ok"}));
    assert_eq!(got[2], json!({"role": "tool", "tool_call_id": "b", "content": "[the result is an image]"}));
    assert_eq!(got[3], json!({"role": "tool", "tool_call_id": "c", "content": "[empty result]"}));
    assert_eq!(got[4], images);
    assert_eq!(got[5], json!({"role": "user", "content": "next"}));

    let strict = compat(&json!({"tool_result_name": true, "assistant_after_tool": true}));
    let got = messages(turns[..4].to_vec(), &strict);
    assert_eq!(got[3]["name"], "read");
    assert_eq!(got[4], json!({"role": "assistant", "content": "Tool results received."}), "T-11");
    assert_eq!(got[5], images);
    let texts = vec![reply(vec![call("a", &json!({}))]), text_result("a", "x"), user("next")];
    assert_eq!(messages(texts, &strict)[2]["role"], "assistant");
}

#[test]
fn the_host_decides_what_openai_alone_understands_case_109() {
    let mut first = request(reasoner("gpt-x", &json!({})), vec![user("hi")]);
    first.system_prompt = "S".to_owned();
    first.session_id = Some("s".repeat(70));
    first.options.max_output_tokens = Some(80);
    first.options.cache = Cache::Long;
    let got = encode(&first, &openai());
    assert_eq!(got["messages"][0]["role"], "developer");
    assert_eq!(got["max_completion_tokens"], 80);
    assert_eq!(got["store"], false);
    assert_eq!(got["prompt_cache_key"], "s".repeat(64));
    assert_eq!(got["prompt_cache_retention"], "24h");
    let got = encode(&first, &Compat::default());
    assert_eq!(got["messages"][0]["role"], "system");
    assert_eq!(got["max_tokens"], 80);
    for absent in ["max_completion_tokens", "store", "prompt_cache_key", "prompt_cache_retention", "tools"] {
        assert!(got.get(absent).is_none(), "{absent}");
    }
    let plain = LlmRequest { model: model("gpt-4"), ..first.clone() };
    assert_eq!(encode(&plain, &openai())["messages"][0]["role"], "system", "only models that reason");
    let uncached = LlmRequest { options: StreamOptions { cache: Cache::None, ..StreamOptions::default() }, ..first };
    assert!(encode(&uncached, &openai()).get("prompt_cache_key").is_none());
}

#[test]
fn only_vendors_that_know_the_role_get_developer_and_anthropic_alone_gets_marks() {
    let row = compat(&json!({"developer_role": true, "cache_control": true, "reasoning": "openrouter"}));
    for (id, role, marked) in [
        ("openai/gpt-x", "developer", false),
        ("anthropic/claude-x", "developer", true),
        ("mistralai/m", "system", false),
        ("claude-x", "developer", true),
    ] {
        let mut asked = request(
            reasoner(id, &json!({})),
            vec![user("hi"), reply(vec![call("a", &json!({}))]), text_result("a", "x")],
        );
        asked.system_prompt = "S".to_owned();
        asked.tools = Arc::from([tool("a"), tool("b")]);
        let got = encode(&asked, &row);
        let mark = |text: &str| json!([{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]);
        let (system, first) = if marked { (mark("S"), mark("hi")) } else { (json!("S"), json!("hi")) };
        assert_eq!(got["messages"][0], json!({"role": role, "content": system}), "{id}");
        assert_eq!(got["messages"][1]["content"], first, "{id}");
        assert_eq!(got["messages"][3]["content"], "x", "tool results stay plain");
        assert_eq!(got["tools"][1].get("cache_control").is_some(), marked, "{id}");
        assert!(got["tools"][0].get("cache_control").is_none());
        let marks = got.to_string().matches("cache_control").count();
        assert!(marks <= 4, "servers take no more than four markers");
    }
    let mut long = request(model("claude"), vec![user("hi")]);
    long.options.cache = Cache::Long;
    assert_eq!(
        encode(&long, &row)["messages"][0]["content"][0]["cache_control"],
        json!({"type": "ephemeral", "ttl": "1h"})
    );
    long.options.cache = Cache::None;
    assert_eq!(encode(&long, &row)["messages"][0]["content"], "hi");
}

#[test]
fn thinking_goes_back_in_the_field_it_came_in_oc_1_net_23() {
    let generic = Compat::default();
    let none = compat(&json!({"reasoning_replay": "none"}));
    let content = compat(&json!({"reasoning_replay": "reasoning_content"}));
    for (signature, row, want) in [
        (Some("reasoning_content"), &generic, json!({"reasoning_content": "ab"})),
        (Some("reasoning"), &generic, json!({"reasoning": "ab"})),
        (Some("reasoning_text"), &generic, json!({"reasoning_text": "ab"})),
        // T-5: unsigned thinking of the same model
        (None, &generic, json!({"reasoning_content": "ab"})),
        (Some("reasoning"), &content, json!({"reasoning_content": "ab"})),
        // case 111
        (Some("reasoning"), &none, json!({})),
        (Some("[{\"type\":\"reasoning.text\",\"text\":\"a\"}]"), &none, json!({})),
    ] {
        let blocks = vec![thinking("a", signature), thinking("b", signature), call("c", &json!({}))];
        let got = messages(vec![reply(blocks), text_result("c", "x")], row);
        let fields: Map<String, Value> =
            map(&got[0]).into_iter().filter(|(key, _)| key.starts_with("reasoning")).collect();
        assert_eq!(Value::Object(fields), want, "{signature:?}");
    }
}

#[test]
fn reasoning_details_go_back_with_their_pieces_joined_oc_1() {
    let one = r#"[{"type":"reasoning.text","text":"a","index":0},{"type":"reasoning.text","text":"b","index":0,"signature":"s"}]"#;
    let two = r#"[{"type":"reasoning.text","text":"c","index":1},{"type":"reasoning.encrypted","data":"x"},{"type":"reasoning.summary","summary":"d"},{"type":"reasoning.summary","summary":"e"}]"#;
    let blocks = vec![thinking("ab", Some(one)), thinking("c", Some(two)), AssistantBlock::text("t")];
    let got = messages(vec![reply(blocks)], &Compat::default());
    assert_eq!(
        got[0],
        json!({"role": "assistant", "content": "t", "reasoning_details": [
            {"type": "reasoning.text", "text": "ab", "index": 0, "signature": "s"},
            {"type": "reasoning.text", "text": "c", "index": 1},
            {"type": "reasoning.encrypted", "data": "x"},
            {"type": "reasoning.summary", "summary": "de"}]})
    );
}

#[test]
fn a_call_without_thinking_gets_an_empty_field_where_the_server_wants_one_case_110() {
    let deepseek = compat(&json!({"reasoning": "thinking_object", "reasoning_replay": "reasoning_content"}));
    let turns = vec![
        reply(vec![call("c", &json!({}))]),
        text_result("c", "x"),
        reply(vec![AssistantBlock::text("done")]),
        user("go on"),
    ];
    let mut asked = request(reasoner("deepseek-x", &json!({"high": "high"})), turns);
    asked.thinking = Some(Thinking::High);
    let got = encode(&asked, &deepseek);
    assert_eq!(got["messages"][0]["reasoning_content"], "");
    assert!(got["messages"][2].get("reasoning_content").is_none());
    assert_eq!((&got["thinking"], &got["reasoning_effort"]), (&json!({"type": "enabled"}), &json!("high")));
    asked.thinking = Some(Thinking::Off);
    let got = encode(&asked, &deepseek);
    assert!(got["messages"][0].get("reasoning_content").is_none());
    assert_eq!(got["thinking"], json!({"type": "disabled"}));
    assert!(got.get("reasoning_effort").is_none());
}

#[test]
fn thinking_that_came_as_content_parts_goes_back_so() {
    let mistral = compat(&json!({"reasoning_replay": "none"}));
    let got = messages(vec![reply(vec![thinking("hm", Some("content")), AssistantBlock::text("ok ")])], &mistral);
    assert_eq!(
        got[0]["content"],
        json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "ok"}])
    );
}

#[test]
fn a_level_is_written_the_way_the_server_reads_it() {
    let with = |form: &str| compat(&json!({"reasoning": form}));
    let none = json!({});
    for (form, levels, level, want) in [
        ("effort", json!({}), Thinking::Off, none.clone()),
        ("effort", json!({"off": "none"}), Thinking::Off, json!({"reasoning_effort": "none"})),
        ("effort", json!({"off": null}), Thinking::Off, none.clone()),
        ("effort", json!({}), Thinking::Low, json!({"reasoning_effort": "low"})),
        ("effort", json!({"high": "default"}), Thinking::High, json!({"reasoning_effort": "default"})),
        // Clamping: upward first, then downward; xhigh and max only where they are named.
        ("effort", json!({}), Thinking::Max, json!({"reasoning_effort": "high"})),
        ("effort", json!({"xhigh": "xhigh"}), Thinking::Max, json!({"reasoning_effort": "xhigh"})),
        ("effort", json!({"max": "max"}), Thinking::Xhigh, json!({"reasoning_effort": "max"})),
        ("effort", json!({"minimal": null, "low": null}), Thinking::Minimal, json!({"reasoning_effort": "medium"})),
        ("effort", json!({"medium": null, "high": null}), Thinking::High, json!({"reasoning_effort": "low"})),
        ("enable_thinking", json!({}), Thinking::Low, json!({"enable_thinking": true})),
        ("enable_thinking", json!({}), Thinking::Off, json!({"enable_thinking": false})),
        ("thinking_object", json!({}), Thinking::Low, json!({"thinking": {"type": "enabled"}})),
        ("openrouter", json!({}), Thinking::Off, json!({"reasoning": {"effort": "none"}})),
        ("openrouter", json!({}), Thinking::High, json!({"reasoning": {"effort": "high"}})),
        ("chat_template", json!({}), Thinking::High, json!({"chat_template_kwargs": {"enable_thinking": true}})),
        ("none", json!({}), Thinking::High, none),
    ] {
        let mut asked = request(reasoner("m", &levels), vec![user("hi")]);
        asked.thinking = Some(level);
        let got = encode(&asked, &with(form));
        let known = ["reasoning", "reasoning_effort", "enable_thinking", "thinking", "chat_template_kwargs"];
        let fields: Map<String, Value> =
            map(&got).into_iter().filter(|(key, _)| known.contains(&key.as_str())).collect();
        assert_eq!(Value::Object(fields), want, "{form} {levels} {level:?}");
        asked.model.reasoning = false;
        assert!(encode(&asked, &with(form)).as_object().unwrap().keys().all(|key| !known.contains(&key.as_str())));
    }
    let mut switch = request(reasoner("m", &json!({})), vec![user("hi")]);
    switch.model.thinking_style = Some(ThinkingStyle::Adaptive);
    assert_eq!(encode(&switch, &with("openrouter"))["reasoning"], Value::Null, "nothing asked, nothing said");
    switch.thinking = Some(Thinking::Off);
    assert_eq!(encode(&switch, &with("openrouter"))["reasoning"], json!({"enabled": false}));
}

#[test]
fn the_last_value_of_a_field_wins_case_118() {
    let mut asked = request(model("m"), vec![user("hi")]);
    asked.model.sampling_params = map(&json!({"top_k": 5, "temperature": 0.1, "seed": 1, "stop": null}));
    asked.options.temperature = Some(1.0);
    asked.options.max_output_tokens = Some(10);
    asked.options.extra = map(&json!({"seed": 2, "max_tokens": 7, "stream_options": null}));
    let text = String::from_utf8(body(&asked, &openai(), &Repairs::default()).unwrap()).unwrap();
    assert_eq!(text.matches("\"temperature\"").count(), 1, "{text}");
    let got: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&got["top_k"], &got["temperature"], &got["seed"]), (&json!(5), &json!(0.1), &json!(2)));
    assert_eq!(got["max_tokens"], 7);
    for absent in ["max_completion_tokens", "stream_options", "stop"] {
        assert!(got.get(absent).is_none(), "{absent}");
    }
}

#[test]
fn the_output_limit_is_the_wish_or_the_models_as_far_as_there_is_room() {
    for (wish, max_tokens, window, want) in [
        (None, 0, 0, None),
        (Some(9), 0, 0, Some(9)),
        (Some(9), 4_000, 8_000, Some(9)),
        (None, 4_000, 0, Some(4_000)),
        (None, 4_000, 100_000, Some(4_000)),
        (None, 100_000, 100_000, Some(100_000 - 1_024 - 1_000)),
        (None, 4_000, 1_500, Some(1_024)),
    ] {
        let mut asked = request(model("m"), vec![user(&"x".repeat(3_000))]);
        asked.model.max_tokens = max_tokens;
        asked.model.context_window = window;
        asked.options.max_output_tokens = wish;
        assert_eq!(encode(&asked, &Compat::default()).get("max_tokens").and_then(Value::as_u64), want);
    }
}

#[test]
fn tools_carry_what_the_dialect_asks_for() {
    let mut open = tool("open");
    open.input_schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let mut asked = request(model("m"), vec![user("hi")]);
    asked.tools = Arc::from([tool("closed"), open]);
    let got = encode(&asked, &compat(&json!({"strict_tools": true, "parallel_tool_calls": true})));
    assert_eq!(got["tools"][0]["function"]["strict"], true);
    assert_eq!(got["tools"][1]["function"]["strict"], false);
    assert_eq!(got["parallel_tool_calls"], true);
    let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
    asked.output_schema = Some(schema.clone());
    assert_eq!(
        encode(&asked, &Compat::default())["response_format"],
        json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": true}})
    );
}

#[test]
fn ids_fit_the_server_and_results_follow_their_calls_net_28_cases_103_146() {
    let long = "x".repeat(120);
    for (row, fits) in [
        (json!({}), (|id: &str| !id.is_empty()) as fn(&str) -> bool),
        (json!({"tool_call_id": "short40"}), |id| id.len() <= 40),
        (json!({"tool_call_id": "alnum9"}), |id| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric())),
    ] {
        let ids = ["functions.read:0", long.as_str(), "functions.read:0"];
        let turns = ids.iter().flat_map(|id| [reply(vec![call(id, &json!({}))]), text_result(id, "x")]).collect();
        let got = messages(turns, &compat(&row));
        let sent: Vec<&str> = [0, 2, 4].map(|at| got[at]["tool_calls"][0]["id"].as_str().unwrap()).to_vec();
        for (at, id) in sent.iter().enumerate() {
            assert!(fits(id), "{row} {id}");
            assert_eq!(got[2 * at + 1]["tool_call_id"], *id);
            assert_eq!(sent.iter().filter(|other| *other == id).count(), 1, "{sent:?}");
        }
        if row == json!({}) {
            assert_eq!(sent[0], "functions.read:0", "the id of turn 1 is unchanged");
        }
    }
}

#[test]
fn no_nul_reaches_a_server_t_14() {
    let mut asked = request(
        model("m"),
        vec![
            user("a\0b"),
            reply(vec![AssistantBlock::text("\0"), named_call("c\0", "na\0me", &json!({"k\0": ["v\0", "\\u0000"]}))]),
            text_result("c\0", "\0\0"),
        ],
    );
    asked.system_prompt = "s\0".to_owned();
    let text = String::from_utf8(body(&asked, &Compat::default(), &Repairs::default()).unwrap()).unwrap();
    let got: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(got["messages"][2]["tool_calls"][0]["function"]["name"], "na\u{FFFD}me");
    assert_eq!(got["messages"][2]["tool_calls"][0]["id"], "c\u{FFFD}");
    assert_eq!(got["messages"][3]["tool_call_id"], "c\u{FFFD}");
    let arguments = got["messages"][2]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert_eq!(arguments, json!({"k\u{FFFD}": ["v\u{FFFD}", "\\u0000"]}));
    assert_eq!(got["messages"][0]["content"], "s\u{FFFD}");
    assert_eq!(got["messages"][1]["content"], "a\u{FFFD}b");
    assert_eq!(got["messages"][3]["content"], "\u{FFFD}\u{FFFD}");
}

#[test]
fn a_reply_at_the_end_is_trimmed_t_12() {
    let got = messages(
        vec![user("hi"), reply(vec![AssistantBlock::text("a \n"), AssistantBlock::text(" \n")])],
        &Compat::default(),
    );
    assert_eq!(got[1]["content"], "a");
    let got = messages(vec![reply(vec![AssistantBlock::text("a \n")]), user("hi")], &Compat::default());
    assert_eq!(got[0]["content"], "a \n");
}

#[test]
fn broken_arguments_go_out_as_an_empty_object() {
    let broken = ToolCall {
        id: "c".to_owned(),
        name: "read".to_owned(),
        arguments_error: Some(pirn::model::ArgumentsError { message: "EOF".to_owned(), raw: "{\"a".to_owned() }),
        ..ToolCall::default()
    };
    let got = messages(vec![reply(vec![AssistantBlock::ToolCall(broken)]), text_result("c", "x")], &Compat::default());
    assert_eq!(got[0]["tool_calls"][0]["function"]["arguments"], "{}");
}

/// A request that sends every optional field, and the dialect for it.
fn everything() -> (LlmRequest, Compat) {
    let mut asked =
        request(reasoner("m", &json!({})), vec![user_blocks(vec![Content::text("hi"), Content::Image(image())])]);
    asked.model.input = vec![Input::Text, Input::Image];
    "S".clone_into(&mut asked.system_prompt);
    asked.tools = Arc::from([tool("read")]);
    asked.thinking = Some(Thinking::High);
    asked.session_id = Some("s".to_owned());
    asked.options.temperature = Some(0.0);
    asked.options.max_output_tokens = Some(5);
    asked.options.cache = Cache::Long;
    let row =
        compat(&json!({"developer_role": true, "store": true, "strict_tools": true, "parallel_tool_calls": true}));
    (asked, row)
}

#[test]
fn a_refused_limit_is_sent_under_its_other_name_case_133() {
    let (asked, row) = everything();
    let text =
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
    let mut repairs = Repairs::default();
    let sent = body(&asked, &row, &repairs).unwrap();
    let repair = repair_for(400, text, &sent, &row, &repairs).unwrap();
    assert_eq!(repair, Repair::SwapMaxTokens);
    assert!(repair.is_remembered() && repair.note().contains("other name"));
    repairs.add(repair);
    repairs.add(repair);
    let got = encode_with(&asked, &row, &repairs);
    assert_eq!(got["max_completion_tokens"], 5);
    assert!(got.get("max_tokens").is_none());
    // The other name is refused as well: without a limit then.
    let text = "Unrecognized request argument supplied: max_completion_tokens";
    let sent = body(&asked, &row, &repairs).unwrap();
    let repair = repair_for(400, text, &sent, &row, &repairs).unwrap();
    assert_eq!(repair, Repair::Drop(OptionalField::MaxCompletionTokens));
    repairs.add(repair);
    assert_eq!(repairs.iter().count(), 2);
    let got = encode_with(&asked, &row, &repairs);
    assert!(got.get("max_completion_tokens").is_none() && got.get("max_tokens").is_none());
    assert_eq!(repair_for(400, text, &body(&asked, &row, &repairs).unwrap(), &row, &repairs), None);
}

#[test]
fn every_optional_field_can_be_dropped_once_oc_18() {
    let (asked, row) = everything();
    for (text, field, absent) in [
        ("body.stream_options: Extra inputs are not permitted", OptionalField::StreamOptions, "stream_options"),
        ("Unknown parameter: 'reasoning_effort'.", OptionalField::ReasoningEffort, "reasoning_effort"),
        ("unrecognized field `store`", OptionalField::Store, "store"),
        ("unknown variant `developer`, expected one of `system`, `user`", OptionalField::Developer, "\"developer\""),
        ("Extra field: tools[0].function.strict", OptionalField::Strict, "strict"),
        ("parallel_tool_calls is not supported", OptionalField::ParallelToolCalls, "parallel_tool_calls"),
        (
            "Unsupported value: 'temperature' does not support 0 with this model.",
            OptionalField::Temperature,
            "temperature",
        ),
        ("Unknown parameter: 'prompt_cache_key'", OptionalField::PromptCacheKey, "prompt_cache_key"),
        ("Unknown parameter: 'prompt_cache_retention'", OptionalField::PromptCacheRetention, "prompt_cache_retention"),
    ] {
        let mut repairs = Repairs::default();
        let sent = body(&asked, &row, &repairs).unwrap();
        for status in [400, 422] {
            assert_eq!(repair_for(status, text, &sent, &row, &repairs), Some(Repair::Drop(field)), "{text}");
        }
        repairs.add(Repair::Drop(field));
        let sent = body(&asked, &row, &repairs).unwrap();
        assert!(!String::from_utf8(sent.clone()).unwrap().contains(absent), "{text}");
        assert_eq!(repair_for(400, text, &sent, &row, &repairs), None, "{text}");
    }
    let mut passed = request(model("m"), vec![user("hi")]);
    passed.model.sampling_params = map(&json!({"temperature": 0.1}));
    let mut repairs = Repairs::default();
    repairs.add(Repair::Drop(OptionalField::Temperature));
    assert!(encode_with(&passed, &row, &repairs).get("temperature").is_none(), "a passed-through field, too");
}

#[test]
fn other_refusals_are_final() {
    let (asked, row) = everything();
    let none = Repairs::default();
    let sent = body(&asked, &row, &none).unwrap();
    for (status, text) in [
        (500, "Unsupported parameter: 'store'"),
        (400, "'store' is wrong"),
        (400, "unknown model; visit the app-store"),
        (400, "Unknown parameter: 'frequency_penalty'"),
        (400, ""),
    ] {
        assert_eq!(repair_for(status, text, &sent, &row, &none), None, "{status} {text}");
    }
    let fixed = compat(&json!({"store": true, "optional_fields": []}));
    assert_eq!(repair_for(400, "Unknown parameter: 'store'", &sent, &fixed, &none), None);
    assert_eq!(repair_for(400, "Unknown parameter: 'store'", b"no json", &row, &none), None);
}

#[test]
fn refused_images_are_replaced_for_one_request_answers_11() {
    let (mut asked, row) = everything();
    asked.messages = [
        user_blocks(vec![Content::text("two"), Content::Image(image()), Content::Image(image())]),
        reply(vec![call("a", &json!({})), call("b", &json!({}))]),
        result("a", vec![Content::text("ok"), Content::Image(image())]),
        result("b", vec![Content::Image(image())]),
    ]
    .into_iter()
    .map(Arc::new)
    .collect();
    let mut repairs = Repairs::default();
    let sent = body(&asked, &row, &repairs).unwrap();
    let text = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj";
    let repair = repair_for(400, text, &sent, &row, &repairs).unwrap();
    assert_eq!(repair, Repair::LeaveOutImages);
    assert!(!repair.is_remembered());
    repairs.add(repair);
    let got = encode_with(&asked, &row, &repairs);
    let left_out = "[image left out: this model takes no images]";
    assert_eq!(
        got["messages"][1]["content"],
        json!([{"type": "text", "text": "two"}, {"type": "text", "text": left_out}])
    );
    assert_eq!(got["messages"][3]["content"], format!("ok\n{left_out}"));
    assert_eq!(got["messages"][4]["content"], left_out);
    assert_eq!(got["messages"].as_array().unwrap().len(), 5);
    assert_eq!(repair_for(400, text, &body(&asked, &row, &repairs).unwrap(), &row, &repairs), None);
}

#[test]
fn images_known_to_be_refused_are_replaced_and_others_sent_answers_11() {
    let (mut asked, row) = everything();
    let other = || Content::Image(ImageBlock { data: "BBBB".to_owned(), ..image() });
    asked.messages = vec![Arc::new(user_blocks(vec![Content::text("old"), Content::Image(image())]))];
    let mut refused = RefusedImages::default();
    refused.add(&asked);
    let repairs = Repairs::default().refusing(refused);
    asked.messages = [
        user_blocks(vec![Content::Image(image()), Content::Image(image()), other(), Content::Image(image())]),
        reply(vec![call("a", &json!({})), call("b", &json!({}))]),
        result("a", vec![Content::text("both"), Content::Image(image()), other()]),
        result("b", vec![other()]),
    ]
    .into_iter()
    .map(Arc::new)
    .collect();
    let got = encode_with(&asked, &row, &repairs);
    let left_out = "[image left out: this model takes no images]";
    let kept = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,BBBB"}});
    let text = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(got["messages"][1]["content"], json!([text(left_out), kept, text(left_out)]));
    assert_eq!(got["messages"][3]["content"], format!("both\n{left_out}"));
    assert_eq!(got["messages"][4]["content"], "[the result is an image]");
    assert_eq!(got["messages"][5]["content"], json!([text("Images returned by the tools above:"), kept, kept]));
    let sent = body(&asked, &row, &repairs).unwrap();
    assert_eq!(repair_for(400, "bad image", &sent, &row, &repairs), Some(Repair::LeaveOutImages));
    assert!(!repairs.is_empty());
}

#[test]
fn images_that_were_taken_before_a_reply_are_not_blamed_at_first_msg_07() {
    let (mut asked, row) = everything();
    let picture = |data: &str| Content::Image(ImageBlock { data: data.to_owned(), ..image() });
    let turns = [
        user_blocks(vec![Content::text("look"), picture("OLD")]),
        reply(vec![call("a", &json!({}))]),
        result("a", vec![Content::text("shown"), picture("NEW")]),
    ];
    asked.messages = turns.into_iter().map(Arc::new).collect();
    let mut refused = RefusedImages::default();
    let sent = |refused: &RefusedImages| {
        let body = encode_with(&asked, &row, &Repairs::default().refusing(refused.clone())).to_string();
        (body.contains("base64,OLD"), body.contains("base64,NEW"))
    };
    assert_eq!(sent(&refused), (true, true));
    refused.add(&asked);
    assert_eq!(sent(&refused), (true, false));
    // Refused again, so it was not the new one, or not alone.
    refused.add(&asked);
    assert_eq!(sent(&refused), (false, false));
}

#[test]
fn the_length_of_a_request_counts_what_the_model_reads_answers_7() {
    let mut asked = request(model("m"), vec![user("häß"), user_blocks(vec![Content::Image(image())])]);
    assert_eq!(request_chars(&asked), 3);
    asked.system_prompt = "12345".to_owned();
    asked.messages.push(Arc::new(reply(vec![
        AssistantBlock::text("ab"),
        thinking("c", None),
        call("id", &json!({"k": "ü"})),
    ])));
    assert_eq!(request_chars(&asked), 3 + 5 + 2 + 1 + 4 + 9);
    asked.tools = Arc::from([tool("read")]);
    let schema = tool("read").input_schema.to_string().len() as u64;
    assert_eq!(request_chars(&asked), 24 + 4 + 6 + schema);
}
