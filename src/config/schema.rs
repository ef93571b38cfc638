//! The keys of the configuration, as one table each for settings, providers and models.
//!
//! Keeps true: a key that is not here does not exist; keys of later versions are known, so that setting one is told
//! from a typing mistake.
//!
//! Must not know: where a value was written.

use serde_json::{Map, Value};

use super::rule::{Key, Rule};
use super::settings::{Confine, JsonLevel, ModelSettings, PriceSettings, ProviderSettings, Settings, When};
use crate::model::{Input, Secret, Thinking};
use crate::port::{Cache, Execution};

/// Bounds that are no setting's own business.
const PARALLEL_MAX: u32 = 1024;
const READ_BYTES_MAX: u64 = 64 << 20;
const READ_LINES_MAX: u32 = 10_000_000;

const LEVELS: &[&str] = &["", "off", "minimal", "low", "medium", "high", "xhigh", "max"];
const EXECUTIONS: &[&str] = &["parallel", "sequential"];
const CACHES: &[&str] = &["none", "short", "long"];
const INPUTS: &[&str] = &["text", "image"];

/// Request fields a server may refuse (OC-18).
const OPTIONAL_FIELDS: &[&str] = &[
    "stream_options",
    "max_completion_tokens",
    "max_tokens",
    "reasoning_effort",
    "store",
    "developer",
    "strict",
    "parallel_tool_calls",
    "temperature",
    "prompt_cache_key",
    "prompt_cache_retention",
];

/// Request fields that that are the run's own: another model, other messages or no stream would be another run.
const OWN_FIELDS: &[&str] = &["model", "messages", "stream", "tools"];

/// Tables whose entries have names of the user's choice, where no entry can be set yet.
pub(super) const NAMED_LATER: [&str; 3] = ["hooks", "mcp", "profiles"];
/// The table whose unknown tables are command tools, which cannot be set yet.
pub(super) const TOOLS: &str = "tools";

/// What [`keys`] tells about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// Dotted; `NAME` stands for the name of a named table.
    pub key: String,
    /// Whether it can be set in this version.
    pub available: bool,
}

/// Every key of the configuration; those of named tables come last.
pub fn keys() -> Vec<KeyInfo> {
    let mut all = infos("", SETTINGS);
    all.extend(infos("providers.NAME.", PROVIDER));
    all.extend(infos("models.NAME.", MODEL));
    let later = ["tools.NAME", "hooks.NAME", "mcp.NAME", "profiles.NAME"];
    all.extend(later.map(|key| KeyInfo { key: key.to_owned(), available: false }));
    all
}

fn infos<T>(prefix: &str, keys: &[Key<T>]) -> Vec<KeyInfo> {
    let info =
        |key: &Key<T>| KeyInfo { key: format!("{prefix}{}", key.name), available: !matches!(key.rule, Rule::Later) };
    keys.iter().map(info).collect()
}

const fn key<T>(name: &'static str, rule: Rule<T>) -> Key<T> {
    Key { name, rule }
}

const fn later<T>(name: &'static str) -> Key<T> {
    Key { name, rule: Rule::Later }
}

