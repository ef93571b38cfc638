//! The stream of a reply as it is kept while the reply is not there: frames, merged into bounded batches.
//!
//! Keeps true: what the frames of any number of first batches tell is what the reader of the stream knew at some moment;
//! a delta that joins its neighbour costs the copy of its text; the batches of one reply have a limit in bytes, and
//! behind it nothing more is kept.
//!
//! Must not know: stores, time, who commits a batch, what a recovery makes of the partial reply.
//!
//! # Frames
//!
//! A batch is a list of frames, one element of the list of the reply. All frames but `start` have a `contentIndex`: the
//! position of the block among those that have started.
//!
//! | `type` | fields | means |
//! |---|---|---|
//! | `start` | `partial` {`api`, `provider`, `model`, `timestamp`, `usage`?} | the first frame, and the only one of its type |
//! | `text_start`, `thinking_start` | | a block is added |
//! | `toolcall_start` | `id`, `toolName` | a block is added |
//! | `text_delta`, `thinking_delta`, `toolcall_delta` | `delta` | added to the text; that of a call is raw JSON |
//! | `toolcall_checkpoint` | `raw` | replaces the text of a call; read, never written |
//! | `text_end` | `content`, `textSignature`? | replaces the block |
//! | `thinking_end` | `content`, `thinkingSignature`?, `redacted`? | replaces the block |
//! | `toolcall_end` | `toolCall`: a block of the transcript form | replaces the block |
//!
//! The last frame of a batch without a start may also have `usage`: the newest numbers. A long block whose end says
//! nothing that its deltas did not say has no end frame: the same text is not kept twice, and a block that was not ended
//! is read alike.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{
    AssistantBlock, AssistantHead, AssistantMessage, BlockEvent, MessageBuilder, StopReason, ToolCall, Usage,
};

/// Milliseconds after which the oldest frame of the buffer is due.
const FLUSH_AFTER_MS: u64 = 250;
/// Bytes in the buffer that are due at once.
const FLUSH_BYTES: usize = 4096;
/// Bytes of JSON that are kept of one reply.
const REPLY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of a frame beside its text, about.
const FRAME_BYTES: usize = 64;

/// A frame of a batch.
#[derive(Debug, Serialize, Deserialize)]
struct Framed {
    #[serde(flatten)]
    frame: Frame,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
enum Frame {
    #[serde(rename = "start")]
    Start { partial: Box<Head> },
    #[serde(rename = "text_start")]
    TextStart { content_index: usize },
    #[serde(rename = "text_delta")]
    TextDelta { content_index: usize, delta: String },
    #[serde(rename = "text_end")]
    TextEnd {
        content_index: usize,
        content: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text_signature: Option<String>,
    },
    #[serde(rename = "thinking_start")]
    ThinkingStart { content_index: usize },
    #[serde(rename = "thinking_delta")]
    ThinkingDelta { content_index: usize, delta: String },
    #[serde(rename = "thinking_end")]
    ThinkingEnd {
        content_index: usize,
        content: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking_signature: Option<String>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        redacted: bool,
    },
    #[serde(rename = "toolcall_start")]
    ToolCallStart { content_index: usize, id: String, tool_name: String },
    #[serde(rename = "toolcall_checkpoint")]
    ToolCallCheckpoint { content_index: usize, raw: String },
    #[serde(rename = "toolcall_delta")]
    ToolCallDelta { content_index: usize, delta: String },
    #[serde(rename = "toolcall_end")]
    ToolCallEnd { content_index: usize, tool_call: Box<AssistantBlock> },
}

/// What is known of a reply at its start.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    api: String,
    provider: String,
    model: String,
    timestamp: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

/// Frames of one reply that are not kept yet. It encodes; when to flush, and whether a batch may still be stored, is its
/// owner's business.
#[derive(Debug, Default)]
pub(super) struct FrameBuffer {
    frames: Vec<Framed>,
    /// Bytes of `frames`, about.
    bytes: usize,
    /// Bytes of the batches that were taken.
    taken_bytes: usize,
    /// When the oldest of `frames` came, in monotonic milliseconds.
    first_at_ms: u64,
    /// A block ended, and that is due at once.
    urgent: bool,
    started: bool,
    /// The limit of the reply is reached.
    full: bool,
    /// Numbers that no batch has told yet.
    usage: Option<Usage>,
    /// The block of the newest frame, as the stream counts.
    newest: Option<usize>,
    /// By the index in the stream, which may leave numbers out.
    blocks: BTreeMap<usize, Block>,
}

#[derive(Debug)]
struct Block {
    content_index: usize,
    ended: bool,
    /// Bytes of its deltas.
    delta_bytes: usize,
}

impl FrameBuffer {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// The reply begins. A second start is none.
    pub(super) fn start(&mut self, head: &AssistantHead, now_ms: u64) {
        if self.started {
            return;
        }
        self.started = true;
        let AssistantHead { api, provider, model, timestamp } = head.clone();
        let partial = Box::new(Head { api, provider, model, timestamp, usage: None });
        self.keep(Frame::Start { partial }, 0, now_ms);
    }

