//! How long the post rings of home slots are.

use super::{LINE_WORDS, SLOT_GROUP};

/// Of a [`SLOT_GROUP`], the first slots, which have middle-sized rings; slot 0 has the longest.
const EARLY_SLOTS: u32 = 8;

/// Entries of 16 bytes in the post rings of the home slots: powers of two, at least four a lane (a lane's longest
/// post takes three, an owner one), at most 65,536.
///
/// The rings of all waves that post have to stay in the host's cache together (docs/history). One wave a
/// multiprocessor uses the slots with the first number only, some waves those with early numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RingEntries {
    /// Of slots whose number is a multiple of [`SLOT_GROUP`].
    pub first: u32,
    /// Of the seven slots after each of those.
    pub early: u32,
    /// Of all others.
    pub other: u32,
}

impl RingEntries {
    /// Rings of one length.
    pub const fn all(entries: u32) -> Self {
        Self { first: entries, early: entries, other: entries }
    }

    /// Entries of a slot's ring.
    #[inline(always)]
    pub const fn of(&self, slot: u32) -> u32 {
        let at = slot % SLOT_GROUP;
        if at == 0 {
            self.first
        } else if at < EARLY_SLOTS {
            self.early
        } else {
            self.other
        }
    }

    /// Words of the rings of a group before that of its slot `at`.
    pub(super) const fn words_before(&self, at: u32) -> u32 {
        let (early, other) =
            if at <= EARLY_SLOTS { (at.saturating_sub(1), 0) } else { (EARLY_SLOTS - 1, at - EARLY_SLOTS) };
        let first = if at == 0 { 0 } else { ring_stride(self.first) };
        first + early * ring_stride(self.early) + other * ring_stride(self.other)
    }
}

// An odd number of cache lines, so that the same place of many slots does not fall into the same cache sets.
pub(super) const fn ring_stride(entries: u32) -> u32 {
    entries * 2 + LINE_WORDS as u32
}
