//! What the two loops tell alike, and the only things in which they may differ.
//!
//! # The mask
//!
//! | left out | of | why |
//! |---|---|---|
//! | ids, timestamps, durations | both | they are of a run, not of a script |
//! | an empty `aborted` reply that no request stands for | classic | between steps the classic loop closes an abort with a reply; the harness adds nothing to a session merely to mark it |
//! | a turn in which nothing is left | both | the reply above was all that the turn of the classic loop held; the harness may have opened the turn of a request that it then never made |
//! | attempts that are repeated, with their retry events | harness | the classic loop makes one attempt; a script shows it only the last one |
//! | events of entries, the ledger, queues and aborts; warnings | both | they have no counterpart, or are no part of what a run promises |
//! | messages that wait behind an abort | both | the harness gives them back to who aborted, the classic loop keeps them |
//! | the order among events of calls, what they say of `terminate` | both, aborted runs | calls that an abort keeps from running have their events in pairs, whose order is free (case 108 of the classic loop); a result that is kept for a later process never ends its run then. Kinds of events keep their order |
//! | the stop reason of a run that tools end | both | the classic loop gives that of the reply, which may be `stop`; the harness always `toolUse` |
//! | the verdict behind an answer in the last allowed turn, if something waits | both | for the classic loop an answer is a normal end, for the harness what waits is owed a reply that the limit forbids (case 110 of the engine) |
//!
//! # What no script does
//!
//! What only one loop has: compaction, deferred replies, fallback models, second lanes, messages for the next run or
//! queued while nothing runs, hooks between turns. What the two ports of hooks say themselves: a hook behind a call that
//! fails withholds the result in one and is passed over in the other. A whole reply to a request that was aborted
//! meanwhile: it is an answer to the classic loop, and aborted to the harness (case 38 of the engine).

use std::sync::Arc;

use pirn::model::{Event, Message, Reason, StopReason, ToolResultView};
use pirn::port::LlmRequest;
use serde_json::{Value, json};

use super::script::Script;
use super::stage::Run;

/// What is compared of a run.
pub(super) struct Masked {
    pub(super) messages: Vec<String>,
    /// The kinds of the events, in their order.
    pub(super) kinds: Vec<String>,
    /// The events with what they say.
    pub(super) events: Vec<String>,
    pub(super) requests: Vec<String>,
    /// What hooks and tools were asked.
    pub(super) asked: Vec<String>,
    /// How it ended, and whether anything waits.
    pub(super) verdict: Vec<String>,
}

impl Masked {
    pub(super) fn classic(run: &Run, script: &Script) -> Self {
        let closing = closing_reply(run);
        Self::of(run, script, &closing.into_iter().collect::<Vec<_>>())
    }

    pub(super) fn durable(run: &Run, script: &Script) -> Self {
        Self::of(run, script, &repeated_attempts(&run.events))
    }

    /// `removed` are replies that the other loop does not have.
    fn of(run: &Run, script: &Script, removed: &[Arc<Message>]) -> Self {
        let is_kept = |message: &Arc<Message>| !removed.iter().any(|gone| Arc::ptr_eq(gone, message));
        let events = without_replies(&run.events, &is_kept);
        let events = without_empty_turns(events);
        let kinds = events.iter().map(|event| event.name().to_owned()).collect();
        let mut lines: Vec<String> = events.iter().filter_map(|event| line(event, run.aborted)).collect();
        let mut asked = run.asked.clone();
        if run.aborted {
            lines.sort();
            asked.sort();
        }
        let messages = run.messages.iter().filter(|message| is_kept(message));
        Self {
            kinds,
            events: lines,
            messages: messages.map(shown).collect(),
            requests: run.requests.iter().map(request).collect(),
            asked,
            verdict: vec![verdict(run, script)],
        }
    }
}

fn verdict(run: &Run, script: &Script) -> String {
    // An abort empties the queues of the harness.
    let waits = run.waits && !run.aborted;
    let turns = run.events.iter().filter(|event| matches!(event, Event::TurnStart { .. })).count();
    if waits && u32::try_from(turns) == Ok(script.max_turns) {
        return "at the limit of turns, and something waits".to_owned();
    }
    // Of tools that end a run the harness says what they answered to, whatever the reply's own word was.
    let stop_reason = run.stop_reason.filter(|_| run.reason != Reason::ToolTerminated);
    format!("{:?} {stop_reason:?} {:?}, waits: {waits}", run.reason, run.cause)
}

/// The reply that closes an abort between steps.
fn closing_reply(run: &Run) -> Option<Arc<Message>> {
    let mut replies = ends(&run.events).filter(|message| message.as_assistant().is_some());
    let last = replies.nth(run.requests.len())?;
    assert!(replies.next().is_none(), "more replies than requests and an end");
    let reply = last.as_assistant()?;
    assert_eq!((reply.stop_reason, reply.content.len()), (StopReason::Aborted, 0), "nobody was asked for {reply:?}");
    Some(Arc::clone(last))
}

