//! Many pairs at a time: out of shared memory with their laps checked, and into it.
//!
//! Every word is loaded or stored whole and relaxed. On x86-64 vectors take several at a time: what the lanes of a whole wave
//! say are 128 pairs, and a consumer does little else.

use crate::primitive::{AtomicU64, load_pair, store_pair};
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
use core::arch::{asm, x86_64::*};
use core::ops::Range;
use hostcall_abi::word::{LAP, PAYLOAD, TAG_BITS, with_lap};
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
use hostcall_abi::{MAX_LANES, word::MAX_PAIRS};
use hostcall_service::Planes;

#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline(always)]
fn has_avx2() -> bool {
    std::is_x86_feature_detected!("avx2")
}

/// Copies the lines of lanes out of shared memory, to these ranks. `plane(j)` gives pair `j` of every lane, in the lanes' order, and
/// the laps that these pairs had when they were used last, a bit a pair, from the lowest on. The copies' words are whole: without
/// laps, and with the top bits that these displaced ([`hostcall_abi::word::Line`]). Returns whether each word has the lap that
/// comes after its last use; what the copies are if not does not matter.
#[inline(always)]
pub(super) fn copy_lines<'a>(
    plane: impl Fn(usize) -> (&'a [[AtomicU64; 2]], u64),
    pairs: usize,
    to: &mut Planes,
    ranks: Range<usize>,
) -> bool {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    if ranks.len() >= WIDE_PAIRS && ranks.start.is_multiple_of(2) && ranks.end.is_multiple_of(2) && has_avx2()
    {
        // SAFETY: the processor has AVX2.
        return unsafe {
            match pairs {
                1 => copy_by_two::<1>(plane, to, ranks),
                2 => copy_by_two::<2>(plane, to, ranks),
                3 => copy_by_two::<3>(plane, to, ranks),
                _ => copy_by_two::<MAX_PAIRS>(plane, to, ranks),
            }
        };
    }
    let mut laps = 0;
    for pair in 0..pairs {
        let (from, used) = plane(pair);
        for (i, (from, to)) in from.iter().zip(&mut to[pair][ranks.clone()]).enumerate() {
            *to = load_pair(from).map(|word| word ^ with_lap(0, used >> i & 1 == 0));
            laps |= to[0] | to[1];
        }
    }
    if laps & LAP != 0 {
        return false;
    }
    let [first, others @ ..] = to;
    for (rank, [word, meta]) in ranks.clone().zip(&mut first[ranks]) {
        // Seldom any is set.
        if *meta >> TAG_BITS != 0 {
            *word |= top_of(0, *meta);
            for (pair, plane) in (1..pairs).zip(&mut *others) {
                plane[rank][0] |= top_of(2 * pair - 1, *meta);
                plane[rank][1] |= top_of(2 * pair, *meta);
            }
        }
    }
    true
}

/// A word's top bit, out of its line's meta word.
#[inline(always)]
fn top_of(word: usize, meta: u64) -> u64 {
    meta << (63 - TAG_BITS as usize - word) & LAP
}

/// Stores pairs without laps to where the laps of last use are the bits of `used`, from the lowest on.
#[inline(always)]
pub(super) fn store_run(to: &[[AtomicU64; 2]], from: &[[u64; 2]], used: u64) {
    let store = |to, pair: [u64; 2], used| store_pair(to, pair.map(|word| with_lap(word, used & 1 == 0)));
    if let ([to], [pair]) = (to, from) {
        return store(to, *pair, used);
    }
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    if to.len() >= WIDE_PAIRS && to.len().is_multiple_of(2) && has_avx2() {
        // SAFETY: the processor has AVX2.
        return unsafe { store_wide(to, from, used) };
    }
    let mut used = used;
    for (to, pair) in to.iter().zip(from) {
        store(to, *pair, used);
        used >>= 1;
    }
}

