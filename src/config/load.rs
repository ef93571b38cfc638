//! Reading the layers, lowest first, and laying each over the one below.
//!
//! Keeps true: all errors of all layers are gathered before anything fails; every key is in the schema or is an error
//! with a suggestion, but for keys that begin with `x-`; what only the merged result can tell is checked at the end.
//!
//! Must not know: what a setting does, the types behind the keys.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Env;
use super::env::READ;
use super::error::{ConfigError, ConfigErrors, ERRORS_SHOWN_MAX, Origin, Place};
use super::expand::expand;
use super::node::{Data, Name, Node, at_path, from_value, parse_file, parse_set};
use super::read::{FileError, is_header_value, later, quoted, read_open};
use super::rule::{Key, Layer, Rule};
use super::schema::{MODEL, NAMED_LATER, PROVIDER, SETTINGS, TOOLS};
use super::settings::{JsonLevel, Settings};
use super::suggest::nearest;
use super::url::host;
use crate::model::Headers;

/// Keys that begin so belong to the user and are never read.
const IGNORED_PREFIX: &str = "x-";
const PROVIDERS: &str = "providers";
const MODELS: &str = "models";
/// The name of the built-in model's provider.
const DEMO: &str = "demo";

/// Where settings come from, besides the built-in layer.
#[derive(Clone, Debug)]
pub struct Sources<'a> {
    pub env: &'a Env,
    /// `--config`; beats `PIRN_CONFIG`.
    pub config_file: Option<PathBuf>,
    /// The `KEY=VALUE` of each `--set`, in order.
    pub sets: Vec<String>,
    /// Flags with a key of their own; they beat `--set`.
    pub flags: Vec<Override>,
    /// The run's working directory; files named by flags and variables are relative to it.
    pub cwd: PathBuf,
}

/// A setting given by a flag.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// Dotted.
    pub key: &'static str,
    pub value: toml::Value,
    /// The flag as errors and origins name it, such as `--max-turns`.
    pub flag: &'static str,
}

/// Reads all layers, lowest first: built in, `--config` file, environment, flags. Reports every error of every layer
/// at once. An unknown `PIRN_*` variable is a warning in the result.
pub fn load(sources: &Sources<'_>) -> Result<Settings, ConfigErrors> {
    load_with_wish(sources).1
}

/// The same, and what `output.json` says as far as it could be read, so that errors are told in the form asked for.
pub fn load_with_wish(sources: &Sources<'_>) -> (JsonLevel, Result<Settings, ConfigErrors>) {
    let mut loader = Loader { settings: Settings::default(), errors: Vec::new() };
    let env = sources.env;
    let named = sources.config_file.clone().or_else(|| env.path("PIRN_CONFIG"));
    if let Some(path) = named {
        loader.file(&sources.cwd, &path);
    }
    loader.environment(env, &sources.cwd);
    for set in &sources.sets {
        loader.set(set, &sources.cwd);
    }
    for flag in &sources.flags {
        let at = Origin::Flag(flag.flag.to_owned());
        let data = from_value(&flag.value, &at);
        loader.layer(at_path(flag.key, data, &at), &sources.cwd, false);
    }
    loader.finish(env);
    let wish = loader.settings.output.json;
    match ConfigErrors::from_list(loader.errors) {
        Some(errors) => (wish, Err(errors)),
        None => (wish, Ok(loader.settings)),
    }
}

struct Loader {
    settings: Settings,
    errors: Vec<ConfigError>,
}

