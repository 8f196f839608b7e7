//! Arithmetic with the rounding that MODE asks for.
//!
//! The handlers of the other modules round to the nearest even number, as the CPU does. A wave whose MODE asks
//! for another rounding runs the handlers of this module: they compute the exact result with whole numbers and
//! round it once. Every source is a finite number of at most 64 bits; results of infinities and NaNs are not
//! rounded, so those come from the other modules.

use super::Handler;
use super::float::scale_f64;
use super::handlers;
use super::lanes::{Half, Unused, by_lane};
use super::valu_convert::widen;
use super::valu_divide::{
    fixup_32, fixup_64, fused_32, fused_64, fused_doubles, fused_singles, scaled_back, scaling_32, scaling_64,
};
use super::valu_float as nearest;
use super::valu_packed::{fused_pair, mix, packed_halves, packed_singles};
use super::wave::{Wave, mode};
use crate::isa::table::{Flag, Row};

/// How a result is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest number, of two equally near ones to the even one.
    Nearest,
    /// To the next larger number.
    Up,
    /// To the next smaller number.
    Down,
    /// To the next number that is nearer to 0.
    TowardsZero,
}

impl Rounding {
    /// Returns the rounding that a field of MODE asks for.
    fn of_field(mode: u32, field: u32) -> Rounding {
        match (mode & field) >> field.trailing_zeros() {
            0 => Rounding::Nearest,
            1 => Rounding::Up,
            2 => Rounding::Down,
            _ => Rounding::TowardsZero,
        }
    }
}

/// A format of results, and the field of MODE that rounds them.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Bits of a significand.
    precision: i32,
    /// The exponent of the last place of denormal numbers.
    least_place: i32,
    /// The exponent of the first place of the largest numbers.
    most: i32,
    field: u32,
}

/// Numbers of 16 bits.
pub const HALF: Format = Format { precision: 11, least_place: -24, most: 15, field: mode::ROUND_16_64 };
/// Numbers of 32 bits.
pub const SINGLE: Format = Format { precision: 24, least_place: -149, most: 127, field: mode::ROUND_32 };
/// Numbers of 64 bits.
pub const DOUBLE: Format = Format { precision: 53, least_place: -1074, most: 1023, field: mode::ROUND_16_64 };
/// Numbers of 32 bits that were made of 64: LLVM sets the field of 64 bits to round them.
const NARROWED: Format = Format { field: mode::ROUND_16_64, ..SINGLE };

/// The number (−1)^negative × significand × 2^exponent.
#[derive(Clone, Copy, Debug)]
pub struct Exact {
    negative: bool,
    significand: u128,
    exponent: i32,
    /// Whether the number's magnitude is larger than that by less than one unit of the significand, which then
    /// has more bits than any format.
    more: bool,
}

impl Exact {
    /// Returns a finite number.
    pub fn of(value: f64) -> Exact {
        let bits = value.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as i32;
        let fraction = u128::from(bits & ((1 << 52) - 1));
        let significand = if exponent == 0 { fraction } else { fraction | 1 << 52 };
        let exponent = exponent.max(1) - 1075;
        Exact { negative: value.is_sign_negative(), significand, exponent, more: false }
    }

    /// Returns a whole number.
    fn of_integer(value: i64) -> Exact {
        let significand = u128::from(value.unsigned_abs());
        Exact { negative: value < 0, significand, exponent: 0, more: false }
    }

    /// Returns the exponent of the first place, plus 1.
    fn end(self) -> i32 {
        self.exponent + 128 - self.significand.leading_zeros() as i32
    }

    /// Multiplies two finite numbers.
    pub fn product(a: f64, b: f64) -> Exact {
        let (a, b) = (Exact::of(a), Exact::of(b));
        Exact {
            negative: a.negative != b.negative,
            // Significands of 53 bits have products of 106.
            significand: a.significand * b.significand,
            exponent: a.exponent + b.exponent,
            more: false,
        }
    }

    /// Multiplies by a power of 2.
    pub fn scaled(self, exponent: i32) -> Exact {
        Exact { exponent: self.exponent.saturating_add(exponent.clamp(-10_000, 10_000)), ..self }
    }

