//! A reply is there: what it is stored as, and what comes of it (G3).
//!
//! Keeps true: reply, usage and decision are one transaction; what is stored is what was decided about; a reply is
//! stored as `aborted` only where the operation was asked to end; calls of a failed reply never run.
//!
//! Must not know: providers, hooks, tools.
//!
//! # Rows
//!
//! The first that fits decides.
//!
//! | a reply | comes to |
//! |---|---|
//! | to an operation that was asked to end | `aborted`, then the end |
//! | that did not fit the model | failed, kind `overflow` |
//! | that was deferred | failed, kind `protocol` |
//! | that failed, and may be repeated | the wait for the next attempt |
//! | that failed, with a model to fall back to | that model |
//! | that failed otherwise | the end |
//! | with calls | the calls |
//! | behind which a hook asked for the end | the end |
//! | complete, or cut off without a call | a checkpoint |

use std::sync::Arc;

use serde_json::{Map, json};

use super::super::error::Fault;
use super::super::memory::{LaneMemory, Open};
use super::super::plan::Plan;
use super::finish::{self, Ending, Publication};
use super::{Facts, cost_of, request};
use crate::model::session::namespace;
use crate::model::{
    AssistantBlock, AssistantMessage, CallRecord, CallStatus, Continuation, Counters, EntryId, ErrorKind, ErrorRecord,
    Event, GenerationContext, Leaf, Message, Model, OperationState, PendingReply, Reason, Status, StopMark, StopReason,
    ToolBatch, Usage, UsageKind, UsageRow,
};
use crate::turn::{self, NextAttempt, Overflow, texts};

/// A settled reply and what is known about it.
pub(in super::super) struct Settlement {
    /// Classified, and as hooks left it.
    pub(in super::super) reply: AssistantMessage,
    /// The model that was asked, for prices.
    pub(in super::super) model: Option<Model>,
    /// A hook behind the reply asked for the end of the run.
    pub(in super::super) stop: bool,
    /// What a dead process was waiting for.
    pub(in super::super) interrupted: Option<Interrupted>,
}

/// How an interrupted reply is dealt with.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Interrupted {
    pub(in super::super) resend: bool,
}

/// What a settlement comes to.
enum Next {
    Wait {
        attempt: u32,
        not_before: u64,
        delay_ms: u64,
        context: Box<GenerationContext>,
    },
    Fallback(Box<OperationState>, Event),
    Fail {
        code: String,
    },
    /// With the mark of a hook that asked for the end.
    Tools {
        stop: bool,
    },
    Stop,
    Checkpoint,
}

/// Plans the settlement of the reply that `pending` waits for.
pub(in super::super) fn reply(
    lane: &LaneMemory,
    open: &Open,
    pending: &PendingReply,
    settlement: Settlement,
    facts: &Facts<'_>,
) -> Result<Plan, Fault> {
    let Settlement { reply, model, stop, interrupted } = settlement;
    let cancelled = open.cancelled();
    if reply.stop_reason == StopReason::Aborted && !cancelled {
        return Err(Fault::broken("a provider ended a reply as aborted that nobody had cancelled"));
    }
    let reply = if cancelled { turn::cancelled(reply) } else { decided(reply, pending) };
    let next = if cancelled { Next::Checkpoint } else { next(lane, open, pending, &reply, stop, interrupted, facts)? };
    let reported = reply.usage.total_tokens > 0 || reply.usage.input > 0 || reply.usage.output > 0;
    let known = interrupted.is_none() && (reported || reply.stop_reason != StopReason::Aborted);
    let cost = if known { cost_of(&reply.usage, model.as_ref()) } else { Some(0.0) };
    let mut plan = Plan::new(lane);
    plan.recovery(interrupted.is_some());
    let id = pending.response_entry_id.clone();
    plan.reply_told(id.clone(), Arc::new(Message::Assistant(reply.clone())));
    plan.usage(usage_row(lane, open, pending, &reply, cost, known));
    plan.move_tip()?;
    plan.delete_list(namespace::FRAMES, &format!("{}:{id}", open.id()));
    if pending.attempt > 1 && !matches!(next, Next::Wait { .. }) {
        let success = !reply.stop_reason.is_failure();
        let final_error = (!success).then(|| reply.error_message.clone().unwrap_or_default());
        plan.event(Event::RetryEnd { attempt: pending.attempt, success, final_error });
    }
    let counters = count(open.state.counters, &reply, cost, &next);
    let state = OperationState { counters, latest_assistant_entry_id: Some(id.clone()), ..open.state.clone() };
    conclude(plan, lane, open, pending, &reply, state, next, facts)
}

