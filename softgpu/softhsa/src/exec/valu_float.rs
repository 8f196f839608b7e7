//! Floating-point arithmetic in lanes. Sums, products, quotients and square roots are rounded correctly; the
//! processor's approximations (reciprocals, exponentials, sines) are rounded correctly here, too, and so may
//! differ from the processor's in the last place. What they do with denormals, and what sign their NaNs and zeros
//! have, is what AMD's manual of CDNA 3 says and shows by examples.

use super::float::{
    fused_to_odd, ieee, max_f32, max_f64, min_f32, min_f64, nan2_f32, nan2_f64, nan3_f32, nan3_f64,
    scale_f32, scale_f64, split,
};
use super::handlers;
use super::lanes::{Half, Unused, binary, by_lane, select_by_mask, ternary, unary};
use super::wave::Wave;
use super::wave::mode::{self, RESULTS, SOURCES};

pub(super) fn add(a: f32, b: f32) -> f32 {
    nan2_f32(a + b, a, b)
}

pub(super) fn multiply(a: f32, b: f32) -> f32 {
    nan2_f32(a * b, a, b)
}

pub(super) fn fused(a: f32, b: f32, c: f32) -> f32 {
    nan3_f32(a.mul_add(b, c), a, b, c)
}

pub(super) fn add_64(a: f64, b: f64) -> f64 {
    nan2_f64(a + b, a, b)
}

pub(super) fn multiply_64(a: f64, b: f64) -> f64 {
    nan2_f64(a * b, a, b)
}

pub(super) fn fused_64(a: f64, b: f64, c: f64) -> f64 {
    nan3_f64(a.mul_add(b, c), a, b, c)
}

pub(super) fn add_half(a: Half, b: Half) -> Half {
    Half(add_64(a.0, b.0))
}

pub(super) fn multiply_half(a: Half, b: Half) -> Half {
    Half(multiply_64(a.0, b.0))
}

pub(super) fn fused_half(a: Half, b: Half, c: Half) -> Half {
    Half(nan3_f64(fused_to_odd(a.0, b.0, c.0), a.0, b.0, c.0))
}

/// Multiplies, rounds, and adds.
fn unfused_half(a: Half, b: Half, c: Half) -> Half {
    let product = super::float::f64_of_half(super::float::half_of_f64(a.0 * b.0));
    Half(nan3_f64(product + c.0, a.0, b.0, c.0))
}

/// Multiplies so that 0 times anything is 0.
fn multiply_legacy(a: f32, b: f32) -> f32 {
    if a == 0.0 || b == 0.0 { 0.0 } else { multiply(a, b) }
}

/// Computes an approximation of 32 bits. What is no number though the source is one has the sign bit set.
fn approximation(a: f32, f: impl Fn(f32) -> f32) -> f32 {
    match f(a) {
        result if result.is_nan() && !a.is_nan() => f32::NAN.copysign(-1.0),
        result => nan2_f32(result, a, a),
    }
}

/// Computes an approximation for which denormals are 0, source and result, whatever MODE says.
fn flushed(a: f32, f: impl Fn(f32) -> f32) -> f32 {
    let flush = |value: f32| f32::from_bits(mode::flush_32(0, value.to_bits(), SOURCES | RESULTS));
    flush(approximation(flush(a), f))
}

/// Computes an approximation of 16 bits.
fn half_approximation(a: Half, f: impl Fn(f64) -> f64) -> Half {
    Half(match f(a.0) {
        result if result.is_nan() && !a.0.is_nan() => f64::NAN.copysign(-1.0),
        result => nan2_f64(result, a.0, a.0),
    })
}

/// Computes a function of one source with 64 bits and rounds it to 32.
fn through_64(f: impl Fn(f64) -> f64) -> impl Fn(f32) -> f32 {
    move |a| f(f64::from(a)) as f32
}

fn kept(value: f32, f: impl Fn(f32) -> f32) -> f32 {
    nan2_f32(f(value), value, value)
}

fn kept_64(value: f64, f: impl Fn(f64) -> f64) -> f64 {
    nan2_f64(f(value), value, value)
}

