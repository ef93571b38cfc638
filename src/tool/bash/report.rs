//! Progress of a running command (tool rule B11).
//!
//! Keeps true: the first report comes at once; then at most one every 100 ms and 100 KiB a second, always of the latest
//! state; a changed view is marked as a checkpoint every 2 s; a slow reader of reports slows nobody but the reports.
//!
//! Must not know: what is printed, when the command is over.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::pump::{Feed, Progress};
use super::text;
use crate::port::{Clock, Updates};

/// Milliseconds between two reports.
const EVERY_MS: u64 = 100;
/// Bytes of reports in a second.
const BYTES_PER_S: u64 = 100 << 10;
/// Milliseconds between two checkpoints.
const CHECKPOINT_MS: u64 = 2_000;
/// How long the last report may wait for its reader.
const FLUSH_WAIT: Duration = Duration::from_millis(100);

/// Decides when a report is due. Times are monotonic milliseconds.
#[derive(Debug)]
struct Pace {
    /// The version of the last report, and of the last checkpoint.
    reported: u64,
    kept: u64,
    report_ms: u64,
    checkpoint_ms: u64,
}

impl Pace {
    fn new(now: u64) -> Self {
        Self { reported: 0, kept: 0, report_ms: now, checkpoint_ms: now + CHECKPOINT_MS }
    }

    /// When the view of this version is to be reported; `None` if there is nothing new about it.
    fn due(&self, version: u64) -> Option<u64> {
        if version != self.reported {
            Some(self.report_ms)
        } else if version != self.kept {
            Some(self.checkpoint_ms.max(self.report_ms))
        } else {
            None
        }
    }

    /// A report is made now. Returns whether it is a checkpoint.
    fn report(&mut self, version: u64, now: u64, bytes: usize) -> bool {
        self.reported = version;
        let cost = (bytes as u64).saturating_mul(1_000).div_ceil(BYTES_PER_S);
        self.report_ms = now + EVERY_MS.max(cost);
        let is_checkpoint = now >= self.checkpoint_ms;
        if is_checkpoint {
            self.kept = version;
            self.checkpoint_ms = now + CHECKPOINT_MS;
        }
        is_checkpoint
    }
}

/// Reports the progress of one command.
pub(super) struct Reporter {
    feed: Arc<Feed>,
    progress: watch::Receiver<Progress>,
    updates: Updates,
    clock: Arc<dyn Clock>,
    pace: Pace,
    /// Somebody listens.
    is_heard: bool,
}

impl Reporter {
    pub(super) fn new(feed: Arc<Feed>, updates: Updates, clock: Arc<dyn Clock>) -> Self {
        let (progress, pace) = (feed.progress(), Pace::new(clock.monotonic_ms()));
        Self { feed, progress, updates, clock, pace, is_heard: true }
    }

    /// Reports until it is dropped.
    pub(super) async fn run(&mut self) -> Infallible {
        while self.is_heard {
            let version = self.progress.borrow_and_update().version;
            let now = self.clock.monotonic_ms();
            match self.pace.due(version) {
                Some(due) if due <= now => self.send(version).await,
                Some(due) => tokio::select! {
                    () = self.clock.sleep(Duration::from_millis(due - now)) => {}
                    changed = self.progress.changed() => self.is_heard = changed.is_ok(),
                },
                None => self.is_heard = self.progress.changed().await.is_ok(),
            }
        }
        std::future::pending().await
    }

    /// The last report, if there is something new.
    pub(super) async fn flush(mut self) {
        let version = self.progress.borrow_and_update().version;
        if self.is_heard && version != self.pace.reported {
            let clock = Arc::clone(&self.clock);
            tokio::select! {
                biased;
                () = self.send(version) => {}
                () = clock.sleep(FLUSH_WAIT) => {}
            }
        }
    }

    async fn send(&mut self, version: u64) {
        let shown = self.feed.show();
        let is_checkpoint = self.pace.report(version, self.clock.monotonic_ms(), shown.text.len());
        self.is_heard = self.updates.send(text::progress(shown), is_checkpoint).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{CHECKPOINT_MS, EVERY_MS, Pace};

    #[test]
    fn the_first_report_comes_at_once_and_the_others_in_their_time_b11() {
        let mut pace = Pace::new(1_000);
        assert_eq!(pace.due(0), None, "nothing was printed");
        assert_eq!(pace.due(1), Some(1_000));
        assert!(!pace.report(1, 1_000, 10));
        assert_eq!(pace.due(1), Some(1_000 + CHECKPOINT_MS), "what is not kept yet is a checkpoint later");
        assert_eq!(pace.due(5), Some(1_000 + EVERY_MS));
        // Half the bytes of a second take half a second.
        assert!(!pace.report(5, 1_100, 51_200));
        assert_eq!(pace.due(6), Some(1_600));
    }

    #[test]
    fn a_changed_view_is_a_checkpoint_every_two_seconds_b11() {
        let mut pace = Pace::new(0);
        let mut kept = Vec::new();
        for now in (0..10_000).step_by(100) {
            // Printed until 7 s.
            let version = 1 + now.min(7_000) / 100;
            if pace.due(version).is_some_and(|due| due <= now) && pace.report(version, now, 1) {
                kept.push(now);
            }
        }
        assert_eq!(kept, [2_000, 4_000, 6_000, 8_000]);
        assert_eq!(pace.due(71), None);
    }
}
