//! The stream contract, made in one place from what decoders give.
//!
//! Keeps true: `Start` is first, exactly one `End` is last, nothing follows it; content that arrived before a failure
//! or a cancellation is kept; a panic while decoding becomes a failure; usage leaves here with its price.
//!
//! Must not know: protocols, HTTP, secrets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use futures_util::stream::BoxStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::model::{
    AssistantHead, AssistantMessage, BlockEvent, ErrorKind, ErrorRecord, MessageBuilder, Model, StopReason,
};
use crate::port::{AssistantEvent, ProviderEvent};

/// What a wire gives before the contract is applied: events, ended by `Done`, an error, or nothing at all.
pub type Inner = BoxStream<'static, Result<ProviderEvent, ErrorRecord>>;

/// The text of every cancelled reply (STREAM-10).
pub const CANCELLED: &str = "Run cancelled";
/// A stream that ended without a final event (STREAM-2).
const BROKE_OFF: &str = "The stream broke off: no final event.";
/// A final event while a block was still open: the reply is cut, whatever it claims (STREAM-5).
const OPEN_BLOCK: &str = "The stream broke off: the reply ended inside a block.";
/// A final event that claims failure without saying which.
const UNKNOWN: &str = "Unknown provider error";
const PANICKED: &str = "The provider adapter panicked; this is a bug in pirn";

/// Makes the stream the loop reads. `open` is not polled before the first event was taken; dropping the stream, a
/// failure, and a cancellation drop it or the stream it gave, which closes the connection (STREAM-10).
pub fn settle<F>(
    head: AssistantHead,
    open: F,
    model: Model,
    cancel: CancellationToken,
) -> impl Stream<Item = AssistantEvent> + Send + 'static
where
    F: Future<Output = Result<Inner, ErrorRecord>> + Send + 'static,
{
    let builder = MessageBuilder::new(&head);
    Settled {
        phase: Phase::Head(head),
        source: Some(Source::Opening(Box::pin(open))),
        builder: Some(builder),
        open_blocks: 0,
        model,
        cancelled: Box::pin(cancel.clone().cancelled_owned()),
        cancel,
    }
}

enum Phase {
    Head(AssistantHead),
    Body,
    Over,
}

enum Source<F> {
    Opening(Pin<Box<F>>),
    Open(Inner),
}

struct Settled<F> {
    phase: Phase,
    /// `None` once the reply is settled.
    source: Option<Source<F>>,
    /// `None` once the reply is settled.
    builder: Option<MessageBuilder>,
    /// Blocks that started and did not end.
    open_blocks: usize,
    model: Model,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
    cancel: CancellationToken,
}

impl<F> std::fmt::Debug for Settled<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settled").field("open_blocks", &self.open_blocks).finish_non_exhaustive()
    }
}

impl<F> Stream for Settled<F>
where
    F: Future<Output = Result<Inner, ErrorRecord>> + Send + 'static,
{
    type Item = AssistantEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AssistantEvent>> {
        let this = &mut *self;
        match std::mem::replace(&mut this.phase, Phase::Body) {
            Phase::Head(head) => return Poll::Ready(Some(AssistantEvent::Start(head))),
            Phase::Body => {}
            Phase::Over => {
                this.phase = Phase::Over;
                return Poll::Ready(None);
            }
        }
        loop {
            if this.cancelled.as_mut().poll(cx).is_ready() {
                return Poll::Ready(this.end(|builder| builder.abort(CANCELLED)));
            }
            let item = ready!(this.poll_source(cx));
            match item {
                Some(Ok(event)) => {
                    if let Some(event) = this.accept(event) {
                        return Poll::Ready(Some(event));
                    }
                }
                Some(Err(error)) => return Poll::Ready(this.fail(error)),
                None => {
                    let error = ErrorRecord::new(ErrorKind::Network, BROKE_OFF).retryable();
                    return Poll::Ready(this.fail(error));
                }
            }
        }
    }
}

