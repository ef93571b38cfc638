//! Chat Completions end to end: what servers send and what the binary makes of it, and what it sends itself
//! (cases NET-01 to NET-31, MSG-03, MSG-04), in one attempt per request.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{KEY, Output, Pirn};
use crate::support::chat::{chat_text, chat_tool, chat_tools, chunk, sse, sse_text, text_chunks, usage_chunk};
use crate::support::server::{Reply, Server};

const DONE: &str = "data: [DONE]\n\n";

fn content(text: &str) -> Value {
    chunk(&json!({"content": text}), None)
}

fn calls(calls: &Value) -> Value {
    chunk(&json!({"tool_calls": calls}), None)
}

fn finish(word: &str) -> Value {
    chunk(&json!({}), Some(word))
}

/// Chunks and `[DONE]`, with nothing added.
fn stream(chunks: &[Value]) -> Reply {
    Reply::stream().send(sse_text(chunks))
}

/// Runs `pirn --json x` against these replies, in a directory with `a.txt` and `b.txt`. Every reply must be asked for
/// and every request must be one a strict server takes.
fn run(replies: impl IntoIterator<Item = Reply>) -> (Output, Vec<Value>) {
    run_with(replies, &[])
}

fn run_with(replies: impl IntoIterator<Item = Reply>, args: &[&str]) -> (Output, Vec<Value>) {
    let server = Server::start(replies);
    let call = Pirn::of_server(&server, ["--json"].iter().chain(args).chain(&["x"]));
    let output = call.once().file("a.txt", "alpha").file("b.txt", "beta").run();
    server.assert_clean();
    (output, server.bodies())
}

/// Runs a reply in text mode: exit code, stdout, stderr.
fn text_mode(reply: Reply) -> (i32, String, String) {
    let server = Server::start([reply]);
    let output = Pirn::of_server(&server, ["x"]).once().run();
    server.assert_clean();
    (output.code(), output.stdout.clone(), output.stderr)
}

/// Asserts a normal answer of one request.
fn assert_answer(name: &str, reply: Reply, text: &str) -> Output {
    let (output, _) = run([reply]);
    let result = output.result();
    assert_eq!(
        (output.code(), &result["text"], &result["stopReason"], &result["error"]),
        (0, &text.into(), &"stop".into(), &Value::Null),
        "{name}: {}",
        output.stderr
    );
    assert_eq!(deltas(&output), text, "{name}: deltas");
    output
}

/// The text deltas, joined.
fn deltas(output: &Output) -> String {
    let updates = output.lines_of("message_update");
    let deltas =
        updates.iter().map(|line| &line["assistantMessageEvent"]).filter(|event| event["type"] == "text_delta");
    deltas.map(|event| event["delta"].as_str().unwrap()).collect()
}

/// The last reply of a run.
fn last_reply(output: &Output) -> Value {
    let ends = output.lines_of("message_end");
    ends.iter().rev().map(|line| &line["message"]).find(|message| message["role"] == "assistant").unwrap().clone()
}

fn warnings(output: &Output) -> Vec<String> {
    output.lines_of("warning").iter().map(|line| line["code"].as_str().unwrap().to_owned()).collect()
}

/// Asserts a failed reply: what a run ends with, in JSON and in text, and that no text on a pipe claims an answer.
fn assert_failure(name: &str, reply: &Reply, kind: &str, code: i32, partial: &str) -> Output {
    let (output, bodies) = run([reply.clone()]);
    let result = output.result();
    assert_eq!(
        (output.code(), &result["error"]["kind"], &result["stopReason"], &result["text"]),
        (code, &kind.into(), &"error".into(), &partial.into()),
        "{name}: {}",
        output.stderr
    );
    assert_eq!(bodies.len(), 1, "{name}: one attempt");
    let reply_kept = last_reply(&output);
    assert_eq!((&reply_kept["stopReason"], &reply_kept["error"]["kind"]), (&"error".into(), &kind.into()), "{name}");
    let (text_code, stdout, stderr) = text_mode(reply.clone());
    assert_eq!((text_code, stdout.as_str()), (code, ""), "{name}: {stderr}");
    assert!(stderr.starts_with(&format!("pirn: {kind}: ")), "{name}: {stderr}");
    output
}

