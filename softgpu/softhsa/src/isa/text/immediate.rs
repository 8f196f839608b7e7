//! The text of inline constants and literals.

use std::fmt::{self, Write};

use crate::isa::operand::OperandType;

/// Writes a number in the place of an operand of that type.
pub fn write(f: &mut impl Write, operand_type: OperandType, number: i64) -> fmt::Result {
    use OperandType::*;
    let low = number as u32;
    match operand_type {
        Unknown | PcRelative => write!(f, "{number}"),
        Int64 => write_64(f, number as u64, false),
        Fp64 => write_64(f, number as u64, true),
        Fp16 => write_16(f, low as u16),
        Int16 => write_32_as(f, low, low & 0xffff),
        V2Fp16 => match (is_inline(low as i32), u16::try_from(low)) {
            (false, Ok(half)) => write_16(f, half),
            _ if is_inline(low as i32) => write!(f, "{}", low as i32),
            _ => write!(f, "{low:#x}"),
        },
        _ => write_32_as(f, low, low),
    }
}

fn is_inline(number: i32) -> bool {
    (-16..=64).contains(&number)
}

/// Writes 32 bits, as `hex` if they are no inline constant.
fn write_32_as(f: &mut impl Write, bits: u32, hex: u32) -> fmt::Result {
    if is_inline(bits as i32) {
        return write!(f, "{}", bits as i32);
    }
    match bits {
        0x3e22_f983 => f.write_str("0.15915494"),
        _ => match inline_float(f64::from(f32::from_bits(bits))) {
            Some(text) => f.write_str(text),
            None => write!(f, "{hex:#x}"),
        },
    }
}

fn write_16(f: &mut impl Write, bits: u16) -> fmt::Result {
    if is_inline(i32::from(bits as i16)) {
        return write!(f, "{}", bits as i16);
    }
    match bits {
        0x3c00 => f.write_str("1.0"),
        0xbc00 => f.write_str("-1.0"),
        0x3800 => f.write_str("0.5"),
        0xb800 => f.write_str("-0.5"),
        0x4000 => f.write_str("2.0"),
        0xc000 => f.write_str("-2.0"),
        0x4400 => f.write_str("4.0"),
        0xc400 => f.write_str("-4.0"),
        0x3118 => f.write_str("0.15915494"),
        _ => write!(f, "{bits:#x}"),
    }
}

fn write_64(f: &mut impl Write, bits: u64, is_float: bool) -> fmt::Result {
    if (-16..=64).contains(&(bits as i64)) {
        return write!(f, "{}", bits as i64);
    }
    if bits == 0x3fc4_5f30_6dc9_c882 {
        return f.write_str("0.15915494309189532");
    }
    match inline_float(f64::from_bits(bits)) {
        Some(text) => f.write_str(text),
        None if is_float => write!(f, "{:#x}", bits >> 32),
        None => write!(f, "{bits:#x}"),
    }
}

fn inline_float(value: f64) -> Option<&'static str> {
    const TEXTS: [(f64, &str); 8] = [
        (0.5, "0.5"),
        (-0.5, "-0.5"),
        (1.0, "1.0"),
        (-1.0, "-1.0"),
        (2.0, "2.0"),
        (-2.0, "-2.0"),
        (4.0, "4.0"),
        (-4.0, "-4.0"),
    ];
    TEXTS.iter().find(|(float, _)| *float == value).map(|(_, text)| *text)
}
