//! One value to one type, with an error that names the key and what it takes.
//!
//! Keeps true: ranges and words are checked here, so that a setting that was read can be used; files are bounded; a key
//! that is written out is accepted only in a file nobody else can read, and never shown.
//!
//! Must not know: layers, what a setting does.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

use super::error::{ConfigError, Origin};
use super::expand::{is_name, is_reference, references};
use super::node::{Data, Name, Node};
use super::settings::ApiKey;
use super::suggest::nearest;
use super::units::{UnitError, parse_duration, parse_size};
use crate::model::Secret;

/// The largest file a configuration or an `@file` in it may be, in bytes.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Items of a list; more are a mistake, and each may cost a look at the disk.
const LIST_ITEMS_MAX: usize = 10_000;

/// Headers that the HTTP client makes from the request itself; another one would contradict it (HTTP-3).
const OWN_HEADERS: [&str; 4] = ["connection", "content-length", "host", "transfer-encoding"];

/// The wires that can be named, and the one that exists.
const APIS: [&str; 4] = ["anthropic-messages", "openai-completions", "openai-responses", "google-generative-ai"];
const API_NOW: &str = "openai-completions";

pub(super) type Read<V> = Result<V, ConfigError>;

/// The error for a key that is known and has nothing behind it yet.
pub(super) fn later(key: &str, at: Origin) -> ConfigError {
    ConfigError::new(at, format!("{key} is not available in this version"))
}

/// A part of a dotted key as TOML needs it written.
pub(super) fn quoted(part: &str) -> String {
    let bare = !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if bare { part.to_owned() } else { format!("{part:?}") }
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
    fn wrong(self, at: &Origin, problem: impl std::fmt::Display) -> ConfigError {
        ConfigError::new(at.clone(), format!("{} {problem}", self.0))
    }

    fn expected(self, what: &str, node: &Node) -> ConfigError {
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

    fn too_many(self, at: &Origin) -> ConfigError {
        self.wrong(at, format_args!("must not have more than {LIST_ITEMS_MAX} items"))
    }

    pub(super) fn specs(self, node: Node) -> Read<String> {
        let node = node.settle(true);
        match node.data {
            Data::Text(text) => Ok(text),
            Data::List(_) => Ok(texts(self.list(node)?).join(",")),
            _ => Err(self.expected("a string or an array of strings", &node)),
        }
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
        }
        list.extend(items);
        Ok(())
    }

    /// `@file` is read here; anything with a line break is text.
    pub(super) fn prompt(self, dir: &Path, text: String, at: &Origin) -> Read<String> {
        let path = text.strip_prefix('@').filter(|path| !path.is_empty() && !path.contains('\n'));
        let Some(path) = path else { return Ok(text) };
        let path = dir.join(path);
        let bytes = read_bounded(&path)
            .map_err(|problem| self.wrong(at, format_args!("cannot be read from {}: {problem}", path.display())))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let offset = error.utf8_error().valid_up_to();
            self.wrong(at, format_args!("cannot be read from {}: not UTF-8 at byte {offset}", path.display()))
        })?;
        Ok(text.strip_prefix('\u{feff}').unwrap_or(&text).trim_end().to_owned())
    }

    /// One text stands for a list of one.
    pub(super) fn prompts(self, dir: &Path, node: Node) -> Read<Vec<String>> {
        let node = node.settle(true);
        let list = match node.data {
            Data::Text(text) => vec![(text, node.at)],
            _ => self.list(node)?,
        };
        list.into_iter().map(|(text, at)| self.prompt(dir, text, &at)).collect()
    }

    pub(super) fn api(self, node: Node) -> Read<String> {
        let (word, at) = self.text(node)?;
        match self.word(&APIS, &word, &at)? {
            API_NOW => Ok(word),
            _ => Err(later(&format!("{} = {word:?}", self.0), at)),
        }
    }

    /// The forms of a key; one that is written out belongs in a file nobody else reads.
    pub(super) fn api_key(self, private: bool, node: Node) -> Read<ApiKey> {
        let (text, at) = self.text(node)?;
        if text.is_empty() {
            return Ok(ApiKey::Keyless);
        }
        if text.starts_with('!') {
            return Err(later(&format!("{} = \"!command\"", self.0), at));
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
            let problem = "may be written out only in a file that nobody else can read (chmod 600); write \"$NAME\"";
            return Err(self.wrong(&at, problem));
        }
        Ok(ApiKey::Template { text: Secret::new(text), variables })
    }

    /// `false` removes a header (HTTP-3).
    pub(super) fn headers(self, node: Node) -> Read<Vec<(String, Option<String>, Origin)>> {
        let node = node.settle(false);
        let Data::Table(entries) = node.data else { return Err(self.expected("a table", &node)) };
        let header = |(name, node): (Name, Node)| {
            let key = format!("{}.{}", self.0, quoted(&name.text));
            let key = KeyName(&key);
            if name.text.is_empty() || !name.text.bytes().all(is_token) {
                return Err(key.wrong(&name.at, "is no valid header name"));
            }
            if OWN_HEADERS.iter().any(|own| name.text.eq_ignore_ascii_case(own)) {
                return Err(key.wrong(&name.at, "cannot be set; the request itself decides it"));
            }
            let removed = match &node.data {
                Data::Bool(value) => !value,
                Data::Loose(written) => written == "false",
                _ => false,
            };
            if removed {
                return Ok((name.text, None, node.at));
            }
            let node = node.settle(true);
            match node.data {
                Data::Text(value) if !is_header_value(&value) => {
                    Err(key.wrong(&node.at, "must not contain control characters"))
                }
                Data::Text(value) => Ok((name.text, Some(value), node.at)),
                _ => Err(key.expected("a string, or false to remove the header", &node)),
            }
        };
        entries.into_iter().map(header).collect()
    }

    /// A table without the `own` keys.
    pub(super) fn object(self, own: &[&str], node: Node) -> Read<Map<String, Value>> {
        let node = node.settle(false);
        let Data::Table(entries) = node.data else { return Err(self.expected("a table", &node)) };
        let value = |(name, node): (Name, Node)| {
            if own.contains(&name.text.as_str()) {
                let key = format!("{}.{}", self.0, name.text);
                return Err(KeyName(&key).wrong(&name.at, "cannot be set; the run itself decides it"));
            }
            let value = node.into_json();
            let value = value.map_err(|part| self.wrong(&part.at, format_args!("cannot hold {}", part.kind())))?;
            Ok((name.text, value))
        };
        entries.into_iter().map(value).collect()
    }
}

/// Whether a text can be a header's value.
pub(super) fn is_header_value(value: &str) -> bool {
    !value.contains(|c: char| c.is_control() && c != '\t')
}

/// RFC 9110 `tchar`.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Why a file could not be read whole.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("larger than {FILE_BYTES_MAX} bytes")]
    TooLarge,
}

/// Reads a file of at most [`FILE_BYTES_MAX`] bytes.
fn read_bounded(path: &Path) -> Result<Vec<u8>, FileError> {
    read_open(&File::open(path)?)
}

/// Reads an open file of at most [`FILE_BYTES_MAX`] bytes.
pub(super) fn read_open(file: &File) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    let mut limited = file.take(FILE_BYTES_MAX + 1);
    limited.read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= FILE_BYTES_MAX) {
        Ok(bytes)
    } else {
        Err(FileError::TooLarge)
    }
}
