//! Opening: a new file, one to go on with, one to look at.
//!
//! Keeps true: the lock is taken before anything is made or read; opening changes no byte of a session; files and
//! directories are private from the first moment.
//!
//! Must not know: what is in a session.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::append::{Repair, Seen, Session, Writer, directory, write_all};
use super::header::{HEADER_BYTES_MAX, Header};
use super::lock::{Lock, lock_path};
use super::options::{LockMode, Options};
use super::pages::{Pages, io_error};
use super::replay::{Replay, Unknown, replay};
use super::rewrite::rewrite_path;
use super::{JsonlStore, ReadOnly};
use crate::model::stamp;
use crate::port::StoreError;
use crate::session::index::Index;
use crate::session::shelf::Shelf;
use crate::session::transaction::Numbering;

/// A file of this size is read in a few milliseconds, about what another thread for it costs.
const INLINE_BYTES_MAX: u64 = 1 << 20;
/// Torn tails of one file that were found in one second, at most.
const TORN_NAMES_MAX: u32 = 100;

/// Makes a session file, and the directories it lies in.
///
/// # Errors
/// The file exists, its session is locked, or the system refused. Nothing is left behind but a lock file.
pub async fn create(path: &Path, header: Header, options: Options) -> Result<JsonlStore, StoreError> {
    let mut line = header.encode().map_err(|error| io_error(path, &error))?;
    if line.len() > HEADER_BYTES_MAX {
        return Err(StoreError::Invalid("the session header is too long".to_owned()));
    }
    line.push(b'\n');
    let mut unsynced_dirs = make_directories(directory(path)).map_err(|error| io_error(directory(path), &error))?;
    unsynced_dirs.push(directory(path).to_owned());
    let mut warnings = Vec::new();
    let lock = take_lock(path, &options, &mut warnings).await?;
    let io = |error: io::Error| io_error(path, &error);
    let file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(path).map_err(io)?;
    if let Err(error) = write_all(&*options.disk, &file, &line) {
        // Without a whole header it is nobody's session.
        let error = match options.disk.remove(path) {
            Ok(()) => io(error),
            Err(left) => io_error(path, &format!("{error}; and the file stays: {left}")),
        };
        return Err(error);
    }
    let seen = Seen::of(&file.metadata().map_err(io)?);
    let next_seq = header.next_seq.unwrap_or(1).max(1);
    let numbering = Numbering { next_seq, last_at: 0 };
    let writer = Writer { numbering, seen, repair: Repair::Nothing, written: 1, dead: None };
    let shelf = Shelf::new(Index::default(), pages(Arc::new(file), path));
    let mut session = Session::new(path, header, options, shelf, writer);
    session.warnings = warnings;
    session.unsynced_dirs = Mutex::new(unsynced_dirs);
    session.lock = Mutex::new(lock);
    Ok(JsonlStore { session: Arc::new(session) })
}

/// Opens a session file to go on with it.
///
/// # Errors
/// Another process has it open; it is damaged, or of a newer version; the system refused. No byte of it is changed.
pub async fn open(path: &Path, options: Options) -> Result<JsonlStore, StoreError> {
    check_regular(path)?;
    let mut warnings = Vec::new();
    let lock = take_lock(path, &options, &mut warnings).await?;
    if lock.is_some() {
        remove_leftover(&rewrite_path(path), &options)?;
    }
    let file = OpenOptions::new().read(true).append(true).open(path).map_err(|error| io_error(path, &error))?;
    let seen = Seen::of(&file.metadata().map_err(|error| io_error(path, &error))?);
    let file = Arc::new(file);
    let found = if seen.size <= INLINE_BYTES_MAX {
        writable(&file, path)
    } else {
        let (handle, place) = (Arc::clone(&file), path.to_owned());
        let found = tokio::task::spawn_blocking(move || writable(&handle, &place)).await;
        found.unwrap_or_else(|error| Err(io_error(path, &error)))
    }?;
    let repair = if found.torn_bytes() > 0 {
        let copy = torn_path(path, options.clock.now_ms());
        warnings.push(torn_warning(
            path,
            found.torn_bytes(),
            &format!("; the next write moves them to {}", copy.display()),
        ));
        Repair::Torn { from: found.good, copy }
    } else if found.lacks_newline {
        Repair::Newline
    } else {
        Repair::Nothing
    };
    let seen = Seen { size: found.size, ..seen };
    let writer = Writer { numbering: found.numbering, seen, repair, written: 1, dead: None };
    let shelf = Shelf::new(found.index, pages(file, path));
    let mut session = Session::new(path, found.header, options, shelf, writer);
    session.warnings = warnings;
    session.lock = Mutex::new(lock);
    Ok(JsonlStore { session: Arc::new(session) })
}

