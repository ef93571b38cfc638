//! What an agent remembers between runs, and what it shows of the run that is on.
//!
//! Keeps true: the state is a fold over the events and changes in no other way during a run; a failure's text lasts
//! until the next run starts.
//!
//! Must not know: the loop, queues, listeners.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::{AssistantHead, Event, Message, MessageBuilder, Model, Thinking};
use crate::port::Tool;

/// What a run starts with. Changing it during a run takes effect at the next.
#[derive(Clone)]
pub struct Settings {
    pub system_prompt: String,
    pub model: Model,
    /// `None` = the model's default.
    pub thinking: Option<Thinking>,
    pub tools: Vec<Arc<dyn Tool>>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tools: Vec<&str> = self.tools.iter().map(|tool| tool.spec().name.as_str()).collect();
        f.debug_struct("Settings")
            .field("model", &self.model.spec())
            .field("thinking", &self.thinking)
            .field("tools", &tools)
            .finish_non_exhaustive()
    }
}

/// A copy of an agent's state.
#[derive(Clone, Debug, Default)]
pub struct AgentSnapshot {
    pub messages: Vec<Arc<Message>>,
    /// From the call of `prompt` until the listeners of `agent_end` are done.
    pub is_streaming: bool,
    /// The message between its start and its end, of any role.
    pub streaming_message: Option<Message>,
    /// Calls between their start and their end.
    pub pending_tool_calls: BTreeSet<String>,
    /// Why the last run failed; cleared when a run starts.
    pub error_message: Option<String>,
}

/// The live state. It changes before listeners see the event that changes it.
#[derive(Debug)]
pub(super) struct State {
    pub(super) settings: Settings,
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) is_streaming: bool,
    streaming: Option<Streaming>,
    pending_tool_calls: BTreeSet<String>,
    error_message: Option<String>,
}

#[derive(Debug)]
enum Streaming {
    Whole(Arc<Message>),
    Reply(Box<MessageBuilder>),
}

impl State {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            messages: Vec::new(),
            is_streaming: false,
            streaming: None,
            pending_tool_calls: BTreeSet::new(),
            error_message: None,
        }
    }

    pub(super) fn snapshot(&self) -> AgentSnapshot {
        let streaming_message = self.streaming.as_ref().map(|streaming| match streaming {
            Streaming::Whole(message) => (**message).clone(),
            Streaming::Reply(builder) => Message::Assistant(builder.snapshot()),
        });
        AgentSnapshot {
            messages: self.messages.clone(),
            is_streaming: self.is_streaming,
            streaming_message,
            pending_tool_calls: self.pending_tool_calls.clone(),
            error_message: self.error_message.clone(),
        }
    }

    pub(super) fn begin(&mut self) {
        self.is_streaming = true;
        self.error_message = None;
    }

    pub(super) fn end(&mut self) {
        self.is_streaming = false;
        self.streaming = None;
        self.pending_tool_calls.clear();
    }

    pub(super) fn reset(&mut self) {
        self.messages.clear();
        self.error_message = None;
        self.end();
    }

    pub(super) fn apply(&mut self, event: &Event) {
        match event {
            Event::MessageStart { message } => {
                self.streaming = Some(match &**message {
                    Message::Assistant(reply) => {
                        let head = AssistantHead {
                            api: reply.api.clone(),
                            provider: reply.provider.clone(),
                            model: reply.model.clone(),
                            timestamp: reply.timestamp,
                        };
                        Streaming::Reply(Box::new(MessageBuilder::new(&head)))
                    }
                    Message::User(_) | Message::ToolResult(_) | Message::Custom(_) => {
                        Streaming::Whole(Arc::clone(message))
                    }
                });
            }
            Event::MessageUpdate { index, event, usage } => {
                if let Some(Streaming::Reply(builder)) = &mut self.streaming {
                    // What the loop let through fits.
                    let _fits = builder.fold(*index, event);
                    if let Some(usage) = usage {
                        builder.usage((**usage).clone());
                    }
                }
            }
            Event::MessageEnd { message, .. } => {
                self.streaming = None;
                self.messages.push(Arc::clone(message));
            }
            Event::ToolStart { tool_call_id, .. } => {
                self.pending_tool_calls.insert(tool_call_id.clone());
            }
            Event::ToolEnd { tool_call_id, .. } => {
                self.pending_tool_calls.remove(tool_call_id);
            }
            Event::TurnEnd { message: Some(message), .. } => {
                if let Message::Assistant(reply) = &**message
                    && reply.stop_reason.is_failure()
                {
                    self.error_message.clone_from(&reply.error_message);
                }
            }
            Event::RunStart { .. }
            | Event::TurnStart { .. }
            | Event::ToolUpdate { .. }
            | Event::TurnEnd { message: None, .. }
            | Event::RunEnd { .. }
            | Event::RunResume { .. }
            | Event::RecoveryStep { .. }
            | Event::OperationAbort { .. }
            | Event::RetryScheduled { .. }
            | Event::RetryStart { .. }
            | Event::RetryEnd { .. }
            | Event::ModelFallback { .. }
            | Event::EntryAdded { .. }
            | Event::Usage { .. }
            | Event::ConfigUpdate { .. }
            | Event::ValueUpdate { .. }
            | Event::LaneCreated { .. }
            | Event::HandlerError { .. }
            | Event::QueueUpdate { .. }
            | Event::Warning { .. }
            | Event::Fault { .. } => {}
        }
    }
}
