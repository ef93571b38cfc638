//! How far a text goes without anything that JSON escapes. Long texts are read and written in such runs, so this is
//! looked for in eight bytes at a time.

/// Eight bytes of one.
const ONES: u64 = u64::from_ne_bytes([1; 8]);
/// The highest bit of each byte.
const HIGH: u64 = ONES << 7;

/// The bytes at the start of a text that stand in a JSON string as they are: before the first quote, backslash or
/// control character.
pub fn plain_len(text: &[u8]) -> usize {
    let (words, tail) = text.as_chunks::<8>();
    let mut len = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        let quotes = word ^ (ONES * u64::from(b'"'));
        let backslashes = word ^ (ONES * u64::from(b'\\'));
        // What is below a bound borrows the high bit. A borrow may go on into higher bytes, never into lower ones.
        let found = (word.wrapping_sub(ONES * 0x20) & !word)
            | (quotes.wrapping_sub(ONES) & !quotes)
            | (backslashes.wrapping_sub(ONES) & !backslashes);
        let found = found & HIGH;
        if found != 0 {
            return len + (found.trailing_zeros() / u8::BITS) as usize;
        }
        len += size_of::<u64>();
    }
    len + tail.iter().position(|byte| matches!(byte, 0..0x20 | b'"' | b'\\')).unwrap_or(tail.len())
}

#[cfg(test)]
mod tests {
    use super::plain_len;

    #[test]
    fn every_byte_is_told_at_every_place() {
        for byte in 0..=u8::MAX {
            let is_plain = byte >= 0x20 && byte != b'"' && byte != b'\\';
            for before in 0..20 {
                for neighbour in [b'a', 0x20, 0x21, 0x23, 0x5b, 0x5d, 0x7f, 0x80, 0xff] {
                    let mut text = vec![neighbour; before];
                    text.push(byte);
                    text.extend([neighbour; 9]);
                    assert_eq!(plain_len(&text), if is_plain { text.len() } else { before }, "{byte} behind {before}");
                }
            }
        }
        assert_eq!(plain_len(b""), 0);
    }
}
