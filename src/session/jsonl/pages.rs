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
    fn window(&self, from: u64, to: u64, bytes: &mut Vec<u8>) -> Result<(), StoreError> {
        let len = usize::try_from(to.saturating_sub(from)).map_err(|error| io_error(&self.path, &error))?;
        bytes.clear();
        bytes.resize(len, 0);
        self.file.read_exact_at(bytes, from).map_err(|error| io_error(&self.path, &error))
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
        let mut bytes = Vec::new();
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
            self.window(first.offset, end, &mut bytes)?;
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
    reader: BufReader<Take<Arc<File>>>,
    /// The line, without its line feed.
    pub(super) bytes: Vec<u8>,
    /// Counts from 1.
    pub(super) number: u64,
    /// Where the line starts.
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
        let reader = BufReader::with_capacity(READ_BYTES, file.take(size));
        Ok(Self { reader, bytes: Vec::new(), number: 0, offset: 0, end: 0, has_newline: true })
    }

    /// Goes to the next line; false at the end. Of a line that is too long to be ours only the first bytes are kept.
    pub(super) fn advance(&mut self) -> io::Result<bool> {
        self.bytes.clear();
        self.offset = self.end;
        let limit = u64::try_from(LINE_BYTES_MAX + 2).unwrap_or(u64::MAX);
        let mut read = (&mut self.reader).take(limit).read_until(b'\n', &mut self.bytes)?;
        if read == 0 {
            return Ok(false);
        }
        self.number += 1;
        self.has_newline = self.bytes.last() == Some(&b'\n');
        while !self.has_newline && read > 0 && self.bytes.len() > LINE_BYTES_MAX {
            self.end += u64::try_from(read).unwrap_or_default();
            let bytes = self.reader.fill_buf()?;
            let newline = memchr::memchr(b'\n', bytes);
            self.has_newline = newline.is_some();
            read = newline.map_or(bytes.len(), |at| at + 1);
            self.reader.consume(read);
        }
        self.end += u64::try_from(read).unwrap_or_default();
        if self.bytes.last() == Some(&b'\n') {
            self.bytes.pop();
        }
        Ok(true)
    }
}

/// An error of the operating system, or one that stands for one.
pub(super) fn io_error(path: &Path, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Io { file: path.display().to_string(), reason: error.to_string() }
}
