//! From the tables of one layer to the rules of their keys.
//!
//! Keeps true: every key is in the schema or is an error with a suggestion, but for keys that begin with `x-`; a table
//! whose entries have names of the user's choice checks those names, too.
//!
//! Must not know: what a setting does, the types behind the keys, other layers.

use std::collections::BTreeMap;

use super::error::{ConfigError, ERRORS_SHOWN_MAX};
use super::given::{Given, apply};
use super::layer::Layer;
use super::load::Entries;
use super::node::{Data, Name, Node};
use super::read::{later, quoted};
use super::rule::{Head, Key, Now, Table, heads, set};
use super::schema::{
    BUILT_IN_TOOLS, HOOK, HOOKS, MCP, MCP_SERVERS, MODEL, MODELS, NAMED, NAMED_LATER, PROFILES, PROVIDER, PROVIDERS,
    SETTINGS, TOOL, TOOLS, Unbuilt,
};
use super::settings::Settings;
use super::suggest::nearest;

/// Keys that begin so belong to the user and are never read.
pub(super) const IGNORED_PREFIX: &str = "x-";
/// The name of the built-in model's provider.
const DEMO: &str = "demo";
/// Characters of a tool's name, the limit of providers.
const TOOL_NAME_CHARS_MAX: usize = 64;
/// What tools of MCP servers begin with.
const MCP_PREFIX: &str = "mcp__";

/// The top level of a layer: named tables have targets of their own, everything else goes into `settings`.
pub(super) fn read_root(layer: &mut Layer<'_>, settings: &mut Settings, entries: Entries) {
    let above = layer.prefix.strip_suffix('.').unwrap_or_default().to_owned();
    let known = heads(SETTINGS);
    for (name, node) in entries {
        let table = join(&above, &name.text);
        match name.text.as_str() {
            PROVIDERS => read_named(layer, &table, name, node, PROVIDER, Some(&mut settings.providers)),
            MODELS => read_named(layer, &table, name, node, MODEL, Some(&mut settings.models)),
            HOOKS => read_named(layer, &table, name, node, HOOK, None),
            MCP_SERVERS => read_named(layer, &table, name, node, MCP, None),
            PROFILES => {
                let message = if above.is_empty() {
                    format!("{table} can be written in files only")
                } else {
                    format!("{table}: a profile cannot hold profiles")
                };
                layer.errors.push(ConfigError::new(name.at, message));
            }
            _ => {
                let mut set = |place, given: Given<'_, '_>| set(SETTINGS, settings, place, given);
                let mut target = Table { keys: &known, set: &mut set };
                if name.text == TOOLS {
                    read_tools(layer, &table, &mut target, &name, node);
                } else {
                    read_entry(layer, &above, "", &mut target, name, node);
                }
            }
        }
    }
}

pub(super) fn must_be_table(layer: &mut Layer<'_>, key: &str, node: &Node) {
    let message = format!("{key} must be a table, not {}", node.kind());
    layer.errors.push(ConfigError::new(node.at.clone(), message));
}

/// A table of tables whose names are the user's; without `targets` they are only checked.
fn read_named<T: Default>(
    layer: &mut Layer<'_>,
    table: &str,
    name: Name,
    node: Node,
    keys: &'static [Key<T>],
    mut targets: Option<&mut BTreeMap<String, T>>,
) {
    let known = heads(keys);
    let mut read = |layer: &mut Layer<'_>, key: &str, name: Name, inner: Entries| {
        let mut unkept = T::default();
        let target = match &mut targets {
            Some(targets) => targets.entry(name.text.clone()).or_default(),
            None => &mut unkept,
        };
        let mut set = |place, given: Given<'_, '_>| set(keys, target, place, given);
        read_inner(layer, key, name, inner, &mut Table { keys: &known, set: &mut set });
    };
    each_named(layer, table, name, node, &known, &mut read);
}

