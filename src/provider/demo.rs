//! The built-in demo model: scripted, offline, without key, clock or chance.
//!
//! It understands the first line of the newest user message:
//!
//! | words | does |
//! |---|---|
//! | `say TEXT` | answers TEXT |
//! | `call TOOL {json}` | calls TOOL once, then answers with the result |
//! | `fail KIND` | fails with that error kind |
//! | `stop length` | gives an answer cut by the output limit |
//! | anything else | calls `ls` if it is enabled, then names the number of entries |
//!
//! Keeps true: the same conversation gives the same reply, and its stream keeps the contract every provider keeps.
//!
//! Must not know: whether it is asked by a test or by a person.

use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::settle::{Inner, settle};
use crate::model::{
    AssistantHead, BlockEvent, Content, ErrorKind, ErrorRecord, Message, StopReason, ToolCall, ToolResultMessage,
    Usage, UserMessage,
};
use crate::port::{AssistantEvent, LlmRequest, Provider, ProviderEvent};

/// The provider word and the protocol word of the demo model.
pub const DEMO: &str = "demo";

/// The demo model's provider.
#[derive(Clone, Copy, Debug)]
pub struct DemoProvider;

impl Provider for DemoProvider {
    fn stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> BoxStream<'static, AssistantEvent> {
        let head = AssistantHead {
            api: request.model.api.clone(),
            provider: request.model.provider.clone(),
            model: request.model.id.clone(),
            timestamp: 0,
        };
        let model = request.model.clone();
        let open = async move {
            let events = answer(&request)?;
            let inner: Inner = stream::iter(events.into_iter().map(Ok)).boxed();
            Ok(inner)
        };
        settle(head, open, model, cancel).boxed()
    }
}

