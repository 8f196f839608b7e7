//! A home slot's state in one word: [`hostcall_abi::layout::kept`].

use super::state::{BELL, POST_BELL_PERIOD, POST_POSITION, POST_TAIL_SEEN};
use hostcall_abi::layout::kept::{
    LAP, PARITY, QUARTERS, REPLY_ALONE, REPLY_LAPS, REQUEST_ALONE, REQUEST_LAPS,
};
use hostcall_abi::layout::{LAP_WORDS, NO_PERIOD, Spread, bell_bits};

/// The owner pair's parity in the upper half of the word.
pub(super) const UPPER_PARITY: u32 = 1 << (PARITY - 32);

/// What lasts of a slot from holder to holder, by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// As [`hostcall_abi::layout::SlotStateWords`] has them.
    pub first: [u32; 4],
    pub request_laps: [u32; LAP_WORDS],
    pub reply_laps: [u32; LAP_WORDS],
}

impl Kept {
    /// The word with all of it but the period, and whether it fits. All posts were announced. `ring` is how many entries the
    /// slot's ring has, of which the word knows full quarters.
    #[inline(always)]
    pub fn pack(&self, ring: u32) -> (u64, bool) {
        let (request, request_fits) = pack_laps(&self.request_laps, REQUEST_ALONE);
        let (reply, reply_fits) = pack_laps(&self.reply_laps, REPLY_ALONE);
        let used = self.first[POST_POSITION].wrapping_sub(self.first[POST_TAIL_SEEN]);
        let quarters = (0..3).map(|quarters| u64::from(used > ring / 4 * quarters)).sum::<u64>();
        let bell = self.first[BELL];
        let word = u64::from(self.first[POST_POSITION])
            | quarters << QUARTERS
            | u64::from(bell & bell_bits::LAP != 0) << LAP
            | u64::from(bell & bell_bits::PARITY != 0) << PARITY
            | u64::from(request) << REQUEST_LAPS
            | u64::from(reply) << REPLY_LAPS;
        (word, request_fits & reply_fits & (used <= ring / 4 * 3))
    }

    /// What a packet whose pairs lie so flips in the upper half of the word, if it is a lone lane's. Of others it is not worked
    /// out: they flip what fits no word, or many bits, which a wave that ends packs faster than each of its calls.
    #[inline(always)]
    pub fn upper_flips(request: Spread, reply: Spread) -> Option<u32> {
        let (request, reply) = (lone_flips(request, REQUEST_ALONE)?, lone_flips(reply, REPLY_ALONE)?);
        Some(1 << (LAP - 32) | request << (REQUEST_LAPS - 32) | reply << (REPLY_LAPS - 32))
    }

    /// Whether the device knows the ring to be empty, so that the word has exactly what there is of it.
    pub fn is_exact(&self) -> bool {
        self.first[POST_POSITION] == self.first[POST_TAIL_SEEN]
    }

    /// The first words for a slot's new holder, of those that the last one left: no owner is published, and no post bell rung.
    #[inline(always)]
    pub fn begin_first(mut first: [u32; 4]) -> [u32; 4] {
        first[BELL] = first[BELL] & (bell_bits::LAP | bell_bits::PARITY) | bell_bits::OWNER_DUE;
        first[POST_BELL_PERIOD] = NO_PERIOD;
        first
    }

    /// What is in the word, for the slot's new holder.
    #[inline(always)]
    pub fn unpack(word: u64, ring: u32) -> Self {
        let position = word as u32;
        let mut first = [0; 4];
        first[BELL] = ((word >> LAP) as u32) << bell_bits::LAP.trailing_zeros()
            | (word >> PARITY) as u32 & bell_bits::PARITY;
        first[POST_POSITION] = position;
        first[POST_TAIL_SEEN] = position.wrapping_sub(ring / 4 * ((word >> QUARTERS) as u32 & 3));
        Self {
            first: Self::begin_first(first),
            request_laps: unpack_laps((word >> REQUEST_LAPS) as u32, REQUEST_ALONE),
            reply_laps: unpack_laps((word >> REPLY_LAPS) as u32, REPLY_ALONE),
        }
    }
}

/// Whether a slot may have laps in this word: waves of 32 lanes use every other one.
const fn has_laps(word: usize) -> bool {
    !cfg!(target_arch = "nvptx64") || word.is_multiple_of(2)
}

/// The first `alone` bits of the first word and one for its others, and one for each other word, if these are alike.
#[inline(always)]
fn pack_laps(laps: &[u32; LAP_WORDS], alone: u32) -> (u32, bool) {
    let are_alike = |laps: u32, from: u32| laps.cast_signed() >> 31 == laps.cast_signed() >> from;
    let (mut packed, mut fits) = (laps[0] & ((2 << alone) - 1), are_alike(laps[0], alone));
    for (word, &laps) in laps.iter().enumerate().skip(1) {
        if has_laps(word) {
            packed |= (laps & 1) << (alone as usize + word);
            fits &= are_alike(laps, 0);
        }
    }
    (packed, fits)
}

