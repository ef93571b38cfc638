//! A chunk that differs from an earlier one in one string only, read without parsing it again.
//!
//! Keeps true: what comes out is what parsing would give. The bytes around the string are the same as in a chunk that
//! was parsed, and the string is checked to be the inside of a JSON string, so the rest of the chunk means the same.
//!
//! Must not know: what is done with the string.
//!
//! Long replies are thousands of such chunks, and parsing each was more than half of what reading them cost (measured
//! of the whole process: 100,000 deltas took about 87 ms of CPU with parsing alone, and 39 ms so). Telling them in the
//! bytes as they arrived, before lines are searched and text is checked, and joining their text where it is made
//! saved another quarter (74 ms against 55, at the level the program is released with).

use super::chunk::Chunk;
use crate::provider::json::{Raw, string_body};

/// Longer surroundings are not worth keeping.
const AROUND_BYTES_MAX: usize = 4 * 1024;

/// What an event begins with that is one line, and what ends it, as nearly all servers write it.
const FIELD: &str = "data: ";
const EVENT_END: &str = "\n\n";
const LINE_ENDS: [char; 2] = ['\n', '\r'];

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
    /// What is before the string, behind [`FIELD`].
    head: String,
    /// What is behind the string, and [`EVENT_END`].
    tail: String,
    slot: Option<Slot>,
    /// The chunk was one line.
    is_line: bool,
}

impl Mold {
    /// The string of a chunk of the same mold, still escaped.
    pub(super) fn read<'a>(&self, text: &'a str) -> Option<(Slot, &'a str)> {
        let slot = self.slot?;
        let rest = text.strip_prefix(self.head.strip_prefix(FIELD)?)?;
        let (body, after) = rest.split_at_checked(plain_len(rest.as_bytes())?)?;
        (after == self.tail.strip_suffix(EVENT_END)?).then_some((slot, body))
    }

    /// The string of a chunk of the same mold that is the event at the beginning of `bytes`, and what follows that event.
    pub(super) fn split_event<'a>(&self, bytes: &'a [u8]) -> Option<(Slot, &'a str, &'a [u8])> {
        let slot = self.slot.filter(|_| self.is_line)?;
        let rest = bytes.strip_prefix(self.head.as_bytes())?;
        let (body, rest) = rest.split_at_checked(plain_len(rest)?)?;
        let behind = rest.strip_prefix(self.tail.as_bytes())?;
        Some((slot, std::str::from_utf8(body).ok()?, behind))
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
        FIELD.clone_into(&mut self.head);
        self.head.push_str(before);
        after.clone_into(&mut self.tail);
        self.tail.push_str(EVENT_END);
        self.is_line = !before.contains(LINE_ENDS) && !after.contains(LINE_ENDS);
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

/// Bytes up to the quote that ends a JSON string. Nothing if there is none, or for other than the simple escapes: these
/// are left to the parser.
fn plain_len(bytes: &[u8]) -> Option<usize> {
    let mut at: usize = 0;
    loop {
        let step = match bytes.get(at)? {
            b'"' => return Some(at),
            b'\\' => match bytes.get(at.saturating_add(1))? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
                _ => return None,
            },
            0..=0x1F => return None,
            _ => 1,
        };
        at = at.saturating_add(step);
    }
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
    fn an_event_of_the_same_mold_is_told_in_the_bytes_as_they_came() {
        let chunk = |body: &str| format!(r#"{{"choices":[{{"delta":{{"content":"{body}"}}}}]}}"#);
        let mold = mold(&chunk("one"));
        for body in ["", r#"\"q\" \\"#, "🚀"] {
            let bytes = format!("data: {}\n\ndata: x", chunk(body));
            assert_eq!(mold.split_event(bytes.as_bytes()), Some((Slot::Content, body, &b"data: x"[..])), "{body}");
            for cut in 0..bytes.len() - "data: x".len() {
                assert_eq!(mold.split_event(&bytes.as_bytes()[..cut]), None, "{body} cut at {cut}");
            }
        }
        for other in ["data:", "data:  ", "id: 1\ndata: "] {
            assert_eq!(mold.split_event(format!("{other}{}\n\n", chunk("x")).as_bytes()), None, "{other}");
        }
        for end in ["\r\n\r\n", "\ndata: more\n\n", " \n\n"] {
            assert_eq!(mold.split_event(format!("data: {}{end}", chunk("x")).as_bytes()), None, "{end:?}");
        }
        let mut invalid = format!("data: {}\n\n", chunk("~")).into_bytes();
        for byte in &mut invalid {
            *byte = if *byte == b'~' { 0xFF } else { *byte };
        }
        assert_eq!(mold.split_event(&invalid), None, "no UTF-8");
    }

    #[test]
    fn a_chunk_of_several_lines_makes_no_mold_of_events() {
        let text = "{\n\"choices\":[{\"delta\":{\"content\":\"one\"}}]}";
        let mold = mold(text);
        assert!(mold.read(text).is_some());
        assert_eq!(mold.split_event(format!("data: {text}\n\n").as_bytes()), None);
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
