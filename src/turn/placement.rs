//! The result of a call: of one that ran, and of one that never did.
//!
//! Keeps true: every failure has a code of the closed list and a text; the message of a result says what its event
//! said.
//!
//! Must not know: why a call was refused, the order of results.

use serde_json::Value;

use super::texts;
use crate::model::{Content, EntryId, Extra, ToolCall, ToolResultMessage, ToolResultView};
use crate::port::{Denied, ToolOutput};

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
    Denied(Denied),
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
            Self::Denied(denied) => refused_by_rule(denied),
            Self::Cancelled => ToolOutput::failure("aborted", texts::TOOL_CANCELLED),
        }
    }
}

/// The result of a call that a rule refused; programs read the rule in `details.error.rule`.
fn refused_by_rule(Denied { rule, reason }: Denied) -> ToolOutput {
    let mut output = ToolOutput::failure("denied", texts::or_silent(reason));
    if let Some(error) = output.details.as_mut().and_then(|details| details.get_mut("error")?.as_object_mut()) {
        error.insert("rule".to_owned(), Value::String(rule));
    }
    output
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
