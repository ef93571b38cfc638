//! Ids: of transcript entries, runs, and the calls of one reply.
//!
//! Keeps true: ids of entries and runs are types of their own; a repeated call id is renamed in the same way every
//! time.
//!
//! Must not know: how ids are made; `port::Ids` does.

use std::collections::HashMap;

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

/// Keeps the ids of the calls of one reply apart: a repeated one becomes `id-2`, `id-3`, …, or the next such id that
/// is free. With a second part behind `|`, the first one is renamed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallIds {
    /// How often an id was asked for; those given out are keys too.
    uses: HashMap<String, u32>,
}

impl CallIds {
    /// The id itself at its first use, else a new one made from it.
    pub fn unique(&mut self, id: String) -> String {
        let Some(&used) = self.uses.get(&id) else {
            self.uses.insert(id.clone(), 1);
            return id;
        };
        let mut number = used.saturating_add(1);
        let mut renamed = Self::numbered(&id, number);
        while self.uses.contains_key(&renamed) && number < u32::MAX {
            number += 1;
            renamed = Self::numbered(&id, number);
        }
        self.uses.insert(id, number);
        self.uses.insert(renamed.clone(), 1);
        renamed
    }

    fn numbered(id: &str, number: u32) -> String {
        match id.split_once('|') {
            Some((call, item)) => format!("{call}-{number}|{item}"),
            None => format!("{id}-{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CallIds;

    #[test]
    fn a_repeated_call_id_gets_the_next_free_number() {
        for (given, expected) in [
            (vec!["c1", "c1", "c1"], vec!["c1", "c1-2", "c1-3"]),
            (vec!["c1", "c1-2", "c1"], vec!["c1", "c1-2", "c1-3"]),
            (vec!["c1", "c1", "c1-2"], vec!["c1", "c1-2", "c1-2-2"]),
            (vec!["c1|a", "c1|a", "c1|b"], vec!["c1|a", "c1-2|a", "c1|b"]),
        ] {
            let mut ids = CallIds::default();
            let unique: Vec<String> = given.iter().map(|id| ids.unique((*id).to_owned())).collect();
            assert_eq!(unique, expected);
        }
    }
}
