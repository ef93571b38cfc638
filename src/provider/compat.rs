//! Dialect switches of OpenAI-compatible servers.
//!
//! Keeps true: the list of keys is closed; a wrong key or value is an error that says what would be right. Which server
//! needs which switch is data (`config/providers.toml`, `providers.X.compat`), never code.
//!
//! Must not know: names of providers and hosts.

use serde_json::{Map, Value};

use crate::provider::ids::IdForm;

/// Edits between a wrong word and the one that is suggested for it.
const SUGGESTION_DISTANCE_MAX: usize = 2;

/// How a server's Chat Completions differ from the generic form. `Default` is the generic row: what nearly every
/// server takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compat {
    /// Name of the field that bounds the output. Generic: `max_tokens`.
    pub max_tokens_field: MaxTokensField,
    /// How a thinking level is asked for, of models that reason. Generic: `effort`.
    pub reasoning: ReasoningForm,
    /// Reasoning models get the system prompt as role `developer`; where ids are `vendor/model`, only those of the
    /// vendors that know the role. Generic: no.
    pub developer_role: bool,
    /// The server keeps replies unless told otherwise and routes by prompt cache key, as OpenAI's own does: `store`
    /// is sent as false, and `prompt_cache_key` and `prompt_cache_retention` are sent. Generic: no.
    pub store: bool,
    /// `stream_options.include_usage` is sent. Generic: yes.
    pub stream_options: bool,
    /// Tools carry `strict`, true where the schema meets the rules of strict mode. Generic: no.
    pub strict_tools: bool,
    /// `parallel_tool_calls: true` is sent with tools. Generic: no, servers do it unasked.
    pub parallel_tool_calls: bool,
    /// The form of call ids. Generic: `free`.
    pub tool_call_id: IdForm,
    /// Tool results carry the tool's name. Generic: no.
    pub tool_result_name: bool,
    /// An assistant message must stand between tool results and a user message (T-11). Generic: no.
    pub assistant_after_tool: bool,
    /// In which field thinking is sent back (OC-1 to OC-3). Unset: the field it came in.
    pub reasoning_replay: Option<ReasoningReplay>,
    /// Text between `<think>` tags at the start of a reply is thinking (OC-14). Generic: no.
    pub think_tags: bool,
    /// The server sends finish reasons; otherwise the end of a reply is inferred (OC-15). Generic: yes.
    pub finish_reason: bool,
    /// Anthropic cache markers are sent; where ids are `vendor/model`, only with Anthropic's. Generic: no.
    pub cache_control: bool,
    /// Fields that may be dropped or swapped when the server names them as unsupported (OC-18). Generic: all.
    pub optional_fields: Vec<OptionalField>,
}

impl Default for Compat {
    fn default() -> Self {
        Self {
            max_tokens_field: MaxTokensField::default(),
            reasoning: ReasoningForm::default(),
            developer_role: false,
            store: false,
            stream_options: true,
            strict_tools: false,
            parallel_tool_calls: false,
            tool_call_id: IdForm::Free,
            tool_result_name: false,
            assistant_after_tool: false,
            reasoning_replay: None,
            think_tags: false,
            finish_reason: true,
            cache_control: false,
            optional_fields: OptionalField::ALL.to_vec(),
        }
    }
}

/// The name of the field that bounds the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxTokensField {
    #[default]
    MaxTokens,
    MaxCompletionTokens,
}

impl MaxTokensField {
    /// The other name.
    #[must_use]
    pub fn swapped(self) -> Self {
        match self {
            Self::MaxTokens => Self::MaxCompletionTokens,
            Self::MaxCompletionTokens => Self::MaxTokens,
        }
    }

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// How a thinking level is written into a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningForm {
    /// Not at all.
    None,
    /// `reasoning_effort: "high"`.
    #[default]
    Effort,
    /// `enable_thinking: true`.
    EnableThinking,
    /// `thinking: {type: "enabled"}`, and `reasoning_effort` for models with a word for the level.
    ThinkingObject,
    /// `reasoning: {effort: "high"}`; `{enabled: true}` for models whose thinking is only on or off.
    Openrouter,
    /// `chat_template_kwargs: {enable_thinking: true}`.
    ChatTemplate,
}

/// The field in which thinking is sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningReplay {
    /// The server rejects it.
    None,
    /// And the field must be there, if empty, beside every tool call while reasoning is on (OC-3).
    ReasoningContent,
    Reasoning,
}

/// A field OC-18 may drop or swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionalField {
    StreamOptions,
    MaxCompletionTokens,
    MaxTokens,
    ReasoningEffort,
    Store,
    /// The role of the system prompt.
    Developer,
    /// Of tools.
    Strict,
    ParallelToolCalls,
    Temperature,
    PromptCacheKey,
    PromptCacheRetention,
}

