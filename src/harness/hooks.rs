//! Several hooks as one: asked in order, each seeing what the ones before it made.
//!
//! Keeps true: nothing is asked once the gate is shut; a hook that was asked before is waited for, with a bound; a hook
//! that fails has the consequence its point prescribes and is told; a panic is a failure.
//!
//! Must not know: when a point is reached, what becomes of the answer.
//!
//! # Failures
//!
//! | point | a hook that fails |
//! |---|---|
//! | `before_drive` | blocks: nothing is stored, the operation stays open |
//! | `before_tool` | blocks: the call is refused |
//! | every other | is passed over, unless it is set to block |

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;

use super::gate::{Gate, Shut};
use crate::model::{
    AssistantMessage, Content, ErrorKind, ErrorRecord, Event, HandlerKind, Message, StopReason, ToolCall,
};
use crate::port::{
    AfterResponse, AfterTool, BeforeDrive, BeforeRequest, BeforeRun, BeforeRunEnd, BeforeTool, Clock, Common,
    HookFailure, HookPoint, HookScope, Hooks, LlmRequest, OnPayload, OptionsPatch, ResponseMeta, ToolOutput,
};
use crate::turn::{CallFailure, GRACE_EXTRA, panic_text, texts};

/// The hooks of one moment.
pub(super) struct Chain<'a> {
    pub(super) hooks: Vec<Arc<dyn Hooks>>,
    pub(super) gate: &'a Gate,
    pub(super) clock: &'a dyn Clock,
    pub(super) grace: Duration,
    /// What is told about it: failures and warnings.
    pub(super) notes: Vec<Event>,
}

/// What `before_drive` came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DriveVerdict {
    Go,
    Block(String),
    Abort,
}

/// What `before_run` came to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RunVerdict {
    pub(super) injected: Vec<Message>,
    pub(super) block: Option<String>,
}

/// What `before_tool` came to.
#[derive(Debug)]
pub(super) struct ToolVerdict {
    /// The arguments, or why the call does not run.
    pub(super) args: Result<Value, CallFailure>,
    pub(super) terminate: bool,
    pub(super) context: Vec<String>,
    pub(super) stop: bool,
}

