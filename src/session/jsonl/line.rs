//! A line behind the header: one transaction, and the sum that says that it is whole.
//!
//! Keeps true: the sum covers every byte before it and is always the last member; a line is decoded without making
//! values of what it holds, and its writes borrow the line's bytes.
//!
//! Must not know: what a write means, where lines are kept.

use serde_json::value::RawValue;

/// A longer line is not written and not read.
pub const LINE_BYTES_MAX: usize = 256 << 20;

/// What stands around the time of a line.
const AT_START: &str = "{\"at\":";
const AT_END: &str = ",\"w\":";
/// What stands between the bytes that are summed and the sum.
const SUM_START: &[u8] = b",\"c\":\"";
const SUM_END: &[u8] = b"\"}";
/// Hexadecimal digits of the sum.
const SUM_DIGITS: usize = 8;
const SUM_BYTES: usize = SUM_START.len() + SUM_DIGITS + SUM_END.len();

/// A transaction as it stands in its line.
#[derive(Debug)]
pub struct Line<'a> {
    /// Milliseconds since 1970.
    pub at: u64,
    /// The writes, each one JSON value; [`record::head`](crate::session::record::head) says what one does.
    pub writes: Vec<&'a RawValue>,
    bytes: &'a [u8],
}

impl<'a> Line<'a> {
    /// The writes, with where in the line each one starts.
    pub(super) fn placed(&self) -> impl Iterator<Item = (usize, &'a str)> {
        // The writes are parts of the bytes.
        let start = self.bytes.as_ptr().addr();
        self.writes.iter().map(move |write| (write.get().as_ptr().addr().wrapping_sub(start), write.get()))
    }
}

/// A line whose sum is right, before its writes are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) at: u64,
    /// The writes, as one JSON array.
    pub(super) writes: &'a str,
    /// Where in the line the array starts.
    pub(super) offset: usize,
}

/// Why bytes are no line of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    #[error("it has no checksum at its end")]
    Cut,
    #[error("its checksum is wrong")]
    Sum,
    #[error("it is no transaction: {0}")]
    Json(String),
    #[error("it is longer than {LINE_BYTES_MAX} bytes")]
    Long,
}

/// Reads a line, given without its line feed: checks the sum, then the JSON.
///
/// # Errors
/// The line is not what was written.
pub fn decode(line: &[u8]) -> Result<Line<'_>, BadLine> {
    let frame = frame(line)?;
    let writes = serde_json::from_str(frame.writes).map_err(|error| BadLine::Json(error.to_string()))?;
    Ok(Line { at: frame.at, writes, bytes: line })
}

/// Checks the sum of a line and takes it apart.
///
/// # Errors
/// The line is not what was written.
pub(super) fn frame(line: &[u8]) -> Result<Frame<'_>, BadLine> {
    if line.len() > LINE_BYTES_MAX {
        return Err(BadLine::Long);
    }
    let (summed, tail) = line.split_at_checked(line.len().wrapping_sub(SUM_BYTES)).ok_or(BadLine::Cut)?;
    let digits = tail.strip_prefix(SUM_START).and_then(|rest| rest.strip_suffix(SUM_END)).ok_or(BadLine::Cut)?;
    if digits != sum(summed) {
        return Err(BadLine::Sum);
    }
    let no_frame = || BadLine::Json("it does not start with its time".to_owned());
    let text = std::str::from_utf8(summed).map_err(|error| BadLine::Json(error.to_string()))?;
    let (at, rest) = text.strip_prefix(AT_START).and_then(|rest| rest.split_once(AT_END)).ok_or_else(no_frame)?;
    if !at.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(no_frame());
    }
    let offset = AT_START.len() + at.len() + AT_END.len();
    let at = at.parse().map_err(|error: std::num::ParseIntError| BadLine::Json(error.to_string()))?;
    Ok(Frame { at, writes: rest, offset })
}

/// A line in the making. Its bytes end with a line feed.
#[derive(Debug)]
pub(super) struct LineBuilder {
    bytes: Vec<u8>,
    /// Where the line starts: behind a line feed that the line before lacks.
    start: usize,
    is_first: bool,
}

