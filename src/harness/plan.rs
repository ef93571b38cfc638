//! One transaction under construction: its writes, what they change in memory, and what is told once it is stored.
//!
//! Keeps true: every change of memory comes with the write that makes it durable; what is told about an entry or a row
//! is told after the transaction, in the order of the writes.
//!
//! Must not know: when a transaction is made, who listens.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::error::Fault;
use super::memory::{LaneMemory, Open, TurnState};
use crate::model::session::namespace;
use crate::model::{
    Entry, EntryBody, EntryId, ErrorRecord, Event, LaneConfig, LaneState, Message, OperationMeta, OperationResult,
    OperationState, PendingEntry, RunOutcome, Usage, UsageRow, Write,
};
use crate::port::Committed;

/// A transaction of one lane.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) writes: Vec<Write>,
    lane: Arc<str>,
    /// The tip as it will be.
    tip: Option<EntryId>,
    changes: Vec<Change>,
    told: Vec<(bool, Tell)>,
    /// Whether what is told next is about a dead process's work.
    recovery: bool,
}

/// A change of memory.
#[derive(Debug)]
enum Change {
    Entry { write: usize, id: EntryId, parent_id: Option<EntryId>, body: EntryBody },
    Tip(Option<EntryId>),
    Opened(Arc<OperationMeta>, Box<OperationState>),
    State(Box<OperationState>),
    Lane(LaneState),
    Config(LaneConfig),
    Waiting(EntryId, PendingEntry),
    NotWaiting(EntryId),
    Staged(EntryId, Arc<Message>),
    NotStaged(EntryId),
    Ended(Arc<OperationResult>),
}

/// What is told when the transaction is stored.
#[derive(Debug)]
enum Tell {
    Event(Box<Event>),
    /// Opens a turn, unless one is open.
    TurnStart,
    /// Ends the open turn, if one is.
    TurnEnd,
    /// The entry of this write, with the start of its message or without.
    Entry {
        write: usize,
        start: bool,
    },
    Usage {
        write: usize,
    },
    Queues,
    RunEnd {
        outcome: Box<RunOutcome>,
        result: Arc<OperationResult>,
    },
}

impl Plan {
    pub(super) fn new(lane: &LaneMemory) -> Self {
        Self {
            writes: Vec::new(),
            lane: Arc::clone(&lane.name),
            tip: lane.tip.clone(),
            changes: Vec::new(),
            told: Vec::new(),
            recovery: false,
        }
    }

    /// What is told from here on is about the work of a dead process, or not.
    pub(super) fn recovery(&mut self, recovery: bool) {
        self.recovery = recovery;
    }

    /// The tip as it will be.
    pub(super) fn tip(&self) -> Option<&EntryId> {
        self.tip.as_ref()
    }

    /// Adds an entry behind the newest one. [`Plan::move_tip`] makes it the tip.
    pub(super) fn entry(&mut self, id: EntryId, body: EntryBody) {
        let parent_id = self.tip.replace(id.clone());
        let write = self.writes.len();
        self.writes.push(Write::Entry { id: id.clone(), parent_id: parent_id.clone(), body: body.clone() });
        self.changes.push(Change::Entry { write, id, parent_id, body });
    }

    /// Adds an entry and tells it: a message with its start and end, then the entry.
    pub(super) fn entry_told(&mut self, id: EntryId, body: EntryBody) {
        let write = self.writes.len();
        self.entry(id, body);
        self.tell(Tell::Entry { write, start: true });
    }

    /// Adds the reply whose start was told already, and tells its end.
    pub(super) fn reply_told(&mut self, id: EntryId, message: Arc<Message>) {
        let write = self.writes.len();
        self.entry(id, EntryBody::Message { message, terminate: false });
        self.tell(Tell::Entry { write, start: false });
    }

    /// Makes the newest entry the tip.
    pub(super) fn move_tip(&mut self) -> Result<(), Fault> {
        self.tip_to(self.tip.clone())
    }

