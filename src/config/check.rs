//! What only the merged result can tell: references to variables, entries that lack something, capabilities that are
//! not there yet.
//!
//! Keeps true: a reference to an unset variable is an error, never an empty string; for a provider it is one when the
//! provider is used; an entry that is turned off needs nothing.
//!
//! Must not know: layers, files.

use std::collections::BTreeMap;

use super::Env;
use super::error::{ConfigError, Origin};
use super::expand::{ExpandError, expand, references};
use super::read::{later, quoted};
use super::read_table::is_header_value;
use super::schema::{HOOKS, MCP_SERVERS, NAMED_LATER, PROVIDERS, SETTINGS, TOOLS};
use super::settings::{ProviderSettings, Settings};
use super::url::host;
use super::written::Written;
use crate::model::Headers;

/// Keys of named tables whose references are expanded, beside `env` and `headers`.
const EXPANDED: [&str; 3] = ["command", "cwd", "url"];

/// Expands what is expanded in general, and gathers what is wrong.
pub(super) fn finish(settings: &mut Settings, env: &Env, errors: &mut Vec<ConfigError>) {
    let Settings { providers, models, written, env: children, .. } = settings;
    for (name, provider) in providers {
        finish_provider(&format!("{PROVIDERS}.{}", quoted(name)), provider, written, env, errors);
    }
    for alias in models.iter().filter(|(_, model)| model.id.is_empty()).map(|(alias, _)| alias) {
        let key = format!("models.{}", quoted(alias));
        errors.push(at_key(written, &key, "needs an id, \"provider/id\""));
    }
    for (name, value) in &mut children.set {
        match expand(value, env) {
            Ok(expanded) => *value = expanded,
            Err(problem) => errors.push(not_expanded(written, &format!("env.set.{}", quoted(name)), &problem)),
        }
    }
    for table in NAMED_LATER {
        let entries: Vec<(String, Origin)> =
            entries(written, table).map(|(key, at)| (key.to_owned(), at.clone())).collect();
        for (key, at) in entries {
            finish_entry(table, &key, &at, written, env, errors);
        }
    }
    refuse_alike_servers(written, errors);
}

/// The entries of a named table that has nothing behind it yet, such as `hooks.guard`, whether turned off or not.
pub(super) fn entries<'a>(written: &'a Written, table: &'a str) -> impl Iterator<Item = (&'a str, &'a Origin)> {
    let is_setting = move |key: &str| {
        table == TOOLS
            && SETTINGS.iter().any(|setting| {
                setting.name == key || setting.name.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'))
            })
    };
    written.tables(table).filter(move |(key, _)| !is_setting(key))
}

/// Whether an entry of a named table is on.
pub(super) fn is_on(written: &Written, key: &str) -> bool {
    written.value(&format!("{key}.enabled")).and_then(toml::Value::as_bool) != Some(false)
}

fn at_key(written: &Written, key: &str, problem: &str) -> ConfigError {
    let at = written.origins.get(key).cloned().unwrap_or(Origin::BuiltIn);
    ConfigError::new(at, format!("{key} {problem}"))
}

fn not_expanded(written: &Written, key: &str, problem: &ExpandError) -> ConfigError {
    at_key(written, key, &format!("cannot be expanded: {problem}"))
}