impl<F> Settled<F>
where
    F: Future<Output = Result<Inner, ErrorRecord>> + Send + 'static,
{
    /// The next item of the wire; opens the stream first. A panic below is an item of kind `internal`.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<ProviderEvent, ErrorRecord>>> {
        loop {
            let polled = match &mut self.source {
                None => return Poll::Ready(None),
                Some(Source::Open(inner)) => {
                    let inner = inner.as_mut();
                    match catch_unwind(AssertUnwindSafe(|| inner.poll_next(cx))) {
                        Ok(polled) => return polled,
                        Err(_) => Err(panicked()),
                    }
                }
                Some(Source::Opening(open)) => {
                    let open = open.as_mut();
                    match catch_unwind(AssertUnwindSafe(|| open.poll(cx))) {
                        Ok(polled) => ready!(polled),
                        Err(_) => Err(panicked()),
                    }
                }
            };
            match polled {
                Ok(inner) => self.source = Some(Source::Open(inner)),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    /// Folds one event and gives what readers see of it.
    fn accept(&mut self, event: ProviderEvent) -> Option<AssistantEvent> {
        let builder = self.builder.as_mut()?;
        match event {
            ProviderEvent::Start { response_id, response_model } => {
                builder.identity(response_id, response_model);
                None
            }
            ProviderEvent::Meta(meta) => Some(AssistantEvent::Meta(meta)),
            ProviderEvent::Block { index, event } => {
                let event = builder.apply(index, event)?;
                match edge(&event) {
                    Edge::Start => self.open_blocks += 1,
                    Edge::End => self.open_blocks = self.open_blocks.saturating_sub(1),
                    Edge::Inside => {}
                }
                Some(AssistantEvent::Block { index, event })
            }
            ProviderEvent::Usage(mut usage) => {
                // A cost the provider itself reports is what it bills (COST-3).
                let reported = usage.cost.total;
                self.model.price(&mut usage);
                if reported > 0.0 {
                    usage.cost.total = reported;
                }
                builder.usage((*usage).clone());
                Some(AssistantEvent::Usage(usage))
            }
            ProviderEvent::Warning { code, message } => {
                builder.diagnostic(code.clone(), message.clone());
                Some(AssistantEvent::Warning { code, message })
            }
            ProviderEvent::Note(note) => {
                builder.diagnostic(note.code, note.message);
                None
            }
            ProviderEvent::Done { stop_reason, raw_stop_reason, overflow } => {
                self.done(stop_reason, raw_stop_reason, overflow)
            }
        }
    }

    fn done(&mut self, stop: StopReason, raw: Option<String>, overflow: bool) -> Option<AssistantEvent> {
        match stop {
            StopReason::Stop | StopReason::Length | StopReason::ToolUse | StopReason::Deferred => {
                if self.open_blocks > 0 {
                    return self.fail(ErrorRecord::new(ErrorKind::Network, OPEN_BLOCK).retryable());
                }
                self.end(|builder| builder.finish(stop, raw, overflow))
            }
            StopReason::Aborted => self.end(|builder| builder.abort(CANCELLED)),
            StopReason::Error | StopReason::Pending => self.fail(ErrorRecord::new(ErrorKind::Protocol, UNKNOWN)),
        }
    }

    /// Ends with an error, unless a cancellation caused it (ERR-1).
    fn fail(&mut self, error: ErrorRecord) -> Option<AssistantEvent> {
        if self.cancel.is_cancelled() {
            return self.end(|builder| builder.abort(CANCELLED));
        }
        self.end(|builder| builder.fail(error))
    }

    fn end(&mut self, finish: impl FnOnce(MessageBuilder) -> AssistantMessage) -> Option<AssistantEvent> {
        self.phase = Phase::Over;
        let source = self.source.take();
        // A panic in a destructor must not undo what was settled; the hook has reported it.
        drop(catch_unwind(AssertUnwindSafe(|| drop(source))));
        let builder = self.builder.take()?;
        Some(AssistantEvent::End(Box::new(finish(builder))))
    }
}

enum Edge {
    Start,
    Inside,
    End,
}

fn edge(event: &BlockEvent) -> Edge {
    match event {
        BlockEvent::TextStart | BlockEvent::ThinkingStart | BlockEvent::ToolCallStart { .. } => Edge::Start,
        BlockEvent::TextDelta(_) | BlockEvent::ThinkingDelta(_) | BlockEvent::ToolCallDelta(_) => Edge::Inside,
        BlockEvent::TextEnd { .. } | BlockEvent::ThinkingEnd { .. } | BlockEvent::ToolCallEnd(_) => Edge::End,
    }
}

fn panicked() -> ErrorRecord {
    ErrorRecord::new(ErrorKind::Internal, PANICKED)
}
