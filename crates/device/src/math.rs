//! Mathematics: the functions of `f32` and `f64`, the same on every device.
//!
//! A `no_std` crate has no `f32::sqrt`; [`Float`] gives the numbers the methods that the standard library has, under the
//! same names:
//!
//! ```
//! use hostcall_device::math::Float;
//! use hostcall_device::{Global, Lane, kernel};
//!
//! /// Lengths of the vectors (`x`, `y`).
//! #[kernel]
//! fn lengths(lane: &Lane, x: &[f32], y: &[f32], out: &[Global<f32>]) {
//!     let i = lane.global_id();
//!     if i < out.len() {
//!         out[i].set(x[i].hypot(y[i]));
//!     }
//! }
//!
//! assert_eq!(Float::powi(1.5f64, 3), 3.375);
//! ```
//!
//! In a crate with the standard library, `x.sin()` is the standard library's, whose results may differ in the last bits
//! from one machine to another; `Float::sin(x)` is this module's everywhere.
//!
//! # Error
//! The functions are those of the crate [`libm`](https://docs.rs/libm), a translation of musl's, compiled for each
//! device: a kernel gets the same bits on every one of them, but for NaN's. What the kernel itself adds and multiplies may
//! differ in the last bit ([`crate::rounding`]). `libm`'s own tests compare its functions to results of any precision and allow
//! these errors, in units of the last place:
//!
//! | error | functions |
//! |---|---|
//! | exact, or rounded correctly | `abs`, `ceil`, `copysign`, `floor`, `fract`, `max`, `min`, `mul_add`, `recip`, `rem`, `round`, `round_ties_even`, `sqrt`, `trunc` |
//! | at most 1 | `acos`, `acosh` of `f64`, `asin`, `atan`, `atan2`, `cbrt`, `cos`, `cosh`, `exp`, `exp2`, `exp_m1`, `hypot`, `ln`, `ln_1p`, `log10`, `log2`, `powf`, `sin`, `tan` |
//! | at most 2 | `asinh`, `atanh`, `sinh`, `tanh` |
//! | at most 4 | `acosh` of `f32` |
//!
//! [`Float::powi`] multiplies, so that its error grows with the exponent. [`Float::log`], [`Float::rem_euclid`],
//! [`Float::to_degrees`] and [`Float::to_radians`] round once more than what they are made of.

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

