//! One request: how it is made, and what is told of its reply.
//!
//! Keeps true: a request is shaped, converted, healed and signed in this order; a reply is announced once.
//!
//! Must not know: protocols, how a stream is read, tools, what becomes of the reply.

use std::sync::Arc;

use super::run::Run;
use crate::model::{AssistantHead, AssistantMessage, Diagnostic, Event, Message};
use crate::port::{LlmRequest, Purpose, SinkError};
use crate::turn::{self, ReplyItem, ReplyReader};

impl Run<'_> {
    /// Makes a request and gives its classified reply. `message_start` and the updates are told; the end is not.
    pub(super) async fn request(&mut self) -> Result<AssistantMessage, SinkError> {
        let head = AssistantHead {
            api: self.model.api.clone(),
            provider: self.model.provider.clone(),
            model: self.model.id.clone(),
            timestamp: self.options.clock.now_ms(),
        };
        let (request, notes) = self.build_request().await;
        let clock = Arc::clone(&self.options.clock);
        let mut reader = match request {
            Some(request) if !self.cancel.is_cancelled() => {
                let token = self.cancel.token().clone();
                ReplyReader::open(&*self.options.provider, Arc::new(request), head, token, clock)
            }
            // A run cancelled while the request was made ready calls nobody.
            _ => ReplyReader::unasked(head, clock),
        };
        while let Some(item) = reader.next().await {
            match item {
                ReplyItem::Opened(head) => self.open_reply(&head).await?,
                ReplyItem::Update { index, event, usage } => {
                    self.emit(Event::MessageUpdate { index, event, usage }).await?;
                }
                ReplyItem::Warning { code, message } => self.emit(Event::Warning { code, message }).await?,
                ReplyItem::Meta(_) => {}
            }
        }
        let mut reply = reader.finish(self.cancel.is_cancelled(), notes);
        reply.thinking_level = self.thinking;
        Ok(reply)
    }

    /// The pipeline of a request: transform, convert, heal, key. No request comes of it when a hook did not answer a
    /// cancellation.
    async fn build_request(&self) -> (Option<LlmRequest>, Vec<Diagnostic>) {
        let hooks = self.hooks();
        let mut notes = Vec::new();
        let Some(converted) = hooks.shape(self.context.clone(), &mut notes).await else { return (None, notes) };
        let projection = turn::project(&converted, &self.model);
        notes.extend(projection.notes);
        let mut options = self.options.stream_options.clone();
        if let Some(key) = hooks.key(&self.model.provider, &mut notes).await {
            options.api_key = Some(key);
        }
        let request = LlmRequest {
            model: self.model.clone(),
            system_prompt: self.system_prompt.clone(),
            messages: projection.messages,
            tools: self.tools.iter().map(|active| active.tool.spec().clone()).collect(),
            thinking: self.thinking,
            options,
            output_schema: None,
            purpose: Purpose::Run,
            session_id: self.options.session_id.clone(),
        };
        (Some(request), notes)
    }

    async fn open_reply(&mut self, head: &AssistantHead) -> Result<(), SinkError> {
        let message = Arc::new(Message::Assistant(AssistantMessage::pending(head)));
        self.reply_open = true;
        self.emit(Event::MessageStart { message }).await
    }
}
