//! Mathematics: every function, for the host to compare bit by bit; fast forms and numbers of 16 bits.

use hostcall_device::math::Float;
use hostcall_device::math::fast::Fast;
use hostcall_device::math::half::{Half, bf16, f16};
use hostcall_device::{Global, Lane, kernel};

macro_rules! all {
    ($x:expr, $y:expr, $put:expr; $($name:ident)*; $($of_two:ident)*) => {{
        let (x, y, mut put) = ($x, $y, $put);
        $(put(stringify!($name), Float::$name(x));)*
        $(put(stringify!($of_two), Float::$of_two(x, y));)*
        put("mul_add", Float::mul_add(x, y, x));
        put("powi", Float::powi(x, -3));
        let (sin, cos) = Float::sin_cos(x);
        put("sin_cos", sin);
        put("sin_cos", cos);
        let (logarithm, sign) = Float::ln_gamma(x);
        put("ln_gamma", logarithm);
        put("ln_gamma", sign as _);
    }};
    ($x:expr, $y:expr, $put:expr) => {
        all!(
            $x, $y, $put;
            abs acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erfc exp exp10 exp2 exp_m1 floor fract gamma ln
            ln_1p log10 log2 recip round round_ties_even signum sin sinh sqrt tan tanh to_degrees to_radians trunc;
            atan2 copysign div_euclid hypot log max min powf rem rem_euclid
        )
    };
}

/// Gives the name and the result of every function of two numbers, in an order of its own. NaNs are all the same one.
pub fn doubles(x: f64, y: f64, mut put: impl FnMut(&'static str, u64)) {
    all!(x, y, |name, result: f64| put(name, if result.is_nan() { u64::MAX } else { result.to_bits() }));
}

/// As [`doubles`].
pub fn floats(x: f32, y: f32, mut put: impl FnMut(&'static str, u64)) {
    all!(x, y, |name, result: f32| put(
        name,
        if result.is_nan() { u64::MAX } else { result.to_bits().into() }
    ));
}

/// Gives the name and the result of every fast form. Division takes both numbers, all others the first.
pub fn fast_forms(x: f32, y: f32, mut put: impl FnMut(&'static str, f32)) {
    put("fast_cos", x.fast_cos());
    put("fast_div", x.fast_div(y));
    put("fast_exp", x.fast_exp());
    put("fast_exp2", x.fast_exp2());
    put("fast_ln", x.fast_ln());
    put("fast_log2", x.fast_log2());
    put("fast_recip", x.fast_recip());
    put("fast_rsqrt", x.fast_rsqrt());
    put("fast_sin", x.fast_sin());
    put("fast_sqrt", x.fast_sqrt());
    put("fast_tanh", x.fast_tanh());
}

/// Writes the results of each lane's numbers, as many for each lane as fit.
#[kernel]
pub fn math_doubles(lane: &Lane, x: &[f64], y: &[f64], out: &[Global<u64>]) {
    let i = lane.global_id();
    let each = out.len() / x.len();
    let mut at = i * each;
    doubles(x[i], y[i], |_, result| {
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
    floats(x[i], y[i], |_, result| {
        out[at].set(result);
        at += 1;
    });
}

/// As [`math_doubles`], for the fast forms.
#[kernel]
pub fn math_fast(lane: &Lane, x: &[f32], y: &[f32], out: &[Global<f32>]) {
    let i = lane.global_id();
    let each = out.len() / x.len();
    let mut at = i * each;
    fast_forms(x[i], y[i], |_, result| {
        out[at].set(result);
        at += 1;
    });
}

/// Narrows each lane's number both ways, and adds `x` and the number of the same bits, widened, times `factor`, both ways.
#[kernel]
pub fn math_halves(
    lane: &Lane,
    factor: f16,
    numbers: &[f32],
    x: &[f16],
    narrow: &[Global<f16>],
    narrow_brain: &[Global<bf16>],
    sums: &[Global<f32>],
) {
    let i = lane.global_id();
    narrow[i].set(f16::narrow(numbers[i]));
    narrow_brain[i].set(bf16::narrow(numbers[i]));
    let brain = bf16::from_bits(x[i].to_bits());
    sums[2 * i].set(x[i].widen() * factor.widen());
    sums[2 * i + 1].set(brain.widen() * factor.widen());
}
