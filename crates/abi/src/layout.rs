//! Where everything lies in a channel's shared memory: plain 64-bit words that both sides reach.
//!
//! | words from | what | writer |
//! |---|---|---|
//! | 0 | nothing | |
//! | 8 | [`header`]: stop word, count of sleeping consumers | host |
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

pub use state::{
    CLAIMING, HOME_SLOT_BYTES, HomeSlotWords, LONE_WAVE, NO_PERIOD, NO_SLOT, SLOT_STATE_BYTES,
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

/// Of a [`SLOT_GROUP`], the first slots, which have middle-sized rings; slot 0 has the longest.
const EARLY_SLOTS: u32 = 8;

/// Entries of 16 bytes in the post rings of the home slots: powers of two, at least four a lane (a lane's longest
/// post takes three, an owner one), at most 65,536.
///
/// The rings of all waves that post have to stay in the host's cache together (docs/measurements.md). One wave a
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
    const fn words_before(&self, at: u32) -> u32 {
        let (early, other) =
            if at <= EARLY_SLOTS { (at.saturating_sub(1), 0) } else { (EARLY_SLOTS - 1, at - EARLY_SLOTS) };
        let first = if at == 0 { 0 } else { ring_stride(self.first) };
        first + early * ring_stride(self.early) + other * ring_stride(self.other)
    }
}

// An odd number of cache lines, so that the same place of many slots does not fall into the same cache sets.
const fn ring_stride(entries: u32) -> u32 {
    entries * 2 + LINE_WORDS as u32
}

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

    /// The fields in their order.
    pub const fn to_words(&self) -> [u32; 9] {
        let Self { home_slots, extra_slots, lanes, area_bytes, large_areas, large_area_bytes, ring_entries } =
            *self;
        let RingEntries { first, early, other } = ring_entries;
        [home_slots, extra_slots, lanes, area_bytes, large_areas, large_area_bytes, first, early, other]
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

/// The numbers that a slot's places are computed with, so that nobody derives them from the [`Layout`] again. All in
/// words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Places {
    /// The first slot's post bell; those of the other home slots follow, one word each.
    pub post_bells: u32,
    /// The tail of the first slot's post ring; those of the other home slots follow, one word each.
    pub ring_tails: u32,
    /// The first slot's owner pair; the others follow.
    pub owners: u32,
    /// The first slot's reply pairs.
    pub replies: u32,
    /// The first slot's request pairs.
    pub requests: u32,
    /// From one slot's pairs to the next slot's.
    pub line_stride: u32,
    /// From one plane of pairs to the next.
    pub plane: u32,
    /// The first slot's byte area.
    pub areas: u32,
    /// From one slot's byte area to the next.
    pub area_stride: u32,
    /// The first large byte area.
    pub large_areas: u32,
    /// From one large byte area to the next.
    pub large_area_stride: u32,
    /// The first slot's post ring.
    pub rings: u32,
    /// From the rings of one [`SLOT_GROUP`] to those of the next.
    pub ring_group_stride: u32,
    /// The whole region.
    pub words: u32,
    /// Zero.
    pub reserved: u32,
}

/// A layout with the places that follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sizes {
    /// The sizes that were chosen.
    pub layout: Layout,
    /// Their [`Layout::places`].
    pub places: Places,
}

impl From<Layout> for Sizes {
    fn from(layout: Layout) -> Self {
        Self { layout, places: layout.places() }
    }
}

const _: () = assert!(size_of::<Layout>() == 9 * 4 && size_of::<Places>() == 15 * 4);

impl Places {
    /// The fields in their order.
    pub const fn to_words(&self) -> [u32; 15] {
        let Self { post_bells, ring_tails, owners, replies, requests, line_stride, plane, .. } = *self;
        let Self {
            areas,
            area_stride,
            large_areas,
            large_area_stride,
            rings,
            ring_group_stride,
            words,
            reserved,
            ..
        } = *self;
        [
            post_bells,
            ring_tails,
            owners,
            replies,
            requests,
            line_stride,
            plane,
            areas,
            area_stride,
            large_areas,
            large_area_stride,
            rings,
            ring_group_stride,
            words,
            reserved,
        ]
    }

