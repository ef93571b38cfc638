//! Messages and their blocks, and the transcript form: the JSON in which messages are kept and told.
//!
//! Keeps true: the form is derived here and nowhere else; what a newer version wrote survives being read and written
//! again: unknown fields in `extra`, unknown roles and blocks whole; null and a missing list are read as empty.
//!
//! Must not know: who keeps messages, which protocol they were sent in.
//!
//! # The transcript form
//!
//! Names are camelCase. `?` marks a field that may be absent; absent fields are left out, never null. Times are
//! milliseconds, `timestamp` since 1970. Readers ignore fields, roles and block types they do not know.
//!
//! | `role` | fields |
//! |---|---|
//! | `user` | `content`: a string or blocks (messages made here always have blocks), `timestamp` |
//! | `assistant` | `content`: blocks, `api`, `provider`, `model` (the one asked for), `responseModel`? (the one that answered, if another), `responseId`?, `usage`, `stopReason`, `rawStopReason`? (the server's word, where it says more), `errorMessage`?, `error`? (an [`ErrorRecord`]), `overflow`? (true: the context was full), `thinkingLevel`?, `diagnostics`? [{`code`, `message`}], `timestamp` (when the request started), `durationMs`? |
//! | `toolResult` | `toolCallId`, `toolName`, `content`: blocks, `details`? (any JSON; for programs, never sent to a model), `isError`, `usage`? (model work done inside the tool), `durationMs`? (absent if the tool never ran), `timestamp` |
//! | any other | opaque; kept, and sent to a model only if a hook maps it |
//!
//! | block `type` | fields | stands in |
//! |---|---|---|
//! | `text` | `text`, `textSignature`? | all |
//! | `image` | `data` (base64), `mimeType` | `user`, `toolResult` |
//! | `thinking` | `thinking`, `thinkingSignature`?, `redacted`? (true: the text is hidden) | `assistant` |
//! | `toolCall` | `id`, `name`, `arguments` (an object), `argumentsError`? {`message`, `raw`}, `thoughtSignature`?, `namespace`? | `assistant` |
//!
//! Signatures are opaque provider data and go back to the same provider and model only. A call whose argument text was
//! not one JSON object has `arguments` `{}` and keeps the text in `argumentsError`; it never runs. Ids of the calls of
//! one reply differ. JSON numbers are exact as 64-bit integers, else an f64.
//!
//! `usage` is {`input`, `output`, `cacheRead`, `cacheWrite`, `cacheWrite1h`?, `reasoning`?, `totalTokens`, `cost`
//! {`input`, `output`, `cacheRead`, `cacheWrite`, `total`}, `estimated`?}: tokens, and USD. `input` counts uncached
//! tokens only, `reasoning` is a part of `output`, `totalTokens` the sum of the four classes. `estimated` is true where
//! nobody counted and a token is taken for four characters.
//!
//! | `stopReason` | means |
//! |---|---|
//! | `stop` | the natural end |
//! | `toolUse` | the model wants tools |
//! | `length` | the output limit was hit; calls of such a reply are refused |
//! | `error` | the request or the reply failed: `errorMessage` and `error` say how |
//! | `aborted` | the run was cancelled; what had come is kept |
//! | `deferred` | the provider answers later |
//! | `pending` | only at the start of a reply, in events; never kept |
//!
//! ```
//! use pirn::model::Message;
//!
//! let line = r#"{"role":"toolResult","toolCallId":"c1","toolName":"ls","content":[],"isError":false,"timestamp":1,"x":2}"#;
//! let message: Message = serde_json::from_str(line).unwrap();
//! assert_eq!(serde_json::to_string(&message).unwrap(), line);
//! ```

use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::tagged::{Tagged, tagged};
use super::{ErrorRecord, StopReason, Thinking, Usage};

/// Fields this version does not know, kept beside the known ones.
pub type Extra = Map<String, Value>;

