//! Copies of a pair of the host's words for which the lane that asks for them does not wait: a look over a GPU's link takes it
//! longer than ten posts. From sm_80 on (`cp.async`).

#[cfg(not(all(target_arch = "nvptx64", target_feature = "sm_80")))]
use crate::primitive::load_pair;
use crate::primitive::{AtomicU64, Owned, load_two};

/// Whether they are worth asking for. Where a lane would wait for them it asks when it cannot go on without.
pub(crate) const ARE_THERE: bool = cfg!(any(
    all(target_arch = "nvptx64", target_feature = "sm_80"),
    not(any(target_arch = "nvptx64", target_arch = "amdgpu"))
));

/// Begins to copy a pair of words into memory of the wave's own, which on NVIDIA is shared memory. Each word is copied whole.
///
/// # Safety
/// SLOT-OWNER: until the calling lane has [waited](end), no other lane accesses `to`, nor does this one, and the memory stays.
#[inline(always)]
pub(crate) unsafe fn begin(from: &[AtomicU64; 2], to: &[Owned<u64>; 2]) {
    #[cfg(all(target_arch = "nvptx64", target_feature = "sm_80"))]
    // SAFETY: `from` is 16-byte aligned (pairs lie at even words of a 64-byte aligned region) and in global memory; `to` is so
    // too, and the caller's. The bytes come in one transaction of the link, which takes no word apart; `.cg` asks no cache that
    // may have an old one.
    unsafe {
        core::arch::asm!("{{ .reg .u64 %at; cvta.to.shared.u64 %at, {to};",
            "cp.async.cg.shared.global [%at], [{from}], 16; }}", to = in(reg64) to.as_ptr(), from = in(reg64) from.as_ptr(),
            options(nostack));
    }
    #[cfg(not(all(target_arch = "nvptx64", target_feature = "sm_80")))]
    for (to, word) in to.iter().zip(load_pair(from)) {
        // SAFETY: the caller's promise.
        unsafe { to.set(word) };
    }
}

/// Waits until what the calling lane has begun to copy is there.
#[inline(always)]
pub fn wait() {
    #[cfg(all(target_arch = "nvptx64", target_feature = "sm_80"))]
    // SAFETY: waits.
    unsafe {
        core::arch::asm!("cp.async.wait_all;", options(nostack));
    }
}

/// Waits for a copy that the calling lane has begun, and returns the words.
///
/// # Safety
/// SLOT-OWNER: it has begun one into this memory since the wave claimed the slot.
#[inline(always)]
pub(crate) unsafe fn end(copy: &[Owned<u64>; 2]) -> [u64; 2] {
    wait();
    // SAFETY: the caller's promise.
    unsafe { load_two(copy) }
}
