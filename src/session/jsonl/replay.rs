//! Replay: from the bytes of a session file to its index, and what of the bytes is no record.
//!
//! Keeps true: of a file cut anywhere behind its header everything up to the last whole line is found; what is damaged
//! before a whole line is told and never taken for a cut.
//!
//! Must not know: locks, writing.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::header::Header;
use super::line;
use super::pages::{Lines, Span, io_error};
use crate::port::StoreError;
use crate::session::index::Index;
use crate::session::record::{self, BadWrite, Head};
use crate::session::transaction::{Numbering, SEQ_MAX};

/// What to do with a write of an unknown kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// Whoever means to write must know everything.
    Refuse,
    /// A reader shows the rest.
    Skip,
}

/// A session file as it was found.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) header: Header,
    pub(super) index: Index<Span>,
    pub(super) numbering: Numbering,
    /// Bytes of the file.
    pub(super) size: u64,
    /// Bytes up to the end of the last whole line.
    pub(super) good: u64,
    /// The last whole line lacks its line feed.
    pub(super) lacks_newline: bool,
    /// Why the bytes behind the good ones are no record, although more follow.
    pub(super) damage: Option<StoreError>,
}

/// Why replay stops at a line.
enum Stop {
    /// The line may be a torn one.
    Bad(String),
    /// The line is what somebody meant to write.
    Fatal(StoreError),
}

/// Reads a whole file.
///
/// # Errors
/// It can not be read, or has no header. Damage further down is part of the result.
pub(super) fn replay(file: &Arc<File>, path: &Path, unknown: Unknown) -> Result<Replay, StoreError> {
    let io = |error: io::Error| io_error(path, &error);
    let mut lines = Lines::new(file).map_err(io)?;
    lines.advance().map_err(io)?;
    let header = Header::parse(lines.bytes()).map_err(|reason| corrupt(path, 1, reason))?;
    let mut found = Replay {
        numbering: Numbering { next_seq: header.next_seq.unwrap_or(1).max(1), last_at: 0 },
        header,
        index: Index::default(),
        size: lines.end,
        good: lines.end,
        lacks_newline: !lines.has_newline,
        damage: None,
    };
    let mut bad: Option<(u64, String)> = None;
    let mut last_seq = 0;
    while lines.advance().map_err(io)? {
        found.size = lines.end;
        if let Some((number, reason)) = &bad {
            // Only a tail may be torn. One whole line behind a bad one says that this is none.
            if line::decode(lines.bytes()).is_ok() {
                found.damage = Some(corrupt(path, *number, reason.clone()));
                break;
            }
            continue;
        }
        match found.take(&lines, &mut last_seq, path, unknown) {
            Ok(()) => {
                found.good = lines.end;
                found.lacks_newline = !lines.has_newline;
            }
            Err(Stop::Bad(reason)) => bad = Some((lines.number, reason)),
            Err(Stop::Fatal(error)) => {
                found.damage = Some(error);
                break;
            }
        }
    }
    Ok(found)
}

impl Replay {
    /// Bytes at the end that are no record.
    pub(super) fn torn_bytes(&self) -> u64 {
        if self.damage.is_some() { 0 } else { self.size.saturating_sub(self.good) }
    }

    fn take(&mut self, lines: &Lines, last_seq: &mut u64, path: &Path, unknown: Unknown) -> Result<(), Stop> {
        let bytes = lines.bytes();
        let line = line::frame(bytes).map_err(|error| Stop::Bad(error.to_string()))?;
        let writes = record::heads(line.writes).map_err(|error| Self::stop(error, lines, path))?;
        let mut heads = Vec::with_capacity(writes.len());
        for (offset, write, head) in writes {
            match head {
                Ok(head) => {
                    let offset = lines.offset.saturating_add(to_u64(line.offset + offset));
                    heads.push((head, Span::new(offset, write.len())));
                }
                Err(BadWrite::Unknown(_)) if unknown == Unknown::Skip => {}
                Err(error) => return Err(Self::stop(error, lines, path)),
            }
        }
        let mut seq = *last_seq;
        for (head, _) in &heads {
            if head.seq <= seq || head.seq > SEQ_MAX {
                return Err(Stop::Bad(format!("the place {} does not follow {seq}", head.seq)));
            }
            seq = head.seq;
        }
        self.check(line.at, &heads).map_err(|reason| Stop::Fatal(corrupt(path, lines.number, reason)))?;
        for (head, span) in heads {
            self.index.apply(head.seq, line.at, &head.change, span);
        }
        *last_seq = seq;
        self.numbering.next_seq = self.numbering.next_seq.max(seq + 1);
        self.numbering.last_at = line.at;
        Ok(())
    }

    fn stop(error: BadWrite, lines: &Lines, path: &Path) -> Stop {
        match error {
            BadWrite::Json(reason) => Stop::Bad(format!("it is no transaction: {reason}")),
            BadWrite::Shape(reason) => Stop::Fatal(corrupt(path, lines.number, reason)),
            BadWrite::Unknown(_) => {
                let file = path.display().to_string();
                Stop::Fatal(StoreError::NeedsNewer { file, reason: format!("line {}: {error}", lines.number) })
            }
        }
    }

    fn check(&self, at: u64, heads: &[(Head<'_>, Span)]) -> Result<(), String> {
        if at < self.numbering.last_at {
            return Err(format!("its time {at} is before {}", self.numbering.last_at));
        }
        self.index.check(heads.iter().map(|(head, _)| &head.change))
    }
}

fn corrupt(path: &Path, line: u64, reason: String) -> StoreError {
    StoreError::Corrupt { file: path.display().to_string(), line, reason }
}

fn to_u64(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
