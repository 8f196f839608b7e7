//! Where everything lies in a channel's shared memory: plain 64-bit words that both sides reach.
//!
//! | words from | what | writer |
//! |---|---|---|
//! | 0 | nothing | |
//! | 8 | [`header`]: the channel's stop, count of sleeping consumers | host |
//! | 16 | hints of first calls and posts | device |
//! | 64 | cancelled launches, a bit for each index of the table of launches | host |
//! | 2112 | doorbells, one a slot, in lines of [`LINE_WORDS`] | device |
//! | after them | post bells, one word a home slot: the ring position that the wave announced last | device |
//! | after them | tails of the post rings, one word a home slot | host |
//! | after them | owner pairs, one a slot: whose the slot's calls are, see [`crate::word::Owner`] | device |
//! | after them | reply pairs: four planes, each with the slots' pairs one after the other, see [`Spread`] | host |
//! | after them | request pairs, the same | device |
//! | after them | byte areas, one a slot | whoever holds the slot |
//! | after them | large byte areas | whoever holds the area |
//! | after them | post rings of the home slots | device |
//!
//! What belongs to one slot lies apart, by kind: a host that looks after thousands of slots touches few pages.
//!
//! *Home slots* are claimed by waves for as long as they run, *extra slots* (numbered after the home slots) for one call.

mod places;
mod rings;
mod spread;
mod state;
#[cfg(test)]
mod tests;

pub use places::{Places, Sizes, SlotPlaces};
pub use rings::RingEntries;
pub use spread::{LAP_WORDS, Spread};
pub use state::{
    CLAIMING, HOME_SLOT_BYTES, HomeSlotWords, LONE_WAVE, NO_PERIOD, NO_SLOT, OpenPageWords, SLOT_STATE_BYTES,
    SlotStateWords, TAIL_ASKED, WAVE_RECORD_BYTES, WaveRecordWords, bell_bits, kept,
};

/// Words of a 64-byte cache line.
pub const LINE_WORDS: usize = 8;

/// First word of what an image says of a kernel ([`crate::launch::KernelInfo`]): "hostcall" in little-endian ASCII.
pub const MAGIC: u64 = u64::from_le_bytes(*b"hostcall");

/// Most launches that have begun and not ended, on one device.
pub const LAUNCHES: u32 = 1 << 17;

/// Words of the bitmap of cancelled launches.
pub const CANCEL_WORDS: usize = LAUNCHES as usize / 64;

/// Words for hints of first calls and posts.
pub const FIRST_CALL_WORDS: usize = 32;

/// Word offsets of the header's fields.
pub mod header {
    /// Not zero once the host serves no more: waiting lanes give up.
    pub const STOP: usize = 8;
    /// Consumers that sleep: a device in this process wakes them when it rings.
    pub const ASLEEP: usize = 9;
    /// [`super::FIRST_CALL_WORDS`] words, in which waves that make their first call or post leave where their doorbell is
    /// (lower half), and something that differs from the slot's hint before: a hint, since several waves may use one word.
    pub const FIRST_CALLS: usize = 16;
    /// The bitmap of cancelled launches: bit `i` is the launch with index `i`.
    pub const CANCEL: usize = 64;
}

/// Bytes at the start of a loan, memory of the host in which a lane reads a long reply, before the reply: the
/// first word is 0 until the lane has read it.
pub const LOAN_HEADER_BYTES: usize = 64;

const DOORBELLS_AT: usize = header::CANCEL + CANCEL_WORDS;

/// When a post is announced, and how long the host goes on looking for posts that are not.
///
/// A GPU's wave rings its post bell with the first post in each period of the device's clock, and when it waits or ends.
/// The host goes on looking at a ring for longer than that after it saw the bell change or took a post there.
pub mod post_bell {
    /// Period of the device's global clock in which a wave rings at most once, in ns: a power of two.
    pub const PERIOD_NS: u64 = 1 << 13;

    /// How long the host looks at a ring at least after it saw the bell change or took a post there, in ns.
    pub const HOST_LOOKS_NS: u64 = 50_000;