/// Returns the sine of a number of turns, which is exactly 0 at half turns: only that of −0 is −0.
fn sine(turns: f64) -> f64 {
    match turns.fract().abs() {
        _ if turns == 0.0 => turns,
        0.0 | 0.5 => 0.0,
        _ => (turns.fract() * std::f64::consts::TAU).sin(),
    }
}

/// Returns the cosine of a number of turns, which is exactly 0 at quarter and three quarters.
fn cosine(turns: f64) -> f64 {
    match turns.fract().abs() {
        0.25 | 0.75 => 0.0,
        turns => (turns * std::f64::consts::TAU).cos(),
    }
}

/// Subtracts the next smaller whole number. `below_one` is the largest number below 1, which bounds the
/// result.
fn fraction(value: f64, below_one: f64) -> f64 {
    // Not `min`, which would take the bound for the fraction of what is no number.
    let bounded = |fraction: f64| if fraction > below_one { below_one } else { fraction };
    kept_64(value, |value| bounded(value - value.floor()))
}

fn mantissa(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() { kept_64(value, |value| value) } else { split(value).0 }
}

fn exponent(value: f64) -> i32 {
    if value == 0.0 || !value.is_finite() { 0 } else { split(value).1 }
}

fn least(wave: &Wave, a: f32, b: f32) -> f32 {
    min_f32(a, b, ieee(wave))
}

fn greatest(wave: &Wave, a: f32, b: f32) -> f32 {
    max_f32(a, b, ieee(wave))
}

/// Returns the middle one of three, and the least one if one is not a number. It is the greater one of those that are
/// left when the first one is taken away that equals the greatest, for which zeros of either sign are equal.
fn middle<T: Copy + PartialOrd>(a: T, b: T, c: T, min: impl Fn(T, T) -> T, max: impl Fn(T, T) -> T) -> T {
    if [a, b, c].iter().any(|value| value.partial_cmp(value).is_none()) {
        return min(min(a, b), c);
    }
    match max(max(a, b), c) {
        greatest if greatest == a => max(b, c),
        greatest if greatest == b => max(a, c),
        _ => max(a, b),
    }
}

/// The face of a cube that a direction points to, its coordinates there, and twice the largest coordinate.
fn cube(x: f32, y: f32, z: f32) -> (f32, f32, f32, f32) {
    let (ax, ay, az) = (x.abs(), y.abs(), z.abs());
    if az >= ax && az >= ay {
        if z < 0.0 { (5.0, -x, -y, 2.0 * z) } else { (4.0, x, -y, 2.0 * z) }
    } else if ay >= ax {
        if y < 0.0 { (3.0, x, -z, 2.0 * y) } else { (2.0, x, z, 2.0 * y) }
    } else if x < 0.0 {
        (1.0, z, -y, 2.0 * x)
    } else {
        (0.0, -z, -y, 2.0 * x)
    }
}

const BELOW_ONE_HALF: f64 = 1.0 - 1.0 / 2048.0;
const BELOW_ONE_32: f64 = 1.0 - 1.0 / 16_777_216.0;
const BELOW_ONE_64: f64 = 1.0 - f64::EPSILON / 2.0;

/// The first 1,216 binary places of 2/π.
const TWO_OVER_PI: [u64; 19] = [
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
    0x5603_3046_fc7b_6bab,
];

/// Returns 53 of the binary places of 2/π that reducing an argument of that size needs: the first, second or
/// third lot of them, at their place.
fn places_of_two_over_pi(value: f64, lot: u32) -> f64 {
    const PLACES: usize = 1201;
    let exponent = (value.to_bits() >> 52 & 0x7ff) as usize;
    let first = (lot as usize & 31) * 53 + exponent.saturating_sub(1077);
    let bit = |place: usize| {
        let in_range = place < PLACES;
        if in_range { TWO_OVER_PI[place / 64] >> (63 - place % 64) & 1 } else { 0 }
    };
    let places = (first..first + 53).fold(0u64, |places, place| places << 1 | bit(place));
    let scale = -53 - first as i32 + if exponent >= 1968 { 128 } else { 0 };
    scale_f64(places as f64, scale)
}