    /// Word of a slot's doorbell.
    #[inline(always)]
    pub const fn doorbell(&self, slot: u32) -> u32 {
        DOORBELLS_AT as u32 + slot
    }

    /// The slot that the word at `at` would be the doorbell of.
    #[inline(always)]
    pub const fn slot_of(&self, at: u32) -> Option<u32> {
        at.checked_sub(DOORBELLS_AT as u32)
    }

    /// Word of a home slot's post bell.
    #[inline(always)]
    pub const fn post_bell(&self, slot: u32) -> u32 {
        self.post_bells + slot
    }

    /// Word of the tail of a home slot's post ring: how many entries the host has taken, ever.
    #[inline(always)]
    pub const fn ring_tail(&self, slot: u32) -> u32 {
        self.ring_tails + slot
    }

    /// First word of a slot's owner pair.
    #[inline(always)]
    pub const fn owner(&self, slot: u32) -> u32 {
        self.owners + 2 * slot
    }

    /// First word of a slot's reply pairs, see [`Spread`].
    #[inline(always)]
    pub const fn reply(&self, slot: u32) -> u32 {
        self.replies + slot * self.line_stride
    }

    /// First word of a slot's request pairs, see [`Spread`].
    #[inline(always)]
    pub const fn request(&self, slot: u32) -> u32 {
        self.requests + slot * self.line_stride
    }

    /// First word of a slot's byte area.
    #[inline(always)]
    pub const fn area(&self, slot: u32) -> u32 {
        self.areas + slot * self.area_stride
    }

    /// First word of a large byte area.
    #[inline(always)]
    pub const fn large_area(&self, area: u32) -> u32 {
        self.large_areas + area * self.large_area_stride
    }
}

impl Sizes {
    /// First word of a home slot's post ring.
    #[inline(always)]
    pub const fn ring(&self, slot: u32) -> u32 {
        self.places.rings
            + slot / SLOT_GROUP * self.places.ring_group_stride
            + self.layout.ring_entries.words_before(slot % SLOT_GROUP)
    }

    /// The places of a slot. An extra slot has no ring: its ring has no entries.
    pub const fn slot(&self, slot: u32) -> SlotPlaces {
        let places = &self.places;
        let is_home = slot < self.layout.home_slots;
        let ring_of = if is_home { slot } else { 0 };
        SlotPlaces {
            doorbell: places.doorbell(slot),
            request: places.request(slot),
            reply: places.reply(slot),
            plane: places.plane,
            area: places.area(slot),
            area_bytes: self.layout.area_bytes,
            ring: self.ring(ring_of),
            ring_entries: if is_home { self.layout.ring_entries.of(slot) } else { 0 },
            post_bell: places.post_bell(ring_of),
            ring_tail: places.ring_tail(ring_of),
            owner: places.owner(slot),
            lanes: self.layout.lanes,
        }
    }
}

/// Where one slot's words are. All in words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct SlotPlaces {
    /// The doorbell.
    pub doorbell: u32,
    /// The request pairs.
    pub request: u32,
    /// The reply pairs.
    pub reply: u32,
    /// From one plane of pairs to the next.
    pub plane: u32,
    /// The byte area.
    pub area: u32,
    /// Its bytes.
    pub area_bytes: u32,
    /// The post ring.
    pub ring: u32,
    /// Its entries, a power of two; 0 for an extra slot.
    pub ring_entries: u32,
    /// The post bell.
    pub post_bell: u32,
    /// The ring's tail.
    pub ring_tail: u32,
    /// The owner pair.
    pub owner: u32,
    /// Lanes of a wave.
    pub lanes: u32,
}

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
impl SlotPlaces {
    /// The places in order.
    pub fn to_words(&self) -> [u32; 12] {
        let Self { doorbell, request, reply, plane, area, area_bytes, .. } = *self;
        let Self { ring, ring_entries, post_bell, ring_tail, owner, lanes, .. } = *self;
        [
            doorbell,
            request,
            reply,
            plane,
            area,
            area_bytes,
            ring,
            ring_entries,
            post_bell,
            ring_tail,
            owner,
            lanes,
        ]
    }
}

