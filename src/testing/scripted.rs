//! A provider that plays a script, step by step.
//!
//! Keeps true: the same script and seed give the same events; every request is recorded; a script can break every rule
//! of the stream contract, so that tests see what the loop makes of it.
//!
//! Must not know: protocols, what is tested.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::model::{
    AssistantBlock, AssistantHead, AssistantMessage, BlockEvent, ErrorKind, ErrorRecord, MessageBuilder, StopReason,
    TextBlock, ThinkingBlock, ToolCall, Usage,
};
use crate::port::{AssistantEvent, LlmRequest, Provider};
use crate::turn::texts;

/// A provider that plays replies in order and records the requests it got. A request beyond the script is answered
/// with a failed reply.
#[derive(Debug)]
pub struct ScriptedProvider {
    replies: Mutex<VecDeque<Reply>>,
    /// Replies of single models, by their ids; these models get no others.
    of_models: Mutex<HashMap<String, VecDeque<Reply>>>,
    requests: Mutex<Vec<Arc<LlmRequest>>>,
    /// Streams that have begun to wait.
    stalls: Arc<watch::Sender<usize>>,
    seed: u64,
}

/// One scripted reply: what the stream does, step by step.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    acts: Option<Vec<Act>>,
    /// Instead of those that the content gives.
    events: Option<Vec<(usize, BlockEvent)>>,
    content: Vec<AssistantBlock>,
    stall: Option<Stall>,
    stop: Option<StopReason>,
    error: Option<ErrorRecord>,
    error_message: Option<String>,
    usage: Option<Usage>,
    chunk: Option<(usize, usize)>,
}

/// How a reply stops in its middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stall {
    /// Until the run is cancelled.
    UntilCancelled,
    /// For ever.
    Hang,
}

/// One step of a raw stream.
#[derive(Clone, Debug)]
pub enum Act {
    Emit(AssistantEvent),
    /// Waits until the run is cancelled.
    WaitForCancel,
    /// Never goes on, whatever happens.
    Hang,
    Sleep(Duration),
    Panic(String),
}

/// A call block.
pub fn call(id: &str, name: &str, arguments: &Value) -> AssistantBlock {
    AssistantBlock::ToolCall(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
        ..ToolCall::default()
    })
}

impl Reply {
    /// One text block, stop reason `stop`.
    pub fn text(text: &str) -> Self {
        Self::blocks(vec![AssistantBlock::text(text)])
    }

    /// These blocks; `toolUse` if there is a call, else `stop`.
    pub fn blocks(content: Vec<AssistantBlock>) -> Self {
        Self { content, ..Self::default() }
    }

    /// Fails without content, with a text but no record, as a careless adapter would.
    pub fn fail(text: &str) -> Self {
        Self { stop: Some(StopReason::Error), error_message: Some(text.to_owned()), ..Self::default() }
    }

    /// Fails with a record.
    pub fn error(record: ErrorRecord) -> Self {
        let error_message = Some(record.message.clone());
        Self { stop: Some(StopReason::Error), error: Some(record), error_message, ..Self::default() }
    }

    /// Text that comes in exactly these deltas.
    pub fn text_deltas(deltas: &[&str]) -> Self {
        let content = deltas.concat();
        let mut events = vec![BlockEvent::TextStart];
        events.extend(deltas.iter().map(|delta| BlockEvent::TextDelta((*delta).to_owned())));
        events.push(BlockEvent::TextEnd { content: content.clone(), signature: None });
        let events = events.into_iter().map(|event| (0, event)).collect();
        Self { events: Some(events), ..Self::text(&content) }
    }

    /// A call whose arguments come in these deltas and do not end; for a reply that stops there.
    pub fn call_deltas(id: &str, name: &str, deltas: &[&str]) -> Self {
        let mut events = vec![(0, BlockEvent::ToolCallStart { id: id.to_owned(), name: name.to_owned() })];
        events.extend(deltas.iter().map(|delta| (0, BlockEvent::ToolCallDelta((*delta).to_owned()))));
        Self { events: Some(events), stall: Some(Stall::UntilCancelled), ..Self::default() }
    }

    /// Exactly these steps.
    pub fn raw(acts: Vec<Act>) -> Self {
        Self { acts: Some(acts), ..Self::default() }
    }

    /// Ends with this stop reason.
    #[must_use]
    pub fn stop(mut self, stop: StopReason) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Streams everything but its end, then waits for the cancellation and ends aborted with what came.
    #[must_use]
    pub fn stalls(mut self) -> Self {
        self.stall = Some(Stall::UntilCancelled);
        self
    }

