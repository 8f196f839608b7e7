//! Atomics are not read plainly (S5).
use hostcall::Device;
use std::sync::atomic::AtomicU64;

fn main() {
    let device = Device::open("cpu").unwrap();
    let buffer = device.alloc_zeroed::<AtomicU64>(1).unwrap();
    let shared = [AtomicU64::new(1)];
    buffer.write(&shared).unwrap();
}
