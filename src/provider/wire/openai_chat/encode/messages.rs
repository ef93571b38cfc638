//! Messages of a transcript in the form of Chat Completions (T-6, T-7, T-10 to T-14).
//!
//! Keeps true: every message has a role, a form and content that servers take, the empty ones included; images of
//! results stand behind the whole run of results; text is borrowed, not copied.
//!
//! Must not know: how a transcript is healed, names of hosts.

use serde::Serialize;

use super::reasoning::{Level, Replay};
use super::repair::Repairs;
use super::text::{Arguments, Clean, CleanId, DataUrl, Joined};
use super::{CacheMarker, is_of_vendor};
use crate::model::{
    AssistantBlock, AssistantMessage, Content, ImageBlock, Message, ToolCall, ToolResultMessage, UserContent,
    UserMessage,
};
use crate::port::LlmRequest;
use crate::provider::compat::{Compat, OptionalField};
use crate::provider::ids::CallIds;

/// A result without text and images.
const EMPTY_RESULT: &str = "[empty result]";
/// The text of a result that is only images.
const IMAGE_RESULT: &str = "[the result is an image]";
/// In front of images of results.
const RESULT_IMAGES: &str = "Images returned by the tools above:";
/// Between tool results and a user message, for servers that want an assistant there (T-11).
const AFTER_TOOL: &str = "Tool results received.";
/// In place of images the model does not take (T-2).
const IMAGE_LEFT_OUT: &str = "[image left out: this model takes no images]";

/// Vendors whose models know the role `developer`, where ids name the vendor.
const DEVELOPER_VENDORS: [&str; 2] = ["openai", "anthropic"];

/// All messages of a body, the system prompt first.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Messages<'a>(Vec<WireMessage<'a>>);

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum WireMessage<'a> {
    Plain { role: &'static str, content: WireContent<'a> },
    Assistant(Box<WireAssistant<'a>>),
    Tool(WireToolResult<'a>),
}

#[derive(Debug, Serialize)]
struct WireAssistant<'a> {
    role: &'static str,
    /// Null beside calls without text.
    content: Option<WireContent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<Joined<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Joined<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_text: Option<Joined<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<Vec<serde_json::Value>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
}

#[derive(Debug, Serialize)]
struct WireToolResult<'a> {
    role: &'static str,
    tool_call_id: CleanId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Clean<'a>>,
    content: Joined<'a>,
}

#[derive(Debug, Serialize)]
struct WireCall<'a> {
    id: CleanId,
    #[serde(rename = "type")]
    type_: &'static str,
    function: WireFunction<'a>,
}

#[derive(Debug, Serialize)]
struct WireFunction<'a> {
    name: Clean<'a>,
    arguments: Arguments<'a>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum WireContent<'a> {
    Text(Joined<'a>),
    Parts(Vec<Part<'a>>),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text {
        text: Joined<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheMarker>,
    },
    ImageUrl {
        image_url: ImageUrl<'a>,
    },
    Thinking {
        thinking: [ThinkingText<'a>; 1],
    },
}

#[derive(Debug, Serialize)]
struct ImageUrl<'a> {
    url: DataUrl<'a>,
}

#[derive(Debug, Serialize)]
struct ThinkingText<'a> {
    #[serde(rename = "type")]
    type_: &'static str,
    text: Clean<'a>,
}

impl<'a> Part<'a> {
    fn text(text: &'a str) -> Self {
        Self::Text { text: Joined::one(text), cache_control: None }
    }

    fn image(image: &'a ImageBlock) -> Self {
        Self::ImageUrl { image_url: ImageUrl { url: DataUrl { mime_type: &image.mime_type, data: &image.data } } }
    }
}

impl<'a> Messages<'a> {
    /// Puts a healed transcript into the wire's form.
    pub(super) fn build(
        request: &'a LlmRequest,
        compat: &'a Compat,
        repairs: &'a Repairs,
        level: &'a Level<'a>,
    ) -> Self {
        let ids = CallIds::new(compat.tool_call_id);
        let mut builder = Builder { compat, level, repairs, ids, out: Vec::new(), result_images: Vec::new() };
        builder.system(request, repairs);
        for (at, message) in request.messages.iter().enumerate() {
            builder.message(at, message);
        }
        builder.end_of_results();
        builder.trim_prefill();
        if let Some(marker) = CacheMarker::of(request, compat) {
            builder.mark(marker);
        }
        Self(builder.out)
    }
}

