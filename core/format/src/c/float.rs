//! Floating-point conversions. `core` has the digits, exact to the last; C has the form.

use super::render::{Line, Options, RenderError};
use alloc::format;
use alloc::string::String;

/// Digits after which those of every `f64` are zeros, before and after its point.
const MOST_DIGITS: usize = 1100;

/// Bits of an `f64` after its point.
const FRACTION_BITS: u32 = 52;

/// Appends the conversion `letter` of a value.
pub(super) fn float(
    line: &mut Line<'_>,
    options: &Options,
    letter: u8,
    value: f64,
) -> Result<(), RenderError> {
    let sign = options.sign(value.is_sign_negative());
    let upper = letter.is_ascii_uppercase();
    if !value.is_finite() {
        let name = match (value.is_nan(), upper) {
            (true, false) => "nan",
            (true, true) => "NAN",
            (false, false) => "inf",
            (false, true) => "INF",
        };
        return line.field(options, &[sign], 0, name.as_bytes(), false);
    }
    let magnitude = value.abs();
    let point = options.flags.alternate;
    let mut number = match letter.to_ascii_lowercase() {
        b'a' => hexadecimal(magnitude, options.precision, point)?,
        b'e' => scientific(magnitude, options.precision.unwrap_or(6), point)?,
        b'f' => fixed(magnitude, options.precision.unwrap_or(6), point)?,
        _ => general(magnitude, options.precision.unwrap_or(6).max(1), point)?,
    };
    if upper {
        number.make_ascii_uppercase();
    }
    // Zeros that fill the field stand after `0x`.
    let (hex, body) = if matches!(letter, b'a' | b'A') { number.split_at(2) } else { ("", &*number) };
    line.field(options, &[sign, hex], 0, body.as_bytes(), true)
}

/// Digits after the point that are to be asked of `core`, and zeros to put after them.
fn split(precision: usize) -> Result<(usize, usize), RenderError> {
    if precision > super::MAX_LINE_BYTES {
        return Err(RenderError::TooLong);
    }
    let asked = precision.min(MOST_DIGITS);
    Ok((asked, precision - asked))
}

fn push_zeros(number: &mut String, zeros: usize) {
    number.extend(core::iter::repeat_n('0', zeros));
}

fn fixed(value: f64, precision: usize, point: bool) -> Result<String, RenderError> {
    let (asked, zeros) = split(precision)?;
    let mut number = format!("{value:.asked$}");
    if precision == 0 && point {
        number.push('.');
    }
    push_zeros(&mut number, zeros);
    Ok(number)
}

/// Digits with the point after the first, and the exponent.
fn mantissa(value: f64, precision: usize, point: bool) -> Result<(String, i32), RenderError> {
    let (asked, zeros) = split(precision)?;
    let text = format!("{value:.asked$e}");
    let (digits, exponent) = text.split_once('e').expect("as `core` writes it");
    let mut digits = String::from(digits);
    if precision == 0 && point {
        digits.push('.');
    }
    push_zeros(&mut digits, zeros);
    Ok((digits, exponent.parse().expect("as `core` writes it")))
}

fn with_exponent(mut digits: String, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    digits += &format!("e{sign}{:02}", exponent.unsigned_abs());
    digits
}

fn scientific(value: f64, precision: usize, point: bool) -> Result<String, RenderError> {
    let (digits, exponent) = mantissa(value, precision, point)?;
    Ok(with_exponent(digits, exponent))
}

/// `precision` is that of significant digits.
fn general(value: f64, precision: usize, point: bool) -> Result<String, RenderError> {
    let (mut digits, exponent) = mantissa(value, precision - 1, point)?;
    let places = i32::try_from(precision).unwrap_or(i32::MAX);
    let short = (-4..places).contains(&exponent);
    if short {
        // Not below 0: the exponent is below the precision.
        digits = fixed(value, (places - 1).saturating_sub(exponent) as usize, point)?;
    }
    if !point && digits.contains('.') {
        let len = digits.trim_end_matches('0').trim_end_matches('.').len();
        digits.truncate(len);
    }
    Ok(if short { digits } else { with_exponent(digits, exponent) })
}

fn hexadecimal(value: f64, precision: Option<usize>, point: bool) -> Result<String, RenderError> {
    const NIBBLES: usize = FRACTION_BITS as usize / 4;
    const BIAS: i32 = 1023;
    let bits = value.to_bits();
    let fraction = bits & ((1 << FRACTION_BITS) - 1);
    let (first, exponent) = match (bits >> FRACTION_BITS) as i32 {
        0 if fraction == 0 => (0, 0),
        0 => (0, 1 - BIAS),
        biased => (1, biased - BIAS),
    };
    let mut digits = first << FRACTION_BITS | fraction;
    let mut shown = NIBBLES;
    match precision {
        None => {
            while shown > 0 && digits & 0xf == 0 {
                digits >>= 4;
                shown -= 1;
            }
        }
        Some(precision) if precision < NIBBLES => {
            let dropped = 4 * (NIBBLES - precision) as u32;
            let (rest, half) = (digits & ((1 << dropped) - 1), 1 << (dropped - 1));
            digits >>= dropped;
            // To the nearest, and of two to the even one.
            digits += u64::from(rest > half || (rest == half && digits & 1 == 1));
            shown = precision;
        }
        Some(_) => {}
    }
    let zeros = precision.unwrap_or(0).saturating_sub(NIBBLES);
    if zeros > super::MAX_LINE_BYTES {
        return Err(RenderError::TooLong);
    }
    let mut number = format!("0x{}", digits >> (4 * shown));
    if shown > 0 || point {
        number.push('.');
    }
    if shown > 0 {
        number += &format!("{:0shown$x}", digits & ((1 << (4 * shown)) - 1));
    }
    push_zeros(&mut number, zeros);
    number += &format!("p{exponent:+}");
    Ok(number)
}
