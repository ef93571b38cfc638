//! (docs to come)

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
