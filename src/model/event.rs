//! The events of a run, in memory.
//!
//! Keeps true: [`Event`] is the only event type inside the program and derives no serde, so a change of the stream's
//! form is a decision in `print::jsonl`; cloning an event copies no message.
//!
//! Must not know: keys of JSON lines, readers.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Content, EntryId, ErrorRecord, Message, RunId, RunOutcome, ToolCall, Usage};

/// One step of one content block. Blocks may overlap: readers key on the index, never on "the current block".
#[derive(Clone, Debug, PartialEq)]
pub enum BlockEvent {
    TextStart,
    TextDelta(String),
    /// `content` is authoritative over the deltas.
    TextEnd {
        content: String,
        signature: Option<String>,
    },
    ThinkingStart,
    ThinkingDelta(String),
    ThinkingEnd {
        content: String,
        signature: Option<String>,
        redacted: bool,
    },
    ToolCallStart {
        id: String,
        name: String,
    },
    /// Raw JSON text.
    ToolCallDelta(String),
    ToolCallEnd(Box<ToolCall>),
}

impl BlockEvent {
    /// Whether it carries a delta without text, which is never passed on.
    pub fn is_empty_delta(&self) -> bool {
        match self {
            Self::TextDelta(text) | Self::ThinkingDelta(text) | Self::ToolCallDelta(text) => text.is_empty(),
            Self::TextStart
            | Self::TextEnd { .. }
            | Self::ThinkingStart
            | Self::ThinkingEnd { .. }
            | Self::ToolCallStart { .. }
            | Self::ToolCallEnd(_) => false,
        }
    }

    /// Appends the delta of a neighbour of the same block, if both are deltas of one kind and the joined one stays
    /// within [`MERGED_BYTES_MAX`]; returns whether it did. Concatenation is unchanged, and readers must not rely on
    /// the borders of deltas.
    pub fn absorb(&mut self, next: &Self) -> bool {
        let ((Self::TextDelta(_), Self::TextDelta(more))
        | (Self::ThinkingDelta(_), Self::ThinkingDelta(more))
        | (Self::ToolCallDelta(_), Self::ToolCallDelta(more))) = (&*self, next)
        else {
            return false;
        };
        self.append(more)
    }

    /// The same with the text of a further delta of this block.
    pub fn append(&mut self, more: &str) -> bool {
        let (Self::TextDelta(text) | Self::ThinkingDelta(text) | Self::ToolCallDelta(text)) = self else {
            return false;
        };
        if text.len().saturating_add(more.len()) > MERGED_BYTES_MAX {
            return false;
        }
        text.push_str(more);
        true
    }
}

/// Bytes of a joined delta; a longer one would make the reader wait for what it could already have.
pub const MERGED_BYTES_MAX: usize = 8 * 1024;

/// What a tool gave, as events show it; unlike the result message it includes `terminate`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolResultView {
    pub content: Vec<Content>,
    pub details: Option<Value>,
    pub structured: Option<Value>,
    pub usage: Option<Usage>,
    pub terminate: bool,
}

/// The only event type inside the program; `print` turns it into lines. Owned, cheap to clone.
#[derive(Clone, Debug)]
pub enum Event {
    /// The first event of a run.
    RunStart { run_id: RunId },
    /// `turn` counts from 1.
    TurnStart { turn: u32 },
    /// User, tool result and custom messages are complete; a reply is empty and `pending`.
    MessageStart { message: Arc<Message> },
    /// `usage` only when the provider reported new numbers.
    MessageUpdate { index: usize, event: BlockEvent, usage: Option<Box<Usage>> },
    /// Complete and authoritative; the transcript grows here. `entry_id` is that of the entry that keeps the message:
    /// known from the start for the result of a call that ran, else set by whoever stores it; `None` where nothing is
    /// kept.
    MessageEnd { message: Arc<Message>, entry_id: Option<EntryId> },
    /// `args` are the model's raw arguments; `effective_args` is set when what the tool gets differs.
    ToolStart {
        tool_call_id: String,
        tool_name: String,
        args: Arc<Map<String, Value>>,
        effective_args: Option<Arc<Value>>,
    },
    /// Progress of a running call: its full view so far.
    ToolUpdate { tool_call_id: String, tool_name: String, partial: Arc<ToolResultView> },
    /// The result of a call, after hooks.
    ToolEnd {
        tool_call_id: String,
        tool_name: String,
        result: Arc<ToolResultView>,
        is_error: bool,
        /// Absent if the tool never ran.
        duration_ms: Option<u64>,
    },
    /// The reply of the turn, if one came, and the results of its calls in source order.
    TurnEnd { turn: u32, message: Option<Arc<Message>>, tool_results: Vec<Arc<Message>> },
    /// The last event of a run.
    RunEnd { messages: Vec<Arc<Message>>, outcome: Arc<RunOutcome> },
    /// Whole queues, as they are now.
    QueueUpdate { steering: Vec<Arc<Message>>, follow_up: Vec<Arc<Message>> },
    /// Something worth knowing that does not end the run.
    Warning { code: String, message: String },
    /// The loop can not go on; the closing events follow.
    Fault { error: ErrorRecord },
}

impl Event {
    /// The name of this event, as the grammar and JSON lines use it. A fault is told as a warning.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RunStart { .. } => "agent_start",
            Self::TurnStart { .. } => "turn_start",
            Self::MessageStart { .. } => "message_start",
            Self::MessageUpdate { .. } => "message_update",
            Self::MessageEnd { .. } => "message_end",
            Self::ToolStart { .. } => "tool_execution_start",
            Self::ToolUpdate { .. } => "tool_execution_update",
            Self::ToolEnd { .. } => "tool_execution_end",
            Self::TurnEnd { .. } => "turn_end",
            Self::RunEnd { .. } => "agent_end",
            Self::QueueUpdate { .. } => "queue_update",
            Self::Warning { .. } | Self::Fault { .. } => "warning",
        }
    }
}
