//! The atomics, once: `core`'s, or loom's for the model checker.
//!
//! On NVIDIA, `core`'s relaxed loads and stores become `ld.relaxed.sys` and `st.relaxed.sys`: posted writes
//! and reads that the link keeps coherent. Read-modify-writes other than compare-exchange lose their order
//! there and are not used.

#[cfg(all(not(loom), not(any(target_arch = "nvptx64", target_arch = "amdgpu"))))]
pub(crate) use core::sync::atomic::AtomicU8;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

/// A word of the device's own memory that only the slot's holder touches (SLOT-OWNER), so that on a GPU it
/// may stay in the L1 cache, unlike an atomic.
#[repr(transparent)]
pub struct OwnedWord(UnsafeCell<u64>);

#[cfg(not(loom))]
use core::cell::UnsafeCell;
#[cfg(loom)]
use loom::cell::UnsafeCell;

// SAFETY: SLOT-OWNER keeps accesses by several threads apart; the accessors are unsafe and say so.
unsafe impl Sync for OwnedWord {}

impl OwnedWord {
    #[cfg(test)]
    pub(crate) fn new(value: u64) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Reads the word.
    ///
    /// # Safety
    /// SLOT-OWNER: the caller's wave holds the slot, and no other lane writes the word meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn get(&self) -> u64 {
        #[cfg(not(loom))]
        // SAFETY: the caller upholds SLOT-OWNER, so nobody writes now.
        return unsafe { *self.0.get() };
        #[cfg(loom)]
        // SAFETY: as above; loom checks it.
        return self.0.with(|word| unsafe { *word });
    }

    /// Writes the word.
    ///
    /// # Safety
    /// SLOT-OWNER: the caller's wave holds the slot, and no other lane accesses the word meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn set(&self, value: u64) {
        #[cfg(not(loom))]
        // SAFETY: the caller upholds SLOT-OWNER, so nobody else accesses the word now.
        unsafe {
            *self.0.get() = value;
        }
        #[cfg(loom)]
        // SAFETY: as above; loom checks it.
        self.0.with_mut(|word| unsafe { *word = value });
    }
}

/// Stores the two words of a pair. Each word is stored whole; the pair may be seen half.
#[inline(always)]
pub(crate) fn store_pair(at: &[AtomicU64; 2], pair: [u64; 2]) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: `at` is 16-byte aligned (pairs lie at even words of a 64-byte aligned region) and valid for
    // writes of two words; a relaxed vector store is two relaxed stores of a word each.
    unsafe {
        core::arch::asm!("st.relaxed.sys.v2.b64 [{at}], {{{a}, {b}}};",
            at = in(reg64) at.as_ptr(), a = in(reg64) pair[0], b = in(reg64) pair[1], options(nostack));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        at[0].store(pair[0], Ordering::Relaxed);
        at[1].store(pair[1], Ordering::Relaxed);
    }
}

/// Loads the two words of a pair, each whole.
#[inline(always)]
pub(crate) fn load_pair(at: &[AtomicU64; 2]) -> [u64; 2] {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as for `store_pair`, for reads.
    unsafe {
        let (a, b);
        core::arch::asm!("ld.relaxed.sys.v2.b64 {{{a}, {b}}}, [{at}];",
            at = in(reg64) at.as_ptr(), a = out(reg64) a, b = out(reg64) b, options(nostack));
        [a, b]
    }
    #[cfg(not(target_arch = "nvptx64"))]
    [at[0].load(Ordering::Relaxed), at[1].load(Ordering::Relaxed)]
}

/// The top bits of eight words, each loaded whole and relaxed; bit `i` is word `i`'s.
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
#[inline(always)]
pub(crate) fn signs(line: &[AtomicU64; 8]) -> u8 {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: the line is 64 readable bytes at a multiple of 16 (doorbell lines lie at multiples of eight
    // words of a 64-byte aligned region); SSE2 is part of x86-64, and its aligned 16-byte loads do not tear
    // an aligned word. `asm!` may read memory that others write.
    unsafe {
        let (a, b, c, d): (u32, u32, u32, u32);
        core::arch::asm!(
            "movapd {x}, [{line}]", "movapd {y}, [{line} + 16]",
            "movmskpd {a:e}, {x}", "movmskpd {b:e}, {y}",
            "movapd {x}, [{line} + 32]", "movapd {y}, [{line} + 48]",
            "movmskpd {c:e}, {x}", "movmskpd {d:e}, {y}",
            line = in(reg) line.as_ptr(), x = out(xmm_reg) _, y = out(xmm_reg) _,
            a = out(reg) a, b = out(reg) b, c = out(reg) c, d = out(reg) d,
            options(nostack, preserves_flags, readonly));
        (a | b << 2 | c << 4 | d << 6) as u8
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    line.iter()
        .enumerate()
        .fold(0, |mask, (i, word)| mask | ((word.load(Ordering::Relaxed) >> 63) as u8) << i)
}
