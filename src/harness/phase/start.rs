//! From `starting` to the first checkpoint (S2), or back to where the lane was (S3).
//!
//! Keeps true: what a hook adds is stored with the step it leads to; a refused prompt stays in the tree, where no
//! request will find it.
//!
//! Must not know: hooks.

use std::sync::Arc;

use super::super::error::Fault;
use super::super::memory::{LaneMemory, Open};
use super::super::plan::Plan;
use super::Facts;
use super::finish::{self, Ending, Publication, Tip};
use crate::model::{Continuation, EntryBody, Leaf, Message, Reason, Status};

/// The prompt is accepted; `injected` stands behind it.
pub(in super::super) fn begin(
    lane: &LaneMemory,
    open: &Open,
    injected: Vec<Message>,
    facts: &Facts<'_>,
) -> Result<Plan, Fault> {
    let mut plan = Plan::new(lane);
    if !injected.is_empty() {
        plan.turn_start();
    }
    let added = !injected.is_empty();
    for message in injected {
        plan.entry_told(facts.entry_id(), EntryBody::Message { message: Arc::new(message), terminate: false });
    }
    if added {
        plan.move_tip()?;
    }
    let continuation = Continuation::NeedAssistant { overflow_recovery_used: false };
    let trigger_entry_id = plan.tip().cloned();
    plan.state(open, open.at(Leaf::Checkpoint { continuation, trigger_entry_id }))?;
    Ok(plan)
}

/// The prompt was refused.
pub(in super::super) fn refuse(lane: &LaneMemory, open: &Open, facts: &Facts<'_>) -> Result<Plan, Fault> {
    let ending = Ending::new(Status::Stopped, Reason::Blocked, None);
    let publication = Publication { tip: Tip::Back(open.meta.source_tip_id.clone()), lane: None };
    finish::end(Plan::new(lane), lane, open, ending, publication, facts)
}
