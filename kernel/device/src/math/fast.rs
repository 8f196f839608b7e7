//! Functions of `f32` by the hardware's own instructions: quick, and with about half of the digits where it matters.
//!
//! ```
//! use hostcall_device::math::fast::Fast;
//! use hostcall_device::{Global, Lane, kernel};
//!
//! /// Weights that fall with the square of the distance.
//! #[kernel]
//! fn weights(lane: &Lane, distance: &[f32], out: &[Global<f32>]) {
//!     let i = lane.global_id();
//!     if i < out.len() {
//!         out[i].set((-distance[i] * distance[i]).fast_exp());
//!     }
//! }
//! ```
//!
//! Their results differ from one device to another, within these bounds. On the software device they are those of
//! [`Float`](super::Float).
//!
//! | function | largest error | NVIDIA | AMD |
//! |---|---|---|---|
//! | [`fast_cos`](Fast::fast_cos), [`fast_sin`](Fast::fast_sin) | 2⁻²⁰ from −π to π; larger outside of that, with the number | `cos.approx`, `sin.approx` | `v_cos_f32`, `v_sin_f32` |
//! | [`fast_div`](Fast::fast_div) | 2.1 ULP for divisors from 2⁻¹²⁶ to 2¹²⁶ | `div.approx` | `v_rcp_f32` |
//! | [`fast_exp`](Fast::fast_exp) | 2 + 1.2·\|x\| ULP | `ex2.approx` | `v_exp_f32` |
//! | [`fast_exp2`](Fast::fast_exp2) | 2.1 ULP | `ex2.approx` | `v_exp_f32` |
//! | [`fast_ln`](Fast::fast_ln) | 2⁻²¹ from 0.5 to 2, else 4 ULP | `lg2.approx` | `v_log_f32` |
//! | [`fast_log2`](Fast::fast_log2) | 2⁻²² from 0.5 to 2, else 3 ULP | `lg2.approx` | `v_log_f32` |
//! | [`fast_recip`](Fast::fast_recip) | 1 ULP | `rcp.approx` | `v_rcp_f32` |
//! | [`fast_rsqrt`](Fast::fast_rsqrt) | 2 ULP | `rsqrt.approx` | `v_rsq_f32` |
//! | [`fast_sqrt`](Fast::fast_sqrt) | 1 ULP | `sqrt.approx` | `v_sqrt_f32` |
//! | [`fast_tanh`](Fast::fast_tanh) | 2⁻¹⁰ | `tanh.approx` from sm_75 on, else as AMD | `v_exp_f32`, `v_rcp_f32` |
//!
//! The bounds are those of NVIDIA's documents (PTX ISA and CUDA C++ Programming Guide), rounded up, 1 ULP more for
//! logarithms and 0.1 for quotients and powers of 2: of an H100 and an H200 `lg2.approx` was seen to be 2.2 ULP off,
//! `div.approx` 2.03 and `ex2.approx` 2.01, where they say 2. AMD's instruction set says 1 ULP for its instructions. `hostcall-accuracy` measures them on a device. Denormal numbers may count as 0, as
//! arguments and as results.

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
}

/// Quick functions of `f32`, see the [module](self) for their errors.
#[diagnostic::on_unimplemented(
    message = "only `f32` has quick functions, and `{Self}` has not",
    label = "has no such instructions",
    note = "`math::Float` has the functions of `f64`; numbers of 16 bits become `f32` by `math::half::Half::widen`"
)]
pub trait Fast: Copy + sealed::Sealed {
    /// Returns the cosine of an angle in radians, which should be small.
    fn fast_cos(self) -> Self;
    /// Returns the quotient.
    fn fast_div(self, divisor: Self) -> Self;
    /// Returns e to this power.
    fn fast_exp(self) -> Self;
    /// Returns 2 to this power.
    fn fast_exp2(self) -> Self;
    /// Returns the natural logarithm.
    fn fast_ln(self) -> Self;
    /// Returns the logarithm to base 2.
    fn fast_log2(self) -> Self;
    /// Returns 1 divided by the number.
    fn fast_recip(self) -> Self;
    /// Returns 1 divided by the square root.
    fn fast_rsqrt(self) -> Self;
    /// Returns the sine of an angle in radians, which should be small.
    fn fast_sin(self) -> Self;
    /// Returns the square root.
    fn fast_sqrt(self) -> Self;
    /// Returns the hyperbolic tangent.
    fn fast_tanh(self) -> Self;
}

#[cfg(target_arch = "nvptx64")]
mod instructions {
    use core::arch::asm;

    macro_rules! instructions {
        ($($name:ident = $instruction:literal;)*) => {$(
            #[inline(always)]
            pub(super) fn $name(x: f32) -> f32 {
                let result;
                // SAFETY: the instruction reads one register and writes another.
                unsafe {
                    asm!(
                        concat!($instruction, " {}, {};"), out(reg32) result, in(reg32) x,
                        options(pure, nomem, nostack),
                    );
                }
                result
            }
        )*};
    }

