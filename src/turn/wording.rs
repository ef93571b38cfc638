//! What an error's bare text says, for want of anything better: spent budgets, prompts that are too long, passing trouble.
//!
//! Keeps true: a throttling text is never taken for an overflow; a spent budget is never worth another attempt; a number
//! counts as a status only where it stands as one; patterns are matched by hand scanners, nothing is compiled.
//!
//! Must not know: servers' error bodies, headers, who retries.

use super::texts;
use crate::model::{ErrorKind, ErrorRecord};

/// Bytes of a text that are searched.
pub const TEXT_BYTES_MAX: usize = 16 * 1024;

/// Bytes a `~` in a pattern may stand for.
const GAP_BYTES_MAX: usize = 80;

/// Words of a text among which a status may stand.
const STATUS_WORDS_MAX: usize = 12;

/// Codes and types of spent budgets (ERR-4).
pub const QUOTA_WORDS: [&str; 13] = [
    "insufficient_quota",
    "credit_balance_exhausted",
    "organization_spend_limit_exceeded",
    "project_spend_limit_exceeded",
    "organization_usage_limit_exceeded",
    "billing_hard_limit_reached",
    "usage_not_included",
    "billing_error",
    "enforced_spend_limit_reached",
    "gousagelimiterror",
    "freeusagelimiterror",
    "subscription_sharing_usage_limit_exceeded",
    "weight_exceeds_budget",
];

/// Texts of spent budgets (ERR-4), in lower case.
const QUOTA_TEXTS: [&str; 7] = [
    "monthly usage limit reached",
    "available balance",
    "out of budget",
    "credit balance is too low",
    "insufficient balance",
    "gousagelimiterror",
    "freeusagelimiterror",
];

/// Further texts of spent budgets, believed only where there is no code beside them.
const BARE_QUOTA_TEXTS: [&str; 7] = [
    "insufficient quota",
    "quota exceeded",
    "exceeded your current quota",
    "usage limit reached",
    "usage limit exceeded",
    "payment required",
    "billing",
];

/// Texts of prompts that are too long, in lower case (OVF-4). `#` stands for a number with or without commas, `~` for
/// anything short.
const OVERFLOW_TEXTS: [&str; 35] = [
    // Anthropic
    "prompt is too long",
    "request_too_large",
    "exceed context limit",
    "model_context_window_exceeded",
    // OpenAI
    "context_length_exceeded",
    "exceeds the context window",
    "maximum context length is # token",
    // LiteLLM and other OpenAI-compatible servers
    "exceeds maximum context length",
    "exceeds the maximum context length",
    "exceeds model's maximum context length",
    "exceeds the model's maximum context length",
    "contextwindowexceedederror",
    // Google
    "input token count~exceeds the maximum",
    // xAI
    "maximum prompt length is #",
    // Groq
    "reduce the length of the messages",
    // OpenRouter
    "exceeds maximum allowed input length of # token",
    "exceeds the maximum allowed input length of # token",
    // Together
    "input (# tokens) is longer than the model's context length",
    // Mistral
    "too large for model with # maximum context length",
    // llama.cpp
    "exceeds the available context size",
    "exceed_context_size_error",
    // LM Studio
    "greater than the context length",
    "keep the first # tokens when context the overflows",
    "context size has been exceeded",
    // Ollama
    "prompt too long; exceeded context length",
    "prompt too long; exceeded max context length",
    // vLLM
    "maximum model length of #",
    // MiniMax, Kimi, DS4, z.ai, Qwen
    "context window exceeds limit",
    "exceeded model token limit",
    "prompt has # tokens, but the configured context size is # token",
    "prompt too long",
    "range of input length should be",
    // Bedrock
    "input is too long for requested model",
    // Generic
    "context length exceeded",
    "context window exceeded",
];

/// Texts that rate limits use as well: not believed with status 429.
const WEAK_OVERFLOW_TEXTS: [&str; 2] = ["too many tokens", "token limit exceeded"];

