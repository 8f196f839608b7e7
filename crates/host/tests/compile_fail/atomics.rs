//! Atomics are not read plainly (S5).
use hostcall::{Device, Plain};
use std::sync::atomic::AtomicU64;

// A type of this file: what the compiler says of one of the standard library's depends on whether its source is installed.
#[derive(Plain)]
#[repr(C)]
struct Counter {
    hits: AtomicU64,
}

fn main() {
    let device = Device::open("cpu").unwrap();
    let buffer = device.alloc_zeroed::<Counter>(1).unwrap();
    let shared = [Counter { hits: AtomicU64::new(1) }];
    buffer.write(&shared).unwrap();
}
