//! The steps of a division: scaling sources away from the ends of their range, and mending the quotient.

use super::float::{fused_to_odd, nan3_f32, nan3_f64, quiet_f32, quiet_f64, scale_f32, scale_f64};
use super::handlers;
use super::inst::{Flow, Inst};
use super::lanes::{F32Bits, F64Bits, Half, Lane, by_lane, ternary};
use super::wave::{Env, Wave, lanes_of, scalar};

fn exponent_32(value: f32) -> i32 {
    (value.to_bits() >> 23 & 255) as i32
}

fn exponent_64(value: f64) -> i32 {
    (value.to_bits() >> 52 & 2047) as i32
}

macro_rules! scales {
    ($($name:ident, $float:ty, $exponent:ident, $scale:ident, $by:literal, $far:literal, $low:literal;)*) => {$(
        /// Scales one source of a division. Returns it, and whether the quotient must be scaled back.
        fn $name(source: $float, denominator: $float, numerator: $float) -> ($float, bool) {
            let is = |other: $float| source.to_bits() == other.to_bits();
            let reciprocal = 1.0 / denominator;
            let quotient = numerator / denominator;
            if numerator == 0.0 || denominator == 0.0 {
                (<$float>::NAN.copysign(1.0), false)
            } else if $exponent(numerator) - $exponent(denominator) >= $far {
                (if is(denominator) { $scale(source, $by) } else { source }, true)
            } else if denominator.is_subnormal() {
                ($scale(source, $by), false)
            } else if reciprocal.is_subnormal() && (quotient.is_subnormal() || quotient == 0.0) {
                (if is(denominator) { $scale(source, -$by) } else { source }, true)
            } else if reciprocal.is_subnormal() {
                ($scale(source, -$by), false)
            } else if quotient.is_subnormal() || quotient == 0.0 {
                (if is(numerator) { $scale(source, $by) } else { source }, true)
            } else if $exponent(numerator) <= $low {
                ($scale(source, $by), false)
            } else {
                (source, false)
            }
        }
    )*};
}

scales! {
    scale_source_32, f32, exponent_32, scale_f32, 64, 96, 23;
    scale_source_64, f64, exponent_64, scale_f64, 128, 768, 53;
}

/// Runs `v_div_scale`, whose second result says which lanes' quotients must be scaled back.
fn scale<T: Lane>(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, f: impl Fn(T, T, T) -> (T, bool)) -> Flow {
    let mut out = 0;
    for lane in lanes_of(wave.exec()) {
        let source = |index: usize| {
            let src = inst.src[index];
            let bits = if T::WIDE { wave.read64(src, lane) } else { u64::from(wave.read(src, lane)) };
            T::decode(bits, index, inst, wave)
        };
        let (result, back) = f(source(0), source(1), source(2));
        let bits = result.encode(0, inst, wave);
        wave.write_lane(inst.dst, lane, bits as u32);
        if T::WIDE {
            wave.write_lane(inst.dst + 1, lane, (bits >> 32) as u32);
        }
        out |= u64::from(back) << lane;
    }
    wave.set_pair(inst.sdst, out);
    Flow::Next
}

pub(super) fn scaled_back(wave: &Wave, lane: usize) -> bool {
    wave.pair(scalar::VCC) >> lane & 1 != 0
}

/// Returns the power of 2 by which a quotient is scaled back. A small quotient came from a numerator that had been made
/// larger, a large one from a denominator that had been made larger.
pub(super) fn scaling_32(quotient: f32) -> i32 {
    if exponent_32(quotient) > 127 { 64 } else { -64 }
}

/// Returns the power of 2 by which a quotient is scaled back.
pub(super) fn scaling_64(quotient: f64) -> i32 {
    if exponent_64(quotient) > 1023 { 128 } else { -128 }
}

/// Runs `v_div_fmas_f32`, which takes denormals as they are, whatever MODE says (AMD's manual of CDNA 3): compilers
/// have divisions keep them without setting MODE for this one.
pub(super) fn fused_singles(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    f: impl Fn(&Wave, usize, f32, f32, f32) -> f32,
) -> Flow {
    by_lane(wave, inst, env, |wave, _, lane, a: F32Bits, b: F32Bits, c: F32Bits| {
        let [a, b, c] = [a, b, c].map(|source| f32::from_bits(source.0));
        f(wave, lane, a, b, c)
    })
}

