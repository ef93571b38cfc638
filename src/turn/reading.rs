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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::stream::{self, BoxStream};
    use futures_util::{FutureExt, StreamExt};
    use tokio::sync::mpsc;
    use tokio_util::sync::CancellationToken;

    use super::{ReplyItem, ReplyReader};
    use crate::model::{AssistantHead, BlockEvent, ErrorKind, Model, StopReason};
    use crate::port::{AssistantEvent, LlmRequest, Provider, Purpose, ResponseMeta, StreamOptions, SystemClock};

    /// A provider whose stream is fed by the test; without a feed it panics.
    struct Fed(std::sync::Mutex<Option<mpsc::UnboundedReceiver<AssistantEvent>>>);

    impl Provider for Fed {
        fn stream(&self, _: Arc<LlmRequest>, _: CancellationToken) -> BoxStream<'static, AssistantEvent> {
            let feed = self.0.lock().unwrap().take().expect("no feed");
            stream::unfold(feed, |mut feed| async { Some((feed.recv().await?, feed)) }).boxed()
        }
    }

    fn head(model: &str) -> AssistantHead {
        AssistantHead { model: model.to_owned(), ..AssistantHead::default() }
    }

    fn open(feed: Option<mpsc::UnboundedReceiver<AssistantEvent>>) -> ReplyReader {
        let request = LlmRequest {
            model: Model::unknown("p", "asked", "a", ""),
            system_prompt: String::new(),
            messages: Vec::new(),
            tools: Vec::new().into(),
            thinking: None,
            options: StreamOptions::default(),
            output_schema: None,
            purpose: Purpose::Run,
            session_id: None,
        };
        let provider = Fed(std::sync::Mutex::new(feed));
        let clock = Arc::new(SystemClock::new());
        ReplyReader::open(&provider, Arc::new(request), head("asked"), CancellationToken::new(), clock)
    }

    /// Items as far as they are there, in short.
    fn drain(reader: &mut ReplyReader) -> Vec<String> {
        let mut seen = Vec::new();
        while let Some(item) = reader.next().now_or_never() {
            seen.push(match item {
                Some(ReplyItem::Opened(head)) => format!("opened {}", head.model),
                Some(ReplyItem::Update { event: BlockEvent::TextDelta(delta), .. }) => delta,
                Some(ReplyItem::Update { .. }) => "update".to_owned(),
                Some(ReplyItem::Warning { code, .. }) => code,
                Some(ReplyItem::Meta(meta)) => format!("meta {}", meta.status),
                None => "end".to_owned(),
            });
            if seen.last().is_some_and(|last| last == "end") {
                break;
            }
        }
        seen
    }

    #[test]
    fn a_reader_that_is_asked_again_has_lost_nothing() {
        let (feed, events) = mpsc::unbounded_channel();
        let mut reader = open(Some(events));
        assert!(drain(&mut reader).is_empty());
        let block = |event| AssistantEvent::Block { index: 0, event };
        feed.send(AssistantEvent::Meta(Box::new(ResponseMeta { status: 200, ..ResponseMeta::default() }))).unwrap();
        feed.send(AssistantEvent::Start(head("answers"))).unwrap();
        feed.send(block(BlockEvent::TextStart)).unwrap();
        assert_eq!(drain(&mut reader), ["meta 200", "opened answers", "update"]);
        feed.send(block(BlockEvent::TextDelta("a".to_owned()))).unwrap();
        assert_eq!(drain(&mut reader), ["a"]);
        assert_eq!((reader.partial().text().as_str(), reader.partial().stop_reason), ("a", StopReason::Pending));
        drop(feed);
        assert_eq!(drain(&mut reader), ["end"]);
        assert_eq!(drain(&mut reader), ["end"]);
        let reply = reader.finish(false, Vec::new());
        assert_eq!((reply.text().as_str(), reply.error.map(|record| record.kind)), ("a", Some(ErrorKind::Network)));
    }

    #[test]
    fn a_reply_that_never_started_opens_right_before_its_end() {
        let (feed, events) = mpsc::unbounded_channel::<AssistantEvent>();
        drop(feed);
        let readers = [
            (open(Some(events)), false, Some(ErrorKind::Network)),
            (open(None), false, Some(ErrorKind::Internal)),
            (ReplyReader::unasked(head("asked"), Arc::new(SystemClock::new())), true, None),
        ];
        for (mut reader, cancelled, kind) in readers {
            assert_eq!(drain(&mut reader), ["opened asked", "end"]);
            let reply = reader.finish(cancelled, Vec::new());
            assert_eq!((reply.stop_reason == StopReason::Aborted, reply.error.map(|e| e.kind)), (cancelled, kind));
            assert!(reply.duration_ms.is_some());
        }
    }
}
