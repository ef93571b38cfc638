//! An open session: its lanes, tools, hooks and listeners.
//!
//! Keeps true: opening checks everything and starts nothing; a registration lasts as long as its handle.
//!
//! Must not know: where the session is kept.

use std::collections::HashMap;
use std::sync::Arc;

use super::core::{Core, Halt};
use super::error::{LaneError, OpenError, RegisterError, WriteError};
use super::lane::Lane;
use super::memory::{LaneMemory, StreamState};
use super::options::Options;
use super::plan::Plan;
use super::publish::{Listener, Subscription};
use super::restore;
use crate::model::session::namespace;
use crate::model::{
    Entry, EntryId, Event, LaneConfig, LaneState, MAIN_LANE, NamedValue, OperationResult, RunId, UsageRow,
};
use crate::port::{EntryScan, Hooks, Store, StoreError, Tool};
use crate::turn::ActiveTool;

/// One open session. A clone is another handle on it.
#[derive(Clone, Debug)]
pub struct Harness {
    core: Arc<Core>,
}

/// A lane of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneInfo {
    pub name: String,
    pub tip: Option<EntryId>,
    /// The open operation.
    pub operation: Option<RunId>,
}

/// A tool or hook stays registered as long as this lives.
#[must_use = "dropping it takes the registration back"]
pub struct Registration {
    take_back: Option<Box<dyn FnOnce() + Send>>,
}

impl Registration {
    /// It stays as long as the session.
    pub fn forever(mut self) {
        self.take_back = None;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(take_back) = self.take_back.take() {
            take_back();
        }
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration").finish_non_exhaustive()
    }
}

