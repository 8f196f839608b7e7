//! How the pairs of a packet lie.

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

    /// Lanes of the packet.
    #[inline(always)]
    pub const fn lanes(&self) -> u32 {
        self.lanes
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
