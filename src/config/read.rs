//! One value to one type, with an error that names the key and what it takes.
//!
//! Keeps true: ranges and words are checked here, so that a setting that was read can be used; files are bounded; a key
//! that is written out is accepted only in a file nobody else can read, and never shown.
//!
//! Must not know: layers, what a setting does.

use std::time::Duration;

use super::error::{ConfigError, Origin};
use super::expand::{is_name, is_reference, references};
use super::node::{Data, Node};
use super::secret::holds_text;
use super::settings::ApiKey;
use super::suggest::nearest;
use super::units::{UnitError, hex, parse_duration, parse_size};
use crate::model::Secret;

/// Items of a list; more are a mistake, and each may cost a look at the disk.
const LIST_ITEMS_MAX: usize = 10_000;

/// The word for no tool at all.
const NO_TOOLS: &str = "none";

pub(super) type Read<V> = Result<V, ConfigError>;

/// The error for a key that is known and has nothing behind it yet.
pub(super) fn later(key: &str, at: Origin) -> ConfigError {
    ConfigError::new(at, format!("{key} is not available in this version"))
}

/// A part of a dotted key as TOML needs it written.
pub(super) fn quoted(part: &str) -> String {
    let bare = !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if bare { part.to_owned() } else { basic(part) }
}

/// A text in double quotes, as TOML needs it written.
pub(super) fn basic(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c => match u8::try_from(c) {
                Ok(byte) if c.is_control() => {
                    out.push_str("\\u00");
                    out.extend(hex(byte));
                }
                _ => out.push(c),
            },
        }
    }
    out.push('"');
    out
}

/// A key as errors and origins write it, from its parts.
pub fn key_path(parts: &[&str]) -> String {
    parts.iter().map(|part| quoted(part)).collect::<Vec<_>>().join(".")
}

pub(super) fn texts(list: Vec<(String, Origin)>) -> Vec<String> {
    list.into_iter().map(|(text, _)| text).collect()
}

/// The key being read; its methods read one kind of value each.
#[derive(Clone, Copy)]
pub(super) struct KeyName<'a>(pub(super) &'a str);

