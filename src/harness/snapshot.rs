//! What a lane looks like now, as a fold over its events.
//!
//! Keeps true: the fold is pure and total; a snapshot and the events behind it give the next snapshot; a delta costs its
//! text; cloning copies no message but the one that streams.
//!
//! Must not know: stores, drivers, how a snapshot is first made.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::model::{
    AssistantHead, AssistantMessage, Entry, EntryBody, EntryId, Event, LaneConfig, LaneEvent, Message, MessageBuilder,
    OperationResult, Queued, RunId, StopReason, ToolResultView,
};
use crate::port::Stats;

/// A lane at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub lane: String,
    /// The last event whose effect is in it. A listener may take a snapshot that is ahead of what it hears.
    pub seq: u64,
    /// The path to the tip, oldest first.
    pub transcript: Vec<Arc<Entry>>,
    pub tip_id: Option<EntryId>,
    /// How the last operation ended.
    pub last_result: Option<Arc<OperationResult>>,
    pub configuration: Option<LaneConfig>,
    /// Of the whole session, other lanes included.
    pub stats: Stats,
    /// The one that is open.
    pub operation: Option<OperationView>,
    /// What waits for its place, in order.
    pub queues: Vec<Queued>,
    /// Nothing more can be written; what is open stays so until the session is opened again. What was stored and not
    /// told before the fault is in it.
    pub faulted: bool,
}

/// An open operation.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationView {
    pub id: RunId,
    /// `run`.
    pub kind: String,
    /// Milliseconds since 1970.
    pub started_at: u64,
    /// The lane's tip before it.
    pub from_tip_id: Option<EntryId>,
    pub status: OperationStatus,
    /// A failed attempt waits to be repeated.
    pub retry: Option<RetryView>,
    /// Calls that have started and have no result in the tree, in the order of their starts.
    pub running_tools: Vec<RunningTool>,
    streaming: Option<Box<MessageBuilder>>,
}

/// Whether an open operation was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationStatus {
    Open,
    Aborting,
}

/// The wait before an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryView {
    /// The coming one.
    pub attempt: u32,
    pub max_attempts: u32,
    /// Milliseconds since 1970.
    pub not_before: u64,
    /// Of the failed attempt.
    pub error_message: String,
}

/// A call between its start and its place in the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningTool {
    pub tool_call_id: String,
    pub tool_name: String,
    /// As the model wrote them.
    pub args: Arc<Map<String, Value>>,
    /// Where the tool gets something else.
    pub effective_args: Option<Arc<Value>>,
    /// The last progress.
    pub partial: Option<Arc<ToolResultView>>,
    /// Its outcome, which waits for its place.
    pub settled: Option<SettledTool>,
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct SettledTool {
    pub result: Arc<ToolResultView>,
    pub is_error: bool,
    /// Absent if the tool never ran.
    pub duration_ms: Option<u64>,
}

impl OperationView {
    /// An open operation in which nothing goes on.
    pub fn new(id: RunId, kind: impl Into<String>, started_at: u64, from_tip_id: Option<EntryId>) -> Self {
        Self {
            id,
            kind: kind.into(),
            started_at,
            from_tip_id,
            status: OperationStatus::Open,
            retry: None,
            running_tools: Vec::new(),
            streaming: None,
        }
    }

    /// The reply that streams, as far as it came, with stop reason `pending`; the arguments of an unfinished call as far
    /// as they can be read. Copies; ask rarely.
    pub fn streaming_message(&self) -> Option<AssistantMessage> {
        self.streaming.as_ref().map(|builder| builder.snapshot())
    }

    /// Shows what goes on as another view of this operation does.
    pub(super) fn show(&mut self, other: &Self) {
        self.running_tools.clone_from(&other.running_tools);
        self.streaming.clone_from(&other.streaming);
    }

    fn tool(&mut self, tool_call_id: &str) -> Option<&mut RunningTool> {
        self.running_tools.iter_mut().find(|tool| tool.tool_call_id == tool_call_id)
    }

    fn upsert(&mut self, started: RunningTool) {
        match self.tool(&started.tool_call_id) {
            Some(tool) => *tool = started,
            None => self.running_tools.push(started),
        }
    }