impl Chain<'_> {
    /// Whether any hook has a say at a point.
    pub(super) fn listens(&self, point: HookPoint) -> bool {
        self.hooks.iter().any(|hook| hook.listens(point))
    }

    fn at(&self, point: HookPoint) -> Vec<Arc<dyn Hooks>> {
        self.hooks.iter().filter(|hook| hook.listens(point)).cloned().collect()
    }

    /// Waits for a hook; one that does not answer a cancellation is dropped after the grace.
    async fn ask<T>(&self, hook: impl Future<Output = Result<T, HookFailure>> + Send) -> Result<T, HookFailure> {
        let overdue = async {
            self.gate.token().cancelled().await;
            self.clock.sleep(self.grace + GRACE_EXTRA).await;
        };
        tokio::select! {
            biased;
            answer = AssertUnwindSafe(hook).catch_unwind() => answer.unwrap_or_else(|panic| {
                Err(HookFailure::new(format!("The hook crashed: {}", panic_text(&*panic))))
            }),
            () = overdue => Err(HookFailure::new("The hook did not answer a cancellation.")),
        }
    }

    /// Whether a hook may give this reply. Only one that was told to end may say that it did.
    fn is_settled(&self, reply: &AssistantMessage) -> bool {
        match reply.stop_reason {
            StopReason::Pending => false,
            StopReason::Aborted => self.gate.token().is_cancelled(),
            _ => true,
        }
    }

    fn failed(&mut self, name: &str, error: String) {
        self.notes.push(Event::HandlerError { kind: HandlerKind::Hook, name: name.to_owned(), error });
    }

    fn common(&mut self, name: &str, common: &Common) -> bool {
        if let Some(warning) = &common.warning {
            let message = format!("hook {name}: {warning}");
            self.notes.push(Event::Warning { code: "hook".to_owned(), message });
        }
        common.stop
    }

    pub(super) async fn before_drive(
        &mut self,
        scope: &HookScope,
        kind: &str,
        state: &str,
        resume: bool,
    ) -> Result<DriveVerdict, Shut> {
        for hook in self.at(HookPoint::BeforeDrive) {
            let token = self.gate.admit()?;
            let asked = BeforeDrive { scope, kind, state, resume };
            match self.ask(hook.before_drive(asked, &token)).await {
                Ok(answer) => {
                    let stop = self.common(hook.name(), &answer.common);
                    if let Some(reason) = answer.block {
                        return Ok(DriveVerdict::Block(blocked(hook.name(), reason)));
                    }
                    if stop {
                        return Ok(DriveVerdict::Abort);
                    }
                }
                Err(failure) if failure.blocks == Some(false) => self.failed(hook.name(), failure.message),
                Err(failure) => {
                    return Ok(DriveVerdict::Block(format!("Hook {} failed: {}", hook.name(), failure.message)));
                }
            }
        }
        Ok(DriveVerdict::Go)
    }

    pub(super) async fn before_run(&mut self, scope: &HookScope, prompt: &[Arc<Message>]) -> Result<RunVerdict, Shut> {
        let mut seen = prompt.to_vec();
        let mut verdict = RunVerdict::default();
        for hook in self.at(HookPoint::BeforeRun) {
            let token = self.gate.admit()?;
            match self.ask(hook.before_run(BeforeRun { scope, messages: &seen }, &token)).await {
                Ok(answer) => {
                    let stop = self.common(hook.name(), &answer.common);
                    if let Some(reason) = answer.block.or_else(|| stop.then(String::new)) {
                        verdict.block = Some(blocked(hook.name(), reason));
                        return Ok(verdict);
                    }
                    seen.extend(answer.messages.iter().cloned().map(Arc::new));
                    verdict.injected.extend(answer.messages);
                }
                Err(failure) if failure.blocks == Some(true) => {
                    verdict.block = Some(format!("Hook {} failed: {}", hook.name(), failure.message));
                    return Ok(verdict);
                }
                Err(failure) => self.failed(hook.name(), failure.message),
            }
        }
        Ok(verdict)
    }

    /// Shapes the messages and the system prompt of a request.
    pub(super) async fn transform(
        &mut self,
        mut messages: Vec<Arc<Message>>,
        mut system_prompt: String,
    ) -> Result<(Vec<Arc<Message>>, String), Shut> {
        for hook in self.at(HookPoint::TransformContext) {
            let token = self.gate.admit()?;
            match self.ask(hook.transform_context(&messages, &system_prompt, &token)).await {
                Ok(shaped) => {
                    messages = shaped.messages.unwrap_or(messages);
                    system_prompt = shaped.system_prompt.unwrap_or(system_prompt);
                }
                Err(failure) => self.failed(hook.name(), failure.message),
            }
        }
        Ok((messages, system_prompt))
    }

    /// What sees the body of a request: `first`, then every hook that asks for it. One that panics is passed over, and
    /// `failed` is told its name and why.
    pub(super) fn payload_observer(
        &self,
        first: Option<OnPayload>,
        failed: impl Fn(&str, String) + Send + Sync + 'static,
    ) -> Option<OnPayload> {
        let hooks = self.at(HookPoint::BeforePayload);
        if hooks.is_empty() {
            return first;
        }
        Some(Arc::new(move |payload: &Value| {
            let mut replaced = first.as_ref().and_then(|first| first(payload));
            for hook in &hooks {
                let seen = replaced.as_ref().unwrap_or(payload);
                match std::panic::catch_unwind(AssertUnwindSafe(|| hook.before_payload(seen))) {
                    Ok(answer) => replaced = answer.or(replaced),
                    Err(_) => failed(hook.name(), "it panicked".to_owned()),
                }
            }
            replaced
        }))
    }

    /// Patches the options of a request for this attempt; gives the reason where a hook refuses it.
    pub(super) async fn before_request(
        &mut self,
        scope: &HookScope,
        attempt: u32,
        request: &mut LlmRequest,
    ) -> Result<Option<String>, Shut> {
        for hook in self.at(HookPoint::BeforeRequest) {
            let token = self.gate.admit()?;
            let asked = BeforeRequest { scope, model: &request.model, attempt, messages: &request.messages, request };
            match self.ask(hook.before_request(asked, &token)).await {
                Ok(answer) => {
                    let stop = self.common(hook.name(), &answer.common);
                    if let Some(reason) = answer.block.or_else(|| stop.then(String::new)) {
                        return Ok(Some(blocked(hook.name(), reason)));
                    }
                    patch(request, answer.patch);
                }
                Err(failure) if failure.blocks == Some(true) => {
                    return Ok(Some(format!("Hook {} failed: {}", hook.name(), failure.message)));
                }
                Err(failure) => self.failed(hook.name(), failure.message),
            }
        }
        Ok(None)
    }

    /// The reply as hooks leave it, and whether one asked for the end of the run. Once the gate is shut the rest is not
    /// asked.
    pub(super) async fn after_response(
        &mut self,
        scope: &HookScope,
        mut reply: AssistantMessage,
        meta: Option<&ResponseMeta>,
    ) -> (AssistantMessage, bool) {
        let mut stop = false;
        for hook in self.at(HookPoint::AfterResponse) {
            let Ok(token) = self.gate.admit() else { break };
            match self.ask(hook.after_response(AfterResponse { scope, message: &reply, meta }, &token)).await {
                Ok(answer) => {
                    stop |= self.common(hook.name(), &answer.common);
                    if let Some(replaced) = answer.message {
                        if self.is_settled(&replaced) {
                            reply = *replaced;
                        } else {
                            self.failed(hook.name(), "it gave a reply that is not settled".to_owned());
                        }
                    }
                    if let Some(reason) = answer.block {
                        reply = refused(reply, blocked(hook.name(), reason));
                    }
                }
                Err(failure) if failure.blocks == Some(true) => {
                    reply = refused(reply, format!("Hook {} failed: {}", hook.name(), failure.message));
                }
                Err(failure) => self.failed(hook.name(), failure.message),
            }
        }
        (reply, stop)
    }

    /// Asks about a call. `recheck` validates arguments that a hook replaced.
    pub(super) async fn before_tool(
        &mut self,
        scope: &HookScope,
        call: &ToolCall,
        args: Value,
        recheck: &(dyn Fn(&Value) -> Result<Value, CallFailure> + Send + Sync),
    ) -> Result<ToolVerdict, Shut> {
        let mut verdict = ToolVerdict { args: Ok(args), terminate: false, context: Vec::new(), stop: false };
        for hook in self.at(HookPoint::BeforeTool) {
            let token = self.gate.admit()?;
            let Ok(args) = &verdict.args else { break };
            match self.ask(hook.before_tool(BeforeTool { scope, call, args }, &token)).await {
                Ok(answer) => {
                    verdict.stop |= self.common(hook.name(), &answer.common);
                    verdict.terminate |= answer.terminate;
                    verdict.context.extend(answer.context);
                    if let Some(reason) = answer.block.or_else(|| answer.common.stop.then(String::new)) {
                        let text = if reason.is_empty() { texts::TOOL_BLOCKED.to_owned() } else { reason };
                        verdict.args = Err(CallFailure::Blocked(text));
                    } else if let Some(replaced) = answer.args {
                        verdict.args = recheck(&replaced);
                    }
                }
                Err(failure) if failure.blocks == Some(false) => self.failed(hook.name(), failure.message),
                Err(failure) => {
                    let text = format!("Hook {} failed: {}", hook.name(), failure.message);
                    verdict.args = Err(CallFailure::Blocked(text));
                }
            }
        }
        Ok(verdict)
    }

    /// Patches a result; tells whether a hook asked for the end of the run. Once the gate is shut the rest is not
    /// asked.
    pub(super) async fn after_tool(
        &mut self,
        scope: &HookScope,
        call: &ToolCall,
        args: &Value,
        output: &mut ToolOutput,
        duration_ms: u64,
    ) -> bool {
        let mut stop = false;
        for hook in self.at(HookPoint::AfterTool) {
            let Ok(token) = self.gate.admit() else { break };
            let asked = AfterTool { scope, call, args, output, duration_ms };
            match self.ask(hook.after_tool(asked, &token)).await {
                Ok(answer) => {
                    stop |= self.common(hook.name(), &answer.common);
                    if let Some(content) = answer.content {
                        output.content = content;
                        output.structured = None;
                    }
                    output.details = answer.details.or(output.details.take());
                    output.is_error = answer.is_error.unwrap_or(output.is_error);
                    output.usage = answer.usage.or(output.usage.take());
                    output.terminate = answer.terminate.unwrap_or(output.terminate);
                    output.content.extend(answer.context.map(Content::text));
                }
                Err(failure) if failure.blocks == Some(true) => {
                    let text = format!("Result withheld: hook {} failed.", hook.name());
                    *output = ToolOutput { usage: output.usage.take(), ..ToolOutput::failure("blocked", text) };
                }
                Err(failure) => self.failed(hook.name(), failure.message),
            }
        }
        stop
    }

    /// The last follow-up that a hook asks for.
    pub(super) async fn before_run_end(
        &mut self,
        scope: &HookScope,
        stop_reason: Option<StopReason>,
        last_text: &str,
        stop_hook_active: bool,
    ) -> Result<Option<String>, Shut> {
        let mut follow_up = None;
        for hook in self.at(HookPoint::BeforeRunEnd) {
            let token = self.gate.admit()?;
            let asked = BeforeRunEnd { scope, stop_reason, last_text, stop_hook_active };
            match self.ask(hook.before_run_end(asked, &token)).await {
                Ok(answer) => {
                    self.common(hook.name(), &answer.common);
                    follow_up = answer.follow_up.or(follow_up);
                }
                Err(failure) => self.failed(hook.name(), failure.message),
            }
        }
        Ok(follow_up.filter(|text| !text.trim().is_empty()))
    }
}

