//! What is learned about servers while the process lives.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::Model;
use crate::port::LlmRequest;
use crate::provider::wire::openai_chat::encode::{RefusedImages, Repair, Repairs};

/// Models and addresses remembered; a run uses a handful.
const TARGETS_MAX: usize = 256;

/// A model at an address: what one model refuses, another one behind the same gateway may take.
type Target = (String, String);

#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Facts>);

#[derive(Debug, Default)]
struct Facts {
    repairs: HashMap<Target, Repairs>,
    refused_images: HashMap<Target, RefusedImages>,
    /// Base URLs whose users were warned that a key crosses the network in clear.
    warned: HashSet<String>,
}

impl Memory {
    /// The repairs earlier requests to this model needed (OC-18).
    pub(super) fn repairs(&self, model: &Model) -> Repairs {
        let facts = self.facts();
        let target = target(model);
        let refused = facts.refused_images.get(&target).cloned().unwrap_or_default();
        facts.repairs.get(&target).cloned().unwrap_or_default().refusing(refused)
    }

    /// A request was taken only without its images: they are left out from now on, so that the next one does not pay
    /// for them again (MSG-07).
    pub(super) fn refuse_images(&self, request: &LlmRequest) {
        let mut facts = self.facts();
        let target = target(&request.model);
        if facts.refused_images.len() < TARGETS_MAX || facts.refused_images.contains_key(&target) {
            facts.refused_images.entry(target).or_default().add(request);
        }
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
