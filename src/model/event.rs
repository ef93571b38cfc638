//! The events of a run, in memory.
//!
//! Keeps true: [`Event`] is the only event type inside the program and derives no serde, so a change of the stream's
//! form is a decision in `print::jsonl`; cloning an event copies no message.
//!
//! Must not know: keys of JSON lines, readers.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    CancelCause, Content, Entry, EntryId, ErrorRecord, InboxKind, LaneConfig, Message, OperationResult, PendingEntry,
    RunId, RunOutcome, ToolCall, Usage, UsageRow,
};

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
    /// The first event of a run. `started_at` is in milliseconds since 1970.
    RunStart { run_id: RunId, started_at: u64 },
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
    /// The last event of a run. `result` is what a durable run stored.
    RunEnd { messages: Vec<Arc<Message>>, outcome: Arc<RunOutcome>, result: Option<Arc<OperationResult>> },
    /// A run of a dead process goes on.
    RunResume { run_id: RunId },
    /// What a dead process had begun is settled so, before anything new starts.
    RecoveryStep {
        run_id: RunId,
        /// The state that was found, such as `assistant.effect_pending`.
        state: String,
        action: RecoveryAction,
        tool_call_id: Option<String>,
        /// What a person is told about it; nothing where it is not worth a line.
        notice: Option<String>,
    },
    /// An operation was asked to end. The messages are those that were taken out of the queues.
    OperationAbort { run_id: RunId, cause: CancelCause, steer: Vec<Arc<Message>>, follow_up: Vec<Arc<Message>> },
    /// An attempt failed and is repeated. `attempt` is the coming one; `not_before` is in milliseconds since 1970.
    RetryScheduled { attempt: u32, max_attempts: u32, delay_ms: u64, not_before: u64, error_message: String },
    /// The wait is over.
    RetryStart { attempt: u32 },
    /// The last outcome of a turn that repeated an attempt.
    RetryEnd { attempt: u32, success: bool, final_error: Option<String> },
    /// The turn goes on with another model; both as `provider/id`.
    ModelFallback { from: String, to: String, error_message: String },
    /// The tree grew.
    EntryAdded { entry: Arc<Entry> },
    /// The ledger grew; `totals` are those of the session.
    Usage { row: Arc<UsageRow>, totals: Usage },
    /// Everything that waits on the lane, as it is now.
    QueueUpdate { queues: Vec<Queued> },
    /// The lane's configuration changed; a run that is on keeps what it captured.
    ConfigUpdate { config: Arc<LaneConfig>, previous: Option<Arc<LaneConfig>> },
    /// A name or a label was given or taken.
    ValueUpdate { value: NamedValue },
    /// A lane was made at an entry.
    LaneCreated { at: Option<EntryId> },
    /// A hook or a listener failed, and the run goes on without it.
    HandlerError { kind: HandlerKind, name: String, error: String },
    /// Something worth knowing that does not end the run.
    Warning { code: String, message: String },
    /// The loop can not go on; the closing events follow.
    Fault { error: ErrorRecord },
}

/// A message or entry that waits for its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Queued {
    pub entry_id: EntryId,
    pub kind: InboxKind,
    pub payload: PendingEntry,
}

/// What a name or label says now; `None` = it was taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedValue {
    SessionName(Option<String>),
    EntryLabel { entry_id: EntryId, label: Option<String> },
}

/// What failed without ending a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerKind {
    Hook,
    /// A listener of events.
    Event,
}

/// How something that a dead process left is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryAction {
    /// An interrupted reply is stored as far as it is known.
    Settle,
    /// A call runs again.
    Rerun,
    /// A call is not run again; the model is told.
    Interrupt,
    /// Results that waited are placed.
    Place,
    /// Nothing outside had started.
    Resume,
}

impl RecoveryAction {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Settle => "settle",
            Self::Rerun => "rerun",
            Self::Interrupt => "interrupt",
            Self::Place => "place",
            Self::Resume => "resume",
        }
    }
}

/// An event of a lane of a session.
#[derive(Clone, Debug)]
pub struct LaneEvent {
    /// Its place among the events of the session in this process, from 1; a snapshot knows by it what it holds already.
    /// 0 = nobody counts.
    pub seq: u64,
    pub lane: Arc<str>,
    /// Told again, or for the first time, for work that a dead process began.
    pub recovery: bool,
    pub event: Event,
}

impl Event {
    /// The name of this event. Where the grammar and JSON lines have a line for it, the name is that of the line; a fault
    /// is told as a warning.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RunResume { .. } => "run_resume",
            Self::RecoveryStep { .. } => "recovery",
            Self::OperationAbort { .. } => "operation_abort",
            Self::RetryScheduled { .. } => "auto_retry_start",
            Self::RetryStart { .. } => "retry_start",
            Self::RetryEnd { .. } => "auto_retry_end",
            Self::ModelFallback { .. } => "model_fallback",
            Self::EntryAdded { .. } => "entry_added",
            Self::Usage { .. } => "usage",
            Self::ConfigUpdate { .. } => "config_update",
            Self::ValueUpdate { .. } => "value_update",
            Self::LaneCreated { .. } => "lane_created",
            Self::HandlerError { .. } => "handler_error",
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
