//! A batch: the calls of one reply, one at a time or together.
//!
//! Keeps true: every call gets one start, one end and one result message; results are placed in the order of the calls,
//! whatever finished first; no more than `max_parallel` calls run at a time; a call that was cancelled before its start
//! never runs.
//!
//! Must not know: what a step of a call decides, what a tool does.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::SelectAll;

use super::call::{CallEvent, Clearing, Prepared, ReadyCall, Running, RunningCall, settled};
use super::run::Run;
use crate::model::{EntryId, Event, Message, ToolCall};
use crate::port::{Inputs, SinkError, ToolCtx, Updates};
use crate::turn::{self, CallFailure, CallMemos, CallOutcome, UPDATES_MAX, result_message};

/// A cleared call.
enum Begun {
    /// Cancelled before it ran.
    Settled(Box<CallOutcome>),
    Running(Box<RunningCall>),
}

/// The results of a batch in source order, and whether all of them asked for the end of the run.
pub(super) struct BatchOutcome {
    pub(super) results: Vec<Arc<Message>>,
    pub(super) terminate: bool,
}

impl Run<'_> {
    /// Runs the calls of a reply that did not stop at the output limit.
    pub(super) async fn run_batch(
        &mut self,
        reply: &Arc<Message>,
        calls: &[ToolCall],
    ) -> Result<BatchOutcome, SinkError> {
        let tools: Vec<_> = self.tools.iter().map(|active| Arc::clone(&active.tool)).collect();
        let context: Arc<[Arc<Message>]> = self.context.as_slice().into();
        let outcomes = if turn::is_sequential(self.options.tool_execution, calls, &tools) {
            self.run_sequential(reply, calls, &context).await?
        } else {
            self.run_parallel(reply, calls, &context).await?
        };
        let terminate = !outcomes.is_empty() && outcomes.iter().all(|(_, terminate)| *terminate);
        Ok(BatchOutcome { results: outcomes.into_iter().map(|(message, _)| message).collect(), terminate })
    }

    /// Answers the calls of a reply that stopped at the output limit: nothing is looked up, nothing runs.
    pub(super) async fn refuse_truncated(&mut self, calls: &[ToolCall]) -> Result<BatchOutcome, SinkError> {
        let mut results = Vec::with_capacity(calls.len());
        for call in calls {
            let failure = CallFailure::Invalid(turn::texts::truncated(&call.name));
            let outcome = settled(call.clone(), failure);
            self.emit_settled(&outcome).await?;
            results.push(self.place(&outcome).await?);
        }
        Ok(BatchOutcome { results, terminate: false })
    }

    async fn run_sequential(
        &mut self,
        reply: &Arc<Message>,
        calls: &[ToolCall],
        context: &Arc<[Arc<Message>]>,
    ) -> Result<Vec<(Arc<Message>, bool)>, SinkError> {
        let mut placed = Vec::with_capacity(calls.len());
        for call in calls {
            let outcome = match self.clear(reply, call, context).await {
                Prepared::Settled(outcome) => {
                    self.emit_settled(&outcome).await?;
                    *outcome
                }
                Prepared::Ready(ready) => match self.begin(reply, *ready, context).await? {
                    Begun::Settled(outcome) => *outcome,
                    Begun::Running(mut running) => {
                        let mut done = None;
                        while let Some(event) = running.next().await {
                            if let Some(outcome) = self.emit_progress(event).await? {
                                done = Some(outcome);
                            }
                        }
                        // The stream of a call always gives its result before it ends.
                        done.unwrap_or_else(|| settled(call.clone(), CallFailure::Cancelled))
                    }
                },
            };
            let message = self.place(&outcome).await?;
            placed.push((message, outcome.output.terminate));
        }
        Ok(placed)
    }

    async fn run_parallel(
        &mut self,
        reply: &Arc<Message>,
        calls: &[ToolCall],
        context: &Arc<[Arc<Message>]>,
    ) -> Result<Vec<(Arc<Message>, bool)>, SinkError> {
        let mut outcomes: Vec<Option<CallOutcome>> = Vec::with_capacity(calls.len());
        let mut waiting: VecDeque<(usize, ReadyCall)> = VecDeque::new();
        for (at, call) in calls.iter().enumerate() {
            match self.clear(reply, call, context).await {
                Prepared::Settled(outcome) => {
                    self.emit_settled(&outcome).await?;
                    outcomes.push(Some(*outcome));
                }
                Prepared::Ready(ready) => {
                    waiting.push_back((at, *ready));
                    outcomes.push(None);
                }
            }
        }
        self.execute(reply, waiting, context, &mut outcomes).await?;
        let mut placed = Vec::with_capacity(calls.len());
        for (outcome, call) in outcomes.into_iter().zip(calls) {
            let outcome = outcome.unwrap_or_else(|| settled(call.clone(), CallFailure::Cancelled));
            let message = self.place(&outcome).await?;
            placed.push((message, outcome.output.terminate));
        }
        Ok(placed)
    }

    /// Runs the cleared calls together, at most `max_parallel` at a time; a call beyond it starts when its turn
    /// comes, or never if the run is cancelled before.
    async fn execute(
        &mut self,
        reply: &Arc<Message>,
        mut waiting: VecDeque<(usize, ReadyCall)>,
        context: &Arc<[Arc<Message>]>,
        outcomes: &mut [Option<CallOutcome>],
    ) -> Result<(), SinkError> {
        let mut running: SelectAll<Indexed<'_>> = SelectAll::new();
        // Streams of finished calls stay in `running` until it is polled again, so it cannot count.
        let mut active = 0_usize;
        loop {
            while active < self.options.limits.max_parallel.max(1) {
                let Some((at, ready)) = waiting.pop_front() else { break };
                match self.begin(reply, ready, context).await? {
                    Begun::Settled(outcome) => set(outcomes, at, *outcome),
                    Begun::Running(call) => {
                        running.push(Box::pin(call.map(move |event| (at, event))));
                        active += 1;
                    }
                }
            }
            let Some((at, event)) = running.next().await else { return Ok(()) };
            if let Some(outcome) = self.emit_progress(event).await? {
                active = active.saturating_sub(1);
                set(outcomes, at, outcome);
            }
        }
    }

    /// Starts a cleared call with its event, unless the run was cancelled before the tool could start.
    async fn begin(
        &mut self,
        reply: &Arc<Message>,
        ready: ReadyCall,
        context: &Arc<[Arc<Message>]>,
    ) -> Result<Begun, SinkError> {
        if self.cancel.is_cancelled() {
            let outcome = ready.cancelled();
            self.emit_settled(&outcome).await?;
            return Ok(Begun::Settled(Box::new(outcome)));
        }
        self.emit_start(&ready).await?;
        if self.cancel.is_cancelled() {
            let outcome = ready.cancelled();
            self.emit_end(&outcome).await?;
            return Ok(Begun::Settled(Box::new(outcome)));
        }
        Ok(Begun::Running(Box::new(self.start(reply, ready, context))))
    }

    async fn clear(&self, reply: &Arc<Message>, call: &ToolCall, context: &[Arc<Message>]) -> Prepared {
        let Message::Assistant(reply) = &**reply else {
            return Prepared::Settled(Box::new(settled(call.clone(), CallFailure::Cancelled)));
        };
        let clearing = Clearing {
            tools: &self.tools,
            names: &self.tool_names,
            hooks: self.hooks(),
            policy: self.options.policy.as_deref(),
            cancel: self.cancel,
            reply,
            context,
        };
        clearing.clear(call).await
    }

    fn start(&self, reply: &Arc<Message>, ready: ReadyCall, context: &Arc<[Arc<Message>]>) -> RunningCall {
        let (updates, receiver) = Updates::channel(UPDATES_MAX);
        let env = &self.options.tool_env;
        let invocation_id = EntryId::new(self.options.ids.next_id());
        let ctx = ToolCtx {
            tool_call_id: ready.call.id.clone(),
            invocation_id: invocation_id.clone(),
            run_id: self.id.clone(),
            turn_id: format!("{}:{}", self.id, self.turn),
            lane: "main".to_owned(),
            session: env.session.clone(),
            cwd: env.cwd.clone(),
            guard: Arc::clone(&env.guard),
            model_inputs: Inputs { text: true, image: self.model.takes_images() },
            enabled_tools: Arc::clone(&self.tool_names),
            cancel: self.cancel.token().child_token(),
            updates,
            memos: Arc::new(CallMemos::default()),
        };
        let running = Running {
            hooks: Arc::clone(&self.options.hooks),
            cancel: self.cancel.clone(),
            clock: Arc::clone(&self.options.clock),
            limits: self.options.limits,
            reply: Arc::clone(reply),
            context: Arc::clone(context),
        };
        running.start(ready, ctx, receiver)
    }

    /// Start and end of a call that never runs, together.
    async fn emit_settled(&mut self, outcome: &CallOutcome) -> Result<(), SinkError> {
        self.emit(Event::ToolStart {
            tool_call_id: outcome.call.id.clone(),
            tool_name: outcome.call.name.clone(),
            args: Arc::new(outcome.call.arguments.clone()),
            effective_args: None,
        })
        .await?;
        self.emit_end(outcome).await
    }

    async fn emit_start(&mut self, ready: &ReadyCall) -> Result<(), SinkError> {
        self.emit(Event::ToolStart {
            tool_call_id: ready.call.id.clone(),
            tool_name: ready.call.name.clone(),
            args: Arc::new(ready.call.arguments.clone()),
            effective_args: turn::effective_args(&ready.call, &ready.args),
        })
        .await
    }

    async fn emit_end(&mut self, outcome: &CallOutcome) -> Result<(), SinkError> {
        self.emit(Event::ToolEnd {
            tool_call_id: outcome.call.id.clone(),
            tool_name: outcome.call.name.clone(),
            result: Arc::new(outcome.view()),
            is_error: outcome.output.is_error,
            duration_ms: outcome.duration_ms,
        })
        .await
    }

    /// Tells a report, or the end; gives the outcome at the end.
    async fn emit_progress(&mut self, event: CallEvent) -> Result<Option<CallOutcome>, SinkError> {
        match event {
            CallEvent::Update { tool_call_id, tool_name, partial } => {
                self.emit(Event::ToolUpdate { tool_call_id, tool_name, partial }).await?;
                Ok(None)
            }
            CallEvent::Done(outcome) => {
                self.emit_end(&outcome).await?;
                Ok(Some(*outcome))
            }
        }
    }

    /// The message pair of a result.
    async fn place(&mut self, outcome: &CallOutcome) -> Result<Arc<Message>, SinkError> {
        let message = Arc::new(Message::ToolResult(result_message(outcome, self.options.clock.now_ms())));
        self.emit(Event::MessageStart { message: Arc::clone(&message) }).await?;
        // The result of a call is kept under the id that its tool knew.
        self.end_message(Arc::clone(&message), outcome.invocation_id.clone()).await?;
        Ok(message)
    }
}

type Indexed<'a> = std::pin::Pin<Box<dyn futures_util::Stream<Item = (usize, CallEvent)> + Send + 'a>>;

fn set(outcomes: &mut [Option<CallOutcome>], at: usize, outcome: CallOutcome) {
    if let Some(slot) = outcomes.get_mut(at) {
        *slot = Some(outcome);
    }
}
