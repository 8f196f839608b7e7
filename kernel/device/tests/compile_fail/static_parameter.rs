//! A kernel that keeps its argument after the launch.

use hostcall_device::{Lane, kernel};

#[kernel]
fn keep(_: &Lane, numbers: &'static [u64]) {
    let _ = numbers;
}

fn main() {}
