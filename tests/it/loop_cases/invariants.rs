//! What holds of every run, whatever happened in it: the grammar of its events and the invariants of the loop.

use std::sync::Arc;

use pirn::model::{AssistantMessage, Event, Message, StopReason, ToolCall};
use pirn::port::LlmRequest;

use super::notation::{as_result, short};
use super::support::Run;

/// Checks a run that ended; panics with the run's short form.
pub(crate) fn check(run: &Run) {
    let events: Vec<&Event> = run.events.iter().filter(|event| !matches!(event, Event::Warning { .. })).collect();
    let mut reader = Reader { events, at: 0, messages: Vec::new(), whole: short(&run.events) };
    reader.run(run);
    for request in &run.requests {
        check_request(request);
    }
    check_states(run);
}

/// Reads events by the grammar.
struct Reader<'a> {
    events: Vec<&'a Event>,
    at: usize,
    /// Those of every `message_end` so far.
    messages: Vec<Arc<Message>>,
    whole: String,
}

impl<'a> Reader<'a> {
    fn run(&mut self, run: &Run) {
        assert!(matches!(self.next(), Event::RunStart { .. }), "starts otherwise: {}", self.whole);
        let mut turns = 0;
        while matches!(self.peek(), Some(Event::TurnStart { .. })) {
            turns += 1;
            self.turn(turns);
        }
        assert!(turns > 0, "no turn: {}", self.whole);
        let Event::RunEnd { messages, outcome, .. } = self.next() else { panic!("no end: {}", self.whole) };
        assert_eq!(self.at, self.events.len(), "events behind the end: {}", self.whole);
        // Invariants 6 and 7.
        assert_eq!(*messages, self.messages, "agent_end lists other messages: {}", self.whole);
        let transcript: Vec<_> = run.before.iter().chain(messages).cloned().collect();
        assert_eq!(run.after, transcript, "the transcript is another: {}", self.whole);
        let told = run.outcome.as_ref().unwrap();
        assert_eq!(**outcome, *told, "two verdicts");
        assert_eq!(told.messages, *messages);
        let last = messages.iter().rev().find_map(|message| message.as_assistant());
        assert_eq!(told.stop_reason, last.map(|reply| reply.stop_reason), "final stop reason: {}", self.whole);
        assert_eq!(told.error.is_some(), told.stop_reason == Some(StopReason::Error), "error record: {}", self.whole);
    }

    fn turn(&mut self, number: u32) {
        assert!(matches!(self.next(), Event::TurnStart { turn } if *turn == number), "turn number: {}", self.whole);
        while let Some(Event::MessageStart { message }) = self.peek()
            && message.as_assistant().is_none()
        {
            let input = self.pair();
            assert!(matches!(*input, Message::User(_) | Message::Custom(_)), "input: {}", self.whole);
        }
        let reply = self.reply();
        let tools_from = self.at;
        while !matches!(self.peek(), None | Some(Event::TurnEnd { .. })) {
            self.at += 1;
        }
        let tools: Vec<&Event> = self.events[tools_from..self.at].to_vec();
        let results = self.tools(reply.as_assistant().unwrap(), &tools);
        let Event::TurnEnd { turn, message, tool_results } = self.next() else { panic!("no turn_end: {}", self.whole) };
        assert_eq!((*turn, message.as_ref()), (number, Some(&reply)), "turn_end: {}", self.whole);
        assert_eq!(*tool_results, results, "results of turn_end: {}", self.whole);
    }

    /// A message that is whole from its start.
    fn pair(&mut self) -> Arc<Message> {
        let Event::MessageStart { message } = self.next() else { panic!("no message_start: {}", self.whole) };
        let Event::MessageEnd { message: ended, .. } = self.next() else { panic!("no message_end: {}", self.whole) };
        assert_eq!(message, ended, "another message ended: {}", self.whole);
        self.messages.push(Arc::clone(ended));
        Arc::clone(ended)
    }

