//! Floating-point operations of 16 bits in each of the four roundings, against whole numbers: a half is a multiple
//! of 2⁻²⁴, so that products of two are multiples of 2⁻⁴⁸, and a result is found among all halves.

use crate::bench::{Bench, assemble_all};
use std::sync::LazyLock;

/// Roundings as MODE counts them.
const NEAREST: u32 = 0;
const UP: u32 = 1;
const DOWN: u32 = 2;

/// The least half that is no number, infinity.
const INFINITY: u16 = 0x7c00;

/// The magnitude of each finite half, in units of 2⁻⁴⁸. They are in the order of their bits.
static MAGNITUDES: LazyLock<Vec<i128>> = LazyLock::new(|| {
    let magnitude = |half: u16| match (i128::from(half >> 10), i128::from(half & 0x3ff)) {
        (0, fraction) => fraction,
        (exponent, fraction) => (fraction | 0x400) << (exponent - 1),
    };
    (0..INFINITY).map(|half| magnitude(half) << 24).collect()
});

/// Returns a finite half in units of 2⁻⁴⁸.
fn units(half: u16) -> i128 {
    let magnitude = MAGNITUDES[usize::from(half & 0x7fff)];
    if half >> 15 != 0 { -magnitude } else { magnitude }
}

/// A number in units of 2⁻⁴⁸, and the sign that it has if it is 0.
#[derive(Clone, Copy, Debug)]
struct Exact {
    units: i128,
    negative_zero: bool,
}

/// Returns the half that a number is rounded to.
fn round(exact: Exact, rounding: u32) -> u16 {
    if exact.units == 0 {
        return u16::from(exact.negative_zero) << 15;
    }
    let (negative, magnitude) = (exact.units < 0, exact.units.abs());
    // The first half that is not less, and the one before it. Above the largest half lies what would be the next one.
    let above = MAGNITUDES.partition_point(|&half| half < magnitude);
    let value = |half: usize| MAGNITUDES.get(half).copied().unwrap_or(1 << (16 + 48));
    let half = if above < MAGNITUDES.len() && value(above) == magnitude {
        above
    } else {
        let below = above - 1;
        let up = match rounding {
            NEAREST => {
                let (to_below, to_above) = (magnitude - value(below), value(above) - magnitude);
                to_above < to_below || to_above == to_below && above % 2 == 0
            }
            UP => !negative,
            DOWN => negative,
            _ => false,
        };
        if up { above } else { below }
    };
    u16::from(negative) << 15 | half as u16
}

/// Adds. A sum of 0 is negative if both numbers are, or if it is rounded down and one is.
fn sum(a: Exact, b: Exact, rounding: u32) -> Exact {
    let negative = |x: Exact| x.units < 0 || x.units == 0 && x.negative_zero;
    let negative_zero = if negative(a) == negative(b) { negative(a) } else { rounding == DOWN };
    Exact { units: a.units + b.units, negative_zero }
}

fn exact(half: u16) -> Exact {
    Exact { units: units(half), negative_zero: half >> 15 != 0 }
}

fn product(a: u16, b: u16) -> Exact {
    // Each is a multiple of 2²⁴ units.
    Exact { units: (units(a) >> 24) * (units(b) >> 24), negative_zero: (a ^ b) >> 15 != 0 }
}

/// Multiplies by a power of 2 from −24 on.
fn scaled(half: u16, exponent: i16) -> Exact {
    let units = units(half);
    let units = if exponent < 0 { units >> -exponent } else { units << exponent.min(50) };
    Exact { units, ..exact(half) }
}

fn whole(value: i32) -> Exact {
    Exact { units: i128::from(value) << 48, negative_zero: false }
}

/// Returns the result's half of three halves. The last argument is the rounding.
type Model = fn([u16; 3], u32) -> u16;

fn fused([a, b, c]: [u16; 3], rounding: u32) -> u16 {
    round(sum(product(a, b), exact(c), rounding), rounding)
}

/// Multiplies, rounds, and adds. A product that is infinite stays so.
fn unfused([a, b, c]: [u16; 3], rounding: u32) -> u16 {
    match round(product(a, b), rounding) {
        infinite if infinite & 0x7fff == INFINITY => infinite,
        product => round(sum(exact(product), exact(c), rounding), rounding),
    }
}

