//! `[profiles.NAME]`: settings that are laid over all files when they are asked for.
//!
//! Keeps true: the pieces of a profile keep the order of the layers they stand in and the rights of their files.
//!
//! Must not know: which profile is in use, what the settings are.

use super::error::{ConfigError, Origin};
use super::layer::Source;
use super::load::Entries;
use super::node::Data;
use super::read::quoted;
use super::schema::PROFILES;
use super::suggest::nearest;
use super::tree::IGNORED_PREFIX;

/// What one file says about one profile.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) entries: Entries,
    pub(super) source: Source,
}

/// What stands before the keys of a profile in errors.
pub(super) fn prefix(name: &str) -> String {
    format!("{PROFILES}.{}.", quoted(name))
}

/// Takes the profiles out of a file's entries.
pub(super) fn take(entries: &mut Entries, source: &Source, parts: &mut Vec<Part>, errors: &mut Vec<ConfigError>) {
    let mut wrong = |key: &str, kind: &str, at: Origin| {
        errors.push(ConfigError::new(at, format!("{key} must be a table, not {kind}")));
    };
    let mut rest = Vec::with_capacity(entries.len());
    for (name, node) in entries.drain(..) {
        if name.text != PROFILES {
            rest.push((name, node));
            continue;
        }
        let kind = node.kind();
        let Data::Table(profiles) = node.data else {
            wrong(PROFILES, kind, node.at);
            continue;
        };
        for (name, node) in profiles.into_iter().filter(|(name, _)| !name.text.starts_with(IGNORED_PREFIX)) {
            let kind = node.kind();
            match node.data {
                Data::Table(entries) => parts.push(Part { name: name.text, entries, source: source.clone() }),
                _ => wrong(prefix(&name.text).trim_end_matches('.'), kind, node.at),
            }
        }
    }
    *entries = rest;
}

/// The error for a profile that no file holds.
pub(super) fn unknown(name: &str, at: &Origin, parts: &[Part]) -> ConfigError {
    let mut known: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    known.sort_unstable();
    known.dedup();
    let near = nearest(name, known.iter().copied());
    let message = match (near, known.as_slice()) {
        (Some(_), _) => format!("no profile is called {name}"),
        (None, []) => format!("no profile is called {name}; no file holds one"),
        (None, known) => format!("no profile is called {name}; there are {}", known.join(", ")),
    };
    ConfigError::new(at.clone(), message).suggest(near)
}
