//! The blocks of a reply and the events that build them.
//!
//! Keeps true: a block has one start, its deltas and one end, and the deltas add up to what the end says (STREAM-4);
//! text and thinking take turns (OC-8), a call may stay open beside them (STREAM-6); blocks end in content order; their
//! number is bounded.
//!
//! Must not know: framing, finish reasons, usage of a server.

use serde_json::value::RawValue;

use super::calls::{Address, Call, Calls, Oversized};
use super::chunk::{Delta, Part, ToolDelta};
use super::details::{self, Details};
use super::mold::Slot;
use super::think_tags::{Kind, ThinkTags};
use crate::model::{BlockEvent, Diagnostic, ToolCall};
use crate::port::ProviderEvent;
use crate::provider::arguments;
use crate::provider::json::{self, Few, Raw, Unescaper};

/// Blocks of one reply; beyond this a server is talking nonsense.
pub(super) const BLOCKS_MAX: usize = 10_000;

/// Notes about the calls of one reply; further ones are left out.
const NOTES_MAX: usize = 100;

/// Turns deltas into block events. Text and thinking take turns, a call may stay open beside them (STREAM-6).
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// The next block's place in the content.
    next: usize,
    open: Option<Open>,
    source: Option<Source>,
    /// One per source: a pair cut in two is never joined across sources.
    content_units: Unescaper,
    reasoning_units: Unescaper,
    tags: Option<ThinkTags>,
    details: Details,
    /// Reasoning came in a plain field, so that of the details is a repetition.
    has_plain_reasoning: bool,
    calls: Calls,
    /// The first call that may not have ended.
    first_open_call: usize,
    /// A call was left out because of this; the reply cannot be used.
    oversized: Option<Oversized>,
    /// Notes given so far.
    notes: usize,
    has_text: bool,
    has_refusal: bool,
    /// Characters of the blocks that have ended.
    chars: u64,
    /// Neighbouring deltas of one block are joined.
    joins: bool,
    /// The text of one delta while it is made: most are joined to the one before, and need no memory of their own.
    text: String,
}

/// A text or thinking block that grows.
#[derive(Debug)]
struct Open {
    index: usize,
    kind: Kind,
    content: String,
    /// The field its thinking came in, which is the field to send it back in (OC-1).
    field: Option<&'static str>,
}

/// Where a piece of text comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Content,
    Reasoning(Option<&'static str>),
}