/// Opens a session file to look at it, also while another process writes to it. Takes no lock and changes nothing.
///
/// # Errors
/// It can not be read, or has no header. Of a damaged file everything before the damage is there.
pub fn read(path: &Path) -> Result<ReadOnly, StoreError> {
    check_regular(path)?;
    let file = Arc::new(File::open(path).map_err(|error| io_error(path, &error))?);
    let found = replay(&file, path, Unknown::Skip)?;
    let mut warnings = Vec::new();
    if found.torn_bytes() > 0 {
        warnings.push(torn_warning(path, found.torn_bytes(), ""));
    }
    let shelf = Shelf::new(found.index, pages(file, path));
    Ok(ReadOnly { shelf, header: found.header, damage: found.damage, warnings })
}

fn writable(file: &Arc<File>, path: &Path) -> Result<Replay, StoreError> {
    let found = replay(file, path, Unknown::Refuse)?;
    if let Some(reason) = found.header.needs_newer() {
        return Err(StoreError::NeedsNewer { file: path.display().to_string(), reason });
    }
    match found.damage {
        Some(damage) => Err(damage),
        None => Ok(found),
    }
}

fn pages(file: Arc<File>, path: &Path) -> Pages {
    Pages { file, path: path.to_owned() }
}

async fn take_lock(path: &Path, options: &Options, warnings: &mut Vec<String>) -> Result<Option<Lock>, StoreError> {
    // Who holds a lock is written into its file. Without locks it is refused as well: the next process may have them.
    if lock_path(path) == path {
        return Err(io_error(path, &"this would be its own lock; a session file has a name that ends in .jsonl"));
    }
    if options.lock == LockMode::Off {
        warnings
            .push(format!("session.lock is off: nothing keeps another process from writing to {} too", path.display()));
        return Ok(None);
    }
    let lock = Lock::take(path, &options.command, &*options.clock).await?;
    if let Some(error) = &lock.unnamed {
        warnings.push(format!("{} is locked but does not say by whom: {error}", path.display()));
    }
    Ok(Some(lock))
}

/// Opening a pipe or a device may wait for ever.
fn check_regular(path: &Path) -> Result<(), StoreError> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => Err(io_error(path, &"not a regular file")),
        Err(error) => Err(io_error(path, &error)),
    }
}

/// A rewrite that a kill ended left its new file, which nothing points to.
fn remove_leftover(path: &Path, options: &Options) -> Result<(), StoreError> {
    match options.disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(path, &error)),
        _ => Ok(()),
    }
}

fn torn_path(path: &Path, now_ms: u64) -> PathBuf {
    let stamp = stamp(now_ms);
    let name = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".torn-{stamp}{suffix}"));
        PathBuf::from(name)
    };
    let numbered = (2..TORN_NAMES_MAX).map(|number| name(&format!("-{number}")));
    std::iter::once(name("")).chain(numbered).find(|path| !path.exists()).unwrap_or_else(|| name(""))
}

fn torn_warning(path: &Path, bytes: u64, what_next: &str) -> String {
    format!("the last {bytes} bytes of {} are no whole record and are left out{what_next}", path.display())
}

/// Makes a directory and those above it. The result names the directories that got a new name in them.
fn make_directories(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let missing = dir.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists());
    let parents = missing.map(|dir| directory(dir).to_owned()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    Ok(parents)
}