impl OptionalField {
    /// Every field a server may refuse.
    pub const ALL: [Self; 11] = [
        Self::StreamOptions,
        Self::MaxCompletionTokens,
        Self::MaxTokens,
        Self::ReasoningEffort,
        Self::Store,
        Self::Developer,
        Self::Strict,
        Self::ParallelToolCalls,
        Self::Temperature,
        Self::PromptCacheKey,
        Self::PromptCacheRetention,
    ];

    /// The word on the wire and in servers' complaints.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StreamOptions => "stream_options",
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::MaxTokens => "max_tokens",
            Self::ReasoningEffort => "reasoning_effort",
            Self::Store => "store",
            Self::Developer => "developer",
            Self::Strict => "strict",
            Self::ParallelToolCalls => "parallel_tool_calls",
            Self::Temperature => "temperature",
            Self::PromptCacheKey => "prompt_cache_key",
            Self::PromptCacheRetention => "prompt_cache_retention",
        }
    }
}

/// What is wrong with a `compat` table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompatError {
    /// The key does not exist.
    #[error("unknown compat key {key}")]
    UnknownKey { key: String, suggestion: Option<&'static str> },
    /// The value has the wrong type.
    #[error("compat key {key} must be {expected}")]
    WrongType { key: &'static str, expected: &'static str },
    /// The word is not one of those the key takes.
    #[error("compat key {key} has no value {value:?}; it takes {}", allowed.join(", "))]
    UnknownValue { key: &'static str, value: String, allowed: Vec<&'static str> },
}

impl CompatError {
    /// The key it is about, as it was written.
    pub fn key(&self) -> &str {
        match self {
            Self::UnknownKey { key, .. } => key,
            Self::WrongType { key, .. } | Self::UnknownValue { key, .. } => key,
        }
    }

    /// What was probably meant.
    pub fn suggestion(&self) -> Option<&'static str> {
        match self {
            Self::UnknownKey { suggestion, .. } => *suggestion,
            Self::UnknownValue { value, allowed, .. } => closest(value, allowed),
            Self::WrongType { .. } => None,
        }
    }
}

const MAX_TOKENS_FIELDS: [(&str, MaxTokensField); 2] =
    [("max_tokens", MaxTokensField::MaxTokens), ("max_completion_tokens", MaxTokensField::MaxCompletionTokens)];
const REASONING_FORMS: [(&str, ReasoningForm); 6] = [
    ("none", ReasoningForm::None),
    ("effort", ReasoningForm::Effort),
    ("enable_thinking", ReasoningForm::EnableThinking),
    ("thinking_object", ReasoningForm::ThinkingObject),
    ("openrouter", ReasoningForm::Openrouter),
    ("chat_template", ReasoningForm::ChatTemplate),
];
const ID_FORMS: [(&str, IdForm); 3] =
    [("free", IdForm::Free), ("alnum9", IdForm::Alnum9), ("short40", IdForm::Short40)];
const REPLAYS: [(&str, ReasoningReplay); 3] = [
    ("none", ReasoningReplay::None),
    ("reasoning_content", ReasoningReplay::ReasoningContent),
    ("reasoning", ReasoningReplay::Reasoning),
];

impl Compat {
    /// Every key, as `providers.X.compat` and the model records write it. Keys that begin with `x-` are ignored.
    pub const KEYS: [&'static str; 15] = [
        "max_tokens_field",
        "reasoning",
        "developer_role",
        "store",
        "stream_options",
        "strict_tools",
        "parallel_tool_calls",
        "tool_call_id",
        "tool_result_name",
        "assistant_after_tool",
        "reasoning_replay",
        "think_tags",
        "finish_reason",
        "cache_control",
        "optional_fields",
    ];

    /// Reads a `compat` table over the generic defaults. Fails on the first key or value that is not in the list.
    pub fn from_map(map: &Map<String, Value>) -> Result<Self, CompatError> {
        let mut compat = Self::default();
        for (key, value) in map {
            compat.set(key, value)?;
        }
        Ok(compat)
    }

    fn set(&mut self, key: &str, value: &Value) -> Result<(), CompatError> {
        match key {
            "max_tokens_field" => self.max_tokens_field = word("max_tokens_field", value, &MAX_TOKENS_FIELDS)?,
            "reasoning" => self.reasoning = word("reasoning", value, &REASONING_FORMS)?,
            "developer_role" => self.developer_role = flag("developer_role", value)?,
            "store" => self.store = flag("store", value)?,
            "stream_options" => self.stream_options = flag("stream_options", value)?,
            "strict_tools" => self.strict_tools = flag("strict_tools", value)?,
            "parallel_tool_calls" => self.parallel_tool_calls = flag("parallel_tool_calls", value)?,
            "tool_call_id" => self.tool_call_id = word("tool_call_id", value, &ID_FORMS)?,
            "tool_result_name" => self.tool_result_name = flag("tool_result_name", value)?,
            "assistant_after_tool" => self.assistant_after_tool = flag("assistant_after_tool", value)?,
            "reasoning_replay" => self.reasoning_replay = Some(word("reasoning_replay", value, &REPLAYS)?),
            "think_tags" => self.think_tags = flag("think_tags", value)?,
            "finish_reason" => self.finish_reason = flag("finish_reason", value)?,
            "cache_control" => self.cache_control = flag("cache_control", value)?,
            "optional_fields" => self.optional_fields = optional_fields(value)?,
            ignored if ignored.starts_with("x-") => {}
            unknown => {
                let suggestion = closest(unknown, &Self::KEYS);
                return Err(CompatError::UnknownKey { key: unknown.to_owned(), suggestion });
            }
        }
        Ok(())
    }
}

