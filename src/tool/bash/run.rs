//! One command from its start to its result (tool rules B2–B5, B8, B12).
//!
//! Keeps true: what runs is known to the session before its output is read; a timeout and a cancellation end the whole
//! group; the call waits for the shell, then for output that still comes, and never for an end of it that may not come.
//!
//! Must not know: how output is cleaned, kept and worded.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tempfile::TempPath;
use tokio::sync::{oneshot, watch};

use super::pump::{Feed, Follow, Keep, Progress, Pump, Source};
use super::report::Reporter;
use super::shell::{Script, candidates, is_too_long};
use super::spill::{Saved, Spill};
use super::text::{Report, Why};
use super::{BackgroundAtExit, Bash, Limit};
use crate::port::{Clock, ToolCtx, ToolOutput};
use crate::process::{Child, Exited, Output, ProcessIdentity, SpawnError, Spec, Stdin};
use crate::tool::{Failure, reason};

/// Milliseconds without output after which a shell that has ended is done.
const QUIET_MS: u64 = 100;
/// Milliseconds that output may go on behind the end of the shell (B5), and behind a stop: there is not much time then.
const OUTPUT_AFTER_END_MS: u64 = 2_000;
const OUTPUT_AFTER_STOP_MS: u64 = 300;
/// How long a file may take to be made.
const SAVE_WAIT: Duration = Duration::from_millis(500);
/// Bytes held before a file is made, in units of the cap.
const HELD_CAPS: usize = 4;
/// The memo by which a later process finds the child.
const PROCESS_MEMO: &str = "proc";

/// The reading of a command's output.
struct Reading {
    feed: Arc<Feed>,
    progress: watch::Receiver<Progress>,
    detach: oneshot::Sender<Keep>,
    /// The file the command writes to, if it does.
    file: Option<Written>,
}

/// A file that a command writes to by itself.
struct Written {
    /// Removed when dropped.
    path: TempPath,
    complete: watch::Sender<bool>,
}

/// How a command went, as far as waiting tells.
struct Attended {
    why: Why,
    exited: Option<Exited>,
    is_open: bool,
    background: Vec<u32>,
    saved: Saved,
}

impl Bash {
    pub(super) async fn execute(&self, command: &str, limit: Limit, ctx: &ToolCtx) -> Result<ToolOutput, Failure> {
        let script = self.script(command).await?;
        let written = match self.settings.background_at_exit {
            BackgroundAtExit::Kill => None,
            // Without a file the output goes through a pipe, as far as we live.
            BackgroundAtExit::Leave => self.open_written(ctx).await,
        };
        let (path, file) = written.unzip();
        // Also what dies between the start and the record of it can be found again.
        if let Err(reason) = remember(&self.children.intended(), ctx).await {
            return Err(Failure::new("io", format!("The process could not be recorded and was not started: {reason}")));
        }
        let mut child = self.spawn(&script, file.as_ref(), ctx)?;
        if let Err(reason) = remember(&child.identity(), ctx).await {
            child.stop(self.settings.grace).await;
            return Err(Failure::new("io", format!("The process could not be recorded and was stopped: {reason}")));
        }
        let reading = self.read(&mut child, path, ctx);
        let Some(reading) = reading else {
            child.stop(self.settings.grace).await;
            return Err(Failure::new("io", "The output of the command cannot be read; it was stopped."));
        };
        let feed = Arc::clone(&reading.feed);
        let mut reporter = Reporter::new(Arc::clone(&feed), ctx.updates.clone(), Arc::clone(&self.clock));
        let attended = tokio::select! {
            biased;
            attended = self.attend(&mut child, reading, limit, ctx) => attended,
            never = reporter.run() => match never {},
        };
        reporter.flush().await;
        self.part(child, &attended);
        let Attended { why, exited, is_open, background, saved } = attended;
        let report = Report {
            why,
            exited,
            timeout: limit.timeout,
            is_clamped: limit.is_clamped,
            caps: self.caps(),
            shown: feed.show(),
            saved,
            is_open,
            background,
        };
        Ok(report.into_output())
    }