    fn reply(&mut self) -> Arc<Message> {
        let Some(Event::MessageStart { message }) = self.peek() else { panic!("no reply: {}", self.whole) };
        let start = message.as_assistant().unwrap_or_else(|| panic!("no reply: {}", self.whole));
        assert!(start.content.is_empty() && start.stop_reason == StopReason::Pending, "{start:?}");
        self.at += 1;
        while let Some(Event::MessageUpdate { event, .. }) = self.peek() {
            assert!(!event.is_empty_delta(), "an empty delta: {}", self.whole);
            self.at += 1;
        }
        let Event::MessageEnd { message, .. } = self.next() else { panic!("the reply stays open: {}", self.whole) };
        let reply = message.as_assistant().unwrap_or_else(|| panic!("another message ended: {}", self.whole));
        assert_ne!(reply.stop_reason, StopReason::Pending, "{}", self.whole);
        assert_eq!(reply.error_message.is_some(), reply.stop_reason.is_failure(), "{reply:?}");
        self.messages.push(Arc::clone(message));
        Arc::clone(message)
    }

    /// Invariants 3 to 5: `seq` or `par`, every call exactly once.
    fn tools(&mut self, reply: &AssistantMessage, tools: &[&'a Event]) -> Vec<Arc<Message>> {
        if reply.stop_reason.is_failure() {
            assert!(tools.is_empty(), "a failed reply ran tools: {}", self.whole);
            return Vec::new();
        }
        let calls: Vec<&ToolCall> = reply.calls().collect();
        let results = sequential(&calls, tools).or_else(|| parallel(&calls, tools));
        let results = results.unwrap_or_else(|| panic!("tools by neither grammar: {}", self.whole));
        self.messages.extend(results.iter().cloned());
        results
    }

    fn peek(&self) -> Option<&'a Event> {
        self.events.get(self.at).copied()
    }

    fn next(&mut self) -> &'a Event {
        let event = self.peek().unwrap_or_else(|| panic!("cut off: {}", self.whole));
        self.at += 1;
        event
    }
}

/// `( ts tu* te message_start message_end )*` in source order.
fn sequential(calls: &[&ToolCall], events: &[&Event]) -> Option<Vec<Arc<Message>>> {
    let mut rest = events;
    let mut results = Vec::new();
    for call in calls {
        let end = rest.iter().position(|event| matches!(event, Event::ToolEnd { .. }))?;
        let (tool, behind) = rest.split_at(end + 1);
        let (pair, behind) = behind.split_at_checked(2)?;
        one_call(call, tool)?;
        results.push(result_of(call, tool, pair)?);
        rest = behind;
    }
    rest.is_empty().then_some(results)
}

/// Every call's events in order, interleaved; then all message pairs in source order.
fn parallel(calls: &[&ToolCall], events: &[&Event]) -> Option<Vec<Arc<Message>>> {
    let (tools, pairs) = events.split_at_checked(events.len().checked_sub(calls.len() * 2)?)?;
    let mut results = Vec::new();
    let mut seen = 0;
    for (at, call) in calls.iter().enumerate() {
        let own: Vec<&Event> = tools.iter().copied().filter(|event| id_of(event) == Some(call.id.as_str())).collect();
        one_call(call, &own)?;
        seen += own.len();
        results.push(result_of(call, &own, pairs.get(at * 2..at * 2 + 2)?)?);
    }
    (seen == tools.len()).then_some(results)
}

fn id_of(event: &Event) -> Option<&str> {
    match event {
        Event::ToolStart { tool_call_id, .. }
        | Event::ToolUpdate { tool_call_id, .. }
        | Event::ToolEnd { tool_call_id, .. } => Some(tool_call_id),
        _ => None,
    }
}

