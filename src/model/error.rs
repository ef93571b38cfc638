//! Errors as data: the closed list of kinds, and the record with an error's facts.
//!
//! Keeps true: a kind belongs to exactly one row of the exit table; decisions read kinds and flags, never a message.
//!
//! Must not know: numbers of exit codes, servers, wording.

use serde::{Deserialize, Serialize};

/// The closed list of error kinds. [`ErrorKind::row`] groups them the way exit codes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The key is missing, wrong or expired.
    Auth,
    /// The key is good and may not do this.
    Permission,
    /// Too many requests or tokens for now.
    RateLimit,
    /// The server has no capacity for now.
    Overloaded,
    /// The server failed.
    Server,
    /// The connection failed or broke off.
    Network,
    /// The server was silent for too long.
    Timeout,
    /// Something else holds what this call needs.
    Busy,
    /// The model declined to answer.
    Refusal,
    /// A filter of the provider stopped prompt or answer.
    ContentFilter,
    /// The call is wrong: flags, words, prompt.
    Usage,
    /// The configuration is wrong, or an address is no API.
    Config,
    /// A tool could not be made ready.
    ToolSetup,
    /// A budget is spent; waiting does not help.
    Quota,
    /// The prompt is longer than the model takes.
    Overflow,
    /// The server does not take the request.
    InvalidRequest,
    /// No such model or path.
    NotFound,
    /// The answer cannot be read.
    Malformed,
    /// The model made something its provider or we cannot use.
    ModelBehavior,
    /// The answer contradicts itself.
    Protocol,
    /// The answer is larger than any limit allows.
    StreamTooLarge,
    /// The answer holds neither text nor a call.
    Empty,
    /// Earlier work was cut off and its outcome is unknown.
    Interrupted,
    /// A hook failed.
    Hook,
    /// Something could not be written.
    Storage,
    /// A bug in this program.
    Internal,
}

/// What a script can do about an error: the rows of the exit table that errors reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorRow {
    /// Fix the credentials.
    Auth,
    /// Try again later.
    Unavailable,
    /// The model or its provider declined.
    Refused,
    /// Fix the call or the configuration. `Config` counts here only before the first model call.
    Usage,
    /// A bug in this program.
    Internal,
    /// Everything else.
    Other,
}

impl ErrorKind {
    /// Every kind, in the order of the list.
    pub const ALL: [Self; 26] = [
        Self::Auth,
        Self::Permission,
        Self::RateLimit,
        Self::Overloaded,
        Self::Server,
        Self::Network,
        Self::Timeout,
        Self::Busy,
        Self::Refusal,
        Self::ContentFilter,
        Self::Usage,
        Self::Config,
        Self::ToolSetup,
        Self::Quota,
        Self::Overflow,
        Self::InvalidRequest,
        Self::NotFound,
        Self::Malformed,
        Self::ModelBehavior,
        Self::Protocol,
        Self::StreamTooLarge,
        Self::Empty,
        Self::Interrupted,
        Self::Hook,
        Self::Storage,
        Self::Internal,
    ];

    /// The word used in transcripts, events and on stderr.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Permission => "permission",
            Self::RateLimit => "rate_limit",
            Self::Overloaded => "overloaded",
            Self::Server => "server",
            Self::Network => "network",
            Self::Timeout => "timeout",
            Self::Busy => "busy",
            Self::Refusal => "refusal",
            Self::ContentFilter => "content_filter",
            Self::Usage => "usage",
            Self::Config => "config",
            Self::ToolSetup => "tool_setup",
            Self::Quota => "quota",
            Self::Overflow => "overflow",
            Self::InvalidRequest => "invalid_request",
            Self::NotFound => "not_found",
            Self::Malformed => "malformed",
            Self::ModelBehavior => "model_behavior",
            Self::Protocol => "protocol",
            Self::StreamTooLarge => "stream_too_large",
            Self::Empty => "empty",
            Self::Interrupted => "interrupted",
            Self::Hook => "hook",
            Self::Storage => "storage",
            Self::Internal => "internal",
        }
    }

    /// The kind a word names, or `None`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// The group of the exit table this kind belongs to.
    pub fn row(self) -> ErrorRow {
        match self {
            Self::Auth | Self::Permission => ErrorRow::Auth,
            Self::RateLimit | Self::Overloaded | Self::Server | Self::Network | Self::Timeout | Self::Busy => {
                ErrorRow::Unavailable
            }
            Self::Refusal | Self::ContentFilter => ErrorRow::Refused,
            Self::Usage | Self::Config | Self::ToolSetup => ErrorRow::Usage,
            Self::Internal => ErrorRow::Internal,
            Self::Quota
            | Self::Overflow
            | Self::InvalidRequest
            | Self::NotFound
            | Self::Malformed
            | Self::ModelBehavior
            | Self::Protocol
            | Self::StreamTooLarge
            | Self::Empty
            | Self::Interrupted
            | Self::Hook
            | Self::Storage => ErrorRow::Other,
        }
    }
}

/// The only home of an error's facts; `errorMessage` of a reply repeats `message`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorRecord {
    pub kind: ErrorKind,
    /// For a person; holds no secret and no control characters but LF and TAB.
    pub message: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    /// The server's own code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The server's own type word.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The delay the server asked for, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Tokens of the refused prompt, where the server named them (kind `overflow`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// The server's limit in tokens, where it named it (kind `overflow`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// What to type or set next; printed as `hint:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl ErrorRecord {
    /// A record with the facts every error has; not retryable.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retryable: false,
            provider: None,
            http_status: None,
            code: None,
            type_: None,
            request_id: None,
            retry_after_ms: None,
            prompt_tokens: None,
            limit: None,
            hint: None,
        }
    }

    /// The same record, marked retryable.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// The same record with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for ErrorRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind.as_str(), self.message)
    }
}

impl std::error::Error for ErrorRecord {}
