//! Where sessions live, and how one is found again.
//!
//! Keeps true: a session belongs to the directory its header names, whatever the directory it lies in is called; what
//! is looked at is read at its two ends only (SES-10); a damaged file hides no other; nothing but making and locking a
//! directory changes anything.
//!
//! Must not know: what a session is for, how one is written.
//!
//! # Layout
//!
//! ```text
//! <root>/sessions/<slug>/                      one for each working directory
//!     .lock                                    held while a name is given away
//!     <UTC yyyymmddThhmmssZ>_<id>.jsonl        a session
//!     <UTC yyyymmddThhmmssZ>_<id>.lock         held by the process that writes it
//!     <UTC yyyymmddThhmmssZ>_<id>.d/           what tools left in files
//!     <UTC yyyymmddThhmmssZ>_<id>.inbox/       what others left for the process that writes it
//! ```
//!
//! The root is `session.dir`, else `PIRN_HOME/state`, else `XDG_STATE_HOME/pirn`, else `~/.local/state/pirn`. The slug
//! is the real path of the working directory with every byte outside `[A-Za-z0-9._-]` as `-`, cut to 100, followed by 8
//! hex digits of the SHA-256 of the whole path. It is for people: what a session's directory is, its header says.
//!
//! # What names a session
//!
//! | a word | names |
//! |---|---|
//! | letters, digits, dots, dashes, underscores; up to 64, the first a letter or a digit | the session of this directory with exactly this name; with `-s` and without `-c`, if there is none, a new one |
//! | hex digits and dashes only | that, or the session of any directory with this id, or the only one whose id begins or ends so (6 digits and more); never a new one |
//! | with a slash, or `.jsonl` at its end | the session file at this path, wherever it lies, whose real name ends in `.jsonl`; never a new one |
//!
//! Without a word it is the session of this directory with the newest commit. A time that is still to come, as of a clock
//! that was ahead for a while, is not believed: it would keep that session the newest one until the clock is there. Then
//! it counts by the time of its file, else by that of its making, and a warning says so. The short id that is shown is
//! the last 8 digits.

mod dirs;
mod glance;
mod refs;
mod scan;

use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde_json::Value;

use self::refs::Shape;
use super::jsonl::Header;
use super::jsonl::lock::{Probe, probe};
use crate::model::{rfc3339, short_id, stamp};
use crate::port::Clock;

pub use self::dirs::{DirectoryLock, PlaceError, inbox_dir, make_private_dir, slug, spill_dir};
pub use self::refs::{Candidate, IdMatch, RefError, id_match, is_name};

/// The header field that holds a working directory's bytes as hex digits, where they are no UTF-8.
const CWD_BYTES: &str = "cwdBytes";
/// Characters of the stamp in a file's name.
const STAMP_CHARS: usize = 16;

/// How far ahead of ours the clock of another machine may be whose commits are believed.
const AHEAD_MS_MAX: u64 = 60_000;

/// All sessions of a user, seen from a working directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    sessions: PathBuf,
    cwd: PathBuf,
    here: PathBuf,
}

/// A session that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its file.
    pub file: PathBuf,
    pub id: String,
    /// Its working directory; unknown if the header can not be read.
    pub cwd: Option<PathBuf>,
    /// Milliseconds since 1970; 0 if the header can not be read.
    pub created_at: u64,
    /// The last commit, or the creation before the first one.
    pub updated_at: u64,
    /// Why the header can not be read.
    pub damage: Option<String>,
    /// What may have made it another one than was meant: sentences without a final period.
    pub warnings: Vec<String>,
}

/// What a listing says of a session beside what finding it told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    pub name: Option<String>,
    /// `provider/id` of the last request or of the configuration, whichever is newer.
    pub model: Option<String>,
    pub first_prompt: Option<String>,
    /// Messages on all branches; `None` if the file is longer than 4 MiB or can not be read.
    pub messages: Option<u64>,
    /// Whether a process has it open; `None` if that can not be told.
    pub open: Option<bool>,
    /// What is damaged, if anything that was looked at is. The middle of a long file is not looked at.
    pub damage: Option<String>,
}

/// Which sessions are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Those of this directory.
    #[default]
    Here,
    All,
}

/// What a reference leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Existing(Found),
    /// A session of this name can be made.
    NewName(String),
}

/// Sessions, newest first, and what could not be looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub sessions: Vec<Found>,
    pub warnings: Vec<String>,
}

impl Library {
    /// The library below a root, `session.dir` or the directory of state, seen from a directory that exists.
    ///
    /// # Errors
    /// The root is not absolute (CFG-05), or the directory has no real path.
    pub fn new(root: &Path, cwd: &Path) -> Result<Self, PlaceError> {
        if !root.is_absolute() {
            return Err(PlaceError::Relative { root: root.display().to_string() });
        }
        let cwd = fs::canonicalize(cwd).map_err(|source| PlaceError::io(cwd, source))?;
        let sessions = dirs::sessions_dir(root);
        let here = sessions.join(slug(&cwd));
        Ok(Self { sessions, cwd, here })
    }

