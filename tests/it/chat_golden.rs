//! What real servers answered, decoded: every `chat_*.http` under `tests/captures` against its text in
//! `tests/captures/golden`. The bodies are already de-chunked; an empty file is a connection that closed before any
//! byte. The model asked for is the one the capture names.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use pirn::model::{AssistantHead, AssistantMessage, ErrorRecord, MessageBuilder};
use pirn::port::ProviderEvent;
use pirn::provider::wire::openai_chat::ChatDecoderOptions;
use pirn::provider::wire::openai_chat::encode::RequestChars;

use crate::chat_decode::contract::check_contract;
use crate::chat_decode::{decode, show};

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures")
}

/// Every capture of this protocol: the name of its golden file, and its bytes.
fn all() -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for server in fs::read_dir(captures()).unwrap().map(|entry| entry.unwrap().path()) {
        for file in fs::read_dir(&server).unwrap().map(|entry| entry.unwrap().path()) {
            let name = file.file_name().unwrap().to_str().unwrap();
            if let Some(name) = name.strip_suffix(".http").filter(|name| name.starts_with("chat_")) {
                let server = server.file_name().unwrap().to_str().unwrap();
                found.push((format!("{server}-{name}.txt"), fs::read(&file).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// The bytes behind the head.
fn body(capture: &[u8]) -> &[u8] {
    let ends: [&[u8]; 2] = [b"\r\n\r\n", b"\n\n"];
    let mut places = ends.iter().filter_map(|end| {
        let at = capture.windows(end.len()).position(|window| window == *end)?;
        Some(at + end.len())
    });
    &capture[places.next().unwrap_or(capture.len())..]
}

fn model(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let model = text.split_once("\"model\":\"").and_then(|(_, rest)| rest.split_once('"'));
    model.map_or_else(|| "m".to_owned(), |(model, _)| model.to_owned())
}

fn message(model: &str, events: &[ProviderEvent], error: Option<&ErrorRecord>) -> AssistantMessage {
    let head = AssistantHead {
        api: "openai-completions".to_owned(),
        provider: "test".to_owned(),
        model: model.to_owned(),
        timestamp: 0,
    };
    let mut builder = MessageBuilder::new(&head);
    for event in events {
        match event {
            ProviderEvent::Start { response_id, response_model } => {
                builder.identity(response_id.clone(), response_model.clone());
            }
            ProviderEvent::Block { index, event } => assert!(builder.apply(*index, event.clone()).is_some()),
            ProviderEvent::Usage(usage) => builder.usage((**usage).clone()),
            ProviderEvent::Warning { code, message } => builder.diagnostic(code, message),
            ProviderEvent::Note(note) => builder.diagnostic(&note.code, &note.message),
            ProviderEvent::Meta(_) => {}
            ProviderEvent::Done { stop_reason, raw_stop_reason, overflow } => {
                return builder.finish(*stop_reason, raw_stop_reason.clone(), *overflow);
            }
        }
    }
    builder.fail(error.unwrap().clone())
}

#[test]
fn every_capture_decodes_to_its_golden_text() {
    let captures = all();
    assert_eq!(captures.len(), 20, "the captures are all there");
    for (name, capture) in captures {
        let body = body(&capture);
        let model = model(body);
        let options =
            ChatDecoderOptions { request_chars: RequestChars::Known(40), ..ChatDecoderOptions::new("test", &model) };
        let (events, error) = decode(options.clone(), &[body]);
        check_contract(&events, error.is_none());
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(decode(options, &bytes), (events.clone(), error.clone()), "{name}, byte by byte");
        let mut text = show(&events, error.as_ref()).join("\n");
        let message = serde_json::to_string_pretty(&message(&model, &events, error.as_ref())).unwrap();
        write!(text, "\n\n{message}\n").unwrap();
        let golden = fs::read_to_string(self::captures().join("golden").join(&name)).unwrap_or_default();
        assert_eq!(golden, text, "{name} should read:\n{text}");
    }
}
