//! What atomic operations do to a number.

use super::float::{f64_of_half, half_of_f64, max_f32, max_f64, min_f32, min_f64, nan2_f32, nan2_f64};
use super::wave::mode::{self, RESULTS, SOURCES};

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

/// What floating-point operations of local memory do. They heed MODE's bits of denormals and not those of rounding
/// (AMD's manual of CDNA 3, 9.2.1, 9.2.2 and table 53), except the sum of 64 bits, which keeps denormals.
pub mod local {
    use super::*;

    /// Adds numbers of 32 bits.
    pub fn add_f32(mode: u32, old: u32, data: u32) -> u32 {
        let [old, data] = [old, data].map(|bits| mode::flush_32(mode, bits, SOURCES));
        mode::flush_32(mode, super::add_f32(old, data), RESULTS)
    }

    /// Adds two pairs of numbers of 16 bits.
    pub fn add_pair_f16(mode: u32, old: u32, data: u32) -> u32 {
        let flush = |pair: u32, which| {
            let [low, high] =
                [pair as u16, (pair >> 16) as u16].map(|half| mode::flush_16(mode, half, which));
            u32::from(low) | u32::from(high) << 16
        };
        flush(super::add_pair_f16(flush(old, SOURCES), flush(data, SOURCES)), RESULTS)
    }

    /// Adds two pairs of numbers of 16 bits with the exponents of 32-bit numbers. MODE's field of numbers of 16 bits
    /// holds for them, too.
    pub fn add_pair_bf16(mode: u32, old: u32, data: u32) -> u32 {
        let flush = |pair: u32, which| {
            let keeps = mode & mode::DENORM_16_64 & which != 0;
            let kept =
                |half: u32| if keeps || pair & half & 0x7f80_7f80 != 0 { half } else { half & 0x8000_8000 };
            pair & (kept(0xffff) | kept(0xffff_0000))
        };
        flush(super::add_pair_bf16(flush(old, SOURCES), flush(data, SOURCES)), RESULTS)
    }

    macro_rules! comparisons {
        ($($name:ident, $bits:ty, $flush:ident;)*) => {$(
            /// Returns the number that the operation chooses. Only the comparison takes denormals for 0.
            pub fn $name(mode: u32, old: $bits, data: $bits) -> $bits {
                let [first, second] = [old, data].map(|bits| mode::$flush(mode, bits, SOURCES));
                match super::$name(first, second) {
                    chosen if chosen == first => old,
                    chosen if chosen == second => data,
                    quiet => quiet,
                }
            }
        )*};
    }

    comparisons! {
        least_f32, u32, flush_32;
        greatest_f32, u32, flush_32;
        least_f64, u64, flush_64;
        greatest_f64, u64, flush_64;
    }

    macro_rules! swaps {
        ($($name:ident, $float:ty, $bits:ty, $flush:ident;)*) => {$(
            /// Returns the new number if memory holds one that is equal to the expected one.
            pub fn $name(mode: u32, old: $bits, expected: $bits, new: $bits) -> $bits {
                let [held, expected, new] = [old, expected, new].map(|bits| mode::$flush(mode, bits, SOURCES));
                if <$float>::from_bits(held) == <$float>::from_bits(expected) { new } else { old }
            }
        )*};
    }

    swaps! {
        swap_f32, f32, u32, flush_32;
        swap_f64, f64, u64, flush_64;
    }
}

/// Rounds to 16 bits with the exponents of 32-bit numbers, to the nearest even number.
pub fn bf16_of_f32(value: f32) -> u32 {
    let bits = value.to_bits();
    if value.is_nan() {
        return bits >> 16 | 0x40;
    }
    (bits + 0x7fff + (bits >> 16 & 1)) >> 16
}
