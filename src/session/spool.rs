//! The spool of a session: messages and aborts that other processes leave beside its file.
//!
//! Keeps true: an item is there whole or not at all, and stays until it is acknowledged; leaving one needs neither a
//! lock nor a process that runs; what can not be read is put aside under another name, never deleted, followed or waited
//! for; a look at a session that nobody left anything for is one system call.
//!
//! Must not know: what becomes of an item, who runs.
//!
//! # The format
//!
//! `STEM.inbox/` beside the session file, mode 0700. Each item is a file `ID.json`, mode 0600, where ID is a UUIDv7 in
//! lower case with hyphens; the order of their names is the order of the items. It holds one JSON object:
//!
//! | member | what |
//! |---|---|
//! | `v` | 1 |
//! | `id` | the same as in the name; a message becomes the entry of this id |
//! | `lane` | such as `main` |
//! | `kind` | `steer`, `followUp` or `abort` |
//! | `message`? | of `steer` and `followUp`: a user message in the transcript form |
//! | `operationId`? | of `abort`: the run to end; without it the one that was on when it was left |
//! | `at` | when it was left, in milliseconds since 1970 |
//!
//! Whoever leaves one writes `ID.tmp`, syncs it, renames it and syncs the directory. A `.tmp` file that was not touched
//! for an hour is what a killed process left, and removed. What is no item gets `.bad` behind its name, with a warning.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::jsonl::{Disk, OsDisk, write_all};
use super::place::{PlaceError, inbox_dir, make_private_dir};
use crate::model::{Content, EntryId, ErrorKind, ErrorRecord, Message, RunId, UserContent, UserMessage};
use crate::port::{Clock, Ids, Inbox, Polled, SpoolItem, SpoolKind};

/// Of the format.
const VERSION: u64 = 1;
/// Bytes of the text of a message, as for a prompt.
pub const TEXT_BYTES_MAX: usize = 10 << 20;
/// Bytes of an item: the longest text, every byte of it escaped.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Bytes that one look reads, unless a single item is longer.
const POLL_BYTES_MAX: u64 = 64 << 20;
/// Items that one look takes; the others wait until these are acknowledged.
const POLL_ITEMS_MAX: usize = 64;
/// Names in the directory that one look sees, and names that are remembered.
const NAMES_MAX: usize = 10_000;
/// How old an unfinished file is when nobody writes it any more.
const TEMP_AGE_MS: u64 = 60 * 60 * 1_000;
const ITEM_END: &str = ".json";
const TEMP_END: &str = ".tmp";
const BAD_END: &str = ".bad";
const PRIVATE_FILE: u32 = 0o600;

/// An item as it stands in its file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    v: u64,
    id: EntryId,
    lane: String,
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Message>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operation_id: Option<RunId>,
    at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    Steer,
    FollowUp,
    Abort,
}

/// What every version has.
#[derive(Debug, Deserialize)]
struct Version {
    v: u64,
}

/// Why nothing was left.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("the message is empty")]
    Empty,
    #[error("the message is longer than {} MB", TEXT_BYTES_MAX >> 20)]
    TooLong,
    #[error("no session file at {file}")]
    NoSession { file: String },
    #[error(transparent)]
    Place(PlaceError),
    /// The system refused.
    #[error("{file}: {reason}")]
    Io { file: String, reason: String },
}

impl From<SpoolError> for ErrorRecord {
    fn from(error: SpoolError) -> Self {
        match error {
            SpoolError::Empty | SpoolError::TooLong => Self::new(ErrorKind::Usage, error.to_string()),
            SpoolError::Place(error) => error.into(),
            SpoolError::NoSession { .. } | SpoolError::Io { .. } => Self::new(ErrorKind::Storage, error.to_string()),
        }
    }
}

/// Leaves an item for whoever has the session open, now or next. It is on the disk when this returns.
///
/// # Errors
/// The message is empty or too long, there is no such session, or the system refuses. Then nothing is left, unless the
/// directory could not be synced and somebody was faster in taking the item than this in taking it back.
pub fn leave(
    session: &Path,
    lane: &str,
    what: SpoolKind,
    ids: &dyn Ids,
    clock: &dyn Clock,
) -> Result<EntryId, SpoolError> {
    leave_on(&OsDisk, session, lane, what, ids, clock)
}

