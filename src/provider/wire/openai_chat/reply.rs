//! The state of one reply: from documents to events, and the judgement at its end.
//!
//! Keeps true: a reply is announced once; an error object wins over everything else in its document (JSON-6); a reply
//! without a finish reason counts only where the server marked its end (OC-15); before an error open blocks stay open
//! (STREAM-5).
//!
//! Must not know: framing, HTTP, which server it is.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::blocks::{BLOCKS_MAX, Blocks, note};
use super::calls::Oversized;
use super::chunk::{Choice, Chunk, is_error_field};
use super::decode::ChatDecoderOptions;
use super::mold::Mold;
use super::stop::{self, Verdict};
use super::usage;
use crate::model::{ErrorKind, ErrorRecord, StopReason, Usage};
use crate::port::ProviderEvent;
use crate::provider::error::{ErrorContext, stream_error};
use crate::provider::json::{self, Raw, Surrogates};
use crate::provider::redact::{Masker, cut};
use crate::provider::url::shown;

/// Bytes of a body shown in an error.
const EXCERPT_BYTES: usize = 200;
/// Characters of a server's own word that are kept.
const WORD_CHARS: usize = 100;

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// `[DONE]`, or a document that is a whole reply.
    Marked,
    /// The bytes ended.
    Eof,
}

/// Whether the text of a document can be trusted to be whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Complete,
    /// The body ended inside it, or could have.
    Cut,
}

/// One reply while it is read.
#[derive(Debug)]
pub(super) struct Reply {
    options: ChatDecoderOptions,
    /// Masks what is shown of foreign text before it is cut.
    masker: Masker,
    started: bool,
    /// A chunk was read, or the beginning of one.
    heard: bool,
    blocks: Blocks,
    finish: Option<String>,
    usage: Option<Usage>,
    /// A whole reply was read from one document.
    whole: bool,
    /// The beginning of what was no chunk.
    noise: Option<String>,
    done: bool,
    /// Reads the chunks that differ from the last one in one string only.
    mold: Mold,
}

