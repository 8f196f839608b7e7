//! The largest error of a function.

use crate::functions::Function;
use crate::points::{point, special};
use crate::{Real, threads};
use rug::{Assign, Float};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Binary digits of exact results: far more than `f64` has, so that their own error does not count.
const DIGITS: u32 = 120;

/// Binary digits that tell for nearly every point whether it can be the worst: MPFR is up to twice as fast with them.
const FEW_DIGITS: u32 = 64;

/// What an error may be off, in units of the last place, that is computed from [`FEW_DIGITS`] or from the `f64` of a good
/// library, whose last digit counts 2⁻²⁹ units of `f32`.
const MARGIN: f64 = 1.0 / 256.0;

/// Points that a thread takes at a time.
const CHUNK: u64 = 1 << 12;

/// The largest error found, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Worst<T> {
    /// In units of the last place; infinite where one result is a number and the other is not, or the other's sign.
    pub error: f64,
    /// The arguments.
    pub arguments: [T; 3],
    /// What the function gave.
    pub result: T,
    /// The index of the point, the first of those with this error.
    pub index: u64,
}

impl<T: Real> Worst<T> {
    fn none() -> Self {
        let zero = T::nearest(0.0);
        Self { error: 0.0, arguments: [zero; 3], result: zero, index: u64::MAX }
    }
}

/// Measures one function.
struct Measurement<'a, T: Real> {
    function: &'a Function<T>,
    special: Vec<T>,
    numbers: [Float; 3],
    few: [Float; 3],
    worst: Worst<T>,
}

impl<'a, T: Real> Measurement<'a, T> {
    fn new(function: &'a Function<T>) -> Self {
        let [numbers, few] = [DIGITS, FEW_DIGITS].map(|digits| [0; 3].map(|_| Float::new(digits)));
        Self { function, special: special::<T>(), numbers, few, worst: Worst::none() }
    }

    fn points(&mut self, indices: Range<u64>, is_filtered: bool) {
        let function = self.function;
        for index in indices {
            let arguments = point(index, &self.special, &function.places);
            let result = (function.ours)(arguments);
            if is_filtered && self.cannot_be_worst(arguments, result) {
                continue;
            }
            exact(function, &mut self.numbers, arguments);
            let error = error::<T>(result, &mut self.numbers, function.is_difference());
            if error > self.worst.error {
                self.worst = Worst { error, arguments, result, index };
            }
        }
    }

    /// Returns whether the error of a result is not larger than the largest, as seen with few digits.
    fn cannot_be_worst(&mut self, arguments: [T; 3], result: T) -> bool {
        let function = self.function;
        let few = match function.close {
            Some(close) => {
                let close = close(arguments.map(Real::wide));
                self.few[0].assign(close);
                close
            }
            None => {
                exact(function, &mut self.few, arguments);
                self.few[0].to_f64()
            }
        };
        // A power of two, or a number within the margin above it, may stand for one below it, whose unit is half as large: as
        // with results that are no finite numbers, all digits decide.
        let is_power_of_two = few.to_bits() << 12 >> 32 == 0;
        if !few.is_normal() || is_power_of_two || !result.wide().is_finite() {
            return false;
        }
        error::<T>(result, &mut self.few, function.is_difference()) + MARGIN <= self.worst.error
    }
}

/// Computes the exact result into the first of the numbers.
fn exact<T: Real>(function: &Function<T>, numbers: &mut [Float; 3], arguments: [T; 3]) {
    for (number, argument) in numbers.iter_mut().zip(arguments) {
        number.assign(argument.wide());
    }
    (function.exact)(numbers);
}

/// Measures a function at points of these indices, each with all digits.
pub fn measure<T: Real>(function: &Function<T>, indices: Range<u64>) -> Worst<T> {
    let mut measurement = Measurement::new(function);
    measurement.points(indices, false);
    measurement.worst
}

/// Returns the error of a result. The exact one is the first of `numbers`; the others are overwritten. Below 1 the unit is
/// that of 1 if the error `is_difference`.
fn error<T: Real>(result: T, numbers: &mut [Float; 3], is_difference: bool) -> f64 {
    let [exact, apart, _] = numbers;
    let wide = result.wide();
    if exact.is_nan() || wide.is_nan() {
        return if exact.is_nan() == wide.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let Some(exponent) = exact.get_exp() else {
        // Zero or infinite.
        let same = *exact == wide && exact.is_sign_negative() == wide.is_sign_negative();
        return if same { 0.0 } else { f64::INFINITY };
    };
    let lowest = if is_difference { 1 } else { T::MIN_EXPONENT + T::DIGITS };
    let unit = exponent.clamp(lowest, T::MAX_EXPONENT) - T::DIGITS;
    if wide.is_infinite() {
        if exact.is_sign_negative() != wide.is_sign_negative() {
            return f64::INFINITY;
        }
        // Infinity stands where the next number would be.
        apart.assign(Float::i_exp(1, T::MAX_EXPONENT));
        exact.abs_mut();
        *apart -= &*exact;
        if apart.is_sign_negative() {
            return 0.0;
        }
    } else {
        apart.assign(wide);
        *apart -= &*exact;
    }
    *apart >>= unit;
    apart.to_f64().abs()
}

/// Measures a function at so many points, on all cores. Gives the same as [`measure`], which computes all digits of all
/// points. `done` is told how many points are done, by any thread.
pub fn measure_all<T: Real>(function: &Function<T>, points: u64, done: &(impl Fn(u64) + Sync)) -> Worst<T> {
    let next = AtomicU64::new(0);
    // A thread takes chunks in their order, so that it leaves out only points behind one that is as bad.
    let work = || {
        let mut measurement = Measurement::new(function);
        loop {
            let begin = next.fetch_add(CHUNK, Ordering::Relaxed);
            if begin >= points {
                return measurement.worst;
            }
            done(begin);
            measurement.points(begin..points.min(begin + CHUNK), true);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads()).map(|_| scope.spawn(work)).collect();
        let worst = threads.into_iter().map(|thread| thread.join().expect("measuring does not panic"));
        let order = |a: &Worst<T>, b: &Worst<T>| a.error.total_cmp(&b.error).then(b.index.cmp(&a.index));
        worst.max_by(order).expect("there is a thread")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(result: f32, exact: f64) -> f64 {
        let mut numbers = [exact, 0.0, 0.0].map(|number| Float::with_val(DIGITS, number));
        error::<f32>(result, &mut numbers, false)
    }

    #[test]
    fn errors_are_in_units_of_the_last_place() {
        let unit = f64::from(f32::EPSILON);
        assert_eq!(error_of(1.0, 1.0), 0.0);
        assert_eq!(error_of(1.0, 1.0 + 0.25 * unit), 0.25);
        assert_eq!(error_of(-3.0, -3.0 - 6.0 * unit), 3.0);
        // Denormal numbers have the unit of the smallest.
        assert_eq!(error_of(f32::from_bits(5), 1.5 * 2f64.powi(-149)), 3.5);
        // Beside the end of the range.
        let largest = f64::from(f32::MAX);
        assert_eq!(error_of(f32::INFINITY, largest), 1.0);
        assert_eq!(error_of(f32::INFINITY, 1e300), 0.0);
        assert!(error_of(f32::MAX, 1e39) > 1e6);
        for (result, exact) in [(f32::NAN, 1.0), (1.0, f64::NAN), (f32::NEG_INFINITY, 1e300), (0.0, -0.0)] {
            assert_eq!(error_of(result, exact), f64::INFINITY);
        }
        assert_eq!(error_of(f32::NAN, f64::NAN), 0.0);
    }
}
