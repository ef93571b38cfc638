//! The built-in tools, and what they share: paths, truncation, argument repair, confinement, images.
//!
//! Keeps true: every failure is a result with a code of the closed list; output is bounded in bytes and lines before
//! it reaches a message; the guard is asked before every look at the disk; nothing here blocks for ever.
//!
//! Must not know: who called, names of models, the keys of JSONL.

mod guard;
pub mod image;
mod ls;
mod open;
mod path;
mod read;
mod repair;
mod select;
mod truncate;

use std::path::PathBuf;
use std::sync::Arc;

use crate::port::{Denied, Tool, ToolOutput};

pub use guard::{Confine, Confinement};
pub use ls::Ls;
pub use read::{Read, ReadSettings};
pub use repair::{Alias, PATH_ALIASES, repair};
pub use select::{SelectError, select};
pub use truncate::{Cap, Caps, Cut, Head, count_lines, first_chars, head, size, tail};

/// What the configuration says about the built-in tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolSettings {
    pub read: ReadSettings,
    /// What `~` stands for; `None` leaves it as it is.
    pub home: Option<PathBuf>,
}

/// The built-in tools of these names, in their order; names of other tools are passed over.
pub fn builtin(settings: &ToolSettings, names: &[String]) -> Vec<Arc<dyn Tool>> {
    let tool = |name: &String| -> Option<Arc<dyn Tool>> {
        match name.as_str() {
            "read" => Some(Arc::new(Read::new(settings))),
            "ls" => Some(Arc::new(Ls::new(settings))),
            _ => None,
        }
    };
    names.iter().filter_map(tool).collect()
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

    /// The system refused something about `shown`.
    fn io(shown: &str, error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::PermissionDenied {
            return Self::new("permission_denied", format!("Permission denied: {shown}"));
        }
        let text = error.to_string();
        // The number behind the text tells a model nothing.
        let reason = text.split(" (os error").next().unwrap_or_default();
        Self::new("io", format!("Cannot read {shown}: {reason}."))
    }
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
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(output)) => output,
        Ok(Err(failure)) => failure.into(),
        // Whoever called turns a panic of any tool into a result.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Failure::aborted().into(),
    }
}
