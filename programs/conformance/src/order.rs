//! What crates that know nothing of devices build on the order of `core`'s atomics.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use hostcall_device::{Global, Lane, kernel};

/// Enough for some lines of a cache.
const WORDS: usize = 64;

/// Words behind a lock as crates have them: it is taken and given back by exchanges.
struct Locked {
    is_taken: AtomicU32,
    /// All are how many had the lock before.
    words: UnsafeCell<[u64; WORDS]>,
    takers: AtomicU64,
}

// SAFETY: only who has taken the lock accesses the words.
unsafe impl Sync for Locked {}

static LOCKED: Locked =
    Locked { is_taken: AtomicU32::new(0), words: UnsafeCell::new([0; WORDS]), takers: AtomicU64::new(0) };

/// A lane of each workgroup takes the lock so many times, and counts the words that are not what the one before has left.
#[kernel]
pub fn locked(lane: &Lane, rounds: u32, wrong: &[Global<u64>]) {
    if lane.local_id() != 0 {
        return;
    }
    let mut count = 0;
    for _ in 0..rounds {
        while LOCKED.is_taken.swap(1, Acquire) != 0 {
            lane.pause();
        }
        // SAFETY: the lock is taken.
        let words = unsafe { &mut *LOCKED.words.get() };
        let before = LOCKED.takers.fetch_add(1, Relaxed);
        count += words.iter().filter(|word| **word != before).count() as u64;
        words.fill(before + 1);
        LOCKED.is_taken.swap(0, Release);
    }
    wrong[lane.global_id()].set(count);
}
