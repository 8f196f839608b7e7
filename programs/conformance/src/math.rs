//! Mathematics: every function, for the host to compare bit by bit.

use hostcall_device::math::Float;
use hostcall_device::{Global, Lane, kernel};

macro_rules! results {
    ($x:expr, $y:expr, $put:expr; $($name:ident)*) => {{
        let (x, y, mut put) = ($x, $y, $put);
        $(put(Float::$name(x));)*
        put(Float::atan2(x, y));
        put(Float::copysign(x, y));
        put(Float::hypot(x, y));
        put(Float::log(x, y));
        put(Float::max(x, y));
        put(Float::min(x, y));
        put(Float::mul_add(x, y, x));
        put(Float::powf(x, y));
        put(Float::powi(x, -3));
        put(Float::rem(x, y));
        put(Float::rem_euclid(x, y));
        let (sin, cos) = Float::sin_cos(x);
        put(sin);
        put(cos);
    }};
}

macro_rules! all {
    ($x:expr, $y:expr, $put:expr) => {
        results!(
            $x, $y, $put;
            abs acos acosh asin asinh atan atanh cbrt ceil cos cosh exp exp2 exp_m1 floor fract ln ln_1p log10 log2
            recip round round_ties_even signum sin sinh sqrt tan tanh to_degrees to_radians trunc
        )
    };
}

/// Gives the results of every function of two numbers, in an order of its own. NaNs are all the same one.
pub fn doubles(x: f64, y: f64, mut put: impl FnMut(u64)) {
    all!(x, y, |result: f64| put(if result.is_nan() { u64::MAX } else { result.to_bits() }));
}

/// As [`doubles`].
pub fn floats(x: f32, y: f32, mut put: impl FnMut(u64)) {
    all!(x, y, |result: f32| put(if result.is_nan() { u64::MAX } else { result.to_bits().into() }));
}

/// Writes the results of each lane's numbers, as many for each lane as fit.
#[kernel]
pub fn math_doubles(lane: &Lane, x: &[f64], y: &[f64], out: &[Global<u64>]) {
    let i = lane.global_id();
    let each = out.len() / x.len();
    let mut at = i * each;
    doubles(x[i], y[i], |result| {
        out[at].set(result);
        at += 1;
    });
}

/// As [`math_doubles`].
#[kernel]
pub fn math_floats(lane: &Lane, x: &[f32], y: &[f32], out: &[Global<u64>]) {
    let i = lane.global_id();
    let each = out.len() / x.len();
    let mut at = i * each;
    floats(x[i], y[i], |result| {
        out[at].set(result);
        at += 1;
    });
}