    /// The real path of the working directory.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// Where the sessions of the working directory are; it need not exist.
    pub fn here(&self) -> &Path {
        &self.here
    }

    /// The file of a new session. Makes nothing.
    pub fn new_path(&self, id: &str, now_ms: u64) -> PathBuf {
        self.here.join(format!("{}_{id}.{}", stamp(now_ms), dirs::EXTENSION))
    }

    /// The header of a new session of the working directory.
    pub fn new_header(&self, id: &str, now_ms: u64) -> Header {
        let mut header = Header::new(id, now_ms, self.cwd.to_string_lossy());
        if self.cwd.to_str().is_none() {
            let bytes = self.cwd.as_os_str().as_bytes();
            let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            header.extra.insert(CWD_BYTES.to_owned(), Value::String(digits.concat()));
        }
        header
    }

    /// Makes the directory of the working directory, private to its user. With `durable` its name is on the disk when
    /// it returns.
    ///
    /// # Errors
    /// The system refuses, or the directory is another user's and others can write to it.
    pub fn prepare(&self, durable: bool) -> Result<(), PlaceError> {
        make_private_dir(&self.sessions, durable)?;
        make_private_dir(&self.here, durable)
    }

    /// Locks the prepared directory, so that two starts can not both make a session of one name: look the name up
    /// again under the lock, make the session with its name, drop the lock.
    ///
    /// # Errors
    /// Another process holds it for seconds, the file system has no locks, or the system refuses.
    pub async fn lock_directory(&self, clock: &dyn Clock) -> Result<DirectoryLock, PlaceError> {
        dirs::lock_directory(&self.here, clock).await
    }

    /// The session of this directory with the newest commit; of two with the same moment the one with the greater id.
    /// A moment that is still to come is not believed, see above. One whose header is damaged counts, too: opening it tells what is wrong, and an older one is never taken in its
    /// place. A file without any whole line is none of ours.
    ///
    /// # Errors
    /// The directory or a file in it can not be read, so nobody knows which is the latest; or it is not safe.
    pub fn latest_here(&self, now_ms: u64) -> Result<Option<Found>, PlaceError> {
        let believed_until = now_ms.saturating_add(AHEAD_MS_MAX);
        let mut latest: Option<(u64, Found)> = None;
        let mut ahead: Vec<(String, u64)> = Vec::new();
        for file in files(&self.here)? {
            let Some(found) = unless_gone(&file, self.found_here(&file))?.flatten() else { continue };
            if found.updated_at > believed_until {
                ahead.push((found.id.clone(), found.updated_at));
            }
            let moment = found.believed(believed_until);
            if latest.as_ref().is_none_or(|(newest, latest)| (*newest, &latest.id) < (moment, &found.id)) {
                latest = Some((moment, found));
            }
        }
        Ok(latest.map(|(_, found)| Found { warnings: still_to_come(&ahead).into_iter().collect(), ..found }))
    }

    /// A session in the directory of this directory, if it is one of this directory.
    fn found_here(&self, file: &Path) -> io::Result<Option<Found>> {
        let found = Found::read(file)?;
        let ours = match &found.cwd {
            Some(cwd) => self.is_here(cwd),
            None => found.updated_at > 0,
        };
        Ok(ours.then_some(found))
    }

    /// Whether a stored directory is this one by its real path.
    fn is_here(&self, stored: &Path) -> bool {
        stored == self.cwd || fs::canonicalize(stored).is_ok_and(|real| real == self.cwd)
    }

    /// Sessions, newest first. Their headers and last lines are read.
    ///
    /// # Errors
    /// The directory that was asked for can not be read, or is not safe.
    pub fn list(&self, scope: Scope) -> Result<Listing, PlaceError> {
        let mut listing = Listing::default();
        match scope {
            Scope::Here => listing.add(files(&self.here)?, |file| self.found_here(file)),
            Scope::All => {
                for dir in self.directories()? {
                    match files(&dir) {
                        Ok(files) => listing.add(files, |file| Found::read(file).map(Some)),
                        Err(error) => listing.warnings.push(error.to_string()),
                    }
                }
            }
        }
        listing.sessions.sort_by(|a, b| (b.updated_at, &b.id).cmp(&(a.updated_at, &a.id)));
        Ok(listing)
    }

    /// The directories of all working directories, in the order of their names.
    fn directories(&self) -> Result<Vec<PathBuf>, PlaceError> {
        let mut dirs: Vec<PathBuf> = entries(&self.sessions)?.into_iter().filter(|path| path.is_dir()).collect();
        dirs.sort();
        Ok(dirs)
    }

