//! The operations on files that can go wrong half-way (tool rules M3, M4).
//!
//! Keeps true: each operation either happens or is an error; a temporary file goes away with its handle.
//!
//! Must not know: in which order they are used, what a failure means.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::{NamedTempFile, TempPath};

/// What a replacement asks of a file system.
pub(super) trait Disk: Send + Sync {
    /// Creates an empty file next to its destination. The user's mask applies to `mode`.
    fn temporary(&self, directory: &Path, prefix: &OsStr, mode: u32) -> std::io::Result<NamedTempFile>;

    /// Writes all of `bytes` at `offset`.
    fn write(&self, file: &mut File, offset: u64, bytes: &[u8]) -> std::io::Result<()>;

    /// Makes sure that a file has room for `length` bytes; its content and its size stay.
    fn reserve(&self, file: &File, length: u64) -> std::io::Result<()>;

    /// Cuts a file, or lengthens it.
    fn resize(&self, file: &File, length: u64) -> std::io::Result<()>;

    /// Waits until a file or a directory is on the medium.
    fn sync(&self, file: &File) -> std::io::Result<()>;

    /// Gives a temporary file its name; with `fresh` nothing may have the name yet. The file is removed on failure.
    fn rename(&self, temporary: TempPath, to: &Path, fresh: bool) -> std::io::Result<()>;
}

/// The file system itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct System;

impl Disk for System {
    fn temporary(&self, directory: &Path, prefix: &OsStr, mode: u32) -> std::io::Result<NamedTempFile> {
        tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(mode)).tempfile_in(directory)
    }

    fn write(&self, file: &mut File, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(bytes)
    }

    #[cfg(target_os = "linux")]
    fn reserve(&self, file: &File, length: u64) -> std::io::Result<()> {
        Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, length)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn reserve(&self, _file: &File, _length: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn resize(&self, file: &File, length: u64) -> std::io::Result<()> {
        file.set_len(length)
    }

    fn sync(&self, file: &File) -> std::io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, temporary: TempPath, to: &Path, fresh: bool) -> std::io::Result<()> {
        let renamed = if fresh { temporary.persist_noclobber(to) } else { temporary.persist(to) };
        renamed.map_err(|failed| failed.error)
    }
}