    /// Takes an event that a [`MessageBuilder`] let through; ignores those before the start and behind the limit.
    pub(super) fn push(&mut self, index: usize, event: &BlockEvent, now_ms: u64) {
        if !self.started || self.full || event.is_empty_delta() {
            return;
        }
        if let BlockEvent::TextDelta(delta) | BlockEvent::ThinkingDelta(delta) | BlockEvent::ToolCallDelta(delta) =
            event
            && let Some(block) = self.block(index)
        {
            block.delta_bytes = block.delta_bytes.saturating_add(delta.len());
        }
        if self.is_known(index, event) {
            // What waits of it is due as with an end.
            self.urgent = self.close(index).is_some();
            self.newest = None;
            return;
        }
        let bytes = text_bytes(event);
        if self.taken_bytes.saturating_add(self.bytes).saturating_add(bytes) > REPLY_BYTES_MAX {
            self.full = true;
        } else if self.newest == Some(index) && self.join(event) {
            self.bytes = self.bytes.saturating_add(bytes);
        } else if let Some(frame) = self.frame(index, event) {
            self.keep(frame, bytes, now_ms);
            self.newest = Some(index);
        }
    }

    /// Whether the end of a long block says only what its deltas said.
    fn is_known(&self, index: usize, event: &BlockEvent) -> bool {
        let Some(block) = self.blocks.get(&index).filter(|block| block.delta_bytes > FLUSH_BYTES) else { return false };
        match event {
            BlockEvent::TextEnd { content, signature: None }
            | BlockEvent::ThinkingEnd { content, signature: None, redacted: false } => {
                content.len() == block.delta_bytes
            }
            BlockEvent::ToolCallEnd(call) => {
                let ToolCall { arguments_error, thought_signature, namespace, .. } = &**call;
                arguments_error.is_none() && thought_signature.is_none() && namespace.is_none()
            }
            _ => false,
        }
    }

    /// Sets the newest numbers; the next batch tells them. They alone are no reason for one.
    pub(super) fn usage(&mut self, usage: &Usage) {
        self.usage = Some(usage.clone());
    }

    /// When the next batch is due, in monotonic milliseconds; a time that has passed means at once. `None` = nothing
    /// waits, or what waited was the last batch within the limit.
    pub(super) fn due_ms(&self) -> Option<u64> {
        let at_once = self.urgent || self.full || self.bytes >= FLUSH_BYTES;
        let wait_ms = if at_once { 0 } else { FLUSH_AFTER_MS };
        // That a reply has begun is not worth a batch of its own.
        let only_start = self.blocks.is_empty();
        (!self.frames.is_empty() && !only_start).then(|| self.first_at_ms.saturating_add(wait_ms))
    }

    /// The batch, which empties the buffer. `None` = nothing waits, or it would be more than the limit.
    pub(super) fn take(&mut self) -> Option<Value> {
        let mut frames = std::mem::take(&mut self.frames);
        self.bytes = 0;
        self.urgent = false;
        self.newest = None;
        match frames.first_mut()? {
            Framed { frame: Frame::Start { partial }, .. } => partial.usage = self.usage.take(),
            _ => {
                if let Some(newest) = frames.last_mut() {
                    newest.usage = self.usage.take();
                }
            }
        }
        self.taken_bytes = self.taken_bytes.saturating_add(json_bytes(&frames).unwrap_or(usize::MAX));
        let batch = if self.taken_bytes > REPLY_BYTES_MAX { None } else { serde_json::to_value(frames).ok() };
        // A batch that is left out is the last: what comes behind a gap tells nothing.
        self.full |= batch.is_none();
        batch
    }

    /// Adds a frame behind the newest one.
    fn keep(&mut self, frame: Frame, text_bytes: usize, now_ms: u64) {
        if self.frames.is_empty() {
            self.first_at_ms = now_ms;
        }
        if matches!(frame, Frame::TextEnd { .. } | Frame::ThinkingEnd { .. } | Frame::ToolCallEnd { .. }) {
            self.urgent = true;
            self.drop_replaced(&frame);
        }
        self.bytes = self.bytes.saturating_add(text_bytes).saturating_add(FRAME_BYTES);
        self.frames.push(Framed { frame, usage: None });
    }