fn leave_on(
    disk: &dyn Disk,
    session: &Path,
    lane: &str,
    what: SpoolKind,
    ids: &dyn Ids,
    clock: &dyn Clock,
) -> Result<EntryId, SpoolError> {
    let (kind, message, operation_id) = match what {
        SpoolKind::Steer(message) => (Kind::Steer, Some(message), None),
        SpoolKind::FollowUp(message) => (Kind::FollowUp, Some(message), None),
        SpoolKind::Abort { operation_id } => (Kind::Abort, None, operation_id),
    };
    message.as_ref().map_or(Ok(()), check)?;
    let id = EntryId::new(ids.next_id());
    let message = message.map(Message::User);
    let lane = lane.to_owned();
    let stored = Stored { v: VERSION, id: id.clone(), lane, kind, message, operation_id, at: clock.now_ms() };
    // Where a session was removed no directory is made again.
    if !fs::metadata(session).is_ok_and(|found| found.is_file()) {
        return Err(SpoolError::NoSession { file: session.display().to_string() });
    }
    let dir = inbox_dir(session);
    make_private_dir(&dir, true).map_err(SpoolError::Place)?;
    let io = |error: io::Error| SpoolError::Io { file: dir.display().to_string(), reason: error.to_string() };
    if !is_real_dir(&dir).map_err(io)? {
        return Err(io(io::ErrorKind::NotADirectory.into()));
    }
    let mut text = serde_json::to_vec(&stored).map_err(|error| io(error.into()))?;
    text.push(b'\n');
    put(disk, &dir, &id, &text).map_err(io)?;
    Ok(id)
}

/// Writes an item beside its place, then moves it there.
fn put(disk: &dyn Disk, dir: &Path, id: &EntryId, text: &[u8]) -> io::Result<()> {
    let temp = dir.join(format!("{id}{TEMP_END}"));
    let item = dir.join(format!("{id}{ITEM_END}"));
    let written = || {
        let file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(&temp)?;
        // The umask may have taken bits away.
        file.set_permissions(Permissions::from_mode(PRIVATE_FILE))?;
        write_all(disk, &file, text)?;
        disk.sync(&file)?;
        disk.rename(&temp, &item)
    };
    // What can not be removed is swept later.
    written().inspect_err(|_| drop(disk.remove(&temp)))?;
    disk.sync_dir(dir).inspect_err(|_| drop(disk.remove(&item)))
}

/// A link is none: what lies elsewhere is not ours to rename.
fn is_real_dir(dir: &Path) -> io::Result<bool> {
    Ok(fs::symlink_metadata(dir)?.is_dir())
}

/// Whether a message can be left.
fn check(message: &UserMessage) -> Result<(), SpoolError> {
    let text = |content: &Content| content.as_text().map_or(0, str::len);
    let (bytes, is_blank) = match &message.content {
        UserContent::Text(text) => (text.len(), text.trim().is_empty()),
        UserContent::Blocks(blocks) => (
            blocks.iter().map(text).fold(0, usize::saturating_add),
            blocks.iter().all(|block| block.as_text().is_some_and(|text| text.trim().is_empty())),
        ),
    };
    match (bytes > TEXT_BYTES_MAX, is_blank) {
        (true, _) => Err(SpoolError::TooLong),
        (_, true) => Err(SpoolError::Empty),
        (false, false) => Ok(()),
    }
}

/// What others left for a session, as the process sees it that has the session open.
pub struct Spool {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
    memory: Mutex<Memory>,
}

/// What earlier looks found out.
#[derive(Debug, Default)]
struct Memory {
    /// Unfinished files of dead processes were looked for.
    swept: bool,
    /// Names that are not looked at again: acknowledged, or no item, but they could not be taken away.
    passed_over: HashSet<OsString>,
    /// What a warning was given of.
    told: HashSet<OsString>,
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Why a file gives no item.
#[derive(Debug)]
enum Unread {
    /// Somebody took it.
    Gone,
    /// It is no item.
    Bad(String),
    /// The system refuses; it may not do so the next time.
    Refused(io::Error),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound { Self::Gone } else { Self::Refused(error) }
    }
}