/// What a lone lane's packet flips among the `alone` bits that a word has of a direction's laps.
#[inline(always)]
fn lone_flips(spread: Spread, alone: u32) -> Option<u32> {
    let flips = spread.flips(0);
    let others = (1..LAP_WORDS as u32).fold(0, |others, word| others | spread.flips(word));
    (spread.lanes() == 1 && flips >> alone == 0 && others == 0).then_some(flips)
}

#[inline(always)]
fn unpack_laps(packed: u32, alone: u32) -> [u32; LAP_WORDS] {
    // The bit repeated from its place on.
    let all = |bit: u32, from: u32| ((packed << (31 - bit)).cast_signed() >> (31 - from)).cast_unsigned();
    let mut laps = [0; LAP_WORDS];
    laps[0] = all(alone, alone);
    for (word, laps) in laps.iter_mut().enumerate().skip(1) {
        if has_laps(word) {
            *laps = all(alone + word as u32, 0);
        }
    }
    laps
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use hostcall_abi::layout::kept::{APART, HELD};

    fn state(position: u32, used: u32) -> Kept {
        let first = [bell_bits::OWNER_DUE, NO_PERIOD, position, position.wrapping_sub(used)];
        Kept { first, request_laps: [0; LAP_WORDS], reply_laps: [0; LAP_WORDS] }
    }

    /// Everything comes back, and of the ring no more is free than was.
    #[test]
    fn a_word_has_all_that_lasts() {
        for ring in [1, 2, 4, 8, 256, 1 << 17] {
            for (position, used) in
                (0..=ring.min(300)).flat_map(|used| [(used, used), (7, used), (u32::MAX, used)])
            {
                let kept = state(position, used);
                let (word, fits) = kept.pack(ring);
                assert_eq!(fits, used <= ring / 4 * 3, "{used} of {ring}");
                if !fits {
                    continue;
                }
                assert_eq!(word & APART, 0);
                let back = Kept::unpack(word, ring);
                let used_then = position.wrapping_sub(back.first[POST_TAIL_SEEN]);
                assert!(used <= used_then && used_then <= ring && used_then < used + ring.max(4) / 4);
                assert_eq!(Kept { first: kept.first, ..back }, kept);
                assert_eq!(back.first[..3], kept.first[..3]);
            }
        }
        assert_eq!(state(0, 0).pack(64), (0, true));
        const { assert!(HELD & APART != 0) };
    }

    /// What lone lanes' calls flip in the upper half, one after the other, is what packing anew makes of it.
    #[test]
    fn the_upper_half_is_known_after_lone_calls() {
        let mut kept = state(3, 0);
        let mut upper = (kept.pack(64).0 >> 32) as u32;
        for n in 0..200usize {
            let (request, reply) = (Spread::request(1, n % 5, 32), Spread::reply(1, n * 7 / 3 % 5, 32));
            for (laps, spread) in [(&mut kept.request_laps, request), (&mut kept.reply_laps, reply)] {
                for (word, laps) in laps.iter_mut().enumerate() {
                    *laps ^= spread.flips(word as u32);
                }
            }
            kept.first[BELL] ^= bell_bits::LAP;
            upper ^= Kept::upper_flips(request, reply).expect("a lone lane's");
            if n % 3 == 0 {
                kept.first[BELL] ^= bell_bits::PARITY;
                upper ^= UPPER_PARITY;
            }
            assert_eq!(kept.pack(64), (u64::from(upper) << 32 | 3, true), "call {n}");
        }
        let of = |lanes| Kept::upper_flips(Spread::request(lanes, 1, 32), Spread::reply(lanes, 1, 32));
        assert_eq!((of(2), of(9), of(32)), (None, None, None));
    }

    /// What whole waves and lanes alone do, one after the other, fits; what a part of several lanes did does not, until it did it
    /// again, and is not taken for something else.
    #[test]
    fn laps_fit_as_waves_use_them() {
        for wave in [2, 4, 16, 32, 64] {
            let mut kept = state(3, 0);
            let step = |kept: &mut Kept, lanes: u32, pairs: usize| {
                for (laps, spread) in [
                    (&mut kept.request_laps, Spread::request(lanes, pairs, wave)),
                    (&mut kept.reply_laps, Spread::reply(lanes, pairs, wave)),
                ] {
                    for (word, laps) in laps.iter_mut().enumerate() {
                        *laps ^= spread.flips(word as u32);
                    }
                }
                kept.first[BELL] ^= bell_bits::LAP;
            };
            for n in 0..200usize {
                step(&mut kept, if n % 3 == 0 { 1 } else { wave }, n * 7 / 3 % 5);
                kept.first[BELL] ^= bell_bits::PARITY;
                match kept.pack(64) {
                    (word, true) => assert_eq!(Kept::unpack(word, 64), kept, "{wave} lanes, call {n}"),
                    (_, false) => assert!(wave < 32, "{wave} lanes, call {n}"),
                }
            }
            if wave > 8 {
                step(&mut kept, 9, 1);
                assert!(!kept.pack(64).1);
                step(&mut kept, 9, 1);
            }
        }
    }
}
