//! The two words that the launches of a stream share with the host.

use crate::primitive::{AtomicU64, Ordering};

/// Lets no launch of the stream from `sequence` on begin: the first of the two words at `address`, in memory of the device,
/// becomes the least that a lane asked for. The second is the host's, which no device swaps and so cannot lower in one step.
///
/// # Safety
/// `address` is that of the word of a stream ([`hostcall_abi::launch::LaunchParams::stop_at`]).
pub unsafe fn stop_from(address: u64, sequence: u64) {
    // SAFETY: the caller's promise; the word is accessed atomically, or read by one load.
    let word = unsafe { &*(address as usize as *const AtomicU64) };
    let mut least = word.load(Ordering::Relaxed);
    while sequence < least {
        match word.compare_exchange(least, sequence, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => least = now,
        }
    }
}

/// Whether launch `sequence` of the stream shall not begin, as lanes or the host say. One load, which may come from the cache.
///
/// # Safety
/// As for [`stop_from`].
#[inline(always)]
pub unsafe fn is_stopped(address: u64, sequence: u64) -> bool {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise. Each word of a plain load of two, aligned, is whole on this machine.
    unsafe {
        let (lanes, host): (u64, u64);
        core::arch::asm!("ld.global.v2.b64 {{{lanes}, {host}}}, [{address}];",
            address = in(reg64) address, lanes = out(reg64) lanes, host = out(reg64) host, options(nostack, readonly));
        sequence >= lanes.min(host)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: the caller's promise.
    unsafe {
        let [lanes, host] = &*(address as usize as *const [AtomicU64; 2]);
        sequence >= lanes.load(Ordering::Relaxed).min(host.load(Ordering::Relaxed))
    }
}

/// Tells the host that launch `sequence` of the stream posts: a store to the word at `address`, in the host's memory.
///
/// # Safety
/// `address` is that of the word of a stream ([`hostcall_abi::launch::LaunchParams::last_post`]).
#[inline]
pub unsafe fn note_posts(address: u64, sequence: u64) {
    // SAFETY: the caller's promise; the word is accessed atomically.
    unsafe { &*(address as usize as *const AtomicU64) }.store(sequence, Ordering::Relaxed);
}
