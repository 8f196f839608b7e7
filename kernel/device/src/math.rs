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
//! Where a result of half the digits is enough, [`fast`] has the functions that a GPU computes by one instruction.
//! With the feature `half`, the module `half` has numbers of 16 bits.
//!
//! # Error
//! A kernel gets the same bits on every device, but for NaN's. Functions whose results IEEE 754 defines are the
//! hardware's; the others are those of the crate [`libm`](https://docs.rs/libm), a translation of musl's, compiled for
//! each device. Powers of numbers beside 1 are mended: there `libm` is off by hundreds of units and more. What the kernel
//! itself adds and multiplies may differ in the last bit ([`crate::rounding`]).
//!
//! `hostcall-accuracy` is a command that compares results with those of MPFR. Its points lie in the whole range and, for the
//! most part, where the function changes; among them are the special values, denormal numbers, numbers beside 1, beside
//! multiples of π/2 and beside the ends of the range. It fails when a function is farther off than this table says, in
//! units of the last place:
//!
//! | error | functions |
//! |---|---|
//! | exact, or rounded correctly | `abs`, `ceil`, `copysign`, `floor`, `fract`, `max`, `min`, `mul_add`, `recip`, `rem`, `round`, `round_ties_even`, `signum`, `sqrt`, `trunc` |
//! | at most 1 | `acos`, `asin`, `atan`, `cbrt`, `cos`, `erf`, `exp`, `exp2`, `exp_m1`, `gamma` of `f32`, `hypot`, `ln`, `ln_1p`, `log10`, `log2`, `powf` of `f32`, `sin`, `sin_cos`, `tan`, `to_degrees`, `to_radians` |
//! | at most 2 | `asinh`, `atan2`, `atanh`, `cosh`, `powf` of `f64` (1.2 was seen), `sinh` |
//! | at most 3 | `acosh`, `log`, `tanh` |
//! | at most 5 | `erfc`, `exp10`, `ln_gamma` of positive numbers |
//! | at most 16 | `gamma` of `f64` |
//!
//! [`Float::ln_gamma`] of a negative number loses digits where its result is close to 0: it is off by at most 64 units, but
//! those of 1 for all results below 1. [`Float::powi`] multiplies, so that its error grows with the exponent.
//! [`Float::rem_euclid`] and [`Float::div_euclid`] round once more than what they are made of.

pub mod fast;
#[cfg(feature = "half")]
pub mod half;

use crate::print::Argument;
use crate::wave::WaveNumber;
use core::{fmt, iter, ops};
use hostcall_abi::wire::Wire;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// What the hardware computes, rounded as IEEE 754 says.
#[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
use core::{f32::math as hardware32, f64::math as hardware64};

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
macro_rules! hardware {
    ($module:ident, $t:ident, $($name:ident)*) => {
        /// What the hardware computes, rounded as IEEE 754 says.
        mod $module {
            $(
                #[inline]
                pub(super) fn $name(x: $t) -> $t {
                    x.$name()
                }
            )*

            #[inline]
            pub(super) fn mul_add(x: $t, a: $t, b: $t) -> $t {
                x.mul_add(a, b)
            }
        }
    };
}

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
hardware!(hardware32, f32, ceil floor round round_ties_even sqrt trunc);
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
hardware!(hardware64, f64, ceil floor round round_ties_even sqrt trunc);

