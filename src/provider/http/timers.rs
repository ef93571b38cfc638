//! The three limits on a silent server (HTTP-8), as one deadline.
//!
//! Keeps true: traffic costs one look at the clock; a timer is armed again only when it fires or when an earlier
//! deadline appears; the text names the limit that passed (HTTP-9).
//!
//! Must not know: HTTP.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::model::ErrorRecord;
use crate::port::{Clock, Timeouts};
use crate::provider::error::{self, ErrorContext};

/// The limits of one request. Times are milliseconds of the monotonic clock.
pub(super) struct Timers {
    clock: Arc<dyn Clock>,
    limits: Timeouts,
    sent_at: u64,
    /// Set by the response's head.
    byte_at: Option<u64>,
    /// Set by the response's head, then by every model event.
    event_at: Option<u64>,
    seen_event: bool,
    sleep: Option<Armed>,
}

/// A timer and the moment it was made for.
struct Armed {
    deadline: u64,
    sleep: BoxFuture<'static, ()>,
}

/// Which limit passed, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    FirstEvent(Duration),
    Idle(Duration),
    Progress(Duration),
}

impl Timers {
    /// The request is being sent now.
    pub(super) fn start(clock: Arc<dyn Clock>, limits: Timeouts) -> Self {
        let sent_at = clock.monotonic_ms();
        Self { clock, limits, sent_at, byte_at: None, event_at: None, seen_event: false, sleep: None }
    }

    /// The head of the response is here.
    pub(super) fn head(&mut self) {
        let now = self.clock.monotonic_ms();
        self.byte_at = Some(now);
        self.event_at = Some(now);
        // The only moment at which the deadline moves closer; a timer for the old one would come too late.
        self.sleep = None;
    }

    /// Bytes of the body came.
    pub(super) fn byte(&mut self) {
        self.byte_at = Some(self.clock.monotonic_ms());
    }

    /// A model event came out of the bytes.
    pub(super) fn event(&mut self) {
        self.seen_event = true;
        self.event_at = self.byte_at;
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Ready when a limit has passed. Registers the task otherwise.
    pub(super) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<Expired> {
        loop {
            let Some((deadline, expired)) = self.deadline() else { return Poll::Pending };
            // The head of a response brings limits that are shorter than the one that ran before it.
            if self.sleep.as_ref().is_none_or(|armed| armed.deadline > deadline) {
                let left = deadline.saturating_sub(self.clock.monotonic_ms());
                if left == 0 {
                    return Poll::Ready(expired);
                }
                let clock = self.clock.clone();
                let sleep = Box::pin(async move { clock.sleep(Duration::from_millis(left)).await });
                self.sleep = Some(Armed { deadline, sleep });
            }
            if let Some(armed) = &mut self.sleep {
                ready!(armed.sleep.as_mut().poll(cx));
                self.sleep = None;
            }
        }
    }

    /// The limit that passes next.
    fn deadline(&self) -> Option<(u64, Expired)> {
        let first = self.limits.first_event.filter(|_| !self.seen_event);
        let first = first.map(|limit| (after(self.sent_at, limit), Expired::FirstEvent(limit)));
        let idle = self.limits.idle.zip(self.byte_at).map(|(limit, at)| (after(at, limit), Expired::Idle(limit)));
        let progress =
            self.limits.progress.zip(self.event_at).map(|(limit, at)| (after(at, limit), Expired::Progress(limit)));
        // Of equal deadlines the most telling one wins.
        [idle, progress, first].into_iter().flatten().min_by_key(|(deadline, _)| *deadline)
    }
}

impl std::fmt::Debug for Timers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timers").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Expired {
    pub(super) fn record(self, context: &ErrorContext) -> ErrorRecord {
        let text = match self {
            Self::FirstEvent(limit) => format!("first event timeout: no reply for {}", seconds(limit)),
            Self::Idle(limit) => format!("idle timeout: no data for {}", seconds(limit)),
            Self::Progress(limit) => format!("progress timeout: no model event for {}", seconds(limit)),
        };
        let key = match self {
            Self::FirstEvent(_) => "first_event_timeout",
            Self::Idle(_) => "idle_timeout",
            Self::Progress(_) => "progress_timeout",
        };
        error::timeout(context, &text).with_hint(format!("limits.{key} sets this limit"))
    }
}

