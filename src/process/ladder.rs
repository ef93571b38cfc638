//! The way groups are ended: TERM to all at once, one grace, KILL to what is left (B4).
//!
//! Keeps true: all children share one grace, counted from when each was first asked; what ends early ends the wait; a
//! walk of the process table never blocks the runtime and never lasts longer than its limit.
//!
//! Must not know: why they are ended.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;

use super::group::Group;
use super::table::Table;
use crate::port::Clock;

/// First and longest pause between two looks at a group.
const POLL_MIN: Duration = Duration::from_millis(2);
const POLL_MAX: Duration = Duration::from_millis(25);
/// How long killed processes may take to disappear: one that waits for a broken disk never does.
const KILL_WAIT: Duration = Duration::from_millis(400);
/// The longest a walk of the process table may take.
const WALK_WAIT: Duration = Duration::from_secs(2);

/// Runs what blocks on a thread that may; `None` if it takes longer than [`WALK_WAIT`] or the runtime is ending.
pub(super) async fn blocking<T: Send + 'static>(
    clock: &dyn Clock,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    tokio::select! {
        biased;
        done = tokio::task::spawn_blocking(work) => done.ok(),
        () = clock.sleep(WALK_WAIT) => None,
    }
}

/// The process table, read on a thread that may block.
pub(super) async fn table(clock: &dyn Clock) -> Option<Table> {
    blocking(clock, Table::read).await?.ok()
}

struct Rung {
    group: Arc<Group>,
    deadline_ms: u64,
    is_killed: bool,
}

/// Ends groups. Returns whether any of them had to be killed.
pub(super) async fn end(clock: &dyn Clock, groups: &[Arc<Group>], grace: Duration) -> bool {
    let now = clock.monotonic_ms();
    let mut pending: Vec<Rung> = groups
        .iter()
        .map(|group| {
            let deadline_ms = group.ask(now).saturating_add(millis(grace));
            Rung { group: Arc::clone(group), deadline_ms, is_killed: false }
        })
        .collect();
    let mut killed = false;
    let mut pause = POLL_MIN;
    // Ends: each rung is killed at its deadline, and dropped at the one after that.
    loop {
        keep_running(clock, &mut pending).await;
        let now = clock.monotonic_ms();
        pending.retain(|rung| !(rung.is_killed && rung.deadline_ms <= now));
        for rung in pending.iter_mut().filter(|rung| !rung.is_killed && rung.deadline_ms <= now) {
            rung.group.signal(Signal::KILL);
            rung.is_killed = true;
            rung.deadline_ms = now.saturating_add(millis(KILL_WAIT));
            killed = true;
            pause = POLL_MIN;
        }
        let Some(next) = pending.iter().map(|rung| rung.deadline_ms).min() else {
            break;
        };
        let until = Duration::from_millis(next.saturating_sub(now).max(1));
        clock.sleep(pause.min(until)).await;
        pause = pause.saturating_mul(2).min(POLL_MAX);
    }
    // Nothing was seen any more; where little can be seen, this is what ends the rest.
    for group in groups {
        group.signal(Signal::KILL);
    }
    killed
}

/// Drops the rungs whose groups are gone. The table is read only when a leader has ended, since a group that is led is
/// not gone.
async fn keep_running(clock: &dyn Clock, pending: &mut Vec<Rung>) {
    if pending.iter().all(|rung| rung.group.is_led()) {
        return;
    }
    let table = table(clock).await;
    pending.retain(|rung| !rung.group.is_gone(table.as_ref()));
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