#[test]
fn characters_split_over_writes_arrive_whole_net_01() {
    let text = "你好 🎉 é";
    let reply = || sse(&text_chunks(text)).bytewise();
    assert_answer("bytewise", reply(), text);
    assert_eq!(text_mode(reply()), (0, format!("{text}\n"), String::new()));
    let escaped = Reply::stream().send(sse_text(&text_chunks(text)).replace('🎉', "\\ud83c\\udf89")).bytewise();
    assert_answer("escaped", escaped, text);
}

#[test]
fn every_framing_of_events_gives_the_same_answer_net_02() {
    let plain = sse_text(&text_chunks("same answer"));
    let events: Vec<&str> = plain.split_terminator("\n\n").collect();
    let mut with_fields = String::new();
    for (at, event) in events.iter().enumerate() {
        write!(with_fields, "event: message\nid: {at}\nretry: 10\n{event}\n\n").unwrap();
    }
    let framings = [
        ("CRLF", plain.replace('\n', "\r\n")),
        ("CR", plain.replace('\n', "\r")),
        ("no blank behind the colon", plain.replace("data: ", "data:")),
        ("comments", plain.replace("data: ", ": keep-alive\n\ndata: ")),
        ("fields", with_fields),
        ("no final blank line", plain.trim_end().to_owned()),
        ("byte-order mark", format!("\u{feff}{plain}")),
    ];
    for (name, body) in framings {
        assert_answer(name, Reply::stream().send(body.clone()), "same answer");
        assert_answer(name, Reply::stream().until_close().send(body), "same answer");
    }
    assert_answer("gzip", Reply::stream().gzip().send(plain), "same answer");
}

#[test]
fn a_stream_that_stops_without_a_terminal_signal_is_an_error_net_04() {
    let cut = |reply: Reply| reply.event(&content("Hel")).event(&content("lo"));
    for (name, reply) in [
        ("the body ends properly", cut(Reply::stream())),
        ("the connection ends the body", cut(Reply::stream().until_close())),
        ("the connection closes inside the body", cut(Reply::stream()).close()),
        ("the connection is reset", cut(Reply::stream()).reset()),
    ] {
        let output = assert_failure(name, &reply, "network", 75, "Hello");
        assert_eq!(last_reply(&output)["content"][0]["text"], "Hello", "{name}: partial text is kept");
        assert_eq!(output.result()["error"]["retryable"], true, "{name}");
    }
    let half_a_call = json!([{"index": 0, "id": "c", "function": {"name": "read", "arguments": "{\"path\":\"a."}}]);
    let output = assert_failure("in a call", &Reply::stream().event(&calls(&half_a_call)), "network", 75, "");
    assert!(output.lines_of("tool_execution_start").is_empty(), "a cut call never runs");
    assert_failure("no byte at all", &Reply::raw(""), "network", 75, "");
}

#[test]
fn the_end_marker_without_a_finish_reason_is_a_normal_stop_with_a_warning_net_05() {
    let mut no_choices = usage_chunk();
    no_choices["choices"] = json!([]);
    for (name, chunks) in [
        ("marker only", vec![content("Hello")]),
        ("null everywhere", vec![content("Hel"), content("lo"), chunk(&json!({}), None)]),
        ("a last chunk without choices", vec![content("Hello"), no_choices]),
    ] {
        let output = assert_answer(name, stream(&chunks), "Hello");
        assert_eq!(warnings(&output), ["no_finish_reason"], "{name}");
    }
    let call = json!([{"index": 0, "id": "c1", "function": {"name": "read", "arguments": "{\"path\":\"a.txt\"}"}}]);
    let (output, bodies) = run([stream(&[calls(&call)]), chat_text("done")]);
    assert_eq!((output.code(), &output.result()["text"]), (0, &"done".into()), "{}", output.stderr);
    assert_eq!(results(&bodies[1]), ["alpha"], "a call that is complete runs");
}

