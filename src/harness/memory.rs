//! A lane as this process knows it: what its registers say, and the path that a request is made from.
//!
//! Keeps true: it says what the store says after every transaction, and changes in no other way but for what only this
//! process's stream of events knows.
//!
//! Must not know: how a transaction is planned.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::options::Projector;
use crate::model::{
    AssistantMessage, Entry, EntryBody, EntryId, LaneConfig, LaneState, Leaf, Message, OperationMeta, OperationResult,
    OperationState, PendingEntry, Queued,
};

/// A lane.
#[derive(Clone, Debug)]
pub(super) struct LaneMemory {
    pub(super) name: Arc<str>,
    pub(super) tip: Option<EntryId>,
    pub(super) config: LaneConfig,
    pub(super) state: LaneState,
    /// What the inbox names.
    pub(super) waiting: HashMap<EntryId, PendingEntry>,
    pub(super) operation: Option<Open>,
    pub(super) last_result: Option<Arc<OperationResult>>,
    /// From the root to the tip.
    pub(super) path: Vec<Arc<Entry>>,
    pub(super) stream: StreamState,
}

/// The open operation of a lane.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) meta: Arc<OperationMeta>,
    pub(super) state: OperationState,
    /// Results that wait for their place.
    pub(super) staged: HashMap<EntryId, Arc<Message>>,
}

/// What the stream of events of this process has opened.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamState {
    pub(super) turn: Option<TurnState>,
}

/// An open turn.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnState {
    pub(super) number: u32,
    pub(super) reply: Option<Arc<Message>>,
    pub(super) results: Vec<Arc<Message>>,
}

impl LaneMemory {
    /// The messages of the path, oldest first.
    pub(super) fn messages(&self) -> impl DoubleEndedIterator<Item = (&EntryId, &Arc<Message>)> {
        self.path.iter().filter_map(|entry| match &entry.body {
            EntryBody::Message { message, .. } => Some((&entry.id, message)),
            EntryBody::Custom { .. } | EntryBody::Other(_) => None,
        })
    }

    /// What a request is made from: the messages, and custom entries that have a projector.
    pub(super) fn context(&self, projectors: &BTreeMap<String, Projector>) -> Vec<Arc<Message>> {
        let projected = |entry: &Arc<Entry>| match &entry.body {
            EntryBody::Message { message, .. } => Some(Arc::clone(message)),
            EntryBody::Custom { custom_type, data } => projectors.get(custom_type)?(data.as_ref()).map(Arc::new),
            EntryBody::Other(_) => None,
        };
        self.path.iter().filter_map(projected).collect()
    }

    /// The messages that the open operation, or one that began at `source`, has stored.
    pub(super) fn messages_since(&self, source: Option<&EntryId>) -> Vec<Arc<Message>> {
        let mut since: Vec<Arc<Message>> = self
            .path
            .iter()
            .rev()
            .take_while(|entry| Some(&entry.id) != source)
            .filter_map(|entry| match &entry.body {
                EntryBody::Message { message, .. } => Some(Arc::clone(message)),
                EntryBody::Custom { .. } | EntryBody::Other(_) => None,
            })
            .collect();
        since.reverse();
        since
    }

    /// The reply of an entry on the path.
    pub(super) fn reply(&self, id: &EntryId) -> Option<&AssistantMessage> {
        self.messages().rev().find(|(found, _)| *found == id).and_then(|(_, message)| message.as_assistant())
    }

    /// Everything that waits, in its order.
    pub(super) fn queues(&self) -> Vec<Queued> {
        let queued = |item: &crate::model::InboxItem| {
            let payload = self.waiting.get(&item.entry_id)?.clone();
            Some(Queued { entry_id: item.entry_id.clone(), kind: item.kind, payload })
        };
        self.state.inbox.iter().filter_map(queued).collect()
    }

    /// The number the open or coming turn has in its operation.
    pub(super) fn turn_number(&self) -> u32 {
        self.operation.as_ref().map_or(1, |open| open.state.counters.turns.saturating_add(1))
    }
}

impl Open {
    pub(super) fn id(&self) -> &crate::model::RunId {
        &self.meta.operation_id
    }

    /// `{operation}:{turn}`.
    pub(super) fn turn_id(&self) -> String {
        format!("{}:{}", self.id(), self.state.counters.turns.saturating_add(1))
    }

    pub(super) fn cancelled(&self) -> bool {
        self.state.control.cause().is_some()
    }

    /// The state with another leaf.
    pub(super) fn at(&self, leaf: Leaf) -> OperationState {
        OperationState { leaf, ..self.state.clone() }
    }
}
