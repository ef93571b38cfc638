//! The double loop: turns while tools or steering ask for one, then follow-ups.
//!
//! Keeps true: every turn that began ends; every message that was announced is completed; a cancellation, a limit and a
//! failing hook are looked at only between steps, and each ends the run with the events its readers wait for; nothing
//! is stored here when the run is over.
//!
//! Must not know: providers, tools by name, where events go, the transcript of other runs.

use std::sync::Arc;

use super::call::ActiveTool;
use super::guard::Guarded;
use super::hooks::{AfterTurn, TurnContext};
use super::options::AgentOptions;
use super::queue::{Drained, Queues};
use super::state::Settings;
use crate::model::{
    AssistantHead, AssistantMessage, EntryId, ErrorKind, ErrorRecord, Event, Message, Model, Reason, RunId, RunOutcome,
    StopReason, Thinking, ToolCall,
};
use crate::port::{Cancel, Sink, SinkError};
use crate::turn::{self, TurnLimit};

/// One run. Lives as long as a call of `prompt` or `continue_`.
pub(super) struct Run<'a> {
    pub(super) options: &'a AgentOptions,
    pub(super) cancel: &'a Cancel,
    pub(super) id: RunId,
    pub(super) model: Model,
    pub(super) thinking: Option<Thinking>,
    pub(super) system_prompt: String,
    pub(super) tools: Vec<ActiveTool>,
    pub(super) tool_names: Arc<[String]>,
    /// What requests are made from.
    pub(super) context: Vec<Arc<Message>>,
    /// The number of the open or last turn.
    pub(super) turn: u32,
    /// A reply has been announced and not ended.
    pub(super) reply_open: bool,
    queues: Queues,
    sink: &'a mut (dyn Sink + Sync),
    new_messages: Vec<Arc<Message>>,
    turn_open: bool,
    truncated_in_a_row: u32,
}

/// What a run begins with.
pub(super) struct Start {
    pub(super) settings: Settings,
    pub(super) transcript: Vec<Arc<Message>>,
    pub(super) prompts: Vec<Arc<Message>>,
    /// Prompts that came from a queue.
    pub(super) drained: Drained,
    /// The prompts were taken from the steering queue: the first poll is skipped.
    pub(super) skip_first_poll: bool,
}

/// A turn that did not fail.
struct Finished {
    reply: Arc<Message>,
    results: Vec<Arc<Message>>,
    /// The reply had calls.
    called: bool,
    /// A further turn is owed because of tool results.
    more: bool,
    /// The verdict if the run ends here by itself.
    natural: Reason,
}

/// How a turn left the loop.
enum After {
    /// A further turn is owed because of tool results.
    More,
    /// Nothing is owed; gives the verdict if nothing else causes a turn.
    Settled(Reason),
    End(Reason),
    /// A hook failed between the turns.
    HookFailed(String),
}

impl<'a> Run<'a> {
    pub(super) fn new(
        options: &'a AgentOptions,
        queues: Queues,
        cancel: &'a Cancel,
        sink: &'a mut (dyn Sink + Sync),
        start: &Start,
    ) -> Self {
        let settings = start.settings.clone();
        Self {
            id: RunId::new(options.ids.next_id()),
            tool_names: turn::tool_names(&settings.tools),
            tools: settings.tools.into_iter().map(ActiveTool::new).collect(),
            model: settings.model,
            thinking: settings.thinking,
            system_prompt: settings.system_prompt,
            context: start.transcript.clone(),
            turn: 0,
            reply_open: false,
            new_messages: Vec::new(),
            turn_open: false,
            truncated_in_a_row: 0,
            options,
            queues,
            cancel,
            sink,
        }
    }

