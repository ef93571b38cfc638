//! The decoder of a response body: finds out how it is framed and hands documents to the reply.
//!
//! Keeps true: the first byte that tells decides between an event stream and JSON, whatever the content type says
//! (SSE-15, SSE-16); buffers are bounded; nothing is read behind a complete reply.
//!
//! Must not know: what a document says.

use serde_json::Deserializer;
use serde_json::value::RawValue;

use super::encode::RequestChars;
use super::reply::{Framing, Reply};
use super::stray::Stray;
use crate::model::{ErrorKind, ErrorRecord};
use crate::port::ProviderEvent;
use crate::provider::error::ErrorContext;
use crate::provider::sse::{SseDecoder, SseError, SseItem, SseLimits};
use crate::provider::wire::Decoder;

/// What a decoder has to know of the request and of the server.
#[derive(Clone, Debug)]
pub struct ChatDecoderOptions {
    /// What errors say of the request, and what they must not show.
    pub context: ErrorContext,
    /// The model asked for; another name in the reply is its response model.
    pub model_id: String,
    /// Text between `<think>` tags at the start of the reply is thinking (`compat.think_tags`).
    pub think_tags: bool,
    /// A reply without a finish reason was cut off (`compat.finish_reason`).
    pub finish_reason_required: bool,
    /// Characters of the request's text, to estimate usage that nobody reports.
    pub request_chars: RequestChars,
    /// Tokens; 0 = unknown.
    pub context_window: u64,
    /// Deltas of one block that come in one piece of the body are one delta, of at most
    /// [`MERGED_BYTES_MAX`](crate::model::MERGED_BYTES_MAX).
    pub joins_deltas: bool,
}

impl ChatDecoderOptions {
    /// The generic dialect, nothing known of the request.
    pub fn new(provider: impl Into<String>, model_id: impl Into<String>) -> Self {
        Self {
            context: ErrorContext { provider: provider.into(), ..ErrorContext::default() },
            model_id: model_id.into(),
            think_tags: false,
            finish_reason_required: true,
            request_chars: RequestChars::Known(0),
            context_window: 0,
            joins_deltas: false,
        }
    }
}

/// Decodes the body of one chat completion, streamed or whole.
///
/// A body whose first byte other than white space opens a JSON object or array is read as JSON, whatever its content
/// type says (SSE-15, NS-1, SSE-16); anything else is an event stream.
#[derive(Debug)]
pub struct ChatDecoder {
    shape: Shape,
    sse: SseDecoder,
    /// A JSON body so far.
    json: Vec<u8>,
    json_bytes_max: usize,
    stray: Stray,
    reply: Reply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Nothing but white space came.
    Unknown,
    Events,
    Json,
}

impl ChatDecoder {
    /// A decoder for one body, with the usual limits.
    pub fn new(options: ChatDecoderOptions) -> Self {
        Self::with_limits(options, SseLimits::default())
    }

    /// A decoder with limits of its own.
    pub fn with_limits(options: ChatDecoderOptions, limits: SseLimits) -> Self {
        Self {
            shape: Shape::Unknown,
            sse: SseDecoder::with_limits(limits),
            json: Vec::new(),
            // Read at once when it is complete, as an event is.
            json_bytes_max: limits.event_bytes.min(limits.body_bytes),
            stray: Stray::default(),
            reply: Reply::new(options),
        }
    }

    /// Settles the shape by the first byte that tells, and gives the bytes from there on.
    fn detect<'a>(&mut self, bytes: &'a [u8], out: &mut Vec<ProviderEvent>) -> Result<&'a [u8], ErrorRecord> {
        if self.shape != Shape::Unknown {
            return Ok(bytes);
        }
        let tells = |byte: &u8| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0xEF | 0xBB | 0xBF);
        let Some(at) = bytes.iter().position(tells) else { return Ok(&[]) };
        let bytes = bytes.get(at..).unwrap_or_default();
        self.shape = match bytes.first() {
            Some(b'{' | b'[') => Shape::Json,
            Some(b'<') => {
                let message = "The server answered with a web page: this is not an API endpoint.";
                let record = ErrorRecord::new(ErrorKind::Config, message);
                return Err(self.reply.fail(record.with_hint(self.reply.address_hint()), out));
            }
            _ => Shape::Events,
        };
        Ok(bytes)
    }

    /// Reads every event that is complete.
    fn drain(&mut self, framing: Framing, out: &mut Vec<ProviderEvent>) -> Result<(), ErrorRecord> {
        while !self.reply.is_done() {
            let alike = self.reply.events_alike(self.sse.ahead(), out)?;
            if alike > 0 {
                self.sse.pass(alike);
                self.stray.forget();
            }
            match self.sse.next_item() {
                Ok(None) => break,
                Ok(Some(SseItem::Event { event, data, .. })) => {
                    self.stray.forget();
                    self.reply.event(event, &data, framing, out)?;
                }
                Ok(Some(SseItem::Stray(line))) => {
                    self.reply.noise(&line);
                    if let Some(document) = self.stray.line(&line) {
                        self.reply.stray(&document, out)?;
                    }
                }
                Err(error) => return Err(self.too_large(error, out)),
            }
        }
        Ok(())
    }

    /// Reads a whole JSON body: one document or one after another.
    fn read_json(&mut self, out: &mut Vec<ProviderEvent>) -> Result<(), ErrorRecord> {
        let body = std::mem::take(&mut self.json);
        let text = String::from_utf8_lossy(&body);
        let mut documents = Deserializer::from_str(&text).into_iter::<&RawValue>();
        let mut read = 0;
        while let Some(document) = documents.next() {
            match document {
                Ok(document) => self.reply.document(document.get(), Framing::Complete, out)?,
                Err(error) => {
                    let framing = if error.is_eof() { Framing::Cut } else { Framing::Complete };
                    let rest = text.get(read..).unwrap_or("").trim();
                    return self.reply.document(rest, framing, out);
                }
            }
            read = documents.byte_offset();
        }
        Ok(())
    }

    fn too_large(&mut self, error: SseError, out: &mut Vec<ProviderEvent>) -> ErrorRecord {
        self.reply.fail(ErrorRecord::new(ErrorKind::StreamTooLarge, error.to_string()), out)
    }
}

impl Decoder for ChatDecoder {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<ProviderEvent>) -> Result<(), ErrorRecord> {
        if self.reply.is_done() {
            return Ok(());
        }
        let bytes = self.detect(bytes, out)?;
        match self.shape {
            Shape::Unknown => Ok(()),
            Shape::Events => {
                self.sse.push(bytes);
                self.drain(Framing::Complete, out)
            }
            Shape::Json if self.json.len() + bytes.len() > self.json_bytes_max => {
                Err(self.too_large(SseError::Document(self.json_bytes_max), out))
            }
            Shape::Json => {
                self.json.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<ProviderEvent>) -> Result<(), ErrorRecord> {
        match self.shape {
            Shape::Unknown => {}
            Shape::Events => {
                self.sse.finish();
                self.drain(Framing::Cut, out)?;
            }
            Shape::Json => self.read_json(out)?,
        }
        if self.reply.is_done() { Ok(()) } else { self.reply.eof(out) }
    }

    fn is_done(&self) -> bool {
        self.reply.is_done()
    }
}