/// The laps that two pairs have next, at their words' top bits, where the first one's lap of last use is bit `at` of `used`.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[target_feature(enable = "avx2")]
#[inline]
fn next_laps(used: u64, at: usize) -> __m256d {
    // One shift brings each pair's bit to the top.
    let up = _mm256_sub_epi64(_mm256_set_epi64x(62, 62, 63, 63), _mm256_set1_epi64x(at as i64));
    let bits = _mm256_sllv_epi64(_mm256_set1_epi64x(!used as i64), up);
    _mm256_and_pd(_mm256_castsi256_pd(bits), _mm256_set1_pd(f64::from_bits(LAP)))
}

/// [`copy_lines`] of an even number of lanes.
///
/// # Safety
/// The processor has AVX2.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline(always)]
unsafe fn copy_by_two<'a, const PAIRS: usize>(
    plane: impl Fn(usize) -> (&'a [[AtomicU64; 2]], u64),
    to: &mut Planes,
    ranks: Range<usize>,
) -> bool {
    let all = u64::MAX >> (64 - ranks.len());
    let (mut from, mut used) = ([&[][..]; PAIRS], [0; PAIRS]);
    for pair in 0..PAIRS {
        let (of_plane, used_last) = plane(pair);
        (from[pair], used[pair]) = (of_plane.as_chunks::<2>().0, used_last & all);
    }
    let twos = ranks.start / 2..ranks.end / 2;
    // SAFETY: the caller's promise.
    unsafe {
        // Mostly all of a plane's pairs were used by the same packets before.
        match used.iter().all(|used| *used == 0 || *used == all) {
            true => copy_wide_lines::<PAIRS, true>(from, used, to, twos),
            false => copy_wide_lines::<PAIRS, false>(from, used, to, twos),
        }
    }
}

/// Copies the lines of lanes two by two, to these places in the planes, counted by two. Each plane's pairs are `ALIKE` in their
/// laps or not. Iterators and `from_fn` are compiled without AVX2, and would call their closures for each pair: here are loops.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[target_feature(enable = "avx2")]
#[inline(never)]
fn copy_wide_lines<const PAIRS: usize, const ALIKE: bool>(
    from: [&[[[AtomicU64; 2]; 2]]; PAIRS],
    used: [u64; PAIRS],
    to: &mut Planes,
    twos: Range<usize>,
) -> bool {
    // What brings the top bits out of the meta words to where they belong, for each plane; none comes to a meta word.
    let mut ups = [_mm256_setzero_si256(); PAIRS];
    let mut next = [_mm256_setzero_pd(); PAIRS];
    for pair in 0..PAIRS {
        let up = 64 - i64::from(TAG_BITS) - 2 * pair as i64;
        let [first, second] = if pair == 0 { [up - 1, 64] } else { [up, up - 1] };
        ups[pair] = _mm256_set_epi64x(second, first, second, first);
        next[pair] = next_laps(used[pair], 0);
    }
    let tops = _mm256_set1_pd(f64::from_bits(LAP));
    let mut wrong = _mm256_setzero_pd();
    assert!(twos.end <= MAX_LANES / 2 && from.iter().all(|from| from.len() == twos.len()));
    for (i, at) in twos.enumerate() {
        let mut words = [_mm256_setzero_pd(); PAIRS];
        for pair in 0..PAIRS {
            let laps = if ALIKE { next[pair] } else { next_laps(used[pair], 2 * i) };
            // SAFETY: REGION: 32 bytes that are valid for reads, of memory that others write, which `asm!` may read. A load of 32 bytes
            // from a multiple of 8 does not tear an aligned word.
            unsafe {
                asm!("vxorpd {words}, {laps}, [{from}]", words = out(ymm_reg) words[pair], laps = in(ymm_reg) laps,
                    from = in(reg) from[pair][i].as_ptr(), options(nostack, preserves_flags, readonly));
            }
            wrong = _mm256_or_pd(wrong, words[pair]);
        }
        let metas = _mm256_castpd_si256(_mm256_unpackhi_pd(words[0], words[0]));
        for pair in 0..PAIRS {
            let top = _mm256_and_pd(_mm256_castsi256_pd(_mm256_sllv_epi64(metas, ups[pair])), tops);
            let to = &mut to[pair].as_chunks_mut::<2>().0[at];
            // SAFETY: 32 bytes that are valid for writes.
            unsafe { _mm256_storeu_pd(to.as_mut_ptr().cast(), _mm256_or_pd(words[pair], top)) };
        }
    }
    _mm256_movemask_pd(wrong) == 0
}

