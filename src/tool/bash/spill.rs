//! Files that hold whole what a model sees cut (tool rule B9).
//!
//! Keeps true: a file is made when it is first needed and holds the output from its first byte on, up to the caps; only
//! the user can read it; whatever the disk says, the call goes on; without a session the files go when their owner does.
//!
//! Must not know: what is printed, what a model reads.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use crate::tool::reason;

/// Bytes of one file; what comes behind them is read and dropped.
pub(super) const CALL_BYTES_MAX: u64 = 64 << 20;
/// Bytes of all files of a session, those of earlier runs included.
pub(super) const SESSION_BYTES_MAX: u64 = 256 << 20;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const PRIVATE_PREFIX: &str = "pirn-";

/// Where files are made, and how much they hold together. One per tool; its private directory goes with it.
#[derive(Debug)]
pub(super) struct Spills {
    /// The system's directory for temporary files.
    temporary: PathBuf,
    private: Mutex<Option<TempDir>>,
    /// Bytes in each directory.
    used: Mutex<BTreeMap<PathBuf, u64>>,
}

impl Spills {
    pub(super) fn new(temporary: PathBuf) -> Self {
        Self { temporary, private: Mutex::default(), used: Mutex::default() }
    }

    /// The directory of this process, made when first asked for. Blocks.
    pub(super) fn private(&self) -> io::Result<PathBuf> {
        let mut private = lock(&self.private);
        if let Some(directory) = &*private {
            return Ok(directory.path().to_owned());
        }
        let permissions = Permissions::from_mode(DIRECTORY_MODE);
        let made =
            tempfile::Builder::new().prefix(PRIVATE_PREFIX).permissions(permissions).tempdir_in(&self.temporary)?;
        let path = made.path().to_owned();
        *private = Some(made);
        Ok(path)
    }

    /// Lets the private directory outlive this process, because something still writes there.
    pub(super) fn keep_private(&self) {
        if let Some(directory) = &mut *lock(&self.private) {
            directory.disable_cleanup(true);
        }
    }

    /// Makes a file of this name that only the user can read. Blocks.
    pub(super) fn create(&self, session: Option<&Path>, name: &str) -> io::Result<(PathBuf, File)> {
        let directory = match session {
            Some(directory) => {
                DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
                directory.to_owned()
            }
            None => self.private()?,
        };
        let path = directory.join(name);
        let file = create_private(&path)?;
        lock(&self.used).entry(directory).or_insert_with_key(|directory| bytes_in(directory));
        Ok((path, file))
    }

    /// Claims room for at most `wanted` bytes in the directory of a file; returns how many there are.
    fn claim(&self, path: &Path, wanted: u64) -> u64 {
        let mut used = lock(&self.used);
        let Some(used) = path.parent().and_then(|directory| used.get_mut(directory)) else { return 0 };
        let granted = wanted.min(SESSION_BYTES_MAX.saturating_sub(*used));
        *used += granted;
        granted
    }

    /// Gives back the room of a file.
    fn give_back(&self, path: &Path, bytes: u64) {
        let mut used = lock(&self.used);
        if let Some(used) = path.parent().and_then(|directory| used.get_mut(directory)) {
            *used = used.saturating_sub(bytes);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An empty file for the user alone. A link of that name is not followed.
fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(FILE_MODE).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path)?;
    // One of an interrupted call may be there.
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    file.set_len(0)?;
    Ok(file)
}

/// What the files of a directory hold; what can not be seen counts nothing.
fn bytes_in(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let sizes = entries.filter_map(|entry| Some(entry.ok()?.metadata().ok().filter(std::fs::Metadata::is_file)?.len()));
    sizes.fold(0, u64::saturating_add)
}

/// Which cap ended a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capped {
    Call,
    Session,
}

/// What became of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Saved {
    pub(super) path: Option<PathBuf>,
    pub(super) capped: Option<Capped>,
    /// Why there is no file, or not all of it.
    pub(super) failure: Option<String>,
}

/// The output of one call: held until a file is needed, then in the file. All its methods may block.
#[derive(Debug)]
pub(super) struct Spill {
    spills: Arc<Spills>,
    session: Option<PathBuf>,
    name: String,
    /// Bytes held at most.
    held_max: usize,
    state: State,
    /// Bytes in the file.
    written: u64,
    /// The model knows the file.
    is_promised: bool,
}

