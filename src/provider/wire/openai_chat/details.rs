//! Structured reasoning that has to be sent back as it came (`reasoning_details`).
//!
//! Keeps true: entries keep their order and every field they came with, and pieces of one entry are joined; they stand
//! in the signature of the thinking they belong to (OC-1).
//!
//! Must not know: what the entries mean, beyond the text that is shown (OC-7).

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::provider::json::{self, Few, Raw};

/// Fields that grow over the entries of a stream.
const GROWING: [&str; 2] = ["text", "summary"];
/// Fields by which an entry is told from its neighbour.
const IDENTITY: [&str; 3] = ["type", "index", "id"];

/// The entries not yet given to a thinking block.
#[derive(Debug, Default)]
pub(super) struct Details {
    /// The inside of the arrays that came, joined.
    entries: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    text: Raw<'a>,
}

impl Details {
    /// Keeps the entries of one delta.
    pub(super) fn add(&mut self, raw: Raw<'_>) {
        let Some(inside) = raw.and_then(|raw| raw.get().strip_prefix('[')?.strip_suffix(']')) else { return };
        let inside = inside.trim();
        if inside.is_empty() {
            return;
        }
        if !self.entries.is_empty() {
            self.entries.push(',');
        }
        self.entries.push_str(inside);
    }

    /// Gives what was kept as one JSON array, the pieces of one entry merged.
    pub(super) fn take(&mut self) -> Option<String> {
        let entries = std::mem::take(&mut self.entries);
        if entries.is_empty() {
            return None;
        }
        let array = format!("[{entries}]");
        match json::value(&array) {
            Some(Value::Array(entries)) => serde_json::to_string(&merge(entries)).ok(),
            _ => Some(array),
        }
    }
}

/// Gives the escaped text of each entry that holds readable reasoning.
pub(super) fn texts(raw: Raw<'_>, mut give: impl FnMut(&str)) {
    let Some(raw) = raw else { return };
    let Ok(entries) = serde_json::from_str::<Few<Entry<'_>>>(raw.get()) else { return };
    for entry in entries.iter() {
        if entry.kind.is_some_and(|kind| kind.get() == r#""reasoning.text""#)
            && let Some(body) = json::string_body(entry.text)
        {
            give(body);
        }
    }
}

fn merge(entries: Vec<Value>) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for entry in entries {
        match (merged.last_mut(), entry) {
            (Some(Value::Object(last)), Value::Object(next)) if continues(last, &next) => join(last, next),
            (_, entry) => merged.push(entry),
        }
    }
    merged
}

/// Whether `next` is a further piece of `last`: both grow in the same field and nothing tells them apart.
fn continues(last: &Map<String, Value>, next: &Map<String, Value>) -> bool {
    let grows = GROWING.into_iter().any(|field| is_text(last, field) && is_text(next, field));
    grows
        && IDENTITY.into_iter().all(|field| match (present(last, field), present(next, field)) {
            (Some(a), Some(b)) => a == b,
            _ => field != "type",
        })
}

fn join(last: &mut Map<String, Value>, next: Map<String, Value>) {
    for (field, value) in next {
        match (last.get_mut(&field), value) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(more)) if GROWING.contains(&field.as_str()) => {
                text.push_str(&more);
            }
            (_, value) => {
                last.insert(field, value);
            }
        }
    }
}

fn is_text(entry: &Map<String, Value>, field: &str) -> bool {
    entry.get(field).is_some_and(Value::is_string)
}

fn present<'a>(entry: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
    entry.get(field).filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::{Details, texts};

    #[test]
    fn pieces_of_one_entry_are_merged_and_others_are_kept_apart() {
        let mut details = Details::default();
        for array in [
            r#"[{"type":"reasoning.text","text":"a","index":0,"signature":null}]"#,
            "[]",
            r#"[{"type":"reasoning.text","text":"b","index":0,"signature":"s"},{"type":"reasoning.encrypted","data":"x"}]"#,
            r#"[ {"type":"reasoning.encrypted","data":"y"} ]"#,
            r#"[{"type":"reasoning.summary","summary":"m","id":"1"},{"type":"reasoning.summary","summary":"n","id":"2"}]"#,
            r#"{"not":"an array"}"#,
        ] {
            let raw: &RawValue = serde_json::from_str(array).unwrap();
            details.add(Some(raw));
        }
        let want = r#"[{"type":"reasoning.text","text":"ab","index":0,"signature":"s"},{"type":"reasoning.encrypted","data":"x"},{"type":"reasoning.encrypted","data":"y"},{"type":"reasoning.summary","summary":"m","id":"1"},{"type":"reasoning.summary","summary":"n","id":"2"}]"#;
        assert_eq!(details.take().as_deref(), Some(want));
        assert_eq!(details.take(), None);
    }

    #[test]
    fn only_readable_reasoning_is_shown() {
        let raw: &RawValue = serde_json::from_str(
            r#"[{"type":"reasoning.text","text":"a\n"},{"type":"reasoning.encrypted","text":"b"},{"type":"reasoning.text"},5]"#,
        )
        .unwrap();
        let mut seen = Vec::new();
        texts(Some(raw), |text| seen.push(text.to_owned()));
        assert_eq!(seen, [r"a\n"]);
    }
}
