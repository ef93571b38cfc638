//! Members that mean something in some writes and anything in others, read in passing.
//!
//! Keeps true: no value of such a member is an error, and none is kept that is not a short text.
//!
//! Must not know: which member is meant.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A text, or what stands where a text may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Loose<'a> {
    #[default]
    Absent,
    Null,
    Text(Cow<'a, str>),
    Other,
}

impl<'a> Loose<'a> {
    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Self::Text(text) => Some(text),
            Self::Absent | Self::Null | Self::Other => None,
        }
    }
}

/// What is needed of a message to know a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MessageHead<'a> {
    pub(super) role: Loose<'a>,
    pub(super) stop_reason: Loose<'a>,
}

/// Takes the values that are neither texts nor objects.
macro_rules! other_values {
    ($other:expr) => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok($other)
        }

        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok($other)
        }

        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok($other)
        }

        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok($other)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok($other)
        }
    };
}

impl<'de: 'a, 'a> Deserialize<'de> for Loose<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Loose<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Loose<'de>, E> {
                Ok(Loose::Text(text.into()))
            }

            fn visit_str<E>(self, text: &str) -> Result<Loose<'de>, E> {
                Ok(Loose::Text(text.to_owned().into()))
            }

            fn visit_unit<E>(self) -> Result<Loose<'de>, E> {
                Ok(Loose::Null)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Loose<'de>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Loose::Other)
            }

            other_values!(Loose::Other);
        }

        deserializer.deserialize_any(TextVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for MessageHead<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MessageVisitor;

        impl<'de> Visitor<'de> for MessageVisitor {
            type Value = MessageHead<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_str<E>(self, _: &str) -> Result<MessageHead<'de>, E> {
                Ok(MessageHead::default())
            }

            fn visit_unit<E>(self) -> Result<MessageHead<'de>, E> {
                Ok(MessageHead::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MessageHead<'de>, A::Error> {
                let mut head = MessageHead::default();
                while let Some(key) = map.next_key::<Loose<'de>>()? {
                    match key.text().as_deref() {
                        Some("role") => head.role = map.next_value()?,
                        Some("stopReason") => head.stop_reason = map.next_value()?,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(head)
            }

            other_values!(MessageHead::default());
        }

        deserializer.deserialize_any(MessageVisitor)
    }
}
