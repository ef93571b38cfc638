//! The numbers of the `result` line, counted from the events of a run.
//!
//! Keeps true: every reply of a provider counts once; a reply that only closes a cancelled run is no request; usage of
//! tools is added to the run's and to no model's.
//!
//! Must not know: prices, printing.

use std::collections::BTreeMap;

use crate::model::{AssistantMessage, BlockEvent, Event, Message, Usage};
use crate::print::{self, Denial};

/// What a run used, so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) turns: u32,
    pub(super) requests: u32,
    pub(super) tool_calls: u32,
    pub(super) usage: Usage,
    /// Refused calls, in the order of their ends.
    pub(super) denials: Vec<Denial>,
    /// By `provider/model`.
    pub(super) by_model: BTreeMap<String, Usage>,
    /// Text of the last reply that has any, as the run's answer even on failure.
    pub(super) text: String,
    /// Time spent in requests, in milliseconds.
    pub(super) api_ms: u64,
    /// From the first request to the first delta, in milliseconds.
    pub(super) first_token_ms: Option<u64>,
    /// When the first request began.
    first_request_ms: Option<u64>,
}

impl Account {
    /// Counts one event; `elapsed_ms` is the time since the run started.
    pub(super) fn count(&mut self, event: &Event, elapsed_ms: u64) {
        match event {
            Event::TurnStart { .. } => self.turns += 1,
            Event::ToolStart { .. } => self.tool_calls += 1,
            Event::MessageUpdate {
                event: BlockEvent::TextDelta(_) | BlockEvent::ThinkingDelta(_) | BlockEvent::ToolCallDelta(_),
                ..
            } => {
                let since = self.first_request_ms.unwrap_or(elapsed_ms);
                self.first_token_ms.get_or_insert(elapsed_ms.saturating_sub(since));
            }
            Event::MessageStart { message } => {
                if matches!(**message, Message::Assistant(_)) {
                    self.first_request_ms.get_or_insert(elapsed_ms);
                }
            }
            Event::ToolEnd { .. } => self.denials.extend(print::denial(event).map(|(denied, _)| denied)),
            Event::MessageEnd { message, entry_id: _ } => match &**message {
                Message::Assistant(reply) => self.count_reply(reply),
                Message::ToolResult(result) => {
                    if let Some(usage) = &result.usage {
                        self.usage.add(usage);
                    }
                }
                Message::User(_) | Message::Custom(_) => {}
            },
            Event::RunStart { .. }
            | Event::MessageUpdate { .. }
            | Event::ToolUpdate { .. }
            | Event::TurnEnd { .. }
            | Event::RunEnd { .. }
            | Event::RunResume { .. }
            | Event::RecoveryStep { .. }
            | Event::OperationAbort { .. }
            | Event::RetryScheduled { .. }
            | Event::RetryStart { .. }
            | Event::RetryEnd { .. }
            | Event::ModelFallback { .. }
            | Event::EntryAdded { .. }
            | Event::Usage { .. }
            | Event::ConfigUpdate { .. }
            | Event::ValueUpdate { .. }
            | Event::LaneCreated { .. }
            | Event::HandlerError { .. }
            | Event::QueueUpdate { .. }
            | Event::Warning { .. }
            | Event::Fault { .. } => {}
        }
    }

    fn count_reply(&mut self, reply: &AssistantMessage) {
        // A reply without a duration closed a cancelled run; nothing was asked for it.
        let Some(duration_ms) = reply.duration_ms else { return };
        self.requests += 1;
        self.api_ms = self.api_ms.saturating_add(duration_ms);
        self.usage.add(&reply.usage);
        self.by_model.entry(format!("{}/{}", reply.provider, reply.model)).or_default().add(&reply.usage);
        let text = reply.text();
        if !text.is_empty() {
            self.text = text;
        }
    }
}
