//! Walks over whole session files: how many messages there are, and whether a text is in one of them.
//!
//! Keeps true: one line is held at a time; counting makes no values of what messages hold; nothing is written or locked.
//!
//! Must not know: the tree; every message counts, whichever branch it is on.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Seek as _};

use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::{AssistantBlock, Content, EntryBody, Message, UserContent};
use crate::session::jsonl::line::{LINE_BYTES_MAX, decode};
use crate::session::record::{self, Change};

/// A longer file is not read to count its messages.
const COUNT_BYTES_MAX: u64 = 4 << 20;

/// What counting found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Entries that are messages, before any damage; `None` in a file too long to count.
    pub messages: Option<u64>,
    /// The first line that is damaged: not whole, with a whole one behind it.
    pub damaged_line: Option<u64>,
}

/// Counts the messages of a file of up to 4 MiB.
///
/// # Errors
/// The system refuses to read.
pub(super) fn count(file: &File) -> io::Result<Counted> {
    if file.metadata()?.len() > COUNT_BYTES_MAX {
        return Ok(Counted::default());
    }
    let mut messages = 0_u64;
    let mut bad = None;
    let mut damaged_line = None;
    lines(file, |number, line| {
        let Ok(line) = decode(line) else {
            bad = bad.or(Some(number));
            return true;
        };
        damaged_line = bad;
        if bad.is_none() {
            let count = line.writes.iter().filter(|write| is_message(write)).count();
            messages = messages.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        }
        damaged_line.is_none()
    })?;
    Ok(Counted { messages: Some(messages), damaged_line })
}

fn is_message(write: &RawValue) -> bool {
    let head = record::head(write.get());
    head.is_ok_and(|head| matches!(head.change, Change::Entry { entry_type, .. } if entry_type == "message"))
}

/// Whether a text, given in lower case, is in what users, models and tools said. Case does not count.
///
/// # Errors
/// The system refuses to read.
pub(super) fn says(file: &File, lower: &str) -> io::Result<bool> {
    let mut found = false;
    lines(file, |_, line| {
        let Ok(line) = decode(line) else { return true };
        found = line.writes.iter().any(|write| match record::entry(write.get(), 0).map(|entry| entry.body) {
            Ok(EntryBody::Message { message, .. }) => message_says(&message, lower),
            Ok(EntryBody::Custom { .. } | EntryBody::Other(_)) | Err(_) => false,
        });
        !found
    })?;
    Ok(found)
}

fn message_says(message: &Message, lower: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(lower);
    let in_blocks = |blocks: &[Content]| blocks.iter().filter_map(Content::as_text).any(has);
    match message {
        Message::User(user) => match &user.content {
            UserContent::Text(text) => has(text),
            UserContent::Blocks(blocks) => in_blocks(blocks),
        },
        Message::Assistant(reply) => reply.content.iter().any(|block| match block {
            AssistantBlock::Text(block) => has(&block.text),
            AssistantBlock::ToolCall(call) => {
                has(&call.name) || call.arguments.values().any(|value| value_says(value, &has))
            }
            AssistantBlock::Thinking(_) | AssistantBlock::Other(_) => false,
        }),
        Message::ToolResult(result) => in_blocks(&result.content),
        Message::Custom(_) => false,
    }
}

fn value_says(value: &Value, has: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => has(text),
        Value::Array(items) => items.iter().any(|item| value_says(item, has)),
        Value::Object(fields) => fields.values().any(|field| value_says(field, has)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Goes through the lines behind the header, given without their line feeds, until the walk is told to stop. A line
/// that is too long comes in pieces, none of which is whole.
fn lines(file: &File, mut each: impl FnMut(u64, &[u8]) -> bool) -> io::Result<()> {
    let mut file = file;
    file.rewind()?;
    let mut reader = BufReader::new(file);
    let limit = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let mut line = Vec::new();
    let mut number = 0_u64;
    loop {
        line.clear();
        if reader.by_ref().take(limit).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        number = number.saturating_add(1);
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        if number > 1 && !each(number, text) {
            return Ok(());
        }
    }
}
