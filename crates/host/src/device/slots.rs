//! Which slots a launch gets: a range of its own for as long as it runs.

use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};

/// Ranges start at multiples of this: a word of the pool's bitmap, and whole lines of doorbells.
pub(crate) const GRANULE: u32 = 64;

/// Slots of each launch for calls that are waited for later, before those of its waves.
pub(crate) const POOL_SLOTS: u32 = 64;

/// The free slots of a channel.
pub(crate) struct SlotAllocator {
    slots: u32,
    /// Taken ranges, in order.
    taken: Mutex<Vec<Range<u32>>>,
    freed: Condvar,
}

impl SlotAllocator {
    pub fn new(slots: u32) -> Self {
        Self { slots: slots / GRANULE * GRANULE, taken: Mutex::default(), freed: Condvar::new() }
    }

    /// Most wave slots that one launch can get.
    pub fn most_waves(&self) -> u32 {
        self.slots.saturating_sub(POOL_SLOTS)
    }

    /// Takes slots for up to `waves` waves and the pool; waits until there are some for `at_least` waves.
    ///
    /// A launch gets no more than half of what is free when it would leave others without, so that launches
    /// of other streams can begin beside it.
    pub fn take(&self, waves: u64, at_least: u32) -> Range<u32> {
        let waves = u32::try_from(waves).unwrap_or(u32::MAX).min(self.most_waves());
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut start = 0;
            let mut best = 0..0;
            for range in taken.iter().cloned().chain(std::iter::once(self.slots..self.slots)) {
                if range.start - start > best.end - best.start {
                    best = start..range.start;
                }
                start = range.end;
            }
            let free = best.len() as u32;
            let enough = POOL_SLOTS + waves;
            let whole = enough.next_multiple_of(GRANULE);
            let half = (free / 2 / GRANULE * GRANULE).max((POOL_SLOTS + at_least).next_multiple_of(GRANULE));
            let len = if whole <= half || taken.is_empty() { whole } else { half };
            if len <= free {
                let range = best.start..best.start + len;
                let at = taken.partition_point(|other| other.start < range.start);
                taken.insert(at, range.clone());
                return range;
            }
            taken = self.freed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn give_back(&self, range: &Range<u32>) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).retain(|taken| taken != range);
        self.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_apart_and_come_back() {
        let slots = SlotAllocator::new(1024);
        let first = slots.take(1, 1);
        assert_eq!(first, 0..128);
        let second = slots.take(10_000, 4);
        assert_eq!(second, 128..128 + 448);
        let third = slots.take(10_000, 1);
        assert!(third.start >= second.end);
        slots.give_back(&second);
        assert_eq!(slots.take(100, 1), 128..320);
    }

    #[test]
    fn one_launch_alone_gets_all() {
        let slots = SlotAllocator::new(1024);
        assert_eq!(slots.take(10_000, 1), 0..1024);
    }
}
