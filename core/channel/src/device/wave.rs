//! A wave's record, and the slot that the wave has.
//!
//! ```text
//!  first call or post           further calls                   the last lane ends
//!  slot's word: state → HELD    (nothing)                       announce posts, wait for forgotten calls
//!  state → the wave's record    calls, posts                    record → state
//!  owner pair, parity flips                                     slot's word: HELD → state
//! ```
//!
//! A wave claims a home slot at its first call or post. One exchange leaves in the slot's word that a wave
//! has it, and brings the slot's state, packed into 64 bits (`abi::layout::kept`). The last of its lanes to
//! end puts the state back. So a slot's state goes from holder to holder, and nothing is done for a wave that
//! never calls. On NVIDIA the wave reads where the slot's words are while the exchange is on its way.
//!
//! A state does not fit one word in two cases: some lanes' laps differ from the others' (a part of the wave
//! called an odd number of times), or posts are still in the ring. Then the state lies next to the word, and
//! the next claim needs a second read.
//!
//! The wave begins with the slot of its place: on NVIDIA that of the hardware's place, or of its number in a
//! grid of one workgroup a multiprocessor at most; on the software device that of its own number. So few
//! slots are used when few waves run.
//!
//! Of a wave that has made only calls of words and has all answers the host has seen everything that it
//! stored. It gives its slot back with one store. If only lone lanes have called, each call has already
//! updated the word to give back (`SlotStateWords::kept_upper`); otherwise the wave computes it now. Any other
//! wave (it posted, sent or read bytes, rang twice, was cancelled: `SlotState::needs_no_fence`) gives the slot
//! back behind a fence, so that nothing of it comes after what the next holder stores.
//!
//! Only when a wave was killed in the middle does the host answer its calls, take the posts in its ring, also
//! those of holders before it, and reset its slot.

use super::bitmap::Pool;
use super::home::{Homes, Place};
use super::slot::Slot;
use super::state::SlotState;
use crate::primitive::{
    AtomicU32, AtomicU64, Ordering, Owned, acquire_in_wave, add_in_wave, cas_in_wave, load_in_wave,
    or_in_wave, release_in_wave, store_in_wave, store_places_in_wave,
};
#[cfg(target_arch = "nvptx64")]
use crate::primitive::{load_four_shared, shared_address};
use crate::raw::OpenPage;
use crate::region::{Region, Words};
#[cfg(not(loom))]
use hostcall_abi::launch::ChannelParams;
#[cfg(target_arch = "nvptx64")]
use hostcall_abi::layout::kept::UPPER_UNKNOWN;
use hostcall_abi::layout::{CLAIMING, NO_SLOT, Sizes, SlotPlaces};
#[cfg(not(loom))]
use hostcall_abi::{
    layout::{WAVE_RECORD_BYTES, WaveRecordWords},
    word::Owner,
};

/// A channel as its device sees it: shared memory, and in the device's own the slots and who has them.
#[derive(Clone, Copy)]
pub struct Channel<'m> {
    region: Words<'m>,
    sizes: &'m Sizes,
    homes: Homes<'m>,
    extra_states: &'m [SlotState],
    extras: Pool<'m>,
    areas: Pool<'m>,
}

impl<'m> Channel<'m> {
    /// A view of a channel's parts: its home slots, a state and a bit for each extra slot, and a bit for each large area.
    ///
    /// # Panics
    /// When there are not as many as the region's layout says.
    pub fn new(
        region: Region<'m>,
        homes: Homes<'m>,
        extra_states: &'m [SlotState],
        extras: &'m [AtomicU64],
        areas: &'m [AtomicU64],
    ) -> Self {
        let layout = *region.layout();
        assert!(
            homes.len() == layout.home_slots as usize && extra_states.len() == layout.extra_slots as usize
        );
        Self {
            region: region.words(),
            sizes: region.sizes(),
            homes,
            extra_states,
            extras: Pool::new(extras, layout.extra_slots),
            areas: Pool::new(areas, layout.large_areas),
        }
    }

