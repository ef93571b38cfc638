//! What was written, key by key, with the place of each value: what listings show.
//!
//! Keeps true: a later layer's value takes the place of an earlier one's; a value that may hold a secret never prints.
//!
//! Must not know: which keys exist, what a value does.

use std::collections::BTreeMap;
use std::fmt;

use super::Origin;

/// A value as a listing shows it.
#[derive(Clone, PartialEq)]
pub(super) struct Shown {
    value: toml::Value,
    hidden: bool,
}

impl Shown {
    pub(super) fn open(value: toml::Value) -> Self {
        Self { value, hidden: false }
    }

    /// A value that may hold a secret.
    pub(super) fn hidden(value: toml::Value) -> Self {
        Self { value, hidden: true }
    }

    /// `None`: not for the eyes of others.
    pub(super) fn visible(&self) -> Option<&toml::Value> {
        (!self.hidden).then_some(&self.value)
    }

    /// The value itself; for checks only.
    pub(super) fn value(&self) -> &toml::Value {
        &self.value
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.visible() {
            Some(value) => value.fmt(f),
            None => f.write_str("***"),
        }
    }
}

/// Every key that was written, dotted, with its place. Tables with names of the user's choice have a place, too.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Written {
    pub(super) origins: BTreeMap<String, Origin>,
    pub(super) values: BTreeMap<String, Shown>,
}

impl Written {
    pub(super) fn keep(&mut self, key: &str, at: Origin, value: Option<Shown>) {
        self.origins.insert(key.to_owned(), at);
        if let Some(value) = value {
            self.values.insert(key.to_owned(), value);
        }
    }

    /// Forgets a key that only differs in case; names of headers do not care.
    pub(super) fn forget_alike(&mut self, key: &str) {
        self.origins.retain(|known, _| !known.eq_ignore_ascii_case(key));
        self.values.retain(|known, _| !known.eq_ignore_ascii_case(key));
    }

    /// The value of a key as it was written.
    pub(super) fn value(&self, key: &str) -> Option<&toml::Value> {
        self.values.get(key).map(Shown::value)
    }

    /// The keys of a table of tables: `hooks` gives `hooks.guard` and its place. The names are as errors write them.
    pub(super) fn tables<'a>(&'a self, table: &str) -> impl Iterator<Item = (&'a str, &'a Origin)> {
        let prefix = format!("{table}.");
        self.origins
            .iter()
            .map(|(key, at)| (key.as_str(), at))
            .filter(move |(key, _)| key.strip_prefix(&prefix).is_some_and(is_one_name))
    }

    /// What was written below a key, without its values' names: `hooks.guard.` gives `command`, `env.A`.
    pub(super) fn below<'a>(&'a self, key: &str) -> impl Iterator<Item = (&'a str, &'a Shown)> {
        let prefix = format!("{key}.");
        let start = prefix.clone();
        self.values.range(start..).map_while(move |(key, value)| Some((key.strip_prefix(&prefix)?, value)))
    }
}

/// Whether a dotted key is one name, in quotes or not.
fn is_one_name(key: &str) -> bool {
    match key.strip_prefix('"') {
        Some(quoted) => {
            let mut escaped = false;
            let end = quoted.bytes().position(|byte| {
                let ends = byte == b'"' && !escaped;
                escaped = byte == b'\\' && !escaped;
                ends
            });
            end.is_some_and(|end| end + 1 == quoted.len())
        }
        None => !key.is_empty() && !key.contains('.'),
    }
}