macro_rules! declare {
    ($($(#[doc = $docs:literal])* $name:ident($($argument:ident: $t:ty),*) -> $result:ty;)*) => {
        /// The numbers that have mathematics: `f32` and `f64`. It is the one bound that a function of both needs: they have
        /// the operators but `%` (which is [`Float::rem`]), lie in buffers and cells, are reduced, printed, and travel in calls.
        ///
        /// ```
        /// use hostcall_device::math::Float;
        /// use hostcall_device::workgroup::Scratch;
        /// use hostcall_device::{Global, Lane, kernel, wave};
        ///
        /// /// Adds the length of the vector `x` to `out`, if one workgroup is launched.
        /// #[kernel(instances(length_f32 = <f32>, length_f64 = <f64>))]
        /// fn length<T: Float>(lane: &Lane, #[workgroup] scratch: &Scratch<T>, x: &[T], out: &Global<T>) {
        ///     let own = lane.share(x.len()).map(|i| x[i] * x[i]).sum();
        ///     let sum = lane.workgroup_reduce(scratch, own, wave::Add);
        ///     if lane.local_id() == 0 {
        ///         out.set(out.get() + sum.max(T::from_f64(1e-30)).sqrt());
        ///     }
        /// }
        /// ```
        #[diagnostic::on_unimplemented(
            message = "`{Self}` is neither `f32` nor `f64`",
            label = "has no mathematics",
            note = "convert integers first (`n as f32`), and numbers of 16 bits with `math::half::Half::widen`"
        )]
        pub trait Float:
            WaveNumber
            + Wire
            + Argument
            + fmt::Debug
            + fmt::Display
            + Default
            + PartialOrd
            + ops::Add<Output = Self>
            + ops::Sub<Output = Self>
            + ops::Mul<Output = Self>
            + ops::Div<Output = Self>
            + ops::Neg<Output = Self>
            + ops::AddAssign
            + ops::SubAssign
            + ops::MulAssign
            + ops::DivAssign
            + iter::Sum
            + sealed::Sealed
        {
            /// 0.
            const ZERO: Self;
            /// 1.
            const ONE: Self;
            /// π.
            const PI: Self;
            /// The difference between 1 and the next larger number.
            const EPSILON: Self;
            /// The largest finite number.
            const MAX: Self;
            /// ∞.
            const INFINITY: Self;
            /// Not a number.
            const NAN: Self;

            /// Returns the number that is nearest to `x`, as `as` does.
            fn from_f64(x: f64) -> Self;
            /// Returns the number as `f64`, exactly.
            fn to_f64(self) -> f64;
            /// Returns whether it is NaN.
            fn is_nan(self) -> bool;
            /// Returns whether it is neither infinite nor NaN.
            fn is_finite(self) -> bool;
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
    /// Returns the quotient of a division whose remainder is [`Float::rem_euclid`], rounded to an integer.
    div_euclid(divisor: Self) -> Self;
    /// Returns the error function: the part of a normal distribution of variance 1/2 that lies within this distance
    /// of 0, with the sign of the number.
    erf() -> Self;
    /// Returns 1 less the error function, exact also where that is close to 0.
    erfc() -> Self;
    /// Returns e to this power.
    exp() -> Self;
    /// Returns 10 to this power.
    exp10() -> Self;
    /// Returns 2 to this power.
    exp2() -> Self;
    /// Returns e to this power, less 1, exact where that is close to 0.
    exp_m1() -> Self;
    /// Returns the largest integer that is not larger.
    floor() -> Self;
    /// Returns what [`Float::trunc`] cuts off.
    fract() -> Self;
    /// Returns the gamma function: (n − 1)! for an integer n; NaN for negative integers, ±∞ for ±0.
    gamma() -> Self;
    /// Returns the length of the vector (`self`, `other`) without overflow in between.
    hypot(other: Self) -> Self;
    /// Returns the natural logarithm; −∞ for 0, NaN below.
    ln() -> Self;
    /// Returns the natural logarithm of the gamma function's absolute value, and the gamma function's sign, 1 or −1.
    ln_gamma() -> (Self, i32);
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

/// A power of `f32`.
#[inline]
fn power32(x: f32, exponent: f32) -> f32 {
    // `libm` takes powers of these for 0 or infinite where the exponent is above 2²⁷, and they are not yet.
    const LARGEST: u32 = (1.0f32 - 9.0 / (1 << 24) as f32).to_bits();
    const SMALLEST: u32 = (1.0f32 - 13.0 / (1 << 24) as f32).to_bits();
    let size = f32::abs(x).to_bits();
    if (SMALLEST..=LARGEST).contains(&size) && f32::abs(exponent) > (1u32 << 27) as f32 {
        // Such an exponent is even. The series' next part is less than half of a unit of the last place of `f64`.
        let below = f64::from(f32::abs(x)) - 1.0;
        let logarithm = below * (1.0 - below * (0.5 - below / 3.0));
        return libm::exp(f64::from(exponent) * logarithm) as f32;
    }
    libm::powf(x, exponent)
}

/// A power of `f64`.
#[inline]
fn power64(x: f64, exponent: f64) -> f64 {
    let power = libm::pow(x, exponent);
    // Of these `libm` loses eight digits of base 2: it rounds a product that should be exact.
    let beside = f64::abs(x) - 1.0;
    let is_lost = f64::abs(beside) < 1.0 / (1u32 << 20) as f64 && f64::abs(exponent) > (1u32 << 31) as f64;
    let high = exponent * beside;
    // Larger products are of powers that are 0 or infinite.
    if !is_lost || power.is_nan() || beside == 0.0 || f64::abs(high) > 1000.0 {
        return power;
    }
    // The logarithm is `beside` and the series' other parts, each exact enough; the product with the exponent keeps what was
    // rounded off, and so does the sum.
    let rest = -(beside * beside) * (0.5 - beside * (1.0 / 3.0 - beside * 0.25));
    let low = hardware64::mul_add(exponent, beside, -high) + exponent * rest;
    let sum = high + low;
    let lost = low - (sum - high);
    let result = libm::exp(sum);
    let exact = if result.is_finite() { result + result * lost } else { result };
    f64::copysign(exact, power)
}

// On NVIDIA, what the assembler contracts in kernels it must not contract here (`hostcall_build`'s `contraction`): so what
// computes with products and sums is a function of its own there.
macro_rules! implement {
    (
        $t:ident { $($name:ident = $function:ident($($argument:ident),*);)* }
        acosh = $acosh:ident; ln_gamma = $ln_gamma:ident; powf = $powf:path; sin_cos = $sin_cos:ident;
        hardware = $hardware:ident;
    ) => {
        impl Float for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const PI: Self = core::$t::consts::PI;
            const EPSILON: Self = <$t>::EPSILON;
            const MAX: Self = <$t>::MAX;
            const INFINITY: Self = <$t>::INFINITY;
            const NAN: Self = <$t>::NAN;

            #[inline]
            fn from_f64(x: f64) -> Self {
                x as Self
            }

            #[inline]
            fn to_f64(self) -> f64 {
                self.into()
            }

            #[inline]
            fn is_nan(self) -> bool {
                <$t>::is_nan(self)
            }

            #[inline]
            fn is_finite(self) -> bool {
                <$t>::is_finite(self)
            }

            $(
                #[cfg_attr(target_arch = "nvptx64", inline(never))]
                #[cfg_attr(not(target_arch = "nvptx64"), inline)]
                fn $name(self, $($argument: Self),*) -> Self {
                    libm::$function(self, $($argument),*)
                }
            )*

            implement!(@ $t, $hardware, ceil floor round round_ties_even sqrt trunc);

            #[inline]
            fn abs(self) -> Self {
                <$t>::abs(self)
            }

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

            #[inline]
            fn copysign(self, sign: Self) -> Self {
                <$t>::copysign(self, sign)
            }

            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            #[cfg_attr(not(target_arch = "nvptx64"), inline)]
            fn div_euclid(self, divisor: Self) -> Self {
                let quotient = Float::trunc(self / divisor);
                match Float::rem(self, divisor) {
                    rest if rest < 0.0 => if divisor > 0.0 { quotient - 1.0 } else { quotient + 1.0 },
                    _ => quotient,
                }
            }

            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            #[cfg_attr(not(target_arch = "nvptx64"), inline)]
            fn fract(self) -> Self {
                self - Float::trunc(self)
            }

            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            #[cfg_attr(not(target_arch = "nvptx64"), inline)]
            fn ln_gamma(self) -> (Self, i32) {
                libm::$ln_gamma(self)
            }

            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            #[cfg_attr(not(target_arch = "nvptx64"), inline)]
            fn log(self, base: Self) -> Self {
                Float::ln(self) / Float::ln(base)
            }

            #[inline]
            fn mul_add(self, a: Self, b: Self) -> Self {
                $hardware::mul_add(self, a, b)
            }

            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            #[cfg_attr(not(target_arch = "nvptx64"), inline)]
            fn powf(self, exponent: Self) -> Self {
                $powf(self, exponent)
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
    (@ $t:ident, $hardware:ident, $($name:ident)*) => {
        $(
            #[inline]
            fn $name(self) -> Self {
                $hardware::$name(self)
            }
        )*
    };
}

implement! {
    f32 {
        acos = acosf();
        asin = asinf();
        asinh = asinhf();
        atan = atanf();
        atanh = atanhf();
        cbrt = cbrtf();
        cos = cosf();
        cosh = coshf();
        erf = erff();
        erfc = erfcf();
        exp = expf();
        exp10 = exp10f();
        exp2 = exp2f();
        exp_m1 = expm1f();
        gamma = tgammaf();
        ln = logf();
        ln_1p = log1pf();
        log10 = log10f();
        log2 = log2f();
        sin = sinf();
        sinh = sinhf();
        tan = tanf();
        tanh = tanhf();
        atan2 = atan2f(x);
        hypot = hypotf(other);
        max = fmaxf(other);
        min = fminf(other);
        rem = fmodf(divisor);
    }
    acosh = acoshf; ln_gamma = lgammaf_r; powf = power32; sin_cos = sincosf; hardware = hardware32;
}

implement! {
    f64 {
        acos = acos();
        asin = asin();
        asinh = asinh();
        atan = atan();
        atanh = atanh();
        cbrt = cbrt();
        cos = cos();
        cosh = cosh();
        erf = erf();
        erfc = erfc();
        exp = exp();
        exp10 = exp10();
        exp2 = exp2();
        exp_m1 = expm1();
        gamma = tgamma();
        ln = log();
        ln_1p = log1p();
        log10 = log10();
        log2 = log2();
        sin = sin();
        sinh = sinh();
        tan = tan();
        tanh = tanh();
        atan2 = atan2(x);
        hypot = hypot(other);
        max = fmax(other);
        min = fmin(other);
        rem = fmod(divisor);
    }
    acosh = acosh; ln_gamma = lgamma_r; powf = power64; sin_cos = sincos; hardware = hardware64;
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
            compare!($t, 0, x, Float::div_euclid(x, 1.25), $t::div_euclid(x, 1.25));
            compare!($t, 0, x, Float::div_euclid(x, -1.25), $t::div_euclid(x, -1.25));
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

    /// `libm` takes some of these for 0, and loses digits of others.
    #[test]
    fn powers_of_numbers_beside_1_are_exact() {
        for step in 1..40u32 {
            for exponent in [1.3e8f32, 1.5e8, 1.9e8, 3e8, 1.6e9] {
                for x in [f32::from_bits(1f32.to_bits() - step), -f32::from_bits(1f32.to_bits() + step)] {
                    for exponent in [exponent, -exponent] {
                        let exact = (f64::from(x).abs().ln() * f64::from(exponent)).exp() as f32;
                        let found = Float::powf(x, exponent);
                        let apart = found.to_bits().abs_diff(exact.to_bits());
                        assert!(apart <= 1, "{x:e} to the power of {exponent:e}: {found:e}, not {exact:e}");
                    }
                }
            }
        }
        // The exact ones, by arithmetic of 60 digits.
        let powers = [
            (1.0000001728702503f64, -2.9265942621263213e9, 1.9111047159729796e-220),
            (-1.0, 4e9, 1.0),
            (1.0, f64::INFINITY, 1.0),
            (1.0 + f64::EPSILON, 1e300, f64::INFINITY),
            (1.0 - f64::EPSILON, 1e300, 0.0),
        ];
        for (x, exponent, exact) in powers {
            let found: f64 = Float::powf(x, exponent);
            assert!(found == exact || (found - exact).abs() < 2.0 * f64::EPSILON * exact, "{x:e}: {found:e}");
        }
        assert!(Float::powf(-1.0000001f64, 2147483649.5).is_nan());
        assert!(Float::powf(-1.0000001f64, 2147483651.0) < 0.0);
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