    /// Adds two numbers of which each has at most 106 bits. A sum of 0 has the sign that the rounding gives it.
    pub fn sum(a: Exact, b: Exact, rounding: Rounding) -> Exact {
        let zero = Exact { negative: rounding == Rounding::Down, significand: 0, exponent: 0, more: false };
        match (a.significand, b.significand) {
            (0, 0) if a.negative == b.negative => return a,
            (0, 0) => return zero,
            (_, 0) => return a,
            (0, _) => return b,
            _ => {}
        }
        // The larger number gets its first place at bit 125, so that a carry has room, and so more than 19 places
        // below its last one. Where bits of the smaller are lost, it is below those places, and a difference
        // loses one place at most.
        let exponent = a.end().max(b.end()) - 126;
        let place = |x: Exact| match x.exponent - exponent {
            up @ 0.. => (x.significand << up, false),
            down @ -127..=-1 => {
                let kept = x.significand >> -down;
                (kept, kept << -down != x.significand)
            }
            _ => (0, true),
        };
        let ((high, high_lost), (low, low_lost)) = (place(a), place(b));
        let lost = high_lost || low_lost;
        if a.negative == b.negative {
            return Exact { negative: a.negative, significand: high + low, exponent, more: lost };
        }
        let ((large, negative), small) =
            if high >= low { ((high, a.negative), low) } else { ((low, b.negative), high) };
        // What the smaller number lost is subtracted too: the difference is one less, and more than that.
        let significand = large - small - u128::from(lost);
        if significand == 0 { zero } else { Exact { negative, significand, exponent, more: lost } }
    }

    /// Rounds to a format.
    pub fn round(self, format: Format, rounding: Rounding) -> f64 {
        let sign = if self.negative { -1.0 } else { 1.0 };
        if self.significand == 0 {
            return 0f64.copysign(sign);
        }
        let place = (self.end() - format.precision).max(format.least_place);
        let (mut kept, inexact, against_half) = match place - self.exponent {
            up @ ..=0 => (self.significand << -up, false, std::cmp::Ordering::Less),
            down @ 1..=127 => {
                let rest = self.significand & ((1 << down) - 1);
                let against_half = rest.cmp(&(1 << (down - 1)));
                let against_half =
                    if self.more { against_half.then(std::cmp::Ordering::Greater) } else { against_half };
                (self.significand >> down, rest != 0 || self.more, against_half)
            }
            // Less than half of the least number: significands have at most 127 bits.
            _ => (0, true, std::cmp::Ordering::Less),
        };
        let up = match rounding {
            Rounding::Nearest => against_half.is_gt() || against_half.is_eq() && kept & 1 != 0,
            Rounding::Up => inexact && !self.negative,
            Rounding::Down => inexact && self.negative,
            Rounding::TowardsZero => false,
        };
        kept += u128::from(up);
        if place + 127 - kept.leading_zeros() as i32 > format.most {
            let largest = ((1u64 << format.precision) - 1) as f64;
            let away = match rounding {
                Rounding::Nearest => true,
                Rounding::Up => !self.negative,
                Rounding::Down => self.negative,
                Rounding::TowardsZero => false,
            };
            let most =
                if away { f64::INFINITY } else { scale_f64(largest, format.most + 1 - format.precision) };
            return most.copysign(sign);
        }
        scale_f64(kept as f64, place).copysign(sign)
    }
}

/// A number in a register. Every one is a number of 64 bits.
pub trait Number: Copy {
    /// Its format.
    const FORMAT: Format;

    /// Returns the number with 64 bits.
    fn wide(self) -> f64;

    /// Returns a number of 64 bits that is one of this format.
    fn of(value: f64) -> Self;
}

macro_rules! numbers {
    ($($number:ty, $format:expr, $wide:expr, $of:expr;)*) => {$(
        impl Number for $number {
            const FORMAT: Format = $format;

            fn wide(self) -> f64 {
                let wide: fn($number) -> f64 = $wide;
                wide(self)
            }

            fn of(value: f64) -> Self {
                let of: fn(f64) -> $number = $of;
                of(value)
            }
        }
    )*};
}

numbers! {
    f32, SINGLE, f64::from, |value| value as f32;
    f64, DOUBLE, |value| value, |value| value;
    Half, HALF, |value| value.0, Half;
}

