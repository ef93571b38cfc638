//! The end of an operation on request: the mark, and the end itself once everything that had started is settled.
//!
//! Keeps true: a mark takes steering and follow-ups out of the queue and leaves the rest; an abort adds no entry merely
//! to mark itself.
//!
//! Must not know: signals, providers, tools.

use std::sync::Arc;

use super::super::error::Fault;
use super::super::memory::{LaneMemory, Open};
use super::super::plan::Plan;
use super::Facts;
use super::finish::{self, Ending, Publication};
use crate::model::{CancelCause, Control, Event, InboxKind, LaneState, Leaf, Message, OperationState};

/// What an abort took out of the queues.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in super::super) struct Taken {
    /// Nobody had asked for the end before.
    pub(in super::super) newly_requested: bool,
    pub(in super::super) steer: Vec<Arc<Message>>,
    pub(in super::super) follow_up: Vec<Arc<Message>>,
}

/// Marks the operation as to be ended. `None` if it is already.
pub(in super::super) fn request(
    lane: &LaneMemory,
    open: &Open,
    cause: CancelCause,
    facts: &Facts<'_>,
) -> Result<Option<(Plan, Taken)>, Fault> {
    if open.cancelled() {
        return Ok(None);
    }
    let mut plan = Plan::new(lane);
    let mut taken = Taken { newly_requested: true, ..Taken::default() };
    let mut state = LaneState { inbox: Vec::new(), ..lane.state.clone() };
    for item in &lane.state.inbox {
        let list = match item.kind {
            InboxKind::Steer => &mut taken.steer,
            InboxKind::FollowUp => &mut taken.follow_up,
            InboxKind::NextRun | InboxKind::NextFollowUp | InboxKind::Write => {
                state.inbox.push(item.clone());
                continue;
            }
        };
        list.extend(lane.waiting.get(&item.entry_id).and_then(|payload| payload.message()).cloned());
        plan.wait_over(&item.entry_id);
    }
    let control = Control::CancelRequested { requested_at: facts.now, cause };
    plan.state(open, OperationState { control, ..open.state.clone() })?;
    let changed = state.inbox != lane.state.inbox;
    if changed {
        plan.lane_state(state)?;
    }
    plan.event(Event::OperationAbort {
        run_id: open.id().clone(),
        cause,
        steer: taken.steer.clone(),
        follow_up: taken.follow_up.clone(),
    });
    if changed {
        plan.queues();
    }
    Ok(Some((plan, taken)))
}

/// The end of a marked operation between its steps.
pub(in super::super) fn end(lane: &LaneMemory, open: &Open, facts: &Facts<'_>) -> Result<Plan, Fault> {
    let Some(cause) = open.state.control.cause() else {
        return Err(Fault::broken("an operation that nobody cancelled was to end as aborted"));
    };
    let mut plan = Plan::new(lane);
    // A turn that repeated an attempt has one last word about it.
    let waiting = match &open.state.leaf {
        Leaf::AssistantReady { next_attempt, .. } => Some((*next_attempt, String::new())),
        Leaf::AssistantWait { next_attempt, error_message, .. } => Some((*next_attempt, error_message.clone())),
        Leaf::Starting | Leaf::Checkpoint { .. } | Leaf::AssistantPending(_) | Leaf::Tools { .. } => None,
    };
    if let Some((next, error)) = waiting
        && next > 1
    {
        plan.event(Event::RetryEnd { attempt: next - 1, success: false, final_error: Some(error) });
    }
    finish::end(plan, lane, open, Ending::aborted(cause), Publication::default(), facts)
}
