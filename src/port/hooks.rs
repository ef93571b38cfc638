//! The hooks of a durable run: what each is asked, and what its answer can change.
//!
//! Keeps true: every hook has a default that changes nothing; an answer counts only by the transaction that stores what
//! it changed, so a hook may be asked again after a crash, with the same key.
//!
//! Must not know: how answers of several hooks are joined, which processes stand behind a hook.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{LlmRequest, ResponseMeta};
use crate::model::{AssistantMessage, Content, Message, Model, RunId, StopReason, ToolCall, Usage};
use crate::port::ToolOutput;

/// The hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HookPoint {
    BeforeDrive,
    BeforeRun,
    BeforeRequest,
    BeforeTool,
    AfterTool,
    AfterResponse,
    BeforeRunEnd,
    TransformContext,
    BeforePayload,
}

impl HookPoint {
    /// The name of the hook, as configuration and messages use it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforeDrive => "before_drive",
            Self::BeforeRun => "before_run",
            Self::BeforeRequest => "before_request",
            Self::BeforeTool => "before_tool",
            Self::AfterTool => "after_tool",
            Self::AfterResponse => "after_response",
            Self::BeforeRunEnd => "before_run_end",
            Self::TransformContext => "transform_context",
            Self::BeforePayload => "before_payload",
        }
    }
}

/// Why a hook has no answer. `blocks` says whether the work it watches may go on without it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HookFailure {
    pub message: String,
    /// `None` = as the hook's default says: `before_drive` and `before_tool` block, the others are passed over.
    pub blocks: Option<bool>,
}

impl HookFailure {
    /// A failure with the default consequence of its hook.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), blocks: None }
    }
}

/// Which operation and lane a hook is asked for, and under which key: the same when it is asked again after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookScope {
    pub run_id: RunId,
    pub lane: String,
    /// Counts from 1.
    pub turn: u32,
    /// Stable over crashes.
    pub key: String,
}

/// What every hook can add to its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Common {
    /// Told to the user.
    pub warning: Option<String>,
    /// Ends the run after what is done now.
    pub stop: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct BeforeDrive<'a> {
    pub scope: &'a HookScope,
    /// The kind of the operation, such as `run`.
    pub kind: &'a str,
    /// The word of its state.
    pub state: &'a str,
    /// A process before this one began it.
    pub resume: bool,
}

/// `common.stop` aborts the operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BeforeDriveAnswer {
    /// Nothing is committed, and the operation stays open.
    pub block: Option<String>,
    pub common: Common,
}

#[derive(Clone, Copy, Debug)]
pub struct BeforeRun<'a> {
    pub scope: &'a HookScope,
    /// The prompt, and what earlier hooks added.
    pub messages: &'a [Arc<Message>],
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct BeforeRunAnswer {
    /// Added behind the prompt.
    pub messages: Vec<Message>,
    /// Refuses the prompt.
    pub block: Option<String>,
    pub common: Common,
}

#[derive(Clone, Copy, Debug)]
pub struct BeforeRequest<'a> {
    pub scope: &'a HookScope,
    pub model: &'a Model,
    /// Counts from 1.
    pub attempt: u32,
    pub messages: &'a [Arc<Message>],
    /// With what earlier hooks changed.
    pub request: &'a LlmRequest,
}

/// Fields of a request's options that a hook may set for this attempt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OptionsPatch {
    pub timeout_ms: Option<u64>,
    pub cache_retention: Option<super::Cache>,
    /// By name; null takes a header out.
    pub headers: Vec<(String, Option<String>)>,
    /// By name; null takes a key out.
    pub metadata: Map<String, Value>,
    pub deferred: Option<bool>,
    pub max_output_tokens: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct BeforeRequestAnswer {
    pub patch: OptionsPatch,
    /// Nothing is sent; the run fails with an error of kind `hook`.
    pub block: Option<String>,
    pub common: Common,
}

#[derive(Clone, Copy, Debug)]
pub struct AfterResponse<'a> {
    pub scope: &'a HookScope,
    pub message: &'a AssistantMessage,
    /// `None` where the provider told nothing of its response.
    pub meta: Option<&'a ResponseMeta>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct AfterResponseAnswer {
    /// Replaces the reply; it must be settled.
    pub message: Option<Box<AssistantMessage>>,
    /// The reply becomes an error of kind `hook`.
    pub block: Option<String>,
    pub common: Common,
}

