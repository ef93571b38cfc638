//! The file a call may change, as it was when the call's turn began (tool rules M5, M6, P6).
//!
//! Keeps true: only regular files are opened; what was read is what is replaced; a link stays a link, and no directory is
//! made behind one.
//!
//! Must not know: what is written, and how.

use std::fs::Metadata;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::place::Place;
use super::{Mutations, Request};
use crate::port::Access;
use crate::tool::Failure;
use crate::tool::open::{OpenError, is_kernel_place, not_a_file, open_regular};

/// A file, or the place of one that does not exist yet.
pub(in crate::tool) struct Target<'a> {
    pub(super) mutations: &'a Mutations,
    pub(super) request: &'a Request,
    place: Place,
    pub(super) before: Option<Before>,
}

/// What is known of a file that exists.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) stamp: Stamp,
    /// Permission bits.
    pub(super) mode: u32,
    pub(super) owner: u32,
    pub(super) group: u32,
    pub(super) names: u64,
}

/// Tells one state of a file from another (tool rule M6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    pub(super) size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl Before {
    fn of(metadata: &Metadata) -> Self {
        Self {
            stamp: Stamp::of(metadata),
            mode: metadata.mode() & 0o7777,
            owner: metadata.uid(),
            group: metadata.gid(),
            names: metadata.nlink(),
        }
    }
}

impl<'a> Target<'a> {
    /// Looks at a file whose turn has come.
    pub(super) fn look(mutations: &'a Mutations, request: &'a Request, earlier: Place) -> Result<Self, Failure> {
        let shown = &request.shown;
        if request.cancel.is_cancelled() {
            return Err(Failure::aborted());
        }
        let key = earlier.key();
        // While the call waited, the path may have come to lead elsewhere.
        request.places.guard.check(&earlier.path, shown, Access::Write)?;
        let place = Place::find(earlier.path, shown)?;
        if place.key() != key {
            return Err(conflict(shown));
        }
        request.places.guard.check(&place.real, shown, Access::Write)?;
        if is_kernel_place(&place.real) {
            return Err(not_a_file(shown));
        }
        let before = match std::fs::metadata(&place.path) {
            Ok(metadata) => Some(existing(&place, &metadata, shown)?),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(lookup_failure(shown, &error)),
        };
        Ok(Self { mutations, request, place, before })
    }

    /// Absolute, as the model meant it.
    pub(in crate::tool) fn path(&self) -> &Path {
        &self.place.path
    }

    /// The file itself, behind all links.
    pub(super) fn real(&self) -> &Path {
        &self.place.real
    }

    pub(in crate::tool) fn shown(&self) -> &str {
        &self.request.shown
    }

    /// Bytes of the file; `None` if there is none.
    pub(in crate::tool) fn size(&self) -> Option<u64> {
        self.before.as_ref().map(|before| before.stamp.size)
    }

    /// The whole content; `None` if there is no file, or if it may be changed but not read.
    ///
    /// # Errors
    /// `conflict` if the file is no longer the one that was looked at; `aborted`; whatever the system refuses.
    pub(in crate::tool) fn read(&self) -> Result<Option<Vec<u8>>, Failure> {
        let Some(before) = &self.before else { return Ok(None) };
        let changed = || conflict(self.shown());
        let (file, metadata) = match open_regular(self.real()) {
            Ok(opened) => opened,
            Err(OpenError::System(error)) if error.kind() == ErrorKind::PermissionDenied => return Ok(None),
            Err(OpenError::System(error)) => return Err(Failure::io(self.shown(), &error)),
            Err(OpenError::Missing | OpenError::Directory | OpenError::Special) => return Err(changed()),
        };
        if Stamp::of(&metadata) != before.stamp {
            return Err(changed());
        }
        let mut bytes = Vec::new();
        // One byte more tells that it grew.
        let limit = before.stamp.size.saturating_add(1);
        file.take(limit).read_to_end(&mut bytes).map_err(|error| Failure::io(self.shown(), &error))?;
        if bytes.len() as u64 != before.stamp.size {
            return Err(changed());
        }
        Ok(Some(bytes))
    }

    /// Whether the file is still the one that was looked at, or there still is none.
    pub(super) fn is_unchanged(&self) -> bool {
        let now = std::fs::symlink_metadata(self.real()).ok().map(|metadata| Stamp::of(&metadata));
        now == self.before.as_ref().map(|before| before.stamp)
    }

    /// The directories above a new file that do not exist, outermost first.
    ///
    /// # Errors
    /// A parent that is no directory; a link that leads nowhere: what is behind it is somebody else's (tool rule M5).
    pub(super) fn missing_parents(&self) -> Result<Vec<PathBuf>, Failure> {
        let shown = self.shown();
        let dangling = || {
            let text = format!("{shown} leads through a link into a directory that does not exist.");
            Failure::new("not_found", text)
        };
        if std::fs::symlink_metadata(self.path()).is_ok() {
            // A link without a target.
            return if self.real().parent().is_some_and(Path::is_dir) { Ok(Vec::new()) } else { Err(dangling()) };
        }
        let mut missing = Vec::new();
        for parent in self.path().ancestors().skip(1) {
            let kind = match std::fs::symlink_metadata(parent) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    missing.push(parent.to_path_buf());
                    continue;
                }
                Err(error) => return Err(lookup_failure(shown, &error)),
                Ok(metadata) if metadata.is_symlink() => match std::fs::metadata(parent) {
                    Err(error) if error.kind() == ErrorKind::NotFound => return Err(dangling()),
                    other => other.map_err(|error| lookup_failure(shown, &error))?,
                },
                Ok(metadata) => metadata,
            };
            if !kind.is_dir() {
                return Err(no_directory(shown));
            }
            break;
        }
        missing.reverse();
        Ok(missing)
    }
}

fn existing(place: &Place, metadata: &Metadata, shown: &str) -> Result<Before, Failure> {
    if metadata.is_dir() {
        return Err(is_directory(shown));
    }
    // What a link of the kernel's leads to may have no name, such as a pipe, or a file that was removed.
    let named = std::fs::symlink_metadata(&place.real).is_ok_and(|real| Stamp::of(&real) == Stamp::of(metadata));
    if !metadata.is_file() || !named {
        return Err(not_a_file(shown));
    }
    let access =
        rustix::fs::accessat(rustix::fs::CWD, &place.real, rustix::fs::Access::WRITE_OK, rustix::fs::AtFlags::EACCESS);
    // A file that is protected against writing is not replaced either, though its directory would allow it. Where the
    // question is not understood, the attempt will tell.
    if access == Err(rustix::io::Errno::ACCESS) {
        return Err(Failure::unwritable(shown, &std::io::Error::from(rustix::io::Errno::ACCESS)));
    }
    Ok(Before::of(metadata))
}

/// Somebody else changed the file in the meantime (tool rule M6).
pub(super) fn conflict(shown: &str) -> Failure {
    Failure::new("conflict", format!("{shown} changed while it was being edited; read it again."))
}

pub(in crate::tool) fn is_directory(shown: &str) -> Failure {
    Failure::new("is_directory", format!("{shown} is a directory."))
}

pub(super) fn no_directory(shown: &str) -> Failure {
    Failure::new("not_directory", format!("A parent of {shown} is not a directory."))
}

fn lookup_failure(shown: &str, error: &std::io::Error) -> Failure {
    if error.kind() == ErrorKind::NotADirectory { no_directory(shown) } else { Failure::unwritable(shown, error) }
}
