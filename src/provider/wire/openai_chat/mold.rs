//! A chunk that differs from an earlier one in one string only, read without parsing it again.
//!
//! Keeps true: what comes out is what parsing would give. The bytes around the string are the same as in a chunk that
//! was parsed, and the string is checked to be the inside of a JSON string, so the rest of the chunk means the same.
//!
//! Must not know: what is done with the string.
//!
//! Long replies are thousands of such chunks, and parsing each was more than half of what reading them cost (measured
//! of the whole process: 100,000 deltas took about 87 ms of CPU with parsing alone, and 39 ms so).

use super::chunk::Chunk;
use crate::provider::json::{Raw, string_body};

/// Longer surroundings are not worth keeping.
const AROUND_BYTES_MAX: usize = 4 * 1024;

/// What the string of a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Content,
    /// More arguments of the call with this index, or of the last one.
    Arguments(Option<i64>),
}

/// The last chunk that said nothing but one string.
#[derive(Debug, Default)]
pub(super) struct Mold {
    before: String,
    after: String,
    slot: Option<Slot>,
}

impl Mold {
    /// The string of a chunk of the same mold, still escaped.
    pub(super) fn read<'a>(&self, text: &'a str) -> Option<(Slot, &'a str)> {
        let slot = self.slot?;
        let body = text.strip_prefix(self.before.as_str())?.strip_suffix(self.after.as_str())?;
        is_plain_body(body.as_bytes()).then_some((slot, body))
    }

    /// Remembers a chunk, if it says nothing but one string.
    pub(super) fn keep(&mut self, text: &str, chunk: &Chunk<'_>) {
        self.slot = None;
        let Some((slot, body)) = only_string(chunk) else { return };
        // The body is a part of the text.
        let Some(start) = body.as_ptr().addr().checked_sub(text.as_ptr().addr()) else { return };
        let end = start.saturating_add(body.len());
        let (Some(before), Some(after)) = (text.get(..start), text.get(end..)) else { return };
        if before.len().saturating_add(after.len()) > AROUND_BYTES_MAX {
            return;
        }
        before.clone_into(&mut self.before);
        after.clone_into(&mut self.after);
        self.slot = Some(slot);
    }
}

/// The string, if it is all the chunk says besides naming the reply.
fn only_string<'a>(chunk: &Chunk<'a>) -> Option<(Slot, &'a str)> {
    let mut choices = chunk.choices.iter();
    let (choice, None) = (choices.next()?, choices.next()) else { return None };
    let silent = chunk.error.is_none() && chunk.usage.is_none() && chunk.x_groq.0.is_none();
    let alone = choice.finish_reason.is_none() && choice.usage.is_none() && choice.error.is_none();
    if !silent || !alone || choice.message.0.is_some() || choice.index.0.unwrap_or(0) != 0 {
        return None;
    }
    let delta = choice.delta.0.as_ref()?;
    let thinks = delta.reasoning_content.is_some() || delta.reasoning.is_some() || delta.reasoning_text.is_some();
    if thinks || delta.reasoning_details.is_some() || delta.refusal.is_some() {
        return None;
    }
    let mut calls = delta.tool_calls.iter();
    match (calls.next(), calls.next()) {
        (None, _) => Some((Slot::Content, string_body(delta.content)?)),
        (Some(call), None) if is_empty(delta.content) && is_empty(call.id) => {
            let function = call.function.0.as_ref().filter(|function| is_empty(function.name))?;
            let index = call.index.0.or(function.index.0);
            Some((Slot::Arguments(index), string_body(function.arguments)?))
        }
        (Some(_), _) => None,
    }
}

fn is_empty(raw: Raw<'_>) -> bool {
    raw.is_none() || string_body(raw) == Some("")
}

/// Whether bytes are the inside of a JSON string with only the simple escapes; others are left to the parser.
fn is_plain_body(bytes: &[u8]) -> bool {
    let mut bytes = bytes.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' | 0..=0x1F => return false,
            b'\\' => match bytes.next() {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {}
                _ => return false,
            },
            _ => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{Mold, Slot};

    fn mold(text: &str) -> Mold {
        let mut mold = Mold::default();
        mold.keep(text, &serde_json::from_str(text).unwrap());
        mold
    }

    #[test]
    fn a_chunk_of_the_same_mold_gives_its_string_and_any_other_is_left_to_the_parser() {
        let mold = mold(r#"{"id":"c","choices":[{"index":0,"delta":{"content":"one"},"finish_reason":null}]}"#);
        let chunk = |body: &str| {
            format!(r#"{{"id":"c","choices":[{{"index":0,"delta":{{"content":"{body}"}},"finish_reason":null}}]}}"#)
        };
        for body in ["", "x", r#"a \"quoted\" \n"#, "🚀"] {
            assert_eq!(mold.read(&chunk(body)), Some((Slot::Content, body)));
        }
        for body in [r#"x","y":"z"#, r"\u00e9", "\u{1}", r"\", r"\x"] {
            assert_eq!(mold.read(&chunk(body)), None, "{body:?}");
        }
        let other = chunk("x").replace("null", r#""stop""#);
        assert_eq!(mold.read(&other), None);
    }

    #[test]
    fn only_a_chunk_that_says_nothing_else_makes_a_mold() {
        for (text, slot) in [
            (r#"{"choices":[{"delta":{"content":"x"}}]}"#, Some(Slot::Content)),
            (
                r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{"}}]}}]}"#,
                Some(Slot::Arguments(Some(1))),
            ),
            (r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"a","function":{"arguments":"{"}}]}}]}"#, None),
            (r#"{"choices":[{"delta":{"content":"x","reasoning":"y"}}]}"#, None),
            (r#"{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}"#, None),
            (r#"{"choices":[{"delta":{"content":"x"}}],"usage":{"total_tokens":1}}"#, None),
            (r#"{"choices":[{"index":1,"delta":{"content":"x"}}]}"#, None),
            (r#"{"choices":[{"delta":{"content":["x"]}}]}"#, None),
        ] {
            assert_eq!(mold(text).slot, slot, "{text}");
        }
    }
}
