//! As `static_parameter.rs`, where only the compiler sees it.

use hostcall_device::{Lane, kernel};

#[kernel]
fn keep<'a>(_: &Lane, numbers: &'a [u64])
where
    'a: 'static,
{
    let _ = numbers;
}

#[kernel]
fn keep_lane(lane: &'static Lane) {
    let _ = lane;
}

fn main() {}
