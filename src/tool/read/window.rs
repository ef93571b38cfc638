//! The lines that are shown: found, decoded and bounded while the file goes by (tool rules R6, R8).
//!
//! Keeps true: no more of a line is held than can be shown; a line that does not fit whole is not shown, but for a
//! first one; the reading stops when nothing more can matter.
//!
//! Must not know: encodings other than UTF-8, notices.

use super::LONG_LINE_CHARS;
use crate::tool::truncate::{Caps, Head};

/// Bytes of the longest character.
const CHAR_BYTES_MAX: usize = 4;

/// Collects lines from a given one on.
#[derive(Debug)]
pub(super) struct Window {
    /// Lines still to pass over.
    skip: u64,
    /// Number of the line that is coming.
    number: u64,
    terminator: u8,
    caps: Caps,
    numbered: bool,
    /// The line that is coming, as far as it can matter.
    line: Vec<u8>,
    line_bytes: u64,
    /// Whether that line has begun.
    begun: bool,
    head: Head,
    /// Set when the byte cap refused a line.
    cut: bool,
    /// A first line over the byte cap.
    long: Option<Long>,
    invalid: usize,
    control: usize,
    terminated: bool,
}

/// The start of a line over the byte cap.
#[derive(Debug)]
struct Long {
    text: String,
    /// Of the whole line.
    bytes: u64,
    /// Of the line in `text`.
    chars: usize,
}

/// How the collection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Whole lines as far as asked for.
    Lines,
    /// Whole lines as far as the byte cap lets them.
    Cut,
    /// The first line alone is over the byte cap; so long it is, and so much of it is shown.
    LongLine { bytes: u64, chars: usize },
}

#[derive(Debug)]
pub(super) struct Shown {
    pub(super) outcome: Outcome,
    /// Without a final line feed.
    pub(super) text: String,
    pub(super) lines: u64,
    /// Whether the last line shown had a terminator.
    pub(super) terminated: bool,
    /// Invalid bytes in the part shown.
    pub(super) invalid: usize,
    /// Control characters left out of the part shown.
    pub(super) control: usize,
}

impl Shown {
    /// Of an empty file.
    pub(super) fn nothing() -> Self {
        Self { outcome: Outcome::Lines, text: String::new(), lines: 0, terminated: false, invalid: 0, control: 0 }
    }
}

impl Window {
    /// `first` is 1-based.
    pub(super) fn new(first: u64, terminator: u8, caps: Caps, numbered: bool) -> Self {
        Self {
            skip: first.saturating_sub(1),
            number: first,
            terminator,
            caps,
            numbered,
            line: Vec::new(),
            line_bytes: 0,
            begun: false,
            head: Head::new(caps),
            cut: false,
            long: None,
            invalid: 0,
            control: 0,
            terminated: false,
        }
    }

    /// Takes the next bytes; `false` when no more can matter.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if self.is_full() {
                return false;
            }
            if let Some(at) = memchr::memchr(self.terminator, bytes) {
                let (body, rest) = bytes.split_at(at);
                self.extend(body);
                self.end_line(true);
                bytes = rest.get(1..).unwrap_or_default();
            } else {
                self.extend(bytes);
                bytes = &[];
            }
        }
        true
    }

    pub(super) fn finish(mut self) -> Shown {
        if self.begun && !self.is_full() {
            self.end_line(false);
        }
        let Self { head, cut, long, terminated, invalid, control, .. } = self;
        let (outcome, lines, text) = match long {
            Some(Long { text, bytes, chars }) => (Outcome::LongLine { bytes, chars }, 1, text),
            None => (if cut { Outcome::Cut } else { Outcome::Lines }, head.lines() as u64, head.into_text()),
        };
        Shown { outcome, text, lines, terminated, invalid, control }
    }

    fn is_full(&self) -> bool {
        self.cut || self.long.is_some() || self.head.lines() >= self.caps.lines
    }

    /// More of a line than this can not be shown.
    fn kept_max(&self) -> usize {
        self.caps.bytes.max(LONG_LINE_CHARS.saturating_mul(CHAR_BYTES_MAX)).saturating_add(CHAR_BYTES_MAX)
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.begun |= !bytes.is_empty();
        if self.skip > 0 {
            return;
        }
        self.line_bytes = self.line_bytes.saturating_add(bytes.len() as u64);
        let room = self.kept_max().saturating_sub(self.line.len());
        self.line.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    fn end_line(&mut self, terminated: bool) {
        self.begun = false;
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        let whole = self.line_bytes == self.line.len() as u64;
        let prefix = if self.numbered { format!("{:6}\t", self.number) } else { String::new() };
        let line = Line::decode(&self.line, usize::MAX);
        if whole && self.head.push(&format!("{prefix}{}", line.text)) {
            self.invalid += line.invalid;
            self.control += line.control;
            self.terminated = terminated;
        } else if self.head.lines() == 0 {
            let bytes = if whole { line.text.len() as u64 } else { self.line_bytes };
            let fitting = line.text.char_indices().map(|(at, c)| at + c.len_utf8());
            let room = self.caps.bytes.saturating_sub(prefix.len());
            let chars = fitting.take(LONG_LINE_CHARS).take_while(|end| *end <= room).count();
            let start = Line::decode(&self.line, chars);
            (self.invalid, self.control) = (start.invalid, start.control);
            self.long = Some(Long { text: prefix + &start.text, bytes, chars });
        } else {
            self.cut = true;
        }
        self.number = self.number.saturating_add(1);
        self.line.clear();
        self.line_bytes = 0;
    }
}

/// A line as it is shown.
struct Line {
    text: String,
    invalid: usize,
    control: usize,
}

impl Line {
    /// Decodes up to `chars` characters. Carriage returns are dropped silently, other control characters but TAB are
    /// dropped and counted (tool rules R4, G7).
    fn decode(bytes: &[u8], mut chars: usize) -> Self {
        let mut line = Self { text: String::with_capacity(bytes.len()), invalid: 0, control: 0 };
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                if chars == 0 {
                    return line;
                }
                match c {
                    '\r' => {}
                    c if c.is_control() && c != '\t' => line.control += 1,
                    c => {
                        line.text.push(c);
                        chars -= 1;
                    }
                }
            }
            if !chunk.invalid().is_empty() {
                if chars == 0 {
                    return line;
                }
                line.text.push(char::REPLACEMENT_CHARACTER);
                line.invalid += chunk.invalid().len();
                chars -= 1;
            }
        }
        line
    }
}
