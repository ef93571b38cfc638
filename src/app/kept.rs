//! The session of a run: which one it is, opened or made, and what it says about the run.
//!
//! Keeps true: a session is opened, and so locked, before anything is asked of a model; a new one is made last, when
//! everything else is known to be good; nothing is made for a call that is refused; calls that a dead process left open
//! have a result before the session goes on.
//!
//! Must not know: how files are laid out, how a run works.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::recorder::{PROCESS_MEMO, set, storage_error};
use super::resume;
use crate::cli::RunArgs;
use crate::config::{Durability, Env, LockMode, Settings};
use crate::model::session::namespace;
use crate::model::{
    EntryBody, EntryId, ErrorKind, ErrorRecord, LaneConfig, LaneState, MAIN_LANE, Message, RunId, Write,
};
use crate::port::{Clock, Ids, SessionRef, Store, StoreError};
use crate::process::{self, OrphanOutcome, ProcessIdentity};
use crate::session::jsonl::{self, JsonlStore};
use crate::session::memory;
use crate::session::place::{Found, Library, Target, spill_dir};
use crate::session::restore::{MainLane, path_messages};

/// Which session a call is for.
#[derive(Debug)]
pub(super) enum Chosen {
    /// Nothing is kept.
    None,
    New {
        library: Library,
        name: Option<String>,
    },
    Known(Found),
}

/// Finds the session of a call. Makes and locks nothing.
pub(super) fn choose(args: &RunArgs, settings: &Settings, env: &Env, cwd: &Path) -> Result<Chosen, ErrorRecord> {
    let asked = args.resume || args.session.is_some();
    if args.no_session || !(settings.session.persist || asked) {
        return Ok(Chosen::None);
    }
    let library = library(settings, env, cwd).map_err(|error| match (asked, &error.hint) {
        (false, None) => error.with_hint("--no-session keeps nothing and needs no place"),
        _ => error,
    })?;
    match &args.session {
        Some(reference) => match library.resolve(reference, !args.resume)? {
            Target::Existing(found) => Ok(Chosen::Known(found)),
            Target::NewName(name) => Ok(Chosen::New { library, name: Some(name) }),
        },
        None if args.resume => match library.latest_here()? {
            Some(found) => Ok(Chosen::Known(found)),
            None => Err(ErrorRecord::new(ErrorKind::Usage, "no session to continue in this directory")
                .with_hint("pirn \"PROMPT\" starts one; pirn sessions list --all shows those of other directories")),
        },
        None => Ok(Chosen::New { library, name: None }),
    }
}

/// The sessions of this user, seen from a directory.
pub(super) fn library(settings: &Settings, env: &Env, cwd: &Path) -> Result<Library, ErrorRecord> {
    // A relative directory is where the work is done.
    let root = match &settings.session.dir {
        Some(dir) => cwd.join(dir),
        None => env.state_dir()?,
    };
    Ok(Library::new(&root, cwd)?)
}

/// An open session.
pub(super) struct Kept {
    pub(super) store: Arc<dyn Store>,
    /// The same, where it is a file.
    file: Option<Arc<JsonlStore>>,
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) path: Option<PathBuf>,
    pub(super) lane: MainLane,
    /// It existed before this process.
    pub(super) resumed: bool,
    /// Something of a dead process was put in order.
    pub(super) recovered: bool,
    /// Sentences without a final period.
    pub(super) warnings: Vec<String>,
    /// The conversation, oldest first.
    pub(super) conversation: Vec<(EntryId, Arc<Message>)>,
}

impl Kept {
    /// Opens a session that exists, which locks it.
    pub(super) async fn open(found: &Found, settings: &Settings, clock: &Arc<dyn Clock>) -> Result<Self, ErrorRecord> {
        let store = jsonl::open(&found.file, options(settings, clock)).await.map_err(|error| storage_error(&error))?;
        let warnings = store.warnings().to_vec();
        let store = Arc::new(store);
        let lane = MainLane::read(&*store)?;
        let conversation = path_messages(&*store, lane.tip.as_ref()).map_err(|error| storage_error(&error))?;
        Ok(Self {
            id: found.id.clone(),
            name: found.name(),
            path: Some(found.file.clone()),
            lane,
            resumed: true,
            recovered: false,
            warnings,
            conversation,
            store: Arc::clone(&store) as Arc<dyn Store>,
            file: Some(store),
        })
    }

