//! The bytes of a file, to be gone through more than once, and their encoding (tool rules R3, R10).
//!
//! Keeps true: memory is bounded, whatever the size of the file; nothing behind the size at open is read; a
//! cancellation is seen between chunks.
//!
//! Must not know: lines, caps.

use std::cell::RefCell;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _, Seek as _};
use std::path::Path;

use tokio_util::sync::CancellationToken;

use crate::model::{ByteOrder, Utf16};
use crate::tool::Failure;
use crate::tool::open::{is_generated, not_a_file};

/// Files up to here are held in memory, so that both passes see the same bytes.
const IN_MEMORY_MAX: u64 = 1 << 20;
/// Bytes read of a file that has no size (tool rule P6).
pub(super) const GENERATED_MAX: usize = 10 << 20;
/// Bytes between two looks at the cancellation.
const CHUNK_BYTES: usize = 64 << 10;
/// How far a NUL makes a file binary.
const BINARY_PROBE_BYTES: usize = 8192;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    Utf16Le,
    Utf16Be,
}

impl Encoding {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Utf16Le => "utf-16le",
            Self::Utf16Be => "utf-16be",
        }
    }

    /// The name, where the model should know that the text was decoded.
    pub(super) fn notice(self) -> Option<&'static str> {
        match self {
            Self::Utf8 => None,
            Self::Utf16Le => Some("UTF-16LE"),
            Self::Utf16Be => Some("UTF-16BE"),
        }
    }
}

/// An open file, up to the size it had when it was opened.
#[derive(Debug)]
pub(super) struct Source {
    body: Body,
    probe: Vec<u8>,
    size: u64,
    partial: bool,
    shown: String,
}

#[derive(Debug)]
enum Body {
    Memory(Vec<u8>),
    File(RefCell<File>),
}

impl Source {
    pub(super) fn load(
        mut file: File,
        metadata: &Metadata,
        path: &Path,
        shown: &str,
        cancel: &CancellationToken,
    ) -> Result<Self, Failure> {
        let size = metadata.len();
        let generated = size == 0 && is_generated(path);
        if !generated && size > IN_MEMORY_MAX {
            let mut probe = Vec::new();
            read_some(&mut file, BINARY_PROBE_BYTES, cancel, &mut probe).map_err(|end| end.failure(shown))?;
            let body = Body::File(RefCell::new(file));
            return Ok(Self { body, probe, size, partial: false, shown: shown.to_owned() });
        }
        let limit = if generated { GENERATED_MAX } else { usize::try_from(size).unwrap_or(usize::MAX) };
        let mut bytes = Vec::new();
        match read_some(&mut file, limit, cancel, &mut bytes) {
            Ok(()) => {}
            // A generated file that would wait for news ends here; one without any is no file to read.
            Err(End::WouldBlock) if !bytes.is_empty() => {}
            Err(end) => return Err(end.failure(shown)),
        }
        let partial = generated && bytes.len() == limit;
        let probe = bytes.iter().take(BINARY_PROBE_BYTES).copied().collect();
        let size = if generated { bytes.len() as u64 } else { size };
        Ok(Self { body: Body::Memory(bytes), probe, size, partial, shown: shown.to_owned() })
    }

    /// Bytes of the file when it was opened.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Whether there may be more than was read.
    pub(super) fn is_partial(&self) -> bool {
        self.partial
    }

    /// The first bytes, enough to tell what this is.
    pub(super) fn probe(&self) -> &[u8] {
        &self.probe
    }

