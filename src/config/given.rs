//! One value of a layer, on its way to where the rule of its key sets it.
//!
//! Keeps true: a value that was set leaves its origin and what it was; tables merge key by key, a list of `+x` and `-x`
//! edits, lists of prohibitions grow, everything else replaces; a key with nothing behind it is checked like any other
//! before it is refused.
//!
//! Must not know: the keys themselves, the types they are set into, the text of values.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use super::error::{ConfigError, Origin};
use super::layer::Layer;
use super::node::{Name, Node, toml_table};
use super::read::{KeyName, Read, later, quoted, texts};
use super::rule::{Now, Table};
use super::secret::{hides, holds_text, url_hides};
use super::settings::ApiKey;
use super::written::Shown;

/// The value is wrong, and the layer's errors say why.
pub(super) struct Reported;

pub(super) type Taken<V> = Result<V, Reported>;

/// A value as a layer gives it. Its methods read one kind of value each.
pub(super) struct Given<'a, 'l> {
    layer: &'a mut Layer<'l>,
    key: KeyName<'a>,
    node: Node,
    kept: &'a mut Kept,
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

/// Sets the value of the key at a place in a table, or reports what is wrong with it. `shown` is the key as errors name
/// it.
pub(super) fn apply(layer: &mut Layer<'_>, table: &mut Table<'_>, place: usize, shown: &str, name: &Name, node: Node) {
    let Some(key) = table.keys.get(place) else { return };
    let at = node.at.clone();
    let written = node.clone().settle(key.kind.takes_text()).to_toml();
    let mut kept = Kept::Written;
    let given = Given { layer, key: KeyName(shown), node, kept: &mut kept };
    if (table.set)(place, given).is_err() {
        return;
    }
    if let Some(error) = refusal(key.now, shown, name, &at, &written) {
        return layer.errors.push(error);
    }
    let value = match kept {
        Kept::Written => Some(Shown::open(written)),
        Kept::Value(value) => Some(Shown::open(value)),
        Kept::Hidden => Some(Shown::hidden(written)),
        Kept::Entries => None,
    };
    layer.keep(shown, at, value);
}

/// Why a value that is right cannot be used yet.
fn refusal(now: Now, key: &str, name: &Name, at: &Origin, written: &toml::Value) -> Option<ConfigError> {
    match now {
        Now::Yes => None,
        Now::No => Some(later(key, name.at.clone())),
        Now::Words(words) => {
            let word = written.as_str().unwrap_or_default();
            (!words.contains(&word)).then(|| later(&format!("{key} = {word:?}"), at.clone()))
        }
    }
}

impl<'a, 'l> Given<'a, 'l> {
    /// A value that is kept as it was written.
    fn plain<V>(self, read: impl FnOnce(KeyName<'a>, Node) -> Read<V>) -> Taken<V> {
        self.kept(|_, key, node| Ok((read(key, node)?, Kept::Written)))
    }

    fn kept<V>(self, read: impl FnOnce(&mut Layer<'l>, KeyName<'a>, Node) -> Read<(V, Kept)>) -> Taken<V> {
        match read(self.layer, self.key, self.node) {
            Ok((value, kept)) => {
                *self.kept = kept;
                Ok(value)
            }
            Err(error) => {
                self.layer.errors.push(error);
                Err(Reported)
            }
        }
    }

    pub(super) fn text(self) -> Taken<String> {
        self.plain(|key, node| Ok(key.text(node)?.0))
    }

    pub(super) fn url(self) -> Taken<String> {
        self.kept(|_, key, node| {
            let (url, _) = key.text(node)?;
            let kept = if url_hides(&url) { Kept::Hidden } else { Kept::Written };
            Ok((url, kept))
        })
    }

    pub(super) fn specs(self) -> Taken<Vec<String>> {
        self.plain(KeyName::specs)
    }

    pub(super) fn word(self, words: &'static [&'static str]) -> Taken<&'static str> {
        self.plain(|key, node| {
            let (word, at) = key.text(node)?;
            key.word(words, &word, &at)
        })
    }

