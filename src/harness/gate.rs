//! The gate of a drive: what may start, and from when on nothing may.
//!
//! Keeps true: nothing starts from the moment an abort was asked for; the token fires only after the abort is durable,
//! so that no reply can be stored as aborted while the operation still counts as running.
//!
//! Must not know: operations, stores.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// One gate for one drive.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    token: CancellationToken,
    durable: watch::Sender<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// An abort is on its way to the store.
    Aborting,
}

/// Nothing starts any more. Whoever gets this waits for [`Gate::durable`] and looks at the operation again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shut;

impl Gate {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State::Open), token: CancellationToken::new(), durable: watch::Sender::new(false) }
    }

    /// Asked directly before anything outside starts, without a wait in between. Gives the token that ends it.
    pub(super) fn admit(&self) -> Result<CancellationToken, Shut> {
        match *self.lock() {
            State::Open => Ok(self.token.clone()),
            State::Aborting => Err(Shut),
        }
    }

    /// Lets nothing start from now on. The abort is not stored yet.
    pub(super) fn begin_abort(&self) {
        *self.lock() = State::Aborting;
    }

    /// The abort is stored: what runs is told to end.
    pub(super) fn signal_abort(&self) {
        self.durable.send_replace(true);
        self.token.cancel();
    }

    /// The abort could not be stored: who waits for it goes on and finds why.
    pub(super) fn give_up(&self) {
        self.durable.send_replace(true);
    }

    /// Waits until the abort is stored.
    pub(super) async fn durable(&self) {
        let mut durable = self.durable.subscribe();
        // The sender lives as long as the gate does.
        let _stored = durable.wait_for(|stored| *stored).await;
    }

    /// Fires after the abort is durable.
    pub(super) fn token(&self) -> &CancellationToken {
        &self.token
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
