//! The effective settings as TOML.
//!
//! Keeps true: what is printed loads again to the same settings; a value that may hold a secret is a comment without
//! the value; keys stand in the order of the reference.
//!
//! Must not know: who reads it.

use std::collections::BTreeMap;

use super::DEFAULT_TOML;
use super::check::entries;
use super::error::Origin;
use super::node::built_in;
use super::read::{basic, quoted};
use super::rule::{Head, Now, heads};
use super::schema::{HOOK, HOOKS, MCP, MCP_SERVERS, MODEL, MODELS, PROVIDER, PROVIDERS, SETTINGS, TOOL, TOOLS};
use super::settings::Settings;

/// What stands for a value that may hold a secret.
const MASK: &str = "\"***\"";

/// Every setting that this version has, with its value; with `origins` each has its place behind it.
pub fn show(settings: &Settings, origins: bool) -> String {
    let defaults = defaults();
    let mut listing = Listing { settings, origins, defaults: &defaults, out: String::new() };
    let mut section = "";
    for key in SETTINGS.iter().filter(|key| !matches!(key.now, Now::No)) {
        let (table, _) = key.name.rsplit_once('.').unwrap_or(("", key.name));
        if table != section {
            listing.header(table);
            section = table;
        }
        listing.key(table, key.name);
    }
    listing.tables(PROVIDERS, &heads(PROVIDER));
    listing.tables(MODELS, &heads(MODEL));
    listing.tables(TOOLS, &heads(TOOL));
    listing.tables(HOOKS, &heads(HOOK));
    listing.tables(MCP_SERVERS, &heads(MCP));
    listing.out
}

/// The values of the built-in layer by their dotted keys.
fn defaults() -> BTreeMap<String, toml::Value> {
    let mut flat = BTreeMap::new();
    if let toml::Value::Table(table) = built_in(DEFAULT_TOML).to_toml() {
        flatten("", &table, &mut flat);
    }
    flat
}

fn flatten(above: &str, table: &toml::Table, flat: &mut BTreeMap<String, toml::Value>) {
    for (name, value) in table {
        let key = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
        let is_key = SETTINGS.iter().any(|known| known.name == key);
        match value {
            toml::Value::Table(inner) if !is_key => flatten(&key, inner, flat),
            value => drop(flat.insert(key, value.clone())),
        }
    }
}

struct Listing<'a> {
    settings: &'a Settings,
    origins: bool,
    defaults: &'a BTreeMap<String, toml::Value>,
    out: String,
}

impl Listing<'_> {
    fn header(&mut self, table: &str) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.out.extend(["[", table, "]\n"]);
    }

    /// A key of a table, or the entries below it where each has a place of its own.
    fn key(&mut self, table: &str, key: &str) {
        let below: Vec<String> = self.settings.written.below(key).map(|(name, _)| format!("{key}.{name}")).collect();
        if below.is_empty() {
            return self.line(table, key);
        }
        for key in below {
            self.line(table, &key);
        }
    }

    fn line(&mut self, table: &str, key: &str) {
        let name = key.strip_prefix(table).map_or(key, |name| name.trim_start_matches('.'));
        let shown = self.settings.written.values.get(key);
        let text = match (shown, self.defaults.get(key)) {
            (Some(shown), _) => shown.visible().map(inline),
            (None, Some(value)) => Some(inline(value)),
            (None, None) => return,
        };
        let (mark, text) = match &text {
            Some(text) => ("", text.as_str()),
            None => ("# ", MASK),
        };
        self.out.extend([mark, name, " = ", text]);
        if self.origins {
            let place = match self.settings.origin(key) {
                Origin::BuiltIn => "built in".to_owned(),
                origin => origin.to_string(),
            };
            self.out.extend([" # ", &place]);
        }
        self.out.push('\n');
    }

    /// The tables with names of the user's choice.
    fn tables(&mut self, table: &str, keys: &[Head]) {
        let names: Vec<String> = entries(&self.settings.written, table).map(|(key, _)| key.to_owned()).collect();
        for entry in names {
            self.header(&entry);
            for key in keys {
                self.key(&entry, &format!("{entry}.{}", key.name));
            }
        }
    }
}

/// A value on one line.
fn inline(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => basic(text),
        toml::Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        toml::Value::Table(table) if table.is_empty() => "{}".to_owned(),
        toml::Value::Table(table) => {
            let entry = |(name, value): (&String, &toml::Value)| format!("{} = {}", quoted(name), inline(value));
            format!("{{ {} }}", table.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}