/// One message of a transcript. A role this version does not know is kept whole.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "messages of a transcript stand behind an `Arc`")]
pub enum Message {
    User(UserMessage),
    Assistant(AssistantMessage),
    ToolResult(ToolResultMessage),
    Custom(CustomMessage),
}

impl Message {
    /// The role word.
    pub fn role(&self) -> &str {
        match self {
            Self::User(_) => "user",
            Self::Assistant(_) => "assistant",
            Self::ToolResult(_) => "toolResult",
            Self::Custom(custom) => custom.role(),
        }
    }

    /// The reply, if it is one.
    pub fn as_assistant(&self) -> Option<&AssistantMessage> {
        match self {
            Self::Assistant(message) => Some(message),
            Self::User(_) | Self::ToolResult(_) | Self::Custom(_) => None,
        }
    }

    /// A user message of one text block, followed by images.
    pub fn user(text: impl Into<String>, images: Vec<ImageBlock>, timestamp: u64) -> Self {
        let mut content = vec![Content::text(text)];
        content.extend(images.into_iter().map(Content::Image));
        Self::User(UserMessage { content: UserContent::Blocks(content), timestamp, extra: Extra::new() })
    }
}

#[derive(Serialize)]
struct WithRole<'a, T> {
    role: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::User(body) => WithRole { role: "user", body }.serialize(serializer),
            Self::Assistant(body) => WithRole { role: "assistant", body }.serialize(serializer),
            Self::ToolResult(body) => WithRole { role: "toolResult", body }.serialize(serializer),
            Self::Custom(custom) => custom.0.serialize(serializer),
        }
    }
}

impl<'de> Tagged<'de> for Message {
    const TAG: &'static str = "role";
    const WHAT: &'static str = "a message";
    const WORDS: &'static [&'static str] = &["user", "assistant", "toolResult"];

    fn known<D: Deserializer<'de>>(role: &str, fields: D) -> Option<Result<Self, D::Error>> {
        match role {
            "user" => Some(UserMessage::deserialize(fields).map(Self::User)),
            "assistant" => Some(AssistantMessage::deserialize(fields).map(Self::Assistant)),
            "toolResult" => Some(ToolResultMessage::deserialize(fields).map(Self::ToolResult)),
            _ => None,
        }
    }

    fn other(map: Map<String, Value>) -> Result<Self, &'static str> {
        match map.get(Self::TAG) {
            Some(Value::String(_)) => Ok(Self::Custom(CustomMessage(map))),
            _ => Err("a message needs a text field `role`"),
        }
    }

    fn extra(&self) -> Option<&Extra> {
        match self {
            Self::User(body) => Some(&body.extra),
            Self::Assistant(body) => Some(&body.extra),
            Self::ToolResult(body) => Some(&body.extra),
            Self::Custom(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        tagged(deserializer)
    }
}

/// A message of another role: opaque JSON, kept in transcripts and events, never sent to a model by default.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomMessage(pub Map<String, Value>);

impl CustomMessage {
    /// The role word, or nothing if it is no text.
    pub fn role(&self) -> &str {
        self.0.get("role").and_then(Value::as_str).unwrap_or("")
    }
}

/// What the user, or a program for them, said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserMessage {
    #[serde(default, deserialize_with = "null_default")]
    pub content: UserContent,
    /// Unix milliseconds, when the message was made.
    #[serde(default)]
    pub timestamp: u64,
    #[serde(flatten)]
    pub extra: Extra,
}

/// Both forms are read; messages made here are always blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum UserContent {
    Text(String),
    Blocks(Vec<Content>),
}

impl<'de> Deserialize<'de> for UserContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = UserContent;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of blocks")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<UserContent, E> {
                Ok(UserContent::Text(text.to_owned()))
            }

            fn visit_string<E: serde::de::Error>(self, text: String) -> Result<UserContent, E> {
                Ok(UserContent::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, blocks: A) -> Result<UserContent, A::Error> {
                let mut blocks = Vec::deserialize(SeqAccessDeserializer::new(blocks))?;
                blocks.shrink_to_fit();
                Ok(UserContent::Blocks(blocks))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl Default for UserContent {
    fn default() -> Self {
        Self::Blocks(Vec::new())
    }
}

impl UserContent {
    /// All text, blocks joined by a line feed.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Blocks(blocks) => join_text(blocks),
        }
    }
}

