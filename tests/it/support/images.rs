//! Small images made on the spot.

use std::io::Write as _;

/// A PNG of 1×1 pixels and 70 bytes.
pub(crate) const DOT: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\
    \0\0\0\rIDATx\xdacd\xf8\xcfP\x0f\0\x03\x86\x01\x80Z4}k\0\0\0\0IEND\xaeB`\x82";

/// [`DOT`] in base64.
pub(crate) const DOT_BASE64: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A chunk of a PNG, with its length and checksum.
pub(crate) fn png_chunk(name: [u8; 4], data: &[u8]) -> Vec<u8> {
    let mut chunk = u32::try_from(data.len()).unwrap().to_be_bytes().to_vec();
    chunk.extend(name);
    chunk.extend(data);
    chunk.extend(crc32fast::hash(&chunk[4..]).to_be_bytes());
    chunk
}

/// A black PNG, with further chunks behind its header.
pub(crate) fn png_with(width: u32, height: u32, further: &[Vec<u8>]) -> Vec<u8> {
    let mut header = width.to_be_bytes().to_vec();
    header.extend(height.to_be_bytes());
    header.extend([8, 0, 0, 0, 0]);
    let mut rows = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    for _ in 0..height {
        rows.write_all(&vec![0; 1 + usize::try_from(width).unwrap()]).unwrap();
    }
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    png.extend(png_chunk(*b"IHDR", &header));
    png.extend(further.concat());
    png.extend(png_chunk(*b"IDAT", &rows.finish().unwrap()));
    png.extend(png_chunk(*b"IEND", &[]));
    png
}

/// A black PNG.
pub(crate) fn png(width: u32, height: u32) -> Vec<u8> {
    png_with(width, height, &[])
}

/// A black PNG of a few pixels that a comment makes large.
pub(crate) fn heavy_png(bytes: usize) -> Vec<u8> {
    png_with(8, 8, &[png_chunk(*b"prIv", &vec![0; bytes])])
}

/// A black PNG of two frames.
pub(crate) fn apng(width: u32, height: u32) -> Vec<u8> {
    png_with(width, height, &[png_chunk(*b"acTL", &[0, 0, 0, 2, 0, 0, 0, 0])])
}

/// The beginning and the end of a JPEG: its facts, but nothing to decode.
pub(crate) fn jpeg(width: u16, height: u16) -> Vec<u8> {
    let mut jpeg = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff\xc0\0\x0b\x08".to_vec();
    jpeg.extend(height.to_be_bytes());
    jpeg.extend(width.to_be_bytes());
    jpeg.extend(b"\x01\x01\x11\0\xff\xd9");
    jpeg
}

/// A GIF without a frame.
pub(crate) fn gif(width: u16, height: u16) -> Vec<u8> {
    let mut gif = b"GIF89a".to_vec();
    gif.extend(width.to_le_bytes());
    gif.extend(height.to_le_bytes());
    gif.extend(b"\0\0\0;");
    gif
}

/// The extended header of a WebP.
pub(crate) fn webp(width: u32, height: u32) -> Vec<u8> {
    let mut webp = b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0".to_vec();
    webp.extend(&(width - 1).to_le_bytes()[..3]);
    webp.extend(&(height - 1).to_le_bytes()[..3]);
    webp
}

/// A black bitmap of 24 bits; a negative height says that rows go downwards.
pub(crate) fn bmp(width: u16, height: i32) -> Vec<u8> {
    let row = (usize::from(width) * 3).next_multiple_of(4);
    let pixels = row * usize::try_from(height.unsigned_abs()).unwrap();
    let mut bmp = b"BM".to_vec();
    bmp.extend(u32::try_from(54 + pixels).unwrap().to_le_bytes());
    bmp.extend(b"\0\0\0\0\x36\0\0\0\x28\0\0\0");
    bmp.extend(u32::from(width).to_le_bytes());
    bmp.extend(height.to_le_bytes());
    bmp.extend(b"\x01\0\x18\0");
    bmp.extend(vec![0; 24 + pixels]);
    bmp
}
