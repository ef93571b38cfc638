//! The reads of a store: the index finds the pieces, a source has their texts. All stores share them.
//!
//! Keeps true: an answer is that of one moment between two transactions; only what is asked for is decoded.
//!
//! Must not know: where texts are kept, how transactions are written.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde_json::Value;

use super::index::{Index, Piece};
use super::record;
use crate::model::{Entry, EntryId, UsageRow};
use crate::port::{BranchScan, EntryScan, LIST_LIMIT_MAX, ListPage, Stats, StoreError};

/// From so many entries on, threads are worth their start.
const THREADED_ENTRIES: usize = 1_000;
/// Threads that decode at a time.
const THREADS_MAX: usize = 4;

/// Where the texts of pieces are.
pub(super) trait Source: Sync {
    type Piece: Piece + Send + Sync;

    /// Gives each text, with the position of its piece, in any order.
    ///
    /// # Errors
    /// A text can not be read, or `each` says that it is damaged.
    fn texts(&self, pieces: &[Self::Piece], each: &mut Each<'_>) -> Result<(), StoreError>;
}

/// Takes the position of a piece and its text; fails with the reason when the text is not what it should be.
pub(super) type Each<'a> = dyn FnMut(usize, &str) -> Result<(), String> + 'a;

/// An index and the source of its texts.
#[derive(Debug)]
pub(super) struct Shelf<S: Source> {
    index: RwLock<Index<S::Piece>>,
    pub(super) source: S,
}

impl<S: Source> Shelf<S> {
    pub(super) fn new(index: Index<S::Piece>, source: S) -> Self {
        Self { index: RwLock::new(index), source }
    }

    pub(super) fn index(&self) -> RwLockReadGuard<'_, Index<S::Piece>> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn index_mut(&self) -> RwLockWriteGuard<'_, Index<S::Piece>> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn decode<T>(
        &self,
        pieces: &[S::Piece],
        mut decode: impl FnMut(usize, &str) -> Result<T, String>,
    ) -> Result<Vec<T>, StoreError> {
        let mut found: Vec<Option<T>> = pieces.iter().map(|_| None).collect();
        self.source.texts(pieces, &mut |at, text| {
            if let Some(slot) = found.get_mut(at) {
                *slot = Some(decode(at, text)?);
            }
            Ok(())
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Decodes entries; many of them on several threads, since a long conversation is read as a whole. This thread does
    /// its part: memory is cheaper here than in a new thread, which gets it page by page.
    fn decode_entries(&self, found: Vec<(S::Piece, u64)>) -> Result<Vec<Entry>, StoreError> {
        let (pieces, times): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let part = |pieces: &[S::Piece], times: &[u64]| {
            self.decode(pieces, |at, text| record::entry(text, times.get(at).copied().unwrap_or_default()))
        };
        let threads = match std::thread::available_parallelism() {
            Ok(threads) if pieces.len() >= THREADED_ENTRIES => threads.get().min(THREADS_MAX),
            Ok(_) | Err(_) => 1,
        };
        if threads == 1 {
            return part(&pieces, &times);
        }
        let size = pieces.len().div_ceil(threads);
        std::thread::scope(|scope| {
            let mut parts = pieces.chunks(size).zip(times.chunks(size));
            let own = parts.next();
            let running: Vec<_> = parts.map(|(pieces, times)| scope.spawn(|| part(pieces, times))).collect();
            let mut entries = own.map_or_else(|| Ok(Vec::new()), |(pieces, times)| part(pieces, times))?;
            entries.reserve_exact(pieces.len().saturating_sub(entries.len()));
            for thread in running {
                entries.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok(entries)
        })
    }

    pub(super) fn entries(&self, ids: &[EntryId]) -> Result<Vec<Option<Entry>>, StoreError> {
        let found: Vec<_> = {
            let index = self.index();
            ids.iter().map(|id| index.entry(id)).collect()
        };
        let mut entries = self.decode_entries(found.iter().flatten().cloned().collect())?.into_iter();
        Ok(found.iter().map(|found| found.as_ref().and_then(|_| entries.next())).collect())
    }

    pub(super) fn value(&self, namespace: &str, key: &str) -> Result<Option<Value>, StoreError> {
        let piece = self.index().register(namespace, key);
        let mut values = self.decode(piece.as_slice(), |_, text| record::value(text))?;
        Ok(values.pop())
    }

    pub(super) fn values(&self, namespace: &str, prefix: &str) -> Result<Vec<(String, Value)>, StoreError> {
        let found = self.index().registers(namespace, prefix);
        let (keys, pieces): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let values = self.decode(&pieces, |_, text| record::value(text))?;
        Ok(keys.into_iter().zip(values).collect())
    }

    pub(super) fn list(&self, namespace: &str, key: &str, cursor: u64, limit: usize) -> Result<ListPage, StoreError> {
        let (pieces, next) = self.index().elements(namespace, key, cursor, limit.min(LIST_LIMIT_MAX));
        let values = self.decode(&pieces, |_, text| record::value(text))?;
        Ok(ListPage { values, next })
    }

    pub(super) fn branch(&self, scan: &BranchScan) -> Result<Vec<Entry>, StoreError> {
        let found = self.index().branch(scan)?;
        self.decode_entries(found)
    }

    pub(super) fn scan_entries(&self, scan: &EntryScan) -> Result<Vec<Entry>, StoreError> {
        let found = self.index().scan(scan);
        self.decode_entries(found)
    }

    pub(super) fn usage(&self) -> Result<Vec<UsageRow>, StoreError> {
        let pieces = self.index().usage_rows();
        self.decode(&pieces, |_, text| record::usage_row(text))
    }

    pub(super) fn stats(&self) -> Stats {
        self.index().stats()
    }
}

/// Makes a store of a type: its reads are those of the field `shelf`, its writes the methods `put` and `barrier`.
macro_rules! store {
    ($type:ty) => {
        #[async_trait::async_trait]
        impl $crate::port::Store for $type {
            async fn commit(&self, writes: Vec<Write>) -> Result<Committed, StoreError> {
                self.put(writes).await
            }

            async fn sync(&self) -> Result<(), StoreError> {
                self.barrier().await
            }

            fn entries(&self, ids: &[EntryId]) -> Result<Vec<Option<Entry>>, StoreError> {
                self.shelf().entries(ids)
            }

            fn value(&self, namespace: &str, key: &str) -> Result<Option<Value>, StoreError> {
                self.shelf().value(namespace, key)
            }

            fn values(&self, namespace: &str, key_prefix: &str) -> Result<Vec<(String, Value)>, StoreError> {
                self.shelf().values(namespace, key_prefix)
            }

            fn list(&self, namespace: &str, key: &str, cursor: u64, limit: usize) -> Result<ListPage, StoreError> {
                self.shelf().list(namespace, key, cursor, limit)
            }

            fn branch(&self, scan: &BranchScan) -> Result<Vec<Entry>, StoreError> {
                self.shelf().branch(scan)
            }

            fn scan_entries(&self, scan: &EntryScan) -> Result<Vec<Entry>, StoreError> {
                self.shelf().scan_entries(scan)
            }

            fn usage(&self) -> Result<Vec<UsageRow>, StoreError> {
                self.shelf().usage()
            }

            fn stats(&self) -> Stats {
                self.shelf().stats()
            }
        }
    };
}

pub(super) use store;
