//! What kind of image some bytes are, told by their beginning and never by a name.
//!
//! Keeps true: text is no image, whatever word it begins with; one look at [`ImageKind::HEAD_BYTES`] decides.
//!
//! Must not know: where bytes come from, how large an image may be, what becomes of it.

/// The kinds of images that are known (tool rule I1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// Animated ones included.
    Png,
    Jpeg,
    Gif,
    Webp,
    Bmp,
}

impl ImageKind {
    /// Bytes from the start of a file that decide.
    pub const HEAD_BYTES: usize = 26;

    /// The kind that the start of a file tells, or `None`.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
        let at = |start: usize, end: usize| bytes.get(start..end).unwrap_or_default();
        if bytes.starts_with(PNG) && at(12, 16) == b"IHDR" {
            Some(Self::Png)
        } else if bytes.starts_with(b"\xff\xd8\xff") {
            Some(Self::Jpeg)
        } else if (bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a")) && is_screen(at(6, 10)) {
            Some(Self::Gif)
        } else if bytes.starts_with(b"RIFF") && at(8, 12) == b"WEBP" {
            Some(Self::Webp)
        } else if bytes.starts_with(b"BM") && at(6, 10) == [0; 4] && is_bitmap_header(at(14, 18)) {
            Some(Self::Bmp)
        } else {
            None
        }
    }

    /// The name people use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::Gif => "GIF",
            Self::Webp => "WebP",
            Self::Bmp => "BMP",
        }
    }

    /// The media type.
    pub fn mime_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
            Self::Bmp => "image/bmp",
        }
    }
}

/// Whether width and height of a GIF are credible: in text both would be over 8191, since neither high byte would be a
/// control character.
fn is_screen(sides: &[u8]) -> bool {
    matches!(sides, [_, width_high, _, height_high] if width_high.min(height_high) < &b' ')
}

/// Whether this is the size of one of the headers a bitmap has; the oldest, of 12 bytes, is no longer made.
fn is_bitmap_header(size: &[u8]) -> bool {
    matches!(size, [40 | 52 | 56 | 64 | 108 | 124, 0, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::ImageKind;

    #[test]
    fn an_image_is_known_by_its_first_bytes_and_text_is_none_i1() {
        let bmp = b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x02\0\0\0";
        let known: [(&[u8], ImageKind); 6] = [
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", ImageKind::Png),
            (b"\xff\xd8\xff\xe0", ImageKind::Jpeg),
            (b"GIF87a\x01\0\x01\0", ImageKind::Gif),
            (b"GIF89a\x80\x07\x38\x04", ImageKind::Gif),
            (b"RIFF\x24\0\0\0WEBPVP8 ", ImageKind::Webp),
            (bmp, ImageKind::Bmp),
        ];
        for (bytes, kind) in known {
            assert_eq!(ImageKind::of(bytes), Some(kind), "{bytes:?}");
            assert!(bytes.len() <= ImageKind::HEAD_BYTES);
            for cut in 0..bytes.len().min(10) {
                let short = ImageKind::of(&bytes[..cut]);
                assert!(short.is_none() || short == Some(kind), "{cut} bytes of {bytes:?}");
            }
        }
        let others: [&[u8]; 10] = [
            b"",
            b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>",
            b"\x89PNG\r\n\x1a\n\0\0\0\x04CgBI\x50\0\x20\x06\0\0\0\rIHDR",
            b"\x89PNG\n\x1a\n\0\0\0\rIHDR",
            b"GIF89a is an image format of the last century",
            b"BMW is a car maker from Munich in Bavaria",
            b"BM\x46\0\0\0\0\0\0\0\x1a\0\0\0\x0c\0\0\0\x02\0\x02\0\x01\0\x18\0",
            b"RIFF\x24\0\0\0WAVEfmt ",
            b"II*\0\x08\0\0\0",
            b"\0\0\0\x1cftypheic",
        ];
        for bytes in others {
            assert_eq!(ImageKind::of(bytes), None, "{bytes:?}");
        }
    }
}
