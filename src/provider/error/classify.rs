//! What an error is and whether another attempt can help (ERR-2 to ERR-9).
//!
//! Keeps true: the tests run in one order: overflow, money, known codes, HTTP status, text; a spent budget is never
//! retried whatever the status; bare numbers are not searched for in free text.
//!
//! Must not know: how the error is worded, or who retries.

use super::body::Facts;
use super::overflow::{self, Sizes};
use crate::model::ErrorKind;
use crate::turn::wording;

/// A budget for others, a quota per minute for Google.
const QUOTA_TEXT: &str = "quota exceeded";
/// Google's word for both.
const GOOGLE_EXHAUSTED: &str = "resource_exhausted";
/// Google's id of a quota that is back tomorrow.
const DAILY_QUOTA: &str = "perday";

/// The one budget that frees itself (status 402).
const IN_FLIGHT_BUDGET: &str = "in_flight_budget_exhausted";

/// Codes and types worth another attempt (ERR-5).
const RETRYABLE_WORDS: [(&str, ErrorKind); 23] = [
    ("rate_limit_exceeded", ErrorKind::RateLimit),
    ("rate_limit_error", ErrorKind::RateLimit),
    ("slow_down", ErrorKind::RateLimit),
    (IN_FLIGHT_BUDGET, ErrorKind::RateLimit),
    (GOOGLE_EXHAUSTED, ErrorKind::RateLimit),
    ("throttlingexception", ErrorKind::RateLimit),
    ("server_is_overloaded", ErrorKind::Overloaded),
    ("overloaded_error", ErrorKind::Overloaded),
    ("overloaded", ErrorKind::Overloaded),
    ("engine_overloaded", ErrorKind::Overloaded),
    ("service_unavailable", ErrorKind::Overloaded),
    ("unavailable", ErrorKind::Overloaded),
    ("modelnotreadyexception", ErrorKind::Overloaded),
    ("subscription_sharing_usage_unavailable", ErrorKind::Overloaded),
    ("server_error", ErrorKind::Server),
    ("api_error", ErrorKind::Server),
    ("internal_error", ErrorKind::Server),
    ("internal", ErrorKind::Server),
    ("aborted", ErrorKind::Server),
    ("timeout_error", ErrorKind::Timeout),
    ("request_timeout", ErrorKind::Timeout),
    ("deadline_exceeded", ErrorKind::Timeout),
    ("tool_use_failed", ErrorKind::ModelBehavior),
];

/// Words of ERR-5 that gateways put into the message instead.
const RETRYABLE_TEXT_WORDS: [(&str, ErrorKind); 2] =
    [("throttlingexception", ErrorKind::RateLimit), ("modelnotreadyexception", ErrorKind::Overloaded)];

/// Words that say more than the status they come with; never worth another attempt.
const FATAL_WORDS: [(&str, ErrorKind); 7] = [
    ("invalid_api_key", ErrorKind::Auth),
    ("api_key_invalid", ErrorKind::Auth),
    ("authentication_error", ErrorKind::Auth),
    ("model_not_found", ErrorKind::NotFound),
    ("content_filter", ErrorKind::ContentFilter),
    ("content_policy_violation", ErrorKind::ContentFilter),
    ("responsibleaipolicyviolation", ErrorKind::ContentFilter),
];

/// Servers that answer a wrong key with 400 and say so only in the text.
const WRONG_KEY_TEXTS: [&str; 3] = ["incorrect api key", "invalid api key", "api key not valid"];

/// The status a word stands for where there is none: Anthropic's error types and Google's status words.
const WORD_STATUSES: [(&str, u16); 15] = [
    ("invalid_request_error", 400),
    ("badrequesterror", 400),
    ("invalid_argument", 400),
    ("failed_precondition", 400),
    ("out_of_range", 400),
    ("unauthenticated", 401),
    ("permission_error", 403),
    ("permission_denied", 403),
    ("not_found_error", 404),
    ("not_found", 404),
    ("conflict_error", 409),
    ("cancelled", 499),
    ("internal_server_error", 500),
    ("unimplemented", 501),
    ("unavailable_error", 503),
];

/// An error as it was seen.
pub(super) struct Seen<'a> {
    pub provider: &'a str,
    /// The response's status; `None` inside a stream.
    pub status: Option<u16>,
    pub facts: &'a Facts,
    pub body_is_empty: bool,
    /// Type, code and message in lower case.
    pub text: &'a str,
}

/// What it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub kind: ErrorKind,
    pub retryable: bool,
    pub sizes: Sizes,
    /// `x-should-retry` may not change it.
    pub settled: bool,
}

