//! The keys of the configuration, as one table each for settings and for every kind of named table.
//!
//! Keeps true: a key that is not here does not exist; keys with nothing behind them yet are known and checked, so that
//! setting one is told from a typing mistake; the parser, the listing and the JSON Schema go by these tables alone.
//!
//! Must not know: where a value was written.

mod named;
mod root;

pub(super) use named::{HOOK, MCP, MODEL, PROVIDER, TOOL, Unbuilt};
pub(super) use root::SETTINGS;

use super::rule::{Head, Key, Now, Rule, heads};

pub(super) const PROVIDERS: &str = "providers";
pub(super) const MODELS: &str = "models";
pub(super) const HOOKS: &str = "hooks";
pub(super) const MCP_SERVERS: &str = "mcp";
pub(super) const TOOLS: &str = "tools";
pub(super) const PROFILES: &str = "profiles";
/// Tables whose entries have names of the user's choice; those of command tools stand in [`TOOLS`] beside settings.
pub(super) const NAMED: [&str; 5] = [PROVIDERS, MODELS, HOOKS, MCP_SERVERS, PROFILES];
/// Those of them that have nothing behind them yet.
pub(super) const NAMED_LATER: [&str; 3] = [TOOLS, HOOKS, MCP_SERVERS];

/// Tools that are built in and so no names for command tools; some have keys of their own.
pub(super) const BUILT_IN_TOOLS: [&str; 8] = ["read", "grep", "find", "ls", "write", "edit", "bash", "task"];

/// Bounds that are no setting's own business.
const PARALLEL_MAX: u32 = 1024;
const RESULT_BYTES_MAX: u64 = 64 << 20;
const RESULT_LINES_MAX: u32 = 10_000_000;
const CONTEXT_BYTES_MAX: u64 = 16 << 20;
const SEARCHED_BYTES_MAX: u64 = 1 << 40;
const REPEATS_MAX: u32 = 1000;

const LEVELS: &[&str] = &["", "off", "minimal", "low", "medium", "high", "xhigh", "max"];
const EXECUTIONS: &[&str] = &["parallel", "sequential"];

/// What [`keys`] tells about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// Dotted; `NAME` stands for the name of a named table.
    pub key: String,
    /// Whether it can be set in this version.
    pub available: bool,
}

/// Every key of the configuration; those of named tables come last. A profile holds any of them.
pub fn keys() -> Vec<KeyInfo> {
    let mut all = infos("", &heads(SETTINGS), true);
    all.extend(infos("providers.NAME.", &heads(PROVIDER), true));
    all.extend(infos("models.NAME.", &heads(MODEL), true));
    all.extend(infos("tools.NAME.", &heads(TOOL), false));
    all.extend(infos("hooks.NAME.", &heads(HOOK), false));
    all.extend(infos("mcp.NAME.", &heads(MCP), false));
    all
}

fn infos(prefix: &str, keys: &[Head], built: bool) -> Vec<KeyInfo> {
    let info =
        |key: &Head| KeyInfo { key: format!("{prefix}{}", key.name), available: built && !matches!(key.now, Now::No) };
    keys.iter().map(info).collect()
}

const fn key<T>(name: &'static str, rule: Rule<T>) -> Key<T> {
    Key { name, rule, now: Now::Yes }
}

/// A key with nothing behind it yet.
const fn later<T>(name: &'static str, rule: Rule<T>) -> Key<T> {
    Key { name, rule, now: Now::No }
}

/// A key of which only some words have something behind them.
const fn some<T>(name: &'static str, words: &'static [&'static str], rule: Rule<T>) -> Key<T> {
    Key { name, rule, now: Now::Words(words) }
}

/// Sets a value that a checked word names.
fn put<V>(slot: &mut V, value: Option<V>) {
    if let Some(value) = value {
        *slot = value;
    }
}

fn positive(count: u32) -> Option<u32> {
    Some(count).filter(|count| *count > 0)
}

fn full(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}
