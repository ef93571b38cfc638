//! Requests: ready to be made (G1, G4, G7), and made with another configuration.
//!
//! Keeps true: the ids of a reply and of its usage are stored before the request goes out; what is stored holds no
//! secret; a configuration that changes starts a new step.
//!
//! Must not know: providers, the reply.

use super::super::error::Fault;
use super::super::memory::{LaneMemory, Open};
use super::super::plan::Plan;
use super::Facts;
use crate::model::{
    EntryId, ErrorKind, ErrorRecord, Event, GenerationContext, LaneConfig, Leaf, Model, OperationState, PendingReply,
};

/// The configuration an operation works with at this point.
pub(in super::super) fn configuration<'a>(
    lane: &'a LaneMemory,
    open: &'a Open,
    fallback_index: usize,
) -> Result<&'a LaneConfig, Fault> {
    match fallback_index.checked_sub(1) {
        None => Ok(&lane.config),
        Some(at) => open
            .state
            .settings
            .fallbacks
            .get(at)
            .ok_or_else(|| Fault::broken(format!("there is no fallback {fallback_index}"))),
    }
}

/// A first attempt of a new step.
pub(in super::super) fn fresh(
    lane: &LaneMemory,
    open: &Open,
    fallback_index: usize,
    trigger_entry_id: Option<EntryId>,
    overflow_recovery_used: bool,
    facts: &Facts<'_>,
) -> Result<Leaf, Fault> {
    Ok(Leaf::AssistantReady {
        generation_context: GenerationContext {
            step_id: facts.ids.next_id(),
            trigger_entry_id,
            configuration: configuration(lane, open, fallback_index)?.clone(),
            stream_options: facts.options.clone(),
            retry_policy: facts.retry,
            overflow_recovery_used,
            interruptions: 0,
        },
        next_attempt: 1,
    })
}

/// The same question to the next fallback; `None` if none is left.
pub(in super::super) fn fallback(
    lane: &LaneMemory,
    open: &Open,
    context: &GenerationContext,
    facts: &Facts<'_>,
) -> Result<Option<(OperationState, Event)>, Fault> {
    let index = open.state.fallback_index.saturating_add(1);
    let Some(next) = open.state.settings.fallbacks.get(index - 1) else { return Ok(None) };
    let (trigger, used) = (context.trigger_entry_id.clone(), context.overflow_recovery_used);
    let leaf = fresh(lane, open, index, trigger, used, facts)?;
    let event =
        Event::ModelFallback { from: spec(&context.configuration), to: spec(next), error_message: String::new() };
    Ok(Some((OperationState { fallback_index: index, ..open.at(leaf) }, event)))
}

/// `provider/id`.
pub(in super::super) fn spec(config: &LaneConfig) -> String {
    format!("{}/{}", config.model.provider, config.model.model_id)
}

/// The state of a request that waits for its turn.
pub(in super::super) fn ready(open: &Open) -> Result<(&GenerationContext, u32), Fault> {
    match &open.state.leaf {
        Leaf::AssistantReady { generation_context, next_attempt } => Ok((generation_context, *next_attempt)),
        other => Err(Fault::broken(format!("a request was planned at {}", other.word()))),
    }
}

/// The intent of a request (G1).
pub(in super::super) fn intend(
    lane: &LaneMemory,
    open: &Open,
    model: &Model,
    asked_output: Option<u32>,
    recovery: bool,
    facts: &Facts<'_>,
) -> Result<(Plan, PendingReply), Fault> {
    let (context, attempt) = ready(open)?;
    let limit = asked_output.map_or(model.max_tokens, |asked| {
        let asked = u64::from(asked);
        if model.max_tokens == 0 { asked } else { asked.min(model.max_tokens) }
    });
    let pending = PendingReply {
        generation_context: context.clone(),
        attempt,
        response_entry_id: facts.entry_id(),
        usage_id: facts.entry_id(),
        intended_output_limit: limit,
        context_window: model.context_window,
    };
    let mut plan = Plan::new(lane);
    plan.recovery(recovery);
    plan.turn_start();
    plan.state(open, open.at(Leaf::AssistantPending(pending.clone())))?;
    Ok((plan, pending))
}

