//! The gate of a drive: what may start, and from when on nothing may.
//!
//! Keeps true: nothing starts from the moment an abort was asked for; the token fires only after the abort is durable,
//! so that no reply can be stored as aborted while the operation still counts as running.
//!
//! Must not know: operations, stores.

use std::sync::Arc;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// One gate for one drive.
#[derive(Debug)]
pub(super) struct Gate {
    state: watch::Sender<State>,
    token: CancellationToken,
    /// The operation was changed by somebody else than its drive.
    changed: Notify,
    /// An abort was dropped on its way.
    given_up: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// An abort is on its way to the store.
    Aborting,
    /// It is there, or nothing can be stored any more.
    Shut,
}

/// Nothing starts any more. Whoever gets this waits for [`Gate::settled`] and looks at the operation again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shut;

/// An abort on its way. Where it is dropped on the way, the gate opens again.
#[derive(Debug)]
pub(super) struct Underway(Arc<Gate>);

impl Drop for Underway {
    fn drop(&mut self) {
        if self.0.move_from(State::Aborting, State::Open) {
            self.0.given_up.notify_one();
        }
    }
}

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            state: watch::Sender::new(State::Open),
            token: CancellationToken::new(),
            changed: Notify::new(),
            given_up: Notify::new(),
        }
    }

    /// Asked directly before anything outside starts, without a wait in between. Gives the token that ends it.
    pub(super) fn admit(&self) -> Result<CancellationToken, Shut> {
        match *self.state.borrow() {
            State::Open => Ok(self.token.clone()),
            State::Aborting | State::Shut => Err(Shut),
        }
    }

    /// Lets nothing start from now on. The abort is not stored yet.
    pub(super) fn begin_abort(self: &Arc<Self>) -> Underway {
        self.move_from(State::Open, State::Aborting);
        Underway(Arc::clone(self))
    }

    /// The abort is stored, or nothing can be stored any more: what runs is told to end.
    pub(super) fn shut(&self) {
        self.state.send_replace(State::Shut);
        self.token.cancel();
    }

    /// Waits while an abort is on its way to the store.
    pub(super) async fn settled(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as the gate does.
        let _known = state.wait_for(|state| *state != State::Aborting).await;
    }

    /// Nothing starts any more, and what runs was told to end.
    pub(super) fn is_shut(&self) -> bool {
        *self.state.borrow() == State::Shut
    }

    /// Fires after the abort is durable.
    pub(super) fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Wakes the drive where it waits for a time to come.
    pub(super) fn notify_changed(&self) {
        self.changed.notify_one();
    }

    /// Somebody else has changed the operation since this was last waited for.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// An abort was dropped on its way since this was last waited for. It may be stored nevertheless.
    pub(super) async fn given_up(&self) {
        self.given_up.notified().await;
    }

    /// Whether it was there.
    fn move_from(&self, from: State, to: State) -> bool {
        self.state.send_if_modified(|state| {
            let moves = *state == from;
            if moves {
                *state = to;
            }
            moves
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Gate, Shut};

    #[tokio::test]
    async fn an_abort_that_is_dropped_on_its_way_leaves_the_gate_open_and_one_that_is_stored_does_not() {
        let gate = Arc::new(Gate::new());
        let underway = gate.begin_abort();
        assert_eq!(gate.admit().map(drop), Err(Shut));
        let waits = gate.settled();
        drop(underway);
        waits.await;
        assert!(gate.admit().is_ok());
        let underway = gate.begin_abort();
        gate.shut();
        drop(underway);
        gate.settled().await;
        assert_eq!(gate.admit().map(drop), Err(Shut));
        assert!(gate.token().is_cancelled());
    }
}