impl KeyName<'_> {
    pub(super) fn wrong(self, at: &Origin, problem: impl std::fmt::Display) -> ConfigError {
        ConfigError::new(at.clone(), format!("{} {problem}", self.0))
    }

    pub(super) fn expected(self, what: &str, node: &Node) -> ConfigError {
        self.wrong(&node.at, format_args!("must be {what}, not {}", node.kind()))
    }

    pub(super) fn text(self, node: Node) -> Read<(String, Origin)> {
        let node = node.settle(true);
        match node.data {
            Data::Text(text) => Ok((text, node.at)),
            _ => Err(self.expected("a string", &node)),
        }
    }

    pub(super) fn bool(self, node: Node) -> Read<bool> {
        let node = node.settle(false);
        match node.data {
            Data::Bool(value) => Ok(value),
            _ => Err(self.expected("true or false", &node)),
        }
    }

    pub(super) fn whole<N: TryFrom<i64> + Copy + PartialOrd + std::fmt::Display>(
        self,
        node: Node,
        min: N,
        max: N,
    ) -> Read<N> {
        let node = node.settle(false);
        let Data::Int(number) = node.data else { return Err(self.expected("a whole number", &node)) };
        let range = format!("must be a whole number from {min} to {max}");
        N::try_from(number).ok().filter(|n| *n >= min && *n <= max).ok_or_else(|| self.wrong(&node.at, range))
    }

    #[expect(clippy::cast_precision_loss, reason = "prices are far below 2^53")]
    pub(super) fn number(self, node: Node) -> Read<f64> {
        let node = node.settle(false);
        let number = match node.data {
            Data::Int(number) => number as f64,
            Data::Float(number) => number,
            _ => return Err(self.expected("a number", &node)),
        };
        let fits = number.is_finite() && number >= 0.0;
        fits.then_some(number).ok_or_else(|| self.wrong(&node.at, "must be a number from 0"))
    }

    pub(super) fn duration(self, node: Node) -> Read<Option<Duration>> {
        let node = node.settle(false);
        let parsed = match &node.data {
            Data::Text(text) => parse_duration(text),
            Data::Int(0) => Ok(None),
            _ => Err(UnitError::Duration),
        };
        parsed.map_err(|problem| self.wrong(&node.at, problem))
    }

    pub(super) fn size(self, node: Node, min: u64, max: u64) -> Read<u64> {
        let node = node.settle(false);
        let parsed = match &node.data {
            Data::Text(text) => parse_size(text),
            Data::Int(bytes) => u64::try_from(*bytes).or(Err(UnitError::Size)),
            _ => Err(UnitError::Size),
        };
        let bytes = parsed.map_err(|problem| self.wrong(&node.at, problem))?;
        let range = format_args!("must be from {min} to {max} bytes");
        if (min..=max).contains(&bytes) { Ok(bytes) } else { Err(self.wrong(&node.at, range)) }
    }

    pub(super) fn word<'w>(self, words: &'w [&'w str], word: &str, at: &Origin) -> Read<&'w str> {
        if let Some(known) = words.iter().find(|known| **known == word) {
            return Ok(known);
        }
        let shown: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
        let problem = format!("must be one of {}, not {word:?}", shown.join(", "));
        let suggestion = nearest(word, words.iter().copied()).map(|word| format!("{word:?}"));
        Err(self.wrong(at, problem).suggest(suggestion))
    }

    pub(super) fn list(self, node: Node) -> Read<Vec<(String, Origin)>> {
        let Data::List(items) = node.data else { return Err(self.expected("an array of strings", &node)) };
        if items.len() > LIST_ITEMS_MAX {
            return Err(self.too_many(&node.at));
        }
        let text = |item: Node| match item.data {
            Data::Text(text) => Ok((text, item.at)),
            _ => Err(self.expected("an array of strings", &item)),
        };
        items.into_iter().map(text).collect()
    }

    pub(super) fn too_many(self, at: &Origin) -> ConfigError {
        self.wrong(at, format_args!("must not have more than {LIST_ITEMS_MAX} items"))
    }

    /// No name of a model holds a comma, so one separates them wherever it stands.
    pub(super) fn specs(self, node: Node) -> Read<Vec<String>> {
        let list = self.one_or_more(node)?;
        let specs = list.iter().flat_map(|(text, _)| text.split(',')).map(str::trim);
        Ok(specs.filter(|spec| !spec.is_empty()).map(str::to_owned).collect())
    }

    /// Outside of files a list may be written with commas.
    pub(super) fn edit(self, list: &mut Vec<String>, node: Node) -> Read<()> {
        let in_file = matches!(node.at, Origin::File { .. });
        let node_at = node.at.clone();
        let node = node.settle(true);
        let items = match &node.data {
            Data::Text(text) if !in_file => text.split(',').map(|item| item.trim().to_owned()).collect(),
            _ => texts(self.list(node)?),
        };
        let items: Vec<String> = items.into_iter().filter(|item: &String| !item.is_empty()).collect();
        if items.len() > LIST_ITEMS_MAX {
            return Err(self.too_many(&node_at));
        }
        let edits = !items.is_empty() && items.iter().all(|item| item.starts_with(['+', '-']));
        if !edits {
            list.clear();
        } else if list.is_empty() {
            // What is edited is nothing, not what stands below it.
            list.push(NO_TOOLS.to_owned());
        }
        list.extend(items);
        Ok(())
    }

    /// The forms of a key, and whether listings must hide it; one that is written out belongs in a file nobody else
    /// reads.
    pub(super) fn api_key(self, private: bool, node: Node) -> Read<(ApiKey, bool)> {
        let (text, at) = self.text(node)?;
        if text.is_empty() {
            return Ok((ApiKey::Keyless, false));
        }
        if let Some(command) = text.strip_prefix('!') {
            if command.trim().is_empty() {
                return Err(self.wrong(&at, "begins with \"!\" and names no command"));
            }
            return Ok((ApiKey::Command(command.to_owned()), false));
        }
        let text = match text.strip_prefix('$') {
            Some(name) if is_name(name) => format!("${{{name}}}"),
            Some(_) if is_reference(&text) => text,
            Some(_) => {
                let problem = "begins with \"$\" and names no variable; write \"$NAME\" or \"${NAME}\"";
                return Err(self.wrong(&at, problem));
            }
            None => text,
        };
        let variables = references(&text).map_err(|problem| self.wrong(&at, format_args!("is wrong: {problem}")))?;
        if variables.is_empty() && !private {
            let problem = "may be written out only in a file of your own that nobody else can read (chmod 600), and not \
                           in a project's; write \"$NAME\"";
            return Err(self.wrong(&at, problem));
        }
        let hidden = holds_text(&text);
        Ok((ApiKey::Template { text: Secret::new(text), variables }, hidden))
    }

    pub(super) fn words<'w>(self, words: &'w [&'w str], list: &[(String, Origin)]) -> Read<Vec<&'w str>> {
        list.iter().map(|(word, at)| self.word(words, word, at)).collect()
    }

    /// One text stands for a list of one.
    pub(super) fn one_or_more(self, node: Node) -> Read<Vec<(String, Origin)>> {
        let node = node.settle(true);
        match node.data {
            Data::Text(text) => Ok(vec![(text, node.at)]),
            Data::List(_) => self.list(node),
            _ => Err(self.expected("a string or an array of strings", &node)),
        }
    }

    pub(super) fn codes(self, node: Node, min: u8, max: u8) -> Read<Vec<u8>> {
        let node = node.settle(false);
        let Data::List(items) = node.data else { return Err(self.expected("an array of whole numbers", &node)) };
        if items.len() > LIST_ITEMS_MAX {
            return Err(self.too_many(&node.at));
        }
        items.into_iter().map(|item| self.whole(item, min, max)).collect()
    }
}