    /// Takes out the delta that the end of its block replaces in the same batch.
    fn drop_replaced(&mut self, end: &Frame) {
        let replaced = match (self.frames.last().map(|newest| &newest.frame), end) {
            (Some(Frame::TextDelta { content_index: at, delta }), Frame::TextEnd { content_index, .. })
            | (Some(Frame::ThinkingDelta { content_index: at, delta }), Frame::ThinkingEnd { content_index, .. })
            | (Some(Frame::ToolCallDelta { content_index: at, delta }), Frame::ToolCallEnd { content_index, .. })
                if at == content_index =>
            {
                delta.len()
            }
            _ => return,
        };
        self.bytes = self.bytes.saturating_sub(replaced.saturating_add(FRAME_BYTES));
        self.frames.pop();
    }

    /// Adds a delta to the newest frame; whether the two are of one kind.
    fn join(&mut self, event: &BlockEvent) -> bool {
        let newest = self.frames.last_mut().map(|newest| &mut newest.frame);
        let ((Some(Frame::TextDelta { delta, .. }), BlockEvent::TextDelta(more))
        | (Some(Frame::ThinkingDelta { delta, .. }), BlockEvent::ThinkingDelta(more))
        | (Some(Frame::ToolCallDelta { delta, .. }), BlockEvent::ToolCallDelta(more))) = (newest, event)
        else {
            return false;
        };
        delta.push_str(more);
        true
    }

    /// The frame of an event, unless its block is not open.
    fn frame(&mut self, index: usize, event: &BlockEvent) -> Option<Frame> {
        Some(match event {
            BlockEvent::TextStart => Frame::TextStart { content_index: self.open(index)? },
            BlockEvent::ThinkingStart => Frame::ThinkingStart { content_index: self.open(index)? },
            BlockEvent::ToolCallStart { id, name } => {
                Frame::ToolCallStart { content_index: self.open(index)?, id: id.clone(), tool_name: name.clone() }
            }
            BlockEvent::TextDelta(delta) => {
                Frame::TextDelta { content_index: self.block(index)?.content_index, delta: delta.clone() }
            }
            BlockEvent::ThinkingDelta(delta) => {
                Frame::ThinkingDelta { content_index: self.block(index)?.content_index, delta: delta.clone() }
            }
            BlockEvent::ToolCallDelta(delta) => {
                Frame::ToolCallDelta { content_index: self.block(index)?.content_index, delta: delta.clone() }
            }
            BlockEvent::TextEnd { content, signature } => Frame::TextEnd {
                content_index: self.close(index)?,
                content: content.clone(),
                text_signature: signature.clone(),
            },
            BlockEvent::ThinkingEnd { content, signature, redacted } => Frame::ThinkingEnd {
                content_index: self.close(index)?,
                content: content.clone(),
                thinking_signature: signature.clone(),
                redacted: *redacted,
            },
            BlockEvent::ToolCallEnd(call) => Frame::ToolCallEnd {
                content_index: self.close(index)?,
                tool_call: Box::new(AssistantBlock::ToolCall((**call).clone())),
            },
        })
    }

    fn open(&mut self, index: usize) -> Option<usize> {
        if self.blocks.contains_key(&index) {
            return None;
        }
        let content_index = self.blocks.len();
        self.blocks.insert(index, Block { content_index, ended: false, delta_bytes: 0 });
        Some(content_index)
    }

    fn block(&mut self, index: usize) -> Option<&mut Block> {
        self.blocks.get_mut(&index).filter(|block| !block.ended)
    }

    fn close(&mut self, index: usize) -> Option<usize> {
        let block = self.block(index)?;
        block.ended = true;
        Some(block.content_index)
    }
}

/// Bytes of an event's text. The arguments of a call have no text any more.
fn text_bytes(event: &BlockEvent) -> usize {
    match event {
        BlockEvent::TextStart | BlockEvent::ThinkingStart => 0,
        BlockEvent::TextDelta(text) | BlockEvent::ThinkingDelta(text) | BlockEvent::ToolCallDelta(text) => text.len(),
        BlockEvent::TextEnd { content, signature } | BlockEvent::ThinkingEnd { content, signature, .. } => {
            content.len().saturating_add(signature.as_ref().map_or(0, String::len))
        }
        BlockEvent::ToolCallStart { id, name } => id.len().saturating_add(name.len()),
        BlockEvent::ToolCallEnd(call) => json_bytes(&**call).unwrap_or(usize::MAX),
    }
}

/// Bytes of a value as JSON; `None` if it can not be written so.
fn json_bytes(value: &impl Serialize) -> Option<usize> {
    struct Count(usize);

    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).ok()?;
    Some(count.0)
}

/// A reply as far as it was kept.
#[derive(Debug)]
pub(super) struct Partial {
    /// Of stop reason `pending`, its usage zero: the numbers so far are no bill.
    pub(super) message: AssistantMessage,
    /// The newest numbers that were kept.
    pub(super) usage: Option<Usage>,
    /// Characters of its text.
    pub(super) chars: usize,
}