impl LineBuilder {
    /// Starts a line; with `newline_first` the line before is ended too, by the same write.
    pub(super) fn new(at: u64, newline_first: bool) -> Self {
        let start = usize::from(newline_first);
        let head = ["\n".repeat(start).as_str(), AT_START, &at.to_string(), AT_END, "["].concat();
        Self { bytes: head.into_bytes(), start, is_first: true }
    }

    /// Adds a write, which is one JSON value, and tells where among all bytes it starts.
    pub(super) fn push(&mut self, write: &[u8]) -> usize {
        if !self.is_first {
            self.bytes.push(b',');
        }
        self.is_first = false;
        let offset = self.bytes.len();
        self.bytes.extend_from_slice(write);
        offset
    }

    /// The whole line.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(b']');
        let sum = sum(self.bytes.get(self.start..).unwrap_or_default());
        self.bytes.extend_from_slice(SUM_START);
        self.bytes.extend_from_slice(&sum);
        self.bytes.extend_from_slice(SUM_END);
        self.bytes.push(b'\n');
        self.bytes
    }
}

/// The sum as its digits.
fn sum(bytes: &[u8]) -> [u8; SUM_DIGITS] {
    let mut rest = crc32fast::hash(bytes);
    let mut digits = [b'0'; SUM_DIGITS];
    for digit in digits.iter_mut().rev() {
        let nibble = rest.to_le_bytes()[0] & 0xF;
        *digit = if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
        rest >>= 4;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::{BadLine, LineBuilder, decode};

    fn encode(at: u64, writes: &[&str]) -> Vec<u8> {
        let mut line = LineBuilder::new(at, false);
        for write in writes {
            line.push(write.as_bytes());
        }
        let mut bytes = line.finish();
        assert_eq!(bytes.pop(), Some(b'\n'));
        bytes
    }

    #[test]
    fn a_line_is_its_time_its_writes_and_the_crc32_of_what_stands_before_the_sum() {
        // The check value of CRC32 (IEEE), so that other programs can verify a file.
        assert_eq!(super::sum(b"123456789"), *b"cbf43926");
        let bytes = encode(7, &[r#"{"a":"é"}"#, "null"]);
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert_eq!(
            text,
            format!(r#"{{"at":7,"w":[{{"a":"é"}},null],"c":"{:08x}"}}"#, crc32fast::hash(&bytes[..bytes.len() - 16]))
        );
        let line = decode(&bytes).unwrap();
        assert_eq!((line.at, line.writes.iter().map(|write| write.get()).collect()), (7, vec![r#"{"a":"é"}"#, "null"]));
    }

    #[test]
    fn a_line_feed_before_the_line_is_outside_of_the_sum() {
        let mut line = LineBuilder::new(7, true);
        let offset = line.push(b"{}");
        let bytes = line.finish();
        assert_eq!((&bytes[offset..offset + 2], bytes[0]), (&b"{}"[..], b'\n'));
        decode(&bytes[1..bytes.len() - 1]).unwrap();
    }

    #[test]
    fn a_cut_or_changed_line_is_no_line() {
        let whole = encode(1, &[r#"{"seq":1,"text":"a longer text"}"#]);
        for length in 0..whole.len() {
            assert!(decode(&whole[..length]).is_err(), "{length}");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                assert!(decode(&changed).is_err(), "byte {at}, bit {bit}");
            }
        }
        let zeros = vec![0; 4096];
        assert_eq!(decode(&zeros).unwrap_err(), BadLine::Cut);
    }

    #[test]
    fn a_right_sum_does_not_make_json_of_what_is_none() {
        for wrong in [r#"{"seq":1"#, "\u{1}", r#""\q""#, "]", "{},"] {
            assert!(matches!(decode(&encode(1, &[wrong])), Err(BadLine::Json(_))), "{wrong}");
        }
        let mut bytes = b"{\"at\":1,\"w\":[\"\xff\"]".to_vec();
        let sum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(format!(",\"c\":\"{sum:08x}\"}}").as_bytes());
        assert!(matches!(decode(&bytes), Err(BadLine::Json(_))), "bytes that are no UTF-8");
    }
}
