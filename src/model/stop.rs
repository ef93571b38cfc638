use serde::{Deserialize, Serialize};

/// Why a reply ended. Closed and total; `Pending` stands only in partial messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// The message is still streaming; never stored, never final.
    Pending,
    /// The natural end.
    Stop,
    /// The output limit was hit.
    Length,
    /// The model wants tools.
    ToolUse,
    /// The request or the stream failed.
    Error,
    /// The run was cancelled.
    Aborted,
    /// The provider answers later.
    Deferred,
}

impl StopReason {
    /// The transcript word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolUse => "toolUse",
            Self::Error => "error",
            Self::Aborted => "aborted",
            Self::Deferred => "deferred",
        }
    }

    /// Whether a reply that ended so ends the run at once, without looking at its calls.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Error | Self::Aborted)
    }
}
