//! A transaction on its way into a store: checked, numbered and written out, before anything is changed.
//!
//! Keeps true: what is wrong with a transaction is found before a byte of it is kept; places only grow; time does not
//! go back.
//!
//! Must not know: where it goes.

use super::index::{Index, Piece};
use super::record::{self, Change};
use crate::model::Write;
use crate::port::{Committed, StoreError};

/// The last place there is: the last integer that every JSON reader has.
pub(super) const SEQ_MAX: u64 = (1 << 53) - 1;

/// The next place and the last time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbering {
    pub(super) next_seq: u64,
    /// Milliseconds since 1970.
    pub(super) last_at: u64,
}

impl Default for Numbering {
    fn default() -> Self {
        Self { next_seq: 1, last_at: 0 }
    }
}

/// A transaction that can be stored.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    pub(super) at: u64,
    first_seq: u64,
    changes: Vec<Change<'a>>,
    /// The writes as text.
    pub(super) texts: Vec<String>,
}

impl<'a> Prepared<'a> {
    /// Checks, numbers and writes out.
    ///
    /// # Errors
    /// `Invalid`: the rule that the transaction breaks.
    pub(super) fn new<P: Piece>(
        writes: &'a [Write],
        index: &Index<P>,
        numbering: Numbering,
        now: u64,
    ) -> Result<Self, StoreError> {
        let changes: Vec<_> = writes.iter().map(record::change).collect();
        index.check(&changes).map_err(StoreError::Invalid)?;
        let first_seq = numbering.next_seq;
        let texts = (first_seq..).zip(writes).map(|(seq, write)| {
            if seq > SEQ_MAX {
                return Err("a session has no room for so many writes".to_owned());
            }
            record::encode(seq, write)
        });
        let texts = texts.collect::<Result<_, _>>().map_err(StoreError::Invalid)?;
        Ok(Self { at: now.max(numbering.last_at), first_seq, changes, texts })
    }

    /// The numbering behind it.
    pub(super) fn numbering(&self) -> Numbering {
        let count = u64::try_from(self.texts.len()).unwrap_or(SEQ_MAX);
        Numbering { next_seq: self.first_seq.saturating_add(count), last_at: self.at }
    }

    /// Adds its writes, which are kept in these pieces, to an index.
    pub(super) fn apply<P: Piece>(&self, index: &mut Index<P>, pieces: impl IntoIterator<Item = P>) -> Committed {
        for ((seq, change), piece) in (self.first_seq..).zip(&self.changes).zip(pieces) {
            index.apply(seq, self.at, change, piece);
        }
        Committed {
            first_seq: self.first_seq,
            seqs: (self.first_seq..self.numbering().next_seq).collect(),
            timestamp: self.at,
            stats: index.stats(),
        }
    }
}