impl Loader {
    fn file(&mut self, cwd: &Path, path: &Path) {
        let name: Arc<str> = path.display().to_string().into();
        let whole = |message: String| ConfigError { at: Place::File(Arc::clone(&name)), message, suggestion: None };
        let path = cwd.join(path);
        let read = File::open(&path).map_err(FileError::from).and_then(|file| Ok((read_open(&file)?, private(&file))));
        let (bytes, private) = match read {
            Ok(read) => read,
            Err(problem) => return self.errors.push(whole(format!("cannot be read: {problem}"))),
        };
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let offset = error.utf8_error().valid_up_to();
                return self.errors.push(whole(format!("not UTF-8 at byte {offset}")));
            }
        };
        match parse_file(&name, &text) {
            Ok(root) => {
                self.layer(root, path.parent().unwrap_or(cwd), private);
                self.settings.files.push(path);
            }
            Err(errors) => self.errors.extend(errors),
        }
    }

    fn environment(&mut self, env: &Env, cwd: &Path) {
        self.settings.warnings.extend(env.warnings());
        for name in env.unreadable() {
            self.errors.push(ConfigError::new(Origin::Env(name.to_owned()), "not UTF-8"));
        }
        if env.text("PIRN_PROFILE").is_some() {
            self.errors.push(later("profiles", Origin::Env("PIRN_PROFILE".to_owned())));
        }
        if env.switch("PIRN_TRUST") {
            self.errors.push(later("trust", Origin::Env("PIRN_TRUST".to_owned())));
        }
        let settings = READ.iter().filter_map(|(name, key)| Some((*name, (*key)?, env.text(name)?)));
        for (name, key, value) in settings {
            let at = Origin::Env(name.to_owned());
            self.layer(at_path(key, Data::Loose(value.to_owned()), &at), cwd, false);
        }
    }

    fn set(&mut self, set: &str, cwd: &Path) {
        let at = Origin::Flag("--set".to_owned());
        let node = split_set(set).and_then(|(key, value)| parse_set(key.trim(), value.trim(), &at));
        match node {
            Some(node) => self.layer(node, cwd, false),
            // The text may hold a key, so it is not shown.
            None => self.errors.push(ConfigError::new(at, "takes KEY=VALUE with a dotted TOML key")),
        }
    }

    fn layer(&mut self, root: Node, dir: &Path, private: bool) {
        let Self { settings, errors } = self;
        // Taken out so that tables and origins can be written at the same time.
        let mut origins = std::mem::take(&mut settings.origins);
        let mut layer = Layer { dir, private, errors, origins: &mut origins };
        read_root(&mut layer, settings, root);
        settings.origins = origins;
    }

    /// Expands references and checks what only the merged result can tell.
    fn finish(&mut self, env: &Env) {
        let Self { settings, errors } = self;
        let Settings { providers, models, origins, .. } = settings;
        let mut wrong = |key: &str, problem: &str| {
            let at = origins.get(key).cloned().unwrap_or(Origin::BuiltIn);
            errors.push(ConfigError::new(at, format!("{key} {problem}")));
        };
        for (name, provider) in providers {
            let prefix = format!("providers.{}", quoted(name));
            if let Some(url) = &provider.base_url {
                let key = format!("{prefix}.base_url");
                match expand(url, env) {
                    Ok(url) if host(&url).is_some() => provider.base_url = Some(url),
                    Ok(_) => wrong(&key, "must be an http or https URL"),
                    Err(problem) => wrong(&key, &format!("cannot be expanded: {problem}")),
                }
            }
            let mut headers = Headers::new();
            for (header, value) in provider.headers.iter() {
                let key = format!("{prefix}.headers.{}", quoted(header));
                match value.map(|value| expand(value, env)).transpose() {
                    Ok(Some(value)) if !is_header_value(&value) => wrong(&key, "must not contain control characters"),
                    Ok(value) => headers.set(header, value),
                    Err(problem) => wrong(&key, &format!("cannot be expanded: {problem}")),
                }
            }
            provider.headers = headers;
        }
        for alias in models.iter().filter(|(_, model)| model.id.is_empty()).map(|(alias, _)| alias) {
            wrong(&format!("models.{}", quoted(alias)), "needs an id, \"provider/id\"");
        }
    }
}

/// Splits at the first `=` outside of a quoted part of the key.
fn split_set(set: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    let at = set.char_indices().find(|(_, c)| {
        match quote {
            Some(open) if open == *c => quote = None,
            None if *c == '"' || *c == '\'' => quote = Some(*c),
            _ => {}
        }
        *c == '=' && quote.is_none()
    });
    let (key, rest) = set.split_at_checked(at?.0)?;
    Some((key, rest.strip_prefix('=')?))
}

