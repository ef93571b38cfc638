//! Values as they were written, each with its place: TOML files, `--set`, variables, flags.
//!
//! Keeps true: a table keeps the order of its file; lines and columns count from 1, columns in characters; text from a
//! variable or a flag becomes TOML only where the setting's type wants it.
//!
//! Must not know: which keys exist.

use std::sync::Arc;

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, FileLayer, Origin, Place};

/// How many syntax errors of one file are reported; the parser goes on behind an error and may see ghosts.
const SYNTAX_ERRORS_MAX: usize = 5;

/// A value as it was written, with its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) data: Data,
    pub(super) at: Origin,
}

#[derive(Clone, Debug)]
pub(super) enum Data {
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    Date,
    List(Vec<Node>),
    Table(Vec<(Name, Node)>),
    /// Text from the command line or the environment: TOML if the setting's type says so and it parses.
    Loose(String),
}

/// A key with its place.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) at: Origin,
}

impl Node {
    /// What the value is, for an error.
    pub(super) fn kind(&self) -> &'static str {
        match self.data {
            Data::Text(_) | Data::Loose(_) => "a string",
            Data::Int(_) => "a whole number",
            Data::Float(_) => "a number with a fraction",
            Data::Bool(_) => "true or false",
            Data::Date => "a date",
            Data::List(_) => "an array",
            Data::Table(_) => "a table",
        }
    }

    /// Decides what loose text is: for a setting that takes text (`text`), TOML strings and arrays are read as such
    /// and everything else is taken as written; for others whatever parses as TOML.
    pub(super) fn settle(self, text: bool) -> Self {
        let Data::Loose(written) = self.data else { return self };
        let parsed = DeValue::parse(&written).ok().map(|value| from_toml(value.get_ref(), &|_| self.at.clone()));
        let data = match parsed {
            Some(data) if !text || matches!(data, Data::Text(_) | Data::List(_)) => data,
            _ => Data::Text(written),
        };
        Self { data, at: self.at }
    }

    /// The value as it would be written in a file, for listings. A date is never kept.
    pub(super) fn to_toml(&self) -> toml::Value {
        match &self.data {
            Data::Text(text) | Data::Loose(text) => toml::Value::String(text.clone()),
            Data::Int(number) => toml::Value::Integer(*number),
            Data::Float(number) => toml::Value::Float(*number),
            Data::Bool(value) => toml::Value::Boolean(*value),
            Data::Date => toml::Value::String(String::new()),
            Data::List(items) => toml::Value::Array(items.iter().map(Self::to_toml).collect()),
            Data::Table(entries) => {
                toml_table(&mut entries.iter().map(|(name, node)| (name.text.clone(), node.to_toml())))
            }
        }
    }

    /// The value as JSON; `Err` holds the part that JSON cannot say.
    pub(super) fn into_json(self) -> Result<Value, Self> {
        let Self { data, at } = self.settle(false);
        match data {
            Data::Text(text) | Data::Loose(text) => Ok(Value::String(text)),
            Data::Int(number) => Ok(Value::from(number)),
            Data::Float(number) => {
                let data = Data::Float(number);
                Number::from_f64(number).map(Value::Number).ok_or(Self { data, at })
            }
            Data::Bool(value) => Ok(Value::Bool(value)),
            Data::Date => Err(Self { data: Data::Date, at }),
            Data::List(items) => items.into_iter().map(Self::into_json).collect::<Result<_, _>>().map(Value::Array),
            Data::Table(entries) => {
                let entries = entries.into_iter().map(|(name, node)| Ok((name.text, node.into_json()?)));
                entries.collect::<Result<Map<_, _>, Self>>().map(Value::Object)
            }
        }
    }
}

/// Parses a file. Its name stands in every error.
pub(super) fn parse_file(layer: FileLayer, name: &Arc<str>, text: &str) -> Result<Node, Vec<ConfigError>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = Lines::new(text);
    let place = |offset: usize| {
        let (line, column) = lines.locate(offset);
        Origin::File { layer, file: Arc::clone(name), line, column }
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(Node { data: table_data(table.get_ref(), &place), at: place(0) });
    }
    let report = |error: &toml::de::Error| {
        let whole = || Place::File { layer, file: Arc::clone(name) };
        let at = error.span().map_or_else(whole, |span| Place::Setting(place(span.start)));
        ConfigError::at(at, error.message())
    };
    Err(errors.iter().take(SYNTAX_ERRORS_MAX).map(report).collect())
}

/// What the built-in file says. It always parses; a test says so.
pub(super) fn built_in(text: &str) -> Node {
    let place = |_| Origin::BuiltIn;
    let (table, _errors) = DeTable::parse_recoverable(text);
    Node { data: table_data(table.get_ref(), &place), at: Origin::BuiltIn }
}