/// The reply as it is decided about and stored.
fn decided(reply: AssistantMessage, pending: &PendingReply) -> AssistantMessage {
    let mut reply = turn::classify(reply);
    if turn::overflow(&reply, pending.intended_output_limit, pending.context_window) == Overflow::Certain {
        let text = reply.error_message.clone().filter(|text| !text.is_empty());
        let text = text.unwrap_or_else(|| texts::OVERFLOW.to_owned());
        let record = reply.error.take().unwrap_or_else(|| ErrorRecord::new(ErrorKind::Overflow, text));
        fail(&mut reply, ErrorRecord { kind: ErrorKind::Overflow, retryable: false, ..record });
    } else if reply.stop_reason == StopReason::Deferred {
        fail(&mut reply, ErrorRecord::new(ErrorKind::Protocol, texts::DEFERRED_INVALID));
    }
    reply
}

fn fail(reply: &mut AssistantMessage, record: ErrorRecord) {
    // One that failed already has no other word of its provider.
    if reply.stop_reason != StopReason::Error {
        reply.raw_stop_reason.get_or_insert_with(|| reply.stop_reason.as_str().to_owned());
    }
    reply.stop_reason = StopReason::Error;
    reply.error_message = Some(record.message.clone());
    reply.error = Some(record);
}

fn next(
    lane: &LaneMemory,
    open: &Open,
    pending: &PendingReply,
    reply: &AssistantMessage,
    stop: bool,
    interrupted: Option<Interrupted>,
    facts: &Facts<'_>,
) -> Result<Next, Fault> {
    if reply.stop_reason == StopReason::Error {
        return match interrupted {
            Some(interrupted) => Ok(after_interruption(lane, open, pending, interrupted, facts)),
            None => after_error(lane, open, pending, reply, facts),
        };
    }
    Ok(if reply.calls().next().is_some() {
        Next::Tools { stop }
    } else if stop {
        Next::Stop
    } else {
        Next::Checkpoint
    })
}

fn after_error(
    lane: &LaneMemory,
    open: &Open,
    pending: &PendingReply,
    reply: &AssistantMessage,
    facts: &Facts<'_>,
) -> Result<Next, Fault> {
    let context = &pending.generation_context;
    // Models without a key would be passed over: where none has one, none is left.
    let fallbacks = open.state.settings.fallbacks.iter().skip(open.state.fallback_index);
    let left = fallbacks.map(|next| &next.model.provider).any(|provider| (facts.has_key)(provider));
    Ok(match turn::after_error(reply, &context.retry_policy, pending.attempt, left) {
        NextAttempt::Retry { delay_ms } => {
            let (attempt, not_before) = (pending.attempt.saturating_add(1), facts.now.saturating_add(delay_ms));
            Next::Wait { attempt, not_before, delay_ms, context: Box::new(context.clone()) }
        }
        NextAttempt::Fallback => match request::fallback(lane, open, context, facts)? {
            Some((state, event)) => {
                let text = reply.error_message.clone().unwrap_or_default();
                Next::Fallback(Box::new(state), request::with_message(event, &text))
            }
            None => Next::Fail { code: "assistant_error".to_owned() },
        },
        NextAttempt::Fail { code, .. } => Next::Fail { code: code.to_owned() },
    })
}

/// A supervisor that continues a run which is always killed must not pay for ever.
fn after_interruption(
    lane: &LaneMemory,
    open: &Open,
    pending: &PendingReply,
    interrupted: Interrupted,
    facts: &Facts<'_>,
) -> Next {
    let failed = || Next::Fail { code: "interrupted".to_owned() };
    if !interrupted.resend {
        return failed();
    }
    let mut context = pending.generation_context.clone();
    let mut attempt = pending.attempt.saturating_add(1);
    // Who continues may have chosen another model meanwhile: a new step, which begins at its first attempt.
    if open.state.fallback_index == 0 && context.configuration != lane.config {
        context.configuration = lane.config.clone();
        context.step_id = facts.ids.next_id();
        context.retry_policy = facts.retry;
        context.interruptions = 0;
        attempt = 1;
    } else {
        context.interruptions = context.interruptions.saturating_add(1);
        if context.interruptions > facts.limits.max_interruptions {
            return failed();
        }
    }
    // To continue is to ask once more, whatever the policy says.
    let attempts = &mut context.retry_policy.max_attempts;
    *attempts = (*attempts).max(attempt);
    Next::Wait { attempt, not_before: facts.now, delay_ms: 0, context: Box::new(context) }
}

fn count(counters: Counters, reply: &AssistantMessage, cost: Option<f64>, next: &Next) -> Counters {
    let mut counters = counters;
    counters.cost += cost.unwrap_or_default();
    if !reply.stop_reason.is_failure() {
        let truncated = reply.stop_reason == StopReason::Length && reply.calls().next().is_some();
        counters.truncated_in_a_row = if truncated { counters.truncated_in_a_row.saturating_add(1) } else { 0 };
    }
    match next {
        Next::Wait { .. } | Next::Fallback(..) | Next::Tools { .. } => {}
        Next::Fail { .. } | Next::Stop | Next::Checkpoint => counters.turns = counters.turns.saturating_add(1),
    }
    counters
}

