//! What a session holds and where each part is kept, without the parts themselves. Both stores have one.
//!
//! Keeps true: a transaction that breaks a rule changes nothing; entries stand in the order of their places and are
//! never taken out; the sums equal those of the ledger; bytes that nothing points to any more are counted.
//!
//! Must not know: what an entry says, what a piece is.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use super::record::Change;
use crate::model::EntryId;
use crate::port::{BranchScan, EntryScan, Order, Stats, StoreError};

/// Ids of one transaction that are compared one by one.
const FEW_IDS: usize = 8;

/// Where a write is kept.
pub(super) trait Piece: Clone + Send + Sync + 'static {
    /// Bytes of its text.
    fn bytes(&self) -> u64;
}

/// An entry without what it says.
#[derive(Debug)]
struct Row<P> {
    /// Position of its parent among the entries.
    parent: Option<u32>,
    entry_type: Arc<str>,
    custom_type: Option<Arc<str>>,
    seq: u64,
    at: u64,
    piece: P,
}

/// Ids of entries and usage rows share one namespace.
#[derive(Clone, Copy, Debug)]
enum Slot {
    /// Position among the entries.
    Entry(u32),
    UsageRow,
}

/// By namespace, then by key; both in the order of their code points.
type Addresses<T> = BTreeMap<Box<str>, BTreeMap<Box<str>, T>>;

/// Where an entry is kept, and the time of its transaction.
pub(super) type Found<P> = (P, u64);

#[derive(Debug)]
pub(super) struct Index<P> {
    ids: HashMap<Box<str>, Slot>,
    entries: Vec<Row<P>>,
    /// The id of the last one, which most often is the parent of the next.
    last_id: String,
    usage_rows: Vec<P>,
    registers: Addresses<P>,
    lists: Addresses<Vec<P>>,
    stats: Stats,
    /// Bytes of writes that say nothing any more.
    dead_bytes: u64,
    /// Each word of a type once.
    words: HashSet<Arc<str>>,
}

impl<P> Default for Index<P> {
    fn default() -> Self {
        Self {
            ids: HashMap::new(),
            entries: Vec::new(),
            last_id: String::new(),
            usage_rows: Vec::new(),
            registers: BTreeMap::new(),
            lists: BTreeMap::new(),
            stats: Stats::default(),
            dead_bytes: 0,
            words: HashSet::new(),
        }
    }
}

/// Ids of a transaction, and whether each is that of an entry.
#[derive(Default)]
struct Fresh<'a> {
    /// The first ones: most transactions have no more.
    few: Vec<(&'a str, bool)>,
    rest: HashMap<&'a str, bool>,
}

impl<'a> Fresh<'a> {
    fn get(&self, id: &str) -> Option<bool> {
        let few = self.few.iter().find(|(known, _)| *known == id).map(|(_, is_entry)| *is_entry);
        few.or_else(|| if self.rest.is_empty() { None } else { self.rest.get(id).copied() })
    }

    /// False if the id is there already.
    fn insert(&mut self, id: &'a str, is_entry: bool) -> bool {
        if self.get(id).is_some() {
            return false;
        }
        if self.few.len() < FEW_IDS {
            self.few.push((id, is_entry));
        } else {
            self.rest.insert(id, is_entry);
        }
        true
    }

    fn len(&self) -> usize {
        self.few.len() + self.rest.len()
    }
}

