//! PNG files whose rows are made apart: each is a chunk of its own, at a place that its number gives. Pixels are bytes that a
//! palette makes colours, and are not compressed.

use alloc::vec::Vec;

/// Pixels that a row has at most: a block of deflate that is not compressed has its length in 16 bits.
pub const MAX_WIDTH: u32 = 0xfffe;

/// Bytes of the file before its first row: signature, header, palette, and a chunk with zlib's header.
const START_BYTES: usize = 8 + (12 + 13) + (12 + 3 * 256) + (12 + 2);

/// Bytes of a row's chunk, besides its pixels: length, type and checksum; a block's header; the row's filter.
const ROW_BYTES: usize = 12 + 5 + 1;

/// Where the chunk of row `y` begins, or for the number of rows, the end of the file.
pub fn row_offset(width: usize, y: usize) -> u64 {
    (START_BYTES + y * (ROW_BYTES + width)) as u64
}

/// Appends all that comes before the first row.
pub fn push_start(file: &mut Vec<u8>, [width, height]: [u32; 2], palette: impl Fn(u8) -> [u8; 3]) {
    file.extend(*b"\x89PNG\r\n\x1a\n");
    push_chunk(file, b"IHDR", |chunk| {
        chunk.extend(width.to_be_bytes());
        chunk.extend(height.to_be_bytes());
        // 8 bits a pixel, with a palette, and no choice in the rest.
        chunk.extend([8, 3, 0, 0, 0]);
    });
    push_chunk(file, b"PLTE", |chunk| chunk.extend((0..=u8::MAX).flat_map(palette)));
    push_chunk(file, b"IDAT", |chunk| chunk.extend([0x78, 0x01]));
}

/// A row's chunk, and what [`push_end`] needs of it.
pub fn row(width: usize, pixels: impl Iterator<Item = u8>) -> (Vec<u8>, [u32; 2]) {
    let mut chunk = Vec::with_capacity(ROW_BYTES + width);
    let len = (width + 1) as u16;
    push_chunk(&mut chunk, b"IDAT", |chunk| {
        chunk.push(0);
        chunk.extend(len.to_le_bytes());
        chunk.extend((!len).to_le_bytes());
        chunk.push(0);
        chunk.extend(pixels);
    });
    let sums = chunk[chunk.len() - 4 - width..chunk.len() - 4]
        .iter()
        // The filter's zero adds nothing to either sum.
        .fold([0, 0], |[a, b], byte| add(a, b, u32::from(*byte)));
    (chunk, sums)
}

/// Appends all that follows the last row. `sums` are those of each row in turn.
pub fn push_end(file: &mut Vec<u8>, width: usize, sums: &[u32]) {
    let row_bytes = (width + 1) as u64;
    let join = |[a, b]: [u32; 2], of_row: &[u32]| {
        // Each byte of the row adds what was there before it once more.
        let b = (u64::from(b) + row_bytes * u64::from(a) + u64::from(of_row[1])) % u64::from(ADLER);
        [(a + of_row[0]) % ADLER, b as u32]
    };
    let [a, b] = sums.chunks_exact(2).fold([1, 0], join);
    push_chunk(file, b"IDAT", |chunk| {
        chunk.extend([1, 0, 0, 0xff, 0xff]);
        chunk.extend((b << 16 | a).to_be_bytes());
    });
    push_chunk(file, b"IEND", |_| {});
}

/// The modulus of zlib's checksum, Adler-32, which is a sum of the bytes and a sum of those sums.
const ADLER: u32 = 65521;

fn add(a: u32, b: u32, byte: u32) -> [u32; 2] {
    let a = (a + byte) % ADLER;
    [a, (b + a) % ADLER]
}

/// Appends a chunk.
fn push_chunk(file: &mut Vec<u8>, name: &[u8; 4], fill: impl FnOnce(&mut Vec<u8>)) {
    let start = file.len();
    file.extend([0; 4]);
    file.extend(name);
    fill(file);
    let len = (file.len() - start - 8) as u32;
    let crc = crc32(&file[start + 4..]);
    file[start..start + 4].copy_from_slice(&len.to_be_bytes());
    file.extend(crc.to_be_bytes());
}

/// A chunk's checksum, four bits at a time.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 16] = {
        let mut table = [0; 16];
        let mut i = 0;
        while i < 16 {
            let (mut rest, mut bit) = (i as u32, 0);
            while bit < 4 {
                rest = rest >> 1 ^ if rest & 1 != 0 { 0xedb8_8320 } else { 0 };
                bit += 1;
            }
            table[i] = rest;
            i += 1;
        }
        table
    };
    let step = |crc: u32| crc >> 4 ^ TABLE[(crc & 15) as usize];
    !bytes.iter().fold(!0, |crc, byte| step(step(crc ^ u32::from(*byte))))
}
