//! Rewriting: the same session in a new file, without the writes that say nothing any more.
//!
//! Keeps true: at every moment the session's name points to the whole old file or to the whole new one; live writes
//! keep their text, their places and their order, also those of kinds this version does not know.
//!
//! Must not know: what a write says.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use super::Closed;
use super::append::{Repair, Session, Writer, directory, write_all};
use super::line::{self, LineBuilder};
use super::options::Durability;
use super::pages::{Lines, io_error};
use crate::port::StoreError;

/// Fewer dead bytes are not worth a rewrite.
const DEAD_BYTES_MIN: u64 = 256 << 10;
/// Bytes of the new file that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// The new file of a rewrite, until it takes the place of the old one.
pub(super) fn rewrite_path(session: &Path) -> PathBuf {
    let mut name = session.as_os_str().to_owned();
    name.push(".rewrite");
    PathBuf::from(name)
}

impl Session {
    /// Ends a session in good order.
    pub(super) async fn close(self: &Arc<Self>) -> Result<Closed, StoreError> {
        if self.writer().dead.is_some() {
            self.release();
            return Ok(Closed::Kept);
        }
        let synced = self.barrier().await;
        let is_worth_it = self.is_worth_it(&self.writer());
        let closed = if is_worth_it {
            let session = Arc::clone(self);
            let closed = tokio::task::spawn_blocking(move || session.close_now()).await;
            closed.unwrap_or_else(|error| Err(io_error(&self.path, &error)))
        } else {
            self.close_now()
        };
        self.release();
        synced.and(closed)
    }

    fn release(&self) {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn close_now(&self) -> Result<Closed, StoreError> {
        let mut writer = self.writer();
        let is_alive = writer.dead.is_none();
        writer.dead.get_or_insert_with(|| "the session is closed".to_owned());
        if !is_alive || !self.is_worth_it(&writer) {
            return Ok(Closed::Kept);
        }
        self.check_foreign(&writer)?;
        self.rewrite(&writer).map(|()| Closed::Rewritten)
    }

    fn is_worth_it(&self, writer: &Writer) -> bool {
        let has_lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let dead = self.shelf.index().dead_bytes();
        let is_torn = matches!(writer.repair, Repair::Torn { .. });
        has_lock && !is_torn && dead > DEAD_BYTES_MIN && dead > writer.seen.size / 2
    }

    fn rewrite(&self, writer: &Writer) -> Result<(), StoreError> {
        let new = rewrite_path(&self.path);
        let result = self.write_new(&new, writer).and_then(|()| self.disk().rename(&new, &self.path));
        if let Err(error) = result {
            // The old file is whole. What is left of the new one goes now, or when the session is opened again.
            let reason = match self.disk().remove(&new) {
                Err(left) if left.kind() != io::ErrorKind::NotFound => {
                    format!("{error}; {} stays: {left}", new.display())
                }
                _ => error.to_string(),
            };
            return Err(io_error(&self.path, &format!("it was not rewritten: {reason}")));
        }
        if self.options.durability != Durability::None {
            self.disk().sync_dir(directory(&self.path)).map_err(|error| io_error(directory(&self.path), &error))?;
        }
        Ok(())
    }

    fn write_new(&self, path: &Path, writer: &Writer) -> io::Result<()> {
        match self.disk().remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        let mut header = self.header.clone();
        header.next_seq = Some(writer.numbering.next_seq);
        let mut bytes = header.encode()?;
        bytes.push(b'\n');
        let mut live: Vec<u64> = self.shelf.index().live().map(|span| span.offset).collect();
        live.sort_unstable();
        let mut lines = Lines::new(self.file())?;
        // Behind the header.
        lines.advance()?;
        while lines.advance()? {
            if let Some(line) = live_part(&lines, &live)? {
                bytes.extend_from_slice(&line);
            }
            self.flush(&file, &mut bytes, WRITE_BYTES)?;
        }
        self.flush(&file, &mut bytes, 0)?;
        // Under every durability: what the new file replaces was safe.
        self.disk().sync(&file)
    }

    fn flush(&self, file: &File, bytes: &mut Vec<u8>, above: usize) -> io::Result<()> {
        if bytes.len() > above {
            write_all(self.disk(), file, bytes)?;
            bytes.clear();
        }
        Ok(())
    }
}

/// A line with those of its writes that still say something, if there are any.
fn live_part(lines: &Lines, live: &[u64]) -> io::Result<Option<Vec<u8>>> {
    let line = line::decode(lines.bytes()).map_err(io::Error::other)?;
    let mut kept = LineBuilder::new(line.at, false);
    let mut is_empty = true;
    for (offset, write) in line.placed() {
        let offset = lines.offset.saturating_add(u64::try_from(offset).unwrap_or(u64::MAX));
        if live.binary_search(&offset).is_ok() {
            kept.push(write.as_bytes());
            is_empty = false;
        }
    }
    Ok(if is_empty { None } else { Some(kept.finish()) })
}
