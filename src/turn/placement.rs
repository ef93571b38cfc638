//! The result of a call: of one that ran, and of one that never did.
//!
//! Keeps true: every failure has a code of the closed list and a text; the message of a result says what its event
//! said.
//!
//! Must not know: why a call was refused, the order of results.

use crate::model::{Content, EntryId, Extra, ToolCall, ToolResultMessage, ToolResultView};
use crate::port::ToolOutput;

use super::texts;

/// Why the loop itself settled a call that never ran. The code stands in `details.error.code`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFailure {
    /// No tool of that name.
    Unknown(String),
    /// The arguments are not what the tool takes, or were cut off.
    Invalid(String),
    /// A hook refused it, or failed.
    Blocked(String),
    /// A permission rule refused it.
    Denied(String),
    /// The run ended first.
    Cancelled,
}

impl CallFailure {
    /// The result the model reads.
    pub fn into_output(self) -> ToolOutput {
        match self {
            Self::Unknown(text) => ToolOutput::failure("unknown_tool", texts::or_silent(text)),
            Self::Invalid(text) => ToolOutput::failure("invalid_args", texts::or_silent(text)),
            Self::Blocked(text) => ToolOutput::failure("blocked", texts::or_silent(text)),
            Self::Denied(text) => ToolOutput::failure("denied", texts::or_silent(text)),
            Self::Cancelled => ToolOutput::failure("aborted", texts::TOOL_CANCELLED),
        }
    }
}

/// A call with its final result.
#[derive(Clone, Debug)]
pub struct CallOutcome {
    pub call: ToolCall,
    /// The id the tool knew, which is that of the entry that keeps its result; `None` if the tool never ran.
    pub invocation_id: Option<EntryId>,
    pub output: ToolOutput,
    /// `None` if the tool never ran.
    pub duration_ms: Option<u64>,
}

impl CallOutcome {
    /// Completes a failure that says nothing; some servers reject an empty text.
    #[must_use]
    pub fn normalised(mut self) -> Self {
        let silent = self.output.content.iter().all(|block| match block {
            Content::Text(text) => text.text.is_empty(),
            Content::Image(_) | Content::Other(_) => false,
        });
        if self.output.is_error && silent {
            self.output.content = vec![Content::text(texts::TOOL_SILENT)];
        }
        self
    }

    /// The result as events show it.
    pub fn view(&self) -> ToolResultView {
        ToolResultView {
            content: self.output.content.clone(),
            details: self.output.details.clone(),
            structured: self.output.structured.clone(),
            usage: self.output.usage.clone(),
            terminate: self.output.terminate,
        }
    }
}

/// The transcript's message for a finished call; `terminate` is no part of it.
pub fn result_message(outcome: &CallOutcome, timestamp: u64) -> ToolResultMessage {
    ToolResultMessage {
        tool_call_id: outcome.call.id.clone(),
        tool_name: outcome.call.name.clone(),
        content: outcome.output.content.clone(),
        details: outcome.output.details.clone(),
        is_error: outcome.output.is_error,
        usage: outcome.output.usage.clone(),
        duration_ms: outcome.duration_ms,
        timestamp,
        extra: Extra::new(),
    }
}