/// GitHub Copilot's text; other limits are worded so too, hence one of the subjects must stand in it.
const LIMIT_TEXT: &str = "exceeds the limit of #";
const LIMIT_SUBJECTS: [&str; 4] = ["token", "prompt", "context", "input"];

/// Texts of throttling, which speak of tokens too.
const THROTTLED: [&str; 3] = ["rate limit", "too many requests", "throttlingexception"];
const THROTTLED_STARTS: [&str; 2] = ["throttling error:", "service unavailable:"];

/// Texts of errors that came without code and status (ERR-7), in lower case.
const PASSING_TEXTS: [(&str, ErrorKind); 28] = [
    ("overloaded", ErrorKind::Overloaded),
    ("high demand", ErrorKind::Overloaded),
    ("rate limit", ErrorKind::RateLimit),
    ("too many requests", ErrorKind::RateLimit),
    ("resourceexhausted", ErrorKind::RateLimit),
    ("service unavailable", ErrorKind::Overloaded),
    ("timed out", ErrorKind::Timeout),
    ("timeout", ErrorKind::Timeout),
    ("upstream connect", ErrorKind::Network),
    ("connection refused", ErrorKind::Network),
    ("connection reset", ErrorKind::Network),
    ("connection lost", ErrorKind::Network),
    ("connection closed", ErrorKind::Network),
    ("connection was closed", ErrorKind::Network),
    ("connection error", ErrorKind::Network),
    ("socket hang up", ErrorKind::Network),
    ("other side closed", ErrorKind::Network),
    ("network error", ErrorKind::Network),
    ("terminated", ErrorKind::Network),
    ("stream ended", ErrorKind::Network),
    ("ended without", ErrorKind::Network),
    ("server error", ErrorKind::Server),
    ("internal error", ErrorKind::Server),
    ("provider returned error", ErrorKind::Server),
    ("try your request again", ErrorKind::Server),
    ("you can retry", ErrorKind::Server),
    ("exceeded request buffer limit", ErrorKind::Server),
    ("temporarily unavailable", ErrorKind::Overloaded),
];

/// Texts that ask for another attempt, believed only where there is no code beside them.
const RETRY_TEXTS: [&str; 7] = [
    "please retry",
    "please try again",
    "try again later",
    "try again in",
    "retry later",
    "retry after",
    "retry your request",
];

/// What a text in lower case says of a spent budget, whatever stands beside it (ERR-4).
pub fn names_spent_budget(text: &str) -> bool {
    QUOTA_TEXTS.iter().any(|known| text.contains(known))
}

/// Whether a text in lower case speaks of too many requests, and so not of too long ones.
pub fn names_throttling(text: &str) -> bool {
    THROTTLED.iter().any(|word| text.contains(word)) || THROTTLED_STARTS.iter().any(|start| text.starts_with(start))
}

/// Whether a text in lower case, which does not speak of throttling, says that the prompt is too long. `rate_limited`:
/// it came with status 429.
pub fn names_overflow(text: &str, rate_limited: bool) -> bool {
    let is_weak = || WEAK_OVERFLOW_TEXTS.iter().any(|pattern| matches(text, pattern));
    let is_limit = || LIMIT_SUBJECTS.iter().any(|word| text.contains(word)) && matches(text, LIMIT_TEXT);
    OVERFLOW_TEXTS.iter().any(|pattern| matches(text, pattern)) || (!rate_limited && (is_weak() || is_limit()))
}

/// The passing trouble that a text in lower case names (ERR-7); it is worth another attempt.
pub fn passing_trouble(text: &str) -> Option<ErrorKind> {
    PASSING_TEXTS.iter().find(|(known, _)| text.contains(known)).map(|(_, kind)| *kind)
}

