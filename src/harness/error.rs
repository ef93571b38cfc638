//! Why nothing was accepted, or nothing more can be written.
//!
//! Keeps true: a failing provider, tool or hook, a limit and an abort are never an error here: they are results.
//!
//! Must not know: exit codes, wording of the command line.

use crate::model::{EntryId, ErrorKind, ErrorRecord, RunId};
use crate::port::StoreError;

/// The harness can not go on; nothing more is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// `commit_failed`, `foreign_write`, `corrupt_session`, `needs_newer` or `harness_fault`.
    pub code: &'static str,
    pub message: String,
    kind: ErrorKind,
}

impl Fault {
    /// A rule of the machine does not hold: a bug.
    pub(super) fn broken(message: impl Into<String>) -> Self {
        Self { code: "harness_fault", message: message.into(), kind: ErrorKind::Internal }
    }

    pub(super) fn of_store(error: &StoreError) -> Self {
        let code = match error {
            StoreError::ForeignWrite { .. } => "foreign_write",
            StoreError::Corrupt { .. } => "corrupt_session",
            StoreError::NeedsNewer { .. } => "needs_newer",
            StoreError::Invalid(_)
            | StoreError::NoEntry(_)
            | StoreError::Busy { .. }
            | StoreError::Io { .. }
            | StoreError::Dead(_) => "commit_failed",
        };
        Self { code, message: error.to_string(), kind: error.kind() }
    }

    /// The kind that decides the exit code.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The same as a record.
    pub fn record(&self) -> ErrorRecord {
        let mut record = ErrorRecord::new(self.kind, self.message.clone());
        record.code = Some(self.code.to_owned());
        record
    }
}

/// Why a session can not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// A register is missing, has no meaning, or names what does not exist.
    #[error("the session contradicts itself at {address}: {reason}")]
    Corrupt { address: String, reason: String },
    /// A newer version left an operation that this one can not drive.
    #[error("this session needs a newer version: {what}")]
    NeedsNewer { what: String },
    #[error("two tools are named {name:?}")]
    DuplicateTool { name: String },
    #[error(transparent)]
    Storage(#[from] StoreError),
}

impl OpenError {
    /// The kind that decides the exit code.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Corrupt { .. } | Self::NeedsNewer { .. } => ErrorKind::Storage,
            Self::DuplicateTool { .. } => ErrorKind::ToolSetup,
            Self::Storage(error) => error.kind(),
        }
    }

    /// The finer word.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Corrupt { .. } => "corrupt_session",
            Self::NeedsNewer { .. } => "needs_newer",
            Self::DuplicateTool { .. } => "duplicate_tool",
            Self::Storage(_) => "storage",
        }
    }
}

/// Why there is no such lane.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    #[error("there is no lane {0:?}")]
    Unknown(String),
    #[error("lane {0:?} exists already")]
    Exists(String),
    #[error("{0:?} is no name for a lane: it is empty, or holds a NUL")]
    BadName(String),
    #[error("there is no entry {0}")]
    UnknownEntry(EntryId),
    #[error(transparent)]
    Faulted(#[from] Fault),
    #[error("the session is closed")]
    Closed,
}

/// Why a run was not accepted, or could not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Another operation is open, or another call drives the lane.
    #[error("the lane is busy with {kind} {operation}")]
    LaneBusy { operation: RunId, kind: String },
    #[error("{reason}")]
    InvalidMessage { reason: InvalidMessage },
    /// The transcript has no open question.
    #[error("nothing to continue: this session has no open question")]
    NothingToContinue,
    #[error(transparent)]
    Faulted(#[from] Fault),
    #[error("the session is closed")]
    Closed,
}

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    #[error("the message is empty")]
    Empty,
    #[error("a reply that is still streaming can not be stored")]
    PendingAssistant,
    #[error("one message at a time can be queued")]
    Several,
}

/// Why a message was not queued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    #[error("{reason}")]
    InvalidMessage { reason: InvalidMessage },
    #[error(transparent)]
    Faulted(#[from] Fault),
    #[error("the session is closed")]
    Closed,
}

/// Why a value was not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    #[error("there is no entry {0}")]
    UnknownEntry(EntryId),
    #[error(transparent)]
    Faulted(#[from] Fault),
    #[error("the session is closed")]
    Closed,
}

/// Why nothing was aborted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AbortError {
    #[error("no operation is open")]
    NoActiveOperation,
    #[error(transparent)]
    Faulted(#[from] Fault),
    #[error("the session is closed")]
    Closed,
}

/// Why a tool was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    #[error("two tools are named {name:?}")]
    DuplicateTool { name: String },
    /// No call of it could ever be checked.
    #[error("the schema of tool {name:?} is not usable: {reason}")]
    InvalidSchema { name: String, reason: String },
}

impl RegisterError {
    /// The kind that decides the exit code.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::DuplicateTool { .. } | Self::InvalidSchema { .. } => ErrorKind::ToolSetup,
        }
    }
}

macro_rules! kinds {
    ($($error:ty { $($variant:pat => $kind:expr),+ $(,)? })+) => {$(
        impl $error {
            /// The kind that decides the exit code.
            pub fn kind(&self) -> ErrorKind {
                match self {
                    Self::Faulted(fault) => fault.kind(),
                    $($variant => $kind,)+
                }
            }
        }
    )+};
}

kinds! {
    LaneError {
        Self::Unknown(_) | Self::Exists(_) | Self::BadName(_) | Self::UnknownEntry(_) => ErrorKind::Usage,
        Self::Closed => ErrorKind::Internal,
    }
    RunError {
        Self::LaneBusy { .. } => ErrorKind::Busy,
        Self::InvalidMessage { .. } | Self::NothingToContinue => ErrorKind::Usage,
        Self::Closed => ErrorKind::Internal,
    }
    QueueError {
        Self::InvalidMessage { .. } => ErrorKind::Usage,
        Self::Closed => ErrorKind::Internal,
    }
    WriteError {
        Self::UnknownEntry(_) => ErrorKind::Usage,
        Self::Closed => ErrorKind::Internal,
    }
    AbortError {
        Self::NoActiveOperation => ErrorKind::Usage,
        Self::Closed => ErrorKind::Internal,
    }
}
