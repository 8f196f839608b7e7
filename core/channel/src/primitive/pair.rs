//! Pairs of words in memory that host and device share.

use super::AtomicU64;
#[cfg(not(target_arch = "nvptx64"))]
use super::{Ordering, fence};

/// Stores the two words of a pair. Each word is stored whole; the pair may be seen half.
#[inline(always)]
pub(crate) fn store_pair(at: &[AtomicU64; 2], pair: [u64; 2]) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: `at` is 16-byte aligned (pairs lie at even words of a 64-byte aligned region) and valid for
    // writes of two words; a relaxed vector store is two relaxed stores of a word each.
    unsafe {
        core::arch::asm!("st.relaxed.sys.global.v2.b64 [{at}], {{{a}, {b}}};",
            at = in(reg64) at.as_ptr(), a = in(reg64) pair[0], b = in(reg64) pair[1], options(nostack));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        at[0].store(pair[0], Ordering::Relaxed);
        at[1].store(pair[1], Ordering::Relaxed);
    }
}

/// Loads the words of a pair by an instruction of NVIDIA's, or relaxed.
macro_rules! load_pair_by {
    ($instruction:literal, $at:expr) => {{
        let at: &[AtomicU64; 2] = $at;
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: as for `store_pair`, for reads.
        unsafe {
            let (a, b);
            core::arch::asm!(concat!($instruction, " {{{a}, {b}}}, [{at}];"),
                at = in(reg64) at.as_ptr(), a = out(reg64) a, b = out(reg64) b, options(nostack));
            [a, b]
        }
        #[cfg(not(target_arch = "nvptx64"))]
        [at[0].load(Ordering::Relaxed), at[1].load(Ordering::Relaxed)]
    }};
}

/// Loads the two words of a pair, each whole.
#[inline(always)]
pub(crate) fn load_pair(at: &[AtomicU64; 2]) -> [u64; 2] {
    load_pair_by!("ld.relaxed.sys.global.v2.b64", at)
}

/// Does what [`load_pair`] does. What the host wrote before it wrote the pair is visible after this and
/// [`end_acquire`].
#[inline(always)]
pub(crate) fn acquire_pair(at: &[AtomicU64; 2]) -> [u64; 2] {
    load_pair_by!("ld.acquire.sys.global.v2.b64", at)
}

/// Comes once after an [`acquire_pair`] that has loaded what is new. A fence of NVIDIA's takes a thousand cycles; for others a
/// load that acquires is no cheaper, and there are many before the last.
#[inline(always)]
pub(crate) fn end_acquire() {
    #[cfg(not(target_arch = "nvptx64"))]
    fence(Ordering::Acquire);
}
