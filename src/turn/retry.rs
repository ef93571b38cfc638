//! What follows a failed attempt: another one after a delay, another model, or the end; and which replies were too long.
//!
//! Keeps true: an error's kind and flag decide, its text only where there is no record; what waiting cannot help is
//! never repeated; no delay exceeds the policy's longest.
//!
//! Must not know: who waits, what is stored, which models there are.

use super::wording::record_of_text;
use crate::model::{AssistantMessage, ErrorKind, ErrorRecord, ErrorRow, RetryPolicy, StopReason};

/// Code of a run that ended with a failed reply.
pub const ASSISTANT_ERROR: &str = "assistant_error";
/// Code of a run that ended since its provider asks for a longer wait than allowed.
pub const RATE_LIMITED: &str = "rate_limited";

/// Hundredths of the context window at which an empty reply counts as one that had no room (OVF-2).
const FULL_PERCENT: u128 = 99;

/// Whether a reply shows that the prompt, or prompt and answer, did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    None,
    /// There is no answer: if the prompt cannot be made shorter, the run fails.
    Certain,
    /// There is an answer, which is kept if the prompt cannot be made shorter.
    Suspected,
}

/// Looks for an overflow: an error that says so; a window that is full and no output; a prompt larger than the window
/// (OVF-1); output that was cut before the limit asked for (OVF-3), where the server told its numbers.
/// `intended_output_limit` in tokens, before it was lowered to fit the window; it and `context_window` are 0 if unknown.
pub fn overflow(reply: &AssistantMessage, intended_output_limit: u64, context_window: u64) -> Overflow {
    let usage = &reply.usage;
    let prompt = usage.input.saturating_add(usage.cache_read);
    let is_reported = usage.total_tokens > 0 && usage.estimated != Some(true);
    let is_full = || context_window > 0 && u128::from(prompt) * 100 >= u128::from(context_window) * FULL_PERCENT;
    match reply.stop_reason {
        StopReason::Error if with_record(reply, |record| record.kind) == ErrorKind::Overflow => Overflow::Certain,
        StopReason::Stop if context_window > 0 && prompt > context_window && is_reported => Overflow::Suspected,
        StopReason::Length if usage.output == 0 && is_full() => Overflow::Certain,
        // The server's own word for a full context.
        StopReason::Length if reply.overflow == Some(true) && reply.content.is_empty() => Overflow::Certain,
        StopReason::Length if reply.overflow == Some(true) => Overflow::Suspected,
        StopReason::Length if is_reported && usage.output < intended_output_limit => Overflow::Suspected,
        _ => Overflow::None,
    }
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextAttempt {
    /// The same model again.
    Retry { delay_ms: u64 },
    /// The next model of the list.
    Fallback,
    /// The run ends; `retry_after_ms` is the wait that was asked for, where it is the reason.
    Fail { code: &'static str, retry_after_ms: Option<u64> },
}

/// Decides what follows an `error` reply that is no certain overflow. `attempt` is the one that failed, counted from 1;
/// `fallback_left`: a further model may be asked.
pub fn after_error(reply: &AssistantMessage, policy: &RetryPolicy, attempt: u32, fallback_left: bool) -> NextAttempt {
    with_record(reply, |record| after_record(record, policy, attempt, fallback_left))
}

fn after_record(record: &ErrorRecord, policy: &RetryPolicy, attempt: u32, fallback_left: bool) -> NextAttempt {
    let failed = NextAttempt::Fail { code: ASSISTANT_ERROR, retry_after_ms: None };
    let or_fallback = |failed| if fallback_left { NextAttempt::Fallback } else { failed };
    match record.kind {
        ErrorKind::Refusal | ErrorKind::ContentFilter | ErrorKind::Quota | ErrorKind::Overflow => return failed,
        ErrorKind::Auth | ErrorKind::Permission => return or_fallback(failed),
        ErrorKind::NotFound if !record.retryable => return or_fallback(failed),
        _ => {}
    }
    // An adapter with the same bound has taken such an error for one that is not retryable (RETRY-4).
    let passes = record.retryable || record.kind.row() == ErrorRow::Unavailable;
    match record.retry_after_ms {
        Some(asked) if passes && asked > policy.max_agent_delay_ms => {
            or_fallback(NextAttempt::Fail { code: RATE_LIMITED, retry_after_ms: Some(asked) })
        }
        _ if !record.retryable => failed,
        _ if attempt >= policy.max_attempts => or_fallback(failed),
        asked => NextAttempt::Retry { delay_ms: backoff_ms(policy, attempt).max(asked.unwrap_or(0)) },
    }
}

/// The delay after an attempt, counted from 1, in milliseconds: the base, doubled for every earlier attempt, up to the
/// longest.
pub fn backoff_ms(policy: &RetryPolicy, attempt: u32) -> u64 {
    let factor = 1_u64.checked_shl(attempt.saturating_sub(1)).unwrap_or(u64::MAX);
    policy.base_delay_ms.saturating_mul(factor).min(policy.max_agent_delay_ms)
}

/// Asks something of a failed reply's record, or of what its text stands for.
fn with_record<T>(reply: &AssistantMessage, ask: impl FnOnce(&ErrorRecord) -> T) -> T {
    match &reply.error {
        Some(record) => ask(record),
        None => ask(&record_of_text(reply.error_message.as_deref().unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests;
