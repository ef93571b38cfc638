//! The files a run writes beside stdout: the events, the answer.
//!
//! Keeps true: whether they can be written is known before anything is sent; none is where stdout goes; a failure later
//! lets the run finish and then is a failure of kind `storage`, unless the run failed already.
//!
//! Must not know: what stands in them, how a run works.

use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};

use crate::cli::RunArgs;
use crate::config::Settings;
use crate::model::{ErrorKind, ErrorRecord};
use crate::print::{self, AnswerFile, Events};
use crate::process;

/// Characters of a date, the beginning of a time as text.
const DATE_CHARS: usize = 10;

const NULL_DEVICE: &str = "/dev/null";
/// What to do instead, where stdout is named for the events.
const EVENTS_WAY_OUT: &str = "--json prints the events on stdout; or name another file, such as /dev/fd/3 with 3>FILE";
/// What to do instead, where stdout is named for the answer.
const ANSWER_WAY_OUT: &str = "without -o the answer is on stdout; or name another file, such as /dev/fd/3 with 3>FILE";

/// What a call says about its files.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    events: Option<Named>,
    answer: Option<Named>,
}

/// A file, how it was written, and where.
#[derive(Clone, Debug)]
struct Named {
    path: PathBuf,
    shown: String,
    by: String,
}

impl Named {
    fn new(cwd: &Path, path: &Path, by: String) -> Self {
        Self { path: cwd.join(path), shown: path.display().to_string(), by }
    }
}

/// The files, ready to be written.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    pub(super) events: Option<Events>,
    pub(super) answer: Option<AnswerFile>,
}

impl Wanted {
    /// The files of a call. `{session}` and `{date}` in the name of the events file become the session's id and the
    /// day, in UTC.
    pub(super) fn of(args: &RunArgs, settings: &Settings, cwd: &Path, session_id: &str, now_ms: u64) -> Self {
        let events = settings.output.events.as_ref().map(|template| {
            let now = print::rfc3339(now_ms);
            let date = now.get(..DATE_CHARS).unwrap_or(&now);
            let path = template.replace("{session}", session_id).replace("{date}", date);
            Named::new(cwd, Path::new(&path), settings.origin("output.events").to_string())
        });
        let answer = args.output.as_ref().map(|path| Named::new(cwd, path, "--output".to_owned()));
        Self { events, answer }
    }

    /// Opens the events file and checks that of the answer. May wait for the reader of a named pipe.
    pub(super) fn open(self) -> Result<Outputs, ErrorRecord> {
        let Self { events, answer } = self;
        if let (Some(events), Some(answer)) = (&events, &answer)
            && events.path == answer.path
            && !events.path.starts_with("/dev")
        {
            let message = format!("{} and --output name the same file: {}", events.by, answer.shown);
            return Err(ErrorRecord::new(ErrorKind::Usage, message));
        }
        // Two writers of one file mix their lines, or write over each other. Opening it would empty it already.
        for (named, way_out) in [(&events, EVENTS_WAY_OUT), (&answer, ANSWER_WAY_OUT)] {
            if let Some(Named { path, shown, by }) = named
                && is_stdout(path)
            {
                let message = format!("{by}: {shown} is where stdout goes, which has an output of its own");
                return Err(ErrorRecord::new(ErrorKind::Usage, message).with_hint(way_out));
            }
        }
        // The check leaves nothing behind, so it comes first.
        let answer = answer.map(|named| named.check(AnswerFile::check)).transpose()?;
        let name = events.as_ref().map(|named| named.shown.clone()).unwrap_or_default();
        let events = events.map(|named| named.check(print::create_private)).transpose()?;
        Ok(Outputs { events: events.map(|file| Events::new(&name, Box::new(file))), answer })
    }

    /// A sentence on why the answer is not in its file.
    pub(super) fn answer_failed(&self, error: &std::io::Error) -> String {
        let file = self.answer.as_ref().map_or("", |named| &named.shown);
        format!("cannot write {file}: {}", print::io_reason(error))
    }
}

/// Whether a path leads to what stdout is: the same file, pipe or device by whatever name. What takes everything and
/// keeps nothing may be both.
fn is_stdout(path: &Path) -> bool {
    let Ok(stdout) = rustix::fs::fstat(std::io::stdout()) else { return false };
    // One that does not exist, or can not be looked at, is told when it is opened.
    let Ok(found) = rustix::fs::stat(path) else { return false };
    let device = |stat: &Stat| FileType::from_raw_mode(stat.st_mode).is_char_device().then_some(stat.st_rdev);
    match (device(&stdout), device(&found)) {
        (Some(one), Some(other)) if one == other => {
            rustix::fs::stat(NULL_DEVICE).ok().and_then(|null| device(&null)) != Some(one)
        }
        _ => (stdout.st_dev, stdout.st_ino) == (found.st_dev, found.st_ino),
    }
}

impl Named {
    fn check<T>(self, open: impl FnOnce(&Path, print::Inherited) -> std::io::Result<T>) -> Result<T, ErrorRecord> {
        let Self { path, shown, by } = self;
        open(&path, process::unix::inherited).map_err(|error| {
            let message = format!("{by}: cannot write {shown}: {}", print::io_reason(&error));
            ErrorRecord::new(ErrorKind::Usage, message)
        })
    }
}
