//! Atomics among the lanes of a wave.

use super::{AtomicU32, AtomicU64, Ordering};

macro_rules! cas_in_wave {
    ($(#[doc = $docs:literal] $name:ident $instruction:literal $success:ident $failure:ident;)*) => {$(
        #[doc = $docs]
        #[inline(always)]
        pub(crate) fn $name(word: &AtomicU32, old: u32, new: u32) -> Result<u32, u32> {
            #[cfg(target_arch = "nvptx64")]
            // SAFETY: as for `cas_on_device`.
            unsafe {
                let now: u32;
                core::arch::asm!(concat!($instruction, " {now}, [{at}], {old}, {new};"), at = in(reg64) word,
                    old = in(reg32) old, new = in(reg32) new, now = out(reg32) now, options(nostack));
                if now == old { Ok(now) } else { Err(now) }
            }
            #[cfg(not(target_arch = "nvptx64"))]
            word.compare_exchange(old, new, Ordering::$success, Ordering::$failure)
        }
    )*};
}

// A GPU's lane waits for what it stored where a release is.
cas_in_wave! {
    /// Compare-exchange among the lanes of a wave. Relaxed.
    cas_in_wave "atom.relaxed.cta.cas.b32" Relaxed Relaxed;
    /// Compare-exchange among the lanes of a wave. Acquire.
    acquire_in_wave "atom.acquire.cta.cas.b32" Acquire Acquire;
    /// Compare-exchange among the lanes of a wave. Release; relaxed where it fails.
    release_in_wave "atom.release.cta.cas.b32" Release Relaxed;
}

/// Acquire, among the lanes of a wave.
#[inline(always)]
pub(crate) fn load_in_wave(word: &AtomicU32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as for `cas_on_device`.
    unsafe {
        let value: u32;
        core::arch::asm!("ld.acquire.cta.b32 {value}, [{at}];",
            at = in(reg64) word, value = out(reg32) value, options(nostack));
        value
    }
    #[cfg(not(target_arch = "nvptx64"))]
    word.load(Ordering::Acquire)
}

/// Release, among the lanes of a wave.
#[inline(always)]
pub(crate) fn store_in_wave(word: &AtomicU32, value: u32) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as for `cas_on_device`.
    unsafe {
        core::arch::asm!("st.release.cta.b32 [{at}], {value};",
            at = in(reg64) word, value = in(reg32) value, options(nostack));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    word.store(value, Ordering::Release);
}

/// Sets bits among the lanes of a wave and returns those before. Acquire and release.
#[inline(always)]
pub(crate) fn or_in_wave(word: &AtomicU64, bits: u64) -> u64 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as for `cas_on_device`.
    unsafe {
        let old: u64;
        core::arch::asm!("atom.acq_rel.cta.or.b64 {old}, [{at}], {bits};",
            at = in(reg64) word, bits = in(reg64) bits, old = out(reg64) old, options(nostack));
        old
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let mut old = word.load(Ordering::Relaxed);
        while let Err(now) = word.compare_exchange(old, old | bits, Ordering::AcqRel, Ordering::Relaxed) {
            old = now;
        }
        old
    }
}

/// Adds among the lanes of a wave. Relaxed.
#[inline(always)]
pub(crate) fn add_in_wave(word: &AtomicU32, value: u32) {
    let mut old = word.load(Ordering::Relaxed);
    while let Err(now) = cas_in_wave(word, old, old.wrapping_add(value)) {
        old = now;
    }
}