impl Spool {
    /// The spool of a session file. Makes nothing.
    pub fn new(session: &Path, clock: Arc<dyn Clock>) -> Self {
        Self { dir: inbox_dir(session), clock, memory: Mutex::default() }
    }

    /// Whether there is an item. Unlike a look by [`Inbox::poll`] this renames and removes nothing, and so has nothing to
    /// warn of.
    pub fn has_items(&self) -> bool {
        if !is_real_dir(&self.dir).unwrap_or(false) {
            return false;
        }
        let Ok(entries) = fs::read_dir(&self.dir) else { return false };
        let is_item = |entry: fs::DirEntry| {
            let name = entry.file_name();
            stem(&name, ITEM_END).is_some() && read(&entry.path(), &name).is_ok()
        };
        entries.take(NAMES_MAX).filter_map(Result::ok).any(is_item)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) -> io::Result<Polled> {
        match is_real_dir(&self.dir) {
            Ok(true) => {}
            Ok(false) => return Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Polled::default()),
            Err(error) => return Err(error),
        }
        let mut memory = self.memory();
        let mut polled = Polled::default();
        let names = self.names(&mut memory, &mut polled.warnings)?;
        let mut bytes = 0_u64;
        for name in names.into_iter().take(POLL_ITEMS_MAX) {
            let path = self.dir.join(&name);
            let len = fs::symlink_metadata(&path).map_or(0, |found| found.len().min(FILE_BYTES_MAX));
            bytes = bytes.saturating_add(len);
            if bytes > POLL_BYTES_MAX && !polled.items.is_empty() {
                break;
            }
            match read(&path, &name) {
                Ok(item) => polled.items.push(item),
                Err(Unread::Gone) => {}
                Err(Unread::Bad(reason)) => polled.warnings.extend(self.put_aside(&mut memory, name, &reason)),
                Err(Unread::Refused(error)) => {
                    if memory.tells(&name) {
                        polled.warnings.push(format!("{} can not be read: {error}", path.display()));
                    }
                }
            }
        }
        Ok(polled)
    }

    /// Names of what may be items, in their order.
    fn names(&self, memory: &mut Memory, warnings: &mut Vec<String>) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        let mut seen = 0_usize;
        for entry in fs::read_dir(&self.dir)? {
            seen += 1;
            if seen > NAMES_MAX {
                if memory.tells(self.dir.as_os_str()) {
                    warnings.push(format!("{} holds so many files that some are not seen", self.dir.display()));
                }
                break;
            }
            let name = entry?.file_name();
            if stem(&name, ITEM_END).is_some() {
                if !memory.passed_over.contains(&name) {
                    names.push(name);
                }
            } else if !memory.swept && stem(&name, TEMP_END).is_some_and(is_id) {
                self.sweep(&name);
            }
        }
        memory.swept = true;
        names.sort();
        Ok(names)
    }

    /// Removes an unfinished file that nobody writes any more.
    fn sweep(&self, name: &OsStr) {
        let path = self.dir.join(name);
        let Ok(touched) = fs::symlink_metadata(&path).and_then(|found| found.modified()) else { return };
        let touched_ms = touched.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        if touched_ms.saturating_add(TEMP_AGE_MS.into()) < self.clock.now_ms().into() {
            // It costs nothing but its space.
            drop(OsDisk.remove(&path));
        }
    }

    /// Gives what is no item another name. The warning says so.
    fn put_aside(&self, memory: &mut Memory, name: OsString, reason: &str) -> Option<String> {
        let path = self.dir.join(&name);
        let mut aside = path.clone().into_os_string();
        aside.push(BAD_END);
        match OsDisk.rename(&path, Path::new(&aside)) {
            Ok(()) => Some(format!(
                "{} is no message for this session, so it got {BAD_END} behind its name: {reason}",
                path.display()
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                memory.pass_over(name);
                Some(format!(
                    "{} is no message for this session: {reason}; and it can not be renamed: {error}",
                    path.display()
                ))
            }
        }
    }
}

