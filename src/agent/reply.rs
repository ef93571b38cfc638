//! One request and its stream, up to the settled reply.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use super::run::Run;
use crate::model::{
    AssistantHead, AssistantMessage, ErrorKind, ErrorRecord, Event, Message, MessageBuilder, StopReason, Usage,
};
use crate::port::{AssistantEvent, LlmRequest, Purpose, SinkError};
use crate::turn::{self, texts};

/// How long a stream may take to deliver its end after the run was cancelled (loop §3.4).
const CANCEL_GRACE: Duration = Duration::from_millis(300);

impl Run<'_> {
    /// Makes a request and gives its classified reply. `message_start` and the updates are told; the end is not.
    pub(super) async fn request(&mut self) -> Result<AssistantMessage, SinkError> {
        let started = self.options.clock.monotonic_ms();
        let (request, notes) = self.build_request().await;
        let head = AssistantHead {
            api: self.model.api.clone(),
            provider: self.model.provider.clone(),
            model: self.model.id.clone(),
            timestamp: self.options.clock.now_ms(),
        };
        let mut reading = Reading { builder: MessageBuilder::new(&head), started: false, usage: None };
        let stream = self.options.provider.stream(Arc::new(request), self.cancel.token().clone());
        let ended = self.read(stream, &mut reading).await?;
        if !reading.started {
            self.open_reply(&head).await?;
        }
        let mut reply = match ended {
            Some(reply) => turn::classify(reply),
            None if self.cancel.is_cancelled() => reading.builder.abort(texts::CANCELLED),
            None => reading.builder.fail(ErrorRecord::new(ErrorKind::Network, texts::STREAM_BROKE_OFF).retryable()),
        };
        if self.cancel.is_cancelled() && reply.stop_reason == StopReason::Error {
            reply = turn::cancelled(reply);
        }
        reply.diagnostics.extend(notes);
        reply.thinking_level = Some(self.thinking);
        reply.duration_ms = Some(self.options.clock.monotonic_ms().saturating_sub(started));
        Ok(reply)
    }

    /// The pipeline of a request: transform, convert, heal, key (loop §4).
    async fn build_request(&self) -> (LlmRequest, Vec<crate::model::Diagnostic>) {
        let hooks = &self.options.hooks;
        let shaped = hooks.transform_context(self.context.clone(), self.cancel.token()).await;
        let converted = hooks.convert_to_llm(shaped).await;
        let projection = turn::project(&converted, &self.model);
        let mut options = self.options.stream_options.clone();
        if let Some(key) = hooks.get_api_key(&self.model.provider).await {
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
        (request, projection.notes)
    }

    /// Reads a stream to its end. Tolerates what adapters get wrong (loop §3.3): a missing or second start, blocks
    /// before the start, anything behind the end, a missing end. Gives `None` when no end came.
    async fn read(
        &mut self,
        mut stream: futures_util::stream::BoxStream<'static, AssistantEvent>,
        reading: &mut Reading,
    ) -> Result<Option<AssistantMessage>, SinkError> {
        let clock = Arc::clone(&self.options.clock);
        let token = self.cancel.token().clone();
        let mut overdue = std::pin::pin!(async move {
            token.cancelled().await;
            clock.sleep(CANCEL_GRACE).await;
        });
        loop {
            let item = tokio::select! {
                biased;
                item = stream.next() => item,
                () = &mut overdue => None,
            };
            match item {
                None => return Ok(None),
                Some(AssistantEvent::End(reply)) => return Ok(Some(*reply)),
                Some(AssistantEvent::Start(_)) if reading.started => {}
                Some(AssistantEvent::Start(head)) => {
                    reading.builder = MessageBuilder::new(&head);
                    reading.started = true;
                    self.open_reply(&head).await?;
                }
                Some(AssistantEvent::Block { index, event }) if reading.started => {
                    if let Some(event) = reading.builder.apply(index, event) {
                        let usage = reading.usage.take();
                        self.emit(Event::MessageUpdate { index, event, usage }).await?;
                    }
                }
                Some(AssistantEvent::Usage(usage)) if reading.started => {
                    reading.builder.usage(usage.clone());
                    reading.usage = Some(usage);
                }
                Some(AssistantEvent::Block { .. } | AssistantEvent::Usage(_) | AssistantEvent::Meta(_)) => {}
                Some(AssistantEvent::Warning { code, message }) => {
                    self.emit(Event::Warning { code, message }).await?;
                }
            }
        }
    }

    async fn open_reply(&mut self, head: &AssistantHead) -> Result<(), SinkError> {
        let message = Arc::new(Message::Assistant(AssistantMessage::pending(head)));
        self.reply_open = true;
        self.emit(Event::MessageStart { message }).await
    }
}

/// What has been read of a stream.
struct Reading {
    builder: MessageBuilder,
    started: bool,
    /// Numbers that arrived since the last update.
    usage: Option<Usage>,
}