/// Gives `read` every table of a table of tables, but for those that are wrong: the key, the name, and what it holds.
fn each_named(
    layer: &mut Layer<'_>,
    table: &str,
    name: Name,
    node: Node,
    keys: &[Head],
    read: &mut dyn FnMut(&mut Layer<'_>, &str, Name, Entries),
) {
    let node = node.settle(false);
    let Data::Table(entries) = node.data else { return must_be_table(layer, table, &node) };
    if entries.is_empty() && NAMED_LATER.contains(&name.text.as_str()) {
        layer.errors.push(later(table, name.at));
        return;
    }
    for (entry, node) in entries {
        if entry.text.starts_with(IGNORED_PREFIX) {
            continue;
        }
        let key = format!("{table}.{}", quoted(&entry.text));
        let node = node.settle(false);
        let Data::Table(inner) = node.data else {
            must_be_table(layer, &key, &node);
            continue;
        };
        if let Some(problem) = wrong_name(&name.text, &entry.text) {
            layer.errors.push(ConfigError::new(entry.at, format!("{key}: {problem}")));
            continue;
        }
        if !refuse_split_name(layer, table, &entry, &inner, keys) {
            read(layer, &key, entry, inner);
        }
    }
}

fn read_inner(layer: &mut Layer<'_>, key: &str, name: Name, inner: Entries, target: &mut Table<'_>) {
    layer.keep(key, name.at, None);
    for (name, node) in inner {
        read_entry(layer, key, "", target, name, node);
    }
}

/// What is wrong with a name of the user's choice.
fn wrong_name(table: &str, name: &str) -> Option<&'static str> {
    let plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    match table {
        PROVIDERS if name.is_empty() || name.contains('/') || name == DEMO => Some("a provider cannot have this name"),
        MODELS if name.is_empty() || name.contains(',') || name == DEMO => Some("an alias cannot have this name"),
        HOOKS if name.is_empty() => Some("a hook cannot have this name"),
        MCP_SERVERS if name.is_empty() || !plain(name) => {
            Some("a server's name has only letters, digits, \"_\" and \"-\"")
        }
        TOOLS if name.starts_with(MCP_PREFIX) => Some("names that begin with \"mcp__\" belong to MCP servers"),
        TOOLS
            if !plain(name)
                || !name.starts_with(|c: char| c.is_ascii_alphabetic())
                || name.len() > TOOL_NAME_CHARS_MAX =>
        {
            Some("a tool's name is a letter and up to 63 letters, digits, \"_\" and \"-\"")
        }
        _ => None,
    }
}

/// Settings of tools, and command tools beside them.
fn read_tools(layer: &mut Layer<'_>, table: &str, settings: &mut Table<'_>, name: &Name, node: Node) {
    let node = node.settle(false);
    let Data::Table(entries) = node.data else { return must_be_table(layer, table, &node) };
    for (entry, node) in entries {
        let is_setting = settings.keys.iter().filter_map(|key| tools_key(key.name)).any(|known| known == entry.text);
        let ignored = entry.text.starts_with(IGNORED_PREFIX);
        let node = if is_setting || ignored { node } else { node.settle(false) };
        match node.data {
            Data::Table(inner) if !is_setting && !ignored && !entry.text.is_empty() => {
                read_tool(layer, table, settings.keys, entry, inner);
            }
            data => {
                let node = Node { data, at: node.at };
                read_entry(layer, table, &name.text, settings, entry, node);
            }
        }
    }
}

