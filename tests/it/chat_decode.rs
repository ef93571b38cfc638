//! Chat Completions, stream to events: cases 11, 39 to 69 and 140 to 142, the rules OC-4 to OC-17, and the NET and MSG
//! reports that concern this protocol. Every body is read whole, byte by byte, and cut in two at every place.
//!
//! Notation as in the cases: `start`, `ts0` text start at index 0, `td0"x"` delta, `te0"x"` end; `hs hd he` thinking,
//! with its signature behind `~`; `cs cd ce` tool call; `U=input/output/cacheRead/cacheWrite`; `done(reason)`;
//! `error(kind,retry)`.

use std::fmt::Write as _;

use pirn::model::{BlockEvent, ErrorRecord, StopReason, ToolCall, Usage};
use pirn::port::ProviderEvent;
use pirn::provider::sse::SseLimits;
use pirn::provider::wire::Decoder;
use pirn::provider::wire::openai_chat::{ChatDecoder, ChatDecoderOptions};
use proptest::prelude::*;

fn options() -> ChatDecoderOptions {
    ChatDecoderOptions::new("test", "m")
}

/// Decodes the pieces of one body, as the HTTP layer would.
pub(crate) fn decode(options: ChatDecoderOptions, pieces: &[&[u8]]) -> (Vec<ProviderEvent>, Option<ErrorRecord>) {
    run(ChatDecoder::new(options), pieces)
}

fn run(mut decoder: ChatDecoder, pieces: &[&[u8]]) -> (Vec<ProviderEvent>, Option<ErrorRecord>) {
    let mut out = Vec::new();
    for piece in pieces {
        if let Err(error) = decoder.push(piece, &mut out) {
            return (out, Some(error));
        }
        if decoder.is_done() {
            return (out, None);
        }
    }
    let error = decoder.finish(&mut out).err();
    assert_eq!(decoder.is_done(), error.is_none(), "a body ends with a reply or an error");
    (out, error)
}

fn show_call(call: &ToolCall) -> String {
    let arguments = serde_json::to_string(&call.arguments).unwrap();
    let bad = if call.arguments_error.is_some() { " argumentsError" } else { "" };
    format!("{} {} {arguments}{bad}", call.id, call.name)
}

fn show_usage(usage: &Usage) -> String {
    let mut shown = format!("U={}/{}/{}/{}", usage.input, usage.output, usage.cache_read, usage.cache_write);
    if let Some(reasoning) = usage.reasoning {
        write!(shown, " reasoning={reasoning}").unwrap();
    }
    if usage.estimated == Some(true) {
        shown.push_str(" estimated");
    }
    shown
}

fn show_event(event: &ProviderEvent) -> String {
    match event {
        ProviderEvent::Start { response_id, response_model } => {
            let id = response_id.as_ref().map(|id| format!("={id}")).unwrap_or_default();
            let model = response_model.as_ref().map(|model| format!("@{model}")).unwrap_or_default();
            format!("start{id}{model}")
        }
        ProviderEvent::Block { index, event } => match event {
            BlockEvent::TextStart => format!("ts{index}"),
            BlockEvent::TextDelta(text) => format!("td{index}{text:?}"),
            BlockEvent::TextEnd { content, .. } => format!("te{index}{content:?}"),
            BlockEvent::ThinkingStart => format!("hs{index}"),
            BlockEvent::ThinkingDelta(text) => format!("hd{index}{text:?}"),
            BlockEvent::ThinkingEnd { content, signature, .. } => {
                let signature = signature.as_ref().map(|signature| format!("~{signature}")).unwrap_or_default();
                format!("he{index}{content:?}{signature}")
            }
            BlockEvent::ToolCallStart { id, name } => format!("cs{index} {id} {name}"),
            BlockEvent::ToolCallDelta(text) => format!("cd{index} {text}"),
            BlockEvent::ToolCallEnd(call) => format!("ce{index} {}", show_call(call)),
        },
        ProviderEvent::Usage(usage) => show_usage(usage),
        ProviderEvent::Warning { code, .. } => format!("warning({code})"),
        ProviderEvent::Note(note) => format!("note({})", note.code),
        ProviderEvent::Meta(_) => "meta".to_owned(),
        ProviderEvent::Done { stop_reason, raw_stop_reason, overflow } => {
            let raw = raw_stop_reason.as_ref().map(|raw| format!(" raw={raw}")).unwrap_or_default();
            let overflow = if *overflow { " overflow" } else { "" };
            format!("done({}{raw}{overflow})", stop_reason.as_str())
        }
    }
}

/// One line per event.
pub(crate) fn show(events: &[ProviderEvent], error: Option<&ErrorRecord>) -> Vec<String> {
    let mut lines: Vec<String> = events.iter().map(show_event).collect();
    if let Some(error) = error {
        let retry = if error.retryable { ",retry" } else { "" };
        lines.push(format!("error({}{retry})", error.kind.as_str()));
    }
    lines
}

/// Events to send, one per line; a line that is no JSON and not `[DONE]` is sent as it is.
fn body(lines: &[&str]) -> String {
    let framed = lines.iter().map(|line| {
        if line.starts_with('{') || *line == "[DONE]" { format!("data: {line}\n\n") } else { format!("{line}\n") }
    });
    framed.collect()
}