    /// Makes any entry the tip.
    pub(super) fn tip_to(&mut self, tip: Option<EntryId>) -> Result<(), Fault> {
        self.tip.clone_from(&tip);
        let lane = Arc::clone(&self.lane);
        self.set(namespace::BRANCH_TIP, &lane, &tip)?;
        self.changes.push(Change::Tip(tip));
        Ok(())
    }

    pub(super) fn usage(&mut self, row: UsageRow) {
        let write = self.writes.len();
        self.writes.push(Write::Usage(row));
        self.tell(Tell::Usage { write });
    }

    /// Opens an operation.
    pub(super) fn open(&mut self, meta: OperationMeta, state: OperationState) -> Result<(), Fault> {
        let key = meta.operation_id.as_str().to_owned();
        self.set(namespace::OP_META, &key, &meta)?;
        self.set(namespace::OP_STATE, &key, &state)?;
        self.changes.push(Change::Opened(Arc::new(meta), Box::new(state)));
        Ok(())
    }

    pub(super) fn state(&mut self, open: &Open, state: OperationState) -> Result<(), Fault> {
        self.set(namespace::OP_STATE, open.id().as_str(), &state)?;
        self.changes.push(Change::State(Box::new(state)));
        Ok(())
    }

    pub(super) fn lane_state(&mut self, state: LaneState) -> Result<(), Fault> {
        let lane = Arc::clone(&self.lane);
        self.set(namespace::LANE_STATE, &lane, &state)?;
        self.changes.push(Change::Lane(state));
        Ok(())
    }

    pub(super) fn config(&mut self, config: LaneConfig) -> Result<(), Fault> {
        let lane = Arc::clone(&self.lane);
        self.set(namespace::LANE_CONFIG, &lane, &config)?;
        self.changes.push(Change::Config(config));
        Ok(())
    }

    /// Keeps something until its place comes.
    pub(super) fn wait(&mut self, id: &EntryId, payload: PendingEntry) -> Result<(), Fault> {
        self.set(namespace::PENDING_ENTRY, id.as_str(), &payload)?;
        self.changes.push(Change::Waiting(id.clone(), payload));
        Ok(())
    }

    /// What waited has its place, or is dropped.
    pub(super) fn wait_over(&mut self, id: &EntryId) {
        self.delete(namespace::PENDING_ENTRY, id.as_str());
        self.changes.push(Change::NotWaiting(id.clone()));
    }

    /// Keeps a result until its place comes.
    pub(super) fn stage(&mut self, id: &EntryId, message: Arc<Message>) -> Result<(), Fault> {
        let payload = PendingEntry::Message { payload: Arc::clone(&message) };
        self.set(namespace::PENDING_ENTRY, id.as_str(), &payload)?;
        self.changes.push(Change::Staged(id.clone(), message));
        Ok(())
    }

    pub(super) fn staged_over(&mut self, id: &EntryId) {
        self.delete(namespace::PENDING_ENTRY, id.as_str());
        self.changes.push(Change::NotStaged(id.clone()));
    }

    pub(super) fn ended(&mut self, result: OperationResult) -> Result<Arc<OperationResult>, Fault> {
        self.set(namespace::RESULT, result.operation_id.as_str(), &result)?;
        let result = Arc::new(result);
        self.changes.push(Change::Ended(Arc::clone(&result)));
        Ok(result)
    }

    pub(super) fn set(&mut self, namespace: &str, key: &str, value: &impl Serialize) -> Result<(), Fault> {
        let write = Write::set(namespace, key, value)
            .map_err(|error| Fault::broken(format!("{namespace}/{key} can not be written: {error}")))?;
        self.writes.push(write);
        Ok(())
    }

    /// Deletes a register; once is enough.
    pub(super) fn delete(&mut self, namespace: &str, key: &str) {
        self.write_once(Write::delete(namespace, key));
    }

