//! Keeps a run in its session: one transaction per message with its usage row, then the result of the run.
//!
//! Keeps true: a message is stored before anyone is told that it is complete, and what was told is synced as far as the
//! durability setting asks; a tool that may not run twice starts after everything before it is synced; after a failure
//! nothing more is stored, and the failure is known.
//!
//! Must not know: how a store keeps things, how events look outside.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::model::session::namespace;
use crate::model::{
    AssistantMessage, EntryBody, EntryId, ErrorKind, ErrorRecord, Event, LaneState, MAIN_LANE, Message, OperationError,
    OperationResult, Reason, RunId, RunOutcome, Status, StopReason, UsageKind, UsageRow, Write,
};
use crate::port::{Clock, Ids, MemoKeeper, Memos, Store, StoreError};

/// The memo under which a tool that starts a process keeps what identifies it.
pub(super) const PROCESS_MEMO: &str = "proc";

/// Writes the events of runs to a session.
pub(super) struct Recorder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    /// Tools that may not run twice.
    never: BTreeSet<String>,
    /// Models without prices have rows without a cost.
    priced: bool,
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    tip: Option<EntryId>,
    run: Option<OpenRun>,
    last_reply: Option<EntryId>,
    failure: Option<StoreError>,
}

#[derive(Clone, Debug)]
struct OpenRun {
    id: RunId,
    from_tip: Option<EntryId>,
    started_at: u64,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

impl Recorder {
    /// A recorder that goes on from the tip of lane `main`.
    pub(super) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        tip: Option<EntryId>,
        never: BTreeSet<String>,
        priced: bool,
    ) -> Self {
        Self { store, clock, ids, never, priced, state: Mutex::new(State { tip, ..State::default() }) }
    }

    /// The newest entry.
    pub(super) fn tip(&self) -> Option<EntryId> {
        self.lock().tip.clone()
    }

    /// Why nothing more is stored.
    pub(super) fn failure(&self) -> Option<StoreError> {
        self.lock().failure.clone()
    }

