//! What tools keep of a call, in the session, until its outcome.
//!
//! Keeps true: a memo is durable, as far as the setting asks, when it was set; a call that is over keeps nothing more.
//!
//! Must not know: what memos say.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::super::core::{Core, Halt};
use super::super::error::Fault;
use super::super::phase::tools;
use super::super::plan::Plan;
use super::open as open_of;
use crate::model::session::namespace;
use crate::model::{CallStatus, EntryId, RunId};
use crate::port::Memos;

/// Memos of a call, kept in the session until its outcome.
struct StoredMemos {
    core: Arc<Core>,
    lane: String,
    operation: RunId,
    result: EntryId,
}

#[async_trait]
impl Memos for StoredMemos {
    async fn get(&self, name: &str) -> Option<Value> {
        let key = format!("{}:{}:{name}", self.operation, self.result);
        self.core.options.store.value(namespace::TOOL_MEMO, &key).ok().flatten()
    }

    async fn set(&self, name: &str, value: Value) -> Result<(), String> {
        let key = format!("{}:{}:{name}", self.operation, self.result);
        let result = self.result.clone();
        let set = self.core.job(&self.lane, |lane, _| {
            let open = open_of(lane)?;
            let runs = tools::batch(open)?
                .calls
                .iter()
                .any(|call| call.result_entry_id == result && matches!(call.status, CallStatus::EffectPending { .. }));
            if !runs {
                return Ok((None, false));
            }
            let mut plan = Plan::new(lane);
            plan.set(namespace::TOOL_MEMO, &key, &value)?;
            Ok::<_, Halt>((Some(plan), true))
        });
        match set.await {
            Ok(true) => Ok(()),
            Ok(false) => Err("the call is over".to_owned()),
            Err(Halt::Fault(fault)) => Err(fault.message),
            Err(Halt::Closed) => Err("the session is closed".to_owned()),
        }
    }
}

impl Core {
    /// The memos of a call.
    pub(super) fn memos(self: &Arc<Self>, lane: &str, operation: &RunId, result: &EntryId) -> Arc<dyn Memos> {
        Arc::new(StoredMemos {
            core: Arc::clone(self),
            lane: lane.to_owned(),
            operation: operation.clone(),
            result: result.clone(),
        })
    }

    /// What a call has kept: names and values.
    pub(super) fn memos_of(&self, operation: &RunId, result: &EntryId) -> Result<Vec<(String, Value)>, Halt> {
        let prefix = format!("{operation}:{result}:");
        let found =
            self.options.store.values(namespace::TOOL_MEMO, &prefix).map_err(|error| Fault::of_store(&error))?;
        let name = |key: String| key.get(prefix.len()..).unwrap_or_default().to_owned();
        Ok(found.into_iter().map(|(key, value)| (name(key), value)).collect())
    }
}