struct Builder<'a> {
    compat: &'a Compat,
    level: &'a Level<'a>,
    /// They say which images are sent.
    repairs: &'a Repairs,
    ids: CallIds<'a>,
    out: Vec<WireMessage<'a>>,
    /// Images of the current run of results.
    result_images: Vec<&'a ImageBlock>,
}

impl<'a> Builder<'a> {
    fn system(&mut self, request: &'a LlmRequest, repairs: &Repairs) {
        if request.system_prompt.trim().is_empty() {
            return;
        }
        let is_developer = self.compat.developer_role
            && request.model.reasoning
            && is_of_vendor(&request.model.id, &DEVELOPER_VENDORS)
            && !repairs.drops(OptionalField::Developer);
        let role = if is_developer { "developer" } else { "system" };
        self.plain(role, WireContent::Text(Joined::one(&request.system_prompt)));
    }

    fn message(&mut self, at: usize, message: &'a Message) {
        match message {
            Message::User(user) => self.user(user),
            Message::Assistant(reply) => self.assistant(at, reply),
            Message::ToolResult(result) => self.result(result),
            // Filtered before; no protocol knows their roles.
            Message::Custom(_) => {}
        }
    }

    fn plain(&mut self, role: &'static str, content: WireContent<'a>) {
        self.out.push(WireMessage::Plain { role, content });
    }

    fn user(&mut self, user: &'a UserMessage) {
        self.end_of_results();
        let content = match &user.content {
            UserContent::Text(text) => WireContent::Text(Joined::one(text)),
            UserContent::Blocks(blocks) => {
                let mut parts = self.parts(blocks);
                match parts.as_mut_slice() {
                    [] => return,
                    [Part::Text { text, .. }] => WireContent::Text(std::mem::take(text)),
                    _ => WireContent::Parts(parts),
                }
            }
        };
        self.after_results();
        self.plain("user", content);
    }

    /// Text and images in order; a run of images that are not sent is one text.
    fn parts(&self, blocks: &'a [Content]) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        let mut in_run = false;
        for block in blocks {
            let mut is_left_out = false;
            match block {
                Content::Text(text) => parts.push(Part::text(&text.text)),
                Content::Image(image) if self.repairs.sends(image) => parts.push(Part::image(image)),
                Content::Image(_) => {
                    is_left_out = true;
                    if !in_run {
                        parts.push(Part::text(IMAGE_LEFT_OUT));
                    }
                }
                Content::Other(_) => {}
            }
            in_run = is_left_out;
        }
        parts
    }

    fn assistant(&mut self, at: usize, reply: &'a AssistantMessage) {
        self.end_of_results();
        let replay = Replay::of(reply, self.compat, *self.level);
        let mut text = Joined::default();
        let mut tool_calls = Vec::new();
        for block in &reply.content {
            match block {
                AssistantBlock::Text(block) if !block.text.is_empty() => text.parts.push(&block.text),
                AssistantBlock::ToolCall(call) => tool_calls.push(self.call(at, tool_calls.len(), call)),
                AssistantBlock::Text(_) | AssistantBlock::Thinking(_) | AssistantBlock::Other(_) => {}
            }
        }
        // Thinking alone is no message that servers take (T-9, MSG-04).
        if text.is_blank() && tool_calls.is_empty() {
            return;
        }
        let content = if !replay.parts.is_empty() {
            Some(thinking_parts(&replay.parts, text))
        } else if text.is_blank() {
            None
        } else {
            Some(WireContent::Text(text))
        };
        self.out.push(WireMessage::Assistant(Box::new(WireAssistant {
            role: "assistant",
            content,
            reasoning_content: replay.reasoning_content,
            reasoning: replay.reasoning,
            reasoning_text: replay.reasoning_text,
            reasoning_details: replay.reasoning_details,
            tool_calls,
        })));
    }

