//! A request as the body of Chat Completions.
//!
//! Keeps true: equal transcript prefixes give equal bytes, so that prompt caches stay warm; the body is written once,
//! from borrowed text, without a tree in between (PERF-7); no key stands in it twice; text holds no U+0000 (T-14).
//!
//! Must not know: how a transcript is healed (that happened before), names of providers and hosts, HTTP.

mod messages;
mod reasoning;
mod repair;
mod text;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use self::messages::Messages;
use self::reasoning::Level;
pub use self::repair::{REPAIRS_PER_REQUEST_MAX, RefusedImages, Repair, Repairs, repair_for};
use self::text::{BodyFormat, Clean};
pub use self::text::{RequestChars, request_chars};
use crate::model::{ErrorKind, ErrorRecord, Model};
use crate::port::{Cache, LlmRequest, ToolSpec};
use crate::provider::compat::{Compat, MaxTokensField, OptionalField, ReasoningForm};

/// Characters of `prompt_cache_key`.
const CACHE_KEY_CHARS: usize = 64;

/// Tokens kept free beside the estimated input when the model's own output limit is sent.
const OUTPUT_RESERVE_TOKENS: u64 = 1_024;

/// Characters per token when the input is estimated on the safe side.
const CHARS_PER_TOKEN_LOW: u64 = 3;

/// Nesting of a schema that is looked at.
const SCHEMA_DEPTH_MAX: usize = 64;

/// Name of the answer's schema.
const SCHEMA_NAME: &str = "answer";

/// Writes the body. `repairs` are the fields this server refused before.
///
/// Later entries win: what the request says, then `samplingParams` of the model, then `options.extra` (case 118); an
/// entry that is null there leaves the field out.
pub fn body(request: &LlmRequest, compat: &Compat, repairs: &Repairs) -> Result<Vec<u8>, ErrorRecord> {
    let level = reasoning::level(&request.model, request.thinking);
    let body = Body { request, compat, repairs, level, overlay: overlay(request, repairs) };
    let mut bytes = Vec::new();
    body.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, BodyFormat)).map_err(|error| {
        ErrorRecord::new(ErrorKind::Internal, format!("the request cannot be written as JSON: {error}"))
    })?;
    Ok(bytes)
}

/// The parts of a request the dialect's rules look at.
struct Body<'a> {
    request: &'a LlmRequest,
    compat: &'a Compat,
    repairs: &'a Repairs,
    level: Level<'a>,
    /// Fields passed through, the last value of each.
    overlay: Vec<(&'a str, &'a Value)>,
}

/// The pass-through fields: refused ones left out, each once.
fn overlay<'a>(request: &'a LlmRequest, repairs: &Repairs) -> Vec<(&'a str, &'a Value)> {
    let mut fields: Vec<(&str, &Value)> = Vec::new();
    for (key, value) in request.model.sampling_params.iter().chain(&request.options.extra) {
        let Some(key) = repairs.passed_through(key) else { continue };
        match fields.iter_mut().find(|(known, _)| same_field(known, key)) {
            Some(field) => *field = (key, value),
            None => fields.push((key, value)),
        }
    }
    fields
}

/// Whether two names mean one field: the two names of the output limit do.
fn same_field(a: &str, b: &str) -> bool {
    let is_limit =
        |name| name == MaxTokensField::MaxTokens.as_str() || name == MaxTokensField::default().swapped().as_str();
    a == b || (is_limit(a) && is_limit(b))
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = Fields { map: serializer.serialize_map(None)?, overlay: &self.overlay };
        let messages = Messages::build(self.request, self.compat, self.repairs, &self.level);
        fields.put("model", &self.request.model.id)?;
        fields.put("messages", &messages)?;
        fields.put("stream", &true)?;
        if self.compat.stream_options && !self.repairs.drops(OptionalField::StreamOptions) {
            fields.put("stream_options", &StreamOptions { include_usage: true })?;
        }
        self.tools(&mut fields)?;
        self.limits(&mut fields)?;
        self.reasoning(&mut fields)?;
        self.caching(&mut fields)?;
        if let Some(schema) = &self.request.output_schema {
            let json_schema = JsonSchema { name: SCHEMA_NAME, schema, strict: strict_ready(schema, 0) };
            fields.put("response_format", &ResponseFormat { type_: "json_schema", json_schema })?;
        }
        fields.end()
    }
}