/// [`store_run`] of an even number of pairs, two at a time.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[target_feature(enable = "avx2")]
fn store_wide(to: &[[AtomicU64; 2]], from: &[[u64; 2]], used: u64) {
    let all = u64::MAX >> (64 - to.len());
    if used & all == 0 || used & all == all {
        store_by_two::<true>(to, from, used);
    } else {
        store_by_two::<false>(to, from, used);
    }
}

/// [`store_wide`], where the pairs are `ALIKE` in their laps or not.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[target_feature(enable = "avx2")]
#[inline]
fn store_by_two<const ALIKE: bool>(to: &[[AtomicU64; 2]], from: &[[u64; 2]], used: u64) {
    let next = next_laps(used, 0);
    for (i, (to, from)) in to.as_chunks::<2>().0.iter().zip(from.as_chunks::<2>().0).enumerate() {
        let laps = if ALIKE { next } else { next_laps(used, 2 * i) };
        // SAFETY: both are 32 bytes, the first (REGION) valid for writes of atomics, which `asm!` may do through a shared
        // reference, the second for reads. A store of 32 bytes to a multiple of 8 does not tear an aligned word.
        unsafe {
            asm!("vorpd {x}, {laps}, [{from}]", "vmovupd [{to}], {x}", x = out(ymm_reg) _, laps = in(ymm_reg) laps,
                from = in(reg) from.as_ptr(), to = in(reg) to.as_ptr(), options(nostack, preserves_flags));
        }
    }
}

/// Copies pairs, each word loaded whole and relaxed, without their laps, up to the first that lacks the lap `lap`, and at
/// most as many as `to` holds. How many were copied; what `to` holds beyond them does not matter.
#[inline]
pub(super) fn copy_pairs(from: &[[AtomicU64; 2]], to: &mut [[u64; 2]], lap: bool) -> usize {
    let count = from.len().min(to.len());
    let mut done = 0;
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    if count >= WIDE_PAIRS && has_avx2() {
        // SAFETY: the processor has AVX2.
        done = unsafe { copy_wide(&from[..count], &mut to[..count], lap) };
    }
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    while let (Some(from), Some(to)) = (from[done..count].first_chunk(), to[done..count].first_chunk_mut()) {
        if !copy_line(from, to, lap) {
            break;
        }
        done += 4;
    }
    while done < count {
        let [a, b] = load_pair(&from[done]);
        if a >> 63 != u64::from(lap) || b >> 63 != u64::from(lap) {
            break;
        }
        to[done] = [a & PAYLOAD, b & PAYLOAD];
        done += 1;
    }
    done
}

/// Pairs that [`copy_wide`] copies at a time.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
const WIDE_PAIRS: usize = 8;

