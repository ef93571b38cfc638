//! The rule of a key: how its value is read, and where it goes.
//!
//! Keeps true: a key has one rule, whichever layer it stands in; a value that was set leaves its origin; tables merge
//! key by key, a list of `+x` and `-x` edits, everything else replaces.
//!
//! Must not know: the keys themselves, the text of values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use super::error::{ConfigError, Origin};
use super::node::{Name, Node};
use super::read::{KeyName, Read, later, quoted, texts};
use super::settings::ApiKey;

/// A key of a table `T` is set into, and how its value is read.
pub(super) struct Key<T> {
    /// Dotted, relative to the table.
    pub(super) name: &'static str,
    pub(super) rule: Rule<T>,
}

/// How a value is read and where it goes.
pub(super) enum Rule<T> {
    /// Known, but nothing behind it exists yet.
    Later,
    Text(fn(&mut T, String)),
    /// Text, or `@file`.
    Prompt(fn(&mut T, String)),
    Prompts(fn(&mut T, Vec<String>)),
    /// Text, or a list that means the same with commas.
    Specs(fn(&mut T, String)),
    Word(&'static [&'static str], fn(&mut T, &str)),
    Words(&'static [&'static str], fn(&mut T, &[&str])),
    Bool(fn(&mut T, bool)),
    Count {
        min: u32,
        max: u32,
        set: fn(&mut T, u32),
    },
    Level {
        min: i8,
        max: i8,
        set: fn(&mut T, i8),
    },
    /// Not negative.
    Number(fn(&mut T, f64)),
    Duration(fn(&mut T, Option<Duration>)),
    Size {
        min: u64,
        max: u64,
        set: fn(&mut T, u64),
    },
    List(fn(&mut T, Vec<String>)),
    /// A list that replaces what is there, or edits it where all items begin with `+` or `-`.
    Edits(fn(&mut T) -> &mut Vec<String>),
    /// Relative to the file it stands in; `""` = none.
    Path(fn(&mut T, Option<PathBuf>)),
    ApiKey(fn(&mut T, ApiKey)),
    /// One of the known wires, of which one works now.
    Api(fn(&mut T, String)),
    Headers(fn(&mut T, &str, Option<String>)),
    /// Any table without the `own` keys; merged key by key.
    Open {
        own: &'static [&'static str],
        map: fn(&mut T) -> &mut Map<String, Value>,
    },
}

/// What reading one layer needs and gathers.
pub(super) struct Layer<'a> {
    /// Where relative paths start.
    pub(super) dir: &'a Path,
    /// Nobody but the user can read this layer, so a key may be written out in it.
    pub(super) private: bool,
    pub(super) errors: &'a mut Vec<ConfigError>,
    pub(super) origins: &'a mut BTreeMap<String, Origin>,
}

impl<T> Rule<T> {
    /// Sets the value, or reports what is wrong with it.
    pub(super) fn apply(&self, layer: &mut Layer<'_>, target: &mut T, key: &str, name: &Name, node: Node) {
        let at = node.at.clone();
        match self.set(layer, target, key, name, node) {
            Ok(()) => {
                layer.origins.insert(key.to_owned(), at);
            }
            Err(error) => layer.errors.push(error),
        }
    }

    fn set(&self, layer: &mut Layer<'_>, target: &mut T, key: &str, name: &Name, node: Node) -> Read<()> {
        let key = KeyName(key);
        match self {
            Self::Later => return Err(later(key.0, name.at.clone())),
            Self::Text(set) => set(target, key.text(node)?.0),
            Self::Prompt(set) => {
                let (text, at) = key.text(node)?;
                set(target, key.prompt(layer.dir, text, &at)?);
            }
            Self::Prompts(set) => set(target, key.prompts(layer.dir, node)?),
            Self::Specs(set) => set(target, key.specs(node)?),
            Self::Word(words, set) => {
                let (word, at) = key.text(node)?;
                set(target, key.word(words, &word, &at)?);
            }
            Self::Words(words, set) => {
                let list = key.list(node.settle(false))?;
                let known: Result<Vec<&str>, ConfigError> =
                    list.iter().map(|(word, at)| key.word(words, word, at)).collect();
                set(target, &known?);
            }
            Self::Bool(set) => set(target, key.bool(node)?),
            Self::Count { min, max, set } => set(target, key.whole(node, *min, *max)?),
            Self::Level { min, max, set } => set(target, key.whole(node, *min, *max)?),
            Self::Number(set) => set(target, key.number(node)?),
            Self::Duration(set) => set(target, key.duration(node)?),
            Self::Size { min, max, set } => set(target, key.size(node, *min, *max)?),
            Self::List(set) => set(target, texts(key.list(node.settle(false))?)),
            Self::Edits(list) => key.edit(list(target), node)?,
            Self::Path(set) => {
                let (path, _) = key.text(node)?;
                set(target, Some(path).filter(|path| !path.is_empty()).map(|path| layer.dir.join(path)));
            }
            Self::ApiKey(set) => set(target, key.api_key(layer.private, node)?),
            Self::Api(set) => set(target, key.api(node)?),
            Self::Headers(set) => {
                for (header, value, at) in key.headers(node)? {
                    layer.origins.insert(format!("{}.{}", key.0, quoted(&header)), at);
                    set(target, &header, value);
                }
            }
            Self::Open { own, map } => merge(map(target), key.object(own, node)?),
        }
        Ok(())
    }
}

/// Merges objects key by key, deeply; everything else replaces.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}