    /// Finds what a reference names: the session of this directory with exactly this name; the session, wherever it
    /// works, with this id, or the only one whose id begins or ends so (6 digits and more, dashes do not count); the
    /// file of a path, which is one with a slash or `.jsonl` at its end; else, with `may_create`, a new name.
    ///
    /// # Errors
    /// It names none, or several.
    pub fn resolve(&self, reference: &str, may_create: bool) -> Result<Target, RefError> {
        let shape = Shape::of(reference)?;
        let maybe_name = matches!(shape, Shape::Name | Shape::Id { .. } | Shape::Path { name: true });
        if maybe_name
            && is_name(reference)
            && let Some(found) = only(reference, self.named(reference)?)?
        {
            return Ok(Target::Existing(found));
        }
        match shape {
            Shape::Id { digits } => self.by_id(reference, &digits).map(Target::Existing),
            Shape::Path { .. } => self.by_path(reference).map(Target::Existing),
            Shape::Name if may_create => Ok(Target::NewName(reference.to_owned())),
            Shape::Name => Err(RefError::no_name(reference)),
        }
    }

    /// The sessions of this directory that have this name.
    fn named(&self, name: &str) -> Result<Vec<Found>, PlaceError> {
        let mut named = Vec::new();
        for file in files(&self.here)? {
            let found = unless_gone(&file, glance::open(&file).and_then(|file| glance::name(&file)))?;
            if found.flatten().as_deref() == Some(name) {
                named.extend(unless_gone(&file, self.found_here(&file))?.flatten());
            }
        }
        Ok(named)
    }

    /// The session that an id names, in any directory.
    fn by_id(&self, reference: &str, digits: &str) -> Result<Found, RefError> {
        if !refs::is_long_enough(digits) {
            return Err(RefError::too_short(reference));
        }
        let mut whole = Vec::new();
        let mut part = Vec::new();
        for dir in self.directories()? {
            // A directory that is not safe is passed over, or anybody could take part in what an id means.
            for file in files(&dir).unwrap_or_default() {
                // Where the name tells the id, a file that does not match need not be opened.
                if named_id(&file).is_some_and(|id| id_match(reference, id) == IdMatch::None) {
                    continue;
                }
                let Some(found) = unless_gone(&file, Found::read(&file))? else { continue };
                match id_match(reference, &found.id) {
                    IdMatch::Whole => whole.push(found),
                    IdMatch::Part => part.push(found),
                    IdMatch::None => {}
                }
            }
        }
        let found = if whole.is_empty() { part } else { whole };
        only(reference, found)?.ok_or_else(|| RefError::no_id(reference))
    }

    /// The session at a path, which may lie anywhere.
    fn by_path(&self, reference: &str) -> Result<Found, RefError> {
        let path = self.cwd.join(reference);
        let shown = || path.display().to_string();
        let not_one = |reason: String| RefError::NotASession { path: shown(), reason };
        // One file has one lock, whichever way leads to it.
        let real = match fs::canonicalize(&path) {
            Ok(real) => real,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(RefError::NoFile { path: shown() });
            }
            Err(error) => return Err(not_one(error.to_string())),
        };
        let found = Found::read(&real).map_err(|error| not_one(error.to_string()))?;
        if let Some(reason) = found.damage {
            return Err(not_one(reason));
        }
        // What lies beside a session has its name with another ending, such as `.lock`. So a session with an ending of
        // its own would share that with its neighbours, and one that ends in `.lock` would be its own lock.
        if real.extension().is_none_or(|extension| extension != dirs::EXTENSION) {
            return Err(RefError::WrongEnding { path: real.display().to_string() });
        }
        Ok(found)
    }
}

impl Found {
    /// Reads header and last line.
    fn read(path: &Path) -> io::Result<Self> {
        let file = glance::open(path)?;
        let header = glance::header(&file);
        let committed = glance::last_commit(&file)?;
        let path = path.to_path_buf();
        Ok(match header {
            Ok(header) => Self {
                cwd: Some(cwd_of(&header)),
                created_at: header.created_at,
                updated_at: committed.unwrap_or(header.created_at),
                id: header.id,
                file: path,
                damage: None,
                warnings: Vec::new(),
            },
            Err(reason) => {
                let id = named_id(&path).unwrap_or_default().to_owned();
                let updated_at = committed.unwrap_or(0);
                let (damage, warnings) = (Some(reason), Vec::new());
                Self { file: path, id, cwd: None, created_at: 0, updated_at, damage, warnings }
            }
        })
    }

