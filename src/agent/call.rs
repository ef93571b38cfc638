//! One call: the steps before it runs with their hook, and the running tool with the hook behind it.
//!
//! Keeps true: a call that fails any step never reaches its tool; arguments that a hook replaced are checked like the
//! model's; progress is told before the result and never after it; the after hook is not asked once the run is cancelled.
//!
//! Must not know: other calls of the batch, the order of results, events.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt};
use serde_json::Value;
use tokio::sync::mpsc::Receiver;

use super::guard::Guarded;
use super::hooks::{AfterToolCall, BeforeToolCall, LoopHooks};
use super::options::Limits;
use crate::model::{AssistantMessage, EntryId, Message, ToolCall, ToolResultView};
use crate::port::{Cancel, Clock, Policy, Tool, ToolCtx, ToolOutput, ToolUpdate};
use crate::turn::{self, ActiveTool, CallFailure, CallOutcome, Checked, Ran, ToolProgress, ToolRun, texts};

/// A call after the steps that precede its execution.
#[derive(Debug)]
pub(super) enum Prepared {
    /// It never runs.
    Settled(Box<CallOutcome>),
    Ready(Box<ReadyCall>),
}

/// A call that may run.
pub(super) struct ReadyCall {
    pub(super) call: ToolCall,
    pub(super) tool: Arc<dyn Tool>,
    /// What the tool gets.
    pub(super) args: Value,
    /// A before hook asked for the end of the run.
    pub(super) terminate: bool,
}

impl std::fmt::Debug for ReadyCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadyCall").field("call", &self.call).field("args", &self.args).finish_non_exhaustive()
    }
}

impl ReadyCall {
    pub(super) fn cancelled(self) -> CallOutcome {
        settled(self.call, CallFailure::Cancelled)
    }
}

pub(super) fn settled(call: ToolCall, failure: CallFailure) -> CallOutcome {
    CallOutcome { call, invocation_id: None, output: failure.into_output(), duration_ms: None }
}

/// Why a call does not run. A hook that refuses may also ask for the end of the run.
struct Refusal {
    failure: CallFailure,
    terminate: bool,
}

impl From<CallFailure> for Refusal {
    fn from(failure: CallFailure) -> Self {
        Self { failure, terminate: false }
    }
}

/// What the steps before execution need to know.
pub(super) struct Clearing<'a> {
    pub(super) tools: &'a [ActiveTool],
    pub(super) names: &'a [String],
    pub(super) hooks: Guarded<'a>,
    pub(super) policy: Option<&'a dyn Policy>,
    pub(super) cancel: &'a Cancel,
    pub(super) reply: &'a AssistantMessage,
    pub(super) context: &'a [Arc<Message>],
}

impl Clearing<'_> {
    /// The steps of a call up to its start, as the module docs list them.
    pub(super) async fn clear(&self, call: &ToolCall) -> Prepared {
        match self.try_clear(call).await {
            Ok(ready) => Prepared::Ready(Box::new(ready)),
            Err(Refusal { failure, terminate }) => {
                let mut outcome = settled(call.clone(), failure);
                outcome.output.terminate = terminate;
                Prepared::Settled(Box::new(outcome))
            }
        }
    }

    async fn try_clear(&self, call: &ToolCall) -> Result<ReadyCall, Refusal> {
        if self.cancel.is_cancelled() {
            return Err(CallFailure::Cancelled.into());
        }
        let Checked { tool, args } = turn::check_call(call, self.tools, self.names, self.policy)?;
        let asked = BeforeToolCall { assistant: self.reply, call, args: &args, context: self.context };
        let decision = self.hooks.before(asked).await;
        if self.cancel.is_cancelled() {
            return Err(CallFailure::Cancelled.into());
        }
        let decision = decision.map_err(CallFailure::Blocked)?;
        if decision.block {
            let reason = decision.reason.filter(|reason| !reason.is_empty());
            let text = reason.unwrap_or_else(|| texts::TOOL_BLOCKED.to_owned());
            return Err(Refusal { failure: CallFailure::Blocked(text), terminate: decision.terminate });
        }
        let args = match decision.args {
            Some(replaced) => turn::recheck_call(call, self.tools, &replaced, self.policy)?,
            None => args,
        };
        Ok(ReadyCall { call: call.clone(), tool, args, terminate: decision.terminate })
    }
}

