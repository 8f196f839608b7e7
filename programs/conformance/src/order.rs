//! What crates that know nothing of devices build on the order of `core`'s atomics.

use alloc::sync::Arc;
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

/// What workgroups that have an [`Arc`] together tell each other.
enum Told {
    /// Where it lies.
    Place,
    /// In which round.
    Made,
    /// The last round whose last reference was dropped.
    Dropped,
    /// Words that whoever dropped it did not see.
    Missing,
}

/// What the [`Arc`] refers to.
struct Shared<'a> {
    round: u64,
    /// A word of each workgroup's.
    words: [UnsafeCell<u64>; WORDS],
    told: &'a [AtomicU64],
}

// SAFETY: each workgroup accesses a word of its own, until it drops its reference.
unsafe impl Sync for Shared<'_> {}

impl Drop for Shared<'_> {
    /// Whoever drops the last reference sees what the others wrote before they dropped theirs.
    fn drop(&mut self) {
        let missing =
            self.words.iter_mut().map(UnsafeCell::get_mut).filter(|word| **word != self.round).count();
        self.told[Told::Missing as usize].fetch_add(missing as u64, Relaxed);
        self.told[Told::Dropped as usize].store(self.round, Release);
    }
}

/// Lanes of several workgroups, at most [`WORDS`] and all at once on the device, have an `Arc` together, write to it and drop it,
/// so many times. `told` has four words, of which the last counts what whoever dropped it did not see.
#[kernel]
pub fn dropped(lane: &Lane, rounds: u64, told: &[AtomicU64]) {
    let (own, all) = (lane.workgroup()[0] as usize, lane.workgroups()[0] as usize);
    if lane.local_id() != 0 {
        return;
    }
    for round in 1..=rounds {
        if own == 0 {
            let words = core::array::from_fn(|word| UnsafeCell::new(if word < all { 0 } else { round }));
            let shared = Arc::into_raw(Arc::new(Shared { round, words, told }));
            for _ in 1..all {
                // SAFETY: the reference is this lane's.
                unsafe { Arc::increment_strong_count(shared) };
            }
            told[Told::Place as usize].store(shared as u64, Relaxed);
            told[Told::Made as usize].store(round, Release);
        }
        while told[Told::Made as usize].load(Acquire) < round {
            lane.pause();
        }
        let shared = told[Told::Place as usize].load(Relaxed) as *const Shared<'_>;
        // SAFETY: one of as many references as there are workgroups, made above; the buffer outlives the launch.
        let shared = unsafe { Arc::from_raw(shared) };
        // SAFETY: the word is this workgroup's until it drops the reference.
        unsafe { *shared.words[own].get() = round };
        drop(shared);
        while told[Told::Dropped as usize].load(Acquire) < round {
            lane.pause();
        }
    }
}
