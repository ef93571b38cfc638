//! One call: the steps before it runs, the running future with its progress, and the hook behind it.
//!
//! Keeps true: a call that fails any step never reaches its tool; arguments that a hook replaced are checked like the
//! model's; a panic of a tool becomes its result; progress is told before the result and never after it; a cancelled
//! tool has the grace and a second more, then its future is dropped.
//!
//! Must not know: other calls of the batch, the order of results, events.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream};
use serde_json::Value;
use tokio::sync::mpsc::Receiver;

use super::guard::{GRACE_EXTRA, Guarded};
use super::hooks::{AfterToolCall, BeforeToolCall, LoopHooks};
use super::options::Limits;
use crate::model::{AssistantMessage, Content, EntryId, Message, ToolCall, ToolResultView};
use crate::port::{Cancel, Clock, Memos, Policy, Tool, ToolCtx, ToolOutput, ToolUpdate, Verdict};
use crate::turn::arguments::{self, ArgumentCheck};
use crate::turn::{CallFailure, CallOutcome, texts};

/// Progress reports of a call that may wait before the tool does.
pub(super) const UPDATES_MAX: usize = 16;

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
    /// The arguments the tool gets, where they differ from the model's.
    pub(super) fn effective_args(&self) -> Option<Arc<Value>> {
        let same = self.args.as_object() == Some(&self.call.arguments);
        (!same).then(|| Arc::new(self.args.clone()))
    }

    pub(super) fn cancelled(self) -> CallOutcome {
        settled(self.call, CallFailure::Cancelled)
    }
}

pub(super) fn settled(call: ToolCall, failure: CallFailure) -> CallOutcome {
    CallOutcome { call, invocation_id: None, output: failure.into_output(), duration_ms: None }
}

/// A tool of this run with its compiled schema.
#[derive(Clone)]
pub(super) struct ActiveTool {
    pub(super) tool: Arc<dyn Tool>,
    /// Compiled by the first call: most runs use few of their tools, and a first compilation costs milliseconds.
    check: Arc<OnceLock<Result<ArgumentCheck, String>>>,
}

impl ActiveTool {
    pub(super) fn new(tool: Arc<dyn Tool>) -> Self {
        Self { tool, check: Arc::default() }
    }

