//! Time and ids, as the program gets them.
//!
//! Keeps true: nothing else reads a clock or makes an id, so a test that replaces both decides every moment and every
//! id; sleeping is cancel-safe.
//!
//! Must not know: what is timed or named.

use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

/// The only source of time.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Unix milliseconds. May go backwards when the system clock is set.
    fn now_ms(&self) -> u64;
    /// Milliseconds since an arbitrary start; never goes backwards.
    fn monotonic_ms(&self) -> u64;
    /// Waits. Cancel-safe.
    async fn sleep(&self, duration: Duration);
}

/// The only source of ids.
pub trait Ids: Send + Sync {
    /// A fresh UUIDv7, lower case with hyphens; ids of one process increase.
    fn next_id(&self) -> String;
}

/// The operating system's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    started: std::time::Instant,
}

impl SystemClock {
    /// Monotonic time starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the clock port")]
    pub fn new() -> Self {
        Self { started: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock port")]
    fn now_ms(&self) -> u64 {
        // A clock before 1970 reads as 0.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock port")]
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// Random ids in time order.
#[derive(Debug)]
pub struct UuidIds {
    context: Mutex<uuid::ContextV7>,
}

impl UuidIds {
    /// A generator of its own; ids of two generators are not ordered.
    pub fn new() -> Self {
        Self { context: Mutex::new(uuid::ContextV7::new()) }
    }
}

impl Default for UuidIds {
    fn default() -> Self {
        Self::new()
    }
}

impl Ids for UuidIds {
    #[expect(clippy::disallowed_methods, reason = "this is the clock port")]
    fn next_id(&self) -> String {
        let context = self.context.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // A clock before 1970 counts as that.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = uuid::Timestamp::from_unix(&*context, now.as_secs(), now.subsec_nanos());
        uuid::Uuid::new_v7(now).hyphenated().to_string()
    }
}
