//! What a child is asked to be, how it ended, and how it is recognised later.
//!
//! Keeps true: an identity names one process of one boot of one machine, whatever numbers were used again since.
//!
//! Must not know: how a child is started.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Added to the number of a signal where a shell tells it as an exit code.
const SIGNAL_CODE_BASE: i32 = 128;

/// A child to start.
#[derive(Debug)]
pub struct Spec {
    /// An absolute path, or a bare name looked up on the `PATH` of the child.
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// Absolute, and a directory that exists.
    pub cwd: PathBuf,
    pub stdin: Stdin,
    pub output: Output,
    /// Added last: wins over the policy, but not over the variables that identify the child.
    pub env: Vec<(OsString, OsString)>,
    /// Names that this child gets although the policy withholds them (V3).
    pub pass_env: Vec<String>,
    /// `PIRN_CALL_ID`: the id of the entry that the result becomes. What escapes the group is found by it (X4).
    pub call_id: Option<String>,
    /// `PIRN_SESSION_ID`.
    pub session_id: Option<String>,
    /// What the child is called in errors and reports, such as `bash`.
    pub label: String,
}

/// What the child reads.
#[derive(Debug, Default)]
pub enum Stdin {
    /// Nothing: the null device. A child never gets our own standard input (PROC-10).
    #[default]
    Null,
    /// A file, from its current offset on.
    File(File),
}

/// Where the child's output goes.
#[derive(Debug, Default)]
pub enum Output {
    /// Both streams into one pipe, which keeps their order (B2).
    #[default]
    Merged,
    /// A pipe for each.
    Separate,
    /// Both streams into a file opened for appending, so that what outlives us can go on writing.
    File(File),
}

/// How a child ended: by a code or by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exited {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

impl Exited {
    /// Whether the code is 0.
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    /// The code as a shell tells it: 128 + n for signal n.
    pub fn shell_code(&self) -> i32 {
        self.code.or_else(|| Some(SIGNAL_CODE_BASE.saturating_add(self.signal?))).unwrap_or(SIGNAL_CODE_BASE)
    }
}

/// What a later pirn needs to recognise a child of one that was killed: the memo `proc` of a tool that starts a process.
/// On systems without `/proc` it holds too little to match anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessIdentity {
    /// The id of the child, its group and its session; 0 = not started yet.
    pub pgid: u32,
    /// When the child started, in clock ticks since boot; 0 = unknown.
    pub start_time: u64,
    /// The boot it belongs to; empty = unknown.
    pub boot_id: String,
    /// `PIRN_RUN_TOKEN` of the pirn that started it.
    pub token: String,
}

/// Why a child was not started. Nothing runs then.
#[derive(Debug, Error)]
pub enum SpawnError {
    #[error("not started: pirn is ending")]
    Closed,
    #[error("not started: no runtime that hears signals")]
    NoRuntime,
    #[error("Working directory does not exist: {}", .0.display())]
    NoDirectory(PathBuf),
    #[error("Program not found: {}", .0.display())]
    NotFound(PathBuf),
    #[error("Program cannot run, its interpreter is missing: {}", .0.display())]
    NoInterpreter(PathBuf),
    #[error("Permission denied: {} in {}", program.display(), cwd.display())]
    NotAllowed { program: PathBuf, cwd: PathBuf },
    #[error("{0} was not started: its arguments and environment are longer than the system allows")]
    TooLong(String),
    #[error("{0} was not started: a NUL byte in its arguments, environment or directory")]
    Nul(String),
    #[error("{label} was not started: {source}")]
    Io { label: String, source: io::Error },
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Exited, ProcessIdentity};

    #[test]
    fn a_signal_is_told_as_shells_tell_it() {
        assert_eq!(Exited { code: Some(3), signal: None }.shell_code(), 3);
        assert_eq!(Exited { code: None, signal: Some(9) }.shell_code(), 137);
    }

    #[test]
    fn an_identity_is_stored_in_the_form_of_transcripts() {
        let identity = ProcessIdentity { pgid: 7, start_time: 8, boot_id: "b".to_owned(), token: "t".to_owned() };
        let stored = json!({"pgid": 7, "startTime": 8, "bootId": "b", "token": "t"});
        assert_eq!(serde_json::to_value(&identity).unwrap(), stored);
        assert_eq!(serde_json::from_value::<ProcessIdentity>(stored).unwrap(), identity);
    }
}
