//! What atomic operations do to a number.

use super::float::{f64_of_half, half_of_f64, max_f32, max_f64, min_f32, min_f64, nan2_f32, nan2_f64};

/// Adds 1, or starts again at 0 at the limit.
pub fn increment(old: u64, limit: u64) -> u64 {
    if old >= limit { 0 } else { old + 1 }
}

/// Subtracts 1, or starts again at the limit at 0.
pub fn decrement(old: u64, limit: u64) -> u64 {
    if old == 0 || old > limit { limit } else { old - 1 }
}

/// Adds numbers of 32 bits.
pub fn add_f32(old: u32, data: u32) -> u32 {
    let (a, b) = (f32::from_bits(old), f32::from_bits(data));
    nan2_f32(a + b, a, b).to_bits()
}

/// Adds numbers of 64 bits.
pub fn add_f64(old: u64, data: u64) -> u64 {
    let (a, b) = (f64::from_bits(old), f64::from_bits(data));
    nan2_f64(a + b, a, b).to_bits()
}

/// Returns the smaller number of 32 bits.
pub fn least_f32(old: u32, data: u32) -> u32 {
    min_f32(f32::from_bits(old), f32::from_bits(data), true).to_bits()
}

/// Returns the larger number of 32 bits.
pub fn greatest_f32(old: u32, data: u32) -> u32 {
    max_f32(f32::from_bits(old), f32::from_bits(data), true).to_bits()
}

/// Returns the smaller number of 64 bits.
pub fn least_f64(old: u64, data: u64) -> u64 {
    min_f64(f64::from_bits(old), f64::from_bits(data), true).to_bits()
}

/// Returns the larger number of 64 bits.
pub fn greatest_f64(old: u64, data: u64) -> u64 {
    max_f64(f64::from_bits(old), f64::from_bits(data), true).to_bits()
}

/// Adds two pairs of numbers of 16 bits.
pub fn add_pair_f16(old: u32, data: u32) -> u32 {
    let add = |a: u32, b: u32| u32::from(half_of_f64(f64_of_half(a as u16) + f64_of_half(b as u16)));
    add(old & 0xffff, data & 0xffff) | add(old >> 16, data >> 16) << 16
}

/// Adds two pairs of numbers of 16 bits with the exponents of 32-bit numbers.
pub fn add_pair_bf16(old: u32, data: u32) -> u32 {
    let add = |a: u32, b: u32| bf16_of_f32(f32::from_bits(a << 16) + f32::from_bits(b << 16));
    add(old & 0xffff, data & 0xffff) | add(old >> 16, data >> 16) << 16
}

/// Rounds to 16 bits with the exponents of 32-bit numbers, to the nearest even number.
pub fn bf16_of_f32(value: f32) -> u32 {
    let bits = value.to_bits();
    if value.is_nan() {
        return bits >> 16 | 0x40;
    }
    (bits + 0x7fff + (bits >> 16 & 1)) >> 16
}
