//! The calls of a reply: intent, progress, outcome, placement (X1 to X6).
//!
//! Keeps true: a tool starts after its intent is stored; a result is stored once and placed once, in the order of the
//! calls; the last placement ends the turn.
//!
//! Must not know: tools, hooks, what a result says.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::super::error::Fault;
use super::super::memory::{LaneMemory, Open};
use super::super::plan::Plan;
use super::finish::{self, Ending, Publication};
use super::{Facts, checkpoint};
use crate::model::session::namespace;
use crate::model::{
    AssistantBlock, CallRecord, CallStatus, Continuation, EntryBody, EntryId, Event, Leaf, Message, OperationState,
    Reason, Replay, Status, StopMark, StopReason, ToolBatch, ToolCall, ToolResultMessage, UsageKind, UsageRow,
};
use crate::turn::{self, CallOutcome};

/// The batch an operation stands in.
pub(in super::super) fn batch(open: &Open) -> Result<&ToolBatch, Fault> {
    match &open.state.leaf {
        Leaf::Tools { batch } => Ok(batch),
        other => Err(Fault::broken(format!("a call was planned at {}", other.word()))),
    }
}

/// The call that a record stands for.
pub(in super::super) fn call_of<'a>(
    lane: &'a LaneMemory,
    batch: &ToolBatch,
    record: &CallRecord,
) -> Result<&'a ToolCall, Fault> {
    let reply = lane.reply(&batch.assistant_entry_id);
    match reply.and_then(|reply| reply.content.get(record.source_index)) {
        Some(AssistantBlock::ToolCall(call)) => Ok(call),
        _ => Err(Fault::broken(format!("no call stands at {} of its reply", record.source_index))),
    }
}

/// Where the arguments of a call are kept.
pub(in super::super) fn args_key(open: &Open, batch: &ToolBatch, record: &CallRecord) -> String {
    format!("{}:{}:{}", open.id(), batch.turn_id, record.source_index)
}

/// Where the last progress of a call is kept.
pub(in super::super) fn output_key(open: &Open, result: &EntryId) -> String {
    format!("{}:{result}", open.id())
}

fn with_status(open: &Open, result: &EntryId, status: CallStatus) -> Result<OperationState, Fault> {
    let mut batch = batch(open)?.clone();
    let Some(record) = batch.calls.iter_mut().find(|record| record.result_entry_id == *result) else {
        return Err(Fault::broken(format!("no call has the result {result}")));
    };
    record.status = status;
    Ok(open.at(Leaf::Tools { batch }))
}

/// A call about to start (X1).
pub(in super::super) fn intend(
    lane: &LaneMemory,
    open: &Open,
    record: &CallRecord,
    args: &Value,
    replay: Replay,
    terminate: bool,
    start: Event,
) -> Result<Plan, Fault> {
    let mut plan = Plan::new(lane);
    plan.set(namespace::TOOL_ARGS, &args_key(open, batch(open)?, record), args)?;
    let status = CallStatus::EffectPending { replay, terminate };
    plan.state(open, with_status(open, &record.result_entry_id, status)?)?;
    plan.event(start);
    Ok(plan)
}

/// A call that runs again: its earlier progress goes.
pub(in super::super) fn rerun(lane: &LaneMemory, open: &Open, record: &CallRecord, start: Event) -> Plan {
    let mut plan = Plan::new(lane);
    plan.recovery(true);
    plan.delete(namespace::TOOL_OUTPUT, &output_key(open, &record.result_entry_id));
    plan.event(start);
    plan
}

/// Progress worth keeping (X2).
pub(in super::super) fn progress(
    lane: &LaneMemory,
    open: &Open,
    result: &EntryId,
    snapshot: &Value,
) -> Result<Plan, Fault> {
    let mut plan = Plan::new(lane);
    plan.set(namespace::TOOL_OUTPUT, &output_key(open, result), snapshot)?;
    Ok(plan)
}

/// The outcome of a call (X3).
pub(in super::super) struct Outcome<'a> {
    pub(in super::super) record: &'a CallRecord,
    pub(in super::super) call: &'a CallOutcome,
    /// What is told: the end, behind the start where that was not told.
    pub(in super::super) events: Vec<Event>,
    /// A rule or hook asked for the end of the run.
    pub(in super::super) stop: bool,
    pub(in super::super) recovery: bool,
    /// What is kept for the call: namespace and key.
    pub(in super::super) kept: Vec<(&'static str, String)>,
}

/// Plans the outcome of a call.
pub(in super::super) fn outcome(
    lane: &LaneMemory,
    open: &Open,
    settled: Outcome<'_>,
    facts: &Facts<'_>,
) -> Result<Plan, Fault> {
    let id = &settled.record.result_entry_id;
    let mut plan = Plan::new(lane);
    plan.recovery(settled.recovery);
    let message = turn::result_message(settled.call, facts.now);
    plan.stage(id, Arc::new(Message::ToolResult(message)))?;
    for (namespace, key) in &settled.kept {
        plan.delete(namespace, key);
    }
    let terminate = settled.call.output.terminate && !open.cancelled();
    let mut state = with_status(open, id, CallStatus::OutcomeReady { terminate })?;
    if settled.stop {
        state.stop = Some(StopMark::Blocked);
    }
    plan.state(open, state)?;
    for event in settled.events {
        plan.event(event);
    }
    Ok(plan)
}

