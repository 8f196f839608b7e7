//! Kernels that compute and call nothing, each lane every `grid_lanes`-th element: what compilers and launches make of
//! them shows beside the same algorithms in CUDA C++ (`crates/bench/src/compute.cu`).

use hostcall_device::{Global, Lane, kernel};

/// `y = a·x + y`.
#[kernel]
pub fn saxpy(lane: &Lane, a: f32, x: &[f32], y: &[Global<f32>]) {
    let n = x.len().min(y.len());
    for i in (lane.global_id()..n).step_by(lane.grid_lanes()) {
        y[i].set(a * x[i] + y[i].get());
    }
}

/// Each lane's part of the sum of `x` goes to its place in `sums`.
#[kernel]
pub fn sum(lane: &Lane, x: &[f32], sums: &[Global<f32>]) {
    let mut sum = 0.0;
    for i in (lane.global_id()..x.len()).step_by(lane.grid_lanes()) {
        sum += x[i];
    }
    sums[lane.global_id()].set(sum);
}