/// The wait for a retry is over (G4).
pub(in super::super) fn retry_due(lane: &LaneMemory, open: &Open) -> Result<Plan, Fault> {
    let Leaf::AssistantWait { generation_context, next_attempt, .. } = &open.state.leaf else {
        return Err(Fault::broken(format!("a retry was planned at {}", open.state.leaf.word())));
    };
    let mut plan = Plan::new(lane);
    let leaf = Leaf::AssistantReady { generation_context: generation_context.clone(), next_attempt: *next_attempt };
    plan.state(open, open.at(leaf))?;
    plan.event(Event::RetryStart { attempt: *next_attempt });
    Ok(plan)
}

/// The model has no key, and a fallback is left (G7).
pub(in super::super) fn pass_over(
    lane: &LaneMemory,
    open: &Open,
    reason: &str,
    facts: &Facts<'_>,
) -> Result<Plan, Fault> {
    let (context, _) = ready(open)?;
    let Some((state, event)) = fallback(lane, open, context, facts)? else {
        return Err(Fault::broken("a model was passed over with no other one left"));
    };
    let mut plan = Plan::new(lane);
    plan.state(open, state)?;
    plan.event(with_message(event, reason));
    Ok(plan)
}

pub(in super::super) fn with_message(event: Event, message: &str) -> Event {
    match event {
        Event::ModelFallback { from, to, error_message: _ } => {
            Event::ModelFallback { from, to, error_message: message.to_owned() }
        }
        other => other,
    }
}

/// A hook refused the request (G6).
pub(in super::super) fn refuse(
    lane: &LaneMemory,
    open: &Open,
    reason: String,
    facts: &Facts<'_>,
) -> Result<Plan, Fault> {
    use super::finish::{Ending, Publication, end};
    let mut plan = Plan::new(lane);
    // A turn that repeated an attempt has one last word about it.
    if let Some(attempt) = ready(open)?.1.checked_sub(1).filter(|attempt| *attempt > 0) {
        plan.event(Event::RetryEnd { attempt, success: false, final_error: Some(reason.clone()) });
    }
    let record = ErrorRecord::new(ErrorKind::Hook, reason);
    end(plan, lane, open, Ending::failed("hook_blocked", record), Publication::default(), facts)
}

/// Another configuration for the open step, which begins anew with it. A turn that repeats an attempt has one last word
/// about that. A request that a dead process made (nobody drives) is settled first; the settlement then finds this.
pub(in super::super) fn reconfigure(
    lane: &LaneMemory,
    open: &Open,
    config: &LaneConfig,
    is_driven: bool,
    facts: &Facts<'_>,
) -> Option<(OperationState, Option<Event>)> {
    let (context, attempted, final_error) = match &open.state.leaf {
        Leaf::AssistantReady { generation_context, next_attempt } => (generation_context, *next_attempt, None),
        Leaf::AssistantWait { generation_context, next_attempt, error_message, .. } => {
            (generation_context, *next_attempt, Some(error_message.clone()))
        }
        Leaf::AssistantPending(_) if !is_driven && open.state.fallback_index > 0 => {
            return Some((OperationState { fallback_index: 0, ..open.state.clone() }, None));
        }
        Leaf::Starting | Leaf::Checkpoint { .. } | Leaf::AssistantPending(_) | Leaf::Tools { .. } => return None,
    };
    debug_assert_eq!(open.meta.lane, *lane.name);
    let leaf = Leaf::AssistantReady {
        generation_context: GenerationContext {
            step_id: facts.ids.next_id(),
            configuration: config.clone(),
            stream_options: facts.options.clone(),
            retry_policy: facts.retry,
            interruptions: 0,
            ..context.clone()
        },
        next_attempt: 1,
    };
    let attempt = attempted.saturating_sub(1);
    let word = (attempt > 0).then_some(Event::RetryEnd { attempt, success: false, final_error });
    Some((OperationState { fallback_index: 0, ..open.at(leaf) }, word))
}
