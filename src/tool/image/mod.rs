//! Images for a model: what one is, whether it may be sent, and the blocks it becomes (tool rules I1–I5).
//!
//! Keeps true: an image is known by its bytes; one that a provider would refuse for its size, its form or a missing end
//! is not sent, since every later request would hold it again (MSG-07); facts are read from the header, nothing is
//! decoded for them.
//!
//! Must not know: where the bytes come from, names of models.

#[cfg(feature = "images")]
mod shrink;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::truncate::size;
use crate::model::{Content, ImageBlock, ImageKind};
use crate::port::Inputs;

/// Pixels of a side of an image that is sent (tool rule I2).
pub const SIDE_MAX: u32 = 2_000;
/// Bytes of an image that is sent: those that make 4.5 MB of base64, which writes three as four (tool rule I2).
pub const SENT_BYTES_MAX: usize = 4_718_592 / 4 * 3;
/// Bytes of an image file worth reading: one more than can be of use, to see that there are more.
pub(super) const FILE_BYTES_MAX: usize = 1 + if cfg!(feature = "images") { 32 << 20 } else { SENT_BYTES_MAX };

/// What the header of an image says, and its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageFacts {
    pub kind: ImageKind,
    /// Pixels.
    pub width: u32,
    /// Pixels.
    pub height: u32,
    pub bytes: u64,
}

impl ImageFacts {
    /// Reads the header; `None` if the bytes are no image or one without credible sides. `bytes` is the size of the
    /// whole, of which `start` may be the beginning only.
    pub fn of(start: &[u8], bytes: u64) -> Option<Self> {
        let kind = ImageKind::of(start)?;
        let sides = imagesize::blob_size(start).ok()?;
        let width = u32::try_from(sides.width).ok()?;
        let mut height = u32::try_from(sides.height).ok()?;
        if kind == ImageKind::Bmp {
            // A negative one says that the rows go downwards.
            height = height.cast_signed().unsigned_abs();
        }
        (width > 0 && height > 0).then_some(Self { kind, width, height, bytes })
    }

    fn fits(&self) -> bool {
        self.width.max(self.height) <= SIDE_MAX && self.bytes <= SENT_BYTES_MAX as u64
    }
}

impl fmt::Display for ImageFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}x{}, {}", self.kind.mime_type(), self.width, self.height, size(self.bytes))
    }
}

/// Why an image is not sent. The text goes on after its name or facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// It is none, or its header makes no sense.
    #[error("not a readable image")]
    Unreadable,
    /// Tool rule I4.
    #[error("the current model takes no images")]
    NotTaken(ImageFacts),
    /// The file ends before the image does.
    #[error("the file is cut off")]
    CutOff(ImageFacts),
    /// Tool rules I2 and I3.
    #[error("too large to attach")]
    TooLarge(ImageFacts),
    /// Providers take no bitmap; one becomes a PNG where images can be decoded.
    #[error("a bitmap cannot be attached; convert it to PNG")]
    Bitmap(ImageFacts),
}

impl ImageError {
    /// What is known of the image.
    pub fn facts(&self) -> Option<&ImageFacts> {
        match self {
            Self::Unreadable => None,
            Self::NotTaken(facts) | Self::CutOff(facts) | Self::TooLarge(facts) | Self::Bitmap(facts) => Some(facts),
        }
    }

    /// The line that stands in the image's place.
    pub fn note(&self) -> String {
        match self.facts() {
            Some(facts) => format!("[{facts}: {self}]"),
            None => format!("[{self}]"),
        }
    }
}

/// An image as it is sent.
struct Sent {
    facts: ImageFacts,
    /// The sides it had before it was made smaller.
    from: Option<(u32, u32)>,
    /// Base64.
    data: String,
}

/// The blocks of a whole image: a line that tells what it is, then the image (tool rules I1–I5).
///
/// # Errors
/// Why it cannot be sent to a model of these inputs.
pub fn blocks(bytes: &[u8], inputs: Inputs) -> Result<Vec<Content>, ImageError> {
    blocks_of(bytes, bytes.len() as u64, inputs)
}