impl Harness {
    /// Opens a session: reads it back and checks it. Lane `main` is made where there is none.
    ///
    /// # Errors
    /// The session contradicts itself, comes from a newer version, can not be read or written, or two tools have one
    /// name.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        for (at, tool) in options.tools.iter().enumerate() {
            let name = &tool.spec().name;
            if options.tools.iter().skip(at + 1).any(|other| other.spec().name == *name) {
                return Err(OpenError::DuplicateTool { name: name.clone() });
            }
        }
        let lanes = restore::lanes(&*options.store)?;
        let needs_main = !lanes.contains_key(MAIN_LANE);
        let config = options.lane_config.clone();
        let core = Core::new(options, lanes);
        let harness = Self { core };
        if needs_main {
            let tip = restore::tip(&*harness.core.options.store, MAIN_LANE)?;
            harness.make_lane(MAIN_LANE, tip, config, false).await.map_err(|error| match error {
                LaneError::Faulted(fault) => OpenError::Storage(StoreError::Dead(fault.message)),
                other => OpenError::Storage(StoreError::Invalid(other.to_string())),
            })?;
        }
        Ok(harness)
    }

    /// A lane that exists.
    ///
    /// # Errors
    /// It does not.
    pub fn lane(&self, name: &str) -> Result<Lane, LaneError> {
        let memory = self.core.memory();
        let Some(lane) = memory.lanes.get(name) else { return Err(LaneError::Unknown(name.to_owned())) };
        Ok(Lane { core: Arc::clone(&self.core), name: Arc::clone(&lane.name) })
    }

    /// All lanes, by name.
    pub fn lanes(&self) -> Vec<LaneInfo> {
        let memory = self.core.memory();
        let info = |lane: &LaneMemory| LaneInfo {
            name: lane.name.to_string(),
            tip: lane.tip.clone(),
            operation: lane.operation.as_ref().map(|open| open.id().clone()),
        };
        memory.lanes.values().map(info).collect()
    }

    /// Makes a lane at an entry, or at the root.
    ///
    /// # Errors
    /// The name is taken or none, or there is no such entry.
    pub async fn create_lane(&self, name: &str, at: Option<EntryId>, config: LaneConfig) -> Result<Lane, LaneError> {
        if name.is_empty() || name.contains('\0') {
            return Err(LaneError::BadName(name.to_owned()));
        }
        if let Some(id) = &at {
            let found = self.core.options.store.entries(std::slice::from_ref(id));
            let found = found.map_err(|error| Halt::Fault(super::error::Fault::of_store(&error)))?;
            if !matches!(found.first(), Some(Some(_))) {
                return Err(LaneError::UnknownEntry(id.clone()));
            }
        }
        self.make_lane(name, at, config, true).await?;
        self.core.nudge().await?;
        self.lane(name)
    }

    async fn make_lane(
        &self,
        name: &str,
        tip: Option<EntryId>,
        config: LaneConfig,
        told: bool,
    ) -> Result<(), LaneError> {
        let path = restore::path(&*self.core.options.store, tip.as_ref());
        let path = path.map_err(|error| Halt::Fault(super::error::Fault::of_store(&error)))?;
        let memory = LaneMemory {
            name: Arc::from(name),
            tip: tip.clone(),
            config: config.clone(),
            state: LaneState::default(),
            waiting: HashMap::new(),
            operation: None,
            last_result: None,
            path,
            stream: StreamState::default(),
        };
        self.core
            .add_lane(memory, |lane, all| {
                if all.lanes.contains_key(&*lane.name) {
                    return Err(LaneError::Exists(lane.name.to_string()));
                }
                let plan = || {
                    let mut plan = Plan::new(lane);
                    plan.tip_to(tip.clone())?;
                    plan.config(config)?;
                    plan.lane_state(LaneState::default())?;
                    if told {
                        plan.event(Event::LaneCreated { at: tip });
                    }
                    Ok(plan)
                };
                plan().map_err(|fault| Halt::Fault(fault).into())
            })
            .await
    }

    /// Adds a tool, from the next request on.
    ///
    /// # Errors
    /// Another one has its name, or its schema is not usable.
    pub fn register_tool(&self, tool: Arc<dyn Tool>) -> Result<Registration, RegisterError> {
        let name = tool.spec().name.clone();
        let active = ActiveTool::new(tool);
        if let Err(reason) = active.schema() {
            return Err(RegisterError::InvalidSchema { name, reason: reason.to_owned() });
        }
        let mut tools = self.core.tools();
        if tools.iter().any(|active| active.tool.spec().name == name) {
            return Err(RegisterError::DuplicateTool { name });
        }
        tools.push(active);
        drop(tools);
        let core = Arc::downgrade(&self.core);
        Ok(Registration {
            take_back: Some(Box::new(move || {
                if let Some(core) = core.upgrade() {
                    core.tools().retain(|active| active.tool.spec().name != name);
                }
            })),
        })
    }

    /// Adds hooks behind the ones that are there.
    pub fn register_hooks(&self, hooks: Arc<dyn Hooks>) -> Registration {
        self.core.hooks_mut().push(Arc::clone(&hooks));
        let core = Arc::downgrade(&self.core);
        Registration {
            take_back: Some(Box::new(move || {
                if let Some(core) = core.upgrade() {
                    core.hooks_mut().retain(|other| !Arc::ptr_eq(other, &hooks));
                }
            })),
        }
    }

    /// Tells what came to be and is not told yet, such as what was odd about messages that others left.
    ///
    /// # Errors
    /// The session can not be written any more.
    pub async fn flush(&self) -> Result<(), WriteError> {
        Ok(self.core.nudge().await?)
    }

    /// Hears every event from the next one on.
    pub fn subscribe(&self, listener: Arc<dyn Listener>) -> Subscription {
        self.core.bus.subscribe(listener)
    }

    /// The store behind the session, to read from.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.core.options.store
    }

    /// Entries of the tree, of all lanes and branches.
    ///
    /// # Errors
    /// The store can not be read.
    pub fn entries(&self, scan: &EntryScan) -> Result<Vec<Entry>, StoreError> {
        self.core.options.store.scan_entries(scan)
    }

    /// The rows of the ledger, or those that belong to an operation.
    ///
    /// # Errors
    /// The store can not be read.
    pub fn usage(&self, operation: Option<&RunId>) -> Result<Vec<UsageRow>, StoreError> {
        let mut rows = self.core.options.store.usage()?;
        rows.retain(|row| operation.is_none() || row.operation_id.as_ref() == operation);
        Ok(rows)
    }

    /// How the operations of the session ended, the first to begin first.
    ///
    /// # Errors
    /// The store can not be read, or holds something else under that name.
    pub fn results(&self) -> Result<Vec<OperationResult>, StoreError> {
        let found = self.core.options.store.values(namespace::RESULT, "")?;
        let read = |(key, value)| {
            let of = |error: serde_json::Error| StoreError::Invalid(format!("the result of {key}: {error}"));
            serde_json::from_value::<OperationResult>(value).map_err(of)
        };
        let mut results = found.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        results.sort_by_key(|result| result.started_at);
        Ok(results)
    }

    /// Names the session, or takes its name.
    ///
    /// # Errors
    /// The session can not be written any more.
    pub async fn set_name(&self, name: Option<&str>) -> Result<(), WriteError> {
        let value = NamedValue::SessionName(name.map(str::to_owned));
        self.set_value(namespace::SESSION_NAME, "", name, value).await
    }

    /// Labels an entry, or takes its label.
    ///
    /// # Errors
    /// There is no such entry, or the session can not be written any more.
    pub async fn set_label(&self, entry: &EntryId, label: Option<&str>) -> Result<(), WriteError> {
        let found = self.core.options.store.entries(std::slice::from_ref(entry));
        let found = found.map_err(|error| Halt::Fault(super::error::Fault::of_store(&error)))?;
        if !matches!(found.first(), Some(Some(_))) {
            return Err(WriteError::UnknownEntry(entry.clone()));
        }
        let value = NamedValue::EntryLabel { entry_id: entry.clone(), label: label.map(str::to_owned) };
        self.set_value(namespace::ENTRY_LABEL, entry.as_str(), label, value).await
    }

    async fn set_value(
        &self,
        namespace: &str,
        key: &str,
        text: Option<&str>,
        value: NamedValue,
    ) -> Result<(), WriteError> {
        self.core
            .job(MAIN_LANE, |lane, _| {
                let mut plan = Plan::new(lane);
                match text {
                    Some(text) => plan.set(namespace, key, &text)?,
                    None => plan.delete(namespace, key),
                }
                plan.event(Event::ValueUpdate { value });
                Ok::<_, Halt>((Some(plan), ()))
            })
            .await?;
        self.core.nudge().await?;
        Ok(())
    }

    /// Ends the use of the session: what is committed is synced, and nothing more is written.
    ///
    /// # Errors
    /// The last sync failed.
    pub async fn close(self) -> Result<(), StoreError> {
        self.core.close().await;
        self.core.options.store.sync().await
    }
}
