//! The rule of a key: how its value is read, and where it goes.
//!
//! Keeps true: a key has one rule, whichever layer it stands in, and the JSON Schema says the same; a value that was set
//! leaves its origin and what it was; tables merge key by key, a list of `+x` and `-x` edits, lists of prohibitions
//! grow, everything else replaces; a key with nothing behind it is checked like any other before it is refused.
//!
//! Must not know: the keys themselves, the text of values.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use super::error::{ConfigError, Origin};
use super::layer::Layer;
use super::node::{Name, Node};
use super::read::{KeyName, Read, later, quoted, texts};
use super::secret::{hides, holds_text, url_hides};
use super::settings::ApiKey;
use super::written::Shown;

/// A key of a table `T` is set into, and how its value is read.
pub(super) struct Key<T> {
    /// Dotted, relative to the table.
    pub(super) name: &'static str,
    pub(super) rule: Rule<T>,
    pub(super) now: Now,
}

/// Whether there is anything behind a key in this version.
#[derive(Clone, Copy)]
pub(super) enum Now {
    Yes,
    /// The value is checked and then refused.
    No,
    /// Only behind these words of its rule.
    Words(&'static [&'static str]),
}

/// Sets what was read.
pub(super) type Set<T, V> = fn(&mut T, V);

/// How a value is read and where it goes.
pub(super) enum Rule<T> {
    Text(Set<T, String>),
    /// An address; it may hold a password.
    Url(Set<T, String>),
    /// Text, or `@file`.
    Prompt(Set<T, String>),
    Prompts(Set<T, Vec<String>>),
    /// Texts, or one text that separates them with commas.
    Specs(Set<T, Vec<String>>),
    Word(&'static [&'static str], fn(&mut T, &str)),
    Words(&'static [&'static str], fn(&mut T, &[&str])),
    /// One word or a list of them.
    OneOrMore(&'static [&'static str], fn(&mut T, &[&str])),
    Bool(Set<T, bool>),
    Count {
        min: u32,
        max: u32,
        set: Set<T, u32>,
    },
    Level {
        min: i64,
        max: i64,
        set: Set<T, i64>,
    },
    /// Not negative.
    Number(Set<T, f64>),
    Duration(Set<T, Option<Duration>>),
    Size {
        min: u64,
        max: u64,
        set: Set<T, u64>,
    },
    List(Set<T, Vec<String>>),
    /// A list that replaces what is there, or edits it where all items begin with `+` or `-`.
    Edits(fn(&mut T) -> &mut Vec<String>),
    /// A list of prohibitions: no later layer removes one.
    Grow(fn(&mut T) -> &mut Vec<String>),
    /// Permission rules, each a text or a table of the rule and its reason.
    Rules(Set<T, Vec<String>>),
    /// One permission rule; `""` = none.
    When(Set<T, String>),
    /// Whole numbers.
    Codes {
        min: u8,
        max: u8,
        set: Set<T, Vec<u8>>,
    },
    /// A table of texts by the names of variables; merged key by key.
    Variables(fn(&mut T, String, String)),
    /// A program: a name on PATH, or a path relative to the file it stands in; `""` = none.
    Program(Set<T, String>),
    /// A program and its arguments.
    Argv(Set<T, Vec<String>>),
    /// A program and its arguments, or one line for a shell.
    ArgvOrShell(Set<T, Vec<String>>),
    /// Arguments with references to parameters; a list among them is an optional group.
    Template(Set<T, Vec<Vec<String>>>),
    /// A JSON Schema of an object.
    Parameters(Set<T, Map<String, Value>>),
    /// A file that holds one.
    ParametersFile(Set<T, Map<String, Value>>),
    /// Parameters by name, in short.
    Params(Set<T, Map<String, Value>>),
    /// Files that are read when they are named.
    Imports(Set<T, Vec<Vec<u8>>>),
    /// Relative to the file it stands in; `""` = none.
    Path(Set<T, Option<PathBuf>>),
    ApiKey(Set<T, ApiKey>),
    Headers(fn(&mut T, &str, Option<String>)),
    /// Any table without the `own` keys; merged key by key.
    Open {
        own: &'static [&'static str],
        map: fn(&mut T) -> &mut Map<String, Value>,
    },
}

/// What is kept of a value that was set.
enum Kept {
    /// What was written, as it was written.
    Written,
    Value(toml::Value),
    Hidden,
    /// Every entry is kept by itself.
    Entries,
}