    /// Runs to the end. An error means that the sink closed; nothing was emitted after that.
    pub(super) async fn drive(mut self, start: Start) -> Result<RunOutcome, SinkError> {
        let started_at = self.options.clock.now_ms();
        self.emit(Event::RunStart { run_id: self.id.clone(), started_at }).await?;
        self.open_turn().await?;
        for message in &start.prompts {
            self.append(Arc::clone(message)).await?;
        }
        let mut drained = start.drained;
        self.append_drained(&mut drained).await?;
        let skip = start.skip_first_poll || self.cancel.is_cancelled();
        let mut pending = if skip { Drained::default() } else { self.queues.steering.poll() };
        let mut last: Option<Finished> = None;
        let mut forced = false;
        let reason = loop {
            // One turn at least, then while something is owed.
            match self.turn(&mut last, &mut pending, &mut forced).await? {
                After::End(reason) => break reason,
                After::HookFailed(text) => {
                    pending.put_back();
                    break self.fail_run(text).await?;
                }
                After::More if self.limit_reached() => break Reason::MaxTurns,
                After::More => {
                    pending = self.queues.steering.poll();
                    forced = false;
                }
                After::Settled(natural) if self.limit_reached() => {
                    break if forced { Reason::MaxTurns } else { natural };
                }
                After::Settled(natural) => {
                    pending = self.queues.steering.poll();
                    if pending.is_empty() {
                        pending = self.queues.follow_up.poll();
                    }
                    if pending.is_empty() && !forced {
                        break natural;
                    }
                    forced = false;
                }
            }
        };
        drop(pending);
        self.finish(reason).await
    }

    /// One turn, with what precedes and follows it.
    async fn turn(
        &mut self,
        last: &mut Option<Finished>,
        pending: &mut Drained,
        forced: &mut bool,
    ) -> Result<After, SinkError> {
        if self.cancel.is_cancelled() {
            pending.put_back();
            return self.close_aborted().await;
        }
        if let Some(finished) = last.take()
            && let Some(after) = self.prepare_turn(&finished, pending).await?
        {
            return Ok(after);
        }
        self.append_drained(pending).await?;
        if self.cancel.is_cancelled() {
            return self.close_aborted().await;
        }
        let finished = match self.exchange().await? {
            Ok(finished) => finished,
            Err(failed) => return Ok(After::End(failed)),
        };
        if self.truncated_in_a_row >= turn::TRUNCATED_IN_A_ROW_MAX {
            return Ok(After::End(Reason::Length));
        }
        if self.cancel.is_cancelled() {
            return self.end_cancelled(&finished).await;
        }
        let after = match self.after_turn(&finished).await {
            Err(failed) => return Ok(After::HookFailed(failed)),
            // A cancellation in the hook is one after the turn.
            Ok(_) if self.cancel.is_cancelled() => return self.end_cancelled(&finished).await,
            Ok(AfterTurn::Stop) => After::End(if finished.more { Reason::Blocked } else { finished.natural }),
            Ok(decision) => {
                *forced = decision == AfterTurn::Continue;
                if finished.more { After::More } else { After::Settled(finished.natural) }
            }
        };
        *last = Some(finished);
        Ok(after)
    }

    /// A request, its reply, and the tools it calls, up to the end of the turn. The inner error is the verdict of a
    /// reply that failed.
    async fn exchange(&mut self) -> Result<Result<Finished, Reason>, SinkError> {
        let reply = self.request().await?;
        let stop = reply.stop_reason;
        let error = reply.error.as_ref().map(|record| record.kind);
        let calls: Vec<ToolCall> = reply.calls().cloned().collect();
        let reply = Arc::new(Message::Assistant(reply));
        self.append(Arc::clone(&reply)).await?;
        if stop.is_failure() {
            self.close_turn(&reply, &[]).await?;
            return Ok(Err(turn::reason_of_reply(stop, error, self.cancel.cause())));
        }
        let called = !calls.is_empty();
        let truncated = stop == StopReason::Length && called;
        self.truncated_in_a_row = if truncated { self.truncated_in_a_row + 1 } else { 0 };
        let batch = if truncated {
            self.refuse_truncated(&calls).await?
        } else if called {
            self.run_batch(&reply, &calls).await?
        } else {
            super::tools::BatchOutcome { results: Vec::new(), terminate: true }
        };
        self.close_turn(&reply, &batch.results).await?;
        let natural = match stop {
            // The tools ended it, whatever the reply said.
            StopReason::Stop if called => Reason::ToolTerminated,
            stop => turn::reason_of_reply(stop, None, None),
        };
        Ok(Ok(Finished { reply, results: batch.results, called, more: !batch.terminate, natural }))
    }

