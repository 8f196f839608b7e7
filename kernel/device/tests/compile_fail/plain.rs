//! Structs that are not plain.

use hostcall_device::Plain;

#[repr(C)]
#[derive(Plain)]
struct Padded {
    small: u8,
    large: u32,
}

#[derive(Plain)]
struct RustLayout {
    number: u32,
}

// Of `u64` it would have padding, and what is behind `more` too.
#[repr(C)]
#[derive(Plain)]
struct Generic<T> {
    value: T,
    count: u32,
    more: [u16; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Plain)]
struct Pair<T>(T, u32);

fn pairs_of_what_is_as_large(pair: Pair<u64>) -> impl Plain {
    pair
}

#[repr(C, align(16))]
#[derive(Plain)]
struct Aligned<T> {
    value: T,
}

#[repr(C)]
#[derive(Plain)]
struct Borrowed<'a> {
    value: &'a u32,
}

#[repr(C)]
#[derive(Plain)]
#[hostcall(format = "{value}")]
struct Formatted<T> {
    value: T,
}

#[repr(C)]
#[derive(Plain)]
#[inline]
struct Changed<T> {
    value: T,
}

#[repr(C)]
#[derive(Plain)]
struct Flag {
    flag: bool,
}

#[repr(C, packed)]
#[derive(Plain)]
struct Packed {
    small: u8,
    large: u32,
}

#[repr(u8)]
#[derive(Plain)]
enum Kind {
    One,
}

#[repr(C, align(4096))]
#[derive(Plain)]
struct Page {
    words: [u64; 512],
}

fn main() {}
