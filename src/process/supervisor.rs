//! The register of children, and the end of all of them.
//!
//! Keeps true: a child is in the register before anybody can lose it, and leaves it when nothing of it is left; from the
//! beginning of the shutdown on nothing starts.
//!
//! Must not know: which tool a child belongs to, when a run ends.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ring::rand::SecureRandom as _;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::child::{Child, OutputReader};
use super::env::{ChildEnv, Extra};
use super::group::{Fate, Group};
use super::ladder;
use super::spec::{Output, ProcessIdentity, SpawnError, Spec, Stdin};
use super::sweep::{Adopted, Before, Hunt, sweep};
use super::table::{Process, Table, boot_id, children, pid};
use super::unix;
use crate::port::Clock;

/// How children are treated.
#[derive(Clone, Debug)]
pub struct SupervisorSettings {
    pub env: ChildEnv,
    /// From asking children to end to killing them (`limits.grace`).
    pub grace: Duration,
    /// Look for processes that left their group (Linux). For the binary only, which is a subreaper: a library does not
    /// touch what it did not start.
    pub sweep: bool,
}

/// The only way to start a child. One per process; clones share it.
#[derive(Clone)]
pub struct Supervisor {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").finish_non_exhaustive()
    }
}

/// A process that could not be ended: it waits for a device, or runs as another user (X5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remaining {
    pub pid: u32,
    /// What the child was called; empty for one that had left its group.
    pub label: String,
}

pub(super) struct Inner {
    token: String,
    boot_id: String,
    settings: SupervisorSettings,
    pub(super) clock: Arc<dyn Clock>,
    registry: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    is_closed: bool,
    groups: BTreeMap<u32, Arc<Group>>,
    /// What there was before the first child of ours; `None` until then.
    before: Option<Before>,
}

impl Supervisor {
    /// A register without children, and a token that nobody can guess.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(settings: SupervisorSettings, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let mut bytes = [0; 16];
        ring::rand::SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|ring::error::Unspecified| io::Error::other("no random numbers"))?;
        let token = uuid::Builder::from_random_bytes(bytes).into_uuid().hyphenated().to_string();
        let inner = Inner { token, boot_id: boot_id(), settings, clock, registry: Mutex::default() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// `PIRN_RUN_TOKEN`, random, one per process (X4).
    pub fn token(&self) -> &str {
        &self.inner.token
    }

    /// What is known of a child before it is started: by its call and this, it is found however early we die.
    pub fn intended(&self) -> ProcessIdentity {
        ProcessIdentity { pgid: 0, start_time: 0, boot_id: self.inner.boot_id.clone(), token: self.inner.token.clone() }
    }

    /// From asking children to end to killing them.
    pub fn grace(&self) -> Duration {
        self.inner.settings.grace
    }

    /// Names of variables that children do not inherit, sorted; for `-v`.
    pub fn withheld(&self) -> Vec<String> {
        self.inner.settings.env.withheld()
    }

    /// Starts a child, registered before this returns. For use inside a runtime with input and output enabled.
    ///
    /// # Errors
    /// Nothing was started; the error says why.
    pub fn spawn(&self, spec: Spec) -> Result<Child, SpawnError> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(SpawnError::NoRuntime);
        }
        let failed = |source| SpawnError::Io { label: spec.label.clone(), source };
        // Listening starts before the child does, so that no end is missed.
        let exits = signal(SignalKind::child()).map_err(failed)?;
        let (group, pipes, start_time) = self.inner.start(spec)?;
        let [output, errors] = pipes;
        let identity = ProcessIdentity {
            pgid: group.number(),
            start_time,
            boot_id: self.inner.boot_id.clone(),
            token: self.inner.token.clone(),
        };
        Ok(Child::new(Arc::clone(&self.inner), group, identity, [output, errors], exits))
    }

    /// Ends all children: TERM to all groups at once, one grace for all, KILL, then the sweep (X3, X4). Nothing starts
    /// from then on. Returns what could not be ended.
    pub async fn shutdown(&self) -> Vec<Remaining> {
        let (groups, has_started) = self.inner.close();
        ladder::end(&*self.inner.clock, &groups, self.inner.settings.grace).await;
        let mut remaining = self.inner.settle(&groups).await;
        if self.inner.settings.sweep && has_started {
            let found = sweep(&*self.inner.clock, self.inner.hunt_all()).await;
            let found = found.into_iter().filter(|pid| !remaining.iter().any(|known| known.pid == *pid));
            let found: Vec<u32> = found.collect();
            remaining.extend(found.into_iter().map(|pid| Remaining { pid, label: String::new() }));
        }
        remaining
    }

    /// Kills all children at once and sweeps one round, without waiting; for the second signal. Blocks as long as it
    /// takes to read the process table.
    pub fn kill_now(&self) {
        let (groups, has_started) = self.inner.close();
        for group in &groups {
            group.signal(Signal::KILL);
        }
        if self.inner.settings.sweep && has_started {
            self.inner.hunt_all().round();
        }
    }
}

