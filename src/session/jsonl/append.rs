//! Appending: one transaction, one line, one write; and the syncs behind it.
//!
//! Keeps true: the index says what the file says; nothing is written to a file that another program changed, or after
//! a failure; a sync covers every commit before it, and several that wait share one.
//!
//! Must not know: what is written.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::Disk;
use super::header::Header;
use super::line::{LINE_BYTES_MAX, LineBuilder};
use super::lock::Lock;
use super::options::{Durability, Options};
use super::pages::{Pages, Span, io_error};
use crate::model::Write;
use crate::port::{Committed, StoreError};
use crate::session::shelf::Shelf;
use crate::session::transaction::{Numbering, Prepared};

/// Bytes of a line that stand around its writes, at most.
const LINE_FRAME_BYTES: usize = 128;
/// A write that a signal interrupted before it began is tried so often.
const INTERRUPTS_MAX: u32 = 16;

/// An open session file.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) path: PathBuf,
    pub(super) header: Header,
    pub(super) options: Options,
    pub(super) warnings: Vec<String>,
    pub(super) shelf: Shelf<Pages>,
    pub(super) writer: Mutex<Writer>,
    /// How many commits the last sync covered.
    pub(super) synced: AtomicU64,
    /// One sync at a time; who waits here is often covered by it.
    pub(super) syncing: tokio::sync::Mutex<()>,
    /// Directories with names that are not synced yet. Held while a sync runs.
    pub(super) unsynced_dirs: Mutex<Vec<PathBuf>>,
    pub(super) lock: Mutex<Option<Lock>>,
}

/// What the one writer knows of the file.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) numbering: Numbering,
    pub(super) seen: Seen,
    pub(super) repair: Repair,
    /// Commits so far, and one for what was in the file before, which a killed process may not have synced.
    pub(super) written: u64,
    /// Why nothing more is written.
    pub(super) dead: Option<String>,
}

/// The file as this process saw it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) size: u64,
}

impl Seen {
    pub(super) fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino(), size: found.len() }
    }
}

/// What must be done before the first append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Repair {
    Nothing,
    /// The last line lacks its line feed.
    Newline,
    /// From there on nothing is a record. It is copied and cut off.
    Torn {
        from: u64,
        copy: PathBuf,
    },
}

impl Session {
    pub(super) fn new(path: &Path, header: Header, options: Options, shelf: Shelf<Pages>, writer: Writer) -> Self {
        Self {
            path: path.to_owned(),
            header,
            options,
            warnings: Vec::new(),
            shelf,
            writer: Mutex::new(writer),
            synced: AtomicU64::new(0),
            syncing: tokio::sync::Mutex::new(()),
            unsynced_dirs: Mutex::default(),
            lock: Mutex::default(),
        }
    }