    fn call(&mut self, at: usize, ordinal: usize, call: &'a ToolCall) -> WireCall<'a> {
        let function = WireFunction { name: Clean(&call.name), arguments: Arguments(&call.arguments) };
        WireCall { id: CleanId(self.ids.call(at, ordinal, call)), type_: "function", function }
    }

    fn result(&mut self, result: &'a ToolResultMessage) {
        let mut texts: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
        let (mut has_images, mut has_left_out) = (false, false);
        for block in &result.content {
            let Content::Image(image) = block else { continue };
            if self.repairs.sends(image) {
                self.result_images.push(image);
                has_images = true;
            } else {
                has_left_out = true;
            }
        }
        if has_left_out {
            texts.push(IMAGE_LEFT_OUT);
        }
        let mut content = Joined { parts: texts, separator: "\n" };
        if content.is_blank() {
            content = Joined::one(if has_images { IMAGE_RESULT } else { EMPTY_RESULT });
        }
        self.out.push(WireMessage::Tool(WireToolResult {
            role: "tool",
            tool_call_id: CleanId(self.ids.result(&result.tool_call_id, &result.tool_name)),
            name: self.compat.tool_result_name.then_some(Clean(&result.tool_name)),
            content,
        }));
    }

    /// Behind the last result of a run: its images as a user message.
    fn end_of_results(&mut self) {
        let images = std::mem::take(&mut self.result_images);
        if images.is_empty() {
            return;
        }
        let mut parts = vec![Part::text(RESULT_IMAGES)];
        parts.extend(images.into_iter().map(Part::image));
        self.after_results();
        self.plain("user", WireContent::Parts(parts));
    }

    /// Called before a user message: servers that want an assistant behind tool results get one (T-11).
    fn after_results(&mut self) {
        if self.compat.assistant_after_tool && matches!(self.out.last(), Some(WireMessage::Tool(_))) {
            self.plain("assistant", WireContent::Text(Joined::one(AFTER_TOOL)));
        }
    }

    /// An assistant text at the end is continued by the server; it must not end in white space (T-12).
    fn trim_prefill(&mut self) {
        if let Some(WireMessage::Assistant(reply)) = self.out.last_mut()
            && reply.tool_calls.is_empty()
        {
            match &mut reply.content {
                Some(WireContent::Text(text)) => text.trim_end(),
                Some(WireContent::Parts(parts)) => {
                    if let Some(Part::Text { text, .. }) = parts.last_mut() {
                        text.trim_end();
                    }
                }
                None => {}
            }
        }
    }

    /// Marks the system prompt and the last text of the conversation. Tool messages take only plain text.
    fn mark(&mut self, marker: CacheMarker) {
        if let Some(WireMessage::Plain { role: "system" | "developer", content }) = self.out.first_mut() {
            content.mark(marker);
        }
        for message in self.out.iter_mut().rev() {
            let marked = match message {
                WireMessage::Plain { role: "user", content } => content.mark(marker),
                WireMessage::Assistant(reply) => reply.content.as_mut().is_some_and(|content| content.mark(marker)),
                WireMessage::Plain { .. } | WireMessage::Tool(_) => false,
            };
            if marked {
                break;
            }
        }
    }
}

impl WireContent<'_> {
    /// Puts a mark on the last text; tells whether there was one.
    fn mark(&mut self, marker: CacheMarker) -> bool {
        if let Self::Text(text) = self {
            let text = std::mem::take(text);
            *self = Self::Parts(vec![Part::Text { text, cache_control: None }]);
        }
        let Self::Parts(parts) = self else { return false };
        for part in parts.iter_mut().rev() {
            if let Part::Text { cache_control, .. } = part {
                *cache_control = Some(marker);
                return true;
            }
        }
        false
    }
}

/// Thinking that came as parts of the content goes back so, in front of the text.
fn thinking_parts<'a>(thinking: &[&'a str], text: Joined<'a>) -> WireContent<'a> {
    let mut parts: Vec<Part<'a>> = thinking
        .iter()
        .map(|thinking| Part::Thinking { thinking: [ThinkingText { type_: "text", text: Clean(thinking) }] })
        .collect();
    if !text.is_blank() {
        parts.push(Part::Text { text, cache_control: None });
    }
    WireContent::Parts(parts)
}
