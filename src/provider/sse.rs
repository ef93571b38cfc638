//! Server-sent events: bytes in, events out. Nothing here does input or output.
//!
//! Keeps true: the events do not depend on how the bytes are split; every byte is searched once; data of one line is
//! handed out where it lies, only data of several lines and invalid UTF-8 are copied (SSE-1 to SSE-13, PERF-3); lines,
//! events and the body have limits, and what came before a limit is still handed out.
//!
//! Must not know: what data means; which protocol, if any, is spoken.

use std::borrow::Cow;
use std::ops::Range;

/// Bytes of one line, without its end (SSE-12).
pub const LINE_BYTES_MAX: usize = 16 * MIB;
/// Bytes of the data of one event.
pub const EVENT_BYTES_MAX: usize = 32 * MIB;
/// Bytes of a whole body.
pub const BODY_BYTES_MAX: usize = 256 * MIB;

const MIB: usize = 1024 * 1024;
const BOM: &[u8] = b"\xef\xbb\xbf";

/// The limits of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseLimits {
    pub line_bytes: usize,
    pub event_bytes: usize,
    pub body_bytes: usize,
}

impl Default for SseLimits {
    fn default() -> Self {
        Self { line_bytes: LINE_BYTES_MAX, event_bytes: EVENT_BYTES_MAX, body_bytes: BODY_BYTES_MAX }
    }
}

/// A stream that is larger than this program is willing to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    #[error("a line of the stream is larger than {}", size(*.0))]
    Line(usize),
    #[error("an event of the stream is larger than {}", size(*.0))]
    Event(usize),
    #[error("the stream is larger than {}", size(*.0))]
    Body(usize),
    /// A body that is no stream but one JSON document, which has the limit of an event.
    #[error("the JSON body is larger than {}", size(*.0))]
    Document(usize),
}

fn size(bytes: usize) -> String {
    if bytes >= MIB && bytes.is_multiple_of(MIB) { format!("{} MiB", bytes / MIB) } else { format!("{bytes} bytes") }
}

/// One thing of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SseItem<'a> {
    /// An event with data other than white space.
    Event { event: Option<&'a str>, data: Cow<'a, str>, id: Option<&'a str> },
    /// A line that is no field of this format, such as a bare JSON error behind the last event. Unknown fields come
    /// so too; whoever does not care ignores them.
    Stray(Cow<'a, str>),
}

/// Splits a body into events.
#[derive(Debug, Default)]
pub struct SseDecoder {
    limits: SseLimits,
    buf: Vec<u8>,
    /// Where the first line that was not read begins.
    line: usize,
    /// Up to where that line was searched for its end.
    searched: usize,
    /// Bytes taken since the start.
    taken: usize,
    /// Bytes beyond the body limit were offered and not taken.
    over: bool,
    ended: bool,
    /// A byte order mark can no longer come.
    begun: bool,
    /// The last line ended with CR: a LF that follows belongs to it.
    skip_lf: bool,
    event: Pending,
}

/// The event whose lines are being read.
#[derive(Debug, Default)]
struct Pending {
    data: Data,
    /// Holds the text of [`Data::Many`].
    joined: String,
    name: Option<String>,
    id: Option<String>,
    /// It was handed out; the next call begins another one.
    given: bool,
}

#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    /// One line, where it lies in the buffer.
    One(Range<usize>),
    /// Several lines, joined.
    Many,
}

enum Step {
    Event,
    Stray(Range<usize>),
    /// Everything complete was read.
    Wait,
}

