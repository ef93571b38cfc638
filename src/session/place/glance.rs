//! What a session file shows at a glance: its header, and what stands near its two ends.
//!
//! Keeps true: at most [`HEAD_BYTES`] from the beginning and [`TAIL_BYTES`] from the end are held at once, whatever the
//! file's size (SES-10); a line counts only if its checksum is right; nothing is written, locked or waited for.
//!
//! Must not know: the tree, what a message means.
//!
//! # What counts
//!
//! Name and model are the newest ones in the head or the tail. A name is given in the first transaction, so it stands
//! in the head; one that was changed later counts while the tail shows it. The first prompt is looked for in the head
//! only. The moment of the last commit is that of the last whole line, however long it is.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use memchr::{memchr, memmem, memrchr};
use serde_json::value::RawValue;

use crate::model::session::namespace;
use crate::model::{EntryBody, LaneConfig, MAIN_LANE, Message};
use crate::session::jsonl::Header;
use crate::session::jsonl::line::{LINE_BYTES_MAX, decode};
use crate::session::record::{self, Change};

/// Bytes that are read from the beginning of a file.
const HEAD_BYTES: u64 = 64 << 10;
/// Bytes that are read from its end.
const TAIL_BYTES: u64 = 64 << 10;
/// Bytes that are read first for a header alone.
const HEADER_BYTES_FIRST: u64 = 1 << 10;
/// Bytes that are read at once on the way back from the end.
const STEP_BYTES: usize = 16 << 10;
/// Bytes of a line's beginning that hold its moment.
const MOMENT_BYTES: usize = 40;
/// Lines of a damaged end that are skipped.
const BACK_LINES_MAX: u32 = 64;
/// `,"c":"` and eight hex digits and `"}`: the end of every line.
const CHECKSUM_BYTES: usize = 16;
/// Bytes of a first prompt whose line is longer than the head.
const CUT_PROMPT_BYTES: usize = 4 << 10;
/// The longest thing such a cut can split: an escape of two units.
const SPLIT_BYTES_MAX: usize = 12;
/// How a line begins.
const LINE_START: &[u8] = b"{\"at\":";

/// What a session file shows at a glance.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Glance {
    pub name: Option<String>,
    /// `provider/id`.
    pub model: Option<String>,
    pub first_prompt: Option<String>,
    /// The line that is damaged, if one in the head is: not the last one, and not whole.
    pub damaged_line: Option<u64>,
}

/// Opens a file for looking. What is no regular file is refused before it could be waited for.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let regular = |is_file: bool| {
        if is_file { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")) }
    };
    regular(std::fs::metadata(path)?.is_file())?;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    regular(file.metadata()?.is_file())?;
    Ok(file)
}

/// Reads the header alone.
///
/// # Errors
/// The reason why there is none.
pub(super) fn header(file: &File) -> Result<Header, String> {
    for bytes in [HEADER_BYTES_FIRST, HEAD_BYTES] {
        let start = range(file, 0, bytes).map_err(|error| error.to_string())?;
        if let Some(line) = memchr(b'\n', &start).and_then(|end| start.get(..end)) {
            return Header::parse(line);
        }
        if u64::try_from(start.len()).unwrap_or(u64::MAX) < bytes {
            return Err("its first line is not whole".to_owned());
        }
    }
    Err("its first line is too long for a header".to_owned())
}