/// `300 s`, `0.5 s`.
pub(super) fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

fn after(at: u64, limit: Duration) -> u64 {
    at.saturating_add(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use async_trait::async_trait;

    use super::{Expired, Timers, seconds};
    use crate::port::{Clock, Timeouts};
    use crate::provider::error::ErrorContext;

    /// Stands still; a sleep ends at once and moves the time to its end.
    #[derive(Default)]
    struct Jump(AtomicU64);

    #[async_trait]
    impl Clock for Jump {
        fn now_ms(&self) -> u64 {
            self.monotonic_ms()
        }

        fn monotonic_ms(&self) -> u64 {
            self.0.load(Ordering::SeqCst)
        }

        async fn sleep(&self, duration: Duration) {
            self.0.fetch_add(u64::try_from(duration.as_millis()).unwrap(), Ordering::SeqCst);
        }
    }

    const LIMITS: Timeouts = Timeouts {
        connect: None,
        first_event: Some(Duration::from_secs(600)),
        idle: Some(Duration::from_secs(300)),
        progress: Some(Duration::from_secs(400)),
    };

    fn expired(timers: &mut Timers) -> Option<Expired> {
        match timers.poll_expired(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(expired) => Some(expired),
            Poll::Pending => None,
        }
    }

    #[test]
    fn each_limit_runs_from_its_own_moment() {
        let clock = Arc::new(Jump::default());
        let mut timers = Timers::start(clock.clone(), LIMITS);
        assert_eq!(expired(&mut timers), Some(Expired::FirstEvent(Duration::from_secs(600))));
        timers.head();
        timers.event();
        assert_eq!(expired(&mut timers), Some(Expired::Idle(Duration::from_secs(300))));
        // Bytes without events: the progress limit passes first.
        clock.0.fetch_add(90_000, Ordering::SeqCst);
        timers.byte();
        assert_eq!(expired(&mut timers), Some(Expired::Progress(Duration::from_secs(400))));
    }

    /// A sleep never ends; the time is moved by hand.
    #[derive(Default)]
    struct Hand(AtomicU64);

    #[async_trait]
    impl Clock for Hand {
        fn now_ms(&self) -> u64 {
            self.monotonic_ms()
        }

        fn monotonic_ms(&self) -> u64 {
            self.0.load(Ordering::SeqCst)
        }

        async fn sleep(&self, duration: Duration) {
            let end = self.monotonic_ms() + u64::try_from(duration.as_millis()).unwrap();
            std::future::poll_fn(|_| if self.monotonic_ms() >= end { Poll::Ready(()) } else { Poll::Pending }).await;
        }
    }

    #[test]
    fn a_limit_that_begins_with_the_head_does_not_wait_for_a_longer_one_net_12() {
        let clock = Arc::new(Hand::default());
        let mut timers = Timers::start(clock.clone(), LIMITS);
        assert_eq!(expired(&mut timers), None, "the wait for the head has armed the timer of the first event");
        clock.0.store(1_000, Ordering::SeqCst);
        timers.head();
        assert_eq!(expired(&mut timers), None);
        clock.0.store(301_000, Ordering::SeqCst);
        assert_eq!(expired(&mut timers), Some(Expired::Idle(Duration::from_secs(300))));
    }

    #[test]
    fn no_limit_never_expires() {
        let none = Timeouts { connect: None, first_event: None, idle: None, progress: None };
        let mut timers = Timers::start(Arc::new(Jump::default()), none);
        timers.head();
        assert_eq!(expired(&mut timers), None);
    }

    #[test]
    fn the_text_names_limit_and_length() {
        for (expired, text) in [
            (Expired::Idle(Duration::from_secs(300)), "idle timeout: no data for 300 s"),
            (Expired::FirstEvent(Duration::from_secs(600)), "first event timeout: no reply for 600 s"),
            (Expired::Progress(Duration::from_secs(1800)), "progress timeout: no model event for 1800 s"),
        ] {
            let record = expired.record(&ErrorContext::default());
            assert_eq!(record.message, text);
            assert!(record.retryable);
        }
        assert_eq!(seconds(Duration::from_millis(500)), "0.5 s");
    }
}