    pub(super) fn words(self, words: &'static [&'static str]) -> Taken<Vec<&'static str>> {
        self.plain(|key, node| key.words(words, &key.list(node.settle(false))?))
    }

    pub(super) fn one_or_more(self, words: &'static [&'static str]) -> Taken<Vec<&'static str>> {
        self.plain(|key, node| key.words(words, &key.one_or_more(node)?))
    }

    pub(super) fn bool(self) -> Taken<bool> {
        self.plain(KeyName::bool)
    }

    pub(super) fn count(self, min: u32, max: u32) -> Taken<u32> {
        self.plain(|key, node| key.whole(node, min, max))
    }

    pub(super) fn level(self, min: i64, max: i64) -> Taken<i64> {
        self.plain(|key, node| key.whole(node, min, max))
    }

    pub(super) fn number(self) -> Taken<f64> {
        self.plain(KeyName::number)
    }

    pub(super) fn duration(self) -> Taken<Option<Duration>> {
        self.plain(KeyName::duration)
    }

    pub(super) fn size(self, min: u64, max: u64) -> Taken<u64> {
        self.plain(|key, node| key.size(node, min, max))
    }

    pub(super) fn codes(self, min: u8, max: u8) -> Taken<Vec<u8>> {
        self.plain(|key, node| key.codes(node, min, max))
    }

    pub(super) fn rules(self) -> Taken<Vec<String>> {
        self.plain(KeyName::rules)
    }

    pub(super) fn when(self) -> Taken<String> {
        self.plain(KeyName::when)
    }

    pub(super) fn list(self) -> Taken<Vec<String>> {
        self.plain(|key, node| Ok(texts(key.list(node.settle(false))?)))
    }

    pub(super) fn template(self) -> Taken<Vec<Vec<String>>> {
        self.plain(KeyName::template)
    }

    pub(super) fn parameters(self) -> Taken<Map<String, Value>> {
        self.plain(KeyName::parameters)
    }

    pub(super) fn params(self) -> Taken<Map<String, Value>> {
        self.plain(KeyName::params)
    }

    pub(super) fn api_key(self) -> Taken<ApiKey> {
        self.kept(|layer, key, node| {
            let (api_key, hidden) = key.api_key(layer.source.private, node)?;
            Ok((api_key, if hidden { Kept::Hidden } else { Kept::Written }))
        })
    }

    /// Replaces a list, or edits it.
    pub(super) fn edit(self, list: &mut Vec<String>) -> Taken<()> {
        self.kept(|_, key, node| {
            key.edit(list, node)?;
            Ok(((), Kept::Value(strings(list))))
        })
    }

    /// Adds to a list what it does not hold.
    pub(super) fn grow(self, list: &mut Vec<String>) -> Taken<()> {
        self.kept(|_, key, node| {
            let more = texts(key.list(node.settle(false))?);
            let new: Vec<String> = more.into_iter().filter(|item| !list.contains(item)).collect();
            list.extend(new);
            Ok(((), Kept::Value(strings(list))))
        })
    }
}

/// Values that depend on where the layer stands.
impl Given<'_, '_> {
    pub(super) fn prompt(self) -> Taken<String> {
        self.kept(|layer, key, node| {
            let (text, at) = key.text(node)?;
            let (text, value) = key.prompt(layer, text, &at)?;
            Ok((text, Kept::Value(toml::Value::String(value))))
        })
    }

    pub(super) fn prompts(self) -> Taken<Vec<String>> {
        self.kept(|layer, key, node| {
            let read: Read<Vec<(String, String)>> =
                key.one_or_more(node)?.into_iter().map(|(text, at)| key.prompt(layer, text, &at)).collect();
            let (list, values): (Vec<String>, Vec<String>) = read?.into_iter().unzip();
            Ok((list, Kept::Value(strings(&values))))
        })
    }