    /// The bytes from the start, at most `limit`.
    pub(super) fn start(&self, limit: usize, cancel: &CancellationToken) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        self.chunks(cancel, &mut |chunk| {
            bytes.extend(chunk.iter().take(limit.saturating_sub(bytes.len())));
            bytes.len() < limit
        })?;
        Ok(bytes)
    }

    /// The encoding and whether a byte order mark says so; `None` for a binary file.
    pub(super) fn encoding(&self) -> Option<(Encoding, bool)> {
        match self.probe.as_slice() {
            // UTF-32, which nothing but this mark tells from UTF-16.
            [0xff, 0xfe, 0, 0, ..] => None,
            [0xff, 0xfe, ..] => Some((Encoding::Utf16Le, true)),
            [0xfe, 0xff, ..] => Some((Encoding::Utf16Be, true)),
            bytes if memchr::memchr(0, bytes).is_some() => None,
            bytes => Some((Encoding::Utf8, bytes.starts_with(&[0xef, 0xbb, 0xbf]))),
        }
    }

    /// Goes through the text as UTF-8, possibly invalid, without its mark, until `each` says `false`.
    pub(super) fn decoded(
        &self,
        encoding: Encoding,
        bom: bool,
        cancel: &CancellationToken,
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let mut skip = match (bom, encoding) {
            (false, _) => 0,
            (true, Encoding::Utf8) => 3,
            (true, Encoding::Utf16Le | Encoding::Utf16Be) => 2,
        };
        let mut utf16 = match encoding {
            Encoding::Utf8 => None,
            Encoding::Utf16Le => Some(Utf16::new(ByteOrder::Little)),
            Encoding::Utf16Be => Some(Utf16::new(ByteOrder::Big)),
        };
        let mut wanted = true;
        self.chunks(cancel, &mut |chunk| {
            let bytes = chunk.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(chunk.len());
            wanted = match &mut utf16 {
                None => each(bytes),
                Some(decoder) => {
                    let mut text = String::with_capacity(bytes.len());
                    decoder.push(bytes, &mut text);
                    each(text.as_bytes())
                }
            };
            wanted
        })?;
        if let Some(decoder) = &mut utf16
            && wanted
        {
            let mut text = String::new();
            decoder.finish(&mut text);
            each(text.as_bytes());
        }
        Ok(())
    }

    fn chunks(&self, cancel: &CancellationToken, each: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Failure> {
        let file = match &self.body {
            Body::Memory(bytes) => {
                for chunk in bytes.chunks(CHUNK_BYTES) {
                    if cancel.is_cancelled() {
                        return Err(Failure::aborted());
                    }
                    if !each(chunk) {
                        break;
                    }
                }
                return Ok(());
            }
            Body::File(file) => file,
        };
        let mut file = file.borrow_mut();
        file.rewind().map_err(|error| Failure::io(&self.shown, &error))?;
        let mut left = self.size;
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        while left > 0 {
            chunk.clear();
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            read_some(&mut file, want, cancel, &mut chunk).map_err(|end| end.failure(&self.shown))?;
            // A file that shrank ends early.
            if chunk.is_empty() || !each(&chunk) {
                break;
            }
            left = left.saturating_sub(chunk.len() as u64);
        }
        Ok(())
    }
}

/// Why a read stopped before its end.
enum End {
    Cancelled,
    WouldBlock,
    System(std::io::Error),
}

impl End {
    fn failure(self, shown: &str) -> Failure {
        match self {
            Self::Cancelled => Failure::aborted(),
            Self::WouldBlock => not_a_file(shown),
            Self::System(error) => Failure::io(shown, &error),
        }
    }
}

/// Reads up to `limit` bytes, fewer only at the end of the file.
fn read_some(file: &mut File, limit: usize, cancel: &CancellationToken, out: &mut Vec<u8>) -> Result<(), End> {
    let mut buffer = vec![0; limit.min(CHUNK_BYTES)];
    while out.len() < limit {
        if cancel.is_cancelled() {
            return Err(End::Cancelled);
        }
        let want = (limit - out.len()).min(buffer.len());
        let Some(space) = buffer.get_mut(..want) else { break };
        match file.read(space) {
            Ok(0) => break,
            Ok(count) => out.extend(space.iter().take(count)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(End::WouldBlock),
            Err(error) => return Err(End::System(error)),
        }
    }
    Ok(())
}
