//! The embedding program's hooks: what they are asked, and what their answers can change.
//!
//! Keeps true: every hook has a default that changes nothing; what shapes a request cannot fail; a patch replaces whole
//! fields and never merges.
//!
//! Must not know: when the loop asks, which processes or files stand behind a hook.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::model::{AssistantMessage, Content, Message, Model, Secret, Thinking, ToolCall, Usage};
use crate::port::ToolOutput;
use crate::turn;

/// The embedding program's hooks into the loop. Every method has a default that changes nothing.
///
/// A hook that panics is one that fails, with the text `The hook crashed: …`. `transform_context`, `convert_to_llm` and
/// `get_api_key` cannot fail; one that panics counts as its default, with a diagnostic of code `hook_crashed` in the
/// reply. Once the run is cancelled, a hook has `limits.grace` and a second to answer; then its future is dropped.
///
/// An error of `before_tool_call` or
/// `after_tool_call` becomes the result of that call; an error of `prepare_next_turn` or `after_turn` ends the run
/// with a failed reply of kind `hook`.
#[async_trait]
pub trait LoopHooks: Send + Sync {
    /// Shapes the messages of one request; the transcript is untouched. Called for every request.
    async fn transform_context(&self, messages: Vec<Arc<Message>>, _cancel: &CancellationToken) -> Vec<Arc<Message>> {
        messages
    }

    /// Maps messages to those a model knows. By default other roles are left out.
    async fn convert_to_llm(&self, messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
        turn::default_convert(messages)
    }

    /// A key for this request; beats the configured one. Awaited for every request.
    async fn get_api_key(&self, _provider: &str) -> Option<Secret> {
        None
    }

    /// Asked before a call with valid arguments runs.
    async fn before_tool_call(
        &self,
        _call: BeforeToolCall<'_>,
        _cancel: &CancellationToken,
    ) -> Result<BeforeDecision, String> {
        Ok(BeforeDecision::default())
    }

    /// Sees every result of a call that ran, failed ones included, unless the run was cancelled first.
    async fn after_tool_call(
        &self,
        _call: AfterToolCall<'_>,
        _cancel: &CancellationToken,
    ) -> Result<AfterPatch, String> {
        Ok(AfterPatch::default())
    }

    /// Asked when a further turn will run, before its start; not before the first.
    async fn prepare_next_turn(&self, _turn: TurnContext<'_>, _cancel: &CancellationToken) -> Result<NextTurn, String> {
        Ok(NextTurn::default())
    }

    /// Asked after every turn that did not fail: whether the run stops here, goes on once more, or as it would.
    async fn after_turn(&self, _turn: TurnContext<'_>, _cancel: &CancellationToken) -> Result<AfterTurn, String> {
        Ok(AfterTurn::Default)
    }
}

/// No hooks at all.
#[derive(Clone, Copy, Debug)]
pub struct NoHooks;

impl LoopHooks for NoHooks {}

/// A call about to run.
#[derive(Clone, Copy, Debug)]
pub struct BeforeToolCall<'a> {
    pub assistant: &'a AssistantMessage,
    /// As the model wrote it.
    pub call: &'a ToolCall,
    /// After repair, coercion and validation.
    pub args: &'a Value,
    /// The conversation with the reply, without results of this batch.
    pub context: &'a [Arc<Message>],
}

/// What a before hook wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BeforeDecision {
    /// Refuses the call.
    pub block: bool,
    /// What the model reads about a refusal.
    pub reason: Option<String>,
    /// Replaces the arguments; checked like the model's.
    pub args: Option<Value>,
    /// Makes the result ask for the end of the run.
    pub terminate: bool,
}

impl BeforeDecision {
    /// A refusal.
    pub fn block(reason: impl Into<String>) -> Self {
        Self { block: true, reason: Some(reason.into()), ..Self::default() }
    }
}

/// A call that has run.
#[derive(Clone, Copy, Debug)]
pub struct AfterToolCall<'a> {
    pub assistant: &'a AssistantMessage,
    pub call: &'a ToolCall,
    /// What the tool got.
    pub args: &'a Value,
    pub result: &'a ToolOutput,
    pub context: &'a [Arc<Message>],
}

/// Fields that replace those of a result; absent ones keep it. No deep merge. Replacing `content` drops the
/// structured value unless `structured` is given too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AfterPatch {
    pub content: Option<Vec<Content>>,
    pub details: Option<Value>,
    pub structured: Option<Value>,
    pub is_error: Option<bool>,
    pub usage: Option<Usage>,
    pub terminate: Option<bool>,
}

impl AfterPatch {
    /// Applies the fields that are present.
    pub(super) fn apply(self, output: &mut ToolOutput) {
        if let Some(content) = self.content {
            output.content = content;
            output.structured = None;
        }
        if self.structured.is_some() {
            output.structured = self.structured;
        }
        if self.details.is_some() {
            output.details = self.details;
        }
        if let Some(is_error) = self.is_error {
            output.is_error = is_error;
        }
        if self.usage.is_some() {
            output.usage = self.usage;
        }
        if let Some(terminate) = self.terminate {
            output.terminate = terminate;
        }
    }
}

/// A finished turn.
#[derive(Clone, Copy, Debug)]
pub struct TurnContext<'a> {
    pub message: &'a Arc<Message>,
    /// In source order.
    pub tool_results: &'a [Arc<Message>],
    /// The conversation with the reply and its results.
    pub context: &'a [Arc<Message>],
    /// Everything this run added so far.
    pub new_messages: &'a [Arc<Message>],
}

/// Changes for the coming turn and the rest of the run. The transcript keeps the original messages.
#[derive(Clone, Debug, Default)]
pub struct NextTurn {
    /// Replaces what requests are made from.
    pub context: Option<Vec<Arc<Message>>>,
    pub model: Option<Model>,
    pub thinking: Option<Thinking>,
    /// Added ahead of queued messages, with events.
    pub messages: Vec<Arc<Message>>,
}

/// The answer of `after_turn`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterTurn {
    #[default]
    Default,
    /// Ends the run; no queue is polled, queued messages stay queued.
    Stop,
    /// One more request, if nothing else causes one.
    Continue,
}
