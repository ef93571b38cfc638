//! Events to JSON lines: the only place that knows a key of the stream (cli §5, loop §5.4).
//!
//! Keeps true: one object per line, `type` first, then `seq` without a gap and `ts` that never goes back (G3); no raw
//! line feed inside; an update carries its delta and never the whole message, so size stays linear (G7, loop §5.5);
//! each new event is a compile error here until its line is decided.
//!
//! Must not know: who reads, how lines are written.

use serde::Serialize;
use serde_json::Value;

use super::{ResultLine, SessionLine};
use crate::model::{BlockEvent, Content, Event, ToolCall, ToolResultView, Usage};

/// What a reader wants to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Every event.
    #[default]
    Events,
    /// No updates: whole messages and finished calls only.
    Messages,
    /// The `result` line only.
    Result,
}

/// Writes the lines of one stream.
#[derive(Clone, Debug)]
pub struct Encoder {
    level: Level,
    next_seq: u64,
    last_ts: u64,
}

impl Encoder {
    /// A stream without a line.
    pub fn new(level: Level) -> Self {
        Self { level, next_seq: 0, last_ts: 0 }
    }

    /// Appends the `session` line. `ts` is Unix milliseconds, here and below.
    pub fn session(&mut self, body: &SessionLine, ts: u64, out: &mut Vec<u8>) {
        if self.level != Level::Result {
            self.framed("session", body, ts, out);
        }
    }

    /// Appends the `result` line.
    pub fn result(&mut self, body: &ResultLine, ts: u64, out: &mut Vec<u8>) {
        self.framed("result", body, ts, out);
    }

    /// Appends the line of an event, unless the level leaves it out.
    pub fn event(&mut self, event: &Event, ts: u64, out: &mut Vec<u8>) {
        if !self.wants(event) {
            return;
        }
        let mut line = self.open(event.name(), ts, out);
        match event {
            Event::RunStart { run_id } => line.field("runId", run_id),
            Event::TurnStart { turn } => line.field("turn", turn),
            Event::MessageStart { message } => line.field("message", message),
            Event::MessageUpdate { index, event, usage } => update(&mut line, *index, event, usage.as_deref()),
            Event::MessageEnd { message } => {
                line.field("message", message);
                // Nothing is stored yet, so no message has an entry.
                line.field("entryId", &None::<&str>);
            }
            Event::ToolStart { tool_call_id, tool_name, args, effective_args } => {
                line.call(tool_call_id, tool_name);
                line.field("args", args);
                line.optional("effectiveArgs", effective_args.as_ref());
            }
            Event::ToolUpdate { tool_call_id, tool_name, partial } => {
                line.call(tool_call_id, tool_name);
                line.field("partialResult", &ResultView::from(&**partial));
            }
            Event::ToolEnd { tool_call_id, tool_name, result, is_error, duration_ms } => {
                line.call(tool_call_id, tool_name);
                line.field("result", &ResultView::from(&**result));
                line.field("isError", is_error);
                line.optional("terminate", result.terminate.then_some(&true));
                line.optional("durationMs", duration_ms.as_ref());
            }
            Event::TurnEnd { turn, message, tool_results } => {
                line.field("turn", turn);
                line.field("message", message);
                line.field("toolResults", tool_results);
            }
            Event::RunEnd { messages, outcome: _ } => line.field("messages", messages),
            Event::QueueUpdate { steering, follow_up } => {
                line.field("steering", steering);
                line.field("followUp", follow_up);
            }
            Event::Warning { code, message } => {
                line.field("code", code);
                line.field("message", message);
            }
            Event::Fault { error } => {
                line.field("code", error.kind.as_str());
                line.field("message", &error.message);
            }
        }
        line.end();
    }

    fn wants(&self, event: &Event) -> bool {
        match self.level {
            Level::Events => true,
            Level::Messages => !matches!(event, Event::MessageUpdate { .. } | Event::ToolUpdate { .. }),
            Level::Result => false,
        }
    }

    fn stamp(&mut self, ts: u64) -> (u64, u64) {
        let seq = self.next_seq;
        self.next_seq = self.next_seq.saturating_add(1);
        self.last_ts = self.last_ts.max(ts);
        (seq, self.last_ts)
    }

