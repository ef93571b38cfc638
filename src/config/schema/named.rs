use serde_json::{Map, Value};

use super::super::rule::{Key, Rule};
use super::super::settings::{ModelSettings, PriceSettings, ProviderSettings};
use super::{EXECUTIONS, LEVELS, RESULT_BYTES_MAX, full, key, later, positive, put, some};
use crate::model::{Input, Secret, Thinking};
use crate::port::Cache;

const CACHES: &[&str] = &["none", "short", "long"];
const INPUTS: &[&str] = &["text", "image"];
const REPLAYS: &[&str] = &["never", "safe"];

/// The wires that can be named, and the one that exists.
const APIS: &[&str] = &["anthropic-messages", "openai-completions", "openai-responses", "google-generative-ai"];
const APIS_NOW: &[&str] = &["openai-completions"];

/// Events of hooks, and the names that other programs have for them.
const EVENTS: &[&str] = &[
    "session_start",
    "before_drive",
    "before_run",
    "before_request",
    "after_response",
    "before_tool",
    "after_tool",
    "before_compaction",
    "before_run_end",
    "run_end",
    "before_tool_call",
    "after_tool_call",
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PreCompact",
    "Stop",
    "SessionEnd",
    "BeforeAgent",
    "BeforeModel",
    "AfterModel",
    "BeforeTool",
    "AfterTool",
    "PreCompress",
    "AfterAgent",
];

/// The order of hooks has room in both directions.
const ORDER_MAX: i64 = 1_000_000;

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

/// Request fields that are the run's own: another model, other messages or no stream would be another run.
const OWN_FIELDS: &[&str] = &["model", "messages", "stream", "tools"];

/// Keys of `[providers.NAME]`.
pub(in super::super) static PROVIDER: &[Key<ProviderSettings>] = &[
    some("api", APIS_NOW, Rule::Word(APIS, |p, api| p.api = Some(api.to_owned()))),
    key("base_url", Rule::Url(|p, url| p.base_url = full(url))),
    key("api_key", Rule::ApiKey(|p, key| p.api_key = Some(key))),
    key("headers", Rule::Headers(|p, name, value| p.headers.set(name, value))),
    key("proxy", Rule::Url(|p, url| p.proxy = full(url).map(Secret::new))),
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
pub(in super::super) static MODEL: &[Key<ModelSettings>] = &[
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
    later("background", Rule::Bool(|_, _| {})),
    key("options", Rule::Open { own: OWN_FIELDS, map: |m| &mut m.options }),
];

/// A table whose values are checked and then refused.
#[derive(Debug, Default)]
pub(in super::super) struct Unbuilt;

/// Keys of `[tools.NAME]`, a command tool.
pub(in super::super) static TOOL: &[Key<Unbuilt>] = &[
    key("description", Rule::Text(|_, _| {})),
    key("command", Rule::Argv(|_, _| {})),
    key("args", Rule::Template(|_, _| {})),
    key("stdin", Rule::Word(&["args", "envelope", "none"], |_, _| {})),
    key("output", Rule::Word(&["text", "json"], |_, _| {})),
    key("stderr", Rule::Word(&["on-error", "merge", "drop"], |_, _| {})),
    key("parameters", Rule::Parameters(|_, _| {})),
    key("parameters_file", Rule::ParametersFile(|_, _| {})),
    key("params", Rule::Params(|_, _| {})),
    key("timeout", Rule::Duration(|_, _| {})),
    key("cwd", Rule::Text(|_, _| {})),
    key("env", Rule::Variables(|_, _, _| {})),
    key("pass_env", Rule::List(|_, _| {})),
    key("replay", Rule::Word(REPLAYS, |_, _| {})),
    key("execution", Rule::Word(EXECUTIONS, |_, _| {})),
    key("ok_codes", Rule::Codes { min: 0, max: u8::MAX, set: |_, _| {} }),
    key("max_bytes", Rule::Size { min: 1, max: RESULT_BYTES_MAX, set: |_, _| {} }),
    key("allow_dash", Rule::Bool(|_, _| {})),
    key("sandbox", Rule::Word(&["inherit", "off"], |_, _| {})),
    key("enabled", Rule::Bool(|_, _| {})),
];

/// Keys of `[hooks.NAME]`.
pub(in super::super) static HOOK: &[Key<Unbuilt>] = &[
    key("event", Rule::OneOrMore(EVENTS, |_, _| {})),
    key("matcher", Rule::Text(|_, _| {})),
    key("when", Rule::When(|_, _| {})),
    key("command", Rule::ArgvOrShell(|_, _| {})),
    key("timeout", Rule::Duration(|_, _| {})),
    key("on_failure", Rule::Word(&["", "block", "ignore"], |_, _| {})),
    key("dialect", Rule::Word(&["pirn", "claude", "gemini"], |_, _| {})),
    key("order", Rule::Level { min: -ORDER_MAX, max: ORDER_MAX, set: |_, _| {} }),
    key("env", Rule::Variables(|_, _, _| {})),
    key("pass_env", Rule::List(|_, _| {})),
    key("detach", Rule::Bool(|_, _| {})),
    key("include", Rule::Words(&["messages"], |_, _| {})),
    key("enabled", Rule::Bool(|_, _| {})),
];

/// Keys of `[mcp.NAME]`.
pub(in super::super) static MCP: &[Key<Unbuilt>] = &[
    key("command", Rule::Program(|_, _| {})),
    key("args", Rule::List(|_, _| {})),
    key("env", Rule::Variables(|_, _, _| {})),
    key("pass_env", Rule::List(|_, _| {})),
    key("cwd", Rule::Text(|_, _| {})),
    key("url", Rule::Url(|_, _| {})),
    key("headers", Rule::Headers(|_, _, _| {})),
    key("bearer_token_env", Rule::Text(|_, _| {})),
    key("required", Rule::Bool(|_, _| {})),
    key("protocol", Rule::Word(&["auto", "legacy", "modern"], |_, _| {})),
    key("startup_timeout", Rule::Duration(|_, _| {})),
    key("timeout", Rule::Duration(|_, _| {})),
    key("tools.allow", Rule::List(|_, _| {})),
    key("tools.deny", Rule::List(|_, _| {})),
    key("execution", Rule::Word(EXECUTIONS, |_, _| {})),
    key("replay", Rule::Word(REPLAYS, |_, _| {})),
    key("trust_annotations", Rule::Bool(|_, _| {})),
    key("use_instructions", Rule::Bool(|_, _| {})),
    key("max_bytes", Rule::Size { min: 1, max: RESULT_BYTES_MAX, set: |_, _| {} }),
    key("enabled", Rule::Bool(|_, _| {})),
];

fn switch(compat: &mut Map<String, Value>, name: &str, on: bool) {
    compat.insert(name.to_owned(), Value::Bool(on));
}

fn price(model: &mut ModelSettings) -> &mut PriceSettings {
    model.price.get_or_insert_default()
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
