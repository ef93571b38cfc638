//! Reading the files that configuration is written in or names.
//!
//! Keeps true: no file costs more than [`FILE_BYTES_MAX`] bytes of memory; a file nobody named on the command line is
//! read only if it is a regular one, so that a pipe or a device in its place cannot make a run wait; what a trusted
//! file names is read as it was when it was trusted.
//!
//! Must not know: what stands in the files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest file a configuration or a file that it names may be, in bytes.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a file could not be read whole.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("{}", words(.0))]
    Io(#[from] std::io::Error),
    #[error("larger than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    #[error("not a regular file")]
    NotRegular,
    #[error("not UTF-8 at byte {0}")]
    NotText(usize),
    /// It was not there when the file that names it was trusted.
    #[error("not trusted")]
    NotTrusted,
}

/// What the system says, without the number behind it.
fn words(error: &std::io::Error) -> String {
    let text = error.to_string();
    let mut letters = text.split(" (os error").next().unwrap_or_default().chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// Which files the values of a layer may name.
#[derive(Clone, Debug)]
pub(super) enum Files {
    /// Any, a pipe of the shell among them: the user named it.
    Any,
    Regular,
    /// Those that were trusted with the file, and as they were read when that was checked.
    Pinned(Arc<BTreeMap<PathBuf, Vec<u8>>>),
}

impl Files {
    pub(super) fn read(&self, path: &Path) -> Result<Vec<u8>, FileError> {
        match self {
            Self::Any => read_open(&File::open(path)?),
            Self::Regular => read_open(&open_regular(path)?),
            Self::Pinned(files) => files.get(path).cloned().ok_or(FileError::NotTrusted),
        }
    }
}

/// Opens a regular file; never waits.
pub(super) fn open_regular(path: &Path) -> Result<File, FileError> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        // A pipe nobody writes to would be waited for.
        options.custom_flags(libc::O_NONBLOCK);
    }
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(FileError::NotRegular) }
}

/// Reads an open file of at most [`FILE_BYTES_MAX`] bytes.
pub(super) fn read_open(file: &File) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    let mut limited = file.take(FILE_BYTES_MAX + 1);
    limited.read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= FILE_BYTES_MAX) {
        Ok(bytes)
    } else {
        Err(FileError::TooLarge)
    }
}

/// The bytes as text.
pub(super) fn text_of(bytes: Vec<u8>) -> Result<String, FileError> {
    String::from_utf8(bytes).map_err(|error| FileError::NotText(error.utf8_error().valid_up_to()))
}

/// Whether nobody but its owner can read a file.
#[cfg(unix)]
pub(super) fn is_private(file: &File) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    const OTHERS: u32 = 0o077;
    file.metadata().is_ok_and(|facts| facts.permissions().mode() & OTHERS == 0)
}

#[cfg(not(unix))]
pub(super) fn is_private(_: &File) -> bool {
    false
}