/// Returns the rounding of results of that format.
pub fn rounding(wave: &Wave, format: Format) -> Rounding {
    Rounding::of_field(wave.mode, format.field)
}

/// Rounds what `exact` computes of finite sources. Of others the result is `nearest`, which no rounding changes.
fn rounded<T: Number>(wave: &Wave, sources: &[f64], nearest: T, exact: impl FnOnce(Rounding) -> Exact) -> T {
    if sources.iter().any(|source| !source.is_finite()) {
        return nearest;
    }
    let rounding = rounding(wave, T::FORMAT);
    T::of(exact(rounding).round(T::FORMAT, rounding))
}

/// Adds. `nearest` is the sum rounded to the nearest number.
pub fn add<T: Number>(wave: &Wave, a: T, b: T, nearest: T) -> T {
    let (a, b) = (a.wide(), b.wide());
    rounded(wave, &[a, b], nearest, |rounding| Exact::sum(Exact::of(a), Exact::of(b), rounding))
}

/// Multiplies. `nearest` is the product rounded to the nearest number.
pub fn multiply<T: Number>(wave: &Wave, a: T, b: T, nearest: T) -> T {
    let (a, b) = (a.wide(), b.wide());
    rounded(wave, &[a, b], nearest, |_| Exact::product(a, b))
}

/// Multiplies, adds, and multiplies by a power of 2; all of it is rounded once.
pub fn fuse<T: Number>(wave: &Wave, [a, b, c]: [T; 3], scaling: i32, nearest: T) -> T {
    let (a, b, c) = (a.wide(), b.wide(), c.wide());
    rounded(wave, &[a, b, c], nearest, |rounding| {
        Exact::sum(Exact::product(a, b), Exact::of(c), rounding).scaled(scaling)
    })
}

fn add_32(wave: &Wave, a: f32, b: f32) -> f32 {
    add(wave, a, b, nearest::add(a, b))
}

fn multiply_32(wave: &Wave, a: f32, b: f32) -> f32 {
    multiply(wave, a, b, nearest::multiply(a, b))
}

fn fuse_32(wave: &Wave, a: f32, b: f32, c: f32) -> f32 {
    fuse(wave, [a, b, c], 0, nearest::fused(a, b, c))
}

fn add_half(wave: &Wave, a: Half, b: Half) -> Half {
    add(wave, a, b, nearest::add_half(a, b))
}

fn multiply_half(wave: &Wave, a: Half, b: Half) -> Half {
    multiply(wave, a, b, nearest::multiply_half(a, b))
}

fn fuse_half(wave: &Wave, a: Half, b: Half, c: Half) -> Half {
    fuse(wave, [a, b, c], 0, nearest::fused_half(a, b, c))
}

/// Multiplies, rounds, and adds.
fn unfused_half(wave: &Wave, a: Half, b: Half, c: Half) -> Half {
    add_half(wave, multiply_half(wave, a, b), c)
}

/// Subtracts the next smaller whole number. The result is always less than 1.
fn fraction<T: Number>(wave: &Wave, value: T, nearest: T) -> T {
    let below_one = 1.0 - 2f64.powi(-T::FORMAT.precision);
    let whole = Exact::of(-value.wide().floor());
    let fraction = |rounding| match value.wide() {
        value if value == value.floor() => Exact::of(0.0),
        value => Exact::sum(Exact::of(value), whole, rounding),
    };
    if !value.wide().is_finite() {
        return nearest;
    }
    T::of(rounded(wave, &[], nearest, fraction).wide().min(below_one))
}

/// Rounds a number of another format.
fn convert(wave: &Wave, format: Format, value: f64) -> f64 {
    let rounding = rounding(wave, format);
    if value.is_finite() { Exact::of(value).round(format, rounding) } else { value }
}

/// Multiplies by a power of 2.
fn scale<T: Number>(wave: &Wave, value: T, exponent: i32, nearest: T) -> T {
    let value = value.wide();
    rounded(wave, &[value], nearest, |_| Exact::of(value).scaled(exponent))
}

/// Returns what a positive number becomes that is less than every one of the format, or more than every one, with
/// a sign.
fn out_of_range(wave: &Wave, format: Format, negative: bool, large: bool) -> f64 {
    let exponent = if large { 5000 } else { -5000 };
    Exact { negative, significand: 1, exponent, more: false }.round(format, rounding(wave, format))
}

