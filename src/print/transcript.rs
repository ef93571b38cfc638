//! A stored conversation as text for people.
//!
//! Keeps true: nothing in it obeys a terminal's controls, and a secret is masked before anything is cut; prompts and
//! replies are whole, results of tools are cut; what failed or was aborted says so.
//!
//! Must not know: where sessions are kept, which entries are shown.

use serde_json::{Map, Value};

use super::format::{count, dollars, plural};
use super::{clean, line, rfc3339};
use crate::model::{
    AssistantBlock, AssistantMessage, Content, Entry, EntryBody, Message, StopReason, ToolCall, ToolResultMessage,
    Usage, UserContent, short_id,
};

/// Lines of a tool's result, or of an entry that is not shown by its meaning.
const RESULT_LINES_MAX: usize = 20;
/// Characters of one such line.
const LINE_CHARS_MAX: usize = 500;
/// Characters of a call's arguments.
const ARGUMENTS_CHARS_MAX: usize = 500;
/// Characters of a word in a heading.
const WORD_CHARS_MAX: usize = 200;
/// What a moment shows of its RFC 3339 form: day, hour and minute.
const MINUTE_CHARS: usize = 16;

/// Replaces secrets in a text.
pub type Mask<'a> = &'a dyn Fn(&str) -> String;

/// What a session's first line tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranscriptHead {
    pub id: String,
    pub name: Option<String>,
    pub cwd: String,
    /// Milliseconds since 1970.
    pub updated_at: u64,
    pub model: Option<String>,
}

/// Makes the text of a conversation, part by part. Each method appends to a buffer.
pub struct Transcript<'a> {
    mask: Mask<'a>,
    replies: u64,
}

impl std::fmt::Debug for Transcript<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transcript").field("replies", &self.replies).finish_non_exhaustive()
    }
}

/// Unix milliseconds as `2026-11-30 15:42`, in UTC.
pub fn minute(unix_ms: u64) -> String {
    rfc3339(unix_ms).chars().take(MINUTE_CHARS).map(|c| if c == 'T' { ' ' } else { c }).collect()
}

impl<'a> Transcript<'a> {
    /// Nothing shown yet.
    pub fn new(mask: Mask<'a>) -> Self {
        Self { mask, replies: 0 }
    }

    /// Says which session it is, in one line.
    pub fn head(&self, head: &TranscriptHead, out: &mut String) {
        let mut words = vec![format!("session {}", short_id(&head.id))];
        words.extend(head.name.as_deref().map(|name| self.words(name)));
        words.push(self.words(&head.cwd));
        words.push(format!("{} UTC", minute(head.updated_at)));
        words.extend(head.model.as_deref().map(|model| self.words(model)));
        out.push_str(&words.join("  "));
        out.push('\n');
    }

    /// Shows an entry.
    pub fn entry(&mut self, entry: &Entry, out: &mut String) {
        let (role, mark, body) = match &entry.body {
            EntryBody::Message { message, terminate: _ } => self.message(message),
            // Kept by an application for itself.
            EntryBody::Custom { .. } => return,
            EntryBody::Other(fields) => self.other(fields),
        };
        let mut head = format!("\n[{role}] {} {}", minute(entry.timestamp), short_id(entry.id.as_str()));
        if !mark.is_empty() {
            head.push_str("  ");
            head.push_str(&mark);
        }
        push_lines(out, &head);
        if !body.is_empty() {
            push_lines(out, &body);
        }
    }

    /// Sums up, after the last entry.
    pub fn usage(&self, usage: &Usage, out: &mut String) {
        let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        let about = if usage.estimated == Some(true) { "~" } else { "" };
        let mut parts = vec![match self.replies {
            1 => "1 reply".to_owned(),
            replies => format!("{replies} replies"),
        }];
        parts.push(format!("{about}{} in / {about}{} out", count(input), count(usage.output)));
        if usage.cost.total > 0.0 {
            parts.push(dollars(usage.cost.total));
        }
        push_lines(out, &format!("\nusage: {}", parts.join(", ")));
    }

    /// Role, mark and body of a message.
    fn message(&mut self, message: &Message) -> (String, String, String) {
        match message {
            Message::User(user) => {
                let body = match &user.content {
                    UserContent::Text(text) => self.text(text),
                    UserContent::Blocks(blocks) => self.text(&joined(blocks)),
                };
                ("user".to_owned(), String::new(), body)
            }
            Message::Assistant(reply) => {
                self.replies = self.replies.saturating_add(1);
                ("assistant".to_owned(), self.reply_mark(reply), self.reply(reply))
            }
            Message::ToolResult(result) => self.result(result),
            Message::Custom(custom) => {
                let body = Self::cut(&self.json(&custom.0));
                (self.words(custom.role()), String::new(), body)
            }
        }
    }