impl<P: Piece> Index<P> {
    /// Whether a transaction may be stored.
    ///
    /// # Errors
    /// The rule it breaks.
    pub(super) fn check<'a>(&self, changes: impl IntoIterator<Item = &'a Change<'a>>) -> Result<(), String> {
        // Ids of this transaction, and whether they are entries.
        let mut fresh = Fresh::default();
        for change in changes {
            let (id, is_entry) = match change {
                Change::Entry { id, parent_id, is_pending, .. } => {
                    if *is_pending {
                        return Err(format!("entry {id} is a reply that has not ended"));
                    }
                    if let Some(parent) = parent_id
                        && fresh.get(parent) != Some(true)
                        && self.position(parent).is_none()
                    {
                        return Err(format!("the parent {parent} of entry {id} does not exist"));
                    }
                    (id, true)
                }
                Change::Usage { id, .. } => (id, false),
                Change::Set { .. } | Change::Delete { .. } | Change::Append { .. } | Change::DeleteList { .. } => {
                    continue;
                }
            };
            if self.ids.contains_key(&**id) || !fresh.insert(id, is_entry) {
                return Err(format!("the id {id} is used already"));
            }
        }
        if u32::try_from(self.entries.len().saturating_add(fresh.len())).is_err() {
            return Err("a session has no room for so many entries".to_owned());
        }
        Ok(())
    }

    /// Adds a write of a transaction that was checked.
    pub(super) fn apply(&mut self, seq: u64, at: u64, change: &Change<'_>, piece: P) {
        match change {
            Change::Entry { id, parent_id, entry_type, custom_type, .. } => {
                let parent = parent_id.as_deref().and_then(|parent| self.position(parent));
                if entry_type == "message" {
                    self.stats.message_count += 1;
                }
                let entry_type = self.word(entry_type);
                let custom_type = custom_type.as_deref().map(|word| self.word(word));
                // The check says that there is room.
                let position = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
                self.ids.insert((&**id).into(), Slot::Entry(position));
                self.entries.push(Row { parent, entry_type, custom_type, seq, at, piece });
                self.last_id.clear();
                self.last_id.push_str(id);
            }
            Change::Usage { id, usage } => {
                self.ids.insert((&**id).into(), Slot::UsageRow);
                self.stats.usage.add(usage);
                self.usage_rows.push(piece);
            }
            Change::Set { namespace, key } => {
                if let Some(cell) = self.registers.get_mut(&**namespace).and_then(|cells| cells.get_mut(&**key)) {
                    self.dead_bytes += std::mem::replace(cell, piece).bytes();
                } else {
                    let cells = self.registers.entry((&**namespace).into()).or_default();
                    cells.insert((&**key).into(), piece);
                }
            }
            Change::Delete { namespace, key } => {
                self.dead_bytes += piece.bytes();
                if let Some(old) = remove(&mut self.registers, namespace, key) {
                    self.dead_bytes += old.bytes();
                }
            }
            Change::Append { namespace, key } => {
                let cells = self.lists.entry((&**namespace).into()).or_default();
                cells.entry((&**key).into()).or_default().push(piece);
            }
            Change::DeleteList { namespace, key } => {
                self.dead_bytes += piece.bytes();
                let old = remove(&mut self.lists, namespace, key).unwrap_or_default();
                self.dead_bytes += old.iter().map(Piece::bytes).sum::<u64>();
            }
        }
    }

    fn word(&mut self, word: &str) -> Arc<str> {
        if let Some(known) = self.words.get(word) {
            return Arc::clone(known);
        }
        let word: Arc<str> = word.into();
        self.words.insert(Arc::clone(&word));
        word
    }

    fn position(&self, id: &str) -> Option<u32> {
        if let Some(last) = self.entries.len().checked_sub(1)
            && id == self.last_id
        {
            return u32::try_from(last).ok();
        }
        match self.ids.get(id)? {
            Slot::Entry(position) => Some(*position),
            Slot::UsageRow => None,
        }
    }

    fn row(&self, position: u32) -> Option<&Row<P>> {
        self.entries.get(usize::try_from(position).ok()?)
    }

    pub(super) fn stats(&self) -> Stats {
        self.stats.clone()
    }

    pub(super) fn dead_bytes(&self) -> u64 {
        self.dead_bytes
    }

    pub(super) fn entry(&self, id: &EntryId) -> Option<Found<P>> {
        self.row(self.position(id.as_str())?).map(found)
    }

    pub(super) fn register(&self, namespace: &str, key: &str) -> Option<P> {
        self.registers.get(namespace)?.get(key).cloned()
    }

    /// Registers whose keys begin so, in order.
    pub(super) fn registers(&self, namespace: &str, prefix: &str) -> Vec<(String, P)> {
        let Some(cells) = self.registers.get(namespace) else { return Vec::new() };
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let cells = cells.range::<str, _>(from).take_while(|(key, _)| key.starts_with(prefix));
        cells.map(|(key, piece)| (key.to_string(), piece.clone())).collect()
    }

    /// Elements of a list from a position on, and where the next ones start.
    pub(super) fn elements(&self, namespace: &str, key: &str, cursor: u64, limit: usize) -> (Vec<P>, Option<u64>) {
        let all = self.lists.get(namespace).and_then(|cells| cells.get(key)).map_or(&[][..], Vec::as_slice);
        let start = usize::try_from(cursor).unwrap_or(usize::MAX).min(all.len());
        let end = start.saturating_add(limit).min(all.len());
        let next = if end < all.len() { u64::try_from(end).ok() } else { None };
        (all.get(start..end).unwrap_or_default().to_vec(), next)
    }

    pub(super) fn usage_rows(&self) -> Vec<P> {
        self.usage_rows.clone()
    }

    /// The path of a scan: order, then the stop, the filter, the cursor and the limit.
    ///
    /// # Errors
    /// The start does not exist.
    pub(super) fn branch(&self, scan: &BranchScan) -> Result<Vec<Found<P>>, StoreError> {
        let Some(start) = &scan.start else { return Ok(Vec::new()) };
        let tip = self.position(start.as_str()).ok_or_else(|| StoreError::NoEntry(start.clone()))?;
        let mut path: Vec<(u32, &Row<P>)> = Vec::new();
        let mut next = Some(tip);
        // A parent stands before its child, so the walk ends.
        while let Some((position, row)) = next.and_then(|position| Some((position, self.row(position)?))) {
            path.push((position, row));
            next = row.parent;
        }
        if scan.order == Order::OldestFirst {
            path.reverse();
        }
        let stop_id = scan.stop_at_id.as_ref().and_then(|id| self.position(id.as_str()));
        let stop = path.iter().position(|(position, row)| {
            Some(*position) == stop_id || scan.stop_at_type.as_deref() == Some(&*row.entry_type)
        });
        path.truncate(stop.map_or(path.len(), |stop| stop + 1));
        let mut rest = path.as_slice();
        if let Some(cursor) = &scan.cursor {
            // Nothing comes behind an entry that is not on the path.
            let cursor = self.position(cursor.as_str());
            let at = path.iter().position(|(position, _)| Some(*position) == cursor);
            rest = at.and_then(|at| path.get(at + 1..)).unwrap_or_default();
        }
        let wanted = |row: &Row<P>| {
            scan.entry_type.as_deref().is_none_or(|word| *word == *row.entry_type)
                && scan.custom_type.as_deref().is_none_or(|word| Some(word) == row.custom_type.as_deref())
        };
        let rows = rest.iter().map(|(_, row)| *row).filter(|row| wanted(row));
        Ok(rows.take(scan.limit.unwrap_or(usize::MAX)).map(found).collect())
    }

    /// Entries by their places.
    pub(super) fn scan(&self, scan: &EntryScan) -> Vec<Found<P>> {
        let from = scan.from_seq.map_or(0, |from| self.entries.partition_point(|row| row.seq < from));
        let to = scan.to_seq.map_or(self.entries.len(), |to| self.entries.partition_point(|row| row.seq <= to));
        let rows = self.entries.get(from..to).unwrap_or_default();
        let wanted = |row: &&Row<P>| scan.entry_type.as_deref().is_none_or(|word| *word == *row.entry_type);
        let limit = scan.limit.unwrap_or(usize::MAX);
        match scan.order {
            Order::OldestFirst => rows.iter().filter(wanted).take(limit).map(found).collect(),
            Order::NewestFirst => rows.iter().rev().filter(wanted).take(limit).map(found).collect(),
        }
    }

    /// Every piece that still says something, in no order.
    pub(super) fn live(&self) -> impl Iterator<Item = &P> {
        let entries = self.entries.iter().map(|row| &row.piece);
        let registers = self.registers.values().flat_map(BTreeMap::values);
        let elements = self.lists.values().flat_map(BTreeMap::values).flatten();
        entries.chain(&self.usage_rows).chain(registers).chain(elements)
    }
}

fn found<P: Clone>(row: &Row<P>) -> Found<P> {
    (row.piece.clone(), row.at)
}

/// Takes a cell out, and its namespace with the last one.
fn remove<T>(cells: &mut Addresses<T>, namespace: &str, key: &str) -> Option<T> {
    let inner = cells.get_mut(namespace)?;
    let old = inner.remove(key);
    if inner.is_empty() {
        cells.remove(namespace);
    }
    old
}
