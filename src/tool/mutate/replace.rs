//! New content in the place of old (tool rules M3, M4, M6).
//!
//! Keeps true: whoever opens the file finds the old content or the new one, never a part, unless the file could only be
//! changed in place; a failure leaves the old content and no temporary file; nothing that others put there meanwhile is
//! overwritten.
//!
//! Must not know: what the content is.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{Gid, Uid};

use super::target::{Before, Stamp, Target, conflict, no_directory};
use crate::port::Access;
use crate::tool::{Failure, reason};

/// Bytes of a name on the file systems there are.
const NAME_BYTES_MAX: usize = 255;
/// Bytes that tempfile puts behind the prefix.
const RANDOM_BYTES: usize = 6;
/// Before the mask of the user.
const NEW_FILE_MODE: u32 = 0o666;
/// Of a temporary file until it gets the mode of the file it replaces.
const PRIVATE_MODE: u32 = 0o600;
/// Bytes between two looks at the cancellation.
const CHUNK_BYTES: usize = 256 << 10;
/// Old content up to here is kept in memory while a file is changed in place, to be put back if that fails.
const RESTORE_BYTES_MAX: u64 = 32 << 20;
/// Bytes of the names, or of the value, of extended attributes that are carried over.
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;
/// Attributes that speak of the old content; the kernel drops them as well when a file is written to.
const ATTRIBUTES_OF_CONTENT: [&[u8]; 3] = [b"security.capability", b"security.ima", b"security.evm"];

/// Why a file was not replaced by another one.
enum Setback {
    /// It can only be changed in place (tool rule M4).
    InPlace,
    Failed(Failure),
}

impl From<Failure> for Setback {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Target<'_> {
    /// Gives the file this content, with the directories above a new one. Tells whether that was atomic.
    ///
    /// # Errors
    /// `conflict`, `aborted`, `denied`, `not_directory`, `permission_denied`, `io`. Except where the text says so, the
    /// file is as it was.
    pub(in crate::tool) fn replace(&self, content: &[u8]) -> Result<bool, Failure> {
        if self.before.is_none() {
            self.make_parents()?;
        }
        let replaced = if self.has_other_names() { Err(Setback::InPlace) } else { self.replace_atomically(content) };
        match replaced {
            Ok(()) => Ok(true),
            Err(Setback::InPlace) => self.change_in_place(content).map(|()| false),
            Err(Setback::Failed(failure)) => Err(failure),
        }
    }

    fn has_other_names(&self) -> bool {
        self.before.as_ref().is_some_and(|before| before.names > 1)
    }

    /// Only directories that the guard lets through: the outermost ones may lie above its roots.
    fn make_parents(&self) -> Result<(), Failure> {
        for directory in self.missing_parents()? {
            self.request.places.guard.check(&directory, self.shown(), Access::Write)?;
            match std::fs::create_dir(&directory) {
                Ok(()) => {}
                // Another call may have been faster.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && directory.is_dir() => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(no_directory(self.shown())),
                Err(error) => return Err(self.unwritable(&error)),
            }
        }
        Ok(())
    }

    fn replace_atomically(&self, content: &[u8]) -> Result<(), Setback> {
        let disk = &*self.mutations.disk;
        let (Some(directory), Some(name)) = (self.real().parent(), self.real().file_name()) else {
            return Err(Setback::InPlace);
        };
        let mode = if self.before.is_some() { PRIVATE_MODE } else { NEW_FILE_MODE };
        let mut temporary =
            disk.temporary(directory, &prefix(name), mode).map_err(|error| self.no_temporary(&error))?;
        let file = temporary.as_file_mut();
        let mut offset = 0;
        for chunk in content.chunks(CHUNK_BYTES) {
            self.heed_cancellation()?;
            disk.write(file, offset, chunk).map_err(|error| self.unwritable(&error))?;
            offset = offset.saturating_add(chunk.len() as u64);
        }
        if let Some(before) = &self.before {
            take_over(file, self.real(), before)?;
        }
        if self.mutations.fsync {
            disk.sync(file).map_err(|error| self.unwritable(&error))?;
        }
        self.heed_cancellation()?;
        if !self.is_unchanged() {
            return Err(conflict(self.shown()).into());
        }
        let fresh = self.before.is_none();
        let path = temporary.into_temp_path();
        disk.rename(path, self.real(), fresh).map_err(|error| self.not_renamed(&error))?;
        if self.mutations.fsync { self.sync_directory(directory).map_err(Setback::Failed) } else { Ok(()) }
    }

