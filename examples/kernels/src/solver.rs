//! An iterative solver, whose host hears of every step and decides when it is enough.
//!
//! The equation is -u'' = 1 on a line whose ends are 0, by Jacobi's method. A step is two sweeps, a measure of how much the
//! second changed, and a call that reports it.

use core::sync::atomic::{AtomicU32, Ordering};
use hostcall_device::{Global, Lane, kernel, service};

// ANCHOR: service
/// What the solver tells the host.
#[service]
pub trait Progress {
    /// Takes the largest change of a step, and says whether to go on.
    fn report(change: f32) -> bool;
}
// ANCHOR_END: service

/// One sweep of Jacobi's method over the inner points.
#[kernel]
pub fn sweep(lane: &Lane, from: &[f32], to: &[Global<f32>]) {
    let i = lane.global_id();
    if i > 0 && i + 1 < from.len() {
        let h = 1.0 / (from.len() - 1) as f32;
        to[i].set(0.5 * (from[i - 1] + from[i + 1] + h * h));
    }
}

/// Keeps the largest difference: the bits of floats that are not negative are ordered as the floats are.
#[kernel]
pub fn measure(lane: &Lane, a: &[f32], b: &[f32], largest: &AtomicU32) {
    let i = lane.global_id();
    if i < a.len() {
        let change = (a[i] - b[i]).max(b[i] - a[i]);
        largest.fetch_max(change.to_bits(), Ordering::Relaxed);
    }
}

// ANCHOR: report
/// Reports the largest change to the host, and keeps the answer.
#[kernel]
pub fn report(_: &Lane, largest: &AtomicU32, go_on: &Global<u32>) {
    let change = f32::from_bits(largest.swap(0, Ordering::Relaxed));
    go_on.set(u32::from(Progress::report(change).unwrap()));
}
// ANCHOR_END: report