/// Keys outside of named tables.
pub(super) static SETTINGS: &[Key<Settings>] = &[
    key("model", Rule::Specs(|s, text| s.model = text)),
    key("thinking", Rule::Word(LEVELS, |s, word| s.thinking = Thinking::from_word(word))),
    key("system", Rule::Prompt(|s, text| s.system = Some(text).filter(|text| !text.is_empty()))),
    key("append_system", Rule::Prompts(|s, texts| s.append_system = texts)),
    later("steering_mode"),
    later("follow_up_mode"),
    later("mcp_import"),
    key("input.stdin_wait", Rule::Duration(|s, wait| s.input.stdin_wait = wait)),
    key("output.json", Rule::Word(JsonLevel::WORDS, |s, word| put(&mut s.output.json, JsonLevel::from_word(word)))),
    key("output.stream", Rule::Word(When::WORDS, |s, word| put(&mut s.output.stream, When::from_word(word)))),
    key("output.verbosity", Rule::Level { min: -1, max: 2, set: |s, level| s.output.verbosity = level }),
    key("output.thinking", Rule::Bool(|s, on| s.output.thinking = on)),
    key("output.color", Rule::Word(When::WORDS, |s, word| put(&mut s.output.color, When::from_word(word)))),
    key("output.events", Rule::Path(|s, path| s.output.events = path.map(|path| path.to_string_lossy().into_owned()))),
    later("output.schema_retries"),
    key("output.heartbeat", Rule::Duration(|s, beat| s.output.heartbeat = beat)),
    key("limits.max_turns", Rule::Count { min: 0, max: u32::MAX, set: |s, n| s.limits.max_turns = positive(n) }),
    later("limits.max_cost"),
    later("limits.max_repeats"),
    key(
        "limits.max_output_tokens",
        Rule::Count { min: 0, max: u32::MAX, set: |s, n| s.limits.max_output_tokens = positive(n) },
    ),
    key("limits.timeout", Rule::Duration(|s, limit| s.limits.timeout = limit)),
    key("limits.connect_timeout", Rule::Duration(|s, limit| s.limits.connect_timeout = limit)),
    key("limits.first_event_timeout", Rule::Duration(|s, limit| s.limits.first_event_timeout = limit)),
    key("limits.idle_timeout", Rule::Duration(|s, limit| s.limits.idle_timeout = limit)),
    key("limits.progress_timeout", Rule::Duration(|s, limit| s.limits.progress_timeout = limit)),
    key("limits.grace", Rule::Duration(|s, grace| s.limits.grace = grace.unwrap_or_default())),
    later("session.persist"),
    later("session.dir"),
    later("session.durability"),
    later("session.lock"),
    later("session.expire"),
    later("context.files"),
    later("context.max_bytes"),
    later("compaction.enabled"),
    later("compaction.reserve_tokens"),
    later("compaction.keep_recent_tokens"),
    later("compaction.at_run_end"),
    later("compaction.model"),
    later("retry.enabled"),
    later("retry.max_retries"),
    later("retry.base_delay"),
    later("retry.max_delay"),
    later("retry.http_retries"),
    later("recovery.max_interruptions"),
    key("tools.enabled", Rule::Edits(|s| &mut s.tools.enabled)),
    key("tools.execution", Rule::Word(EXECUTIONS, |s, word| put(&mut s.tools.execution, execution(word)))),
    key("tools.max_parallel", Rule::Count { min: 1, max: PARALLEL_MAX, set: |s, n| s.tools.max_parallel = n }),
    key("tools.roots", Rule::List(|s, list| s.tools.roots = list.into_iter().map(Into::into).collect())),
    key("tools.confine", Rule::Word(Confine::WORDS, |s, word| put(&mut s.tools.confine, Confine::from_word(word)))),
    later("tools.redact"),
    later("tools.fsync"),
    later("tools.bash.shell"),
    later("tools.bash.prefix"),
    later("tools.bash.timeout"),
    later("tools.bash.max_timeout"),
    later("tools.bash.max_bytes"),
    later("tools.bash.max_lines"),
    later("tools.bash.background_at_exit"),
    key("tools.read.line_numbers", Rule::Bool(|s, on| s.tools.read.line_numbers = on)),
    key(
        "tools.read.max_bytes",
        Rule::Size { min: 1, max: READ_BYTES_MAX, set: |s, bytes| s.tools.read.max_bytes = bytes },
    ),
    key("tools.read.max_lines", Rule::Count { min: 1, max: READ_LINES_MAX, set: |s, n| s.tools.read.max_lines = n }),
    later("tools.grep.max_file_bytes"),
    later("tools.task.enabled"),
    later("tools.task.model"),
    later("tools.task.tools"),
    later("tools.task.max_turns"),
    later("hook_limits.max_follow_ups"),
    later("permissions.default"),
    later("permissions.allow"),
    later("permissions.deny"),
    later("permissions.on_deny"),
    later("sandbox.mode"),
    later("sandbox.network"),
    later("sandbox.writable"),
    later("sandbox.hide"),
    later("sandbox.backend"),
    later("sandbox.command"),
    later("sandbox.required"),
    later("sandbox.applies_to"),
    later("env.inherit"),
    later("env.pass"),
    later("env.drop"),
    later("env.set"),
];

