//! The rule of a key: how its value is read, and where it goes.
//!
//! Keeps true: a key has one rule, whichever layer it stands in, and the JSON Schema says the same. What depends on the
//! type that is set into is small, because there is one copy of it for every type; the rest goes by [`Head`] and
//! [`Given`].
//!
//! Must not know: the keys themselves, how a value is read, the text of values.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use super::given::{Given, Taken};
use super::settings::ApiKey;

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

/// What there is to know of a key without the type it is set into.
#[derive(Clone, Copy)]
pub(super) struct Head {
    /// Dotted, relative to the table.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) now: Now,
}

/// A [`Rule`] without where the value goes.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    Url,
    Prompt,
    Prompts,
    Specs,
    Word(&'static [&'static str]),
    Words(&'static [&'static str]),
    OneOrMore(&'static [&'static str]),
    Bool,
    Count { min: u32, max: u32 },
    Level { min: i64, max: i64 },
    Number,
    Duration,
    Size { min: u64, max: u64 },
    List,
    Edits,
    Grow,
    Rules,
    When,
    Codes { min: u8, max: u8 },
    Variables,
    Program,
    Argv,
    ArgvOrShell,
    Template,
    Parameters,
    ParametersFile,
    Params,
    Imports,
    Path,
    ApiKey,
    Headers,
    Open { own: &'static [&'static str] },
}

/// A table that is read into, whatever type it is of.
pub(super) struct Table<'a> {
    pub(super) keys: &'a [Head],
    /// Reads a value by the rule of one of `keys`, the one at this place, and sets it.
    pub(super) set: &'a mut dyn FnMut(usize, Given<'_, '_>) -> Taken<()>,
}

/// The heads of the keys of a table.
pub(super) fn heads<T>(keys: &[Key<T>]) -> Vec<Head> {
    keys.iter().map(|key| Head { name: key.name, kind: key.rule.kind(), now: key.now }).collect()
}

/// Reads a value by the rule of the key at a place, and sets it.
pub(super) fn set<T>(keys: &[Key<T>], target: &mut T, place: usize, given: Given<'_, '_>) -> Taken<()> {
    keys.get(place).map_or(Ok(()), |key| key.rule.set(target, given))
}

impl Kind {
    /// Whether text from a variable or a flag stays text, whatever it looks like.
    pub(super) fn takes_text(self) -> bool {
        matches!(
            self,
            Self::Text
                | Self::Url
                | Self::Prompt
                | Self::Prompts
                | Self::Specs
                | Self::Word(_)
                | Self::OneOrMore(_)
                | Self::Edits
                | Self::When
                | Self::Program
                | Self::ArgvOrShell
                | Self::Path
                | Self::ApiKey
                | Self::ParametersFile
        )
    }
}

impl<T> Rule<T> {
    fn kind(&self) -> Kind {
        match *self {
            Self::Text(_) => Kind::Text,
            Self::Url(_) => Kind::Url,
            Self::Prompt(_) => Kind::Prompt,
            Self::Prompts(_) => Kind::Prompts,
            Self::Specs(_) => Kind::Specs,
            Self::Word(words, _) => Kind::Word(words),
            Self::Words(words, _) => Kind::Words(words),
            Self::OneOrMore(words, _) => Kind::OneOrMore(words),
            Self::Bool(_) => Kind::Bool,
            Self::Count { min, max, .. } => Kind::Count { min, max },
            Self::Level { min, max, .. } => Kind::Level { min, max },
            Self::Number(_) => Kind::Number,
            Self::Duration(_) => Kind::Duration,
            Self::Size { min, max, .. } => Kind::Size { min, max },
            Self::List(_) => Kind::List,
            Self::Edits(_) => Kind::Edits,
            Self::Grow(_) => Kind::Grow,
            Self::Rules(_) => Kind::Rules,
            Self::When(_) => Kind::When,
            Self::Codes { min, max, .. } => Kind::Codes { min, max },
            Self::Variables(_) => Kind::Variables,
            Self::Program(_) => Kind::Program,
            Self::Argv(_) => Kind::Argv,
            Self::ArgvOrShell(_) => Kind::ArgvOrShell,
            Self::Template(_) => Kind::Template,
            Self::Parameters(_) => Kind::Parameters,
            Self::ParametersFile(_) => Kind::ParametersFile,
            Self::Params(_) => Kind::Params,
            Self::Imports(_) => Kind::Imports,
            Self::Path(_) => Kind::Path,
            Self::ApiKey(_) => Kind::ApiKey,
            Self::Headers(_) => Kind::Headers,
            Self::Open { own, .. } => Kind::Open { own },
        }
    }

    /// Reads a value and sets it.
    fn set(&self, target: &mut T, given: Given<'_, '_>) -> Taken<()> {
        match *self {
            Self::Text(set) => set(target, given.text()?),
            Self::Url(set) => set(target, given.url()?),
            Self::Prompt(set) => set(target, given.prompt()?),
            Self::Prompts(set) => set(target, given.prompts()?),
            Self::Specs(set) => set(target, given.specs()?),
            Self::Word(words, set) => set(target, given.word(words)?),
            Self::Words(words, set) => set(target, &given.words(words)?),
            Self::OneOrMore(words, set) => set(target, &given.one_or_more(words)?),
            Self::Bool(set) => set(target, given.bool()?),
            Self::Count { min, max, set } => set(target, given.count(min, max)?),
            Self::Level { min, max, set } => set(target, given.level(min, max)?),
            Self::Number(set) => set(target, given.number()?),
            Self::Duration(set) => set(target, given.duration()?),
            Self::Size { min, max, set } => set(target, given.size(min, max)?),
            Self::List(set) => set(target, given.list()?),
            Self::Edits(list) => given.edit(list(target))?,
            Self::Grow(list) => given.grow(list(target))?,
            Self::Rules(set) => set(target, given.rules()?),
            Self::When(set) => set(target, given.when()?),
            Self::Codes { min, max, set } => set(target, given.codes(min, max)?),
            Self::Variables(set) => {
                for (name, text) in given.variables()? {
                    set(target, name, text);
                }
            }
            Self::Program(set) => set(target, given.program()?),
            Self::Argv(set) => set(target, given.argv()?),
            Self::ArgvOrShell(set) => set(target, given.argv_or_shell()?),
            Self::Template(set) => set(target, given.template()?),
            Self::Parameters(set) => set(target, given.parameters()?),
            Self::ParametersFile(set) => set(target, given.parameters_file()?),
            Self::Params(set) => set(target, given.params()?),
            Self::Imports(set) => set(target, given.imports()?),
            Self::Path(set) => set(target, given.path()?),
            Self::ApiKey(set) => set(target, given.api_key()?),
            Self::Headers(set) => {
                for (header, text) in given.headers()? {
                    set(target, &header, text);
                }
            }
            Self::Open { own, map } => given.merge(own, map(target))?,
        }
        Ok(())
    }
}