handlers! {
    "v_add_f32" => by_lane(|wave, _, _, a, b, _: Unused| add_32(wave, a, b)),
    "v_sub_f32" => by_lane(|wave, _, _, a, b: f32, _: Unused| add_32(wave, a, -b)),
    "v_subrev_f32" => by_lane(|wave, _, _, a: f32, b, _: Unused| add_32(wave, b, -a)),
    "v_mul_f32" => by_lane(|wave, _, _, a, b, _: Unused| multiply_32(wave, a, b)),
    "v_mul_legacy_f32" => by_lane(|wave, _, _, a: f32, b: f32, _: Unused| {
        if a == 0.0 || b == 0.0 { 0.0 } else { multiply_32(wave, a, b) }
    }),
    "v_fma_f32" | "v_fmac_f32" => by_lane(|wave, _, _, a, b, c| fuse_32(wave, a, b, c)),
    "v_fmamk_f32" => by_lane(|wave, inst, _, a, b, _: Unused| {
        fuse_32(wave, a, f32::from_bits(inst.imm as u32), b)
    }),
    "v_fmaak_f32" => by_lane(|wave, inst, _, a, b, _: Unused| {
        fuse_32(wave, a, b, f32::from_bits(inst.imm as u32))
    }),
    "v_fract_f32" => by_lane(|wave, _, _, a, _: Unused, _: Unused| {
        fraction(wave, a, nearest::add(a, f32::NAN))
    }),
    "v_ldexp_f32" => by_lane(|wave, _, _, a: f32, b: i32, _: Unused| {
        scale(wave, a, b, nearest::add(a, a))
    }),
    "v_cvt_f32_i32" => by_lane(|wave, _, _, a: i32, _: Unused, _: Unused| {
        Exact::of_integer(a.into()).round(SINGLE, rounding(wave, SINGLE)) as f32
    }),
    "v_cvt_f32_u32" => by_lane(|wave, _, _, a: u32, _: Unused, _: Unused| {
        Exact::of_integer(a.into()).round(SINGLE, rounding(wave, SINGLE)) as f32
    }),
    "v_cvt_f32_f64" => by_lane(|wave, _, _, a: f64, _: Unused, _: Unused| {
        super::valu_convert::narrow(convert(wave, NARROWED, a))
    }),
    "v_cvt_f16_f32" => by_lane(|wave, _, _, a: f32, _: Unused, _: Unused| Half(convert(wave, HALF, widen(a)))),
    "v_cvt_f16_u16" => by_lane(|wave, _, _, a: u16, _: Unused, _: Unused| Half(convert(wave, HALF, a.into()))),
    "v_cvt_f16_i16" => by_lane(|wave, _, _, a: i16, _: Unused, _: Unused| Half(convert(wave, HALF, a.into()))),
    "v_add_f64" => by_lane(|wave, _, _, a, b, _: Unused| add(wave, a, b, nearest::add_64(a, b))),
    "v_mul_f64" => by_lane(|wave, _, _, a, b, _: Unused| multiply(wave, a, b, nearest::multiply_64(a, b))),
    "v_fma_f64" | "v_fmac_f64" => by_lane(|wave, _, _, a, b, c| {
        fuse(wave, [a, b, c], 0, nearest::fused_64(a, b, c))
    }),
    "v_fract_f64" => by_lane(|wave, _, _, a, _: Unused, _: Unused| {
        fraction(wave, a, nearest::add_64(a, f64::NAN))
    }),
    "v_ldexp_f64" => by_lane(|wave, _, _, a: f64, b: i32, _: Unused| {
        scale(wave, a, b, nearest::add_64(a, a))
    }),
    "v_div_fmas_f32" => fused_singles(|wave, lane, a, b, c| {
        let scaling = if scaled_back(wave, lane) { scaling_32(c) } else { 0 };
        fuse(wave, [a, b, c], scaling, fused_32(wave, lane, a, b, c))
    }),
    "v_div_fmas_f64" => fused_doubles(|wave, lane, a, b, c| {
        let scaling = if scaled_back(wave, lane) { scaling_64(c) } else { 0 };
        fuse(wave, [a, b, c], scaling, fused_64(wave, lane, a, b, c))
    }),
    "v_div_fixup_f32" => by_lane(|wave, _, _, a, b, c| {
        fixup_32(a, b, c, |negative, large| out_of_range(wave, SINGLE, negative, large) as f32)
    }),
    "v_div_fixup_f64" => by_lane(|wave, _, _, a, b, c| {
        fixup_64(a, b, c, |negative, large| out_of_range(wave, DOUBLE, negative, large))
    }),
    "v_add_f16" => by_lane(|wave, _, _, a, b, _: Unused| add_half(wave, a, b)),
    "v_sub_f16" => by_lane(|wave, _, _, a, b: Half, _: Unused| add_half(wave, a, Half(-b.0))),
    "v_subrev_f16" => by_lane(|wave, _, _, a: Half, b, _: Unused| add_half(wave, b, Half(-a.0))),
    "v_mul_f16" => by_lane(|wave, _, _, a, b, _: Unused| multiply_half(wave, a, b)),
    "v_fma_f16" | "v_fma_legacy_f16" => by_lane(|wave, _, _, a, b, c| fuse_half(wave, a, b, c)),
    "v_mad_f16" | "v_mad_legacy_f16" | "v_mac_f16" => by_lane(|wave, _, _, a, b, c| {
        unfused_half(wave, a, b, c)
    }),
    "v_madmk_f16" => by_lane(|wave, inst, _, a, b, _: Unused| {
        unfused_half(wave, a, nearest::literal_half(inst.imm), b)
    }),
    "v_madak_f16" => by_lane(|wave, inst, _, a, b, _: Unused| {
        unfused_half(wave, a, b, nearest::literal_half(inst.imm))
    }),
    "v_fract_f16" => by_lane(|wave, _, _, a: Half, _: Unused, _: Unused| {
        fraction(wave, a, Half(nearest::add_64(a.0, f64::NAN)))
    }),
    "v_ldexp_f16" => by_lane(|wave, _, _, a: Half, b: i16, _: Unused| {
        scale(wave, a, b.into(), Half(nearest::add_64(a.0, a.0)))
    }),
    "v_pk_add_f16" => packed_halves(|wave, a, b, _| add_half(wave, Half(a), Half(b)).0),
    "v_pk_mul_f16" => packed_halves(|wave, a, b, _| multiply_half(wave, Half(a), Half(b)).0),
    "v_pk_fma_f16" => packed_halves(|wave, a, b, c| fuse_half(wave, Half(a), Half(b), Half(c)).0),
    "v_pk_fmac_f16" => fused_pair(|wave, a, b, c| fuse_half(wave, Half(a), Half(b), Half(c)).0),
    "v_pk_add_f32" => packed_singles(|wave, a, b, _| add_32(wave, a, b)),
    "v_pk_mul_f32" => packed_singles(|wave, a, b, _| multiply_32(wave, a, b)),
    "v_pk_fma_f32" => packed_singles(fuse_32),
    "v_fma_mix_f32" => mix(false, fuse_32),
}