/// As [`copy_pairs`], but for pairs of the last blocks of [`WIDE_PAIRS`] that lack the lap in part or are not whole.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[target_feature(enable = "avx2")]
fn copy_wide(from: &[[AtomicU64; 2]], to: &mut [[u64; 2]], lap: bool) -> usize {
    let blocks = from.as_chunks::<WIDE_PAIRS>().0.iter().zip(to.as_chunks_mut::<WIDE_PAIRS>().0);
    let mut done = 0;
    for (from, to) in blocks {
        let tops: u32;
        // SAFETY: both arrays are 128 bytes, the first valid for reads (of memory that others write, which `asm!` may
        // do), the second for writes. Loads of 32 bytes from a multiple of 8 do not tear an aligned word.
        unsafe {
            if lap {
                asm!(
                    "vmovupd {a}, [{from}]", "vandpd {x}, {a}, {mask}", "vmovupd [{to}], {x}",
                    "vmovupd {y}, [{from} + 32]", "vandpd {x}, {y}, {mask}", "vmovupd [{to} + 32], {x}",
                    "vandpd {a}, {a}, {y}",
                    "vmovupd {y}, [{from} + 64]", "vandpd {x}, {y}, {mask}", "vmovupd [{to} + 64], {x}",
                    "vandpd {a}, {a}, {y}",
                    "vmovupd {y}, [{from} + 96]", "vandpd {x}, {y}, {mask}", "vmovupd [{to} + 96], {x}",
                    "vandpd {a}, {a}, {y}",
                    "vmovmskpd {tops:e}, {a}",
                    from = in(reg) from.as_ptr(), to = in(reg) to.as_mut_ptr(), tops = out(reg) tops,
                    mask = in(ymm_reg) _mm256_set1_epi64x(PAYLOAD as i64),
                    x = out(ymm_reg) _, y = out(ymm_reg) _, a = out(ymm_reg) _,
                    options(nostack, preserves_flags));
            } else {
                asm!(
                    "vmovupd {a}, [{from}]", "vmovupd [{to}], {a}",
                    "vmovupd {y}, [{from} + 32]", "vmovupd [{to} + 32], {y}", "vorpd {a}, {a}, {y}",
                    "vmovupd {y}, [{from} + 64]", "vmovupd [{to} + 64], {y}", "vorpd {a}, {a}, {y}",
                    "vmovupd {y}, [{from} + 96]", "vmovupd [{to} + 96], {y}", "vorpd {a}, {a}, {y}",
                    "vmovmskpd {tops:e}, {a}",
                    from = in(reg) from.as_ptr(), to = in(reg) to.as_mut_ptr(), tops = out(reg) tops,
                    y = out(ymm_reg) _, a = out(ymm_reg) _, options(nostack, preserves_flags));
            }
        }
        if tops != if lap { 0b1111 } else { 0 } {
            break;
        }
        done += WIDE_PAIRS;
    }
    done
}

