//! Reading what is told apart by a word under one key: messages by `role`, blocks by `type`.
//!
//! Keeps true: the word may stand anywhere; where it stands first, as we write it, nothing is read twice; what has an
//! unknown word is kept whole.
//!
//! Must not know: which words there are.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
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
        if let Some((key, value)) = fields.next_entry::<String, Value>()? {
            if key == T::TAG
                && let Some(word) = value.as_str()
                && let Some(read) = T::known(word, MapAccessDeserializer::new(&mut fields))
            {
                let read = read?;
                // Which of two words holds is nobody's guess.
                let is_double = read.extra().is_some_and(|extra| extra.contains_key(T::TAG));
                return if is_double { Err(A::Error::duplicate_field(T::TAG)) } else { Ok(read) };
            }
            all.insert(key, value);
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
