//! The same kernel without and with trace points, which must not differ where the feature `trace` is off.

#![no_std]

use hostcall_device::{Global, Lane, counter, event, kernel, span};

/// `y = a·x + y`, in steps.
#[kernel]
pub fn plain(lane: &Lane, a: f32, x: &[f32], y: &[Global<f32>]) {
    for i in (lane.global_id()..x.len()).step_by(lane.grid_lanes()) {
        y[i].set(a * x[i] + y[i].get());
    }
}

/// The same, which says what it does.
#[kernel]
pub fn pointed(lane: &Lane, a: f32, x: &[f32], y: &[Global<f32>]) {
    let _whole = span!("all of it");
    for i in (lane.global_id()..x.len()).step_by(lane.grid_lanes()) {
        let _step = span!("a step");
        y[i].set(a * x[i] + y[i].get());
        counter!("sum", y[i].get());
        if i == 17 {
            event!("came to {i}, where there is {}", y[i].get());
        }
    }
}