/// What the newest user message asks for.
enum Wish<'a> {
    Say(&'a str),
    Call(&'a str, Map<String, Value>),
    Fail(&'a str),
    StopLength,
    Look,
}

fn answer(request: &LlmRequest) -> Result<Vec<ProviderEvent>, ErrorRecord> {
    let asked = newest_user(&request.messages);
    let text = asked.map(|user| user.content.text()).unwrap_or_default();
    let result = newest_result(&request.messages);
    let reply = match (wish(text.trim())?, result) {
        (Wish::Say(words), _) => Answer::Text(words.to_owned(), StopReason::Stop),
        (Wish::Fail(word), _) => return Err(failure(word)),
        (Wish::StopLength, _) => Answer::Text("This answer stops in the middle of".to_owned(), StopReason::Length),
        (Wish::Call(tool, args), None) => Answer::Call(tool.to_owned(), args),
        (Wish::Call(tool, _), Some(result)) => {
            Answer::Text(format!("The tool {tool} answered:\n{}", result_text(result)), StopReason::Stop)
        }
        (Wish::Look, None) if request.tools.iter().any(|tool| tool.name == "ls") => {
            Answer::CallAfter("Let me look around. ".to_owned(), "ls".to_owned(), Map::new())
        }
        (Wish::Look, None) => {
            Answer::Text("I am the demo model, and the tool ls is not enabled.".to_owned(), StopReason::Stop)
        }
        (Wish::Look, Some(result)) => Answer::Text(summary(result), StopReason::Stop),
    };
    Ok(reply.into_events(request))
}

fn wish(text: &str) -> Result<Wish<'_>, ErrorRecord> {
    let line = text.lines().next().unwrap_or_default().trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match word {
        // All that follows is the answer, further lines included.
        "say" => Ok(Wish::Say(text.strip_prefix("say").unwrap_or_default().trim())),
        "fail" if !rest.is_empty() => Ok(Wish::Fail(rest)),
        "stop" if rest == "length" => Ok(Wish::StopLength),
        "call" if !rest.is_empty() => {
            let (tool, json) = rest.split_once(char::is_whitespace).unwrap_or((rest, "{}"));
            match serde_json::from_str(json) {
                Ok(Value::Object(args)) => Ok(Wish::Call(tool, args)),
                Ok(_) => Err(bad_call("the arguments are not a JSON object")),
                Err(error) => Err(bad_call(&error.to_string())),
            }
        }
        _ => Ok(Wish::Look),
    }
}

fn bad_call(reason: &str) -> ErrorRecord {
    ErrorRecord::new(ErrorKind::InvalidRequest, format!("The demo model cannot read this call: {reason}"))
        .with_hint("call TOOL {\"argument\": \"value\"}")
}

fn failure(word: &str) -> ErrorRecord {
    let Some(kind) = ErrorKind::from_word(word) else {
        let kinds: Vec<&str> = ErrorKind::ALL.iter().map(|kind| kind.as_str()).collect();
        let text = format!("The demo model knows no error kind {word:?}; it knows {}", kinds.join(", "));
        return ErrorRecord::new(ErrorKind::InvalidRequest, text);
    };
    let mut record = ErrorRecord::new(kind, "The demo model failed because it was asked to");
    record.retryable = matches!(kind.row(), crate::model::ErrorRow::Unavailable);
    record
}

fn newest_user(messages: &[Arc<Message>]) -> Option<&UserMessage> {
    messages.iter().rev().find_map(|message| match &**message {
        Message::User(user) => Some(user),
        Message::Assistant(_) | Message::ToolResult(_) | Message::Custom(_) => None,
    })
}

/// The newest result that came after the newest user message.
fn newest_result(messages: &[Arc<Message>]) -> Option<&ToolResultMessage> {
    messages.iter().rev().take_while(|message| !matches!(***message, Message::User(_))).find_map(|message| {
        match &**message {
            Message::ToolResult(result) => Some(result),
            Message::User(_) | Message::Assistant(_) | Message::Custom(_) => None,
        }
    })
}

fn result_text(result: &ToolResultMessage) -> String {
    let texts: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
    texts.join("\n")
}

/// Counts the entries of an `ls` result; a notice about more entries names their number.
fn summary(result: &ToolResultMessage) -> String {
    let text = result_text(result);
    if result.is_error {
        return format!("I could not look around: {text}");
    }
    let (listing, notice) = text.split_once("\n\n").unwrap_or((&text, ""));
    let total = notice
        .strip_prefix('[')
        .and_then(|notice| notice.split_once(" of "))
        .and_then(|(_, rest)| rest.split(' ').next())
        .and_then(|count| count.parse::<usize>().ok());
    let shown = if listing == "[empty directory]" { 0 } else { listing.lines().count() };
    match total.unwrap_or(shown) {
        0 => "This directory is empty.".to_owned(),
        1 => "This directory has 1 entry.".to_owned(),
        count => format!("This directory has {count} entries."),
    }
}

enum Answer {
    Text(String, StopReason),
    Call(String, Map<String, Value>),
    CallAfter(String, String, Map<String, Value>),
}

impl Answer {
    fn into_events(self, request: &LlmRequest) -> Vec<ProviderEvent> {
        let mut events = vec![ProviderEvent::Start { response_id: None, response_model: None }];
        let output = match &self {
            Self::Text(text, _) => text.chars().count(),
            Self::Call(name, args) => name.len() + Value::Object(args.clone()).to_string().len(),
            Self::CallAfter(text, name, args) => {
                text.len() + name.len() + Value::Object(args.clone()).to_string().len()
            }
        };
        let mut index = 0;
        let mut block = |events: &mut Vec<ProviderEvent>, list: Vec<BlockEvent>| {
            events.extend(list.into_iter().map(|event| ProviderEvent::Block { index, event }));
            index += 1;
        };
        let stop_reason = match self {
            Self::Text(text, stop) => {
                block(&mut events, text_events(&text));
                stop
            }
            Self::Call(name, args) => {
                block(&mut events, call_events(name, args, request));
                StopReason::ToolUse
            }
            Self::CallAfter(text, name, args) => {
                block(&mut events, text_events(&text));
                block(&mut events, call_events(name, args, request));
                StopReason::ToolUse
            }
        };
        events.push(ProviderEvent::Usage(Box::new(usage(request, output))));
        events.push(ProviderEvent::Done { stop_reason, raw_stop_reason: None, overflow: false });
        events
    }
}

/// Streams a text word by word.
fn text_events(text: &str) -> Vec<BlockEvent> {
    let mut events = vec![BlockEvent::TextStart];
    events.extend(text.split_inclusive(' ').map(|word| BlockEvent::TextDelta(word.to_owned())));
    events.push(BlockEvent::TextEnd { content: text.to_owned(), signature: None });
    events
}

fn call_events(name: String, arguments: Map<String, Value>, request: &LlmRequest) -> Vec<BlockEvent> {
    let turn = request.messages.iter().filter(|message| message.as_assistant().is_some()).count() + 1;
    let id = format!("demo_{turn}");
    let raw = Value::Object(arguments.clone()).to_string();
    let call = ToolCall { id: id.clone(), name: name.clone(), arguments, ..ToolCall::default() };
    vec![
        BlockEvent::ToolCallStart { id, name },
        BlockEvent::ToolCallDelta(raw),
        BlockEvent::ToolCallEnd(Box::new(call)),
    ]
}

/// Four characters count as one token; nothing is measured.
fn usage(request: &LlmRequest, output_chars: usize) -> Usage {
    let input_chars: usize = request
        .messages
        .iter()
        .map(|message| serde_json::to_string(&**message).map_or(0, |text| text.chars().count()))
        .sum::<usize>()
        + request.system_prompt.chars().count();
    let quarter = |chars: usize| u64::try_from(chars.div_ceil(4)).unwrap_or(u64::MAX);
    let mut usage =
        Usage { input: quarter(input_chars), output: quarter(output_chars), estimated: Some(true), ..Usage::default() };
    usage.sum_total();
    usage
}
