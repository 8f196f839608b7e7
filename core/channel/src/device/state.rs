//! What a device remembers of a slot.

use super::kept::Kept;
use crate::primitive::{
    AtomicU32, AtomicU64, Ordering, Owned, load_four, load_four_in_wave, store_four, store_four_in_wave,
};
#[cfg(not(loom))]
use crate::raw::OpenPage;
use hostcall_abi::layout::LAP_WORDS;
#[cfg(not(target_arch = "nvptx64"))]
use hostcall_abi::layout::kept::UPPER_UNKNOWN;
#[cfg(not(loom))]
use hostcall_abi::layout::{SLOT_STATE_BYTES, SlotStateWords};

/// The laps of a direction's pairs, in rows that are read and written at once.
pub(super) type LapRows = [[Owned<u32>; 4]; LAP_WORDS / 4];

/// What the device remembers of a slot: [`hostcall_abi::layout::SlotStateWords`], field for field.
#[repr(C, align(16))]
pub struct SlotState {
    /// Bell, post bell period, post position, post tail seen.
    pub(super) first: [Owned<u32>; 4],
    pub(super) post_position_told: Owned<u32>,
    pub(super) post_position_announced: Owned<u32>,
    pub(super) cancelled: Owned<u32>,
    pub(super) posted: Owned<u32>,
    pub(super) call_lock: AtomicU32,
    pub(super) post_lock: AtomicU32,
    pub(super) holder: Owned<u32>,
    pub(super) reply_pairs: Owned<u32>,
    pub(super) request_laps: LapRows,
    pub(super) reply_laps: LapRows,
    pub(super) raw_states: AtomicU64,
    pub(super) needs_fence: Owned<u32>,
    pub(super) kept_upper: Owned<u32>,
    pub(super) tail_copy: [Owned<u64>; 2],
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<SlotState>() == SLOT_STATE_BYTES);
    assert!(offset_of!(SlotState, cancelled) == offset_of!(SlotStateWords, cancelled));
    assert!(offset_of!(SlotState, call_lock) == offset_of!(SlotStateWords, call_lock));
    assert!(offset_of!(SlotState, holder) == offset_of!(SlotStateWords, holder));
    assert!(offset_of!(SlotState, reply_laps) == offset_of!(SlotStateWords, reply_laps));
    assert!(offset_of!(SlotState, raw_states) == offset_of!(SlotStateWords, raw_states));
    assert!(offset_of!(SlotState, kept_upper) == offset_of!(SlotStateWords, kept_upper));
    assert!(offset_of!(SlotState, tail_copy) == offset_of!(SlotStateWords, tail_copy));
};

impl SlotState {
    #[cfg(test)]
    pub(crate) fn zeroed() -> Self {
        let word = |_| Owned::new(0);
        Self {
            first: core::array::from_fn(word),
            post_position_told: word(0),
            post_position_announced: word(0),
            cancelled: word(0),
            posted: word(0),
            call_lock: AtomicU32::new(0),
            post_lock: AtomicU32::new(0),
            holder: word(0),
            reply_pairs: word(0),
            request_laps: core::array::from_fn(|_| core::array::from_fn(word)),
            reply_laps: core::array::from_fn(|_| core::array::from_fn(word)),
            raw_states: AtomicU64::new(0),
            needs_fence: word(0),
            kept_upper: word(0),
            tail_copy: core::array::from_fn(|_| Owned::new(0)),
        }
    }

