//! The double loop (loop §6).

use std::sync::Arc;

use super::call::ActiveTool;
use super::hooks::{AfterTurn, TurnContext};
use super::options::AgentOptions;
use super::queue::{Drained, Queues};
use super::state::Settings;
use crate::model::{
    AssistantHead, AssistantMessage, ErrorKind, ErrorRecord, Event, Message, Model, Reason, RunId, RunOutcome,
    StopReason, Thinking, ToolCall,
};
use crate::port::{Cancel, Sink, SinkError};
use crate::turn::{self, TurnLimit};

/// One run. Lives as long as a call of `prompt` or `continue_`.
pub(super) struct Run<'a> {
    pub(super) options: &'a AgentOptions,
    pub(super) cancel: &'a Cancel,
    pub(super) run_id: RunId,
    pub(super) model: Model,
    pub(super) thinking: Thinking,
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
    sink: &'a mut dyn Sink,
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

/// The last finished turn.
struct Finished {
    reply: Arc<Message>,
    results: Vec<Arc<Message>>,
}

/// How a turn left the loop.
enum After {
    /// A further turn is owed because of tool results.
    More,
    /// Nothing is owed.
    Settled,
    End(Reason),
}

impl<'a> Run<'a> {
    pub(super) fn new(
        options: &'a AgentOptions,
        queues: Queues,
        cancel: &'a Cancel,
        sink: &'a mut dyn Sink,
        start: &Start,
    ) -> Self {
        let settings = start.settings.clone();
        Self {
            run_id: RunId::new(options.ids.next_id()),
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
        self.emit(Event::RunStart { run_id: self.run_id.clone() }).await?;
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
            let after = match self.turn(&mut last, &mut pending, &mut forced).await? {
                Ok(after) => after,
                Err(hook_failed) => break self.fail_run(hook_failed).await?,
            };
            match after {
                After::End(reason) => break reason,
                After::More => {
                    if !self.limit().allows_after(self.turn) {
                        break Reason::MaxTurns;
                    }
                    pending = self.queues.steering.poll();
                    forced = false;
                }
                After::Settled if !self.limit().allows_after(self.turn) => break self.natural_reason(last.as_ref()),
                After::Settled => {
                    pending = self.queues.steering.poll();
                    if pending.is_empty() {
                        pending = self.queues.follow_up.poll();
                    }
                    if pending.is_empty() && !forced {
                        break self.natural_reason(last.as_ref());
                    }
                    forced = false;
                }
            }
        };
        drop(pending);
        self.finish(reason).await
    }

    /// One turn. The inner error is a hook's.
    async fn turn(
        &mut self,
        last: &mut Option<Finished>,
        pending: &mut Drained,
        forced: &mut bool,
    ) -> Result<Result<After, String>, SinkError> {
        if self.cancel.is_cancelled() {
            return self.close_aborted().await.map(Ok);
        }
        if let Some(finished) = last.take() {
            match self.prepare_turn(&finished, pending).await? {
                Ok(None) => {}
                Ok(Some(after)) => return Ok(Ok(after)),
                Err(failed) => return Ok(Err(failed)),
            }
        }
        self.append_drained(pending).await?;
        if self.cancel.is_cancelled() {
            return self.close_aborted().await.map(Ok);
        }
        let reply = self.request().await?;
        let stop = reply.stop_reason;
        let error = reply.error.as_ref().map(|record| record.kind);
        let calls: Vec<ToolCall> = reply.calls().cloned().collect();
        let reply = Arc::new(Message::Assistant(reply));
        self.append(Arc::clone(&reply)).await?;
        if stop.is_failure() {
            self.close_turn(&reply, &[]).await?;
            return Ok(Ok(After::End(turn::reason_of_reply(stop, error, self.cancel.cause()))));
        }
        let truncated = stop == StopReason::Length && !calls.is_empty();
        self.truncated_in_a_row = if truncated { self.truncated_in_a_row + 1 } else { 0 };
        let batch = if truncated {
            self.refuse_truncated(&calls).await?
        } else if calls.is_empty() {
            super::tools::BatchOutcome { results: Vec::new(), terminate: true }
        } else {
            self.run_batch(&reply, &calls).await?
        };
        self.close_turn(&reply, &batch.results).await?;
        if self.truncated_in_a_row >= turn::TRUNCATED_IN_A_ROW_MAX {
            return Ok(Ok(After::End(Reason::Length)));
        }
        if self.cancel.is_cancelled() {
            if calls.is_empty() {
                return Ok(Ok(After::End(turn::reason_of_reply(stop, None, None))));
            }
            return self.close_aborted().await.map(Ok);
        }
        let finished = Finished { reply, results: batch.results };
        let decision = self.after_turn(&finished).await;
        let more = !batch.terminate;
        let natural = turn::reason_of_reply(stop, None, None);
        *last = Some(finished);
        match decision {
            Err(failed) => Ok(Err(failed)),
            Ok(AfterTurn::Stop) => Ok(Ok(After::End(if more { Reason::Blocked } else { natural }))),
            Ok(decision) => {
                *forced = decision == AfterTurn::Continue;
                Ok(Ok(if more { After::More } else { After::Settled }))
            }
        }
    }