#[expect(clippy::too_many_arguments, reason = "one caller, which has taken them apart")]
fn conclude(
    mut plan: Plan,
    lane: &LaneMemory,
    open: &Open,
    pending: &PendingReply,
    reply: &AssistantMessage,
    state: OperationState,
    next: Next,
    facts: &Facts<'_>,
) -> Result<Plan, Fault> {
    let id = &pending.response_entry_id;
    let settled = Open { state, ..open.clone() };
    match next {
        Next::Wait { attempt, not_before, delay_ms, context } => {
            let error_message = reply.error_message.clone().unwrap_or_default();
            let max_attempts = context.retry_policy.max_attempts;
            let leaf = Leaf::AssistantWait {
                generation_context: *context,
                next_attempt: attempt,
                not_before,
                error_message: error_message.clone(),
            };
            plan.state(open, settled.at(leaf))?;
            plan.event(Event::RetryScheduled { attempt, max_attempts, delay_ms, not_before, error_message });
            Ok(plan)
        }
        Next::Fallback(next, event) => {
            let next = OperationState {
                counters: settled.state.counters,
                latest_assistant_entry_id: settled.state.latest_assistant_entry_id,
                ..*next
            };
            plan.state(open, next)?;
            plan.event(event);
            Ok(plan)
        }
        Next::Fail { code } => {
            let record = reply.error.clone().unwrap_or_else(|| {
                ErrorRecord::new(ErrorKind::Protocol, reply.error_message.clone().unwrap_or_default())
            });
            // Whatever the provider lacked: what ends the run is that it is to be left alone for so long.
            let is_limited = code == turn::RATE_LIMITED;
            let record = if is_limited {
                ErrorRecord { kind: ErrorKind::RateLimit, retryable: false, ..record }
            } else {
                record
            };
            finish::end(plan, lane, &settled, Ending::failed(&code, record), Publication::default(), facts)
        }
        Next::Tools { stop } => {
            let stop = stop.then_some(StopMark::Blocked).or(settled.state.stop);
            let batch = batch(open, pending, reply, facts);
            plan.state(open, OperationState { stop, ..settled.at(Leaf::Tools { batch }) })?;
            Ok(plan)
        }
        Next::Stop => {
            let ending = Ending::new(Status::Stopped, Reason::Blocked, Some(reply.stop_reason));
            finish::end(plan, lane, &settled, ending, Publication::default(), facts)
        }
        Next::Checkpoint => {
            let continuation = Continuation::MayFinish { include_final_assistant: true };
            plan.state(open, settled.at(Leaf::Checkpoint { continuation, trigger_entry_id: Some(id.clone()) }))?;
            plan.turn_end();
            Ok(plan)
        }
    }
}

fn batch(open: &Open, pending: &PendingReply, reply: &AssistantMessage, facts: &Facts<'_>) -> ToolBatch {
    let calls = reply.content.iter().enumerate().filter(|(_, block)| matches!(block, AssistantBlock::ToolCall(_)));
    ToolBatch {
        assistant_entry_id: pending.response_entry_id.clone(),
        configuration: pending.generation_context.configuration.clone(),
        turn_id: open.turn_id(),
        calls: calls
            .map(|(source_index, _)| CallRecord {
                source_index,
                result_entry_id: follower(&pending.response_entry_id, facts),
                status: CallStatus::Planned,
            })
            .collect(),
    }
}

/// Characters of a UUID that hold its time.
const TIME_CHARS: usize = 13;

/// An id of the same moment as another one, with a tail of its own.
fn follower(of: &EntryId, facts: &Facts<'_>) -> EntryId {
    let fresh = facts.ids.next_id();
    match (of.as_str().get(..TIME_CHARS), fresh.get(TIME_CHARS..)) {
        (Some(time), Some(tail)) if of.as_str().len() == fresh.len() => EntryId::new(format!("{time}{tail}")),
        _ => EntryId::new(fresh),
    }
}

fn usage_row(
    lane: &LaneMemory,
    open: &Open,
    pending: &PendingReply,
    reply: &AssistantMessage,
    cost: Option<f64>,
    known: bool,
) -> UsageRow {
    UsageRow {
        id: pending.usage_id.clone(),
        operation_id: Some(open.id().clone()),
        lane: Some(lane.name.to_string()),
        kind: UsageKind::Request,
        provider: Some(reply.provider.clone()),
        model_id: Some(reply.model.clone()),
        usage: if known { reply.usage.clone() } else { Usage::default() },
        cost,
        entry_id: Some(pending.response_entry_id.clone()),
        details: (!known).then(|| json!({"outcome": "unknown"})),
        extra: Map::new(),
    }
}