fn check_with(options: &ChatDecoderOptions, body: &[u8], want: &[&str]) {
    let got = |pieces: &[&[u8]]| {
        let (events, error) = decode(options.clone(), pieces);
        show(&events, error.as_ref())
    };
    let text = String::from_utf8_lossy(body);
    assert_eq!(got(&[body]), want, "whole:\n{text}");
    assert_eq!(got(&body.chunks(1).collect::<Vec<_>>()), want, "byte by byte:\n{text}");
    for at in 0..=body.len() {
        let (head, tail) = body.split_at(at);
        assert_eq!(got(&[head, tail]), want, "cut at {at}:\n{text}");
    }
}

fn check(lines: &[&str], want: &[&str]) {
    check_with(&options(), body(lines).as_bytes(), want);
}

/// A chunk with this delta.
fn delta(delta: &str) -> String {
    format!(r#"{{"id":"c1","model":"m","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
}

fn finish(reason: &str) -> String {
    format!(r#"{{"id":"c1","choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#)
}

const USAGE: &str = r#"{"id":"c1","choices":[],"usage":{"prompt_tokens":8,"completion_tokens":2,"total_tokens":10}}"#;

/// Deltas, a finish reason, usage and the end marker; what is wanted stands between `start` and `U`.
fn check_reply(deltas: &[&str], reason: &str, want: &[&str], end: &[&str]) {
    let deltas: Vec<String> = deltas.iter().map(|json| delta(json)).collect();
    let finish = finish(reason);
    let mut lines: Vec<&str> = deltas.iter().map(String::as_str).collect();
    lines.extend([finish.as_str(), USAGE, "[DONE]"]);
    let (streamed, ended) = want.split_at(want.iter().take_while(|event| !event.starts_with('|')).count());
    let mut all = vec!["start=c1"];
    all.extend(streamed);
    all.push("U=8/2/0/0");
    all.extend(ended.iter().skip(1));
    all.extend(end);
    check(&lines, &all);
}

/// As [`check_reply`]; ends that come only with the end of the reply stand behind `|`.
fn check_calls(deltas: &[&str], want: &[&str]) {
    check_reply(deltas, "tool_calls", want, &["done(toolUse)"]);
}

#[test]
fn text_with_usage_and_end_marker_cases_11_and_39() {
    check(
        &[
            r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}]}"#,
            r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}"#,
            r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            r#"{"id":"c1","choices":[],"usage":{"prompt_tokens":33,"completion_tokens":11,"total_tokens":44,"prompt_tokens_details":{"cached_tokens":30}}}"#,
            "[DONE]",
            r#"{"id":"c1","choices":[{"index":0,"delta":{"content":"never"}}]}"#,
        ],
        &["start=c1", "ts0", r#"td0"Hi""#, "U=3/11/30/0", r#"te0"Hi""#, "done(stop)"],
    );
}

#[test]
fn a_call_comes_in_pieces_case_40() {
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"k1","type":"function","function":{"name":"read","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"p\":"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}"#,
        ],
        &["cs0 k1 read", r#"cd0 {"p":"#, "cd0 1}", "|", r#"ce0 k1 read {"p":1}"#],
    );
}

#[test]
fn interleaved_calls_are_not_mixed_case_41() {
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"p\":"}},{"index":1,"id":"b","function":{"name":"y","arguments":"{\"q\":"}}]}"#,
            r#"{"tool_calls":[{"index":1,"function":{"arguments":"2}"}},{"index":0,"function":{"arguments":"1}"}}]}"#,
        ],
        &[
            "cs0 a x",
            r#"cd0 {"p":"#,
            "cs1 b y",
            r#"cd1 {"q":"#,
            "cd1 2}",
            "cd0 1}",
            "|",
            r#"ce0 a x {"p":1}"#,
            r#"ce1 b y {"q":2}"#,
        ],
    );
}

#[test]
fn whole_calls_with_one_index_are_told_apart_by_id_case_42() {
    check_reply(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"p\":1}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"y","arguments":"{}"}}]}"#,
        ],
        "stop",
        &["cs0 a x", r#"cd0 {"p":1}"#, r#"ce0 a x {"p":1}"#, "cs1 b y", "cd1 {}", "|", "ce1 b y {}"],
        &["done(toolUse raw=stop)"],
    );
}

#[test]
fn fragments_with_an_empty_id_go_to_the_newest_call_of_their_index_case_43() {
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"","function":{"arguments":"{\"p\":1}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"y","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"","function":{"arguments":"{\"q\":2}"}}]}"#,
        ],
        &["cs0 a x", r#"cd0 {"p":1}"#, r#"ce0 a x {"p":1}"#, "cs1 b y", r#"cd1 {"q":2}"#, "|", r#"ce1 b y {"q":2}"#],
    );
}