    /// How a reply ended, where that is not the natural end.
    fn reply_mark(&self, reply: &AssistantMessage) -> String {
        match reply.stop_reason {
            StopReason::Stop | StopReason::ToolUse => String::new(),
            StopReason::Length => "cut off by the output limit".to_owned(),
            StopReason::Aborted => "aborted".to_owned(),
            StopReason::Deferred => "the provider answers later".to_owned(),
            StopReason::Pending => "unfinished".to_owned(),
            StopReason::Error => {
                let kind = reply.error.as_ref().map(|error| format!(" ({})", error.kind.as_str()));
                let text = reply.error_message.as_deref().or(reply.error.as_ref().map(|error| error.message.as_str()));
                let text = text.map(|text| format!(": {}", line(&self.text(text), LINE_CHARS_MAX)));
                format!("failed{}{}", kind.unwrap_or_default(), text.unwrap_or_default())
            }
        }
    }

    fn reply(&self, reply: &AssistantMessage) -> String {
        let mut body = String::new();
        for block in &reply.content {
            match block {
                AssistantBlock::Text(block) => push_lines(&mut body, &self.text(&block.text)),
                AssistantBlock::ToolCall(call) => push_lines(&mut body, &self.call(call)),
                AssistantBlock::Other(fields) => push_lines(&mut body, &self.block_mark(fields)),
                // What a model thought is not what it said.
                AssistantBlock::Thinking(_) => {}
            }
        }
        body
    }

    fn call(&self, call: &ToolCall) -> String {
        let arguments = match &call.arguments_error {
            Some(error) => self.text(&error.raw),
            None => self.json(&call.arguments),
        };
        format!("-> {} {}", self.words(&call.name), line(&arguments, ARGUMENTS_CHARS_MAX))
    }

    fn result(&self, result: &ToolResultMessage) -> (String, String, String) {
        let role = format!("tool {}", self.words(&result.tool_name));
        let mark = if result.is_error { "failed" } else { "" };
        (role, mark.to_owned(), Self::cut(&self.text(&joined(&result.content))))
    }

    /// An entry of a type without a meaning here; a summary is shown as one.
    fn other(&self, fields: &Map<String, Value>) -> (String, String, String) {
        let word = fields.get("type").and_then(Value::as_str).unwrap_or("entry");
        let body = match fields.get("summary").and_then(Value::as_str) {
            Some(summary) => self.text(summary),
            None => Self::cut(&self.json(fields)),
        };
        (self.words(word), String::new(), body)
    }

    fn block_mark(&self, fields: &Map<String, Value>) -> String {
        let word = fields.get("type").and_then(Value::as_str).unwrap_or("unknown");
        format!("[{} block]", self.words(word))
    }

    /// Harmless text without secrets. It is cleaned first, or a control sequence inside of one would hide it.
    fn text(&self, text: &str) -> String {
        (self.mask)(&clean(text))
    }

    fn words(&self, text: &str) -> String {
        line(&self.text(text), WORD_CHARS_MAX)
    }

    /// JSON without secrets in any of its texts.
    fn json(&self, fields: &Map<String, Value>) -> String {
        let masked = mask_fields(fields, self.mask);
        self.text(&Value::Object(masked).to_string())
    }

    /// The first lines of a text.
    fn cut(text: &str) -> String {
        let mut lines = text.lines();
        let mut body = String::new();
        for text in lines.by_ref().take(RESULT_LINES_MAX) {
            match text.char_indices().nth(LINE_CHARS_MAX) {
                Some((at, _)) => push_lines(&mut body, &format!("{}…", text.get(..at).unwrap_or_default())),
                None => push_lines(&mut body, text),
            }
        }
        let more = u64::try_from(lines.count()).unwrap_or(u64::MAX);
        if more > 0 {
            push_lines(&mut body, &format!("({} more)", plural(more, "line")));
        }
        body
    }
}

fn push_lines(body: &mut String, text: &str) {
    body.push_str(text);
    if !text.ends_with('\n') {
        body.push('\n');
    }
}

/// All blocks as text.
fn joined(blocks: &[Content]) -> String {
    let texts = blocks.iter().map(|block| match block {
        Content::Text(block) => block.text.clone(),
        Content::Image(block) => format!("[image {}]", block.mime_type),
        Content::Other(_) => "[block of an unknown type]".to_owned(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The same JSON with secrets masked in every text and key.
pub fn mask_json(value: &Value, mask: Mask<'_>) -> Value {
    match value {
        Value::String(text) => Value::String(mask(text)),
        Value::Array(items) => items.iter().map(|item| mask_json(item, mask)).collect(),
        Value::Object(fields) => Value::Object(mask_fields(fields, mask)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn mask_fields(fields: &Map<String, Value>, mask: Mask<'_>) -> Map<String, Value> {
    fields.iter().map(|(key, value)| (mask(key), mask_json(value, mask))).collect()
}

#[cfg(test)]
mod tests;
