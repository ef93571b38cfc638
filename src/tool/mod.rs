//! The built-in tools, and what they share: paths, truncation, argument repair, confinement, images.
//!
//! Keeps true: every failure is a result with a code of the closed list; output is bounded in bytes and lines before
//! it reaches a message; the guard is asked before every look at the disk; nothing here blocks for ever.
//!
//! Must not know: who called, names of models, the keys of JSONL.
//!
//! # What a result holds for programs
//!
//! `details` of a result, which no model sees. A failure has `error` {`code`, `message`} beside or in place of these,
//! with a code of tool rule C2; a call that was refused has `error` alone.
//!
//! | tool | `details` |
//! |---|---|
//! | `read` | `path`, `totalLines`, `startLine`, `endLine`, `bytes`, `truncated`, `truncatedBy`, `eol`, `bom`, `encoding` (rule R11) |
//! | `ls` | `path`, `total`, `shown` (L4) |
//! | `write` | `path`, `created`, `bytes`, `previousBytes`, `atomic`, `patch`? (W4) |
//! | `bash` | `exitCode`, `signal`?, `timedOut`, `timeoutS`, `timeoutClamped`, `totalLines`, `totalBytes`, `truncated`, `truncatedBy`, `fullOutputPath`?, `background`? (pids of what is left) (B13) |
//!
//! # What a tool leaves in files
//!
//! `bash` keeps what a model sees cut, and what is printed behind the end of a call, in `ID.log`, where ID is the id of
//! the result's entry: in the directory of the session ([`spill_dir`](crate::port::SessionRef::spill_dir), `STEM.d`
//! beside `STEM.jsonl`), or, where nothing is kept, in a private directory that goes with the process. With
//! `background_at_exit = "leave"` a command writes to `ID.out.log` itself, and nothing masks that file. Directories are
//! 0700 and files 0600. A file holds the output from its first byte on, as it came but for masks, at most 64 MiB; all
//! files of a session together at most 256 MiB; the result says what is not saved (B9).

mod bash;
mod guard;
pub mod image;
mod ls;
mod masked;
mod mutate;
mod open;
mod patch;
mod path;
mod read;
mod repair;
mod select;
mod truncate;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use self::masked::Masked;
use self::mutate::Mutations;
use crate::port::{Clock, Denied, SystemClock, Tool, ToolOutput};
use crate::process::Supervisor;
use crate::process::mask::Masks;

pub use bash::{BackgroundAtExit, Bash, BashSettings};
pub use guard::{Confine, Confinement};
pub use ls::Ls;
pub use read::{Read, ReadSettings};
pub use repair::{Alias, PATH_ALIASES, repair};
pub use select::{SelectError, select};
pub use truncate::{Cap, Caps, Cut, Head, count_lines, first_chars, head, size, tail};
pub use write::Write;

/// What the built-in tools need: what the configuration says about them, and what they work with.
#[derive(Clone)]
pub struct ToolSettings {
    pub read: ReadSettings,
    /// Whether a changed file is waited for until it is on the medium.
    pub fsync: bool,
    pub bash: BashSettings,
    /// What `~` stands for; `None` leaves it as it is.
    pub home: Option<PathBuf>,
    /// The system's directory for temporary files.
    pub temporary: PathBuf,
    /// Starts children; without it there is no `bash`.
    pub children: Option<Supervisor>,
    /// What no result may show.
    pub masks: Masks,
    pub clock: Arc<dyn Clock>,
}

impl Default for ToolSettings {
    fn default() -> Self {
        Self {
            read: ReadSettings::default(),
            bash: BashSettings::default(),
            fsync: false,
            home: None,
            temporary: PathBuf::from("/tmp"),
            children: None,
            masks: Masks::default(),
            clock: Arc::new(SystemClock::new()),
        }
    }
}

impl std::fmt::Debug for ToolSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolSettings").field("read", &self.read).field("bash", &self.bash).finish_non_exhaustive()
    }
}

/// The built-in tools of these names, in their order; names of other tools are passed over.
pub fn builtin(settings: &ToolSettings, names: &[String]) -> Vec<Arc<dyn Tool>> {
    let mutations = Mutations::new(settings.fsync);
    let tool = |name: &String| -> Option<Arc<dyn Tool>> {
        let tool: Arc<dyn Tool> = match name.as_str() {
            "read" => Arc::new(Read::new(settings)),
            "ls" => Arc::new(Ls::new(settings)),
            "write" => Arc::new(Write::new(settings, &mutations)),
            // It masks what it reads before anything is done with it.
            "bash" => return Some(Arc::new(Bash::new(settings, settings.children.clone()?))),
            _ => return None,
        };
        Some(Masked::wrap(tool, &settings.masks))
    };
    names.iter().filter_map(tool).collect()
}

/// Whether the built-in tool of this name starts children.
pub fn starts_children(name: &str) -> bool {
    name == "bash"
}

/// A failed call: a code of the closed list (tool rule C2) and what the model reads.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    code: &'static str,
    message: String,
}

impl Failure {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The call was cancelled while it ran (tool rule C7).
    fn aborted() -> Self {
        Self::new("aborted", "Aborted.")
    }

    /// The system refused to read `shown`.
    fn io(shown: &str, error: &std::io::Error) -> Self {
        Self::refused("read", shown, error)
    }

    /// The system refused to change `shown`.
    fn unwritable(shown: &str, error: &std::io::Error) -> Self {
        Self::refused("write", shown, error)
    }

    fn refused(verb: &str, shown: &str, error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::PermissionDenied {
            return Self::new("permission_denied", format!("Permission denied: {shown}"));
        }
        Self::new("io", format!("Cannot {verb} {shown}: {}.", reason(error)))
    }
}

/// What the system says, without the number behind it, which tells a model nothing.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

impl From<Failure> for ToolOutput {
    fn from(failure: Failure) -> Self {
        Self::failure(failure.code, failure.message)
    }
}

impl From<Denied> for Failure {
    fn from(denied: Denied) -> Self {
        Self::new("denied", denied.reason)
    }
}

/// Runs file work off the runtime's only thread, which has to stay free for signals and timers.
async fn blocking(work: impl FnOnce() -> Result<ToolOutput, Failure> + Send + 'static) -> ToolOutput {
    off_thread(work).await.unwrap_or_else(Into::into)
}

/// The same, for one step of a tool's work.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        // Whoever called turns a panic of any tool into a result.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Failure::aborted()),
    }
}
