//! Vector operations on whole numbers of 4 to 32 bits.

use crate::bench::{Bench, assemble_all};
use crate::signed;

/// Sources that make carries, saturation and signs of bytes, halves and words.
const NUMBERS: [u32; 8] = [0, 1, 5, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x8000_7fff, 0x1234_fedc];

/// What the result's register holds before.
const OLD: u32 = 0xdead_beef;

/// Returns v4 from v1, v2 and v3.
type Model = fn([u32; 3]) -> u32;

/// Returns the parts of so many bits, the lowest first.
fn parts(value: u32, bits: u32) -> impl Iterator<Item = u32> {
    (0..32 / bits).map(move |part| value >> (part * bits) & (u32::MAX >> (32 - bits)))
}

fn int(value: u32, bits: u32) -> i64 {
    signed(value.into(), bits) as i64
}

/// Puts an operation's results on the two halves of each source together.
fn halves(sources: [u32; 3], f: impl Fn([u32; 3]) -> u32) -> u32 {
    (0..2).map(|half| (f(sources.map(|source| source >> (16 * half) & 0xffff)) & 0xffff) << (16 * half)).sum()
}

/// Returns a 16-bit result in a register whose upper half stays.
fn lower(value: u32) -> u32 {
    OLD & 0xffff_0000 | value & 0xffff
}

fn sorted(sources: [u32; 3], key: impl Fn(u32) -> i64) -> [u32; 3] {
    let mut sorted = sources;
    sorted.sort_by_key(|&source| key(source));
    sorted
}

/// Returns the sum of differences of parts.
fn differences(a: u32, b: u32, bits: u32, counts: impl Fn(u32) -> bool) -> u32 {
    parts(a, bits).zip(parts(b, bits)).filter(|&(_, b)| counts(b)).map(|(a, b)| a.abs_diff(b)).sum()
}

/// Returns a sum of products and a word.
fn dot([a, b, c]: [u32; 3], bits: u32, number: impl Fn(u32) -> i64) -> u32 {
    let sum: i64 = parts(a, bits).zip(parts(b, bits)).map(|(a, b)| number(a) * number(b)).sum();
    (sum + i64::from(c)) as u32
}

