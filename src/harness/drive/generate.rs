//! A request and its reply, from `assistant.ready` to the settlement.
//!
//! Keeps true: the intent is stored before the request goes out; a reply is stored once, with its usage and what comes
//! of it; what streams is kept in frames, of which a kill loses the last quarter of a second.
//!
//! Must not know: protocols, what a reply says.

use std::collections::HashSet;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::super::core::Halt;
use super::super::error::Fault;
use super::super::frames::FrameBuffer;
use super::super::gate::Shut;
use super::super::memory::{LaneMemory, Open};
use super::super::options::{Blocked, Wait};
use super::super::phase::{Facts, request, settle};
use super::super::plan::Plan;
use super::{Driver, Step};
use crate::model::session::namespace;
use crate::model::{
    AssistantHead, AssistantMessage, Diagnostic, EntryId, Event, GenerationContext, HandlerKind, LaneConfig, Leaf,
    Message, Model, PendingReply, RunId, Thinking,
};
use crate::port::{Credential, HookPoint, LlmRequest, Purpose, ResponseMeta};
use crate::turn::{self, ReplyItem, ReplyReader};

/// A request that can go out.
struct Ready {
    request: LlmRequest,
    notes: Vec<Diagnostic>,
    refused: Option<String>,
}

/// What a stream left.
struct Read {
    reply: AssistantMessage,
    meta: Option<Box<ResponseMeta>>,
}

