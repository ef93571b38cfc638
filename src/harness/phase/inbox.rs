//! What waits: who is taken at a boundary, and what it makes of the next step.
//!
//! Keeps true: items are placed in the order in which they came; steering goes before follow-ups; an open run never
//! takes what waits for the next one.
//!
//! Must not know: when a boundary is reached.

use std::sync::Arc;

use super::super::error::Fault;
use super::super::memory::LaneMemory;
use super::super::plan::Plan;
use super::Facts;
use crate::model::{
    Continuation, EntryId, InboxItem, InboxKind, LaneState, Message, PendingEntry, QueueMode, RunSettings,
};

/// Items that are placed now.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in super::super) struct Selection {
    /// In the order of the inbox.
    pub(in super::super) items: Vec<InboxItem>,
    /// At least one stands in the context of a request.
    pub(in super::super) projects: bool,
}

/// Selects what a new run takes: everything but what the queue modes leave, and what follows behind it; no follow-up
/// where the run `owes` an answer already.
pub(in super::super) fn at_acceptance(
    lane: &LaneMemory,
    settings: &RunSettings,
    owes: bool,
    facts: &Facts<'_>,
) -> Selection {
    let steer = limit(settings.steering_mode);
    let follow_up = if owes { 0 } else { limit(settings.follow_up_mode) };
    select(lane, facts, |kind| match kind {
        InboxKind::Write | InboxKind::NextRun => usize::MAX,
        InboxKind::Steer => steer,
        InboxKind::FollowUp => follow_up,
        InboxKind::NextFollowUp => 0,
    })
}

/// What was to follow behind the next run follows behind this one, which begins. Whether there was any.
pub(in super::super) fn begin(state: &mut LaneState) -> bool {
    let mut any = false;
    for item in &mut state.inbox {
        if item.kind == InboxKind::NextFollowUp {
            item.kind = InboxKind::FollowUp;
            any = true;
        }
    }
    any
}

/// Selects what a boundary within a run takes.
pub(in super::super) fn at_boundary(
    lane: &LaneMemory,
    settings: &RunSettings,
    continuation: Continuation,
    facts: &Facts<'_>,
) -> Selection {
    let steer = limit(settings.steering_mode);
    let steering = |kind: InboxKind| match kind {
        InboxKind::Write => usize::MAX,
        InboxKind::Steer => steer,
        InboxKind::FollowUp | InboxKind::NextRun | InboxKind::NextFollowUp => 0,
    };
    let selected = select(lane, facts, steering);
    if selected.projects || matches!(continuation, Continuation::NeedAssistant { .. }) {
        return selected;
    }
    let follow_up = limit(settings.follow_up_mode);
    select(lane, facts, |kind| if kind == InboxKind::FollowUp { follow_up } else { steering(kind) })
}

fn limit(mode: QueueMode) -> usize {
    match mode {
        QueueMode::OneAtATime => 1,
        QueueMode::All => usize::MAX,
    }
}

fn select(lane: &LaneMemory, facts: &Facts<'_>, most: impl Fn(InboxKind) -> usize) -> Selection {
    let mut selection = Selection::default();
    for item in &lane.state.inbox {
        let taken = selection.items.iter().filter(|taken| taken.kind == item.kind).count();
        if taken < most(item.kind) {
            selection.projects |= lane.waiting.get(&item.entry_id).is_some_and(|payload| projects(payload, facts));
            selection.items.push(item.clone());
        }
    }
    selection
}

impl Selection {
    /// What it adds to the context of a request.
    pub(in super::super) fn messages(&self, lane: &LaneMemory, facts: &Facts<'_>) -> Vec<Arc<Message>> {
        let waiting = self.items.iter().filter_map(|item| lane.waiting.get(&item.entry_id));
        let message = |payload: &PendingEntry| match payload {
            PendingEntry::Message { payload } => Some(Arc::clone(payload)),
            PendingEntry::Custom { custom_type, payload } => {
                facts.projectors.get(custom_type)?(payload.as_ref()).map(Arc::new)
            }
        };
        waiting.filter_map(message).collect()
    }
}

/// Whether it stands in the context of a request.
pub(in super::super) fn projects(payload: &PendingEntry, facts: &Facts<'_>) -> bool {
    match payload {
        PendingEntry::Message { .. } => true,
        PendingEntry::Custom { custom_type, payload } => {
            facts.projectors.get(custom_type).is_some_and(|projector| projector(payload.as_ref()).is_some())
        }
    }
}

/// Puts a selection behind the newest entry. Gives the newest one that projects.
pub(in super::super) fn place(
    plan: &mut Plan,
    lane: &LaneMemory,
    selection: &Selection,
    facts: &Facts<'_>,
) -> Result<Option<EntryId>, Fault> {
    let mut trigger = None;
    for item in &selection.items {
        let Some(payload) = lane.waiting.get(&item.entry_id) else {
            return Err(Fault::broken(format!("nothing waits as {}", item.entry_id)));
        };
        if projects(payload, facts) {
            trigger = Some(item.entry_id.clone());
        }
        plan.entry_told(item.entry_id.clone(), payload.clone().into_body());
    }
    Ok(trigger)
}

/// What no longer waits, once its entries are written.
pub(in super::super) fn placed(plan: &mut Plan, selection: &Selection) {
    for item in &selection.items {
        plan.wait_over(&item.entry_id);
    }
}

/// The lane's state without a selection.
pub(in super::super) fn without(state: &LaneState, selection: &Selection) -> LaneState {
    let mut state = state.clone();
    state.inbox.retain(|item| !selection.items.contains(item));
    state
}