/// Whether nobody but its owner can read a file.
#[cfg(unix)]
fn private(file: &File) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    const OTHERS: u32 = 0o077;
    file.metadata().is_ok_and(|facts| facts.permissions().mode() & OTHERS == 0)
}

#[cfg(not(unix))]
fn private(_: &File) -> bool {
    false
}

/// The top level: named tables have targets of their own, everything else goes into `settings`.
fn read_root(layer: &mut Layer<'_>, settings: &mut Settings, root: Node) {
    let Data::Table(entries) = root.data else { return };
    for (name, node) in entries {
        match name.text.as_str() {
            PROVIDERS => read_named(layer, name, node, PROVIDER, &mut settings.providers),
            MODELS => read_named(layer, name, node, MODEL, &mut settings.models),
            text if NAMED_LATER.contains(&text) => read_named_later(layer, name, node),
            _ => read_entry(layer, "", "", SETTINGS, settings, name, node),
        }
    }
}

fn must_be_table(layer: &mut Layer<'_>, key: &str, node: &Node) {
    let message = format!("{key} must be a table, not {}", node.kind());
    layer.errors.push(ConfigError::new(node.at.clone(), message));
}

/// A table of tables whose names are the user's.
fn read_named<T: Default>(
    layer: &mut Layer<'_>,
    table: Name,
    node: Node,
    keys: &'static [Key<T>],
    targets: &mut BTreeMap<String, T>,
) {
    let node = node.settle(false);
    let table = table.text;
    let Data::Table(entries) = node.data else { return must_be_table(layer, &table, &node) };
    for (name, node) in entries {
        if name.text.starts_with(IGNORED_PREFIX) {
            continue;
        }
        let key = format!("{table}.{}", quoted(&name.text));
        let node = node.settle(false);
        let Data::Table(inner) = node.data else {
            must_be_table(layer, &key, &node);
            continue;
        };
        if table == PROVIDERS && (name.text.is_empty() || name.text.contains('/') || name.text == DEMO) {
            let message = format!("{key}: a provider cannot have this name");
            layer.errors.push(ConfigError::new(name.at, message));
            continue;
        }
        if table == MODELS && (name.text.is_empty() || name.text.contains(',') || name.text == DEMO) {
            layer.errors.push(ConfigError::new(name.at, format!("{key}: an alias cannot have this name")));
            continue;
        }
        if refuse_split_name(layer, &table, &name, &inner, keys) {
            continue;
        }
        layer.origins.insert(key.clone(), name.at);
        let target = targets.entry(name.text).or_default();
        for (name, node) in inner {
            read_entry(layer, &key, "", keys, target, name, node);
        }
    }
}

/// `[models.qwen3.5]` is a table `5` in a table `qwen3`; nobody means that.
fn refuse_split_name<T>(
    layer: &mut Layer<'_>,
    table: &str,
    name: &Name,
    inner: &[(Name, Node)],
    keys: &'static [Key<T>],
) -> bool {
    let known = |part: &str| {
        let mut heads = keys.iter().filter_map(|key| key.name.split('.').next());
        heads.any(|head| head == part) || part.starts_with(IGNORED_PREFIX)
    };
    let split = |(part, node): &(Name, Node)| matches!(node.data, Data::Table(_)) && !known(&part.text);
    if inner.is_empty() || !inner.iter().all(split) {
        return false;
    }
    for (part, node) in inner {
        let mut whole = format!("{}.{}", name.text, part.text);
        let mut node = node;
        while let Data::Table(entries) = &node.data
            && let [entry] = entries.as_slice()
            && split(entry)
        {
            whole = format!("{whole}.{}", entry.0.text);
            node = &entry.1;
        }
        let message = format!("{table}.{whole}: a name with a dot needs quotes: {table}.{}", quoted(&whole));
        layer.errors.push(ConfigError::new(part.at.clone(), message));
    }
    true
}

