//! Token counts, from the names servers give them.
//!
//! Keeps true: input counts only uncached tokens; reasoning is part of the output; the total is the sum of its parts
//! (OC-16); numbers that nobody reported are marked as estimates (OC-17).
//!
//! Must not know: prices.

use serde::Deserialize;

use crate::model::Usage;
use crate::provider::json::{self, Loose, Number, Raw};

/// Characters that make a token, where nobody counted (OC-17).
const CHARS_PER_TOKEN: u64 = 4;

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireUsage<'a> {
    prompt_tokens: Number,
    completion_tokens: Number,
    total_tokens: Number,
    prompt_tokens_details: Loose<PromptDetails>,
    completion_tokens_details: Loose<CompletionDetails>,
    prompt_cache_hit_tokens: Number,
    cached_tokens: Number,
    /// USD, as `OpenRouter` reports it.
    #[serde(borrow)]
    cost: Raw<'a>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Number,
    cache_write_tokens: Number,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Number,
}

/// Reads a usage object; nothing if it reports no counts (OC-16).
pub(super) fn read(raw: Raw<'_>) -> Option<Usage> {
    let text = raw?.get();
    if let Ok(Loose(wire)) = serde_json::from_str::<Loose<WireUsage<'_>>>(text) {
        return convert(&wire?);
    }
    // A key that stands twice: a tree keeps the last one.
    let rebuilt = json::value(text)?.to_string();
    let Loose(wire) = serde_json::from_str::<Loose<WireUsage<'_>>>(&rebuilt).ok()?;
    convert(&wire?)
}

fn convert(wire: &WireUsage<'_>) -> Option<Usage> {
    if wire.prompt_tokens.0.is_none() && wire.completion_tokens.0.is_none() {
        return None;
    }
    let prompt_details = wire.prompt_tokens_details.0.unwrap_or_default();
    let read = [prompt_details.cached_tokens, wire.prompt_cache_hit_tokens, wire.cached_tokens];
    let cache_read = read.into_iter().find_map(Number::count).unwrap_or(0);
    let cache_write = prompt_details.cache_write_tokens.count().unwrap_or(0);
    let prompt = wire.prompt_tokens.count().unwrap_or(0);
    let completion = wire.completion_tokens.count().unwrap_or(0);
    let reasoning = wire.completion_tokens_details.0.and_then(|details| details.reasoning_tokens.count());
    let mut usage = Usage {
        input: prompt.saturating_sub(cache_read).saturating_sub(cache_write),
        output: output(prompt, completion, reasoning.unwrap_or(0), wire.total_tokens.count()),
        cache_read,
        cache_write,
        reasoning,
        ..Usage::default()
    };
    usage.sum_total();
    let cost = wire.cost.and_then(|cost| cost.get().parse::<f64>().ok());
    if let Some(cost) = cost.filter(|cost| cost.is_finite() && *cost > 0.0) {
        usage.cost.total = cost;
    }
    Some(usage)
}

/// Some servers count reasoning beside the completion instead of in it.
fn output(prompt: u64, completion: u64, reasoning: u64, total: Option<u64>) -> u64 {
    let apart = completion.saturating_add(reasoning);
    if completion < reasoning || total == Some(prompt.saturating_add(apart)) { apart } else { completion }
}

/// The numbers of a reply for which the server reported none (OC-17).
pub(super) fn estimate(request_chars: u64, reply_chars: u64) -> Usage {
    let mut usage = Usage {
        input: request_chars.div_ceil(CHARS_PER_TOKEN),
        output: reply_chars.div_ceil(CHARS_PER_TOKEN),
        estimated: Some(true),
        ..Usage::default()
    };
    usage.sum_total();
    usage
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::{estimate, read};

    #[test]
    fn counts_are_found_under_every_name() {
        for (json, want) in [
            // Cases 39, 63, 64.
            (
                r#"{"prompt_tokens":33,"completion_tokens":11,"total_tokens":44,"prompt_tokens_details":{"cached_tokens":30}}"#,
                "3/11/30/0 None",
            ),
            (r#"{"prompt_tokens":12.0,"completion_tokens":2}"#, "12/2/0/0 None"),
            (
                r#"{"prompt_tokens":5,"completion_tokens":10,"total_tokens":55,"completion_tokens_details":{"reasoning_tokens":40}}"#,
                "5/50/0/0 Some(40)",
            ),
            (
                r#"{"prompt_tokens":5,"completion_tokens":50,"total_tokens":55,"completion_tokens_details":{"reasoning_tokens":40}}"#,
                "5/50/0/0 Some(40)",
            ),
            (
                r#"{"prompt_tokens":5,"completion_tokens":50,"total_tokens":95,"completion_tokens_details":{"reasoning_tokens":40}}"#,
                "5/90/0/0 Some(40)",
            ),
            (r#"{"prompt_tokens":9,"completion_tokens":1,"prompt_cache_hit_tokens":4}"#, "5/1/4/0 None"),
            (r#"{"prompt_tokens":9,"completion_tokens":1,"cached_tokens":3}"#, "6/1/3/0 None"),
            // Of a key that stands twice the last one counts.
            (r#"{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens":9}"#, "9/1/0/0 None"),
            (
                r#"{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":1,"cached_tokens":2}}"#,
                "7/1/2/0 None",
            ),
            (
                r#"{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":2,"cache_write_tokens":3}}"#,
                "4/0/2/3 None",
            ),
            (r#"{"prompt_tokens":-4,"completion_tokens":null,"prompt_tokens_details":null}"#, "0/0/0/0 None"),
            (
                r#"{"prompt_tokens":1,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":5}}"#,
                "0/1/5/0 None",
            ),
        ] {
            let raw: &RawValue = serde_json::from_str(json).unwrap();
            let usage = read(Some(raw)).unwrap();
            let got = format!(
                "{}/{}/{}/{} {:?}",
                usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning
            );
            assert_eq!(got, want, "{json}");
            assert_eq!(usage.total_tokens, usage.input + usage.output + usage.cache_read + usage.cache_write);
        }
    }

    #[test]
    fn an_object_without_counts_is_no_report() {
        for json in ["{}", "[]", "5", r#"{"prompt_tokens":null}"#] {
            let raw: &RawValue = serde_json::from_str(json).unwrap();
            assert_eq!(read(Some(raw)), None, "{json}");
        }
        assert_eq!(read(None), None);
    }

    #[test]
    fn an_estimate_rounds_up_and_says_so() {
        let usage = estimate(5, 1);
        assert_eq!((usage.input, usage.output, usage.total_tokens, usage.estimated), (2, 1, 3, Some(true)));
    }
}
