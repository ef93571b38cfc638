//! UTF-16 in bytes, as files with a byte-order mark hold it, piece by piece.
//!
//! Keeps true: a piece may end anywhere; a lone surrogate or a last odd byte is told with its place.
//!
//! Must not know: where the bytes come from.

/// The order of a unit's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The order that a byte-order mark of two bytes tells.
    pub fn of_mark(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0xff, 0xfe, ..] => Some(Self::Little),
            [0xfe, 0xff, ..] => Some(Self::Big),
            _ => None,
        }
    }

    fn unit(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }
}

/// A decoder that keeps what the end of a piece leaves open.
#[derive(Clone, Debug)]
pub struct Utf16 {
    order: ByteOrder,
    /// The first byte of a unit.
    half: Option<u8>,
    /// The first unit of a pair.
    high: Option<u16>,
    /// Bytes that were taken.
    taken: usize,
    /// Where the first thing stood that is no character.
    malformed: Option<usize>,
}

impl Utf16 {
    /// A decoder for what follows the mark.
    pub fn new(order: ByteOrder) -> Self {
        Self { order, half: None, high: None, taken: 0, malformed: None }
    }

    /// Decodes a piece. What is no character becomes U+FFFD.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        for byte in bytes {
            match self.half.take() {
                None => self.half = Some(*byte),
                Some(first) => self.unit(self.order.unit([first, *byte]), out),
            }
            self.taken = self.taken.saturating_add(1);
        }
    }

    /// Decodes what the last piece left open.
    pub fn finish(&mut self, out: &mut String) {
        if self.high.take().is_some() {
            let back = if self.half.is_some() { 3 } else { 2 };
            self.replace(back, out);
        }
        if self.half.take().is_some() {
            self.replace(1, out);
        }
    }

    /// Bytes before the first thing that is no character; `None` if there is none.
    pub fn malformed(&self) -> Option<usize> {
        self.malformed
    }

    /// A unit whose last byte is about to be counted.
    fn unit(&mut self, unit: u16, out: &mut String) {
        let high = self.high.take();
        match unit {
            0xd800..=0xdbff => {
                if high.is_some() {
                    self.replace(3, out);
                }
                self.high = Some(unit);
            }
            0xdc00..=0xdfff => match high.and_then(|high| char::decode_utf16([high, unit]).next()?.ok()) {
                Some(character) => out.push(character),
                None => self.replace(1, out),
            },
            _ => {
                if high.is_some() {
                    self.replace(3, out);
                }
                out.push(char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
    }

    /// Notes that what began so many bytes ago is no character.
    fn replace(&mut self, back: usize, out: &mut String) {
        self.malformed.get_or_insert(self.taken.saturating_sub(back));
        out.push(char::REPLACEMENT_CHARACTER);
    }
}

#[cfg(test)]
mod tests {
    use super::{ByteOrder, Utf16};

    #[test]
    fn every_split_of_the_input_gives_the_same_text_and_names_the_same_place() {
        let units = |units: &[u16]| units.iter().flat_map(|unit| unit.to_le_bytes()).collect::<Vec<u8>>();
        let odd = [units(&[0x61]), vec![0x62]].concat();
        let pair_and_half = [units(&[0xd83d]), vec![0x00]].concat();
        for (bytes, text, malformed) in [
            (units(&[0x61, 0xe9, 0xd83d, 0xde00]), "aé😀", None),
            (units(&[0xde00, 0x61]), "\u{fffd}a", Some(0)),
            (units(&[0x61, 0xd83d, 0x62]), "a\u{fffd}b", Some(2)),
            (units(&[0x61, 0xd83d, 0xd83d, 0xde00]), "a\u{fffd}😀", Some(2)),
            (units(&[0x61, 0xd83d]), "a\u{fffd}", Some(2)),
            (odd, "a\u{fffd}", Some(2)),
            (pair_and_half, "\u{fffd}\u{fffd}", Some(0)),
            (Vec::new(), "", None),
        ] {
            for size in 1..=bytes.len().max(1) {
                let (mut decoder, mut out) = (Utf16::new(ByteOrder::Little), String::new());
                for piece in bytes.chunks(size) {
                    decoder.push(piece, &mut out);
                }
                decoder.finish(&mut out);
                assert_eq!((out.as_str(), decoder.malformed()), (text, malformed), "{bytes:?} by {size}");
            }
        }
    }

    #[test]
    fn the_mark_tells_the_order() {
        assert_eq!(ByteOrder::of_mark(&[0xff, 0xfe, 0x61]), Some(ByteOrder::Little));
        assert_eq!(ByteOrder::of_mark(&[0xfe, 0xff]), Some(ByteOrder::Big));
        assert_eq!(ByteOrder::of_mark(&[0xef, 0xbb, 0xbf]), None);
    }
}