fn flag(key: &'static str, value: &Value) -> Result<bool, CompatError> {
    value.as_bool().ok_or(CompatError::WrongType { key, expected: "true or false" })
}

fn word<T: Copy>(key: &'static str, value: &Value, table: &[(&'static str, T)]) -> Result<T, CompatError> {
    let text = value.as_str().ok_or(CompatError::WrongType { key, expected: "a string" })?;
    table.iter().find(|(name, _)| *name == text).map(|(_, found)| *found).ok_or_else(|| CompatError::UnknownValue {
        key,
        value: text.to_owned(),
        allowed: table.iter().map(|(name, _)| *name).collect(),
    })
}

fn optional_fields(value: &Value) -> Result<Vec<OptionalField>, CompatError> {
    let table = OptionalField::ALL.map(|field| (field.as_str(), field));
    let items =
        value.as_array().ok_or(CompatError::WrongType { key: "optional_fields", expected: "a list of strings" })?;
    items.iter().map(|item| word("optional_fields", item, &table)).collect()
}

fn closest(word: &str, known: &[&'static str]) -> Option<&'static str> {
    let by_distance = known.iter().map(|name| (strsim::levenshtein(word, name), *name)).min()?;
    if by_distance.0 <= SUGGESTION_DISTANCE_MAX {
        return Some(by_distance.1);
    }
    known.iter().copied().find(|name| !word.is_empty() && (name.starts_with(word) || word.starts_with(name)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{Compat, CompatError, IdForm, MaxTokensField, OptionalField, ReasoningForm, ReasoningReplay};

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn an_empty_table_is_the_generic_row() {
        assert_eq!(Compat::from_map(&Map::new()), Ok(Compat::default()));
        let generic = Compat::default();
        assert!(generic.stream_options && generic.finish_reason && !generic.store && !generic.developer_role);
    }

    #[test]
    fn every_key_of_the_closed_list_is_read() {
        let all = map(&json!({
            "max_tokens_field": "max_completion_tokens", "reasoning": "openrouter", "developer_role": true,
            "store": true, "stream_options": false, "strict_tools": true, "parallel_tool_calls": true,
            "tool_call_id": "alnum9", "tool_result_name": true, "assistant_after_tool": true,
            "reasoning_replay": "reasoning_content", "think_tags": true, "finish_reason": false,
            "cache_control": true, "optional_fields": ["store", "strict"],
        }));
        assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), Compat::KEYS);
        let want = Compat {
            max_tokens_field: MaxTokensField::MaxCompletionTokens,
            reasoning: ReasoningForm::Openrouter,
            developer_role: true,
            store: true,
            stream_options: false,
            strict_tools: true,
            parallel_tool_calls: true,
            tool_call_id: IdForm::Alnum9,
            tool_result_name: true,
            assistant_after_tool: true,
            reasoning_replay: Some(ReasoningReplay::ReasoningContent),
            think_tags: true,
            finish_reason: false,
            cache_control: true,
            optional_fields: vec![OptionalField::Store, OptionalField::Strict],
        };
        assert_eq!(Compat::from_map(&all), Ok(want));
    }

    #[test]
    fn a_wrong_key_or_value_is_an_error_with_a_suggestion() {
        for (table, key, suggestion, text) in [
            (json!({"max_token_field": 1}), "max_token_field", Some("max_tokens_field"), "unknown compat key"),
            (json!({"cache": true}), "cache", Some("cache_control"), "unknown compat key"),
            (json!({"nonsense": true}), "nonsense", None, "unknown compat key"),
            (json!({"store": "yes"}), "store", None, "must be true or false"),
            (json!({"reasoning": "efort"}), "reasoning", Some("effort"), "takes none, effort, enable_thinking"),
            (json!({"tool_call_id": 9}), "tool_call_id", None, "must be a string"),
            (json!({"optional_fields": "store"}), "optional_fields", None, "a list of strings"),
            (json!({"optional_fields": ["stor"]}), "optional_fields", Some("store"), "has no value \"stor\""),
        ] {
            let error: CompatError = Compat::from_map(&map(&table)).unwrap_err();
            assert_eq!((error.key(), error.suggestion()), (key, suggestion), "{table}");
            assert!(error.to_string().contains(text), "{error}");
        }
        assert!(Compat::from_map(&map(&json!({"x-note": "mine"}))).is_ok());
    }
}
