//! What a session is made of: entries, registers, lists, usage rows, and the writes that make them.
//!
//! Keeps true: an entry of a type this version does not know is kept whole; what a newer version added to one of a known
//! type is not seen here, but stays where the session is kept; a register's address is a namespace and a key.
//!
//! Must not know: files, locks, who reads.
//!
//! # The tree
//!
//! An [`Entry`] is written once and never changed. Its parent is an entry written before it, or none for a root. A lane
//! is a name with a tip, a configuration and a state; what a model sees is the path from a lane's tip to the root.
//!
//! # Registers
//!
//! A register holds one JSON value under a namespace and a key; null is a value, which is not the same as none. A list
//! only grows, and goes whole.
//!
//! | address | value | kept for |
//! |---|---|---|
//! | `branch.tip/{lane}` | entry id or null | the session |
//! | `lane.config/{lane}` | [`LaneConfig`] | the session |
//! | `lane.state/{lane}` | [`LaneState`] | the session |
//! | `result/{operation}` | [`OperationResult`] | the session |
//! | `session.name` with the empty key, `entry.label/{entry}` | text | until deleted |
//! | `x.*` | values and lists of applications | until deleted |
//! | `op.tool_memo/{operation}:{result entry}:{name}` | JSON that a running tool keeps | the call |
//! | other `op.*`, `pending.*` | the state of an operation | the operation |

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{CancelCause, EntryId, ErrorKind, Message, Reason, RunId, StopReason, Usage};

/// The lane every session has.
pub const MAIN_LANE: &str = "main";

/// Namespaces of registers.
pub mod namespace {
    pub const BRANCH_TIP: &str = "branch.tip";
    pub const LANE_CONFIG: &str = "lane.config";
    pub const LANE_STATE: &str = "lane.state";
    pub const RESULT: &str = "result";
    pub const SESSION_NAME: &str = "session.name";
    pub const ENTRY_LABEL: &str = "entry.label";
    pub const OP_META: &str = "op.meta";
    pub const OP_STATE: &str = "op.state";
    pub const TOOL_ARGS: &str = "op.tool_args";
    pub const TOOL_MEMO: &str = "op.tool_memo";
    pub const PENDING_ENTRY: &str = "pending.entry";
    pub const TOOL_OUTPUT: &str = "pending.tool_output";
    /// A list.
    pub const FRAMES: &str = "pending.assistant_frame";
}

/// One entry of the tree, as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub id: EntryId,
    pub parent_id: Option<EntryId>,
    /// Position among all writes of the session.
    pub seq: u64,
    /// Of the transaction, in milliseconds since 1970.
    pub timestamp: u64,
    pub body: EntryBody,
}

/// What an entry says. Written as `type` and the fields of that type.
#[derive(Clone, Debug, PartialEq)]
pub enum EntryBody {
    Message {
        message: Arc<Message>,
        /// On a tool result: it asked for the end of the run.
        terminate: bool,
    },
    /// Never sent to a model by default.
    Custom { custom_type: String, data: Option<Value> },
    /// Any other type, whole: `type` and its fields.
    Other(Map<String, Value>),
}

/// A write of a transaction, before it has a place in the session.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "few at a time, and only until they are stored")]
pub enum Write {
    /// Inserts an entry. Its parent exists, or comes earlier in the same transaction.
    Entry { id: EntryId, parent_id: Option<EntryId>, body: EntryBody },
    /// Adds a row to the usage ledger.
    Usage(UsageRow),
    /// Sets a register.
    Set { namespace: String, key: String, value: Value },
    /// Deletes a register; one that is not there is no error.
    Delete { namespace: String, key: String },
    /// Adds to the end of a list.
    Append { namespace: String, key: String, value: Value },
    /// Deletes a list whole; one that is not there is no error.
    DeleteList { namespace: String, key: String },
}

impl Write {
    /// Sets a register to what a type says.
    ///
    /// # Errors
    /// The value can not be written as JSON.
    pub fn set(namespace: &str, key: &str, value: &impl Serialize) -> Result<Self, serde_json::Error> {
        let value = serde_json::to_value(value)?;
        Ok(Self::Set { namespace: namespace.to_owned(), key: key.to_owned(), value })
    }

    /// Deletes a register.
    pub fn delete(namespace: &str, key: &str) -> Self {
        Self::Delete { namespace: namespace.to_owned(), key: key.to_owned() }
    }
}

/// One row of the usage ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageRow {
    /// Shares one namespace with entry ids.
    pub id: EntryId,
    pub operation_id: Option<RunId>,
    pub lane: Option<String>,
    pub kind: UsageKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    pub usage: Usage,
    /// USD; null when the model has no price.
    pub cost: Option<f64>,
    /// The reply or result it was used for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_id: Option<EntryId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What usage was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageKind {
    /// An attempt at a reply, failed ones included.
    Request,
    /// Model work done inside a tool.
    Tool,
    /// A summary.
    Summary,
    /// The sum an import brought.
    Adjustment,
}

/// A lane's configuration, always whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaneConfig {
    pub model: LaneModel,
    /// The level's word; null = the model's default.
    pub thinking_level: Option<String>,
    pub active_tool_names: Vec<String>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The model of a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaneModel {
    pub provider: String,
    pub model_id: String,
}

/// A lane's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaneState {
    pub current_operation_id: Option<RunId>,
    pub last_operation_id: Option<RunId>,
    /// Messages that wait for their place.
    #[serde(default)]
    pub inbox: Vec<InboxItem>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A message that waits for its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InboxItem {
    pub entry_id: EntryId,
    pub kind: InboxKind,
}

/// When a waiting message gets its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InboxKind {
    /// Before the next request.
    Steer,
    /// When nothing else is owed.
    FollowUp,
    /// With the next run.
    NextRun,
    /// A follow-up of the next run.
    NextFollowUp,
    /// Before the next request; asks for no reply.
    Write,
}

/// What waits for its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum PendingEntry {
    Message {
        payload: Arc<Message>,
    },
    Custom {
        custom_type: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        payload: Option<Value>,
    },
}

impl PendingEntry {
    /// What stands in the tree when it is placed.
    pub fn into_body(self) -> EntryBody {
        match self {
            Self::Message { payload } => EntryBody::Message { message: payload, terminate: false },
            Self::Custom { custom_type, payload } => EntryBody::Custom { custom_type, data: payload },
        }
    }

    /// The message, unless it is a custom entry.
    pub fn message(&self) -> Option<&Arc<Message>> {
        match self {
            Self::Message { payload } => Some(payload),
            Self::Custom { .. } => None,
        }
    }
}

/// How an operation ended, kept with the session. Exit codes are computed from it and never stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationResult {
    pub operation_id: RunId,
    /// `run`, `compaction` or `navigation`.
    pub kind: String,
    pub status: Status,
    pub reason: Reason,
    pub stop_reason: Option<StopReason>,
    /// Exactly when the status is `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_kind: Option<ErrorKind>,
    /// Exactly when the status is `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<OperationError>,
    /// Exactly when the status is `aborted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<CancelCause>,
    pub from_tip_id: Option<EntryId>,
    pub tip_id: Option<EntryId>,
    /// Milliseconds since 1970.
    pub started_at: u64,
    pub ended_at: u64,
    /// How a completed run ended: `assistant` or `tools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<String>,
    /// The last reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_entry_id: Option<EntryId>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The status of an ended operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Completed,
    /// A limit or a rule ended it.
    Stopped,
    Aborted,
    Failed,
    Declined,
}

/// The error of a failed operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationError {
    /// A finer word than the kind.
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}
