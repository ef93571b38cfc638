//! Accepting a run (S1): its inputs into the tree, and its state.
//!
//! Keeps true: a refusal writes nothing; inputs, tip, operation and lane change in one transaction.
//!
//! Must not know: what the inputs say.

use std::sync::Arc;

use serde_json::Map;

use super::super::error::{Fault, InvalidMessage, RunError};
use super::super::memory::LaneMemory;
use super::super::plan::Plan;
use super::{Facts, inbox};
use crate::model::{
    Control, Counters, EntryBody, Event, InboxItem, InboxKind, Intent, LaneState, Leaf, Message, Model, OperationMeta,
    OperationState, PendingEntry, RunId, RunSettings, StopReason,
};
use crate::turn;

/// What a run is accepted with.
pub(in super::super) struct Request {
    pub(in super::super) messages: Vec<Message>,
    /// Queued with the acceptance, for when nothing else is owed.
    pub(in super::super) follow_ups: Vec<Message>,
    pub(in super::super) settings: RunSettings,
    pub(in super::super) system_prompt: String,
}

/// Plans the acceptance.
///
/// # Errors
/// The lane is busy, a message is not acceptable, or there is nothing to answer.
pub(in super::super) fn run(lane: &LaneMemory, request: &Request, facts: &Facts<'_>) -> Result<Plan, RunError> {
    if let Some(open) = &lane.operation {
        let kind = open.meta.intent.kind().to_owned();
        return Err(RunError::LaneBusy { operation: open.id().clone(), kind });
    }
    if request.messages.iter().any(is_pending) {
        return Err(RunError::InvalidMessage { reason: InvalidMessage::PendingAssistant });
    }
    // A follow-up is asked when nothing else is owed, and a run that failed or was cut short owes an answer.
    let owes = request.messages.is_empty() && can_continue(lane);
    let selection = inbox::at_acceptance(lane, &request.settings, owes, facts);
    // What was only to be written asks for no reply.
    let asks = selection.items.iter().any(|item| item.kind != InboxKind::Write);
    let continuation = request.messages.is_empty() && !asks;
    if continuation && !ends_in_a_question(lane, &selection.messages(lane, facts)) {
        return Err(RunError::NothingToContinue);
    }
    Ok(plan(lane, request, &selection, continuation, facts)?)
}

fn plan(
    lane: &LaneMemory,
    request: &Request,
    selection: &inbox::Selection,
    continuation: bool,
    facts: &Facts<'_>,
) -> Result<Plan, Fault> {
    let operation_id = RunId::new(facts.ids.next_id());
    let mut plan = Plan::new(lane);
    plan.event(Event::RunStart { run_id: operation_id.clone(), started_at: facts.now });
    plan.turn_start();
    inbox::place(&mut plan, lane, selection, facts)?;
    let mut prompt_entry_ids = Vec::with_capacity(request.messages.len());
    for message in &request.messages {
        let id = facts.entry_id();
        prompt_entry_ids.push(id.clone());
        plan.entry_told(id, EntryBody::Message { message: Arc::new(message.clone()), terminate: false });
    }
    inbox::placed(&mut plan, selection);
    if plan.tip() != lane.tip.as_ref() {
        plan.move_tip()?;
    }
    let mut queued = Vec::with_capacity(request.follow_ups.len());
    for message in &request.follow_ups {
        let entry_id = facts.entry_id();
        plan.wait(&entry_id, PendingEntry::Message { payload: Arc::new(message.clone()) })?;
        queued.push(InboxItem { entry_id, kind: InboxKind::FollowUp });
    }
    let meta = OperationMeta {
        operation_id: operation_id.clone(),
        lane: lane.name.to_string(),
        source_tip_id: lane.tip.clone(),
        started_at: facts.now,
        system_prompt: (!request.system_prompt.is_empty()).then(|| request.system_prompt.clone()),
        intent: Intent::Run { prompt_entry_ids, continuation },
        extra: Map::new(),
    };
    let state = OperationState {
        control: Control::Running,
        settings: request.settings.clone(),
        counters: Counters::default(),
        fallback_index: 0,
        stop: None,
        latest_assistant_entry_id: None,
        leaf: Leaf::Starting,
    };
    plan.open(meta, state)?;
    let mut lane_state = LaneState {
        current_operation_id: Some(operation_id),
        last_operation_id: lane.state.last_operation_id.clone(),
        ..inbox::without(&lane.state, selection)
    };
    let follows = inbox::begin(&mut lane_state);
    let is_queue_changed = follows || !selection.items.is_empty() || !queued.is_empty();
    lane_state.inbox.extend(queued);
    plan.lane_state(lane_state)?;
    if is_queue_changed {
        plan.queues();
    }
    Ok(plan)
}

fn is_pending(message: &Message) -> bool {
    message.as_assistant().is_some_and(|reply| reply.stop_reason == StopReason::Pending)
}

/// Whether what a model would see ends in something to answer.
pub(in super::super) fn can_continue(lane: &LaneMemory) -> bool {
    ends_in_a_question(lane, &[])
}

fn ends_in_a_question(lane: &LaneMemory, more: &[Arc<Message>]) -> bool {
    let messages = lane.messages().map(|(_, message)| message).chain(more);
    let messages: Vec<Arc<Message>> = messages.map(Arc::clone).collect();
    // Which model it is changes blocks of messages, not their roles.
    let projection = turn::project(&messages, &Model::unknown("", "", "", ""));
    projection.messages.last().is_some_and(|last| matches!(**last, Message::User(_) | Message::ToolResult(_)))
}
