//! What the command checks, at fewer points.

use hostcall::hostcall_device::math::Float;
use hostcall_accuracy::functions::{Function, functions};
use hostcall_accuracy::measure::{measure, measure_all};
use hostcall_accuracy::{Real, device};
use hostcall_conformance::Context;

const POINTS: u64 = 20_000;

fn check<T: Real>() {
    for function in functions::<T>() {
        let worst = measure_all(&function, POINTS, &|_| ());
        let arguments = worst.arguments.map(Real::wide);
        assert!(
            worst.error <= function.bound,
            "{} of {}: {} ULP at {arguments:?}, not at most {}",
            function.name,
            T::NAME,
            worst.error,
            function.bound
        );
    }
}

#[test]
fn errors_are_within_what_the_documentation_states() {
    check::<f32>();
    check::<f64>();
}

fn check_filtered<T: Real>() {
    for function in functions::<T>() {
        let all = measure(&function, 0..POINTS / 4);
        let filtered = measure_all(&function, POINTS / 4, &|_| ());
        let [all, filtered] = [all, filtered].map(|worst| (worst.error, worst.index));
        assert_eq!(all, filtered, "{} of {}", function.name, T::NAME);
    }
}

#[test]
fn points_that_few_digits_leave_out_are_not_the_worst() {
    check_filtered::<f32>();
    check_filtered::<f64>();
}

#[test]
fn worse_functions_are_found() {
    let worse: fn([f64; 3]) -> f64 = |[x, ..]| Float::ln(1.0 + x);
    let function = functions::<f64>().into_iter().find(|function| function.name == "ln_1p").unwrap();
    let function = Function { ours: worse, ..function };
    assert!(measure_all(&function, POINTS, &|_| ()).error > 1e6);
    // Farther off by two units at one of all numbers with three digits of base 2.
    let worse: fn([f32; 3]) -> f32 = |[x, ..]| {
        let root = Float::sqrt(x);
        if x.to_bits() & 0xff == 0x80 { f32::from_bits(root.to_bits() + 2) } else { root }
    };
    let function = functions::<f32>().into_iter().find(|function| function.name == "sqrt").unwrap();
    let error = measure_all(&Function { ours: worse, ..function }, POINTS, &|_| ()).error;
    assert!((1.5..=2.5).contains(&error), "{error}");
}

#[test]
fn the_software_device_computes_as_the_host() {
    let context = Context::default();
    assert!(device::compare_floats(&context, POINTS, |_| ()).unwrap().is_empty());
    assert!(device::compare_doubles(&context, POINTS, |_| ()).unwrap().is_empty());
    let errors = device::measure_fast(&context, POINTS, |_| ()).unwrap();
    assert!(errors.iter().all(|(_, error)| error.of_bound <= 1.0), "{errors:?}");
}