    fn open<'a>(&mut self, name: &str, ts: u64, out: &'a mut Vec<u8>) -> Line<'a> {
        let (seq, ts) = self.stamp(ts);
        out.extend_from_slice(b"{\"type\":");
        let mut line = Line { out };
        line.value(name);
        line.field("seq", &seq);
        line.field("ts", &ts);
        line
    }

    fn framed<T: Serialize>(&mut self, type_: &'static str, body: &T, ts: u64, out: &mut Vec<u8>) {
        let (seq, ts) = self.stamp(ts);
        let mut line = Line { out };
        line.value(&Framed { type_, seq, ts, body });
        line.out.push(b'\n');
    }
}

#[derive(Serialize)]
struct Framed<'a, T> {
    #[serde(rename = "type")]
    type_: &'static str,
    seq: u64,
    ts: u64,
    #[serde(flatten)]
    body: &'a T,
}

/// A line under construction: an object whose closing brace is still to come.
struct Line<'a> {
    out: &'a mut Vec<u8>,
}

impl Line<'_> {
    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.out.extend_from_slice(b",\"");
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.value(value);
    }

    fn optional<T: Serialize>(&mut self, name: &str, value: Option<&T>) {
        if let Some(value) = value {
            self.field(name, value);
        }
    }

    fn call(&mut self, id: &str, name: &str) {
        self.field("toolCallId", id);
        self.field("toolName", name);
    }

    /// Writes straight into the buffer. Serialising to memory fails only for maps whose keys are no text, which no
    /// type here has; should one appear, its value becomes null and the line stays one object.
    fn value<T: Serialize + ?Sized>(&mut self, value: &T) {
        let start = self.out.len();
        if serde_json::to_writer(&mut *self.out, value).is_err() {
            self.out.truncate(start);
            self.out.extend_from_slice(b"null");
        }
    }

    fn end(self) {
        self.out.extend_from_slice(b"}\n");
    }
}

fn update(line: &mut Line<'_>, index: usize, event: &BlockEvent, usage: Option<&Usage>) {
    let name = match event {
        BlockEvent::TextStart => "text_start",
        BlockEvent::TextDelta(_) => "text_delta",
        BlockEvent::TextEnd { .. } => "text_end",
        BlockEvent::ThinkingStart => "thinking_start",
        BlockEvent::ThinkingDelta(_) => "thinking_delta",
        BlockEvent::ThinkingEnd { .. } => "thinking_end",
        BlockEvent::ToolCallStart { .. } => "toolcall_start",
        BlockEvent::ToolCallDelta(_) => "toolcall_delta",
        BlockEvent::ToolCallEnd(_) => "toolcall_end",
    };
    line.out.extend_from_slice(b",\"assistantMessageEvent\":{\"type\":");
    line.value(name);
    line.field("contentIndex", &index);
    match event {
        BlockEvent::TextStart | BlockEvent::ThinkingStart => {}
        BlockEvent::TextDelta(delta) | BlockEvent::ThinkingDelta(delta) | BlockEvent::ToolCallDelta(delta) => {
            line.field("delta", delta);
        }
        // Signatures stay in the message.
        BlockEvent::TextEnd { content, signature: _ }
        | BlockEvent::ThinkingEnd { content, signature: _, redacted: _ } => {
            line.field("content", content);
        }
        BlockEvent::ToolCallStart { id, name } => {
            line.field("id", id);
            line.field("toolName", name);
        }
        BlockEvent::ToolCallEnd(call) => line.field("toolCall", &CallBlock { type_: "toolCall", call }),
    }
    line.out.push(b'}');
    line.optional("usage", usage);
}

#[derive(Serialize)]
struct CallBlock<'a> {
    #[serde(rename = "type")]
    type_: &'static str,
    #[serde(flatten)]
    call: &'a ToolCall,
}

/// A tool's result as lines show it; `terminate` stands beside it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultView<'a> {
    content: &'a [Content],
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<&'a Value>,
}

impl<'a> From<&'a ToolResultView> for ResultView<'a> {
    fn from(view: &'a ToolResultView) -> Self {
        Self {
            content: &view.content,
            details: view.details.as_ref(),
            usage: view.usage.as_ref(),
            structured_content: view.structured.as_ref(),
        }
    }
}
