//! How a run ended: the verdict, and who asked for the end.
//!
//! Keeps true: an exit code is computed from these values and nothing else.
//!
//! Must not know: the codes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ErrorRecord, Message, StopReason};

/// Who asked a run to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CancelCause {
    /// SIGHUP.
    Hup,
    /// SIGINT.
    Int,
    /// SIGTERM.
    Term,
    /// The limit on the whole run.
    Timeout,
    /// The reader of stdout left.
    Pipe,
    /// Another shell, or the embedding program.
    Steer,
    /// A hook or a permission rule.
    Hook,
}

/// The verdict of a run in one word: the `reason` of the `result` line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The answer is complete.
    Completed,
    /// A tool or a hook after it ended the run.
    ToolTerminated,
    /// The answer was cut by the output limit.
    Length,
    /// A failure without a word of its own.
    Error,
    /// A safety stop by the provider or the model.
    Refused,
    /// Try again later.
    Unavailable,
    /// The key is missing or refused.
    Auth,
    /// Nothing was sent: flags, configuration, prompt.
    Usage,
    /// `limits.max_turns` was reached.
    MaxTurns,
    /// `limits.max_cost` was reached.
    MaxCost,
    /// `limits.max_repeats` was reached.
    MaxRepeats,
    /// A hook or rule stopped the run.
    Blocked,
    /// The provider works in the background.
    Suspended,
    /// The answer stayed invalid.
    Schema,
    /// A signal, or an abort from outside.
    Interrupted,
    /// `limits.timeout` ran out.
    Timeout,
    /// The reader of stdout left.
    Pipe,
    /// A bug in this program.
    Internal,
}

impl Reason {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::ToolTerminated => "tool_terminated",
            Self::Length => "length",
            Self::Error => "error",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Auth => "auth",
            Self::Usage => "usage",
            Self::MaxTurns => "max_turns",
            Self::MaxCost => "max_cost",
            Self::MaxRepeats => "max_repeats",
            Self::Blocked => "blocked",
            Self::Suspended => "suspended",
            Self::Schema => "schema",
            Self::Interrupted => "interrupted",
            Self::Timeout => "timeout",
            Self::Pipe => "pipe",
            Self::Internal => "internal",
        }
    }
}

/// How a run ended. The exit code is computed from `reason`, `stop_reason`, `error` and `cause`
/// and from nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// Every message this run added, in order.
    pub messages: Vec<Arc<Message>>,
    /// That of the last reply; `None` when there was none.
    pub stop_reason: Option<StopReason>,
    pub reason: Reason,
    /// Set when the last reply failed.
    pub error: Option<ErrorRecord>,
    /// Who cancelled the run, where its last reply is `aborted`. An answer that was complete before counts: none then.
    pub cause: Option<CancelCause>,
}
