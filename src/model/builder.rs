//! A reply under construction: block events in, one message out.
//!
//! Keeps true: blocks stand in the order of their indexes, whatever order they end in; an event that fits no open block
//! changes nothing; ids of calls are unique; a reply that breaks off keeps what came. Linear in the text: nothing is
//! copied or parsed per delta.
//!
//! Must not know: protocols, who reads the events.

use super::partial::best_effort;
use super::{
    AssistantBlock, AssistantHead, AssistantMessage, BlockEvent, CallIds, Diagnostic, ErrorRecord, Extra, StopReason,
    TextBlock, ThinkingBlock, ToolCall, Usage,
};

/// Folds the block events of one reply into a message. Text grows with amortised cost; nothing is copied per delta.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageBuilder {
    message: AssistantMessage,
    blocks: Vec<Slot>,
    ids: CallIds,
}

#[derive(Clone, Debug, PartialEq)]
struct Slot {
    index: usize,
    block: AssistantBlock,
    /// Argument text of a call that has not ended.
    raw: String,
    ended: bool,
}

impl MessageBuilder {
    /// An empty reply.
    pub fn new(head: &AssistantHead) -> Self {
        Self { message: AssistantMessage::pending(head), blocks: Vec::new(), ids: CallIds::default() }
    }

    /// Applies one event and gives it back as readers may see it: an empty delta vanishes, and so does an event for
    /// a block that never started or has ended; a repeated call id becomes `id-2`, `id-3`, ….
    pub fn apply(&mut self, index: usize, event: BlockEvent) -> Option<BlockEvent> {
        if event.is_empty_delta() {
            return None;
        }
        let event = self.unique_id(index, event);
        self.fold(index, &event)?;
        Some(event)
    }

    /// Applies an event that another builder let through: no id is renamed. `None` if it fits no open block.
    pub fn fold(&mut self, index: usize, event: &BlockEvent) -> Option<()> {
        match event {
            BlockEvent::TextStart => self.open(index, AssistantBlock::text(""))?,
            BlockEvent::ThinkingStart => self.open(index, AssistantBlock::Thinking(ThinkingBlock::default()))?,
            BlockEvent::ToolCallStart { id, name } => {
                let call = ToolCall { id: id.clone(), name: name.clone(), ..ToolCall::default() };
                self.open(index, AssistantBlock::ToolCall(call))?;
            }
            BlockEvent::TextDelta(delta) => match self.slot(index)? {
                Slot { block: AssistantBlock::Text(block), .. } => block.text.push_str(delta),
                _ => return None,
            },
            BlockEvent::ThinkingDelta(delta) => match self.slot(index)? {
                Slot { block: AssistantBlock::Thinking(block), .. } => block.thinking.push_str(delta),
                _ => return None,
            },
            BlockEvent::ToolCallDelta(delta) => match self.slot(index)? {
                Slot { block: AssistantBlock::ToolCall(_), raw, .. } => raw.push_str(delta),
                _ => return None,
            },
            BlockEvent::TextEnd { content, signature } => {
                let block = TextBlock { text: content.clone(), text_signature: signature.clone(), extra: Extra::new() };
                self.close(index, AssistantBlock::Text(block))?;
            }
            BlockEvent::ThinkingEnd { content, signature, redacted } => {
                let block = ThinkingBlock {
                    thinking: content.clone(),
                    thinking_signature: signature.clone(),
                    redacted: redacted.then_some(true),
                    extra: Extra::new(),
                };
                self.close(index, AssistantBlock::Thinking(block))?;
            }
            BlockEvent::ToolCallEnd(call) => self.close(index, AssistantBlock::ToolCall((**call).clone()))?,
        }
        Some(())
    }

    /// Sets the numbers reported so far.
    pub fn usage(&mut self, usage: Usage) {
        self.message.usage = usage;
    }

    /// Sets the server's id and, where it differs from the one asked for, the model that answers.
    pub fn identity(&mut self, response_id: Option<String>, response_model: Option<String>) {
        if response_id.is_some() {
            self.message.response_id = response_id;
        }
        if response_model.is_some() {
            self.message.response_model = response_model;
        }
    }

    /// Adds a note for people.
    pub fn diagnostic(&mut self, code: impl Into<String>, message: impl Into<String>) {
        self.message.diagnostics.push(Diagnostic { code: code.into(), message: message.into() });
    }

    /// The message so far, stop reason `pending`. Copies; ask rarely.
    pub fn snapshot(&self) -> AssistantMessage {
        let mut copy = self.clone();
        copy.settle_blocks();
        copy.message
    }

    /// The finished message.
    pub fn finish(
        mut self,
        stop_reason: StopReason,
        raw_stop_reason: Option<String>,
        overflow: bool,
    ) -> AssistantMessage {
        self.settle_blocks();
        self.message.stop_reason = stop_reason;
        self.message.raw_stop_reason = raw_stop_reason;
        self.message.overflow = overflow.then_some(true);
        self.message
    }

    /// The message as far as it came, ended by an error.
    pub fn fail(mut self, error: ErrorRecord) -> AssistantMessage {
        self.settle_blocks();
        self.message.stop_reason = StopReason::Error;
        self.message.error_message = Some(error.message.clone());
        self.message.error = Some(error);
        self.message
    }

