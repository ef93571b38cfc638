//! Reading a session file: line by line when it is opened, piece by piece later.
//!
//! Keeps true: what is held in memory is one line, or one window of neighbouring pieces; bytes that were indexed are
//! never changed by us, so they are read without a lock.
//!
//! Must not know: what lines and pieces say.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Take};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::line::LINE_BYTES_MAX;
use crate::port::StoreError;
use crate::session::index::Piece;
use crate::session::shelf::{Each, Source};

/// Bytes of neighbouring pieces that are read at once.
const WINDOW_BYTES: u64 = 256 << 10;
/// Bytes between two pieces that are read rather than skipped.
const GAP_BYTES: u64 = 4 << 10;
/// Bytes that are read of a file at once.
const READ_BYTES: usize = 128 << 10;

/// Where a write stands in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl Span {
    /// A line is at most [`LINE_BYTES_MAX`] long, so the length fits.
    pub(super) fn new(offset: u64, len: usize) -> Self {
        Self { offset, len: u32::try_from(len).unwrap_or(u32::MAX) }
    }

    fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.len))
    }
}

impl Piece for Span {
    fn bytes(&self) -> u64 {
        u64::from(self.len)
    }
}

/// The file that spans point into. A rewrite puts another one in its place; this one stays readable.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) file: Arc<File>,
    pub(super) path: PathBuf,
}

impl Pages {
    /// Reads a window into the start of a buffer, which grows where it must.
    fn window<'a>(&self, from: u64, to: u64, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], StoreError> {
        let len = usize::try_from(to.saturating_sub(from)).map_err(|error| io_error(&self.path, &error))?;
        if buffer.len() < len {
            // The system gives zeros; writing them takes longer than reading the file.
            *buffer = vec![0; len];
        }
        let bytes = buffer.get_mut(..len).unwrap_or_default();
        self.file.read_exact_at(bytes, from).map_err(|error| io_error(&self.path, &error))?;
        Ok(bytes)
    }

    fn damaged(&self, span: Span, reason: String) -> StoreError {
        // Counted only now: where a piece stands is of interest only when it can not be read.
        let line = line_of(&self.path, span.offset).unwrap_or_default();
        StoreError::Corrupt { file: self.path.display().to_string(), line, reason }
    }
}

impl Source for Pages {
    type Piece = Span;

    fn texts(&self, spans: &[Span], each: &mut Each<'_>) -> Result<(), StoreError> {
        let mut order: Vec<(usize, Span)> = spans.iter().copied().enumerate().collect();
        order.sort_by_key(|(_, span)| span.offset);
        let mut rest = order.as_slice();
        let mut buffer = Vec::new();
        while let Some((_, first)) = rest.first() {
            let mut end = first.end();
            let near = |span: Span, end: u64| {
                span.offset <= end.saturating_add(GAP_BYTES) && span.end() <= first.offset.saturating_add(WINDOW_BYTES)
            };
            let mut count = 1;
            while let Some((_, next)) = rest.get(count).filter(|(_, next)| near(*next, end)) {
                end = end.max(next.end());
                count += 1;
            }
            let bytes = self.window(first.offset, end, &mut buffer)?;
            let (group, later) = rest.split_at(count);
            for (at, span) in group {
                let start = usize::try_from(span.offset.saturating_sub(first.offset)).unwrap_or(usize::MAX);
                let len = usize::try_from(span.len).unwrap_or(usize::MAX);
                let piece = bytes.get(start..).and_then(|bytes| bytes.get(..len)).unwrap_or_default();
                let text = std::str::from_utf8(piece).map_err(|error| self.damaged(*span, error.to_string()))?;
                each(*at, text).map_err(|reason| self.damaged(*span, reason))?;
            }
            rest = later;
        }
        Ok(())
    }
}

fn line_of(path: &Path, offset: u64) -> io::Result<u64> {
    let mut reader = BufReader::with_capacity(READ_BYTES, File::open(path)?).take(offset);
    let mut lines = 1;
    loop {
        let bytes = reader.fill_buf()?;
        let read = bytes.len();
        if read == 0 {
            return Ok(lines);
        }
        lines += u64::try_from(memchr::memchr_iter(b'\n', bytes).count()).unwrap_or_default();
        reader.consume(read);
    }
}

/// The lines of a file, one at a time.
#[derive(Debug)]
pub(super) struct Lines {
    file: Take<Arc<File>>,
    buffer: Vec<u8>,
    /// Where in the buffer the line starts, where it ends, and where the next one starts.
    start: usize,
    stop: usize,
    next: usize,
    /// Counts from 1.
    pub(super) number: u64,
    /// Where in the file the line starts.
    pub(super) offset: u64,
    /// Where the next one starts.
    pub(super) end: u64,
    /// The last line may lack its line feed.
    pub(super) has_newline: bool,
}

impl Lines {
    /// Starts at the beginning, and ends where the file ends now: a line that another process writes meanwhile may
    /// look torn in its middle.
    pub(super) fn new(file: &Arc<File>) -> io::Result<Self> {
        let size = file.metadata()?.len();
        let mut file = Arc::clone(file);
        file.rewind()?;
        Ok(Self {
            file: file.take(size),
            buffer: Vec::new(),
            start: 0,
            stop: 0,
            next: 0,
            number: 0,
            offset: 0,
            end: 0,
            has_newline: true,
        })
    }

    /// The line, without its line feed. Of a line that is too long to be ours only the first bytes are kept.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..self.stop).unwrap_or_default()
    }

    /// Goes to the next line; false at the end.
    pub(super) fn advance(&mut self) -> io::Result<bool> {
        self.offset = self.end;
        self.start = self.next;
        let mut searched = self.start;
        // Bytes of a line that is too long, which are not kept.
        let mut dropped = 0;
        loop {
            let rest = self.buffer.get(searched..).unwrap_or_default();
            if let Some(at) = memchr::memchr(b'\n', rest) {
                self.stop = searched + at;
                self.next = self.stop + 1;
                self.has_newline = true;
                break;
            }
            if self.buffer.len() - self.start > LINE_BYTES_MAX {
                dropped += self.buffer.len() - (self.start + LINE_BYTES_MAX + 1);
                self.buffer.truncate(self.start + LINE_BYTES_MAX + 1);
            }
            // Filling moves the line to the front.
            searched = self.buffer.len() - self.start;
            if !self.fill()? {
                self.stop = self.buffer.len();
                self.next = self.stop;
                self.has_newline = false;
                break;
            }
        }
        let read = self.next - self.start + dropped;
        if read == 0 {
            return Ok(false);
        }
        self.number += 1;
        self.end = self.end.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        Ok(true)
    }

    /// Reads on behind the buffer, without what stands before the line. False at the end.
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let wanted = READ_BYTES.max(self.buffer.len());
        let read = (&mut self.file).take(u64::try_from(wanted).unwrap_or(u64::MAX)).read_to_end(&mut self.buffer)?;
        Ok(read > 0)
    }
}

/// An error of the operating system, or one that stands for one.
pub(super) fn io_error(path: &Path, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Io { file: path.display().to_string(), reason: error.to_string() }
}
