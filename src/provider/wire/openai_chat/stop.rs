//! The server's reason for the end of a reply, and what it means.

use crate::model::{ErrorKind, ErrorRecord, StopReason};

/// What a finish reason makes of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Done {
        stop_reason: StopReason,
        /// The context was full.
        overflow: bool,
        /// Whether the word is one of the known ones.
        known: bool,
    },
    Fail(ErrorRecord),
}

/// Judges by the word and by whether the reply holds a call: servers that say "stop" after a call mean the call.
pub(super) fn verdict(word: &str, has_calls: bool) -> Verdict {
    let by_content = if has_calls { StopReason::ToolUse } else { StopReason::Stop };
    let done = |stop_reason| Verdict::Done { stop_reason, overflow: false, known: true };
    match word.to_ascii_lowercase().as_str() {
        "stop" | "end" | "eos" | "eos_token" | "stop_sequence" => done(by_content),
        "length" | "max_tokens" | "model_length" => done(StopReason::Length),
        "tool_calls" | "function_call" | "tool_use" => done(StopReason::ToolUse),
        "model_context_window_exceeded" => {
            Verdict::Done { stop_reason: StopReason::Length, overflow: true, known: true }
        }
        "content_filter" | "safety" | "sensitive" => {
            fail(ErrorKind::ContentFilter, word, "The provider's content filter stopped the reply.")
        }
        "error" => retry(ErrorKind::Server, word, "The provider ended the reply with an error and did not say which."),
        "network_error" => retry(ErrorKind::Network, word, "The provider lost the connection to the model."),
        lower if lower.starts_with("function_call_filter") || lower.contains("malformed_function_call") => {
            retry(ErrorKind::ModelBehavior, word, "The model made a tool call that its provider could not read.")
        }
        _ => Verdict::Done { stop_reason: by_content, overflow: false, known: false },
    }
}

/// Whether the word only says that the reply ended; a later and more telling one may replace it.
pub(super) fn is_plain(word: &str) -> bool {
    matches!(word, "stop" | "end" | "eos" | "eos_token")
}

/// Whether the word says no more than the stop reason it became.
pub(super) fn is_redundant(word: &str, stop_reason: StopReason) -> bool {
    matches!(
        (word, stop_reason),
        ("stop", StopReason::Stop) | ("length", StopReason::Length) | ("tool_calls", StopReason::ToolUse)
    )
}

fn fail(kind: ErrorKind, word: &str, message: &str) -> Verdict {
    let mut record = ErrorRecord::new(kind, message);
    record.code = Some(word.to_owned());
    Verdict::Fail(record)
}

fn retry(kind: ErrorKind, word: &str, message: &str) -> Verdict {
    match fail(kind, word, message) {
        Verdict::Fail(record) => Verdict::Fail(record.retryable()),
        done @ Verdict::Done { .. } => done,
    }
}
