//! What a session says about its main lane when it is opened again.
//!
//! Keeps true: nothing is written; every id and register that a lane names is there, or the address of what is missing
//! is told; a session without any transaction is an empty one (SES-13).
//!
//! Must not know: what is done next.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::model::session::namespace;
use crate::model::{
    EntryBody, EntryId, ErrorKind, ErrorRecord, LaneConfig, LaneState, MAIN_LANE, Message, OperationResult, RunId,
};
use crate::port::{BranchScan, Order, Store, StoreError};

/// Where a message waits that an inbox names.
const PENDING_ENTRY: &str = "pending.entry";
/// The finer word of an error about a session that contradicts itself.
const CORRUPT_SESSION: &str = "corrupt_session";

/// Why a session can not be continued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// A register is missing, has no meaning, or names what does not exist.
    #[error("the session contradicts itself at {address}: {reason}")]
    Corrupt { address: String, reason: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RestoreError {
    fn corrupt(namespace: &str, key: &str, reason: impl Into<String>) -> Self {
        Self::Corrupt { address: format!("{namespace}/{key}"), reason: reason.into() }
    }
}

impl From<RestoreError> for ErrorRecord {
    fn from(error: RestoreError) -> Self {
        let kind = match &error {
            RestoreError::Store(error) => error.kind(),
            RestoreError::Corrupt { .. } => ErrorKind::Storage,
        };
        let mut record = Self::new(kind, error.to_string());
        if matches!(error, RestoreError::Corrupt { .. }) {
            record.code = Some(CORRUPT_SESSION.to_owned());
            record = record.with_hint("pirn sessions show still shows what is in it");
        }
        record
    }
}

/// The main lane of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MainLane {
    /// The newest entry of the conversation; none before the first.
    pub tip: Option<EntryId>,
    /// None if the lane was never used.
    pub config: Option<LaneConfig>,
    pub state: LaneState,
    /// How the last operation ended.
    pub last_result: Option<OperationResult>,
}

impl MainLane {
    /// Reads and checks it.
    ///
    /// # Errors
    /// The lane has a configuration but no state or the like, a register has no meaning, a named entry, result or
    /// waiting message does not exist, two lanes work on one operation, or the store fails.
    pub fn read(store: &dyn Store) -> Result<Self, RestoreError> {
        let tip_value = store.value(namespace::BRANCH_TIP, MAIN_LANE)?;
        let tip = tip(tip_value.as_ref())?;
        let config: Option<LaneConfig> = register(store, namespace::LANE_CONFIG, MAIN_LANE)?;
        let state: Option<LaneState> = register(store, namespace::LANE_STATE, MAIN_LANE)?;
        let part = match (&tip_value, &config, &state) {
            // A tip alone is a branch that was never used as a lane.
            (_, None, None) | (Some(_), Some(_), Some(_)) => None,
            (None, _, _) => Some((namespace::BRANCH_TIP, "it has no tip")),
            (Some(_), None, Some(_)) => Some((namespace::LANE_CONFIG, "it has a state and no configuration")),
            (Some(_), Some(_), None) => Some((namespace::LANE_STATE, "it has a configuration and no state")),
        };
        if let Some((namespace, reason)) = part {
            return Err(RestoreError::corrupt(namespace, MAIN_LANE, reason));
        }
        exists(store, &[tip.as_ref()], namespace::BRANCH_TIP, MAIN_LANE)?;
        let state = state.unwrap_or_default();
        check_inbox(store, &state)?;
        check_operations(store)?;
        let last_result = last_result(store, &state)?;
        Ok(Self { tip, config, state, last_result })
    }
}

/// The entry that the register of the tip names; null stands for none.
fn tip(value: Option<&Value>) -> Result<Option<EntryId>, RestoreError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(id)) => Ok(Some(EntryId::new(id.as_str()))),
        Some(_) => Err(RestoreError::corrupt(namespace::BRANCH_TIP, MAIN_LANE, "it is no entry id")),
    }
}

fn register<T: DeserializeOwned>(store: &dyn Store, namespace: &str, key: &str) -> Result<Option<T>, RestoreError> {
    let Some(value) = store.value(namespace, key)? else { return Ok(None) };
    let read = serde_json::from_value(value);
    read.map(Some).map_err(|error| RestoreError::corrupt(namespace, key, error.to_string()))
}

/// Refuses a register that names an entry which does not exist.
fn exists(store: &dyn Store, ids: &[Option<&EntryId>], namespace: &str, key: &str) -> Result<(), RestoreError> {
    let ids: Vec<EntryId> = ids.iter().copied().flatten().cloned().collect();
    let found = store.entries(&ids)?;
    match ids.iter().zip(&found).find(|(_, entry)| entry.is_none()) {
        Some((id, _)) => Err(RestoreError::corrupt(namespace, key, format!("there is no entry {id}"))),
        None => Ok(()),
    }
}

fn check_inbox(store: &dyn Store, state: &LaneState) -> Result<(), RestoreError> {
    for item in &state.inbox {
        let id = item.entry_id.as_str();
        if store.value(PENDING_ENTRY, id)?.is_none() {
            return Err(RestoreError::corrupt(PENDING_ENTRY, id, "a message that waits is missing"));
        }
    }
    Ok(())
}

/// No two lanes work on one operation.
fn check_operations(store: &dyn Store) -> Result<(), RestoreError> {
    let mut seen: Vec<RunId> = Vec::new();
    for (lane, value) in store.values(namespace::LANE_STATE, "")? {
        let state: LaneState = serde_json::from_value(value)
            .map_err(|error| RestoreError::corrupt(namespace::LANE_STATE, &lane, error.to_string()))?;
        let Some(operation) = state.current_operation_id else { continue };
        if seen.contains(&operation) {
            let reason = format!("another lane works on operation {operation}, too");
            return Err(RestoreError::corrupt(namespace::LANE_STATE, &lane, reason));
        }
        seen.push(operation);
    }
    Ok(())
}

fn last_result(store: &dyn Store, state: &LaneState) -> Result<Option<OperationResult>, RestoreError> {
    let Some(operation) = &state.last_operation_id else { return Ok(None) };
    let key = operation.as_str();
    let Some(result) = register::<OperationResult>(store, namespace::RESULT, key)? else {
        return Err(RestoreError::corrupt(namespace::RESULT, key, "the result of the last operation is missing"));
    };
    if result.operation_id != *operation {
        let reason = format!("it is the result of {}", result.operation_id);
        return Err(RestoreError::corrupt(namespace::RESULT, key, reason));
    }
    let named = [&result.from_tip_id, &result.tip_id, &result.final_entry_id].map(Option::as_ref);
    exists(store, &named, namespace::RESULT, key)?;
    Ok(Some(result))
}

/// The messages on the path from an entry to the root, oldest first. Entries of other types are left out.
///
/// # Errors
/// The store fails.
pub fn path_messages(store: &dyn Store, tip: Option<&EntryId>) -> Result<Vec<(EntryId, Arc<Message>)>, StoreError> {
    let scan = BranchScan { start: tip.cloned(), order: Order::OldestFirst, ..BranchScan::default() };
    let entries = store.branch(&scan)?.into_iter();
    Ok(entries
        .filter_map(|entry| match entry.body {
            EntryBody::Message { message, terminate: _ } => Some((entry.id, message)),
            EntryBody::Custom { .. } | EntryBody::Other(_) => None,
        })
        .collect())
}

#[cfg(test)]
mod tests;
