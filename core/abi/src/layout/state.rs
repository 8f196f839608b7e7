//! What a device keeps of slots in memory of its own: the states of slots, and the records of waves.

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
use super::Sizes;
use super::{LAP_WORDS, SlotPlaces};

/// What the device remembers of a slot: of a home slot in the record of the wave that has it, of an extra slot in memory
/// of its own.
///
/// Calls and posts begin with a look at the first 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct SlotStateWords {
    /// [`bell_bits`] of the last doorbell.
    pub bell: u32,
    /// The period of the device's clock in which the post bell was rung last, with [`LONE_WAVE`] in waves of one lane.
    pub post_bell_period: u32,
    /// Low bits of the ring entries reserved, ever.
    pub post_position: u32,
    /// Low bits of the ring entries that the host had taken when the device looked last.
    pub post_tail_seen: u32,
    /// `post_position` when a doorbell of the slot last carried it.
    pub post_position_told: u32,
    /// `post_position` when the post bell was rung last.
    pub post_position_announced: u32,
    /// Not zero when the wave knows that its launch was cancelled.
    pub cancelled: u32,
    /// Not zero once the wave has posted since it claimed the slot: [`TAIL_ASKED`] once [`SlotStateWords::tail_copy`] was asked for.
    pub posted: u32,
    /// Which part of a diverged wave may call: a turn in the lower half, the next to be given out in the upper one.
    pub call_lock: u32,
    /// Not zero while a part of a diverged wave reserves places in the ring.
    pub post_lock: u32,
    /// Extra slots: the home slot of the wave that has the slot, plus one.
    pub holder: u32,
    /// Extra slots: pairs of the reply that the slot's last call waits for.
    pub reply_pairs: u32,
    /// Lap of each request pair's last use, one bit a pair.
    pub request_laps: [u32; LAP_WORDS],
    /// Lap of each reply pair's last use.
    pub reply_laps: [u32; LAP_WORDS],
    /// Address of the first [`crate::raw::RawStateWords`] that the wave has linked, or 0.
    pub raw_states: u64,
    /// Not zero once the wave has sent or read bytes since it claimed the slot, or rang again: its stores and loads may be on
    /// their way when it ends. Until then, and without posts, the host has seen all that the wave has stored through the slot
    /// but hints, and all that it looks at was there.
    pub needs_fence: u32,
    /// The upper half of the word that a home slot's next holder takes over ([`kept`]), while the wave's calls are such that it is
    /// known without making it anew; else [`kept::UPPER_UNKNOWN`] is set.
    pub kept_upper: u32,
    /// Where the 16 bytes around the ring's tail come to that a wave has asked for without waiting.
    pub tail_copy: [u64; 2],
}

/// [`SlotStateWords::posted`] of a wave that has asked how far the host has read its posts.
pub const TAIL_ASKED: u32 = 2;

/// Bits of [`SlotStateWords::bell`].
pub mod bell_bits {
    /// Lap of the last doorbell.
    pub const LAP: u32 = 1 << 31;
    /// Parity of the last owner pair, which each doorbell carries in its lowest bit.
    pub const PARITY: u32 = 1;
    /// The wave has no slot.
    pub const UNCLAIMED: u32 = 2;
    /// The wave has not published an owner pair since it claimed the slot, which it does before its first call.
    pub const OWNER_DUE: u32 = 4;
}

/// The period in which no post bell was rung: no period of a clock has this number.
pub const NO_PERIOD: u32 = u32::MAX;

/// A wave of one lane adds this bit to the period that it remembers, and learns from it at its next post, where it looks at the
/// period in any case, that it is one. Periods have smaller numbers: they come again after 1.5 hours or more, and a wave that
/// posts exactly then, and not before, is heard of when it calls, waits or ends.
pub const LONE_WAVE: u32 = 1 << 30;

/// Bytes of a [`SlotStateWords`].
pub const SLOT_STATE_BYTES: usize = 144;

const _: () = assert!(size_of::<SlotStateWords>() == SLOT_STATE_BYTES);

/// Bits of [`HomeSlotWords::kept`]: what the next holder of a home slot takes over, in one word, so that one exchange claims the
/// slot and brings all of it.
///
/// | bits | field |
/// |---|---|
/// | 63 | [`APART`](kept::APART): it does not fit, and lies beside the word |
/// | 48–62 | laps of reply pairs: those of the first seven places of the first word, that of its others, and one for each other word |
/// | 36–47 | laps of request pairs: the same of the first four places |
/// | 35 | parity of the last owner pair |
/// | 34 | lap of the last doorbell |
/// | 32–33 | quarters of the ring, rounded up, that the device does not know to be free |
/// | 0–31 | low bits of the ring entries reserved, ever |
///
/// The 512 lap bits of a slot compress to 27: a whole wave flips all bits of a word of laps together, so one bit a word is
/// enough; a single lane flips only the first places of the first word, which are kept as they are. What a part of several
/// lanes, or a wave that lacks some, does an odd number of times does not fit.
pub mod kept {
    /// A wave has the slot.
    pub const HELD: u64 = u64::MAX;
    /// The state lies beside the word.
    pub const APART: u64 = 1 << 63;
    /// In the upper half of a word: it is not known.
    pub const UPPER_UNKNOWN: u32 = (APART >> 32) as u32;
    /// First bit of the laps of reply pairs.
    pub const REPLY_LAPS: u32 = 48;
    /// First bit of the laps of request pairs.
    pub const REQUEST_LAPS: u32 = 36;
    /// Bit of the owner pair's parity.
    pub const PARITY: u32 = 35;
    /// Bit of the doorbell's lap.
    pub const LAP: u32 = 34;
    /// First bit of the quarters of the ring.
    pub const QUARTERS: u32 = 32;
    /// Places of the first word of reply laps that have a bit each: those of a lone lane's pairs, which leave out every other.
    pub const REPLY_ALONE: u32 = 7;
    /// The same of request laps.
    pub const REQUEST_ALONE: u32 = 4;
}

