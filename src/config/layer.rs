//! One layer while it is read: where it stands and what it gathers.
//!
//! Keeps true: what a profile sets is kept under the key it overrides; every file that a value names is noted, so that
//! it can be trusted together with the file it stands in.
//!
//! Must not know: the keys, the rules.

use std::path::{Path, PathBuf};

use super::error::{ConfigError, Origin};
use super::file::{FileError, Files};
use super::written::{Shown, Written};

/// Where a layer stands and what it may do.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Where relative paths start.
    pub(super) dir: PathBuf,
    /// For paths that begin with `~/`.
    pub(super) home: Option<PathBuf>,
    /// Nobody but the user can read this layer, so a key may be written out in it.
    pub(super) private: bool,
    pub(super) files: Files,
}

/// What reading one layer needs and gathers.
pub(super) struct Layer<'a> {
    pub(super) source: &'a Source,
    /// What stands before each key in errors: `profiles.NAME.` or nothing.
    pub(super) prefix: &'a str,
    pub(super) errors: &'a mut Vec<ConfigError>,
    pub(super) written: &'a mut Written,
    /// Every file that was named, and whether it could be read.
    pub(super) named: &'a mut Vec<(PathBuf, Result<Vec<u8>, FileError>)>,
}

impl Layer<'_> {
    /// Notes a value under the key as errors show it.
    pub(super) fn keep(&mut self, shown: &str, at: Origin, value: Option<Shown>) {
        let key = shown.strip_prefix(self.prefix).unwrap_or(shown);
        let at = if self.prefix.is_empty() { at } else { at.of_profile() };
        self.written.keep(key, at, value);
    }

    /// Forgets what was kept under a key that differs in case only.
    pub(super) fn forget_alike(&mut self, shown: &str) {
        self.written.forget_alike(shown.strip_prefix(self.prefix).unwrap_or(shown));
    }

    /// Whether a key was set by this layer or one below.
    pub(super) fn knows(&self, shown: &str) -> bool {
        self.written.origins.contains_key(shown.strip_prefix(self.prefix).unwrap_or(shown))
    }

    /// A path as it is written. `None`: it begins with `~/`, and there is no home.
    pub(super) fn path(&self, text: &str) -> Option<PathBuf> {
        let path = match text.strip_prefix("~/") {
            Some(below) => self.source.home.as_ref()?.join(below),
            None => self.source.dir.join(text),
        };
        // Without the dots of `./x`; a slash at the end says that it is a directory.
        let mut plain: PathBuf = path.components().collect();
        if text.ends_with('/') {
            plain.push("");
        }
        Some(plain)
    }

    /// Reads a file that a value names.
    pub(super) fn read(&mut self, path: &Path) -> Result<Vec<u8>, FileError> {
        let read = self.source.files.read(path);
        let copy = match &read {
            Ok(bytes) => Ok(bytes.clone()),
            Err(error) => Err(FileError::Io(std::io::Error::other(error.to_string()))),
        };
        self.named.push((path.to_path_buf(), copy));
        read
    }
}
