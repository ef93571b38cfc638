//! The session of a run: which one it is, opened or made, and what it says about the run.
//!
//! Keeps true: a session is opened, and so locked, before anything is asked of a model; a new one is made last, when
//! everything else is known to be good; nothing is made for a call that is refused.
//!
//! Must not know: how files are laid out, how a run works.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::cli::RunArgs;
use crate::config::{Durability, Env, LockMode, Settings};
use crate::model::session::namespace;
use crate::model::{ErrorKind, ErrorRecord, LaneConfig, Leaf, MAIN_LANE, OperationState, Write};
use crate::port::{Clock, Inbox, SessionRef, Store, StoreError, SystemClock};
use crate::session::jsonl::{self, JsonlStore};
use crate::session::memory;
use crate::session::place::{Found, Library, Target, spill_dir};
use crate::session::spool::Spool;

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
        None if args.resume => match latest(&library)? {
            Some(found) => Ok(Chosen::Known(found)),
            None => Err(ErrorRecord::new(ErrorKind::Usage, "no session to continue in this directory")
                .with_hint("pirn \"PROMPT\" starts one; pirn sessions list --all shows those of other directories")),
        },
        None => Ok(Chosen::New { library, name: None }),
    }
}

/// The latest session of a directory, as the clock is now.
pub(super) fn latest(library: &Library) -> Result<Option<Found>, ErrorRecord> {
    Ok(library.latest_here(SystemClock::new().now_ms())?)
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
    /// What the session says about its main lane; `None` if the lane was never used.
    pub(super) stored: Option<Stored>,
    /// It existed before this process.
    pub(super) resumed: bool,
    /// Sentences without a final period.
    pub(super) warnings: Vec<String>,
}

/// What a session goes on with.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) config: LaneConfig,
    /// What an operation has captured that is still open.
    pub(super) captured: Vec<LaneConfig>,
}

impl Stored {
    fn read(store: &dyn Store) -> Result<Option<Self>, ErrorRecord> {
        let value = |namespace: &str, key: &str| store.value(namespace, key).map_err(|error| storage_error(&error));
        let damaged = |what: &str, error: &dyn std::fmt::Display| {
            ErrorRecord::new(ErrorKind::Storage, format!("the session contradicts itself at {what}: {error}"))
        };
        let Some(config) = value(namespace::LANE_CONFIG, MAIN_LANE)? else { return Ok(None) };
        let config = serde_json::from_value(config).map_err(|error| damaged("lane.config/main", &error))?;
        let state = value(namespace::LANE_STATE, MAIN_LANE)?;
        let open = state.as_ref().and_then(|state| state.get("currentOperationId")).and_then(Value::as_str);
        let mut captured = Vec::new();
        // A state that can not be read is told when the session is restored.
        if let Some(open) = open
            && let Some(state) = value(namespace::OP_STATE, open)?
            && let Ok(state) = serde_json::from_value::<OperationState>(state)
        {
            captured.extend(state.settings.fallbacks);
            match state.leaf {
                Leaf::AssistantReady { generation_context, .. } | Leaf::AssistantWait { generation_context, .. } => {
                    captured.push(generation_context.configuration);
                }
                Leaf::AssistantPending(pending) => captured.push(pending.generation_context.configuration),
                Leaf::Tools { batch } => captured.push(batch.configuration),
                Leaf::Starting | Leaf::Checkpoint { .. } => {}
            }
        }
        Ok(Some(Self { config, captured }))
    }
}

impl Kept {
    /// Opens a session that exists, which locks it.
    pub(super) async fn open(found: &Found, settings: &Settings, clock: &Arc<dyn Clock>) -> Result<Self, ErrorRecord> {
        let store = jsonl::open(&found.file, options(settings, clock)).await.map_err(|error| storage_error(&error))?;
        let warnings = found.warnings.iter().chain(store.warnings()).cloned().collect();
        let store = Arc::new(store);
        Ok(Self {
            id: found.id.clone(),
            name: found.name(),
            path: Some(found.file.clone()),
            stored: Stored::read(&*store)?,
            resumed: true,
            warnings,
            store: Arc::clone(&store) as Arc<dyn Store>,
            file: Some(store),
        })
    }

    /// Makes a new session.
    ///
    /// # Errors
    /// Kind `busy`: somebody has made one of this name in the meantime. Else it can not be made.
    pub(super) async fn create(
        library: &Library,
        name: Option<String>,
        id: String,
        settings: &Settings,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, ErrorRecord> {
        library.prepare(settings.session.durability != Durability::None)?;
        // Two starts with one name: the second one finds the session of the first. Without locks nobody is kept out.
        let lock = match (&name, settings.session.lock) {
            (Some(_), LockMode::Require) => Some(library.lock_directory(&**clock).await?),
            (Some(_), LockMode::Off) | (None, _) => None,
        };
        if let Some(taken) = &name
            && let Target::Existing(_) = library.resolve(taken, true)?
        {
            // Model and tools were chosen for a session that is new, and would take the place of those it has.
            let message = format!("another call has just made the session {taken}");
            return Err(ErrorRecord::new(ErrorKind::Busy, message).with_hint("run the call again to go on with it"));
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
            stored: None,
            resumed: false,
            warnings: store.warnings().to_vec(),
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
            stored: None,
            resumed: false,
            warnings: Vec::new(),
        }
    }

    /// What tools are told; `None` when nothing is kept.
    pub(super) fn session_ref(&self) -> Option<SessionRef> {
        let path = self.path.as_ref()?;
        Some(SessionRef { id: self.id.clone(), file: Some(path.clone()), spill_dir: spill_dir(path) })
    }

    /// Where other processes leave messages; `None` when nothing is kept.
    pub(super) fn inbox(&self, clock: &Arc<dyn Clock>) -> Option<Arc<dyn Inbox>> {
        let path = self.path.as_ref()?;
        Some(Arc::new(Spool::new(path, Arc::clone(clock))))
    }

    /// Whether others have left a message that can be taken in. Only looks.
    pub(super) fn has_waiting(&self, clock: &Arc<dyn Clock>) -> bool {
        self.path.as_ref().is_some_and(|path| Spool::new(path, Arc::clone(clock)).has_items())
    }

    /// Gives the file back, after rewriting it where most of it is dead. A failure costs nothing but space.
    pub(super) async fn close(self) {
        if let Some(file) = self.file {
            drop(file.close().await);
        }
    }
}

/// A write of a register whose value always is JSON.
fn set(namespace: &str, key: &str, value: &impl serde::Serialize) -> Result<Write, StoreError> {
    Write::set(namespace, key, value).map_err(|error| StoreError::Invalid(error.to_string()))
}

/// What a failed store makes of a call.
pub(super) fn storage_error(error: &StoreError) -> ErrorRecord {
    let record = ErrorRecord::new(error.kind(), error.to_string());
    let StoreError::Busy { pid, .. } = error else { return record };
    let whom = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
    record
        .with_hint(format!("wait for {whom}, tell it something with pirn steer, or start another session with -s NAME"))
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
