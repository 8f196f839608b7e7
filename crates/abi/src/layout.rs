//! Where everything lies in a channel's shared memory: plain 64-bit words that both sides reach.
//!
//! | words from | what | writer |
//! |---|---|---|
//! | 0 | [`header`]: magic, version, sizes | host, before the first launch |
//! | 8 | stop word, count of sleeping consumers | host |
//! | 16 | cancel table, [`CANCEL_WORDS`] launch numbers | host |
//! | 64 | doorbells, one a slot, in lines of [`LINE_WORDS`] | device |
//! | after them | post bells, the same: ring entries reserved when the slot's wave told last | device |
//! | after them | tails of the post rings | host |
//! | after them | reply pairs: four planes, each with the slots' pairs one after the other, see [`Spread`] | host |
//! | after them | request pairs, the same | device |
//! | after them | bulk areas | whoever holds the slot |
//! | after them | post rings | device |
//!
//! What belongs to one slot lies apart, by kind: a host that looks after thousands of slots touches few pages.

/// Words of a 64-byte cache line.
pub const LINE_WORDS: usize = 8;

/// First word of every region: "hostcall" in little-endian ASCII.
pub const MAGIC: u64 = u64::from_le_bytes(*b"hostcall");

/// Words of the cancel table.
pub const CANCEL_WORDS: usize = 48;

/// Word offsets of the header's fields.
pub mod header {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// ABI version.
    pub const VERSION: usize = 1;
    /// Slots, and lanes a wave above bit 32.
    pub const SLOTS_AND_LANES: usize = 2;
    /// Entries of a post ring, and bytes of a bulk area above bit 32.
    pub const RING_AND_BULK: usize = 3;
    /// Words of the region.
    pub const WORDS: usize = 4;
    /// Not zero once the host serves no more: waiting lanes give up.
    pub const STOP: usize = 8;
    /// Consumers that sleep: a device in this process wakes them when it rings.
    pub const ASLEEP: usize = 9;
    /// The cancel table: launch number `n` is cancelled when word `n % CANCEL_WORDS` of it is `n`.
    pub const CANCEL: usize = 16;
}

const DOORBELLS_AT: usize = 64;

/// Entries of all rings of a launch, 16 MiB: what a server's processor keeps in its cache of all that devices write
/// (measured, see docs/measurements.md). Beyond that, posts go to memory and back.
const CACHED_ENTRIES: u32 = 1 << 20;

/// The sizes a channel is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Layout {
    /// Call slots. 1 to [`Layout::MAX_SLOTS`].
    pub slots: u32,
    /// Lanes of a wave, 1 to 64 (32 or 64 on a device).
    pub lanes: u32,
    /// Entries of 16 bytes in each slot's post ring: a power of two, at least four a lane (a lane's longest
    /// post takes three), at most 65,536.
    pub ring_entries: u32,
    /// Bytes of each slot's bulk area: a power of two, at least 64 a lane, at most 1 MiB.
    pub bulk_bytes: u32,
}

/// Why a [`Layout`] is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// Not 1 to [`Layout::MAX_SLOTS`] slots.
    Slots,
    /// Not 1 to 64 lanes.
    Lanes,
    /// The ring is no power of two from four a lane to 65,536.
    Ring,
    /// The bulk area is no power of two from 64 bytes a lane to 1 MiB.
    Bulk,
    /// The whole is longer than 32 GiB.
    Words,
}

impl core::fmt::Display for LayoutError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            LayoutError::Slots => "a channel has 1 to 65536 slots",
            LayoutError::Lanes => "a wave has 1 to 64 lanes",
            LayoutError::Ring => {
                "a post ring has a power of two of entries, at least 4 a lane and at most 65536"
            }
            LayoutError::Bulk => {
                "a bulk area has a power of two of bytes, at least 64 a lane and at most 1048576"
            }
            LayoutError::Words => "a channel has at most 32 GiB: take fewer slots or smaller rings",
        })
    }
}

impl core::error::Error for LayoutError {}

impl Layout {
    /// Most slots of a channel.
    pub const MAX_SLOTS: u32 = 65_536;

    /// Refuses sizes that the protocol cannot carry.
    pub const fn check(self) -> Result<Self, LayoutError> {
        if self.slots == 0 || self.slots > Self::MAX_SLOTS {
            return Err(LayoutError::Slots);
        }
        if self.lanes == 0 || self.lanes > 64 {
            return Err(LayoutError::Lanes);
        }
        if !self.ring_entries.is_power_of_two()
            || self.ring_entries < 4 * self.lanes
            || self.ring_entries > 65_536
        {
            return Err(LayoutError::Ring);
        }
        if !self.bulk_bytes.is_power_of_two()
            || self.bulk_bytes < 64 * self.lanes
            || self.bulk_bytes > 1 << 20
        {
            return Err(LayoutError::Bulk);
        }
        let per_slot = 8 * self.line_stride() + self.bulk_stride() + self.ring_stride() + 3;
        if self.slots as u64 * per_slot as u64 + (DOORBELLS_AT + 3 * LINE_WORDS) as u64 > u32::MAX as u64 {
            return Err(LayoutError::Words);
        }
        Ok(self)
    }