    /// Makes a new session.
    pub(super) async fn create(
        library: &Library,
        name: Option<String>,
        id: String,
        settings: &Settings,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, ErrorRecord> {
        library.prepare(settings.session.durability != Durability::None)?;
        // Two starts with one name: the second one finds the session of the first.
        let lock = match &name {
            Some(_) => Some(library.lock_directory(&**clock).await?),
            None => None,
        };
        if let Some(taken) = &name
            && let Target::Existing(found) = library.resolve(taken, true)?
        {
            drop(lock);
            return Self::open(&found, settings, clock).await;
        }
        let now_ms = clock.now_ms();
        let path = library.new_path(&id, now_ms);
        let header = library.new_header(&id, now_ms);
        let store = jsonl::create(&path, header, options(settings, clock)).await;
        let store = Arc::new(store.map_err(|error| storage_error(&error))?);
        if let Some(name) = &name {
            let write = set(namespace::SESSION_NAME, "", name);
            let stored = match write {
                Ok(write) => store.commit(vec![write]).await.map(drop),
                Err(error) => Err(error),
            };
            stored.map_err(|error| storage_error(&error))?;
        }
        drop(lock);
        Ok(Self {
            id,
            name,
            path: Some(path),
            lane: MainLane::default(),
            resumed: false,
            recovered: false,
            warnings: store.warnings().to_vec(),
            conversation: Vec::new(),
            store: Arc::clone(&store) as Arc<dyn Store>,
            file: Some(store),
        })
    }

    /// A session that ends with the process.
    pub(super) fn in_memory(clock: &Arc<dyn Clock>, id: String) -> Self {
        Self {
            store: Arc::new(memory(Arc::clone(clock))),
            file: None,
            id,
            name: None,
            path: None,
            lane: MainLane::default(),
            resumed: false,
            recovered: false,
            warnings: Vec::new(),
            conversation: Vec::new(),
        }
    }

    /// What tools are told; `None` when nothing is kept.
    pub(super) fn session_ref(&self) -> Option<SessionRef> {
        let path = self.path.as_ref()?;
        Some(SessionRef { id: self.id.clone(), file: Some(path.clone()), spill_dir: spill_dir(path) })
    }

    /// Stores with what configuration the lane works from now on.
    pub(super) async fn configure(&mut self, config: LaneConfig) -> Result<(), StoreError> {
        let mut writes = Vec::new();
        if self.lane.config.is_none() {
            writes.push(set(namespace::BRANCH_TIP, MAIN_LANE, &self.lane.tip)?);
            writes.push(set(namespace::LANE_STATE, MAIN_LANE, &LaneState::default())?);
        }
        if self.lane.config.as_ref() != Some(&config) {
            writes.push(set(namespace::LANE_CONFIG, MAIN_LANE, &config)?);
            self.lane.config = Some(config);
        }
        if writes.is_empty() { Ok(()) } else { self.store.commit(writes).await.map(drop) }
    }

    /// Puts in order what a process left that died in the middle of a run: processes its tools started, and calls
    /// without a result.
    pub(super) async fn recover(
        &mut self,
        clock: &Arc<dyn Clock>,
        ids: &dyn Ids,
        grace: std::time::Duration,
    ) -> Result<(), StoreError> {
        let memos = self.store.values(namespace::TOOL_MEMO, "")?;
        let of_process = |key: &str, value: &Value| {
            let is_process = key.rsplit(':').next() == Some(PROCESS_MEMO);
            is_process.then(|| serde_json::from_value::<ProcessIdentity>(value.clone()).ok()).flatten()
        };
        let recorded = memos.iter().filter_map(|(key, value)| of_process(key, value));
        let left: Vec<ProcessIdentity> = recorded.filter(|identity| identity.pgid != 0).collect();
        // One grace for all.
        let stopping = left.iter().map(|identity| process::stop_orphan(identity, grace, clock));
        let outcomes = futures_util::future::join_all(stopping).await;
        self.warnings.extend(left.iter().zip(&outcomes).filter_map(|(identity, outcome)| told(identity, outcome)));
        // What left the group, or was started when its starter died, carries the id of its call.
        for (key, value) in &memos {
            let call_id = key.split(':').nth(1).unwrap_or_default();
            if let Some(identity) = of_process(key, value)
                && !call_id.is_empty()
            {
                let swept = process::sweep_call(&identity, call_id, clock).await;
                self.warnings.extend(swept_text(&swept));
            }
        }
        let mut writes: Vec<Write> = memos.iter().map(|(key, _)| Write::delete(namespace::TOOL_MEMO, key)).collect();
        let run = memos.first().and_then(|(key, _)| key.split(':').next()).map(RunId::new);
        let mut added = Vec::new();
        for message in resume::interrupted(&self.conversation, clock.now_ms()) {
            let (id, message) = (EntryId::new(ids.next_id()), Arc::new(message));
            let parent_id = added.last().map(|(id, _): &(EntryId, _)| id).or(self.lane.tip.as_ref()).cloned();
            let body = EntryBody::Message { message: Arc::clone(&message), terminate: false };
            writes.push(Write::Entry { id: id.clone(), parent_id, body });
            added.push((id, message));
        }
        if let Some((tip, _)) = added.last() {
            writes.push(set(namespace::BRANCH_TIP, MAIN_LANE, tip)?);
            self.lane.tip = Some(tip.clone());
            let calls = if added.len() == 1 { "call was" } else { "calls were" };
            let of = run.map(|run| format!(" of run {}", crate::model::short_id(run.as_str()))).unwrap_or_default();
            self.warnings.push(format!(
                "{} tool {calls} running when an earlier process{of} ended; whether the work was done is unknown",
                added.len()
            ));
        }
        self.conversation.extend(added);
        if writes.is_empty() {
            return Ok(());
        }
        self.recovered = true;
        self.store.commit(writes).await.map(drop)
    }

    /// Gives the file back, after rewriting it where most of it is dead. A failure costs nothing but space.
    pub(super) async fn close(self) {
        if let Some(file) = self.file {
            drop(file.close().await);
        }
    }
}

/// A sentence on processes that were killed.
fn swept_text(pids: &[u32]) -> Option<String> {
    let list: Vec<String> = pids.iter().map(ToString::to_string).collect();
    (!pids.is_empty()).then(|| format!("what a killed run had left was killed: process {}", list.join(", ")))
}

fn told(identity: &ProcessIdentity, outcome: &OrphanOutcome) -> Option<String> {
    let pid = identity.pgid;
    match outcome {
        OrphanOutcome::Gone => None,
        OrphanOutcome::Stopped { .. } => Some(format!("process group {pid}, which a killed run had left, was stopped")),
        OrphanOutcome::Left { pids, .. } if pids.is_empty() => None,
        OrphanOutcome::Left { reason, pids } => {
            let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
            Some(format!("a killed run may have left process {}: {reason}", pids.join(", ")))
        }
    }
}

/// How session files are opened.
pub(super) fn options(settings: &Settings, clock: &Arc<dyn Clock>) -> jsonl::Options {
    jsonl::Options {
        durability: match settings.session.durability {
            Durability::None => jsonl::Durability::None,
            Durability::Normal => jsonl::Durability::Normal,
            Durability::Full => jsonl::Durability::Full,
        },
        lock: match settings.session.lock {
            LockMode::Require => jsonl::LockMode::Require,
            LockMode::Off => jsonl::LockMode::Off,
        },
        ..jsonl::Options::new("pirn", Arc::clone(clock))
    }
}