    async fn script(&self, command: &str) -> Result<Script, Failure> {
        let (prefix, spills) = (self.settings.prefix.clone(), Arc::clone(&self.spills));
        let failed = |error: std::io::Error| {
            Failure::new("io", format!("The command is too long for an argument, and for a file: {}.", reason(&error)))
        };
        if !is_too_long(command) && !is_too_long(&prefix) {
            return Script::new(&prefix, command, || spills.private()).map_err(failed);
        }
        let command = command.to_owned();
        let made = tokio::task::spawn_blocking(move || Script::new(&prefix, &command, || spills.private()));
        made.await.map_err(std::io::Error::other).and_then(|made| made).map_err(failed)
    }

    /// A file for the command to write to.
    async fn open_written(&self, ctx: &ToolCtx) -> Option<(TempPath, File)> {
        let (spills, session) = (Arc::clone(&self.spills), spill_directory(ctx));
        let name = format!("{}.out.log", file_stem(ctx));
        let made = tokio::task::spawn_blocking(move || spills.create(session.as_deref(), &name)).await.ok()?;
        let (path, file) = made.ok()?;
        Some((TempPath::try_from_path(path).ok()?, file))
    }

    fn spawn(&self, script: &Script, written: Option<&File>, ctx: &ToolCtx) -> Result<Child, Failure> {
        let mut last = None;
        for program in candidates(self.settings.shell.as_deref()) {
            let output = match written.map(File::try_clone).transpose() {
                Ok(file) => file.map_or(Output::Merged, Output::File),
                Err(error) => return Err(Failure::new("spawn", format!("Could not start bash: {}", reason(&error)))),
            };
            let spawned = self.children.spawn(Spec {
                program,
                args: script.args(),
                cwd: ctx.cwd.clone(),
                stdin: Stdin::Null,
                output,
                env: Vec::new(),
                pass_env: Vec::new(),
                call_id: Some(ctx.invocation_id.as_str().to_owned()),
                session_id: ctx.session.as_ref().map(|session| session.id.clone()),
                label: "bash".to_owned(),
            });
            match spawned {
                Err(error @ SpawnError::NotFound(_)) => last = Some(error),
                other => return other.map_err(|error| not_started(&error)),
            }
        }
        Err(last.map_or_else(Failure::aborted, |error| not_started(&error)))
    }

    /// Starts reading; `None` if the child has no output.
    fn read(&self, child: &mut Child, written: Option<TempPath>, ctx: &ToolCtx) -> Option<Reading> {
        let mut file = None;
        let source = if let Some(path) = written {
            let (complete, is_complete) = watch::channel(false);
            let follow = Follow::new(File::open(&path).ok()?, is_complete, Arc::clone(&self.clock));
            file = Some(Written { path, complete });
            Source::File(follow)
        } else {
            Source::Pipe(child.output()?)
        };
        let name = format!("{}.log", file_stem(ctx));
        let held_max = self.settings.max_bytes.saturating_mul(HELD_CAPS);
        let spill = Spill::new(&self.spills, spill_directory(ctx), name, held_max);
        let pump = Pump::new(self.caps(), &self.masks, spill, Arc::clone(&self.clock));
        let feed = pump.feed();
        let (detach, detached) = oneshot::channel();
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        while readers.try_join_next().is_some() {}
        readers.spawn(pump.run(source, detached));
        Some(Reading { progress: feed.progress(), feed, detach, file })
    }

    async fn attend(&self, child: &mut Child, reading: Reading, limit: Limit, ctx: &ToolCtx) -> Attended {
        let (why, ended) = tokio::select! {
            biased;
            exited = child.wait() => (Why::Ended, exited.ok()),
            () = ctx.cancel.cancelled() => (Why::Aborted, None),
            () = self.expire(limit.timeout) => (Why::TimedOut, None),
        };
        let Reading { mut progress, detach, file, .. } = reading;
        let (exited, stopped, wait_ms) = if why == Why::Ended {
            (ended, None, OUTPUT_AFTER_END_MS)
        } else {
            let stopped = child.stop(self.settings.grace).await;
            (stopped.exited, Some(stopped.remaining), OUTPUT_AFTER_STOP_MS)
        };
        if let Some(file) = &file
            && left(stopped.as_deref(), child).await.is_empty()
        {
            file.complete.send_replace(true);
        }
        let mut is_open = !settle(&mut progress, &*self.clock, wait_ms).await;
        let background = left(stopped.as_deref(), child).await;
        if is_open && background.is_empty() {
            // The last one to hold the output has ended just now.
            if let Some(file) = &file {
                file.complete.send_replace(true);
            }
            is_open = !settle(&mut progress, &*self.clock, QUIET_MS).await;
        }
        let mut saved = self.save(&mut progress, is_open.then_some(detach), file.is_some()).await;
        if let Some(file) = file
            && is_open
        {
            match file.path.keep() {
                Ok(path) => saved.path = Some(path),
                Err(error) => saved.failure = Some(reason(&error.error)),
            }
        }
        Attended { why, exited, is_open, background, saved }
    }

