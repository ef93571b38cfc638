//! One 2xx answer as a stream of events: bytes from the body, through the decoder.
//!
//! Keeps true: the body is dropped as soon as the reply is complete or has failed; a reply that was complete stays
//! good when the connection breaks behind it.
//!
//! Must not know: which protocol the decoder reads.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::BoxFuture;

use crate::model::{Diagnostic, ErrorRecord};
use crate::port::ProviderEvent;
use crate::provider::http::ResponseBody;
use crate::provider::wire::Decoder;

/// Bytes decoded before everything else of the process (signals, timers) gets its turn.
const SLICE_BYTES: usize = 192 * 1024;

/// What to do when a connection breaks after the server said why the reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LateBreak {
    /// The reply is complete.
    Forgive,
    /// The dialect has no sign of completeness but the end of the body.
    Fail,
}

pub(super) struct Reply {
    /// What is ready to be read, oldest first.
    events: VecDeque<ProviderEvent>,
    state: State,
    decoder: Box<dyn Decoder>,
    decoded: Vec<ProviderEvent>,
    late_break: LateBreak,
    /// Bytes decoded since others had their turn.
    decoded_bytes: usize,
    /// Since the last bytes came, the connection had a turn to bring more.
    gave_way: bool,
}

enum State {
    /// With what was received and not decoded yet.
    Reading(Box<ResponseBody>, Bytes),
    /// The reply is complete; the connection may still become reusable before the last event is told.
    Closing(BoxFuture<'static, ()>),
    Complete,
    Failed(ErrorRecord),
    Over,
}

impl Reply {
    /// `before` is told before anything of the body.
    pub(super) fn new(
        before: Vec<ProviderEvent>,
        body: ResponseBody,
        decoder: Box<dyn Decoder>,
        late_break: LateBreak,
    ) -> Self {
        Self {
            events: before.into(),
            state: State::Reading(Box::new(body), Bytes::new()),
            decoder,
            decoded: Vec::new(),
            late_break,
            decoded_bytes: 0,
            gave_way: false,
        }
    }

    /// The body ended, or the decoder needs no more of it.
    fn complete(&mut self) -> State {
        let finished = self.decoder.finish(&mut self.decoded);
        self.take_decoded();
        match finished {
            Ok(()) => State::Complete,
            Err(error) => State::Failed(error),
        }
    }

    /// Decodes the next slice of what was received.
    fn read(&mut self, mut body: Box<ResponseBody>, mut received: Bytes) -> State {
        let slice = received.split_to(SLICE_BYTES.min(received.len()));
        self.decoded_bytes = self.decoded_bytes.saturating_add(slice.len());
        let pushed = self.decoder.push(&slice, &mut self.decoded);
        if !self.decoded.is_empty() {
            body.progressed();
        }
        if let Err(error) = pushed {
            self.take_decoded();
            return State::Failed(error);
        }
        if !self.decoder.is_done() {
            self.take_decoded();
            return State::Reading(body, received);
        }
        match self.complete() {
            State::Complete => State::Closing(Box::pin(body.finish())),
            failed => failed,
        }
    }

    /// The connection failed. A reply whose end had been told keeps its value.
    fn broken(&mut self, error: ErrorRecord) -> State {
        if self.late_break == LateBreak::Fail {
            return State::Failed(error);
        }
        let finished = self.decoder.finish(&mut self.decoded);
        let complete = finished.is_ok() && self.decoded.iter().any(|e| matches!(e, ProviderEvent::Done { .. }));
        if !complete {
            self.decoded.clear();
            return State::Failed(error);
        }
        let note = Diagnostic { code: "late_break".to_owned(), message: error.message };
        self.events.push_back(ProviderEvent::Note(note));
        self.take_decoded();
        State::Complete
    }

    /// Queues what was decoded. Deltas of one block that arrived in one piece of the body are told as one: they came
    /// at the same moment, and each event costs more than the text in it.
    fn take_decoded(&mut self) {
        for event in self.decoded.drain(..) {
            let joined = match (self.events.back_mut(), &event) {
                (Some(ProviderEvent::Block { index, event: last }), ProviderEvent::Block { index: next, event }) => {
                    index == next && last.absorb(event)
                }
                _ => false,
            };
            if !joined {
                self.events.push_back(event);
            }
        }
    }

    /// The next event that may be told now.
    fn next_event(&mut self) -> Option<ProviderEvent> {
        let last_of_open = matches!(self.state, State::Closing(_)) && self.events.len() == 1;
        if last_of_open { None } else { self.events.pop_front() }
    }
}

impl Stream for Reply {
    type Item = Result<ProviderEvent, ErrorRecord>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            // What is already there is read first, up to a slice, so that it is told together.
            let reads_on = matches!(this.state, State::Reading(..)) && this.decoded_bytes < SLICE_BYTES;
            if !reads_on && let Some(event) = this.next_event() {
                return Poll::Ready(Some(Ok(event)));
            }
            match std::mem::replace(&mut this.state, State::Over) {
                State::Reading(body, received) if this.decoded_bytes >= SLICE_BYTES => {
                    this.decoded_bytes = 0;
                    this.state = State::Reading(body, received);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                State::Reading(body, received) if !received.is_empty() => this.state = this.read(body, received),
                State::Reading(mut body, received) => match body.poll_chunk(cx) {
                    Poll::Pending => {
                        this.state = State::Reading(body, received);
                        if !this.events.is_empty() && !std::mem::replace(&mut this.gave_way, true) {
                            // The connection hands over a few kilobytes at a time; one turn may bring the next ones.
                            cx.waker().wake_by_ref();
                            return Poll::Pending;
                        }
                        this.decoded_bytes = 0;
                        return this.next_event().map_or(Poll::Pending, |event| Poll::Ready(Some(Ok(event))));
                    }
                    Poll::Ready(Some(Ok(bytes))) => {
                        this.gave_way = false;
                        this.state = this.read(body, bytes);
                    }
                    Poll::Ready(Some(Err(error))) => this.state = this.broken(error),
                    Poll::Ready(None) => this.state = this.complete(),
                },
                State::Closing(mut closing) => match closing.as_mut().poll(cx) {
                    Poll::Pending => {
                        this.state = State::Closing(closing);
                        return Poll::Pending;
                    }
                    Poll::Ready(()) => this.state = State::Complete,
                },
                State::Complete | State::Over => return Poll::Ready(None),
                State::Failed(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}