const OPERATIONS: &[(&str, Model)] = &[
    ("v_add_f16_e32 v4, v1, v2", |[a, b, _], r| round(sum(exact(a), exact(b), r), r)),
    ("v_sub_f16_e32 v4, v1, v2", |[a, b, _], r| round(sum(exact(a), exact(b ^ 0x8000), r), r)),
    ("v_subrev_f16_e32 v4, v1, v2", |[a, b, _], r| round(sum(exact(b), exact(a ^ 0x8000), r), r)),
    ("v_mul_f16_e32 v4, v1, v2", |[a, b, _], r| round(product(a, b), r)),
    ("v_mul_f16_e64 v4, -v1, |v2|", |[a, b, _], r| round(product(a ^ 0x8000, b & 0x7fff), r)),
    ("v_fma_f16 v4, v1, v2, v3", fused),
    ("v_fma_legacy_f16 v4, v1, v2, v3", fused),
    ("v_fma_f16 v4, v1, -v2, |v3|", |[a, b, c], r| fused([a, b ^ 0x8000, c & 0x7fff], r)),
    ("v_mad_f16 v4, v1, v2, v3", unfused),
    ("v_mad_legacy_f16 v4, v1, v2, v3", unfused),
    ("v_mov_b32_e32 v4, v3\nv_mac_f16_e32 v4, v1, v2", unfused),
    ("v_madmk_f16 v4, v1, 0x4248, v2", |[a, b, _], r| unfused([a, 0x4248, b], r)),
    ("v_madak_f16 v4, v1, v2, 0xb5ab", |[a, b, _], r| unfused([a, b, 0xb5ab], r)),
    ("v_ldexp_f16_e64 v4, v1, -7", |[a, ..], r| round(scaled(a, -7), r)),
    ("v_ldexp_f16_e64 v4, v1, 19", |[a, ..], r| round(scaled(a, 19), r)),
    ("v_cvt_f16_u16_e32 v4, v1", |[a, ..], r| round(whole(a.into()), r)),
    ("v_cvt_f16_i16_e32 v4, v1", |[a, ..], r| round(whole((a as i16).into()), r)),
    ("v_fract_f16_e32 v4, v1", |[a, ..], r| {
        let floor = units(a) >> 48 << 48;
        let fraction = Exact { units: units(a) - floor, negative_zero: false };
        round(fraction, r).min(0x3bff)
    }),
    ("v_pk_add_f16 v4, v1, v2", |[a, b, _], r| round(sum(exact(a), exact(b), r), r)),
    ("v_pk_mul_f16 v4, v1, v2", |[a, b, _], r| round(product(a, b), r)),
    ("v_pk_mul_f16 v4, v1, v2 neg_lo:[0,1] neg_hi:[0,1]", |[a, b, _], r| round(product(a, b ^ 0x8000), r)),
    ("v_pk_fma_f16 v4, v1, v2, v3", fused),
    ("v_mov_b32_e32 v4, v3\nv_pk_fmac_f16 v4, v1, v2", fused),
    // Rounded alike in every mode.
    ("v_max_f16_e32 v4, v1, v2", |[a, b, _], _| if order(a) > order(b) { a } else { b }),
    ("v_min_f16_e32 v4, v1, v2", |[a, b, _], _| if order(a) < order(b) { a } else { b }),
    ("v_max3_f16 v4, v1, v2, v3", |x, _| sorted(x)[2]),
    ("v_min3_f16 v4, v1, v2, v3", |x, _| sorted(x)[0]),
    ("v_med3_f16 v4, v1, v2, v3", |[a, b, c], _| {
        // Without the first one that equals the greatest: zeros are equal.
        let rest = match units(sorted([a, b, c])[2]) {
            greatest if greatest == units(a) => [b, c],
            greatest if greatest == units(b) => [a, c],
            _ => [a, b],
        };
        rest.into_iter().max_by_key(|&half| order(half)).expect("there are two")
    }),
    ("v_pk_max_f16 v4, v1, v2", |[a, b, _], _| if order(a) > order(b) { a } else { b }),
    ("v_pk_min_f16 v4, v1, v2", |[a, b, _], _| if order(a) < order(b) { a } else { b }),
    ("v_trunc_f16_e32 v4, v1", |[a, ..], _| {
        a & 0x8000 | round(Exact { units: units(a & 0x7fff) >> 48 << 48, negative_zero: false }, NEAREST)
    }),
    ("v_floor_f16_e32 v4, v1", |[a, ..], _| {
        let floor = Exact { units: units(a) >> 48 << 48, negative_zero: a == 0x8000 };
        round(floor, NEAREST)
    }),
    ("v_frexp_mant_f16_e32 v4, v1", |[a, ..], _| match units(a & 0x7fff) {
        0 => a,
        units => {
            a & 0x8000
                | round(
                    Exact { units: units << (units.leading_zeros() - 1) >> 79, negative_zero: false },
                    NEAREST,
                )
        }
    }),
    ("v_frexp_exp_i16_f16_e32 v4, v1", |[a, ..], _| match units(a & 0x7fff) {
        0 => 0,
        units => (80 - units.leading_zeros() as i32) as u16,
    }),
];

