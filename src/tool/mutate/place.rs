//! Where a path leads (tool rules M1, M5).
//!
//! Keeps true: two paths that lead to one file have one key, links and hard links included; a link that leads nowhere
//! counts as the place it names.
//!
//! Must not know: what is there.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use super::queue::Key;
use crate::tool::Failure;
use crate::tool::guard::real_path;

/// A path, and what it led to when it was looked at.
#[derive(Debug)]
pub(super) struct Place {
    /// Absolute, as the model meant it.
    pub(super) path: PathBuf,
    /// The same with links followed.
    pub(super) real: PathBuf,
    /// Device and number of a file with several names.
    shared: Option<(u64, u64)>,
}

impl Place {
    /// Follows an absolute path, about which the guard was asked.
    pub(super) fn find(path: PathBuf, shown: &str) -> Result<Self, Failure> {
        // The same error as the system's, which would say it when the path is used.
        let looped = || Failure::unwritable(shown, &std::io::Error::from_raw_os_error(libc::ELOOP));
        let real = real_path(&path).ok_or_else(looped)?;
        let metadata = std::fs::symlink_metadata(&real).ok();
        let shared = metadata.filter(|metadata| metadata.is_file() && metadata.nlink() > 1);
        Ok(Self { path, real, shared: shared.map(|metadata| (metadata.dev(), metadata.ino())) })
    }

    /// What calls on this file take turns on.
    pub(super) fn key(&self) -> Key {
        match self.shared {
            Some((device, inode)) => Key::Inode { device, inode },
            None => Key::Path(self.real.clone()),
        }
    }
}
