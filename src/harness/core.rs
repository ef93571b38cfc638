//! The one line on which a session changes: every decision is a job on it, which reads, plans, commits and publishes.
//!
//! Keeps true: jobs run one after another; a job makes at most one commit; memory changes only after the commit, and
//! events come to be in the order of commits; after a failed commit nothing more is written.
//!
//! Must not know: what a job decides, providers, tools.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::{Fault, OpenError};
use super::gate::Gate;
use super::memory::{LaneMemory, Open};
use super::options::Options;
use super::phase::Facts;
use super::plan::Plan;
use super::publish::Bus;
use super::restore;
use crate::model::session::namespace;
use crate::model::{EntryId, Event, RetryPolicy, RunId, StoredOptions};
use crate::port::{Credential, Hooks, Stats, Tool};
use crate::turn::ActiveTool;

/// What all handles on a session share.
pub(super) struct Core {
    pub(super) options: Options,
    pub(super) bus: Arc<Bus>,
    /// Held by the job that runs.
    line: tokio::sync::Mutex<Line>,
    /// Changed by jobs, and by the fault or the close that ends them; who only looks needs none.
    memory: Mutex<Memory>,
    pub(super) drives: Mutex<BTreeMap<String, Arc<Gate>>>,
    pub(super) tools: Mutex<Vec<ActiveTool>>,
    pub(super) hooks: Mutex<Vec<Arc<dyn Hooks>>>,
    /// Warnings that this process has told, by operation and code.
    warned: Mutex<HashSet<(RunId, &'static str)>>,
    retry: RetryPolicy,
    stored_options: StoredOptions,
    /// Milliseconds since 1970.
    pub(super) held_since: u64,
}

/// What only jobs know.
#[derive(Debug, Default)]
struct Line {
    /// A commit was begun whose end nobody saw: memory may be behind the store.
    stale: bool,
}

/// The session as this process knows it.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) lanes: BTreeMap<String, LaneMemory>,
    pub(super) stats: Stats,
    pub(super) fault: Option<Fault>,
    pub(super) closed: bool,
}

impl Memory {
    /// Whether anything can still be written.
    fn check(&self) -> Result<(), Halt> {
        match &self.fault {
            Some(fault) => Err(Halt::Fault(fault.clone())),
            None if self.closed => Err(Halt::Closed),
            None => Ok(()),
        }
    }
}