    // A post that is not announced was made within one period after the bell. The rest is for the way over the link, for
    // clocks that go differently, and for a global clock that ticks only every microsecond.
    const _: () = assert!(HOST_LOOKS_NS >= 4 * PERIOD_NS);
    const _: () = assert!(PERIOD_NS.is_power_of_two());
}

/// Home slots of a multiprocessor that differ in nothing but the ring's length: waves of small grids claim those with low
/// numbers, others those of the places that the hardware numbers from 0.
pub const SLOT_GROUP: u32 = 64;

/// The sizes a channel is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Layout {
    /// Slots that waves claim for as long as they run. At least 1.
    pub home_slots: u32,
    /// Slots for single calls. At most [`Layout::MAX_SLOTS`] slots in all.
    pub extra_slots: u32,
    /// Lanes of a wave, 1 to 64 (32 or 64 on a device).
    pub lanes: u32,
    /// Bytes of each slot's byte area: a power of two, at least 64 a lane, at most 1 MiB.
    pub area_bytes: u32,
    /// Large byte areas, which calls with long messages borrow, at most 4096.
    pub large_areas: u32,
    /// Bytes of each large byte area: a power of two, at least [`Layout::area_bytes`], at most 1 MiB.
    pub large_area_bytes: u32,
    /// Lengths of the post rings.
    pub ring_entries: RingEntries,
}

/// Why a [`Layout`] is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// Not 1 to [`Layout::MAX_SLOTS`] slots.
    Slots,
    /// Not 1 to 64 lanes.
    Lanes,
    /// A ring is no power of two from four a lane to 65,536.
    Ring,
    /// A ring is too short for a whole wave's posts of 16 words.
    MessageRing,
    /// The byte areas are no power of two from 64 bytes a lane to 1 MiB, or too many are large.
    Area,
    /// The whole is longer than 32 GiB.
    Words,
}

impl core::fmt::Display for LayoutError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            LayoutError::Slots => "a channel has 1 to 65536 slots in all; ask for fewer",
            LayoutError::Lanes => "a wave has 1 to 64 lanes",
            LayoutError::Ring => {
                "a post ring has a power of two of entries, at least 4 a lane and at most 65536"
            }
            LayoutError::MessageRing => {
                "a ring of a post queue has at least 16 entries for each lane of a wave, so that a wave's longest posts fit"
            }
            LayoutError::Area => {
                "a byte area has a power of two of bytes, at least 64 a lane and at most 1048576; a large one no less; \
                 at most 4096 are large"
            }
            LayoutError::Words => "a channel has at most 32 GiB: take fewer slots or smaller rings",
        })
    }
}

impl core::error::Error for LayoutError {}

impl Layout {
    /// Most slots of a channel.
    pub const MAX_SLOTS: u32 = 65_536;

    /// Home slots only, with rings of one length and no large areas.
    pub const fn small(home_slots: u32, lanes: u32, ring_entries: u32, area_bytes: u32) -> Self {
        Self {
            home_slots,
            extra_slots: 0,
            lanes,
            area_bytes,
            large_areas: 0,
            large_area_bytes: area_bytes,
            ring_entries: RingEntries::all(ring_entries),
        }
    }

    /// Checks that the protocol can carry the sizes, and returns them.
    ///
    /// # Errors
    /// [`LayoutError`] when it cannot.
    pub const fn check(self) -> Result<Self, LayoutError> {
        if self.home_slots == 0
            || self.home_slots > Self::MAX_SLOTS
            || self.extra_slots > Self::MAX_SLOTS - self.home_slots
        {
            return Err(LayoutError::Slots);
        }
        if self.lanes == 0 || self.lanes > 64 {
            return Err(LayoutError::Lanes);
        }
        let rings = [self.ring_entries.first, self.ring_entries.early, self.ring_entries.other];
        let mut i = 0;
        while i < rings.len() {
            if !rings[i].is_power_of_two() || rings[i] < 4 * self.lanes || rings[i] > 65_536 {
                return Err(LayoutError::Ring);
            }
            i += 1;
        }
        if !self.area_bytes.is_power_of_two()
            || self.area_bytes < 64 * self.lanes
            || !self.large_area_bytes.is_power_of_two()
            || self.large_area_bytes < self.area_bytes
            || self.large_area_bytes > 1 << 20
            || self.large_areas > 4096
        {
            return Err(LayoutError::Area);
        }
        if self.words_needed() > u32::MAX as u64 {
            return Err(LayoutError::Words);
        }
        Ok(self)
    }

