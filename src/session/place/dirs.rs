//! Where session files are: the root, the directory of a working directory, and what stands beside a session file.
//!
//! Keeps true: every directory made here is private to its user, whatever the umask; a directory that others can write
//! to is never used unless it is the user's own; no path depends on the working directory of the process (CFG-05).
//!
//! Must not know: what a session file holds.
//!
//! The layout is described in the module above.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model::{ErrorKind, ErrorRecord};
use crate::port::Clock;

/// The directory below the root that holds those of the working directories.
const SESSIONS: &str = "sessions";
/// The extension of session files.
pub(super) const EXTENSION: &str = "jsonl";
/// Bytes of a working directory's path that its slug shows.
const SLUG_PATH_BYTES: usize = 100;
/// Bytes of the hash behind them; each gives two hex digits.
const SLUG_HASH_BYTES: usize = 4;
const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// The bits of a mode that let group or others write.
const OTHERS_WRITE: u32 = 0o022;
const PERMISSION_BITS: u32 = 0o777;
/// The lock of a directory.
const DIRECTORY_LOCK: &str = ".lock";
/// How long the lock of a directory is waited for. It is only held while one file is made.
const DIRECTORY_LOCK_WAIT: Duration = Duration::from_secs(5);
/// Between two tries for it.
const DIRECTORY_LOCK_POLL: Duration = Duration::from_millis(10);

/// Why there is no place for a session, or none that is safe.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The root would put sessions below whatever directory the program was started in (CFG-05).
    #[error("sessions need an absolute path, not {root}")]
    Relative { root: String },
    /// Somebody else could exchange the files in it.
    #[error("{dir} belongs to another user and {how}")]
    NotOurs { dir: String, how: &'static str },
    /// The lock of a directory was not released in time.
    #[error("{file} is locked by another process")]
    Busy { file: String },
    /// The file system has no locks, or gives none.
    #[error("{file}: this file system can not lock files ({reason})")]
    NoLocks { file: String, reason: String },
    /// The system refused.
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
}

impl PlaceError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.display().to_string(), source }
    }
}

impl From<PlaceError> for ErrorRecord {
    fn from(error: PlaceError) -> Self {
        let (kind, hint) = match &error {
            PlaceError::Relative { .. } => (ErrorKind::Config, None),
            PlaceError::NotOurs { .. } => (ErrorKind::Storage, Some("name a directory of your own with session.dir")),
            PlaceError::Busy { .. } => (ErrorKind::Busy, None),
            PlaceError::NoLocks { .. } => (ErrorKind::Storage, Some("session.lock = \"off\" works without locks")),
            PlaceError::Io { .. } => (ErrorKind::Storage, None),
        };
        let record = Self::new(kind, error.to_string());
        match hint {
            Some(hint) => record.with_hint(hint),
            None => record,
        }
    }
}

/// The directory below a root that holds those of all working directories.
pub(super) fn sessions_dir(root: &Path) -> PathBuf {
    root.join(SESSIONS)
}

/// The name of a working directory's own directory, from its real path.
pub fn slug(real: &Path) -> String {
    let bytes = real.as_os_str().as_bytes();
    let plain = |byte: &u8| {
        let kept = byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if kept { char::from(*byte) } else { '-' }
    };
    let mut slug: String = bytes.iter().take(SLUG_PATH_BYTES).map(plain).collect();
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    slug.extend(hash.as_ref().iter().take(SLUG_HASH_BYTES).map(|byte| format!("{byte:02x}")));
    slug
}

/// The directory of what tools left, such as outputs too long for a message.
pub fn spill_dir(session: &Path) -> PathBuf {
    session.with_extension("d")
}

/// The directory of messages for the process that has the session open.
pub fn inbox_dir(session: &Path) -> PathBuf {
    session.with_extension("inbox")
}