#[derive(Debug)]
enum State {
    /// Everything so far.
    Held(Vec<u8>),
    Open {
        path: PathBuf,
        file: File,
    },
    Full {
        path: PathBuf,
        capped: Capped,
    },
    Failed {
        reason: String,
    },
    Discarded,
}

impl Spill {
    /// Of a call named `name`, in the directory of its session if it has one.
    pub(super) fn new(spills: &Arc<Spills>, session: Option<PathBuf>, name: String, held_max: usize) -> Self {
        let state = State::Held(Vec::new());
        Self { spills: Arc::clone(spills), session, name, held_max, state, written: 0, is_promised: false }
    }

    /// Whether adding this much goes to the disk.
    pub(super) fn would_block(&self, bytes: usize, is_needed: bool) -> bool {
        match &self.state {
            State::Held(held) => is_needed || held.len() + bytes > self.held_max,
            State::Open { .. } => true,
            State::Full { .. } | State::Failed { .. } | State::Discarded => false,
        }
    }

    /// Whether there is a file.
    pub(super) fn has_file(&self) -> bool {
        matches!(self.state, State::Open { .. } | State::Full { .. })
    }

    /// Takes the next bytes; makes the file once it `is_needed` or there is too much to hold.
    pub(super) fn add(&mut self, bytes: &[u8], is_needed: bool) {
        match &mut self.state {
            State::Held(held) => {
                held.extend_from_slice(bytes);
                if is_needed || held.len() > self.held_max {
                    self.open();
                }
            }
            State::Open { .. } => self.write(bytes),
            State::Full { .. } | State::Failed { .. } | State::Discarded => {}
        }
    }

    /// Makes the file now, for the model to read while it grows.
    pub(super) fn promise(&mut self) {
        self.is_promised = true;
        self.open();
    }

