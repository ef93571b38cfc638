//! Images in `read` and in prompts (case 26 of `tests/cases/tools.md`, tool rules I1–I5, MSG-07). What needs the feature
//! `images` runs with `cargo test --features images`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pirn::model::Content;
use pirn::port::{Inputs, ToolOutput};
use pirn::tool::image::{ImageError, ImageFacts, blocks};
use serde_json::{Value, json};

use crate::support::images::{DOT, DOT_BASE64, apng, bmp, gif, heavy_png, jpeg, png, webp};
use crate::tool_support::{Workspace, failure, text};

const SEES: Inputs = Inputs { text: true, image: true };
const BLIND: Inputs = Inputs { text: true, image: false };

/// The line, the media type and the data of an image that is shown.
#[track_caller]
fn shown(content: &[Content]) -> (&str, &str, &str) {
    let [Content::Text(line), Content::Image(image)] = content else { panic!("a line and an image: {content:?}") };
    (&line.text, &image.mime_type, &image.data)
}

/// Reads a file as a model that takes images, or none.
fn read(bytes: &[u8], sees: bool) -> ToolOutput {
    let mut w = Workspace::new();
    w.images = sees;
    w.file("x.txt", bytes);
    w.call("read", json!({"path": "x.txt"}))
}

#[test]
fn case_26_an_image_is_known_by_its_bytes_and_shown_behind_its_facts() {
    assert_eq!(DOT.len(), 70);
    let output = read(DOT, true);
    assert!(!output.is_error);
    assert_eq!(shown(&output.content), ("[image/png 1x1, 70B]", "image/png", DOT_BASE64));
    let details = output.details.unwrap();
    assert!(details["path"].as_str().unwrap().ends_with("/x.txt"));
    let facts = ["mimeType", "width", "height", "bytes", "attached"].map(|key| details[key].clone());
    assert_eq!(Value::from(facts.to_vec()), json!(["image/png", 1, 1, 70, true]));

    let output = read(DOT, false);
    assert_eq!(text(&output), "[image/png 1x1, 70B: the current model takes no images]", "I4");
    assert_eq!(output.details.unwrap()["attached"], false);
}

#[test]
fn every_kind_within_the_limits_is_passed_through_untouched_i1_i2() {
    let big = png(2000, 3);
    for (bytes, line) in [
        (png(800, 600), "[image/png 800x600"),
        (apng(3, 2), "[image/png 3x2"),
        (jpeg(640, 480), "[image/jpeg 640x480"),
        (gif(320, 200), "[image/gif 320x200"),
        (webp(64, 32), "[image/webp 64x32"),
        (big, "[image/png 2000x3"),
        (heavy_png(3_538_944 - 100), "[image/png 8x8"),
    ] {
        let content = blocks(&bytes, SEES).unwrap();
        let (found, mime_type, data) = shown(&content);
        assert!(found.starts_with(line) && line[1..].starts_with(mime_type), "{found}");
        assert_eq!(STANDARD.decode(data).unwrap(), bytes, "{line}");
    }
}

#[test]
fn other_files_are_what_they_were_r2() {
    let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\"/>\n";
    for content in [svg, "GIF89a is an image format of the last century\n", "BM\n"] {
        assert_eq!(text(&read(content.as_bytes(), true)), content);
    }
    // A header that makes no sense, and one that is not all there.
    let headless = &DOT[..20];
    for bytes in [&png(0, 1)[..], headless, b"\xff\xd8\xff\xe0\0\x10JFIF\0", b"\xff\xd8\xff\xe0\0\0\0\0"] {
        assert_eq!(failure(&read(bytes, true)).0, "binary", "{bytes:?}");
        assert_eq!(blocks(bytes, SEES), Err(ImageError::Unreadable), "{bytes:?}");
    }
}

#[test]
fn an_image_that_ends_early_is_told_and_not_sent_msg_07() {
    let whole = png(30, 20);
    let webp = webp(9, 9);
    // With something behind its end it is whole.
    let mut longer = whole.clone();
    longer.extend(b"trailer");
    assert!(blocks(&longer, SEES).is_ok());
    for cut in [whole.len() - 1, whole.len() - 12, whole.len() - 20, 34, 33, 32] {
        let error = blocks(&whole[..cut], SEES).unwrap_err();
        assert!(matches!(error, ImageError::CutOff(_)), "{cut}: {error:?}");
        assert_eq!(text(&read(&whole[..cut], true)), format!("[image/png 30x20, {cut}B: the file is cut off]"));
    }
    assert!(matches!(blocks(&webp[..webp.len() - 1], BLIND), Err(ImageError::Unreadable)));
    let mut short = webp.clone();
    short[4] += 2;
    assert!(matches!(blocks(&short, SEES), Err(ImageError::CutOff(_))));
    // A length that no file has.
    let mut lying = whole;
    lying[33..37].fill(0xff);
    assert!(matches!(blocks(&lying, SEES), Err(ImageError::CutOff(_))));
}