impl Driver<'_> {
    pub(super) async fn generate(&mut self, open: Open) -> Result<Step, Halt> {
        // What an earlier attempt failed with is not what ends the operation now.
        self.failure = None;
        let (context, attempt) = request::ready(&open)?;
        let prepared = open.state.leaf.clone();
        let model = match self.identities(&context.configuration) {
            Ok(model) => model,
            Err(Blocked::Credential { provider, variables }) => {
                return self.without_key(&open, provider, variables).await;
            }
            Err(blocked) => return Ok(Step::Waiting(Wait::Blocked(blocked))),
        };
        let Ok(ready) = self.prepare(&open, context, attempt, &model).await? else {
            self.gate_settled().await;
            return Ok(Step::Continue);
        };
        if let Some(reason) = ready.refused {
            let refuse = |lane: &LaneMemory, open: &Open, facts: &Facts<'_>| {
                let same = open.state.leaf == prepared;
                Ok((same.then(|| request::refuse(lane, open, reason, facts)).transpose()?, ()))
            };
            self.go_on(refuse).await?;
            return Ok(Step::Continue);
        }
        let asked = ready.request.options.max_output_tokens;
        let (recovery, known) = (self.resumed && !self.turn_is_open()?, model.clone());
        let intended = self
            .go_on(|lane, open, facts| {
                // A configuration that changed meanwhile asks for another request than the one that was made.
                if open.state.leaf != prepared {
                    return Ok((None, None));
                }
                let (plan, pending) = request::intend(lane, open, &known, asked, recovery, facts)?;
                Ok((Some(plan), Some(pending)))
            })
            .await?;
        let Some(pending) = intended.flatten() else { return Ok(Step::Continue) };
        self.flush().await?;
        let read = self.ask(&pending, ready, &model).await?;
        let (reply, stop) = self.after_response(&open, &pending, read).await?;
        self.settle_reply(&pending, reply, stop, Some(model)).await?;
        Ok(Step::Continue)
    }

    fn turn_is_open(&self) -> Result<bool, Fault> {
        self.read(|lane| lane.stream.turn.is_some())
    }

    /// The model and tools that were captured, as they are here now.
    fn identities(&self, configuration: &LaneConfig) -> Result<Model, Blocked> {
        let (provider, id) = (&configuration.model.provider, &configuration.model.model_id);
        let Some(model) = self.core.options.models.resolve(provider, id) else {
            return Err(Blocked::Model { model: request::spec(configuration) });
        };
        let missing = |name: &&String| self.core.find_tool(name).is_none();
        let mut names: Vec<String> = configuration.active_tool_names.iter().filter(missing).cloned().collect();
        if !names.is_empty() {
            names.sort();
            return Err(Blocked::Tools { names });
        }
        match self.core.options.models.credential(provider) {
            Credential::Present => Ok(model),
            Credential::Missing(variables) => Err(Blocked::Credential { provider: provider.clone(), variables }),
        }
    }

    /// A model without a key is passed over, without an attempt, on the way to one that has a key. Where none has, the
    /// operation stays where it is, so that any of the keys lets it go on.
    async fn without_key(&mut self, open: &Open, provider: String, variables: Vec<String>) -> Result<Step, Halt> {
        let mut variables = variables;
        let mut has_key = false;
        for fallback in open.state.settings.fallbacks.iter().skip(open.state.fallback_index) {
            match self.core.options.models.credential(&fallback.model.provider) {
                Credential::Present => has_key = true,
                Credential::Missing(others) => variables.extend(others),
            }
        }
        if !has_key {
            let mut seen = HashSet::new();
            variables.retain(|variable| seen.insert(variable.clone()));
            return Ok(Step::Waiting(Wait::Blocked(Blocked::Credential { provider, variables })));
        }
        let reason = format!("no key for {provider}");
        let without = open.state.leaf.clone();
        let pass_over = |lane: &LaneMemory, open: &Open, facts: &Facts<'_>| {
            // A configuration that changed meanwhile may have a key.
            let same = open.state.leaf == without;
            Ok((same.then(|| request::pass_over(lane, open, &reason, facts)).transpose()?, ()))
        };
        self.go_on(pass_over).await?;
        Ok(Step::Continue)
    }

    /// Makes the request: transformed, projected, and as hooks leave its options.
    async fn prepare(
        &mut self,
        open: &Open,
        context: &GenerationContext,
        attempt: u32,
        model: &Model,
    ) -> Result<Result<Ready, Shut>, Halt> {
        let options = &self.core.options;
        let messages = self.read(|lane| lane.context(&options.projectors))?;
        let prompt = open.meta.system_prompt.clone().unwrap_or_default();
        let mut chain = self.chain();
        let asks = chain.listens(HookPoint::TransformContext) || chain.listens(HookPoint::BeforeRequest);
        if asks {
            self.flush().await?;
        }
        let (messages, system_prompt) = match chain.transform(messages, prompt).await {
            Ok(shaped) => shaped,
            Err(shut) => {
                let notes = std::mem::take(&mut chain.notes);
                drop(chain);
                self.emit_all(notes);
                return Ok(Err(shut));
            }
        };
        let projection = turn::project(&turn::default_convert(messages), model);
        let configuration = &context.configuration;
        let mut stream_options = options.stream_options.clone();
        let (bus, lane) = (Arc::clone(&self.core.bus), Arc::clone(&self.name));
        let failed = move |name: &str, error| {
            let event = Event::HandlerError { kind: HandlerKind::Hook, name: name.to_owned(), error };
            bus.push(&lane, false, event);
        };
        stream_options.observers.on_payload =
            chain.payload_observer(stream_options.observers.on_payload.take(), failed);
        let tools = configuration.active_tool_names.iter().filter_map(|name| self.core.find_tool(name));
        let mut request = LlmRequest {
            model: model.clone(),
            system_prompt,
            messages: projection.messages,
            tools: tools.map(|tool| tool.spec().clone()).collect(),
            thinking: thinking(configuration),
            options: stream_options,
            output_schema: None,
            purpose: Purpose::Run,
            session_id: options.session_id.clone(),
        };
        let scope = self.scope(open, format!("{}:{attempt}", context.step_id));
        let refused = chain.before_request(&scope, attempt, &mut request).await;
        let notes = std::mem::take(&mut chain.notes);
        drop(chain);
        self.emit_all(notes);
        Ok(refused.map(|refused| Ready { request, notes: projection.notes, refused }))
    }

    /// Sends the request and reads its reply to the end.
    async fn ask(&self, pending: &PendingReply, ready: Ready, model: &Model) -> Result<Read, Halt> {
        let clock = Arc::clone(&self.core.options.clock);
        let head = AssistantHead {
            api: model.api.clone(),
            provider: model.provider.clone(),
            model: model.id.clone(),
            timestamp: clock.now_ms(),
        };
        let reader = match self.admitted().await {
            Some(token) => {
                let provider = &*self.core.options.provider;
                ReplyReader::open(provider, Arc::new(ready.request), head, token, Arc::clone(&clock))
            }
            // The intent is stored; nothing of it was begun.
            None => ReplyReader::unasked(head, Arc::clone(&clock)),
        };
        let mut streaming = Streaming {
            driver: self,
            pending,
            reader,
            frames: FrameBuffer::new(),
            flight: None,
            timer: None,
            meta: None,
        };
        streaming.run().await?;
        let Streaming { reader, mut frames, flight, meta, .. } = streaming;
        if let Some(flight) = flight {
            flight.await?;
        }
        // The settlement follows at once, unless a hook takes its time before it.
        if self.chain().listens(HookPoint::AfterResponse)
            && let Some(batch) = frames.take()
        {
            self.store_frames(self.operation.clone(), pending.response_entry_id.clone(), batch).await?;
        }
        let cancelled = self.look().is_some_and(|open| open.cancelled());
        let mut reply = reader.finish(cancelled, ready.notes);
        reply.thinking_level = thinking(&pending.generation_context.configuration);
        Ok(Read { reply, meta })
    }

    async fn after_response(
        &mut self,
        open: &Open,
        pending: &PendingReply,
        read: Read,
    ) -> Result<(AssistantMessage, bool), Halt> {
        let Read { reply, meta } = read;
        let mut chain = self.chain();
        if !chain.listens(HookPoint::AfterResponse) {
            return Ok((reply, false));
        }
        self.flush().await?;
        let scope = self.scope(open, pending.response_entry_id.as_str());
        let answered = chain.after_response(&scope, reply, meta.as_deref()).await;
        let notes = std::mem::take(&mut chain.notes);
        drop(chain);
        self.emit_all(notes);
        self.gate_settled().await;
        Ok(answered)
    }

    async fn settle_reply(
        &mut self,
        pending: &PendingReply,
        reply: AssistantMessage,
        stop: bool,
        model: Option<Model>,
    ) -> Result<(), Halt> {
        let settlement = settle::Settlement { reply, model, stop, interrupted: None };
        // What an abort on its way decides comes first.
        self.gate_settled().await;
        let error = self
            .settle(|lane, open, facts| {
                let plan = settle::reply(lane, open, pending, settlement, facts)?;
                let error = plan.stored_error();
                Ok((Some(plan), error))
            })
            .await?;
        self.failure = error;
        Ok(())
    }
}

