//! Events to JSON lines: the only place that knows a key of the stream.
//!
//! Keeps true: one object per line, `type` first, then `seq` and `ts`; no raw line feed inside; an update carries its
//! delta and never the whole message, so size stays linear; each new event is a compile error here until its line is
//! decided.
//!
//! Must not know: who reads, how lines are written.
//!
//! # The format, version 1
//!
//! UTF-8, one object per line, lines end in one line feed and nothing else, no byte-order mark. U+2028 and U+2029 may
//! stand inside strings, so split at line feeds only. `config/schemas/events.schema.json` says the same as this page to
//! a validator.
//!
//! **Compatibility.** Readers ignore types and fields they do not know: new ones may come in any version of the
//! program. Removing a field or changing its type raises `version` of the `session` line.
//!
//! # What a reader can rely on
//!
//! - **G1** The first line is `session`, the last one is `result`, each exactly once. A call that ends before anything
//!   is sent (a mistake in the call or the configuration, a missing key) has its `result` alone, and so has the level
//!   `result`. Only a second signal, SIGKILL and a reader that takes nothing any more can end a stream without it.
//! - **G2** A write holds one or more whole lines and is flushed as soon as nothing more is queued; only a line longer
//!   than 64 KiB comes in several writes, of at most 64 KiB each. No event is dropped.
//!   When the reader is slow, adjacent deltas of one block may come as one; their concatenation is unchanged.
//! - **G3** `seq` counts from 0 without a gap. `ts` is milliseconds since 1970 and never goes back.
//! - **G4** Every start has its end, in the order of nesting: run, turn, then message or call. Also after an abort or an
//!   error, but not where the session can no longer be written: a `warning` of that kind comes directly before `result`.
//! - **G5** The `message_end` of a reply comes before the `tool_execution_start` of its calls. When calls run together,
//!   their ends come as they happen; the result messages come in the order of the calls in the reply.
//! - **G6** `message_end`, `turn_end`, `agent_end` and `result` are written after what they claim is stored and, under
//!   the durability `normal`, synced; the result of a call is stored with its message. `tool_execution_start` of a tool
//!   that may not run twice follows the sync of all before it. A call that never runs has its start directly before its
//!   end.
//! - **G7** What an end says is authoritative over the deltas before it, and `message_end` over everything before it. A
//!   `message_update` never repeats the message.
//! - **G8** The rule of compatibility above.
//! - **G9** Stdout holds nothing else. Beside a JSON stream, stderr has notices, warnings and errors only, unless `-v`
//!   asks for more.
//!
//! `--json=messages` leaves out `message_update` and `tool_execution_update`; `--json=result` leaves out everything but
//! the last line. `seq` counts the lines that are there.
//!
//! # Order
//!
//! ```text
//! stream := session run* result | result
//! run    := agent_start turn* agent_end
//! turn   := turn_start (message_start message_end)*                      user messages
//!           (message_start message_update* message_end)*                 the reply, after the attempts that failed
//!           (tool_execution_start | tool_execution_update | tool_execution_end permission_denied?
//!               | message_start message_end)*
//!                                                                        its calls and their results
//!           turn_end
//! ```
//!
//! A call without a prompt over a session whose answer is complete has no run: the `result` line tells the answer
//! again, and counts nothing. A run that goes on without a new prompt has no message before its first reply.
//!
//! A turn that ends before any reply has none, and its `turn_end` says null. Each attempt is a reply of its own; the last
//! one is that of the turn. `auto_retry_start` tells of an attempt to come; one `auto_retry_end` tells how a model's
//! attempts ended, if there were several.
//!
//! `auto_retry_start`, `auto_retry_end`, `model_fallback`, `queue_update`, `recovery` and `warning` may stand anywhere
//! between the first and the last line. The docs of [`agent`](crate::agent) tell the order inside a turn more exactly.
//!
//! **A run that goes on.** A run that a dead process began goes on with an `agent_start` of the same `runId`, once in
//! each process. That line has `recovery` (true), and so has each that begins again, or settles, a turn, message, call or
//! retry that was begun before; what ends in this process, such as its turn, has not. What a dead process told is not told again: a turn goes on without its messages so far, `turn_end` has them all the
//! same, and a result whose call ended before has its messages alone. `agent_end` has what the whole run added. A run
//! that only had to be finished has no turn. Each step by which something left over is settled has a `recovery` line.
//!
//! # Lines
//!
//! Every line also has `type`, `seq` and `ts`; those of the types marked with `*` have `recovery` (true) behind their
//! other fields, where they tell of what a dead process began. `?` marks a field that may be absent, `|` an alternative. Messages,
//! blocks and usage are written as the docs of `model::message` say.
//!
//! | type | fields |
//! |---|---|
//! | `session` | `version` (1), `pirn` (the program's version), `id` (of the session), `name`? (of the session, if it has one), `timestamp` (RFC 3339), `cwd`, `file`\|null (the session file; null = nothing is kept), `parent`? {`id`, `entryId`}, `resumed` (the session was there before this call), `recovered` (what a dead process had left open in it was put in order first), `leafId`\|null (its newest entry before the run; null = none), `model` {`provider`, `id`}, `thinking`\|null (null = the model's default), `tools` (names), `limits` {`maxTurns`, `maxCost`, `timeoutMs`; null = none}, `configFiles` (paths, lowest layer first) |
//! | `agent_start` * | `runId` |
//! | `turn_start` * | `turn` (from 1) |
//! | `message_start` * | `message`: complete, but for a reply, which is empty and of stop reason `pending` |
//! | `message_update` * | `assistantMessageEvent`, `usage`? (only when the provider reported new numbers; the last one holds) |
//! | `message_end` * | `message`, `entryId`\|null (the id of its entry in the session; null = not stored, as a reply that only tells of a cancellation; with `file` null the id is known to this process only) |
//! | `tool_execution_start` * | `toolCallId`, `toolName`, `args` (the model's, as they came), `effectiveArgs`? (what the tool gets, where repair, coercion or a hook made a difference) |
//! | `tool_execution_update` * | `toolCallId`, `toolName`, `partialResult`: the whole view so far, as in `result` |
//! | `tool_execution_end` * | `toolCallId`, `toolName`, `result` {`content`, `details`?, `usage`?, `structuredContent`?}, `isError`, `terminate`? (true), `durationMs`? (absent if the call never ran) |
//! | `permission_denied` | `toolCallId`, `toolName`, `rule` (`confine`: the path is outside of what the tools may touch), `reason`; directly behind the `tool_execution_end` of the refused call |
//! | `turn_end` * | `turn`, `message`\|null (the reply), `toolResults` (messages, in the order of the calls) |
//! | `agent_end` | `messages`: all the run added, in order |
//! | `auto_retry_start` * | `attempt` (the coming one, from 2), `maxAttempts`, `delayMs` (until it starts), `errorMessage` (why the last one failed) |
//! | `auto_retry_end` * | `success`, `attempt` (the last one), `finalError`? |
//! | `model_fallback` | `from`, `to` (both `provider/id`), `errorMessage`: the turn goes on with another model |
//! | `recovery` | `operationId` (the `runId`), `state` (what was found, such as `assistant.effect_pending`), `action` (`settle`: a reply that was cut off is kept as far as it came; `rerun`: a call runs again; `interrupt`: a call does not run again, and the model is told; `place`: results that waited get their place; `resume`: nothing had started, or a cancelled run is brought to its end), `toolCallId`? |
//! | `queue_update` | `steering`, `followUp`: both queues whole |
//! | `warning` | `code` (a word; before the run `config`, `model`, `session` or `input`; in it `max_turns` when most turns are used, `inbox` for what other processes left and is not taken, `frames` where a cut reply is known in part only, `dropped` for queued messages that end with the run, and words of the provider such as `image_refused`; at its end `length` for an answer that is cut off, `children` for processes that could not be ended, `events` and `log` for files that are not complete; `hook` and `listener` for one that failed; `commit_failed`, `foreign_write`, `corrupt_session`, `needs_newer` or `harness_fault` where nothing can be stored any more, which ends the run at once; more may come), `message` |
//! | `result` | below |
//!
//! `assistantMessageEvent` has a `type`, the `contentIndex` of its block, and:
//!
//! | type | fields |
//! |---|---|
//! | `text_start`, `thinking_start` | |
//! | `toolcall_start` | `id`, `toolName` |
//! | `text_delta`, `thinking_delta`, `toolcall_delta` | `delta`; of a call it is JSON text |
//! | `text_end`, `thinking_end` | `content`, the whole text; signatures stand in `message_end` only |
//! | `toolcall_end` | `toolCall`, the whole block |
//!
//! Blocks may overlap: key on `contentIndex`, never on "the current block". To rebuild a reply: at `message_start` take
//! the message; at a start put an empty block at its index; append deltas to the text, the thinking or the raw
//! arguments; at an end replace the block; at `message_end` replace everything.
//!
//! # The `result` line
//!
//! Every field is always there; what is not known is null.
//!
//! | field | says |
//! |---|---|
//! | `ok` | whether `exitCode` is 0; there is no second verdict |
//! | `exitCode` | the exit code of the process, see [`exit`](crate::exit); a signal is 128 + its number |
//! | `stopReason` | that of the last reply; null = there was none; `aborted` where the run was ended before its answer |
//! | `reason` | the verdict in one word, see [`Reason`](crate::model::Reason) |
//! | `text` | the last text of the model, also on failure |
//! | `structured` | null in this version |
//! | `error` | null, or {`kind`, `message`, `retryable`, `provider`?, `httpStatus`?, `code`?, `type`?, `requestId`?, `retryAfterMs`?, `promptTokens`?, `limit`?, `hint`?}; the kinds are those of [`ErrorKind`](crate::model::ErrorKind) |
//! | `sessionId` | the session, also where nothing is kept; null = the call ended before there was one |
//! | `sessionFile` | its file; null = nothing is kept |
//! | `leafId` | its newest entry, as in `message_end`; null = none |
//! | `resumable` | whether `pirn -c` can go on from here: it is kept, and nothing failed to be stored |
//! | `model` | {`provider`, `id`}; null = none was chosen |
//! | `turns`, `requests`, `toolCalls` | counts, as all sums below, of whole runs, what dead processes did of them included; each attempt is a request |
//! | `denials` | [{`toolCallId`, `toolName`, `rule`}], one for each `permission_denied` |
//! | `usage` | {`input`, `output`, `cacheRead`, `cacheWrite`, `reasoning`?, `totalTokens`, `estimated`?}; `input` counts uncached tokens only |
//! | `costUsd` | null = some model used has no known price |
//! | `usageByModel` | `provider/id` → {`input`, `output`, `costUsd`} |
//! | `durationMs`, `apiDurationMs`, `firstTokenMs` | of the whole call; of its requests; from the first request to the first delta, null = none came |
//! | `pendingFollowUps` | messages that still wait |

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::sentence::{dropped, failed_handler};
use super::{ResultLine, SessionLine, denial};
use crate::model::{BlockEvent, Content, Event, InboxKind, Message, Queued, ToolCall, ToolResultView, Usage};

