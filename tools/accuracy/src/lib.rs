//! Measures the error of hostcall's mathematics against MPFR, and compares devices with the host bit by bit.
//! The command `hostcall-accuracy` fails when a function is farther off than its documentation says.
//!
//! - [`functions`] is the table: what to compare with what, where, and how far apart they may be. Begin here.
//! - [`points`] makes the arguments.
//! - [`measure`] finds the largest error of a function.
//! - [`progress`] says on the standard error how far that is.
//! - [`device`] runs the same functions as kernels.
#![forbid(unsafe_code)]

pub mod device;
pub mod functions;
pub mod measure;
pub mod points;
pub mod progress;

use hostcall::hostcall_device::math::Float;
use std::ops::Range;

/// Returns how many threads compute: one for each core.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Divides indices among threads, and returns what they return, in the order of the indices.
pub(crate) fn in_parts<R: Send>(indices: Range<u64>, work: impl Fn(Range<u64>) -> R + Sync) -> Vec<R> {
    let each = (indices.end - indices.start).div_ceil(threads() as u64).max(1);
    let part = |begin: u64| begin..indices.end.min(begin + each);
    std::thread::scope(|scope| {
        let (work, parts) = (&work, indices.clone().step_by(each as usize).map(part));
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the work does not panic")).collect()
    })
}

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