    async fn expire(&self, timeout: Option<Duration>) {
        match timeout {
            Some(timeout) => self.clock.sleep(timeout).await,
            None => std::future::pending().await,
        }
    }

    /// What became of the spill file; asks for one if somebody still writes.
    async fn save(
        &self,
        progress: &mut watch::Receiver<Progress>,
        detach: Option<oneshot::Sender<Keep>>,
        is_written: bool,
    ) -> Saved {
        if let Some(detach) = detach {
            let keep = if is_written { Keep::Nothing } else { Keep::File };
            // A reader that is gone has told of its end.
            let _ended = detach.send(keep);
        }
        let known = async { progress.wait_for(|progress| progress.saved.is_some()).await.ok()?.saved.clone() };
        let known = tokio::select! {
            biased;
            known = known => known,
            () = self.clock.sleep(SAVE_WAIT) => None,
        };
        known.unwrap_or_else(|| Saved { failure: Some("the disk does not answer".to_owned()), ..Saved::default() })
    }

    /// What the command left behind runs on.
    fn part(&self, child: Child, attended: &Attended) {
        if self.settings.background_at_exit == BackgroundAtExit::Kill || attended.background.is_empty() {
            child.release();
            return;
        }
        if attended.is_open {
            self.spills.keep_private();
        }
        child.leave();
    }
}

/// The processes left behind: those that could not be stopped, or all that run.
async fn left(stopped: Option<&[u32]>, child: &Child) -> Vec<u32> {
    match stopped {
        Some(pids) => pids.to_vec(),
        None => child.survivors().await,
    }
}

/// Stores what a later process needs to find the child.
async fn remember(identity: &ProcessIdentity, ctx: &ToolCtx) -> Result<(), String> {
    let identity = serde_json::to_value(identity).map_err(|error| error.to_string())?;
    ctx.memos.set(PROCESS_MEMO, identity).await
}

/// Waits until everything was read, or nothing came for [`QUIET_MS`], or `wait_ms` are over. Returns whether
/// everything was read (B5).
async fn settle(progress: &mut watch::Receiver<Progress>, clock: &dyn Clock, wait_ms: u64) -> bool {
    let ended_ms = clock.monotonic_ms();
    let mut is_second_look = false;
    // Ends at `wait_ms` at the latest.
    loop {
        let seen = progress.borrow_and_update().clone();
        if seen.has_ended {
            return true;
        }
        let now = clock.monotonic_ms();
        let last = ended_ms + wait_ms;
        let quiet = if seen.is_writing { last } else { seen.read_ms.max(ended_ms) + QUIET_MS };
        let due = quiet.min(last);
        if now >= due {
            if is_second_look {
                return false;
            }
            // The reader has its turn first: what it was about to read may have come in time.
            is_second_look = true;
            tokio::task::yield_now().await;
            continue;
        }
        is_second_look = false;
        tokio::select! {
            changed = progress.changed() => {
                if changed.is_err() {
                    return true;
                }
            }
            () = clock.sleep(Duration::from_millis(due - now)) => {}
        }
    }
}

fn not_started(error: &SpawnError) -> Failure {
    match error {
        SpawnError::Closed => Failure::aborted(),
        SpawnError::NoDirectory(_) => Failure::new("spawn", error.to_string()),
        SpawnError::Io { source, .. } => Failure::new("spawn", format!("Could not start bash: {}", reason(source))),
        other => Failure::new("spawn", format!("Could not start bash: {other}")),
    }
}

fn spill_directory(ctx: &ToolCtx) -> Option<PathBuf> {
    ctx.session.as_ref().map(|session| session.spill_dir.clone())
}

/// The id of the call, as a name of a file.
fn file_stem(ctx: &ToolCtx) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    ctx.invocation_id.as_str().chars().map(|c| if fits(c) { c } else { '-' }).collect()
}