    /// The message as far as it came, ended by a cancellation.
    pub fn abort(mut self, text: &str) -> AssistantMessage {
        self.settle_blocks();
        self.message.stop_reason = StopReason::Aborted;
        self.message.error_message = Some(text.to_owned());
        self.message
    }

    fn settle_blocks(&mut self) {
        for slot in std::mem::take(&mut self.blocks) {
            let mut block = slot.block;
            if let AssistantBlock::ToolCall(call) = &mut block
                && !slot.ended
            {
                call.arguments = best_effort(&slot.raw);
            }
            let empty = match &block {
                AssistantBlock::Text(block) => block.text.is_empty() && block.text_signature.is_none(),
                AssistantBlock::Thinking(block) => {
                    block.thinking.is_empty() && block.thinking_signature.is_none() && !slot.ended
                }
                AssistantBlock::ToolCall(_) | AssistantBlock::Other(_) => false,
            };
            if !empty {
                self.message.content.push(block);
            }
        }
    }

    fn open(&mut self, index: usize, block: AssistantBlock) -> Option<()> {
        let at = self.position(index).err()?;
        self.blocks.insert(at, Slot { index, block, raw: String::new(), ended: false });
        Some(())
    }

    fn slot(&mut self, index: usize) -> Option<&mut Slot> {
        let at = self.position(index).ok()?;
        self.blocks.get_mut(at).filter(|slot| !slot.ended)
    }

    /// Where a block stands, or where it would. Nearly always it is the newest one; of thousands that are open at the
    /// same time it may be any.
    fn position(&self, index: usize) -> Result<usize, usize> {
        match self.blocks.last() {
            Some(last) if last.index == index => Ok(self.blocks.len() - 1),
            _ => self.blocks.binary_search_by_key(&index, |slot| slot.index),
        }
    }

    fn close(&mut self, index: usize, block: AssistantBlock) -> Option<()> {
        let slot = self.slot(index)?;
        if std::mem::discriminant(&slot.block) != std::mem::discriminant(&block) {
            return None;
        }
        slot.block = block;
        slot.raw = String::new();
        slot.ended = true;
        Some(())
    }

    fn unique_id(&mut self, index: usize, event: BlockEvent) -> BlockEvent {
        match event {
            BlockEvent::ToolCallStart { id, name } => BlockEvent::ToolCallStart { id: self.ids.unique(id), name },
            BlockEvent::ToolCallEnd(mut call) => {
                let started = self.slot(index).and_then(|slot| match &slot.block {
                    AssistantBlock::ToolCall(started) => Some(started.id.clone()),
                    _ => None,
                });
                // An id that arrived late replaces an empty one; a renamed one stays renamed.
                if let Some(started) = started
                    && !started.is_empty()
                    && started != call.id
                    && is_renaming(&started, &call.id)
                {
                    call.id = started;
                }
                BlockEvent::ToolCallEnd(call)
            }
            event => event,
        }
    }
}

fn is_renaming(started: &str, id: &str) -> bool {
    let call = id.split_once('|').map_or(id, |(call, _)| call);
    started.strip_prefix(call).is_some_and(|rest| rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::MessageBuilder;
    use crate::model::{AssistantHead, BlockEvent, StopReason, ToolCall};

    fn start(id: &str) -> BlockEvent {
        BlockEvent::ToolCallStart { id: id.to_owned(), name: "echo".to_owned() }
    }

    #[test]
    fn a_repeated_call_id_is_renamed_before_anyone_sees_it() {
        let mut builder = MessageBuilder::new(&AssistantHead::default());
        for index in 0..3 {
            assert!(builder.apply(index, start("c1")).is_some());
            let call = ToolCall { id: "c1".to_owned(), name: "echo".to_owned(), ..ToolCall::default() };
            assert!(builder.apply(index, BlockEvent::ToolCallEnd(Box::new(call))).is_some());
        }
        let message = builder.finish(StopReason::ToolUse, None, false);
        let ids: Vec<&str> = message.calls().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["c1", "c1-2", "c1-3"]);
    }

    #[test]
    fn events_of_a_block_that_never_started_or_has_ended_are_dropped() {
        let mut builder = MessageBuilder::new(&AssistantHead::default());
        assert!(builder.apply(0, BlockEvent::TextDelta("x".to_owned())).is_none());
        assert!(builder.apply(0, BlockEvent::TextStart).is_some());
        assert!(builder.apply(0, BlockEvent::TextStart).is_none());
        assert!(builder.apply(0, BlockEvent::TextDelta(String::new())).is_none());
        let end = BlockEvent::TextEnd { content: "y".to_owned(), signature: None };
        assert!(builder.apply(0, end.clone()).is_some());
        assert!(builder.apply(0, end).is_none());
        assert!(builder.apply(0, BlockEvent::TextDelta("z".to_owned())).is_none());
        assert_eq!(builder.finish(StopReason::Stop, None, false).text(), "y");
    }

    #[test]
    fn blocks_that_start_in_any_order_stand_in_that_of_their_indexes() {
        let mut builder = MessageBuilder::new(&AssistantHead::default());
        for index in [4, 0, 9, 2] {
            assert!(builder.apply(index, BlockEvent::TextStart).is_some());
        }
        for index in [9, 0, 3, 2, 4, 0] {
            assert_eq!(builder.apply(index, BlockEvent::TextDelta(format!("{index}."))).is_some(), index != 3);
        }
        assert_eq!(builder.finish(StopReason::Stop, None, false).text(), "0.0.2.4.9.");
    }
}
