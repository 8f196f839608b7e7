//! Kernels that call nothing: a call's code, and a panic's, must cost them no registers and no stack.

#![no_std]

use hostcall_device::{Global, Lane, kernel};

/// Does nothing.
#[kernel]
pub fn empty(_lane: &Lane) {}

/// `y = a·x + y`, with indices that are checked.
#[kernel]
pub fn saxpy(lane: &Lane, a: f32, x: &[f32], y: &[Global<f32>]) {
    for i in (lane.global_id()..x.len()).step_by(lane.grid_lanes()) {
        y[i].set(a * x[i] + y[i].get());
    }
}
