//! Bytes from outside to text, or the reason why not.
//!
//! Keeps true: the result is the input's text exactly, without its byte-order mark; nothing is replaced silently; a
//! failure names the offset in the input's own bytes (IN-06).
//!
//! Must not know: where the bytes came from, beyond the name it is told.

use super::UsageError;
use crate::model::{ByteOrder, Utf16};

const ONLY_TEXT: &str = "only text can be sent";
/// The byte-order mark of UTF-8, and the bytes of one of UTF-16.
const UTF8_MARK: &[u8] = "\u{feff}".as_bytes();
const UTF16_MARK: usize = 2;
/// Bytes that are looked at to guess an encoding.
const SAMPLE_BYTES: usize = 512;

/// Decodes UTF-8, with or without a mark, and UTF-16 with one. `name` stands in the error.
pub(super) fn decode(bytes: &[u8], name: &str) -> Result<String, UsageError> {
    if let Some(order) = ByteOrder::of_mark(bytes) {
        let text = decode_utf16(order, bytes, name)?;
        return if text.contains('\0') { Err(nul_in_utf16(name)) } else { Ok(text) };
    }
    let mark = if bytes.starts_with(UTF8_MARK) { UTF8_MARK.len() } else { 0 };
    let text = decode_utf8(bytes, mark, name)?;
    match text.find('\0') {
        None => Ok(text),
        Some(at) => Err(UsageError::new(format!("{name} holds a NUL byte at offset {}", mark.saturating_add(at)))
            .with_hint(nul_hint(bytes))),
    }
}

/// What may be done about NUL bytes: where every other byte is one, this is UTF-16 that lacks its mark.
fn nul_hint(bytes: &[u8]) -> String {
    let start = bytes.get(..SAMPLE_BYTES).unwrap_or(bytes);
    let all_nul = |odd: usize| start.len() > 1 && start.iter().skip(odd).step_by(2).all(|byte| *byte == 0);
    let order = if all_nul(1) { "LE" } else { "BE" };
    if all_nul(0) == all_nul(1) {
        return ONLY_TEXT.to_owned();
    }
    format!("{ONLY_TEXT}; UTF-16 without a mark: iconv -f UTF-16{order} -t UTF-8")
}

/// Whether bytes may be text in an encoding of one byte a character, which a conversion could make readable.
fn is_8_bit_text(bytes: &[u8]) -> bool {
    const PDF: &[u8] = b"%PDF-";
    let layout = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b);
    !bytes.starts_with(PDF) && bytes.iter().all(|byte| layout(byte) || !byte.is_ascii_control())
}

fn nul_in_utf16(name: &str) -> UsageError {
    UsageError::new(format!("{name} holds a NUL character"))
        .with_hint("UTF-32 has to be converted first: iconv -f UTF-32 -t UTF-8")
}

fn decode_utf8(bytes: &[u8], mark: usize, name: &str) -> Result<String, UsageError> {
    match std::str::from_utf8(bytes.get(mark..).unwrap_or_default()) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => Err(malformed("UTF-8", bytes, mark.saturating_add(error.valid_up_to()), name)),
    }
}

fn decode_utf16(order: ByteOrder, bytes: &[u8], name: &str) -> Result<String, UsageError> {
    let mut decoder = Utf16::new(order);
    let mut text = String::with_capacity(bytes.len());
    decoder.push(bytes.get(UTF16_MARK..).unwrap_or_default(), &mut text);
    decoder.finish(&mut text);
    match decoder.malformed() {
        None => Ok(text),
        Some(offset) => Err(malformed("UTF-16", bytes, offset.saturating_add(UTF16_MARK), name)),
    }
}

fn malformed(encoding: &str, bytes: &[u8], offset: usize, name: &str) -> UsageError {
    let byte = bytes.get(offset).map(|byte| format!("byte 0x{byte:02X} ")).unwrap_or_default();
    let hint = if encoding == "UTF-8" && is_8_bit_text(bytes) {
        "convert it first, for example: iconv -f LATIN1 -t UTF-8"
    } else {
        ONLY_TEXT
    };
    UsageError::new(format!("{name} is not valid {encoding}: {byte}at offset {offset}")).with_hint(hint)
}