impl<T> Key<T> {
    /// Sets the value, or reports what is wrong with it.
    pub(super) fn apply(&self, layer: &mut Layer<'_>, target: &mut T, key: &str, name: &Name, node: Node) {
        let at = node.at.clone();
        let written = node.clone().settle(self.rule.takes_text()).to_toml();
        let kept = match self.rule.set(layer, target, key, node) {
            Ok(kept) => kept,
            Err(error) => return layer.errors.push(error),
        };
        if let Some(error) = self.refusal(key, name, &at, &written) {
            return layer.errors.push(error);
        }
        let shown = match kept {
            Kept::Written => Some(Shown::open(written)),
            Kept::Value(value) => Some(Shown::open(value)),
            Kept::Hidden => Some(Shown::hidden(written)),
            Kept::Entries => None,
        };
        layer.keep(key, at, shown);
    }

    /// Why a value that is right cannot be used yet.
    fn refusal(&self, key: &str, name: &Name, at: &Origin, written: &toml::Value) -> Option<ConfigError> {
        match self.now {
            Now::Yes => None,
            Now::No => Some(later(key, name.at.clone())),
            Now::Words(words) => {
                let word = written.as_str().unwrap_or_default();
                (!words.contains(&word)).then(|| later(&format!("{key} = {word:?}"), at.clone()))
            }
        }
    }
}

impl<T> Rule<T> {
    /// Whether text from a variable or a flag stays text, whatever it looks like.
    fn takes_text(&self) -> bool {
        matches!(
            self,
            Self::Text(_)
                | Self::Url(_)
                | Self::Prompt(_)
                | Self::Prompts(_)
                | Self::Specs(_)
                | Self::Word(..)
                | Self::OneOrMore(..)
                | Self::Edits(_)
                | Self::When(_)
                | Self::Program(_)
                | Self::ArgvOrShell(_)
                | Self::Path(_)
                | Self::ApiKey(_)
                | Self::ParametersFile(_)
        )
    }

    fn set(&self, layer: &mut Layer<'_>, target: &mut T, shown: &str, node: Node) -> Read<Kept> {
        let key = KeyName(shown);
        let table = matches!(
            self,
            Self::Variables(_) | Self::Parameters(_) | Self::Params(_) | Self::Headers(_) | Self::Open { .. }
        );
        if table {
            return self.set_table(layer, target, shown, node);
        }
        match self {
            Self::Text(set) => set(target, key.text(node)?.0),
            Self::Url(set) => {
                let (url, _) = key.text(node)?;
                let hidden = url_hides(&url);
                set(target, url);
                return Ok(if hidden { Kept::Hidden } else { Kept::Written });
            }
            Self::Specs(set) => set(target, key.specs(node)?),
            Self::Word(words, set) => {
                let (word, at) = key.text(node)?;
                set(target, key.word(words, &word, &at)?);
            }
            Self::Words(words, set) => set(target, &key.words(words, &key.list(node.settle(false))?)?),
            Self::OneOrMore(words, set) => set(target, &key.words(words, &key.one_or_more(node)?)?),
            Self::Bool(set) => set(target, key.bool(node)?),
            Self::Count { min, max, set } => set(target, key.whole(node, *min, *max)?),
            Self::Level { min, max, set } => set(target, key.whole(node, *min, *max)?),
            Self::Number(set) => set(target, key.number(node)?),
            Self::Duration(set) => set(target, key.duration(node)?),
            Self::Size { min, max, set } => set(target, key.size(node, *min, *max)?),
            Self::Codes { min, max, set } => set(target, key.codes(node, *min, *max)?),
            Self::Rules(set) => set(target, key.rules(node)?),
            Self::When(set) => set(target, key.when(node)?),
            Self::List(set) => set(target, texts(key.list(node.settle(false))?)),
            Self::Template(set) => set(target, key.template(node)?),
            Self::ApiKey(set) => {
                let (api_key, hidden) = key.api_key(layer.source.private, node)?;
                set(target, api_key);
                return Ok(if hidden { Kept::Hidden } else { Kept::Written });
            }
            Self::Edits(list) => {
                let list = list(target);
                key.edit(list, node)?;
                return Ok(Kept::Value(strings(list)));
            }
            Self::Grow(list) => {
                let list = list(target);
                let more = texts(key.list(node.settle(false))?);
                let new: Vec<String> = more.into_iter().filter(|item| !list.contains(item)).collect();
                list.extend(new);
                return Ok(Kept::Value(strings(list)));
            }
            _ => return self.set_place(layer, target, shown, node),
        }
        Ok(Kept::Written)
    }