impl SseDecoder {
    /// A decoder with limits of its own; [`SseDecoder::default`] has the documented ones.
    pub fn with_limits(limits: SseLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Takes the next bytes. Ask for items until there is none before the next call, or they pile up here.
    pub fn push(&mut self, bytes: &[u8]) {
        self.compact();
        let room = self.limits.body_bytes.saturating_sub(self.taken);
        let bytes = if bytes.len() > room {
            self.over = true;
            bytes.get(..room).unwrap_or_default()
        } else {
            bytes
        };
        self.taken += bytes.len();
        self.buf.extend_from_slice(bytes);
    }

    /// The body ended. A last line without its end and an event without its blank line count (SSE-9).
    pub fn finish(&mut self) {
        self.ended = true;
    }

    /// The next item, or nothing until more bytes come.
    ///
    /// # Errors
    /// A limit was exceeded; nothing more can be read.
    pub fn next_item(&mut self) -> Result<Option<SseItem<'_>>, SseError> {
        if self.event.given {
            self.event.reset();
        }
        match self.step()? {
            Step::Wait => Ok(None),
            Step::Stray(range) => Ok(Some(SseItem::Stray(text(slice(&self.buf, &range))))),
            Step::Event => {
                self.event.given = true;
                let Pending { data, joined, name, id, .. } = &self.event;
                let data = match data {
                    Data::One(range) => text(slice(&self.buf, range)),
                    Data::None | Data::Many => Cow::Borrowed(joined.as_str()),
                };
                Ok(Some(SseItem::Event { event: name.as_deref(), data, id: id.as_deref() }))
            }
        }
    }

    /// What lies behind the last item, for a caller who can tell whole events there faster; empty unless an event begins
    /// there and nothing of it was searched before. No longer than a line may be, so the limits hold for what is told.
    pub fn ahead(&mut self) -> &[u8] {
        if self.event.given {
            self.event.reset();
        }
        if !self.begun || self.skip_lf || self.searched != self.line || !self.event.is_blank() {
            return &[];
        }
        let bytes_max = self.limits.line_bytes.min(self.limits.event_bytes);
        let rest = self.buf.get(self.line..).unwrap_or_default();
        rest.get(..bytes_max).unwrap_or(rest)
    }

    /// Passes over whole events at the beginning of [`SseDecoder::ahead`].
    pub fn pass(&mut self, bytes: usize) {
        self.line = self.line.saturating_add(bytes).min(self.buf.len());
        self.searched = self.line;
    }

    fn step(&mut self) -> Result<Step, SseError> {
        while let Some(range) = self.take_line()? {
            if range.is_empty() {
                if self.event.is_worth_giving(&self.buf) {
                    return Ok(Step::Event);
                }
                self.event.reset();
            } else if self.field(&range)? == Field::Unknown {
                return Ok(Step::Stray(range));
            }
        }
        if self.ended && !self.over && self.event.is_worth_giving(&self.buf) {
            return Ok(Step::Event);
        }
        Ok(Step::Wait)
    }

    /// The next complete line without its end, or the last one.
    fn take_line(&mut self) -> Result<Option<Range<usize>>, SseError> {
        if !self.begin() {
            return Ok(None);
        }
        if self.skip_lf && self.line < self.buf.len() {
            if self.buf.get(self.line) == Some(&b'\n') {
                self.line += 1;
            }
            self.skip_lf = false;
            self.searched = self.searched.max(self.line);
        }
        let start = self.line;
        let unsearched = self.buf.get(self.searched..).unwrap_or_default();
        let found = memchr::memchr2(b'\n', b'\r', unsearched).map(|at| self.searched + at);
        let end = found.unwrap_or(self.buf.len());
        self.searched = end;
        if end - start > self.limits.line_bytes {
            return Err(SseError::Line(self.limits.line_bytes));
        }
        if let Some(end) = found {
            self.skip_lf = self.buf.get(end) == Some(&b'\r');
            self.line = end + 1;
            self.searched = self.line;
            return Ok(Some(start..end));
        }
        if self.over {
            return Err(SseError::Body(self.limits.body_bytes));
        }
        if self.ended && start < end {
            self.line = end;
            return Ok(Some(start..end));
        }
        Ok(None)
    }

