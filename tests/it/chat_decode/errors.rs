//! Errors in the stream, bodies that are no stream, and limits.

use pirn::provider::sse::SseLimits;
use pirn::provider::wire::openai_chat::ChatDecoder;

use super::{USAGE, body, check, check_reply, check_with, decode, delta, finish, options, run, show};

#[test]
fn an_error_in_the_stream_ends_it_and_keeps_what_came_cases_52_to_54_and_68() {
    let text = delta(r#"{"content":"par"}"#);
    let par = ["start=c1", "ts0", r#"td0"par""#];
    let kept = |error: &'static str| [par.as_slice(), &[error]].concat();
    check(&[&text, r#"{"error":{"message":"upstream died","code":502}}"#], &kept("error(server,retry)"));
    check(
        &[
            &text,
            r#"{"object":"error","message":"This model's maximum context length is 1024 tokens. However, you requested 1029 tokens","code":400}"#,
        ],
        &kept("error(overflow)"),
    );
    check(
        &[
            "event: error",
            r#"{"error":"x","message":"Trying to keep the first 900 tokens when context the overflows. However, the model is loaded with context length of only 512 tokens"}"#,
        ],
        &["error(overflow)"],
    );
    check(
        &[r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#],
        &["error(overloaded,retry)"],
    );
    // NET-07: with empty choices; then the end marker.
    check(&[&text, r#"{"choices":[],"error":{"code":502,"message":"m"}}"#], &kept("error(server,retry)"));
    // An error inside the choice, as OpenRouter sends it.
    let inner = r#"{"id":"c1","choices":[{"index":0,"delta":{"content":""},"finish_reason":"error","error":{"code":502,"message":"m"}}]}"#;
    check(&[&text, inner], &kept("error(server,retry)"));
    // An error without JSON.
    check(&[&text, "event: error", "data: the server is overloaded", ""], &kept("error(overloaded,retry)"));
    // The words for none are no error.
    let none = r#"{"id":"c1","error":null,"choices":[{"index":0,"delta":{},"finish_reason":"stop","error":null}]}"#;
    check(&[&text, none, USAGE, "[DONE]"], &[par.as_slice(), &["U=8/2/0/0", r#"te0"par""#, "done(stop)"]].concat());
}

#[test]
fn a_bare_error_behind_the_events_is_seen_report_8() {
    let text = delta(r#"{"content":"par"}"#);
    let want = ["start=c1", "ts0", r#"td0"par""#, "error(overloaded,retry)"];
    let error = r#" {"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}"#;
    check(&[&text, error], &want);
    check(&[&text, &format!("[{}]", error.trim())], &want);
    let pretty = " {\n  \"error\": {\n    \"code\": 503,\n\n    \"message\": \"overloaded\"\n  }\n}";
    check(&[&text, pretty], &want);
    // Other foreign lines change nothing.
    let finish = finish("stop");
    check(
        &[&text, "nonsense", " {\"a\":1}", " {", &finish, USAGE, "[DONE]"],
        &["start=c1", "ts0", r#"td0"par""#, "U=8/2/0/0", r#"te0"par""#, "done(stop)"],
    );
}

#[test]
fn a_stream_without_finish_reason_and_marker_broke_off_case_55() {
    let text = delta(r#"{"content":"x"}"#);
    let want = ["start=c1", "ts0", r#"td0"x""#, "error(network,retry)"];
    check(&[&text], &want);
    // Cut inside an event.
    check_with(&options(), format!("{}data: {{\"choi", body(&[&text])).as_bytes(), &want);
    let (_, error) = decode(options(), &[body(&[&text]).as_bytes()]);
    assert_eq!(error.unwrap().message, "test: The stream broke off: no finish_reason.");
    // Neither content nor reason: the marker alone makes no reply.
    check(&[&delta("{}"), "[DONE]"], &["start=c1", "error(network,retry)"]);
    check(&["[DONE]"], &["error(network,retry)"]);
    // A cut behind the finish reason loses only the numbers.
    let finish = finish("stop");
    check_with(
        &options(),
        format!("{}data: {{\"usage\":{{\"pro", body(&[&text, &finish])).as_bytes(),
        &["start=c1", "ts0", r#"td0"x""#, r#"te0"x""#, "U=0/1/0/0 estimated", "done(stop)"],
    );
}

#[test]
fn a_connection_that_closes_before_a_reply_is_told_apart_from_a_strange_body() {
    for nothing in ["", "\n\n", ": keep-alive\n\n", "\u{feff}", "event: x\n\n"] {
        check_with(&options(), nothing.as_bytes(), &["error(network,retry)"]);
        let (_, error) = decode(options(), &[nothing.as_bytes()]);
        assert_eq!(error.unwrap().message, "test: The connection closed before a reply.");
    }
    for (strange, kind) in [
        ("Internal \u{1}error\n", "error(malformed,retry)"),
        ("{\"detail\":\"Not Found\"}", "error(malformed,retry)"),
        ("[1,2]", "error(malformed,retry)"),
        ("data: {\"type\":\"ping\"}\n\n", "error(malformed,retry)"),
        ("  <!doctype html><title>x</title>", "error(config)"),
        ("{\"choices\":[{\"message\":{\"content\":\"cut", "error(network,retry)"),
    ] {
        check_with(&options(), strange.as_bytes(), &[kind]);
    }
    let (_, error) = decode(options(), &[b"Internal \x01error\n"]);
    let error = error.unwrap();
    assert_eq!(error.message, "test: the body is no chat completion: Internal \\u0001error");
    assert_eq!(error.provider.as_deref(), Some("test"));
}

#[test]
fn a_refusal_is_an_error_that_keeps_its_text() {
    check_reply(&[r#"{"refusal":"No."}"#], "stop", &["ts0", r#"td0"No.""#, "|"], &["error(refusal)"]);
    check_reply(&[r#"{"content":"a","refusal":""}"#], "stop", &["ts0", r#"td0"a""#, "|", r#"te0"a""#], &["done(stop)"]);
    check_reply(
        &[r#"{"content":[{"type":"refusal","refusal":"No."}]}"#],
        "content_filter",
        &["ts0", r#"td0"No.""#, "|"],
        &["error(refusal)"],
    );
}

#[test]
fn a_body_that_is_json_is_read_as_one_reply_rules_sse_15_and_ns_1() {
    let reply = r#"{"id":"c1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","reasoning_content":"hm","tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":"{\"p\":1}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":8,"completion_tokens":2}}"#;
    let want = [
        "start=c1",
        "U=8/2/0/0",
        "hs0",
        r#"hd0"hm""#,
        r#"he0"hm"~reasoning_content"#,
        "ts1",
        r#"td1"Hi""#,
        r#"te1"Hi""#,
        "cs2 a x",
        r#"cd2 {"p":1}"#,
        r#"ce2 a x {"p":1}"#,
        "done(toolUse)",
    ];
    for body in
        [reply.to_owned(), format!("\u{feff}\n  {reply}\n\n"), format!("[{reply}]"), format!("{reply} trailing")]
    {
        let mut want = want.to_vec();
        if body.ends_with("trailing") {
            want.insert(10, "note(skipped_event)");
        }
        check_with(&options(), body.as_bytes(), &want);
    }
    // Without a finish reason: the document was whole.
    check_with(
        &options(),
        br#"{"id":"c1","choices":[{"message":{"content":"Hi"}}],"usage":{"prompt_tokens":8}}"#,
        &["start=c1", "U=8/0/0/0", "ts0", r#"td0"Hi""#, "warning(no_finish_reason)", r#"te0"Hi""#, "done(stop)"],
    );
    // An error, alone or in an array (NET-08).
    check_with(&options(), br#"{"error":{"message":"m","code":502}}"#, &["error(server,retry)"]);
    check_with(&options(), b"[{\n\"error\":{\"message\":\"m\",\"code\":502}}]\n", &["error(server,retry)"]);
    // JSON lines (SSE-16).
    let lines = format!("{}\n{}\n{}\n", delta(r#"{"content":"a"}"#), finish("stop"), USAGE);
    check_with(&options(), lines.as_bytes(), &["start=c1", "ts0", r#"td0"a""#, "U=8/2/0/0", r#"te0"a""#, "done(stop)"]);
}

#[test]
fn a_broken_event_is_repaired_once_or_ends_the_stream_rule_json_5() {
    let end = [finish("stop"), USAGE.to_owned()];
    let want = |text: &str| {
        [
            "start=c1".to_owned(),
            "ts0".to_owned(),
            format!("td0{text:?}"),
            "U=8/2/0/0".to_owned(),
            format!("te0{text:?}"),
            "done(stop)".to_owned(),
        ]
    };
    for (delta_json, text) in [
        ("{\"content\":\"a\tb\"}", "a\tb"),
        (r#"{"content":"C:\dir"}"#, r"C:\dir"),
        (r#"{"content":"a","role":"assistant","role":"assistant","content":"b"}"#, "b"),
        (r#"{"content":"a","refusal":{"x":1},"tool_calls":"none","reasoning":5}"#, "a"),
    ] {
        let want = want(text);
        check(&[&delta(delta_json), &end[0], &end[1], "[DONE]"], &want.each_ref().map(String::as_str));
    }
    let text = delta(r#"{"content":"a"}"#);
    check(&[&text, "data: {\"choices\":[}", "", &end[0]], &["start=c1", "ts0", r#"td0"a""#, "error(malformed,retry)"]);
    let (_, error) = decode(options(), &[b"data: {\"choices\":[}\n\n"]);
    assert_eq!(error.unwrap().message, "test: invalid JSON in stream event: {\"choices\":[}");
    // Plain text in place of a chunk is skipped.
    check(
        &["data: hello", "", &text, "data: 5", "", &end[0], &end[1], "[DONE]"],
        &["note(skipped_event)", "start=c1", "ts0", r#"td0"a""#, "U=8/2/0/0", r#"te0"a""#, "done(stop)"],
    );
}

#[test]
fn a_body_beyond_its_limit_is_an_error_that_keeps_what_came() {
    let limits = SseLimits { line_bytes: 400, event_bytes: 400, body_bytes: 400 };
    let many = body(&[&delta(r#"{"content":"a"}"#)]).repeat(10);
    let (events, error) = run(ChatDecoder::with_limits(options(), limits), &[many.as_bytes()]);
    let error = error.unwrap();
    assert_eq!((error.kind.as_str(), error.retryable), ("stream_too_large", false));
    assert_eq!(error.message, "test: the stream is larger than 400 bytes");
    assert_eq!(show(&events, None).len(), 6);
    let long = format!("{{\"id\":\"{}\"}}", "x".repeat(400));
    let (_, error) = run(ChatDecoder::with_limits(options(), limits), &[long.as_bytes()]);
    assert_eq!(error.unwrap().kind.as_str(), "stream_too_large");
    // A body that is no stream has the limit of one event (SSE-12).
    let piece = vec![b' '; 1024 * 1024];
    let pieces: Vec<&[u8]> = std::iter::once(b"[".as_slice()).chain(vec![piece.as_slice(); 32]).collect();
    let (_, error) = decode(options(), &pieces);
    let error = error.unwrap();
    assert_eq!(
        (error.kind.as_str(), error.message.as_str()),
        ("stream_too_large", "test: the JSON body is larger than 32 MiB")
    );
    // More blocks than any reply has.
    let turns = body(&[&delta(r#"{"content":"a"}"#), &delta(r#"{"reasoning":"b"}"#)]).repeat(5001);
    let (_, error) = decode(options(), &[turns.as_bytes()]);
    assert_eq!(error.unwrap().message, "test: the reply has more than 10000 blocks");
}
