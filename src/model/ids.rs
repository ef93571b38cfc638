use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps an id as the generator made it.
            pub fn new(id: impl Into<String>) -> Self {
                Self(id.into())
            }

            /// The whole id.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// An entry of a transcript; also the invocation id of a tool call, which is the id of its future result.
    EntryId
);
id!(
    /// One run: from accepting a prompt to its result.
    RunId
);

/// The short form shown to people: the last 8 hex digits.
pub fn short_id(id: &str) -> &str {
    id.char_indices().rev().nth(7).and_then(|(at, _)| id.get(at..)).unwrap_or(id)
}
