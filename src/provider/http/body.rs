//! The body of a response, with timers.
//!
//! Keeps true: every limit of silence ends the reading; dropping the body closes its connection; the body of an error
//! answer is bounded in bytes and time. The size of any other body is bounded by the decoder that reads it.
//!
//! Must not know: what the bytes mean.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::{Either, poll_fn, select};

use super::failure;
use super::timers::Timers;
use crate::model::ErrorRecord;
use crate::provider::error::{BODY_BYTES_MAX, ErrorContext};

/// How long the body of an error answer is waited for.
const ERROR_WAIT: Duration = Duration::from_secs(10);
/// How long the end of a body is waited for after the reply is complete, so that its connection can be used again.
const END_WAIT: Duration = Duration::from_millis(50);

type Chunks = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>;

/// Decoded bytes as they arrive. Dropping it closes the connection, or resets the HTTP/2 stream (STREAM-10).
pub struct ResponseBody {
    chunks: Chunks,
    timers: Timers,
    context: ErrorContext,
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody").field("timers", &self.timers).finish_non_exhaustive()
    }
}

impl ResponseBody {
    pub(super) fn new(response: reqwest::Response, timers: Timers, context: ErrorContext) -> Self {
        Self { chunks: Box::pin(response.bytes_stream()), timers, context }
    }

    /// The next bytes; `None` at the end of the body. Fails when the connection breaks or a limit of silence passes
    /// (HTTP-8). After an error nothing more comes.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ErrorRecord>>> {
        match self.chunks.as_mut().poll_next(cx) {
            Poll::Ready(Some(Ok(bytes))) => {
                self.timers.byte();
                Poll::Ready(Some(Ok(bytes)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(failure::reading(&error, &self.context)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self.timers.poll_expired(cx).map(|expired| Some(Err(expired.record(&self.context)))),
        }
    }

    /// Tells the timers that a model event came out of the bytes.
    pub fn progressed(&mut self) {
        self.timers.event();
    }

    /// Reads on for a moment after the reply is complete: a body read to its end gives its connection back.
    pub async fn finish(mut self) {
        let clock = self.timers.clock().clone();
        let end = std::pin::pin!(poll_fn(move |cx| {
            while let Poll::Ready(item) = self.chunks.as_mut().poll_next(cx) {
                if !matches!(item, Some(Ok(_))) {
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        }));
        drop(select(end, clock.sleep(END_WAIT)).await);
    }

    /// The first bytes of an error answer. Whatever stops the reading ends it; what came counts.
    pub(super) async fn start_of(mut self) -> Vec<u8> {
        let mut body = Vec::new();
        let clock = self.timers.clock().clone();
        let mut enough = clock.sleep(ERROR_WAIT);
        loop {
            let chunk = poll_fn(|cx| self.poll_chunk(cx));
            match select(chunk, enough).await {
                Either::Left((Some(Ok(bytes)), rest)) => {
                    let room = BODY_BYTES_MAX.saturating_sub(body.len());
                    body.extend(bytes.iter().take(room));
                    if body.len() >= BODY_BYTES_MAX {
                        return body;
                    }
                    enough = rest;
                }
                Either::Left((Some(Err(_)) | None, _)) | Either::Right(_) => return body,
            }
        }
    }
}
