//! Detection of prompts that are too long, and the server's numbers about them (OVF-4).
//!
//! Keeps true: a throttling text is never taken for an overflow; patterns are matched by hand scanners on the error
//! path only, nothing is compiled at start (PERF-9).
//!
//! Must not know: what is done about an overflow.

use super::body::Facts;

/// Bytes a `~` in a pattern may stand for.
const GAP_BYTES_MAX: usize = 80;

/// Texts of servers, in lower case. `#` stands for a number with or without commas, `~` for anything short.
const PATTERNS: [&str; 35] = [
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
const WEAK_PATTERNS: [&str; 2] = ["too many tokens", "token limit exceeded"];

/// GitHub Copilot's text; other limits are worded so too, hence one of the subjects must stand in it.
const LIMIT_PATTERN: &str = "exceeds the limit of #";
const LIMIT_SUBJECTS: [&str; 4] = ["token", "prompt", "context", "input"];

/// z.ai's code for "prompt too long".
const OVERFLOW_CODE: &str = "1261";

/// Texts of throttling, which speak of tokens too.
const THROTTLED: [&str; 3] = ["rate limit", "too many requests", "throttlingexception"];
const THROTTLED_STARTS: [&str; 2] = ["throttling error:", "service unavailable:"];

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
    let throttled = THROTTLED.iter().any(|word| text.contains(word))
        || THROTTLED_STARTS.iter().any(|start| message.starts_with(start) || text.starts_with(start));
    if throttled {
        return false;
    }
    let is_weak = || status != Some(429) && WEAK_PATTERNS.iter().any(|pattern| matches(text, pattern));
    let is_limit = || LIMIT_SUBJECTS.iter().any(|word| text.contains(word)) && matches(text, LIMIT_PATTERN);
    facts.code.as_deref() == Some(OVERFLOW_CODE)
        || PATTERNS.iter().any(|pattern| matches(text, pattern))
        || is_weak()
        || (status != Some(429) && is_limit())
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