/// Reads the key of `--set KEY=VALUE` and wraps the value in the tables it names. `None`: not a dotted TOML key.
pub(super) fn parse_set(key: &str, value: &str, at: &Origin) -> Option<Node> {
    if key.contains(['\n', '\r']) {
        return None;
    }
    let document = format!("{key} = 0");
    let parsed = DeTable::parse(&document).ok()?;
    let path = single_path(parsed.get_ref())?;
    let leaf = Node { data: Data::Loose(value.to_owned()), at: at.clone() };
    Some(path.into_iter().rfold(leaf, |node, name| wrap(name, node, at)))
}

/// Wraps a value in the tables that a dotted key without quotes names.
pub(super) fn at_path(path: &str, data: Data, at: &Origin) -> Node {
    path.split('.').rfold(Node { data, at: at.clone() }, |node, name| wrap(name.to_owned(), node, at))
}

fn wrap(name: String, node: Node, at: &Origin) -> Node {
    Node { data: Data::Table(vec![(Name { text: name, at: at.clone() }, node)]), at: at.clone() }
}

/// The names down to the only leaf.
fn single_path(mut table: &DeTable<'_>) -> Option<Vec<String>> {
    let mut path = Vec::new();
    loop {
        let mut entries = table.iter();
        let (name, value) = entries.next()?;
        if entries.next().is_some() {
            return None;
        }
        path.push(name.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => return Some(path),
        }
    }
}

/// A TOML table of these entries. They are put in one by one, since collecting them needs the code of a sort.
pub(super) fn toml_table(entries: &mut dyn Iterator<Item = (String, toml::Value)>) -> toml::Value {
    let mut table = toml::Table::new();
    for (name, value) in entries {
        table.insert(name, value);
    }
    toml::Value::Table(table)
}

/// A value given by the program itself, such as a flag's.
pub(super) fn from_value(value: &toml::Value, at: &Origin) -> Data {
    let node = |value| Node { data: from_value(value, at), at: at.clone() };
    match value {
        toml::Value::String(text) => Data::Text(text.clone()),
        toml::Value::Integer(number) => Data::Int(*number),
        toml::Value::Float(number) => Data::Float(*number),
        toml::Value::Boolean(value) => Data::Bool(*value),
        toml::Value::Datetime(_) => Data::Date,
        toml::Value::Array(items) => Data::List(items.iter().map(node).collect()),
        toml::Value::Table(entries) => {
            let name = |text: &String| Name { text: text.clone(), at: at.clone() };
            Data::Table(entries.iter().map(|(text, value)| (name(text), node(value))).collect())
        }
    }
}

fn table_data(table: &DeTable<'_>, place: &dyn Fn(usize) -> Origin) -> Data {
    let mut entries: Vec<_> = table.iter().collect();
    // File order, whatever order the parser keeps; no two names begin at the same place.
    entries.sort_unstable_by_key(|(name, _)| name.span().start);
    let entry = |(name, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let name: &Spanned<std::borrow::Cow<'_, str>> = name;
        (Name { text: name.get_ref().to_string(), at: place(name.span().start) }, spanned(value, place))
    };
    Data::Table(entries.into_iter().map(entry).collect())
}

fn spanned(value: &Spanned<DeValue<'_>>, place: &dyn Fn(usize) -> Origin) -> Node {
    Node { data: from_toml(value.get_ref(), place), at: place(value.span().start) }
}

fn from_toml(value: &DeValue<'_>, place: &dyn Fn(usize) -> Origin) -> Data {
    match value {
        DeValue::String(text) => Data::Text(text.to_string()),
        DeValue::Integer(number) => {
            // A number beyond 64 bits is beyond every range too.
            let beyond = if number.as_str().starts_with('-') { i64::MIN } else { i64::MAX };
            Data::Int(i64::from_str_radix(number.as_str(), number.radix()).unwrap_or(beyond))
        }
        DeValue::Float(number) => Data::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(value) => Data::Bool(*value),
        DeValue::Datetime(_) => Data::Date,
        DeValue::Array(items) => Data::List(items.iter().map(|item| spanned(item, place)).collect()),
        DeValue::Table(table) => table_data(table, place),
    }
}

/// Bytes between two counts of characters; a column is found by counting at most so many, however long the line.
const BLOCK_BYTES: usize = 1024;

/// Turns byte offsets into lines and columns.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
    /// Characters before each block.
    blocks: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut blocks = vec![0];
        let mut characters = 0;
        for block in text.as_bytes().chunks(BLOCK_BYTES) {
            characters += count_chars(block);
            blocks.push(characters);
        }
        Self { text, starts, blocks }
    }

    /// Both count from 1; the column counts characters.
    fn locate(&self, offset: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = line.checked_sub(1).and_then(|at| self.starts.get(at)).copied().unwrap_or(0);
        (line, self.chars_before(offset).saturating_sub(self.chars_before(start)) + 1)
    }

    fn chars_before(&self, offset: usize) -> usize {
        let block = offset / BLOCK_BYTES;
        let rest = self.text.as_bytes().get(block * BLOCK_BYTES..offset).unwrap_or_default();
        self.blocks.get(block).copied().unwrap_or_default() + count_chars(rest)
    }
}

/// Characters that begin in these bytes of UTF-8.
fn count_chars(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| (**byte & 0b1100_0000) != 0b1000_0000).count()
}