impl Body<'_> {
    fn tools<M: SerializeMap>(&self, fields: &mut Fields<'_, M>) -> Result<(), M::Error> {
        let specs = &self.request.tools;
        if specs.is_empty() {
            return Ok(());
        }
        let strict = self.compat.strict_tools && !self.repairs.drops(OptionalField::Strict);
        let marker = CacheMarker::of(self.request, self.compat);
        let last = specs.len() - 1;
        let tools: Vec<Tool<'_>> =
            specs.iter().enumerate().map(|(at, spec)| Tool::new(spec, strict, marker.filter(|_| at == last))).collect();
        fields.put("tools", &tools)?;
        if self.compat.parallel_tool_calls && !self.repairs.drops(OptionalField::ParallelToolCalls) {
            fields.put("parallel_tool_calls", &true)?;
        }
        Ok(())
    }

    fn limits<M: SerializeMap>(&self, fields: &mut Fields<'_, M>) -> Result<(), M::Error> {
        let temperature = self.request.options.temperature.filter(|value| value.is_finite());
        if let Some(temperature) = temperature
            && !self.repairs.drops(OptionalField::Temperature)
        {
            fields.put("temperature", &temperature)?;
        }
        let field = self.repairs.max_tokens_field(self.compat.max_tokens_field);
        if let (Some(field), Some(limit)) = (field, output_limit(self.request)) {
            fields.put(field.as_str(), &limit)?;
        }
        Ok(())
    }

    fn reasoning<M: SerializeMap>(&self, fields: &mut Fields<'_, M>) -> Result<(), M::Error> {
        let form = self.compat.reasoning;
        let on = match self.level {
            Level::Unset | Level::AlwaysOn => return Ok(()),
            Level::Off(_) => false,
            Level::On { .. } => true,
        };
        match form {
            ReasoningForm::None => {}
            ReasoningForm::Effort => self.effort(fields)?,
            ReasoningForm::EnableThinking => fields.put("enable_thinking", &on)?,
            ReasoningForm::ThinkingObject => {
                fields.put("thinking", &ThinkingObject { type_: if on { "enabled" } else { "disabled" } })?;
                if on && self.level.has_word_for(&self.request.model) {
                    self.effort(fields)?;
                }
            }
            ReasoningForm::Openrouter => {
                let object = if reasoning::is_switch(&self.request.model) {
                    OpenrouterReasoning { enabled: Some(on), effort: None }
                } else {
                    OpenrouterReasoning { enabled: None, effort: Some(self.level.effort().unwrap_or("none")) }
                };
                fields.put("reasoning", &object)?;
            }
            ReasoningForm::ChatTemplate => {
                fields.put("chat_template_kwargs", &ChatTemplate { enable_thinking: on })?;
            }
        }
        Ok(())
    }

    fn effort<M: SerializeMap>(&self, fields: &mut Fields<'_, M>) -> Result<(), M::Error> {
        match self.level.effort() {
            Some(word) if !self.repairs.drops(OptionalField::ReasoningEffort) => fields.put("reasoning_effort", &word),
            _ => Ok(()),
        }
    }

    fn caching<M: SerializeMap>(&self, fields: &mut Fields<'_, M>) -> Result<(), M::Error> {
        if !self.compat.store {
            return Ok(());
        }
        if !self.repairs.drops(OptionalField::Store) {
            fields.put("store", &false)?;
        }
        let cache = self.request.options.cache;
        if let Some(session) = &self.request.session_id
            && cache != Cache::None
            && !self.repairs.drops(OptionalField::PromptCacheKey)
        {
            let key: String = session.chars().take(CACHE_KEY_CHARS).collect();
            fields.put("prompt_cache_key", &key)?;
        }
        if cache == Cache::Long && !self.repairs.drops(OptionalField::PromptCacheRetention) {
            fields.put("prompt_cache_retention", "24h")?;
        }
        Ok(())
    }
}

