//! The reading of one reply: a provider's stream in, what readers may see of it and one settled message out.
//!
//! Keeps true: whatever a provider does wrong, a reply opens once and ends as a message; a cancelled stream is waited for
//! 300 ms and then dropped, its text so far kept; linear in the text, nothing is copied per delta.
//!
//! Must not know: protocols, how a request is made, events, what becomes of the reply.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, CatchUnwind};
use tokio_util::sync::CancellationToken;

use super::running::panic_text;
use super::{classify, texts};
use crate::model::{
    AssistantHead, AssistantMessage, BlockEvent, Diagnostic, ErrorKind, ErrorRecord, MessageBuilder, StopReason, Usage,
};
use crate::port::{AssistantEvent, Clock, LlmRequest, Provider, ResponseMeta};

/// How long a stream may take to deliver its end after the run was cancelled.
pub const CANCEL_GRACE: Duration = Duration::from_millis(300);

/// Reads one reply. Tolerates what adapters get wrong (cases 5 to 12): a missing or second start, blocks before the
/// start, anything behind the end, a missing end, a panic.
pub struct ReplyReader {
    /// The one asked for.
    head: AssistantHead,
    builder: MessageBuilder,
    opened: bool,
    /// Numbers that arrived since the last update.
    usage: Option<Box<Usage>>,
    /// `None` once it has ended.
    source: Option<Source>,
    ended: Ended,
    clock: Arc<dyn Clock>,
    /// When it was opened, in milliseconds of the clock.
    started: u64,
}

/// What readers may see of a reply.
#[derive(Clone, Debug)]
pub enum ReplyItem {
    /// Comes exactly once, ahead of every update; if the stream never started, as the last item.
    Opened(AssistantHead),
    /// `usage`: the numbers, where they changed since the last update.
    Update { index: usize, event: BlockEvent, usage: Option<Box<Usage>> },
    /// Worth telling while the reply goes on.
    Warning { code: String, message: String },
    /// The response's head.
    Meta(Box<ResponseMeta>),
}

struct Source {
    stream: CatchUnwind<AssertUnwindSafe<BoxStream<'static, AssistantEvent>>>,
    /// Ready when a cancelled stream is not waited for any longer.
    overdue: BoxFuture<'static, ()>,
}

/// How the reading of a stream ended.
enum Ended {
    Whole(Box<AssistantMessage>),
    /// No last event came, or the run was cancelled first.
    BrokeOff,
    /// The provider panicked.
    Crashed(String),
}

impl std::fmt::Debug for ReplyReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplyReader").field("head", &self.head).field("opened", &self.opened).finish_non_exhaustive()
    }
}

impl ReplyReader {
    /// Asks the provider; a panic of it becomes the reply's failure. `head` is what the reply opens with if the provider
    /// says nothing.
    pub fn open(
        provider: &dyn Provider,
        request: Arc<LlmRequest>,
        head: AssistantHead,
        token: CancellationToken,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let mut reader = Self::unasked(head, clock);
        let cancel = token.clone();
        match catch_unwind(AssertUnwindSafe(|| provider.stream(request, cancel))) {
            Ok(stream) => {
                let clock = Arc::clone(&reader.clock);
                let overdue = Box::pin(async move {
                    token.cancelled().await;
                    clock.sleep(CANCEL_GRACE).await;
                });
                reader.source = Some(Source { stream: AssertUnwindSafe(stream).catch_unwind(), overdue });
            }
            Err(panic) => reader.ended = Ended::Crashed(crashed(&*panic)),
        }
        reader
    }

    /// A reply that nobody was asked for, since the run was cancelled first.
    pub fn unasked(head: AssistantHead, clock: Arc<dyn Clock>) -> Self {
        Self {
            builder: MessageBuilder::new(&head),
            head,
            opened: false,
            usage: None,
            source: None,
            ended: Ended::BrokeOff,
            started: clock.monotonic_ms(),
            clock,
        }
    }

    /// The next thing to see, `None` at the end. Cancel-safe: a future that is dropped loses nothing.
    pub async fn next(&mut self) -> Option<ReplyItem> {
        while let Some(Source { stream, overdue }) = &mut self.source {
            let item = tokio::select! {
                biased;
                // First, so that a stream that never waits cannot outrun it.
                () = overdue => None,
                item = stream.next() => item,
            };
            self.ended = match item {
                Some(Ok(AssistantEvent::End(reply))) => Ended::Whole(reply),
                Some(Ok(event)) => match self.take(event) {
                    None => continue,
                    seen => return seen,
                },
                Some(Err(panic)) => Ended::Crashed(crashed(&*panic)),
                None => Ended::BrokeOff,
            };
            self.source = None;
        }
        if self.opened {
            return None;
        }
        self.opened = true;
        Some(ReplyItem::Opened(self.head.clone()))
    }

    /// Takes one event that is not the last.
    fn take(&mut self, event: AssistantEvent) -> Option<ReplyItem> {
        match event {
            AssistantEvent::Start(head) if !self.opened => {
                self.builder = MessageBuilder::new(&head);
                self.opened = true;
                Some(ReplyItem::Opened(head))
            }
            AssistantEvent::Block { index, event } if self.opened => {
                let event = self.builder.apply(index, event)?;
                Some(ReplyItem::Update { index, event, usage: self.usage.take() })
            }
            AssistantEvent::Usage(usage) if self.opened => {
                self.builder.usage((*usage).clone());
                self.usage = Some(usage);
                None
            }
            AssistantEvent::Warning { code, message } => {
                self.builder.diagnostic(code.clone(), message.clone());
                Some(ReplyItem::Warning { code, message })
            }
            AssistantEvent::Meta(meta) => Some(ReplyItem::Meta(meta)),
            AssistantEvent::Start(_)
            | AssistantEvent::Block { .. }
            | AssistantEvent::Usage(_)
            | AssistantEvent::End(_) => None,
        }
    }

    /// The message so far, stop reason `pending`. Copies; ask rarely.
    pub fn partial(&self) -> AssistantMessage {
        self.builder.snapshot()
    }

    /// The classified reply with the time it took and `notes`. If the run was `cancelled`, a reply that broke off or
    /// failed is an aborted one with what arrived; a whole one stays what it is.
    pub fn finish(self, cancelled: bool, notes: Vec<Diagnostic>) -> AssistantMessage {
        let mut reply = match self.ended {
            Ended::Whole(reply) => classify::classify(*reply),
            Ended::BrokeOff if cancelled => self.builder.abort(texts::CANCELLED),
            Ended::BrokeOff => {
                let record = ErrorRecord::new(ErrorKind::Network, texts::STREAM_BROKE_OFF).retryable();
                fail(self.builder, record, self.head.provider)
            }
            Ended::Crashed(text) => fail(self.builder, ErrorRecord::new(ErrorKind::Internal, text), self.head.provider),
        };
        if cancelled && reply.stop_reason == StopReason::Error {
            reply = classify::cancelled(reply);
        }
        reply.diagnostics.extend(notes);
        reply.duration_ms = Some(self.clock.monotonic_ms().saturating_sub(self.started));
        reply
    }
}

/// The message as far as it came, ended by an error.
fn fail(builder: MessageBuilder, mut record: ErrorRecord, provider: String) -> AssistantMessage {
    record.provider = Some(provider);
    builder.fail(record)
}

fn crashed(panic: &(dyn Any + Send)) -> String {
    format!("The provider crashed: {}", panic_text(panic))
}