/// Runs `v_div_fmas_f64`, as [`fused_singles`] does the other.
pub(super) fn fused_doubles(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    f: impl Fn(&Wave, usize, f64, f64, f64) -> f64,
) -> Flow {
    by_lane(wave, inst, env, |wave, _, lane, a: F64Bits, b: F64Bits, c: F64Bits| {
        let [a, b, c] = [a, b, c].map(|source| f64::from_bits(source.0));
        f(wave, lane, a, b, c)
    })
}

/// Multiplies and adds, and scales back; all of it is rounded once.
pub(super) fn fused_32(wave: &Wave, lane: usize, a: f32, b: f32, c: f32) -> f32 {
    if !scaled_back(wave, lane) {
        return nan3_f32(a.mul_add(b, c), a, b, c);
    }
    let sum = fused_to_odd(f64::from(a), f64::from(b), f64::from(c));
    let scaled = scale_f64(sum, scaling_32(c)) as f32;
    nan3_f32(scaled, a, b, c)
}

pub(super) fn fused_64(wave: &Wave, lane: usize, a: f64, b: f64, c: f64) -> f64 {
    let sum = a.mul_add(b, c);
    if !scaled_back(wave, lane) {
        return nan3_f64(sum, a, b, c);
    }
    let scaled = scale_f64(sum, scaling_64(c));
    let scaled =
        if scaled.is_subnormal() { round_subnormal(sum, error_of_fused(sum, a, b, c)) } else { scaled };
    nan3_f64(scaled, a, b, c)
}

/// Returns the sign of a×b+c − sum, where `sum` is a×b+c rounded, as a number of that sign.
fn error_of_fused(sum: f64, a: f64, b: f64, c: f64) -> f64 {
    let two_sum = |a: f64, b: f64| {
        let sum = a + b;
        let back = sum - a;
        (sum, (a - (sum - back)) + (b - back))
    };
    let product = a * b;
    let product_error = a.mul_add(b, -product);
    let (first, first_error) = two_sum(c, product_error);
    let (second, second_error) = two_sum(product, first);
    ((second - sum) + second_error) + first_error
}

/// Returns sum × 2^−128 as a denormal number, where `error` has the sign of what the sum lacks.
fn round_subnormal(sum: f64, error: f64) -> f64 {
    // In units of the result's last place, of which there are less than 2^52: halves are exact.
    let units = scale_f64(sum.abs(), 1074 - 128);
    let error = if sum < 0.0 { -error } else { error };
    let (whole, rest) = (units.floor(), units - units.floor());
    let up = rest > 0.5 || rest == 0.5 && (error > 0.0 || error == 0.0 && whole % 2.0 == 1.0);
    f64::from_bits(whole as u64 + u64::from(up)).copysign(sum)
}

macro_rules! fixups {
    ($($name:ident, $float:ty, $quiet:ident, $exponent:ident, $least:expr;)*) => {$(
        /// Gives a quotient its sign and the values of special cases. `beyond` returns a result that is too small or, if
        /// its second argument is true, too large for the format; its first argument says whether it is negative.
        pub(super) fn $name(
            quotient: $float,
            denominator: $float,
            numerator: $float,
            beyond: impl Fn(bool, bool) -> $float,
        ) -> $float {
            let negative = denominator.is_sign_negative() != numerator.is_sign_negative();
            let sign = if negative { -1.0 } else { 1.0 };
            if numerator.is_nan() {
                $quiet(numerator)
            } else if denominator.is_nan() {
                $quiet(denominator)
            } else if denominator == 0.0 && numerator == 0.0
                || denominator.is_infinite() && numerator.is_infinite()
            {
                <$float>::NAN.copysign(-1.0)
            } else if denominator == 0.0 || numerator.is_infinite() {
                <$float>::INFINITY.copysign(sign)
            } else if denominator.is_infinite() || numerator == 0.0 {
                (0.0 as $float).copysign(sign)
            } else if $exponent(numerator) - $exponent(denominator) < $least {
                beyond(negative, false)
            } else if quotient.is_nan() {
                // Of ordinary numbers only an overflow in the steps before gives no number.
                beyond(negative, true)
            } else {
                quotient.copysign(sign)
            }
        }
    )*};
}

