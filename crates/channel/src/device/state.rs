//! What a device remembers of a slot.

use crate::primitive::{AtomicU32, AtomicU64, Ordering, Owned, load_four, store_four};
use hostcall_abi::layout::{LAP_WORDS, bell_bits};
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
    reserved: [u32; 2],
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
            reserved: [0; 2],
        }
    }

    /// A state as a wave's record has it when the wave begins.
    #[cfg(test)]
    pub(crate) fn unclaimed() -> Self {
        let first = hostcall_abi::layout::WaveRecordWords::BEGIN_FIRST;
        Self { first: core::array::from_fn(|i| Owned::new(first[i])), ..Self::zeroed() }
    }

    /// What of the state lasts from holder to holder.
    #[inline(always)]
    pub(super) fn lasting(&self) -> Lasting<'_> {
        Lasting {
            first: &self.first,
            post_position_told: &self.post_position_told,
            post_position_announced: &self.post_position_announced,
            request_laps: &self.request_laps,
            reply_laps: &self.reply_laps,
        }
    }

    /// Makes the state that of an extra slot that nobody ever had.
    ///
    /// # Safety
    /// SLOT-OWNER: nobody has the slot.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    pub(super) unsafe fn clear(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.lasting().clear();
            for word in [&self.cancelled, &self.posted, &self.holder, &self.reply_pairs] {
                word.set(0);
            }
        }
        self.call_lock.store(0, Ordering::Relaxed);
        self.post_lock.store(0, Ordering::Relaxed);
    }

    /// Makes of the state what no holder takes over: nothing was posted, and nobody has a lock.
    ///
    /// # Safety
    /// SLOT-OWNER: the calling lane has the state for itself.
    #[inline(always)]
    pub(super) unsafe fn begin(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.cancelled.set(0);
            self.posted.set(0);
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

    /// Closes the pages of raw channels that the wave has open.
    ///
    /// # Safety
    /// SLOT-OWNER: the calling lane has the state for itself, and all other lanes of the wave have ended.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) unsafe fn close_raw(&self) {
        let first = self.raw_states.load(Ordering::Relaxed);
        if first != 0 {
            // SAFETY: the caller's promise; the host keeps the channels while a launch that has them runs.
            unsafe { crate::raw::close_all(first) };
        }
    }
}

/// What lasts of a slot from holder to holder.
#[derive(Clone, Copy)]
pub(super) struct Lasting<'m> {
    pub first: &'m [Owned<u32>; 4],
    pub post_position_told: &'m Owned<u32>,
    pub post_position_announced: &'m Owned<u32>,
    pub request_laps: &'m LapRows,
    pub reply_laps: &'m LapRows,
}

impl Lasting<'_> {
    /// Copies it. The bell has only the bits of the last doorbell and pair, and `bell`.
    ///
    /// # Safety
    /// SLOT-OWNER: the calling lane has both for itself.
    #[inline(always)]
    pub(super) unsafe fn copy_to(self, to: Lasting<'_>, bell: u32, period: u32) {
        let ([a, b], [c, d]) = (self.request_laps, self.reply_laps);
        let ([to_a, to_b], [to_c, to_d]) = (to.request_laps, to.reply_laps);
        // SAFETY: the caller's promise.
        unsafe {
            let mut first = load_four(self.first);
            first[BELL] = first[BELL] & (bell_bits::LAP | bell_bits::PARITY) | bell;
            first[POST_BELL_PERIOD] = period;
            // LLVM 22 compiles what is below wrongly for AMD: lanes lose the address of their arguments.
            if cfg!(target_arch = "amdgpu") {
                store_four(to.first, first);
                to.post_position_told.set(self.post_position_told.get());
                to.post_position_announced.set(self.post_position_announced.get());
                for (from, to) in [(a, to_a), (b, to_b), (c, to_c), (d, to_d)] {
                    store_four(to, load_four(from));
                }
                return;
            }
            // All is read before anything is written: a GPU has the loads in flight together then, which is not so when each
            // may be of what was just written.
            let (told, announced) = (self.post_position_told.get(), self.post_position_announced.get());
            let laps = (load_four(a), load_four(b), load_four(c), load_four(d));
            store_four(to.first, first);
            to.post_position_told.set(told);
            to.post_position_announced.set(announced);
            store_four(to_a, laps.0);
            store_four(to_b, laps.1);
            store_four(to_c, laps.2);
            store_four(to_d, laps.3);
        }
    }

    /// Makes it that of a slot that nobody ever had.
    ///
    /// # Safety
    /// SLOT-OWNER: nobody has the slot.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    pub(super) unsafe fn clear(self) {
        let words = self.first.iter().chain([self.post_position_told, self.post_position_announced]);
        for word in words.chain(self.request_laps.as_flattened()).chain(self.reply_laps.as_flattened()) {
            // SAFETY: the caller's promise.
            unsafe { word.set(0) };
        }
    }
}

// Places in `SlotState::first`.
pub(super) const BELL: usize = 0;
pub(super) const POST_BELL_PERIOD: usize = 1;
pub(super) const POST_POSITION: usize = 2;
pub(super) const POST_TAIL_SEEN: usize = 3;
