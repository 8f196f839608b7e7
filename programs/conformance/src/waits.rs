//! Kernels that wait for what they say.

use crate::services::Gate;
use hostcall_device::waits::{barrier, flag};
use hostcall_device::{Global, Lane, kernel};

/// Sets the flag to `key`, by the last workgroup's first lane, once a gate is open; all other workgroups wait for that. Lanes say that they
/// wait for one peer each, if `apart`, or all for the seventh.
#[kernel]
pub fn wait_for_flag(lane: &Lane, key: u64, apart: u32, flags: &[Global<u64>]) {
    let [workgroup, ..] = lane.workgroup();
    if workgroup + 1 == lane.workgroups()[0] {
        if lane.local_id() == 0 {
            assert_eq!(Gate::pass(key), Ok(key));
            flags[0].set(key);
        }
        return;
    }
    let peer = if apart != 0 { lane.global_id() as u32 } else { 7 };
    lane.wait_for(flag("signal").at(&flags[0]).peer(peer).sequence(key), || flags[0].get() >= key);
}

/// Waits at a barrier to which nobody else comes.
#[kernel]
pub fn wait_for_nobody(lane: &Lane, flags: &[Global<u64>]) {
    lane.wait_for(barrier("of more than sixteen bytes").at(&flags[0]), || flags[0].get() == u64::MAX);
}
