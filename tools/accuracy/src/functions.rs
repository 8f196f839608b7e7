//! The functions, what they are compared with, and how far off they may be.

use crate::Real;
use crate::points::Where::{self, Beside, Between, Integers, Powers, QuarterTurns, Sizes};
use rug::float::Constant;
use rug::ops::PowAssign;
use rug::{Assign, Float};

/// One function of `T`.
pub struct Function<T> {
    /// Its name in `math::Float`.
    pub name: &'static str,
    /// The largest error that the documentation states, in units of the last place.
    pub bound: f64,
    /// Where its arguments lie.
    pub places: Vec<Where>,
    /// The function.
    pub ours: fn([T; 3]) -> T,
    /// MPFR's, whose arguments are the three numbers and whose result goes into the first.
    pub exact: fn(&mut [Float; 3]),
    /// The same function of `f64`, of the standard library's, which has nothing in common with ours. Where there is one, its
    /// results say of most points of `f32` that they cannot be the worst, and MPFR is not asked.
    pub close: Option<fn([f64; 3]) -> f64>,
}

impl<T: Real> Function<T> {
    /// Whether the error is bounded as a difference where the result is below 1.
    pub fn is_difference(&self) -> bool {
        self.name == NEGATIVE
    }
}

/// Beyond this, the gamma function of either type is infinite, or 0 for negative numbers that are no integers.
const GAMMA_END: f64 = 200.0;

fn gamma([x, ..]: &mut [Float; 3]) {
    if x.is_finite() && *x > GAMMA_END {
        // MPFR's own exponents reach much further.
        x.assign(f64::INFINITY);
    } else {
        x.gamma_mut();
    }
}

/// The logarithm of the gamma function of negative numbers, beside whose zeros digits are lost.
const NEGATIVE: &str = "ln_gamma(-x)";

fn negative<T: Real>(x: T) -> T {
    x.copysign(T::nearest(-1.0))
}

fn ln_gamma([x, ..]: &mut [Float; 3], is_negative: bool) {
    x.abs_mut();
    if is_negative {
        *x *= -1;
    }
    x.ln_abs_gamma_mut();
}

fn mul_add([x, y, z]: &mut [Float; 3]) {
    x.mul_add_mut(y, z);
}

fn powf([x, y, _]: &mut [Float; 3]) {
    x.pow_assign(&*y);
}

/// Returns the standard library's function of `f64`. It has none for some, and functions with whole results are exact anyway.
fn close(name: &str) -> Option<fn([f64; 3]) -> f64> {
    Some(match name {
        "acos" => |[x, ..]| x.acos(),
        "asin" => |[x, ..]| x.asin(),
        "asinh" => |[x, ..]| x.asinh(),
        "atan" => |[x, ..]| x.atan(),
        "atan2" => |[x, y, _]| x.atan2(y),
        "atanh" => |[x, ..]| x.atanh(),
        "cbrt" => |[x, ..]| x.cbrt(),
        "cos" | "sin_cos.1" => |[x, ..]| x.cos(),
        "cosh" => |[x, ..]| x.cosh(),
        "exp" => |[x, ..]| x.exp(),
        "exp10" => |[x, ..]| 10f64.powf(x),
        "exp2" => |[x, ..]| x.exp2(),
        "exp_m1" => |[x, ..]| x.exp_m1(),
        "hypot" => |[x, y, _]| x.hypot(y),
        "ln" => |[x, ..]| x.ln(),
        "ln_1p" => |[x, ..]| x.ln_1p(),
        "log" => |[x, y, _]| x.ln() / y.ln(),
        "log10" => |[x, ..]| x.log10(),
        "log2" => |[x, ..]| x.log2(),
        "mul_add" => |[x, y, z]| x.mul_add(y, z),
        "powf" => |[x, y, _]| x.powf(y),
        "recip" => |[x, ..]| x.recip(),
        "sin" | "sin_cos.0" => |[x, ..]| x.sin(),
        "sinh" => |[x, ..]| x.sinh(),
        "sqrt" => |[x, ..]| x.sqrt(),
        "tan" => |[x, ..]| x.tan(),
        "tanh" => |[x, ..]| x.tanh(),
        "to_degrees" => |[x, ..]| x.to_degrees(),
        "to_radians" => |[x, ..]| x.to_radians(),
        _ => return None,
    })
}