    /// What a slot's places are computed with.
    pub const fn places(&self) -> Places {
        let (doorbells, line_stride) = ((self.doorbell_lines() * LINE_WORDS) as u32, self.line_stride());
        let plane = self.slots * line_stride;
        let post_bells = DOORBELLS_AT as u32 + doorbells;
        let ring_tails = post_bells + doorbells;
        let replies = ring_tails + doorbells;
        let requests = replies + crate::word::MAX_PAIRS as u32 * plane;
        let bulk = requests + crate::word::MAX_PAIRS as u32 * plane;
        let rings = bulk + self.slots * self.bulk_stride();
        Places {
            post_bells,
            ring_tails,
            replies,
            requests,
            line_stride,
            plane,
            bulk,
            bulk_stride: self.bulk_stride(),
            rings,
            ring_stride: self.ring_stride(),
            words: rings + self.slots * self.ring_stride(),
        }
    }

    /// Lines of [`LINE_WORDS`] doorbells.
    #[inline(always)]
    pub const fn doorbell_lines(&self) -> usize {
        (self.slots as usize).div_ceil(LINE_WORDS)
    }

    // An odd number of cache lines, so that the same place of many slots does not fall into the same cache sets.

    const fn line_stride(&self) -> u32 {
        ((2 * self.lanes).div_ceil(LINE_WORDS as u32) | 1) * LINE_WORDS as u32
    }

    const fn bulk_stride(&self) -> u32 {
        self.bulk_bytes / 8 + LINE_WORDS as u32
    }

    const fn ring_stride(&self) -> u32 {
        self.ring_entries * 2 + LINE_WORDS as u32
    }

    /// Bytes of the bulk area that each lane of an `n`-lane byte packet has, lane after lane.
    #[inline(always)]
    pub const fn bulk_share(&self, n: u32) -> usize {
        (self.bulk_bytes / n.next_power_of_two()) as usize
    }

    /// Entries that the ring of each wave has in a launch of `waves` waves: a power of two, so many that the rings of the
    /// launch stay in the host's cache together, but at least eight a lane, and at most [`Layout::ring_entries`].
    pub const fn ring_entries_for(&self, waves: u32) -> u32 {
        let share = CACHED_ENTRIES / if waves == 0 { 1 } else { waves };
        let least = (8 * self.lanes).next_power_of_two();
        let entries = if share < least { least } else { 1 << share.ilog2() };
        if entries < self.ring_entries { entries } else { self.ring_entries }
    }

    /// Words of the whole region.
    #[inline(always)]
    pub const fn words(&self) -> usize {
        self.places().words as usize
    }

    /// The header's first five words.
    pub const fn header(&self) -> [u64; 5] {
        [
            MAGIC,
            crate::ABI_VERSION as u64,
            self.slots as u64 | (self.lanes as u64) << 32,
            self.ring_entries as u64 | (self.bulk_bytes as u64) << 32,
            self.words() as u64,
        ]
    }
}

/// The numbers that a slot's places are computed with, so that neither side derives them from the [`Layout`]
/// again in every call. All in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Places {
    /// The first slot's post bell; the others follow, one word each.
    pub post_bells: u32,
    /// The tail of the first slot's post ring; the others follow, one word each.
    pub ring_tails: u32,
    /// The first slot's reply pairs.
    pub replies: u32,
    /// The first slot's request pairs.
    pub requests: u32,
    /// From one slot's pairs to the next slot's.
    pub line_stride: u32,
    /// From one plane of pairs to the next.
    pub plane: u32,
    /// The first slot's bulk area.
    pub bulk: u32,
    /// From one slot's bulk area to the next.
    pub bulk_stride: u32,
    /// The first slot's post ring.
    pub rings: u32,
    /// From one slot's post ring to the next.
    pub ring_stride: u32,
    /// The whole region.
    pub words: u32,
}

/// A layout with the places that follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sizes {
    /// The sizes that were chosen. In a launch's parameters `ring_entries` is what the launch's rings have of that.
    pub layout: Layout,
    /// Their [`Layout::places`].
    pub places: Places,
}