    /// Asks `prepare_next_turn` and opens the turn. `Some` means that the run was cancelled meanwhile.
    async fn prepare_turn(
        &mut self,
        finished: &Finished,
        pending: &mut Drained,
    ) -> Result<Result<Option<After>, String>, SinkError> {
        let asked = TurnContext {
            message: &finished.reply,
            tool_results: &finished.results,
            context: &self.context,
            new_messages: &self.new_messages,
        };
        let next = match self.options.hooks.prepare_next_turn(asked, self.cancel.token()).await {
            Ok(next) => next,
            Err(failed) => return Ok(Err(failed)),
        };
        if self.cancel.is_cancelled() {
            return Ok(Ok(Some(self.close_aborted().await?)));
        }
        if let Some(context) = next.context {
            self.context = context;
        }
        if let Some(model) = next.model {
            self.model = model;
        }
        if let Some(thinking) = next.thinking {
            self.thinking = thinking;
        }
        if pending.is_empty() {
            *pending = self.queues.steering.poll();
        }
        self.open_turn().await?;
        for message in next.messages {
            self.append(message).await?;
        }
        Ok(Ok(None))
    }

    async fn after_turn(&self, finished: &Finished) -> Result<AfterTurn, String> {
        let asked = TurnContext {
            message: &finished.reply,
            tool_results: &finished.results,
            context: &self.context,
            new_messages: &self.new_messages,
        };
        self.options.hooks.after_turn(asked, self.cancel.token()).await
    }

    fn limit(&self) -> TurnLimit {
        TurnLimit { max_turns: self.options.limits.max_turns }
    }

    fn natural_reason(&self, last: Option<&Finished>) -> Reason {
        let reply = last.and_then(|finished| finished.reply.as_assistant());
        let stop = reply.map_or(StopReason::Stop, |reply| reply.stop_reason);
        // A `stop` reply whose calls all terminated was ended by its tools.
        match stop {
            StopReason::Stop if reply.is_some_and(|reply| reply.calls().next().is_some()) => Reason::ToolTerminated,
            stop => turn::reason_of_reply(stop, None, None),
        }
    }

    /// Ends a cancelled run between steps with an empty `aborted` reply (loop §9.4).
    async fn close_aborted(&mut self) -> Result<After, SinkError> {
        self.ensure_turn().await?;
        let reply = turn::cancelled(self.empty_reply());
        self.append_closing(reply).await?;
        Ok(After::End(turn::reason_of_abort(self.cancel.cause())))
    }

    /// Ends a run that a hook broke, with a failed reply (loop §9.3).
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
        self.emit(Event::RunEnd { messages, outcome: Arc::new(outcome.clone()) }).await?;
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
        self.context.push(Arc::clone(&message));
        self.new_messages.push(Arc::clone(&message));
        self.emit(Event::MessageEnd { message }).await
    }

    async fn append_drained(&mut self, pending: &mut Drained) -> Result<(), SinkError> {
        while let Some(message) = pending.front() {
            self.append(message).await?;
            pending.consumed();
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
