//! A session as it was left: its lanes and their open operations, checked.
//!
//! Keeps true: nothing is written and nothing starts; every id and register that a lane or an operation names is
//! there and of its kind, or the address of what is missing is told; a state that this version does not know is refused
//! as one of a newer version.
//!
//! Must not know: what is done next.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::OpenError;
use super::memory::{LaneMemory, Open, StreamState};
use crate::model::session::namespace;
use crate::model::{
    AssistantBlock, AssistantMessage, CallRecord, CallStatus, Entry, EntryBody, EntryId, Intent, LaneConfig, LaneState,
    Leaf, Message, OperationMeta, OperationResult, OperationState, PendingEntry, RunId, ToolBatch, ToolCall,
};
use crate::port::{BranchScan, Order, Store, StoreError};

/// Reads and checks every lane that has been used as one.
///
/// # Errors
/// A register or entry contradicts the others, a state is of a newer version, or the store fails.
pub(super) fn lanes(store: &dyn Store) -> Result<BTreeMap<String, LaneMemory>, OpenError> {
    let mut lanes = BTreeMap::new();
    let names: Vec<String> = [namespace::BRANCH_TIP, namespace::LANE_CONFIG, namespace::LANE_STATE]
        .into_iter()
        .map(|namespace| store.values(namespace, ""))
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .map(|(name, _)| name)
        .collect();
    for name in names {
        if lanes.contains_key(&name) {
            continue;
        }
        if let Some(lane) = lane(store, &name)? {
            lanes.insert(name, lane);
        }
    }
    Ok(lanes)
}

/// One lane; `None` for a branch that was never used as one.
fn lane(store: &dyn Store, name: &str) -> Result<Option<LaneMemory>, OpenError> {
    let tip_value = store.value(namespace::BRANCH_TIP, name)?;
    let config: Option<LaneConfig> = register(store, namespace::LANE_CONFIG, name)?;
    let state: Option<LaneState> = register(store, namespace::LANE_STATE, name)?;
    let (config, state) = match (&tip_value, config, state) {
        (Some(_), Some(config), Some(state)) => (config, state),
        (_, None, None) => return Ok(None),
        (None, _, _) => return Err(corrupt(namespace::BRANCH_TIP, name, "the lane has no tip")),
        (Some(_), None, Some(_)) => {
            return Err(corrupt(namespace::LANE_CONFIG, name, "the lane has a state and no configuration"));
        }
        (Some(_), Some(_), None) => {
            return Err(corrupt(namespace::LANE_STATE, name, "the lane has a configuration and no state"));
        }
    };
    let tip = tip(store, name)?;
    let path = path(store, tip.as_ref())?;
    let waiting = waiting(store, name, &state)?;
    let last_result = last_result(store, &state)?.map(Arc::new);
    let operation = match &state.current_operation_id {
        Some(operation) => Some(operation_of(store, name, operation, &path)?),
        None => None,
    };
    let name = Arc::from(name);
    let stream = StreamState::default();
    Ok(Some(LaneMemory { name, tip, config, state, waiting, operation, last_result, path, stream }))
}

/// The newest entry of a branch, which exists.
pub(super) fn tip(store: &dyn Store, name: &str) -> Result<Option<EntryId>, OpenError> {
    let tip = match store.value(namespace::BRANCH_TIP, name)? {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) => Some(EntryId::new(id)),
        Some(_) => return Err(corrupt(namespace::BRANCH_TIP, name, "it is no entry id")),
    };
    exist(store, &tip, namespace::BRANCH_TIP, name)?;
    Ok(tip)
}

/// The entries from the root to an entry.
pub(super) fn path(store: &dyn Store, tip: Option<&EntryId>) -> Result<Vec<Arc<Entry>>, StoreError> {
    let scan = BranchScan { start: tip.cloned(), order: Order::OldestFirst, ..BranchScan::default() };
    Ok(store.branch(&scan)?.into_iter().map(Arc::new).collect())
}

