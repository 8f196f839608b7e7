//! Bytes of the host's memory that lanes copy into the device's by themselves (bulk copies), one lane after
//! the other: the workgroup memory through which they come is that of whoever holds the wave's home slot.
//!
//! The build finds the kernels whose code can come to this (`KernelInfo::found`). A launch of one gives it
//! memory for it at the end of each workgroup's (`staging_of` in `host/hostcall/src/device/grid.rs`): 64 KiB of
//! a multiprocessor's, shared by the workgroups that are there together, as far as as many stay, and 1 KiB a
//! wave at least. A lane alone gets as many bytes a second as it has on their way. To global memory they go
//! on by themselves; to a stack, and to or from a place that is no multiple of 16, the lane takes them out of
//! the workgroup's memory. Whole units of 16 bytes are asked for.
//!
//! A lone lane pulls what the byte area has for it from 96 bytes on: six loads over the link take as long. Of
//! a longer reply the lane says up to how many bytes it pulls sooner than the host copies (`ReplyAt`), and
//! the host decides (`Messages::is_sooner_pulled`): as a loan that the lane pulls up to that length, or up to
//! 256 KiB while the host makes other copies and half of its budget is left; by the copy engine otherwise,
//! which carries more a second.

use crate::group::Group;
use crate::packet;
use crate::target::{self, Staging};
use hostcall_abi::word::LEAST_REPLY_TO_PULL;
use hostcall_channel::device::take_lent;

/// Where lanes meet that copy: no call's site is the same.
const SITE: u64 = u64::MAX;

/// Copies the first bytes of `to` from a mapped file. Returns how many: none, where the lane can copy none this way.
///
/// # Safety
/// MAPPED: as many bytes as `to` has lie at `from` in a file that the host has mapped for the lane's launch: whole pages.
pub(crate) unsafe fn pull_mapped(from: u64, to: &mut [u8]) -> usize {
    if to.len() < LEAST_REPLY_TO_PULL || target::here().unwinding() {
        return 0;
    }
    let staging = Staging::of_wave();
    if staging.most() == 0 {
        return 0;
    }
    Group::meet(SITE, 0, |group| {
        let mut pulled = 0;
        packet::with_home(group, || {
            // SAFETY: the group has the home slot, and the caller's promise.
            in_turn(group, || pulled = unsafe { staging.pull(from, to) });
        });
        pulled
    })
}

/// Copies a reply out of a loan, if the lane has one to take, and returns the loan. All lanes of the group, which holds the
/// wave's home slot, come here.
///
/// # Safety
/// LOAN, see [`take_lent`]. The staging is the wave's. A loan's memory is whole pages.
pub(crate) unsafe fn take_lent_in_turn(group: Group, staging: Staging, reply: Option<(u64, &mut [u8])>) {
    let mut reply = reply;
    in_turn(group, || {
        if let Some((loan, bytes)) = &mut reply {
            // SAFETY: the caller's promise.
            unsafe { take_lent(*loan, bytes, |from, to| staging.pull(from, to)) };
        }
    });
}

/// Has the group's lanes do something one after the other.
fn in_turn(group: Group, mut body: impl FnMut()) {
    for turn in 0..group.count {
        if turn == group.rank {
            body();
        }
        group.sync();
    }
}