#[test]
fn an_error_object_inside_a_stream_ends_it_with_its_own_message_net_07() {
    let bad_gateway = json!({"choices": [], "error": {"code": 502, "message": "upstream fell over"}});
    let quota = json!({"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}});
    for (error, kind, code, retryable) in [
        (&bad_gateway, "server", 75, true),
        (&quota, "quota", 1, false),
        (&json!({"error": {"message": "slow down", "code": 429}}), "rate_limit", 75, true),
        (&json!({"error": "model overloaded"}), "overloaded", 75, true),
    ] {
        for (partial, reply) in [
            ("", Reply::stream().event(error)),
            ("", Reply::stream().event(error).send(DONE)),
            ("Hel", Reply::stream().event(&content("Hel")).event(error).send(DONE)),
        ] {
            let output = assert_failure(&error.to_string(), &reply, kind, code, partial);
            let record = output.result()["error"].clone();
            assert_eq!(record["retryable"], retryable, "{record}");
            let words = error["error"]["message"].as_str().or(error["error"].as_str()).unwrap();
            assert!(record["message"].as_str().unwrap().contains(words), "{record}");
        }
    }
}

#[test]
fn an_error_without_framing_is_found_net_08() {
    let raw = json!({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}});
    let whole = json!([raw]).to_string();
    for (name, partial, reply) in [
        ("behind an event", "Hel", Reply::stream().event(&content("Hel")).send(format!("{raw}\n"))),
        ("pretty", "Hel", Reply::stream().event(&content("Hel")).send(serde_json::to_string_pretty(&raw).unwrap())),
        ("alone", "", Reply::stream().send(format!("{raw}\n"))),
        ("a list as the whole body", "", Reply::stream().send(whole.clone())),
        ("a list as JSON", "", Reply::status(200).header("content-type", "application/json").send(whole)),
    ] {
        let output = assert_failure(name, &reply, "overloaded", 75, partial);
        assert_eq!(output.result()["error"]["httpStatus"], 503, "{name}");
    }
}

#[test]
fn a_reply_that_is_no_event_stream_is_read_all_the_same() {
    let body = json!({"id": "c", "object": "chat.completion", "model": "test-model", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1}});
    assert_answer("JSON", Reply::json(200, &body), "whole");
    assert_answer("JSON as an event stream", Reply::stream().send(body.to_string()), "whole");
    let page = Reply::status(200).header("content-type", "text/html").send("<html><title>Login</title></html>");
    let (code, stdout, stderr) = text_mode(page);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.starts_with("pirn: config: openai: The server answered with a web page"), "{stderr}");
    assert!(stderr.contains("hint: check the base URL: http://127.0.0.1:"), "{stderr}");
}

#[test]
fn a_stream_that_goes_quiet_ends_at_the_idle_limit_net_12() {
    for (name, partial, reply) in [
        ("behind a delta", "Hel", Reply::stream().event(&content("Hel")).hold()),
        ("behind the head", "", Reply::stream().send(": hello\n\n").hold()),
    ] {
        let server = Server::start([reply]);
        let args = ["--json", "--set", "limits.idle_timeout=1s", "x"];
        let output = Pirn::of_server(&server, args).once().run();
        let result = output.result();
        assert_eq!(
            (output.code(), &result["error"]["kind"], &result["text"]),
            (75, &"timeout".into(), &partial.into()),
            "{name}: {}",
            output.stderr
        );
        assert_eq!(result["error"]["message"], "openai: idle timeout: no data for 1 s", "{name}");
        assert!(result["durationMs"].as_u64().unwrap() >= 1_000, "{name}: {result}");
        assert!(server.wait_abandoned(1), "{name}: the connection is closed");
    }
    // Comments are bytes but no progress.
    let pings = (0..40).fold(Reply::stream().event(&content("Hel")), |reply, _| {
        reply.pause(std::time::Duration::from_millis(50)).send(": ping\n\n")
    });
    let server = Server::start([pings.hold()]);
    let limits = ["--set", "limits.idle_timeout=9s", "--set", "limits.progress_timeout=1s"];
    let output = Pirn::of_server(&server, ["--json"].iter().chain(&limits).chain(&["x"])).once().run();
    assert_eq!(output.code(), 75, "{}", output.stderr);
    assert_eq!(output.result()["error"]["message"], "openai: progress timeout: no model event for 1 s");
}