fn read_named_later(layer: &mut Layer<'_>, name: Name, node: Node) {
    let node = node.settle(false);
    let Data::Table(entries) = node.data else { return must_be_table(layer, &name.text, &node) };
    if entries.is_empty() {
        layer.errors.push(later(&name.text, name.at));
        return;
    }
    for (entry, _) in entries.into_iter().filter(|(entry, _)| !entry.text.starts_with(IGNORED_PREFIX)) {
        layer.errors.push(later(&format!("{}.{}", name.text, quoted(&entry.text)), entry.at));
    }
}

/// One entry of a table: a key of its own, a table of keys, or a mistake. `shown` and `path` lead to the table, the
/// one as the user wrote it, the other as `keys` has it.
fn read_entry<T>(
    layer: &mut Layer<'_>,
    shown: &str,
    path: &str,
    keys: &'static [Key<T>],
    target: &mut T,
    name: Name,
    node: Node,
) {
    if name.text.starts_with(IGNORED_PREFIX) {
        return;
    }
    let above = shown;
    let shown = join(shown, &quoted(&name.text));
    let path = join(path, &name.text);
    if name.text.contains('.') {
        // A name in quotes is one name, whatever dots it holds.
        let meant = keys.iter().any(|key| key.name == path).then(|| join(above, &name.text));
        layer.errors.push(ConfigError::new(name.at, format!("unknown key {shown}")).suggest(meant));
        return;
    }
    if let Some(key) = keys.iter().find(|key| key.name == path) {
        return key.rule.apply(layer, target, &shown, &name, node);
    }
    let inside = format!("{path}.");
    let node = node.settle(false);
    if keys.iter().any(|key| key.name.starts_with(&inside)) {
        let Data::Table(entries) = node.data else { return must_be_table(layer, &shown, &node) };
        if entries.is_empty() && nothing_available(keys, &inside) {
            layer.errors.push(later(&shown, name.at));
            return;
        }
        for (name, node) in entries {
            read_entry(layer, &shown, &path, keys, target, name, node);
        }
        return;
    }
    let command_tool = shown.strip_prefix(TOOLS).is_some_and(|rest| rest.starts_with('.')) && !name.text.is_empty();
    let command_tool = command_tool && path.matches('.').count() == 1;
    if command_tool && matches!(node.data, Data::Table(_)) {
        layer.errors.push(later(&shown, name.at));
        return;
    }
    // Nobody reads more, and looking for them takes time.
    let suggestion =
        if layer.errors.len() < ERRORS_SHOWN_MAX { suggest(&shown, &path, &name.text, keys) } else { None };
    layer.errors.push(ConfigError::new(name.at, format!("unknown key {shown}")).suggest(suggestion));
}

fn nothing_available<T>(keys: &[Key<T>], inside: &str) -> bool {
    keys.iter().filter(|key| key.name.starts_with(inside)).all(|key| matches!(key.rule, Rule::Later))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// A key of the same table that looks like this one, else one of this very name in another table, else one there that
/// looks like it.
fn suggest<T>(shown: &str, path: &str, name: &str, keys: &'static [Key<T>]) -> Option<String> {
    let parent = path.strip_suffix(name)?;
    let mut siblings: Vec<&str> =
        keys.iter().filter_map(|key| key.name.strip_prefix(parent)).filter_map(|rest| rest.split('.').next()).collect();
    if shown == name {
        siblings.extend(["providers", "models"]);
        siblings.extend(NAMED_LATER);
    }
    siblings.dedup();
    // What the user wrote before the name may hold the name of a named table.
    let before = shown.strip_suffix(name).unwrap_or(parent);
    if let Some(sibling) = nearest(name, siblings) {
        return Some(format!("{before}{sibling}"));
    }
    let above = shown.strip_suffix(path)?;
    let last = |key: &'static Key<T>| key.name.rsplit('.').next().unwrap_or(key.name);
    let elsewhere = |wanted: &str| keys.iter().find(|key| last(key) == wanted);
    let near = || {
        let available = keys.iter().filter(|key| key.name.contains('.') && !matches!(key.rule, Rule::Later));
        elsewhere(nearest(name, available.map(last))?)
    };
    let found = elsewhere(name).or_else(|| if shown == name { near() } else { None })?;
    Some(format!("{above}{}", found.name))
}