/// Copies four pairs. Whether all of their words have the lap `lap`, which the copies lack.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline(always)]
fn copy_line(from: &[[AtomicU64; 2]; 4], to: &mut [[u64; 2]; 4], lap: bool) -> bool {
    let tops: u32;
    // SAFETY: both arrays are 64 bytes, the first valid for reads (of memory that others write, which
    // `asm!` may do), the second for writes. `from` is 16-byte aligned (pairs lie at even words of a 64-byte
    // aligned region); SSE2 is part of x86-64, and its aligned 16-byte loads do not tear an aligned
    // word.
    unsafe {
        if lap {
            asm!(
                "movapd {x}, [{from}]", "movapd {a}, {x}", "andpd {x}, {mask}", "movupd [{to}], {x}",
                "movapd {x}, [{from} + 16]", "andpd {a}, {x}", "andpd {x}, {mask}", "movupd [{to} + 16], {x}",
                "movapd {x}, [{from} + 32]", "andpd {a}, {x}", "andpd {x}, {mask}", "movupd [{to} + 32], {x}",
                "movapd {x}, [{from} + 48]", "andpd {a}, {x}", "andpd {x}, {mask}", "movupd [{to} + 48], {x}",
                "movmskpd {tops:e}, {a}",
                from = in(reg) from.as_ptr(), to = in(reg) to.as_mut_ptr(), tops = out(reg) tops,
                mask = in(xmm_reg) _mm_set1_epi64x(PAYLOAD as i64),
                x = out(xmm_reg) _, a = out(xmm_reg) _, options(nostack, preserves_flags));
            tops == 3
        } else {
            asm!(
                "movapd {a}, [{from}]", "movupd [{to}], {a}",
                "movapd {x}, [{from} + 16]", "movupd [{to} + 16], {x}", "orpd {a}, {x}",
                "movapd {x}, [{from} + 32]", "movupd [{to} + 32], {x}", "orpd {a}, {x}",
                "movapd {x}, [{from} + 48]", "movupd [{to} + 48], {x}", "orpd {a}, {x}",
                "movmskpd {tops:e}, {a}",
                from = in(reg) from.as_ptr(), to = in(reg) to.as_mut_ptr(), tops = out(reg) tops,
                x = out(xmm_reg) _, a = out(xmm_reg) _, options(nostack, preserves_flags));
            tops == 0
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use hostcall_abi::MAX_LANES;
    use hostcall_abi::word::{Line, MAX_PAIRS, pairs_for};

    /// Words of all kinds, one after the other.
    fn words() -> impl FnMut() -> u64 {
        let mut state = 1u64;
        move || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            if state >> 62 == 0 { state >> 40 } else { state ^ state >> 29 }
        }
    }

    #[test]
    fn lines_are_copied_whole_and_only_when_every_word_is_there() {
        let mut next = words();
        for (first, lanes, count) in [
            (0, 1, 7),
            (0, 3, 2),
            (1, 8, 6),
            (0, 8, 1),
            (32, 32, 7),
            (0, 32, 4),
            (0, 31, 7),
            (0, 64, 3),
            (2, 10, 5),
        ] {
            let pairs = pairs_for(count);
            for used in [0, u64::MAX, 1, next(), !1, next()] {
                let used = |pair: usize| used.rotate_left(pair as u32) ^ (pair as u64 & 2).wrapping_neg();
                let lines: Vec<Line> = (0..lanes)
                    .map(|_| Line {
                        words: core::array::from_fn(|i| if i < count { next() } else { 0 }),
                        tag: next() >> (64 - TAG_BITS),
                    })
                    .collect();
                let of_pair = |pair| -> Vec<[AtomicU64; 2]> {
                    let of_lane = |(i, line): (usize, &Line)| {
                        line.pair(pair, count)
                            .map(|word| AtomicU64::new(with_lap(word, used(pair) >> i & 1 == 0)))
                    };
                    lines.iter().enumerate().map(of_lane).collect()
                };
                let shared: Vec<_> = (0..pairs).map(of_pair).collect();
                let mut planes = [[[0; 2]; MAX_LANES]; MAX_PAIRS];
                let mut copy = || {
                    let ranks = first..first + lanes;
                    copy_lines(|pair| (&shared[pair][..], used(pair)), pairs, &mut planes, ranks)
                        .then_some(planes)
                };
                let planes = copy().expect("all words are there");
                for (rank, line) in (first..).zip(&lines) {
                    let mut seen = vec![planes[0][rank][0]];
                    seen.extend(planes[1..pairs].iter().flat_map(|plane| plane[rank]));
                    assert_eq!(seen[..count], line.words[..count]);
                    assert_eq!(planes[0][rank][1] & ((1 << TAG_BITS) - 1), line.tag);
                }
                let (pair, lane) = (next() as usize % pairs, next() as usize % lanes);
                let word = &shared[pair][lane][next() as usize % 2];
                word.fetch_xor(LAP, core::sync::atomic::Ordering::Relaxed);
                assert!(copy().is_none(), "a word of an earlier call was taken");
            }
        }
    }

    #[test]
    fn stored_pairs_have_their_next_laps() {
        let mut next = words();
        for count in [1, 2, 7, 8, 9, 32, 64] {
            for used in [0, u64::MAX, 1, next()] {
                let from: Vec<[u64; 2]> = (0..count).map(|_| [next() & PAYLOAD, next() & PAYLOAD]).collect();
                let to: Vec<_> = (0..count).map(|_| [0; 2].map(AtomicU64::new)).collect();
                store_run(&to, &from, used);
                for (i, (to, from)) in to.iter().zip(&from).enumerate() {
                    assert_eq!(load_pair(to), from.map(|word| with_lap(word, used >> i & 1 == 0)));
                }
            }
        }
    }
}
