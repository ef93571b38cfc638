//! From a transcript to the messages of a request (T-1 to T-5, T-8, T-9).
//!
//! Keeps true: every call has exactly one result, directly behind its reply, in call order; the transcript is never
//! changed; a message that needs no change is shared; a result that had to be left out is noted.
//!
//! Must not know: protocols; a wire brings its own form (T-6, T-7, T-10 to T-14).

use std::collections::HashMap;
use std::sync::Arc;

use super::texts;
use crate::model::{
    AssistantBlock, AssistantMessage, Content, Diagnostic, Extra, Message, Model, StopReason, TextBlock, ThinkingBlock,
    ToolResultMessage, UserContent, UserMessage,
};

/// The messages of a request, with notes on what healing had to leave out.
#[derive(Clone, Debug, Default)]
pub struct Projection {
    pub messages: Vec<Arc<Message>>,
    pub notes: Vec<Diagnostic>,
}

/// Keeps the roles a model knows; the default of `convert_to_llm`.
pub fn default_convert(messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
    messages.into_iter().filter(|message| !matches!(**message, Message::Custom(_))).collect()
}

/// Makes a transcript fit for a request to `model` (T-1 to T-5, T-8, T-9). Failed and partial replies vanish with their
/// results; every call is followed at once by exactly one result, in call order; images, signatures and thinking the
/// model cannot take are replaced or left out; blank user text vanishes. The transcript itself is never changed, and a
/// message that needs no change is shared, not copied.
pub fn project(messages: &[Arc<Message>], model: &Model) -> Projection {
    let mut projection = Projection::default();
    let mut slots: Vec<Slot> = Vec::with_capacity(messages.len());
    let mut open = OpenCalls::default();
    for message in messages {
        match &**message {
            Message::User(user) => {
                if let Some(kept) = project_user(message, user, model) {
                    slots.push(Slot::Message(kept));
                }
            }
            Message::Assistant(reply) => match project_reply(message, reply, model) {
                Some(kept) => {
                    open.announce(reply, Some(slots.len()));
                    slots.push(Slot::Reply { results: vec![None; reply.calls().count()], message: kept });
                }
                None => open.announce(reply, None),
            },
            Message::ToolResult(result) => match open.answer(result) {
                Some(Answered::Call { slot, call }) => {
                    if let Some(Slot::Reply { results, message: reply }) = slots.get_mut(slot)
                        && let Some(place) = results.get_mut(call)
                    {
                        *place = Some(project_result(message, result, call_id(reply, call), model));
                    }
                }
                // It vanishes with its reply.
                Some(Answered::Dropped) => {}
                None => projection.notes.push(Diagnostic {
                    code: "tool_result_dropped".to_owned(),
                    message: format!(
                        "A result for call {:?} answers no open call and was not sent.",
                        result.tool_call_id
                    ),
                }),
            },
            // System prompts come from the configuration; other roles are for programs.
            Message::Custom(_) => {}
        }
    }
    projection.messages = place(slots);
    projection
}

enum Slot {
    Message(Arc<Message>),
    Reply { message: Arc<Message>, results: Vec<Option<Arc<Message>>> },
}

/// Calls that wait for a result. A result belongs to the nearest earlier reply with an unanswered call of its id, also
/// when that reply is left out; a result without an id goes by its tool's name.
#[derive(Default)]
struct OpenCalls<'a> {
    calls: Vec<OpenCall>,
    /// Places in `calls`, oldest first.
    by_id: HashMap<&'a str, Vec<usize>>,
    by_name: HashMap<&'a str, Vec<usize>>,
}

struct OpenCall {
    /// Counts the replies of the transcript.
    reply: usize,
    answers: Answered,
    answered: bool,
}

/// Whose result it is.
#[derive(Clone, Copy)]
enum Answered {
    /// The reply stands in this slot.
    Call { slot: usize, call: usize },
    /// The reply was left out.
    Dropped,
}

impl<'a> OpenCalls<'a> {
    /// Takes the calls of a reply, which stands in a slot or was left out.
    fn announce(&mut self, reply: &'a AssistantMessage, slot: Option<usize>) {
        let number = self.calls.last().map_or(0, |last| last.reply + 1);
        for (call, announced) in reply.calls().enumerate() {
            let answers = slot.map_or(Answered::Dropped, |slot| Answered::Call { slot, call });
            self.by_id.entry(&announced.id).or_default().push(self.calls.len());
            self.by_name.entry(&announced.name).or_default().push(self.calls.len());
            self.calls.push(OpenCall { reply: number, answers, answered: false });
        }
    }

    fn answer(&mut self, result: &ToolResultMessage) -> Option<Answered> {
        let waiting = if result.tool_call_id.is_empty() {
            self.by_name.get_mut(result.tool_name.as_str())?
        } else {
            self.by_id.get_mut(result.tool_call_id.as_str())?
        };
        // Answered by the other way of asking.
        waiting.retain(|at| self.calls.get(*at).is_some_and(|call| !call.answered));
        let nearest = self.calls.get(*waiting.last()?)?.reply;
        let first = waiting.iter().position(|at| self.calls.get(*at).is_some_and(|call| call.reply == nearest))?;
        let call = self.calls.get_mut(waiting.remove(first))?;
        call.answered = true;
        Some(call.answers)
    }
}