/// Why a job did nothing.
#[derive(Clone, Debug)]
pub(super) enum Halt {
    Fault(Fault),
    Closed,
}

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Core {
    pub(super) fn new(options: Options, lanes: BTreeMap<String, LaneMemory>) -> Arc<Self> {
        let bus = Bus::new(Arc::clone(&options.store));
        let memory = Memory { lanes, stats: options.store.stats(), ..Memory::default() };
        Arc::new(Self {
            bus,
            line: tokio::sync::Mutex::default(),
            memory: Mutex::new(memory),
            drives: Mutex::default(),
            tools: Mutex::new(options.tools.iter().map(|tool| ActiveTool::new(Arc::clone(tool))).collect()),
            hooks: Mutex::new(options.hooks.clone()),
            warned: Mutex::default(),
            retry: options.retry.policy(),
            stored_options: options.stored_options(),
            held_since: options.held_since.unwrap_or_else(|| options.clock.now_ms()),
            options,
        })
    }

    /// Runs one job of a lane: `plan` reads and decides, then its plan is committed and what it tells is queued. The
    /// answer is that of `plan`.
    pub(super) async fn job<T, E: From<Halt>>(
        &self,
        lane: &str,
        plan: impl FnOnce(&LaneMemory, &Facts<'_>) -> Result<(Option<Plan>, T), E>,
    ) -> Result<T, E> {
        let mut line = self.line().await?;
        let (plan, answer) = {
            let memory = self.memory();
            memory.check()?;
            let Some(memory) = memory.lanes.get(lane) else {
                return Err(Halt::Fault(Fault::broken(format!("there is no lane {lane:?}"))).into());
            };
            let leftovers = || self.leftovers(memory);
            let has_key = |provider: &str| matches!(self.options.models.credential(provider), Credential::Present);
            let facts = Facts {
                now: self.options.clock.now_ms(),
                ids: &*self.options.ids,
                limits: &self.options.limits,
                retry: self.retry,
                options: &self.stored_options,
                projectors: &self.options.projectors,
                leftovers: &leftovers,
                has_key: &has_key,
            };
            plan(memory, &facts)?
        };
        if let Some(plan) = plan
            && let Err(halt) = self.commit(&mut line, lane, plan, None).await
        {
            drop(line);
            self.bus.abandon_unless_told().await;
            return Err(halt.into());
        }
        Ok(answer)
    }

    /// Waits for its turn. Memory is as the store says.
    async fn line(&self) -> Result<tokio::sync::MutexGuard<'_, Line>, Halt> {
        let mut line = self.line.lock().await;
        if line.stale {
            self.refresh()?;
            line.stale = false;
        }
        Ok(line)
    }

    /// Commits a plan of a lane, which may be a new one.
    async fn commit(
        &self,
        line: &mut Line,
        lane: &str,
        mut plan: Plan,
        new: Option<Box<LaneMemory>>,
    ) -> Result<(), Halt> {
        let writes = std::mem::take(&mut plan.writes);
        let rows = Plan::rows(&writes);
        let committed = if writes.is_empty() {
            None
        } else {
            line.stale = true;
            match self.options.store.commit(writes).await {
                Ok(committed) => {
                    line.stale = false;
                    self.bus.committed();
                    Some(committed)
                }
                Err(error) => return Err(self.fault(Fault::of_store(&error))),
            }
        };
        let mut memory = self.memory();
        let Memory { lanes, stats, .. } = &mut *memory;
        lanes.extend(new.map(|new| (lane.to_owned(), *new)));
        let Some(lane) = lanes.get_mut(lane) else { return Ok(()) };
        if let Some(committed) = &committed {
            stats.clone_from(&committed.stats);
        }
        let name = Arc::clone(&lane.name);
        for (recovery, event) in plan.apply(lane, rows, committed.as_ref()) {
            self.bus.push(&name, recovery, event);
        }
        Ok(())
    }

    /// Ends the session for writing, and says so on every lane.
    fn fault(&self, fault: Fault) -> Halt {
        let lanes: Vec<Arc<str>> = {
            let mut memory = self.memory();
            memory.fault = Some(fault.clone());
            memory.lanes.values().map(|lane| Arc::clone(&lane.name)).collect()
        };
        self.shut_gates();
        for lane in lanes {
            let event = Event::Fault { error: fault.record() };
            self.bus.push(&lane, false, event);
        }
        Halt::Fault(fault)
    }

    /// Nothing starts any more, and what runs is told to end.
    fn shut_gates(&self) {
        self.drives().values().for_each(|gate| gate.shut());
    }

    /// Everything committed so far is on the disk when it returns. If that fails, the session has ended for writing.
    pub(super) async fn barrier(&self) -> Result<(), Halt> {
        match self.bus.barrier().await {
            Ok(()) => Ok(()),
            Err(fault) => Err(self.stop_and_tell(fault).await),
        }
    }

    /// Tells what waits, unless somebody tells already, who then tells this, too.
    pub(super) async fn nudge(&self) -> Result<(), Halt> {
        match self.bus.nudge().await {
            Ok(()) => Ok(()),
            Err(fault) => Err(self.stop_and_tell(fault).await),
        }
    }

    async fn stop_and_tell(&self, fault: Fault) -> Halt {
        let fault = self.stop(fault).await;
        self.bus.abandon_unless_told().await;
        Halt::Fault(fault)
    }

    /// Stops the session because of something that is not a commit. The first fault counts.
    pub(super) async fn stop(&self, fault: Fault) -> Fault {
        let _alone = self.line.lock().await;
        let earlier = self.memory().fault.clone();
        earlier.unwrap_or_else(|| {
            self.fault(fault.clone());
            fault
        })
    }

    /// Nothing is written or started from now on, and what runs is told to end.
    pub(super) async fn close(&self) {
        let _alone = self.line.lock().await;
        self.memory().closed = true;
        self.shut_gates();
    }

    /// Adds a lane with the transaction that makes it.
    pub(super) async fn add_lane<E: From<Halt>>(
        &self,
        lane: LaneMemory,
        plan: impl FnOnce(&LaneMemory, &Memory) -> Result<Plan, E>,
    ) -> Result<(), E> {
        let mut line = self.line().await?;
        let plan = {
            let memory = self.memory();
            memory.check()?;
            plan(&lane, &memory)?
        };
        let name = lane.name.to_string();
        if let Err(halt) = self.commit(&mut line, &name, plan, Some(Box::new(lane))).await {
            drop(line);
            self.bus.abandon_unless_told().await;
            return Err(halt.into());
        }
        Ok(())
    }

    /// Memory as the store says, after a commit nobody saw the end of.
    fn refresh(&self) -> Result<(), Halt> {
        let found = restore::lanes(&*self.options.store).map_err(|error| match &error {
            OpenError::Storage(error) => Halt::Fault(Fault::of_store(error)),
            _ => Halt::Fault(Fault::broken(error.to_string())),
        })?;
        for name in
            found.iter().filter(|(_, lane)| lane.operation.as_ref().is_some_and(Open::cancelled)).map(|(name, _)| name)
        {
            // Who asked for its end was dropped before it knew of that.
            if let Some(gate) = self.drives().get(name) {
                gate.shut();
            }
        }
        let mut memory = self.memory();
        for (name, mut lane) in found {
            if let Some(old) = memory.lanes.get(&name) {
                lane.stream = old.stream.clone();
            }
            memory.lanes.insert(name, lane);
        }
        memory.stats = self.options.store.stats();
        // What was found may not be synced.
        self.bus.committed();
        Ok(())
    }

    /// Whether an entry stands in the tree. Asked in a job, where nothing is being placed meanwhile.
    pub(super) fn is_stored(&self, id: &EntryId) -> Result<bool, Fault> {
        let found = self.options.store.entries(std::slice::from_ref(id)).map_err(|error| Fault::of_store(&error))?;
        Ok(matches!(found.first(), Some(Some(_))))
    }

    /// Registers of the lane's open operation that are there beside its meta and state.
    fn leftovers(&self, memory: &LaneMemory) -> Result<Vec<(&'static str, String)>, Fault> {
        let Some(open) = &memory.operation else { return Ok(Vec::new()) };
        let prefix = format!("{}:", open.id());
        let mut found = Vec::new();
        for namespace in [namespace::TOOL_ARGS, namespace::TOOL_MEMO, namespace::TOOL_OUTPUT] {
            let keys = self.options.store.values(namespace, &prefix).map_err(|error| Fault::of_store(&error))?;
            found.extend(keys.into_iter().map(|(key, _)| (namespace, key)));
        }
        Ok(found)
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn drives(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Gate>>> {
        self.drives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tools(&self) -> MutexGuard<'_, Vec<ActiveTool>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn warned(&self) -> MutexGuard<'_, HashSet<(RunId, &'static str)>> {
        self.warned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hooks of this moment, in their order.
    pub(super) fn hooks(&self) -> Vec<Arc<dyn Hooks>> {
        self.hooks_mut().clone()
    }

    pub(super) fn hooks_mut(&self) -> MutexGuard<'_, Vec<Arc<dyn Hooks>>> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find_tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.tools().iter().find(|active| active.tool.spec().name == name).map(|active| Arc::clone(&active.tool))
    }
}