fn waiting(store: &dyn Store, lane: &str, state: &LaneState) -> Result<HashMap<EntryId, PendingEntry>, OpenError> {
    let mut waiting = HashMap::new();
    for item in &state.inbox {
        let id = item.entry_id.as_str();
        unused(store, &item.entry_id, namespace::LANE_STATE, lane)?;
        let Some(payload) = register::<PendingEntry>(store, namespace::PENDING_ENTRY, id)? else {
            return Err(corrupt(namespace::PENDING_ENTRY, id, "a message that waits is missing"));
        };
        if waiting.insert(item.entry_id.clone(), payload).is_some() {
            return Err(corrupt(namespace::LANE_STATE, lane, format!("{id} waits twice")));
        }
    }
    Ok(waiting)
}

fn last_result(store: &dyn Store, state: &LaneState) -> Result<Option<OperationResult>, OpenError> {
    let Some(operation) = &state.last_operation_id else { return Ok(None) };
    let key = operation.as_str();
    let Some(result) = register::<OperationResult>(store, namespace::RESULT, key)? else {
        return Err(corrupt(namespace::RESULT, key, "the result of the last operation is missing"));
    };
    if result.operation_id != *operation {
        return Err(corrupt(namespace::RESULT, key, format!("it is the result of {}", result.operation_id)));
    }
    let named = [&result.from_tip_id, &result.tip_id, &result.final_entry_id];
    exist(store, named.into_iter().flatten(), namespace::RESULT, key)?;
    Ok(Some(result))
}

fn operation_of(store: &dyn Store, lane: &str, id: &RunId, path: &[Arc<Entry>]) -> Result<Open, OpenError> {
    let key = id.as_str();
    let meta = meta(store, key)?;
    // It names one lane, so no two can work on one operation.
    if meta.operation_id != *id || meta.lane != lane {
        let reason = format!("it is that of operation {} of lane {:?}", meta.operation_id, meta.lane);
        return Err(corrupt(namespace::OP_META, key, reason));
    }
    let state = state(store, key)?;
    let Intent::Run { prompt_entry_ids, continuation: _ } = &meta.intent;
    exist(store, prompt_entry_ids.iter().chain(&meta.source_tip_id), namespace::OP_META, key)?;
    if let Some(latest) = &state.latest_assistant_entry_id
        && reply(path, latest).is_none()
    {
        return Err(corrupt(namespace::OP_STATE, key, format!("{latest} is no reply of its path")));
    }
    if store.value(namespace::RESULT, key)?.is_some() {
        return Err(corrupt(namespace::RESULT, key, "the operation has ended, and its lane still works on it"));
    }
    let mut staged = HashMap::new();
    match &state.leaf {
        Leaf::Starting => {}
        Leaf::Checkpoint { trigger_entry_id, .. } => exist(store, trigger_entry_id, namespace::OP_STATE, key)?,
        Leaf::AssistantReady { generation_context, .. } | Leaf::AssistantWait { generation_context, .. } => {
            exist(store, &generation_context.trigger_entry_id, namespace::OP_STATE, key)?;
        }
        Leaf::AssistantPending(pending) => {
            exist(store, &pending.generation_context.trigger_entry_id, namespace::OP_STATE, key)?;
            unused(store, &pending.response_entry_id, namespace::OP_STATE, key)?;
            unused(store, &pending.usage_id, namespace::OP_STATE, key)?;
            if pending.usage_id == pending.response_entry_id {
                return Err(corrupt(namespace::OP_STATE, key, "a reply and its usage have one id"));
            }
        }
        Leaf::Tools { batch } => staged = batch_of(store, key, batch, path)?,
    }
    let fallbacks = state.settings.fallbacks.len();
    if state.fallback_index > fallbacks {
        let reason = format!("it names fallback {} of {fallbacks}", state.fallback_index);
        return Err(corrupt(namespace::OP_STATE, key, reason));
    }
    Ok(Open { meta: Arc::new(meta), state, staged })
}