handlers! {
    "v_trig_preop_f64" => binary(places_of_two_over_pi),
    "v_add_f32" => binary(add),
    "v_sub_f32" => binary(|a, b: f32| add(a, -b)),
    "v_subrev_f32" => binary(|a: f32, b| add(b, -a)),
    "v_mul_f32" => binary(multiply),
    "v_mul_legacy_f32" => binary(multiply_legacy),
    "v_fma_f32" | "v_fmac_f32" => ternary(fused),
    "v_fmamk_f32" => by_lane(|_, inst, _, a, b, _: Unused| fused(a, f32::from_bits(inst.imm as u32), b)),
    "v_fmaak_f32" => by_lane(|_, inst, _, a, b, _: Unused| fused(a, b, f32::from_bits(inst.imm as u32))),
    "v_min_f32" => by_lane(|wave, _, _, a, b, _: Unused| least(wave, a, b)),
    "v_max_f32" => by_lane(|wave, _, _, a, b, _: Unused| greatest(wave, a, b)),
    "v_min3_f32" => by_lane(|wave, _, _, a, b, c| least(wave, least(wave, a, b), c)),
    "v_max3_f32" => by_lane(|wave, _, _, a, b, c| greatest(wave, greatest(wave, a, b), c)),
    "v_med3_f32" => by_lane(|wave, _, _, a, b, c| {
        middle(a, b, c, |a, b| least(wave, a, b), |a, b| greatest(wave, a, b))
    }),
    "v_rcp_f32" | "v_rcp_iflag_f32" => unary(|a: f32| flushed(a, |a| 1.0 / a)),
    "v_rsq_f32" => unary(|a: f32| flushed(a, through_64(|a| 1.0 / a.sqrt()))),
    "v_sqrt_f32" => unary(|a: f32| flushed(a, f32::sqrt)),
    "v_exp_f32" | "v_exp_legacy_f32" => unary(|a: f32| flushed(a, through_64(f64::exp2))),
    "v_log_f32" | "v_log_legacy_f32" => unary(|a: f32| flushed(a, through_64(f64::log2))),
    "v_sin_f32" => unary(|a: f32| approximation(a, through_64(sine))),
    "v_cos_f32" => unary(|a: f32| approximation(a, through_64(cosine))),
    "v_fract_f32" => unary(|a: f32| fraction(f64::from(a), BELOW_ONE_32) as f32),
    "v_trunc_f32" => unary(|a: f32| kept(a, f32::trunc)),
    "v_ceil_f32" => unary(|a: f32| kept(a, f32::ceil)),
    "v_rndne_f32" => unary(|a: f32| kept(a, f32::round_ties_even)),
    "v_floor_f32" => unary(|a: f32| kept(a, f32::floor)),
    "v_frexp_exp_i32_f32" => unary(|a: f32| exponent(f64::from(a))),
    "v_frexp_mant_f32" => unary(|a: f32| mantissa(f64::from(a)) as f32),
    "v_ldexp_f32" => binary(|a: f32, b: i32| kept(a, |a| scale_f32(a, b))),
    "v_cubeid_f32" => ternary(|x: f32, y: f32, z: f32| cube(x, y, z).0),
    "v_cubesc_f32" => ternary(|x: f32, y: f32, z: f32| cube(x, y, z).1),
    "v_cubetc_f32" => ternary(|x: f32, y: f32, z: f32| cube(x, y, z).2),
    "v_cubema_f32" => ternary(|x: f32, y: f32, z: f32| cube(x, y, z).3),
    "v_cndmask_b32" => select_by_mask(|wave, inst| match inst.row.operand("src2") {
        Some(_) => wave.read_scalar64(inst.src[2]),
        None => wave.pair(super::wave::scalar::VCC),
    }),
    "v_add_f64" => binary(add_64),
    "v_mul_f64" => binary(multiply_64),
    "v_fma_f64" | "v_fmac_f64" => ternary(fused_64),
    "v_min_f64" => by_lane(|wave, _, _, a, b, _: Unused| min_f64(a, b, ieee(wave))),
    "v_max_f64" => by_lane(|wave, _, _, a, b, _: Unused| max_f64(a, b, ieee(wave))),
    "v_rcp_f64" => unary(|a: f64| kept_64(a, |a| 1.0 / a)),
    "v_rsq_f64" => unary(|a: f64| kept_64(a, |a| 1.0 / a.sqrt())),
    "v_sqrt_f64" => unary(|a: f64| kept_64(a, f64::sqrt)),
    "v_fract_f64" => unary(|a: f64| fraction(a, BELOW_ONE_64)),
    "v_trunc_f64" => unary(|a: f64| kept_64(a, f64::trunc)),
    "v_ceil_f64" => unary(|a: f64| kept_64(a, f64::ceil)),
    "v_rndne_f64" => unary(|a: f64| kept_64(a, f64::round_ties_even)),
    "v_floor_f64" => unary(|a: f64| kept_64(a, f64::floor)),
    "v_frexp_exp_i32_f64" => unary(exponent),
    "v_frexp_mant_f64" => unary(mantissa),
    "v_ldexp_f64" => binary(|a: f64, b: i32| kept_64(a, |a| scale_f64(a, b))),
    "v_add_f16" => binary(add_half),
    "v_sub_f16" => binary(|a, b: Half| add_half(a, Half(-b.0))),
    "v_subrev_f16" => binary(|a: Half, b| add_half(b, Half(-a.0))),
    "v_mul_f16" => binary(multiply_half),
    "v_fma_f16" | "v_fma_legacy_f16" => ternary(fused_half),
    "v_mad_f16" | "v_mad_legacy_f16" | "v_mac_f16" => ternary(unfused_half),
    "v_madmk_f16" => by_lane(|_, inst, _, a, b, _: Unused| unfused_half(a, literal_half(inst.imm), b)),
    "v_madak_f16" => by_lane(|_, inst, _, a, b, _: Unused| unfused_half(a, b, literal_half(inst.imm))),
    "v_min_f16" => by_lane(|wave, _, _, a: Half, b: Half, _: Unused| Half(min_f64(a.0, b.0, ieee(wave)))),
    "v_max_f16" => by_lane(|wave, _, _, a: Half, b: Half, _: Unused| Half(max_f64(a.0, b.0, ieee(wave)))),
    "v_min3_f16" => by_lane(|wave, _, _, a: Half, b: Half, c: Half| {
        Half(min_f64(min_f64(a.0, b.0, ieee(wave)), c.0, ieee(wave)))
    }),
    "v_max3_f16" => by_lane(|wave, _, _, a: Half, b: Half, c: Half| {
        Half(max_f64(max_f64(a.0, b.0, ieee(wave)), c.0, ieee(wave)))
    }),
    "v_med3_f16" => by_lane(|wave, _, _, a: Half, b: Half, c: Half| {
        Half(middle(a.0, b.0, c.0, |a, b| min_f64(a, b, ieee(wave)), |a, b| max_f64(a, b, ieee(wave))))
    }),
    "v_rcp_f16" => unary(|a: Half| half_approximation(a, |a| 1.0 / a)),
    "v_rsq_f16" => unary(|a: Half| half_approximation(a, |a| 1.0 / a.sqrt())),
    "v_sqrt_f16" => unary(|a: Half| half_approximation(a, f64::sqrt)),
    "v_exp_f16" => unary(|a: Half| half_approximation(a, f64::exp2)),
    "v_log_f16" => unary(|a: Half| half_approximation(a, f64::log2)),
    "v_sin_f16" => unary(|a: Half| half_approximation(a, sine)),
    "v_cos_f16" => unary(|a: Half| half_approximation(a, cosine)),
    "v_fract_f16" => unary(|a: Half| Half(fraction(a.0, BELOW_ONE_HALF))),
    "v_trunc_f16" => unary(|a: Half| Half(kept_64(a.0, f64::trunc))),
    "v_ceil_f16" => unary(|a: Half| Half(kept_64(a.0, f64::ceil))),
    "v_rndne_f16" => unary(|a: Half| Half(kept_64(a.0, f64::round_ties_even))),
    "v_floor_f16" => unary(|a: Half| Half(kept_64(a.0, f64::floor))),
    "v_frexp_exp_i16_f16" => unary(|a: Half| exponent(a.0) as i16),
    "v_frexp_mant_f16" => unary(|a: Half| Half(mantissa(a.0))),
    "v_ldexp_f16" => binary(|a: Half, b: i16| Half(kept_64(a.0, |a| scale_f64(a, i32::from(b))))),
}

pub(super) fn literal_half(bits: i64) -> Half {
    Half(super::float::f64_of_half(bits as u16))
}
