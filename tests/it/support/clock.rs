//! A clock for tests of things that must not depend on how busy the machine is.

use std::time::Duration;

use async_trait::async_trait;
use pirn::port::{Clock, SystemClock};

/// Tells the real time, but its sleeps never end: no limit passes.
#[derive(Default)]
pub(crate) struct Patient(SystemClock);

#[async_trait]
impl Clock for Patient {
    fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }

    fn monotonic_ms(&self) -> u64 {
        self.0.monotonic_ms()
    }

    async fn sleep(&self, _duration: Duration) {
        std::future::pending::<()>().await;
    }
}
