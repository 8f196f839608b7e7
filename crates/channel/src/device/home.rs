//! Home slots while no wave has them, and who has them.

use super::state::{LapRows, Lasting, SlotState};
use crate::primitive::{AtomicU64, Owned, claim_word, load_places, release_word};
#[cfg(not(loom))]
use hostcall_abi::layout::{HOME_SLOT_BYTES, HomeSlotWords};
use hostcall_abi::layout::{NO_PERIOD, SlotPlaces, bell_bits};

/// A home slot's claim word and what its next holder takes over: [`hostcall_abi::layout::HomeSlotWords`], field for field.
#[repr(C, align(32))]
pub struct HomeSlot {
    claim: AtomicU64,
    post_position_told: Owned<u32>,
    post_position_announced: Owned<u32>,
    first: [Owned<u32>; 4],
    request_laps: LapRows,
    reply_laps: LapRows,
    places: Owned<SlotPlaces>,
    region: Owned<u64>,
    region_words: Owned<u64>,
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<HomeSlot>() == HOME_SLOT_BYTES);
    assert!(offset_of!(HomeSlot, first) == offset_of!(HomeSlotWords, first));
    assert!(offset_of!(HomeSlot, reply_laps) == offset_of!(HomeSlotWords, reply_laps));
    assert!(offset_of!(HomeSlot, places) == offset_of!(HomeSlotWords, places));
    assert!(offset_of!(HomeSlot, region) == offset_of!(HomeSlotWords, region));
};

impl HomeSlot {
    /// All of a channel's, which nobody ever had.
    #[cfg(test)]
    pub(crate) fn all(region: crate::Region<'_>) -> alloc::vec::Vec<Self> {
        let (address, count) = region.words().address();
        let word = |_| Owned::new(0);
        let home = |slot| Self {
            claim: AtomicU64::new(0),
            post_position_told: word(0),
            post_position_announced: word(0),
            first: core::array::from_fn(word),
            request_laps: core::array::from_fn(|_| core::array::from_fn(word)),
            reply_laps: core::array::from_fn(|_| core::array::from_fn(word)),
            places: Owned::new(region.sizes().slot(slot)),
            region: Owned::new(address),
            region_words: Owned::new(count),
        };
        (0..region.layout().home_slots).map(home).collect()
    }

    /// Whether a wave has the slot.
    #[cfg(all(test, loom))]
    pub(crate) fn is_claimed(&self) -> bool {
        self.claim.load(crate::primitive::Ordering::Relaxed) != 0
    }

    #[inline(always)]
    fn lasting(&self) -> Lasting<'_> {
        Lasting {
            first: &self.first,
            post_position_told: &self.post_position_told,
            post_position_announced: &self.post_position_announced,
            request_laps: &self.request_laps,
            reply_laps: &self.reply_laps,
        }
    }

    /// Where the slot's words are, and the address and the words of the channel's memory.
    ///
    /// # Safety
    /// SLOT-OWNER: the calling lane has claimed the slot.
    #[inline(always)]
    pub(super) unsafe fn place(&self) -> (SlotPlaces, u64, u64) {
        // SAFETY: the caller's promise.
        unsafe { (load_places(&self.places), self.region.get(), self.region_words.get()) }
    }

    /// Makes `state` that of the slot's new holder. No owner is published, and nothing was posted.
    ///
    /// # Safety
    /// SLOT-OWNER: the calling lane has claimed the slot, and has the state for itself.
    #[inline(always)]
    pub(super) unsafe fn take_over(&self, state: &SlotState) {
        // SAFETY: the caller's promise.
        unsafe {
            self.lasting().copy_to(state.lasting(), bell_bits::OWNER_DUE, NO_PERIOD);
            state.begin();
        }
    }

    /// Keeps the state of the slot's holder for the next one.
    ///
    /// # Safety
    /// SLOT-OWNER: the calling lane has both for itself, and every call of the slot was answered.
    #[inline(always)]
    pub(super) unsafe fn keep(&self, state: &SlotState) {
        // SAFETY: the caller's promise.
        unsafe { state.lasting().copy_to(self.lasting(), 0, 0) };
    }

    /// Makes the slot one that nobody ever had, but for who has it now.
    ///
    /// # Safety
    /// SLOT-OWNER: nobody uses the slot.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    pub(super) unsafe fn clear(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.lasting().clear() };
    }
}

/// A channel's home slots.
#[derive(Clone, Copy)]
pub struct Homes<'m> {
    slots: &'m [HomeSlot],
}

impl<'m> Homes<'m> {
    /// These slots.
    #[cfg(test)]
    pub(crate) fn new(slots: &'m [HomeSlot]) -> Self {
        Self { slots }
    }

    /// So many slots at an address.
    ///
    /// # Safety
    /// SLOT-OWNER: so many [`hostcall_abi::layout::HomeSlotWords`] lie there, in memory of the device that is mapped for
    /// `'m`, and only channels access it.
    #[inline(always)]
    pub unsafe fn from_address(address: u64, count: u32) -> Self {
        // SAFETY: the caller's promise; the types have one layout.
        let slots =
            unsafe { core::slice::from_raw_parts(address as usize as *const HomeSlot, count as usize) };
        Self { slots }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The slot of this index, if there is one.
    #[inline(always)]
    pub(super) fn get(&self, slot: u32) -> Option<&'m HomeSlot> {
        self.slots.get(slot as usize)
    }

    /// Claims the slot `proposed`, or the next one that is free. `None` when none is. Any number proposes a slot.
    ///
    /// Acquire, pairs with [`Homes::release`]: the slot is as its last holder left it.
    #[inline(always)]
    pub(super) fn claim(&self, proposed: u32) -> Option<(u32, &'m HomeSlot)> {
        let count = self.slots.len() as u32;
        let first = if proposed < count { proposed } else { proposed.checked_rem(count)? };
        let mut slot = first;
        loop {
            let home = self.slots.get(slot as usize)?;
            if claim_word(&home.claim) {
                return Some((slot, home));
            }
            slot = if slot + 1 < count { slot + 1 } else { 0 };
            if slot == first {
                return None;
            }
        }
    }

    /// Gives a claimed slot back, after its state was kept.
    #[inline]
    pub(super) fn release(&self, slot: u32) {
        if let Some(home) = self.slots.get(slot as usize) {
            release_word(&home.claim);
        }
    }
}