/// What an operation is for; one of a kind that is not known comes from a newer version.
fn meta(store: &dyn Store, key: &str) -> Result<OperationMeta, OpenError> {
    let Some(value) = store.value(namespace::OP_META, key)? else {
        return Err(corrupt(namespace::OP_META, key, "the lane works on an operation that is not there"));
    };
    let kind = value.pointer("/intent/kind").and_then(Value::as_str).map(str::to_owned);
    match (serde_json::from_value(value), kind) {
        (Ok(meta), _) => Ok(meta),
        (Err(_), Some(kind)) if !Intent::KINDS.contains(&kind.as_str()) => {
            Err(OpenError::NeedsNewer { what: format!("an unfinished operation is a {kind:?}") })
        }
        (Err(error), _) => Err(corrupt(namespace::OP_META, key, error.to_string())),
    }
}

/// The state of an operation; one whose word is not known comes from a newer version.
fn state(store: &dyn Store, key: &str) -> Result<OperationState, OpenError> {
    let Some(value) = store.value(namespace::OP_STATE, key)? else {
        return Err(corrupt(namespace::OP_STATE, key, "the operation has no state"));
    };
    let word = value.get("at").and_then(Value::as_str).map(str::to_owned);
    match (serde_json::from_value(value), word) {
        (Ok(state), _) => Ok(state),
        (Err(_), Some(word)) if !Leaf::WORDS.contains(&word.as_str()) => {
            Err(OpenError::NeedsNewer { what: format!("an operation stands at {word:?}") })
        }
        (Err(error), _) => Err(corrupt(namespace::OP_STATE, key, error.to_string())),
    }
}

/// Checks the calls of a batch and gives the results that wait for their place.
fn batch_of(
    store: &dyn Store,
    key: &str,
    batch: &ToolBatch,
    path: &[Arc<Entry>],
) -> Result<HashMap<EntryId, Arc<Message>>, OpenError> {
    let Some(reply) = reply(path, &batch.assistant_entry_id) else {
        let reason = format!("the calls of {} are no reply of its path", batch.assistant_entry_id);
        return Err(corrupt(namespace::OP_STATE, key, reason));
    };
    let wrong = |reason: String| Err(corrupt(namespace::OP_STATE, key, reason));
    let calls: Vec<(usize, &ToolCall)> = reply.content.iter().enumerate().filter_map(call_block).collect();
    if calls.len() != batch.calls.len() {
        return wrong(format!("its reply has {} calls, and it knows of {}", calls.len(), batch.calls.len()));
    }
    let mut staged = HashMap::new();
    let mut results = HashSet::new();
    let mut is_behind = false;
    for (call, (at, block)) in batch.calls.iter().zip(calls) {
        let result = &call.result_entry_id;
        if call.source_index != at {
            return wrong(format!("a call stands in block {at} of its reply, not in {}", call.source_index));
        }
        if !results.insert(result) {
            return wrong(format!("two calls have the result {result}"));
        }
        let is_placed = matches!(call.status, CallStatus::Completed { .. });
        if is_placed && is_behind {
            return wrong(format!("the result {result} is placed before that of an earlier call"));
        }
        is_behind |= !is_placed;
        if let Some(message) = call_of(store, key, batch, call, block, path)? {
            staged.insert(result.clone(), message);
        }
    }
    if is_behind { Ok(staged) } else { wrong("all its calls have their results".to_owned()) }
}

/// A reply on a path.
fn reply<'a>(path: &'a [Arc<Entry>], id: &EntryId) -> Option<&'a AssistantMessage> {
    message(path, id)?.as_assistant()
}