    /// The moment of its last commit, or where that is not to be believed, the newest that is. A file that was written
    /// again since the clock is right has that time, though its commits never go back.
    fn believed(&self, until: u64) -> u64 {
        if self.updated_at <= until {
            return self.updated_at;
        }
        let touched = fs::metadata(&self.file).and_then(|metadata| metadata.modified()).ok();
        let touched = touched.and_then(|touched| touched.duration_since(UNIX_EPOCH).ok());
        let touched = touched.and_then(|touched| u64::try_from(touched.as_millis()).ok());
        touched.into_iter().chain([self.created_at]).find(|moment| *moment <= until).unwrap_or(0)
    }

    /// What a listing says of it. A file of up to 4 MiB is read once to count its messages; of a longer one both ends
    /// are read.
    pub fn details(&self) -> Details {
        let looked = glance::open(&self.file).and_then(|file| Ok((glance::glance(&file)?, scan::count(&file)?)));
        let open = probe(&self.file).ok().map(|probe| matches!(probe, Probe::Running(_)));
        let (glance, counted) = match looked {
            Ok(looked) => looked,
            Err(error) => return Details { open, damage: Some(error.to_string()), ..Details::default() },
        };
        let line = counted.damaged_line.or(glance.damaged_line);
        let damage = self.damage.clone().or(line.map(|line| format!("line {line} is damaged")));
        let glance::Glance { name, model, first_prompt, damaged_line: _ } = glance;
        Details { name, model, first_prompt, messages: counted.messages, open, damage }
    }

    /// Its name, which stands near one of the ends of its file.
    pub fn name(&self) -> Option<String> {
        glance::open(&self.file).and_then(|file| glance::name(&file)).ok().flatten()
    }

    /// Whether a text, given in lower case, is in what users, models and tools said. Reads the file.
    ///
    /// # Errors
    /// The system refuses.
    pub fn says(&self, lower: &str) -> io::Result<bool> {
        scan::says(&glance::open(&self.file)?, lower)
    }
}

impl Listing {
    fn add(&mut self, files: Vec<PathBuf>, read: impl Fn(&Path) -> io::Result<Option<Found>>) {
        for file in files {
            match read(&file) {
                Ok(found) => self.sessions.extend(found),
                // It was removed in between.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.warnings.push(format!("{}: {error}", file.display())),
            }
        }
    }
}

/// A warning of sessions whose last commits lie ahead of the clock: ids and moments.
fn still_to_come(ahead: &[(String, u64)]) -> Option<String> {
    let (id, moment) = ahead.first()?;
    let of = match ahead.len() {
        1 => format!("session {}", short_id(id)),
        count => format!("{count} sessions of this directory, such as {}", short_id(id)),
    };
    let when = rfc3339(*moment);
    Some(format!(
        "the last commit of {of} has a time that is still to come ({when}): the clock was ahead then, or is behind now, \
         so which session is the latest is a guess; -s ID names one"
    ))
}

/// The working directory that a header names.
pub fn cwd_of(header: &Header) -> PathBuf {
    let bytes = header.extra.get(CWD_BYTES).and_then(Value::as_str).and_then(unhex);
    bytes.map_or_else(|| PathBuf::from(&header.cwd), |bytes| std::ffi::OsString::from_vec(bytes).into())
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// What was read of a file; `None` if it was removed in between.
fn unless_gone<T>(file: &Path, read: io::Result<T>) -> Result<Option<T>, PlaceError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PlaceError::io(file, error)),
    }
}

/// The only one of those found, if any.
fn only(reference: &str, mut found: Vec<Found>) -> Result<Option<Found>, RefError> {
    if found.len() < 2 {
        return Ok(found.pop());
    }
    let candidates = found.into_iter().map(|found| Candidate {
        name: found.name(),
        place: found.cwd.as_ref().unwrap_or(&found.file).display().to_string(),
        id: found.id,
    });
    Err(RefError::Ambiguous { reference: reference.to_owned(), candidates: candidates.collect() })
}

/// The id that a file's name tells.
fn named_id(file: &Path) -> Option<&str> {
    let (stamp, id) = file.file_stem()?.to_str()?.split_once('_')?;
    (stamp.len() == STAMP_CHARS && stamp.ends_with('Z') && !id.is_empty()).then_some(id)
}

/// The session files in a directory, in the order of their names; none if there is no directory. What is empty was
/// never written to: a process that makes a session has not got further, or was killed there.
fn files(dir: &Path) -> Result<Vec<PathBuf>, PlaceError> {
    let is_session = |path: &PathBuf| {
        let regular = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0);
        regular && path.extension().is_some_and(|extension| extension == dirs::EXTENSION)
    };
    let mut files: Vec<PathBuf> = entries(dir)?.into_iter().filter(is_session).collect();
    files.sort();
    Ok(files)
}

/// What a directory that is safe holds; nothing if it does not exist.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, PlaceError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(PlaceError::io(dir, error)),
    };
    dirs::check_owner(dir)?;
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    paths.map_err(|error| PlaceError::io(dir, error))
}

#[cfg(test)]
mod tests;