    pub(super) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.options.disk
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.shelf.source.file
    }

    fn io(&self, error: &io::Error) -> StoreError {
        io_error(&self.path, error)
    }

    /// Stores a transaction. The write is made at once, under the lock of the writer, so that commits keep their order.
    pub(super) fn commit(&self, writes: &[Write]) -> Result<Committed, StoreError> {
        let mut writer = self.writer();
        if let Some(reason) = &writer.dead {
            return Err(StoreError::Dead(reason.clone()));
        }
        let committed = self.append(&mut writer, writes);
        if let Err(error) = &committed {
            writer.dead = Some(error.to_string());
        }
        committed
    }

    fn append(&self, writer: &mut Writer, writes: &[Write]) -> Result<Committed, StoreError> {
        let now = self.options.clock.now_ms();
        let prepared = Prepared::new(writes, &self.shelf.index(), writer.numbering, now)?;
        if prepared.texts.is_empty() {
            return Ok(prepared.apply(&mut self.shelf.index_mut(), None));
        }
        let len: usize = prepared.texts.iter().map(|text| text.len() + 1).sum();
        if len > LINE_BYTES_MAX - LINE_FRAME_BYTES {
            return Err(StoreError::Invalid(format!("{len} bytes are too many for one transaction")));
        }
        self.check_foreign(writer)?;
        self.cut_torn(writer)?;
        let mut line = LineBuilder::new(prepared.at, writer.repair == Repair::Newline);
        let spans: Vec<Span> = prepared
            .texts
            .iter()
            .map(|text| {
                let offset = u64::try_from(line.push(text.as_bytes())).unwrap_or(u64::MAX);
                Span::new(writer.seen.size.saturating_add(offset), text.len())
            })
            .collect();
        self.write(writer, &line.finish())?;
        writer.repair = Repair::Nothing;
        writer.written += 1;
        writer.numbering = prepared.numbering();
        Ok(prepared.apply(&mut self.shelf.index_mut(), spans))
    }

    /// Another program may have appended, or put another file in this place.
    pub(super) fn check_foreign(&self, writer: &Writer) -> Result<(), StoreError> {
        match std::fs::metadata(&self.path) {
            Ok(found) if Seen::of(&found) == writer.seen => Ok(()),
            Ok(_) => Err(self.foreign()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(self.foreign()),
            Err(error) => Err(self.io(&error)),
        }
    }

    fn foreign(&self) -> StoreError {
        StoreError::ForeignWrite { file: self.path.display().to_string() }
    }

    /// One write. After a failure the file is as it was, if the disk lets it.
    fn write(&self, writer: &mut Writer, bytes: &[u8]) -> Result<(), StoreError> {
        let old = writer.seen.size;
        let len = to_u64(bytes.len());
        let taken = write_once(self.disk(), self.file(), bytes);
        let end = self.file().metadata().map_err(|error| self.io(&error))?.len();
        let count = taken.as_ref().map_or(0, |count| to_u64(*count));
        if end != old.saturating_add(count) {
            // Without a lock another process may have written between the check and the write. Ours goes again, if it
            // is the last; its places are taken.
            if count > 0 && self.ends_with(end, bytes.get(..taken.unwrap_or_default()).unwrap_or_default()) {
                self.disk().truncate(self.file(), end - count).map_err(|error| self.io(&error))?;
            }
            return Err(self.foreign());
        }
        let reason = match taken {
            Ok(_) if count == len => {
                writer.seen.size = end;
                return Ok(());
            }
            Ok(_) => {
                format!("only {count} of {len} bytes could be written: the disk is full, or its files may not grow")
            }
            Err(error) => error.to_string(),
        };
        let reason = match self.disk().truncate(self.file(), old) {
            Ok(()) => reason,
            Err(error) => format!("{reason}; and what it took could not be cut off: {error}"),
        };
        Err(io_error(&self.path, &reason))
    }

    fn ends_with(&self, end: u64, bytes: &[u8]) -> bool {
        let mut found = vec![0; bytes.len()];
        let start = end.checked_sub(to_u64(bytes.len()));
        start.is_some_and(|start| self.file().read_exact_at(&mut found, start).is_ok()) && found == bytes
    }

    /// Keeps a torn tail elsewhere, then cuts it off.
    fn cut_torn(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let Repair::Torn { from, copy } = &writer.repair else { return Ok(()) };
        let from = *from;
        let keep = || {
            let mut tail = File::open(&self.path)?;
            tail.seek(SeekFrom::Start(from))?;
            let mut tail = tail.take(writer.seen.size.saturating_sub(from));
            let mut kept = OpenOptions::new().write(true).create_new(true).mode(0o600).open(copy)?;
            io::copy(&mut tail, &mut kept)?;
            if self.options.durability != Durability::None {
                self.disk().sync(&kept)?;
                self.disk().sync_dir(directory(copy))?;
            }
            Ok(())
        };
        keep().map_err(|error: io::Error| io_error(copy, &error))?;
        self.disk().truncate(self.file(), from).map_err(|error| self.io(&error))?;
        writer.seen.size = from;
        writer.repair = Repair::Nothing;
        Ok(())
    }

    /// Waits until everything committed so far is on the disk.
    pub(super) async fn barrier(self: &Arc<Self>) -> Result<(), StoreError> {
        self.check_alive()?;
        let target = self.writer().written;
        if self.options.durability == Durability::None {
            return Ok(());
        }
        let _one = self.syncing.lock().await;
        // The sync that was waited for may have failed. The system tells that once, so another one would succeed.
        self.check_alive()?;
        if self.synced.load(Ordering::Acquire) >= target {
            return Ok(());
        }
        let session = Arc::clone(self);
        let synced = tokio::task::spawn_blocking(move || session.sync_now()).await;
        synced.unwrap_or_else(|error| Err(io_error(&self.path, &error)))
    }

    fn check_alive(&self) -> Result<(), StoreError> {
        self.writer().dead.clone().map_or(Ok(()), |reason| Err(StoreError::Dead(reason)))
    }

    /// The result is kept here too: whoever asked may have left.
    fn sync_now(&self) -> Result<(), StoreError> {
        // One at a time here as well: one that nobody waits for any more may still run, and fail.
        let mut dirs = self.unsynced_dirs.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_alive()?;
        let target = self.writer().written;
        if let Err(error) = self.sync_files(&mut dirs) {
            // What the disk kept is not known.
            self.writer().dead.get_or_insert_with(|| error.to_string());
            return Err(error);
        }
        self.synced.fetch_max(target, Ordering::AcqRel);
        Ok(())
    }

    fn sync_files(&self, dirs: &mut Vec<PathBuf>) -> Result<(), StoreError> {
        self.disk().sync(self.file()).map_err(|error| self.io(&error))?;
        while let Some(dir) = dirs.last() {
            self.disk().sync_dir(dir).map_err(|error| io_error(dir, &error))?;
            dirs.pop();
        }
        Ok(())
    }
}

/// One write call, but for a signal that came before it.
fn write_once(disk: &dyn Disk, file: &File, bytes: &[u8]) -> io::Result<usize> {
    let mut tries = 0;
    loop {
        match disk.write(file, bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && tries < INTERRUPTS_MAX => tries += 1,
            result => return result,
        }
    }
}

/// Writes all bytes of a file that nobody reads yet.
pub(in crate::session) fn write_all(disk: &dyn Disk, file: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = write_once(disk, file, bytes)?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(count..).unwrap_or_default();
    }
    Ok(())
}

/// The directory of a file.
pub(super) fn directory(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn to_u64(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
