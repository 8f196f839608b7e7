//! What crates that know nothing of devices build on the order of `core`'s atomics.

use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
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

/// What an [`Arc`] of several workgroups refers to.
struct Shared {
    round: u64,
    /// A word of each workgroup's.
    words: [UnsafeCell<u64>; WORDS],
}

impl Drop for Shared {
    /// Whoever drops the last reference sees what the others wrote before they dropped theirs.
    fn drop(&mut self) {
        let missing =
            self.words.iter_mut().map(UnsafeCell::get_mut).filter(|word| **word != self.round).count();
        MISSING.fetch_add(missing as u64, Relaxed);
        DROPPED.store(self.round, Release);
    }
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());
static PUBLISHED: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static MISSING: AtomicU64 = AtomicU64::new(0);

/// Lanes of several workgroups, at most [`WORDS`] and all at once on the device, have an `Arc` together, write to it and drop it,
/// so many times. Counts what whoever dropped the last did not see.
#[kernel]
pub fn dropped(lane: &Lane, rounds: u64, missing: &[Global<u64>]) {
    let (own, all) = (lane.workgroup()[0] as usize, lane.workgroups()[0] as usize);
    if lane.local_id() != 0 {
        return;
    }
    for round in 1..=rounds {
        if own == 0 {
            let words = core::array::from_fn(|word| UnsafeCell::new(if word < all { 0 } else { round }));
            let shared = Arc::into_raw(Arc::new(Shared { round, words }));
            for _ in 1..all {
                // SAFETY: the reference is this lane's.
                unsafe { Arc::increment_strong_count(shared) };
            }
            SHARED.store(shared.cast_mut(), Relaxed);
            PUBLISHED.store(round, Release);
        }
        while PUBLISHED.load(Acquire) < round {
            lane.pause();
        }
        // SAFETY: one of as many references as there are workgroups, made above.
        let shared = unsafe { Arc::from_raw(SHARED.load(Relaxed)) };
        // SAFETY: the word is this workgroup's until it drops the reference.
        unsafe { *shared.words[own].get() = round };
        drop(shared);
        while DROPPED.load(Acquire) < round {
            lane.pause();
        }
    }
    if own == 0 {
        missing[0].set(MISSING.load(Relaxed));
    }
}