/// What a running call reports.
#[derive(Debug)]
pub(super) enum CallEvent {
    Update { tool_call_id: String, tool_name: String, partial: Arc<ToolResultView> },
    Done(Box<CallOutcome>),
}

/// The surroundings of a running call.
#[derive(Clone)]
pub(super) struct Running {
    pub(super) hooks: Arc<dyn LoopHooks>,
    pub(super) cancel: Cancel,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limits: Limits,
    pub(super) reply: Arc<Message>,
    pub(super) context: Arc<[Arc<Message>]>,
}

impl Running {
    /// Starts a call. The stream gives its updates in order, then its result, then ends.
    pub(super) fn start(&self, ready: ReadyCall, ctx: ToolCtx, updates: Receiver<ToolUpdate>) -> RunningCall {
        let ReadyCall { call, tool, args, terminate } = ready;
        let invocation_id = ctx.invocation_id.clone();
        let (cancel, clock) = (self.cancel.token().clone(), Arc::clone(&self.clock));
        let run = turn::run_tool(tool, args.clone(), ctx, updates, cancel, clock, self.limits.grace);
        RunningCall {
            surroundings: self.clone(),
            call,
            invocation_id,
            args,
            terminate,
            phase: Phase::Running(Box::new(run)),
        }
    }

    /// The after hook, skipped when the cancellation came first.
    async fn finish(self, mut outcome: CallOutcome, args: Value) -> CallOutcome {
        if let Message::Assistant(assistant) = &*self.reply
            && !self.cancel.is_cancelled()
        {
            let hooks =
                Guarded { hooks: &*self.hooks, cancel: &self.cancel, clock: &*self.clock, grace: self.limits.grace };
            let asked = AfterToolCall {
                assistant,
                call: &outcome.call,
                args: &args,
                result: &outcome.output,
                context: &self.context,
            };
            match hooks.after(asked).await {
                Ok(patch) => patch.apply(&mut outcome.output),
                Err(reason) => outcome.output = ToolOutput::failure("tool_error", texts::or_silent(reason)),
            }
        }
        outcome.normalised()
    }
}

/// A call in progress.
pub(super) struct RunningCall {
    surroundings: Running,
    call: ToolCall,
    invocation_id: EntryId,
    args: Value,
    terminate: bool,
    phase: Phase,
}

enum Phase {
    Running(Box<ToolRun>),
    /// The after hook works.
    Finishing(BoxFuture<'static, CallOutcome>),
    Over,
}

impl RunningCall {
    /// What comes behind the tool.
    fn finish(&self, Ran { mut output, duration_ms }: Ran) -> BoxFuture<'static, CallOutcome> {
        output.terminate |= self.terminate;
        let outcome = CallOutcome {
            call: self.call.clone(),
            invocation_id: Some(self.invocation_id.clone()),
            output,
            duration_ms: Some(duration_ms),
        };
        Box::pin(self.surroundings.clone().finish(outcome.normalised(), self.args.clone()))
    }
}

impl Stream for RunningCall {
    type Item = CallEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            match &mut this.phase {
                Phase::Running(run) => match ready!(run.poll_next_unpin(cx)) {
                    Some(ToolProgress::Update(ToolUpdate { partial, .. })) => {
                        let (tool_call_id, tool_name) = (this.call.id.clone(), this.call.name.clone());
                        return Poll::Ready(Some(CallEvent::Update { tool_call_id, tool_name, partial }));
                    }
                    Some(ToolProgress::Done(ran)) => this.phase = Phase::Finishing(this.finish(ran)),
                    None => this.phase = Phase::Over,
                },
                Phase::Finishing(hook) => {
                    let outcome = ready!(hook.poll_unpin(cx));
                    this.phase = Phase::Over;
                    return Poll::Ready(Some(CallEvent::Done(Box::new(outcome))));
                }
                Phase::Over => return Poll::Ready(None),
            }
        }
    }
}
