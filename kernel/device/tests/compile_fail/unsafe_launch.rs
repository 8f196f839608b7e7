//! Launching what is unsafe, and a kernel whose parts are changed.

use hostcall::{Device, Grid, LaunchKernel};
use hostcall_device::{Global, Lane, kernel};

/// # Safety
/// None may look.
#[kernel]
unsafe fn dangerous(_: &Lane, _out: &[Global<u64>]) {}

#[kernel]
fn harmless(_: &Lane) {}

fn launches() {
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let out = device.alloc_zeroed::<u64>(1).unwrap();
    dangerous.launch(&stream, Grid::new(1, 1), (&out,)).unwrap();
}

fn changes() {
    let mut kernel = harmless;
    kernel.info.argument_bytes = 8;
}

fn main() {}