/// What a status of 300 and more means when nothing says more, and whether another attempt can help (ERR-6).
pub fn kind_of_status(status: u16) -> (ErrorKind, bool) {
    match status {
        300..=399 => (ErrorKind::Config, false),
        401 => (ErrorKind::Auth, false),
        402 => (ErrorKind::Quota, false),
        403 => (ErrorKind::Permission, false),
        404 => (ErrorKind::NotFound, false),
        408 => (ErrorKind::Timeout, true),
        413 => (ErrorKind::Overflow, false),
        421 => (ErrorKind::Network, true),
        424 | 429 => (ErrorKind::RateLimit, true),
        501 | 505 => (ErrorKind::InvalidRequest, false),
        503 | 529 => (ErrorKind::Overloaded, true),
        409 | 425 | 498 | 499 | 500..=599 => (ErrorKind::Server, true),
        _ => (ErrorKind::InvalidRequest, false),
    }
}

/// The first [`TEXT_BYTES_MAX`] bytes of a text, whole characters only.
pub fn searched_part(text: &str) -> &str {
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// The record of an error of which nothing but a text is known. Budgets are looked for first, then prompts that are too
/// long, then a status where one stands, then passing trouble; what says none of it, or nothing at all, is `protocol`.
pub fn record_of_text(text: &str) -> ErrorRecord {
    let message = if text.trim().is_empty() { texts::UNKNOWN_PROVIDER_ERROR } else { text };
    let mut searched = searched_part(text).to_lowercase();
    if searched.contains('_') {
        // `rate_limit_error` says what "rate limit error" does.
        let spaced = searched.replace('_', " ");
        searched.push('\n');
        searched.push_str(&spaced);
    }
    let (kind, retryable) = kind_of_text(&searched);
    ErrorRecord { retryable, ..ErrorRecord::new(kind, message) }
}

fn kind_of_text(text: &str) -> (ErrorKind, bool) {
    let has = |known: &[&str]| known.iter().any(|known| text.contains(known));
    if names_spent_budget(text) || has(&QUOTA_WORDS) || has(&BARE_QUOTA_TEXTS) {
        return (ErrorKind::Quota, false);
    }
    let status = status_in(text);
    if !names_throttling(text) && names_overflow(text, status == Some(429)) {
        return (ErrorKind::Overflow, false);
    }
    if let Some(status) = status {
        return kind_of_status(status);
    }
    let asks_for_retry = || has(&RETRY_TEXTS).then_some(ErrorKind::Server);
    passing_trouble(text).or_else(asks_for_retry).map_or((ErrorKind::Protocol, false), |kind| (kind, true))
}

/// The status of an error that a text names as one: `503 …`, `HTTP 503`, `HTTP/1.1 503`, `status code 503`, `error 503`.
fn status_in(text: &str) -> Option<u16> {
    let mut before = ["", "", ""];
    for word in text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).take(STATUS_WORDS_MAX)
    {
        let is_told = matches!(
            before,
            [_, _, "" | "http" | "status" | "code" | "error"] | ["http", "1", "0" | "1"] | [_, "http", "2" | "3"]
        );
        let status = (is_told && word.len() == 3).then(|| word.parse().ok()).flatten();
        if let Some(status @ 400..=599) = status {
            return Some(status);
        }
        before.rotate_left(1);
        if let Some(slot) = before.last_mut() {
            *slot = word;
        }
    }
    None
}

/// Whether a pattern occurs anywhere in the text.
fn matches(text: &str, pattern: &str) -> bool {
    let head = pattern.split(['#', '~']).next().unwrap_or(pattern);
    let tail = pattern.get(head.len()..).unwrap_or_default();
    text.match_indices(head).any(|(at, _)| text.get(at + head.len()..).is_some_and(|rest| begins_with(rest, tail)))
}

fn begins_with(text: &str, pattern: &str) -> bool {
    let mut symbols = pattern.chars();
    let Some(symbol) = symbols.next() else { return true };
    let rest = symbols.as_str();
    match symbol {
        '#' => {
            let after = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == ',');
            text.starts_with(|c: char| c.is_ascii_digit()) && begins_with(after, rest)
        }
        '~' => (0..=GAP_BYTES_MAX.min(text.len())).any(|at| text.get(at..).is_some_and(|tail| begins_with(tail, rest))),
        literal => text.strip_prefix(literal).is_some_and(|tail| begins_with(tail, rest)),
    }
}
