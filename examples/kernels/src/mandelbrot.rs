//! The Mandelbrot set, written to a PNG by the lanes that compute it.

use crate::png;
use alloc::vec::Vec;
use hostcall_device::fs::{File, OpenOptions};
use hostcall_device::{Global, Lane, Plain, Shared, io, kernel};

/// What the picture shows.
#[repr(C)]
#[derive(Clone, Copy, Plain)]
pub struct View {
    /// The number in the middle of the picture, real and imaginary.
    pub centre: [f64; 2],
    /// Distance from a pixel to the next one.
    pub step: f64,
    /// Pixels in x and y.
    pub size: [u32; 2],
}

// ANCHOR: colour
/// The colour of a pixel: 0 in the set, else how soon the pixel's number leaves it.
pub fn colour(view: &View, x: u32, y: u32) -> u8 {
    let from_middle = |at: u32, size: u32| f64::from(at) - f64::from(size - 1) / 2.0;
    let c_re = view.centre[0] + from_middle(x, view.size[0]) * view.step;
    let c_im = view.centre[1] - from_middle(y, view.size[1]) * view.step;
    let (mut re, mut im) = (0.0, 0.0);
    for colour in 1..=u8::MAX {
        if re * re + im * im > 4.0 {
            return colour;
        }
        (re, im) = (re * re - im * im + c_re, 2.0 * re * im + c_im);
    }
    0
}
// ANCHOR_END: colour

/// Makes the file, up to its first row. One lane runs it.
#[kernel]
pub fn begin(_: &Lane, name: &[u8], view: View) {
    let mut start = Vec::new();
    png::push_start(&mut start, view.size, palette);
    File::create(name).and_then(|file| file.write_all(&start)).unwrap();
}

/// Red, green and blue of a colour.
fn palette(colour: u8) -> [u8; 3] {
    const STOPS: [[i32; 3]; 5] = [[0, 7, 100], [32, 107, 203], [237, 255, 255], [255, 170, 0], [20, 2, 30]];
    const BETWEEN: i32 = 10;
    if colour == 0 {
        return [0; 3];
    }
    let (stop, step) = (usize::from(colour) / BETWEEN as usize, i32::from(colour) % BETWEEN);
    let (from, to) = (STOPS[stop % STOPS.len()], STOPS[(stop + 1) % STOPS.len()]);
    core::array::from_fn(|part| ((from[part] * (BETWEEN - step) + to[part] * step) / BETWEEN) as u8)
}

// ANCHOR: rows
/// Computes rows, each by all lanes of a workgroup, and writes them where they belong. Puts two numbers for each row into
/// `sums`, for the checksum of all. `row` has a byte for each pixel of a row.
#[kernel]
pub fn rows(lane: &Lane, #[workgroup] row: &[Shared<u8>], name: &[u8], view: View, sums: &[Global<u32>]) {
    let [width, height] = view.size.map(|size| size as usize);
    let ([workgroup, ..], [workgroups, ..]) = (lane.workgroup(), lane.workgroups());
    let [lanes, ..] = lane.workgroup_size();
    let is_writer = lane.local_id() == 0;
    let file = is_writer.then(|| OpenOptions::new().write().open(name).unwrap());
    for y in (workgroup as usize..height).step_by(workgroups as usize) {
        for x in (lane.local_id()..width).step_by(lanes as usize) {
            row[x].set(colour(&view, x as u32, y as u32));
        }
        lane.barrier();
        if let Some(file) = &file {
            let pixels = row[..width].iter().map(Shared::get);
            let (chunk, [a, b]) = png::row(width, pixels);
            write_at(file, png::row_offset(width, y), &chunk).unwrap();
            sums[2 * y].set(a);
            sums[2 * y + 1].set(b);
        }
        lane.barrier();
    }
}
// ANCHOR_END: rows

/// Writes the end of the file. One lane runs it.
#[kernel]
pub fn end(_: &Lane, name: &[u8], view: View, sums: &[u32]) {
    let [width, height] = view.size.map(|size| size as usize);
    let mut end = Vec::new();
    png::push_end(&mut end, width, sums);
    let file = OpenOptions::new().write().open(name).unwrap();
    write_at(&file, png::row_offset(width, height), &end).unwrap();
}

/// Writes all of the bytes at a place of the file.
fn write_at(file: &File, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(offset, bytes)? {
            0 => return Err(io::Error::UnexpectedEnd),
            written => {
                offset += written as u64;
                bytes = &bytes[written..];
            }
        }
    }
    Ok(())
}
