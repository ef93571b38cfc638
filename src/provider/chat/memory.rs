//! What is learned about servers while the process lives.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::Model;
use crate::provider::wire::openai_chat::encode::{Repair, Repairs};

/// Models and addresses remembered; a run uses a handful.
const TARGETS_MAX: usize = 256;

/// A model at an address: what one model refuses, another one behind the same gateway may take.
type Target = (String, String);

#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Facts>);

#[derive(Debug, Default)]
struct Facts {
    repairs: HashMap<Target, Repairs>,
    /// Base URLs whose users were warned that a key crosses the network in clear.
    warned: HashSet<String>,
}

impl Memory {
    /// The repairs earlier requests to this model needed (OC-18).
    pub(super) fn repairs(&self, model: &Model) -> Repairs {
        self.facts().repairs.get(&target(model)).cloned().unwrap_or_default()
    }

    pub(super) fn add(&self, model: &Model, repair: Repair) {
        let mut facts = self.facts();
        let target = target(model);
        if facts.repairs.len() < TARGETS_MAX || facts.repairs.contains_key(&target) {
            facts.repairs.entry(target).or_default().add(repair);
        }
    }

    /// Whether this is the first time to warn about an address.
    pub(super) fn first_warning(&self, base_url: &str) -> bool {
        let mut facts = self.facts();
        facts.warned.len() < TARGETS_MAX && facts.warned.insert(base_url.to_owned())
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn target(model: &Model) -> Target {
    (model.base_url.clone(), model.id.clone())
}