#[derive(Clone, Copy, Debug)]
pub struct BeforeTool<'a> {
    pub scope: &'a HookScope,
    /// As the model wrote it.
    pub call: &'a ToolCall,
    /// Valid, and with what earlier hooks changed.
    pub args: &'a Value,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct BeforeToolAnswer {
    /// Replaces the arguments; checked like the model's.
    pub args: Option<Value>,
    /// The call runs, and its result asks for the end of the run.
    pub terminate: bool,
    /// Refuses the call; an empty text stands for the default one.
    pub block: Option<String>,
    /// Added to the call's result.
    pub context: Option<String>,
    pub common: Common,
}

#[derive(Clone, Copy, Debug)]
pub struct AfterTool<'a> {
    pub scope: &'a HookScope,
    pub call: &'a ToolCall,
    /// What the tool got.
    pub args: &'a Value,
    /// With what earlier hooks changed.
    pub output: &'a ToolOutput,
    pub duration_ms: u64,
}

/// Fields that replace those of a result; absent ones keep it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AfterToolAnswer {
    pub content: Option<Vec<Content>>,
    pub details: Option<Value>,
    pub is_error: Option<bool>,
    pub usage: Option<Usage>,
    pub terminate: Option<bool>,
    /// Added to the content.
    pub context: Option<String>,
    pub common: Common,
}

#[derive(Clone, Copy, Debug)]
pub struct BeforeRunEnd<'a> {
    pub scope: &'a HookScope,
    pub stop_reason: Option<StopReason>,
    pub last_text: &'a str,
    /// An earlier follow-up of a hook was accepted in this operation.
    pub stop_hook_active: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BeforeRunEndAnswer {
    /// Goes to the model instead of the end.
    pub follow_up: Option<String>,
    pub common: Common,
}

/// What `transform_context` may replace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transformed {
    pub messages: Option<Vec<Arc<Message>>>,
    pub system_prompt: Option<String>,
}

/// Hooks into a durable run. The method of a point is asked only where [`Hooks::listens`] says so.
#[async_trait]
pub trait Hooks: Send + Sync {
    /// For messages.
    fn name(&self) -> &str;

    /// Whether this one has a say at a point. A point at which nobody has one costs nothing.
    fn listens(&self, point: HookPoint) -> bool;

    async fn before_drive(&self, _: BeforeDrive<'_>, _: &CancellationToken) -> Result<BeforeDriveAnswer, HookFailure> {
        Ok(BeforeDriveAnswer::default())
    }

    async fn before_run(&self, _: BeforeRun<'_>, _: &CancellationToken) -> Result<BeforeRunAnswer, HookFailure> {
        Ok(BeforeRunAnswer::default())
    }

    async fn before_request(
        &self,
        _: BeforeRequest<'_>,
        _: &CancellationToken,
    ) -> Result<BeforeRequestAnswer, HookFailure> {
        Ok(BeforeRequestAnswer::default())
    }

    async fn after_response(
        &self,
        _: AfterResponse<'_>,
        _: &CancellationToken,
    ) -> Result<AfterResponseAnswer, HookFailure> {
        Ok(AfterResponseAnswer::default())
    }

    async fn before_tool(&self, _: BeforeTool<'_>, _: &CancellationToken) -> Result<BeforeToolAnswer, HookFailure> {
        Ok(BeforeToolAnswer::default())
    }

    async fn after_tool(&self, _: AfterTool<'_>, _: &CancellationToken) -> Result<AfterToolAnswer, HookFailure> {
        Ok(AfterToolAnswer::default())
    }

    async fn before_run_end(
        &self,
        _: BeforeRunEnd<'_>,
        _: &CancellationToken,
    ) -> Result<BeforeRunEndAnswer, HookFailure> {
        Ok(BeforeRunEndAnswer::default())
    }

    /// Shapes the messages of one request; the tree is untouched.
    async fn transform_context(
        &self,
        _messages: &[Arc<Message>],
        _system_prompt: &str,
        _: &CancellationToken,
    ) -> Result<Transformed, HookFailure> {
        Ok(Transformed::default())
    }

    /// Sees the body of a request and may replace it. It holds no credential.
    fn before_payload(&self, _payload: &Value) -> Option<Value> {
        None
    }
}
