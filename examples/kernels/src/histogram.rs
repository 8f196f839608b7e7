//! How often each byte occurs in a text. Each workgroup counts in its own memory first, so that lanes do not wait for each
//! other at the same few words of the device's memory.

use core::sync::atomic::Ordering::Relaxed;
use hostcall_device::atomic::Scope;
use hostcall_device::{Global, Lane, Shared, kernel};

// ANCHOR: count_bytes
/// Adds the bytes' counts to `counts`, which has 256.
#[kernel]
pub fn count_bytes(lane: &Lane, #[workgroup] own: &[Shared<u32>; 256], bytes: &[u8], counts: &[Global<u32>]) {
    let [width, ..] = lane.workgroup_size();
    for value in (lane.local_id()..256).step_by(width as usize) {
        own[value].set(0);
    }
    lane.barrier();
    for byte in bytes.iter().skip(lane.global_id()).step_by(lane.grid_lanes()) {
        own[*byte as usize].fetch_add(1, Relaxed);
    }
    lane.barrier();
    for value in (lane.local_id()..256).step_by(width as usize) {
        match own[value].get() {
            0 => {}
            sum => _ = counts[value].fetch_add(sum, Relaxed, Scope::Device),
        }
    }
}
// ANCHOR_END: count_bytes
