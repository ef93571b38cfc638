//! Messages and aborts that other processes leave for a session.
//!
//! Keeps true: an item stays until it is acknowledged, so one that was stored twice has the same id both times.
//!
//! Must not know: where items lie, what becomes of them.

use crate::model::{EntryId, RunId, UserMessage};

/// What somebody left.
#[derive(Clone, Debug, PartialEq)]
pub struct SpoolItem {
    /// Also the id of the entry it becomes.
    pub id: EntryId,
    pub lane: String,
    /// Milliseconds since 1970, by the clock of who left it.
    pub at: u64,
    pub what: SpoolKind,
}

/// What an item asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum SpoolKind {
    Steer(UserMessage),
    FollowUp(UserMessage),
    /// The end of this operation, or of the one that was on when it was left.
    Abort {
        operation_id: Option<RunId>,
    },
}

/// What one look found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Polled {
    /// In the order in which they were left.
    pub items: Vec<SpoolItem>,
    /// About items that can not be read and were put aside.
    pub warnings: Vec<String>,
}

/// Where other processes leave messages. Looking never waits.
pub trait Inbox: Send + Sync {
    /// What lies there, the oldest first. There may be more than one look takes.
    fn poll(&self) -> Polled;

    /// Takes an item away; one that is gone already is no error.
    fn ack(&self, id: &EntryId);

    /// Puts an item aside that can never be taken in. Gives what a warning says about it.
    fn refuse(&self, id: &EntryId, reason: &str) -> Option<String>;
}

/// Nobody can leave anything.
#[derive(Clone, Copy, Debug)]
pub struct NoInbox;

impl Inbox for NoInbox {
    fn poll(&self) -> Polled {
        Polled::default()
    }

    fn ack(&self, _: &EntryId) {}

    fn refuse(&self, _: &EntryId, _: &str) -> Option<String> {
        None
    }
}