macro_rules! declare {
    ($($(#[doc = $docs:literal])* $name:ident($($argument:ident: $t:ty),*) -> $result:ty;)*) => {
        /// The numbers that have mathematics: `f32` and `f64`.
        pub trait Float: Copy + sealed::Sealed {
            $($(#[doc = $docs])* fn $name(self, $($argument: $t),*) -> $result;)*
        }
    };
}

declare! {
    /// Returns the absolute value.
    abs() -> Self;
    /// Returns the angle, in radians from 0 to π, whose cosine this is; NaN outside of −1 to 1.
    acos() -> Self;
    /// Returns the inverse hyperbolic cosine; NaN below 1.
    acosh() -> Self;
    /// Returns the angle, in radians from −π/2 to π/2, whose sine this is; NaN outside of −1 to 1.
    asin() -> Self;
    /// Returns the inverse hyperbolic sine.
    asinh() -> Self;
    /// Returns the angle, in radians from −π/2 to π/2, whose tangent this is.
    atan() -> Self;
    /// Returns the angle of the vector (`x`, `self`), in radians from −π to π.
    atan2(x: Self) -> Self;
    /// Returns the inverse hyperbolic tangent; NaN outside of −1 to 1.
    atanh() -> Self;
    /// Returns the cube root.
    cbrt() -> Self;
    /// Returns the smallest integer that is not smaller.
    ceil() -> Self;
    /// Returns the number in the range from `min` to `max` that is nearest. Panics when `min > max` or one is NaN.
    clamp(min: Self, max: Self) -> Self;
    /// Returns the number with the sign of `sign`.
    copysign(sign: Self) -> Self;
    /// Returns the cosine of an angle in radians.
    cos() -> Self;
    /// Returns the hyperbolic cosine.
    cosh() -> Self;
    /// Returns e to this power.
    exp() -> Self;
    /// Returns 2 to this power.
    exp2() -> Self;
    /// Returns e to this power, less 1, exact where that is close to 0.
    exp_m1() -> Self;
    /// Returns the largest integer that is not larger.
    floor() -> Self;
    /// Returns what [`Float::trunc`] cuts off.
    fract() -> Self;
    /// Returns the length of the vector (`self`, `other`) without overflow in between.
    hypot(other: Self) -> Self;
    /// Returns the natural logarithm; −∞ for 0, NaN below.
    ln() -> Self;
    /// Returns the natural logarithm of 1 more, exact where that is close to 1.
    ln_1p() -> Self;
    /// Returns the logarithm to this base.
    log(base: Self) -> Self;
    /// Returns the logarithm to base 10.
    log10() -> Self;
    /// Returns the logarithm to base 2.
    log2() -> Self;
    /// Returns the larger of two numbers; if one is NaN, the other.
    max(other: Self) -> Self;
    /// Returns the smaller of two numbers; if one is NaN, the other.
    min(other: Self) -> Self;
    /// Returns `self * a + b`, rounded once.
    mul_add(a: Self, b: Self) -> Self;
    /// Returns the number to this power.
    powf(exponent: Self) -> Self;
    /// Returns the number to this power, by multiplications.
    powi(exponent: i32) -> Self;
    /// Returns 1 divided by the number.
    recip() -> Self;
    /// Returns the remainder of a division whose quotient is rounded towards 0: what `%` is. It has the sign of `self`.
    rem(divisor: Self) -> Self;
    /// Returns the remainder of a division that is not negative.
    rem_euclid(divisor: Self) -> Self;
    /// Returns the nearest integer; halves go away from 0.
    round() -> Self;
    /// Returns the nearest integer; halves go to the even one.
    round_ties_even() -> Self;
    /// Returns 1 with the sign of the number; NaN for NaN.
    signum() -> Self;
    /// Returns the sine of an angle in radians.
    sin() -> Self;
    /// Returns the sine and cosine of an angle in radians.
    sin_cos() -> (Self, Self);
    /// Returns the hyperbolic sine.
    sinh() -> Self;
    /// Returns the square root; NaN below 0.
    sqrt() -> Self;
    /// Returns the tangent of an angle in radians.
    tan() -> Self;
    /// Returns the hyperbolic tangent.
    tanh() -> Self;
    /// Returns an angle in radians in degrees.
    to_degrees() -> Self;
    /// Returns an angle in degrees in radians.
    to_radians() -> Self;
    /// Returns the integer that is nearest among those not farther from 0.
    trunc() -> Self;
}

// On NVIDIA, what the assembler contracts in kernels it must not contract here (`hostcall_build`'s `contraction`): so what
// computes with products and sums is a function of its own there.
macro_rules! implement {
    (
        $t:ident { $($name:ident = $function:ident($($argument:ident),*);)* }
        acosh = $acosh:ident; sin_cos = $sin_cos:ident;
    ) => {
        impl Float for $t {
            $(
                #[cfg_attr(target_arch = "nvptx64", inline(never))]
                #[cfg_attr(not(target_arch = "nvptx64"), inline)]
                fn $name(self, $($argument: Self),*) -> Self {
                    libm::$function(self, $($argument),*)
                }
            )*

            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            #[cfg_attr(not(target_arch = "nvptx64"), inline)]
            fn acosh(self) -> Self {
                // `libm`'s function is made for numbers from 1 on, and says anything for others.
                if self < 1.0 { Self::NAN } else { libm::$acosh(self) }
            }

            #[inline]
            #[track_caller]
            fn clamp(self, min: Self, max: Self) -> Self {
                <$t>::clamp(self, min, max)
            }

            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            #[cfg_attr(not(target_arch = "nvptx64"), inline)]
            fn fract(self) -> Self {
                self - Float::trunc(self)
            }

            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            #[cfg_attr(not(target_arch = "nvptx64"), inline)]
            fn log(self, base: Self) -> Self {
                Float::ln(self) / Float::ln(base)
            }

            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            #[cfg_attr(not(target_arch = "nvptx64"), inline)]
            fn powi(self, exponent: i32) -> Self {
                let (mut result, mut factor, mut left) = (1.0, self, exponent.unsigned_abs());
                while left != 0 {
                    if left & 1 != 0 {
                        result *= factor;
                    }
                    factor *= factor;
                    left >>= 1;
                }
                if exponent < 0 { 1.0 / result } else { result }
            }

            #[inline]
            fn recip(self) -> Self {
                1.0 / self
            }

            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            #[cfg_attr(not(target_arch = "nvptx64"), inline)]
            fn rem_euclid(self, divisor: Self) -> Self {
                let rest = Float::rem(self, divisor);
                if rest < 0.0 { rest + Float::abs(divisor) } else { rest }
            }

            #[inline]
            fn signum(self) -> Self {
                if self.is_nan() { self } else { Float::copysign(1.0, self) }
            }

            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            #[cfg_attr(not(target_arch = "nvptx64"), inline)]
            fn sin_cos(self) -> (Self, Self) {
                libm::$sin_cos(self)
            }

            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            #[cfg_attr(not(target_arch = "nvptx64"), inline)]
            fn to_degrees(self) -> Self {
                <$t>::to_degrees(self)
            }

            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            #[cfg_attr(not(target_arch = "nvptx64"), inline)]
            fn to_radians(self) -> Self {
                <$t>::to_radians(self)
            }
        }
    };
}

implement! {
    f32 {
        abs = fabsf();
        acos = acosf();
        asin = asinf();
        asinh = asinhf();
        atan = atanf();
        atanh = atanhf();
        cbrt = cbrtf();
        ceil = ceilf();
        cos = cosf();
        cosh = coshf();
        exp = expf();
        exp2 = exp2f();
        exp_m1 = expm1f();
        floor = floorf();
        ln = logf();
        ln_1p = log1pf();
        log10 = log10f();
        log2 = log2f();
        round = roundf();
        round_ties_even = roundevenf();
        sin = sinf();
        sinh = sinhf();
        sqrt = sqrtf();
        tan = tanf();
        tanh = tanhf();
        trunc = truncf();
        atan2 = atan2f(x);
        copysign = copysignf(sign);
        hypot = hypotf(other);
        max = fmaxf(other);
        min = fminf(other);
        powf = powf(exponent);
        rem = fmodf(divisor);
        mul_add = fmaf(a, b);
    }
    acosh = acoshf; sin_cos = sincosf;
}

implement! {
    f64 {
        abs = fabs();
        acos = acos();
        asin = asin();
        asinh = asinh();
        atan = atan();
        atanh = atanh();
        cbrt = cbrt();
        ceil = ceil();
        cos = cos();
        cosh = cosh();
        exp = exp();
        exp2 = exp2();
        exp_m1 = expm1();
        floor = floor();
        ln = log();
        ln_1p = log1p();
        log10 = log10();
        log2 = log2();
        round = round();
        round_ties_even = roundeven();
        sin = sin();
        sinh = sinh();
        sqrt = sqrt();
        tan = tan();
        tanh = tanh();
        trunc = trunc();
        atan2 = atan2(x);
        copysign = copysign(sign);
        hypot = hypot(other);
        max = fmax(other);
        min = fmin(other);
        powf = pow(exponent);
        rem = fmod(divisor);
        mul_add = fma(a, b);
    }
    acosh = acosh; sin_cos = sincos;
}

#[cfg(test)]
mod tests {
    use super::Float;

    /// Numbers of all sizes, signs and kinds, some of them everywhere in the ranges where functions change.
    fn numbers() -> impl Iterator<Item = f64> {
        let special = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        // A generator of full period: the numbers are the same in every run.
        let mut state = 1u64;
        let spread = (0..20_000).map(move |i| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let fraction = (state >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0;
            fraction * [1.0, 2.0, 20.0, 700.0, 1e6][i % 5]
        });
        special.into_iter().chain(spread)
    }

    macro_rules! compare {
        ($t:ident, $ulps:expr, $x:ident, $ours:expr, $theirs:expr) => {
            for number in numbers() {
                let $x = number as $t;
                let (ours, theirs): ($t, $t) = ($ours, $theirs);
                let same = ours == theirs || ours.is_nan() && theirs.is_nan();
                let apart = (ours.to_bits() as i128 - theirs.to_bits() as i128).unsigned_abs();
                assert!(
                    same || apart <= $ulps,
                    "{} of {}: {ours:e}, std says {theirs:e}",
                    stringify!($ours),
                    $x
                );
            }
        };
    }

    /// What the standard library says may be off by as much as what `libm` says.
    macro_rules! functions {
        ($t:ident) => {
            functions!(@ $t, 0, abs, ceil, floor, fract, recip, round, round_ties_even, signum, sqrt, trunc);
            functions!(@ $t, 2, acos, asin, atan, cbrt, cos, cosh, exp, exp2, exp_m1, ln, ln_1p, log10, log2);
            functions!(@ $t, 2, sin, tan, to_degrees, to_radians);
            functions!(@ $t, 4, sinh, tanh);
            compare!($t, 0, x, Float::mul_add(x, 1.5, -0.25), $t::mul_add(x, 1.5, -0.25));
            compare!($t, 0, x, Float::rem(x, 1.25), x % 1.25);
            compare!($t, 0, x, Float::rem_euclid(x, 1.25), $t::rem_euclid(x, 1.25));
            compare!($t, 0, x, Float::max(x, 0.5), $t::max(x, 0.5));
            compare!($t, 0, x, Float::min(x, 0.5), $t::min(x, 0.5));
            compare!($t, 0, x, Float::clamp(x, -0.5, 0.5), $t::clamp(x, -0.5, 0.5));
            compare!($t, 0, x, Float::copysign(2.0, x), $t::copysign(2.0, x));
            compare!($t, 2, x, Float::atan2(x, -0.75), $t::atan2(x, -0.75));
            compare!($t, 2, x, Float::hypot(x, 3.0), $t::hypot(x, 3.0));
            compare!($t, 2, x, Float::powf(x, 2.5), $t::powf(x, 2.5));
            compare!($t, 8, x, Float::powi(x, -7), $t::powi(x, -7));
            compare!($t, 4, x, Float::log(x, 3.0), $t::log(x, 3.0));
            compare!($t, 2, x, Float::sin_cos(x).0, $t::sin(x));
            compare!($t, 2, x, Float::sin_cos(x).1, $t::cos(x));
        };
        (@ $t:ident, $ulps:expr, $($name:ident),*) => {
            $(compare!($t, $ulps, x, Float::$name(x), $t::$name(x));)*
        };
    }

    #[test]
    fn results_are_the_standard_librarys_but_for_the_last_bits() {
        functions!(f32);
        functions!(f64);
    }

    #[test]
    fn inverse_hyperbolic_functions_are_inverse() {
        // The standard library's are made of logarithms, and farther off than these.
        for i in 1..1000 {
            let x = f64::from(i) / 100.0;
            assert!((Float::asinh(Float::sinh(x)) - x).abs() <= 1e-14 * x, "{x}");
            assert!((Float::acosh(Float::cosh(x)) - x).abs() <= 1e-11, "{x}");
            let y = f64::from(i) / 1001.0;
            assert!((Float::tanh(Float::atanh(y)) - y).abs() <= 1e-15, "{y}");
        }
        assert!(Float::acosh(0.5f64).is_nan() && Float::acosh(-3.0f32).is_nan());
        assert!(Float::atanh(2.0f64).is_nan());
    }
}