impl Memory {
    /// Whether there was no warning of this name yet.
    fn tells(&mut self, name: &OsStr) -> bool {
        self.told.len() < NAMES_MAX && self.told.insert(name.to_owned())
    }

    fn pass_over(&mut self, name: OsString) {
        if self.passed_over.len() < NAMES_MAX {
            self.passed_over.insert(name);
        }
    }
}

impl Inbox for Spool {
    fn poll(&self) -> Polled {
        self.look().unwrap_or_else(|error| {
            let warning = format!("{} can not be read: {error}", self.dir.display());
            let is_new = self.memory().tells(self.dir.as_os_str());
            Polled { items: Vec::new(), warnings: is_new.then_some(warning).into_iter().collect() }
        })
    }

    fn ack(&self, id: &EntryId) {
        if !is_id(id.as_str().as_bytes()) {
            return;
        }
        let name = format!("{id}{ITEM_END}");
        match OsDisk.remove(&self.dir.join(&name)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // The next process finds it again, and that it was taken.
            Err(_) => self.memory().pass_over(name.into()),
        }
    }

    fn refuse(&self, id: &EntryId, reason: &str) -> Option<String> {
        if !is_id(id.as_str().as_bytes()) {
            return None;
        }
        self.put_aside(&mut self.memory(), format!("{id}{ITEM_END}").into(), reason)
    }
}

/// What stands before an ending, which may be nothing.
fn stem<'a>(name: &'a OsStr, end: &str) -> Option<&'a [u8]> {
    name.as_bytes().strip_suffix(end.as_bytes())
}

/// Whether this is a UUIDv7 as it is written here.
fn is_id(text: &[u8]) -> bool {
    let Ok(id) = uuid::Uuid::try_parse_ascii(text) else { return false };
    id.get_version_num() == 7 && id.hyphenated().to_string().as_bytes() == text
}

/// Reads an item.
fn read(path: &Path, name: &OsStr) -> Result<SpoolItem, Unread> {
    let bad = |reason: &str| Unread::Bad(reason.to_owned());
    let Some(stem) = stem(name, ITEM_END).filter(|stem| is_id(stem)) else {
        return Err(bad("its name is no id"));
    };
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(bad("it is not a regular file"));
    }
    // Neither followed nor waited for, should it have been exchanged.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let text = contents(&file)?;
    let item = decode(&text).map_err(Unread::Bad)?;
    if item.id.as_str().as_bytes() == stem { Ok(item) } else { Err(bad("it has another id than its name")) }
}

fn contents(file: &File) -> Result<Vec<u8>, Unread> {
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX.saturating_add(1)).read_to_end(&mut text)?;
    if u64::try_from(text.len()).is_ok_and(|len| len <= FILE_BYTES_MAX) {
        Ok(text)
    } else {
        Err(Unread::Bad("it is too long".to_owned()))
    }
}

/// Reads an item's text. The error says why it is none.
fn decode(text: &[u8]) -> Result<SpoolItem, String> {
    let other = |v: u64| format!("it has version {v} instead of {VERSION}");
    // Another version may have another form, so the version is the better reason.
    let Stored { v, id, lane, kind, message, operation_id, at } = serde_json::from_slice(text).map_err(|error| {
        let version = serde_json::from_slice(text).ok().map(|Version { v }| v).filter(|v| *v != VERSION);
        version.map_or_else(|| error.to_string(), other)
    })?;
    if v != VERSION {
        return Err(other(v));
    }
    let message = match message {
        None => None,
        Some(Message::User(message)) => {
            check(&message).map_err(|error| error.to_string())?;
            Some(message)
        }
        Some(_) => return Err("its message is not of a user".to_owned()),
    };
    let what = match (kind, message) {
        (Kind::Steer, Some(message)) => SpoolKind::Steer(message),
        (Kind::FollowUp, Some(message)) => SpoolKind::FollowUp(message),
        (Kind::Steer | Kind::FollowUp, None) => return Err("it has no message".to_owned()),
        (Kind::Abort, _) => SpoolKind::Abort { operation_id },
    };
    Ok(SpoolItem { id, lane, at, what })
}

#[cfg(test)]
mod tests;
