//! How bytes reach a descriptor: in pieces of whole lines, also where it is in non-blocking mode.
//!
//! Keeps true: a write holds one or more whole lines (stream guarantee G2), unless a line is longer than a pipe; a
//! failure is an error and never a panic.
//!
//! Must not know: what the bytes say.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of one write of several lines: small enough that a reader of a few kilobytes a second is seen to make progress
/// within [`STALL_LIMIT`](super::STALL_LIMIT).
pub const WRITE_BYTES_MAX: usize = 8 * 1024;
/// Bytes of one write of a single longer line, which stays whole up to here: what a pipe holds. A reader that takes
/// this much within [`STALL_LIMIT`](super::STALL_LIMIT) is always seen to make progress.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
/// Pause before a descriptor in non-blocking mode is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// Writes all of `bytes` in pieces of whole lines; a line longer than [`LINE_BYTES_MAX`] comes in several.
pub(super) fn write_lines(writer: &mut dyn Write, mut bytes: &[u8], moved: &AtomicU64) -> io::Result<()> {
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(piece_len(bytes));
        write_piece(writer, piece, moved)?;
        bytes = rest;
    }
    writer.flush()
}

fn piece_len(bytes: &[u8]) -> usize {
    let Some(head) = bytes.get(..WRITE_BYTES_MAX) else { return bytes.len() };
    let behind = |at: usize| at.saturating_add(1);
    if let Some(at) = memchr::memrchr(b'\n', head) {
        return behind(at);
    }
    let line = bytes.get(..LINE_BYTES_MAX).unwrap_or(bytes);
    memchr::memchr(b'\n', line).map_or(line.len(), behind)
}

/// `write_all` that counts, and that waits where the descriptor is in non-blocking mode: a parent that shares it may
/// have set that.
pub(super) fn write_piece(writer: &mut dyn Write, mut bytes: &[u8], moved: &AtomicU64) -> io::Result<()> {
    while !bytes.is_empty() {
        match writer.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                moved.fetch_add(1, Ordering::Relaxed);
                bytes = bytes.get(count..).unwrap_or_default();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::park_timeout(RETRY_PAUSE),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