    /// The channel of these parameters.
    ///
    /// # Safety
    /// REGION, for the region; the parameters' addresses are those of memory of the device as [`ChannelParams`] says,
    /// mapped for `'m`, and only channels access it.
    #[cfg(not(loom))]
    #[inline(always)]
    pub unsafe fn from_params(params: &'m ChannelParams) -> Self {
        let layout = &params.sizes.layout;
        // SAFETY: the caller's promise; the types have the layouts of the words.
        unsafe {
            Self {
                region: Words::from_address(params.region, params.sizes.places.words),
                sizes: &params.sizes,
                homes: Homes::from_address(params.homes, layout.home_slots),
                extra_states: core::slice::from_raw_parts(
                    params.extra_states as usize as *const SlotState,
                    layout.extra_slots as usize,
                ),
                extras: Pool::from_address(params.extras, layout.extra_slots),
                areas: Pool::from_address(params.areas, layout.large_areas),
            }
        }
    }

    /// The view of the channel's memory.
    #[inline(always)]
    pub fn words(&self) -> Words<'m> {
        self.region
    }

    /// The bitmap of extra slots: index `i` is slot `home_slots + i`.
    #[inline(always)]
    pub fn extras(&self) -> Pool<'m> {
        self.extras
    }

    /// The extra slot of this index.
    ///
    /// # Safety
    /// SLOT-OWNER: the calling lane has the slot from [`Channel::extras`].
    #[inline]
    pub unsafe fn extra(&self, index: u32) -> Slot<'m> {
        let slot = self.sizes.layout.home_slots + index;
        // SAFETY: the caller's promise.
        unsafe { Slot::new(self.region, self.sizes.slot(slot), self.extra_state(index)) }
    }

    /// The state of an extra slot.
    #[inline(always)]
    fn extra_state(&self, index: u32) -> &'m SlotState {
        #[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
        // SAFETY: a device has its extra slots from their bitmap, which the layout gave as many bits as there are states. A
        // check would bring the report of a panic into every kernel.
        return unsafe { self.extra_states.get_unchecked(index as usize) };
        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
        &self.extra_states[index as usize]
    }

    /// The bitmap of large areas.
    #[inline(always)]
    pub fn areas(&self) -> Pool<'m> {
        self.areas
    }

    /// The first word of a large area, and its bytes.
    #[inline]
    pub fn area(&self, area: u32) -> (u32, u32) {
        (self.sizes.places.large_area(area), self.sizes.layout.large_area_bytes)
    }
}

/// What the host does with a device's memory that is its own: a software device's.
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
impl Channel<'_> {
    /// The extra slots that waves with these home slots hold.
    pub fn extras_held_by(&self, homes: &[u32]) -> alloc::vec::Vec<u32> {
        let layout = &self.sizes.layout;
        (0..layout.extra_slots)
            .filter(|index| self.extras.is_taken(*index))
            .filter(|index| {
                // SAFETY: SLOT-OWNER: looks at one word, which says who has the slot.
                let extra = unsafe { self.extra(*index) };
                homes.iter().any(|home| extra.is_held_by(*home))
            })
            .map(|index| layout.home_slots + index)
            .collect()
    }

    /// Makes the device's memory of these slots as if nobody had ever claimed them.
    ///
    /// # Safety
    /// SLOT-OWNER: the waves that claimed them were killed, and nobody else claims them before this returns.
    pub unsafe fn forget(&self, slots: &[u32]) {
        for &slot in slots {
            match slot.checked_sub(self.sizes.layout.home_slots) {
                None => self.homes.forget(slot),
                Some(index) => {
                    // SAFETY: the caller's promise.
                    unsafe { self.extra_state(index).clear() };
                    self.extras.release(index);
                }
            }
        }
    }
}

