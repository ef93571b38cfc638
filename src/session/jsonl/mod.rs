//! The session file: its format, and the store that reads and writes it.
//!
//! Keeps true: what a commit returned survives the death of the process, what a sync returned survives the loss of
//! power; every prefix of a file is a session (I11); no byte of a file is changed but by cutting off what is no record,
//! and a rewrite puts a whole new file in its place (I12); there is one writer.
//!
//! Must not know: where sessions are kept and how one is found, what a message means beyond its shape, who runs.
//!
//! # The format
//!
//! This is a promise, and versioned: the header's `format` is 1. `config/schemas/session.schema.json` says the same for
//! programs. A file is UTF-8 text. Each line is one JSON object without spaces around its members and ends with a line
//! feed.
//!
//! ## The header
//!
//! The first line.
//!
//! | member | what |
//! |---|---|
//! | `kind` | `pirn.session` |
//! | `format` | 1 |
//! | `id` | UUIDv7 of the session |
//! | `createdAt` | milliseconds since 1970 |
//! | `cwd` | the working directory; it decides, whatever the file and its directory are called |
//! | `requires` | what a program must know, beside the format, before it may write; `[]` today |
//! | `parentSessionId`? | the session it was forked from |
//! | `nextSeq`? | places below this one may have been used; a rewrite sets it |
//! | `importedFrom`? | what it was imported from |
//!
//! ## Transactions
//!
//! Every other line is one transaction, whole or not at all: `{"at":…,"w":[…],"c":"…"}`, members in this order. `at` is
//! its time in milliseconds since 1970 and never less than that of the line before. `w` has its writes, in the order in
//! which they are made. `c` is the CRC32 (IEEE) of the line's bytes before `,"c":`, as 8 lower-case hex digits.
//!
//! Each write has `seq`, its place, and `kind`. Places grow through the whole file, from 1 to 2⁵³ − 1, and may have
//! gaps.
//!
//! | `kind` | `op` | other members | what |
//! |---|---|---|---|
//! | `entry` | | `id`, `parentId` (an id or null), `type`, and those of the type | inserts an entry under one that was written before it |
//! | `usage` | | `row`: {`id`, `operationId`, `lane`, `kind`, `provider`?, `modelId`?, `usage`, `cost`, `entryId`?, `details`?} | adds to the usage ledger |
//! | `value` | `set` | `namespace`, `key`, `value` | sets a register; null is a value |
//! | `value` | `delete` | `namespace`, `key` | deletes a register, if it is there |
//! | `list` | `append` | `namespace`, `key`, `value` | adds to the end of a list |
//! | `list` | `delete` | `namespace`, `key` | deletes a list whole, if it is there |
//!
//! Ids of entries and usage rows are unique together. The time of an entry is that of its line. Types of entries:
//!
//! | `type` | members |
//! |---|---|
//! | `message` | `message` (the transcript form: [`model::message`](crate::model::message)), `terminate`? (true, on a tool result that asked for the end of the run) |
//! | `custom` | `customType`, `data`?; never sent to a model by default |
//! | any other | kept as it is |
//!
//! [`model::session`](crate::model::session) lists the registers. A reply of stop reason `pending` is never kept, and
//! nothing is nested more than 256 levels deep. A line is shorter than 256 MiB.
//!
//! # Opening
//!
//! Lines are read in order. The first bad one (no line feed, no JSON, a wrong sum, a place that does not grow) decides:
//!
//! | found | opened to write | opened to read |
//! |---|---|---|
//! | no whole line behind it | a torn tail: everything from it on is left out with a warning; before the first append it is copied to `FILE.torn-STAMP` and cut off | left out with a warning |
//! | a whole line behind it | refused, naming the line | entries before it are shown, the line is named |
//! | a whole line that breaks a rule above | refused, naming the line | as before |
//! | a newer `format`, an unknown item of `requires`, an unknown `kind` or `op` | refused as needing a newer version | unknown writes are passed over |
//!
//! A last line that lacks nothing but its line feed is whole; the line feed is written with the next transaction.
//! Opening changes no byte. Readers take no lock and may read while another process writes.
//!
//! # Appending
//!
//! A transaction is one `write` call on a descriptor opened for appending. Before it, device, inode and size of the file
//! must be what this process saw last; if not, another program changed it and nothing is written. When a write fails or
//! is short, the file is cut back to its old size. After any failure the store writes nothing more. So a full disk, a
//! kill or the loss of power leave whole transactions, and at most one torn tail.
//!
//! | durability | `fdatasync` |
//! |---|---|
//! | `none` | never |
//! | `normal` | when a barrier is asked for: before an effect that may not be repeated, before a claim is told |
//! | `full` | after every commit |
//!
//! Commits between two barriers share one sync. The first barrier of a process also covers what an earlier one left, and,
//! for a new file, the directories that got a new name. After a sync that failed nobody knows what the disk kept, so
//! that ends the store too; replay of the file is still the state of the store.
//!
//! # The lock
//!
//! `STEM.lock` beside the file is locked (`flock`) while a process has the session open to write, and holds
//! {`pid`, `host`, `startedAt`, `command`} for messages. The lock goes with the process, so there is never anything to
//! clean up, and is not inherited by children. Taking it is tried for 300 ms, since a probe holds it for a moment. With
//! the lock off (`session.lock = "off"`) only the check before each append guards the file: of two processes that write
//! the slower one stops.
//!
//! # Rewriting
//!
//! Registers that were set again and lists that were deleted leave dead bytes. When a session is closed in good order
//! under its lock and more than 256 KiB and more than half of the file are dead, the live writes go to
//! `FILE.rewrite`, each with its text and its place, in the lines they came in; that file is synced, under every
//! durability, and takes the place of the old one. What a kill leaves of it is removed by the next process that opens the
//! session.
//!
//! # Modes
//!
//! Files are 0600 and directories 0700 from the moment they are made.
//!
//! # Compatibility
//!
//! New members, entry types, message roles and namespaces need no new format: a reader keeps what it does not know, a
//! rewrite copies it byte for byte, and only what is sent to a model passes it over. What an older program must not write
//! to has an item in `requires`, or a higher `format`.
//!
//! | question | answer |
//! |---|---|
//! | an old program reads a newer file | yes, what it knows of it |
//! | a new program reads an older file | yes; format 1 is the first |
//! | an old program writes to a newer file | only if `format` and `requires` say so |
//! | `-c` over a file that needs a newer program | exit 1, naming what it needs; the file stays as it is |

