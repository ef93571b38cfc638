//! Opening files without surprises (tool rule P6).
//!
//! Keeps true: only regular files are opened, and opening never waits for a peer.
//!
//! Must not know: what is read.

use std::fs::{File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::Failure;

/// Why a path could not be opened as a regular file.
#[derive(Debug)]
pub(super) enum OpenError {
    Missing,
    Directory,
    /// A pipe, a socket, a device.
    Special,
    System(std::io::Error),
}

impl OpenError {
    fn system(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Self::Missing,
            _ => Self::System(error),
        }
    }
}

/// What a special file is to the model.
pub(super) fn not_a_file(shown: &str) -> Failure {
    Failure::new("not_a_file", format!("{shown} is not a regular file."))
}

/// Opens a regular file for reading. Looks before it opens, because opening a pipe or a device can have effects; looks
/// again afterwards, because the path may have been exchanged in between.
pub(super) fn open_regular(path: &Path) -> Result<(File, Metadata), OpenError> {
    regular(&std::fs::metadata(path).map_err(OpenError::system)?)?;
    // With this flag a pipe opens at once, and a read gives up where it would wait.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(OpenError::system)?;
    let metadata = file.metadata().map_err(OpenError::system)?;
    regular(&metadata)?;
    Ok((file, metadata))
}

fn regular(metadata: &Metadata) -> Result<(), OpenError> {
    if metadata.is_dir() {
        Err(OpenError::Directory)
    } else if metadata.is_file() {
        Ok(())
    } else {
        Err(OpenError::Special)
    }
}

/// Whether a file of size 0 has content nevertheless.
pub(super) fn is_generated(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|real| is_kernel_place(&real))
}

/// Whether what stands at a real path is made by the kernel as it is read.
pub(super) fn is_kernel_place(real: &Path) -> bool {
    real.starts_with("/proc") || real.starts_with("/sys")
}