    /// Deletes a list; once is enough.
    pub(super) fn delete_list(&mut self, namespace: &str, key: &str) {
        self.write_once(Write::DeleteList { namespace: namespace.to_owned(), key: key.to_owned() });
    }

    fn write_once(&mut self, write: Write) {
        if !self.writes.contains(&write) {
            self.writes.push(write);
        }
    }

    /// The error of the newest reply that it stores.
    pub(super) fn stored_error(&self) -> Option<ErrorRecord> {
        self.changes.iter().rev().find_map(|change| match change {
            Change::Entry { body: EntryBody::Message { message, .. }, .. } => message.as_assistant()?.error.clone(),
            _ => None,
        })
    }

    /// The newest reply that it stores.
    pub(super) fn latest_reply(&self) -> Option<EntryId> {
        self.changes.iter().rev().find_map(|change| match change {
            Change::Entry { id, body: EntryBody::Message { message, .. }, .. } => {
                message.as_assistant().map(|_| id.clone())
            }
            _ => None,
        })
    }

    pub(super) fn append(&mut self, namespace: &str, key: &str, value: Value) {
        self.writes.push(Write::Append { namespace: namespace.to_owned(), key: key.to_owned(), value });
    }

    pub(super) fn event(&mut self, event: Event) {
        self.tell(Tell::Event(Box::new(event)));
    }

    pub(super) fn turn_start(&mut self) {
        self.tell(Tell::TurnStart);
    }

    /// It ends here and now, whoever began it.
    pub(super) fn turn_end(&mut self) {
        self.told.push((false, Tell::TurnEnd));
    }

    pub(super) fn queues(&mut self) {
        self.tell(Tell::Queues);
    }

    /// Tells the end of the run, with every message it has stored. It ends here and now, whoever began it.
    pub(super) fn run_end(&mut self, lane: &LaneMemory, outcome: RunOutcome, result: Arc<OperationResult>) {
        let mut messages = lane.messages_since(result.from_tip_id.as_ref());
        messages.extend(self.changes.iter().filter_map(|change| match change {
            Change::Entry { body: EntryBody::Message { message, .. }, .. } => Some(Arc::clone(message)),
            _ => None,
        }));
        self.told.push((false, Tell::RunEnd { outcome: Box::new(RunOutcome { messages, ..outcome }), result }));
    }

    fn tell(&mut self, tell: Tell) {
        self.told.push((self.recovery, tell));
    }

    /// The rows of the ledger among writes, with their places.
    pub(super) fn rows(writes: &[Write]) -> Vec<(usize, UsageRow)> {
        let row = |(at, write): (usize, &Write)| match write {
            Write::Usage(row) => Some((at, row.clone())),
            _ => None,
        };
        writes.iter().enumerate().filter_map(row).collect()
    }

    /// Changes memory as the stored writes say, and makes what is told of it.
    pub(super) fn apply(
        self,
        lane: &mut LaneMemory,
        rows: Vec<(usize, UsageRow)>,
        committed: Option<&Committed>,
    ) -> Vec<(bool, Event)> {
        let seq = |write: usize| committed.and_then(|done| done.seqs.get(write)).copied().unwrap_or_default();
        let timestamp = committed.map(|done| done.timestamp).unwrap_or_default();
        let totals = committed.map(|done| done.stats.usage.clone()).unwrap_or_default();
        let mut entries: Vec<(usize, Arc<Entry>)> = Vec::new();
        for change in self.changes {
            match change {
                Change::Entry { write, id, parent_id, body } => {
                    let entry = Arc::new(Entry { id, parent_id, seq: seq(write), timestamp, body });
                    lane.path.push(Arc::clone(&entry));
                    entries.push((write, entry));
                }
                change => change.apply(lane),
            }
        }
        let mut telling = Telling { lane, entries, rows, totals, out: Vec::new() };
        for (recovery, tell) in self.told {
            telling.tell(recovery, tell);
        }
        telling.out
    }
}

