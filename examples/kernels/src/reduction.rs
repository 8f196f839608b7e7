//! A sum of many numbers: each workgroup adds up its part in workgroup memory, and the workgroups add their sums to one
//! number of the device.

use core::sync::atomic::Ordering::Relaxed;
use hostcall_device::atomic::Scope;
use hostcall_device::workgroup::Scratch;
use hostcall_device::{Global, Lane, kernel, wave};

// ANCHOR: add_up
/// Adds the numbers to `sum`. With `n` lanes in the grid, each lane takes every `n`th number.
#[kernel]
pub fn add_up(lane: &Lane, #[workgroup] scratch: &Scratch<f64>, numbers: &[f32], sum: &Global<f64>) {
    let own = numbers.iter().skip(lane.global_id()).step_by(lane.grid_lanes()).map(|x| f64::from(*x)).sum();
    let of_workgroup = lane.workgroup_reduce(scratch, own, wave::Add);
    if lane.local_id() == 0 {
        sum.fetch_add(of_workgroup, Relaxed, Scope::Device);
    }
}
// ANCHOR_END: add_up