    /// Changes what goes on inside the operation.
    pub(super) fn apply(&mut self, event: &Event) {
        match event {
            Event::OperationAbort { .. } => self.status = OperationStatus::Aborting,
            // What a drive left behind that was broken off.
            Event::RunResume { .. } => {
                self.streaming = None;
                self.running_tools.clear();
            }
            Event::RetryScheduled { attempt, max_attempts, delay_ms: _, not_before, error_message } => {
                self.retry = Some(RetryView {
                    attempt: *attempt,
                    max_attempts: *max_attempts,
                    not_before: *not_before,
                    error_message: error_message.clone(),
                });
            }
            Event::RetryStart { .. } | Event::RetryEnd { .. } => self.retry = None,
            Event::MessageStart { message } => self.streaming = streaming(message),
            Event::MessageUpdate { index, event, usage } => {
                if let Some(builder) = &mut self.streaming {
                    // What the driver let through fits.
                    let _fits = builder.fold(*index, event);
                    if let Some(usage) = usage {
                        builder.usage((**usage).clone());
                    }
                }
            }
            Event::MessageEnd { .. } => self.streaming = None,
            Event::ToolStart { tool_call_id, tool_name, args, effective_args } => self.upsert(RunningTool {
                tool_call_id: tool_call_id.clone(),
                tool_name: tool_name.clone(),
                args: Arc::clone(args),
                effective_args: effective_args.clone(),
                partial: None,
                settled: None,
            }),
            Event::ToolUpdate { tool_call_id, tool_name: _, partial } => {
                if let Some(tool) = self.tool(tool_call_id) {
                    tool.partial = Some(Arc::clone(partial));
                }
            }
            Event::ToolEnd { tool_call_id, tool_name: _, result, is_error, duration_ms } => {
                if let Some(tool) = self.tool(tool_call_id) {
                    tool.settled = Some(SettledTool {
                        result: Arc::clone(result),
                        is_error: *is_error,
                        duration_ms: *duration_ms,
                    });
                }
            }
            Event::EntryAdded { entry } => {
                if let EntryBody::Message { message, .. } = &entry.body
                    && let Message::ToolResult(result) = &**message
                {
                    self.running_tools.retain(|tool| tool.tool_call_id != result.tool_call_id);
                }
            }
            Event::RunStart { .. }
            | Event::TurnStart { .. }
            | Event::TurnEnd { .. }
            | Event::RunEnd { .. }
            | Event::RecoveryStep { .. }
            | Event::ModelFallback { .. }
            | Event::Usage { .. }
            | Event::QueueUpdate { .. }
            | Event::ConfigUpdate { .. }
            | Event::ValueUpdate { .. }
            | Event::LaneCreated { .. }
            | Event::HandlerError { .. }
            | Event::Warning { .. }
            | Event::Fault { .. } => {}
        }
    }
}

/// Makes a snapshot that of the moment after an event. What it holds already changes nothing; of another lane's events
/// only what they add to the statistics of the session counts.
pub fn reduce(snapshot: &mut Snapshot, event: &LaneEvent) {
    if event.seq != 0 {
        if event.seq <= snapshot.seq {
            return;
        }
        snapshot.seq = event.seq;
    }
    count(&mut snapshot.stats, &event.event);
    if *event.lane != *snapshot.lane {
        return;
    }
    if let Some(operation) = &mut snapshot.operation {
        operation.apply(&event.event);
    }
    match &event.event {
        Event::RunStart { run_id, started_at } => {
            let from_tip_id = snapshot.tip_id.clone();
            snapshot.operation = Some(OperationView::new(run_id.clone(), "run", *started_at, from_tip_id));
        }
        Event::RunEnd { result, .. } => {
            snapshot.operation = None;
            if let Some(result) = result {
                cut(snapshot, result.tip_id.as_ref());
                snapshot.last_result = Some(Arc::clone(result));
            }
        }
        Event::EntryAdded { entry } => {
            snapshot.tip_id = Some(entry.id.clone());
            snapshot.transcript.push(Arc::clone(entry));
        }
        Event::QueueUpdate { queues } => snapshot.queues.clone_from(queues),
        Event::ConfigUpdate { config, previous: _ } => snapshot.configuration = Some((**config).clone()),
        Event::Fault { .. } => snapshot.faulted = true,
        Event::TurnStart { .. }
        | Event::MessageStart { .. }
        | Event::MessageUpdate { .. }
        | Event::MessageEnd { .. }
        | Event::ToolStart { .. }
        | Event::ToolUpdate { .. }
        | Event::ToolEnd { .. }
        | Event::TurnEnd { .. }
        | Event::RunResume { .. }
        | Event::RecoveryStep { .. }
        | Event::OperationAbort { .. }
        | Event::RetryScheduled { .. }
        | Event::RetryStart { .. }
        | Event::RetryEnd { .. }
        | Event::ModelFallback { .. }
        | Event::Usage { .. }
        | Event::ValueUpdate { .. }
        | Event::LaneCreated { .. }
        | Event::HandlerError { .. }
        | Event::Warning { .. } => {}
    }
}

/// Counts what an event adds to the session, whichever lane it is of.
fn count(stats: &mut Stats, event: &Event) {
    if let Event::EntryAdded { entry } = event
        && matches!(entry.body, EntryBody::Message { .. })
    {
        stats.message_count = stats.message_count.saturating_add(1);
    }
    if let Event::Usage { totals, .. } = event {
        stats.usage = totals.clone();
    }
}

/// Goes back to an earlier tip: a refused prompt stays in the tree and leaves the path. `None` is the tip of a lane
/// that was empty before.
fn cut(snapshot: &mut Snapshot, tip_id: Option<&EntryId>) {
    let kept = match tip_id {
        None => 0,
        Some(tip_id) => match snapshot.transcript.iter().rposition(|entry| entry.id == *tip_id) {
            Some(at) => at + 1,
            None => return,
        },
    };
    snapshot.transcript.truncate(kept);
    snapshot.tip_id = tip_id.cloned();
}

/// What collects a reply that begins. Other messages, and replies that are complete from the start, do not stream.
fn streaming(message: &Message) -> Option<Box<MessageBuilder>> {
    let reply = message.as_assistant().filter(|reply| reply.stop_reason == StopReason::Pending)?;
    let head = AssistantHead {
        api: reply.api.clone(),
        provider: reply.provider.clone(),
        model: reply.model.clone(),
        timestamp: reply.timestamp,
    };
    Some(Box::new(MessageBuilder::new(&head)))
}

#[cfg(test)]
mod tests;