/// Orders halves as numbers, −0 below 0.
fn order(half: u16) -> i32 {
    let magnitude = i32::from(half & 0x7fff);
    if half >> 15 != 0 { -magnitude - 1 } else { magnitude }
}

fn sorted(mut halves: [u16; 3]) -> [u16; 3] {
    halves.sort_by_key(|&half| order(half));
    halves
}

/// Finite halves: zeros, the ends of denormal and normal numbers, and numbers with many places.
const HALVES: [u16; 16] = [
    0, 0x8000, 1, 0x83ff, 0x0400, 0x3c00, 0xbc00, 0x3c01, 0xb555, 0x3bff, 0x4248, 0xd6b7, 0x0a35, 0x93c9,
    0x7bff, 0xfbff,
];

#[test]
fn halves_are_rounded_as_mode_says() {
    let words = assemble_all(OPERATIONS.iter().map(|(text, _)| *text));
    for ((text, model), words) in OPERATIONS.iter().zip(words) {
        let packed = text.contains("v_pk_");
        for (rounding, third, first) in
            (0..4).flat_map(|r| HALVES.iter().flat_map(move |&c| [0, 4, 8, 12].map(|first| (r, c, first))))
        {
            let mut bench = Bench::new();
            // The other field, of 32 bits, makes no difference.
            bench.wave.mode |= rounding << 2 | (3 - rounding);
            let sources = |lane: usize| [HALVES[lane % 16], HALVES[lane / 16 + first], third];
            // The upper halves are sources of the neighbouring lane.
            for lane in 0..64 {
                for (register, (low, high)) in (1..).zip(sources(lane).into_iter().zip(sources(lane ^ 1))) {
                    bench.wave.write_lane(register, lane, u32::from(low) | u32::from(high) << 16);
                }
            }
            assert_eq!(bench.run_words(words.clone()), None, "{text}");
            for lane in 0..64 {
                let expected = model(sources(lane), rounding);
                let found = bench.v(4, lane);
                assert_eq!(found as u16, expected, "{text}, rounding {rounding}: {:#x?}", sources(lane));
                if packed {
                    let expected = model(sources(lane ^ 1), rounding);
                    assert_eq!((found >> 16) as u16, expected, "{text}, rounding {rounding}, upper half");
                }
            }
        }
    }
}

#[test]
fn singles_become_halves_as_mode_says() {
    let words = assemble_all(["v_cvt_f16_f32_e32 v4, v1"]).remove(0);
    for (rounding, first) in
        (0..4).flat_map(|rounding| (0..INFINITY).step_by(999).map(move |half| (rounding, half)))
    {
        let mut bench = Bench::new();
        bench.wave.mode |= rounding << 2;
        // Between two halves: at the first, before, in and behind the middle, with both signs.
        let exact = |lane: usize| {
            let half = (usize::from(first) + lane / 8 * 31).min(MAGNITUDES.len() - 1);
            let next = MAGNITUDES.get(half + 1).copied().unwrap_or(1 << 64);
            let magnitude = MAGNITUDES[half] + (next - MAGNITUDES[half]) * [0, 7, 8, 9][lane % 4] / 16;
            let units = if lane & 4 != 0 { -magnitude } else { magnitude };
            Exact { units, negative_zero: lane & 4 != 0 }
        };
        for lane in 0..64 {
            let value = exact(lane).units as f32 * 2f32.powi(-48);
            let value = if exact(lane).negative_zero { -value.abs() } else { value };
            bench.wave.write_lane(1, lane, value.to_bits());
        }
        assert_eq!(bench.run_words(words.clone()), None);
        for lane in 0..64 {
            let expected = round(exact(lane), rounding);
            assert_eq!(bench.v(4, lane), expected.into(), "rounding {rounding}: {:?}", exact(lane));
        }
    }
}