/// How many results can be placed now, in order.
pub(in super::super) fn ready_front(batch: &ToolBatch) -> usize {
    let done = batch.calls.iter().take_while(|call| matches!(call.status, CallStatus::Completed { .. })).count();
    let ready = |call: &&CallRecord| matches!(call.status, CallStatus::OutcomeReady { .. });
    batch.calls.iter().skip(done).take_while(ready).count()
}

/// Places the results that are ready, in order (X4). The last one ends the turn, and may end the operation.
pub(in super::super) fn place(
    lane: &LaneMemory,
    open: &Open,
    recovery: bool,
    facts: &Facts<'_>,
) -> Result<Plan, Fault> {
    let mut batch = batch(open)?.clone();
    let front = ready_front(&batch);
    let mut plan = Plan::new(lane);
    plan.recovery(recovery);
    let mut counters = open.state.counters;
    let ready =
        batch.calls.iter_mut().filter(|call| matches!(call.status, CallStatus::OutcomeReady { .. })).take(front);
    for record in ready {
        let CallStatus::OutcomeReady { terminate } = record.status else { continue };
        let id = &record.result_entry_id;
        let Some(message) = open.staged.get(id) else {
            return Err(Fault::broken(format!("the result {id} was not kept")));
        };
        plan.entry_told(id.clone(), EntryBody::Message { message: Arc::clone(message), terminate });
        plan.staged_over(id);
        if let Message::ToolResult(result) = &**message
            && let Some(row) = usage_row(lane, open, id, result, facts)
        {
            counters.cost += row.cost.unwrap_or_default();
            plan.usage(row);
        }
        record.status = CallStatus::Completed { terminate };
    }
    plan.move_tip()?;
    let complete = batch.calls.iter().all(|call| matches!(call.status, CallStatus::Completed { .. }));
    if !complete {
        let state = OperationState { counters, ..open.at(Leaf::Tools { batch }) };
        plan.state(open, state)?;
        return Ok(plan);
    }
    counters.turns = counters.turns.saturating_add(1);
    let settled = Open { state: OperationState { counters, ..open.state.clone() }, ..open.clone() };
    finish_batch(plan, lane, open, &settled, &batch, facts)
}

fn finish_batch(
    mut plan: Plan,
    lane: &LaneMemory,
    open: &Open,
    settled: &Open,
    batch: &ToolBatch,
    facts: &Facts<'_>,
) -> Result<Plan, Fault> {
    let prefix = format!("{}:{}:", open.id(), batch.turn_id);
    for (namespace, key) in (facts.leftovers)()? {
        if namespace == namespace::TOOL_ARGS && key.starts_with(&prefix) {
            plan.delete(namespace, &key);
        }
    }
    let cancelled = open.cancelled();
    if open.state.stop.is_some() && !cancelled {
        let ending = Ending::new(Status::Stopped, Reason::Blocked, checkpoint::last_stop(lane, open));
        return finish::end(plan, lane, settled, ending, Publication::default(), facts);
    }
    if settled.state.counters.truncated_in_a_row >= turn::TRUNCATED_IN_A_ROW_MAX && !cancelled {
        let ending = Ending::completed(Reason::Length, StopReason::Length, "assistant");
        return finish::end(plan, lane, settled, ending, Publication::default(), facts);
    }
    let all_terminate = batch.calls.iter().all(|call| matches!(call.status, CallStatus::Completed { terminate: true }));
    let continuation = if cancelled {
        Continuation::MayFinish { include_final_assistant: true }
    } else if all_terminate {
        Continuation::MayFinish { include_final_assistant: false }
    } else {
        Continuation::NeedAssistant { overflow_recovery_used: false }
    };
    let trigger_entry_id = plan.tip().cloned();
    plan.state(open, settled.at(Leaf::Checkpoint { continuation, trigger_entry_id }))?;
    plan.turn_end();
    Ok(plan)
}

fn usage_row(
    lane: &LaneMemory,
    open: &Open,
    id: &EntryId,
    result: &ToolResultMessage,
    facts: &Facts<'_>,
) -> Option<UsageRow> {
    let usage = result.usage.as_ref()?;
    Some(UsageRow {
        id: facts.entry_id(),
        operation_id: Some(open.id().clone()),
        lane: Some(lane.name.to_string()),
        kind: UsageKind::Tool,
        provider: None,
        model_id: None,
        usage: usage.clone(),
        cost: Some(usage.cost.total),
        entry_id: Some(id.clone()),
        details: None,
        extra: Map::new(),
    })
}