impl Reply {
    pub(super) fn new(options: ChatDecoderOptions) -> Self {
        Self {
            blocks: Blocks::new(options.think_tags, options.joins_deltas),
            masker: Masker::new(&options.context.secrets),
            options,
            started: false,
            heard: false,
            finish: None,
            usage: None,
            whole: false,
            noise: None,
            done: false,
            mold: Mold::default(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// What to look at when the server turns out to be none of ours.
    pub(super) fn address_hint(&self) -> String {
        match &self.options.context.url {
            Some(url) => format!("check the base URL: {}", shown(url)),
            None => "check the base URL".to_owned(),
        }
    }

    /// Takes one event of a stream.
    pub(super) fn event(
        &mut self,
        name: Option<&str>,
        data: &str,
        framing: Framing,
        out: &mut Vec<ProviderEvent>,
    ) -> Result<(), ErrorRecord> {
        let data = data.trim();
        if data == "[DONE]" {
            return self.settle(Ending::Marked, out);
        }
        if name == Some("error") {
            let body = json::value(data).unwrap_or_else(|| json!({"error": data}));
            return Err(self.stream_error(&body, out));
        }
        self.document(data, framing, out)
    }

    /// Takes the events at the beginning of `bytes` that differ from the last one in their string only; gives how many
    /// bytes they are.
    pub(super) fn events_alike(&mut self, bytes: &[u8], out: &mut Vec<ProviderEvent>) -> Result<usize, ErrorRecord> {
        let mut rest = bytes;
        while let Some((slot, body, behind)) = self.mold.split_event(rest) {
            self.blocks.more(slot, body, out);
            self.check_limit(out)?;
            rest = behind;
        }
        Ok(bytes.len() - rest.len())
    }

    /// Takes one JSON document: a chunk, a whole reply, an error, or an array of these.
    pub(super) fn document(
        &mut self,
        text: &str,
        framing: Framing,
        out: &mut Vec<ProviderEvent>,
    ) -> Result<(), ErrorRecord> {
        if text.starts_with('[')
            && let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(text)
        {
            let objects = elements.iter().filter(|element| element.get().starts_with('{'));
            for object in objects.clone() {
                self.document(object.get(), framing, out)?;
            }
            if objects.count() == 0 {
                self.noise(text);
            }
            return Ok(());
        }
        if !text.starts_with('{') {
            self.skip(text, out);
            return Ok(());
        }
        if let Some((slot, body)) = self.mold.read(text) {
            self.blocks.more(slot, body, out);
            return self.check_limit(out);
        }
        if let Ok(chunk) = serde_json::from_str::<Chunk<'_>>(text) {
            self.chunk(&chunk, text, out)?;
            // Before the reply has begun, a chunk also announces it.
            if self.started {
                self.mold.keep(text, &chunk);
            }
            return Ok(());
        }
        // One repair (JSON-5); if that is not enough, a tree, which also forgives a key that stands twice.
        let mended = json::repair(text, Surrogates::Keep);
        if let Some(chunk) = mended.as_deref().and_then(|text| serde_json::from_str::<Chunk<'_>>(text).ok()) {
            return self.chunk(&chunk, text, out);
        }
        let rebuilt = json::value(text).map(|value| value.to_string());
        if let Some(chunk) = rebuilt.as_deref().and_then(|text| serde_json::from_str::<Chunk<'_>>(text).ok()) {
            return self.chunk(&chunk, text, out);
        }
        self.heard = true;
        if framing == Framing::Cut {
            return Ok(());
        }
        let message = format!("invalid JSON in stream event: {}", self.excerpt(text));
        Err(self.fail(ErrorRecord::new(ErrorKind::Malformed, message).retryable(), out))
    }

    /// Takes JSON that came without framing: only an error is looked for (NET-08).
    pub(super) fn stray(&mut self, text: &str, out: &mut Vec<ProviderEvent>) -> Result<(), ErrorRecord> {
        let body = match json::value(text) {
            Some(Value::Array(elements)) => elements.into_iter().next(),
            body => body,
        };
        match body {
            Some(body) if is_error_value(&body) => Err(self.stream_error(&body, out)),
            _ => Ok(()),
        }
    }

    /// Keeps the beginning of what was no chunk, for the error of a reply that never came.
    pub(super) fn noise(&mut self, text: &str) {
        if self.noise.is_none() && !text.trim().is_empty() {
            self.noise = Some(self.excerpt(text.trim()));
        }
    }

    /// Some proxies put plain text between the chunks.
    fn skip(&mut self, text: &str, out: &mut Vec<ProviderEvent>) {
        if self.noise.is_none() {
            out.push(note(
                "skipped_event",
                format!("an event that is no JSON object was skipped: {}", self.excerpt(text)),
            ));
        }
        self.noise(text);
    }

    fn chunk(&mut self, chunk: &Chunk<'_>, text: &str, out: &mut Vec<ProviderEvent>) -> Result<(), ErrorRecord> {
        if chunk.is_error() {
            let body = json::value(text).unwrap_or_else(|| json!({"error": text}));
            return Err(self.stream_error(&body, out));
        }
        let choice = chunk.choices.iter().find(|choice| choice.index.0.unwrap_or(0) == 0);
        if let Some(error) = choice.map(|choice| choice.error).filter(|error| is_error_field(*error)) {
            let body = error.and_then(|error| json::value(error.get())).unwrap_or(Value::Null);
            return Err(self.stream_error(&json!({"error": body}), out));
        }
        self.start(chunk, text, out);
        let reported = [chunk.usage, choice.and_then(|choice| choice.usage), vendor_usage(chunk)];
        if let Some(usage) = reported.into_iter().find_map(usage::read) {
            self.usage(usage, out);
        }
        if let Some(choice) = choice {
            self.choice(choice, out);
        }
        self.check_limit(out)
    }

    fn check_limit(&mut self, out: &mut Vec<ProviderEvent>) -> Result<(), ErrorRecord> {
        if let Some(oversized) = self.blocks.oversized() {
            let kind = match oversized {
                Oversized::Name => ErrorKind::ModelBehavior,
                Oversized::Id => ErrorKind::Malformed,
            };
            return Err(self.fail(ErrorRecord::new(kind, oversized.to_string()).retryable(), out));
        }
        if self.blocks.is_over_limit() {
            let message = format!("the reply has more than {BLOCKS_MAX} blocks");
            return Err(self.fail(ErrorRecord::new(ErrorKind::StreamTooLarge, message), out));
        }
        Ok(())
    }

    /// Announces the reply. A preamble that neither names it nor says anything is waited out, so that the id is not
    /// lost where servers send `"id":""` first.
    fn start(&mut self, chunk: &Chunk<'_>, text: &str, out: &mut Vec<ProviderEvent>) {
        if self.started {
            return;
        }
        if !chunk.is_recognisable() {
            return self.noise(text);
        }
        self.heard = true;
        let response_id = json::text(chunk.id);
        let model = json::text(chunk.model);
        if response_id.is_none() && model.is_none() && chunk.choices.is_empty() && chunk.usage.is_none() {
            return;
        }
        self.started = true;
        out.push(ProviderEvent::Start {
            response_id: response_id.map(Into::into),
            response_model: model.filter(|model| *model != self.options.model_id).map(Into::into),
        });
    }

    fn usage(&mut self, usage: Usage, out: &mut Vec<ProviderEvent>) {
        let is_empty = usage.total_tokens == 0;
        if self.usage.as_ref().is_some_and(|known| *known == usage || is_empty) {
            return;
        }
        out.push(ProviderEvent::Usage(Box::new(usage.clone())));
        self.usage = Some(usage);
    }

    fn choice(&mut self, choice: &Choice<'_>, out: &mut Vec<ProviderEvent>) {
        if let Some(delta) = &choice.delta.0 {
            self.blocks.delta(delta, out);
        }
        if let Some(message) = &choice.message.0 {
            // Behind deltas a message only repeats them.
            if self.blocks.is_empty() {
                self.blocks.delta(message, out);
            }
            self.whole = true;
        }
        let Some(word) = json::text(choice.finish_reason) else { return };
        let word = word.trim();
        if !word.is_empty() && self.finish.as_deref().is_none_or(stop::is_plain) {
            self.finish = Some(cut(&self.masker.mask(word), WORD_CHARS));
        }
    }

    /// The body ended without a marker.
    pub(super) fn eof(&mut self, out: &mut Vec<ProviderEvent>) -> Result<(), ErrorRecord> {
        self.settle(if self.whole { Ending::Marked } else { Ending::Eof }, out)
    }

    fn settle(&mut self, ending: Ending, out: &mut Vec<ProviderEvent>) -> Result<(), ErrorRecord> {
        if !self.heard && ending == Ending::Eof {
            return Err(self.no_reply(out));
        }
        self.blocks.flush(out);
        if self.blocks.has_refusal() {
            return Err(self.fail(ErrorRecord::new(ErrorKind::Refusal, "The model declined to answer."), out));
        }
        let (stop_reason, overflow) = self.judge(ending, out)?;
        if self.blocks.has_nameless_call() {
            let record = ErrorRecord::new(ErrorKind::ModelBehavior, "The model called a tool without naming it.");
            return Err(self.fail(record.retryable(), out));
        }
        self.check_empty(stop_reason, out)?;
        self.blocks.end(out);
        if self.usage.is_none() {
            let usage = usage::estimate(self.options.request_chars.count(), self.blocks.chars());
            out.push(ProviderEvent::Usage(Box::new(usage)));
        }
        let raw_stop_reason = self.finish.take().filter(|word| !stop::is_redundant(word, stop_reason));
        out.push(ProviderEvent::Done { stop_reason, raw_stop_reason, overflow });
        self.done = true;
        Ok(())
    }

    fn judge(&mut self, ending: Ending, out: &mut Vec<ProviderEvent>) -> Result<(StopReason, bool), ErrorRecord> {
        let has_calls = self.blocks.has_calls();
        let Some(word) = self.finish.as_deref() else {
            self.check_unfinished(ending, out)?;
            return Ok((if has_calls { StopReason::ToolUse } else { StopReason::Stop }, false));
        };
        match stop::verdict(word, has_calls) {
            Verdict::Done { stop_reason, overflow, known } => {
                if !known {
                    let message = format!("the finish reason \"{word}\" is not known; the reply counts as complete");
                    out.push(ProviderEvent::Warning { code: "unknown_finish_reason".to_owned(), message });
                }
                Ok((stop_reason, overflow))
            }
            Verdict::Fail(record) => Err(self.fail(record, out)),
        }
    }

    /// Without a finish reason only the end marker, some content and readable calls make a reply (OC-15).
    fn check_unfinished(&mut self, ending: Ending, out: &mut Vec<ProviderEvent>) -> Result<(), ErrorRecord> {
        let may_end = ending == Ending::Marked || !self.options.finish_reason_required;
        if !may_end || self.blocks.is_empty() || !self.blocks.are_calls_readable() {
            let record = ErrorRecord::new(ErrorKind::Network, "The stream broke off: no finish_reason.");
            return Err(self.fail(record.retryable(), out));
        }
        if self.options.finish_reason_required {
            let message = "the server gave no finish reason; the reply counts as complete".to_owned();
            out.push(ProviderEvent::Warning { code: "no_finish_reason".to_owned(), message });
        }
        Ok(())
    }

    /// A reply without text and calls is worth a note; with nothing at all on a prompt that can not have fitted, it is
    /// how some servers say that the context is full (ERR-10).
    fn check_empty(&mut self, stop_reason: StopReason, out: &mut Vec<ProviderEvent>) -> Result<(), ErrorRecord> {
        if stop_reason != StopReason::Stop || self.blocks.has_text() {
            return Ok(());
        }
        let estimate = usage::estimate(self.options.request_chars.count(), 0).input;
        let window = self.options.context_window;
        if self.blocks.is_empty() && window > 0 && estimate > window {
            let message = format!("The reply is empty and the prompt (about {estimate} tokens) exceeds the context.");
            let mut record = ErrorRecord::new(ErrorKind::Overflow, message);
            record.limit = Some(window);
            return Err(self.fail(record, out));
        }
        out.push(note("empty_response", "the reply holds neither text nor a tool call".to_owned()));
        Ok(())
    }

    fn no_reply(&mut self, out: &mut Vec<ProviderEvent>) -> ErrorRecord {
        let record = match &self.noise {
            Some(noise) => ErrorRecord::new(ErrorKind::Malformed, format!("the body is no chat completion: {noise}")),
            None => ErrorRecord::new(ErrorKind::Network, "The connection closed before a reply."),
        };
        self.fail(record.retryable(), out)
    }

    /// Completes a record of our own, in the form all errors of a provider have. What was held back is given out, blocks stay open (STREAM-5).
    pub(super) fn fail(&mut self, mut record: ErrorRecord, out: &mut Vec<ProviderEvent>) -> ErrorRecord {
        self.blocks.flush(out);
        let ErrorContext { provider, request_id, .. } = &self.options.context;
        record.message = format!("{provider}: {}", record.message);
        if let Some(id) = request_id {
            record.message = format!("{} (request id {id})", record.message);
        }
        record.provider = Some(provider.clone());
        record.request_id.clone_from(request_id);
        record
    }

    /// The beginning of a foreign text, fit to be shown.
    fn excerpt(&self, text: &str) -> String {
        self.masker.excerpt(text, EXCERPT_BYTES)
    }

    fn stream_error(&mut self, body: &Value, out: &mut Vec<ProviderEvent>) -> ErrorRecord {
        self.blocks.flush(out);
        stream_error(body, &self.options.context)
    }
}

fn vendor_usage<'a>(chunk: &Chunk<'a>) -> Raw<'a> {
    chunk.x_groq.0.as_ref().and_then(|vendor| vendor.usage)
}

fn is_error_value(body: &Value) -> bool {
    let error = body.get("error").is_some_and(|error| !matches!(error, Value::Null | Value::Bool(false)));
    error || body.get("object").and_then(Value::as_str) == Some("error")
}