/// Bits of [`WaveRecord::pending`] beside the number of calls: some of these were forgotten.
const SOME_FORGOTTEN: u32 = 1 << 30;
/// A lane gives slots of forgotten calls back.
const COLLECTING: u32 = 1 << 31;

/// What the lanes of one wave share: [`hostcall_abi::layout::WaveRecordWords`], field for field.
#[repr(C, align(16))]
pub struct WaveRecord {
    state: SlotState,
    /// Written by the lane that claims the slot, before it stores `slot`.
    places: Owned<SlotPlaces>,
    slot: AtomicU32,
    pending: AtomicU32,
    ended: AtomicU64,
    /// As `places`.
    region: Owned<u64>,
    region_words: Owned<u64>,
    open_page: OpenPage,
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<WaveRecord>() == WAVE_RECORD_BYTES);
    assert!(offset_of!(WaveRecord, places) == offset_of!(WaveRecordWords, places));
    assert!(offset_of!(WaveRecord, slot) == offset_of!(WaveRecordWords, slot));
    assert!(offset_of!(WaveRecord, ended) == offset_of!(WaveRecordWords, ended));
    assert!(offset_of!(WaveRecord, region) == offset_of!(WaveRecordWords, region));
    assert!(offset_of!(WaveRecord, open_page) == offset_of!(WaveRecordWords, open_page));
};

