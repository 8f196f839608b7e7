//! Kernels that begin without their lane.

use hostcall_device::{Global, Lane, kernel};

#[kernel]
fn scale(x: &[f32], out: &[Global<f32>]) {
    out[0].set(x[0]);
}

#[kernel]
fn later(x: &u32, _lane: &Lane) {
    let _ = x;
}

fn main() {}
