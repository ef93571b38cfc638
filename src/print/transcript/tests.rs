use std::sync::Arc;

use serde_json::{Value, json};

use super::{Transcript, TranscriptHead, mask_json, minute};
use crate::model::{Entry, EntryBody, EntryId, Message, Usage};

fn entry(message: &Value) -> Entry {
    let message: Message = serde_json::from_value(message.clone()).unwrap();
    let body = EntryBody::Message { message: Arc::new(message), terminate: false };
    Entry { id: EntryId::new("0199-00aabbcc"), parent_id: None, seq: 1, timestamp: 1_796_046_701_090, body }
}

fn mask(text: &str) -> String {
    text.replace("sk-secret", "[masked]")
}

fn shown(message: &Value) -> String {
    let mut out = String::new();
    Transcript::new(&mask).entry(&entry(message), &mut out);
    out.strip_prefix('\n').unwrap().to_owned()
}

#[test]
fn messages_show_role_calls_results_and_how_a_reply_ended() {
    let reply = |extra: Value| {
        let mut message =
            json!({"role": "assistant", "stopReason": "stop", "content": [{"type": "text", "text": "Yes."}]});
        message.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        message
    };
    let result = |error: bool| json!({"role": "toolResult", "toolCallId": "c", "toolName": "read", "isError": error, "content": [{"type": "text", "text": "a\nb"}]});
    let head = "2026-11-30 13:51 00aabbcc";
    for (message, expected) in [
        (json!({"role": "user", "content": "Hi\nthere"}), format!("[user] {head}\nHi\nthere\n")),
        (
            json!({"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}]}),
            format!("[user] {head}\nSee\n[image image/png]\n"),
        ),
        (reply(json!({})), format!("[assistant] {head}\nYes.\n")),
        (reply(json!({"stopReason": "length"})), format!("[assistant] {head}  cut off by the output limit\nYes.\n")),
        (reply(json!({"stopReason": "aborted"})), format!("[assistant] {head}  aborted\nYes.\n")),
        (
            reply(
                json!({"stopReason": "error", "content": [], "errorMessage": "no\nroom", "error": {"kind": "server", "message": "no\nroom", "retryable": true}}),
            ),
            format!("[assistant] {head}  failed (server): no room\n"),
        ),
        (
            reply(
                json!({"stopReason": "toolUse", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "a b"}}]}),
            ),
            format!("[assistant] {head}\n-> read {{\"path\":\"a b\"}}\n"),
        ),
        (result(false), format!("[tool read] {head}\na\nb\n")),
        (result(true), format!("[tool read] {head}  failed\na\nb\n")),
        (json!({"role": "note", "x": 1}), format!("[note] {head}\n{{\"role\":\"note\",\"x\":1}}\n")),
    ] {
        assert_eq!(shown(&message), expected);
    }
}

#[test]
fn results_are_cut_and_prompts_and_replies_are_not() {
    let long = (0..100).map(|n| format!("line {n}\n")).collect::<Vec<_>>().concat();
    let result = shown(&json!({"role": "toolResult", "toolName": "read", "content": [{"type": "text", "text": long}]}));
    assert!(result.ends_with("line 19\n(80 lines more)\n"), "{result}");
    let wide = shown(
        &json!({"role": "toolResult", "toolName": "read", "content": [{"type": "text", "text": "é".repeat(600)}]}),
    );
    assert!(wide.ends_with(&format!("\n{}…\n", "é".repeat(500))), "{wide}");
    for role in ["user", "assistant"] {
        let whole = shown(&json!({"role": role, "stopReason": "stop", "content": [{"type": "text", "text": long}]}));
        assert!(whole.ends_with("line 99\n"), "{role}");
    }
}

#[test]
fn nothing_reaches_a_terminal_that_it_would_obey_and_no_secret_is_shown() {
    let foul = "a\u{1b}[2Jb\u{9b}31m\r\u{7}\u{1b}]0;title\u{7}";
    for message in [
        json!({"role": "user", "content": foul}),
        json!({"role": "assistant", "stopReason": "error", "content": [{"type": "text", "text": foul}, {"type": "toolCall", "id": "c", "name": foul, "arguments": {"k": foul}}], "errorMessage": foul}),
        json!({"role": "toolResult", "toolName": foul, "content": [{"type": "text", "text": foul}]}),
        json!({"role": foul}),
    ] {
        let text = shown(&message);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
    let head = TranscriptHead {
        name: Some(foul.into()),
        cwd: foul.into(),
        model: Some(foul.into()),
        ..TranscriptHead::default()
    };
    let mut out = String::new();
    Transcript::new(&mask).head(&head, &mut out);
    assert!(!out.chars().any(|c| c.is_control() && c != '\n'), "{out:?}");
    // A control sequence in the middle does not hide a secret, and a cut does not leave a part of one.
    let secret = "sk-\u{1b}[0msecret";
    let padded = format!("{}{secret}", "x".repeat(497));
    for message in [
        json!({"role": "user", "content": secret}),
        json!({"role": "toolResult", "toolName": "read", "content": [{"type": "text", "text": padded}]}),
        json!({"role": "assistant", "stopReason": "stop", "content": [{"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": padded, "sk-secret": 1}}]}),
    ] {
        let text = shown(&message);
        assert!(!text.contains("sk-"), "{text}");
    }
    let masked = mask_json(&json!({"a": ["sk-secret", {"sk-secret": 1}], "b": 1.5, "c": null}), &mask);
    assert_eq!(masked, json!({"a": ["[masked]", {"[masked]": 1}], "b": 1.5, "c": null}));
}

#[test]
fn the_first_line_says_which_session_and_the_last_one_what_it_took() {
    let head = TranscriptHead {
        id: "0199a1b2-c3d4-7e5f-8a6b-0c1d2e3f4a5b".into(),
        name: Some("pr-12".into()),
        cwd: "/home/me".into(),
        updated_at: 1_796_046_701_090,
        model: Some("openai/gpt-5".into()),
    };
    let mut transcript = Transcript::new(&mask);
    let mut out = String::new();
    transcript.head(&head, &mut out);
    assert_eq!(out, "session 2e3f4a5b  pr-12  /home/me  2026-11-30 13:51 UTC  openai/gpt-5\n");
    transcript.entry(&entry(&json!({"role": "assistant", "stopReason": "stop", "content": []})), &mut String::new());
    let mut usage = Usage { input: 12_000, cache_read: 400, output: 900, ..Usage::default() };
    for (cost, expected) in [(0.031, "1 reply, 12.4k in / 900 out, $0.031"), (0.0, "1 reply, 12.4k in / 900 out")] {
        usage.cost.total = cost;
        out.clear();
        transcript.usage(&usage, &mut out);
        assert_eq!(out, format!("\nusage: {expected}\n"));
    }
    assert_eq!(minute(0), "1970-01-01 00:00");
}

#[test]
fn a_summary_is_shown_and_what_an_application_keeps_is_not() {
    let of = |body: EntryBody| {
        let mut out = String::new();
        let entry = Entry { body, ..entry(&json!({"role": "user", "content": ""})) };
        Transcript::new(&mask).entry(&entry, &mut out);
        out
    };
    let fields = json!({"type": "compaction", "summary": "What was said.", "tokensBefore": 5});
    let summary = of(EntryBody::Other(fields.as_object().unwrap().clone()));
    assert_eq!(summary, "\n[compaction] 2026-11-30 13:51 00aabbcc\nWhat was said.\n");
    assert_eq!(of(EntryBody::Custom { custom_type: "x".into(), data: None }), "");
}
