//! The file of `--events`: the whole JSONL stream, whatever stdout shows.
//!
//! Keeps true: it holds what `--json=events` would write, with a count of its own, in whole lines; a file that takes no
//! more is noted once and left alone, and changes nothing of the run; it goes through the printer's bounded queue, so
//! that a slow one slows the run instead of filling the memory.
//!
//! Must not know: what a failure does to the verdict.

use std::io::Write;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::file::io_reason;
use super::out::{Msg, encode};
use super::pieces::{WRITE_BYTES_MAX, write_lines};
use super::{Encoder, Level};

/// A stream of events beside stdout. Clones are the same stream, which one printer after another may go on with.
#[derive(Clone)]
pub struct Events {
    stream: Arc<Mutex<Stream>>,
    name: Arc<str>,
    /// Beside the stream, so that asking never waits for a write.
    failure: Arc<OnceLock<String>>,
}

struct Stream {
    encoder: Encoder,
    buffer: Vec<u8>,
    writer: Box<dyn Write + Send>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("failure", &self.failure).finish_non_exhaustive()
    }
}

impl Events {
    /// A stream without a line; `name` is that of the file, for errors.
    pub fn new(name: &str, writer: Box<dyn Write + Send>) -> Self {
        let stream = Stream { encoder: Encoder::new(Level::Events), buffer: Vec::new(), writer };
        Self { stream: Arc::new(Mutex::new(stream)), name: name.into(), failure: Arc::default() }
    }

    /// A sentence on why the stream is not complete, if so.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Adds the line of a message; writes when there is enough.
    pub(super) fn take(&self, msg: &Msg, moved: &AtomicU64) {
        if self.failure.get().is_some() {
            return;
        }
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let Stream { encoder, buffer, .. } = &mut *stream;
        encode(encoder, msg, buffer);
        if buffer.len() >= WRITE_BYTES_MAX {
            self.write(&mut stream, moved);
        }
    }

    /// Writes what is there.
    pub(super) fn flush(&self, moved: &AtomicU64) {
        self.write(&mut self.stream.lock().unwrap_or_else(PoisonError::into_inner), moved);
    }

    fn write(&self, stream: &mut Stream, moved: &AtomicU64) {
        if self.failure.get().is_none()
            && !stream.buffer.is_empty()
            && let Err(error) = write_lines(&mut *stream.writer, &stream.buffer, moved)
        {
            self.failure.get_or_init(|| format!("cannot write {}: {}", self.name, io_reason(&error)));
        }
        stream.buffer.clear();
    }
}