    /// Words of the region, where they may be more than [`Places`] can say.
    const fn words_needed(&self) -> u64 {
        let lines = self.doorbell_lines() as u64 * LINE_WORDS as u64;
        let home_lines = self.home_slots.div_ceil(LINE_WORDS as u32) as u64 * LINE_WORDS as u64;
        let slots = self.slots() as u64;
        DOORBELLS_AT as u64
            + 3 * lines
            + 2 * home_lines
            + slots * (8 * self.line_stride() + self.area_stride()) as u64
            + self.large_areas as u64 * self.large_area_stride() as u64
            + self.ring_groups() as u64 * self.group_stride() as u64
    }

    /// All slots.
    #[inline(always)]
    pub const fn slots(&self) -> u32 {
        self.home_slots + self.extra_slots
    }

    /// What a slot's places are computed with. The layout passed [`Layout::check`].
    pub const fn places(&self) -> Places {
        let lines = (self.doorbell_lines() * LINE_WORDS) as u32;
        let home_lines = self.home_slots.div_ceil(LINE_WORDS as u32) * LINE_WORDS as u32;
        let plane = self.slots() * self.line_stride();
        let post_bells = DOORBELLS_AT as u32 + lines;
        let ring_tails = post_bells + home_lines;
        let owners = ring_tails + home_lines;
        let replies = owners + 2 * lines;
        let requests = replies + crate::word::MAX_PAIRS as u32 * plane;
        let areas = requests + crate::word::MAX_PAIRS as u32 * plane;
        let large_areas = areas + self.slots() * self.area_stride();
        let rings = large_areas + self.large_areas * self.large_area_stride();
        Places {
            post_bells,
            ring_tails,
            owners,
            replies,
            requests,
            line_stride: self.line_stride(),
            plane,
            areas,
            area_stride: self.area_stride(),
            large_areas,
            large_area_stride: self.large_area_stride(),
            rings,
            ring_group_stride: self.group_stride(),
            words: rings + self.ring_groups() * self.group_stride(),
            reserved: 0,
        }
    }

    /// Lines of [`LINE_WORDS`] doorbells.
    #[inline(always)]
    pub const fn doorbell_lines(&self) -> usize {
        (self.slots() as usize).div_ceil(LINE_WORDS)
    }

    // Odd numbers of cache lines, as for `ring_stride`.

    const fn line_stride(&self) -> u32 {
        ((2 * self.lanes).div_ceil(LINE_WORDS as u32) | 1) * LINE_WORDS as u32
    }

    const fn area_stride(&self) -> u32 {
        self.area_bytes / 8 + LINE_WORDS as u32
    }

    const fn large_area_stride(&self) -> u32 {
        self.large_area_bytes / 8 + LINE_WORDS as u32
    }

    const fn ring_groups(&self) -> u32 {
        self.home_slots.div_ceil(SLOT_GROUP)
    }

    const fn group_stride(&self) -> u32 {
        let last = self.home_slots - 1;
        self.ring_entries.words_before(if last < SLOT_GROUP { last + 1 } else { SLOT_GROUP })
    }

    /// Words of the whole region.
    #[inline(always)]
    pub const fn words(&self) -> usize {
        self.places().words as usize
    }
}

/// Bytes of an area of `area_bytes` that each lane of an `n`-lane byte packet has, lane after lane.
#[inline(always)]
pub const fn area_share(area_bytes: u32, n: u32) -> usize {
    (area_bytes / n.next_power_of_two()) as usize
}

/// Word of the header in which a wave with its doorbell at `doorbell` leaves hints of its first call and post. Waves that run at the
/// same place of several multiprocessors use several.
#[inline(always)]
pub const fn first_call_word(doorbell: u32) -> u32 {
    header::FIRST_CALLS as u32 + (doorbell / SLOT_GROUP + doorbell) % FIRST_CALL_WORDS as u32
}
