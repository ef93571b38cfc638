//! The numbers of the `result` line: from what is stored of its operations, and from the events of this process.
//!
//! Keeps true: every request to a provider counts once, a failed attempt too; a reply that only closes a cancelled run,
//! or that settles what a dead process asked for, is no request of this process; usage of tools is added to the run's
//! and to no model's; a sum of costs that lacks one is no sum.
//!
//! Must not know: prices, printing.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{AssistantMessage, BlockEvent, Event, Message, Usage, UsageKind, UsageRow};
use crate::print::{self, Denial, UsageShare};

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
    /// Something was used whose price is not known.
    has_unpriced: bool,
    /// Models without a known price that were used, as in `by_model`.
    unpriced: BTreeSet<String>,
}

impl Account {
    /// What operations used: their rows of the ledger, their finished turns and their calls.
    pub(super) fn of_operation(rows: &[UsageRow], turns: u32, tool_calls: u32) -> Self {
        let mut account = Self { turns, tool_calls, ..Self::default() };
        for row in rows {
            account.add_row(row);
        }
        account
    }

    /// USD; `None` = some model used has no known price.
    pub(super) fn cost_usd(&self) -> Option<f64> {
        (!self.has_unpriced).then_some(self.usage.cost.total)
    }

    /// The share of each model, by `provider/model`.
    pub(super) fn usage_by_model(&self) -> Vec<(String, UsageShare)> {
        let share = |(model, usage): (&String, &Usage)| {
            let cost_usd = (!self.unpriced.contains(model)).then_some(usage.cost.total);
            (model.clone(), UsageShare { input: usage.input, output: usage.output, cost_usd })
        };
        self.by_model.iter().map(share).collect()
    }

    fn add_row(&mut self, row: &UsageRow) {
        let mut usage = row.usage.clone();
        // The row's cost is the one that holds.
        usage.cost.total = row.cost.unwrap_or(0.0);
        let is_unpriced = row.cost.is_none() && is_any(&usage);
        self.has_unpriced |= is_unpriced;
        self.usage.add(&usage);
        self.requests = self.requests.saturating_add(u32::from(row.kind == UsageKind::Request));
        if let (Some(provider), Some(model)) = (&row.provider, &row.model_id) {
            let model = format!("{provider}/{model}");
            self.by_model.entry(model.clone()).or_default().add(&usage);
            if is_unpriced {
                self.unpriced.insert(model);
            }
        }
    }
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
                Message::ToolResult(_) | Message::User(_) | Message::Custom(_) => {}
            },
            Event::Usage { row, totals: _ } => self.add_row(row),
            // Also of replies that came in a dead process.
            Event::RunEnd { messages, .. } => {
                let replies = messages.iter().rev().filter_map(|message| message.as_assistant());
                if let Some(text) = replies.map(AssistantMessage::text).find(|text| !text.is_empty()) {
                    self.text = text;
                }
            }
            Event::RunStart { .. }
            | Event::MessageUpdate { .. }
            | Event::ToolUpdate { .. }
            | Event::TurnEnd { .. }
            | Event::RunResume { .. }
            | Event::RecoveryStep { .. }
            | Event::OperationAbort { .. }
            | Event::RetryScheduled { .. }
            | Event::RetryStart { .. }
            | Event::RetryEnd { .. }
            | Event::ModelFallback { .. }
            | Event::EntryAdded { .. }
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
        let text = reply.text();
        if !text.is_empty() {
            self.text = text;
        }
        // A reply without a duration closes a cancelled run or settles what a dead process asked for: this one asked for
        // nothing, so that the wait for the first delta has not begun.
        let Some(duration_ms) = reply.duration_ms else {
            if self.requests == 0 && self.first_token_ms.is_none() {
                self.first_request_ms = None;
            }
            return;
        };
        self.api_ms = self.api_ms.saturating_add(duration_ms);
    }
}

