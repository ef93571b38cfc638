//! The phases of an operation: pure functions from a lane's memory to the one transaction that comes next.
//!
//! Keeps true: nothing here waits, reads a clock or makes an id of its own; every function plans one commit, and what
//! it tells is told after it.
//!
//! Must not know: stores, effects, who calls.

pub(super) mod accept;
pub(super) mod cancel;
pub(super) mod checkpoint;
pub(super) mod finish;
pub(super) mod inbox;
pub(super) mod request;
pub(super) mod settle;
pub(super) mod start;
pub(super) mod tools;

use std::collections::BTreeMap;

use super::error::Fault;
use super::options::{Limits, Projector};
use crate::model::{EntryId, Model, RetryPolicy, StoredOptions};
use crate::port::Ids;

/// What a phase may know beside the lane.
pub(super) struct Facts<'a> {
    /// Milliseconds since 1970.
    pub(super) now: u64,
    pub(super) ids: &'a dyn Ids,
    pub(super) limits: &'a Limits,
    pub(super) retry: RetryPolicy,
    pub(super) options: &'a StoredOptions,
    pub(super) projectors: &'a BTreeMap<String, Projector>,
    /// Finds the registers of the open operation beside its meta and state: their namespace and key.
    pub(super) leftovers: &'a dyn Fn() -> Result<Vec<(&'static str, String)>, Fault>,
    /// Whether a provider can be asked.
    pub(super) has_key: &'a dyn Fn(&str) -> bool,
}

impl Facts<'_> {
    pub(super) fn entry_id(&self) -> EntryId {
        EntryId::new(self.ids.next_id())
    }
}

/// USD of a usage; `None` when the model has no price.
pub(super) fn cost_of(usage: &crate::model::Usage, model: Option<&Model>) -> Option<f64> {
    model.is_some_and(|model| model.prices.is_some()).then_some(usage.cost.total)
}
