//! Checkpoints: what waits is placed, and either a reply is asked for or the operation ends (C1, C3 to C5).
//!
//! Keeps true: placement and the next step are one transaction; limits are tested before anything is placed; an end is
//! planned again behind the hook that was asked about it, so that what arrived meanwhile is not lost.
//!
//! Must not know: hooks, requests.

use std::sync::Arc;

use super::super::error::Fault;
use super::super::memory::{LaneMemory, Open};
use super::super::plan::Plan;
use super::finish::{self, Ending, Publication, Tip};
use super::inbox::{self, Selection};
use super::{Facts, request};
use crate::model::{
    Continuation, EntryBody, EntryId, Event, HandlerKind, Leaf, Message, OperationState, Reason, Status, StopReason,
    ToolResultMessage,
};
use crate::port::HookPoint;
use crate::turn::{self, Budget};

/// What a checkpoint comes to.
pub(in super::super) enum Boundary {
    /// A request, or the end at a limit.
    Next(Box<Plan>),
    /// Nothing is owed: the operation may end.
    MayFinish,
}

/// Makes events of the warnings of limits, by the word of the limit and the text: those that were not told yet.
pub(in super::super) type Untold<'a> = &'a dyn Fn(Vec<(&'static str, String)>) -> Vec<Event>;

/// Plans the next step of a checkpoint.
pub(in super::super) fn boundary(
    lane: &LaneMemory,
    open: &Open,
    untold: Untold<'_>,
    facts: &Facts<'_>,
) -> Result<Boundary, Fault> {
    let (continuation, trigger) = owed(open)?;
    let selection = inbox::at_boundary(lane, &open.state.settings, continuation, facts);
    if !owes(continuation, &selection) {
        return Ok(Boundary::MayFinish);
    }
    if let Some(reason) = exceeded(lane, open, facts) {
        return Ok(Boundary::Next(Box::new(stop(lane, open, reason, facts)?)));
    }
    let plan = go_on(lane, open, continuation, trigger, &selection, None, untold, facts)?;
    Ok(Boundary::Next(Box::new(plan)))
}

/// Plans the end, or what came between: a new input goes first, then the follow-up of a hook.
pub(in super::super) fn finish(
    lane: &LaneMemory,
    open: &Open,
    follow_up: Option<String>,
    untold: Untold<'_>,
    facts: &Facts<'_>,
) -> Result<Plan, Fault> {
    let (continuation, trigger) = owed(open)?;
    let selection = inbox::at_boundary(lane, &open.state.settings, continuation, facts);
    let owes = owes(continuation, &selection);
    let max = facts.limits.max_follow_ups;
    let may_follow = open.state.counters.follow_ups < max;
    let mut first = Plan::new(lane);
    if !owes && follow_up.is_some() && !may_follow {
        let error = format!("a follow-up was dropped: an operation has at most {max} (hook_limits.max_follow_ups)");
        let name = HookPoint::BeforeRunEnd.as_str().to_owned();
        first.event(Event::HandlerError { kind: HandlerKind::Hook, name, error });
    }
    let follow_up = follow_up.filter(|_| !owes && may_follow);
    if !owes && follow_up.is_none() {
        return complete(first, lane, open, continuation, &selection, facts);
    }
    match exceeded(lane, open, facts) {
        Some(reason) => stop(lane, open, reason, facts),
        None => go_on(lane, open, continuation, trigger, &selection, follow_up, untold, facts),
    }
}

fn owed(open: &Open) -> Result<(Continuation, Option<&EntryId>), Fault> {
    match &open.state.leaf {
        Leaf::Checkpoint { continuation, trigger_entry_id } => Ok((*continuation, trigger_entry_id.as_ref())),
        other => Err(Fault::broken(format!("a boundary was planned at {}", other.word()))),
    }
}

fn owes(continuation: Continuation, selection: &Selection) -> bool {
    selection.projects || matches!(continuation, Continuation::NeedAssistant { .. })
}

/// A request: what waits, the follow-up of a hook, and the next step.
#[expect(clippy::too_many_arguments, reason = "the parts of one decision, of two callers")]
fn go_on(
    lane: &LaneMemory,
    open: &Open,
    continuation: Continuation,
    trigger: Option<&EntryId>,
    selection: &Selection,
    follow_up: Option<String>,
    untold: Untold<'_>,
    facts: &Facts<'_>,
) -> Result<Plan, Fault> {
    let mut plan = Plan::new(lane);
    for warning in untold(warnings(lane, open, facts)) {
        plan.event(warning);
    }
    plan.turn_start();
    let mut newest = inbox::place(&mut plan, lane, selection, facts)?;
    inbox::placed(&mut plan, selection);
    let mut counters = open.state.counters;
    if let Some(text) = follow_up {
        let message = Message::user(&text, Vec::new(), facts.now);
        let id = facts.entry_id();
        plan.entry_told(id.clone(), EntryBody::Message { message: Arc::new(message), terminate: false });
        counters.follow_ups = counters.follow_ups.saturating_add(1);
        newest = Some(id);
    }
    if plan.tip() != lane.tip.as_ref() {
        plan.move_tip()?;
    }
    // A new input is a new question: its context may be made smaller once more.
    let overflow_recovery_used = match (&newest, continuation) {
        (None, Continuation::NeedAssistant { overflow_recovery_used }) => overflow_recovery_used,
        (Some(_), _) | (None, Continuation::MayFinish { .. }) => false,
    };
    let trigger = newest.or_else(|| trigger.cloned());
    let leaf = request::fresh(lane, open, open.state.fallback_index, trigger, overflow_recovery_used, facts)?;
    plan.state(open, OperationState { counters, ..open.at(leaf) })?;
    if !selection.items.is_empty() {
        plan.lane_state(inbox::without(&lane.state, selection))?;
        plan.queues();
    }
    Ok(plan)
}

/// The end: what asks for no reply is placed with it.
fn complete(
    mut plan: Plan,
    lane: &LaneMemory,
    open: &Open,
    continuation: Continuation,
    selection: &Selection,
    facts: &Facts<'_>,
) -> Result<Plan, Fault> {
    inbox::place(&mut plan, lane, selection, facts)?;
    inbox::placed(&mut plan, selection);
    let mut publication = Publication::default();
    if !selection.items.is_empty() {
        publication.tip = Tip::Newest;
        publication.lane = Some(inbox::without(&lane.state, selection));
        plan.queues();
    }
    let ending = match (continuation, last_stop(lane, open)) {
        (Continuation::MayFinish { include_final_assistant: false }, _) => {
            Ending::completed(Reason::ToolTerminated, StopReason::ToolUse, "tools")
        }
        (_, Some(StopReason::Length)) => Ending::completed(Reason::Length, StopReason::Length, "assistant"),
        _ => Ending::completed(Reason::Completed, StopReason::Stop, "assistant"),
    };
    finish::end(plan, lane, open, ending, publication, facts)
}

/// The end at a limit: nothing is placed.
fn stop(lane: &LaneMemory, open: &Open, reason: Reason, facts: &Facts<'_>) -> Result<Plan, Fault> {
    let ending = Ending::new(Status::Stopped, reason, last_stop(lane, open));
    finish::end(Plan::new(lane), lane, open, ending, Publication::default(), facts)
}

/// How the last reply of the operation ended.
pub(in super::super) fn last_stop(lane: &LaneMemory, open: &Open) -> Option<StopReason> {
    let latest = open.state.latest_assistant_entry_id.as_ref()?;
    lane.reply(latest).map(|reply| reply.stop_reason)
}

fn exceeded(lane: &LaneMemory, open: &Open, facts: &Facts<'_>) -> Option<Reason> {
    let counters = open.state.counters;
    budget(facts).exceeded(counters.turns, counters.cost, repeats(lane, open, facts))
}

fn budget(facts: &Facts<'_>) -> Budget {
    let limits = facts.limits;
    Budget { max_turns: limits.max_turns, max_cost: limits.max_cost, max_repeats: limits.max_repeats }
}

/// The warnings that are due when most of a limit is used: the word of the limit and the text.
fn warnings(lane: &LaneMemory, open: &Open, facts: &Facts<'_>) -> Vec<(&'static str, String)> {
    let (counters, limits) = (open.state.counters, facts.limits);
    let repeats = repeats(lane, open, facts);
    let text = |reason: Reason| match reason {
        Reason::MaxTurns => {
            let next = counters.turns.saturating_add(1);
            format!("turn {next} of at most {} begins (limits.max_turns)", limits.max_turns)
        }
        Reason::MaxCost => {
            let most = limits.max_cost.unwrap_or_default();
            format!("{:.4} of at most {most} USD are used (limits.max_cost)", counters.cost)
        }
        _ => format!("{repeats} equal results of at most {} in a row (limits.max_repeats)", limits.max_repeats),
    };
    budget(facts).warns(counters.turns, counters.cost, repeats).map(|reason| (reason.as_str(), text(reason))).collect()
}

/// How often in a row the operation got the same result for the same call.
fn repeats(lane: &LaneMemory, open: &Open, facts: &Facts<'_>) -> u32 {
    if facts.limits.max_repeats == 0 {
        return 0;
    }
    let source = open.meta.source_tip_id.as_ref();
    let newest_first: Vec<&Arc<Message>> =
        lane.messages().rev().take_while(|(id, _)| Some(*id) != source).map(|(_, message)| message).collect();
    let results = newest_first.iter().enumerate().filter_map(|(at, message)| {
        let Message::ToolResult(result) = &***message else { return None };
        call_of(result, newest_first.get(at..).unwrap_or_default()).map(|arguments| (result, arguments))
    });
    turn::repeats(results)
}

/// The arguments of the call that a result answers; `earlier` is newest first.
fn call_of<'a>(
    result: &ToolResultMessage,
    earlier: &[&'a Arc<Message>],
) -> Option<&'a serde_json::Map<String, serde_json::Value>> {
    let reply = earlier.iter().find_map(|message| message.as_assistant())?;
    reply.calls().find(|call| call.id == result.tool_call_id).map(|call| &call.arguments)
}