/// Keys of `[providers.NAME]`.
pub(super) static PROVIDER: &[Key<ProviderSettings>] = &[
    key("api", Rule::Api(|p, api| p.api = Some(api))),
    key("base_url", Rule::Text(|p, url| p.base_url = Some(url).filter(|url| !url.is_empty()))),
    key("api_key", Rule::ApiKey(|p, key| p.api_key = Some(key))),
    key("headers", Rule::Headers(|p, name, value| p.headers.set(name, value))),
    key("proxy", Rule::Text(|p, url| p.proxy = Some(url).filter(|url| !url.is_empty()).map(Secret::new))),
    key("ca_file", Rule::Path(|p, path| p.ca_file = path)),
    key("cache", Rule::Word(CACHES, |p, word| put(&mut p.cache, cache(word)))),
    key(
        "compat.max_tokens_field",
        Rule::Word(&["max_tokens", "max_completion_tokens"], |p, word| {
            p.compat.insert("max_tokens_field".to_owned(), word.into());
        }),
    ),
    key(
        "compat.reasoning",
        Rule::Word(
            &["none", "effort", "enable_thinking", "thinking_object", "openrouter", "chat_template"],
            |p, word| {
                p.compat.insert("reasoning".to_owned(), word.into());
            },
        ),
    ),
    key("compat.developer_role", Rule::Bool(|p, on| switch(&mut p.compat, "developer_role", on))),
    key("compat.store", Rule::Bool(|p, on| switch(&mut p.compat, "store", on))),
    key("compat.stream_options", Rule::Bool(|p, on| switch(&mut p.compat, "stream_options", on))),
    key("compat.strict_tools", Rule::Bool(|p, on| switch(&mut p.compat, "strict_tools", on))),
    key("compat.parallel_tool_calls", Rule::Bool(|p, on| switch(&mut p.compat, "parallel_tool_calls", on))),
    key(
        "compat.tool_call_id",
        Rule::Word(&["free", "alnum9", "short40"], |p, word| {
            p.compat.insert("tool_call_id".to_owned(), word.into());
        }),
    ),
    key("compat.tool_result_name", Rule::Bool(|p, on| switch(&mut p.compat, "tool_result_name", on))),
    key("compat.assistant_after_tool", Rule::Bool(|p, on| switch(&mut p.compat, "assistant_after_tool", on))),
    key(
        "compat.reasoning_replay",
        Rule::Word(&["none", "reasoning_content", "reasoning"], |p, word| {
            p.compat.insert("reasoning_replay".to_owned(), word.into());
        }),
    ),
    key("compat.think_tags", Rule::Bool(|p, on| switch(&mut p.compat, "think_tags", on))),
    key("compat.finish_reason", Rule::Bool(|p, on| switch(&mut p.compat, "finish_reason", on))),
    key("compat.cache_control", Rule::Bool(|p, on| switch(&mut p.compat, "cache_control", on))),
    key(
        "compat.optional_fields",
        Rule::Words(OPTIONAL_FIELDS, |p, fields| {
            p.compat.insert("optional_fields".to_owned(), fields.to_vec().into());
        }),
    ),
];

/// Keys of `[models.NAME]`.
pub(super) static MODEL: &[Key<ModelSettings>] = &[
    key("id", Rule::Text(|m, id| m.id = id)),
    key("thinking", Rule::Word(LEVELS, |m, word| m.thinking = Thinking::from_word(word))),
    key(
        "context_window",
        Rule::Count { min: 0, max: u32::MAX, set: |m, n| m.context_window = positive(n).map(u64::from) },
    ),
    key("max_output", Rule::Count { min: 0, max: u32::MAX, set: |m, n| m.max_output = positive(n).map(u64::from) }),
    key("price.input", Rule::Number(|m, usd| price(m).input = Some(usd))),
    key("price.output", Rule::Number(|m, usd| price(m).output = Some(usd))),
    key("price.cache_read", Rule::Number(|m, usd| price(m).cache_read = Some(usd))),
    key("price.cache_write", Rule::Number(|m, usd| price(m).cache_write = Some(usd))),
    key("input", Rule::Words(INPUTS, |m, words| m.input = Some(words.iter().map(|word| input(word)).collect()))),
    key("reasoning", Rule::Bool(|m, on| m.reasoning = Some(on))),
    later("background"),
    key("options", Rule::Open { own: OWN_FIELDS, map: |m| &mut m.options }),
];

/// Sets a value that a checked word names.
fn put<V>(slot: &mut V, value: Option<V>) {
    if let Some(value) = value {
        *slot = value;
    }
}

fn positive(count: u32) -> Option<u32> {
    Some(count).filter(|count| *count > 0)
}

fn switch(compat: &mut Map<String, Value>, name: &str, on: bool) {
    compat.insert(name.to_owned(), Value::Bool(on));
}

fn price(model: &mut ModelSettings) -> &mut PriceSettings {
    model.price.get_or_insert_default()
}

fn execution(word: &str) -> Option<Execution> {
    match word {
        "parallel" => Some(Execution::Parallel),
        "sequential" => Some(Execution::Sequential),
        _ => None,
    }
}

fn cache(word: &str) -> Option<Cache> {
    match word {
        "none" => Some(Cache::None),
        "short" => Some(Cache::Short),
        "long" => Some(Cache::Long),
        _ => None,
    }
}

fn input(word: &str) -> Input {
    if word == "image" { Input::Image } else { Input::Text }
}