/// Makes a directory and what is missing above it, each with mode 0700 whatever the umask (SES-15), and refuses one
/// that is not safe. With `durable` their names are on the disk when it returns.
///
/// # Errors
/// The system refuses, or the directory is another user's and others can write to it.
pub fn make_private_dir(dir: &Path, durable: bool) -> Result<(), PlaceError> {
    let mut missing: Vec<&Path> = Vec::new();
    for above in dir.ancestors() {
        match fs::metadata(above) {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(above),
            Err(error) => return Err(PlaceError::io(above, error)),
        }
    }
    for path in missing.into_iter().rev().filter(|path| !path.as_os_str().is_empty()) {
        make_one(path, durable).map_err(|error| PlaceError::io(path, error))?;
    }
    check_owner(dir)
}

fn make_one(path: &Path, durable: bool) -> io::Result<()> {
    match DirBuilder::new().mode(PRIVATE_DIR).create(path) {
        Ok(()) => {}
        // Another start of the program was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => return Ok(()),
        Err(error) => return Err(error),
    }
    // The umask may have taken bits away.
    fs::set_permissions(path, Permissions::from_mode(PRIVATE_DIR))?;
    match path.parent() {
        Some(parent) if durable => File::open(parent)?.sync_all(),
        Some(_) | None => Ok(()),
    }
}

/// Refuses a directory whose files somebody else could exchange: one of another user that is a link, or that group or
/// others may write to. A link of the administrator is taken.
pub(super) fn check_owner(dir: &Path) -> Result<(), PlaceError> {
    let us = rustix::process::geteuid().as_raw();
    let of = |metadata: io::Result<Metadata>| metadata.map_err(|error| PlaceError::io(dir, error));
    let link = of(fs::symlink_metadata(dir))?;
    let target = if link.is_symlink() { of(fs::metadata(dir))? } else { link.clone() };
    let refused = |how: &'static str| Err(PlaceError::NotOurs { dir: dir.display().to_string(), how });
    let ours = |metadata: &Metadata| metadata.uid() == us;
    if link.is_symlink() && !ours(&link) && link.uid() != 0 {
        return refused("is a link");
    }
    if !target.is_dir() {
        return Err(PlaceError::io(dir, io::Error::from(io::ErrorKind::NotADirectory)));
    }
    if !ours(&target) && target.mode() & OTHERS_WRITE != 0 {
        return refused("can be written by others");
    }
    Ok(())
}

/// The lock of a working directory's directory, until it is dropped or its process ends.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct DirectoryLock {
    _file: File,
}

/// Locks a directory that exists, waiting a few seconds for another holder.
///
/// # Errors
/// It is still locked then, the file system has no locks, or the system refuses.
pub(super) async fn lock_directory(dir: &Path, clock: &dyn Clock) -> Result<DirectoryLock, PlaceError> {
    let path = dir.join(DIRECTORY_LOCK);
    let shown = || path.display().to_string();
    let file = open_lock(&path).map_err(|error| PlaceError::io(&path, error))?;
    let wait_ms = u64::try_from(DIRECTORY_LOCK_WAIT.as_millis()).unwrap_or(u64::MAX);
    let until = clock.monotonic_ms().saturating_add(wait_ms);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(DirectoryLock { _file: file }),
            Err(TryLockError::WouldBlock) if clock.monotonic_ms() < until => clock.sleep(DIRECTORY_LOCK_POLL).await,
            Err(TryLockError::WouldBlock) => return Err(PlaceError::Busy { file: shown() }),
            Err(TryLockError::Error(error)) => return Err(no_locks(&path, &error)),
        }
    }
}

/// File systems refuse with more than one error, such as ENOLCK or EOPNOTSUPP, and the way out is the same.
fn no_locks(path: &Path, error: &io::Error) -> PlaceError {
    PlaceError::NoLocks { file: path.display().to_string(), reason: error.to_string() }
}

fn open_lock(path: &Path) -> io::Result<File> {
    // A link or a pipe in its place is neither followed nor waited for.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).mode(PRIVATE_FILE).custom_flags(flags).open(path)?;
    if file.metadata()?.mode() & PERMISSION_BITS != PRIVATE_FILE {
        file.set_permissions(Permissions::from_mode(PRIVATE_FILE))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests;
