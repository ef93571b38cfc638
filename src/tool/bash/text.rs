//! What a model reads about a command, and what programs do (tool rules B6, B13).
//!
//! Keeps true: the output comes first, then the status lines in one order, each with a fixed text; a good end has none.
//!
//! Must not know: how the command was run.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Number, Value, json};

use super::spill::{CALL_BYTES_MAX, Capped, SESSION_BYTES_MAX, Saved};
use super::view::{Cut, Shown};
use crate::model::{Content, ToolResultView};
use crate::port::ToolOutput;
use crate::process::Exited;
use crate::tool::path::plain;
use crate::tool::truncate::{Caps, size};
use crate::turn::texts;

/// Stands for an output without text.
const NO_OUTPUT: &str = "(no output)";
/// Numbers of processes that are listed to a model.
const PIDS_MAX: usize = 20;
/// Names of the signals that end processes.
const SIGNALS: [(i32, &str); 24] = [
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGQUIT, "SIGQUIT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGKILL, "SIGKILL"),
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGPIPE, "SIGPIPE"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGXFSZ, "SIGXFSZ"),
    (libc::SIGVTALRM, "SIGVTALRM"),
    (libc::SIGPROF, "SIGPROF"),
    (libc::SIGIO, "SIGIO"),
    (libc::SIGSYS, "SIGSYS"),
    (libc::SIGTTIN, "SIGTTIN"),
    (libc::SIGTTOU, "SIGTTOU"),
    (libc::SIGTSTP, "SIGTSTP"),
];

/// Why a command is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Ended,
    TimedOut,
    Aborted,
}

/// How a command went.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) why: Why,
    /// How the shell ended; `None` if nobody can tell.
    pub(super) exited: Option<Exited>,
    /// `None` = no limit.
    pub(super) timeout: Option<Duration>,
    /// The model asked for more than there is.
    pub(super) is_clamped: bool,
    pub(super) caps: Caps,
    pub(super) shown: Shown,
    pub(super) saved: Saved,
    /// Somebody still holds the output open, or did when it was waited for.
    pub(super) is_open: bool,
    /// Processes left behind.
    pub(super) background: Vec<u32>,
}

impl Report {
    /// The result of the call.
    pub(super) fn into_output(self) -> ToolOutput {
        let mut details = self.details();
        let status = self.ending();
        let text = self.text(status.as_ref().map(|(_, line)| line.as_str()));
        if let Some((code, line)) = &status {
            let message = line.trim_start_matches('[').trim_end_matches(']');
            details.insert("error".to_owned(), json!({"code": code, "message": message}));
        }
        let output = ToolOutput::text(text);
        ToolOutput { details: Some(Value::Object(details)), is_error: status.is_some(), ..output }
    }

    fn text(&self, ending: Option<&str>) -> String {
        let text = if self.shown.text.is_empty() { NO_OUTPUT } else { self.shown.text.as_str() };
        let mut lines: Vec<String> = cut_line(&self.shown, self.caps, self.file()).into_iter().collect();
        lines.extend(self.file_lines());
        lines.extend(self.is_open.then(|| self.background_line()));
        lines.extend(ending.map(str::to_owned));
        if lines.is_empty() { text.to_owned() } else { format!("{text}\n\n{}", lines.join("\n")) }
    }

    /// The file, where there is something in it that the text lacks.
    fn file(&self) -> Option<&Path> {
        self.saved.path.as_deref().filter(|_| self.shown.cut.is_some() || self.is_open)
    }

    fn file_lines(&self) -> Option<String> {
        if self.shown.cut.is_none() && !self.is_open {
            return None;
        }
        if let Some(reason) = &self.saved.failure {
            return Some(format!("[full output could not be saved: {}]", plain(reason)));
        }
        self.saved.capped.map(|capped| match capped {
            Capped::Call => format!("[output file capped at {}]", size(CALL_BYTES_MAX)),
            Capped::Session => format!("[output file capped at {} for the session]", size(SESSION_BYTES_MAX)),
        })
    }

