//! The files a run writes beside stdout: the events, the answer.
//!
//! Keeps true: whether they can be written is known before anything is sent; a failure later lets the run finish and
//! then is a failure of kind `storage`, unless the run failed already.
//!
//! Must not know: what stands in them, how a run works.

use std::path::{Path, PathBuf};

use crate::cli::RunArgs;
use crate::config::Settings;
use crate::model::{ErrorKind, ErrorRecord};
use crate::print::{self, AnswerFile, Events};
use crate::process;

/// Characters of a date, the beginning of a time as text.
const DATE_CHARS: usize = 10;

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

impl Named {
    fn check<T>(self, open: impl FnOnce(&Path, print::Inherited) -> std::io::Result<T>) -> Result<T, ErrorRecord> {
        let Self { path, shown, by } = self;
        open(&path, process::unix::inherited).map_err(|error| {
            let message = format!("{by}: cannot write {shown}: {}", print::io_reason(&error));
            ErrorRecord::new(ErrorKind::Usage, message)
        })
    }
}
