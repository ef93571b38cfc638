//! Which project files the user has looked at.
//!
//! Keeps true: trust goes to a file's real path and content, and to the content of every file that it names; what is not
//! trusted is not interpreted, not even to find out what it names; the list is replaced as a whole, readable by its owner
//! only, and never believed where others can write it.
//!
//! Must not know: what stands in the files, which layer asks.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::Env;
use super::file::{FileError, open_regular, read_open};
use super::place::PlaceError;
use super::units::hex;

const FILE: &str = "trust.json";
/// Held while the list is replaced.
const LOCK: &str = "trust.lock";
const VERSION: u32 = 1;

/// What to do about a file that is not trusted.
pub(super) const REMEDY: &str = "review it, then run: pirn config trust (or use --trust, or --bare)";

/// Why the list of trusted files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("{path} cannot be used: {problem}")]
    List { path: String, problem: String },
    /// Another process is writing it.
    #[error("{path} is being written by another process; try again")]
    Busy { path: String },
    #[error("{path} cannot be trusted: {problem}")]
    File { path: String, problem: String },
}

/// What is known of a project file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The files it names, as they were read when they were compared.
    Trusted(BTreeMap<PathBuf, Vec<u8>>),
    Unknown,
    /// What differs from what was trusted: the file itself, or a file it names.
    Changed(PathBuf),
}

/// The list: real paths, with the hashes of what was trusted.
#[derive(Debug, Default, Serialize, Deserialize)]
struct List {
    version: u32,
    files: BTreeMap<String, Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    sha256: String,
    /// The files it names and their hashes.
    #[serde(default)]
    names: BTreeMap<String, String>,
}

/// Compares a file with the list. `bytes` is what it holds now. Nobody but the list says which files it names.
pub(super) fn verify(env: &Env, path: &Path, bytes: &[u8]) -> Result<Verdict, TrustError> {
    // Without a place for the list nothing was ever trusted.
    let Ok(dir) = env.state_dir() else { return Ok(Verdict::Unknown) };
    let mut list = read(&dir.join(FILE))?;
    let Some(entry) = path.to_str().and_then(|path| list.files.remove(path)) else { return Ok(Verdict::Unknown) };
    if entry.sha256 != hash(bytes) {
        return Ok(Verdict::Changed(path.to_path_buf()));
    }
    let mut named = BTreeMap::new();
    for (path, sha256) in entry.names {
        let path = PathBuf::from(path);
        match open_regular(&path).and_then(|file| read_open(&file)) {
            Ok(bytes) if hash(&bytes) == sha256 => named.insert(path, bytes),
            Ok(_) | Err(_) => return Ok(Verdict::Changed(path)),
        };
    }
    Ok(Verdict::Trusted(named))
}

/// Adds a file with the files it names, or replaces what is known of it.
pub(super) fn grant(
    env: &Env,
    path: &Path,
    bytes: &[u8],
    named: &BTreeMap<PathBuf, Vec<u8>>,
) -> Result<(), TrustError> {
    let mut names = BTreeMap::new();
    for (path, bytes) in named {
        names.insert(text_of(path)?, hash(bytes));
    }
    let entry = Entry { sha256: hash(bytes), names };
    let path = text_of(path)?;
    change(env, |list| list.files.insert(path, entry).is_some()).map(drop)
}

/// Takes a file off the list; `false`: it was not on it.
pub(super) fn revoke(env: &Env, path: &Path) -> Result<bool, TrustError> {
    let path = text_of(path)?;
    change(env, |list| list.files.remove(&path).is_some())
}

fn text_of(path: &Path) -> Result<String, TrustError> {
    let file = |path: &Path| TrustError::File { path: path.display().to_string(), problem: "not UTF-8".to_owned() };
    path.to_str().map(str::to_owned).ok_or_else(|| file(path))
}

fn change(env: &Env, edit: impl FnOnce(&mut List) -> bool) -> Result<bool, TrustError> {
    let dir = env.state_dir()?;
    let path = dir.join(FILE);
    let failed = |error: std::io::Error| unusable(&path, error.to_string());
    private_dir(&dir).map_err(failed)?;
    let lock = dir.join(LOCK);
    let lock = File::options().create(true).truncate(false).write(true).open(lock).map_err(failed)?;
    // A file system without locks is no reason: the list is replaced as a whole anyway.
    if let Err(std::fs::TryLockError::WouldBlock) = lock.try_lock() {
        return Err(TrustError::Busy { path: path.display().to_string() });
    }
    let mut list = read(&path)?;
    list.version = VERSION;
    let changed = edit(&mut list);
    let text = serde_json::to_string_pretty(&list).map_err(|error| unusable(&path, error.to_string()))?;
    replace(&dir, &path, &text).map_err(failed)?;
    Ok(changed)
}

fn read(path: &Path) -> Result<List, TrustError> {
    let file = match open_regular(path) {
        Ok(file) => file,
        Err(FileError::Io(error)) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(List::default());
        }
        Err(error) => return Err(unusable(path, error.to_string())),
    };
    if others_can_write(&file) {
        return Err(unusable(path, "others can write it".to_owned()));
    }
    let bytes = read_open(&file).map_err(|error| unusable(path, error.to_string()))?;
    let list: List = serde_json::from_slice(&bytes).map_err(|error| unusable(path, error.to_string()))?;
    if list.version == VERSION {
        Ok(list)
    } else {
        Err(unusable(path, format!("version {} is not known", list.version)))
    }
}

fn unusable(path: &Path, problem: String) -> TrustError {
    TrustError::List { path: path.display().to_string(), problem }
}

#[cfg(unix)]
fn others_can_write(file: &File) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    const OTHERS: u32 = 0o022;
    file.metadata().is_ok_and(|facts| facts.permissions().mode() & OTHERS != 0)
}

#[cfg(not(unix))]
fn others_can_write(_: &File) -> bool {
    false
}

/// Makes a directory and those above it, for its owner only.
pub(super) fn private_dir(dir: &Path) -> std::io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(dir)
}

/// Writes a file for its owner only and puts it in the place of the old one.
fn replace(dir: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    // Such a file has the mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(dir)?.sync_all()
}

fn hash(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().flat_map(|byte| hex(*byte)).collect()
}
