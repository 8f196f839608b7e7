//! Home slots while no wave has them, and who has them.
//!
//! What a slot's next holder takes over lies in one word, in which a wave that claims the slot leaves [`kept::HELD`]: one exchange
//! claims it and brings its state. A state that does not fit lies beside the word ([`kept::APART`]).

use super::kept::Kept;
use super::state::{LapRows, SlotState, copy_laps};
use crate::primitive::{
    AtomicU64, Ordering, Owned, fence_on_device, load_four, load_places, load_two, put_word, store_four,
    take_word,
};
#[cfg(not(loom))]
use hostcall_abi::layout::{HOME_SLOT_BYTES, HomeSlotWords};
use hostcall_abi::layout::{SlotPlaces, kept};

/// A home slot's word and what lies beside it: [`hostcall_abi::layout::HomeSlotWords`], field for field.
#[repr(C, align(32))]
pub struct HomeSlot {
    kept: AtomicU64,
    reserved: u64,
    places: Owned<SlotPlaces>,
    region: [Owned<u64>; 2],
    first: [Owned<u32>; 4],
    request_laps: LapRows,
    reply_laps: LapRows,
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<HomeSlot>() == HOME_SLOT_BYTES);
    assert!(offset_of!(HomeSlot, region) == offset_of!(HomeSlotWords, region));
    assert!(offset_of!(HomeSlot, places) == offset_of!(HomeSlotWords, places));
    assert!(offset_of!(HomeSlot, first) == offset_of!(HomeSlotWords, first));
    assert!(offset_of!(HomeSlot, reply_laps) == offset_of!(HomeSlotWords, reply_laps));
};

/// Where a slot's words are.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub places: SlotPlaces,
    /// Address of the channel's memory, and its words.
    pub region: [u64; 2],
}

/// A slot that a wave has just claimed.
pub(super) struct Claimed<'m> {
    pub slot: u32,
    home: &'m HomeSlot,
    kept: u64,
    /// Read while the exchange is on its way: before the slot is claimed, so that it may be another's. Elsewhere it is read
    /// later, because it would travel by the stack.
    #[cfg(target_arch = "nvptx64")]
    place: Place,
}

impl Claimed<'_> {
    /// Where the slot's words are.
    #[inline(always)]
    pub fn place(&self) -> Place {
        #[cfg(target_arch = "nvptx64")]
        return self.place;
        #[cfg(not(target_arch = "nvptx64"))]
        self.home.place()
    }

    /// Makes `state` that of the slot's new holder. No owner is published, and nothing was posted.
    ///
    /// # Safety
    /// SLOT-OWNER: the calling lane has claimed the slot, and has the state for itself.
    #[inline(always)]
    pub unsafe fn take_over(&self, state: &SlotState) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.kept & kept::APART == 0 {
                state.take_over(self.kept, &Kept::unpack(self.kept, self.place().places.ring_entries));
            } else {
                self.home.take_over_apart(state);
            }
        }
    }
}

impl HomeSlot {
    /// All of a channel's, which nobody ever had.
    #[cfg(test)]
    pub(crate) fn all(region: crate::Region<'_>) -> alloc::vec::Vec<Self> {
        let (address, count) = region.words().address();
        let word = |_| Owned::new(0);
        let home = |slot| Self {
            kept: AtomicU64::new(0),
            reserved: 0,
            places: Owned::new(region.sizes().slot(slot)),
            region: [Owned::new(address), Owned::new(count)],
            first: core::array::from_fn(word),
            request_laps: core::array::from_fn(|_| core::array::from_fn(word)),
            reply_laps: core::array::from_fn(|_| core::array::from_fn(word)),
        };
        (0..region.layout().home_slots).map(home).collect()
    }

    /// Whether a wave has the slot.
    #[cfg(all(test, loom))]
    pub(crate) fn is_claimed(&self) -> bool {
        self.kept.load(Ordering::Relaxed) == kept::HELD
    }

    #[inline(always)]
    fn place(&self) -> Place {
        // SAFETY: SLOT-OWNER: these never change.
        unsafe { Place { places: load_places(&self.places), region: load_two(&self.region) } }
    }

    /// Makes `state` that of the slot's new holder, of a state that lies beside the word.
    ///
    /// # Safety
    /// As for [`Claimed::take_over`].
    #[inline(always)]
    unsafe fn take_over_apart(&self, state: &SlotState) {
        // Pairs with the release in `give_back`, which later changes of the word carry on (`put_word`).
        fence_on_device(Ordering::Acquire);
        // SAFETY: the caller's promise.
        unsafe {
            let first = load_four(&self.first);
            copy_laps([&self.request_laps, &self.reply_laps], [&state.request_laps, &state.reply_laps]);
            state.begin(Kept::begin_first(first), kept::UPPER_UNKNOWN);
        }
    }

    /// Gives the slot to whoever claims it next, with what it takes over in a word. All accesses through the slot are over.
    #[inline(always)]
    pub(super) fn give_back_packed(&self, word: u64) {
        put_word(&self.kept, word);
    }

    /// Gives the slot to whoever claims it next, after all that the calling lane has stored and looked at. The state need not
    /// fit a word.
    ///
    /// # Safety
    /// SLOT-OWNER: the calling lane has claimed the slot, and has the state for itself.
    pub(super) unsafe fn give_back(&self, state: &SlotState, ring: u32) {
        // SAFETY: the caller's promise.
        let kept = unsafe { state.kept() };
        let (mut word, fits) = kept.pack(ring);
        // Rounded up again and again by waves that post, the ring would be full before it is.
        if !(fits && kept.is_exact()) {
            word = kept::APART;
            // SAFETY: the caller's promise.
            unsafe {
                store_four(&self.first, load_four(&state.first));
                copy_laps([&state.request_laps, &state.reply_laps], [&self.request_laps, &self.reply_laps]);
            }
        }
        fence_on_device(Ordering::Release);
        put_word(&self.kept, word);
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
    /// Of what the slot's last holder did before it gave the slot back at once, nothing is left to wait for: the host saw all
    /// that it stored, and the word has its state. Any other holder has waited itself ([`HomeSlot::give_back`]).
    #[inline(always)]
    pub(super) fn claim(&self, proposed: u32) -> Option<Claimed<'m>> {
        let count = self.slots.len() as u32;
        // Others are strewn over all slots: a remainder takes a GPU long.
        let strewn = || ((u64::from(proposed.wrapping_mul(0x9E37_79B9)) * u64::from(count)) >> 32) as u32;
        let first = if proposed < count { proposed } else { strewn() };
        let mut slot = first;
        loop {
            let home = self.slots.get(slot as usize)?;
            let kept = take_word(&home.kept, kept::HELD);
            #[cfg(target_arch = "nvptx64")]
            let place = home.place();
            if kept != kept::HELD {
                return Some(Claimed {
                    slot,
                    home,
                    kept,
                    #[cfg(target_arch = "nvptx64")]
                    place,
                });
            }
            slot = if slot + 1 < count { slot + 1 } else { 0 };
            if slot == first {
                return None;
            }
        }
    }

    /// Makes a slot that nobody uses one that nobody ever had.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    pub(super) fn forget(&self, slot: u32) {
        if let Some(home) = self.get(slot) {
            home.give_back_packed(0);
        }
    }
}