/// The name below `tools` of a setting: `bash` of `tools.bash.shell`.
fn tools_key(key: &'static str) -> Option<&'static str> {
    key.strip_prefix(TOOLS)?.strip_prefix('.')?.split('.').next()
}

fn read_tool(layer: &mut Layer<'_>, table: &str, settings: &[Head], name: Name, inner: Entries) {
    let key = format!("{table}.{}", quoted(&name.text));
    if BUILT_IN_TOOLS.contains(&name.text.as_str()) {
        if !inner.is_empty() {
            layer.errors.push(ConfigError::new(name.at, format!("{key} is built in and has no keys")));
        }
        return;
    }
    // Without a command it is rather a table of ours with a mistake in its name.
    let has_command = inner.iter().any(|(name, _)| name.text == "command") || layer.knows(&key);
    let ours = settings.iter().filter_map(|key| tools_key(key.name)).chain(BUILT_IN_TOOLS);
    if let (false, Some(near)) = (has_command, nearest(&name.text, ours)) {
        let error = ConfigError::new(name.at, format!("unknown key {key}"));
        layer.errors.push(error.suggest(Some(format!("{table}.{near}"))));
        return;
    }
    if let Some(problem) = wrong_name(TOOLS, &name.text) {
        layer.errors.push(ConfigError::new(name.at, format!("{key}: {problem}")));
        return;
    }
    let mut set = |place, given: Given<'_, '_>| set(TOOL, &mut Unbuilt, place, given);
    read_inner(layer, &key, name, inner, &mut Table { keys: &heads(TOOL), set: &mut set });
}

/// `[models.qwen3.5]` is a table `5` in a table `qwen3`; nobody means that.
fn refuse_split_name(layer: &mut Layer<'_>, table: &str, name: &Name, inner: &[(Name, Node)], keys: &[Head]) -> bool {
    let known = |part: &str| {
        let heads = keys.iter().filter_map(|key| key.name.split('.').next());
        // A key with a typing mistake is no half of a name.
        part.starts_with(IGNORED_PREFIX) || nearest(part, heads).is_some()
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

/// One entry of a table: a key of its own, a table of keys, or a mistake. `shown` and `path` lead to the table, the
/// one as the user wrote it, the other as the table's keys have it.
fn read_entry(layer: &mut Layer<'_>, shown: &str, path: &str, target: &mut Table<'_>, name: Name, node: Node) {
    if name.text.starts_with(IGNORED_PREFIX) {
        return;
    }
    let keys = target.keys;
    let above = shown;
    let shown = join(shown, &quoted(&name.text));
    let path = join(path, &name.text);
    if name.text.contains('.') {
        // A name in quotes is one name, whatever dots it holds.
        let meant = keys.iter().any(|key| key.name == path).then(|| join(above, &name.text));
        layer.errors.push(ConfigError::new(name.at, format!("unknown key {shown}")).suggest(meant));
        return;
    }
    if let Some(place) = keys.iter().position(|key| key.name == path) {
        return apply(layer, target, place, &shown, &name, node);
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
            read_entry(layer, &shown, &path, target, name, node);
        }
        return;
    }
    // Nobody reads more, and looking for them takes time.
    let suggestion = if layer.errors.len() < ERRORS_SHOWN_MAX {
        suggest(layer.prefix, &shown, &path, &name.text, keys)
    } else {
        None
    };
    layer.errors.push(ConfigError::new(name.at, format!("unknown key {shown}")).suggest(suggestion));
}

fn nothing_available(keys: &[Head], inside: &str) -> bool {
    keys.iter().filter(|key| key.name.starts_with(inside)).all(|key| matches!(key.now, Now::No))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// A key of the same table that looks like this one, else one of this very name in another table, else one there that
/// looks like it. At the top level a key of this very name in a table comes first; where several tables have one, all
/// are named.
fn suggest(prefix: &str, shown: &str, path: &str, name: &str, keys: &[Head]) -> Option<String> {
    let parent = path.strip_suffix(name)?;
    let is_root = shown.strip_prefix(prefix) == Some(name);
    let mut siblings: Vec<&str> =
        keys.iter().filter_map(|key| key.name.strip_prefix(parent)).filter_map(|rest| rest.split('.').next()).collect();
    if is_root {
        siblings.extend(NAMED);
    }
    siblings.dedup();
    let last = |key: &Head| key.name.rsplit('.').next().unwrap_or(key.name);
    let available = || keys.iter().filter(|key| !matches!(key.now, Now::No));
    let elsewhere = |wanted: &str| available().chain(keys).find(|key| last(key) == wanted);
    let above = shown.strip_suffix(path)?;
    if is_root && let Some(found) = elsewhere(name) {
        let depth = |key: &Head| key.name.matches('.').count();
        let mut same: Vec<String> = available()
            .filter(|key| last(key) == name && depth(key) == depth(found))
            .map(|key| format!("{above}{}", key.name))
            .collect();
        if same.is_empty() {
            same.push(format!("{above}{}", found.name));
        }
        return Some(same.join(" or "));
    }
    // What the user wrote before the name may hold the name of a named table.
    let before = shown.strip_suffix(name).unwrap_or(parent);
    if let Some(sibling) = nearest(name, siblings) {
        return Some(format!("{before}{sibling}"));
    }
    let near = || elsewhere(nearest(name, available().filter(|key| key.name.contains('.')).map(last))?);
    let found = elsewhere(name).or_else(|| if is_root { near() } else { None })?;
    Some(format!("{above}{}", found.name))
}
