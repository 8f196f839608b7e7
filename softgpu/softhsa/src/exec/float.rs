//! Floating-point helpers: numbers of 16 bits, NaNs, minimum and maximum, and scaling by powers of two.

use super::wave::{Wave, mode};

/// Converts a number of 16 bits. Every such number is one of 64 bits.
pub fn f64_of_half(half: u16) -> f64 {
    let sign = u64::from(half >> 15) << 63;
    let exponent = u64::from(half >> 10 & 31);
    let fraction = u64::from(half & 0x3ff);
    let magnitude = match exponent {
        0 => (fraction as f64 * 2f64.powi(-24)).to_bits(),
        31 => 0x7ff << 52 | fraction << 42,
        _ => (exponent + 1023 - 15) << 52 | fraction << 42,
    };
    f64::from_bits(sign | magnitude)
}

/// Rounds to 16 bits, to the nearest number, of two equally near ones to the even one.
pub fn half_of_f64(value: f64) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 48) as u16 & 0x8000;
    let exponent = (bits >> 52 & 0x7ff) as i32 - 1023;
    let fraction = bits & ((1 << 52) - 1);
    if exponent == 1024 {
        return sign | if fraction == 0 { 0x7c00 } else { 0x7e00 | (fraction >> 42) as u16 };
    }
    if exponent < -25 {
        return sign;
    }
    // Bits of the result's last place: 2^(exponent-10), and 2^-24 for denormals.
    let significand = fraction | 1 << 52;
    let shift = if exponent < -14 { 42 + (-14 - exponent) } else { 42 };
    let (kept, rest) = (significand >> shift, significand & ((1 << shift) - 1));
    let middle = 1u64 << (shift - 1);
    let up = rest > middle || rest == middle && kept & 1 != 0;
    let rounded = kept as u32 + u32::from(up);
    let biased = if exponent < -14 { 0 } else { (exponent + 14) as u32 };
    let half = (biased << 10) + rounded;
    sign | half.min(0x7c00) as u16
}

/// Rounds to 16 bits towards zero.
pub fn half_towards_zero(value: f64) -> u16 {
    let half = half_of_f64(value);
    if f64_of_half(half).abs() > value.abs() { half - 1 } else { half }
}

/// Returns a×b+c of numbers whose products are exact (those of 16 and of 32 bits), rounded so that rounding the result to
/// the numbers' own width gives the nearest number.
pub fn fused_to_odd(a: f64, b: f64, c: f64) -> f64 {
    let product = a * b;
    let sum = product + c;
    if !sum.is_finite() {
        return sum;
    }
    let back = sum - product;
    let error = (product - (sum - back)) + (c - back);
    let bits = sum.to_bits();
    if error == 0.0 || bits & 1 != 0 {
        return sum;
    }
    // The sum is not exact and its last bit is even: the odd neighbour on the error's side keeps the information.
    let away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away { bits + 1 } else { bits - 1 })
}

macro_rules! floats {
    ($($float:ty, $bits:ty, $quiet:expr, $nan:expr, $quieted:ident, $two:ident, $three:ident, $min:ident, $max:ident;)*) => {$(
        /// Returns a NaN with the bit set that makes it quiet.
        #[inline]
        pub fn $quieted(value: $float) -> $float {
            <$float>::from_bits(value.to_bits() | $quiet)
        }

        /// Returns a result of two sources, or the NaN that the processor gives instead of a NaN.
        #[inline(always)]
        pub fn $two(result: $float, a: $float, b: $float) -> $float {
            match result.is_nan() {
                false => result,
                true if a.is_nan() => $quieted(a),
                true if b.is_nan() => $quieted(b),
                true => <$float>::from_bits($nan),
            }
        }

        /// Returns a result of three sources, or the NaN that the processor gives instead of a NaN.
        #[inline(always)]
        pub fn $three(result: $float, a: $float, b: $float, c: $float) -> $float {
            match result.is_nan() {
                true if a.is_nan() | b.is_nan() => $two(result, a, b),
                _ => $two(result, c, c),
            }
        }

        /// Returns the smaller number. `ieee` is the bit of MODE that makes signalling NaNs results.
        #[inline]
        pub fn $min(a: $float, b: $float, ieee: bool) -> $float {
            let signals = |x: $float| ieee && x.is_nan() && x.to_bits() & $quiet == 0;
            match () {
                () if signals(a) => $quieted(a),
                () if signals(b) => $quieted(b),
                () if a.is_nan() => b,
                () if b.is_nan() => a,
                () if a == b => if a.is_sign_negative() { a } else { b },
                () => if a < b { a } else { b },
            }
        }

        /// Returns the larger number. `ieee` is the bit of MODE that makes signalling NaNs results.
        #[inline]
        pub fn $max(a: $float, b: $float, ieee: bool) -> $float {
            let signals = |x: $float| ieee && x.is_nan() && x.to_bits() & $quiet == 0;
            match () {
                () if signals(a) => $quieted(a),
                () if signals(b) => $quieted(b),
                () if a.is_nan() => b,
                () if b.is_nan() => a,
                () if a == b => if a.is_sign_negative() { b } else { a },
                () => if a > b { a } else { b },
            }
        }
    )*};
}

