//! Texts that the build has packed to keep the program small.
//!
//! Keeps true: what comes out is what the build packed, or an error; it is as long as the build says.
//!
//! Must not know: which texts there are.

use flate2::{Decompress, FlushDecompress, Status};

use super::{ErrorKind, ErrorRecord};

/// A packed text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed {
    /// Deflate, without a header.
    pub(crate) bytes: &'static [u8],
    /// Bytes of the text.
    pub(crate) length: usize,
}

impl Packed {
    /// The text. Fails only where the program file is damaged.
    pub(crate) fn unpack(self) -> Result<String, ErrorRecord> {
        let damaged = || ErrorRecord::new(ErrorKind::Internal, "a text in the program file is damaged");
        let mut text = Vec::with_capacity(self.length);
        let status = Decompress::new(false).decompress_vec(self.bytes, &mut text, FlushDecompress::Finish);
        if !matches!(status, Ok(Status::StreamEnd)) || text.len() != self.length {
            return Err(damaged());
        }
        String::from_utf8(text).map_err(|_error| damaged())
    }
}

#[cfg(test)]
mod tests {
    use super::Packed;

    /// `hello` in one block of fixed codes.
    const HELLO: &[u8] = &[0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];

    #[test]
    fn a_packed_text_comes_back_and_a_damaged_one_is_an_error() {
        assert_eq!(Packed { bytes: HELLO, length: 5 }.unpack().unwrap(), "hello");
        let damaged = [(HELLO, 4), (HELLO, 6), (&HELLO[..4], 5), (&[0xff][..], 5), (&[][..], 0)];
        for (bytes, length) in damaged {
            assert!(Packed { bytes, length }.unpack().is_err(), "{bytes:?} {length}");
        }
    }
}