/// One reply. The fields up to `error` are written by the stream, the rest by the loop that settles it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssistantMessage {
    #[serde(default, deserialize_with = "list")]
    pub content: Vec<AssistantBlock>,
    #[serde(default)]
    pub api: String,
    #[serde(default)]
    pub provider: String,
    /// The model asked for.
    #[serde(default)]
    pub model: String,
    /// The model that answered, where the server names another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    #[serde(default, deserialize_with = "null_default")]
    pub usage: Usage,
    pub stop_reason: StopReason,
    /// The server's own word, where it says more than `stop_reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_stop_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorRecord>,
    /// The server said that the context was full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<Thinking>,
    /// Notes for people; nothing is decided by them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<Diagnostic>,
    /// Unix milliseconds, when the request started.
    #[serde(default)]
    pub timestamp: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(flatten)]
    pub extra: Extra,
}

impl AssistantMessage {
    /// An empty reply of stop reason `pending`.
    pub fn pending(head: &AssistantHead) -> Self {
        Self {
            content: Vec::new(),
            api: head.api.clone(),
            provider: head.provider.clone(),
            model: head.model.clone(),
            response_model: None,
            response_id: None,
            usage: Usage::default(),
            stop_reason: StopReason::Pending,
            raw_stop_reason: None,
            error_message: None,
            error: None,
            overflow: None,
            thinking_level: None,
            diagnostics: Vec::new(),
            timestamp: head.timestamp,
            duration_ms: None,
            extra: Extra::new(),
        }
    }

    /// The calls in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|block| match block {
            AssistantBlock::ToolCall(call) => Some(call),
            AssistantBlock::Text(_) | AssistantBlock::Thinking(_) | AssistantBlock::Other(_) => None,
        })
    }

    /// All text blocks, concatenated.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for block in &self.content {
            if let AssistantBlock::Text(block) = block {
                text.push_str(&block.text);
            }
        }
        text
    }
}

/// What is known of a reply before its first block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssistantHead {
    pub api: String,
    pub provider: String,
    pub model: String,
    /// Unix milliseconds, when the request started.
    pub timestamp: u64,
}

/// A note on a reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    pub code: String,
    pub message: String,
}

/// The result of one call. `is_error` tells the model that it failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResultMessage {
    #[serde(default)]
    pub tool_call_id: String,
    #[serde(default)]
    pub tool_name: String,
    #[serde(default, deserialize_with = "list")]
    pub content: Vec<Content>,
    /// For programs; never sent to a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    #[serde(default)]
    pub is_error: bool,
    /// Model work done inside the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Absent if the tool never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(default)]
    pub timestamp: u64,
    #[serde(flatten)]
    pub extra: Extra,
}

/// A block of a user message or of a tool result.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Text(TextBlock),
    Image(ImageBlock),
    /// A block type this version does not know, whole.
    Other(Map<String, Value>),
}

impl Content {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextBlock { text: text.into(), text_signature: None, extra: Extra::new() })
    }

    /// The text, if it is a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(block) => Some(&block.text),
            Self::Image(_) | Self::Other(_) => None,
        }
    }
}

/// The text blocks of a list, joined by a line feed.
fn join_text(blocks: &[Content]) -> String {
    let texts: Vec<&str> = blocks.iter().filter_map(Content::as_text).collect();
    texts.join("\n")
}

/// A block of a reply.
#[derive(Clone, Debug, PartialEq)]
pub enum AssistantBlock {
    Text(TextBlock),
    Thinking(ThinkingBlock),
    ToolCall(ToolCall),
    /// A block type this version does not know, whole.
    Other(Map<String, Value>),
}

impl AssistantBlock {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextBlock { text: text.into(), text_signature: None, extra: Extra::new() })
    }
}

