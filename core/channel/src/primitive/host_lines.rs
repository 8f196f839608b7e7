//! What the host does with whole lines of words: comparing, gathering bits, copying, and asking for them ahead.

use super::{AtomicU32, AtomicU64, Ordering};

/// Copies bytes from or to memory that host and device share. The bytes that others write meanwhile are old,
/// new, or some of both: bytes of messages have no laps.
///
/// # Safety
/// `from` is valid for reads of `count` bytes, `to` for writes, and they do not overlap.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline(always)]
pub(crate) unsafe fn copy_shared(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: by the caller's promise; `asm!` may access memory that others write, and the direction flag is
    // clear.
    unsafe {
        core::arch::asm!("rep movsb", inout("rcx") count => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags));
    }
}

/// The top bits of eight words, each loaded whole and relaxed; bit `i` is word `i`'s.
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
#[inline(always)]
pub(crate) fn signs(line: &[AtomicU64; 8]) -> u8 {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
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
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    line.iter()
        .enumerate()
        .fold(0, |mask, (i, word)| mask | ((word.load(Ordering::Relaxed) >> 63) as u8) << i)
}

/// The lowest bits of the first 16 words, each loaded whole and relaxed; bit `i` is word `i`'s. Words that do not exist
/// have none.
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
#[inline(always)]
pub(crate) fn low_bits(words: &[AtomicU32]) -> u16 {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    if let Some(line) = words.first_chunk::<16>() {
        let bits: u32;
        // SAFETY: the line is 64 readable bytes; SSE2 is part of x86-64, and its loads do not tear words that
        // are aligned to four bytes. `asm!` may read memory that others write.
        unsafe {
            core::arch::asm!(
                "movdqu {a}, [{line}]", "movdqu {b}, [{line} + 16]",
                "movdqu {c}, [{line} + 32]", "movdqu {d}, [{line} + 48]",
                "pslld {a}, 31", "pslld {b}, 31", "pslld {c}, 31", "pslld {d}, 31",
                "packssdw {a}, {b}", "packssdw {c}, {d}", "packsswb {a}, {c}",
                "pmovmskb {bits:e}, {a}",
                line = in(reg) line.as_ptr(), bits = lateout(reg) bits,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                options(nostack, preserves_flags, readonly));
        }
        return bits as u16;
    }
    let bit = |word: &AtomicU32| (word.load(Ordering::Relaxed) & 1) as u16;
    words.iter().take(16).enumerate().fold(0, |bits, (i, word)| bits | bit(word) << i)
}

/// Eight words of the host's own, aligned as a line of shared ones.
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(crate) struct Line(pub [u64; 8]);

/// Whether eight words, each loaded whole and relaxed, are these.
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
#[inline(always)]
pub(crate) fn are_equal(line: &[AtomicU64; 8], other: &Line) -> bool {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: both are 64 readable bytes at a multiple of 16; the rest as for `signs`.
    unsafe {
        let equal: u32;
        core::arch::asm!(
            "movdqa {a}, [{line}]", "pcmpeqd {a}, [{other}]",
            "movdqa {b}, [{line} + 16]", "pcmpeqd {b}, [{other} + 16]", "pand {a}, {b}",
            "movdqa {b}, [{line} + 32]", "pcmpeqd {b}, [{other} + 32]", "pand {a}, {b}",
            "movdqa {b}, [{line} + 48]", "pcmpeqd {b}, [{other} + 48]", "pand {a}, {b}",
            "pmovmskb {equal:e}, {a}",
            line = in(reg) line.as_ptr(), other = in(reg) other.0.as_ptr(), a = out(xmm_reg) _, b = out(xmm_reg) _,
            equal = out(reg) equal, options(nostack, preserves_flags, readonly));
        equal == 0xffff
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    line.iter().zip(&other.0).all(|(word, other)| word.load(Ordering::Relaxed) == *other)
}

/// Asks for a cache line that will be read soon. Any address will do.
#[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
#[inline(always)]
pub(crate) fn prefetch(line: *const AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch accesses nothing.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// Asks for a cache line that will be stored to soon, for this processor alone. Any address will do.
#[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
#[inline(always)]
pub(crate) fn prefetch_for_write(line: *const AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch accesses nothing; processors that do not know this one do nothing.
    unsafe {
        core::arch::asm!("prefetchw [{at}]", at = in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}