    /// Streams everything but its end, then never goes on, cancelled or not.
    #[must_use]
    pub fn hangs(mut self) -> Self {
        self.stall = Some(Stall::Hang);
        self
    }

    /// Carries this text as its error.
    #[must_use]
    pub fn error_message(mut self, text: &str) -> Self {
        self.error_message = Some(text.to_owned());
        self
    }

    /// Reports these numbers.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Cuts texts into deltas of `min` to `max` characters, chosen by the script's seed; otherwise a text is one
    /// delta.
    #[must_use]
    pub fn chunks(mut self, min: usize, max: usize) -> Self {
        self.chunk = Some((min.max(1), max.max(min).max(1)));
        self
    }

    fn play(self, head: &AssistantHead, random: &mut Random) -> Vec<Act> {
        if let Some(acts) = self.acts {
            return acts;
        }
        let mut acts = vec![Act::Emit(AssistantEvent::Start(head.clone()))];
        let mut events = self.events.unwrap_or_default();
        if events.is_empty() {
            for (index, block) in self.content.iter().enumerate() {
                let of_block = block_events(block, self.chunk, random);
                events.extend(of_block.into_iter().map(|event| (index, event)));
            }
        }
        if let Some(stall) = self.stall {
            acts.extend(stalled(head, events, self.usage, stall));
            return acts;
        }
        acts.extend(events.into_iter().map(|(index, event)| Act::Emit(AssistantEvent::Block { index, event })));
        let has_call = self.content.iter().any(|block| matches!(block, AssistantBlock::ToolCall(_)));
        let natural = if has_call { StopReason::ToolUse } else { StopReason::Stop };
        let mut message = AssistantMessage::pending(head);
        message.content = self.content;
        message.stop_reason = self.stop.unwrap_or(natural);
        message.error = self.error;
        message.error_message = self.error_message;
        message.usage = self.usage.unwrap_or_default();
        acts.push(Act::Emit(AssistantEvent::End(Box::new(message))));
        acts
    }
}

/// What came before a reply stopped, and its end if it is cancelled there.
fn stalled(head: &AssistantHead, mut events: Vec<(usize, BlockEvent)>, usage: Option<Usage>, stall: Stall) -> Vec<Act> {
    let ends = |event: &BlockEvent| matches!(event, BlockEvent::TextEnd { .. } | BlockEvent::ThinkingEnd { .. });
    if events.last().is_some_and(|(_, event)| ends(event)) {
        events.pop();
    }
    let mut builder = MessageBuilder::new(head);
    let mut acts = Vec::new();
    for (index, event) in events {
        builder.fold(index, &event);
        acts.push(Act::Emit(AssistantEvent::Block { index, event }));
    }
    if let Some(usage) = usage {
        builder.usage(usage.clone());
        acts.push(Act::Emit(AssistantEvent::Usage(Box::new(usage))));
    }
    match stall {
        Stall::Hang => acts.push(Act::Hang),
        Stall::UntilCancelled => {
            acts.push(Act::WaitForCancel);
            acts.push(Act::Emit(AssistantEvent::End(Box::new(builder.abort(texts::CANCELLED)))));
        }
    }
    acts
}

fn block_events(block: &AssistantBlock, chunk: Option<(usize, usize)>, random: &mut Random) -> Vec<BlockEvent> {
    match block {
        AssistantBlock::Text(TextBlock { text, text_signature, .. }) => {
            let mut events = vec![BlockEvent::TextStart];
            events.extend(cut(text, chunk, random).into_iter().map(BlockEvent::TextDelta));
            events.push(BlockEvent::TextEnd { content: text.clone(), signature: text_signature.clone() });
            events
        }
        AssistantBlock::Thinking(ThinkingBlock { thinking, thinking_signature, redacted, .. }) => {
            let mut events = vec![BlockEvent::ThinkingStart];
            events.extend(cut(thinking, chunk, random).into_iter().map(BlockEvent::ThinkingDelta));
            events.push(BlockEvent::ThinkingEnd {
                content: thinking.clone(),
                signature: thinking_signature.clone(),
                redacted: *redacted == Some(true),
            });
            events
        }
        AssistantBlock::ToolCall(call) => {
            let raw = match &call.arguments_error {
                Some(error) => error.raw.clone(),
                None => Value::Object(call.arguments.clone()).to_string(),
            };
            let mut events = vec![BlockEvent::ToolCallStart { id: call.id.clone(), name: call.name.clone() }];
            events.extend(cut(&raw, chunk, random).into_iter().map(BlockEvent::ToolCallDelta));
            events.push(BlockEvent::ToolCallEnd(Box::new(call.clone())));
            events
        }
        AssistantBlock::Other(_) => Vec::new(),
    }
}