    pub(super) fn path(self) -> Taken<Option<PathBuf>> {
        self.kept(|layer, key, node| {
            let (path, at) = key.text(node)?;
            let path = if path.is_empty() { None } else { Some(key.path(layer, &path, &at)?) };
            let value = path.as_ref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
            Ok((path, Kept::Value(toml::Value::String(value))))
        })
    }

    pub(super) fn program(self) -> Taken<String> {
        self.kept(|layer, key, node| {
            let (program, at) = key.text(node)?;
            let program = key.program(layer, program, &at)?;
            let value = toml::Value::String(program.clone());
            Ok((program, Kept::Value(value)))
        })
    }

    pub(super) fn argv(self) -> Taken<Vec<String>> {
        self.kept(|layer, key, node| {
            let argv = key.argv(layer, node)?;
            let value = strings(&argv);
            Ok((argv, Kept::Value(value)))
        })
    }

    pub(super) fn argv_or_shell(self) -> Taken<Vec<String>> {
        self.kept(|layer, key, node| {
            let (argv, value) = key.argv_or_shell(layer, node)?;
            Ok((argv, Kept::Value(value)))
        })
    }

    pub(super) fn parameters_file(self) -> Taken<Map<String, Value>> {
        self.kept(|layer, key, node| {
            let (path, at) = key.text(node)?;
            let (schema, path) = key.parameters_file(layer, &path, &at)?;
            Ok((schema, Kept::Value(toml::Value::String(path))))
        })
    }

    pub(super) fn imports(self) -> Taken<Vec<Vec<u8>>> {
        self.kept(|layer, key, node| {
            let list = key.list(node.settle(false))?;
            let read: Read<Vec<(Vec<u8>, String)>> =
                list.into_iter().map(|(path, at)| key.import(layer, &path, &at)).collect();
            let (files, paths): (Vec<Vec<u8>>, Vec<String>) = read?.into_iter().unzip();
            Ok((files, Kept::Value(strings(&paths))))
        })
    }
}

/// Values that are tables; they are merged with what is there.
impl Given<'_, '_> {
    pub(super) fn variables(self) -> Taken<Vec<(String, String)>> {
        self.kept(|layer, key, node| {
            let mut variables = Vec::new();
            for (name, text, at) in key.variables(node)? {
                let value = toml::Value::String(text.clone());
                let value = if hides(&name, &text) { Shown::hidden(value) } else { Shown::open(value) };
                layer.keep(&format!("{}.{}", key.0, quoted(&name)), at, Some(value));
                variables.push((name, text));
            }
            Ok((variables, Kept::Entries))
        })
    }

    /// Names without a value are those of removed headers.
    pub(super) fn headers(self) -> Taken<Vec<(String, Option<String>)>> {
        self.kept(|layer, key, node| {
            let mut headers = Vec::new();
            for (header, text, at) in key.headers(node)? {
                let value = text.clone().map_or(toml::Value::Boolean(false), toml::Value::String);
                let hidden = text.as_deref().is_some_and(holds_text);
                let value = if hidden { Shown::hidden(value) } else { Shown::open(value) };
                let header_key = format!("{}.{}", key.0, quoted(&header));
                layer.forget_alike(&header_key);
                layer.keep(&header_key, at, Some(value));
                headers.push((header, text));
            }
            Ok((headers, Kept::Entries))
        })
    }

    /// Merges a table without the `own` keys into what is there.
    pub(super) fn merge(self, own: &[&str], map: &mut Map<String, Value>) -> Taken<()> {
        self.kept(|_, key, node| {
            merge(map, key.object(own, node)?);
            Ok(((), Kept::Value(from_json(&Value::Object(map.clone())))))
        })
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
        Value::Object(map) => toml_table(&mut map.iter().map(|(name, value)| (name.clone(), from_json(value)))),
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
