//! The hunt for processes that left their group: they carry our token, or they were re-parented to us (X4).
//!
//! Keeps true: a process that neither carries our token nor came to us for want of a parent is never touched; neither is
//! one we had for a child before we started any, nor one that was left on purpose; children are reaped by number, never
//! any child at all, which would steal the status of others.
//!
//! Must not know: why it is time.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;

use super::env::{CALL_NAME, TOKEN_NAME};
use super::group::reap_child;
use super::ladder::blocking;
use super::table::{Process, Table, children};
use crate::port::Clock;

/// Rounds of one sweep: a process that forks while it is killed is found in the next.
const ROUNDS_MAX: u32 = 5;
/// The pause behind the first round, doubled behind each: a killed process needs a moment to disappear.
const PAUSE: Duration = Duration::from_millis(5);

/// What there was before the first child of ours. These came with the process, as after `exec` in a shell that had
/// jobs; they are not ours.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    /// Numbers and start times of the children we had.
    children: Vec<(u32, u64)>,
    /// Their sessions and our own. A process cannot join a session, and each child of ours starts a new one, so nothing
    /// in these descends from any.
    sessions: BTreeSet<u32>,
}

impl Before {
    pub(super) fn now() -> Self {
        let own = std::process::id();
        let children = children(own).unwrap_or_else(|| {
            let table = Table::read().unwrap_or_default();
            table.children(own).copied().collect()
        });
        let sessions = children.iter().copied().chain(Process::read(own)).map(|process| process.session);
        Self {
            sessions: sessions.collect(),
            children: children.iter().map(|process| (process.id, process.start_time)).collect(),
        }
    }

    fn includes(&self, process: &Process) -> bool {
        self.sessions.contains(&process.session) || self.children.contains(&(process.id, process.start_time))
    }
}

/// What to look for.
#[derive(Clone, Debug, Default)]
pub(super) struct Hunt {
    pub(super) token: String,
    /// Only the processes of this call.
    pub(super) call_id: Option<String>,
    /// Calls and groups whose processes are left.
    pub(super) left_calls: BTreeSet<String>,
    pub(super) left_groups: BTreeSet<u32>,
    /// Look also for processes that were re-parented to us.
    pub(super) adopted: Option<Adopted>,
}

/// Which children of ours are not adopted ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Adopted {
    pub(super) registered: BTreeSet<u32>,
    pub(super) before: Before,
}

impl Hunt {
    /// Kills what is found and reaps what has ended, once. Blocks. Returns what was found running.
    pub(super) fn round(&self) -> Vec<u32> {
        let Ok(table) = Table::read() else {
            return Vec::new();
        };
        let found = self.find(&table);
        for process in &found {
            process.signal(Signal::KILL);
        }
        if let Some(adopted) = &self.adopted {
            let ended = table.children(std::process::id()).filter(|process| process.is_zombie);
            ended.filter(|process| adopted.includes(process)).for_each(|process| reap_child(process.id));
        }
        found.iter().map(|process| process.id).collect()
    }

    /// What there is to kill.
    pub(super) fn find(&self, table: &Table) -> Vec<Process> {
        let own = std::process::id();
        let (mut found, mut others) = (Vec::new(), Vec::new());
        for process in table.running().filter(|process| process.id != own) {
            match self.judge(process) {
                Verdict::Ours => found.push(*process),
                Verdict::Left => {}
                Verdict::Other => others.push(*process),
            }
        }
        if let Some(adopted) = &self.adopted {
            let roots = others.iter().filter(|process| process.parent == own && adopted.includes(process));
            found.extend(with_descendants(roots.copied().collect(), &others));
        }
        found
    }

    fn judge(&self, process: &Process) -> Verdict {
        if self.left_groups.contains(&process.group) {
            return Verdict::Left;
        }
        let Some(environment) = process.environment() else {
            return Verdict::Other;
        };
        if !environment.has(TOKEN_NAME, &self.token) {
            return Verdict::Other;
        }
        if self.left_calls.iter().any(|call| environment.has(CALL_NAME, call)) {
            return Verdict::Left;
        }
        match &self.call_id {
            Some(call) if !environment.has(CALL_NAME, call) => Verdict::Left,
            Some(_) | None => Verdict::Ours,
        }
    }
}

enum Verdict {
    Ours,
    Left,
    /// It does not carry our token.
    Other,
}

impl Adopted {
    pub(super) fn includes(&self, process: &Process) -> bool {
        !self.registered.contains(&process.id) && !self.before.includes(process)
    }
}

/// Processes and all that descend from them.
fn with_descendants(mut found: Vec<Process>, among: &[Process]) -> Vec<Process> {
    let mut known: BTreeSet<u32> = found.iter().map(|process| process.id).collect();
    let mut at = 0;
    // Ends: each process is added once.
    while let Some(parent) = found.get(at).map(|process| process.id) {
        for child in among.iter().filter(|process| process.parent == parent) {
            if known.insert(child.id) {
                found.push(*child);
            }
        }
        at += 1;
    }
    found
}

/// Sweeps until nothing is found. Returns what was still found in the last round.
pub(super) async fn sweep(clock: &dyn Clock, hunt: Hunt) -> Vec<u32> {
    let mut pause = PAUSE;
    let mut found = Vec::new();
    for round in 0..ROUNDS_MAX {
        if round > 0 {
            clock.sleep(pause).await;
            pause = pause.saturating_mul(2);
        }
        let hunt = hunt.clone();
        found = blocking(clock, move || hunt.round()).await.unwrap_or_default();
        if found.is_empty() {
            break;
        }
    }
    found
}
