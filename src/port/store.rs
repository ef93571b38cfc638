//! The store of one session: transactions in, queries out.
//!
//! Keeps true: a transaction is stored whole or not at all, for readers and for crashes; writes get ascending places;
//! after a failed commit nothing more is written through that store; what `commit` returned survives a kill, what
//! `sync` returned survives a power cut.
//!
//! Must not know: what is stored where, what a message means.

use async_trait::async_trait;
use serde_json::Value;

use crate::model::{Entry, EntryId, ErrorKind, Usage, UsageRow, Write};

/// Entries of a session, its registers and lists, and its usage ledger.
#[async_trait]
pub trait Store: Send + Sync {
    /// Stores one transaction. The bytes are written when it returns; whether they are also synced is decided by the
    /// durability setting and [`Store::sync`]. Commits are stored in the order in which they were first polled. One
    /// without writes does nothing.
    ///
    /// # Errors
    /// The store takes no further transaction. Nothing of this one is stored, but where the failure was that of a sync,
    /// which comes behind the writing: then nobody knows.
    async fn commit(&self, writes: Vec<Write>) -> Result<Committed, StoreError>;

    /// A barrier: returns when everything committed before it is on the disk, as far as the durability setting asks.
    ///
    /// # Errors
    /// As for a commit.
    async fn sync(&self) -> Result<(), StoreError>;

    /// The entries of these ids, in their order; `None` for one that does not exist.
    fn entries(&self, ids: &[EntryId]) -> Result<Vec<Option<Entry>>, StoreError>;

    /// A register's value. Null is a value.
    fn value(&self, namespace: &str, key: &str) -> Result<Option<Value>, StoreError>;

    /// Registers of a namespace whose keys begin so, in the order of their keys' code points.
    fn values(&self, namespace: &str, key_prefix: &str) -> Result<Vec<(String, Value)>, StoreError>;

    /// Elements of a list from a position on, and where the next ones start; at most [`LIST_LIMIT_MAX`] at once. A list
    /// that is not there is empty.
    fn list(&self, namespace: &str, key: &str, cursor: u64, limit: usize) -> Result<ListPage, StoreError>;

    /// The path from an entry to its root.
    ///
    /// # Errors
    /// `NoEntry` when the start does not exist.
    fn branch(&self, scan: &BranchScan) -> Result<Vec<Entry>, StoreError>;

    /// All entries, by their places.
    fn scan_entries(&self, scan: &EntryScan) -> Result<Vec<Entry>, StoreError>;

    /// All rows of the usage ledger, by their places.
    fn usage(&self) -> Result<Vec<UsageRow>, StoreError>;

    /// Counts over the whole session.
    fn stats(&self) -> Stats;
}

/// Elements of a list that are read at once unless said.
pub const LIST_LIMIT: usize = 1_000;
/// Elements of a list that are read at once at most.
pub const LIST_LIMIT_MAX: usize = 10_000;

/// The receipt of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Committed {
    /// Place of the first write; the others follow it.
    pub first_seq: u64,
    /// Places of all writes, in order.
    pub seqs: Vec<u64>,
    /// Milliseconds since 1970; never before that of an earlier transaction.
    pub timestamp: u64,
    /// After the transaction.
    pub stats: Stats,
}

/// Counts over a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Entries that are messages.
    pub message_count: u64,
    /// The sum of the ledger.
    pub usage: Usage,
}

/// Elements of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListPage {
    pub values: Vec<Value>,
    /// Where the next elements start; `None` at the end.
    pub next: Option<u64>,
}

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    NewestFirst,
    OldestFirst,
}

/// A walk over a path: path to the root, order, stop inclusively at the first match, filter, exclusive cursor, limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BranchScan {
    /// `None` gives nothing.
    pub start: Option<EntryId>,
    /// The scan ends with the first entry of this type.
    pub stop_at_type: Option<String>,
    pub stop_at_id: Option<EntryId>,
    /// Only entries of this type.
    pub entry_type: Option<String>,
    /// Only custom entries of this custom type.
    pub custom_type: Option<String>,
    pub order: Order,
    pub limit: Option<usize>,
    /// Only what comes behind this entry; nothing if it is not on the path.
    pub cursor: Option<EntryId>,
}

/// A walk over all entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryScan {
    pub entry_type: Option<String>,
    /// Inclusive.
    pub from_seq: Option<u64>,
    /// Inclusive.
    pub to_seq: Option<u64>,
    pub order: Order,
    pub limit: Option<usize>,
}

/// Why a store failed. All but `Busy` are errors of kind `storage`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The transaction breaks a rule; it would corrupt the session.
    #[error("invalid transaction: {0}")]
    Invalid(String),
    /// A scan starts at an entry that does not exist.
    #[error("there is no entry {0}")]
    NoEntry(EntryId),
    /// The file holds what no version of ours wrote.
    #[error("{file}: line {line} is damaged: {reason}")]
    Corrupt { file: String, line: u64, reason: String },
    /// Another program wrote to the file.
    #[error("{file} was changed by another program")]
    ForeignWrite { file: String },
    /// A newer version wrote it.
    #[error("{file} needs a newer version: {reason}")]
    NeedsNewer { file: String, reason: String },
    /// Another process has the session open.
    #[error("{file} is in use{}", by(*pid))]
    Busy { file: String, pid: Option<u32> },
    /// The system refused.
    #[error("{file}: {reason}")]
    Io { file: String, reason: String },
    /// An earlier failure ended the store.
    #[error("nothing more is written after an earlier failure: {0}")]
    Dead(String),
}

impl StoreError {
    /// The kind that decides the exit code. Exhaustive, so that a new error is decided here.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Busy { .. } => ErrorKind::Busy,
            Self::Invalid(_)
            | Self::Corrupt { .. }
            | Self::ForeignWrite { .. }
            | Self::NeedsNewer { .. }
            | Self::Io { .. }
            | Self::NoEntry(_)
            | Self::Dead(_) => ErrorKind::Storage,
        }
    }
}

fn by(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" by process {pid}")).unwrap_or_default()
}