/// What a reader wants to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Every event.
    #[default]
    Events,
    /// No updates: whole messages and finished calls only.
    Messages,
    /// The `result` line only.
    Result,
}

/// Writes the lines of one stream.
#[derive(Clone, Debug)]
pub struct Encoder {
    level: Level,
    next_seq: u64,
    last_ts: u64,
}

impl Encoder {
    /// A stream without a line.
    pub fn new(level: Level) -> Self {
        Self { level, next_seq: 0, last_ts: 0 }
    }

    /// Appends the `session` line. `ts` is Unix milliseconds, here and below.
    pub fn session(&mut self, body: &SessionLine, ts: u64, out: &mut Vec<u8>) {
        if self.level != Level::Result {
            self.framed("session", body, ts, out);
        }
    }

    /// Appends the `result` line.
    pub fn result(&mut self, body: &ResultLine, ts: u64, out: &mut Vec<u8>) {
        self.framed("result", body, ts, out);
    }

    /// Appends the line of an event, if it has one and the level does not leave it out. `recovery` = it tells of work
    /// that a dead process began.
    pub fn event(&mut self, event: &Event, recovery: bool, ts: u64, out: &mut Vec<u8>) {
        let Some(name) = line_type(event) else { return };
        if !self.wants(event) {
            return;
        }
        let mut line = self.open(name, ts, out);
        fields(&mut line, event);
        line.optional("recovery", is_recovery(event, recovery).then_some(&true));
        line.end();
        if let Some((denied, reason)) = denial(event) {
            let mut line = self.open("permission_denied", ts, out);
            line.call(&denied.tool_call_id, &denied.tool_name);
            line.field("rule", &denied.rule);
            line.field("reason", &reason);
            line.end();
        }
    }