/// Cuts on character boundaries.
fn cut(text: &str, chunk: Option<(usize, usize)>, random: &mut Random) -> Vec<String> {
    let Some((min, max)) = chunk else { return vec![text.to_owned()] };
    let mut pieces = Vec::new();
    let mut rest = text.chars().peekable();
    while rest.peek().is_some() {
        let size = min + random.below(max - min + 1);
        pieces.push(rest.by_ref().take(size).collect());
    }
    pieces
}

/// A small seeded generator (xorshift); good enough to choose chunk sizes.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound.max(1)).unwrap_or(1)).unwrap_or(0)
    }
}

impl ScriptedProvider {
    /// Plays these replies, one per request.
    pub fn new(replies: Vec<Reply>) -> Arc<Self> {
        Self::seeded(replies, 0)
    }

    /// The seed chooses the sizes of chunks.
    pub fn seeded(replies: Vec<Reply>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            replies: Mutex::new(replies.into()),
            of_models: Mutex::default(),
            requests: Mutex::default(),
            stalls: Arc::new(watch::Sender::new(0)),
            seed,
        })
    }

    /// Plays these replies to requests of these models, by their ids.
    pub fn of_models<'a>(scripts: impl IntoIterator<Item = (&'a str, Vec<Reply>)>) -> Arc<Self> {
        let provider = Self::new(Vec::new());
        let scripts = scripts.into_iter().map(|(model, replies)| (model.to_owned(), replies.into()));
        lock(&provider.of_models).extend(scripts);
        provider
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<Arc<LlmRequest>> {
        lock(&self.requests).clone()
    }

    /// How many requests there were.
    pub fn count(&self) -> usize {
        lock(&self.requests).len()
    }

    /// How many requests there were of one model.
    pub fn count_of(&self, model: &str) -> usize {
        lock(&self.requests).iter().filter(|request| request.model.id == model).count()
    }

    /// Waits until so many streams have come to a point where they wait for a cancellation or hang. All before it was
    /// taken then.
    pub async fn stalled(&self, count: usize) {
        let mut seen = self.stalls.subscribe();
        // The sender lives as long as this does.
        drop(seen.wait_for(|stalls| *stalls >= count).await);
    }

    fn next_reply(&self, model: &str) -> Reply {
        let of_model = lock(&self.of_models).get_mut(model).map(VecDeque::pop_front);
        let reply = of_model.unwrap_or_else(|| lock(&self.replies).pop_front());
        reply.unwrap_or_else(|| Reply::error(ErrorRecord::new(ErrorKind::Config, "The script has no reply left.")))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Provider for ScriptedProvider {
    fn stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> BoxStream<'static, AssistantEvent> {
        let head = AssistantHead {
            api: request.model.api.clone(),
            provider: request.model.provider.clone(),
            model: request.model.id.clone(),
            timestamp: 0,
        };
        let count = {
            let mut requests = lock(&self.requests);
            requests.push(request);
            requests.len()
        };
        let reply = self.next_reply(&head.model);
        let mut random = Random(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (count as u64) ^ 0x2545_F491_4F6C_DD1D);
        let acts: VecDeque<Act> = reply.play(&head, &mut random).into();
        let stalls = Arc::clone(&self.stalls);
        stream::unfold((acts, cancel, stalls), |(mut acts, cancel, stalls)| async move {
            loop {
                match acts.pop_front()? {
                    Act::Emit(event) => return Some((event, (acts, cancel, stalls))),
                    Act::WaitForCancel => {
                        stalls.send_modify(|count| *count += 1);
                        cancel.cancelled().await;
                    }
                    Act::Hang => {
                        stalls.send_modify(|count| *count += 1);
                        std::future::pending::<()>().await;
                    }
                    Act::Sleep(duration) => sleep(duration).await,
                    #[expect(clippy::panic, reason = "a script may ask for a crash")]
                    Act::Panic(text) => panic!("{text}"),
                }
            }
        })
        .boxed()
    }
}

#[expect(clippy::disallowed_methods, reason = "a script may wait on the runtime's pausable time")]
async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}