    /// Ends a run that was cancelled behind a turn: a complete answer counts, a batch of calls gets a closing turn
    /// (cases 107 to 110). No queue is polled.
    async fn end_cancelled(&mut self, finished: &Finished) -> Result<After, SinkError> {
        if finished.called { self.close_aborted().await } else { Ok(After::End(finished.natural)) }
    }

    /// Asks `prepare_next_turn` and opens the turn. `Some` means that no turn follows.
    async fn prepare_turn(&mut self, finished: &Finished, pending: &mut Drained) -> Result<Option<After>, SinkError> {
        let asked = TurnContext {
            message: &finished.reply,
            tool_results: &finished.results,
            context: &self.context,
            new_messages: &self.new_messages,
        };
        let next = match self.hooks().next_turn(asked).await {
            Ok(next) => next,
            Err(failed) => return Ok(Some(After::HookFailed(failed))),
        };
        if self.cancel.is_cancelled() {
            pending.put_back();
            return Ok(Some(self.close_aborted().await?));
        }
        if let Some(context) = next.context {
            self.context = context;
        }
        if let Some(model) = next.model {
            self.model = model;
        }
        if let Some(thinking) = next.thinking {
            self.thinking = Some(thinking);
        }
        if pending.is_empty() {
            *pending = self.queues.steering.poll();
        }
        self.open_turn().await?;
        for message in next.messages {
            self.append(message).await?;
        }
        Ok(None)
    }

    async fn after_turn(&self, finished: &Finished) -> Result<AfterTurn, String> {
        let asked = TurnContext {
            message: &finished.reply,
            tool_results: &finished.results,
            context: &self.context,
            new_messages: &self.new_messages,
        };
        self.hooks().after_turn(asked).await
    }

