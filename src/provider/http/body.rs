//! The body of a response, with timers and a size limit.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::{Either, poll_fn, select};

use super::failure;
use super::timers::Timers;
use crate::model::{ErrorKind, ErrorRecord};

/// Bytes of one decoded body (SSE-12).
pub(super) const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes kept of the body of an error answer; servers put a few hundred there, proxies a page.
pub(super) const ERROR_BYTES_MAX: usize = 256 * 1024;
/// How long the body of an error answer is waited for.
const ERROR_WAIT: Duration = Duration::from_secs(10);
/// How long the end of a body is waited for after the reply is complete, so that its connection can be used again.
const END_WAIT: Duration = Duration::from_millis(10);

type Chunks = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>;

/// Decoded bytes as they arrive. Dropping it closes the connection, or resets the HTTP/2 stream (STREAM-10).
pub struct ResponseBody {
    chunks: Chunks,
    timers: Timers,
    read: usize,
    limit: usize,
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody").field("read", &self.read).finish_non_exhaustive()
    }
}

impl ResponseBody {
    pub(super) fn new(response: reqwest::Response, timers: Timers) -> Self {
        Self { chunks: Box::pin(response.bytes_stream()), timers, read: 0, limit: BODY_BYTES_MAX }
    }

    /// The next bytes; `None` at the end of the body. Fails when the connection breaks, a limit of silence passes
    /// (HTTP-8) or the body grows too large. After an error nothing more comes.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ErrorRecord>>> {
        match self.chunks.as_mut().poll_next(cx) {
            Poll::Ready(Some(Ok(bytes))) => {
                self.timers.byte();
                self.read = self.read.saturating_add(bytes.len());
                if self.read > self.limit {
                    return Poll::Ready(Some(Err(too_large(self.limit))));
                }
                Poll::Ready(Some(Ok(bytes)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(failure::reading(&error)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self.timers.poll_expired(cx).map(|expired| Some(Err(expired.record()))),
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
                    let room = ERROR_BYTES_MAX.saturating_sub(body.len());
                    body.extend(bytes.iter().take(room));
                    if body.len() >= ERROR_BYTES_MAX {
                        return body;
                    }
                    enough = rest;
                }
                Either::Left((Some(Err(_)) | None, _)) | Either::Right(_) => return body,
            }
        }
    }
}

fn too_large(limit: usize) -> ErrorRecord {
    let text = format!("the reply is larger than {} MiB", limit / (1024 * 1024));
    ErrorRecord::new(ErrorKind::StreamTooLarge, text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use super::{ResponseBody, Timers};
    use crate::model::ErrorKind;
    use crate::port::{SystemClock, Timeouts};

    #[test]
    fn a_body_may_reach_the_limit_but_not_pass_it() {
        let none = Timeouts { connect: None, first_event: None, idle: None, progress: None };
        for (size, fits) in [(9, true), (10, true), (11, false)] {
            let response = reqwest::Response::from(hyper::http::Response::new(vec![b'x'; size]));
            let timers = Timers::start(Arc::new(SystemClock::new()), none);
            let mut body = ResponseBody::new(response, timers);
            body.limit = 10;
            match body.poll_chunk(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Some(Ok(bytes))) => assert!(fits && bytes.len() == size, "{size}"),
                Poll::Ready(Some(Err(error))) => assert!(!fits && error.kind == ErrorKind::StreamTooLarge, "{size}"),
                other => panic!("{size}: {other:?}"),
            }
        }
    }
}