fn blocked(name: &str, reason: String) -> String {
    if reason.is_empty() { format!("Blocked by hook {name}.") } else { reason }
}

fn refused(mut reply: AssistantMessage, text: String) -> AssistantMessage {
    reply.raw_stop_reason.get_or_insert_with(|| reply.stop_reason.as_str().to_owned());
    reply.stop_reason = StopReason::Error;
    reply.error_message = Some(text.clone());
    reply.error = Some(ErrorRecord::new(ErrorKind::Hook, text));
    reply
}

fn patch(request: &mut LlmRequest, patch: OptionsPatch) {
    let options = &mut request.options;
    if let Some(ms) = patch.timeout_ms {
        let timeout = Some(Duration::from_millis(ms));
        options.timeouts.first_event = timeout;
        options.timeouts.idle = timeout;
    }
    if let Some(cache) = patch.cache_retention {
        options.cache = cache;
    }
    for (name, value) in patch.headers {
        options.headers.set(name, value);
    }
    for (key, value) in patch.metadata {
        if value.is_null() {
            options.metadata.remove(&key);
        } else {
            options.metadata.insert(key, value);
        }
    }
    options.deferred = patch.deferred.unwrap_or(options.deferred);
    options.max_output_tokens = patch.max_output_tokens.or(options.max_output_tokens);
}