    /// Checks arguments; a feedback shows what was `received`, not what a tool's repair made of it.
    fn check(&self, args: &Value, received: &Value) -> Result<Value, CallFailure> {
        let name = &self.tool.spec().name;
        match self.check.get_or_init(|| ArgumentCheck::compile(&self.tool.spec().input_schema)) {
            Ok(check) => check.check_repaired(name, args, received).map_err(CallFailure::Invalid),
            Err(reason) => Err(CallFailure::Invalid(format!("The schema of \"{name}\" is not usable: {reason}"))),
        }
    }
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
        let Some(active) = self.tools.iter().find(|active| active.tool.spec().name == call.name) else {
            return Err(CallFailure::Unknown(texts::unknown_tool(&call.name, self.names)).into());
        };
        if let Some(error) = &call.arguments_error {
            return Err(CallFailure::Invalid(arguments::malformed(&call.name, error)).into());
        }
        let raw = Value::Object(call.arguments.clone());
        let prepared = catch_unwind(AssertUnwindSafe(|| active.tool.prepare(raw.clone())))
            .unwrap_or_else(|panic| Err(crash_text(&*panic)))
            .map_err(CallFailure::Invalid)?;
        let args = active.check(&prepared, &raw)?;
        self.permit(&call.name, &args)?;
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
            Some(replaced) => {
                let checked = active.check(&replaced, &replaced)?;
                self.permit(&call.name, &checked)?;
                checked
            }
            None => args,
        };
        let terminate = decision.terminate;
        Ok(ReadyCall { call: call.clone(), tool: Arc::clone(&active.tool), args, terminate })
    }

    fn permit(&self, tool: &str, args: &Value) -> Result<(), CallFailure> {
        match self.policy.map(|policy| policy.check(tool, args)) {
            None | Some(Verdict::Allow) => Ok(()),
            Some(Verdict::Deny(denied)) => Err(CallFailure::Denied(denied.reason)),
        }
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
        let (surroundings, running_args) = (self.clone(), args.clone());
        let future = async move {
            let cancel = surroundings.cancel.token().clone();
            let started = surroundings.clock.monotonic_ms();
            // Inside the block, so that a tool that panics before its first await is caught as well.
            let work = AssertUnwindSafe(async { tool.call(running_args, ctx).await }).catch_unwind();
            let overdue = async {
                cancel.cancelled().await;
                surroundings.clock.sleep(surroundings.limits.grace + GRACE_EXTRA).await;
            };
            let output = tokio::select! {
                biased;
                output = work => Some(output.unwrap_or_else(|panic| crashed(&*panic))),
                () = overdue => None,
            };
            let duration_ms = surroundings.clock.monotonic_ms().saturating_sub(started);
            Box::new(Ran { output, duration_ms })
        };
        RunningCall {
            surroundings: self.clone(),
            call,
            invocation_id,
            args,
            terminate,
            updates,
            last: None,
            phase: Phase::Running(Box::pin(future)),
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
    updates: Receiver<ToolUpdate>,
    /// The newest report, for the text of an aborted call.
    last: Option<Arc<ToolResultView>>,
    phase: Phase,
}

/// How a tool ended.
struct Ran {
    /// `None`: it did not answer a cancellation.
    output: Option<ToolOutput>,
    duration_ms: u64,
}

enum Phase {
    /// The tool works.
    Running(BoxFuture<'static, Box<Ran>>),
    /// The tool is done; reports sent before that are still to be told.
    Draining(Box<Ran>),
    Finishing(BoxFuture<'static, CallOutcome>),
    Over,
}

impl Stream for RunningCall {
    type Item = CallEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Phase::Running(_) | Phase::Draining(_) = this.phase
                && let Poll::Ready(Some(update)) = this.updates.poll_recv(cx)
            {
                this.last = Some(Arc::clone(&update.partial));
                let (tool_call_id, tool_name) = (this.call.id.clone(), this.call.name.clone());
                return Poll::Ready(Some(CallEvent::Update { tool_call_id, tool_name, partial: update.partial }));
            }
            match std::mem::replace(&mut this.phase, Phase::Over) {
                Phase::Running(mut future) => {
                    if let Poll::Ready(ran) = future.poll_unpin(cx) {
                        // Reports sent from now on are too late.
                        this.updates.close();
                        this.phase = Phase::Draining(ran);
                    } else {
                        this.phase = Phase::Running(future);
                        return Poll::Pending;
                    }
                }
                Phase::Draining(ran) => {
                    let Ran { output, duration_ms } = *ran;
                    let mut output = output.unwrap_or_else(|| aborted(this.last.as_deref()));
                    output.terminate |= this.terminate;
                    let outcome = CallOutcome {
                        call: this.call.clone(),
                        invocation_id: Some(this.invocation_id.clone()),
                        output,
                        duration_ms: Some(duration_ms),
                    };
                    let finish = this.surroundings.clone().finish(outcome.normalised(), this.args.clone());
                    this.phase = Phase::Finishing(Box::pin(finish));
                }
                Phase::Finishing(mut future) => {
                    if let Poll::Ready(outcome) = future.poll_unpin(cx) {
                        return Poll::Ready(Some(CallEvent::Done(Box::new(outcome))));
                    }
                    this.phase = Phase::Finishing(future);
                    return Poll::Pending;
                }
                Phase::Over => return Poll::Ready(None),
            }
        }
    }
}

/// Memos of one call. Nothing is replayed here, so they live as long as the call.
#[derive(Debug, Default)]
pub(super) struct CallMemos(Mutex<BTreeMap<String, Value>>);

#[async_trait]
impl Memos for CallMemos {
    async fn get(&self, name: &str) -> Option<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    async fn set(&self, name: &str, value: Value) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), value);
        Ok(())
    }
}

/// The result of a call that did not answer a cancellation: its output so far, then the fact.
fn aborted(last: Option<&ToolResultView>) -> ToolOutput {
    let so_far: Vec<&str> =
        last.map(|view| view.content.iter().filter_map(Content::as_text).collect()).unwrap_or_default();
    let so_far = so_far.join("\n");
    let text =
        if so_far.is_empty() { texts::TOOL_ABORTED.to_owned() } else { format!("{so_far}\n\n{}", texts::TOOL_ABORTED) };
    ToolOutput { content: vec![Content::text(text)], ..ToolOutput::failure("aborted", texts::TOOL_ABORTED) }
}

fn crashed(panic: &(dyn std::any::Any + Send)) -> ToolOutput {
    ToolOutput::failure("tool_error", crash_text(panic))
}

fn crash_text(panic: &(dyn std::any::Any + Send)) -> String {
    format!("The tool crashed: {}", panic_text(panic))
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
