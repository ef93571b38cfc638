//! The contract of a language model: one request in, one stream of events out.
//!
//! Keeps true: [`Provider::stream`] never fails as a call; a stream begins with its start and has exactly one end,
//! which is last; observers see no credential.
//!
//! Must not know: protocols, HTTP, what becomes of a reply.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::ToolSpec;
use crate::model::{
    AssistantHead, AssistantMessage, BlockEvent, Diagnostic, Headers, Message, Model, Secret, StopReason, Thinking,
    Usage,
};

/// A language model behind one protocol.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Never fails and never blocks: every failure is the last item. Exactly one [`AssistantEvent::End`] comes, and
    /// it is last. Dropping the stream closes the connection.
    fn stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> BoxStream<'static, AssistantEvent>;
}

/// One request, as the loop makes it: healed, ordered, not yet in any protocol's form.
#[derive(Clone, Debug)]
pub struct LlmRequest {
    pub model: Model,
    pub system_prompt: String,
    pub messages: Vec<Arc<Message>>,
    pub tools: ToolSpecs,
    /// `None` = the model's default: the request says nothing about thinking.
    pub thinking: Option<Thinking>,
    pub options: StreamOptions,
    /// The answer must match this schema.
    pub output_schema: Option<Value>,
    pub purpose: Purpose,
    pub session_id: Option<String>,
}

/// The tools of a request, shared between requests.
pub type ToolSpecs = Arc<[ToolSpec]>;

/// Why a request is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// A turn of a run.
    #[default]
    Run,
    /// A summary in place of old messages.
    Compaction,
    /// A summary of a branch that is left.
    BranchSummary,
}

/// Options of one request that are not part of the conversation.
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    /// `None` = the model's own limit.
    pub max_output_tokens: Option<u32>,
    pub temperature: Option<f64>,
    /// Passed through into the body.
    pub extra: Map<String, Value>,
    pub cache: Cache,
    /// Ask for an answer that is collected later.
    pub deferred: bool,
    /// On top of those of the model and its provider.
    pub headers: Headers,
    /// For the provider, where it has a place for it.
    pub metadata: Map<String, Value>,
    pub timeouts: Timeouts,
    /// Beats the provider's configured key.
    pub api_key: Option<Secret>,
    /// Which connection to use, where an adapter has a choice.
    pub transport: Option<String>,
    pub observers: RequestObservers,
}

/// How long a provider should keep a prompt prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    None,
    #[default]
    Short,
    Long,
}

/// `None` = no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    pub connect: Option<Duration>,
    /// Response headers plus the first event.
    pub first_event: Option<Duration>,
    /// Between any two bytes.
    pub idle: Option<Duration>,
    /// Between two model events; comments and pings do not count.
    pub progress: Option<Duration>,
}

impl Default for Timeouts {
    /// The documented defaults of `limits.*_timeout` (HTTP-8).
    fn default() -> Self {
        Self {
            connect: Some(Duration::from_secs(10)),
            first_event: Some(Duration::from_secs(600)),
            idle: Some(Duration::from_secs(300)),
            progress: Some(Duration::from_secs(1800)),
        }
    }
}

/// Sees the request body and may replace it. Gets no headers and no credentials.
pub type OnPayload = Arc<dyn Fn(&Value) -> Option<Value> + Send + Sync>;
/// Sees status and headers of a response. Gets no credentials.
pub type OnResponse = Arc<dyn Fn(&ResponseMeta) + Send + Sync>;

/// The embedding program's views on the traffic.
#[derive(Clone, Default)]
pub struct RequestObservers {
    pub on_payload: Option<OnPayload>,
    pub on_response: Option<OnResponse>,
}

impl std::fmt::Debug for RequestObservers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestObservers")
            .field("on_payload", &self.on_payload.is_some())
            .field("on_response", &self.on_response.is_some())
            .finish()
    }
}

/// Facts of a response's head that are safe to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseMeta {
    pub status: u16,
    pub request_id: Option<String>,
    /// Rate-limit headers and retry hints, names in lower case.
    pub headers: Vec<(String, String)>,
}

/// What a loop reads. `Start` first, exactly one `End` last.
#[derive(Clone, Debug)]
pub enum AssistantEvent {
    /// What is known before the first block.
    Start(AssistantHead),
    /// The response's head; for observers.
    Meta(Box<ResponseMeta>),
    /// One step of one block.
    Block { index: usize, event: BlockEvent },
    /// The numbers so far; each replaces the one before.
    Usage(Box<Usage>),
    /// Worth telling while the reply goes on; also a note on the reply.
    Warning { code: String, message: String },
    /// The only terminal; its stop reason tells which.
    End(Box<AssistantMessage>),
}

/// What a wire decoder produces, without the contract; `provider::settle` makes the stream above from it.
#[derive(Clone, Debug, PartialEq)]
pub enum ProviderEvent {
    /// The server has begun to answer.
    Start {
        response_id: Option<String>,
        response_model: Option<String>,
    },
    Meta(Box<ResponseMeta>),
    Block {
        index: usize,
        event: BlockEvent,
    },
    Usage(Box<Usage>),
    Warning {
        code: String,
        message: String,
    },
    /// A note for the stored reply only.
    Note(Diagnostic),
    /// The end of a reply; every block has ended.
    Done {
        stop_reason: StopReason,
        raw_stop_reason: Option<String>,
        overflow: bool,
    },
}

/// Facts about models and credentials.
pub trait Models: Send + Sync {
    /// What is known about a model; `None` if nothing is.
    fn resolve(&self, provider: &str, id: &str) -> Option<Model>;
    /// Whether a key is there; never the key.
    fn credential(&self, provider: &str) -> Credential;
}

/// Whether requests to a provider can be signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    Present,
    /// Setting one of these variables would do.
    Missing(Vec<String>),
}