/// What the output is bounded by: the request's wish, else the model's limit as far as the context leaves room.
fn output_limit(request: &LlmRequest) -> Option<u64> {
    if let Some(wish) = request.options.max_output_tokens {
        return Some(u64::from(wish));
    }
    let Model { max_tokens, context_window, .. } = request.model;
    if max_tokens == 0 {
        return None;
    }
    // Servers refuse a request whose input and output limit together exceed the context.
    if context_window == 0 {
        return Some(max_tokens);
    }
    let input = request_chars(request) / CHARS_PER_TOKEN_LOW;
    let room = context_window.saturating_sub(input).saturating_sub(OUTPUT_RESERVE_TOKENS);
    Some(max_tokens.min(room.max(OUTPUT_RESERVE_TOKENS)))
}

/// Writes the fields of the body, each name once: a passed-through field stands in place of ours, further ones follow.
struct Fields<'a, M> {
    map: M,
    overlay: &'a [(&'a str, &'a Value)],
}

impl<M: SerializeMap> Fields<'_, M> {
    fn put<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), M::Error> {
        if self.overlay.iter().any(|(known, _)| same_field(known, name)) {
            return Ok(());
        }
        self.map.serialize_entry(name, value)
    }

    fn end(mut self) -> Result<M::Ok, M::Error> {
        for (name, value) in self.overlay.iter().filter(|(_, value)| !value.is_null()) {
            self.map.serialize_entry(name, value)?;
        }
        self.map.end()
    }
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct ThinkingObject {
    #[serde(rename = "type")]
    type_: &'static str,
}

#[derive(Serialize)]
struct OpenrouterReasoning<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'a str>,
}

#[derive(Serialize)]
struct ChatTemplate {
    enable_thinking: bool,
}

#[derive(Serialize)]
struct ResponseFormat<'a> {
    #[serde(rename = "type")]
    type_: &'static str,
    json_schema: JsonSchema<'a>,
}

#[derive(Serialize)]
struct JsonSchema<'a> {
    name: &'static str,
    schema: &'a Value,
    strict: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    type_: &'static str,
    function: Function<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheMarker>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: Clean<'a>,
    parameters: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

impl<'a> Tool<'a> {
    fn new(spec: &'a ToolSpec, strict: bool, cache_control: Option<CacheMarker>) -> Self {
        let strict = strict.then(|| strict_ready(&spec.input_schema, 0));
        let description = Clean(&spec.description);
        let function = Function { name: &spec.name, description, parameters: &spec.input_schema, strict };
        Self { type_: "function", function, cache_control }
    }
}

/// Whether a schema meets the rules of strict mode: every object is closed and requires all its properties.
fn strict_ready(schema: &Value, depth: usize) -> bool {
    if depth > SCHEMA_DEPTH_MAX {
        return false;
    }
    match schema {
        Value::Object(map) => {
            let is_object = map.get("type").is_some_and(|word| word == "object") || map.contains_key("properties");
            let required = map.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let properties = map.get("properties").and_then(Value::as_object);
            let all_required = properties.is_none_or(|properties| {
                properties.keys().all(|name| required.iter().any(|known| known.as_str() == Some(name)))
            });
            let is_closed = map.get("additionalProperties") == Some(&Value::Bool(false));
            (!is_object || (is_closed && all_required)) && map.values().all(|value| strict_ready(value, depth + 1))
        }
        Value::Array(items) => items.iter().all(|item| strict_ready(item, depth + 1)),
        _ => true,
    }
}

/// Anthropic's mark behind a prefix worth keeping, for servers that pass it on.
#[derive(Clone, Copy, Debug, Serialize)]
struct CacheMarker {
    #[serde(rename = "type")]
    type_: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl CacheMarker {
    /// The mark for this request, or none.
    fn of(request: &LlmRequest, compat: &Compat) -> Option<Self> {
        if !compat.cache_control || !is_of_vendor(&request.model.id, &["anthropic"]) {
            return None;
        }
        let ttl = match request.options.cache {
            Cache::None => return None,
            Cache::Short => None,
            Cache::Long => Some("1h"),
        };
        Some(Self { type_: "ephemeral", ttl })
    }
}

/// Whether a model is of one of these vendors. Where ids name no vendor, the dialect alone decides.
fn is_of_vendor(model_id: &str, vendors: &[&str]) -> bool {
    model_id.split_once('/').is_none_or(|(vendor, _)| vendors.contains(&vendor))
}