mod append;
mod disk;
mod header;
pub mod line;
pub mod lock;
mod open;
mod options;
mod pages;
mod replay;
mod rewrite;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use self::append::Session;
use self::pages::Pages;
use super::shelf::{Shelf, store};
use crate::model::{Entry, EntryId, UsageRow, Write};
use crate::port::{BranchScan, Committed, EntryScan, ListPage, Stats, StoreError};

pub(super) use append::write_all;
pub use disk::{Disk, OsDisk};
pub use header::{FORMAT, HEADER_BYTES_MAX, Header};
pub use open::{create, open, read};
pub use options::{Durability, LockMode, Options};

/// A session file that this process writes to.
#[derive(Debug)]
pub struct JsonlStore {
    session: Arc<Session>,
}

/// How a session was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The file is as it was.
    Kept,
    /// Its dead part was large and is gone.
    Rewritten,
}

impl JsonlStore {
    /// The first line.
    pub fn header(&self) -> &Header {
        &self.session.header
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.session.path
    }

    /// What the user should know about how it was opened.
    pub fn warnings(&self) -> &[String] {
        &self.session.warnings
    }

    /// Ends a session in good order: syncs what is not synced, rewrites the file where most of it is dead, gives the
    /// lock back. Nothing is written afterwards; reads go on.
    ///
    /// # Errors
    /// The last commits may not be on the disk, or the file could not be rewritten; then it is whole as it is.
    pub async fn close(&self) -> Result<Closed, StoreError> {
        self.session.close().await
    }

    fn shelf(&self) -> &Shelf<Pages> {
        &self.session.shelf
    }

    async fn put(&self, writes: Vec<Write>) -> Result<Committed, StoreError> {
        let committed = self.session.commit(&writes)?;
        if self.session.options.durability == Durability::Full {
            self.session.barrier().await?;
        }
        Ok(committed)
    }

    async fn barrier(&self) -> Result<(), StoreError> {
        self.session.barrier().await
    }
}

store!(JsonlStore);

/// A session file that is only looked at.
#[derive(Debug)]
pub struct ReadOnly {
    shelf: Shelf<Pages>,
    header: Header,
    damage: Option<StoreError>,
    warnings: Vec<String>,
}

impl ReadOnly {
    /// The first line.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Why what stands behind the last entry could not be read, if more does.
    pub fn damage(&self) -> Option<&StoreError> {
        self.damage.as_ref()
    }

    /// What the user should know about the file.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn shelf(&self) -> &Shelf<Pages> {
        &self.shelf
    }

    #[expect(clippy::unused_async, reason = "the stores share one form")]
    async fn put(&self, _: Vec<Write>) -> Result<Committed, StoreError> {
        Err(StoreError::Dead("the session was opened only to be read".to_owned()))
    }

    #[expect(clippy::unused_async, reason = "the stores share one form")]
    async fn barrier(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

store!(ReadOnly);
