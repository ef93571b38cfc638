//! The lock of a session: a file beside it that one process holds locked for its life.
//!
//! Keeps true: the lock vanishes with the process that holds it, so a killed run leaves nothing to clean up; it is never
//! taken on the session file itself, whose inode a rewrite replaces; children do not inherit it; a file of somebody
//! else's under its name, such as `Cargo.lock` beside `Cargo.jsonl`, is left as it is.
//!
//! Must not know: what is in the session file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::port::{Clock, StoreError};

/// A probe holds the lock for a moment, so taking it is tried for so long.
pub(super) const TAKE_MS: u64 = 300;
const TAKE_STEP_MS: u64 = 20;
/// Bytes of the lock file that are read; it holds a short object.
const HOLDER_BYTES_MAX: u64 = 16 << 10;
/// How every holder begins.
const HOLDER_BEGINS: &[u8] = b"{\"pid\":";
/// Characters of a command that are told.
const COMMAND_CHARS_MAX: usize = 200;

/// Who holds a lock, for messages only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Holder {
    pub pid: Option<u32>,
    pub host: Option<String>,
    /// Milliseconds since 1970.
    pub started_at: Option<u64>,
    pub command: Option<String>,
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// No process has the session open, as far as locks tell.
    Free,
    /// A process has it open.
    Running(Holder),
}

/// The lock of a session file: the same name, ending in `.lock`.
pub fn lock_path(session: &Path) -> PathBuf {
    session.with_extension("lock")
}

/// Tells whether a process has the session open. Makes no file.
///
/// # Errors
/// The lock file can not be opened, or the file system has no locks.
pub fn probe(session: &Path) -> io::Result<Probe> {
    let mut file = match File::open(lock_path(session)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Probe::Free),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        // Closing the file gives it back at once.
        Ok(()) => Ok(Probe::Free),
        Err(TryLockError::WouldBlock) => Ok(Probe::Running(holder(&mut file))),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Who wrote into the lock file. Between its locking and its writing nothing is there.
fn holder(file: &mut File) -> Holder {
    let mut text = Vec::new();
    let read = file.rewind().and_then(|()| file.take(HOLDER_BYTES_MAX).read_to_end(&mut text));
    read.ok().and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// A held lock. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
    /// Why the holder could not be written into the file, which only the messages of others need.
    pub(super) unnamed: Option<io::Error>,
}

impl Lock {
    /// Takes the lock of a session.
    ///
    /// # Errors
    /// `Busy` when another process holds it after [`TAKE_MS`]; `Io` when there can be no lock here, or something else
    /// lies in its place.
    pub(super) async fn take(session: &Path, command: &str, clock: &dyn Clock) -> Result<Self, StoreError> {
        let path = lock_path(session);
        for _ in 0..TAKE_MS / TAKE_STEP_MS {
            if let Some(file) = try_take(&path)? {
                return Ok(Self::held(file, command, clock));
            }
            clock.sleep(Duration::from_millis(TAKE_STEP_MS)).await;
        }
        if let Some(file) = try_take(&path)? {
            return Ok(Self::held(file, command, clock));
        }
        let pid = File::open(&path).ok().and_then(|mut file| holder(&mut file).pid);
        Err(StoreError::Busy { file: session.display().to_string(), pid })
    }

    fn held(mut file: File, command: &str, clock: &dyn Clock) -> Self {
        let holder = Holder {
            pid: Some(std::process::id()),
            host: host(),
            started_at: Some(clock.now_ms()),
            command: Some(command.chars().take(COMMAND_CHARS_MAX).collect()),
        };
        let unnamed = write_holder(&mut file, &holder).err();
        Self { _file: file, unnamed }
    }
}

fn host() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_owned();
    (!name.is_empty()).then_some(name)
}

fn write_holder(file: &mut File, holder: &Holder) -> io::Result<()> {
    let mut text = serde_json::to_vec(holder).map_err(io::Error::other)?;
    text.push(b'\n');
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&text)
}

/// One try. `None` when another one holds it, or when the file was removed in between.
fn try_take(path: &Path) -> Result<Option<File>, StoreError> {
    let io = |error: &io::Error| StoreError::Io { file: path.display().to_string(), reason: error.to_string() };
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let mut file = file.map_err(|error| io(&error))?;
    if !is_lock(&mut file).map_err(|error| io(&error))? {
        let reason = "this file is not the lock of a session: the session file needs another name".to_owned();
        return Err(StoreError::Io { file: path.display().to_string(), reason });
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(no_locks(path, &error)),
    }
    // Whoever deletes a session deletes its lock too: a lock on a file without a name keeps nobody out.
    let is_same =
        |found: std::fs::Metadata, held: &std::fs::Metadata| found.dev() == held.dev() && found.ino() == held.ino();
    let held = file.metadata().map_err(|error| io(&error))?;
    Ok(std::fs::metadata(path).is_ok_and(|found| is_same(found, &held)).then_some(file))
}

/// Whether a file is empty or begins like a holder, or like one that was not written to its end.
fn is_lock(file: &mut File) -> io::Result<bool> {
    let mut begins = Vec::new();
    file.rewind()?;
    file.take(HOLDER_BEGINS.len() as u64).read_to_end(&mut begins)?;
    Ok(HOLDER_BEGINS.starts_with(&begins))
}

fn no_locks(path: &Path, error: &io::Error) -> StoreError {
    let reason = format!("this file system can not lock files ({error}); session.lock = \"off\" goes without");
    StoreError::Io { file: path.display().to_string(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_locks_is_refused_naming_the_setting_case_127() {
        let error = no_locks(Path::new("/net/s.lock"), &io::Error::from(io::ErrorKind::Unsupported));
        let StoreError::Io { file, reason } = error else { panic!("{error}") };
        assert_eq!(file, "/net/s.lock");
        assert!(reason.contains("can not lock files") && reason.contains("session.lock = \"off\""), "{reason}");
    }

    #[tokio::test]
    async fn a_file_that_is_no_lock_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let session = dir.path().join("Cargo.jsonl");
        for (text, is_taken) in [
            ("version = 4\n", false),
            ("{\n  \"nodes\": {}\n}\n", false),
            ("", true),
            ("{\"p", true),
            ("{\"pid\":7,\"host\":null}\n", true),
        ] {
            File::create(lock_path(&session)).unwrap().write_all(text.as_bytes()).unwrap();
            let taken = Lock::take(&session, "x", &crate::port::SystemClock::new()).await;
            assert_eq!(taken.is_ok(), is_taken, "{text}: {taken:?}");
            if !is_taken {
                assert!(taken.unwrap_err().to_string().contains("another name"), "{text}");
                assert_eq!(std::fs::read_to_string(lock_path(&session)).unwrap(), text);
            }
        }
    }

    #[test]
    fn a_holder_that_nobody_can_read_is_still_a_holder() {
        let dir = tempfile::tempdir().unwrap();
        let session = dir.path().join("s.jsonl");
        for text in ["", "half {", "[]", "{\"pid\":\"x\"}", "{\"pid\":7,\"later\":1}"] {
            let mut file = File::create(lock_path(&session)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file.lock().unwrap();
            let pid = text.contains('7').then_some(7);
            assert_eq!(probe(&session).unwrap(), Probe::Running(Holder { pid, ..Holder::default() }), "{text}");
        }
    }
}