/// How the pairs of a packet's lanes lie in one direction. Each slot has four *planes* of as many pairs as a wave has
/// lanes, far apart, so that the first planes of all slots are dense. A packet whose pairs fit one plane has them
/// all there: one lane's line is a cache line. In a larger one each plane has one pair of every lane: what a wave
/// stores at a time is contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    lanes: u32,
    pairs: u32,
    /// Pairs from one of a lane's to its next, in the first plane.
    apart: u32,
    dense: bool,
}

/// Lap bits of a plane.
const PLANE_BITS: u32 = 64;

/// Pairs from one of a lone lane's in a reply to its next. A GPU brings two pairs of the host's memory at a time, but not two of
/// the same 32 bytes: it fetches these twice, one after the other.
const LONE_REPLY_APART: u32 = 2;

impl Spread {
    /// How `pairs` pairs of each of `lanes` lanes lie in a request, of a wave of `wave_lanes`.
    #[inline(always)]
    pub const fn request(lanes: u32, pairs: usize, wave_lanes: u32) -> Self {
        Self::new(lanes, pairs as u32, lanes, wave_lanes)
    }

    /// How they lie in a reply.
    #[inline(always)]
    pub const fn reply(lanes: u32, pairs: usize, wave_lanes: u32) -> Self {
        // Of one pair no code asks how many lanes there are.
        let apart = if pairs > 1 && lanes == 1 { LONE_REPLY_APART } else { lanes };
        Self::new(lanes, pairs as u32, apart, wave_lanes)
    }

    #[inline(always)]
    const fn new(lanes: u32, pairs: u32, apart: u32, wave_lanes: u32) -> Self {
        Self { lanes, pairs, apart, dense: pairs <= 1 || apart * pairs <= wave_lanes }
    }

    /// Whether all pairs are in the first plane, pair `j` of the lane of rank `r` at `j·n + r`, where `n` is the number of lanes,
    /// but 2 for a lone lane's reply.
    #[inline(always)]
    pub const fn is_dense(&self) -> bool {
        self.dense
    }

    /// Words from one pair of a lane to its next.
    #[inline(always)]
    pub const fn step(&self, plane: u32) -> u32 {
        if self.dense { 2 * self.apart } else { plane }
    }

    /// Place of the lap of pair `pair` of the lane of rank `rank` among a slot's lap bits.
    #[inline(always)]
    pub const fn lap(&self, pair: u32, rank: u32) -> u32 {
        pair * (if self.dense { self.apart } else { PLANE_BITS }) + rank
    }

    /// Words of lap bits that the packet may touch.
    #[inline(always)]
    pub const fn lap_words(&self) -> u32 {
        if self.dense { PLANE_BITS / 32 } else { LAP_WORDS as u32 }
    }

    /// What the packet flips in the lap bits of plane `plane`: those of words `2·plane` and `2·plane + 1`.
    #[inline(always)]
    pub const fn plane_flips(&self, plane: usize) -> u64 {
        self.flips(2 * plane as u32) as u64 | (self.flips(2 * plane as u32 + 1) as u64) << 32
    }

    /// What the packet flips in word `word` of the lap bits.
    #[inline(always)]
    pub const fn flips(&self, word: u32) -> u32 {
        let (count, first) = if self.dense {
            (self.apart * self.pairs, word * 32)
        } else if word * 32 / PLANE_BITS < self.pairs {
            (self.lanes, word * 32 % PLANE_BITS)
        } else {
            (0, 0)
        };
        let count = count.saturating_sub(first);
        let flips = if count >= 32 { u32::MAX } else { (1 << count) - 1 };
        // Of a lone lane's, every other place is free.
        if self.dense && self.apart > self.lanes { flips & (u32::MAX / 3) } else { flips }
    }
}

/// Words of the lap bits of a slot's pairs in one direction: 64 lanes × 4 pairs, 32 bits a word.
pub const LAP_WORDS: usize = 8;

/// Word of the header in which a wave with its doorbell at `doorbell` leaves hints of its first call and post. Waves that run at the
/// same place of several multiprocessors use several.
#[inline(always)]
pub const fn first_call_word(doorbell: u32) -> u32 {
    header::FIRST_CALLS as u32 + (doorbell / SLOT_GROUP + doorbell) % FIRST_CALL_WORDS as u32
}

mod state;
#[cfg(test)]
mod tests;