    pub(super) fn hooks(&self) -> Guarded<'_> {
        let AgentOptions { hooks, clock, limits, .. } = self.options;
        Guarded { hooks: &**hooks, cancel: self.cancel, clock: &**clock, grace: limits.grace }
    }

    fn limit(&self) -> TurnLimit {
        TurnLimit { max_turns: self.options.limits.max_turns }
    }

    /// Whether no further turn may begin.
    fn limit_reached(&self) -> bool {
        !self.limit().allows_after(self.turn)
    }

    /// Ends a cancelled run between steps with an empty `aborted` reply (cases 107 to 109).
    async fn close_aborted(&mut self) -> Result<After, SinkError> {
        self.ensure_turn().await?;
        let reply = turn::cancelled(self.empty_reply());
        self.append_closing(reply).await?;
        Ok(After::End(turn::reason_of_abort(self.cancel.cause())))
    }

    /// Ends a run that a hook broke, with a failed reply (case 113).
    async fn fail_run(&mut self, text: String) -> Result<Reason, SinkError> {
        self.ensure_turn().await?;
        let mut reply = self.empty_reply();
        let reason = if self.cancel.is_cancelled() {
            reply = turn::cancelled(reply);
            turn::reason_of_abort(self.cancel.cause())
        } else {
            reply.stop_reason = StopReason::Error;
            reply.error_message = Some(text.clone());
            reply.error = Some(ErrorRecord::new(ErrorKind::Hook, text));
            Reason::Error
        };
        self.append_closing(reply).await?;
        Ok(reason)
    }

    async fn append_closing(&mut self, reply: AssistantMessage) -> Result<(), SinkError> {
        let start = AssistantMessage::pending(&head_of(&reply));
        self.emit(Event::MessageStart { message: Arc::new(Message::Assistant(start)) }).await?;
        self.reply_open = true;
        let reply = Arc::new(Message::Assistant(reply));
        self.append(Arc::clone(&reply)).await?;
        self.close_turn(&reply, &[]).await
    }

    fn empty_reply(&self) -> AssistantMessage {
        AssistantMessage::pending(&AssistantHead {
            api: self.model.api.clone(),
            provider: self.model.provider.clone(),
            model: self.model.id.clone(),
            timestamp: self.options.clock.now_ms(),
        })
    }

    async fn finish(mut self, reason: Reason) -> Result<RunOutcome, SinkError> {
        let last = self.new_messages.iter().rev().find_map(|message| message.as_assistant());
        let outcome = RunOutcome {
            messages: self.new_messages.clone(),
            stop_reason: last.map(|reply| reply.stop_reason),
            reason,
            error: last.and_then(|reply| reply.error.clone()),
            cause: last.filter(|reply| reply.stop_reason == StopReason::Aborted).and(self.cancel.cause()),
        };
        let messages = self.new_messages.clone();
        self.emit(Event::RunEnd { messages, outcome: Arc::new(outcome.clone()), result: None }).await?;
        Ok(outcome)
    }

    async fn ensure_turn(&mut self) -> Result<(), SinkError> {
        if self.turn_open { Ok(()) } else { self.open_turn().await }
    }

    async fn open_turn(&mut self) -> Result<(), SinkError> {
        self.turn += 1;
        self.turn_open = true;
        if self.limit().warns_before(self.turn) {
            let message = format!("turn {} of at most {} begins (limits.max_turns)", self.turn, self.limit().max_turns);
            self.emit(Event::Warning { code: "max_turns".to_owned(), message }).await?;
        }
        self.emit(Event::TurnStart { turn: self.turn }).await
    }

    async fn close_turn(&mut self, reply: &Arc<Message>, results: &[Arc<Message>]) -> Result<(), SinkError> {
        self.turn_open = false;
        let message = Some(Arc::clone(reply));
        self.emit(Event::TurnEnd { turn: self.turn, message, tool_results: results.to_vec() }).await
    }

    /// Adds a message to the run with its events; a reply that was announced only gets its end.
    pub(super) async fn append(&mut self, message: Arc<Message>) -> Result<(), SinkError> {
        if !std::mem::take(&mut self.reply_open) {
            self.emit(Event::MessageStart { message: Arc::clone(&message) }).await?;
        }
        self.end_message(message, None).await
    }

    /// Adds a message to the run; `entry_id` is the one reserved for it.
    pub(super) async fn end_message(
        &mut self,
        message: Arc<Message>,
        entry_id: Option<EntryId>,
    ) -> Result<(), SinkError> {
        self.context.push(Arc::clone(&message));
        self.new_messages.push(Arc::clone(&message));
        self.emit(Event::MessageEnd { message, entry_id }).await
    }

    /// Adds queued messages. One counts as consumed from its `message_end` on, when the transcript has it.
    async fn append_drained(&mut self, pending: &mut Drained) -> Result<(), SinkError> {
        while let Some(message) = pending.front() {
            self.emit(Event::MessageStart { message: Arc::clone(&message) }).await?;
            pending.consumed();
            self.end_message(message, None).await?;
        }
        Ok(())
    }

    pub(super) async fn emit(&mut self, event: Event) -> Result<(), SinkError> {
        self.sink.emit(event).await
    }
}

fn head_of(reply: &AssistantMessage) -> AssistantHead {
    AssistantHead {
        api: reply.api.clone(),
        provider: reply.provider.clone(),
        model: reply.model.clone(),
        timestamp: reply.timestamp,
    }
}
