//! Measures the error of hostcall's mathematics against MPFR, and compares devices with the host bit by bit.
//!
//! - [`functions`] is the table: what to compare with what, where, and how far apart they may be.
//! - [`points`] makes the arguments.
//! - [`measure`] finds the largest error of a function.
//! - [`device`] runs the same functions as kernels.
#![forbid(unsafe_code)]

pub mod device;
pub mod functions;
pub mod measure;
pub mod points;

use hostcall::hostcall_device::math::Float;

/// `f32` and `f64`.
pub trait Real: Float + PartialEq + Send + Sync + 'static {
    /// The type's name.
    const NAME: &'static str;
    /// Which of the two, as an index.
    const INDEX: usize;
    /// Binary digits, the first one included.
    const DIGITS: i32;
    /// Exponent of the smallest denormal number.
    const MIN_EXPONENT: i32;
    /// Exponent of the first power of two that is too large.
    const MAX_EXPONENT: i32;

    /// Returns the number of these bits, of which there may be too many.
    fn of_bits(bits: u64) -> Self;
    /// Returns the nearest number.
    fn nearest(number: f64) -> Self;
    /// Returns the number, exactly.
    fn wide(self) -> f64;
    /// Returns the number that is so many further, away from 0 if positive. Does not leave the finite numbers.
    fn step(self, count: i64) -> Self;
}

macro_rules! real {
    ($t:ident, $bits:ident, $index:literal) => {
        impl Real for $t {
            const NAME: &'static str = stringify!($t);
            const INDEX: usize = $index;
            const DIGITS: i32 = $t::MANTISSA_DIGITS as i32;
            const MIN_EXPONENT: i32 = $t::MIN_EXP - $t::MANTISSA_DIGITS as i32;
            const MAX_EXPONENT: i32 = $t::MAX_EXP;

            fn of_bits(bits: u64) -> Self {
                Self::from_bits(bits as $bits)
            }
            fn nearest(number: f64) -> Self {
                number as $t
            }
            fn wide(self) -> f64 {
                self.into()
            }
            fn step(self, count: i64) -> Self {
                let magnitude = self.abs().to_bits() as i64;
                let stepped = magnitude.saturating_add(count).clamp(0, $t::MAX.to_bits() as i64);
                Self::from_bits(stepped as $bits).copysign(self)
            }
        }
    };
}

real!(f32, u32, 0);
real!(f64, u64, 1);
