//! A store that fails or vanishes at a given transaction, and tells what was asked of it in which order.
//!
//! Keeps true: a kill looks like the end of a process: what was asked for never comes back, and nothing is stored behind
//! it; what was stored before is whole in the store below; every transaction, barrier and mark stands in one order.
//!
//! Must not know: who writes, what is tested.
//!
//! # Counting
//!
//! TX1 is the first transaction that counts. Three kinds do not, and are called side commits: those that only append
//! frames of a reply, only keep the progress or the memos of a call; the one that makes a lane; one that only names the
//! session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::count::{counts, describe, is_side_of};
use crate::model::{Entry, EntryId, UsageRow, Write};
use crate::port::{BranchScan, Committed, EntryScan, ListPage, Stats, Store, StoreError};

/// The name that errors of this store give to their file.
const FILE: &str = "fault store";

/// Something that was asked of a [`FaultStore`] and done.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A transaction, and the n of `TXn` if it counts.
    Commit { number: Option<usize>, writes: Vec<Write> },
    /// A barrier that returned.
    Sync,
    /// A mark of the test.
    Note(String),
}

/// What happens at a transaction or a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    KillBefore(usize),
    KillAfter(usize),
    FailCommit(usize),
    FailSync(usize),
}

type Callback = Box<dyn FnOnce() + Send>;

/// Wraps a store. The test drives its work beside [`FaultStore::killed`], drops the work when that comes first, and goes
/// on with what [`FaultStore::surviving`] gives.
pub struct FaultStore {
    inner: Arc<dyn Store>,
    state: Mutex<State>,
    killed: CancellationToken,
}

#[derive(Default)]
struct State {
    steps: Vec<Step>,
    /// Transactions that count, and barriers, as they were asked for.
    asked: usize,
    asked_syncs: usize,
    faults: Vec<Fault>,
    /// Side commits of a namespace that are let through, and then no more; of another one none is.
    asides: Vec<(String, usize)>,
    broken_asides: Vec<String>,
    callbacks: Vec<(usize, Callback)>,
    /// What transactions that were made wait for.
    holds: Vec<(usize, BoxFuture<'static, ()>)>,
    side_holds: Vec<(String, BoxFuture<'static, ()>)>,
    /// Why nothing more is stored.
    dead: Option<String>,
}

/// What was decided about a transaction before it is made.
struct Planned {
    number: Option<usize>,
    kill_before: bool,
    kill_after: bool,
    fails: bool,
}

impl std::fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultStore").field("killed", &self.killed.is_cancelled()).finish_non_exhaustive()
    }
}

