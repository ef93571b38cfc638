//! An operation of a lane: what it is for, and where it stands.
//!
//! Keeps true: a state is whole, never a patch; it holds no secret; a leaf this version does not know is refused by
//! name, not misread; counters never decrease within an operation, but that of truncated replies.
//!
//! Must not know: stores, effects, who drives.
//!
//! # States
//!
//! | `at` | what happened last | what comes next |
//! |---|---|---|
//! | `starting` | the run was accepted | the `before_run` hook |
//! | `checkpoint` | inputs, a reply or a batch stand in the tree | what waits is placed; a request, or the end |
//! | `assistant.ready` | a request is decided | the `before_request` hook, then the intent |
//! | `assistant.effect_pending` | the intent of a request is stored | its reply |
//! | `assistant.retry_wait` | an attempt failed | the wait, then `assistant.ready` |
//! | `tools` | a reply with calls stands in the tree | each call: intent, outcome, placement |
//!
//! There is no state for an operation that has ended: its last transaction deletes the state and stores the
//! [`OperationResult`](super::OperationResult).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{CancelCause, EntryId, LaneConfig, RunId};

/// What an operation was accepted as. Written once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationMeta {
    pub operation_id: RunId,
    pub lane: String,
    /// The lane's tip before it.
    pub source_tip_id: Option<EntryId>,
    /// Milliseconds since 1970.
    pub started_at: u64,
    /// Fixed for the whole operation, so that a resumed one sends the same prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    pub intent: Intent,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What an operation is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Intent {
    /// Turns of a model.
    Run {
        prompt_entry_ids: Vec<EntryId>,
        /// Goes on from the transcript as it is.
        continuation: bool,
    },
}

impl Intent {
    /// All words of `kind` that this version can drive.
    pub const KINDS: [&'static str; 1] = ["run"];

    /// The word of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Run { .. } => "run",
        }
    }
}

/// Where an operation stands: the program counter, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationState {
    pub control: Control,
    /// Captured when it was accepted.
    pub settings: RunSettings,
    pub counters: Counters,
    /// 0 = the lane's model; n = the n-th fallback.
    #[serde(default)]
    pub fallback_index: usize,
    /// A hook or a rule asked for the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopMark>,
    pub latest_assistant_entry_id: Option<EntryId>,
    #[serde(flatten)]
    pub leaf: Leaf,
}

/// Whether an operation was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Control {
    Running,
    /// Nothing new starts; what started is settled.
    CancelRequested {
        requested_at: u64,
        cause: CancelCause,
    },
}

impl Control {
    /// Who asked for the end, if anyone did.
    pub fn cause(self) -> Option<CancelCause> {
        match self {
            Self::Running => None,
            Self::CancelRequested { cause, .. } => Some(cause),
        }
    }
}

/// Why an operation ends after what it does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopMark {
    Blocked,
}

/// Settings an operation keeps, whatever the configuration says later.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunSettings {
    pub steering_mode: QueueMode,
    pub follow_up_mode: QueueMode,
    pub tool_execution: Execution,
    /// Models to go on with when one fails, in order.
    pub fallbacks: Vec<LaneConfig>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// How much of a queue one boundary takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueMode {
    /// The oldest message.
    #[default]
    OneAtATime,
    /// Everything.
    All,
}

/// One call at a time, or together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    #[default]
    Parallel,
    Sequential,
}

/// What an operation has used of its budgets. Changed only by the transaction that makes it true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counters {
    /// Finished turns.
    pub turns: u32,
    /// USD, as far as it is known.
    pub cost: f64,
    /// Follow-ups of hooks that were accepted.
    pub follow_ups: u32,
    /// Repairs of the final answer that were asked for.
    pub schema_repairs: u32,
    /// Replies in a row that were cut off in their calls.
    pub truncated_in_a_row: u32,
}

