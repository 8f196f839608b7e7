//! The largest error of a function.

use crate::Real;
use crate::functions::Function;
use crate::points::{point, special};
use rug::{Assign, Float};

/// Binary digits of exact results: far more than `f64` has, so that their own error does not count.
const DIGITS: u32 = 120;

/// The largest error found, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Worst<T> {
    /// In units of the last place; infinite where one result is a number and the other is not, or the other's sign.
    pub error: f64,
    /// The arguments.
    pub arguments: [T; 3],
    /// What the function gave.
    pub result: T,
}

/// Measures a function at points of these indices.
pub fn measure<T: Real>(function: &Function<T>, indices: std::ops::Range<u64>) -> Worst<T> {
    let mut numbers = [0; 3].map(|_| Float::new(DIGITS));
    let special = special::<T>();
    let mut worst = Worst { error: 0.0, arguments: [T::nearest(0.0); 3], result: T::nearest(0.0) };
    for i in indices {
        let arguments = point(i, &special, &function.places);
        for (number, argument) in numbers.iter_mut().zip(arguments) {
            number.assign(argument.wide());
        }
        (function.exact)(&mut numbers);
        let result = (function.ours)(arguments);
        let error = error::<T>(result, &mut numbers, function.is_difference());
        if error > worst.error {
            worst = Worst { error, arguments, result };
        }
    }
    worst
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

/// Measures a function at so many points, on all cores.
pub fn measure_all<T: Real>(function: &Function<T>, points: u64) -> Worst<T> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let each = points.div_ceil(threads);
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|thread| (thread * each)..((thread + 1) * each).min(points))
            .map(|part| scope.spawn(move || measure(function, part)))
            .collect();
        let worst = parts.into_iter().map(|part| part.join().expect("measuring does not panic"));
        worst.max_by(|a, b| a.error.total_cmp(&b.error)).expect("there is a thread")
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