    fn wants(&self, event: &Event) -> bool {
        match self.level {
            Level::Events => true,
            Level::Messages => !matches!(event, Event::MessageUpdate { .. } | Event::ToolUpdate { .. }),
            Level::Result => false,
        }
    }

    fn stamp(&mut self, ts: u64) -> (u64, u64) {
        let seq = self.next_seq;
        self.next_seq = self.next_seq.saturating_add(1);
        self.last_ts = self.last_ts.max(ts);
        (seq, self.last_ts)
    }

    fn open<'a>(&mut self, name: &str, ts: u64, out: &'a mut Vec<u8>) -> Line<'a> {
        let (seq, ts) = self.stamp(ts);
        out.extend_from_slice(b"{\"type\":");
        let mut line = Line { out };
        line.value(name);
        line.field("seq", &seq);
        line.field("ts", &ts);
        line
    }

    fn framed<T: Serialize>(&mut self, type_: &'static str, body: &T, ts: u64, out: &mut Vec<u8>) {
        let (seq, ts) = self.stamp(ts);
        let mut line = Line { out };
        line.value(&Framed { type_, seq, ts, body });
        line.out.push(b'\n');
    }
}

#[derive(Serialize)]
struct Framed<'a, T> {
    #[serde(rename = "type")]
    type_: &'static str,
    seq: u64,
    ts: u64,
    #[serde(flatten)]
    body: &'a T,
}