impl FaultStore {
    /// Does nothing but count, until it is told to.
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { inner, state: Mutex::default(), killed: CancellationToken::new() })
    }

    /// The process is killed when `TXn` is asked for, which is not made.
    pub fn kill_before(&self, n: usize) {
        self.state().faults.push(Fault::KillBefore(n));
    }

    /// The process is killed when `TXn` was made, before anyone hears of it.
    pub fn kill_after(&self, n: usize) {
        self.state().faults.push(Fault::KillAfter(n));
    }

    /// The process is killed when the n-th side commit with this namespace was made, such as the first one with
    /// frames.
    pub fn kill_after_side(&self, namespace: &str, n: usize) {
        self.state().asides.push((namespace.to_owned(), n));
    }

    /// `TXn` fails with an error of the system and is not made; nothing is stored behind it.
    pub fn fail_commit(&self, n: usize) {
        self.state().faults.push(Fault::FailCommit(n));
    }

    /// The next side commit with this namespace fails as [`FaultStore::fail_commit`] says.
    pub fn fail_side(&self, namespace: &str) {
        self.state().broken_asides.push(namespace.to_owned());
    }

    /// The n-th barrier fails with an error of the system; nothing is stored behind it.
    pub fn fail_sync(&self, n: usize) {
        self.state().faults.push(Fault::FailSync(n));
    }

    /// Calls this when `TXn` was made, before who asked for it hears of it, and before a kill there.
    pub fn on_commit(&self, n: usize, call: impl FnOnce() + Send + 'static) {
        self.state().callbacks.push((n, Box::new(call)));
    }

    /// Who asked for `TXn` hears that it was made only behind this, as of a slow disk.
    pub fn hold(&self, n: usize, until: impl Future<Output = ()> + Send + 'static) {
        self.state().holds.push((n, Box::pin(until)));
    }

    /// The same of the next side commit with this namespace.
    pub fn hold_side(&self, namespace: &str, until: impl Future<Output = ()> + Send + 'static) {
        self.state().side_holds.push((namespace.to_owned(), Box::pin(until)));
    }

    /// Kills the process now.
    pub fn kill(&self) {
        self.killed.cancel();
    }

    /// Waits for the kill.
    pub async fn killed(&self) {
        self.killed.cancelled().await;
    }

    /// Whether the process was killed.
    pub fn is_killed(&self) -> bool {
        self.killed.is_cancelled()
    }

    /// The store below, which has what was stored, and no fault.
    pub fn surviving(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inner)
    }

    /// Puts a mark between the steps.
    pub fn note(&self, text: impl Into<String>) {
        self.state().steps.push(Step::Note(text.into()));
    }

    /// How much was done so far.
    pub fn step_count(&self) -> usize {
        self.state().steps.len()
    }

    /// Everything that was done, in order.
    pub fn steps(&self) -> Vec<Step> {
        self.state().steps.clone()
    }

    /// The transactions that count, in order: the first one is TX1.
    pub fn transactions(&self) -> Vec<Vec<Write>> {
        let of = |step: &Step| match step {
            Step::Commit { number: Some(_), writes } => Some(writes.clone()),
            Step::Commit { number: None, .. } | Step::Sync | Step::Note(_) => None,
        };
        self.state().steps.iter().filter_map(of).collect()
    }

    /// How many barriers returned.
    pub fn syncs(&self) -> usize {
        self.state().steps.iter().filter(|step| **step == Step::Sync).count()
    }

    /// Everything that was done as one line each: `TX1 +user branch.tip …`, `side …`, `sync`, and the marks.
    pub fn story(&self) -> Vec<String> {
        let line = |step: &Step| match step {
            Step::Commit { number: Some(number), writes } => format!("TX{number} {}", describe(writes)),
            Step::Commit { number: None, writes } => format!("side {}", describe(writes)),
            Step::Sync => "sync".to_owned(),
            Step::Note(text) => text.clone(),
        };
        self.state().steps.iter().map(line).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A killed process reads nothing.
    fn reads(&self) -> Result<&dyn Store, StoreError> {
        if self.is_killed() { Err(StoreError::Dead("the process was killed".to_owned())) } else { Ok(&*self.inner) }
    }

    /// Whatever a killed process waits for never comes.
    async fn unless_killed(&self) {
        if self.is_killed() {
            std::future::pending::<()>().await;
        }
    }
}

impl State {
    fn alive(&self) -> Result<(), StoreError> {
        self.dead.clone().map_or(Ok(()), |reason| Err(StoreError::Dead(reason)))
    }

    fn plan(&mut self, writes: &[Write]) -> Planned {
        if writes.is_empty() {
            return Planned { number: None, kill_before: false, kill_after: false, fails: false };
        }
        if !counts(writes) {
            let kill_after = self.is_last_aside(writes);
            let fails = self.broken_asides.iter().any(|namespace| is_side_of(writes, namespace));
            return Planned { number: None, kill_before: false, kill_after, fails };
        }
        self.asked += 1;
        let n = self.asked;
        Planned {
            number: Some(n),
            kill_before: self.has(Fault::KillBefore(n)),
            kill_after: self.has(Fault::KillAfter(n)),
            fails: self.has(Fault::FailCommit(n)),
        }
    }

    fn is_last_aside(&mut self, writes: &[Write]) -> bool {
        let mut last = false;
        for (namespace, left) in &mut self.asides {
            if is_side_of(writes, namespace) {
                last |= *left == 1;
                *left = left.saturating_sub(1);
            }
        }
        last
    }

    fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    fn fail(&mut self) -> StoreError {
        let error = StoreError::Io { file: FILE.to_owned(), reason: "a fault of the test".to_owned() };
        self.dead = Some(error.to_string());
        error
    }

    /// Takes the callbacks of a transaction.
    fn callbacks_of(&mut self, number: Option<usize>) -> Vec<Callback> {
        let (now, later) = std::mem::take(&mut self.callbacks).into_iter().partition(|(n, _)| Some(*n) == number);
        self.callbacks = later;
        let now: Vec<(usize, Callback)> = now;
        now.into_iter().map(|(_, call)| call).collect()
    }

    fn hold_of(&mut self, number: Option<usize>, writes: &[Write]) -> Option<BoxFuture<'static, ()>> {
        if let Some(number) = number {
            let at = self.holds.iter().position(|(n, _)| *n == number)?;
            return Some(self.holds.swap_remove(at).1);
        }
        let at = self.side_holds.iter().position(|(namespace, _)| is_side_of(writes, namespace))?;
        Some(self.side_holds.swap_remove(at).1)
    }
}

#[async_trait]
impl Store for FaultStore {
    async fn commit(&self, writes: Vec<Write>) -> Result<Committed, StoreError> {
        self.unless_killed().await;
        let planned = {
            let mut state = self.state();
            state.alive()?;
            let planned = state.plan(&writes);
            if planned.fails {
                return Err(state.fail());
            }
            planned
        };
        if planned.kill_before {
            self.kill();
        }
        self.unless_killed().await;
        let is_something = !writes.is_empty();
        let committed = self.inner.commit(writes.clone()).await;
        let (callbacks, hold) = {
            let mut state = self.state();
            let hold = state.hold_of(planned.number, &writes);
            match &committed {
                Ok(_) if is_something => state.steps.push(Step::Commit { number: planned.number, writes }),
                Ok(_) => {}
                Err(error) => state.dead = Some(error.to_string()),
            }
            (state.callbacks_of(planned.number), hold)
        };
        let woken = !callbacks.is_empty();
        for call in callbacks {
            call();
        }
        if woken {
            // Whoever waited for this moment gets a turn in it.
            tokio::task::yield_now().await;
        }
        if let Some(hold) = hold {
            hold.await;
        }
        if planned.kill_after {
            self.kill();
        }
        self.unless_killed().await;
        committed
    }

    async fn sync(&self) -> Result<(), StoreError> {
        self.unless_killed().await;
        {
            let mut state = self.state();
            state.alive()?;
            state.asked_syncs += 1;
            if state.has(Fault::FailSync(state.asked_syncs)) {
                return Err(state.fail());
            }
        }
        let synced = self.inner.sync().await;
        self.unless_killed().await;
        match &synced {
            Ok(()) => self.state().steps.push(Step::Sync),
            Err(error) => self.state().dead = Some(error.to_string()),
        }
        synced
    }

    fn entries(&self, ids: &[EntryId]) -> Result<Vec<Option<Entry>>, StoreError> {
        self.reads()?.entries(ids)
    }

    fn value(&self, namespace: &str, key: &str) -> Result<Option<Value>, StoreError> {
        self.reads()?.value(namespace, key)
    }

    fn values(&self, namespace: &str, key_prefix: &str) -> Result<Vec<(String, Value)>, StoreError> {
        self.reads()?.values(namespace, key_prefix)
    }

    fn list(&self, namespace: &str, key: &str, cursor: u64, limit: usize) -> Result<ListPage, StoreError> {
        self.reads()?.list(namespace, key, cursor, limit)
    }

    fn branch(&self, scan: &BranchScan) -> Result<Vec<Entry>, StoreError> {
        self.reads()?.branch(scan)
    }

    fn scan_entries(&self, scan: &EntryScan) -> Result<Vec<Entry>, StoreError> {
        self.reads()?.scan_entries(scan)
    }

    fn usage(&self) -> Result<Vec<UsageRow>, StoreError> {
        self.reads()?.usage()
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}