    /// Stores what an event claims, before it is told; fills in the id of the entry.
    ///
    /// # Errors
    /// The store failed; the event must not be told.
    pub(super) async fn record(&self, event: &mut Event) -> Result<(), StoreError> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        let stored = self.try_record(event).await;
        if let Err(error) = &stored {
            self.lock().failure = Some(error.clone());
        }
        stored
    }

    async fn try_record(&self, event: &mut Event) -> Result<(), StoreError> {
        match event {
            Event::RunStart { run_id, started_at } => {
                let mut state = self.lock();
                let from_tip = state.tip.clone();
                state.run = Some(OpenRun { id: run_id.clone(), from_tip, started_at: *started_at });
                state.last_reply = None;
                Ok(())
            }
            Event::MessageEnd { message, entry_id } => {
                *entry_id = self.keep_message(message, entry_id.take()).await?;
                // A claim is synced before it is told.
                self.store.sync().await
            }
            // An effect that may not be repeated starts after what led to it is safe.
            Event::ToolStart { tool_name, .. } if self.never.contains(tool_name) => self.store.sync().await,
            Event::ToolEnd { .. } | Event::TurnEnd { .. } => self.store.sync().await,
            Event::RunEnd { outcome, .. } => {
                self.keep_result(outcome).await?;
                self.store.sync().await
            }
            Event::TurnStart { .. }
            | Event::MessageStart { .. }
            | Event::MessageUpdate { .. }
            | Event::ToolStart { .. }
            | Event::ToolUpdate { .. }
            | Event::RunResume { .. }
            | Event::RecoveryStep { .. }
            | Event::OperationAbort { .. }
            | Event::RetryScheduled { .. }
            | Event::RetryStart { .. }
            | Event::RetryEnd { .. }
            | Event::ModelFallback { .. }
            | Event::EntryAdded { .. }
            | Event::Usage { .. }
            | Event::ConfigUpdate { .. }
            | Event::ValueUpdate { .. }
            | Event::LaneCreated { .. }
            | Event::HandlerError { .. }
            | Event::QueueUpdate { .. }
            | Event::Warning { .. }
            | Event::Fault { .. } => Ok(()),
        }
    }

    /// Stores a message at the tip; `None` for what only closes a cancelled run.
    async fn keep_message(
        &self,
        message: &Arc<Message>,
        reserved: Option<EntryId>,
    ) -> Result<Option<EntryId>, StoreError> {
        if message.as_assistant().is_some_and(only_closes) {
            return Ok(None);
        }
        let (parent_id, run) = {
            let state = self.lock();
            (state.tip.clone(), state.run.as_ref().map(|run| run.id.clone()))
        };
        let was_reserved = reserved.is_some();
        let id = reserved.unwrap_or_else(|| EntryId::new(self.ids.next_id()));
        let body = EntryBody::Message { message: Arc::clone(message), terminate: false };
        let mut writes =
            vec![Write::Entry { id: id.clone(), parent_id, body }, set(namespace::BRANCH_TIP, MAIN_LANE, &id)?];
        writes.extend(self.usage_of(message, &id, run.as_ref()).map(Write::Usage));
        if was_reserved && let Some(run) = &run {
            // The result has come, so what the call kept for a replay is done with.
            let memos = self.store.values(namespace::TOOL_MEMO, &memo_prefix(run, &id))?;
            writes.extend(memos.iter().map(|(key, _)| Write::delete(namespace::TOOL_MEMO, key)));
        }
        self.store.commit(writes).await?;
        let mut state = self.lock();
        state.tip = Some(id.clone());
        if message.as_assistant().is_some() {
            state.last_reply = Some(id.clone());
        }
        Ok(Some(id))
    }

    fn usage_of(&self, message: &Message, entry: &EntryId, run: Option<&RunId>) -> Option<UsageRow> {
        let row = |kind, usage: &crate::model::Usage, provider: Option<&str>, model: Option<&str>| UsageRow {
            id: EntryId::new(self.ids.next_id()),
            operation_id: run.cloned(),
            lane: Some(MAIN_LANE.to_owned()),
            kind,
            provider: provider.map(str::to_owned),
            model_id: model.map(str::to_owned),
            usage: usage.clone(),
            cost: self.priced.then_some(usage.cost.total),
            entry_id: Some(entry.clone()),
            details: None,
            extra: Map::new(),
        };
        match message {
            Message::Assistant(reply) => {
                Some(row(UsageKind::Request, &reply.usage, Some(&reply.provider), Some(&reply.model)))
            }
            Message::ToolResult(result) => result.usage.as_ref().map(|usage| row(UsageKind::Tool, usage, None, None)),
            Message::User(_) | Message::Custom(_) => None,
        }
    }

    /// Stores how the run ended, and that the lane is free.
    async fn keep_result(&self, outcome: &RunOutcome) -> Result<(), StoreError> {
        let (run, tip, last_reply) = {
            let mut state = self.lock();
            (state.run.take(), state.tip.clone(), state.last_reply.clone())
        };
        let Some(run) = run else { return Ok(()) };
        let result = result_of(&run, outcome, tip, last_reply, self.clock.now_ms());
        let lane =
            LaneState { current_operation_id: None, last_operation_id: Some(run.id.clone()), ..LaneState::default() };
        let writes =
            vec![set(namespace::RESULT, run.id.as_str(), &result)?, set(namespace::LANE_STATE, MAIN_LANE, &lane)?];
        self.store.commit(writes).await.map(drop)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reply nobody was asked for: it tells readers of the stream that the run was cancelled, and says nothing.
fn only_closes(reply: &AssistantMessage) -> bool {
    reply.stop_reason == StopReason::Aborted && reply.content.is_empty() && reply.duration_ms.is_none()
}

fn result_of(
    run: &OpenRun,
    outcome: &RunOutcome,
    tip: Option<EntryId>,
    last_reply: Option<EntryId>,
    now_ms: u64,
) -> OperationResult {
    let status = status_of(outcome.reason);
    let completion = (status == Status::Completed)
        .then(|| if outcome.reason == Reason::ToolTerminated { "tools" } else { "assistant" }.to_owned());
    let error = outcome.error.as_ref().filter(|_| status == Status::Failed);
    let final_entry_id = last_reply.filter(|_| completion.as_deref() != Some("tools"));
    OperationResult {
        operation_id: run.id.clone(),
        kind: "run".to_owned(),
        status,
        reason: outcome.reason,
        stop_reason: if status == Status::Aborted { Some(StopReason::Aborted) } else { outcome.stop_reason },
        error_kind: (status == Status::Failed).then(|| error.map_or(ErrorKind::Internal, |error| error.kind)),
        error: (status == Status::Failed).then(|| OperationError {
            code: "assistant_error".to_owned(),
            message: error.map(|error| error.message.clone()).unwrap_or_default(),
            details: None,
        }),
        cause: outcome.cause.filter(|_| status == Status::Aborted),
        from_tip_id: run.from_tip.clone(),
        tip_id: tip,
        started_at: run.started_at,
        ended_at: now_ms,
        completion,
        final_entry_id,
        extra: Map::new(),
    }
}

/// The status a verdict belongs to. Exhaustive, so that a new reason is decided here.
fn status_of(reason: Reason) -> Status {
    match reason {
        Reason::Completed | Reason::ToolTerminated | Reason::Length => Status::Completed,
        Reason::MaxTurns | Reason::MaxCost | Reason::MaxRepeats | Reason::Blocked | Reason::Schema => Status::Stopped,
        Reason::Interrupted | Reason::Timeout | Reason::Pipe => Status::Aborted,
        Reason::Error
        | Reason::Refused
        | Reason::Unavailable
        | Reason::Auth
        | Reason::Usage
        | Reason::Suspended
        | Reason::Internal => Status::Failed,
    }
}

/// A write of a register whose value always is JSON.
pub(super) fn set(namespace: &str, key: &str, value: &impl serde::Serialize) -> Result<Write, StoreError> {
    Write::set(namespace, key, value).map_err(|error| StoreError::Invalid(error.to_string()))
}

/// What a failed store makes of a run.
pub(super) fn storage_error(error: &StoreError) -> ErrorRecord {
    let record = ErrorRecord::new(error.kind(), error.to_string());
    let StoreError::Busy { pid, .. } = error else { return record };
    let whom = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
    record.with_hint(format!("wait for {whom}, or start another session with -s NAME"))
}

fn memo_prefix(run: &RunId, invocation: &EntryId) -> String {
    format!("{run}:{invocation}:")
}

/// Memos of calls, kept in the session.
pub(super) struct StoredMemos(pub(super) Arc<dyn Store>);

impl MemoKeeper for StoredMemos {
    fn of_call(&self, run: &RunId, invocation: &EntryId) -> Arc<dyn Memos> {
        Arc::new(CallMemos { store: Arc::clone(&self.0), prefix: memo_prefix(run, invocation) })
    }
}

struct CallMemos {
    store: Arc<dyn Store>,
    prefix: String,
}

#[async_trait]
impl Memos for CallMemos {
    async fn get(&self, name: &str) -> Option<Value> {
        self.store.value(namespace::TOOL_MEMO, &format!("{}{name}", self.prefix)).ok().flatten()
    }

    async fn set(&self, name: &str, value: Value) -> Result<(), String> {
        let write =
            Write::Set { namespace: namespace::TOOL_MEMO.to_owned(), key: format!("{}{name}", self.prefix), value };
        self.store.commit(vec![write]).await.map(drop).map_err(|error| error.to_string())
    }
}