impl Verdict {
    fn new(kind: ErrorKind, retryable: bool) -> Self {
        Self { kind, retryable, sizes: Sizes::default(), settled: false }
    }

    fn settled(kind: ErrorKind, sizes: Sizes) -> Self {
        Self { kind, retryable: false, sizes, settled: true }
    }
}

/// Type, code and message joined, in lower case and bounded.
pub(super) fn searched_text(facts: &Facts, message: &str) -> String {
    let mut text = String::new();
    for word in facts.all_words() {
        text.push_str(word);
        text.push(' ');
    }
    text.push_str(wording::searched_part(message));
    text.to_lowercase()
}

/// Decides what an error is.
pub(super) fn classify(seen: &Seen<'_>) -> Verdict {
    let status = effective_status(seen);
    if let Some(sizes) = overflow::minute_limit(seen.text) {
        let fits = sizes.prompt_tokens <= sizes.limit;
        let kind = if fits { ErrorKind::RateLimit } else { ErrorKind::Overflow };
        return if fits { Verdict::new(kind, true) } else { Verdict::settled(kind, sizes) };
    }
    if overflow::is_overflow(seen.provider, status, seen.body_is_empty, seen.facts, seen.text) {
        return Verdict::settled(ErrorKind::Overflow, overflow::sizes(seen.facts, seen.text));
    }
    if is_money(seen, status) {
        return Verdict::settled(ErrorKind::Quota, Sizes::default());
    }
    by_word(seen, status)
        .or_else(|| status.map(by_status))
        .or_else(|| wording::passing_trouble(seen.text).map(|kind| Verdict::new(kind, true)))
        .unwrap_or(Verdict::new(ErrorKind::Protocol, false))
}

/// The status of the response; inside a stream or a 2xx body the number in the error, or what its words stand for.
pub(super) fn effective_status(seen: &Seen<'_>) -> Option<u16> {
    let real = seen.status.filter(|status| *status >= 300);
    let by_word = || {
        seen.facts.all_words().find_map(|word| {
            WORD_STATUSES.iter().find(|(known, _)| word.eq_ignore_ascii_case(known)).map(|(_, status)| *status)
        })
    };
    real.or(seen.facts.status).or_else(by_word)
}

fn is_money(seen: &Seen<'_>, status: Option<u16>) -> bool {
    let has_word = |known: &str| seen.facts.all_words().any(|word| word.eq_ignore_ascii_case(known));
    if wording::QUOTA_WORDS.iter().any(|known| has_word(known)) || wording::names_spent_budget(seen.text) {
        return true;
    }
    if has_word(GOOGLE_EXHAUSTED) {
        let is_daily = seen.facts.quota_ids.iter().any(|id| id.to_ascii_lowercase().contains(DAILY_QUOTA));
        return is_daily || names_limit_zero(seen.text);
    }
    seen.text.contains(QUOTA_TEXT) || (status == Some(402) && !has_word(IN_FLIGHT_BUDGET))
}

/// Whether a text says `limit: 0`, and not `limit: 0.5` or `limit: 05`.
fn names_limit_zero(text: &str) -> bool {
    text.match_indices("limit: 0").any(|(at, found)| {
        let tail = text.get(at + found.len()..).unwrap_or_default();
        let tail = tail.strip_prefix('.').unwrap_or(tail);
        !tail.starts_with(|c: char| c.is_ascii_digit())
    })
}

fn by_word(seen: &Seen<'_>, status: Option<u16>) -> Option<Verdict> {
    let words = || seen.facts.all_words();
    let has_word = |known: &str| words().any(|word| word.eq_ignore_ascii_case(known));
    if let Some(kind) = lookup(&FATAL_WORDS, has_word) {
        return Some(Verdict::new(kind, false));
    }
    if status == Some(400) && WRONG_KEY_TEXTS.iter().any(|known| seen.text.contains(known)) {
        return Some(Verdict::new(ErrorKind::Auth, false));
    }
    lookup(&RETRYABLE_WORDS, has_word)
        .or_else(|| lookup(&RETRYABLE_TEXT_WORDS, |known| seen.text.contains(known)))
        .map(|kind| Verdict::new(kind, true))
}

fn lookup(table: &[(&str, ErrorKind)], is_there: impl Fn(&str) -> bool) -> Option<ErrorKind> {
    table.iter().find(|(known, _)| is_there(known)).map(|(_, kind)| *kind)
}

/// A status that nothing else explains.
fn by_status(status: u16) -> Verdict {
    match wording::kind_of_status(status) {
        (ErrorKind::Overflow, _) => Verdict::settled(ErrorKind::Overflow, Sizes::default()),
        (kind, retryable) => Verdict::new(kind, retryable),
    }
}