/// The same for the beginning of a file of `size` bytes, which is the whole unless there are more than
/// [`FILE_BYTES_MAX`].
pub(super) fn blocks_of(bytes: &[u8], size: u64, inputs: Inputs) -> Result<Vec<Content>, ImageError> {
    let facts = ImageFacts::of(bytes, size).ok_or(ImageError::Unreadable)?;
    if !inputs.image {
        return Err(ImageError::NotTaken(facts));
    }
    if bytes.len() as u64 == size && is_cut_off(facts.kind, bytes) {
        return Err(ImageError::CutOff(facts));
    }
    let sent = if facts.kind != ImageKind::Bmp && facts.fits() {
        Sent { facts, from: None, data: STANDARD.encode(bytes) }
    } else {
        smaller(bytes, facts)?
    };
    let image =
        ImageBlock { data: sent.data, mime_type: sent.facts.kind.mime_type().to_owned(), ..ImageBlock::default() };
    Ok(vec![Content::text(line(&sent.facts, sent.from)), Content::Image(image)])
}

/// Makes an image that cannot be sent as it is one that can (tool rule I3).
#[cfg(feature = "images")]
fn smaller(bytes: &[u8], facts: ImageFacts) -> Result<Sent, ImageError> {
    if facts.bytes > bytes.len() as u64 {
        return Err(ImageError::TooLarge(facts));
    }
    let made = shrink::shrink(bytes, facts.kind).ok_or_else(|| as_it_is(facts))?;
    let shrunk = made.width != made.from.0 || made.height != made.from.1;
    Ok(Sent {
        facts: ImageFacts { kind: made.kind, width: made.width, height: made.height, bytes: made.bytes.len() as u64 },
        from: shrunk.then_some(made.from),
        data: STANDARD.encode(&made.bytes),
    })
}

/// Nothing can be done about an image that is not decoded.
#[cfg(not(feature = "images"))]
fn smaller(_bytes: &[u8], facts: ImageFacts) -> Result<Sent, ImageError> {
    Err(as_it_is(facts))
}

/// Why an image cannot be sent without being made smaller or another one.
fn as_it_is(facts: ImageFacts) -> ImageError {
    if facts.kind == ImageKind::Bmp && facts.fits() { ImageError::Bitmap(facts) } else { ImageError::TooLarge(facts) }
}

/// `[image/png 800x600, 34.2KB]`, with what to do about coordinates when it was made smaller.
fn line(facts: &ImageFacts, from: Option<(u32, u32)>) -> String {
    let Some((width, height)) = from else { return format!("[{facts}]") };
    // By the longer side, whose rounding matters least.
    let factor = f64::from(width.max(height)) / f64::from(facts.width.max(facts.height).max(1));
    let factor = format!("{factor:.2}");
    let factor = factor.trim_end_matches('0').trim_end_matches('.');
    format!("[{facts}, resized from {width}x{height}; multiply coordinates by {factor}]")
}

/// Whether the bytes end before the image does, where the form tells its end beyond doubt. Viewers show what there is of
/// such a file; providers refuse it.
fn is_cut_off(kind: ImageKind, bytes: &[u8]) -> bool {
    match kind {
        ImageKind::Png => !has_end_chunk(bytes),
        ImageKind::Webp => match bytes.get(4..8).and_then(|size| <[u8; 4]>::try_from(size).ok()) {
            Some(size) => (bytes.len() as u64) < u64::from(u32::from_le_bytes(size)) + 8,
            None => true,
        },
        // Their ends are often missing or followed by something else, and decoders do not mind.
        ImageKind::Jpeg | ImageKind::Gif | ImageKind::Bmp => false,
    }
}

/// Walks the chunks of a PNG, each of which has at least twelve bytes, up to its `IEND`.
fn has_end_chunk(bytes: &[u8]) -> bool {
    const SIGNATURE_BYTES: usize = 8;
    const CHECKSUM_BYTES: usize = 4;
    let mut rest = bytes.get(SIGNATURE_BYTES..).unwrap_or_default();
    while let Some((length, body)) = rest.split_first_chunk::<4>() {
        let Some((name, body)) = body.split_first_chunk::<4>() else { return false };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let Some(next) = body.get(length.saturating_add(CHECKSUM_BYTES)..) else { return false };
        if name == b"IEND" {
            return true;
        }
        rest = next;
    }
    false
}
