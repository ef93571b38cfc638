//! Chat Completions end to end: a request through the provider, the scripted server, and the settled stream.
//! Cases are those of `tests/cases/providers.md`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use pirn::model::{
    AssistantMessage, ErrorKind, ErrorRecord, Headers, ImageBlock, Input, Message, Model, Prices, Secret, StopReason,
};
use pirn::port::{
    AssistantEvent, Execution, LlmRequest, Provider, Purpose, Replay, RequestObservers, Source, StreamOptions,
    SystemClock, Timeouts, ToolSpec,
};
use pirn::provider::chat::{ChatProvider, ChatSettings};
use pirn::provider::http::{HttpClient, HttpSettings, ProxySettings};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::chat::{chat_error, chat_text, chat_tool, chunk, sse, sse_text, text_chunks, usage_chunk};
use crate::support::clock::Patient;
use crate::support::server::{Reply, Server, now};

const KEY: &str = "sk-test-0123456789abcdef";

fn http(settings: HttpSettings) -> HttpClient {
    HttpClient::new(settings, Arc::new(SystemClock::new()))
}

fn keyed() -> ChatSettings {
    ChatSettings {
        api_key: Some(Secret::new(KEY)),
        key_required: true,
        key_hint: vec!["TEST_API_KEY".to_owned()],
        ..ChatSettings::keyless("test")
    }
}

fn provider(settings: ChatSettings) -> ChatProvider {
    ChatProvider::new(settings, http(HttpSettings::default()))
}

fn request_to(base_url: &str) -> LlmRequest {
    LlmRequest {
        model: Model::unknown("test", "test-model", "openai-completions", base_url),
        system_prompt: "Be brief.".to_owned(),
        messages: vec![Arc::new(Message::user("hi", Vec::new(), 1))],
        tools: Arc::from(Vec::new()),
        thinking: None,
        options: StreamOptions::default(),
        output_schema: None,
        purpose: Purpose::Run,
        session_id: None,
    }
}

fn request(server: &Server) -> LlmRequest {
    request_to(&server.base_url())
}

async fn run_all(provider: &ChatProvider, request: LlmRequest) -> (Vec<AssistantEvent>, AssistantMessage) {
    let events: Vec<AssistantEvent> = provider.stream(Arc::new(request), CancellationToken::new()).collect().await;
    assert!(matches!(events.first(), Some(AssistantEvent::Start(_))), "STREAM-2");
    let Some(AssistantEvent::End(message)) = events.last() else { panic!("no end: {events:?}") };
    let message = (**message).clone();
    (events, message)
}

async fn run(provider: &ChatProvider, request: LlmRequest) -> AssistantMessage {
    run_all(provider, request).await.1
}

/// The reply of a fresh provider with a key to one server reply.
async fn reply_to(reply: Reply) -> AssistantMessage {
    let server = Server::start([reply]);
    let message = run(&provider(keyed()), request(&server)).await;
    server.assert_clean();
    message
}

fn error(message: &AssistantMessage) -> &ErrorRecord {
    message.error.as_ref().unwrap_or_else(|| panic!("no error: {message:?}"))
}

#[tokio::test]
async fn characters_split_over_packets_arrive_whole() {
    let text = "你好 🎉 é";
    let message = reply_to(chat_text(text).bytewise()).await;
    assert_eq!((message.text().as_str(), message.stop_reason), (text, StopReason::Stop), "NET-01");
}

#[tokio::test]
async fn every_framing_of_events_gives_the_same_reply() {
    let text = sse_text(&text_chunks("hello"));
    let fields = text.replace("data: ", "event: message\nid: 7\nretry: 10\ndata: ");
    let forms = [
        text.clone(),
        text.replace('\n', "\r\n"),
        text.replace("data: ", "data:"),
        text.replace("data: ", ": keep-alive\n\ndata: "),
        fields,
        text.trim_end().to_owned(),
    ];
    for form in forms {
        for reply in [Reply::stream().send(form.clone()), Reply::stream().send(form.clone()).until_close().bytewise()] {
            let message = reply_to(reply).await;
            assert_eq!((message.text().as_str(), message.stop_reason), ("hello", StopReason::Stop), "NET-02: {form}");
            assert_eq!((message.usage.input, message.usage.output), (10, 5), "NET-02: {form}");
        }
    }
}