/// The level of a configuration; none = the model's default.
fn thinking(configuration: &LaneConfig) -> Option<Thinking> {
    configuration.thinking_level.as_deref().and_then(Thinking::from_word)
}

/// A reply that streams: told, folded, and kept in frames.
struct Streaming<'a, 'd> {
    driver: &'a Driver<'d>,
    pending: &'a PendingReply,
    reader: ReplyReader,
    frames: FrameBuffer,
    /// A batch of frames on its way to the store; the reading does not wait for it.
    flight: Option<BoxFuture<'a, Result<(), Halt>>>,
    /// When the oldest frame is due.
    timer: Option<BoxFuture<'a, ()>>,
    meta: Option<Box<ResponseMeta>>,
}

impl Streaming<'_, '_> {
    async fn run(&mut self) -> Result<(), Halt> {
        loop {
            let item = {
                let flight = async {
                    match &mut self.flight {
                        Some(flight) => flight.await,
                        None => std::future::pending().await,
                    }
                };
                let timer = async {
                    match &mut self.timer {
                        Some(timer) => timer.await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    item = self.reader.next() => Some(item),
                    stored = flight => {
                        self.flight = None;
                        stored?;
                        None
                    }
                    () = timer => {
                        self.timer = None;
                        None
                    }
                }
            };
            match item {
                Some(None) => return Ok(()),
                Some(Some(item)) => self.take(item).await?,
                None => {}
            }
            self.keep().await?;
        }
    }

    async fn take(&mut self, item: ReplyItem) -> Result<(), Halt> {
        let driver = self.driver;
        let now = driver.core.options.clock.monotonic_ms();
        match item {
            ReplyItem::Opened(head) => {
                self.frames.start(&head, now);
                driver.emit(Event::MessageStart {
                    message: Arc::new(Message::Assistant(AssistantMessage::pending(&head))),
                });
            }
            ReplyItem::Update { index, event, usage } => {
                self.frames.push(index, &event, now);
                if let Some(usage) = &usage {
                    self.frames.usage(usage);
                }
                driver.emit(Event::MessageUpdate { index, event, usage });
            }
            ReplyItem::Warning { code, message } => driver.emit(Event::Warning { code, message }),
            ReplyItem::Meta(meta) => {
                self.meta = Some(meta);
                return Ok(());
            }
        }
        self.flush().await
    }

    /// Tells what there is. A batch on its way goes on meanwhile: it may hold what a listener waits for.
    async fn flush(&mut self) -> Result<(), Halt> {
        let driver = self.driver;
        let mut told = std::pin::pin!(driver.flush());
        while let Some(flight) = &mut self.flight {
            tokio::select! {
                biased;
                told = &mut told => return told,
                stored = flight => {
                    self.flight = None;
                    stored?;
                }
            }
        }
        told.await
    }

    /// Sends frames on their way when they are due and none are under way.
    async fn keep(&mut self) -> Result<(), Halt> {
        if self.flight.is_some() {
            return Ok(());
        }
        let Some(due) = self.frames.due_ms() else { return Ok(()) };
        let now = self.driver.core.options.clock.monotonic_ms();
        if due > now {
            if self.timer.is_none() {
                let clock = Arc::clone(&self.driver.core.options.clock);
                self.timer = Some(Box::pin(async move { clock.sleep(Duration::from_millis(due - now)).await }));
            }
            return Ok(());
        }
        self.timer = None;
        if let Some(batch) = self.frames.take() {
            let driver = self.driver;
            let (operation, id) = (driver.operation.clone(), self.pending.response_entry_id.clone());
            let mut flight: BoxFuture<'_, _> = Box::pin(async move { driver.store_frames(operation, id, batch).await });
            // At once, where nothing is in the way: a stream that always has more would keep it waiting.
            match std::future::poll_fn(|cx| Poll::Ready(flight.as_mut().poll(cx))).await {
                Poll::Ready(stored) => stored?,
                Poll::Pending => self.flight = Some(flight),
            }
        }
        Ok(())
    }
}

impl Driver<'_> {
    /// Adds a batch of frames; nothing where the reply is no longer waited for.
    async fn store_frames(&self, operation: RunId, id: EntryId, batch: serde_json::Value) -> Result<(), Halt> {
        self.core
            .job(self.lane, |lane, _| {
                let waits = lane.operation.as_ref().is_some_and(|open| {
                    matches!(&open.state.leaf, Leaf::AssistantPending(pending) if pending.response_entry_id == id)
                });
                if !waits {
                    return Ok((None, ()));
                }
                let mut plan = Plan::new(lane);
                plan.append(namespace::FRAMES, &format!("{operation}:{id}"), batch);
                Ok::<_, Halt>((Some(plan), ()))
            })
            .await
    }
}
