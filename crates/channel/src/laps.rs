//! Laps of the pairs of a slot's lines: one bit a pair.
//!
//! A packet uses the first `n × pairs` pairs of each direction, so a use flips a prefix of the bits. Device
//! and host keep the same bits, each in memory of its own.

/// The lap that pair `pair` of each lane's line gets in its next use: bit `j` is that of pair `j` of the lane
/// of rank `rank` among `n`, whose place is `j·n + rank`.
#[inline(always)]
pub(crate) fn next(load: impl Fn(usize) -> u32, n: u32, rank: u32, pairs: usize) -> u8 {
    let mut laps = 0;
    for pair in 0..pairs {
        let bit = pair as u32 * n + rank;
        laps |= ((!(load((bit / 32) as usize) >> (bit % 32)) & 1) as u8) << pair;
    }
    laps
}

/// What a use of the first `count` pairs flips in word `word`.
#[inline(always)]
pub(crate) fn flips(word: u32, count: u32) -> u32 {
    match count.saturating_sub(word * 32) {
        0 => 0,
        left => u32::MAX >> (32 - left.min(32)),
    }
}
