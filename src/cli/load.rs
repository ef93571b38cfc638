//! The prompt of a call, read from where the call says.
//!
//! Keeps true: nothing is read before the call is known to make sense; files are read and decoded before stdin, so that
//! a mistake in one does not cost a wait; dropping the future ends the wait.
//!
//! Must not know: signals, timeouts of the run, where notices go.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::UsageError;
use super::attach::{Album, Attachment};
use super::prompt::{Joined, Part, Prompt, PromptRequest, StdinKind, StdinUse, plan};
use super::stdin::{Patience, collect, spawn_reader, stdin_file, stdin_kind};
use crate::port::Clock;

/// What reading a prompt needs from outside.
pub struct PromptIo<'a> {
    /// Absolute; relative paths start here.
    pub base: &'a Path,
    pub stdin: StdinKind,
    /// The source behind stdin, taken only if it is to be read.
    pub open_stdin: Box<dyn FnOnce() -> std::io::Result<Box<dyn Read + Send>> + Send>,
    /// `input.stdin_wait`; `None` = wait for ever.
    pub stdin_wait: Option<Duration>,
    pub clock: &'a dyn Clock,
    /// Gets one-line notices for stderr.
    pub notice: &'a mut (dyn FnMut(&str) + Send),
}

impl std::fmt::Debug for PromptIo<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PromptIo").field("base", &self.base).field("stdin", &self.stdin).finish_non_exhaustive()
    }
}

impl<'a> PromptIo<'a> {
    /// The process's own standard input.
    pub fn process(
        base: &'a Path,
        stdin_wait: Option<Duration>,
        clock: &'a dyn Clock,
        notice: &'a mut (dyn FnMut(&str) + Send),
    ) -> Self {
        let open_stdin = Box::new(|| stdin_file().map(|file| Box::new(file) as Box<dyn Read + Send>));
        Self { base, stdin: stdin_kind(), open_stdin, stdin_wait, clock, notice }
    }
}

/// Reads the prompt of a call.
///
/// # Errors
/// Whatever is wrong with the call or its sources; nothing was sent.
pub async fn load(request: &PromptRequest, io: PromptIo<'_>) -> Result<Prompt, UsageError> {
    let plan = plan(request, io.stdin)?;
    let mut file = None;
    if let Some(path) = &plan.file {
        file = Some(read_file(io.base, path, |file| file, io.clock).await?);
    }
    let mut attachments = Vec::new();
    let mut album = Album::default();
    // Those of `-a` come first and are nothing but paths.
    let by_option = request.attachments.iter().filter(|path| path.as_os_str() != "-").count();
    for (at, path) in plan.attachments.iter().enumerate() {
        let part = read_file(io.base, path, Attachment::new, io.clock).await.map_err(|error| {
            // An `@word` may have been meant as text.
            if error.hint.is_none() && at >= by_option {
                error.with_hint("after -- an argument with @ is plain text")
            } else {
                error
            }
        })?;
        // Before the next one is read.
        album.admits(&part)?;
        attachments.push(part);
    }
    let joined = Joined::before_stdin(&plan, file, attachments)?;
    let patience = match (plan.stdin, io.stdin_wait) {
        (StdinUse::Leave, _) => return joined.finish(None),
        (StdinUse::ReadWithin, Some(limit)) => Patience::Within(limit),
        (StdinUse::Read, _) | (StdinUse::ReadWithin, None) => Patience::Announced,
    };
    let open = io.open_stdin;
    let chunks = spawn_reader(open).map_err(|error| UsageError::new(format!("cannot read stdin: {error}")))?;
    joined.finish(Some(collect(chunks, "stdin", patience, io.clock, io.notice).await?))
}

/// Reads a file through what `wrap` makes of it.
async fn read_file<R: Read>(
    base: &Path,
    path: &Path,
    wrap: impl FnOnce(File) -> R + Send + 'static,
    clock: &dyn Clock,
) -> Result<Part, UsageError> {
    let name = path.display().to_string();
    let whole: PathBuf = base.join(path);
    let chunks = spawn_reader(move || File::open(whole).map(wrap))
        .map_err(|error| UsageError::new(format!("cannot read {name}: {error}")))?;
    let mut silent = |_: &str| {};
    let bytes = collect(chunks, &name, Patience::Endless, clock, &mut silent).await?;
    Ok(Part { name, bytes })
}
