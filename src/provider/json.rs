//! Reading JSON that providers and models write: borrowed, lenient about types, exact about text.
//!
//! Keeps true: every field is optional and null-tolerant (JSON-2); text is unescaped in one place, which joins UTF-16
//! halves that a server cut apart and never fails on one that stays alone (JSON-4); a text that does not parse is
//! repaired at most once (JSON-5); all work is linear in the text.
//!
//! Must not know: any protocol's field names, HTTP, events.

mod balance;
mod escape;
mod lenient;

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

pub use balance::Balance;
pub use escape::{Surrogates, Unescaper, repair};
pub use lenient::{Few, Loose, Number};

/// A field kept as the text it came in; absent and null are one.
pub type Raw<'a> = Option<&'a RawValue>;

/// The inside of a JSON string, still escaped; nothing for any other value.
pub fn string_body(raw: Raw<'_>) -> Option<&str> {
    raw?.get().strip_prefix('"')?.strip_suffix('"')
}

/// The text of a JSON string, borrowed unless it holds an escape; nothing for any other value and for empty text.
pub fn text(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    let body = string_body(raw).filter(|body| !body.is_empty())?;
    if !body.contains('\\') {
        return Some(Cow::Borrowed(body));
    }
    let mut text = String::with_capacity(body.len());
    let mut units = Unescaper::default();
    units.push(body, &mut text);
    units.finish(&mut text);
    Some(Cow::Owned(text))
}

/// Reads a whole document into a tree, with one repair. For error bodies and the like, never for deltas.
pub fn value(text: &str) -> Option<Value> {
    serde_json::from_str(text)
        .ok()
        .or_else(|| repair(text, Surrogates::Replace).and_then(|text| serde_json::from_str(&text).ok()))
}

#[cfg(test)]
mod tests;