    fn background_line(&self) -> String {
        let mut who = "processes".to_owned();
        if !self.background.is_empty() {
            let pids: Vec<String> = self.background.iter().take(PIDS_MAX).map(u32::to_string).collect();
            who = format!("pids {}", pids.join(", "));
            if let Some(more) = self.background.len().checked_sub(PIDS_MAX).filter(|more| *more > 0) {
                who = format!("{who} and {more} more");
            }
        }
        match self.file() {
            Some(file) => format!("[background: {who} still running; later output goes to {}]", shown_path(file)),
            None => format!("[background: {who} still running; later output is dropped]"),
        }
    }

    /// The code of a failure and the line that tells it.
    fn ending(&self) -> Option<(&'static str, String)> {
        match (self.why, self.exited) {
            (Why::Aborted, _) => Some(("aborted", texts::TOOL_ABORTED.to_owned())),
            (Why::TimedOut, _) => {
                let limit = seconds(self.timeout.unwrap_or_default());
                Some(("timeout", format!("[timed out after {limit}s; process group killed]")))
            }
            (Why::Ended, None) => Some(("io", "[exit code unknown]".to_owned())),
            (Why::Ended, Some(exited)) => match exited.signal {
                Some(signal) => {
                    let (name, code) = (signal_name(signal), exited.shell_code());
                    Some(("signal", format!("[killed by {name}, exit code {code}]")))
                }
                None if exited.is_success() => None,
                None => Some(("exit", format!("[exit code {}]", exited.shell_code()))),
            },
        }
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        let mut set = |name: &str, value: Value| {
            details.insert(name.to_owned(), value);
        };
        set("exitCode", self.exited.map(|exited| exited.shell_code()).into());
        if let Some(signal) = self.exited.and_then(|exited| exited.signal) {
            set("signal", signal_name(signal).into());
        }
        set("timedOut", (self.why == Why::TimedOut).into());
        set("timeoutS", self.timeout.map_or(Value::Null, seconds_value));
        set("timeoutClamped", self.is_clamped.into());
        count(&self.shown, &mut set);
        if let Some(file) = self.file() {
            set("fullOutputPath", file.to_string_lossy().into());
        }
        if !self.background.is_empty() {
            set("background", self.background.clone().into());
        }
        details
    }
}

/// An output so far, as it is told while the command runs (B11).
pub(super) fn progress(shown: Shown) -> ToolResultView {
    let mut details = Map::new();
    count(&shown, &mut |name, value| {
        details.insert(name.to_owned(), value);
    });
    ToolResultView {
        content: vec![Content::text(shown.text)],
        details: Some(Value::Object(details)),
        structured: None,
        usage: None,
        terminate: false,
    }
}

fn count(shown: &Shown, set: &mut impl FnMut(&str, Value)) {
    set("totalLines", shown.total_lines.into());
    set("totalBytes", shown.total_bytes.into());
    set("truncated", shown.cut.is_some().into());
    let by = shown.cut.map(|cut| match cut {
        Cut::Lines(_) => "lines",
        Cut::Bytes(_) | Cut::Line { .. } => "bytes",
    });
    set("truncatedBy", by.into());
}

fn cut_line(shown: &Shown, caps: Caps, file: Option<&Path>) -> Option<String> {
    let file = file.map(|file| format!("; full output: {}", shown_path(file))).unwrap_or_default();
    let total = shown.total_lines;
    Some(match shown.cut? {
        Cut::Lines(lines) => format!("[last {lines} of {total} lines{file}]"),
        Cut::Bytes(lines) => format!("[last {lines} of {total} lines, cut at {}{file}]", size(caps.bytes as u64)),
        Cut::Line { shown, bytes } => format!("[last {} of line {total} ({}){file}]", size(shown as u64), size(bytes)),
    })
}

fn shown_path(path: &Path) -> String {
    plain(&path.to_string_lossy())
}

/// Without zeros at the end: `300`, `0.5`.
fn seconds(duration: Duration) -> String {
    duration.as_secs_f64().to_string()
}

fn seconds_value(duration: Duration) -> Value {
    if duration.subsec_nanos() == 0 {
        return duration.as_secs().into();
    }
    Number::from_f64(duration.as_secs_f64()).map_or(Value::Null, Value::Number)
}

fn signal_name(signal: i32) -> String {
    let known = SIGNALS.iter().find(|(number, _)| *number == signal);
    known.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests;