/// A line under construction: an object whose closing brace is still to come.
struct Line<'a> {
    out: &'a mut Vec<u8>,
}

impl Line<'_> {
    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.out.extend_from_slice(b",\"");
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.value(value);
    }

    fn optional<T: Serialize>(&mut self, name: &str, value: Option<&T>) {
        if let Some(value) = value {
            self.field(name, value);
        }
    }

    fn call(&mut self, id: &str, name: &str) {
        self.field("toolCallId", id);
        self.field("toolName", name);
    }

    fn warning(&mut self, code: &str, message: &str) {
        self.field("code", code);
        self.field("message", message);
    }

    /// Writes straight into the buffer. Serialising to memory fails only for maps whose keys are no text, which no
    /// type here has; should one appear, its value becomes null and the line stays one object.
    fn value<T: Serialize + ?Sized>(&mut self, value: &T) {
        let start = self.out.len();
        if serde_json::to_writer(&mut *self.out, value).is_err() {
            self.out.truncate(start);
            self.out.extend_from_slice(b"null");
        }
    }

    fn end(self) {
        self.out.extend_from_slice(b"}\n");
    }
}

/// The type of an event's line; `None` = it has none.
fn line_type(event: &Event) -> Option<&'static str> {
    match event {
        Event::RunResume { .. } => Some("agent_start"),
        Event::HandlerError { .. } => Some("warning"),
        Event::OperationAbort { steer, follow_up, .. } if !steer.is_empty() || !follow_up.is_empty() => Some("warning"),
        Event::OperationAbort { .. }
        | Event::RetryStart { .. }
        | Event::EntryAdded { .. }
        | Event::Usage { .. }
        | Event::ConfigUpdate { .. }
        | Event::ValueUpdate { .. }
        | Event::LaneCreated { .. } => None,
        Event::RunStart { .. }
        | Event::TurnStart { .. }
        | Event::MessageStart { .. }
        | Event::MessageUpdate { .. }
        | Event::MessageEnd { .. }
        | Event::ToolStart { .. }
        | Event::ToolUpdate { .. }
        | Event::ToolEnd { .. }
        | Event::TurnEnd { .. }
        | Event::RunEnd { .. }
        | Event::RecoveryStep { .. }
        | Event::RetryScheduled { .. }
        | Event::RetryEnd { .. }
        | Event::ModelFallback { .. }
        | Event::QueueUpdate { .. }
        | Event::Warning { .. }
        | Event::Fault { .. } => Some(event.name()),
    }
}