/// The bytes of a file from `start` up to `end`, fewer if it is shorter.
fn range(file: &File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(end.saturating_sub(start)).unwrap_or(0)];
    let mut filled = 0_usize;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let at = start.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
        match file.read_at(rest, at) {
            Ok(0) => break,
            Ok(count) => filled = filled.saturating_add(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// The checksum that a line's end names.
fn checksum(end: &[u8]) -> Option<u32> {
    let digits = end.strip_prefix(b",\"c\":\"")?.strip_suffix(b"\"}")?;
    if digits.len() != 8 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Looks at both ends of a file.
///
/// # Errors
/// The system refuses to read it.
pub(super) fn glance(file: &File) -> io::Result<Glance> {
    look(file, |_| true)
}

/// Looks for the name alone, which is cheaper.
///
/// # Errors
/// As for [`glance`].
pub(super) fn name(file: &File) -> io::Result<Option<String>> {
    let names = memmem::Finder::new(namespace::SESSION_NAME);
    Ok(look(file, |line| names.find(line).is_some())?.name)
}

fn look(file: &File, wanted: impl Fn(&[u8]) -> bool) -> io::Result<Glance> {
    let mut glance = Glance::default();
    let size = file.metadata()?.len();
    let head = range(file, 0, HEAD_BYTES)?;
    let read = u64::try_from(head.len()).unwrap_or(u64::MAX);
    let mut rest = head.as_slice();
    let mut number = 0_u64;
    let mut bad = None;
    while let Some(end) = memchr(b'\n', rest) {
        let (line, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        rest = after.get(1..).unwrap_or_default();
        number = number.saturating_add(1);
        if number == 1 {
            continue;
        }
        if !wanted(line) {
            continue;
        }
        if glance.line(line) {
            // A bad line is damage only if a whole one follows; else it is the torn end.
            glance.damaged_line = bad;
        } else {
            bad = bad.or(Some(number));
        }
    }
    let consumed = read.saturating_sub(u64::try_from(rest.len()).unwrap_or(u64::MAX));
    if read < size && number > 0 {
        // The head ends within this line.
        glance.cut_line(rest, &wanted);
    } else if wanted(rest) {
        glance.line(rest);
    }
    if size > read {
        let start = consumed.max(size.saturating_sub(TAIL_BYTES));
        glance.tail(&range(file, start, size)?, start == consumed, wanted);
    }
    Ok(glance)
}

impl Glance {
    /// Takes in the lines at the end of a file.
    fn tail(&mut self, bytes: &[u8], begins_with_line: bool, wanted: impl Fn(&[u8]) -> bool) {
        let mut lines = bytes.split(|byte| *byte == b'\n');
        if !begins_with_line {
            lines.next();
        }
        for line in lines.filter(|line| wanted(line)) {
            self.line(line);
        }
    }

    /// Takes in a line, if it is whole.
    fn line(&mut self, line: &[u8]) -> bool {
        let Ok(line) = decode(line) else { return false };
        for write in line.writes {
            self.write(write.get());
        }
        true
    }

    /// Takes in what a line that is cut shows: its whole writes, and the beginning of a prompt.
    fn cut_line(&mut self, line: &[u8], wanted: &impl Fn(&[u8]) -> bool) {
        const WRITES: &[u8] = b"\"w\":[";
        if !line.starts_with(LINE_START) || !wanted(line) {
            return;
        }
        let Some(at) = memmem::find(line, WRITES) else { return };
        let mut rest = line.get(at.saturating_add(WRITES.len())..).unwrap_or_default();
        loop {
            let mut writes = serde_json::Deserializer::from_slice(rest).into_iter::<&RawValue>();
            let Some(Ok(write)) = writes.next() else { break };
            self.write(write.get());
            let end = writes.byte_offset();
            rest = rest.get(end..).unwrap_or_default();
            rest = rest.strip_prefix(b",").unwrap_or_default();
        }
        if self.first_prompt.is_none() {
            self.first_prompt = cut_prompt(rest);
        }
    }

    fn write(&mut self, write: &str) {
        let Ok(head) = record::head(write) else { return };
        match head.change {
            Change::Set { namespace, key } if namespace == namespace::SESSION_NAME && key.is_empty() => {
                self.name = record::value(write).ok().and_then(|name| Some(name.as_str()?.to_owned()));
            }
            Change::Delete { namespace, key } if namespace == namespace::SESSION_NAME && key.is_empty() => {
                self.name = None;
            }
            Change::Set { namespace, key } if namespace == namespace::LANE_CONFIG && key == MAIN_LANE => {
                let config = record::value(write).ok().and_then(|value| serde_json::from_value(value).ok());
                if let Some(LaneConfig { model, .. }) = config {
                    self.model = Some(format!("{}/{}", model.provider, model.model_id));
                }
            }
            Change::Usage { .. } => {
                let row = record::usage_row(write).ok();
                if let Some((provider, model)) = row.and_then(|row| row.provider.zip(row.model_id)) {
                    self.model = Some(format!("{provider}/{model}"));
                }
            }
            Change::Entry { .. } if self.first_prompt.is_none() => {
                if let Ok(EntryBody::Message { message, .. }) = record::entry(write, 0).map(|entry| entry.body)
                    && let Message::User(message) = &*message
                {
                    self.first_prompt = Some(message.content.text()).filter(|text| !text.trim().is_empty());
                }
            }
            _ => {}
        }
    }
}

/// The beginning of a user message's text in a write that is cut.
fn cut_prompt(write: &[u8]) -> Option<String> {
    const TEXTS: [&[u8]; 2] = [b"\"text\":\"", b"\"content\":\""];
    let user = memmem::find(write, b"\"role\":\"user\"")?;
    let message = write.get(user..)?;
    let start = TEXTS.iter().filter_map(|text| Some(memmem::find(message, text)?.saturating_add(text.len()))).min()?;
    let text = message.get(start..)?;
    let text = text.get(..CUT_PROMPT_BYTES).unwrap_or(text);
    // The cut may be within an escape or a character, and the text may end before the cut.
    let end = text.len();
    let lossless = |end: usize| {
        let mut json = Vec::with_capacity(end.saturating_add(2));
        json.push(b'"');
        json.extend_from_slice(text.get(..end)?);
        json.push(b'"');
        let mut texts = serde_json::Deserializer::from_slice(&json).into_iter::<String>();
        texts.next()?.ok()
    };
    (end.saturating_sub(SPLIT_BYTES_MAX)..=end).rev().find_map(lossless)
}

/// The moment of the last whole line behind the header, in milliseconds since 1970. Lines are read backwards, and none
/// is held as a whole.
///
/// # Errors
/// The system refuses to read.
pub(super) fn last_commit(file: &File) -> io::Result<Option<u64>> {
    let size = file.metadata()?.len();
    let mut end = size;
    for _ in 0..BACK_LINES_MAX {
        let last = range(file, end.saturating_sub(1), end)?;
        let line_end = if last.as_slice() == b"\n" { end.saturating_sub(1) } else { end };
        let start = match line_start(file, line_end)? {
            // Only the header is left, or what no line of ours can be.
            Some(0) | None => return Ok(None),
            Some(start) => start,
        };
        if let Some(at) = moment(file, start, line_end)? {
            return Ok(Some(at));
        }
        end = start;
    }
    Ok(None)
}

/// Where the line starts that ends before `end`; `None` if it is longer than a line can be.
fn line_start(file: &File, end: u64) -> io::Result<Option<u64>> {
    let step = u64::try_from(STEP_BYTES).unwrap_or(u64::MAX);
    let floor = end.saturating_sub(u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX));
    let mut end = end;
    while end > floor {
        let start = end.saturating_sub(step);
        let bytes = range(file, start, end)?;
        if let Some(at) = memrchr(b'\n', &bytes) {
            return Ok(Some(start.saturating_add(u64::try_from(at).unwrap_or(u64::MAX)).saturating_add(1)));
        }
        end = start;
    }
    Ok((end == 0).then_some(0))
}

/// The moment of a line, if the line is whole.
fn moment(file: &File, start: u64, end: u64) -> io::Result<Option<u64>> {
    let sum_bytes = u64::try_from(CHECKSUM_BYTES).unwrap_or(u64::MAX);
    let body_end = end.saturating_sub(sum_bytes);
    if body_end <= start {
        return Ok(None);
    }
    let Some(expected) = checksum(&range(file, body_end, end)?) else { return Ok(None) };
    let mut hasher = crc32fast::Hasher::new();
    let mut at = start;
    let mut beginning = Vec::new();
    let step = u64::try_from(STEP_BYTES).unwrap_or(u64::MAX);
    while at < body_end {
        let bytes = range(file, at, at.saturating_add(step).min(body_end))?;
        if bytes.is_empty() {
            return Ok(None);
        }
        hasher.update(&bytes);
        if at == start {
            beginning.extend(bytes.iter().take(MOMENT_BYTES));
        }
        at = at.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }
    if hasher.finalize() != expected {
        return Ok(None);
    }
    let digits = beginning.strip_prefix(LINE_START).unwrap_or_default();
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let digits = digits.get(..count).and_then(|digits| std::str::from_utf8(digits).ok());
    Ok(digits.and_then(|digits| digits.parse().ok()))
}

#[cfg(test)]
mod tests;