    /// After so many entries of the ring were posted, which the host has read.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn after_posts(entries: u32) -> Self {
        let word = Owned::new;
        Self {
            first: [word(0), word(0), word(entries), word(entries)],
            post_position_told: word(entries),
            post_position_announced: word(entries),
            ..Self::zeroed()
        }
    }

    /// A state as a wave's record has it when the wave begins.
    #[cfg(test)]
    pub(crate) fn unclaimed() -> Self {
        let first = hostcall_abi::layout::WaveRecordWords::BEGIN_FIRST;
        Self { first: core::array::from_fn(|i| Owned::new(first[i])), ..Self::zeroed() }
    }

    /// Makes the state that of an extra slot that nobody ever had.
    ///
    /// # Safety
    /// SLOT-OWNER: nobody has the slot.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    pub(super) unsafe fn clear(&self) {
        let words = self.first.iter().chain([&self.post_position_told, &self.post_position_announced]);
        let words =
            words.chain([&self.cancelled, &self.posted, &self.needs_fence, &self.holder, &self.reply_pairs]);
        for word in words.chain(self.request_laps.as_flattened()).chain(self.reply_laps.as_flattened()) {
            // SAFETY: the caller's promise.
            unsafe { word.set(0) };
        }
        self.call_lock.store(0, Ordering::Relaxed);
        self.post_lock.store(0, Ordering::Relaxed);
    }

    /// What of the state of a home slot lasts from holder to holder.
    ///
    /// # Safety
    /// SLOT-OWNER: the calling lane has the state for itself, which is in its wave's record.
    #[inline(always)]
    pub(super) unsafe fn kept(&self) -> Kept {
        // SAFETY: the caller's promise.
        unsafe {
            let laps = |[a, b]: &LapRows| {
                let ([a, b, c, d], [e, f, g, h]) = (load_four_in_wave(a), load_four_in_wave(b));
                [a, b, c, d, e, f, g, h]
            };
            Kept {
                first: load_four_in_wave(&self.first),
                request_laps: laps(&self.request_laps),
                reply_laps: laps(&self.reply_laps),
            }
        }
    }

    /// Whether the host has seen all that the wave has stored through its slot since it claimed it, and answered it, and nothing
    /// else is to be done when the wave ends.
    ///
    /// # Safety
    /// SLOT-OWNER, as above.
    #[inline(always)]
    pub(super) unsafe fn needs_no_fence(&self) -> bool {
        // SAFETY: the caller's promise.
        let done = unsafe { self.posted.get() | self.needs_fence.get() | self.cancelled.get() };
        // Not one after the other: all loads of a GPU's lane are on their way together.
        u64::from(done) | self.raw_states.load(Ordering::Relaxed) == 0
    }

    /// The word for the slot's next holder, and whether it is known without [`Kept::pack`], of a wave that has not posted since it
    /// claimed the slot.
    ///
    /// # Safety
    /// SLOT-OWNER, as for [`SlotState::kept`].
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    pub(super) unsafe fn known_word(&self) -> (u64, bool) {
        // SAFETY: the caller's promise.
        let (upper, position) = unsafe { (self.kept_upper.get(), self.first[POST_POSITION].get()) };
        (u64::from(upper) << 32 | u64::from(position), upper & UPPER_UNKNOWN == 0)
    }

    /// Makes the state that of a home slot's new holder, which takes over the word `word` with what was kept.
    ///
    /// # Safety
    /// As for [`SlotState::begin`].
    #[inline(always)]
    pub(super) unsafe fn take_over(&self, word: u64, kept: &Kept) {
        let store_laps = |[first, second]: &LapRows, [a, b, c, d, e, f, g, h]: [u32; LAP_WORDS]| {
            // SAFETY: the caller's promise.
            unsafe {
                store_four_in_wave(first, [a, b, c, d]);
                store_four_in_wave(second, [e, f, g, h]);
            }
        };
        // SAFETY: the caller's promise.
        unsafe { self.begin(kept.first, (word >> 32) as u32) };
        store_laps(&self.request_laps, kept.request_laps);
        store_laps(&self.reply_laps, kept.reply_laps);
    }

    /// Makes the state that of a slot's new holder, but for the laps: it takes over `first` and `kept_upper`, nothing was posted, and
    /// nobody has a lock.
    ///
    /// # Safety
    /// SLOT-OWNER: the calling lane has the state for itself, which is in its wave's record.
    #[inline(always)]
    pub(super) unsafe fn begin(&self, first: [u32; 4], kept_upper: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            store_four_in_wave(&self.first, first);
            // The holder before has told the host of all its posts, and this one's calls need not wait for them.
            self.post_position_told.set(first[POST_POSITION]);
            self.post_position_announced.set(first[POST_POSITION]);
            self.cancelled.set(0);
            self.posted.set(0);
            self.needs_fence.set(0);
            self.kept_upper.set(kept_upper);
        }
        self.raw_states.store(0, Ordering::Relaxed);
        // A GPU's wave finds in its record what lay in that memory before, but for what calls and posts look at before there is
        // a slot. Elsewhere the record is made whole.
        #[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
        {
            self.call_lock.store(0, Ordering::Relaxed);
            self.post_lock.store(0, Ordering::Relaxed);
        }
    }

    /// Closes the pages of raw channels that the wave has open, of which its record may have one.
    ///
    /// # Safety
    /// SLOT-OWNER: the calling lane has the state for itself, and all other lanes of the wave have ended.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) unsafe fn close_raw(&self, open_page: &OpenPage) {
        let first = self.raw_states.load(Ordering::Relaxed);
        if first != 0 {
            // SAFETY: the caller's promise; the host keeps the channels while a launch that has them runs.
            unsafe {
                open_page.give_back();
                crate::raw::close_all(first);
            }
        }
    }
}

/// Copies the laps of both directions. All loads are on their way together, since each takes a GPU some hundred nanoseconds; but on
/// AMD row by row: LLVM 22 compiled it wrongly where all was read first, and lanes lost the address of their arguments.
///
/// # Safety
/// SLOT-OWNER: nobody else accesses either now.
#[inline(always)]
pub(super) unsafe fn copy_laps([request, reply]: [&LapRows; 2], [to_request, to_reply]: [&LapRows; 2]) {
    // SAFETY: the caller's promise.
    unsafe {
        if cfg!(target_arch = "amdgpu") {
            store_four(&to_request[0], load_four(&request[0]));
            store_four(&to_request[1], load_four(&request[1]));
            store_four(&to_reply[0], load_four(&reply[0]));
            store_four(&to_reply[1], load_four(&reply[1]));
        } else {
            let (request, reply) = (load_laps(request), load_laps(reply));
            store_laps(to_request, &request);
            store_laps(to_reply, &reply);
        }
    }
}

/// Reads the laps of a direction.
///
/// # Safety
/// SLOT-OWNER: nobody writes them now.
#[inline(always)]
unsafe fn load_laps([a, b]: &LapRows) -> [u32; LAP_WORDS] {
    // SAFETY: the caller's promise.
    let ([a, b, c, d], [e, f, g, h]) = unsafe { (load_four(a), load_four(b)) };
    [a, b, c, d, e, f, g, h]
}

/// Writes the laps of a direction.
///
/// # Safety
/// SLOT-OWNER: nobody else accesses them now.
#[inline(always)]
unsafe fn store_laps([first, second]: &LapRows, [a, b, c, d, e, f, g, h]: &[u32; LAP_WORDS]) {
    // SAFETY: the caller's promise.
    unsafe {
        store_four(first, [*a, *b, *c, *d]);
        store_four(second, [*e, *f, *g, *h]);
    }
}

// Places in `SlotState::first`.
pub(super) const BELL: usize = 0;
pub(super) const POST_BELL_PERIOD: usize = 1;
pub(super) const POST_POSITION: usize = 2;
pub(super) const POST_TAIL_SEEN: usize = 3;
