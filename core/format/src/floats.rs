//! Floating-point numbers as `{}` and `{:.2}` show most of them. The text is that of `core::fmt`, which takes ten to thirty
//! times as long for it, most where the last digit that is shown is exact, as with 0.25.

use alloc::vec::Vec;
use core::ops::Range;

/// Most digits behind the point: so many, times 53 binary digits, fit 128.
const MAX_PRECISION: usize = 15;

/// The powers of ten up to [`MAX_PRECISION`].
const POWERS: [u64; MAX_PRECISION + 1] = {
    let mut powers = [1; MAX_PRECISION + 1];
    let mut i = 1;
    while i < powers.len() {
        powers[i] = powers[i - 1] * 10;
        i += 1;
    }
    powers
};

/// Binary digits behind the leading one, and the exponent of 1.
const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;
const BIAS: u32 = f64::MAX_EXP as u32 - 1;

/// Appends a number with so many digits behind the point, rounded to nearest, ties to even. Returns `false`, and appends
/// nothing, for numbers and precisions that this does not do.
pub(crate) fn fixed(number: f64, precision: usize, out: &mut Vec<u8>) -> bool {
    let bits = number.to_bits();
    let exponent = (bits >> MANTISSA_BITS) as u32 & 0x7ff;
    // From there on numbers are whole, or infinite, or none.
    if exponent >= BIAS + MANTISSA_BITS || precision > MAX_PRECISION {
        return false;
    }
    let fraction = bits & ((1 << MANTISSA_BITS) - 1);
    let (mantissa, exponent) =
        if exponent == 0 { (fraction, 1) } else { (fraction | 1 << MANTISSA_BITS, exponent) };
    // The number is the mantissa without its last `shift` binary digits, of which there is one at least.
    let shift = BIAS + MANTISSA_BITS - exponent;
    let (mut whole, rest) = match shift {
        0..64 => (mantissa >> shift, mantissa & ((1 << shift) - 1)),
        _ => (0, mantissa),
    };
    let scaled = u128::from(rest) * u128::from(POWERS[precision]);
    let mut digits = 0;
    // A product has at most 103 binary digits: without more than all of them, nothing is left.
    if shift < u128::BITS {
        digits = (scaled >> shift) as u64;
        let (left, half) = (scaled & ((1 << shift) - 1), 1 << (shift - 1));
        let is_odd = if precision == 0 { whole % 2 == 1 } else { digits % 2 == 1 };
        digits += u64::from(left > half || left == half && is_odd);
        if digits == POWERS[precision] {
            digits = 0;
            whole += 1;
        }
    }
    if number.is_sign_negative() {
        out.push(b'-');
    }
    out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
    if precision > 0 {
        let mut text = [b'0'; MAX_PRECISION + 1];
        text[0] = b'.';
        for digit in text[1..=precision].iter_mut().rev() {
            *digit += (digits % 10) as u8;
            digits /= 10;
        }
        out.extend_from_slice(&text[..=precision]);
    }
    true
}

/// A type of floats.
pub(crate) trait Float: zmij::Float + Copy + Into<f64> {
    /// Magnitudes that are shown without an exponent, and whole ones digit by digit.
    const PLAIN: Range<f64>;
    /// So many digits are never as near to a number as others, just as many: two numbers of the type would lie between them.
    const DIGITS: usize;
    /// More digits behind the point than a number can have that lies in the middle between two texts: [`Self::PLAIN`]'s zeros
    /// there, the digits that are ever needed, and one.
    const FRACTION: u32;
}

impl Float for f32 {
    const PLAIN: Range<f64> = 1e-3..1e7;
    const DIGITS: usize = 6;
    const FRACTION: u32 = 2 + 9 + 1;
}

impl Float for f64 {
    const PLAIN: Range<f64> = 1e-3..1e12;
    const DIGITS: usize = 15;
    const FRACTION: u32 = 2 + 17 + 1;
}

/// Appends the fewest digits that say which number it is. Returns `false`, and appends nothing, for numbers that this does
/// not do: the large and the small ones, and those for which two texts are as near, of which `core::fmt` takes another.
pub(crate) fn shortest<T: Float>(number: T, out: &mut Vec<u8>) -> bool {
    let wide: f64 = number.into();
    if wide != 0.0 && !T::PLAIN.contains(&wide.abs()) {
        return false;
    }
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(number).as_bytes();
    let text = text.strip_suffix(b".0").unwrap_or(text);
    if text.len() > T::DIGITS && fraction_digits(wide) <= T::FRACTION {
        return false;
    }
    out.extend_from_slice(text);
    true
}

/// Returns how many digits a normal number has behind the point, decimal or binary.
fn fraction_digits(number: f64) -> u32 {
    let bits = number.to_bits();
    let exponent = (bits >> MANTISSA_BITS) as u32 & 0x7ff;
    let zeros = (bits | 1 << MANTISSA_BITS).trailing_zeros();
    (BIAS + MANTISSA_BITS).saturating_sub(exponent + zeros)
}