/// Reads the frames of all batches, in order. `None` = there are none.
///
/// # Errors
/// Why they tell nothing: a frame that is none, a second start, a block out of order, or one that is not open.
pub(super) fn reduce(batches: &[Value]) -> Result<Option<Partial>, String> {
    let mut reduction: Option<Reduction> = None;
    for (number, batch) in batches.iter().enumerate() {
        let frames = batch.as_array().ok_or_else(|| format!("batch {number} is no list"))?;
        for frame in frames {
            let at = |reason: &dyn std::fmt::Display| format!("a frame of batch {number}: {reason}");
            let Framed { frame, usage } = Framed::deserialize(frame).map_err(|error| at(&error))?;
            match (&mut reduction, frame) {
                (None, Frame::Start { partial }) => reduction = Some(Reduction::new(*partial)),
                (None, _) => return Err(at(&"it stands before the start")),
                (Some(reduction), frame) => reduction.apply(frame).map_err(|reason| at(&reason))?,
            }
            if let (Some(reduction), Some(usage)) = (&mut reduction, usage) {
                reduction.usage = Some(usage);
            }
        }
    }
    Ok(reduction.map(Reduction::finish))
}

/// Frames that were read so far.
struct Reduction {
    builder: MessageBuilder,
    usage: Option<Usage>,
    /// Blocks that have started.
    blocks: usize,
    /// The text of calls that have not ended.
    calls: BTreeMap<usize, String>,
}

impl Reduction {
    fn new(head: Head) -> Self {
        let Head { api, provider, model, timestamp, usage } = head;
        let builder = MessageBuilder::new(&AssistantHead { api, provider, model, timestamp });
        Self { builder, usage, blocks: 0, calls: BTreeMap::new() }
    }

    fn apply(&mut self, frame: Frame) -> Result<(), &'static str> {
        match frame {
            Frame::Start { .. } => Err("a second start"),
            Frame::TextStart { content_index } => self.open(content_index, &BlockEvent::TextStart),
            Frame::ThinkingStart { content_index } => self.open(content_index, &BlockEvent::ThinkingStart),
            Frame::ToolCallStart { content_index, id, tool_name: name } => {
                self.open(content_index, &BlockEvent::ToolCallStart { id, name })?;
                self.calls.insert(content_index, String::new());
                Ok(())
            }
            Frame::TextDelta { content_index, delta } => self.fold(content_index, &BlockEvent::TextDelta(delta)),
            Frame::ThinkingDelta { content_index, delta } => {
                self.fold(content_index, &BlockEvent::ThinkingDelta(delta))
            }
            Frame::ToolCallDelta { content_index, delta } => {
                self.calls.get_mut(&content_index).ok_or(NOT_OPEN)?.push_str(&delta);
                Ok(())
            }
            Frame::ToolCallCheckpoint { content_index, raw } => {
                *self.calls.get_mut(&content_index).ok_or(NOT_OPEN)? = raw;
                Ok(())
            }
            Frame::TextEnd { content_index, content, text_signature: signature } => {
                self.fold(content_index, &BlockEvent::TextEnd { content, signature })
            }
            Frame::ThinkingEnd { content_index, content, thinking_signature: signature, redacted } => {
                self.fold(content_index, &BlockEvent::ThinkingEnd { content, signature, redacted })
            }
            Frame::ToolCallEnd { content_index, tool_call } => {
                let AssistantBlock::ToolCall(call) = *tool_call else { return Err("it holds no call") };
                self.end_call(content_index, call)
            }
        }
    }

    fn open(&mut self, index: usize, event: &BlockEvent) -> Result<(), &'static str> {
        if index != self.blocks {
            return Err("a block out of order");
        }
        self.blocks += 1;
        self.fold(index, event)
    }

    fn fold(&mut self, index: usize, event: &BlockEvent) -> Result<(), &'static str> {
        self.builder.fold(index, event).ok_or(NOT_OPEN)
    }

    fn end_call(&mut self, index: usize, call: ToolCall) -> Result<(), &'static str> {
        self.calls.remove(&index).ok_or(NOT_OPEN)?;
        self.fold(index, &BlockEvent::ToolCallEnd(Box::new(call)))
    }

    fn finish(mut self) -> Partial {
        for (index, raw) in std::mem::take(&mut self.calls) {
            // The builder reads what was cut off; the call is open, so the text fits.
            let _fits = self.builder.fold(index, &BlockEvent::ToolCallDelta(raw));
        }
        let message = self.builder.finish(StopReason::Pending, None, false);
        let chars = message.text().chars().count();
        Partial { message, usage: self.usage, chars }
    }
}

const NOT_OPEN: &str = "its block is not open, or of another kind";

#[cfg(test)]
mod tests;
