//! The short form of events and requests, as the page of the cases defines it.

use std::fmt::Write as _;

use pirn::model::{
    AssistantBlock, AssistantMessage, BlockEvent, Content, Event, Message, ToolResultMessage, UserContent,
};
use pirn::port::LlmRequest;

/// `c1` is shown as `1`.
pub(crate) fn ordinal(id: &str) -> &str {
    id.strip_prefix('c').unwrap_or(id)
}

/// One word or two per event; a message and its updates are one item.
pub(crate) fn short(events: &[Event]) -> String {
    let mut items = Vec::new();
    let mut open = false;
    for event in events {
        match event {
            Event::MessageStart { .. } => open = true,
            Event::MessageUpdate { .. } => {}
            Event::MessageEnd { message, .. } => {
                open = false;
                items.push(short_message(message));
            }
            event => items.push(short_event(event)),
        }
    }
    if open {
        items.push("(open)".to_owned());
    }
    items.join(" ")
}

fn short_event(event: &Event) -> String {
    match event {
        Event::RunStart { .. } => "AS".to_owned(),
        Event::TurnStart { .. } => "TS".to_owned(),
        Event::ToolStart { tool_call_id, effective_args, .. } => {
            let shown = effective_args.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("ts{}{shown}", ordinal(tool_call_id))
        }
        Event::ToolUpdate { tool_call_id, partial, .. } => {
            format!("tu{}{}", ordinal(tool_call_id), shown(&partial.content))
        }
        Event::ToolEnd { tool_call_id, result, is_error, .. } => {
            let ends = if result.terminate { "*" } else { "" };
            format!("te{} {}{}{ends}", ordinal(tool_call_id), verdict(*is_error), shown(&result.content))
        }
        Event::TurnEnd { tool_results, .. } => {
            let ids: Vec<&str> = tool_results.iter().map(|result| as_result(result).tool_call_id.as_str()).collect();
            format!("TE[{}]", ids.join(","))
        }
        Event::RunEnd { messages, .. } => {
            let roles: Vec<&str> = messages.iter().map(|message| role(message)).collect();
            format!("AE[{}]", roles.join(","))
        }
        Event::Warning { code, .. } => format!("W({code})"),
        other => other.name().to_owned(),
    }
}

fn role(message: &Message) -> &'static str {
    match message {
        Message::User(_) => "u",
        Message::Assistant(_) => "a",
        Message::ToolResult(_) => "t",
        Message::Custom(_) => "x",
    }
}

fn verdict(is_error: bool) -> &'static str {
    if is_error { "ERR" } else { "ok" }
}

pub(crate) fn as_result(message: &Message) -> &ToolResultMessage {
    match message {
        Message::ToolResult(result) => result,
        other => panic!("not a tool result: {other:?}"),
    }
}

/// The texts of a content list in quotes, and a mark for each image.
fn shown(content: &[Content]) -> String {
    let texts: Vec<&str> = content.iter().filter_map(Content::as_text).collect();
    let images = content.iter().filter(|block| matches!(block, Content::Image(_))).count();
    format!("{:?}{}", texts.join("\n"), "+image".repeat(images))
}

pub(crate) fn short_message(message: &Message) -> String {
    match message {
        Message::User(user) => match &user.content {
            UserContent::Text(text) => format!("U{text:?}"),
            UserContent::Blocks(blocks) => format!("U{}", shown(blocks)),
        },
        Message::Assistant(reply) => {
            let mut item = format!("A({},{}", reply.stop_reason.as_str(), blocks(reply));
            if let Some(error) = &reply.error_message {
                write!(item, "!{error}").unwrap();
            }
            item.push(')');
            item
        }
        Message::ToolResult(result) => {
            format!("R{} {}{}", ordinal(&result.tool_call_id), verdict(result.is_error), shown(&result.content))
        }
        Message::Custom(_) => "X".to_owned(),
    }
}

/// `"text"`, `~"thinking"`, and the ids of calls.
fn blocks(reply: &AssistantMessage) -> String {
    let shown: Vec<String> = reply
        .content
        .iter()
        .map(|block| match block {
            AssistantBlock::Text(text) => format!("{:?}", text.text),
            AssistantBlock::Thinking(thinking) => format!("~{:?}", thinking.thinking),
            AssistantBlock::ToolCall(call) => call.id.clone(),
            AssistantBlock::Other(_) => "?".to_owned(),
        })
        .collect();
    if shown.is_empty() { "\"\"".to_owned() } else { shown.join(",") }
}

/// The updates among some events: type, block index and delta or content.
pub(crate) fn updates(events: &[Event]) -> String {
    let items: Vec<String> = events
        .iter()
        .filter_map(|event| match event {
            Event::MessageUpdate { index, event, .. } => Some(match event {
                BlockEvent::TextStart => format!("text_start{index}"),
                BlockEvent::TextDelta(delta) => format!("text_delta{index}{delta:?}"),
                BlockEvent::TextEnd { content, .. } => format!("text_end{index}{content:?}"),
                BlockEvent::ThinkingStart => format!("thinking_start{index}"),
                BlockEvent::ThinkingDelta(delta) => format!("thinking_delta{index}{delta:?}"),
                BlockEvent::ThinkingEnd { content, .. } => format!("thinking_end{index}{content:?}"),
                BlockEvent::ToolCallStart { id, name } => format!("toolcall_start{index}({id} {name})"),
                BlockEvent::ToolCallDelta(delta) => format!("toolcall_delta{index}{delta:?}"),
                BlockEvent::ToolCallEnd(call) => format!("toolcall_end{index}({})", call.id),
            }),
            _ => None,
        })
        .collect();
    items.join(" ")
}

/// What a provider was asked: user texts, `a:` and the blocks of a reply, `t1` for a result (`t1!` for a failed one).
pub(crate) fn short_request(request: &LlmRequest) -> String {
    let items: Vec<String> = request
        .messages
        .iter()
        .map(|message| match &**message {
            Message::User(user) => user.content.text(),
            Message::Assistant(reply) => format!("a:{}", blocks(reply)),
            Message::ToolResult(result) => {
                format!("t{}{}", ordinal(&result.tool_call_id), if result.is_error { "!" } else { "" })
            }
            Message::Custom(custom) => format!("x:{}", custom.role()),
        })
        .collect();
    items.join(" | ")
}
