//! The store that keeps a session in memory, for runs that leave nothing behind, and for tests.
//!
//! Keeps true: it answers as the file store does; what was deleted takes no room.
//!
//! Must not know: files.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::index::{Index, Piece};
use super::shelf::{Each, Shelf, Source, store};
use super::transaction::{Numbering, Prepared};
use crate::model::{Entry, EntryId, UsageRow, Write};
use crate::port::{BranchScan, Clock, Committed, EntryScan, ListPage, Stats, StoreError};

/// A session in memory.
pub struct MemoryStore {
    shelf: Shelf<Texts>,
    writer: Mutex<Writer>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct Writer {
    numbering: Numbering,
    /// Why nothing more is taken.
    dead: Option<String>,
}

/// The pieces are the texts.
#[derive(Debug)]
struct Texts;

impl Piece for Arc<str> {
    fn bytes(&self) -> u64 {
        u64::try_from(self.len()).unwrap_or(u64::MAX)
    }
}

impl Source for Texts {
    type Piece = Arc<str>;

    fn texts(&self, pieces: &[Arc<str>], each: &mut Each<'_>) -> Result<(), StoreError> {
        for (at, text) in pieces.iter().enumerate() {
            // It was made from what a writer gave, so only a value whose own JSON form is not readable gets here.
            each(at, text).map_err(|reason| StoreError::Corrupt { file: "memory".to_owned(), line: 0, reason })?;
        }
        Ok(())
    }
}

/// A new, empty session in memory. Its times are those of the clock.
pub fn memory(clock: Arc<dyn Clock>) -> MemoryStore {
    MemoryStore { shelf: Shelf::new(Index::default(), Texts), writer: Mutex::default(), clock }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl MemoryStore {
    fn shelf(&self) -> &Shelf<Texts> {
        &self.shelf
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[expect(clippy::unused_async, reason = "the stores share one form")]
    async fn put(&self, writes: Vec<Write>) -> Result<Committed, StoreError> {
        let mut writer = self.writer();
        if let Some(reason) = &writer.dead {
            return Err(StoreError::Dead(reason.clone()));
        }
        let prepared = Prepared::new(&writes, &self.shelf.index(), writer.numbering, self.clock.now_ms());
        let prepared = prepared.inspect_err(|error| writer.dead = Some(error.to_string()))?;
        let pieces = prepared.texts.iter().map(|text| Arc::from(text.as_str()));
        let committed = prepared.apply(&mut self.shelf.index_mut(), pieces);
        writer.numbering = prepared.numbering();
        Ok(committed)
    }

    #[expect(clippy::unused_async, reason = "the stores share one form")]
    async fn barrier(&self) -> Result<(), StoreError> {
        self.writer().dead.clone().map_or(Ok(()), |reason| Err(StoreError::Dead(reason)))
    }
}

store!(MemoryStore);