fixups! {
    fixup_32, f32, quiet_f32, exponent_32, -150;
    fixup_64, f64, quiet_f64, exponent_64, -1075;
}

/// Returns a result that is too small or too large for any format, rounded to the nearest number.
fn beyond(negative: bool, large: bool) -> f64 {
    let sign = if negative { -1.0 } else { 1.0 };
    if large { f64::INFINITY.copysign(sign) } else { 0f64.copysign(sign) }
}

fn fixup_32_to_nearest(a: f32, b: f32, c: f32) -> f32 {
    fixup_32(a, b, c, |negative, large| beyond(negative, large) as f32)
}

fn fixup_64_to_nearest(a: f64, b: f64, c: f64) -> f64 {
    fixup_64(a, b, c, beyond)
}

handlers! {
    "v_div_scale_f32" => scale(scale_source_32),
    "v_div_scale_f64" => scale(scale_source_64),
    "v_div_fmas_f32" => fused_singles(fused_32),
    "v_div_fmas_f64" => fused_doubles(fused_64),
    "v_div_fixup_f32" => ternary(fixup_32_to_nearest),
    "v_div_fixup_f64" => ternary(fixup_64_to_nearest),
    "v_div_fixup_f16" | "v_div_fixup_legacy_f16" => ternary(|a: Half, b: Half, c: Half| {
        Half(fixup_64_to_nearest(a.0, b.0, c.0))
    }),
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! divides {
        ($name:ident, $float:ty, $scale:ident, $fused:ident, $fixup:ident) => {
            /// Divides as LLVM's code does.
            fn $name(numerator: $float, denominator: $float) -> $float {
                let (scaled_denominator, _) = $scale(denominator, denominator, numerator);
                let (scaled_numerator, back) = $scale(numerator, denominator, numerator);
                let reciprocal = 1.0 / scaled_denominator;
                let error = (-scaled_denominator).mul_add(reciprocal, 1.0);
                let reciprocal = error.mul_add(reciprocal, reciprocal);
                let quotient = scaled_numerator * reciprocal;
                let error = (-scaled_denominator).mul_add(quotient, scaled_numerator);
                let quotient = error.mul_add(reciprocal, quotient);
                let error = (-scaled_denominator).mul_add(quotient, scaled_numerator);
                let mut wave = Wave::new(1, 1, 0);
                wave.set_pair(scalar::VCC, u64::from(back));
                $fixup($fused(&wave, 0, error, reciprocal, quotient), denominator, numerator)
            }
        };
    }

    divides!(divide_32, f32, scale_source_32, fused_32, fixup_32_to_nearest);
    divides!(divide_64, f64, scale_source_64, fused_64, fixup_64_to_nearest);

    fn numbers() -> impl FnMut() -> u64 {
        let mut state = 12345u64;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mixed = (state ^ state >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
            mixed ^ mixed >> 29
        }
    }

    #[test]
    fn quotients_of_32_bits_are_rounded_correctly_over_the_whole_range() {
        let mut next = numbers();
        for _ in 0..500_000 {
            let (a, b) = (f32::from_bits(next() as u32), f32::from_bits(next() as u32));
            let (quotient, expected) = (divide_32(a, b), a / b);
            let same = quotient.to_bits() == expected.to_bits() || quotient.is_nan() && expected.is_nan();
            assert!(same, "{a:e} / {b:e}: {quotient:e} instead of {expected:e}");
        }
    }

    #[test]
    fn quotients_of_64_bits_are_rounded_correctly_over_the_whole_range() {
        let mut next = numbers();
        for round in 0..1_000_000 {
            let (a, b) = (f64::from_bits(next()), f64::from_bits(next()));
            // Every other quotient is near the ends of the range.
            let b = if round % 2 == 0 { b } else { scale_f64(a, (next() % 140) as i32 + 960).abs() + b };
            let (quotient, expected) = (divide_64(a, b), a / b);
            let same = quotient.to_bits() == expected.to_bits() || quotient.is_nan() && expected.is_nan();
            assert!(same, "{a:e} / {b:e}: {quotient:e} instead of {expected:e}");
        }
    }
}
