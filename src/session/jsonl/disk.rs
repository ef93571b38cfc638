//! The calls that change a disk, in one place.
//!
//! Keeps true: a session file is changed through here and nowhere else, so every failure of a disk can be had at will.
//!
//! Must not know: what is written.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// What a store asks of a disk. Each call is one system call, or the few that one needs.
pub trait Disk: Debug + Send + Sync {
    /// Writes to the end of a file opened for appending; tells how many bytes were taken.
    ///
    /// # Errors
    /// None was taken.
    fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<usize> {
        file.write(bytes)
    }

    /// Cuts a file.
    ///
    /// # Errors
    /// It was not cut.
    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    /// Waits until the contents of a file are on the disk.
    ///
    /// # Errors
    /// They may be lost.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    /// Waits until the names in a directory are on the disk.
    ///
    /// # Errors
    /// They may be lost.
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        match File::open(dir)?.sync_all() {
            // Some network file systems have no such thing.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
            result => result,
        }
    }

    /// Puts a file in the place of another one.
    ///
    /// # Errors
    /// The other one stays.
    #[expect(clippy::disallowed_methods, reason = "the file was synced before; this is the seam for it")]
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// It stays.
    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}

/// The disk of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct OsDisk;

impl Disk for OsDisk {}