/// Returns all functions whose results are rounded, of `f32` or `f64`.
pub fn functions<T: Real>() -> Vec<Function<T>> {
    // The largest powers of e, 2 and 10, and the smallest.
    let [top, bottom] =
        [T::MAX_EXPONENT, T::MIN_EXPONENT].map(|exponent| f64::from(exponent) * std::f64::consts::LN_2);
    let [top2, bottom2] = [T::MAX_EXPONENT, T::MIN_EXPONENT].map(f64::from);
    let [top10, bottom10] = [top, bottom].map(|power| power / std::f64::consts::LN_10);
    let (tiny, least, huge) = (1e-8, [1e-37, 1e-307][T::INDEX], [1e38, 1e307][T::INDEX]);
    let sizes = Sizes(least, huge);
    let unit = vec![Between(-1.0, 1.0), Sizes(tiny, 1.0), Beside(1.0), Beside(-1.0), Beside(0.5)];
    let exponents = vec![
        Between(bottom - 2.0, top + 1.0),
        Between(-2.0, 2.0),
        Sizes(tiny, 1.0),
        Beside(top),
        Beside(bottom),
    ];
    let signed = vec![
        Between(-top - 1.0, top + 1.0),
        Between(-2.0, 2.0),
        Sizes(tiny, 1.0),
        Sizes(0.1, 50.0),
        Beside(top),
    ];
    let angles = vec![
        Between(-7.0, 7.0),
        Between(-1000.0, 1000.0),
        QuarterTurns,
        QuarterTurns,
        Sizes(tiny, 1.0),
        sizes,
    ];
    let positive = vec![Between(0.0, 4.0), Between(0.5, 2.0), Beside(1.0), sizes];
    let any = vec![sizes, Between(-10.0, 10.0), Sizes(tiny, 1.0)];
    let error = vec![
        Between(-6.0, 6.0),
        Between(5.0, 28.0),
        Sizes(tiny, 1.0),
        Beside(0.84375),
        Beside(1.25),
        Beside(6.0),
    ];
    let gammas = vec![
        Between(-5.0, 10.0),
        Between(-184.0, 172.0),
        Between(-42.0, 36.0),
        Integers(-180.0, 170.0),
        Beside(1.0),
        Sizes(tiny, 1.0),
    ];
    let pairs = vec![Sizes(1e-9, 1e9), Between(-10.0, 10.0)];

    macro_rules! table {
        ($($name:expr, $bounds:expr, $places:expr, |$ours:pat_param| $result:expr, |$exact:pat_param| $compute:expr;)*) => {
            vec![$(Function {
                name: $name,
                bound: $bounds[T::INDEX],
                places: $places.clone(),
                ours: |$ours| $result,
                exact: |$exact| { $compute; },
                close: if T::INDEX == 0 { close($name) } else { None },
            },)*]
        };
    }
    table! {
        "acos", [1.0, 1.0], unit, |[x, ..]| x.acos(), |[x, ..]| x.acos_mut();
        "acosh", [3.0, 3.0], positive, |[x, ..]| x.acosh(), |[x, ..]| x.acosh_mut();
        "asin", [1.0, 1.0], unit, |[x, ..]| x.asin(), |[x, ..]| x.asin_mut();
        "asinh", [2.0, 2.0], any, |[x, ..]| x.asinh(), |[x, ..]| x.asinh_mut();
        "atan", [1.0, 1.0], any, |[x, ..]| x.atan(), |[x, ..]| x.atan_mut();
        "atan2", [2.0, 2.0], pairs, |[x, y, _]| x.atan2(y), |[x, y, _]| x.atan2_mut(y);
        "atanh", [2.0, 2.0], unit, |[x, ..]| x.atanh(), |[x, ..]| x.atanh_mut();
        "cbrt", [1.0, 1.0], any, |[x, ..]| x.cbrt(), |[x, ..]| x.cbrt_mut();
        "ceil", [0.0, 0.0], any, |[x, ..]| x.ceil(), |[x, ..]| x.ceil_mut();
        "cos", [1.0, 1.0], angles, |[x, ..]| x.cos(), |[x, ..]| x.cos_mut();
        "cosh", [2.0, 2.0], signed, |[x, ..]| x.cosh(), |[x, ..]| x.cosh_mut();
        "erf", [1.0, 1.0], error, |[x, ..]| x.erf(), |[x, ..]| x.erf_mut();
        "erfc", [5.0, 5.0], error, |[x, ..]| x.erfc(), |[x, ..]| x.erfc_mut();
        "exp", [1.0, 1.0], exponents, |[x, ..]| x.exp(), |[x, ..]| x.exp_mut();
        "exp10", [5.0, 5.0], vec![Between(bottom10 - 1.0, top10 + 1.0), Integers(bottom10, top10), Sizes(tiny, 1.0), Beside(top10)],
            |[x, ..]| x.exp10(), |[x, ..]| x.exp10_mut();
        "exp2", [1.0, 1.0], vec![Between(bottom2 - 1.0, top2 + 1.0), Integers(bottom2, top2), Sizes(tiny, 1.0), Beside(top2)],
            |[x, ..]| x.exp2(), |[x, ..]| x.exp2_mut();
        "exp_m1", [1.0, 1.0], signed, |[x, ..]| x.exp_m1(), |[x, ..]| x.exp_m1_mut();
        "floor", [0.0, 0.0], any, |[x, ..]| x.floor(), |[x, ..]| x.floor_mut();
        "gamma", [1.0, 16.0], gammas, |[x, ..]| x.gamma(), |numbers| gamma(numbers);
        "hypot", [1.0, 1.0], pairs, |[x, y, _]| x.hypot(y), |[x, y, _]| x.hypot_mut(y);
        "ln", [1.0, 1.0], positive, |[x, ..]| x.ln(), |[x, ..]| x.ln_mut();
        "ln_1p", [1.0, 1.0], vec![Between(-1.0, 2.0), Sizes(tiny, 1.0), Beside(-1.0), sizes],
            |[x, ..]| x.ln_1p(), |[x, ..]| x.ln_1p_mut();
        "ln_gamma", [5.0, 5.0], gammas, |[x, ..]| x.abs().ln_gamma().0, |numbers| ln_gamma(numbers, false);
        NEGATIVE, [64.0, 64.0], gammas, |[x, ..]| negative(x).ln_gamma().0, |numbers| ln_gamma(numbers, true);
        "log", [3.0, 3.0], vec![Between(0.0, 20.0), sizes], |[x, y, _]| x.log(y), |[x, y, _]| { x.ln_mut(); y.ln_mut(); *x /= &*y };
        "log10", [1.0, 1.0], positive, |[x, ..]| x.log10(), |[x, ..]| x.log10_mut();
        "log2", [1.0, 1.0], positive, |[x, ..]| x.log2(), |[x, ..]| x.log2_mut();
        "mul_add", [0.5, 0.5], pairs, |[x, y, z]| x.mul_add(y, z), |numbers| mul_add(numbers);
        "powf", [1.0, 2.0], vec![Powers], |[x, y, _]| x.powf(y), |numbers| powf(numbers);
        "recip", [0.5, 0.5], any, |[x, ..]| x.recip(), |[x, ..]| x.recip_mut();
        "rem", [0.0, 0.0], pairs, |[x, y, _]| x.rem(y), |[x, y, _]| *x %= &*y;
        "round", [0.0, 0.0], any, |[x, ..]| x.round(), |[x, ..]| x.round_mut();
        "round_ties_even", [0.0, 0.0], any, |[x, ..]| x.round_ties_even(), |[x, ..]| x.round_even_mut();
        "sin", [1.0, 1.0], angles, |[x, ..]| x.sin(), |[x, ..]| x.sin_mut();
        "sin_cos.0", [1.0, 1.0], angles, |[x, ..]| x.sin_cos().0, |[x, ..]| x.sin_mut();
        "sin_cos.1", [1.0, 1.0], angles, |[x, ..]| x.sin_cos().1, |[x, ..]| x.cos_mut();
        "sinh", [2.0, 2.0], signed, |[x, ..]| x.sinh(), |[x, ..]| x.sinh_mut();
        "sqrt", [0.5, 0.5], positive, |[x, ..]| x.sqrt(), |[x, ..]| x.sqrt_mut();
        "tan", [1.0, 1.0], angles, |[x, ..]| x.tan(), |[x, ..]| x.tan_mut();
        "tanh", [3.0, 3.0], signed, |[x, ..]| x.tanh(), |[x, ..]| x.tanh_mut();
        "to_degrees", [1.0, 1.0], any, |[x, ..]| x.to_degrees(), |[x, pi, _]| { pi.assign(Constant::Pi); *x /= &*pi; *x *= 180 };
        "to_radians", [1.0, 1.0], any, |[x, ..]| x.to_radians(), |[x, pi, _]| { pi.assign(Constant::Pi); *x *= &*pi; *x /= 180 };
        "trunc", [0.0, 0.0], any, |[x, ..]| x.trunc(), |[x, ..]| x.trunc_mut();
    }
}
