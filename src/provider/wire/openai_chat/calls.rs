//! Which call a fragment belongs to.
//!
//! Keeps true: servers agree on little (some send an index for every fragment, some the same index for every call, some
//! no index, some no id), and every such form brings a fragment to the call it was meant for (OC-9); the first name and
//! id of a call count (OC-10).
//!
//! Must not know: events, what the arguments mean.

use std::collections::BTreeMap;

use crate::provider::json::{Balance, Unescaper};
use crate::provider::redact::cut;

/// Bytes of a call's name; those of tools have at most 64.
const NAME_BYTES_MAX: usize = 1_000;
/// Bytes of a call's id; some gateways carry a signature of the model's thinking in it.
const ID_BYTES_MAX: usize = 100_000;
/// Characters of a name that a note shows.
const NAME_CHARS_SHOWN: usize = 100;

/// One call of the reply.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// Its place in the content.
    pub(super) index: usize,
    /// The server's index, where it gave one.
    wire_index: Option<i64>,
    /// Empty until the server gives one.
    pub(super) id: String,
    /// Empty until the server gives one.
    pub(super) name: String,
    /// The argument text so far; given away at the end.
    pub(super) raw: String,
    pub(super) units: Unescaper,
    balance: Balance,
    pub(super) ended: bool,
    /// Text that came behind its end was noted.
    pub(super) noted_late: bool,
    /// Counts from 1.
    ordinal: usize,
}

impl Call {
    /// Takes argument text.
    pub(super) fn append(&mut self, text: &str) {
        self.raw.push_str(text);
        self.balance.feed(text);
    }

    /// Its name, fit for a note.
    pub(super) fn shown_name(&self) -> String {
        cut(&self.name, NAME_CHARS_SHOWN)
    }

    /// The server's id, or one made from the name (T-7).
    pub(super) fn id(&self) -> String {
        if self.id.is_empty() && !self.name.is_empty() {
            format!("{}_{}", self.name, self.ordinal)
        } else {
            self.id.clone()
        }
    }

    /// Whether its arguments are a whole object. No parse: brackets that are closed stay closed.
    fn is_complete(&self) -> bool {
        self.balance.is_closed()
    }

    /// Whether it can end before the reply does. `{}` may be a gateway's placeholder for arguments to come (ARG-3).
    pub(super) fn may_end(&self) -> bool {
        self.is_complete() && self.raw.trim() != "{}"
    }
}

/// What a fragment says about its call; empty text is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address<'a> {
    pub(super) index: Option<i64>,
    pub(super) id: &'a str,
    pub(super) name: &'a str,
}

/// A part of a call that is longer than this program is willing to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Oversized {
    #[error("The model called a tool by a name of more than {NAME_BYTES_MAX} bytes.")]
    Name,
    #[error("The server gave a tool call an id of more than {ID_BYTES_MAX} bytes.")]
    Id,
}

/// The calls of a reply in order.
#[derive(Debug, Default)]
pub(super) struct Calls {
    list: Vec<Call>,
    /// The newest call of an index.
    by_index: BTreeMap<i64, usize>,
    /// The newest call of an id.
    by_id: BTreeMap<String, usize>,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Call> {
        self.list.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Call> {
        self.list.get_mut(at)
    }

    /// The call a fragment belongs to; nothing for a new one (OC-9).
    pub(super) fn route(&self, to: Address<'_>) -> Option<usize> {
        let by_index = to.index.and_then(|index| self.at(self.by_index.get(&index)));
        let by_id = if to.id.is_empty() { None } else { self.at(self.by_id.get(to.id)) };
        let last = self.list.last().map(|call| (self.list.len() - 1, call));
        let (at, _) = match (by_index, by_id) {
            (Some((at, call)), _) if to.id.is_empty() || call.id == to.id => (at, call),
            (_, Some((at, call))) if !to.opens_beside(call) => (at, call),
            (Some((at, call)), None) if to.continues(call) => (at, call),
            (None, None) if to.index.is_none() => last.filter(|(_, call)| to.extends(call))?,
            _ => return None,
        };
        Some(at)
    }

    /// Adds a call; the caller has routed.
    pub(super) fn open(&mut self, index: usize) -> usize {
        let ordinal = self.list.len() + 1;
        self.list.push(Call { index, ordinal, ..Call::default() });
        ordinal - 1
    }

    /// Lets a call take what it does not have yet; the first name and id count (OC-10).
    pub(super) fn adopt(&mut self, at: usize, from: Address<'_>) {
        let Some(call) = self.list.get_mut(at) else { return };
        if call.name.is_empty() {
            from.name.clone_into(&mut call.name);
        }
        if call.id.is_empty() && !from.id.is_empty() {
            from.id.clone_into(&mut call.id);
            self.by_id.insert(from.id.to_owned(), at);
        }
        if let Some(index) = from.index
            && call.wire_index.is_none()
        {
            call.wire_index = Some(index);
            self.by_index.insert(index, at);
        }
    }

    fn at(&self, found: Option<&usize>) -> Option<(usize, &Call)> {
        let at = *found?;
        self.list.get(at).map(|call| (at, call))
    }
}

impl Address<'_> {
    /// What is longer than any name or id can be.
    pub(super) fn oversized(&self) -> Option<Oversized> {
        if self.name.len() > NAME_BYTES_MAX {
            return Some(Oversized::Name);
        }
        (self.id.len() > ID_BYTES_MAX).then_some(Oversized::Id)
    }

    /// The id is known, but name and index say that another call begins: a server that repeats ids.
    fn opens_beside(&self, known: &Call) -> bool {
        !self.name.is_empty() && self.index.is_some() && known.wire_index.is_some() && self.index != known.wire_index
    }

    /// The index is known, the id is new. Usually another call begins (OC-9 c); but an id may come late (OC-10), and
    /// a fragment without a name can not begin a call while the last one is half written.
    fn continues(&self, known: &Call) -> bool {
        known.id.is_empty() || self.name.is_empty() && !known.raw.is_empty() && !known.is_complete()
    }

    /// No index, and no id that is known. With a name, another call begins once the last one is complete (OC-9 d) or
    /// when it has another name; a new id begins one too, unless it comes late.
    fn extends(&self, last: &Call) -> bool {
        if !self.id.is_empty() {
            return last.id.is_empty() && self.name.is_empty() && !last.is_complete();
        }
        self.name.is_empty() || !last.is_complete() && (last.name.is_empty() || last.name == self.name)
    }
}
