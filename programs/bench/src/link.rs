//! The plain accesses that floors and rivals are made of, with nothing of hostcall in them.

use core::sync::atomic::{AtomicU64, Ordering};
use hostcall_device::Global;

/// Two words that one instruction stores or loads.
#[repr(C, align(16))]
pub struct Pair([Global<u64>; 2]);

/// The words as pairs.
///
/// # Panics
/// When they are not aligned to 16 bytes, as memory that the host allocated is.
pub fn pairs(words: &[Global<u64>]) -> &[Pair] {
    assert!(words.as_ptr().addr().is_multiple_of(16));
    // SAFETY: a `Pair` has the layout of two words, the address is a multiple of its alignment, and half as
    // many pairs as words lie within them.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), words.len() / 2) }
}

impl Pair {
    /// Stores both words, relaxed.
    #[inline(always)]
    pub fn store(&self, pair: [u64; 2]) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: `self` is two words that are written atomically by everybody, at a multiple of 16 bytes; memory
        // of kernels' arguments is global memory.
        unsafe {
            core::arch::asm!("{{ .reg .u64 %at; cvta.to.global.u64 %at, {at}; st.relaxed.sys.global.v2.b64 [%at], {{{a}, {b}}}; }}",
                at = in(reg64) &raw const *self, a = in(reg64) pair[0], b = in(reg64) pair[1], options(nostack));
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            self.0[0].set(pair[0]);
            self.0[1].set(pair[1]);
        }
    }

    /// Stores both words after everything that the lane stored before.
    #[inline(always)]
    pub fn store_release(&self, pair: [u64; 2]) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: as for `store`.
        unsafe {
            core::arch::asm!("{{ .reg .u64 %at; cvta.to.global.u64 %at, {at}; st.release.sys.global.v2.b64 [%at], {{{a}, {b}}}; }}",
                at = in(reg64) &raw const *self, a = in(reg64) pair[0], b = in(reg64) pair[1], options(nostack));
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            core::sync::atomic::fence(Ordering::Release);
            self.store(pair);
        }
    }

    /// Loads both words, relaxed.
    #[inline(always)]
    pub fn load(&self) -> [u64; 2] {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: as for `store`, for reads.
        unsafe {
            let (a, b);
            core::arch::asm!("{{ .reg .u64 %at; cvta.to.global.u64 %at, {at}; ld.relaxed.sys.global.v2.b64 {{{a}, {b}}}, [%at]; }}",
                at = in(reg64) &raw const *self, a = out(reg64) a, b = out(reg64) b, options(nostack));
            [a, b]
        }
        #[cfg(not(target_arch = "nvptx64"))]
        [self.0[0].get(), self.0[1].get()]
    }
}

/// Stores a word, relaxed.
#[inline(always)]
pub fn store(at: &Global<u64>, value: u64) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as for `Pair::store`, for a word.
    unsafe {
        core::arch::asm!("{{ .reg .u64 %at; cvta.to.global.u64 %at, {at}; st.relaxed.sys.global.b64 [%at], {value}; }}",
            at = in(reg64) &raw const *at, value = in(reg64) value, options(nostack));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    at.set(value);
}

/// Loads a word, relaxed. Several loads may be on their way at a time: a lane waits for a value only when it
/// needs it.
#[inline(always)]
pub fn load(at: &Global<u64>) -> u64 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as for `Pair::load`, for a word.
    unsafe {
        let value;
        core::arch::asm!("{{ .reg .u64 %at; cvta.to.global.u64 %at, {at}; ld.relaxed.sys.global.b64 {value}, [%at]; }}",
            at = in(reg64) &raw const *at, value = out(reg64) value, options(nostack));
        value
    }
    #[cfg(not(target_arch = "nvptx64"))]
    at.get()
}

/// The next number of a counter in the device's own memory.
#[inline(always)]
pub fn take(counter: &AtomicU64) -> u64 {
    // LLVM makes it relaxed and of the GPU's scope, whatever stands here; more is not needed.
    counter.fetch_add(1, Ordering::Relaxed)
}

/// A clock in units of its own, which steps more often than [`hostcall_device::Lane::clock_ns`] where there is
/// such a one.
#[inline(always)]
pub fn ticks(lane: &hostcall_device::Lane) -> u64 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: reads a register.
    unsafe {
        let _ = lane;
        let ticks;
        core::arch::asm!("mov.u64 {ticks}, %clock64;", ticks = out(reg64) ticks, options(nostack));
        ticks
    }
    #[cfg(not(target_arch = "nvptx64"))]
    lane.clock_ns()
}