    instructions! {
        cos = "cos.approx.ftz.f32";
        exp2 = "ex2.approx.ftz.f32";
        log2 = "lg2.approx.ftz.f32";
        recip = "rcp.approx.ftz.f32";
        rsqrt = "rsqrt.approx.ftz.f32";
        sin = "sin.approx.ftz.f32";
        sqrt = "sqrt.approx.ftz.f32";
    }

    #[cfg(target_feature = "sm_75")]
    instructions! { tanh = "tanh.approx.f32"; }

    #[cfg(not(target_feature = "sm_75"))]
    pub(super) use super::tanh_of_exp2 as tanh;

    #[inline(always)]
    pub(super) fn div(x: f32, divisor: f32) -> f32 {
        let result;
        // SAFETY: the instruction reads two registers and writes another.
        unsafe {
            asm!(
                "div.approx.ftz.f32 {}, {}, {};", out(reg32) result, in(reg32) x, in(reg32) divisor,
                options(pure, nomem, nostack),
            );
        }
        result
    }
}

#[cfg(target_arch = "amdgpu")]
mod instructions {
    pub(super) use super::tanh_of_exp2 as tanh;

    unsafe extern "unadjusted" {
        #[link_name = "llvm.amdgcn.cos.f32"]
        safe fn cos_of_turns(turns: f32) -> f32;
        #[link_name = "llvm.amdgcn.exp2.f32"]
        pub(super) safe fn exp2(x: f32) -> f32;
        #[link_name = "llvm.amdgcn.fract.f32"]
        safe fn fract(x: f32) -> f32;
        #[link_name = "llvm.amdgcn.log.f32"]
        pub(super) safe fn log2(x: f32) -> f32;
        #[link_name = "llvm.amdgcn.rcp.f32"]
        pub(super) safe fn recip(x: f32) -> f32;
        #[link_name = "llvm.amdgcn.rsq.f32"]
        pub(super) safe fn rsqrt(x: f32) -> f32;
        #[link_name = "llvm.amdgcn.sin.f32"]
        safe fn sin_of_turns(turns: f32) -> f32;
        #[link_name = "llvm.amdgcn.sqrt.f32"]
        pub(super) safe fn sqrt(x: f32) -> f32;
    }

    /// The part of a turn that an angle in radians is, which is what the instructions take.
    #[inline(always)]
    fn turns(x: f32) -> f32 {
        fract(x * (0.5 * core::f32::consts::FRAC_1_PI))
    }

    #[inline(always)]
    pub(super) fn cos(x: f32) -> f32 {
        cos_of_turns(turns(x))
    }

    #[inline(always)]
    pub(super) fn div(x: f32, divisor: f32) -> f32 {
        x * recip(divisor)
    }

    #[inline(always)]
    pub(super) fn sin(x: f32) -> f32 {
        sin_of_turns(turns(x))
    }
}

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod instructions {
    use crate::math::Float;

    macro_rules! functions {
        ($($name:ident)*) => {$(
            #[inline]
            pub(super) fn $name(x: f32) -> f32 {
                Float::$name(x)
            }
        )*};
    }

    functions!(cos exp2 log2 recip sin sqrt tanh);

    #[inline]
    pub(super) fn rsqrt(x: f32) -> f32 {
        1.0 / Float::sqrt(x)
    }

    #[inline]
    pub(super) fn div(x: f32, divisor: f32) -> f32 {
        x / divisor
    }
}

/// The hyperbolic tangent where there is no instruction. Numbers far from 0 give ±1: the power is then 0 or infinite.
#[cfg(any(target_arch = "amdgpu", all(target_arch = "nvptx64", not(target_feature = "sm_75"))))]
#[inline(always)]
fn tanh_of_exp2(x: f32) -> f32 {
    let power = instructions::exp2(x * (2.0 * core::f32::consts::LOG2_E));
    1.0 - 2.0 * instructions::recip(power + 1.0)
}

impl Fast for f32 {
    #[inline(always)]
    fn fast_cos(self) -> Self {
        instructions::cos(self)
    }

    #[inline(always)]
    fn fast_div(self, divisor: Self) -> Self {
        instructions::div(self, divisor)
    }

    #[inline(always)]
    fn fast_exp(self) -> Self {
        instructions::exp2(self * core::f32::consts::LOG2_E)
    }

    #[inline(always)]
    fn fast_exp2(self) -> Self {
        instructions::exp2(self)
    }

    #[inline(always)]
    fn fast_ln(self) -> Self {
        instructions::log2(self) * core::f32::consts::LN_2
    }

    #[inline(always)]
    fn fast_log2(self) -> Self {
        instructions::log2(self)
    }

    #[inline(always)]
    fn fast_recip(self) -> Self {
        instructions::recip(self)
    }

    #[inline(always)]
    fn fast_rsqrt(self) -> Self {
        instructions::rsqrt(self)
    }

    #[inline(always)]
    fn fast_sin(self) -> Self {
        instructions::sin(self)
    }

    #[inline(always)]
    fn fast_sqrt(self) -> Self {
        instructions::sqrt(self)
    }

    #[inline(always)]
    fn fast_tanh(self) -> Self {
        instructions::tanh(self)
    }
}