fn message<'a>(path: &'a [Arc<Entry>], id: &EntryId) -> Option<&'a Message> {
    match &path.iter().rev().find(|entry| entry.id == *id)?.body {
        EntryBody::Message { message, .. } => Some(message),
        EntryBody::Custom { .. } | EntryBody::Other(_) => None,
    }
}

fn call_block((at, block): (usize, &AssistantBlock)) -> Option<(usize, &ToolCall)> {
    match block {
        AssistantBlock::ToolCall(call) => Some((at, call)),
        _ => None,
    }
}

/// Whether a message is the result of a call.
fn answers(message: Option<&Message>, call: &ToolCall) -> bool {
    matches!(message, Some(Message::ToolResult(found)) if found.tool_call_id == call.id && found.tool_name == call.name)
}

/// Checks one call; gives its result where that waits for its place.
fn call_of(
    store: &dyn Store,
    key: &str,
    batch: &ToolBatch,
    call: &CallRecord,
    block: &ToolCall,
    path: &[Arc<Entry>],
) -> Result<Option<Arc<Message>>, OpenError> {
    let result = &call.result_entry_id;
    match call.status {
        CallStatus::Planned => unused(store, result, namespace::OP_STATE, key).map(|()| None),
        CallStatus::EffectPending { .. } => {
            unused(store, result, namespace::OP_STATE, key)?;
            let args = format!("{key}:{}:{}", batch.turn_id, call.source_index);
            match store.value(namespace::TOOL_ARGS, &args)? {
                Some(_) => Ok(None),
                None => Err(corrupt(namespace::TOOL_ARGS, &args, "the arguments of a call that was begun are missing")),
            }
        }
        CallStatus::OutcomeReady { .. } => {
            unused(store, result, namespace::OP_STATE, key)?;
            let waiting: Option<PendingEntry> = register(store, namespace::PENDING_ENTRY, result.as_str())?;
            match waiting.as_ref().and_then(PendingEntry::message) {
                Some(message) if answers(Some(message), block) => Ok(Some(Arc::clone(message))),
                _ => Err(corrupt(namespace::PENDING_ENTRY, result.as_str(), "the result of a call is missing")),
            }
        }
        CallStatus::Completed { .. } if answers(message(path, result), block) => Ok(None),
        CallStatus::Completed { .. } => {
            let reason = format!("{result} is not the result of the call {}", block.id);
            Err(corrupt(namespace::OP_STATE, key, reason))
        }
    }
}

fn register<T: DeserializeOwned>(store: &dyn Store, namespace: &str, key: &str) -> Result<Option<T>, OpenError> {
    let Some(value) = store.value(namespace, key)? else { return Ok(None) };
    serde_json::from_value(value).map(Some).map_err(|error| corrupt(namespace, key, error.to_string()))
}

/// Refuses a register that names an entry which does not exist.
fn exist<'a>(
    store: &dyn Store,
    ids: impl IntoIterator<Item = &'a EntryId>,
    namespace: &str,
    key: &str,
) -> Result<(), OpenError> {
    let ids: Vec<EntryId> = ids.into_iter().cloned().collect();
    let found = store.entries(&ids)?;
    match ids.iter().zip(&found).find(|(_, entry)| entry.is_none()) {
        Some((id, _)) => Err(corrupt(namespace, key, format!("there is no entry {id}"))),
        None => Ok(()),
    }
}

/// Refuses an id that is meant for an entry to come and has one already.
fn unused(store: &dyn Store, id: &EntryId, namespace: &str, key: &str) -> Result<(), OpenError> {
    match store.entries(std::slice::from_ref(id))?.first() {
        Some(Some(_)) => Err(corrupt(namespace, key, format!("{id} is still to come and has an entry"))),
        Some(None) | None => Ok(()),
    }
}

fn corrupt(namespace: &str, key: &str, reason: impl Into<String>) -> OpenError {
    OpenError::Corrupt { address: format!("{namespace}/{key}"), reason: reason.into() }
}