/// What a wave does with an instruction while MODE asks for another rounding than to the nearest even number.
#[derive(Clone, Copy, Debug)]
pub enum Rounded {
    /// It runs the handler that it always runs: its result is exact, or has a rounding of its own.
    Same,
    /// It runs another handler.
    Otherwise(Handler),
    /// It stops: how its result is rounded then is not known.
    Unknown,
}

/// Operations on floating-point numbers that round nothing, that have a rounding of their own, or whose results are
/// approximations on the processor.
const SAME: [&str; 46] = [
    "v_cmp",
    "v_min",
    "v_max",
    "v_med3",
    "v_rcp",
    "v_rsq",
    "v_sqrt",
    "v_exp",
    "v_log",
    "v_sin",
    "v_cos",
    "v_trunc",
    "v_ceil",
    "v_rndne",
    "v_floor",
    "v_frexp",
    "v_cubeid",
    "v_cubesc",
    "v_cubetc",
    "v_div_scale",
    "v_div_fixup_f16",
    "v_div_fixup_legacy_f16",
    "v_trig_preop",
    "v_pk_min",
    "v_pk_max",
    "v_pack",
    "v_cvt_i32",
    "v_cvt_u32",
    "v_cvt_i16",
    "v_cvt_u16",
    "v_cvt_flr",
    "v_cvt_rpi",
    "v_cvt_f32_f16",
    "v_cvt_f64",
    "v_cvt_f32_ubyte",
    "v_cvt_off",
    "v_cvt_pkrtz",
    "v_cvt_f32_fp8",
    "v_cvt_f32_bf8",
    "v_cvt_pk_f32_",
    "v_cvt_pk_fp8",
    "v_cvt_pk_bf8",
    "v_dot2",
    "v_mfma",
    "v_smfmac",
    "v_cvt_sr",
];