/// What reads the pipes of a child: output, and errors where they are separate.
type Pipes = [Option<OutputReader>; 2];

impl Inner {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, spec: Spec) -> Result<(Arc<Group>, Pipes, u64), SpawnError> {
        let failed = |source| SpawnError::Io { label: spec.label.clone(), source };
        let mut command = self.command(&spec);
        let pipes = connect(&mut command, spec.output).map_err(failed)?;
        command.stdin(match spec.stdin {
            Stdin::Null => Stdio::null(),
            Stdin::File(file) => Stdio::from(file),
        });
        // The register is held while the child starts: whoever ends all children sees it, or it does not start.
        let mut registry = self.registry();
        if registry.is_closed {
            return Err(SpawnError::Closed);
        }
        registry.collect();
        if self.settings.sweep && registry.before.is_none() {
            registry.before = Some(Before::now());
        }
        let started = command.spawn();
        let started = started.map_err(|source| explain(source, &command, &spec.label))?;
        // What `std` holds of it is dropped: the group waits for its leader and reaps it, by number.
        let id = pid(started.id())
            .ok_or(SpawnError::Io { label: spec.label.clone(), source: io::ErrorKind::Other.into() })?;
        let group = Arc::new(Group::new(id, spec.call_id, spec.label));
        registry.groups.insert(group.number(), Arc::clone(&group));
        drop(registry);
        // The child is ours and not reaped, so this is its own start time even if it has ended.
        let start_time = Process::read(group.number()).map_or(0, |process| process.start_time);
        Ok((group, pipes, start_time))
    }

    #[expect(clippy::disallowed_methods, reason = "children start here and nowhere else")]
    fn command(&self, spec: &Spec) -> Command {
        let extra = Extra {
            pass: &spec.pass_env,
            add: &spec.env,
            cwd: Some(&spec.cwd),
            token: &self.token,
            call_id: spec.call_id.as_deref(),
            session_id: spec.session_id.as_deref(),
        };
        let mut command = Command::new(&spec.program);
        command.args(&spec.args).current_dir(&spec.cwd).env_clear().envs(self.settings.env.for_child(&extra));
        unix::detach(&mut command);
        command
    }

    /// Lets nothing start any more. Returns the groups to end, and whether there ever was one.
    fn close(&self) -> (Vec<Arc<Group>>, bool) {
        let mut registry = self.registry();
        registry.is_closed = true;
        let groups = registry.groups.values().filter(|group| group.fate() != Fate::Left).cloned().collect();
        (groups, registry.before.is_some())
    }

    /// A hunt for all escapees, but those that were left on purpose.
    fn hunt_all(&self) -> Hunt {
        let registry = self.registry();
        let left = || registry.groups.values().filter(|group| group.fate() == Fate::Left);
        Hunt {
            token: self.token.clone(),
            call_id: None,
            left_calls: left().filter_map(|group| group.call_id.clone()).collect(),
            left_groups: left().map(|group| group.number()).collect(),
            adopted: Some(Adopted {
                registered: registry.groups.keys().copied().collect::<BTreeSet<u32>>(),
                before: registry.before.clone().unwrap_or_default(),
            }),
        }
    }

    /// A hunt for the processes of one call.
    pub(super) fn hunt_call(&self, call_id: &str) -> Hunt {
        Hunt { token: self.token.clone(), call_id: Some(call_id.to_owned()), ..Hunt::default() }
    }

    /// Whether nothing is left of any child that has ended: what loses its parent becomes a child of a subreaper, and we
    /// have none but those we started and those from before. `false` also where that is not known. Costs far less than
    /// a walk of the process table. Blocks.
    pub(super) fn has_no_strays(&self) -> bool {
        if !self.settings.sweep || !unix::is_subreaper() {
            return false;
        }
        let Some(children) = children(std::process::id()) else { return false };
        let Some(adopted) = self.hunt_all().adopted else { return false };
        !children.iter().any(|process| !process.is_zombie && adopted.includes(process))
    }

    /// Whether processes that left their group are looked for.
    pub(super) fn sweeps(&self) -> bool {
        self.settings.sweep
    }

    /// Takes groups that are gone out of the register. Returns the processes of the others.
    pub(super) async fn settle(&self, groups: &[Arc<Group>]) -> Vec<Remaining> {
        if groups.is_empty() {
            return Vec::new();
        }
        let table = ladder::table(&*self.clock).await;
        let mut remaining = Vec::new();
        for group in groups {
            if group.is_gone(table.as_ref()) {
                self.forget(group);
            } else {
                let members = table.iter().flat_map(|table| table.members(group.number()));
                remaining.extend(members.map(|process| Remaining { pid: process.id, label: group.label.clone() }));
            }
        }
        if let Some(table) = &table {
            self.forget_released(table);
        }
        remaining
    }

    /// Reaps a group that is gone, or was just killed, and takes it out of the register once it is reaped.
    pub(super) fn forget(&self, group: &Arc<Group>) {
        if !group.reap() {
            return;
        }
        let mut registry = self.registry();
        // A later child may have the number by now.
        if registry.groups.get(&group.number()).is_some_and(|known| Arc::ptr_eq(known, group)) {
            registry.groups.remove(&group.number());
        }
    }

    /// Takes released groups out of the register whose processes have all ended.
    pub(super) fn forget_released(&self, table: &Table) {
        let mut registry = self.registry();
        let is_over = |group: &Group| group.fate() == Fate::Released && group.is_gone(Some(table)) && group.reap();
        registry.groups.retain(|_, group| !is_over(group));
    }
}

