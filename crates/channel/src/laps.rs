//! Laps of the pairs of a slot's lines: one bit a pair.
//!
//! A packet uses the first `n × pairs` pairs of each direction, so a use flips a prefix of the bits. Device
//! and host keep the same bits, each in memory of its own.

/// Words of lap bits: 64 lanes × 4 pairs.
pub(crate) const LAP_WORDS: usize = 4;

/// The lap that pair `pair` of each lane's line gets in its next use: bit `j` is that of pair `j` of the lane
/// of rank `rank` among `n`, whose place is `j·n + rank`.
#[inline(always)]
pub(crate) fn next(load: impl Fn(usize) -> u64, n: u32, rank: u32, pairs: usize) -> u8 {
    let mut laps = 0;
    for pair in 0..pairs {
        let bit = pair as u32 * n + rank;
        laps |= ((!(load((bit / 64) as usize) >> (bit % 64)) & 1) as u8) << pair;
    }
    laps
}

/// Flips the first `count` bits.
#[inline(always)]
pub(crate) fn flip(load: impl Fn(usize) -> u64, mut store: impl FnMut(usize, u64), count: u32) {
    let mut left = count;
    let mut word = 0;
    while left > 0 {
        let bits = left.min(64);
        store(word, load(word) ^ (u64::MAX >> (64 - bits)));
        left -= bits;
        word += 1;
    }
}