/// Text of a user, a tool or a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TextBlock {
    #[serde(default, deserialize_with = "null_default")]
    pub text: String,
    /// Opaque provider data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_signature: Option<String>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// What a model thought before it answered. Redacted: the provider hides the text and keeps it in the signature.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThinkingBlock {
    #[serde(default, deserialize_with = "null_default")]
    pub thinking: String,
    /// Opaque provider data; also holds an encrypted payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_signature: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<bool>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// An image of a user or a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageBlock {
    /// Base64.
    pub data: String,
    pub mime_type: String,
    #[serde(flatten)]
    pub extra: Extra,
}

/// A tool call of a reply. With `arguments_error` set, `arguments` is `{}` and the call never runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    #[serde(default, deserialize_with = "null_default")]
    pub arguments: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments_error: Option<ArgumentsError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought_signature: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// The argument text was not one JSON object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentsError {
    /// The parser's message.
    pub message: String,
    /// The text as it came.
    pub raw: String,
}

#[derive(Serialize)]
struct WithType<'a, T> {
    #[serde(rename = "type")]
    type_: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(body) => WithType { type_: "text", body }.serialize(serializer),
            Self::Image(body) => WithType { type_: "image", body }.serialize(serializer),
            Self::Other(map) => map.serialize(serializer),
        }
    }
}

impl<'de> Tagged<'de> for Content {
    const TAG: &'static str = "type";
    const WHAT: &'static str = "a block";
    const WORDS: &'static [&'static str] = &["text", "image"];

    fn known<D: Deserializer<'de>>(word: &str, fields: D) -> Option<Result<Self, D::Error>> {
        match word {
            "text" => Some(TextBlock::deserialize(fields).map(Self::Text)),
            "image" => Some(ImageBlock::deserialize(fields).map(Self::Image)),
            _ => None,
        }
    }

    fn other(map: Map<String, Value>) -> Result<Self, &'static str> {
        Ok(Self::Other(map))
    }

    fn extra(&self) -> Option<&Extra> {
        match self {
            Self::Text(block) => Some(&block.extra),
            Self::Image(block) => Some(&block.extra),
            Self::Other(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        tagged(deserializer)
    }
}

impl Serialize for AssistantBlock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(body) => WithType { type_: "text", body }.serialize(serializer),
            Self::Thinking(body) => WithType { type_: "thinking", body }.serialize(serializer),
            Self::ToolCall(body) => WithType { type_: "toolCall", body }.serialize(serializer),
            Self::Other(map) => map.serialize(serializer),
        }
    }
}

impl<'de> Tagged<'de> for AssistantBlock {
    const TAG: &'static str = "type";
    const WHAT: &'static str = "a block";
    const WORDS: &'static [&'static str] = &["text", "thinking", "toolCall"];

    fn known<D: Deserializer<'de>>(word: &str, fields: D) -> Option<Result<Self, D::Error>> {
        match word {
            "text" => Some(TextBlock::deserialize(fields).map(Self::Text)),
            "thinking" => Some(ThinkingBlock::deserialize(fields).map(Self::Thinking)),
            "toolCall" => Some(ToolCall::deserialize(fields).map(Self::ToolCall)),
            _ => None,
        }
    }

    fn other(map: Map<String, Value>) -> Result<Self, &'static str> {
        Ok(Self::Other(map))
    }

    fn extra(&self) -> Option<&Extra> {
        match self {
            Self::Text(block) => Some(&block.extra),
            Self::Thinking(block) => Some(&block.extra),
            Self::ToolCall(block) => Some(&block.extra),
            Self::Other(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for AssistantBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        tagged(deserializer)
    }
}

/// Reads null like an absent list. Takes no more room than it needs: a parser that does not know how many elements come
/// makes room for more, and blocks are large.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let mut list: Vec<T> = null_default(deserializer)?;
    list.shrink_to_fit();
    Ok(list)
}

/// Reads null like an absent field.
fn null_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
