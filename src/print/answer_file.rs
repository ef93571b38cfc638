//! The file of `-o`: the final answer, all of it or nothing.
//!
//! Keeps true: whether it can be written is known before anything is sent; until there is an answer the file is
//! untouched; a reader sees the old content or the new, never a part; a link stays a link; a device, a pipe or a
//! descriptor is written as it is.
//!
//! Must not know: which verdicts have an answer.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use super::file::{Inherited, descriptor};
use super::pieces::write_piece;

/// Links that are followed to a file; what the system allows.
const LINKS_MAX: usize = 40;
/// Permissions of a new file, before the caller's umask.
const NEW: u32 = 0o666;
/// Bits of a mode that are permissions.
const PERMISSION_BITS: u32 = 0o777;
/// How a file begins that is not yet the answer.
const TEMPORARY_PREFIX: &str = ".pirn-";

/// Where the final answer goes.
#[derive(Debug)]
pub struct AnswerFile {
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// The caller's own descriptor.
    Descriptor(File),
    /// A device, a pipe or a socket.
    Special(PathBuf),
    /// A regular file with its permissions, or none yet.
    Regular { path: PathBuf, mode: Option<u32> },
}

impl AnswerFile {
    /// Finds out whether an answer can be written to a path, and changes nothing there.
    ///
    /// # Errors
    /// It cannot: a directory, a directory that is missing or closed to us, a file that is read-only.
    pub fn check(path: &Path, inherited: Inherited) -> io::Result<Self> {
        if let Some(number) = descriptor(path) {
            return Ok(Self { target: Target::Descriptor(inherited(number)?.into()) });
        }
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let path = followed(path)?;
        let target = match fs::symlink_metadata(&path) {
            Ok(facts) if facts.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(facts) if facts.is_file() => {
                drop(OpenOptions::new().write(true).open(&path)?);
                Target::Regular { mode: Some(facts.permissions().mode() & PERMISSION_BITS), path }
            }
            Ok(_) => Target::Special(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Target::Regular { path, mode: None },
            Err(error) => return Err(error),
        };
        if let Target::Regular { path, .. } = &target {
            if path.file_name().is_none() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            // A file without a name, which shows that one could be made.
            drop(tempfile::tempfile_in(parent(path))?);
        }
        Ok(Self { target })
    }

    /// Writes the answer as text mode prints it, with one line feed at its end. May wait for the reader of a pipe.
    ///
    /// # Errors
    /// The file is as it was, unless it is none that can be replaced.
    pub fn write(self, answer: &str) -> io::Result<()> {
        let mut bytes = answer.trim_end_matches('\n').as_bytes().to_vec();
        if !bytes.is_empty() {
            bytes.push(b'\n');
        }
        match self.target {
            Target::Descriptor(file) => write_all(file, &bytes),
            Target::Special(path) => write_all(OpenOptions::new().write(true).open(path)?, &bytes),
            Target::Regular { path, mode } => replace(&path, mode, &bytes),
        }
    }
}

/// Also to a descriptor in non-blocking mode.
fn write_all(mut file: File, bytes: &[u8]) -> io::Result<()> {
    write_piece(&mut file, bytes, &AtomicU64::new(0))?;
    file.flush()
}

fn replace(path: &Path, mode: Option<u32>, bytes: &[u8]) -> io::Result<()> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(TEMPORARY_PREFIX);
    if mode.is_none() {
        builder.permissions(Permissions::from_mode(NEW));
    }
    let mut file = builder.tempfile_in(parent(path))?;
    file.write_all(bytes)?;
    if let Some(mode) = mode {
        // The umask has no say in what the file already had.
        file.as_file().set_permissions(Permissions::from_mode(mode))?;
    }
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The file behind links, which need not exist.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::symlink_metadata(&path) {
            Ok(facts) if facts.is_symlink() => path = parent(&path).join(fs::read_link(&path)?),
            Ok(_) | Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many levels of symbolic links"))
}