/// A home slot while no wave has it: what its next holder takes over, together, so that a claim waits for memory no more
/// often than it must. In memory of the device, where the host writes it before the first launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct HomeSlotWords {
    /// [`kept::HELD`] while a wave has the slot; else what its next holder takes over, see [`kept`]. 0 of a slot that nobody
    /// ever had.
    pub kept: u64,
    /// Zero.
    pub reserved: u64,
    /// Places of the slot. Never changes.
    pub places: SlotPlaces,
    /// Address of the channel's shared memory on the device. Never changes.
    pub region: u64,
    /// Its words. Never changes.
    pub region_words: u64,
    /// With [`kept::APART`]: [`SlotStateWords::bell`], a period that nobody looks at, [`SlotStateWords::post_position`] and
    /// [`SlotStateWords::post_tail_seen`].
    pub first: [u32; 4],
    /// With [`kept::APART`]: see [`SlotStateWords`].
    pub request_laps: [u32; LAP_WORDS],
    /// See above.
    pub reply_laps: [u32; LAP_WORDS],
}

/// Bytes of a [`HomeSlotWords`].
pub const HOME_SLOT_BYTES: usize = 160;

const _: () = assert!(size_of::<HomeSlotWords>() == HOME_SLOT_BYTES);

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
impl HomeSlotWords {
    /// A slot that nobody ever had, of a channel with these sizes at this address.
    pub fn new(sizes: &Sizes, slot: u32, region: u64) -> Self {
        let places = sizes.slot(slot);
        Self { places, region, region_words: sizes.places.words.into(), ..Self::default() }
    }
}

/// What the lanes of one wave share, as it lies in memory: in shared memory on NVIDIA, in the executor's on the software
/// device, beside the workgroup's memory on AMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct WaveRecordWords {
    /// The state of the slot that the wave has.
    pub state: SlotStateWords,
    /// Places of that slot.
    pub places: SlotPlaces,
    /// The slot, [`NO_SLOT`] or [`CLAIMING`].
    pub slot: u32,
    /// Calls that are waited for later ([`SlotStateWords::holder`]) and have not been, and in its upper bits what the wave itself
    /// notes of those that were forgotten.
    pub pending: u32,
    /// Lanes that have ended, one bit a lane.
    pub ended: u64,
    /// The channel's shared memory, once the wave has a slot.
    pub region: u64,
    /// Its words.
    pub region_words: u64,
    /// The page that the wave has open for trace points.
    pub open_page: OpenPageWords,
}

/// What a wave knows of the page that it has open for trace points, as it lies in memory. There is none where `bytes` is 0, or the
/// wave has no slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct OpenPageWords {
    /// Where the page's records begin.
    pub data: u64,
    /// How much is written: a [`Place`](crate::raw::Place).
    pub place: u64,
    /// The state of the channel, [`RawStateWords`](crate::raw::RawStateWords), whose place is behind this one.
    pub state: u64,
    /// The page's bytes.
    pub bytes: u32,
    /// In which period the host was told last.
    pub period: u32,
}

/// A wave's [`WaveRecordWords::slot`] while it has none.
pub const NO_SLOT: u32 = u32::MAX;

/// A wave's [`WaveRecordWords::slot`] while one of its lanes claims one.
pub const CLAIMING: u32 = u32::MAX - 1;

/// Bytes of a [`WaveRecordWords`].
pub const WAVE_RECORD_BYTES: usize = 256;

const _: () = assert!(size_of::<WaveRecordWords>() == WAVE_RECORD_BYTES);

impl WaveRecordWords {
    /// The first 16 bytes of a wave's record when the wave begins: calls find that it has no slot, posts that there is no
    /// room.
    pub const BEGIN_FIRST: [u32; 4] = [bell_bits::UNCLAIMED, NO_PERIOD, 0, 1 << 31];

    /// A wave's record when the wave begins.
    pub const BEGIN: Self = Self {
        state: SlotStateWords {
            bell: Self::BEGIN_FIRST[0],
            post_bell_period: Self::BEGIN_FIRST[1],
            post_position: Self::BEGIN_FIRST[2],
            post_tail_seen: Self::BEGIN_FIRST[3],
            post_position_told: 0,
            post_position_announced: 0,
            cancelled: 0,
            posted: 0,
            call_lock: 0,
            post_lock: 0,
            holder: 0,
            reply_pairs: 0,
            request_laps: [0; LAP_WORDS],
            reply_laps: [0; LAP_WORDS],
            raw_states: 0,
            needs_fence: 0,
            kept_upper: 0,
            tail_copy: [0; 2],
        },
        places: SlotPlaces {
            doorbell: 0,
            request: 0,
            reply: 0,
            plane: 0,
            area: 0,
            area_bytes: 0,
            ring: 0,
            ring_entries: 0,
            post_bell: 0,
            ring_tail: 0,
            owner: 0,
            lanes: 0,
        },
        slot: NO_SLOT,
        pending: 0,
        ended: 0,
        region: 0,
        region_words: 0,
        open_page: OpenPageWords { data: 0, place: 0, state: 0, bytes: 0, period: 0 },
    };
}
