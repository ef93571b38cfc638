//! Making an image fit (tool rules I3, I5).
//!
//! Keeps true: an image is decoded only if its pixels and what the decoder needs are within limits, whatever a file
//! claims; the result is upright and keeps its aspect; a file that cannot be decoded is no failure of anything else.
//!
//! Must not know: what is said about the result.

use std::io::Cursor;
use std::panic::catch_unwind;

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType as PngFilter, PngEncoder};
use image::imageops::FilterType;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder as _, ImageFormat, ImageReader, Limits, Rgb, RgbImage};

use super::{SENT_BYTES_MAX, SIDE_MAX};
use crate::model::ImageKind;

/// Pixels of an image that is decoded (tool rule I5).
const PIXELS_MAX: u64 = 100_000_000;
/// Bytes a decoder may allocate, the pixels included (tool rule I5).
const ALLOC_MAX: u64 = 256 << 20;
/// Longer sides that are tried, the largest first.
const SIDES: [u32; 4] = [SIDE_MAX, 1_400, 1_000, 700];
/// Qualities of JPEG that are tried, the best first (tool rule I3).
const QUALITIES: [u8; 3] = [80, 60, 40];
/// What shows through transparent pixels in a form without transparency.
const PAPER: u32 = 255;

/// An image that fits.
pub(super) struct Shrunk {
    pub(super) kind: ImageKind,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) bytes: Vec<u8>,
    /// Sides of the original, upright.
    pub(super) from: (u32, u32),
}

/// Decodes an image and makes it fit; `None` if it is over the limits or cannot be decoded.
pub(super) fn shrink(bytes: &[u8], kind: ImageKind) -> Option<Shrunk> {
    // Decoders of malformed files have panicked before.
    catch_unwind(|| fitting(bytes, kind)).ok().flatten()
}

fn fitting(bytes: &[u8], kind: ImageKind) -> Option<Shrunk> {
    let (image, orientation) = decode(bytes, kind)?;
    let (width, height) = (image.width(), image.height());
    let mut tried = None;
    for side in SIDES {
        let (new_width, new_height) = fit(width, height, side);
        // An image smaller than the last side is the same again.
        if tried == Some((new_width, new_height)) {
            continue;
        }
        tried = Some((new_width, new_height));
        let mut small = scale(&image, new_width, new_height);
        small.apply_orientation(orientation);
        if let Some((kind, bytes)) = encode(&small, kind) {
            let is_turned = (small.width(), small.height()) != (new_width, new_height);
            let from = if is_turned { (height, width) } else { (width, height) };
            return Some(Shrunk { kind, width: small.width(), height: small.height(), bytes, from });
        }
    }
    None
}

fn decode(bytes: &[u8], kind: ImageKind) -> Option<(DynamicImage, Orientation)> {
    let format = match kind {
        ImageKind::Png => ImageFormat::Png,
        ImageKind::Jpeg => ImageFormat::Jpeg,
        ImageKind::Gif => ImageFormat::Gif,
        ImageKind::Webp => ImageFormat::WebP,
        ImageKind::Bmp => ImageFormat::Bmp,
    };
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::default();
    limits.max_alloc = Some(ALLOC_MAX);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().ok()?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > PIXELS_MAX || decoder.total_bytes() > ALLOC_MAX {
        return None;
    }
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let image = DynamicImage::from_decoder(decoder).ok()?;
    (image.width() > 0 && image.height() > 0).then_some((image, orientation))
}

/// The sides of an image within a square, its aspect kept.
fn fit(width: u32, height: u32, side: u32) -> (u32, u32) {
    let longer = width.max(height);
    if longer <= side {
        return (width, height);
    }
    let scaled = |length: u32| {
        let rounded = (u64::from(length) * u64::from(side) + u64::from(longer) / 2) / u64::from(longer);
        u32::try_from(rounded).unwrap_or(side).max(1)
    };
    (scaled(width), scaled(height))
}

fn scale(image: &DynamicImage, width: u32, height: u32) -> DynamicImage {
    if (image.width(), image.height()) == (width, height) {
        return image.clone();
    }
    // The good filter needs memory for every column of its source; averaging before it costs nothing that is seen.
    let (double_width, double_height) = (width.saturating_mul(2), height.saturating_mul(2));
    if image.width() > double_width && image.height() > double_height {
        let halfway = image.thumbnail_exact(double_width, double_height);
        return halfway.resize_exact(width, height, FilterType::CatmullRom);
    }
    image.resize_exact(width, height, FilterType::CatmullRom)
}

/// The form an image is sent in: as PNG when that is no larger than the JPEG, else the best JPEG that fits. Photographs
/// stay JPEG, bitmaps become PNG wherever that fits.
fn encode(image: &DynamicImage, kind: ImageKind) -> Option<(ImageKind, Vec<u8>)> {
    let fits = |bytes: &Vec<u8>| bytes.len() <= SENT_BYTES_MAX;
    let png = if kind == ImageKind::Jpeg { None } else { png(image).filter(fits) };
    if let (ImageKind::Bmp, Some(png)) = (kind, &png) {
        return Some((ImageKind::Png, png.clone()));
    }
    let flat = flatten(image);
    for quality in QUALITIES {
        let Some(jpeg) = jpeg(&flat, quality) else { continue };
        match &png {
            Some(png) if png.len() <= jpeg.len() => return Some((ImageKind::Png, png.clone())),
            _ if fits(&jpeg) => return Some((ImageKind::Jpeg, jpeg)),
            _ => {}
        }
    }
    png.map(|png| (ImageKind::Png, png))
}

fn png(image: &DynamicImage) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let encoder = PngEncoder::new_with_quality(&mut bytes, CompressionType::Default, PngFilter::Adaptive);
    // Sixteen bits a channel are more than a model sees.
    let plain = match image {
        DynamicImage::ImageLuma8(_) | DynamicImage::ImageRgb8(_) | DynamicImage::ImageRgba8(_) => image.clone(),
        image if image.color().has_alpha() => DynamicImage::ImageRgba8(image.to_rgba8()),
        image if image.color().has_color() => DynamicImage::ImageRgb8(image.to_rgb8()),
        image => DynamicImage::ImageLuma8(image.to_luma8()),
    };
    plain.write_with_encoder(encoder).ok()?;
    Some(bytes)
}

fn jpeg(image: &RgbImage, quality: u8) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, quality).encode_image(image).ok()?;
    Some(bytes)
}

/// Lays an image on white paper.
fn flatten(image: &DynamicImage) -> RgbImage {
    if !image.color().has_alpha() {
        return image.to_rgb8();
    }
    let source = image.to_rgba8();
    let mut flat = RgbImage::new(source.width(), source.height());
    for (to, from) in flat.pixels_mut().zip(source.pixels()) {
        let [red, green, blue, alpha] = from.0;
        let over = |channel: u8| {
            let alpha = u32::from(alpha);
            let mixed = (u32::from(channel) * alpha + PAPER * (PAPER - alpha)) / PAPER;
            u8::try_from(mixed).unwrap_or(u8::MAX)
        };
        *to = Rgb([over(red), over(green), over(blue)]);
    }
    flat
}