fn is_any(usage: &Usage) -> bool {
    usage.input > 0 || usage.output > 0 || usage.cache_read > 0 || usage.cache_write > 0 || usage.total_tokens > 0
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Map;

    use super::Account;
    use crate::model::{
        AssistantBlock, AssistantHead, AssistantMessage, BlockEvent, Cost, EntryId, Event, Message, Reason, RunOutcome,
        StopReason, Usage, UsageKind, UsageRow,
    };

    fn row(kind: UsageKind, model: Option<&str>, tokens: u64, cost: Option<f64>) -> UsageRow {
        UsageRow {
            id: EntryId::new("u"),
            operation_id: None,
            lane: None,
            kind,
            provider: model.map(|_| "p".to_owned()),
            model_id: model.map(str::to_owned),
            // What a row says beside its cost does not count.
            usage: Usage {
                input: tokens,
                total_tokens: tokens,
                cost: Cost { total: 9.0, ..Cost::default() },
                ..Usage::default()
            },
            cost,
            entry_id: None,
            details: None,
            extra: Map::new(),
        }
    }

    #[test]
    fn an_operation_is_counted_from_its_rows_failed_attempts_included() {
        let rows = [
            row(UsageKind::Request, Some("a"), 0, Some(0.0)),
            row(UsageKind::Request, Some("a"), 10, Some(0.5)),
            row(UsageKind::Tool, None, 4, Some(0.25)),
            row(UsageKind::Summary, Some("b"), 2, Some(1.0)),
        ];
        let account = Account::of_operation(&rows, 2, 3);
        assert_eq!((account.turns, account.tool_calls, account.requests), (2, 3, 2));
        assert_eq!((account.usage.input, account.cost_usd()), (16, Some(1.75)));
        let shares = account.usage_by_model();
        let shares: Vec<_> =
            shares.iter().map(|(model, share)| (model.as_str(), share.input, share.cost_usd)).collect();
        assert_eq!(shares, [("p/a", 10, Some(0.5)), ("p/b", 2, Some(1.0))], "a tool's are no model's");
    }

    #[test]
    fn a_cost_is_known_unless_something_without_a_price_was_used() {
        let priced = row(UsageKind::Request, Some("a"), 1, Some(0.5));
        let table = [
            (row(UsageKind::Request, Some("free"), 1, Some(0.0)), Some(0.5), Some(Some(0.0))),
            (row(UsageKind::Request, Some("free"), 0, None), Some(0.5), Some(Some(0.0))),
            (row(UsageKind::Request, Some("free"), 1, None), None, Some(None)),
            (row(UsageKind::Tool, None, 1, None), None, None),
        ];
        for (other, expected, share) in table {
            let account = Account::of_operation(&[priced.clone(), other.clone()], 1, 0);
            assert_eq!(account.cost_usd(), expected, "{other:?}");
            let shares = account.usage_by_model();
            assert_eq!(shares.iter().find(|(model, _)| model == "p/a").unwrap().1.cost_usd, Some(0.5));
            let found = shares.iter().find(|(model, _)| model == "p/free").map(|(_, share)| share.cost_usd);
            assert_eq!(found, share, "{other:?}");
        }
        assert_eq!(Account::of_operation(&[], 0, 0).cost_usd(), Some(0.0), "nothing was used");
    }

    fn reply(text: &str, duration_ms: Option<u64>) -> Arc<Message> {
        let mut reply = AssistantMessage::pending(&AssistantHead::default());
        reply.content = vec![AssistantBlock::text(text)];
        reply.stop_reason = StopReason::Error;
        reply.duration_ms = duration_ms;
        Arc::new(Message::Assistant(reply))
    }

    fn pair(account: &mut Account, message: &Arc<Message>, at_ms: u64, first_token_ms: Option<u64>) {
        account.count(&Event::MessageStart { message: Arc::clone(message) }, at_ms);
        if let Some(at_ms) = first_token_ms {
            let event = BlockEvent::TextDelta("x".to_owned());
            account.count(&Event::MessageUpdate { index: 0, event, usage: None }, at_ms);
        }
        account.count(&Event::MessageEnd { message: Arc::clone(message), entry_id: None }, at_ms);
        if message.as_assistant().is_some_and(|reply| reply.duration_ms.is_some()) {
            let row = Arc::new(row(UsageKind::Request, Some("a"), 7, Some(0.5)));
            account.count(&Event::Usage { row, totals: Usage::default() }, at_ms);
        }
    }

    #[test]
    fn attempts_are_requests_and_what_a_dead_process_asked_for_is_not() {
        let mut account = Account::default();
        pair(&mut account, &reply("cut", None), 5, None);
        assert_eq!((account.requests, account.text.as_str()), (0, "cut"), "the last text, if nothing follows");
        pair(&mut account, &reply("", Some(30)), 40, None);
        pair(&mut account, &reply("whole", Some(20)), 100, Some(110));
        assert_eq!((account.requests, account.api_ms, account.text.as_str()), (2, 50, "whole"));
        assert_eq!(account.first_token_ms, Some(70), "from the first request of this process");
    }

    #[test]
    fn a_run_that_only_had_to_be_finished_has_the_text_of_its_last_reply() {
        let mut account = Account::of_operation(&[row(UsageKind::Request, Some("a"), 7, Some(0.5))], 4, 2);
        let messages = vec![reply("early", Some(1)), reply("late", Some(1)), reply("", Some(1))];
        let outcome =
            RunOutcome { messages: Vec::new(), stop_reason: None, reason: Reason::Completed, error: None, cause: None };
        account.count(&Event::RunEnd { messages, outcome: Arc::new(outcome), result: None }, 1);
        assert_eq!((account.text.as_str(), account.turns, account.requests, account.usage.input), ("late", 4, 1, 7));
    }
}
