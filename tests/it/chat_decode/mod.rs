//! Chat Completions, stream to events: cases 11, 39 to 69 and 140 to 142 of `tests/cases/providers.md`, the rules OC-4
//! to OC-17, and the NET and MSG reports that concern this protocol. Every body is read whole, byte by byte, and cut in two at every place.
//!
//! Notation as in the cases: `start`, `ts0` text start at index 0, `td0"x"` delta, `te0"x"` end; `hs hd he` thinking,
//! with its signature behind `~`; `cs cd ce` tool call; `U=input/output/cacheRead/cacheWrite`; `done(reason)`;
//! `error(kind,retry)`.

mod calls;
mod content;
pub(crate) mod contract;
mod endings;
mod errors;
mod properties;

use std::fmt::Write as _;

use pirn::model::{BlockEvent, ErrorRecord, ToolCall, Usage};
use pirn::port::ProviderEvent;
use pirn::provider::wire::Decoder;
use pirn::provider::wire::openai_chat::{ChatDecoder, ChatDecoderOptions};

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