#[tokio::test]
async fn a_stream_that_ends_without_a_finish_is_an_error_that_keeps_its_text() {
    let start = || {
        Reply::stream().event(&chunk(&json!({"content": "Hel"}), None)).event(&chunk(&json!({"content": "lo"}), None))
    };
    for ending in [start(), start().until_close(), start().close(), start().send("data: {\"choi").close()] {
        let message = reply_to(ending).await;
        assert_eq!(message.stop_reason, StopReason::Error, "NET-04");
        let error = error(&message);
        assert!(error.retryable, "NET-04: {error}");
        assert!(matches!(error.kind, ErrorKind::Network | ErrorKind::Malformed), "NET-04: {error}");
        assert_eq!(message.text(), "Hello", "NET-04");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_behind_a_complete_reply_spoils_nothing() {
    let reply = Reply::stream()
        .event(&chunk(&json!({"content": "done"}), None))
        .event(&chunk(&json!({}), Some("stop")))
        .close();
    let message = reply_to(reply).await;
    assert_eq!((message.text().as_str(), message.stop_reason), ("done", StopReason::Stop));
    assert_eq!(message.diagnostics.first().map(|note| note.code.as_str()), Some("late_break"));

    // Where a dialect has no finish reason, the broken body is all there is to tell.
    let server = Server::start([Reply::stream().event(&chunk(&json!({"content": "half"}), None)).close()]);
    let mut request = request(&server);
    request.model.compat.insert("finish_reason".to_owned(), Value::Bool(false));
    let message = run(&provider(keyed()), request).await;
    assert_eq!(error(&message).kind, ErrorKind::Network);
}

#[tokio::test]
async fn an_empty_answer_is_a_connection_closed_before_a_reply() {
    let message = reply_to(Reply::raw("")).await;
    assert!(error(&message).message.ends_with("The connection closed before a reply."));
    assert_eq!((error(&message).kind, error(&message).retryable), (ErrorKind::Network, true));
}

#[tokio::test]
async fn a_stream_that_goes_quiet_ends_at_the_idle_limit() {
    let server = Server::start([Reply::stream().event(&chunk(&json!({"content": "so far"}), None)).hold()]);
    let mut request = request(&server);
    request.options.timeouts = Timeouts { idle: Some(Duration::from_millis(200)), ..Timeouts::default() };
    let message = run(&provider(keyed()), request).await;
    let error = error(&message);
    assert_eq!((error.kind, error.retryable), (ErrorKind::Timeout, true), "NET-12");
    assert!(error.message.contains("idle timeout: no data for 0.2 s"), "{}", error.message);
    assert_eq!(message.text(), "so far", "NET-12");
}

#[tokio::test]
async fn comments_do_not_count_as_progress() {
    let reply = Reply::stream().event(&chunk(&json!({"content": "x"}), None));
    let reply = (0..40).fold(reply, |reply, _| reply.send(": ping\n\n").pause(Duration::from_millis(30)));
    let server = Server::start([reply]);
    let mut request = request(&server);
    request.options.timeouts = Timeouts {
        idle: Some(Duration::from_millis(290)),
        progress: Some(Duration::from_millis(300)),
        ..Timeouts::default()
    };
    let message = run(&provider(keyed()), request).await;
    assert!(error(&message).message.contains("progress timeout: no model event for 0.3 s"), "case 131");
}

#[tokio::test]
async fn a_cancelled_reply_keeps_its_text_and_the_server_sees_the_connection_close() {
    let server = Arc::new(Server::start([Reply::stream().event(&chunk(&json!({"content": "half"}), None)).hold()]));
    let cancel = CancellationToken::new();
    let provider = provider(keyed());
    let mut events = provider.stream(Arc::new(request(&server)), cancel.clone());
    loop {
        let event = events.next().await.expect("the reply goes on");
        if matches!(&event, AssistantEvent::Block { event, .. } if !matches!(event, pirn::model::BlockEvent::TextStart))
        {
            break;
        }
    }
    let started = now();
    cancel.cancel();
    let Some(AssistantEvent::End(message)) = events.next().await else { panic!("no end") };
    assert!(started.elapsed() < Duration::from_millis(50), "case 132");
    assert_eq!(message.stop_reason, StopReason::Aborted);
    assert_eq!(message.error_message.as_deref(), Some("Run cancelled"));
    assert_eq!(message.text(), "half", "case 132");
    let closed = tokio::task::spawn_blocking(move || server.wait_abandoned(1)).await.unwrap();
    assert!(closed, "case 132");
}

#[tokio::test]
async fn a_refusal_is_classified_by_status_headers_and_body() {
    let frame = "data: {\"error\":{\"message\":\"upstream broke\",\"type\":\"server_error\"}}\n\ndata: [DONE]\n\n";
    let table: [(&str, Reply, ErrorKind, bool, &str); 8] = [
        (
            "case 128",
            Reply::status(500).header("content-type", "text/event-stream").send(frame),
            ErrorKind::Server,
            true,
            "test 500: upstream broke",
        ),
        (
            "case 130",
            chat_error(503, "overloaded", "busy").header("x-should-retry", "false"),
            ErrorKind::Overloaded,
            false,
            "test 503: busy",
        ),
        ("NET-31", Reply::status(400), ErrorKind::InvalidRequest, false, "test 400: Bad Request (no body)"),
        (
            "NET-31",
            Reply::status(502).header("content-type", "text/html").send("<html><title>Bad gateway</title></html>"),
            ErrorKind::Server,
            true,
            "test 502: Bad gateway",
        ),
        ("NET-31", Reply::status(403).send("go away"), ErrorKind::Permission, false, "test 403: go away"),
        ("NET-31", Reply::json(401, &json!({"detail": [{"msg": "m"}]})), ErrorKind::Auth, false, "test 401: m"),
        ("NET-31", Reply::status(500).send(vec![b'x'; 5 << 20]), ErrorKind::Server, true, "test 500: xxx"),
        (
            "HTTP-13",
            chat_error(429, "rate_limit_exceeded", "slow").header("x-request-id", "r-9").header("retry-after", "2"),
            ErrorKind::RateLimit,
            true,
            "test 429: slow (request id r-9)",
        ),
    ];
    for (rule, reply, kind, retryable, text) in table {
        let server = Server::start([reply]);
        let (events, message) = run_all(&provider(keyed()), request(&server)).await;
        let error = error(&message);
        assert_eq!((error.kind, error.retryable), (kind, retryable), "{rule}: {error}");
        assert!(error.message.starts_with(text), "{rule}: {}", error.message);
        assert!(error.message.chars().count() < 4_200, "{rule}: bounded");
        assert!(matches!(events.as_slice(), [_, AssistantEvent::Meta(_), _]), "{rule}: {events:?}");
        assert_eq!(server.requests().len(), 1, "{rule}: one attempt");
    }
}

#[tokio::test]
async fn a_page_instead_of_a_reply_is_a_configuration_error() {
    let page = Reply::status(200).header("content-type", "text/html").send("<!doctype html><title>Hi</title>");
    let message = reply_to(page).await;
    assert_eq!((error(&message).kind, error(&message).retryable), (ErrorKind::Config, false));
}

#[tokio::test]
async fn a_whole_json_reply_is_read_although_a_stream_was_asked_for() {
    let body = json!({
        "id": "c", "model": "test-model",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "all at once"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    });
    let message = reply_to(Reply::json(200, &body)).await;
    assert_eq!((message.text().as_str(), message.stop_reason), ("all at once", StopReason::Stop), "SSE-15");
    assert_eq!((message.usage.input, message.usage.output), (3, 4));
}

#[tokio::test]
async fn cumulative_usage_is_not_summed_and_is_priced() {
    let usage = |output: u64| {
        let mut chunk = usage_chunk();
        chunk["usage"] = json!({"prompt_tokens": 1_000_000, "completion_tokens": output});
        chunk
    };
    let chunks =
        [usage(10), chunk(&json!({"content": "x"}), None), usage(50), chunk(&json!({}), Some("stop")), usage(100)];
    let server = Server::start([sse(&chunks)]);
    let mut request = request(&server);
    request.model.prices = Some(Prices { input: 3.0, output: 10.0, ..Prices::default() });
    let message = run(&provider(keyed()), request).await;
    assert_eq!(message.usage.output, 100, "ACC-01");
    assert!((message.usage.cost.total - 3.001).abs() < 1e-9, "{:?}", message.usage.cost);
}

#[tokio::test]
async fn a_reply_without_usage_is_estimated() {
    let server = Server::start([sse(&[chunk(&json!({"content": "12345678"}), None), chunk(&json!({}), Some("stop"))])]);
    let message = run(&provider(keyed()), request(&server)).await;
    assert_eq!((message.usage.output, message.usage.estimated), (2, Some(true)), "OC-17");
    assert!(message.usage.input > 0);
}

#[tokio::test]
async fn a_refused_field_is_repaired_once_and_remembered() {
    let refusal = || {
        let text = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'";
        chat_error(400, "unsupported_parameter", text)
    };
    let server = Server::start([refusal(), chat_text("one"), chat_text("two")]);
    let provider = provider(keyed());
    let asked = || {
        let mut request = request(&server);
        request.options.max_output_tokens = Some(100);
        request
    };
    let (events, message) = run_all(&provider, asked()).await;
    assert_eq!(message.text(), "one", "case 133");
    assert_eq!(message.diagnostics.first().map(|note| note.code.as_str()), Some("request_repaired"));
    assert!(!events.iter().any(|event| matches!(event, AssistantEvent::Warning { .. })), "case 133: silent");
    let message = run(&provider, asked()).await;
    assert_eq!((message.text().as_str(), message.diagnostics.len()), ("two", 0));
    let fields: Vec<(bool, bool)> =
        server.bodies().iter().map(|body| (body["max_tokens"] == 100, body["max_completion_tokens"] == 100)).collect();
    assert_eq!(fields, [(true, false), (false, true), (false, true)], "case 133");
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn repairs_of_one_request_are_bounded() {
    let refusals = ["stream_options", "temperature", "max_tokens", "max_completion_tokens"]
        .map(|field| chat_error(400, "unknown_field", &format!("Unrecognized request argument supplied: {field}")));
    let server = Server::start(refusals);
    let mut request = request(&server);
    request.options.temperature = Some(0.5);
    request.options.max_output_tokens = Some(9);
    let message = run(&provider(keyed()), request).await;
    assert_eq!(error(&message).kind, ErrorKind::InvalidRequest, "OC-18");
    assert_eq!(server.requests().len(), 4, "OC-18: three repairs");
}

fn showing(server: &Server, images: &[&str]) -> LlmRequest {
    let mut request = request(server);
    request.model.input = vec![Input::Text, Input::Image];
    let image =
        |data: &&str| ImageBlock { data: (*data).to_owned(), mime_type: "image/png".to_owned(), extra: Map::new() };
    let images = images.iter().map(image).collect();
    request.messages = vec![Arc::new(Message::user("what is it?", images, 1))];
    request
}

/// What the body of a request has in place of each image: its data, or the placeholder.
fn images_sent(body: &Value) -> Vec<String> {
    let parts = body["messages"][1]["content"].as_array().unwrap();
    let told = |part: &Value| match part["image_url"]["url"].as_str() {
        Some(url) => url.trim_start_matches("data:image/png;base64,").to_owned(),
        None => part["text"].as_str().unwrap().to_owned(),
    };
    parts.iter().skip(1).map(told).collect()
}

const LEFT_OUT: &str = "[image left out: this model takes no images]";

#[tokio::test]
async fn a_refused_image_is_left_out_once_with_a_note_and_remembered_msg_07() {
    let refusal = || chat_error(400, "invalid_value", "At least one of the image dimensions exceed 8000 pixels");
    let server =
        Server::start([refusal(), chat_text("blind"), chat_text("blind"), chat_text("seen"), refusal(), refusal()]);
    let provider = provider(keyed());
    let asked = showing(&server, &["AAAA", "BBBB"]);
    let kept = asked.messages.clone();
    let (events, message) = run_all(&provider, asked).await;
    assert_eq!(message.text(), "blind");
    let note = "the server refused an image; the request was sent without images";
    assert_eq!(message.diagnostics.len(), 1);
    assert_eq!(
        (message.diagnostics[0].code.as_str(), message.diagnostics[0].message.as_str()),
        ("image_refused", note)
    );
    let warned = |event: &&AssistantEvent| matches!(event, AssistantEvent::Warning { message, .. } if message == note);
    assert_eq!(events.iter().filter(warned).count(), 1, "people see that the answer was given without a look");
    assert_eq!(kept, showing(&server, &["AAAA", "BBBB"]).messages, "the transcript keeps the images");
    // The same images again: nothing is paid twice. Another one is tried.
    assert_eq!(run(&provider, showing(&server, &["BBBB"])).await.text(), "blind");
    assert_eq!(run(&provider, showing(&server, &["AAAA", "CCCC", "BBBB"])).await.text(), "seen");
    let bodies = server.bodies();
    let sent: Vec<Vec<String>> = bodies.iter().map(images_sent).collect();
    assert_eq!(sent, [vec!["AAAA", "BBBB"], vec![LEFT_OUT], vec![LEFT_OUT], vec![LEFT_OUT, "CCCC", LEFT_OUT]]);
    // A second refusal is final.
    let message = run(&provider, showing(&server, &["DDDD"])).await;
    assert_eq!(error(&message).kind, ErrorKind::InvalidRequest);
    assert!(error(&message).message.contains("8000 pixels"), "{}", error(&message).message);
    assert_eq!(server.requests().len(), 6, "once per request");
    server.assert_clean();
}

#[tokio::test]
async fn an_image_refused_by_one_model_is_shown_to_another_one() {
    let refusal = chat_error(404, "404", "No endpoints found that support image input");
    let server = Server::start([refusal, chat_text("blind"), chat_text("seen")]);
    let provider = provider(keyed());
    assert_eq!(run(&provider, showing(&server, &["AAAA"])).await.text(), "blind");
    let mut other = showing(&server, &["AAAA"]);
    other.model.id = "other-model".to_owned();
    assert_eq!(run(&provider, other).await.text(), "seen");
    assert_eq!(images_sent(&server.bodies()[2]), ["AAAA"]);
}

#[tokio::test]
async fn a_refusal_that_was_not_about_the_image_leaves_it_in_later_requests() {
    let refusal = || chat_error(404, "model_not_found", "The model image-model-1 does not exist");
    let server = Server::start([refusal(), refusal(), chat_text("seen")]);
    let provider = provider(keyed());
    assert_eq!(error(&run(&provider, showing(&server, &["AAAA"])).await).kind, ErrorKind::NotFound);
    assert_eq!(run(&provider, showing(&server, &["AAAA"])).await.text(), "seen");
    assert_eq!(images_sent(&server.bodies()[2]), ["AAAA"]);
}

#[tokio::test]
async fn refusals_that_do_not_speak_of_images_are_untouched_msg_07() {
    let cases = [
        (400, "messages: something else is wrong", 1),
        (413, "request entity too large", 1),
        (500, "the image service is down", 1),
        (403, "image input is not allowed", 1),
        (413, "the image is too large", 2),
        (500, "image input is not supported - hint: you may need to provide the mmproj", 2),
    ];
    for (status, text, requests) in cases {
        let server = Server::start([chat_error(status, "refused", text), chat_text("blind")]);
        let message = run(&provider(keyed()), showing(&server, &["AAAA"])).await;
        assert_eq!(server.requests().len(), requests, "{status} {text}");
        assert_eq!(message.stop_reason == StopReason::Stop, requests == 2, "{status} {text}");
    }
    // Nor is a request without images repaired, whatever the text says.
    let server = Server::start([chat_error(400, "refused", "image input is not supported")]);
    assert_eq!(run(&provider(keyed()), request(&server)).await.stop_reason, StopReason::Error);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_missing_key_fails_before_anything_is_sent_and_names_what_to_set() {
    let server = Server::start([chat_text("x"), chat_text("y")]);
    let settings = ChatSettings { api_key: None, ..keyed() };
    let message = run(&provider(settings.clone()), request(&server)).await;
    assert_eq!(error(&message).kind, ErrorKind::Auth);
    assert!(error(&message).message.contains("TEST_API_KEY"), "{}", error(&message).message);
    assert!(server.requests().is_empty());

    // A header of the user's own is a credential, too; so is the key of a request.
    let mut request_header = request(&server);
    request_header.model.headers.set("api-key", Some("mine".to_owned()));
    assert_eq!(run(&provider(settings.clone()), request_header).await.stop_reason, StopReason::Stop);
    let mut request_key = request(&server);
    request_key.options.api_key = Some(Secret::new("sk-of-the-request"));
    assert_eq!(run(&provider(settings), request_key).await.stop_reason, StopReason::Stop);
    let seen = server.requests();
    assert_eq!((seen[0].header("api-key"), seen[0].header("authorization")), (Some("mine"), None));
    assert_eq!(seen[1].header("authorization"), Some("Bearer sk-of-the-request"));
}

#[tokio::test]
async fn headers_of_the_model_the_provider_and_the_request_win_in_this_order() {
    let server = Server::start([chat_text("x")]);
    let set = |headers: &mut Headers, names: &[&str], value: &str| {
        for name in names {
            headers.set(*name, Some(value.to_owned()));
        }
    };
    let mut settings = keyed();
    set(&mut settings.headers, &["x-b", "X-C"], "provider");
    let mut request = request(&server);
    set(&mut request.model.headers, &["x-a", "x-b", "x-c", "user-agent"], "model");
    set(&mut request.options.headers, &["x-c"], "request");
    request.options.headers.set("Authorization", None);
    run(&provider(settings), request).await;
    let seen = &server.requests()[0];
    for (name, value) in [
        ("x-a", Some("model")),
        ("x-b", Some("provider")),
        ("x-c", Some("request")),
        ("user-agent", Some("model")),
        ("authorization", None),
    ] {
        assert_eq!(seen.header(name), value, "HTTP-3: {name}");
    }
}

#[tokio::test]
async fn a_key_that_the_server_echoes_is_masked_everywhere() {
    let echo = format!("Incorrect API key provided: {KEY}. Bearer {KEY}");
    let in_stream = json!({"error": {"message": echo, "type": "server_error"}});
    let replies = [
        chat_error(401, "invalid_api_key", &echo),
        Reply::stream().event(&chunk(&json!({"content": "x"}), None)).event(&in_stream),
        Reply::json(200, &in_stream),
    ];
    for reply in replies {
        let server = Server::start([reply]);
        let (events, message) = run_all(&provider(keyed()), request(&server)).await;
        assert_eq!(message.stop_reason, StopReason::Error);
        assert!(error(&message).message.contains("Incorrect API key"), "{}", error(&message).message);
        assert!(!format!("{events:?}").contains(KEY), "SEC-1, SEC-2, case 126: {events:?}");
        let seen = &server.requests()[0];
        assert!(!seen.path.contains(KEY), "URL-5");
    }
}

/// Every way a server can put a key into a 2xx answer, or into what is said about one.
fn replies_that_hold_the_key() -> Vec<Reply> {
    let text = chunk(&json!({"content": "ok"}), None);
    let end = chunk(&json!({}), Some("stop"));
    let late = format!("{}{KEY}", "x".repeat(190));
    let escaped = KEY.replace('-', "\\u002d");
    vec![
        Reply::stream().event(&json!({"error": {"message": format!("bad {KEY}"), "type": KEY, "code": KEY}})),
        Reply::stream().event(&json!({"error": {"message": "bad", "code": 500}, "request_id": KEY})),
        Reply::json(200, &json!({"error": {"message": format!("{}{KEY}", "x".repeat(3990)), "code": 500}})),
        Reply::stream().send(format!("data: Incorrect API key provided: {KEY}\n\n")).event(&text).event(&end),
        Reply::stream().send(format!("data: {late}\n\n")).event(&text).event(&end),
        Reply::stream().send(format!("{late}\n\n")),
        Reply::stream().send(format!("data: {{\"x\": {late}\n\n")),
        Reply::stream().send(format!("data: {{\"x\": {escaped}\n\n")),
        Reply::stream().event(&chunk(&json!({"content": "ok"}), Some(&format!("x{KEY}")))),
        Reply::stream().event(&chunk(&json!({"content": "ok"}), Some(&format!("{}{KEY}", "x".repeat(90))))),
        Reply::stream().event(&chunk(&json!({"content": "ok"}), Some(&format!("function_call_filter{KEY}")))),
        Reply::stream().event(&json!({"id": KEY, "model": KEY, "choices": [{"delta": {"content": "ok"}}]})).event(&end),
        chat_text("ok").header("x-request-id", KEY).header("x-ratelimit-key", KEY),
        Reply::stream().header("x-request-id", KEY).event(&text),
        Reply::stream().header("x-request-id", KEY).event(&json!({"error": {"message": "bad", "code": 500}})),
    ]
}

#[tokio::test]
async fn a_key_in_a_good_answer_reaches_no_event_whatever_field_it_stands_in_sec_2() {
    for (at, reply) in replies_that_hold_the_key().into_iter().enumerate() {
        let server = Server::start([reply]);
        let seen = Arc::new(Mutex::new(String::new()));
        let log = seen.clone();
        let mut request = request(&server);
        request.options.observers.on_response = Some(Arc::new(move |meta| *log.lock().unwrap() = format!("{meta:?}")));
        let (events, message) = run_all(&provider(keyed()), request).await;
        let shown = format!("{events:?} {} {}", serde_json::to_string(&message).unwrap(), seen.lock().unwrap());
        assert!(!shown.contains("0123456789") && !shown.contains("sk-test"), "reply {at}: {shown}");
    }
}

#[tokio::test]
async fn others_get_their_turn_while_a_large_answer_is_read() {
    const BLANK: usize = 8 * 1024 * 1024;
    let whole = json!({"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]});
    // Compressed it is a few packets, so no wait for the network lets anyone else in.
    let body = format!("[{}{whole}]", " ".repeat(BLANK));
    let server = Server::start([Reply::status(200).header("content-type", "application/json").send(body).gzip()]);
    let mut events = provider(keyed()).stream(Arc::new(request(&server)), CancellationToken::new());
    let (mut turns, mut last) = (0, None);
    while let Some(event) = std::future::poll_fn(|cx| {
        let polled = events.poll_next_unpin(cx);
        turns += usize::from(polled.is_pending());
        polled
    })
    .await
    {
        last = Some(event);
    }
    let Some(AssistantEvent::End(message)) = last else { panic!("no end") };
    assert_eq!(message.text(), "ok");
    // One at least for every slice of the body, which is 192 KiB.
    assert!(turns >= BLANK / (192 * 1024), "{turns}");
}

#[tokio::test]
async fn what_the_model_wrote_is_never_masked() {
    let text = chunk(&json!({"reasoning_content": KEY, "content": KEY}), None);
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "x", "arguments": format!("{{\"k\":\"{KEY}\"}}")}}]});
    let server = Server::start([sse(&[text, chunk(&call, Some("tool_calls")), usage_chunk()])]);
    let message = run(&provider(keyed()), request(&server)).await;
    let blocks = serde_json::to_string(&message.content).unwrap();
    assert_eq!(blocks.matches(KEY).count(), 3, "{blocks}");
}

#[tokio::test]
async fn an_address_that_holds_the_key_is_masked_in_hints() {
    let away = Reply::status(307).header("location", &format!("/v1/{KEY}/x"));
    let server = Server::start([away, Reply::json(404, &json!({"error": {"message": "no"}}))]);
    let message = run(&provider(keyed()), request(&server)).await;
    assert_eq!(error(&message).kind, ErrorKind::NotFound);
    assert!(error(&message).hint.as_ref().is_some_and(|hint| hint.contains("/v1/***/x")), "{message:?}");
}

#[tokio::test]
async fn a_request_id_is_bounded_and_named_by_every_error() {
    let long = "r".repeat(5_000);
    let message = reply_to(Reply::stream().header("x-request-id", &long).event(&chunk(&json!({}), None))).await;
    assert_eq!(error(&message).request_id.as_ref().map(|id| id.chars().count()), Some(200));
    let broken = Reply::stream().header("x-request-id", "req-1").event(&chunk(&json!({"content": "x"}), None));
    let want = "test: The stream broke off: no finish_reason. (request id req-1)";
    assert_eq!(error(&reply_to(broken).await).message, want, "case 55");
}

#[tokio::test]
async fn an_error_inside_a_good_answer_names_the_same_remedy_as_its_status_would() {
    for (error_body, want) in [
        (json!({"message": "Invalid API Key", "code": 401}), "check TEST_API_KEY: the key was refused at 127.0.0.1:"),
        (
            json!({"message": "no such model", "code": "model_not_found"}),
            "check the model's name and the base URL: http",
        ),
    ] {
        let message = reply_to(Reply::json(200, &json!({"error": error_body}))).await;
        let hint = error(&message).hint.clone().unwrap_or_default();
        assert!(hint.starts_with(want), "{hint}");
    }
}

#[tokio::test]
async fn parts_of_a_header_that_the_server_echoes_in_a_stream_are_masked_sec_1() {
    let in_stream = json!({"error": {"message": "you sent abcdefgh12", "type": "server_error"}});
    let server = Server::start([Reply::stream().event(&chunk(&json!({"content": "x"}), None)).event(&in_stream)]);
    let mut settings = keyed();
    settings.headers.set("cookie", Some("a=b; session=abcdefgh12".to_owned()));
    let (events, message) = run_all(&provider(settings), request(&server)).await;
    assert!(error(&message).message.contains("you sent ***"), "{}", error(&message).message);
    assert!(!format!("{events:?}").contains("abcdefgh12"), "{events:?}");
}

#[tokio::test]
async fn a_key_over_cleartext_to_another_machine_is_warned_about_once() {
    let proxy = Server::proxy("127.0.0.1:9".parse().unwrap(), None, [chat_text("a"), chat_text("b")]);
    let settings = HttpSettings {
        proxy: ProxySettings {
            http: Some(Secret::new(format!("http://{}", proxy.address()))),
            ..ProxySettings::default()
        },
        ..HttpSettings::default()
    };
    let provider = ChatProvider::new(keyed(), http(settings));
    let mut warnings = 0;
    for _ in 0..2 {
        let (events, message) = run_all(&provider, request_to("http://models.example.test/v1")).await;
        assert_eq!(message.stop_reason, StopReason::Stop);
        for event in events {
            if let AssistantEvent::Warning { message, .. } = event {
                assert!(message.contains("models.example.test") && !message.contains(KEY), "{message}");
                warnings += 1;
            }
        }
    }
    assert_eq!(warnings, 1, "URL-6");
}

#[tokio::test]
async fn observers_see_the_body_and_the_head_and_no_credentials() {
    let server = Server::start([chat_text("x").header("x-ratelimit-remaining", "7").header("set-cookie", "s=1")]);
    let heads = Arc::new(Mutex::new(Vec::new()));
    let mut request = request(&server);
    request.options.observers = RequestObservers {
        on_payload: Some(Arc::new(|body| {
            assert!(!body.to_string().contains(KEY), "HTTP-14");
            let mut changed = body.clone();
            changed["temperature"] = json!(0.25);
            Some(changed)
        })),
        on_response: Some(Arc::new({
            let heads = heads.clone();
            move |meta| heads.lock().unwrap().push(meta.clone())
        })),
    };
    run(&provider(keyed()), request).await;
    assert_eq!(server.bodies()[0]["temperature"], 0.25, "HTTP-14");
    let heads = heads.lock().unwrap();
    assert_eq!(heads.len(), 1);
    assert_eq!(heads[0].status, 200);
    assert_eq!(heads[0].headers, [("x-ratelimit-remaining".to_owned(), "7".to_owned())], "HTTP-12");
}

#[tokio::test]
async fn every_way_to_write_the_base_url_reaches_the_same_path() {
    let server = Server::start([]).then_always(chat_text("x"));
    let origin = server.origin();
    let forms = ["/v1", "/v1/", "", "/", "/v1/chat/completions", "/v1/chat/completions/"];
    for form in forms {
        let message = run(&provider(keyed()), request_to(&format!("{origin}{form}"))).await;
        assert_eq!(message.stop_reason, StopReason::Stop, "CFG-06: {form}");
    }
    run(&provider(keyed()), request_to(&format!("{origin}/v1?api-version=1"))).await;
    let paths: Vec<String> = server.requests().into_iter().map(|seen| seen.path).collect();
    let (last, first) = paths.split_last().unwrap();
    assert!(first.iter().all(|path| path == "/v1/chat/completions"), "CFG-06: {paths:?}");
    assert_eq!(last, "/v1/chat/completions?api-version=1", "URL-1");
}

#[tokio::test]
async fn tool_calls_stream_and_turns_share_one_connection() {
    let server = Server::start([chat_tool("read", json!({"path": "a.txt"})), chat_text("seen")]);
    let patient = HttpClient::new(HttpSettings::default(), Arc::new(Patient::default()));
    let provider = ChatProvider::new(keyed(), patient);
    let mut request = request(&server);
    request.tools = Arc::from(vec![ToolSpec {
        name: "read".to_owned(),
        label: "read".to_owned(),
        description: "Reads a file".to_owned(),
        input_schema: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
        output_schema: None,
        replay: Replay::Safe,
        execution: Some(Execution::Parallel),
        source: Source::Builtin,
        annotations: Map::new(),
    }]);
    let message = run(&provider, request.clone()).await;
    assert_eq!(message.stop_reason, StopReason::ToolUse);
    let calls: Vec<_> = message.calls().collect();
    assert_eq!((calls[0].id.as_str(), calls[0].name.as_str()), ("call_1", "read"));
    assert_eq!(calls[0].arguments["path"], "a.txt");
    assert_eq!(server.requests()[0].last_message(), json!({"role": "user", "content": "hi"}));
    assert_eq!(run(&provider, request).await.text(), "seen");
    assert_eq!(server.connections(), 1, "HTTP-5");
    server.assert_clean();
}