    /// Drops a byte order mark. Gives false while more bytes are needed to tell (SSE-4).
    fn begin(&mut self) -> bool {
        if self.begun {
            return true;
        }
        if self.buf.len() < BOM.len() && BOM.starts_with(&self.buf) && !self.ended && !self.over {
            return false;
        }
        self.begun = true;
        if self.buf.starts_with(BOM) {
            self.line = BOM.len();
            self.searched = self.line;
        }
        true
    }

    fn field(&mut self, range: &Range<usize>) -> Result<Field, SseError> {
        let line = slice(&self.buf, range);
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let (name, rest) = line.split_at_checked(colon).unwrap_or((line, b""));
        let value = rest.strip_prefix(b": ").or_else(|| rest.strip_prefix(b":")).unwrap_or_default();
        match name {
            b"data" => {
                let value = range.end - value.len()..range.end;
                self.event.add(&self.buf, value, self.limits.event_bytes)?;
            }
            b"event" => self.event.name = Some(String::from_utf8_lossy(value).into_owned()),
            b"id" if !value.contains(&0) => self.event.id = Some(String::from_utf8_lossy(value).into_owned()),
            // A comment has an empty name; `retry` and an id with NUL are ignored (SSE-5, SSE-7).
            b"" | b"id" | b"retry" => {}
            _ => return Ok(Field::Unknown),
        }
        Ok(Field::Known)
    }

    /// Forgets what was read, once it is more than half of the buffer.
    fn compact(&mut self) {
        if self.event.given {
            self.event.reset();
        }
        let kept = match &self.event.data {
            Data::One(range) => range.start,
            Data::None | Data::Many => self.line,
        };
        if kept <= self.buf.len() / 2 {
            return;
        }
        self.buf.drain(..kept);
        self.line -= kept;
        self.searched -= kept;
        if let Data::One(range) = &mut self.event.data {
            *range = range.start - kept..range.end - kept;
        }
    }
}

#[derive(PartialEq, Eq)]
enum Field {
    Known,
    Unknown,
}

impl Pending {
    fn add(&mut self, buf: &[u8], line: Range<usize>, bytes_max: usize) -> Result<(), SseError> {
        let held = match &self.data {
            Data::None => 0,
            Data::One(first) => first.len() + 1,
            Data::Many => self.joined.len() + 1,
        };
        if held + line.len() > bytes_max {
            return Err(SseError::Event(bytes_max));
        }
        match &self.data {
            Data::None => {
                self.data = Data::One(line);
                return Ok(());
            }
            Data::One(first) => self.joined.push_str(&text(slice(buf, first))),
            Data::Many => {}
        }
        self.joined.push('\n');
        self.joined.push_str(&text(slice(buf, &line)));
        self.data = Data::Many;
        Ok(())
    }

    /// Events without data, or with nothing but white space, are dropped together with their name (SSE-8, SSE-11).
    fn is_worth_giving(&self, buf: &[u8]) -> bool {
        let data = match &self.data {
            Data::None => return false,
            Data::One(range) => slice(buf, range),
            Data::Many => self.joined.as_bytes(),
        };
        !self.given && !data.iter().all(u8::is_ascii_whitespace)
    }

    /// Whether no line of it was read.
    fn is_blank(&self) -> bool {
        matches!(self.data, Data::None) && self.name.is_none() && self.id.is_none()
    }

    fn reset(&mut self) {
        self.data = Data::None;
        self.joined.clear();
        self.name = None;
        self.id = None;
        self.given = false;
    }
}

/// Ranges are made from the buffer they are used on.
fn slice<'a>(buf: &'a [u8], range: &Range<usize>) -> &'a [u8] {
    buf.get(range.clone()).unwrap_or_default()
}
/// Lossy text. Valid text, the usual case, is only checked: the standard library's lossy reader is several times slower
/// at that than its checker (9 % of the CPU of a long stream, measured).
fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}