/// The position within an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "at", rename_all_fields = "camelCase")]
pub enum Leaf {
    #[serde(rename = "starting")]
    Starting,
    #[serde(rename = "checkpoint")]
    Checkpoint { continuation: Continuation, trigger_entry_id: Option<EntryId> },
    #[serde(rename = "assistant.ready")]
    AssistantReady { generation_context: GenerationContext, next_attempt: u32 },
    #[serde(rename = "assistant.effect_pending")]
    AssistantPending(PendingReply),
    #[serde(rename = "assistant.retry_wait")]
    AssistantWait {
        generation_context: GenerationContext,
        next_attempt: u32,
        /// Milliseconds since 1970.
        not_before: u64,
        error_message: String,
    },
    #[serde(rename = "tools")]
    Tools { batch: ToolBatch },
}

impl Leaf {
    /// All words of `at` that this version can drive.
    pub const WORDS: [&'static str; 6] =
        ["starting", "checkpoint", "assistant.ready", "assistant.effect_pending", "assistant.retry_wait", "tools"];

    /// The word of `at`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Checkpoint { .. } => "checkpoint",
            Self::AssistantReady { .. } => "assistant.ready",
            Self::AssistantPending(_) => "assistant.effect_pending",
            Self::AssistantWait { .. } => "assistant.retry_wait",
            Self::Tools { .. } => "tools",
        }
    }
}

/// What a checkpoint owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Continuation {
    /// A reply.
    NeedAssistant { overflow_recovery_used: bool },
    /// Nothing, unless something waits.
    MayFinish {
        /// The last reply is the answer, rather than the tools that ended the run.
        include_final_assistant: bool,
    },
}

/// From what a reply is asked for; the same for all its attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerationContext {
    pub step_id: String,
    /// The input the reply answers.
    pub trigger_entry_id: Option<EntryId>,
    pub configuration: LaneConfig,
    /// What of the request's options is no secret.
    pub stream_options: StoredOptions,
    pub retry_policy: RetryPolicy,
    pub overflow_recovery_used: bool,
    /// Attempts of this step that a process's end cut off.
    pub interruptions: u32,
}

/// Options of a request as they are kept: no header value, key or token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoredOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    pub cache_retention: String,
    pub deferred: bool,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Names of extra headers; their values are made anew for each request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
}

/// How often and after what delay a failed attempt is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetryPolicy {
    /// The first attempt counts; 1 = no retry.
    pub max_attempts: u32,
    pub base_delay_ms: u64,
    /// The longest delay; a provider that asks for more is not waited for.
    pub max_agent_delay_ms: u64,
}

/// A request whose reply is not there yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingReply {
    pub generation_context: GenerationContext,
    pub attempt: u32,
    /// Reserved for the reply.
    pub response_entry_id: EntryId,
    /// Reserved for its usage.
    pub usage_id: EntryId,
    /// Output tokens that were asked for; 0 = unknown.
    pub intended_output_limit: u64,
    /// Tokens; 0 = unknown.
    pub context_window: u64,
}

/// The calls of one reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolBatch {
    pub assistant_entry_id: EntryId,
    pub configuration: LaneConfig,
    pub turn_id: String,
    pub calls: Vec<CallRecord>,
}

/// One call of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallRecord {
    /// Index in the whole content of the reply, not among its calls.
    pub source_index: usize,
    /// Reserved for the result; also the call's invocation id.
    pub result_entry_id: EntryId,
    #[serde(flatten)]
    pub status: CallStatus,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum CallStatus {
    Planned,
    /// The intent is stored; the tool may have started.
    EffectPending {
        replay: Replay,
        /// A hook before the call asked for the end of the run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        terminate: bool,
    },
    /// The result is stored and waits for its place.
    OutcomeReady {
        terminate: bool,
    },
    /// The result stands in the tree.
    Completed {
        terminate: bool,
    },
}

/// Whether a call may run again after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replay {
    /// It has no effect, or the same effect twice.
    Safe,
    /// Its effect is unknown or must not happen twice.
    Never,
}