    /// A directory that takes no further file may hold one that can be written to.
    fn no_temporary(&self, error: &std::io::Error) -> Setback {
        match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem if self.before.is_some() => Setback::InPlace,
            ErrorKind::NotADirectory => no_directory(self.shown()).into(),
            _ => self.unwritable(error).into(),
        }
    }

    /// A single file that is mounted, or one of somebody else's in a shared directory, can not be exchanged.
    fn not_renamed(&self, error: &std::io::Error) -> Setback {
        match error.kind() {
            ErrorKind::CrossesDevices | ErrorKind::PermissionDenied | ErrorKind::ResourceBusy => Setback::InPlace,
            ErrorKind::AlreadyExists | ErrorKind::IsADirectory => conflict(self.shown()).into(),
            _ => self.unwritable(error).into(),
        }
    }

    /// Makes a rename durable.
    fn sync_directory(&self, directory: &Path) -> Result<(), Failure> {
        let synced = File::open(directory).and_then(|directory| self.mutations.disk.sync(&directory));
        match synced {
            Ok(()) => Ok(()),
            // Not every directory can be opened or synced; what could be done is done.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported
                ) =>
            {
                Ok(())
            }
            Err(error) => {
                let text = format!("{} was changed, but may not survive a crash: {}.", self.shown(), reason(&error));
                Err(Failure::new("io", text))
            }
        }
    }

    /// Writes into the file itself. What can fail is tried first, so that a full disk changes nothing.
    fn change_in_place(&self, content: &[u8]) -> Result<(), Failure> {
        let disk = &*self.mutations.disk;
        let old = match self.size() {
            Some(size) if size <= RESTORE_BYTES_MAX => self.read()?,
            _ => None,
        };
        let mut file = self.open_in_place()?;
        let length = content.len() as u64;
        if self.size().is_none_or(|size| size < length)
            && let Err(error) = disk.reserve(&file, length)
            && is_full(&error)
        {
            self.forget_new();
            return Err(self.unwritable(&error));
        }
        // From here on the change is completed, whoever waits for it.
        self.heed_cancellation().inspect_err(|_| self.forget_new())?;
        let written = disk
            .write(&mut file, 0, content)
            .and_then(|()| disk.resize(&file, length))
            .and_then(|()| if self.mutations.fsync { disk.sync(&file) } else { Ok(()) });
        written.map_err(|error| self.put_back(&mut file, old.as_deref(), &error))
    }

    fn open_in_place(&self) -> Result<File, Failure> {
        // With these flags nothing but the file that was looked at can be opened, and opening never waits.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
        let mut options = OpenOptions::new();
        options.write(true).create_new(self.before.is_none()).mode(NEW_FILE_MODE).custom_flags(flags);
        let file = options.open(self.real()).map_err(|error| {
            let is_gone = matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound);
            // The kernel's word for a link where none may be.
            let is_link = error.raw_os_error() == Some(libc::ELOOP);
            if is_gone || is_link { conflict(self.shown()) } else { self.unwritable(&error) }
        })?;
        let metadata = file.metadata().map_err(|error| self.unwritable(&error))?;
        match &self.before {
            Some(before) if before.stamp != Stamp::of(&metadata) => Err(conflict(self.shown())),
            Some(_) | None => Ok(file),
        }
    }

    /// Undoes what a failed write left.
    fn put_back(&self, file: &mut File, old: Option<&[u8]>, error: &std::io::Error) -> Failure {
        let disk = &*self.mutations.disk;
        if self.before.is_none() {
            self.forget_new();
            return self.unwritable(error);
        }
        let restored =
            old.is_some_and(|old| disk.write(file, 0, old).and_then(|()| disk.resize(file, old.len() as u64)).is_ok());
        if restored {
            return self.unwritable(error);
        }
        let text = format!("{} is damaged: writing it in place failed half-way: {}.", self.shown(), reason(error));
        Failure::new("io", text)
    }

    /// Removes a file that this call made and could not fill.
    fn forget_new(&self) {
        if self.before.is_none() {
            match std::fs::remove_file(self.real()) {
                // The failure that led here is the one to tell.
                Ok(()) | Err(_) => {}
            }
        }
    }

    fn heed_cancellation(&self) -> Result<(), Failure> {
        if self.request.cancel.is_cancelled() { Err(Failure::aborted()) } else { Ok(()) }
    }

    fn unwritable(&self, error: &std::io::Error) -> Failure {
        Failure::unwritable(self.shown(), error)
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

/// `.NAME.pirn-`, with as much of the name as leaves room for the rest.
fn prefix(name: &OsStr) -> OsString {
    const MARK: &[u8] = b".pirn-";
    let room = NAME_BYTES_MAX - RANDOM_BYTES - MARK.len() - 1;
    let name: &[u8] = name.as_bytes();
    let bytes: Vec<u8> = b".".iter().chain(name.iter().take(room)).chain(MARK).copied().collect();
    OsStr::from_bytes(&bytes).to_owned()
}

/// Makes a temporary file like the one it is to replace: owner, group, mode, extended attributes such as access lists.
fn take_over(file: &File, from: &Path, before: &Before) -> Result<(), Setback> {
    let in_place = |_: std::io::Error| Setback::InPlace;
    let own = file.metadata().map_err(in_place)?;
    if (own.uid(), own.gid()) != (before.owner, before.group) {
        let owner = (own.uid() != before.owner).then(|| Uid::from_raw(before.owner));
        let group = (own.gid() != before.group).then(|| Gid::from_raw(before.group));
        rustix::fs::fchown(file, owner, group).map_err(|error| in_place(error.into()))?;
    }
    file.set_permissions(std::fs::Permissions::from_mode(before.mode)).map_err(in_place)?;
    copy_attributes(file, from).map_err(in_place)
}

fn copy_attributes(file: &File, from: &Path) -> std::io::Result<()> {
    use rustix::fs::{XattrFlags, fgetxattr, fsetxattr, lgetxattr, llistxattr};
    use rustix::io::Errno;
    let mut names = vec![0; ATTRIBUTE_BYTES_MAX];
    let count = match llistxattr(from, &mut names) {
        Ok(count) => count,
        // A file system without attributes.
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut value = vec![0; if count == 0 { 0 } else { ATTRIBUTE_BYTES_MAX }];
    for name in names.get(..count).unwrap_or_default().split(|byte| *byte == 0) {
        if name.is_empty() || ATTRIBUTES_OF_CONTENT.contains(&name) {
            continue;
        }
        let name = OsStr::from_bytes(name);
        let count = lgetxattr(from, name, &mut value)?;
        let wanted = value.get(..count).unwrap_or_default();
        let mut own = vec![0; count.saturating_add(1)];
        // A label that the new file has anyway need not be set, which may be forbidden.
        if fgetxattr(file, name, &mut own) != Ok(count) || own.get(..count) != Some(wanted) {
            fsetxattr(file, name, wanted, XattrFlags::empty())?;
        }
    }
    Ok(())
}