    fn open(&mut self) {
        let State::Held(held) = &mut self.state else { return };
        let held = std::mem::take(held);
        match self.spills.create(self.session.as_deref(), &self.name) {
            Ok((path, file)) => {
                self.state = State::Open { path, file };
                self.write(&held);
            }
            Err(error) => self.state = State::Failed { reason: reason(&error) },
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let State::Open { path, file } = &mut self.state else { return };
        let wanted = bytes.len() as u64;
        let of_call = wanted.min(CALL_BYTES_MAX.saturating_sub(self.written));
        let granted = self.spills.claim(path, of_call);
        let fits = usize::try_from(granted).unwrap_or(usize::MAX).min(bytes.len());
        if let Err(error) = file.write_all(bytes.get(..fits).unwrap_or_default()) {
            // What is there is not the whole, and the disk may need its room.
            let mut reason = reason(&error);
            if self.is_promised {
                self.spills.give_back(path, granted);
            } else if let Err(error) = std::fs::remove_file(&*path) {
                reason = format!("{reason}; {}", crate::tool::reason(&error));
            } else {
                self.spills.give_back(path, self.written + granted);
            }
            self.state = State::Failed { reason };
            return;
        }
        self.written += granted;
        if granted < wanted {
            let capped = if granted < of_call { Capped::Session } else { Capped::Call };
            self.state = State::Full { path: std::mem::take(path), capped };
        }
    }

    /// Removes the file, if there is one that was not promised: nothing was cut.
    pub(super) fn discard(&mut self) {
        if self.is_promised {
            return;
        }
        if let State::Open { path, .. } | State::Full { path, .. } = &self.state
            && std::fs::remove_file(path).is_ok()
        {
            self.spills.give_back(path, self.written);
        }
        self.state = State::Discarded;
    }

    /// What became of the file so far.
    pub(super) fn saved(&self) -> Saved {
        let mut saved = Saved::default();
        match &self.state {
            State::Held(_) | State::Discarded => {}
            State::Open { path, .. } => saved.path = Some(path.clone()),
            State::Full { path, capped } => {
                (saved.path, saved.capped) = (Some(path.clone()), Some(*capped));
            }
            State::Failed { reason } => saved.failure = Some(reason.clone()),
        }
        saved
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::sync::Arc;

    use super::{CALL_BYTES_MAX, Capped, SESSION_BYTES_MAX, Saved, Spill, Spills};

    fn spill(spills: &Arc<Spills>, session: Option<&Path>, name: &str) -> Spill {
        Spill::new(spills, session.map(Path::to_owned), name.to_owned(), 4)
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_file_is_made_when_needed_and_holds_everything_b9() {
        let directory = tempfile::tempdir().unwrap();
        let spills = Arc::new(Spills::new(directory.path().to_owned()));
        let session = directory.path().join("state/s.d");
        let mut kept = spill(&spills, Some(&session), "e1.log");
        kept.add(b"ab", false);
        assert!(!session.exists() && kept.saved() == Saved::default());
        kept.add(b"c", true);
        kept.add(b"\xff", false);
        let path = kept.saved().path.unwrap();
        assert_eq!(path, session.join("e1.log"));
        assert_eq!(std::fs::read(&path).unwrap(), b"abc\xff");
        assert_eq!((mode(&session), mode(&path)), (0o700, 0o600));
        // More than can be held goes to the disk unasked, and from there again if nothing was cut.
        let mut dropped = spill(&spills, Some(&session), "e2.log");
        assert!(!dropped.would_block(4, false) && dropped.would_block(5, false));
        dropped.add(b"12345", false);
        assert!(session.join("e2.log").exists());
        dropped.discard();
        assert!(!session.join("e2.log").exists() && dropped.saved() == Saved::default());
    }

    #[test]
    fn without_a_session_files_go_with_their_owner_b9() {
        let directory = tempfile::tempdir().unwrap();
        let spills = Arc::new(Spills::new(directory.path().to_owned()));
        let mut one = spill(&spills, None, "e1.log");
        one.add(b"x", true);
        let path = one.saved().path.unwrap();
        assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
        drop((one, spills));
        assert!(!path.parent().unwrap().exists());
        assert!(std::fs::read_dir(directory.path()).unwrap().next().is_none());
    }

    #[test]
    fn a_call_and_a_session_have_their_caps_b9() {
        const CHUNK: usize = 1 << 20;
        let directory = tempfile::tempdir().unwrap();
        let spills = Arc::new(Spills::new(directory.path().to_owned()));
        let chunk = vec![b'x'; CHUNK];
        let mut call = spill(&spills, Some(directory.path()), "e1.log");
        for _ in 0..=CALL_BYTES_MAX / CHUNK as u64 {
            call.add(&chunk, true);
        }
        let saved = call.saved();
        assert_eq!(saved.capped, Some(Capped::Call));
        assert_eq!(std::fs::metadata(saved.path.unwrap()).unwrap().len(), CALL_BYTES_MAX);
        call.discard();
        // Files of earlier runs count.
        std::fs::File::create(directory.path().join("old.log")).unwrap().set_len(SESSION_BYTES_MAX - 3).unwrap();
        let spills = Arc::new(Spills::new(directory.path().to_owned()));
        let mut late = spill(&spills, Some(directory.path()), "e2.log");
        late.add(b"12345", true);
        let saved = late.saved();
        assert_eq!(saved.capped, Some(Capped::Session));
        assert_eq!(std::fs::read(saved.path.unwrap()).unwrap(), b"123");
        late.discard();
        let mut next = spill(&spills, Some(directory.path()), "e3.log");
        next.add(b"123", true);
        assert_eq!(next.saved().capped, None, "what was discarded no longer counts");
    }

    #[test]
    fn a_disk_that_takes_nothing_is_a_reason_and_no_failure_b9() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::File::create(&file).unwrap();
        let spills = Arc::new(Spills::new(file.join("nowhere")));
        let mut failed = spill(&spills, Some(&file.join("s.d")), "e1.log");
        failed.add(b"x", true);
        failed.add(b"y", true);
        assert_eq!(failed.saved(), Saved { failure: Some("Not a directory".to_owned()), ..Saved::default() });
        // A link of that name leads nowhere.
        std::os::unix::fs::symlink(&file, directory.path().join("e2.log")).unwrap();
        let mut linked = spill(&spills, Some(directory.path()), "e2.log");
        linked.add(b"x", true);
        assert!(linked.saved().failure.is_some());
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 0);
    }
}
