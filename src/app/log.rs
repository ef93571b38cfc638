//! The diagnostic log: what `--log` writes.
//!
//! Keeps true: without `--log` nothing listens and nothing is paid for; a line holds no body, no header and no known
//! secret; a log that takes no more is noted and left alone, and one that is no file never holds up the run.
//!
//! Must not know: what is worth logging.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, registry};

use crate::model::{ErrorKind, ErrorRecord, Event, Message};
use crate::print;
use crate::process;

/// The variable that sets what is logged.
pub(super) const FILTER: &str = "PIRN_LOG";
/// What is told where that variable stands alone.
pub(super) const NO_FILE: &str = "PIRN_LOG is set, but no --log FILE is given; nothing is logged";
const FILTER_HINT: &str = "a level, or modules with levels: PIRN_LOG=pirn=debug,pirn::provider=trace";
/// Characters of a filter that an error repeats.
const FILTER_CHARS_SHOWN: usize = 60;
/// Our own modules; others log nothing.
const OURS: &str = "pirn";
/// Bytes of a line to what is no file: as many as a pipe that is ready takes at once.
const PIPE_LINE_BYTES_MAX: usize = 4096;

/// Takes secrets out of a text.
type Mask = Box<dyn Fn(&str) -> String + Send + Sync>;

/// A log that is being written.
#[derive(Clone)]
pub(super) struct Log {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    file: Mutex<File>,
    is_file: bool,
    mask: OnceLock<Mask>,
    failure: OnceLock<String>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

impl Log {
    /// Opens the file, at its end, and starts to listen. May wait for the reader of a named pipe.
    pub(super) fn start(path: &Path, filter: Option<&str>) -> Result<Self, ErrorRecord> {
        let usage = |text: String| ErrorRecord::new(ErrorKind::Usage, text);
        let targets = filter.map_or_else(|| Ok(Targets::new().with_target(OURS, LevelFilter::DEBUG)), targets)?;
        let opened = print::append_private(path, process::unix::inherited).and_then(|file| {
            let is_file = file.metadata()?.is_file();
            Ok((file, is_file))
        });
        let (file, is_file) = opened
            .map_err(|error| usage(format!("--log: cannot write {}: {}", path.display(), print::io_reason(&error))))?;
        let (mask, failure) = (OnceLock::new(), OnceLock::new());
        let shared = Shared { path: path.to_owned(), file: Mutex::new(file), is_file, mask, failure };
        let log = Self { shared: Arc::new(shared) };
        let lines = tracing_subscriber::fmt::layer().with_writer(log.clone()).with_filter(targets);
        // A second log in one process can only be a second call of the library's `run`.
        tracing::subscriber::set_global_default(registry().with(lines))
            .map_err(|error| ErrorRecord::new(ErrorKind::Internal, format!("the log did not start: {error}")))?;
        Ok(log)
    }

    /// Masks what is logged from now on; the first mask stays.
    pub(super) fn mask_with(&self, mask: impl Fn(&str) -> String + Send + Sync + 'static) {
        self.shared.mask.get_or_init(|| Box::new(mask));
    }

    /// A sentence on why the log is not complete, if so.
    pub(super) fn failure(&self) -> Option<String> {
        let reason = self.shared.failure.get()?;
        Some(format!("the log is not complete: cannot write {}: {reason}", self.shared.path.display()))
    }
}

fn targets(filter: &str) -> Result<Targets, ErrorRecord> {
    let parsed = filter.parse::<Targets>().ok();
    let is_ours =
        |target: &str| target.strip_prefix(OURS).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    // A word that is no level counts as a module that does not exist, and would silence everything.
    parsed.filter(|targets| targets.iter().all(|(target, _)| is_ours(target))).ok_or_else(|| {
        let message = format!("{FILTER}: this is no filter: {}", print::line(filter, FILTER_CHARS_SHOWN));
        ErrorRecord::new(ErrorKind::Usage, message).with_hint(FILTER_HINT)
    })
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Lines<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Lines { shared: &self.shared }
    }
}

/// Gets whole lines.
pub(super) struct Lines<'a> {
    shared: &'a Shared,
}