#[test]
fn facts_are_those_of_the_header_and_cost_no_decoding_i5() {
    // A bomb: ten thousand million pixels in two hundred bytes.
    let mut bomb = png(1, 1);
    bomb[16..24].copy_from_slice(&[0, 1, 0x86, 0xa0, 0, 1, 0x86, 0xa0]);
    let facts = ImageFacts::of(&bomb, bomb.len() as u64).unwrap();
    assert_eq!((facts.width, facts.height), (100_000, 100_000));
    assert_eq!(blocks(&bomb, SEES), Err(ImageError::TooLarge(facts)));
    let note = format!("[image/png 100000x100000, {}B: too large to attach]", bomb.len());
    assert_eq!(text(&read(&bomb, true)), note);
    // Rows that go downwards.
    let facts = ImageFacts::of(&bmp(4, -2), 78).unwrap();
    assert_eq!(facts.to_string(), "image/bmp 4x2, 78B");
}

#[cfg(not(feature = "images"))]
#[test]
fn what_is_too_large_or_a_bitmap_is_left_out_with_a_note_i3() {
    for (bytes, facts, reason) in [
        (png(9000, 100), "[image/png 9000x100, ", "B: too large to attach]"),
        (png(3, 2001), "[image/png 3x2001, ", "B: too large to attach]"),
        (heavy_png(6 << 20), "[image/png 8x8, ", "6.0MB: too large to attach]"),
        (bmp(2, 2), "[image/bmp 2x2, ", "70B: a bitmap cannot be attached; convert it to PNG]"),
        (bmp(1, 2001), "[image/bmp 1x2001, ", "7.9KB: too large to attach]"),
    ] {
        let output = read(&bytes, true);
        let found = text(&output);
        assert!(found.starts_with(facts) && found.ends_with(reason), "{found}");
        let size = output.details.unwrap()["bytes"].as_u64().unwrap();
        assert_eq!(size, bytes.len() as u64, "I3: the size of the file is told, however much of it was read");
    }
}

#[cfg(feature = "images")]
mod shrinking {
    use std::io::Cursor;

    use image::codecs::jpeg::JpegEncoder;
    use image::{DynamicImage, ImageFormat, Rgb, RgbImage, Rgba, RgbaImage};

    use super::{ImageError, SEES, STANDARD, apng, blocks, bmp, heavy_png, png, read, shown, text};
    use crate::support::images::{png_chunk, png_with};
    use base64::Engine as _;

    fn decoded(data: &str) -> DynamicImage {
        image::load_from_memory(&STANDARD.decode(data).unwrap()).unwrap()
    }

    fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    /// Colours without order, which no form makes smaller.
    fn noise(width: u32, height: u32) -> RgbImage {
        let mut state = 1_u32;
        RgbImage::from_fn(width, height, |_, _| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [a, b, c, _] = state.to_be_bytes();
            Rgb([a, b, c])
        })
    }

    #[test]
    fn a_large_image_is_made_smaller_and_says_what_to_do_about_coordinates_i3() {
        for (width, height, line) in [
            (9000, 100, ("[image/png 2000x22, ", ", resized from 9000x100; multiply coordinates by 4.5]")),
            (3, 2600, ("[image/png 2x2000, ", ", resized from 3x2600; multiply coordinates by 1.3]")),
            (20, 2001, ("[image/png 20x2000, ", ", resized from 20x2001; multiply coordinates by 1]")),
        ] {
            let output = read(&png(width, height), true);
            let (found, mime_type, data) = shown(&output.content);
            assert!(found.starts_with(line.0) && found.ends_with(line.1), "{found}");
            assert_eq!(mime_type, "image/png", "I3: a drawing stays PNG");
            let image = decoded(data);
            assert!(image.width().max(image.height()) == 2000);
            assert_eq!(output.details.unwrap()["width"], width, "details tell of the file");
        }
    }

    #[test]
    fn a_heavy_image_keeps_its_sides_and_no_coordinates_change_i3() {
        let content = blocks(&heavy_png(5 << 20), SEES).unwrap();
        let (line, mime_type, data) = shown(&content);
        assert!(line.starts_with("[image/png 8x8, ") && !line.contains("resized"), "{line}");
        assert_eq!(mime_type, "image/png");
        assert!(data.len() < 1000);
    }

    #[test]
    fn transparent_pixels_become_white_where_a_form_has_none_i3() {
        let mut picture = DynamicImage::from(noise(1250, 1000)).to_rgba8();
        for (_, y, Rgba(pixel)) in picture.enumerate_pixels_mut() {
            pixel[3] = if y < 100 { 0 } else { 255 };
        }
        let content = blocks(&encoded(&picture.into(), ImageFormat::Png), SEES).unwrap();
        let (line, mime_type, data) = shown(&content);
        assert!(line.starts_with("[image/jpeg 1250x1000, ") && !line.contains("resized"), "{line}");
        assert_eq!(mime_type, "image/jpeg", "I3: noise is smaller as JPEG");
        assert!(data.len() <= 4_718_592);
        let Rgb(corner) = *decoded(data).to_rgb8().get_pixel(50, 50);
        assert!(corner.iter().all(|channel| *channel > 240), "{corner:?}");
    }

    #[test]
    fn an_image_that_lies_on_its_side_is_set_upright_i3() {
        let mut sideways = Vec::new();
        let picture = RgbImage::from_fn(2400, 100, |x, _| if x < 1200 { Rgb([255, 0, 0]) } else { Rgb([0, 0, 255]) });
        JpegEncoder::new(&mut sideways).encode_image(&picture).unwrap();
        // Orientation 6: the camera was turned, so the picture has to be turned clockwise.
        let exif = b"\xff\xe1\0\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        sideways.splice(2..2, exif.iter().copied());
        let content = blocks(&sideways, SEES).unwrap();
        let (line, mime_type, data) = shown(&content);
        assert!(line.starts_with("[image/jpeg 83x2000, "), "{line}");
        assert!(line.ends_with(", resized from 100x2400; multiply coordinates by 1.2]"), "{line}");
        assert_eq!(mime_type, "image/jpeg");
        let upright = decoded(data).to_rgb8();
        let (top, bottom) = (upright.get_pixel(40, 100), upright.get_pixel(40, 1900));
        assert!(top[0] > 200 && bottom[2] > 200, "{top:?} {bottom:?}");
    }

    #[test]
    fn bitmaps_become_png_and_other_kinds_what_is_smallest_i3() {
        for bytes in [bmp(2, 2), bmp(2, -2), bmp(2100, 2)] {
            let content = blocks(&bytes, SEES).unwrap();
            let (line, mime_type, data) = shown(&content);
            assert!(line.starts_with("[image/png "), "{line}");
            assert_eq!(mime_type, "image/png");
            assert!(decoded(data).width() <= 2000);
        }
        let wide = DynamicImage::ImageRgba8(RgbaImage::from_pixel(2100, 10, Rgba([1, 2, 3, 255])));
        for format in [ImageFormat::Gif, ImageFormat::WebP] {
            let content = blocks(&encoded(&wide, format), SEES).unwrap();
            assert_eq!(shown(&content).0.split_once(',').unwrap().0, "[image/png 2000x10", "{format:?}");
        }
        assert!(blocks(&apng(2100, 2), SEES).is_ok());
    }

    #[test]
    fn what_cannot_be_decoded_within_limits_is_left_out_with_a_note_i5() {
        // Sides as a bomb has them, each side alone within what a decoder may take.
        let claim = |width: u32, height: u32| {
            let mut bomb = png(1, 1);
            bomb[16..20].copy_from_slice(&width.to_be_bytes());
            bomb[20..24].copy_from_slice(&height.to_be_bytes());
            let sum = crc32fast::hash(&bomb[12..29]);
            bomb[29..33].copy_from_slice(&sum.to_be_bytes());
            bomb
        };
        // The rows of the last one end where the file says more come.
        for bomb in [claim(20_000, 20_000), claim(u32::MAX >> 1, 1), claim(3000, 3000)] {
            assert!(matches!(blocks(&bomb, SEES), Err(ImageError::TooLarge(_))));
            assert!(text(&read(&bomb, true)).ends_with(": too large to attach]"));
        }
        // Megabytes of nothing in a comment.
        let mut text_bomb = b"Comment\0\0".to_vec();
        let mut deflated = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut deflated, &vec![0; 4 << 20]).unwrap();
        text_bomb.extend(deflated.finish().unwrap());
        let commented = png_with(2100, 2, &[png_chunk(*b"zTXt", &text_bomb)]);
        assert!(shown(&blocks(&commented, SEES).unwrap()).0.starts_with("[image/png 2000x2, "));
        // A file larger than what is worth decoding is not read to its end.
        let huge = heavy_png(33 << 20);
        assert_eq!(text(&read(&huge, true)), "[image/png 8x8, 33.0MB: too large to attach]");
    }

    #[test]
    fn malformed_bytes_are_a_note_and_no_panic_i5() {
        let jpeg = {
            let mut bytes = Vec::new();
            JpegEncoder::new(&mut bytes).encode_image(&noise(2001, 8)).unwrap();
            bytes
        };
        let png = encoded(&noise(2001, 4).into(), ImageFormat::Png);
        for original in [jpeg, png] {
            for at in (0..original.len()).step_by(original.len() / 16) {
                let mut broken = original.clone();
                broken[at] ^= 0xff;
                // Whatever comes of it is one of the documented outcomes.
                if let Ok(content) = blocks(&broken, SEES) {
                    shown(&content);
                }
            }
        }
    }
}