    /// Values that depend on where the layer stands.
    fn set_place(&self, layer: &mut Layer<'_>, target: &mut T, shown: &str, node: Node) -> Read<Kept> {
        let key = KeyName(shown);
        let value = match self {
            Self::Prompt(set) => {
                let (text, at) = key.text(node)?;
                let (text, value) = key.prompt(layer, text, &at)?;
                set(target, text);
                toml::Value::String(value)
            }
            Self::Prompts(set) => {
                let read: Read<Vec<(String, String)>> =
                    key.one_or_more(node)?.into_iter().map(|(text, at)| key.prompt(layer, text, &at)).collect();
                let (list, values): (Vec<String>, Vec<String>) = read?.into_iter().unzip();
                set(target, list);
                strings(&values)
            }
            Self::Path(set) => {
                let (path, at) = key.text(node)?;
                let path = if path.is_empty() { None } else { Some(key.path(layer, &path, &at)?) };
                let value = path.as_ref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
                set(target, path);
                toml::Value::String(value)
            }
            Self::Program(set) => {
                let (program, at) = key.text(node)?;
                let program = key.program(layer, program, &at)?;
                set(target, program.clone());
                toml::Value::String(program)
            }
            Self::Argv(set) => {
                let argv = key.argv(layer, node)?;
                let value = strings(&argv);
                set(target, argv);
                value
            }
            Self::ArgvOrShell(set) => {
                let (argv, value) = key.argv_or_shell(layer, node)?;
                set(target, argv);
                value
            }
            Self::ParametersFile(set) => {
                let (path, at) = key.text(node)?;
                let (schema, path) = key.parameters_file(layer, &path, &at)?;
                set(target, schema);
                toml::Value::String(path)
            }
            Self::Imports(set) => {
                let list = key.list(node.settle(false))?;
                let read: Read<Vec<(Vec<u8>, String)>> =
                    list.into_iter().map(|(path, at)| key.import(layer, &path, &at)).collect();
                let (files, paths): (Vec<Vec<u8>>, Vec<String>) = read?.into_iter().unzip();
                set(target, files);
                strings(&paths)
            }
            _ => return Ok(Kept::Written),
        };
        Ok(Kept::Value(value))
    }

    /// Values that are tables; they are merged with what is there.
    fn set_table(&self, layer: &mut Layer<'_>, target: &mut T, shown: &str, node: Node) -> Read<Kept> {
        let key = KeyName(shown);
        match self {
            Self::Variables(set) => {
                for (name, text, at) in key.variables(node)? {
                    let value = toml::Value::String(text.clone());
                    let value = if hides(&name, &text) { Shown::hidden(value) } else { Shown::open(value) };
                    layer.keep(&format!("{shown}.{}", quoted(&name)), at, Some(value));
                    set(target, name, text);
                }
                Ok(Kept::Entries)
            }
            Self::Headers(set) => {
                for (header, text, at) in key.headers(node)? {
                    let value = text.clone().map_or(toml::Value::Boolean(false), toml::Value::String);
                    let hidden = text.as_deref().is_some_and(holds_text);
                    let value = if hidden { Shown::hidden(value) } else { Shown::open(value) };
                    let header_key = format!("{shown}.{}", quoted(&header));
                    layer.forget_alike(&header_key);
                    layer.keep(&header_key, at, Some(value));
                    set(target, &header, text);
                }
                Ok(Kept::Entries)
            }
            Self::Open { own, map } => {
                let map = map(target);
                merge(map, key.object(own, node)?);
                Ok(Kept::Value(from_json(&Value::Object(map.clone()))))
            }
            Self::Parameters(set) => {
                set(target, key.parameters(node)?);
                Ok(Kept::Written)
            }
            Self::Params(set) => {
                set(target, key.params(node)?);
                Ok(Kept::Written)
            }
            _ => Ok(Kept::Written),
        }
    }
}

fn strings(list: &[String]) -> toml::Value {
    toml::Value::Array(list.iter().cloned().map(toml::Value::String).collect())
}

/// JSON that came from TOML, so it holds no null.
fn from_json(value: &Value) -> toml::Value {
    match value {
        Value::Null => toml::Value::String(String::new()),
        Value::Bool(value) => toml::Value::Boolean(*value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => toml::Value::Integer(whole),
            None => toml::Value::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => toml::Value::String(text.clone()),
        Value::Array(items) => toml::Value::Array(items.iter().map(from_json).collect()),
        Value::Object(map) => {
            toml::Value::Table(map.iter().map(|(name, value)| (name.clone(), from_json(value))).collect())
        }
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