/// The results of the last batch in a request, in order.
fn results(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().unwrap();
    let behind = messages.iter().rposition(|message| message["role"] == "assistant").unwrap() + 1;
    messages[behind..].iter().map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

/// The calls of the last reply in a request, as name and arguments.
fn sent_calls(body: &Value) -> Vec<(String, Value)> {
    let messages = body["messages"].as_array().unwrap();
    let reply = messages.iter().rfind(|message| message["role"] == "assistant").unwrap();
    let call = |call: &Value| {
        let function = &call["function"];
        let arguments = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
        (function["name"].as_str().unwrap().to_owned(), arguments)
    };
    reply["tool_calls"].as_array().unwrap().iter().map(call).collect()
}

#[test]
fn calls_without_an_index_are_told_apart_net_14() {
    let call = |id: &str, path: &str| json!({"id": id, "type": "function", "function": {"name": "read", "arguments": json!({"path": path}).to_string()}});
    let fragment = |text: &str| json!([{"function": {"arguments": text}}]);
    let both = [("read".to_owned(), json!({"path": "a.txt"})), ("read".to_owned(), json!({"path": "b.txt"}))];
    let one_chunk = vec![calls(&json!([call("a", "a.txt"), call("b", "b.txt")])), finish("tool_calls")];
    let two_chunks = vec![calls(&json!([call("a", "a.txt")])), calls(&json!([call("b", "b.txt")])), finish("stop")];
    let head = json!([{"id": "a", "type": "function", "function": {"name": "read", "arguments": "{\"pa"}}]);
    let fragments = vec![calls(&head), calls(&fragment("th\":\"a")), calls(&fragment(".txt\"}")), finish("tool_calls")];
    for (name, chunks, wanted, contents) in [
        ("one chunk", one_chunk, &both[..], &["alpha", "beta"][..]),
        ("two chunks", two_chunks, &both[..], &["alpha", "beta"]),
        ("fragments", fragments, &both[..1], &["alpha"]),
    ] {
        let (output, bodies) = run([stream(&chunks), chat_text("done")]);
        assert_eq!((output.code(), &output.result()["text"]), (0, &"done".into()), "{name}: {}", output.stderr);
        assert_eq!(sent_calls(&bodies[1]), wanted, "{name}");
        assert_eq!(results(&bodies[1]), contents, "{name}");
        assert_eq!(output.lines_of("tool_execution_end").len(), wanted.len(), "{name}");
    }
}

#[test]
fn chunks_without_choices_are_no_reason_to_fail_net_16() {
    let usage = json!({"usage": {"prompt_tokens": 7, "completion_tokens": 2}});
    let chunks = [
        json!({"id": "c", "model": "test-model", "choices": []}),
        content("Hel"),
        content("lo"),
        finish("stop"),
        usage,
        json!({"choices": null}),
    ];
    let output = assert_answer("NET-16", stream(&chunks), "Hello");
    let result = output.result();
    assert_eq!((&result["usage"]["input"], &result["usage"]["output"]), (&7.into(), &2.into()), "{result}");
}

#[test]
fn a_call_runs_whatever_the_finish_reason_says_net_17() {
    let call = calls(&json!([{"index": 0, "id": "c1", "function": {"name": "ls", "arguments": "{}"}}]));
    for (name, last) in [("stop", Some("stop")), ("end_turn", Some("end_turn")), ("null", None)] {
        let (output, bodies) = run([stream(&[call.clone(), chunk(&json!({}), last)]), chat_text("done")]);
        assert_eq!((output.code(), &output.result()["text"]), (0, &"done".into()), "{name}: {}", output.stderr);
        assert_eq!(results(&bodies[1]), ["a.txt\nb.txt"], "{name}");
    }
}

#[test]
fn an_unknown_finish_reason_keeps_the_answer_net_18() {
    for (word, warning) in [
        ("end", None),
        ("eos_token", None),
        ("", Some("no_finish_reason")),
        ("eos", None),
        ("COMPLETE", Some("unknown_finish_reason")),
    ] {
        let output = assert_answer(word, stream(&[content("hi"), finish(word)]), "hi");
        assert_eq!(warnings(&output).first().map(String::as_str), warning, "{word:?}");
        let raw = last_reply(&output)["rawStopReason"].clone();
        assert_eq!(raw, if word.is_empty() { Value::Null } else { word.into() }, "the server's word is kept");
    }
}

#[test]
fn a_call_of_a_reply_cut_by_the_output_limit_never_runs_net_20() {
    // There is no `write` yet, so the calls read: what must not happen is that they run.
    for arguments in ["{\"path\":\"a.t", "{\"offset\":1}", "{\"path\":\"a.txt\"}"] {
        let call = json!([{"index": 0, "id": "c1", "function": {"name": "read", "arguments": arguments}}]);
        let (output, bodies) = run([stream(&[calls(&call), finish("length"), usage_chunk()]), chat_text("ok")]);
        assert_eq!((output.code(), &output.result()["text"]), (0, &"ok".into()), "{arguments}: {}", output.stderr);
        let texts = results(&bodies[1]);
        assert!(texts[0].contains("output limit"), "{arguments}: {texts:?}");
        let ends = output.lines_of("tool_execution_end");
        assert_eq!((ends.len(), &ends[0]["isError"]), (1, &true.into()), "{arguments}");
        assert!(ends[0].get("durationMs").is_none(), "it did not run: {}", ends[0]);
        assert!(!output.stdout.contains("alpha"), "{arguments}: the file was not read");
    }
    let both = [("read", json!({"path": "a.txt"})), ("ls", json!({}))];
    let cut = Reply::with(move |request| {
        // Both calls are whole, and the reply still hit the limit.
        let tools: Vec<Value> = both
            .iter()
            .enumerate()
            .map(|(at, (name, arguments))| {
                let id = format!("call_{}_{at}", request.ordinal);
                json!({"index": at, "id": id, "function": {"name": name, "arguments": arguments.to_string()}})
            })
            .collect();
        stream(&[content("Let me look."), calls(&tools.into()), finish("length")])
    });
    let (output, bodies) = run([cut.clone(), chat_text("ok")]);
    assert_eq!(output.code(), 0, "{}", output.stderr);
    assert!(results(&bodies[1]).iter().all(|text| text.contains("output limit")), "{bodies:?}");
    // A model that hits the limit again and again is stopped, with the code of the limit.
    let (output, _) = run([cut.clone(), cut.clone(), cut]);
    let result = output.result();
    assert_eq!((output.code(), &result["reason"]), (3, &"length".into()), "{}", output.stderr);
}

#[test]
fn a_text_cut_by_the_output_limit_is_printed_and_said_so() {
    let (code, stdout, stderr) = text_mode(stream(&[content("half an ans"), finish("length")]));
    assert_eq!((code, stdout.as_str()), (3, "half an ans\n"));
    assert_eq!(stderr, "pirn: warning: the answer was cut off by the output limit\n");
}

#[test]
fn empty_arguments_are_an_empty_object_net_22() {
    let function = |arguments: Value| match arguments {
        Value::Bool(_) => json!({"name": "ls"}),
        arguments => json!({"name": "ls", "arguments": arguments}),
    };
    for arguments in [json!(""), json!(" "), Value::Null, json!(false), json!("null"), json!({})] {
        let call = json!([{"index": 0, "id": "c1", "type": "function", "function": function(arguments.clone())}]);
        let (output, bodies) = run([stream(&[calls(&call), finish("tool_calls")]), chat_text("done")]);
        assert_eq!((output.code(), &output.result()["text"]), (0, &"done".into()), "{arguments}: {}", output.stderr);
        assert_eq!(results(&bodies[1]), ["a.txt\nb.txt"], "{arguments}");
        assert_eq!(sent_calls(&bodies[1]), [("ls".to_owned(), json!({}))], "{arguments}");
    }
}

#[test]
fn calls_that_cannot_run_are_told_to_the_model_and_sent_back_as_valid_json() {
    for (name, arguments, wanted) in [
        ("read", "not json", "JSON"),
        ("read", "[1]", "JSON"),
        ("read", "{\"path\":[]}", "path"),
        ("read", "{\"file\":\"a.txt\",\"colour\":\"red\"}", "colour"),
        ("no_such_tool", "{\"x\":1}", "Unknown tool \"no_such_tool\". Available: ls, read."),
    ] {
        let call = json!([{"index": 0, "id": "c1", "function": {"name": name, "arguments": arguments}}]);
        let (output, bodies) = run([stream(&[calls(&call), finish("tool_calls")]), chat_text("done")]);
        assert_eq!((output.code(), &output.result()["text"]), (0, &"done".into()), "{arguments}: {}", output.stderr);
        let texts = results(&bodies[1]);
        assert!(texts.len() == 1 && texts[0].contains(wanted), "{arguments}: {texts:?}");
        let end = output.lines_of("tool_execution_end").remove(0);
        assert_eq!((&end["isError"], end.get("durationMs")), (&true.into(), None), "{arguments}: it did not run");
        assert!(!output.stdout.contains("alpha"), "{arguments}");
    }
}

#[test]
fn a_refusal_of_any_shape_names_status_host_and_reason_net_31() {
    let html = "<html><head><title>502 Bad Gateway</title></head><body><h1>nginx</h1></body></html>";
    let echo = format!("{{\"detail\":[{{\"msg\":\"bad key {KEY}\"}}]}}");
    let plain = |status: u16, body: &str| Reply::status(status).header("content-type", "text/plain").send(body);
    for (name, reply, code, kind, words) in [
        ("400 empty", Reply::status(400), 1, "invalid_request", &["400", "127.0.0.1"][..]),
        ("502 HTML", plain(502, html), 75, "server", &["502 Bad Gateway", "127.0.0.1"]),
        ("403 text", plain(403, "go away"), 77, "permission", &["403", "go away", "127.0.0.1"]),
        ("401 nested", plain(401, r#"{"detail":[{"msg":"m"}]}"#), 77, "auth", &["401: m", "127.0.0.1"]),
        ("401 echo", plain(401, &echo), 77, "auth", &["401: bad key", "127.0.0.1"]),
        ("500 of 5 MB", plain(500, &"x".repeat(5 << 20)), 75, "server", &["500", "xxx", "127.0.0.1"]),
    ] {
        let output = assert_failure(name, &reply, kind, code, "");
        assert!(output.stderr.len() < 5_000, "{name}: trimmed to {} bytes", output.stderr.len());
        assert!(!output.stderr.contains("<html"), "{name}: {}", output.stderr);
        for word in words {
            assert!(output.stderr.contains(word), "{name}: {word:?} in {}", output.stderr);
        }
        let retryable = output.result()["error"]["retryable"].clone();
        assert_eq!(retryable, code == 75, "{name}: 5xx is worth another attempt, 4xx is not");
    }
}

#[test]
fn a_rate_limit_says_when_to_try_again() {
    let body = json!({"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}});
    let (code, stdout, stderr) = text_mode(Reply::json(429, &body).header("retry-after", "20"));
    assert_eq!((code, stdout.as_str()), (75, ""));
    assert_eq!(stderr, "pirn: rate_limit: openai 429: Rate limit reached\nhint: try again in 20 s\n");
    let (_, _, stderr) = text_mode(Reply::json(429, &body));
    assert_eq!(stderr, "pirn: rate_limit: openai 429: Rate limit reached\nhint: try again later\n");
}

#[test]
fn empty_text_is_never_sent_back_msg_03() {
    let call = json!([{"index": 0, "id": "c1", "function": {"name": "read", "arguments": "{\"path\":\"empty.txt\"}"}}]);
    let server = Server::start([
        stream(&[content(""), content(" \n"), calls(&call), finish("tool_calls")]),
        chat_tool("ls", json!({"path": "empty"})),
        chat_text("done"),
    ]);
    let call = Pirn::of_server(&server, ["--json", "x", "@empty.txt"]).file("empty.txt", "");
    std::fs::create_dir(call.dir().join("empty")).unwrap();
    let output = call.run();
    assert_eq!((output.code(), &output.result()["text"]), (0, &"done".into()), "{}", output.stderr);
    server.assert_clean();
    for body in server.bodies() {
        for message in body["messages"].as_array().unwrap() {
            let text = message["content"].as_str();
            assert!(text.is_none_or(|text| !text.trim().is_empty()), "{message}");
            assert!(!message["content"].is_array(), "{message}");
        }
    }
}

#[test]
fn a_reply_that_never_began_is_kept_for_the_record_msg_04() {
    let server = Server::start([Reply::stream().hold()]);
    let running = Pirn::of_server(&server, ["--json", "x"]).spawn();
    assert!(server.wait_requests(1));
    running.wait_stdout("\"stopReason\":\"pending\"");
    // Not SIGINT: a test runner in the background of a script ignores that one, and so would the binary.
    running.signal(rustix::process::Signal::TERM);
    let output = running.wait();
    assert_eq!((output.code(), output.signal()), (143, Some(15)), "{}", output.stderr);
    let reply = last_reply(&output);
    assert_eq!((&reply["stopReason"], &reply["content"]), (&"aborted".into(), &json!([])));
    assert_eq!(output.lines_of("agent_end")[0]["messages"].as_array().unwrap().len(), 2);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_request_carries_what_a_strict_server_wants() {
    let server = Server::start([
        chat_tools(&[("ls", json!({})), ("read", json!({"path": "a.txt"}))]),
        chat_tool("read", json!({"path": "b.txt"})),
        chat_text("done"),
    ]);
    let output = Pirn::of_server(&server, ["--json", "x"]).file("a.txt", "alpha").file("b.txt", "beta").run();
    assert_eq!(output.code(), 0, "{}", output.stderr);
    server.assert_clean();
    let requests = server.requests();
    for request in &requests {
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/chat/completions"));
        assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
        assert_eq!(request.header("user-agent"), Some(concat!("pirn/", env!("CARGO_PKG_VERSION"))), "HTTP-2");
        assert_eq!(request.header("content-type"), Some("application/json"), "HTTP-1");
        assert_eq!(request.header("accept"), Some("text/event-stream, application/json"), "HTTP-1");
        assert_eq!(request.header("content-length"), Some(request.body.len().to_string().as_str()), "HTTP-1");
        assert!(!String::from_utf8_lossy(&request.body).contains(KEY), "no key in a body");
        let body = request.json();
        assert_eq!((&body["model"], &body["stream"]), (&"test-model".into(), &true.into()));
        assert_eq!(body["stream_options"], json!({"include_usage": true}));
    }
    assert_eq!(server.connections(), 1, "HTTP-5: turns share a connection");
    assert_eq!(results(&server.bodies()[1]), ["a.txt\nb.txt", "alpha"], "results in source order");
    // A request repeats the bytes of the one before it, so that prompt caches stay warm.
    let bodies: Vec<String> = requests.iter().map(|request| String::from_utf8(request.body.clone()).unwrap()).collect();
    for pair in bodies.windows(2) {
        let messages = &pair[0][..pair[0].find("],\"stream\":true").unwrap()];
        assert!(pair[1].starts_with(messages), "{}\n{}", pair[0], pair[1]);
        let rest = |body: &str| body[body.find("\"stream\":true").unwrap()..].to_owned();
        assert_eq!(rest(&pair[0]), rest(&pair[1]), "tools and options are byte-stable over turns");
    }
}

#[test]
fn tools_are_sent_in_their_own_order_and_all_or_none() {
    let tools = |list: &str| {
        let server = Server::start([chat_text("ok")]);
        let output = Pirn::of_server(&server, ["-t", list, "x"]).run();
        assert_eq!(output.code(), 0, "{list}: {}", output.stderr);
        server.bodies().remove(0)
    };
    let both = tools("ls,read");
    assert_eq!(both["tools"].to_string(), tools("read,ls")["tools"].to_string(), "the list's order changes nothing");
    let names: Vec<&str> =
        both["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["read", "ls"]);
    assert_eq!(tools("ls")["tools"], json!([both["tools"][1]]));
    let none = tools("none");
    assert!(none.get("tools").is_none(), "no empty list: {none}");
    assert!(!none["messages"][0]["content"].as_str().unwrap().contains("tool"), "nothing is said about tools");
}

#[test]
fn the_system_prompt_has_its_parts_in_order_answers_14() {
    let system = |args: &[&str]| {
        let server = Server::start([chat_text("ok")]);
        let args = args.iter().chain(&["x"]);
        let call = Pirn::of_server(&server, args).env("SHELL", "/bin/zsh").file("s.md", "Be brief.\n");
        let cwd = call.dir().canonicalize().unwrap();
        let output = call.run();
        assert_eq!(output.code(), 0, "{}", output.stderr);
        let message = server.bodies()[0]["messages"][0].clone();
        assert_eq!(message["role"], "system");
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        let block =
            format!("<environment>\ncwd: {}\nplatform: {os} {arch}\nshell: /bin/zsh\n</environment>", cwd.display());
        message["content"].as_str().unwrap().replace(&block, "ENV")
    };
    assert_eq!(system(&["--system", "S", "--append-system", "A", "--append-system", "B"]), "S\n\nENV\n\nA\n\nB");
    assert_eq!(system(&["--system", "@s.md", "--append-system", "@s.md"]), "Be brief.\n\nENV\n\nBe brief.");
    let built_in = system(&["--append-system", "A"]);
    assert!(built_in.starts_with("You are pirn") && built_in.ends_with("\n\nENV\n\nA"), "{built_in}");
    assert_eq!(system(&["--append-system", "A"]), built_in, "no date, no time: the same bytes every time");
    let replaced = system(&["--system", "", "--append-system", ""]);
    assert!(replaced.starts_with("You are pirn") && replaced.ends_with("ENV"), "empty means built in: {replaced}");
}

#[test]
fn the_key_of_a_server_that_repeats_it_is_masked_everywhere() {
    let echo = json!({"error": {"message": format!("no such key: Bearer {KEY}"), "code": 500}});
    assert_failure("in a stream", &Reply::stream().event(&content("a")).event(&echo), "server", 75, "a");
    assert_failure("as a status", &Reply::json(500, &echo), "server", 75, "");
    assert_failure("as a header", &Reply::json(500, &echo).header("x-request-id", KEY), "server", 75, "");
    // The runner looks for the key in every output; here only that the error survives the masking.
    let (_, _, stderr) = text_mode(Reply::json(500, &echo));
    assert!(stderr.contains("no such key"), "{stderr}");
}