/// Whether a line says that it tells of a dead process's work: those of runs, turns, messages, calls and retries do.
fn is_recovery(event: &Event, recovery: bool) -> bool {
    match event {
        Event::RunResume { .. } => true,
        Event::RunStart { .. }
        | Event::TurnStart { .. }
        | Event::MessageStart { .. }
        | Event::MessageUpdate { .. }
        | Event::MessageEnd { .. }
        | Event::ToolStart { .. }
        | Event::ToolUpdate { .. }
        | Event::ToolEnd { .. }
        | Event::TurnEnd { .. }
        | Event::RetryScheduled { .. }
        | Event::RetryEnd { .. } => recovery,
        _ => false,
    }
}

/// What the line of an event says. One match, so that a new event is decided here.
fn fields(line: &mut Line<'_>, event: &Event) {
    match event {
        Event::RunStart { run_id, .. } | Event::RunResume { run_id, .. } => line.field("runId", run_id),
        Event::TurnStart { turn } => line.field("turn", turn),
        Event::MessageStart { message } => line.field("message", message),
        Event::MessageUpdate { index, event, usage } => update(line, *index, event, usage.as_deref()),
        Event::MessageEnd { message, entry_id } => {
            line.field("message", message);
            line.field("entryId", entry_id);
        }
        Event::ToolStart { .. } | Event::ToolUpdate { .. } | Event::ToolEnd { .. } => call(line, event),
        Event::TurnEnd { turn, message, tool_results } => {
            line.field("turn", turn);
            line.field("message", message);
            line.field("toolResults", tool_results);
        }
        Event::RunEnd { messages, .. } => line.field("messages", messages),
        Event::RecoveryStep { run_id, state, action, tool_call_id, notice: _ } => {
            line.field("operationId", run_id);
            line.field("state", state);
            line.field("action", action.as_str());
            line.optional("toolCallId", tool_call_id.as_ref());
        }
        Event::RetryScheduled { attempt, max_attempts, delay_ms, not_before: _, error_message } => {
            line.field("attempt", attempt);
            line.field("maxAttempts", max_attempts);
            line.field("delayMs", delay_ms);
            line.field("errorMessage", error_message);
        }
        Event::RetryEnd { attempt, success, final_error } => {
            line.field("success", success);
            line.field("attempt", attempt);
            line.optional("finalError", final_error.as_ref());
        }
        Event::ModelFallback { from, to, error_message } => {
            line.field("from", from);
            line.field("to", to);
            line.field("errorMessage", error_message);
        }
        Event::QueueUpdate { queues } => {
            line.field("steering", &waiting(queues, &[InboxKind::Steer]));
            line.field("followUp", &waiting(queues, &[InboxKind::FollowUp, InboxKind::NextFollowUp]));
        }
        Event::HandlerError { kind, name, error } => {
            let (code, message) = failed_handler(*kind, name, error);
            line.warning(code, &message);
        }
        Event::Warning { code, message } => line.warning(code, message),
        Event::Fault { error } => line.warning(error.code.as_deref().unwrap_or(error.kind.as_str()), &error.message),
        Event::OperationAbort { steer, follow_up, .. } => {
            if let Some(message) = dropped(steer.iter().chain(follow_up)) {
                line.warning("dropped", &message);
            }
        }
        Event::RetryStart { .. }
        | Event::EntryAdded { .. }
        | Event::Usage { .. }
        | Event::ConfigUpdate { .. }
        | Event::ValueUpdate { .. }
        | Event::LaneCreated { .. } => {}
    }
}