const OPERATIONS: &[(&str, Model)] = &[
    ("v_max3_i32 v4, v1, v2, v3", |x| sorted(x, |x| int(x, 32))[2]),
    ("v_max3_u32 v4, v1, v2, v3", |x| sorted(x, i64::from)[2]),
    ("v_min3_i32 v4, v1, v2, v3", |x| sorted(x, |x| int(x, 32))[0]),
    ("v_min3_u32 v4, v1, v2, v3", |x| sorted(x, i64::from)[0]),
    ("v_med3_i32 v4, v1, v2, v3", |x| sorted(x, |x| int(x, 32))[1]),
    ("v_med3_u32 v4, v1, v2, v3", |x| sorted(x, i64::from)[1]),
    ("v_max3_i16 v4, v1, v2, v3", |x| lower(sorted(x, |x| int(x, 16))[2])),
    ("v_max3_u16 v4, v1, v2, v3", |x| lower(sorted(x, |x| i64::from(x & 0xffff))[2])),
    ("v_min3_i16 v4, v1, v2, v3", |x| lower(sorted(x, |x| int(x, 16))[0])),
    ("v_min3_u16 v4, v1, v2, v3", |x| lower(sorted(x, |x| i64::from(x & 0xffff))[0])),
    ("v_med3_i16 v4, v1, v2, v3", |x| lower(sorted(x, |x| int(x, 16))[1])),
    ("v_med3_u16 v4, v1, v2, v3", |x| lower(sorted(x, |x| i64::from(x & 0xffff))[1])),
    ("v_mad_i16 v4, v1, v2, v3", |[a, b, c]| lower(a.wrapping_mul(b).wrapping_add(c))),
    ("v_mad_legacy_i16 v4, v1, v2, v3", |[a, b, c]| a.wrapping_mul(b).wrapping_add(c) & 0xffff),
    ("v_mad_legacy_u16 v4, v1, v2, v3", |[a, b, c]| a.wrapping_mul(b).wrapping_add(c) & 0xffff),
    ("v_mad_i32_i16 v4, v1, v2, v3", |[a, b, c]| (int(a, 16) * int(b, 16) + i64::from(c)) as u32),
    ("v_mad_u32_u16 v4, v1, v2, v3", |[a, b, c]| {
        ((u64::from(a) & 0xffff) * (u64::from(b) & 0xffff) + u64::from(c)) as u32
    }),
    ("v_mul_hi_u32_u24_e32 v4, v1, v2", |[a, b, _]| {
        (((u64::from(a) & 0xff_ffff) * (u64::from(b) & 0xff_ffff)) >> 32) as u32
    }),
    ("v_bfm_b32 v4, v1, v2", |[a, b, _]| {
        (b % 32..b % 32 + a % 32).filter(|&bit| bit < 32).map(|bit| 1 << bit).sum()
    }),
    ("v_xnor_b32_e32 v4, v1, v2", |[a, b, _]| !(a ^ b)),
    ("v_sad_u32 v4, v1, v2, v3", |[a, b, c]| a.abs_diff(b).wrapping_add(c)),
    ("v_sad_u16 v4, v1, v2, v3", |[a, b, c]| differences(a, b, 16, |_| true).wrapping_add(c)),
    ("v_sad_hi_u8 v4, v1, v2, v3", |[a, b, c]| (differences(a, b, 8, |_| true) << 16).wrapping_add(c)),
    ("v_msad_u8 v4, v1, v2, v3", |[a, b, c]| differences(a, b, 8, |b| b != 0).wrapping_add(c)),
    ("v_cvt_f32_ubyte1_e32 v4, v1", |[a, ..]| ((a >> 8 & 255) as f32).to_bits()),
    ("v_cvt_f32_ubyte2_e32 v4, v1", |[a, ..]| ((a >> 16 & 255) as f32).to_bits()),
    ("v_cvt_f32_ubyte3_e32 v4, v1", |[a, ..]| ((a >> 24) as f32).to_bits()),
    ("v_cvt_pk_i16_i32 v4, v1, v2", |[a, b, _]| {
        let [a, b] = [a, b].map(|x| int(x, 32).clamp(-0x8000, 0x7fff) as u32 & 0xffff);
        a | b << 16
    }),
    ("v_cvt_pk_u16_u32 v4, v1, v2", |[a, b, _]| a.min(0xffff) | b.min(0xffff) << 16),
    ("v_dot4_i32_i8 v4, v1, v2, v3", |x| dot(x, 8, |x| int(x, 8))),
    ("v_dot8_i32_i4 v4, v1, v2, v3", |x| dot(x, 4, |x| int(x, 4))),
    ("v_dot8_u32_u4 v4, v1, v2, v3", |x| dot(x, 4, i64::from)),
    ("v_pk_add_i16 v4, v1, v2", |x| halves(x, |[a, b, _]| a + b)),
    ("v_pk_sub_i16 v4, v1, v2", |x| halves(x, |[a, b, _]| a.wrapping_sub(b))),
    ("v_pk_sub_u16 v4, v1, v2", |x| halves(x, |[a, b, _]| a.wrapping_sub(b))),
    ("v_pk_mad_i16 v4, v1, v2, v3", |x| halves(x, |[a, b, c]| a.wrapping_mul(b).wrapping_add(c))),
    ("v_pk_mad_u16 v4, v1, v2, v3", |x| halves(x, |[a, b, c]| a.wrapping_mul(b).wrapping_add(c))),
    ("v_pk_max_i16 v4, v1, v2", |x| halves(x, |[a, b, _]| int(a, 16).max(int(b, 16)) as u32)),
    ("v_pk_min_i16 v4, v1, v2", |x| halves(x, |[a, b, _]| int(a, 16).min(int(b, 16)) as u32)),
    ("v_pk_max_u16 v4, v1, v2", |x| halves(x, |[a, b, _]| a.max(b))),
    ("v_pk_min_u16 v4, v1, v2", |x| halves(x, |[a, b, _]| a.min(b))),
    ("v_pk_ashrrev_i16 v4, v1, v2", |x| halves(x, |[a, b, _]| (int(b, 16) >> (a & 15)) as u32)),
    ("v_pk_lshlrev_b16 v4, v1, v2", |x| halves(x, |[a, b, _]| b << (a & 15))),
    ("v_pk_lshrrev_b16 v4, v1, v2", |x| halves(x, |[a, b, _]| b >> (a & 15))),
];

#[test]
fn whole_numbers() {
    let words = assemble_all(OPERATIONS.iter().map(|(text, _)| *text));
    for ((text, model), words) in OPERATIONS.iter().zip(words) {
        for third in NUMBERS {
            let mut bench = Bench::new();
            let sources = |lane: usize| [NUMBERS[lane % 8], NUMBERS[lane / 8], third];
            bench.set_v(4, OLD);
            for lane in 0..64 {
                for (register, source) in (1..).zip(sources(lane)) {
                    bench.wave.write_lane(register, lane, source);
                }
            }
            assert_eq!(bench.run_words(words.clone()), None, "{text}");
            for lane in 0..64 {
                let (found, expected) = (bench.v(4, lane), model(sources(lane)));
                assert_eq!(found, expected, "{text} of {:#x?}: {found:#x}", sources(lane));
            }
        }
    }
}

/// Four sums of differences of bytes, from four bytes in a row on, without those of source 1 that are 0.
#[test]
fn four_masked_differences() {
    let mut bench = Bench::new();
    let (wide, reference, sums) = (0x8877_6655_4433_2211u64, 0x0a00_ff01u32, [1u32, 20, 300, u32::MAX]);
    for (register, value) in [(2, wide as u32), (3, (wide >> 32) as u32), (1, reference)] {
        bench.set_v(register, value);
    }
    for (register, sum) in (8..).zip(sums) {
        bench.set_v(register, sum);
    }
    assert_eq!(bench.run("v_mqsad_u32_u8 v[4:7], v[2:3], v1, v[8:11]"), None);
    for (part, sum) in (0..4).zip(sums) {
        let window = (wide >> (8 * part)) as u32;
        let expected = sum.wrapping_add(differences(window, reference, 8, |byte| byte != 0));
        assert_eq!(bench.v(4 + part as u16, 20), expected, "sum {part}");
    }
}