/// A piece of arguments.
#[derive(Clone, Copy, Debug)]
enum Piece<'a> {
    /// The inside of a string.
    Escaped(&'a str),
    /// JSON where a string was expected.
    Json(&'a str),
}

impl Source {
    fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

impl Blocks {
    pub(super) fn new(think_tags: bool, joins: bool) -> Self {
        Self { tags: think_tags.then(ThinkTags::default), joins, ..Self::default() }
    }

    /// Whether any block has begun.
    pub(super) fn is_empty(&self) -> bool {
        self.next == 0
    }

    /// Whether there is text other than white space.
    pub(super) fn has_text(&self) -> bool {
        self.has_text
    }

    pub(super) fn has_refusal(&self) -> bool {
        self.has_refusal
    }

    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    pub(super) fn is_over_limit(&self) -> bool {
        self.next > BLOCKS_MAX
    }

    /// The name or id that was too long to be kept.
    pub(super) fn oversized(&self) -> Option<Oversized> {
        self.oversized
    }

    /// Whether some call still has no name.
    pub(super) fn has_nameless_call(&self) -> bool {
        self.calls.iter().any(|call| call.name.is_empty())
    }

    /// Whether the arguments of every call can be read as they are now.
    pub(super) fn are_calls_readable(&self) -> bool {
        self.calls.iter().all(|call| call.ended || arguments::read(&call.raw).error.is_none())
    }

    /// Characters of text, thinking and arguments; exact once every block has ended.
    pub(super) fn chars(&self) -> u64 {
        self.chars
    }

    /// Takes one delta: reasoning, then text, then calls.
    pub(super) fn delta(&mut self, delta: &Delta<'_>, out: &mut Vec<ProviderEvent>) {
        let reasoning = [
            ("reasoning_content", delta.reasoning_content),
            ("reasoning", delta.reasoning),
            ("reasoning_text", delta.reasoning_text),
        ];
        let mut plain = reasoning.into_iter().filter_map(|(field, raw)| Some((field, json::string_body(raw)?)));
        if let Some((field, body)) = plain.find(|(_, body)| !body.is_empty()) {
            self.has_plain_reasoning = true;
            self.text(Source::Reasoning(Some(field)), body, out);
        }
        if delta.reasoning_details.is_some() {
            if !self.has_plain_reasoning {
                details::texts(delta.reasoning_details, |body| self.text(Source::Reasoning(None), body, out));
            }
            self.details.add(delta.reasoning_details);
        }
        match json::string_body(delta.content) {
            Some(body) => self.text(Source::Content, body, out),
            None => self.parts(delta.content, out),
        }
        self.refusal(delta.refusal, out);
        for call in delta.tool_calls.iter() {
            self.tool(call, out);
        }
    }

    /// Takes the escaped string of a delta that holds nothing else.
    pub(super) fn more(&mut self, slot: Slot, body: &str, out: &mut Vec<ProviderEvent>) {
        match slot {
            Slot::Content => self.text(Source::Content, body, out),
            Slot::Arguments(index) => self.argue(Address { index, id: "", name: "" }, Some(Piece::Escaped(body)), out),
        }
    }

    /// Content in parts, as Mistral sends it (OC-6).
    fn parts(&mut self, raw: Raw<'_>, out: &mut Vec<ProviderEvent>) {
        for part in read_parts(raw, &mut String::new()).iter() {
            if let Some(body) = json::string_body(part.thinking) {
                self.text(Source::Reasoning(None), body, out);
            }
            for thought in read_parts(part.thinking, &mut String::new()).iter() {
                self.text(Source::Reasoning(None), json::string_body(thought.text).unwrap_or(""), out);
            }
            if part.kind.is_none_or(|kind| kind.get() == r#""text""#) {
                self.text(Source::Content, json::string_body(part.text).unwrap_or(""), out);
            }
            self.refusal(part.refusal, out);
        }
    }

    fn refusal(&mut self, raw: Raw<'_>, out: &mut Vec<ProviderEvent>) {
        if let Some(body) = json::string_body(raw).filter(|body| !body.is_empty()) {
            self.has_refusal = true;
            self.text(Source::Content, body, out);
        }
    }

    /// Takes the escaped text of one delta.
    fn text(&mut self, source: Source, body: &str, out: &mut Vec<ProviderEvent>) {
        if body.is_empty() {
            return;
        }
        if self.source.is_some_and(|current| !current.is_like(source)) {
            self.flush(out);
        }
        self.source = Some(source);
        let mut text = self.take_text();
        let units = match source {
            Source::Content => &mut self.content_units,
            Source::Reasoning(_) => &mut self.reasoning_units,
        };
        units.push(body, &mut text);
        self.route(source, &text, out);
        self.text = text;
    }

    /// Room for the text of a delta; given back when it is told.
    fn take_text(&mut self) -> String {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        text
    }

    /// No more text comes from the current source for now: what was held back is given out as it is.
    pub(super) fn flush(&mut self, out: &mut Vec<ProviderEvent>) {
        let Some(source) = self.source.take() else { return };
        let mut rest = String::new();
        match source {
            Source::Content => self.content_units.finish(&mut rest),
            Source::Reasoning(_) => self.reasoning_units.finish(&mut rest),
        }
        self.route(source, &rest, out);
        if source == Source::Content
            && let Some(mut tags) = self.tags.take()
        {
            tags.flush(&mut |kind, text| self.write(kind, None, text, out));
            self.tags = Some(tags);
        }
    }

    fn route(&mut self, source: Source, text: &str, out: &mut Vec<ProviderEvent>) {
        if let Source::Reasoning(field) = source {
            return self.write(Kind::Thinking, field, text, out);
        }
        match self.tags.take() {
            Some(mut tags) if !tags.is_over() => {
                tags.push(text, &mut |kind, text| self.write(kind, None, text, out));
                self.tags = Some(tags);
            }
            tags => {
                self.tags = tags;
                self.write(Kind::Text, None, text, out);
            }
        }
    }

    /// Appends to the open block if it is of this kind, else ends it and begins another one (OC-8).
    fn write(&mut self, kind: Kind, field: Option<&'static str>, text: &str, out: &mut Vec<ProviderEvent>) {
        if text.is_empty() {
            return;
        }
        if self.open.as_ref().is_some_and(|open| open.kind != kind) {
            self.close(out);
        }
        if self.open.is_none() {
            let index = self.next_index();
            let start = if kind == Kind::Text { BlockEvent::TextStart } else { BlockEvent::ThinkingStart };
            out.push(ProviderEvent::Block { index, event: start });
            self.open = Some(Open { index, kind, content: String::new(), field });
        }
        let Some(open) = &mut self.open else { return };
        open.content.push_str(text);
        open.field = open.field.or(field);
        self.has_text = self.has_text || kind == Kind::Text && !text.trim_start().is_empty();
        let delta = if kind == Kind::Text { BlockEvent::TextDelta } else { BlockEvent::ThinkingDelta };
        tell(open.index, delta, text, self.joins, out);
    }

    /// Ends the open text or thinking block.
    fn close(&mut self, out: &mut Vec<ProviderEvent>) {
        let Some(Open { index, kind, content, field }) = self.open.take() else { return };
        self.chars += count(&content);
        let event = match kind {
            Kind::Text => BlockEvent::TextEnd { content, signature: None },
            Kind::Thinking => {
                let signature = self.details.take().or_else(|| field.map(str::to_owned));
                BlockEvent::ThinkingEnd { content, signature, redacted: false }
            }
        };
        out.push(ProviderEvent::Block { index, event });
    }

    fn tool(&mut self, delta: &ToolDelta<'_>, out: &mut Vec<ProviderEvent>) {
        let function = delta.function.0.as_ref();
        let id = json::text(delta.id).unwrap_or_default();
        let name = function.and_then(|function| json::text(function.name)).unwrap_or_default();
        let index = delta.index.0.or(function.and_then(|function| function.index.0));
        let arguments = function.and_then(|function| function.arguments);
        let piece = arguments.map(|raw| json::string_body(Some(raw)).map_or(Piece::Json(raw.get()), Piece::Escaped));
        self.argue(Address { index, id: &id, name: &name }, piece, out);
    }

    /// Brings a piece of arguments to its call.
    fn argue(&mut self, to: Address<'_>, piece: Option<Piece<'_>>, out: &mut Vec<ProviderEvent>) {
        if let Some(oversized) = to.oversized() {
            self.oversized = Some(oversized);
            return;
        }
        let at = match self.calls.route(to) {
            Some(at) => at,
            None if to.id.is_empty() && to.name.is_empty() && piece.is_none() => return,
            None => self.open_call(to, out),
        };
        self.calls.adopt(at, to);
        let Some(piece) = piece else { return };
        let mut text = self.take_text();
        let Some(call) = self.calls.get_mut(at) else { return };
        match piece {
            Piece::Escaped(body) => call.units.push(body, &mut text),
            Piece::Json(json) => text.push_str(json),
        }
        if !call.ended {
            write_arguments(call, &text, self.joins, out);
        } else if !text.trim().is_empty() && !std::mem::replace(&mut call.noted_late, true) {
            let message = ignored(call);
            self.note("late_arguments", message, out);
        }
        self.text = text;
    }

    fn open_call(&mut self, to: Address<'_>, out: &mut Vec<ProviderEvent>) -> usize {
        self.flush(out);
        self.close(out);
        while self.calls.get_mut(self.first_open_call).is_some_and(|call| call.may_end()) {
            self.end_call(self.first_open_call, out);
            self.first_open_call += 1;
        }
        let index = self.next_index();
        let at = self.calls.open(index);
        self.calls.adopt(at, to);
        if let Some(call) = self.calls.get_mut(at) {
            let event = BlockEvent::ToolCallStart { id: call.id(), name: call.name.clone() };
            out.push(ProviderEvent::Block { index, event });
        }
        at
    }

    fn end_call(&mut self, at: usize, out: &mut Vec<ProviderEvent>) {
        let Some(call) = self.calls.get_mut(at) else { return };
        let mut rest = String::new();
        call.units.finish(&mut rest);
        write_arguments(call, &rest, self.joins, out);
        call.ended = true;
        let raw = std::mem::take(&mut call.raw);
        let chars = count(&raw);
        let read = arguments::read(&raw);
        let finished = ToolCall {
            id: call.id(),
            name: call.name.clone(),
            arguments: read.object,
            arguments_error: read.error,
            ..ToolCall::default()
        };
        let trailing = read.trailing.then(|| ignored(call));
        let index = call.index;
        if let Some(message) = trailing {
            self.note("trailing_arguments", message, out);
        }
        out.push(ProviderEvent::Block { index, event: BlockEvent::ToolCallEnd(Box::new(finished)) });
        self.chars += chars;
    }

    /// Ends every block, in content order: a call that is open began before the open text.
    pub(super) fn end(&mut self, out: &mut Vec<ProviderEvent>) {
        self.flush(out);
        for at in self.first_open_call..self.calls.len() {
            self.end_call(at, out);
        }
        self.first_open_call = self.calls.len();
        self.close(out);
        // Entries that belong to no thinking still have to go back: an empty block carries them.
        if let Some(signature) = self.details.take() {
            let index = self.next_index();
            let end = BlockEvent::ThinkingEnd { content: String::new(), signature: Some(signature), redacted: false };
            out.push(ProviderEvent::Block { index, event: BlockEvent::ThinkingStart });
            out.push(ProviderEvent::Block { index, event: end });
        }
    }

    fn note(&mut self, code: &str, message: String, out: &mut Vec<ProviderEvent>) {
        if self.notes < NOTES_MAX {
            self.notes += 1;
            out.push(note(code, message));
        }
    }

    fn next_index(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }
}

/// Reads the parts of a content. `rebuilt` holds the text where a key stands twice, of which the last one counts.
fn read_parts<'a>(raw: Raw<'a>, rebuilt: &'a mut String) -> Few<Part<'a>> {
    let Some(text) = raw.map(RawValue::get).filter(|text| text.starts_with(['[', '{'])) else { return Few::default() };
    if let Ok(parts) = serde_json::from_str(text) {
        return parts;
    }
    *rebuilt = json::value(text).map(|value| value.to_string()).unwrap_or_default();
    serde_json::from_str(rebuilt).unwrap_or_default()
}

fn write_arguments(call: &mut Call, text: &str, joins: bool, out: &mut Vec<ProviderEvent>) {
    if !text.is_empty() {
        call.append(text);
        tell(call.index, BlockEvent::ToolCallDelta, text, joins, out);
    }
}

/// Gives a delta; where wanted, as a part of the last event, if that is the delta before it.
fn tell(index: usize, delta: fn(String) -> BlockEvent, text: &str, joins: bool, out: &mut Vec<ProviderEvent>) {
    if joins
        && let Some(ProviderEvent::Block { index: last, event }) = out.last_mut()
        && *last == index
        && event.append(text)
    {
        return;
    }
    out.push(ProviderEvent::Block { index, event: delta(text.to_owned()) });
}

fn ignored(call: &Call) -> String {
    format!("text behind the arguments of {} was ignored", call.shown_name())
}

pub(super) fn note(code: &str, message: String) -> ProviderEvent {
    ProviderEvent::Note(Diagnostic { code: code.to_owned(), message })
}

fn count(text: &str) -> u64 {
    u64::try_from(text.chars().count()).unwrap_or(u64::MAX)
}
