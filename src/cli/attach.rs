//! Attached images: how much of one is read, and what of a prompt's attachments is one.
//!
//! Keeps true: an image is known by its bytes; no more of it is read than shows that it is too large; what the images
//! of a prompt take together is bounded.
//!
//! Must not know: which models take images, how an image is sent.

use std::io::{self, Read};

use super::UsageError;
use super::prompt::Part;
use crate::model::ImageKind;

const MIB: usize = 1024 * 1024;
/// Bytes of one attached image.
pub const IMAGE_BYTES_MAX: usize = 5 * MIB;
/// Images of a prompt.
pub const IMAGES_MAX: usize = 100;
/// Bytes of all images of a prompt; no provider takes a request of this size.
pub const IMAGES_BYTES_MAX: usize = 64 * MIB;

/// An attached image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptImage {
    /// As the caller wrote it.
    pub name: String,
    pub bytes: Vec<u8>,
}

/// Counts the images of a prompt.
#[derive(Debug, Default)]
pub(super) struct Album {
    images: usize,
    bytes: usize,
}

impl Album {
    /// Takes note of an attachment; tells whether it is an image, and fails when that is one too large or too many.
    pub(super) fn admits(&mut self, part: &Part) -> Result<bool, UsageError> {
        if ImageKind::of(&part.bytes).is_none() {
            return Ok(false);
        }
        if part.bytes.len() > IMAGE_BYTES_MAX {
            let limit = IMAGE_BYTES_MAX / MIB;
            return Err(UsageError::new(format!("{} is larger than {limit} MB, the limit of an image", part.name))
                .with_hint("make it smaller first"));
        }
        self.images = self.images.saturating_add(1);
        self.bytes = self.bytes.saturating_add(part.bytes.len());
        if self.images > IMAGES_MAX {
            return Err(UsageError::new(format!("more than {IMAGES_MAX} images are attached")));
        }
        if self.bytes > IMAGES_BYTES_MAX {
            let limit = IMAGES_BYTES_MAX / MIB;
            return Err(UsageError::new(format!("the attached images are larger than {limit} MB together")));
        }
        Ok(true)
    }
}

/// A file to attach; an image ends behind the first byte that makes it too large.
#[derive(Debug)]
pub(super) struct Attachment<R> {
    source: R,
    /// The beginning, as far as it decides what this is.
    head: Vec<u8>,
    seen: usize,
}

impl<R: Read> Attachment<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, head: Vec::with_capacity(ImageKind::HEAD_BYTES), seen: 0 }
    }
}

impl<R: Read> Read for Attachment<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = match ImageKind::of(&self.head) {
            Some(_) => (IMAGE_BYTES_MAX + 1).saturating_sub(self.seen).min(buffer.len()),
            None => buffer.len(),
        };
        let space = buffer.get_mut(..most).unwrap_or_default();
        let count = self.source.read(space)?;
        let room = ImageKind::HEAD_BYTES.saturating_sub(self.head.len());
        self.head.extend(space.iter().take(count.min(room)));
        self.seen = self.seen.saturating_add(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, repeat};

    use super::{Attachment, IMAGE_BYTES_MAX};

    /// Gives the bytes in pieces of a length, then the rest.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(buffer.len()).min(self.0.len());
            let (now, later) = self.0.split_at(count);
            buffer[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    #[test]
    fn an_endless_image_ends_one_byte_behind_the_limit_and_text_does_not() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        for piece in [1, 7, 64] {
            let mut image = Attachment::new(Pieces(png, piece).chain(repeat(0)));
            let mut chunk = vec![0; 64 * 1024];
            let mut total = 0;
            loop {
                match image.read(&mut chunk).unwrap() {
                    0 => break,
                    count => total += count,
                }
                assert!(total <= IMAGE_BYTES_MAX + 1, "pieces of {piece}");
            }
            assert_eq!(total, IMAGE_BYTES_MAX + 1, "pieces of {piece}");
        }
        let text = u64::try_from(IMAGE_BYTES_MAX + 2).unwrap();
        let read = std::io::copy(&mut Attachment::new(repeat(b'x').take(text)), &mut std::io::sink()).unwrap();
        assert_eq!(read, text);
    }
}