fn finish_provider(
    prefix: &str,
    provider: &mut ProviderSettings,
    written: &Written,
    env: &Env,
    errors: &mut Vec<ConfigError>,
) {
    let mut unset = Vec::new();
    let mut not_there = |key: &str, problem: &ExpandError| {
        let error = not_expanded(written, key, problem);
        match problem {
            ExpandError::Unset(_) | ExpandError::Unreadable(_) => unset.push(error),
            ExpandError::Malformed => errors.push(error),
        }
    };
    let mut wrong = Vec::new();
    provider.credentials = credentials(provider);
    if let Some(url) = &provider.base_url {
        let key = format!("{prefix}.base_url");
        match expand(url, env) {
            Ok(url) if host(&url).is_some() => provider.base_url = Some(url),
            Ok(_) => wrong.push(at_key(written, &key, "must be an http or https URL")),
            Err(problem) => not_there(&key, &problem),
        }
    }
    let mut headers = Headers::new();
    for (header, value) in provider.headers.iter() {
        let key = format!("{prefix}.headers.{}", quoted(header));
        match value.map(|value| expand(value, env)).transpose() {
            Ok(Some(value)) if !is_header_value(&value) => {
                wrong.push(at_key(written, &key, "must not contain control characters"));
            }
            Ok(value) => headers.set(header, value),
            Err(problem) => not_there(&key, &problem),
        }
    }
    provider.headers = headers;
    provider.unset = unset;
    errors.extend(wrong);
}

/// The variables behind credentials of a provider other than its key, from texts that are not expanded yet.
fn credentials(provider: &ProviderSettings) -> BTreeMap<String, bool> {
    let headers = provider.headers.iter().filter_map(|(name, value)| Some((value?, Headers::is_secret_name(name))));
    // A user or a query, which may hold a key.
    let url = provider.base_url.as_deref().filter(|url| url.contains(['@', '?'])).map(|url| (url, true));
    let mut found = BTreeMap::new();
    for (text, is_secret) in headers.chain(url) {
        // A malformed reference is an error of its own.
        for name in references(text).unwrap_or_default() {
            *found.entry(name).or_default() |= is_secret;
        }
    }
    found
}

/// A command tool, a hook or a server: what it needs, and that there is none in this version.
fn finish_entry(table: &str, key: &str, at: &Origin, written: &Written, env: &Env, errors: &mut Vec<ConfigError>) {
    if !is_on(written, key) {
        return;
    }
    let has = |name: &str| written.origins.contains_key(&format!("{key}.{name}"));
    let mut lacks = |problem: &str| errors.push(ConfigError::new(at.clone(), format!("{key} {problem}")));
    match table {
        TOOLS => {
            if !has("command") {
                lacks("needs a command");
            }
            if ["parameters", "parameters_file", "params"].iter().filter(|name| has(name)).count() > 1 {
                lacks("can have only one of parameters, parameters_file and params");
            }
        }
        HOOKS => {
            if !has("event") {
                lacks("needs an event");
            }
            if !has("command") {
                lacks("needs a command");
            }
        }
        _ => match (has("command"), has("url")) {
            (false, false) => lacks("needs a command or a url"),
            (true, true) => lacks("cannot have both a command and a url"),
            _ => {}
        },
    }
    for (name, shown) in written.below(key) {
        let head = name.split('.').next().unwrap_or(name);
        let texts: Vec<&str> = match shown.value() {
            // A line for the shell is the shell's to expand.
            toml::Value::String(_) if table == HOOKS && head == "command" => Vec::new(),
            toml::Value::String(text) => vec![text],
            toml::Value::Array(items) => items.iter().filter_map(toml::Value::as_str).collect(),
            _ => Vec::new(),
        };
        if EXPANDED.contains(&name) || ((head == "env" || head == "headers") && head != name) {
            let problems = texts.into_iter().filter_map(|text| expand(text, env).err());
            errors.extend(problems.map(|problem| not_expanded(written, &format!("{key}.{name}"), &problem)));
        }
    }
    errors.push(later(key, at.clone()));
}

/// Two servers whose tools would have the same names.
fn refuse_alike_servers(written: &Written, errors: &mut Vec<ConfigError>) {
    let mut known: Vec<(String, &str)> = Vec::new();
    for (key, at) in written.tables(MCP_SERVERS) {
        let plain = key.replace('-', "_");
        match known.iter().find(|(other, _)| *other == plain) {
            Some((_, other)) => {
                let message = format!("{key} and {other} differ only in \"-\" and \"_\"");
                errors.push(ConfigError::new(at.clone(), message));
            }
            None => known.push((plain, key)),
        }
    }
}
