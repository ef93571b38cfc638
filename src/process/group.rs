//! One child with the group it leads.
//!
//! Keeps true: the group is signalled only while its number cannot have gone to others. So a child that has ended is not
//! reaped before the group is done with: as long as it waits, the system gives its number to nobody else.
//!
//! Must not know: why the child runs.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus};

use super::spec::Exited;
use super::table::{Table, signal_group};

/// Whose the group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Somebody holds the `Child`.
    Owned,
    /// Its owner dropped it; what is left of it is to be killed and reaped.
    Abandoned,
    /// The child's descendants may run until shutdown.
    Released,
    /// They may run on after us.
    Left,
}

#[derive(Clone, Copy, Debug)]
enum Leader {
    Running,
    /// Ended and kept, so that its number stays taken.
    Ended(Exited),
    Reaped(Exited),
    /// Somebody else reaped it; how it ended is unknown, and its number may be anybody's.
    Lost,
}

#[derive(Debug)]
struct State {
    leader: Leader,
    fate: Fate,
    /// When the group was first asked to end, in monotonic milliseconds.
    asked_ms: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: Pid,
    pub(super) call_id: Option<String>,
    pub(super) label: String,
    state: Mutex<State>,
}

impl Group {
    pub(super) fn new(id: Pid, call_id: Option<String>, label: String) -> Self {
        let state = State { leader: Leader::Running, fate: Fate::Owned, asked_ms: None };
        Self { id, call_id, label, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn number(&self) -> u32 {
        self.id.as_raw_nonzero().get().cast_unsigned()
    }

    pub(super) fn fate(&self) -> Fate {
        self.state().fate
    }

    pub(super) fn set_fate(&self, fate: Fate) {
        self.state().fate = fate;
    }

    /// How the child ended, if it has.
    ///
    /// # Errors
    /// Somebody else in this process reaped it.
    pub(super) fn ended(&self) -> io::Result<Option<Exited>> {
        let mut state = self.state();
        look(self.id, &mut state);
        match state.leader {
            Leader::Running => Ok(None),
            Leader::Ended(exited) | Leader::Reaped(exited) => Ok(Some(exited)),
            Leader::Lost => Err(io::Error::from_raw_os_error(libc::ECHILD)),
        }
    }

    /// Takes notice of an ended child, which frees its number: nothing is signalled from then on. Returns whether the
    /// group is done with.
    pub(super) fn reap(&self) -> bool {
        let mut state = self.state();
        look(self.id, &mut state);
        if let Leader::Ended(exited) = state.leader {
            // It has ended, so this does not wait.
            state.leader = match wait(self.id, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
                Ok(_) => Leader::Reaped(exited),
                Err(_) => Leader::Lost,
            };
        }
        matches!(state.leader, Leader::Reaped(_) | Leader::Lost)
    }

    /// Signals the whole group. A group without processes takes it silently.
    pub(super) fn signal(&self, signal: Signal) {
        // The lock is held meanwhile, so that nobody reaps the leader between the check and the signal.
        let mut state = self.state();
        look(self.id, &mut state);
        self.signal_locked(&state, signal);
    }

    fn signal_locked(&self, state: &State, signal: Signal) {
        if matches!(state.leader, Leader::Running | Leader::Ended(_)) {
            signal_group(self.id, signal);
        }
    }

    /// Asks the group to end, once. Returns when it was first asked. Stopped processes are let go on, to hear it.
    pub(super) fn ask(&self, now_ms: u64) -> u64 {
        let mut state = self.state();
        look(self.id, &mut state);
        if let Some(asked) = state.asked_ms {
            return asked;
        }
        state.asked_ms = Some(now_ms);
        self.signal_locked(&state, Signal::TERM);
        self.signal_locked(&state, Signal::CONT);
        now_ms
    }

    /// Whether the child itself still runs.
    pub(super) fn is_led(&self) -> bool {
        let mut state = self.state();
        look(self.id, &mut state);
        matches!(state.leader, Leader::Running)
    }

    /// Whether nobody of the group runs any more, as far as can be seen.
    pub(super) fn is_gone(&self, table: Option<&Table>) -> bool {
        if self.is_led() {
            return false;
        }
        match table {
            Some(table) => table.members(self.number()).next().is_none(),
            // Linux without `/proc` shows nothing: the ended leader would count. Other systems leave ended processes out.
            None => cfg!(target_os = "linux") || rustix::process::test_kill_process_group(self.id).is_err(),
        }
    }
}

/// Takes note of a leader that has ended, and leaves it unreaped.
fn look(id: Pid, state: &mut State) {
    if !matches!(state.leader, Leader::Running) {
        return;
    }
    match wait(id, WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT) {
        Ok(None) => {}
        Ok(Some(status)) => {
            let exited = Exited { code: status.exit_status(), signal: status.terminating_signal() };
            state.leader = Leader::Ended(exited);
        }
        Err(_) => state.leader = Leader::Lost,
    }
}

fn wait(id: Pid, options: WaitIdOptions) -> rustix::io::Result<Option<WaitIdStatus>> {
    // No handler of ours interrupts system calls, but one of an embedding program may.
    rustix::io::retry_on_intr(|| rustix::process::waitid(WaitId::Pid(id), options))
}

/// Reaps a process by its number if it is an ended child of ours.
pub(super) fn reap_child(id: u32) {
    if let Some(id) = super::table::pid(id) {
        match wait(id, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            // It fails for one that is no child of ours.
            Ok(_) | Err(_) => {}
        }
    }
}