/// What a line of a call says.
fn call(line: &mut Line<'_>, event: &Event) {
    match event {
        Event::ToolStart { tool_call_id, tool_name, args, effective_args } => {
            line.call(tool_call_id, tool_name);
            line.field("args", args);
            line.optional("effectiveArgs", effective_args.as_ref());
        }
        Event::ToolUpdate { tool_call_id, tool_name, partial } => {
            line.call(tool_call_id, tool_name);
            line.field("partialResult", &ResultView::from(&**partial));
        }
        Event::ToolEnd { tool_call_id, tool_name, result, is_error, duration_ms } => {
            line.call(tool_call_id, tool_name);
            line.field("result", &ResultView::from(&**result));
            line.field("isError", is_error);
            line.optional("terminate", result.terminate.then_some(&true));
            line.optional("durationMs", duration_ms.as_ref());
        }
        _ => {}
    }
}

fn update(line: &mut Line<'_>, index: usize, event: &BlockEvent, usage: Option<&Usage>) {
    let name = match event {
        BlockEvent::TextStart => "text_start",
        BlockEvent::TextDelta(_) => "text_delta",
        BlockEvent::TextEnd { .. } => "text_end",
        BlockEvent::ThinkingStart => "thinking_start",
        BlockEvent::ThinkingDelta(_) => "thinking_delta",
        BlockEvent::ThinkingEnd { .. } => "thinking_end",
        BlockEvent::ToolCallStart { .. } => "toolcall_start",
        BlockEvent::ToolCallDelta(_) => "toolcall_delta",
        BlockEvent::ToolCallEnd(_) => "toolcall_end",
    };
    line.out.extend_from_slice(b",\"assistantMessageEvent\":{\"type\":");
    line.value(name);
    line.field("contentIndex", &index);
    match event {
        BlockEvent::TextStart | BlockEvent::ThinkingStart => {}
        BlockEvent::TextDelta(delta) | BlockEvent::ThinkingDelta(delta) | BlockEvent::ToolCallDelta(delta) => {
            line.field("delta", delta);
        }
        // Signatures stay in the message.
        BlockEvent::TextEnd { content, signature: _ }
        | BlockEvent::ThinkingEnd { content, signature: _, redacted: _ } => {
            line.field("content", content);
        }
        BlockEvent::ToolCallStart { id, name } => {
            line.field("id", id);
            line.field("toolName", name);
        }
        BlockEvent::ToolCallEnd(call) => line.field("toolCall", &CallBlock { type_: "toolCall", call }),
    }
    line.out.push(b'}');
    line.optional("usage", usage);
}

#[derive(Serialize)]
struct CallBlock<'a> {
    #[serde(rename = "type")]
    type_: &'static str,
    #[serde(flatten)]
    call: &'a ToolCall,
}

/// A tool's result as lines show it; `terminate` stands beside it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultView<'a> {
    content: &'a [Content],
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<&'a Value>,
}

impl<'a> From<&'a ToolResultView> for ResultView<'a> {
    fn from(view: &'a ToolResultView) -> Self {
        Self {
            content: &view.content,
            details: view.details.as_ref(),
            usage: view.usage.as_ref(),
            structured_content: view.structured.as_ref(),
        }
    }
}

/// The messages of one kind that wait.
fn waiting<'a>(queues: &'a [Queued], kinds: &[InboxKind]) -> Vec<&'a Arc<Message>> {
    queues.iter().filter(|queued| kinds.contains(&queued.kind)).filter_map(|queued| queued.payload.message()).collect()
}
