//! One request and its stream, up to the settled reply.
//!
//! Keeps true: a request is shaped, converted, healed and signed in this order; whatever a provider does wrong, the
//! reply has one start and ends as a message; a cancelled stream is waited for 300 ms and then dropped, its text so far
//! kept.
//!
//! Must not know: protocols, tools, what becomes of the reply.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use super::call::panic_text;
use super::run::Run;
use crate::model::{
    AssistantHead, AssistantMessage, Diagnostic, ErrorKind, ErrorRecord, Event, Message, MessageBuilder, StopReason,
    Usage,
};
use crate::port::{AssistantEvent, LlmRequest, Purpose, SinkError};
use crate::turn::{self, texts};

/// How long a stream may take to deliver its end after the run was cancelled.
const CANCEL_GRACE: Duration = Duration::from_millis(300);

/// How the reading of a stream ended.
enum Ended {
    Whole(Box<AssistantMessage>),
    /// No last event came, or the run was cancelled first.
    BrokeOff,
    /// The provider panicked.
    Crashed(String),
}

impl Run<'_> {
    /// Makes a request and gives its classified reply. `message_start` and the updates are told; the end is not.
    pub(super) async fn request(&mut self) -> Result<AssistantMessage, SinkError> {
        let started = self.options.clock.monotonic_ms();
        let head = AssistantHead {
            api: self.model.api.clone(),
            provider: self.model.provider.clone(),
            model: self.model.id.clone(),
            timestamp: self.options.clock.now_ms(),
        };
        let (request, notes) = self.build_request().await;
        let mut reading = Reading { builder: MessageBuilder::new(&head), started: false, usage: None };
        // A run cancelled while the request was made ready calls nobody.
        let ended = match request {
            Some(request) if !self.cancel.is_cancelled() => self.read(request, &mut reading).await?,
            _ => Ended::BrokeOff,
        };
        if !reading.started {
            self.open_reply(&head).await?;
        }
        let mut reply = match ended {
            Ended::Whole(reply) => turn::classify(*reply),
            Ended::BrokeOff if self.cancel.is_cancelled() => reading.builder.abort(texts::CANCELLED),
            Ended::BrokeOff => {
                reading.fail(ErrorRecord::new(ErrorKind::Network, texts::STREAM_BROKE_OFF).retryable(), &head)
            }
            Ended::Crashed(text) => reading.fail(ErrorRecord::new(ErrorKind::Internal, text), &head),
        };
        if self.cancel.is_cancelled() && reply.stop_reason == StopReason::Error {
            reply = turn::cancelled(reply);
        }
        reply.diagnostics.extend(notes);
        reply.thinking_level = self.thinking;
        reply.duration_ms = Some(self.options.clock.monotonic_ms().saturating_sub(started));
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

    /// Asks the provider and reads its stream to the end. Tolerates what adapters get wrong (cases 5 to 12): a missing
    /// or second start, blocks before the start, anything behind the end, a missing end, a panic.
    async fn read(&mut self, request: LlmRequest, reading: &mut Reading) -> Result<Ended, SinkError> {
        let (provider, token) = (&self.options.provider, self.cancel.token().clone());
        let opened = catch_unwind(AssertUnwindSafe(|| provider.stream(Arc::new(request), token.clone())));
        let mut stream = match opened {
            Ok(stream) => AssertUnwindSafe(stream).catch_unwind(),
            Err(panic) => return Ok(Ended::Crashed(crashed(&*panic))),
        };
        let clock = Arc::clone(&self.options.clock);
        let mut overdue = std::pin::pin!(async move {
            token.cancelled().await;
            clock.sleep(CANCEL_GRACE).await;
        });
        loop {
            let item = tokio::select! {
                biased;
                // First, so that a stream that never waits cannot outrun it.
                () = &mut overdue => return Ok(Ended::BrokeOff),
                item = stream.next() => item,
            };
            match item {
                None => return Ok(Ended::BrokeOff),
                Some(Err(panic)) => return Ok(Ended::Crashed(crashed(&*panic))),
                Some(Ok(AssistantEvent::End(reply))) => return Ok(Ended::Whole(reply)),
                Some(Ok(event)) => self.take(event, reading).await?,
            }
        }
    }

    /// Takes one event that is not the last.
    async fn take(&mut self, event: AssistantEvent, reading: &mut Reading) -> Result<(), SinkError> {
        match event {
            AssistantEvent::Start(head) if !reading.started => {
                reading.builder = MessageBuilder::new(&head);
                reading.started = true;
                self.open_reply(&head).await?;
            }
            AssistantEvent::Block { index, event } if reading.started => {
                if let Some(event) = reading.builder.apply(index, event) {
                    let usage = reading.usage.take();
                    self.emit(Event::MessageUpdate { index, event, usage }).await?;
                }
            }
            AssistantEvent::Usage(usage) if reading.started => {
                reading.builder.usage((*usage).clone());
                reading.usage = Some(usage);
            }
            AssistantEvent::Warning { code, message } => {
                reading.builder.diagnostic(code.clone(), message.clone());
                self.emit(Event::Warning { code, message }).await?;
            }
            AssistantEvent::Start(_)
            | AssistantEvent::Block { .. }
            | AssistantEvent::Usage(_)
            | AssistantEvent::Meta(_)
            | AssistantEvent::End(_) => {}
        }
        Ok(())
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
    usage: Option<Box<Usage>>,
}

impl Reading {
    /// The message as far as it came, ended by an error.
    fn fail(self, mut record: ErrorRecord, head: &AssistantHead) -> AssistantMessage {
        record.provider = Some(head.provider.clone());
        self.builder.fail(record)
    }
}

fn crashed(panic: &(dyn std::any::Any + Send)) -> String {
    format!("The provider crashed: {}", panic_text(panic))
}