impl From<Layout> for Sizes {
    fn from(layout: Layout) -> Self {
        Self { layout, places: layout.places() }
    }
}

impl Places {
    /// Word of a slot's doorbell.
    #[inline(always)]
    pub const fn doorbell(&self, slot: u32) -> u32 {
        DOORBELLS_AT as u32 + slot
    }

    /// Word of a slot's post bell.
    #[inline(always)]
    pub const fn post_bell(&self, slot: u32) -> u32 {
        self.post_bells + slot
    }

    /// Word of the tail of a slot's post ring: how many entries the host has taken, ever.
    #[inline(always)]
    pub const fn ring_tail(&self, slot: u32) -> u32 {
        self.ring_tails + slot
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

    /// First word of a slot's bulk area.
    #[inline(always)]
    pub const fn bulk(&self, slot: u32) -> u32 {
        self.bulk + slot * self.bulk_stride
    }

    /// First word of a slot's post ring.
    #[inline(always)]
    pub const fn ring(&self, slot: u32) -> u32 {
        self.rings + slot * self.ring_stride
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
    dense: bool,
}

/// Lap bits of a plane.
const PLANE_BITS: u32 = 64;

impl Spread {
    /// How `pairs` pairs of each of `lanes` lanes lie, of a wave of `wave_lanes`.
    #[inline(always)]
    pub const fn new(lanes: u32, pairs: usize, wave_lanes: u32) -> Self {
        let pairs = pairs as u32;
        Self { lanes, pairs, dense: pairs <= 1 || lanes * pairs <= wave_lanes }
    }

    /// Whether all pairs are in the first plane, pair `j` of the lane of rank `r` at `j·n + r`.
    #[inline(always)]
    pub const fn is_dense(&self) -> bool {
        self.dense
    }

    /// Words from one pair of a lane to its next.
    #[inline(always)]
    pub const fn step(&self, plane: u32) -> u32 {
        if self.dense { 2 * self.lanes } else { plane }
    }

    /// Place of the lap of pair `pair` of the lane of rank `rank` among a slot's lap bits.
    #[inline(always)]
    pub const fn lap(&self, pair: u32, rank: u32) -> u32 {
        pair * (if self.dense { self.lanes } else { PLANE_BITS }) + rank
    }

    /// Words of lap bits that the packet may touch.
    #[inline(always)]
    pub const fn lap_words(&self) -> u32 {
        if self.dense { PLANE_BITS / 32 } else { LAP_WORDS as u32 }
    }

    /// What the packet flips in the lap bits of plane `plane`: those of words `2·plane` and `2·plane + 1`.
    #[inline(always)]
    pub const fn plane_flips(&self, plane: usize) -> u64 {
        let count = match (self.dense, plane) {
            (true, 0) => self.lanes * self.pairs,
            (false, plane) if plane < self.pairs as usize => self.lanes,
            _ => 0,
        };
        if count >= PLANE_BITS { u64::MAX } else { (1 << count) - 1 }
    }

    /// What the packet flips in word `word` of the lap bits.
    #[inline(always)]
    pub const fn flips(&self, word: u32) -> u32 {
        let (count, first) = if self.dense {
            (self.lanes * self.pairs, word * 32)
        } else if word * 32 / PLANE_BITS < self.pairs {
            (self.lanes, word * 32 % PLANE_BITS)
        } else {
            (0, 0)
        };
        let count = count.saturating_sub(first);
        if count >= 32 { u32::MAX } else { (1 << count) - 1 }
    }
}

/// Words of the lap bits of a slot's pairs in one direction: 64 lanes × 4 pairs, 32 bits a word.
pub const LAP_WORDS: usize = 8;

/// What the device remembers of a slot: in the device's own memory, one cache line pair. Calls and posts begin with
/// a look at the first 16 bytes.
///
/// Only the wave that has the slot touches it, except `lock`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct SlotStateWords {
    /// Calls made, ever; its low bit is the lap of the doorbell's last use.
    pub calls: u32,
    /// The period of the device's clock in which the post bell was rung last.
    pub post_bell_period: u32,
    /// Low bits of the ring entries reserved, ever.
    pub post_position: u32,
    /// Low bits of the ring entries that the host had taken when the device looked last.
    pub post_tail_seen: u32,
    /// `post_position` when a doorbell last carried it.
    pub post_position_told: u32,
    /// Which part of a diverged wave may call: a turn in the lower half, the next to be given out in the upper one.
    pub lock: u32,
    /// Not zero when the wave knows that its launch was cancelled.
    pub cancelled: u32,
    /// Zero.
    pub reserved: u32,
    /// Lap of each request pair's last use, one bit a pair.
    pub request_laps: [u32; LAP_WORDS],
    /// Lap of each reply pair's last use.
    pub reply_laps: [u32; LAP_WORDS],
    /// Linear index of the workgroup that the wave works on.
    pub workgroup: u64,
    /// Zero.
    pub reserved_end: [u64; 3],
}

/// Bytes of a [`SlotStateWords`].
pub const SLOT_STATE_BYTES: usize = 128;

const _: () = assert!(size_of::<SlotStateWords>() == SLOT_STATE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_of_many_waves_are_shorter() {
        let layout = Layout { slots: 8192, lanes: 32, ring_entries: 2048, bulk_bytes: 4096 };
        let entries =
            [0, 1, 132, 512, 513, 1056, 4224, 8192, u32::MAX].map(|waves| layout.ring_entries_for(waves));
        assert_eq!(entries, [2048, 2048, 2048, 2048, 1024, 512, 256, 256, 256]);
        let wide = Layout { lanes: 64, ..layout };
        assert_eq!(wide.ring_entries_for(u32::MAX), 512);
        let short = Layout { ring_entries: 128, ..layout };
        assert_eq!(short.ring_entries_for(1), 128);
    }

    #[test]
    fn areas_do_not_overlap_and_are_aligned() {
        for (slots, lanes) in [(1, 1), (7, 32), (64, 32), (4096, 64)] {
            let layout = Layout { slots, lanes, ring_entries: 512, bulk_bytes: 4096 }.check().unwrap();
            let places = layout.places();
            let last = slots - 1;
            assert!(places.doorbell(last) < places.post_bell(0));
            assert!(places.post_bell(last) < places.ring_tail(0));
            assert!(places.ring_tail(last) < places.reply(0));
            assert!(places.line_stride >= 2 * lanes);
            assert_eq!(places.reply(last) + places.line_stride, places.replies + places.plane);
            assert_eq!(places.replies + 4 * places.plane, places.requests);
            assert_eq!(places.requests + 4 * places.plane, places.bulk(0));
            assert!(places.bulk(last) + 4096 / 8 < places.ring(0));
            assert!(places.ring(last) + 1024 < places.words);
            for stride in [places.line_stride, places.bulk_stride, places.ring_stride] {
                assert_eq!(stride / LINE_WORDS as u32 % 2, 1);
            }
            for word in
                [places.reply(1), places.request(1), places.bulk(1), places.ring(1), places.ring_tails]
            {
                assert_eq!(word % LINE_WORDS as u32, 0);
            }
        }
    }

    #[test]
    fn the_pairs_of_a_packet_have_places_and_laps_of_their_own() {
        for wave_lanes in [1, 7, 32, 64] {
            for (lanes, pairs) in (1..=wave_lanes).flat_map(|lanes| (1..=4).map(move |pairs| (lanes, pairs)))
            {
                let spread = Spread::new(lanes, pairs as usize, wave_lanes);
                let (mut places, mut laps) = (std::collections::HashSet::new(), [0u32; LAP_WORDS]);
                for (pair, rank) in (0..pairs).flat_map(|pair| (0..lanes).map(move |rank| (pair, rank))) {
                    let place = 2 * rank + pair * spread.step(1000);
                    assert!(places.insert(place) && place % 1000 + 2 <= 2 * wave_lanes);
                    let lap = spread.lap(pair, rank);
                    laps[lap as usize / 32] |= 1 << (lap % 32);
                }
                assert_eq!(places.len() as u32, laps.iter().map(|word| word.count_ones()).sum());
                for (i, laps) in (0..).zip(laps) {
                    assert_eq!(if i < spread.lap_words() { spread.flips(i) } else { 0 }, laps);
                    assert_eq!((spread.plane_flips(i as usize / 2) >> (i % 2 * 32)) as u32, laps);
                }
            }
        }
    }

    #[test]
    fn bad_sizes_are_refused() {
        let good = Layout { slots: 64, lanes: 32, ring_entries: 256, bulk_bytes: 4096 };
        assert_eq!(Layout { slots: 0, ..good }.check(), Err(LayoutError::Slots));
        assert_eq!(Layout { slots: 65_537, ..good }.check(), Err(LayoutError::Slots));
        assert_eq!(Layout { lanes: 65, ..good }.check(), Err(LayoutError::Lanes));
        assert_eq!(Layout { ring_entries: 100, ..good }.check(), Err(LayoutError::Ring));
        assert_eq!(Layout { bulk_bytes: 3, ..good }.check(), Err(LayoutError::Bulk));
        let huge = Layout { slots: 65_536, lanes: 64, ring_entries: 65_536, bulk_bytes: 1 << 20 };
        assert_eq!(huge.check(), Err(LayoutError::Words));
    }
}
