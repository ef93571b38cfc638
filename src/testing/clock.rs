//! A clock on the runtime's time, and ids in sequence.
//!
//! Keeps true: with the runtime's time paused, waits cost nothing and moments are exact.
//!
//! Must not know: what is tested.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use crate::port::{Clock, Ids};

/// Unix milliseconds at which [`RuntimeClock`] starts.
const EPOCH_MS: u64 = 1_790_000_000_000;

/// A clock on the runtime's time, which tests can pause: then waits cost nothing and times are exact.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClock {
    started: tokio::time::Instant,
}

impl RuntimeClock {
    /// Time starts now; for use inside a runtime.
    #[expect(clippy::disallowed_methods, reason = "this is a clock port")]
    pub fn new() -> Self {
        Self { started: tokio::time::Instant::now() }
    }
}

impl Default for RuntimeClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for RuntimeClock {
    fn now_ms(&self) -> u64 {
        EPOCH_MS + self.monotonic_ms()
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    #[expect(clippy::disallowed_methods, reason = "this is a clock port")]
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// Ids in UUID form that count from 1.
#[derive(Debug, Default)]
pub struct SequentialIds(AtomicU64);

impl SequentialIds {
    /// The first id ends in 1.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Ids for SequentialIds {
    fn next_id(&self) -> String {
        let n = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        format!("01900000-0000-7000-8000-{n:012x}")
    }
}
