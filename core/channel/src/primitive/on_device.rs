//! Atomics in memory of the device.
//!
//! On NVIDIA they are written out: those of `core` are the whole system's, and a release would wait for every store that is on its
//! way to the host; and LLVM drops the order of read-modify-writes other than compare-exchange there.

#[cfg(not(target_arch = "nvptx64"))]
use super::fence;
use super::{AtomicU64, Ordering};

/// Takes a home slot's word and leaves `held`. Acquire for all that is accessed through the slot, and for nothing else.
///
/// On NVIDIA the exchange is relaxed: an acquire empties the multiprocessor's cache, which has nothing of a slot, since shared
/// memory is read by `.sys` accesses that pass it by, and what else goes with a slot either never changes (its places) or is read
/// behind [`fence_on_device`] (a state beside the word, those of raw channels). Accesses through the slot come after the exchange
/// because a branch on its result decides whether there are any, and a GPU issues none before it knows.
#[inline(always)]
pub(crate) fn take_word(word: &AtomicU64, held: u64) -> u64 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the word is valid, aligned and in global memory, where addresses are the generic ones, and accessed atomically.
    unsafe {
        let old: u64;
        core::arch::asm!("atom.relaxed.gpu.global.exch.b64 {old}, [{at}], {held};",
            at = in(reg64) word, held = in(reg64) held, old = out(reg64) old, options(nostack));
        old
    }
    #[cfg(target_arch = "amdgpu")]
    {
        // Compare-exchange is what AMD's lanes do to memory, here as everywhere.
        let mut old = word.load(Ordering::Relaxed);
        while let Err(now) = word.compare_exchange(old, held, Ordering::Acquire, Ordering::Relaxed) {
            old = now;
        }
        old
    }
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    word.swap(held, Ordering::Acquire)
}

/// Gives a home slot's word back. Release for accesses through the slot that are over: what was stored, the host has seen, and
/// what was looked at is there.
///
/// The word is all ones while somebody has it, so that AND puts `new` there, and is a read-modify-write: what an earlier holder
/// released reaches a later one that acquires it. On NVIDIA that leaves nothing to wait for: nothing comes back from a reduction, and
/// a wave that ends does not wait for it as it does for an exchange's answer.
#[inline(always)]
pub(crate) fn put_word(word: &AtomicU64, new: u64) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as in `take_word`.
    unsafe {
        core::arch::asm!("red.relaxed.gpu.global.and.b64 [{at}], {new};",
            at = in(reg64) word, new = in(reg64) new, options(nostack));
    }
    #[cfg(target_arch = "amdgpu")]
    word.store(new, Ordering::Release);
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    word.fetch_and(new, Ordering::Release);
}

/// A fence among the lanes of the device.
pub(crate) fn fence_on_device(ordering: Ordering) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: orders accesses.
    unsafe {
        let _ = ordering;
        core::arch::asm!("fence.acq_rel.gpu;", options(nostack));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fence(ordering);
}

/// Compare-exchange in memory of the device. Relaxed.
#[inline(always)]
pub(crate) fn cas_on_device(word: &AtomicU64, old: u64, new: u64) -> Result<u64, u64> {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the word is valid and aligned, and accessed atomically.
    unsafe {
        let now: u64;
        core::arch::asm!("atom.relaxed.gpu.cas.b64 {now}, [{at}], {old}, {new};",
            at = in(reg64) word, old = in(reg64) old, new = in(reg64) new, now = out(reg64) now, options(nostack));
        if now == old { Ok(now) } else { Err(now) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
}

/// Adds in memory of the device, and returns what was there. Relaxed.
#[inline(always)]
pub(crate) fn add_on_device(word: &AtomicU64, value: u64) -> u64 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as for `cas_on_device`.
    unsafe {
        let old: u64;
        core::arch::asm!("atom.relaxed.gpu.add.u64 {old}, [{at}], {value};",
            at = in(reg64) word, value = in(reg64) value, old = out(reg64) old, options(nostack));
        old
    }
    #[cfg(not(target_arch = "nvptx64"))]
    word.fetch_add(value, Ordering::Relaxed)
}
