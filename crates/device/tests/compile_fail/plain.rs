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

#[repr(C)]
#[derive(Plain)]
struct Generic<T> {
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
