//! Signals: the first one ends the run in order, the second one ends the process at once.
//!
//! Keeps true: no signal is missed from [`Signals::install`] on; what comes within [`SAME`] of the first one is the same
//! request, sent to the process and to its group, or as two signals by a system that shuts down or a terminal that
//! closes; one that was ignored when the process started stays ignored; a signal is known ([`noted`]) before what it caused in other processes can be seen here, so that the first
//! cause wins.
//!
//! Must not know: what ending a run takes.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::exit::Signal;
use crate::model::CancelCause;
use crate::port::Clock;
use crate::process::unix;

/// Signals that may wait to be read; more than two change nothing.
const WAITING_MAX: usize = 4;

/// Signals this close to the first one are one request with it: `timeout` signals its child and then the whole group
/// within microseconds, and a shell whose terminal closes within milliseconds. Nobody presses a key twice in this time.
pub(super) const SAME: Duration = Duration::from_millis(100);

/// The signals of this process. Made before anything else, so that none is missed.
pub(super) struct Signals {
    /// With the monotonic time at which it was heard.
    receiver: mpsc::Receiver<(Signal, u64)>,
    /// When the one came that was told first.
    first: Option<u64>,
    /// [`Signals::claim`] told the first one before its turn.
    is_claimed: bool,
    _listeners: tokio::task::JoinSet<()>,
}

impl Signals {
    /// Starts to listen. A signal that was ignored when the process started stays ignored (`nohup`).
    pub(super) fn install(clock: &Arc<dyn Clock>) -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let mut listeners = tokio::task::JoinSet::new();
        for (number, kind, name) in [
            (libc::SIGHUP, SignalKind::hangup(), Signal::Hup),
            (libc::SIGINT, SignalKind::interrupt(), Signal::Int),
            (libc::SIGTERM, SignalKind::terminate(), Signal::Term),
        ] {
            if unix::is_ignored(number) {
                continue;
            }
            unix::note(number)?;
            let mut stream = signal(kind)?;
            let (sender, clock) = (sender.clone(), Arc::clone(clock));
            listeners.spawn(async move {
                // Two that come at once wake a listener once, and are one.
                while stream.recv().await.is_some() {
                    tracing::info!(signal = ?name, "signal");
                    if sender.send((name, clock.monotonic_ms())).await.is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self { receiver, first: None, is_claimed: false, _listeners: listeners })
    }

    /// The next signal. Never ready if all are ignored.
    pub(super) async fn next(&mut self) -> Signal {
        loop {
            let Some((signal, came)) = self.receiver.recv().await else { return std::future::pending().await };
            match self.first {
                Some(first) if u128::from(came.saturating_sub(first)) < SAME.as_millis() => {}
                Some(_) => return signal,
                None => {
                    self.first = Some(came);
                    if !std::mem::take(&mut self.is_claimed) {
                        return signal;
                    }
                }
            }
        }
    }

    /// What [`noted`] tells; [`Signals::next`] will not tell that signal again, if it has not yet.
    pub(super) async fn claim(&mut self) -> Option<CancelCause> {
        let signal = noted_signal().await?;
        self.is_claimed = self.first.is_none();
        Some(cause_of(signal))
    }

    /// Waits for `work`, unless a signal comes first.
    pub(super) async fn unless<T>(&mut self, work: impl Future<Output = T>) -> Result<T, CancelCause> {
        tokio::select! {
            biased;
            signal = self.next() => Err(cause_of(signal)),
            done = work => noted().await.map_or(Ok(done), Err),
        }
    }
}

/// The cause the first signal gives, if one has come, also before [`Signals::next`] tells it. A signal to a whole group
/// reaches this process together with its consequences, such as the end of a server or of a pipe; whoever is about to
/// tell a failure asks here first.
pub(super) async fn noted() -> Option<CancelCause> {
    noted_signal().await.map(cause_of)
}

/// The same at once.
pub(super) fn noted_now() -> Option<CancelCause> {
    first_signal().map(cause_of)
}

async fn noted_signal() -> Option<Signal> {
    // What is on its way may arrive.
    tokio::task::yield_now().await;
    first_signal()
}

fn first_signal() -> Option<Signal> {
    let number = unix::first_noted()?;
    [Signal::Hup, Signal::Int, Signal::Term].into_iter().find(|signal| number_of(*signal) == number)
}

/// The cause a signal gives to an abort.
pub(super) fn cause_of(signal: Signal) -> CancelCause {
    match signal {
        Signal::Hup => CancelCause::Hup,
        Signal::Int => CancelCause::Int,
        Signal::Term => CancelCause::Term,
    }
}

/// The number of a signal.
pub(super) fn number_of(signal: Signal) -> i32 {
    match signal {
        Signal::Hup => libc::SIGHUP,
        Signal::Int => libc::SIGINT,
        Signal::Term => libc::SIGTERM,
    }
}
