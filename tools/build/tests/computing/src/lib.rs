//! Kernels that compute: what becomes of floats, small arrays and accesses.

#![no_std]

use hostcall_device::math::Float;
use hostcall_device::rounding::product;
use hostcall_device::{Global, Lane, Shared, kernel, println};

/// Multiplies matrices, with indices that are checked and sums in an array that loops index.
#[kernel(max_lanes = 256)]
pub fn matmul(lane: &Lane, n: u32, a: &[f32], b: &[f32], c: &[Global<f32>]) {
    let n = n as usize;
    let (row, column) = (lane.global_id() / n * 8, lane.global_id() % n * 8);
    let mut sums = [[0.0; 8]; 8];
    for k in 0..n {
        for i in 0..8 {
            for j in 0..8 {
                sums[i][j] += a[(row + i) * n + k] * b[k * n + column + j];
            }
        }
    }
    for i in 0..8 {
        for j in 0..8 {
            c[(row + i) * n + column + j].set(sums[i][j]);
        }
    }
}

/// Has a product that is added to, one that is rounded by itself, and mathematics.
#[kernel]
pub fn floats(lane: &Lane, x: &[f32], out: &[[Global<f32>; 3]]) {
    for i in lane.strided(x.len().min(out.len())) {
        out[i][0].set(x[i] * 1.5 + 0.25);
        out[i][1].set(product(x[i], 2.5) + 0.75);
        out[i][2].set(Float::sin(x[i]));
    }
}

/// Calls, prints and checks nothing.
#[kernel]
pub fn double(lane: &Lane, x: &[u32], out: &[Global<u32>]) {
    for i in lane.strided(x.len().min(out.len())) {
        out[i].set(2 * x[i]);
    }
}

/// Has a barrier, and a panic where the slice is too short.
#[kernel]
pub fn rounds(lane: &Lane, #[workgroup] last: &Shared<u32>, out: &[Global<u32>]) {
    last.set(lane.local_id() as u32);
    lane.barrier();
    out[lane.global_id()].set(last.get());
}

/// The same with a post before its barrier.
#[kernel]
pub fn posting_rounds(lane: &Lane, #[workgroup] last: &Shared<u32>, out: &[Global<u32>]) {
    last.set(lane.local_id() as u32);
    println!("lane {}", lane.local_id());
    lane.barrier();
    out[lane.global_id()].set(last.get());
}
