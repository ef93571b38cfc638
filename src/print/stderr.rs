//! Standard error beside a run: its reader never holds up stdout.
//!
//! Keeps true: what a pipe does not take at once waits here and is tried again; at most [`PENDING_BYTES_MAX`] wait, and
//! the oldest go first, so that the last words are kept; a failed stream is ignored from then on.
//!
//! Must not know: what the lines say.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::pieces::write_piece;

/// Bytes that wait for a reader of stderr.
const PENDING_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of one write to a pipe: no more than one that is ready takes without waiting.
const PIECE_BYTES_MAX: usize = 4096;
/// How long the end of a run looks for room at a time.
const LOOK: Duration = Duration::from_millis(50);
/// How many looks without room an interrupted run gives the reader, which makes one second.
const LOOKS_MAX: u32 = 20;

/// Tells whether a descriptor takes bytes, waiting up to a time for it.
pub type IsReady = fn(BorrowedFd<'_>, Duration) -> bool;

/// Where the lines for stderr go.
pub struct Stderr {
    to: To,
    pending: Vec<u8>,
    is_broken: bool,
}

enum To {
    /// A write may wait: a terminal, or a stream that is no descriptor.
    Blocking(Box<dyn Write + Send>),
    /// A write waits for nobody.
    Ready(File, IsReady),
}

impl From<Box<dyn Write + Send>> for Stderr {
    fn from(writer: Box<dyn Write + Send>) -> Self {
        Self::new(To::Blocking(writer))
    }
}

impl<T: Write + Send + 'static> From<Box<T>> for Stderr {
    fn from(writer: Box<T>) -> Self {
        Self::new(To::Blocking(writer))
    }
}

impl std::fmt::Debug for Stderr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stderr").finish_non_exhaustive()
    }
}

impl Stderr {
    fn new(to: To) -> Self {
        Self { to, pending: Vec::new(), is_broken: false }
    }

    /// The process's own. `is_ready` is asked before each write, unless it is a terminal.
    ///
    /// # Errors
    /// It is closed.
    pub fn process(is_terminal: bool, is_ready: IsReady) -> io::Result<Self> {
        let file = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        Ok(Self::new(if is_terminal { To::Blocking(Box::new(file)) } else { To::Ready(file, is_ready) }))
    }

    /// Writes lines as far as the reader takes them now; the rest waits for the next call.
    pub(super) fn write(&mut self, lines: &str) {
        self.pending.extend_from_slice(lines.as_bytes());
        self.retry();
        let excess = self.pending.len().saturating_sub(PENDING_BYTES_MAX);
        if excess > 0 {
            let cut = memchr::memchr(b'\n', self.pending.get(excess..).unwrap_or_default());
            let until = cut.map_or(self.pending.len(), |at| excess.saturating_add(at).saturating_add(1));
            self.pending.drain(..until);
        }
    }

    /// Offers what waits once more.
    pub(super) fn retry(&mut self) {
        self.push(Duration::ZERO);
    }

    /// Waits for the reader to take the rest; when the run is in a hurry, for a second without a move.
    pub(super) fn finish(&mut self, in_a_hurry: impl Fn() -> bool) {
        let mut still: u32 = 0;
        while !self.pending.is_empty() && still < LOOKS_MAX {
            let before = self.pending.len();
            self.push(LOOK);
            still = if in_a_hurry() && self.pending.len() == before { still.saturating_add(1) } else { 0 };
        }
    }

    fn push(&mut self, wait: Duration) {
        while !self.pending.is_empty() && !self.is_broken {
            // Nobody counts how far stderr has come.
            let moved = AtomicU64::new(0);
            let (count, written) = match &mut self.to {
                To::Blocking(writer) => {
                    let written = write_piece(&mut **writer, &self.pending, &moved).and_then(|()| writer.flush());
                    (self.pending.len(), written)
                }
                To::Ready(file, is_ready) => {
                    if !is_ready(file.as_fd(), wait) {
                        return;
                    }
                    let piece = self.pending.get(..PIECE_BYTES_MAX).unwrap_or(&self.pending);
                    (piece.len(), write_piece(file, piece, &moved))
                }
            };
            // A run does not end because nobody reads its messages.
            self.is_broken = written.is_err();
            self.pending.drain(..count);
        }
        if self.is_broken {
            self.pending.clear();
        }
    }
}