#[test]
fn calls_without_index_are_told_apart_by_id_or_name_cases_44_and_45_and_report_14() {
    let two = ["cs0 a x", "cd0 {}", "cs1 b y", "cd1 {}", "|", "ce0 a x {}", "ce1 b y {}"];
    check_calls(
        &[
            r#"{"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{}"}}]}"#,
            r#"{"tool_calls":[{"id":"b","function":{"name":"y","arguments":"{}"}}]}"#,
        ],
        &two,
    );
    check_calls(
        &[
            r#"{"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{}"}},{"id":"b","function":{"name":"y","arguments":"{}"}}]}"#,
        ],
        &two,
    );
    // NET-14: only the first of three fragments has an id.
    check_calls(
        &[
            r#"{"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{\"p\""}}]}"#,
            r#"{"tool_calls":[{"function":{"arguments":":"}}]}"#,
            r#"{"tool_calls":[{"function":{"arguments":"1}"}}]}"#,
        ],
        &["cs0 a x", r#"cd0 {"p""#, "cd0 :", "cd0 1}", "|", r#"ce0 a x {"p":1}"#],
    );
    // Arguments as an object; the id is made from the name (answers 5 rank above the case's `call_…`).
    check_calls(
        &[r#"{"tool_calls":[{"function":{"name":"x","arguments":{"q":2}}}]}"#],
        &["cs0 x_1 x", r#"cd0 {"q":2}"#, "|", r#"ce0 x_1 x {"q":2}"#],
    );
    // OC-9 (d): a name after complete arguments, and another name before them, begin another call.
    check_calls(
        &[
            r#"{"tool_calls":[{"function":{"name":"x","arguments":{"q":2}}},{"function":{"name":"x","arguments":{"q":3}}}]}"#,
            r#"{"tool_calls":[{"function":{"name":"y"}},{"function":{"name":"z"}}]}"#,
        ],
        &[
            "cs0 x_1 x",
            r#"cd0 {"q":2}"#,
            r#"ce0 x_1 x {"q":2}"#,
            "cs1 x_2 x",
            r#"cd1 {"q":3}"#,
            r#"ce1 x_2 x {"q":3}"#,
            "cs2 y_3 y",
            "cs3 z_4 z",
            "|",
            "ce2 y_3 y {}",
            "ce3 z_4 z {}",
        ],
    );
}

#[test]
fn an_index_inside_the_function_counts_case_46() {
    check_calls(
        &[
            r#"{"tool_calls":[{"function":{"index":0,"name":"x","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"function":{"index":1,"name":"y","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"function":{"index":0,"arguments":"}"}},{"function":{"index":1,"arguments":"}"}}]}"#,
        ],
        &["cs0 x_1 x", "cd0 {", "cs1 y_2 y", "cd1 {", "cd0 }", "cd1 }", "|", "ce0 x_1 x {}", "ce1 y_2 y {}"],
    );
}

#[test]
fn names_and_ids_may_repeat_or_come_late_case_47() {
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":null}}]}"#,
        ],
        &["cs0 a x", "cd0 {", "cd0 }", "|", "ce0 a x {}"],
    );
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"late","function":{"name":"x","arguments":"}"}}]}"#,
        ],
        &["cs0  ", "cd0 {", "cd0 }", "|", "ce0 late x {}"],
    );
    // An id that changes in the middle of the arguments begins no call.
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"b","function":{"arguments":"}"}}]}"#,
        ],
        &["cs0 a x", "cd0 {", "cd0 }", "|", "ce0 a x {}"],
    );
    // One id for two calls: the index tells them apart, the message builder renames (ports §2).
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"index":1,"id":"a","function":{"name":"y","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"}"}},{"index":1,"id":"a","function":{"arguments":"}"}}]}"#,
        ],
        &["cs0 a x", "cd0 {", "cs1 a y", "cd1 {", "cd0 }", "cd1 }", "|", "ce0 a x {}", "ce1 a y {}"],
    );
    // A whole call sent twice runs once.
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"p\":1}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"p\":1}"}}]}"#,
        ],
        &["cs0 a x", r#"cd0 {"p":1}"#, r#"cd0 {"p":1}"#, "|", "note(trailing_arguments)", r#"ce0 a x {"p":1}"#],
    );
}

#[test]
fn a_placeholder_before_the_arguments_is_waited_out_rule_arg_3() {
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}]}"#,
            r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"y","arguments":"{}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"p\":1}"}}]}"#,
        ],
        &["cs0 a x", "cd0 {}", "cs1 b y", "cd1 {}", r#"cd0 {"p":1}"#, "|", r#"ce0 a x {"p":1}"#, "ce1 b y {}"],
    );
}

#[test]
fn text_behind_a_call_that_ended_is_ignored() {
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"p\":1}"}}]}"#,
            r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"y","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"}"}},{"index":0,"function":{"arguments":""}}]}"#,
        ],
        &["cs0 a x", r#"cd0 {"p":1}"#, r#"ce0 a x {"p":1}"#, "cs1 b y", "note(late_arguments)", "|", "ce1 b y {}"],
    );
}