impl Rounded {
    /// Returns what a wave does with the instruction.
    pub fn of(row: &Row) -> Rounded {
        let mnemonic = row.mnemonic();
        let mnemonic = mnemonic.strip_suffix("_e32").unwrap_or(mnemonic);
        let floats = ["_f16", "_bf16", "_f32", "_xf32", "_f64", "_fp8", "_bf8"];
        let computes = row.has(Flag::Valu) && floats.iter().any(|float| mnemonic.contains(float));
        if !computes || super::handler(row).is_none() {
            return Rounded::Same;
        }
        if let Some(otherwise) = handler(mnemonic) {
            return Rounded::Otherwise(otherwise);
        }
        if SAME.iter().any(|same| mnemonic.starts_with(same)) {
            return Rounded::Same;
        }
        Rounded::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::wave::scalar;

    fn numbers() -> impl FnMut() -> u64 {
        let mut state = 4321u64;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mixed = (state ^ state >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
            mixed ^ mixed >> 29
        }
    }

    /// The other modules' arithmetic is the CPU's. Where the last step of a division scales its sum, they round the sum
    /// of 64 bits first, which no division sees: its sum is a normal number.
    #[test]
    fn the_nearest_numbers_are_those_of_the_other_modules() {
        let mut next = numbers();
        let mut wave = Wave::new(1, 1, 0);
        for round in 0..200_000u64 {
            wave.set_pair(scalar::VCC, round & 1);
            let exponent = |bits: u64| if round & 2 == 0 { bits } else { bits & !(0x7f << 55) | 0x1f << 57 };
            let [a, b, c] = std::array::from_fn(|_| f64::from_bits(exponent(next())));
            let scaling = if round & 1 != 0 { scaling_64(c) } else { 0 };
            let (found, expected) = (fuse(&wave, [a, b, c], scaling, f64::NAN), fused_64(&wave, 0, a, b, c));
            let ordinary = round & 1 == 0 || a.mul_add(b, c).is_normal();
            assert!(
                found.to_bits() == expected.to_bits() || expected.is_nan() || !ordinary,
                "{a:e} {b:e} {c:e}"
            );
            let [a, b, c] = std::array::from_fn(|_| f32::from_bits((exponent(next()) >> 32) as u32));
            let scaling = if round & 1 != 0 { scaling_32(c) } else { 0 };
            let (found, expected) = (fuse(&wave, [a, b, c], scaling, f32::NAN), fused_32(&wave, 0, a, b, c));
            let ordinary = round & 1 == 0 || a.mul_add(b, c).is_normal();
            assert!(
                found.to_bits() == expected.to_bits() || expected.is_nan() || !ordinary,
                "{a:e} {b:e} {c:e}"
            );
        }
    }

    #[test]
    fn every_operation_on_floats_has_a_place() {
        let unknown: std::collections::BTreeSet<_> = crate::isa::table::TABLE
            .rows()
            .iter()
            .filter(|row| matches!(Rounded::of(row), Rounded::Unknown))
            .map(|row| row.mnemonic())
            .collect();
        let expected = [
            "v_cubema_f32",
            "v_cvt_norm_i16_f16",
            "v_cvt_norm_u16_f16",
            "v_cvt_pk_u8_f32",
            "v_cvt_pkaccum_u8_f32",
            "v_cvt_pknorm_i16_f16",
            "v_cvt_pknorm_i16_f32",
            "v_cvt_pknorm_u16_f16",
            "v_cvt_pknorm_u16_f32",
            "v_fma_mixhi_f16",
            "v_fma_mixlo_f16",
        ];
        let found: Vec<_> = unknown.iter().map(|name| name.trim_end_matches("_e32")).collect();
        assert_eq!(found, expected);
    }
}