/// The replies behind which a further attempt was scheduled.
fn repeated_attempts(events: &[Event]) -> Vec<Arc<Message>> {
    let mut repeated = Vec::new();
    for (at, event) in events.iter().enumerate() {
        if matches!(event, Event::RetryScheduled { .. }) {
            let before = ends(events.get(..at).unwrap_or_default()).last().cloned();
            repeated.extend(before.filter(|message| message.as_assistant().is_some()));
        }
    }
    repeated
}

fn ends(events: &[Event]) -> impl Iterator<Item = &Arc<Message>> {
    events.iter().filter_map(|event| match event {
        Event::MessageEnd { message, .. } => Some(message),
        _ => None,
    })
}

/// The events that both loops have, without those of some replies.
fn without_replies(events: &[Event], is_kept: &dyn Fn(&Arc<Message>) -> bool) -> Vec<Event> {
    let mut left: Vec<Event> = Vec::new();
    for event in events {
        match event {
            Event::MessageEnd { message, .. } if !is_kept(message) => {
                let start = left.iter().rposition(|event| matches!(event, Event::MessageStart { .. })).unwrap();
                left.truncate(start);
            }
            Event::TurnEnd { turn, message, tool_results } => {
                let (message, tool_results) = (message.clone().filter(is_kept), tool_results.clone());
                left.push(Event::TurnEnd { turn: *turn, message, tool_results });
            }
            Event::RunEnd { messages, outcome, result } => {
                let messages = messages.iter().filter(|message| is_kept(message)).cloned().collect();
                left.push(Event::RunEnd { messages, outcome: Arc::clone(outcome), result: result.clone() });
            }
            Event::RunStart { .. }
            | Event::TurnStart { .. }
            | Event::MessageStart { .. }
            | Event::MessageUpdate { .. }
            | Event::MessageEnd { .. }
            | Event::ToolStart { .. }
            | Event::ToolUpdate { .. }
            | Event::ToolEnd { .. } => left.push(event.clone()),
            Event::OperationAbort { .. }
            | Event::RetryScheduled { .. }
            | Event::RetryStart { .. }
            | Event::RetryEnd { .. }
            | Event::EntryAdded { .. }
            | Event::Usage { .. }
            | Event::QueueUpdate { .. }
            | Event::Warning { .. } => {}
            other => panic!("no script leads to {other:?}"),
        }
    }
    left
}

fn without_empty_turns(events: Vec<Event>) -> Vec<Event> {
    let mut left: Vec<Event> = Vec::new();
    for event in events {
        match (&event, left.last()) {
            (Event::TurnEnd { message: None, .. }, Some(Event::TurnStart { .. })) => drop(left.pop()),
            _ => left.push(event),
        }
    }
    left
}

/// An event and what it says, but for what a run alone has.
fn line(event: &Event, aborted: bool) -> Option<String> {
    let name = event.name();
    Some(match event {
        Event::RunStart { .. } => name.to_owned(),
        Event::TurnStart { turn } => format!("{name} {turn}"),
        Event::MessageStart { message } | Event::MessageEnd { message, .. } => format!("{name} {}", shown(message)),
        Event::MessageUpdate { index, event, usage } => format!("{name} {index} {event:?} {usage:?}"),
        Event::ToolStart { tool_call_id, tool_name, args, effective_args } => {
            format!("{name} {tool_call_id} {tool_name} {args:?} {effective_args:?}")
        }
        Event::ToolUpdate { tool_call_id, tool_name, partial } => {
            format!("{name} {tool_call_id} {tool_name} {partial:?}")
        }
        Event::ToolEnd { tool_call_id, tool_name, result, is_error, duration_ms } => {
            let result = ToolResultView { terminate: result.terminate && !aborted, ..(**result).clone() };
            let ran = duration_ms.is_some();
            format!("{name} {tool_call_id} {tool_name} {result:?} {is_error} {ran}")
        }
        Event::TurnEnd { turn, message, tool_results } => {
            let results: Vec<String> = tool_results.iter().map(shown).collect();
            format!("{name} {turn} {:?} {results:?}", message.as_ref().map(shown))
        }
        Event::RunEnd { messages, .. } => {
            format!("{name} {:?}", messages.iter().map(shown).collect::<Vec<_>>())
        }
        _ => return None,
    })
}

fn shown(message: &Arc<Message>) -> String {
    let mut message = serde_json::to_value(&**message).unwrap();
    let fields = message.as_object_mut().unwrap();
    fields.remove("timestamp");
    fields.remove("durationMs");
    message.to_string()
}

fn request(request: &Arc<LlmRequest>) -> String {
    let messages: Vec<String> = request.messages.iter().map(shown).collect();
    let tools: Vec<&str> = request.tools.iter().map(|tool| &*tool.name).collect();
    let model: Value = json!({"id": request.model.id, "prompt": request.system_prompt, "tools": tools});
    format!("{model} {:?} {messages:#?}", request.thinking)
}