impl io::Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Shared { file, is_file, mask, failure, .. } = self.shared;
        if failure.get().is_some() {
            return Ok(bytes.len());
        }
        let text = String::from_utf8_lossy(bytes);
        let text = mask.get().map_or_else(|| text.to_string(), |mask| mask(&text));
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = if *is_file {
            file.write_all(text.as_bytes())
        } else if process::unix::is_writable(file.as_fd(), Duration::ZERO) {
            file.write_all(cut(&text).as_bytes())
        } else {
            Err(io::Error::other("its reader is too slow"))
        };
        if let Err(error) = written {
            failure.get_or_init(|| print::io_reason(&error));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Logs what an event tells of the run, without what was said.
pub(super) fn event(event: &Event) {
    match event {
        Event::RunStart { run_id, .. } => tracing::info!(id = %run_id, "run started"),
        Event::RunResume { run_id } => tracing::info!(id = %run_id, "run resumed"),
        Event::RecoveryStep { state, action, tool_call_id, .. } => {
            tracing::info!(state = ?state, action = action.as_str(), call = ?tool_call_id, "recovery step");
        }
        Event::OperationAbort { run_id, cause, .. } => tracing::info!(id = %run_id, cause = ?cause, "abort asked for"),
        Event::RetryScheduled { attempt, max_attempts, delay_ms, .. } => {
            tracing::info!(attempt, max_attempts, delay_ms, "retry scheduled");
        }
        Event::RetryEnd { attempt, success, .. } => tracing::debug!(attempt, success, "retries ended"),
        Event::ModelFallback { from, to, .. } => tracing::warn!(from = ?from, to = ?to, "model fallback"),
        Event::HandlerError { kind, name, .. } => tracing::warn!(kind = ?kind, name = ?name, "handler failed"),
        Event::TurnStart { turn } => tracing::debug!(turn, "turn started"),
        Event::MessageEnd { message, .. } => {
            if let Message::Assistant(reply) = &**message {
                let (stop, duration_ms) = (reply.stop_reason.as_str(), reply.duration_ms);
                let error = reply.error.as_ref().map(|error| error.kind.as_str());
                let (input, output) = (reply.usage.input, reply.usage.output);
                tracing::debug!(stop, duration_ms, error, input, output, "reply ended");
            }
        }
        Event::ToolStart { tool_call_id, tool_name, .. } => {
            tracing::debug!(tool = ?tool_name, id = ?tool_call_id, "tool started");
        }
        Event::ToolEnd { tool_call_id, tool_name, is_error, duration_ms, .. } => {
            tracing::debug!(tool = ?tool_name, id = ?tool_call_id, is_error, duration_ms, "tool ended");
        }
        Event::RunEnd { outcome, .. } => tracing::info!(reason = outcome.reason.as_str(), "run ended"),
        Event::Warning { code, .. } => tracing::warn!(code = ?code, "warning"),
        Event::Fault { error } => tracing::error!(kind = error.kind.as_str(), "fault"),
        Event::MessageStart { .. }
        | Event::MessageUpdate { .. }
        | Event::ToolUpdate { .. }
        | Event::TurnEnd { .. }
        | Event::RetryStart { .. }
        | Event::EntryAdded { .. }
        | Event::Usage { .. }
        | Event::ConfigUpdate { .. }
        | Event::ValueUpdate { .. }
        | Event::LaneCreated { .. }
        | Event::QueueUpdate { .. } => {}
    }
}

/// A line that fits into a pipe.
fn cut(line: &str) -> String {
    if line.len() <= PIPE_LINE_BYTES_MAX {
        return line.to_owned();
    }
    let room = PIPE_LINE_BYTES_MAX.saturating_sub(1);
    // A character has at most four bytes.
    let head = (0..4).find_map(|back| line.get(..room.saturating_sub(back)));
    let mut short = head.unwrap_or_default().to_owned();
    short.push('\n');
    short
}

#[cfg(test)]
mod tests {
    use super::{PIPE_LINE_BYTES_MAX, cut, targets};

    #[test]
    fn a_filter_names_levels_and_our_modules_only() {
        for filter in ["debug", "pirn=trace", "pirn::provider=debug,warn", "off", "pirn", "pirn::app=info,pirn=error"] {
            assert!(targets(filter).is_ok(), "{filter}");
        }
        for filter in ["verbose", "pirn=loud", "pirnx=debug", "hyper=debug", "debug,verbose"] {
            let error = targets(filter).unwrap_err();
            assert!(error.message.starts_with("PIRN_LOG: this is no filter: "), "{error:?}");
            assert!(error.hint.is_some_and(|hint| hint.contains("PIRN_LOG=pirn=debug")), "{filter}");
        }
    }

    #[test]
    fn a_line_for_a_pipe_is_cut_between_characters_and_stays_a_line() {
        assert_eq!(cut("short\n"), "short\n");
        let long = cut(&"é".repeat(PIPE_LINE_BYTES_MAX));
        assert!(long.len() <= PIPE_LINE_BYTES_MAX && long.ends_with("é\n"));
    }
}
