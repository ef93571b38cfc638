//! One running child in the hands of who started it.
//!
//! Keeps true: dropping a child kills its group; waiting is cancel-safe and reaps nothing, so that the group can be
//! signalled as long as the child is held.
//!
//! Must not know: what its output means.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::Receiver;

use super::group::{Fate, Group};
use super::ladder;
use super::spec::{Exited, ProcessIdentity};
use super::supervisor::Inner;
use super::sweep::sweep;

/// How long a child may have ended before it is noticed without a signal.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A child. Dropping it kills its group, unless it was released or left.
pub struct Child {
    supervisor: Arc<Inner>,
    group: Arc<Group>,
    identity: ProcessIdentity,
    output: Option<OutputReader>,
    errors: Option<OutputReader>,
    exits: tokio::signal::unix::Signal,
    /// The child has ended and left nobody behind, so that nobody can come any more.
    is_deserted: AtomicBool,
}

impl std::fmt::Debug for Child {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Child").field("label", &self.group.label).field("pid", &self.id()).finish_non_exhaustive()
    }
}

/// What was left when a child was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// How the child itself ended; `None` if it could not be ended.
    pub exited: Option<Exited>,
    /// Whether the grace ran out.
    pub killed: bool,
    /// Processes that could not be ended (X5).
    pub remaining: Vec<u32>,
}

/// The read end of a pipe to a child. It ends when all processes that hold the other end have closed it, which may be
/// long after the child has ended.
#[derive(Debug)]
pub struct OutputReader {
    receiver: Receiver,
}

impl OutputReader {
    pub(super) fn new(reader: io::PipeReader) -> io::Result<Self> {
        Receiver::from_owned_fd(reader.into()).map(|receiver| Self { receiver })
    }
}

impl AsyncRead for OutputReader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.receiver).poll_read(cx, buffer)
    }
}

impl Child {
    pub(super) fn new(
        supervisor: Arc<Inner>,
        group: Arc<Group>,
        identity: ProcessIdentity,
        [output, errors]: [Option<OutputReader>; 2],
        exits: tokio::signal::unix::Signal,
    ) -> Self {
        Self { supervisor, group, identity, output, errors, exits, is_deserted: AtomicBool::new(false) }
    }

    /// The number of the child, its group and its session.
    pub fn id(&self) -> u32 {
        self.group.number()
    }

    /// What a later pirn needs to recognise the child.
    pub fn identity(&self) -> ProcessIdentity {
        self.identity.clone()
    }

    /// Where its output is read; once. Both streams if they are merged.
    pub fn output(&mut self) -> Option<OutputReader> {
        self.output.take()
    }

    /// Where its standard error is read, if it is separate; once.
    pub fn errors(&mut self) -> Option<OutputReader> {
        self.errors.take()
    }

    /// Waits until the child itself has ended; others of its group may run on. Cancel-safe, and answers again when asked
    /// again.
    ///
    /// # Errors
    /// Another part of this program reaped the child.
    pub async fn wait(&mut self) -> io::Result<Exited> {
        loop {
            if let Some(exited) = self.group.ended()? {
                return Ok(exited);
            }
            // An end between the question and this is kept for it. A signal that never comes, since whoever started
            // this process has blocked it, is made up for by asking again.
            tokio::select! {
                _ = self.exits.recv() => {}
                () = self.supervisor.clock.sleep(ASK_AGAIN) => {}
            }
        }
    }

    /// Ends the group: TERM, `grace`, KILL, then what left the group but carries the call's id (B4, X4). Ends early when
    /// nobody of the group runs any more. Dropping the future half-way leaves the group registered.
    pub async fn stop(&mut self, grace: Duration) -> Stopped {
        let groups = [Arc::clone(&self.group)];
        let clock = Arc::clone(&self.supervisor.clock);
        let killed = ladder::end(&*clock, &groups, grace).await;
        let mut remaining = Vec::new();
        if let Some(call_id) = self.group.call_id.as_deref().filter(|_| self.supervisor.sweeps()) {
            remaining = sweep(&*clock, self.supervisor.hunt_call(call_id)).await;
        }
        let members = self.supervisor.settle(&groups).await;
        remaining.extend(members.into_iter().map(|process| process.pid));
        remaining.sort_unstable();
        remaining.dedup();
        // Unknown when another part of this program reaped it.
        let exited = self.group.ended().unwrap_or_default();
        Stopped { exited, killed, remaining }
    }

    /// The numbers of processes that still run: those of the group, and those that left it but carry the call's id (B6).
    /// Sorted. Without `/proc` the group's number stands for its members.
    pub async fn survivors(&self) -> Vec<u32> {
        let hunt = self.group.call_id.as_deref().map(|call_id| self.supervisor.hunt_call(call_id));
        let number = self.id();
        let has_ended = !self.group.is_led();
        let supervisor = Arc::clone(&self.supervisor);
        let seen = ladder::blocking(&*self.supervisor.clock, move || {
            if has_ended && supervisor.has_no_strays() {
                return Some((super::table::Table::default(), Vec::new()));
            }
            let table = super::table::Table::read().ok()?;
            let mut pids: Vec<u32> = table.members(number).map(|process| process.id).collect();
            pids.extend(hunt.iter().flat_map(|hunt| hunt.find(&table)).map(|process| process.id));
            pids.sort_unstable();
            pids.dedup();
            Some((table, pids))
        });
        match seen.await.flatten() {
            Some((table, pids)) => {
                self.is_deserted.store(has_ended && pids.is_empty(), Ordering::Relaxed);
                self.supervisor.forget_released(&table);
                pids
            }
            None if self.group.is_gone(None) => Vec::new(),
            None => vec![number],
        }
    }

    /// Lets what the child left behind run on until the supervisor shuts down.
    pub fn release(self) {
        self.group.set_fate(Fate::Released);
        if self.is_deserted.load(Ordering::Relaxed) {
            self.supervisor.forget(&self.group);
        }
    }

    /// Lets what the child left behind run on after us (`background_at_exit = "leave"`).
    pub fn leave(self) {
        self.group.set_fate(Fate::Left);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.group.fate() != Fate::Owned {
            return;
        }
        self.group.set_fate(Fate::Abandoned);
        self.group.signal(Signal::KILL);
        // One that has not ended yet is reaped when the next child starts, or at the end.
        self.supervisor.forget(&self.group);
    }
}
