//! Reading what is told apart by a word under one key: messages by `role`, blocks by `type`.
//!
//! Keeps true: the word may stand anywhere; where it stands first, as we write it, nothing is read twice; what has an
//! unknown word is kept whole.
//!
//! Must not know: which words there are.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::message::Extra;

/// What is told apart by a word under one key.
pub(super) trait Tagged<'de>: Sized {
    const TAG: &'static str;
    const WHAT: &'static str;
    /// Those that are known.
    const WORDS: &'static [&'static str];

    /// Reads the other fields, if the word is a known one; if not, takes none of them.
    fn known<D: Deserializer<'de>>(word: &str, fields: D) -> Option<Result<Self, D::Error>>;

    /// Keeps what has another word, or none, whole.
    fn other(map: Map<String, Value>) -> Result<Self, &'static str>;

    /// Unknown fields of what has a known word.
    fn extra(&self) -> Option<&Extra>;
}

/// Reads a tagged object. Where the word stands first, as we write it, the fields are read without a detour.
pub(super) fn tagged<'de, D: Deserializer<'de>, T: Tagged<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_map(TaggedVisitor(PhantomData))
}

struct TaggedVisitor<T>(PhantomData<T>);

impl<'de, T: Tagged<'de>> Visitor<'de> for TaggedVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WHAT)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<T, A::Error> {
        let mut all = Map::new();
        if let Some(Key(key)) = fields.next_key()? {
            let value = fields.next_value()?;
            if key == T::TAG
                && let First::Word(word) = &value
                && let Some(read) = T::known(word, MapAccessDeserializer::new(&mut fields))
            {
                let read = read?;
                // Which of two words holds is nobody's guess.
                let is_double = read.extra().is_some_and(|extra| extra.contains_key(T::TAG));
                return if is_double { Err(A::Error::duplicate_field(T::TAG)) } else { Ok(read) };
            }
            all.insert(key.into_owned(), value.into());
        }
        while let Some((key, value)) = fields.next_entry()? {
            all.insert(key, value);
        }
        let word = all.get(T::TAG).and_then(Value::as_str).filter(|word| T::WORDS.contains(word)).map(str::to_owned);
        if let Some(word) = word {
            all.shift_remove(T::TAG);
            if let Some(read) = T::known(&word, Value::Object(std::mem::take(&mut all))) {
                return read.map_err(A::Error::custom);
            }
        }
        T::other(all).map_err(A::Error::custom)
    }
}

/// A key that is borrowed where the parser can.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// The first value: a word in most cases, which is read without a copy.
enum First<'a> {
    Word(Cow<'a, str>),
    Other(Value),
}

impl From<First<'_>> for Value {
    fn from(first: First<'_>) -> Self {
        match first {
            First::Word(word) => Self::String(word.into_owned()),
            First::Other(value) => value,
        }
    }
}

impl<'de> Deserialize<'de> for First<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FirstVisitor)
    }
}

struct FirstVisitor;

impl<'de> Visitor<'de> for FirstVisitor {
    type Value = First<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_borrowed_str<E>(self, word: &'de str) -> Result<First<'de>, E> {
        Ok(First::Word(word.into()))
    }

    fn visit_str<E>(self, word: &str) -> Result<First<'de>, E> {
        Ok(First::Word(word.to_owned().into()))
    }

    fn visit_string<E>(self, word: String) -> Result<First<'de>, E> {
        Ok(First::Word(word.into()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<First<'de>, E> {
        Ok(First::Other(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<First<'de>, E> {
        Ok(First::Other(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<First<'de>, E> {
        Ok(First::Other(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<First<'de>, E> {
        Ok(First::Other(value.into()))
    }

    fn visit_unit<E>(self) -> Result<First<'de>, E> {
        Ok(First::Other(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<First<'de>, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(list)).map(First::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<First<'de>, A::Error> {
        Value::deserialize(MapAccessDeserializer::new(map)).map(First::Other)
    }
}

#[cfg(test)]
mod tests {
    use crate::model::Message;

    /// What is read, written again.
    fn again(json: &str) -> Result<String, String> {
        let from_text: Message = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::from_value::<Message>(value).unwrap(), from_text, "text and value say the same");
        Ok(serde_json::to_string(&from_text).unwrap())
    }

    #[test]
    fn the_word_may_stand_anywhere() {
        let first = r#"{"role":"user","content":[{"type":"text","text":"a","x":1},{"type":"image","data":"","mimeType":"m"}],"timestamp":1,"later":{"role":"x"}}"#;
        assert_eq!(again(first).unwrap(), first);
        let last = r#"{"content":[{"text":"a","x":1,"type":"text"},{"data":"","type":"image","mimeType":"m"}],"later":{"role":"x"},"timestamp":1,"role":"user"}"#;
        assert_eq!(again(last).unwrap(), first);
    }

    #[test]
    fn an_unknown_word_or_none_keeps_the_whole_in_its_order() {
        for whole in [
            r#"{"z":1,"role":"later","a":null}"#,
            r#"{"role":"later","z":[1.5],"a":{}}"#,
            r#"{"role":"user","content":[{"type":"later","b":1,"a":2},{"a":1,"type":"later"},{"type":5},{}],"timestamp":1}"#,
        ] {
            assert_eq!(again(whole).unwrap(), whole);
        }
        for none in [r#"{"content":"x"}"#, r#"{"role":5}"#, "{}"] {
            assert!(again(none).unwrap_err().starts_with("a message needs a text field `role`"), "{none}");
        }
        assert!(again("[]").unwrap_err().contains("expected a message"));
    }

    #[test]
    fn two_words_are_an_error() {
        let twice = r#"{"role":"user","content":"x","role":"assistant"}"#;
        let error = serde_json::from_str::<Message>(twice).unwrap_err().to_string();
        assert!(error.starts_with("duplicate field `role`"), "{error}");
    }
}