#[test]
fn empty_fragments_make_no_call_and_a_single_one_needs_no_array() {
    check_reply(
        &[r#"{"content":"a","tool_calls":[]}"#, r#"{"tool_calls":null}"#, r#"{"tool_calls":[{},null]}"#],
        "stop",
        &["ts0", r#"td0"a""#, "|", r#"te0"a""#],
        &["done(stop)"],
    );
    check_calls(
        &[r#"{"tool_calls":{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}}"#],
        &["cs0 a x", "cd0 {}", "|", "ce0 a x {}"],
    );
}

#[test]
fn reasoning_comes_in_one_of_three_fields_or_in_two_at_once_case_48() {
    for (json, field) in [
        (r#"{"reasoning_content":"a","reasoning":"a"}"#, "reasoning_content"),
        (r#"{"reasoning_content":"","reasoning":"a"}"#, "reasoning"),
        (r#"{"reasoning_content":null,"reasoning_text":"a"}"#, "reasoning_text"),
    ] {
        let end = format!("he0\"a\"~{field}");
        check_reply(
            &[json, r#"{"content":"t"}"#],
            "stop",
            &["hs0", r#"hd0"a""#, &end, "ts1", r#"td1"t""#, "|", r#"te1"t""#],
            &["done(stop)"],
        );
    }
}

#[test]
fn a_change_of_kind_ends_the_open_block_case_49() {
    check_reply(
        &[r#"{"reasoning":"r1"}"#, r#"{"content":"t1"}"#, r#"{"reasoning":"r2"}"#, r#"{"content":"t2"}"#],
        "stop",
        &[
            "hs0",
            r#"hd0"r1""#,
            r#"he0"r1"~reasoning"#,
            "ts1",
            r#"td1"t1""#,
            r#"te1"t1""#,
            "hs2",
            r#"hd2"r2""#,
            r#"he2"r2"~reasoning"#,
            "ts3",
            r#"td3"t2""#,
            "|",
            r#"te3"t2""#,
        ],
        &["done(stop)"],
    );
    // A call ends text; text behind an open call stands beside it and ends after it.
    check_calls(
        &[
            r#"{"content":"t"}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{"}}]}"#,
            r#"{"content":"u"}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}"#,
        ],
        &[
            "ts0",
            r#"td0"t""#,
            r#"te0"t""#,
            "cs1 a x",
            "cd1 {",
            "ts2",
            r#"td2"u""#,
            "cd1 }",
            "|",
            "ce1 a x {}",
            r#"te2"u""#,
        ],
    );
}

#[test]
fn content_may_be_an_array_of_parts_case_50() {
    check_reply(
        &[r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}"#, r#"{"content":"ok"}"#],
        "stop",
        &["hs0", r#"hd0"hm""#, r#"he0"hm""#, "ts1", r#"td1"ok""#, "|", r#"te1"ok""#],
        &["done(stop)"],
    );
    check_reply(
        &[
            r#"{"content":[{"type":"thinking","thinking":"h"},{"type":"text","text":"a"},{"type":"reference","text":"no"},{"text":"b"}]}"#,
        ],
        "stop",
        &["hs0", r#"hd0"h""#, r#"he0"h""#, "ts1", r#"td1"a""#, r#"td1"b""#, "|", r#"te1"ab""#],
        &["done(stop)"],
    );
}

#[test]
fn reasoning_details_are_kept_for_replay_and_shown_only_alone_rule_oc_7() {
    let text = r#"[{"type":"reasoning.text","text":"ab"}]"#;
    let end = format!(r#"he0"ab"~{text}"#);
    let split = |plain: bool| {
        ["a", "b"].map(|piece| {
            let field = if plain { format!(r#""reasoning":"{piece}","#) } else { String::new() };
            format!(r#"{{{field}"reasoning_details":[{{"type":"reasoning.text","text":"{piece}"}}]}}"#)
        })
    };
    for plain in [true, false] {
        let [a, b] = split(plain);
        check_reply(
            &[&a, &b, r#"{"content":"t"}"#],
            "stop",
            &["hs0", r#"hd0"a""#, r#"hd0"b""#, &end, "ts1", r#"td1"t""#, "|", r#"te1"t""#],
            &["done(stop)"],
        );
    }
    // What belongs to no thinking is carried by an empty block.
    check_reply(
        &[r#"{"content":"t","reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]}"#],
        "stop",
        &["ts0", r#"td0"t""#, "|", r#"te0"t""#, "hs1", r#"he1""~[{"type":"reasoning.encrypted","data":"x"}]"#],
        &["done(stop)"],
    );
}

#[test]
fn chunks_that_say_nothing_are_ignored_case_51_and_report_16() {
    check(
        &[
            r#"{"id":"","choices":[],"model":"","object":"","prompt_filter_results":[{"prompt_index":0}]}"#,
            r#"{"id":"c1","model":"other","choices":[{"index":0,"delta":{"content":"t"}}]}"#,
            r#"{"choices":[{"index":0,"finish_reason":null,"content_filter_results":{}}]}"#,
            r#"{"choices":[{"index":0,"delta":null}]}"#,
            r#"{"choices":[{"index":1,"delta":{"content":"another choice"}}]}"#,
            r#"{"usage":{"prompt_tokens":8,"completion_tokens":2}}"#,
            r#"{"choices":null}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            "[DONE]",
        ],
        &["start=c1@other", "ts0", r#"td0"t""#, "U=8/2/0/0", r#"te0"t""#, "done(stop)"],
    );
}

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
    assert_eq!(error.unwrap().message, "The stream broke off: no finish_reason.");
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
        assert_eq!(error.unwrap().message, "The connection closed before a reply.");
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
    assert_eq!(error.message, "the body is no chat completion: Internal \\u0001error");
    assert_eq!(error.provider.as_deref(), Some("test"));
}

#[test]
fn the_end_marker_alone_ends_a_reply_with_content_case_56_and_report_5() {
    let text = delta(r#"{"content":"x"}"#);
    let end = ["warning(no_finish_reason)", r#"te0"x""#];
    for lines in [vec![text.as_str(), USAGE, "[DONE]"], vec![&text, USAGE, " ", "data: [DONE] ", ""]] {
        check(&lines, &[&["start=c1", "ts0", r#"td0"x""#, "U=8/2/0/0"], end.as_slice(), &["done(stop)"]].concat());
    }
    // A call counts if its arguments are whole, else the stream broke off.
    let call = |arguments: &str| {
        delta(&format!(
            r#"{{"tool_calls":[{{"index":0,"id":"a","function":{{"name":"x","arguments":"{arguments}"}}}}]}}"#
        ))
    };
    check(
        &[&call("{}"), USAGE, "[DONE]"],
        &["start=c1", "cs0 a x", "cd0 {}", "U=8/2/0/0", "warning(no_finish_reason)", "ce0 a x {}", "done(toolUse)"],
    );
    check(&[&call("{"), USAGE, "[DONE]"], &["start=c1", "cs0 a x", "cd0 {", "U=8/2/0/0", "error(network,retry)"]);
    // Servers that never give a reason (compat `finish_reason = false`).
    let inferring = ChatDecoderOptions { finish_reason_required: false, ..options() };
    let lines = body(&[&text, USAGE]);
    check_with(&inferring, lines.as_bytes(), &["start=c1", "ts0", r#"td0"x""#, "U=8/2/0/0", r#"te0"x""#, "done(stop)"]);
}

#[test]
fn finish_reasons_map_to_stop_reasons_cases_57_and_58_and_reports_17_and_18() {
    let text = ["ts0", r#"td0"hi""#, "|", r#"te0"hi""#];
    for (reason, end) in [
        ("stop", "done(stop)"),
        ("STOP", "done(stop raw=STOP)"),
        ("end", "done(stop raw=end)"),
        ("eos", "done(stop raw=eos)"),
        ("eos_token", "done(stop raw=eos_token)"),
        ("stop_sequence", "done(stop raw=stop_sequence)"),
        ("length", "done(length)"),
        ("max_tokens", "done(length raw=max_tokens)"),
        ("model_length", "done(length raw=model_length)"),
        // Without any call: judged later, the same way for every protocol.
        ("tool_calls", "done(toolUse)"),
        ("model_context_window_exceeded", "done(length raw=model_context_window_exceeded overflow)"),
    ] {
        check_reply(&[r#"{"content":"hi"}"#], reason, &text, &[end]);
    }
    for reason in ["COMPLETE", "end_turn"] {
        let end = format!("done(stop raw={reason})");
        let warned = ["ts0", r#"td0"hi""#, "|", "warning(unknown_finish_reason)", r#"te0"hi""#];
        check_reply(&[r#"{"content":"hi"}"#], reason, &warned, &[&end]);
    }
    for (reason, error) in [
        ("content_filter", "error(content_filter)"),
        ("safety", "error(content_filter)"),
        ("sensitive", "error(content_filter)"),
        ("error", "error(server,retry)"),
        ("network_error", "error(network,retry)"),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", "error(model_behavior,retry)"),
        ("MALFORMED_FUNCTION_CALL", "error(model_behavior,retry)"),
    ] {
        // The text is kept and its block stays open (STREAM-5).
        check_reply(&[r#"{"content":"hi"}"#], reason, &["ts0", r#"td0"hi""#, "|"], &[error]);
    }
    // Calls count whatever the word.
    let call = r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"ls","arguments":"{}"}}]}"#;
    let warned = ["cs0 a ls", "cd0 {}", "|", "warning(unknown_finish_reason)", "ce0 a ls {}"];
    check_reply(&[call], "end_turn", &warned, &["done(toolUse raw=end_turn)"]);
    // Case 57.
    check(
        &[
            r#"{"id":"c1","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":""}]}"#,
            r#"{"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            USAGE,
            "[DONE]",
        ],
        &["start=c1", "ts0", r#"td0"hi""#, "U=8/2/0/0", r#"te0"hi""#, "done(stop)"],
    );
    // A gateway's own "stop" does not hide that the reply was cut (NET-20).
    check(
        &[&delta(r#"{"content":"hi"}"#), &finish("length"), &finish("stop"), USAGE, "[DONE]"],
        &["start=c1", "ts0", r#"td0"hi""#, "U=8/2/0/0", r#"te0"hi""#, "done(length)"],
    );
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
fn halves_of_characters_are_joined_across_deltas_cases_60_to_62() {
    check_reply(
        &[r#"{"content":"ab\ud83d"}"#, r#"{"content":"\ude80cd"}"#],
        "stop",
        &["ts0", r#"td0"ab""#, r#"td0"🚀cd""#, "|", r#"te0"ab🚀cd""#],
        &["done(stop)"],
    );
    check_calls(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"x\":\"🚀\ud83d"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"\ude80\"}"}}]}"#,
        ],
        &["cs0 a x", r#"cd0 {"x":"🚀"#, r#"cd0 🚀"}"#, "|", r#"ce0 a x {"x":"🚀🚀"}"#],
    );
    // Case 62: the half stays alone; what was held comes before the usage only because the reply is over there.
    check(
        &[&delta(r#"{"content":"end\ud83d"}"#), &finish("stop"), USAGE, "[DONE]"],
        &["start=c1", "ts0", r#"td0"end""#, "U=8/2/0/0", "td0\"\u{fffd}\"", "te0\"end\u{fffd}\"", "done(stop)"],
    );
    // Never across blocks.
    check_reply(
        &[r#"{"reasoning":"a\ud83d"}"#, r#"{"content":"\ude80b"}"#],
        "stop",
        &[
            "hs0",
            r#"hd0"a""#,
            "hd0\"\u{fffd}\"",
            "he0\"a\u{fffd}\"~reasoning",
            "ts1",
            "td1\"\u{fffd}b\"",
            "|",
            "te1\"\u{fffd}b\"",
        ],
        &["done(stop)"],
    );
}

#[test]
fn usage_is_found_in_three_places_and_the_last_report_counts_case_63_and_report_acc_1() {
    let text = delta(r#"{"content":"x"}"#);
    let finish = finish("stop");
    for report in [
        r#"{"id":"c1","choices":[{"index":0,"delta":{},"usage":{"prompt_tokens":12.0,"completion_tokens":2.0}}]}"#,
        r#"{"id":"c1","choices":[],"x_groq":{"id":"g","usage":{"prompt_tokens":12,"completion_tokens":2}}}"#,
        r#"{"id":"c1","choices":[],"usage":{"prompt_tokens":"12","completion_tokens":2,"prompt_tokens_details":null}}"#,
    ] {
        check(
            &[&text, &finish, report, "[DONE]"],
            &["start=c1", "ts0", r#"td0"x""#, "U=12/2/0/0", r#"te0"x""#, "done(stop)"],
        );
    }
    let report =
        |completion: u32| format!(r#"{{"choices":[],"usage":{{"prompt_tokens":5,"completion_tokens":{completion}}}}}"#);
    check(
        &[
            &text,
            &report(10),
            &report(10),
            &report(50),
            &finish,
            &report(100),
            r#"{"choices":[],"usage":null}"#,
            r#"{"usage":{"prompt_tokens":0,"completion_tokens":0}}"#,
            "[DONE]",
        ],
        &["start=c1", "ts0", r#"td0"x""#, "U=5/10/0/0", "U=5/50/0/0", "U=5/100/0/0", r#"te0"x""#, "done(stop)"],
    );
}

#[test]
fn reasoning_that_is_counted_apart_is_added_to_the_output_case_64() {
    let text = delta(r#"{"content":"x"}"#);
    for completion in [10, 50] {
        let report = format!(
            r#"{{"choices":[],"usage":{{"prompt_tokens":5,"completion_tokens":{completion},"total_tokens":55,"completion_tokens_details":{{"reasoning_tokens":40}}}}}}"#
        );
        check(
            &[&text, &finish("stop"), &report, "[DONE]"],
            &["start=c1", "ts0", r#"td0"x""#, "U=5/50/0/0 reasoning=40", r#"te0"x""#, "done(stop)"],
        );
    }
}

#[test]
fn usage_that_nobody_reports_is_estimated_from_characters() {
    let options = ChatDecoderOptions { request_chars: 41, ..options() };
    let lines = body(&[
        &delta(r#"{"reasoning":"1234"}"#),
        &delta(r#"{"content":"é23"}"#),
        &delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}]}"#),
        &finish("tool_calls"),
    ]);
    let (events, error) = decode(options, &[lines.as_bytes()]);
    assert_eq!(error, None);
    assert!(show(&events, None).contains(&"U=11/3/0/0 estimated".to_owned()));
}

#[test]
fn a_call_behind_the_finish_reason_counts_case_65() {
    check(
        &[
            &finish("stop"),
            &delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}]}"#),
            USAGE,
            "[DONE]",
        ],
        &["start=c1", "cs0 a x", "cd0 {}", "U=8/2/0/0", "ce0 a x {}", "done(toolUse raw=stop)"],
    );
}

#[test]
fn a_call_that_the_output_limit_cut_never_looks_callable_case_66() {
    check_reply(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"write","arguments":"{\"path\":\"a.txt\",\"content\":\"half"}}]}"#,
        ],
        "length",
        &["cs0 a write", r#"cd0 {"path":"a.txt","content":"half"#, "|", "ce0 a write {} argumentsError"],
        &["done(length)"],
    );
}

#[test]
fn a_call_that_is_never_named_is_an_error() {
    check_reply(
        &[r#"{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]}"#],
        "tool_calls",
        &["cs0 a ", "cd0 {}", "|"],
        &["error(model_behavior,retry)"],
    );
}

#[test]
fn a_message_in_place_of_a_delta_is_the_whole_reply_case_67() {
    check(
        &[
            r#"{"id":"c1","choices":[{"index":0,"message":{"role":"assistant","content":"all"},"finish_reason":"stop"}],"usage":{"prompt_tokens":8,"completion_tokens":2}}"#,
            "[DONE]",
        ],
        &["start=c1", "U=8/2/0/0", "ts0", r#"td0"all""#, r#"te0"all""#, "done(stop)"],
    );
    // Behind deltas it only repeats them (x.ai).
    check(
        &[
            &delta(r#"{"content":"all"}"#),
            r#"{"id":"c1","choices":[{"index":0,"message":{"content":"all"},"finish_reason":"stop"}]}"#,
            USAGE,
            "[DONE]",
        ],
        &["start=c1", "ts0", r#"td0"all""#, "U=8/2/0/0", r#"te0"all""#, "done(stop)"],
    );
}

#[test]
fn thinking_between_tags_is_split_off_where_the_dialect_says_so_case_69() {
    let tagged = ChatDecoderOptions { think_tags: true, ..options() };
    let deltas =
        [r#"{"content":"<thi"}"#, r#"{"content":"nk>plan</th"}"#, r#"{"content":"ink>\n\nanswer"}"#].map(delta);
    let lines = body(&[&deltas[0], &deltas[1], &deltas[2], &finish("stop"), USAGE, "[DONE]"]);
    check_with(
        &tagged,
        lines.as_bytes(),
        &[
            "start=c1",
            "hs0",
            r#"hd0"plan""#,
            r#"he0"plan""#,
            "ts1",
            r#"td1"answer""#,
            "U=8/2/0/0",
            r#"te1"answer""#,
            "done(stop)",
        ],
    );
    // What looked like a tag and was none is kept, also when the reply breaks off.
    let cut = body(&[&delta(r#"{"content":"<thi"}"#)]);
    check_with(&tagged, cut.as_bytes(), &["start=c1", "ts0", r#"td0"<thi""#, "error(network,retry)"]);
    // Off by default.
    check_reply(
        &[r#"{"content":"<think>x</think>"}"#],
        "stop",
        &["ts0", r#"td0"<think>x</think>""#, "|", r#"te0"<think>x</think>""#],
        &["done(stop)"],
    );
}

#[test]
fn an_empty_reply_is_noted_and_on_a_prompt_too_large_it_is_an_overflow_rule_err_10() {
    check_reply(&["{}"], "stop", &["|", "note(empty_response)"], &["done(stop)"]);
    check_reply(
        &[r#"{"reasoning":"hm"}"#],
        "stop",
        &["hs0", r#"hd0"hm""#, "|", "note(empty_response)", r#"he0"hm"~reasoning"#],
        &["done(stop)"],
    );
    let full = ChatDecoderOptions { request_chars: 4004, context_window: 1000, ..options() };
    let lines = body(&[&delta("{}"), &finish("stop"), "[DONE]"]);
    check_with(&full, lines.as_bytes(), &["start=c1", "error(overflow)"]);
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
    assert_eq!(error.unwrap().message, "invalid JSON in stream event: {\"choices\":[}");
    // Plain text in place of a chunk is skipped.
    check(
        &["data: hello", "", &text, "data: 5", "", &end[0], &end[1], "[DONE]"],
        &["note(skipped_event)", "start=c1", "ts0", r#"td0"a""#, "U=8/2/0/0", r#"te0"a""#, "done(stop)"],
    );
}

#[test]
fn arguments_are_read_in_every_disguise_cases_140_and_141_and_report_22() {
    for (arguments, want) in [
        (r#""{\"a\":\"x\ny\"}""#, r#"{"a":"x\ny"}"#),
        (r#""{\"p\":\"C:\\dir\"}""#, r#"{"p":"C:\\dir"}"#),
        (r#""{}{\"a\":1}""#, r#"{"a":1}"#),
        (r#""\"{\\\"a\\\":1}\"""#, r#"{"a":1}"#),
        (r#""""#, "{}"),
        (r#"" ""#, "{}"),
        ("null", "{}"),
        (r#""null""#, "{}"),
        ("{\"a\": [1]}", r#"{"a":[1]}"#),
    ] {
        let lines = body(&[
            &delta(&format!(
                r#"{{"tool_calls":[{{"index":0,"id":"a","function":{{"name":"x","arguments":{arguments}}}}}]}}"#
            )),
            &finish("tool_calls"),
            "[DONE]",
        ]);
        let (events, error) = decode(options(), &[lines.as_bytes()]);
        let shown = show(&events, error.as_ref());
        assert!(shown.contains(&format!("ce0 a x {want}")), "{arguments}: {shown:?}");
    }
    // Absent.
    check_calls(
        &[r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"ls"}}]}"#],
        &["cs0 a ls", "|", "ce0 a ls {}"],
    );
}

#[test]
fn a_megabyte_of_arguments_in_small_deltas_is_exact_case_142() {
    let content: String = ('a'..='z').cycle().take(1 << 20).collect();
    let arguments = serde_json::json!({"path": "big \"file\"\n", "content": content});
    let text = arguments.to_string();
    let mut lines =
        body(&[&delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"write","arguments":""}}]}"#)]);
    for piece in text.as_bytes().chunks(16) {
        let piece = serde_json::to_string(std::str::from_utf8(piece).unwrap()).unwrap();
        lines += &body(&[&delta(&format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{piece}}}}}]}}"#))]);
    }
    lines += &body(&[&finish("tool_calls"), USAGE, "[DONE]"]);
    let pieces: Vec<&[u8]> = lines.as_bytes().chunks(16 * 1024).collect();
    let (events, error) = decode(options(), &pieces);
    assert_eq!(error, None);
    let deltas: String = events
        .iter()
        .filter_map(|event| match event {
            ProviderEvent::Block { event: BlockEvent::ToolCallDelta(text), .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert!(deltas == text, "the deltas are the text");
    let ended = events.iter().find_map(|event| match event {
        ProviderEvent::Block { event: BlockEvent::ToolCallEnd(call), .. } => Some(&call.arguments),
        _ => None,
    });
    assert!(ended == arguments.as_object(), "the object is exact");
    assert!(matches!(events.last(), Some(ProviderEvent::Done { stop_reason: StopReason::ToolUse, .. })));
}

#[test]
fn a_body_beyond_its_limit_is_an_error_that_keeps_what_came() {
    let limits = SseLimits { line_bytes: 400, event_bytes: 400, body_bytes: 400 };
    let many = body(&[&delta(r#"{"content":"a"}"#)]).repeat(10);
    let (events, error) = run(ChatDecoder::with_limits(options(), limits), &[many.as_bytes()]);
    let error = error.unwrap();
    assert_eq!((error.kind.as_str(), error.retryable), ("stream_too_large", false));
    assert_eq!(error.message, "the stream is larger than 400 bytes");
    assert_eq!(show(&events, None).len(), 6);
    let long = format!("{{\"id\":\"{}\"}}", "x".repeat(400));
    let (_, error) = run(ChatDecoder::with_limits(options(), limits), &[long.as_bytes()]);
    assert_eq!(error.unwrap().kind.as_str(), "stream_too_large");
    // More blocks than any reply has.
    let turns = body(&[&delta(r#"{"content":"a"}"#), &delta(r#"{"reasoning":"b"}"#)]).repeat(5001);
    let (_, error) = decode(options(), &[turns.as_bytes()]);
    assert_eq!(error.unwrap().message, "the reply has more than 10000 blocks");
}

/// Bytes that look like a reply often enough to reach most branches.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let json = prop_oneof![
        Just(r#"{"content":"a"}"#),
        Just(r#"{"content":"\ud83d"}"#),
        Just(r#"{"content":"\ude80"}"#),
        Just(r#"{"content":"<think>"}"#),
        Just(r#"{"content":"</think>"}"#),
        Just(r#"{"reasoning":"r"}"#),
        Just(r#"{"reasoning_details":[{"type":"reasoning.text","text":"d"}]}"#),
        Just(r#"{"refusal":"no"}"#),
        Just(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"p\":1}"}}]}"#),
        Just(r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"y","arguments":"{"}}]}"#),
        Just(r#"{"tool_calls":[{"function":{"arguments":"}"}}]}"#),
        Just(r#"{"tool_calls":[{"function":{"name":"z","arguments":{}}}]}"#),
    ];
    let piece = prop_oneof![
        8 => json.prop_map(|json| body(&[&delta(json)]).into_bytes()),
        2 => Just(body(&[&finish("stop")]).into_bytes()),
        1 => Just(body(&[&finish("length")]).into_bytes()),
        1 => Just(body(&[USAGE]).into_bytes()),
        1 => Just(b"data: [DONE]\n\n".to_vec()),
        1 => Just(b"{\"error\":{\"code\":502}}\n".to_vec()),
        1 => Just(b"data: {\"error\":\"x\"}\n\n".to_vec()),
        1 => Just(b": comment\n\n".to_vec()),
        1 => Just(b"data: text\r\n\r\n".to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn events_do_not_depend_on_how_bytes_are_split(
        input in stream(),
        cuts in proptest::collection::vec(0usize..2000, 0..8),
        think_tags: bool,
    ) {
        let options = ChatDecoderOptions { think_tags, ..options() };
        let whole = decode(options.clone(), &[&input]);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(input.len())).chain([0, input.len()]).collect();
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &input[pair[0]..pair[1]]).collect();
        prop_assert_eq!(decode(options, &pieces), whole);
    }

    #[test]
    fn every_reply_keeps_the_contract_of_a_stream(input in stream(), think_tags: bool) {
        let options = ChatDecoderOptions { think_tags, ..options() };
        let (events, error) = decode(options, &[&input]);
        check_contract(&events, error.is_none());
    }

    #[test]
    fn any_bytes_give_events_or_an_error(input in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (events, error) = decode(options(), &[&input]);
        check_contract(&events, error.is_none());
    }
}

/// STREAM-2 to STREAM-5 and STREAM-9, as far as they concern a decoder.
pub(crate) fn check_contract(events: &[ProviderEvent], complete: bool) {
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut blocks = 0;
    let mut started = false;
    for (at, event) in events.iter().enumerate() {
        match event {
            ProviderEvent::Start { .. } => {
                assert!(!started, "one start");
                started = true;
            }
            ProviderEvent::Block { index, event } => {
                assert!(started, "no block before the start");
                assert!(!event.is_empty_delta(), "no empty delta");
                check_block(*index, event, &mut open, &mut blocks);
            }
            ProviderEvent::Done { .. } => {
                assert_eq!(at + 1, events.len(), "nothing behind the end");
                assert!(open.is_empty(), "every block has ended");
            }
            ProviderEvent::Usage(_) | ProviderEvent::Warning { .. } | ProviderEvent::Note(_) => {}
            ProviderEvent::Meta(_) => panic!("a decoder knows no head"),
        }
    }
    assert_eq!(matches!(events.last(), Some(ProviderEvent::Done { .. })), complete, "one end");
}

fn check_block(index: usize, event: &BlockEvent, open: &mut Vec<(usize, String)>, blocks: &mut usize) {
    match event {
        BlockEvent::TextStart | BlockEvent::ThinkingStart | BlockEvent::ToolCallStart { .. } => {
            assert_eq!(index, *blocks, "indexes are positions");
            *blocks += 1;
            open.push((index, String::new()));
        }
        BlockEvent::TextDelta(text) | BlockEvent::ThinkingDelta(text) | BlockEvent::ToolCallDelta(text) => {
            open.iter_mut().find(|(at, _)| *at == index).expect("the block is open").1.push_str(text);
        }
        BlockEvent::TextEnd { content, .. } | BlockEvent::ThinkingEnd { content, .. } => {
            let at = open.iter().position(|(at, _)| *at == index).expect("the block is open");
            assert_eq!(open.remove(at).1, *content, "the deltas are the content");
        }
        BlockEvent::ToolCallEnd(_) => {
            let at = open.iter().position(|(at, _)| *at == index).expect("the block is open");
            open.remove(at);
        }
    }
}
