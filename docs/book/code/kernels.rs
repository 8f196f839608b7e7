//! The chapter "Kernels".

// ANCHOR: all
use hostcall::{Device, Global, Grid, Lane, LaunchKernel, Plain, kernel};

/// What one launch has for all of its lanes.
#[repr(C)]
#[derive(Clone, Copy, Plain)]
struct Line {
    slope: f32,
    offset: f32,
}

/// `y = slope * x + offset`, a lane a number.
#[kernel]
fn apply(lane: &Lane, line: Line, x: &[f32], y: &[Global<f32>]) {
    let i = lane.global_id();
    if i < x.len() {
        y[i].set(line.slope * x[i] + line.offset);
    }
}

fn lines() -> Result<Vec<f32>, hostcall::Error> {
    let device = Device::open("cpu")?;
    let stream = device.stream()?;
    let x = device.upload(&[-1.0f32, 0.0, 2.0])?; // the device's memory, filled
    let y = device.alloc_zeroed::<f32>(3)?;
    apply.launch(&stream, Grid::lanes(3), (Line { slope: 2.0, offset: 0.5 }, &x, &y))?;
    y.read() // waits for the launches that write it
}
// ANCHOR_END: all

#[test]
fn lines_are_as_expected() {
    assert_eq!(lines().unwrap(), [-1.5, 0.5, 4.5]);
}
