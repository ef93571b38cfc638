//! Detection of prompts that are too long, and the server's numbers about them (OVF-4).
//!
//! Keeps true: a throttling text is never taken for an overflow; numbers are found by hand scanners on the error path
//! only, nothing is compiled at start (PERF-9).
//!
//! Must not know: the wording of servers, which `turn::wording` has; what is done about an overflow.

use super::body::Facts;
use crate::turn::wording;

/// z.ai's code for "prompt too long".
const OVERFLOW_CODE: &str = "1261";

/// The provider whose overflow is an empty 400 or 413.
const EMPTY_BODY_PROVIDER: &str = "cerebras";

/// Where the server's limit stands: behind one of these.
const LIMIT_BEHIND: [&str; 15] = [
    "maximum context length is ",
    "maximum context length of ",
    "maximum context length (",
    "maximum model length of ",
    "maximum prompt length is ",
    "maximum allowed input length of ",
    "available context size (",
    "configured context size is ",
    "context length of only ",
    "model's context length (",
    "maximum number of tokens allowed (",
    "exceeds the limit of ",
    "model token limit: ",
    "model with ",
    "tokens > ",
];

/// Where the size of the prompt stands: behind one of these, the first that is there.
const PROMPT_BEHIND: [&str; 15] = [
    "prompt is too long: ",
    "your messages resulted in ",
    "the request contains ",
    "your request has ",
    "prompt contains ",
    "prompt has ",
    "request (",
    "input (",
    "input token count (",
    "prompt token count of ",
    "keep the first ",
    "prompt (length ",
    "(requested: ",
    "you requested about ",
    "you requested ",
];

/// The server's own numbers about a prompt that is too long (OVF-4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub prompt_tokens: Option<u64>,
    pub limit: Option<u64>,
}

/// Whether the error says that the prompt is too long. `text` is type, code and message in lower case.
pub(super) fn is_overflow(provider: &str, status: Option<u16>, body_is_empty: bool, facts: &Facts, text: &str) -> bool {
    if body_is_empty {
        return provider == EMPTY_BODY_PROVIDER && matches!(status, Some(400 | 413));
    }
    let message = facts.message.as_deref().unwrap_or_default().to_lowercase();
    if wording::names_throttling(text) || wording::names_throttling(&message) {
        return false;
    }
    facts.code.as_deref() == Some(OVERFLOW_CODE) || wording::names_overflow(text, status == Some(429))
}

/// The numbers a text in lower case names, those of the body first.
pub(super) fn sizes(facts: &Facts, text: &str) -> Sizes {
    let messages = number_before(text, " in the messages");
    let prompt = facts.prompt_tokens.or(messages).or_else(|| first_behind(text, &PROMPT_BEHIND));
    Sizes { prompt_tokens: prompt, limit: facts.limit.or_else(|| first_behind(text, &LIMIT_BEHIND)) }
}

/// "Request too large … Limit 8000, Requested 8590": one request against a limit of tokens per minute (ERR-9).
pub(super) fn minute_limit(text: &str) -> Option<Sizes> {
    if !text.contains("request too large") {
        return None;
    }
    let limit = number_behind(text, "limit ")?;
    let requested = number_behind(text, "requested ")?;
    Some(Sizes { prompt_tokens: Some(requested), limit: Some(limit) })
}

fn first_behind(text: &str, phrases: &[&str]) -> Option<u64> {
    phrases.iter().find_map(|phrase| number_behind(text, phrase))
}

/// The number directly behind the first place of a phrase that has one.
fn number_behind(text: &str, phrase: &str) -> Option<u64> {
    text.match_indices(phrase).find_map(|(at, _)| number_at(text.get(at + phrase.len()..)?))
}

fn number_at(text: &str) -> Option<u64> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(text.len());
    text.get(..end)?.replace(',', "").parse().ok()
}

fn number_before(text: &str, phrase: &str) -> Option<u64> {
    let (head, _) = text.split_once(phrase)?;
    let start = head.rfind(|c: char| !c.is_ascii_digit() && c != ',').map_or(0, |at| at + 1);
    number_at(head.get(start..)?)
}