fn place(slots: Vec<Slot>) -> Vec<Arc<Message>> {
    let mut messages = Vec::with_capacity(slots.len());
    for slot in slots {
        match slot {
            Slot::Message(message) => messages.push(message),
            Slot::Reply { message, results } => {
                messages.push(Arc::clone(&message));
                let Message::Assistant(reply) = &*message else { continue };
                for (call, result) in reply.calls().zip(results) {
                    messages.push(result.unwrap_or_else(|| {
                        Arc::new(Message::ToolResult(ToolResultMessage {
                            tool_call_id: call.id.clone(),
                            tool_name: call.name.clone(),
                            content: vec![Content::text(texts::NO_RESULT)],
                            details: None,
                            is_error: true,
                            usage: None,
                            duration_ms: None,
                            timestamp: reply.timestamp,
                            extra: Extra::new(),
                        }))
                    }));
                }
            }
        }
    }
    messages
}

fn project_user(whole: &Arc<Message>, user: &UserMessage, model: &Model) -> Option<Arc<Message>> {
    let blocks = match &user.content {
        UserContent::Text(text) if text.trim().is_empty() => return None,
        UserContent::Text(_) => return Some(Arc::clone(whole)),
        UserContent::Blocks(blocks) => blocks,
    };
    let images = !model.takes_images() && has_image(blocks);
    let blank = blocks.iter().any(|block| block.as_text().is_some_and(|text| text.trim().is_empty()));
    if !images && !blank && !blocks.is_empty() {
        return Some(Arc::clone(whole));
    }
    let mut content = if images { without_images(blocks) } else { blocks.clone() };
    content.retain(|block| block.as_text().is_none_or(|text| !text.trim().is_empty()));
    if content.is_empty() {
        return None;
    }
    Some(Arc::new(Message::User(UserMessage { content: UserContent::Blocks(content), ..user.clone() })))
}

/// A result as its call's: with the call's id, which a result found by name lacks.
fn project_result(whole: &Arc<Message>, result: &ToolResultMessage, id: &str, model: &Model) -> Arc<Message> {
    let images = !model.takes_images() && has_image(&result.content);
    if !images && result.tool_call_id == id {
        return Arc::clone(whole);
    }
    let mut kept = result.clone();
    id.clone_into(&mut kept.tool_call_id);
    if images {
        kept.content = without_images(&result.content);
    }
    Arc::new(Message::ToolResult(kept))
}

fn call_id(reply: &Message, at: usize) -> &str {
    reply.as_assistant().and_then(|reply| reply.calls().nth(at)).map_or("", |call| &call.id)
}

fn has_image(blocks: &[Content]) -> bool {
    blocks.iter().any(|block| matches!(block, Content::Image(_)))
}

/// One line for each run of adjacent images.
fn without_images(blocks: &[Content]) -> Vec<Content> {
    let mut kept: Vec<Content> = Vec::with_capacity(blocks.len());
    let mut in_run = false;
    for block in blocks {
        let image = matches!(block, Content::Image(_));
        match (image, in_run) {
            (true, true) => {}
            (true, false) => kept.push(Content::text(texts::IMAGE_LEFT_OUT)),
            (false, _) => kept.push(block.clone()),
        }
        in_run = image;
    }
    kept
}

fn project_reply(whole: &Arc<Message>, reply: &AssistantMessage, model: &Model) -> Option<Arc<Message>> {
    match reply.stop_reason {
        StopReason::Error | StopReason::Aborted | StopReason::Deferred | StopReason::Pending => return None,
        StopReason::Stop | StopReason::Length | StopReason::ToolUse => {}
    }
    let same = reply.provider == model.provider && reply.api == model.api && reply.model == model.id;
    if reply.content.iter().all(|block| stays(block, same)) {
        return (!reply.content.is_empty()).then(|| Arc::clone(whole));
    }
    let content: Vec<AssistantBlock> = reply.content.iter().filter_map(|block| project_block(block, same)).collect();
    if content.is_empty() {
        return None;
    }
    Some(Arc::new(Message::Assistant(AssistantMessage { content, ..reply.clone() })))
}

/// Whether a block can be sent as it is.
fn stays(block: &AssistantBlock, same: bool) -> bool {
    match block {
        AssistantBlock::Text(text) => match &text.text_signature {
            Some(_) => same,
            None => !text.text.trim().is_empty(),
        },
        AssistantBlock::Thinking(thinking) => same && !is_hollow(thinking),
        AssistantBlock::ToolCall(call) => same || (call.thought_signature.is_none() && call.namespace.is_none()),
        AssistantBlock::Other(_) => false,
    }
}

fn is_hollow(thinking: &ThinkingBlock) -> bool {
    thinking.thinking.trim().is_empty() && thinking.thinking_signature.as_deref().is_none_or(str::is_empty)
}

fn project_block(block: &AssistantBlock, same: bool) -> Option<AssistantBlock> {
    if stays(block, same) {
        return Some(block.clone());
    }
    match block {
        AssistantBlock::Text(text) => (!text.text.trim().is_empty())
            .then(|| AssistantBlock::Text(TextBlock { text_signature: None, ..text.clone() })),
        AssistantBlock::Thinking(thinking) => {
            let text = thinking.redacted != Some(true) && !thinking.thinking.trim().is_empty() && !same;
            text.then(|| AssistantBlock::text(thinking.thinking.clone()))
        }
        AssistantBlock::ToolCall(call) => {
            let mut call = call.clone();
            call.thought_signature = None;
            call.namespace = None;
            Some(AssistantBlock::ToolCall(call))
        }
        AssistantBlock::Other(_) => None,
    }
}