/// `ts tu* te` of one call, with the model's own arguments.
fn one_call(call: &ToolCall, events: &[&Event]) -> Option<()> {
    let [Event::ToolStart { tool_call_id, tool_name, args, effective_args }, middle @ .., Event::ToolEnd { .. }] =
        events
    else {
        return None;
    };
    let named = *tool_call_id == call.id && *tool_name == call.name;
    let updates = middle.iter().all(|event| matches!(event, Event::ToolUpdate { .. }));
    let own = events.iter().all(|event| id_of(event) == Some(call.id.as_str()));
    if !(named && updates && own) {
        return None;
    }
    assert_eq!(**args, call.arguments, "args of {}", call.id);
    let repeated = effective_args.as_ref().is_some_and(|effective| effective.as_object() == Some(&call.arguments));
    assert!(!repeated, "effectiveArgs repeats args");
    Some(())
}

/// The message pair that tells the same as the end of the call.
fn result_of(call: &ToolCall, tool: &[&Event], pair: &[&Event]) -> Option<Arc<Message>> {
    let [Event::MessageStart { message: started }, Event::MessageEnd { message, .. }] = pair else { return None };
    let Some(Event::ToolEnd { result, is_error, duration_ms, .. }) = tool.last() else { return None };
    let Message::ToolResult(told) = &**message else { return None };
    assert_eq!(started, message);
    assert_eq!((&told.tool_call_id, &told.tool_name), (&call.id, &call.name));
    assert_eq!((&told.content, &told.details), (&result.content, &result.details));
    assert_eq!((told.is_error, told.duration_ms, &told.usage), (*is_error, *duration_ms, &result.usage));
    Some(Arc::clone(message))
}

/// Every call of a request is answered exactly once, in order, right behind its reply; no result stands alone.
pub(crate) fn check_request(request: &LlmRequest) {
    check_pairs(&request.messages);
}

pub(crate) fn check_pairs(messages: &[Arc<Message>]) {
    let mut due: Vec<&str> = Vec::new();
    for message in messages {
        match &**message {
            Message::ToolResult(result) => {
                assert!(!due.is_empty(), "a result without a call: {}", result.tool_call_id);
                assert_eq!(due.remove(0), result.tool_call_id, "results in another order");
            }
            other => {
                assert!(due.is_empty(), "calls without results: {due:?}");
                if let Message::Assistant(reply) = other {
                    due = reply.calls().map(|call| call.id.as_str()).collect();
                }
            }
        }
    }
    assert!(due.is_empty(), "calls without results: {due:?}");
}

/// The state is up to date at every event.
fn check_states(run: &Run) {
    for (event, state) in run.events.iter().zip(&run.states) {
        assert!(state.is_streaming, "idle at {}", event.name());
        match event {
            Event::MessageStart { .. } | Event::MessageUpdate { .. } => assert!(state.streaming_message.is_some()),
            Event::MessageEnd { message, .. } => {
                assert_eq!(state.messages.last(), Some(message));
                assert!(state.streaming_message.is_none());
            }
            Event::ToolStart { tool_call_id, .. } | Event::ToolUpdate { tool_call_id, .. } => {
                assert!(state.pending_tool_calls.contains(tool_call_id));
            }
            Event::ToolEnd { tool_call_id, .. } => assert!(!state.pending_tool_calls.contains(tool_call_id)),
            Event::TurnEnd { message: Some(message), tool_results, .. } => {
                let reply = message.as_assistant().unwrap();
                if reply.stop_reason.is_failure() {
                    assert_eq!(state.error_message, reply.error_message);
                }
                let ids: Vec<_> = tool_results.iter().map(|result| &as_result(result).tool_call_id).collect();
                assert_eq!(ids, reply_calls(reply));
            }
            _ => {}
        }
    }
}

fn reply_calls(reply: &AssistantMessage) -> Vec<&String> {
    if reply.stop_reason.is_failure() { Vec::new() } else { reply.calls().map(|call| &call.id).collect() }
}
