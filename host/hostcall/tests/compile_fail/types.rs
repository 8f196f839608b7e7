//! A kernel's arguments are of its parameters' types (S3).
use hostcall::hostcall_device::{Global, Lane, kernel};
use hostcall::{Device, Grid, LaunchKernel};

#[kernel]
fn fill(_: &Lane, values: &[Global<u64>], value: u64) {
    values[0].set(value);
}

fn main() {
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let small = device.alloc_zeroed::<u32>(1).unwrap();
    let right = device.alloc_zeroed::<u64>(1).unwrap();
    fill.launch(&stream, Grid::new(1, 1), (&small, 1u64)).unwrap();
    fill.launch(&stream, Grid::new(1, 1), (&right, 1u32)).unwrap();
    fill.launch(&stream, Grid::new(1, 1), (&right,)).unwrap();
}
