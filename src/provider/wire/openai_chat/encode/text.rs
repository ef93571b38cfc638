//! Text written straight into JSON, and its length.
//!
//! Keeps true: no text is joined or copied in memory before it is written; no U+0000 is written (T-14).
//!
//! Must not know: what the text is.

use std::sync::Arc;
use std::{fmt, io};

use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;
use serde_json::{Map, Value};

use crate::model::{AssistantBlock, Content, Message, UserContent, plain_len};
use crate::port::LlmRequest;

/// Several servers refuse U+0000 (T-14).
const NUL: char = '\0';
const REPLACEMENT: &str = "\u{FFFD}";

/// The form of a body: without spaces. Bytes are a text, and written as one without U+0000: in runs, where the usual way
/// looks at each byte. Nothing else in a body is bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyFormat;

impl Formatter for BodyFormat {
    fn write_byte_array<W: ?Sized + io::Write>(&mut self, writer: &mut W, text: &[u8]) -> io::Result<()> {
        writer.write_all(b"\"")?;
        let mut rest = text;
        loop {
            let (plain, behind) = rest.split_at_checked(plain_len(rest)).unwrap_or((rest, &[]));
            writer.write_all(plain)?;
            let Some((byte, behind)) = behind.split_first() else { break };
            match byte {
                0 => writer.write_all(REPLACEMENT.as_bytes())?,
                b'"' => writer.write_all(b"\\\"")?,
                b'\\' => writer.write_all(b"\\\\")?,
                b'\n' => writer.write_all(b"\\n")?,
                b'\t' => writer.write_all(b"\\t")?,
                b'\r' => writer.write_all(b"\\r")?,
                0x08 => writer.write_all(b"\\b")?,
                0x0C => writer.write_all(b"\\f")?,
                control => write!(writer, "\\u{control:04x}")?,
            }
            rest = behind;
        }
        writer.write_all(b"\"")
    }
}

/// One text without U+0000.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clean<'a>(pub &'a str);

impl fmt::Display for Clean<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some((head, tail)) = rest.split_once(NUL) {
            f.write_str(head)?;
            f.write_str(REPLACEMENT)?;
            rest = tail;
        }
        f.write_str(rest)
    }
}

impl Serialize for Clean<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0.as_bytes())
    }
}

/// The id of a call, made for the request, without U+0000.
#[derive(Clone, Debug)]
pub(super) struct CleanId(pub String);

impl Serialize for CleanId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Clean(&self.0).serialize(serializer)
    }
}

/// Several texts written as one string, without joining them in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Joined<'a> {
    pub parts: Vec<&'a str>,
    pub separator: &'static str,
}

impl<'a> Joined<'a> {
    pub(super) fn one(text: &'a str) -> Self {
        Self { parts: vec![text], separator: "" }
    }

    /// Whether there is nothing but white space.
    pub(super) fn is_blank(&self) -> bool {
        self.parts.iter().all(|part| part.trim().is_empty())
    }

    /// Drops white space at the end.
    pub(super) fn trim_end(&mut self) {
        while let Some(last) = self.parts.last_mut() {
            *last = last.trim_end();
            if !last.is_empty() {
                break;
            }
            self.parts.pop();
        }
    }
}

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.parts.iter().enumerate() {
            if at > 0 {
                f.write_str(self.separator)?;
            }
            Clean(part).fmt(f)?;
        }
        Ok(())
    }
}

impl Serialize for Joined<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.parts.as_slice() {
            [one] => Clean(one).serialize(serializer),
            _ => serializer.collect_str(self),
        }
    }
}

/// An image as a data URL, written from the stored text (PERF-7).
#[derive(Clone, Copy, Debug)]
pub(super) struct DataUrl<'a> {
    pub mime_type: &'a str,
    pub data: &'a str,
}

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("data:{};base64,{}", Clean(self.mime_type), Clean(self.data)))
    }
}

/// Arguments of a call: JSON text inside a JSON string, keys in stored order (T-13).
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments<'a>(pub &'a Map<String, Value>);

impl Serialize for Arguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(self.0).map_err(serde::ser::Error::custom)?;
        // JSON writes U+0000 only in this form; an escaped backslash before `u0000` costs a harmless second writing.
        if !text.contains("\\u0000") {
            return serializer.serialize_str(&text);
        }
        let cleaned = Value::Object(self.0.iter().map(|(key, value)| (cleaned(key), cleaned_value(value))).collect());
        serializer.serialize_str(&cleaned.to_string())
    }
}

fn cleaned(text: &str) -> String {
    Clean(text).to_string()
}

/// Recursion is as deep as the parser that read the arguments allowed (128).
fn cleaned_value(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(cleaned(text)),
        Value::Array(items) => Value::Array(items.iter().map(cleaned_value).collect()),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, value)| (cleaned(key), cleaned_value(value))).collect())
        }
        other => other.clone(),
    }
}

/// Characters of the text a request carries. They are counted when they are asked for: that reads a long conversation
/// once more, and servers report usage.
#[derive(Clone, Debug)]
pub enum RequestChars {
    Known(u64),
    Of(Arc<LlmRequest>),
}

impl RequestChars {
    pub(in crate::provider::wire) fn count(&self) -> u64 {
        match self {
            Self::Known(chars) => *chars,
            Self::Of(request) => request_chars(request),
        }
    }
}

/// Characters of the text a request carries: prompt, messages, calls, tools. For estimated usage: a quarter of it are
/// the input tokens (OC-17). Images count nothing.
pub fn request_chars(request: &LlmRequest) -> u64 {
    let messages: u64 = request.messages.iter().map(|message| message_chars(message)).sum();
    let tools: u64 = request
        .tools
        .iter()
        .map(|tool| count(&tool.name) + count(&tool.description) + json_chars(&tool.input_schema))
        .sum();
    count(&request.system_prompt) + messages + tools
}

fn message_chars(message: &Message) -> u64 {
    match message {
        Message::User(user) => match &user.content {
            UserContent::Text(text) => count(text),
            UserContent::Blocks(blocks) => content_chars(blocks),
        },
        Message::Assistant(reply) => reply.content.iter().map(block_chars).sum(),
        Message::ToolResult(result) => content_chars(&result.content),
        Message::Custom(_) => 0,
    }
}

fn content_chars(blocks: &[Content]) -> u64 {
    blocks.iter().filter_map(Content::as_text).map(count).sum()
}

fn block_chars(block: &AssistantBlock) -> u64 {
    match block {
        AssistantBlock::Text(block) => count(&block.text),
        AssistantBlock::Thinking(block) => count(&block.thinking),
        AssistantBlock::ToolCall(call) => count(&call.name) + json_chars(&call.arguments),
        AssistantBlock::Other(_) => 0,
    }
}

fn count(text: &str) -> u64 {
    u64::try_from(text.chars().count()).unwrap_or(u64::MAX)
}

/// Characters of a value as JSON text, without keeping the text.
fn json_chars<T: Serialize>(value: &T) -> u64 {
    struct Counter(u64);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            // Every character has exactly one byte that does not continue another.
            let chars = bytes.iter().filter(|byte| (**byte & 0xC0) != 0x80).count();
            self.0 = self.0.saturating_add(u64::try_from(chars).unwrap_or(u64::MAX));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // A value that cannot be written counts as far as it came; writing the body reports it.
    match serde_json::to_writer(&mut counter, value) {
        Ok(()) | Err(_) => counter.0,
    }
}