floats! {
    f32, u32, 1u32 << 22, 0x7fc0_0000u32, quiet_f32, nan2_f32, nan3_f32, min_f32, max_f32;
    f64, u64, 1u64 << 51, 0x7ff8_0000_0000_0000u64, quiet_f64, nan2_f64, nan3_f64, min_f64, max_f64;
}

/// Returns whether MODE makes minimum and maximum return signalling NaNs.
#[inline]
pub fn ieee(wave: &Wave) -> bool {
    wave.mode & mode::IEEE != 0
}

/// Returns value × 2^exponent, rounded once.
pub fn scale_f64(value: f64, exponent: i32) -> f64 {
    let (mut value, mut exponent) = (value, exponent.clamp(-3000, 3000));
    while exponent > 1023 {
        value *= 2f64.powi(1023);
        exponent -= 1023;
    }
    while exponent < -1022 {
        // 53 bits more than the smallest normal number's exponent remain, so that only the last step rounds.
        value *= power(-1022 + 53);
        exponent += 1022 - 53;
    }
    value * power(exponent)
}

/// Returns 2^exponent for exponents of normal numbers.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent.clamp(-1022, 1023) + 1023) as u64) << 52)
}

/// Returns value × 2^exponent, rounded once.
pub fn scale_f32(value: f32, exponent: i32) -> f32 {
    (f64::from(value) * power(exponent.clamp(-600, 600))) as f32
}

/// Splits a finite number that is not 0 into a fraction of at least 1/2 and less than 1, and an exponent.
pub fn split(value: f64) -> (f64, i32) {
    let exponent = (value.to_bits() >> 52 & 0x7ff) as i32;
    if exponent == 0 {
        let (fraction, exponent) = split(value * 2f64.powi(64));
        return (fraction, exponent - 64);
    }
    let fraction = f64::from_bits(value.to_bits() & !(0x7ff << 52) | 1022 << 52);
    (fraction, exponent - 1022)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_survive_the_way_through_64_bits() {
        for half in 0..=u16::MAX {
            let value = f64_of_half(half);
            if !value.is_nan() {
                assert_eq!(half_of_f64(value), half, "{half:#x}");
                assert_eq!(half_towards_zero(value), half, "{half:#x}");
            }
        }
    }

    #[test]
    fn halves_round_to_the_nearest_even_number() {
        assert_eq!(half_of_f64(65504.0), 0x7bff);
        assert_eq!(half_of_f64(65519.99), 0x7bff);
        assert_eq!(half_of_f64(65520.0), 0x7c00);
        assert_eq!(half_towards_zero(65535.0), 0x7bff);
        assert_eq!(half_of_f64(2f64.powi(-25)), 0);
        assert_eq!(half_of_f64(2f64.powi(-25) * 1.001), 1);
        assert_eq!(half_of_f64(1.0 + 2f64.powi(-11)), 0x3c00);
        assert_eq!(half_of_f64(1.0 + 3.0 * 2f64.powi(-11)), 0x3c02);
    }

    #[test]
    fn scaling_rounds_once() {
        for exponent in [-1080, -1074, -1073, -1022, -600, -149, -1, 0, 1, 1000, 1023, 2000] {
            for value in [1.0, 1.5, 1.0 + f64::EPSILON, 3.7e-5, 4.9e-324, 1.7e308] {
                let expected = (value * 2f64.powi(exponent / 2)) * 2f64.powi(exponent - exponent / 2);
                if expected == 0.0 || expected.is_normal() || expected.is_infinite() {
                    let scaled = scale_f64(value, exponent);
                    assert!(
                        scaled == expected || expected == 0.0,
                        "{value:e} {exponent}: {scaled:e} {expected:e}"
                    );
                }
            }
        }
        assert_eq!(scale_f64(1.0, -1074), f64::from_bits(1));
        assert_eq!(scale_f64(1.5, -1074), f64::from_bits(2));
        assert_eq!(scale_f64(1.0, -1075), 0.0);
        assert_eq!(scale_f64(1.0 + f64::EPSILON, -1075), f64::from_bits(1));
        assert_eq!(scale_f32(1.0, -149), f32::from_bits(1));
    }

    #[test]
    fn zeros_have_an_order() {
        assert!(min_f32(0.0, -0.0, true).is_sign_negative());
        assert!(min_f32(-0.0, 0.0, true).is_sign_negative());
        assert!(max_f32(-0.0, 0.0, true).is_sign_positive());
        assert_eq!(min_f64(f64::NAN, 1.0, true), 1.0);
        let signalling = f32::from_bits(0x7f80_0001);
        assert_eq!(min_f32(signalling, 1.0, true).to_bits(), 0x7fc0_0001);
        assert_eq!(min_f32(signalling, 1.0, false), 1.0);
    }
}