impl WaveRecord {
    /// A record as it is when a wave begins.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self {
            state: SlotState::unclaimed(),
            places: Owned::new(SlotPlaces::default()),
            slot: AtomicU32::new(NO_SLOT),
            pending: AtomicU32::new(0),
            ended: AtomicU64::new(0),
            region: Owned::new(0),
            region_words: Owned::new(0),
            open_page: OpenPage::new(),
        }
    }

    /// The slot that the wave has; without one, a slot that calls find unready and posts find full.
    ///
    /// # Safety
    /// SLOT-OWNER, as for [`Slot::new`]; the lane knows of the claim by a wave operation or [`WaveRecord::slot`], and the
    /// channel that the slot was claimed in is mapped for `'m`.
    #[cfg(not(loom))]
    #[inline(always)]
    pub unsafe fn held<'m>(&'m self) -> Slot<'m> {
        // SAFETY: the caller's promise. Without a slot the region has no words, and the places are not used.
        unsafe {
            let places = self.places.get();
            let words = Words::from_address(self.region.get(), self.region_words.get() as u32);
            Slot::new(words, places, &self.state)
        }
    }

    /// Returns the slot that the wave holds, of a channel of loom's.
    ///
    /// # Safety
    /// As above.
    #[cfg(loom)]
    pub unsafe fn held_in<'m>(&'m self, channel: Channel<'m>) -> Slot<'m> {
        // SAFETY: the caller's promise.
        unsafe { Slot::new(channel.region, self.places.get(), &self.state) }
    }

    /// The wave's slot, if it has one. What it was claimed with is visible to the lane then.
    #[inline(always)]
    pub fn slot(&self) -> Option<u32> {
        match load_in_wave(&self.slot) {
            NO_SLOT | CLAIMING => None,
            slot => Some(slot),
        }
    }

    /// The wave's slot; claims one if it has none. `None` while another lane claims one, or no slot is free: ask again.
    /// One lane of a part of the wave asks for its part.
    #[inline(always)]
    pub fn claim(&self, homes: Homes<'_>, proposed: u32) -> Option<u32> {
        self.slot().or_else(|| self.claim_new(homes, proposed, false, |_| {}))
    }

    /// Claims a slot for a wave that has none, of which a part, for which one lane asks, calls at once: whose its calls are is
    /// published, and if it is not all of the wave (`is_whole`), it has the slot for itself until [`Slot::end_turn`]. `false`
    /// where [`WaveRecord::claim`] has to be asked again.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn claim_to_call(&self, homes: Homes<'_>, proposed: u32, is_whole: bool, owner: Owner) -> bool {
        let publish = |Place { places, region: [region, words] }| {
            // SAFETY: SLOT-OWNER: the calling lane has claimed the slot, whose region the channel's host keeps.
            let slot = unsafe { Slot::new(Words::from_address(region, words as u32), places, &self.state) };
            if !is_whole {
                slot.begin_turn();
            }
            slot.publish_owner(owner);
        };
        self.claim_new(homes, proposed, is_whole, publish).is_some()
    }

    /// Claims a slot for a wave that has none, and has it `used` before anybody else knows. `is_alone`: nobody else claims one for
    /// the wave now.
    #[inline(always)]
    fn claim_new(
        &self,
        homes: Homes<'_>,
        proposed: u32,
        is_alone: bool,
        used: impl FnOnce(Place),
    ) -> Option<u32> {
        if !is_alone {
            // Relaxed: what the winner writes is released with the slot.
            cas_in_wave(&self.slot, NO_SLOT, CLAIMING).ok()?;
        }
        let Some(claimed) = homes.claim(proposed) else {
            store_in_wave(&self.slot, NO_SLOT);
            return None;
        };
        let place = claimed.place();
        let Place { places, region: [region, region_words] } = place;
        // SAFETY: SLOT-OWNER: this lane claimed the slot, and while the record says so no other of the wave looks.
        unsafe {
            store_places_in_wave(&self.places, places);
            self.region.set(region);
            self.region_words.set(region_words);
            self.open_page.begin();
            claimed.take_over(&self.state);
        }
        used(place);
        // Release, pairs with the load in `slot`.
        store_in_wave(&self.slot, claimed.slot);
        Some(claimed.slot)
    }

    /// The page that the wave has open for trace points. There is none while it has no slot.
    #[inline(always)]
    pub fn open_page(&self) -> &OpenPage {
        &self.open_page
    }

    /// Counts a call that is waited for later, before it is made.
    #[inline]
    pub fn begin_pending(&self) {
        add_in_wave(&self.pending, 1);
    }

    /// Takes a call back that was waited for.
    #[inline]
    pub fn end_pending(&self) {
        add_in_wave(&self.pending, u32::MAX);
    }

    /// Notes that nobody waits any more for the call of an extra slot that the wave has: [`Self::collect_forgotten`] gives the
    /// slot back once the answer is there, and else [`Self::release`].
    pub fn forget_pending(&self, extra: Slot<'_>) {
        extra.forget();
        let mut old = self.pending.load(Ordering::Relaxed);
        while let Err(now) = release_in_wave(&self.pending, old, old | SOME_FORGOTTEN) {
            old = now;
        }
    }

    /// Gives back the extra slots of forgotten calls whose answers have come. A lane that comes while another one does it does
    /// nothing.
    ///
    /// # Safety
    /// SLOT-OWNER: the calling lane's wave has the record, which has claimed the slot `home` of `channel`.
    pub unsafe fn collect_forgotten(&self, channel: Channel<'_>, home: u32) {
        let old = self.pending.load(Ordering::Relaxed);
        // Acquire pairs with the release of who has forgotten a call.
        if old & (SOME_FORGOTTEN | COLLECTING) != SOME_FORGOTTEN
            || acquire_in_wave(&self.pending, old, old ^ (SOME_FORGOTTEN | COLLECTING)).is_err()
        {
            return;
        }
        let (mut done, mut left) = (0, 0);
        for index in (0..channel.sizes.layout.extra_slots).filter(|index| channel.extras.is_taken(*index)) {
            // SAFETY: SLOT-OWNER: as in `finish_forgotten`; no other lane uses a slot whose call the wave has forgotten.
            let extra = unsafe { channel.extra(index) };
            if !extra.is_forgotten_by(home) {
            } else if extra.is_answered() && !extra.is_lost() {
                extra.clear_holder();
                channel.extras.release(index);
                done += 1;
            } else {
                left = SOME_FORGOTTEN;
            }
        }
        let mut old = self.pending.load(Ordering::Relaxed);
        while let Err(now) = release_in_wave(&self.pending, old, (old & !COLLECTING | left) - done) {
            old = now;
        }
    }

    /// Notes that these lanes end, and returns whether the lanes `all` of the wave have ended. One lane does it for those
    /// that end together; whoever ends last sees what the others did.
    #[inline(always)]
    pub fn end(&self, lanes: u64, all: u64) -> bool {
        (or_in_wave(&self.ended, lanes) | lanes) & all == all
    }

    /// Releases the slot of a wave that has nothing to wait for, and whose state fits a word; `false` of any other. All of its lanes
    /// but the calling one have ended.
    ///
    /// # Safety
    /// As for [`WaveRecord::release`].
    #[inline(always)]
    pub unsafe fn release_at_once(&self, homes: Homes<'_>, slot: u32) -> bool {
        // SAFETY: SLOT-OWNER: the caller's promise.
        let (needs_no_fence, state, ring) =
            unsafe { (self.needs_no_fence(), self.state.kept(), self.places.get().ring_entries) };
        let (word, fits) = state.pack(ring);
        needs_no_fence && fits && self.give_back(homes, slot, word)
    }

    /// Releases the slot as [`WaveRecord::release_at_once`] does, if the word for its next holder is known.
    ///
    /// # Safety
    /// As for [`WaveRecord::release`].
    #[inline(always)]
    pub unsafe fn release_known(&self, homes: Homes<'_>, slot: u32) -> bool {
        // SAFETY: SLOT-OWNER: the caller's promise.
        let (can, word) = unsafe { self.known_word() };
        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
        {
            // SAFETY: SLOT-OWNER: the caller's promise.
            let packed = unsafe { self.state.kept().pack(self.places.get().ring_entries) };
            debug_assert!(!can || packed == (word, true), "the word {word:#x} is not that of {packed:x?}");
        }
        can && self.give_back(homes, slot, word)
    }

    /// The word for the slot's next holder, and whether it is known and there is nothing to wait for.
    ///
    /// # Safety
    /// As for [`SlotState::needs_no_fence`].
    #[cfg(not(target_arch = "nvptx64"))]
    unsafe fn known_word(&self) -> (bool, u64) {
        // SAFETY: the caller's promise.
        let (needs_no_fence, (word, is_known)) = unsafe { (self.needs_no_fence(), self.state.known_word()) };
        (needs_no_fence & is_known, word)
    }

    /// The same in loads of shared memory, of which all are on their way together: a kernel's end is in the kernel.
    ///
    /// # Safety
    /// As for [`SlotState::needs_no_fence`].
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn known_word(&self) -> (bool, u64) {
        use core::mem::offset_of;
        use hostcall_abi::layout::SlotStateWords;
        const ENDS: usize = offset_of!(SlotStateWords, post_position_told);
        const LASTS: usize = offset_of!(SlotStateWords, raw_states);
        const WAITS: usize = offset_of!(WaveRecordWords, slot);
        const {
            assert!(
                offset_of!(SlotStateWords, cancelled) == ENDS + 8
                    && offset_of!(SlotStateWords, posted) == ENDS + 12
            );
            assert!(
                offset_of!(SlotStateWords, needs_fence) == LASTS + 8
                    && offset_of!(SlotStateWords, kept_upper) == LASTS + 12
            );
            assert!(offset_of!(WaveRecordWords, pending) == WAITS + 4);
            // The rows begin at multiples of 16, as the record does.
            assert!(offset_of!(WaveRecordWords, state) == 0 && (ENDS | LASTS | WAITS).is_multiple_of(16));
        }
        // Once, and not the address of each row: what is added to one of 32 bits is part of the load.
        let record = shared_address(self);
        // SAFETY: SLOT-OWNER: the caller's promise. The rows lie in the record, aligned to 16 bytes, and are words.
        let row = |at: usize| unsafe { load_four_shared(record + at as u32) };
        let ([_, _, cancelled, posted], [raw, raw_upper, needs_fence, upper]) = (row(ENDS), row(LASTS));
        let ([_, pending, ..], [_, _, position, _]) = (row(WAITS), row(0));
        let open = cancelled | posted | raw | raw_upper | needs_fence | pending | upper & UPPER_UNKNOWN;
        (open == 0, u64::from(upper) << 32 | u64::from(position))
    }

    /// Whether the wave has nothing to wait for when it ends.
    ///
    /// # Safety
    /// As for [`SlotState::needs_no_fence`].
    #[inline(always)]
    unsafe fn needs_no_fence(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.state.needs_no_fence() & (self.pending.load(Ordering::Relaxed) == 0) }
    }

    /// Gives the slot back with all that its next holder takes over in `word`.
    #[inline(always)]
    fn give_back(&self, homes: Homes<'_>, slot: u32, word: u64) -> bool {
        let Some(home) = homes.get(slot) else { return false };
        home.give_back_packed(word);
        // On a GPU nobody looks at the record of a wave that has ended.
        if !cfg!(any(target_arch = "nvptx64", target_arch = "amdgpu")) {
            store_in_wave(&self.slot, NO_SLOT);
        }
        true
    }

    /// Releases the wave's slot, if it has one. All of its lanes but the calling one have ended.
    ///
    /// Tells the host of the last posts and of what lies in pages of raw channels first, and waits with `wait` (which returns once what it is given is true) for calls
    /// that were started and forgotten.
    ///
    /// # Safety
    /// SLOT-OWNER: nobody else uses the record; `channel` is the one that the slot was claimed in.
    pub unsafe fn release(&self, channel: Channel<'_>, wait: impl FnMut(&mut dyn FnMut() -> bool)) {
        let Some(slot) = self.slot() else { return };
        // SAFETY: the caller's promise.
        let held = unsafe { Slot::new(channel.region, self.places.get(), &self.state) };
        held.announce_posts();
        #[cfg(not(loom))]
        // SAFETY: SLOT-OWNER: the caller's promise.
        unsafe {
            self.state.close_raw(&self.open_page);
        }
        if self.pending.load(Ordering::Relaxed) != 0 {
            self.finish_forgotten(channel, slot, wait);
        }
        if held.is_cancelled() {
            held.look_at_ring_tail();
        }
        if held.is_lost() {
            // The claim stays.
            return;
        }
        if let Some(home) = channel.homes.get(slot) {
            // SAFETY: SLOT-OWNER: the claim is this wave's until then.
            unsafe { home.give_back(&self.state, self.places.get().ring_entries) };
        }
        store_in_wave(&self.slot, NO_SLOT);
    }

    /// Waits for the answers of calls that were started and never waited for, and gives their slots back. Those that the host
    /// never answers keep them: it serves no more.
    #[cold]
    #[inline(never)]
    fn finish_forgotten(
        &self,
        channel: Channel<'_>,
        home: u32,
        mut wait: impl FnMut(&mut dyn FnMut() -> bool),
    ) {
        for index in 0..channel.sizes.layout.extra_slots {
            if !channel.extras.is_taken(index) {
                continue;
            }
            // SAFETY: SLOT-OWNER: of a slot that another wave has, the lane believes only that the holder is another one:
            // no other wave has this home slot.
            let extra = unsafe { channel.extra(index) };
            if !extra.is_held_by(home) || extra.is_lost() {
                continue;
            }
            let mut answered = false;
            wait(&mut || {
                answered = extra.is_answered();
                answered || channel.region.stopped()
            });
            extra.clear_holder();
            if answered {
                channel.extras.release(index);
            }
        }
    }
}