impl Change {
    fn apply(self, lane: &mut LaneMemory) {
        match self {
            Self::Entry { .. } => {}
            Self::Tip(tip) => {
                match &tip {
                    Some(id) => {
                        if let Some(at) = lane.path.iter().rposition(|entry| entry.id == *id) {
                            lane.path.truncate(at + 1);
                        }
                    }
                    None => lane.path.clear(),
                }
                lane.tip = tip;
            }
            Self::Opened(meta, state) => {
                lane.operation = Some(Open { meta, state: *state, staged: HashMap::new() });
            }
            Self::State(state) => {
                if let Some(open) = &mut lane.operation {
                    open.state = *state;
                }
            }
            Self::Lane(state) => lane.state = state,
            Self::Config(config) => lane.config = config,
            Self::Waiting(id, payload) => {
                lane.waiting.insert(id, payload);
            }
            Self::NotWaiting(id) => {
                lane.waiting.remove(&id);
            }
            Self::Staged(id, message) => {
                if let Some(open) = &mut lane.operation {
                    open.staged.insert(id, message);
                }
            }
            Self::NotStaged(id) => {
                if let Some(open) = &mut lane.operation {
                    open.staged.remove(&id);
                }
            }
            Self::Ended(result) => {
                lane.operation = None;
                lane.last_result = Some(result);
            }
        }
    }
}

/// Turns what a plan wants told into events.
struct Telling<'a> {
    lane: &'a mut LaneMemory,
    entries: Vec<(usize, Arc<Entry>)>,
    rows: Vec<(usize, UsageRow)>,
    totals: Usage,
    out: Vec<(bool, Event)>,
}

impl Telling<'_> {
    fn tell(&mut self, recovery: bool, tell: Tell) {
        match tell {
            Tell::Event(event) => self.push(recovery, *event),
            Tell::TurnStart => {
                if self.lane.stream.turn.is_none() {
                    let number = self.lane.turn_number();
                    self.lane.stream.turn = Some(TurnState { number, ..TurnState::default() });
                    self.push(recovery, Event::TurnStart { turn: number });
                }
            }
            Tell::TurnEnd => {
                if let Some(TurnState { number, reply, results }) = self.lane.stream.turn.take() {
                    self.push(recovery, Event::TurnEnd { turn: number, message: reply, tool_results: results });
                }
            }
            Tell::Entry { write, start } => self.entry(recovery, write, start),
            Tell::Usage { write } => {
                if let Some((_, row)) = self.rows.iter().find(|(at, _)| *at == write) {
                    let event = Event::Usage { row: Arc::new(row.clone()), totals: self.totals.clone() };
                    self.push(recovery, event);
                }
            }
            Tell::Queues => {
                let queues = self.lane.queues();
                self.push(recovery, Event::QueueUpdate { queues });
            }
            Tell::RunEnd { outcome, result } => {
                let messages = outcome.messages.clone();
                self.push(recovery, Event::RunEnd { messages, outcome: Arc::from(outcome), result: Some(result) });
            }
        }
    }

    fn entry(&mut self, recovery: bool, write: usize, start: bool) {
        let Some((_, entry)) = self.entries.iter().find(|(at, _)| *at == write) else { return };
        let entry = Arc::clone(entry);
        if let EntryBody::Message { message, terminate: _ } = &entry.body {
            if let Some(turn) = &mut self.lane.stream.turn {
                match &**message {
                    Message::Assistant(_) => turn.reply = Some(Arc::clone(message)),
                    Message::ToolResult(_) => turn.results.push(Arc::clone(message)),
                    Message::User(_) | Message::Custom(_) => {}
                }
            }
            if start {
                self.push(recovery, Event::MessageStart { message: Arc::clone(message) });
            }
            let entry_id = Some(entry.id.clone());
            self.push(recovery, Event::MessageEnd { message: Arc::clone(message), entry_id });
        }
        self.push(recovery, Event::EntryAdded { entry });
    }

    fn push(&mut self, recovery: bool, event: Event) {
        self.out.push((recovery, event));
    }
}