impl Drop for Inner {
    /// Without a shutdown, too, no child outlives its supervisor.
    fn drop(&mut self) {
        for group in self.close().0 {
            group.signal(Signal::KILL);
            group.reap();
        }
    }
}

impl Registry {
    /// Reaps what its owners dropped.
    fn collect(&mut self) {
        self.groups.retain(|_, group| {
            if group.fate() != Fate::Abandoned || group.is_led() {
                return true;
            }
            group.signal(Signal::KILL);
            !group.reap()
        });
    }
}

/// Gives the child the write ends of its pipes, and nobody else: they close when the command is dropped.
fn connect(command: &mut Command, output: Output) -> io::Result<Pipes> {
    match output {
        Output::File(file) => {
            command.stdout(file.try_clone()?).stderr(file);
            Ok([None, None])
        }
        Output::Merged => {
            let (reader, writer) = io::pipe()?;
            command.stdout(writer.try_clone()?).stderr(writer);
            Ok([Some(OutputReader::new(reader)?), None])
        }
        Output::Separate => {
            let (reader, writer) = io::pipe()?;
            let (errors_reader, errors_writer) = io::pipe()?;
            command.stdout(writer).stderr(errors_writer);
            Ok([Some(OutputReader::new(reader)?), Some(OutputReader::new(errors_reader)?)])
        }
    }
}

/// What the system's error means. The kinds do not tell whose file is missing, so the files are asked.
fn explain(source: io::Error, command: &Command, label: &str) -> SpawnError {
    let program = Path::new(command.get_program());
    let cwd = command.get_current_dir().unwrap_or(Path::new(""));
    let is_missing = || !candidates(command).iter().any(|path| path.exists());
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if !cwd.is_dir() => {
            SpawnError::NoDirectory(cwd.to_owned())
        }
        // A directory of the path that may not be read counts as a refusal.
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied if is_missing() => {
            SpawnError::NotFound(program.to_owned())
        }
        io::ErrorKind::NotFound => SpawnError::NoInterpreter(program.to_owned()),
        io::ErrorKind::PermissionDenied => SpawnError::NotAllowed { program: program.to_owned(), cwd: cwd.to_owned() },
        io::ErrorKind::ArgumentListTooLong => SpawnError::TooLong(label.to_owned()),
        io::ErrorKind::InvalidInput => SpawnError::Nul(label.to_owned()),
        _ => SpawnError::Io { label: label.to_owned(), source },
    }
}

/// The files that a program may be.
fn candidates(command: &Command) -> Vec<PathBuf> {
    let program = Path::new(command.get_program());
    if program.components().count() > 1 || program.is_absolute() {
        return vec![program.to_owned()];
    }
    let path = command.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, value)| value);
    path.into_iter().flat_map(std::env::split_paths).map(|directory| directory.join(program)).collect()
}
