//! Numbers of 16 bits, which are half of an `f32`: [`f16`](struct@f16) has 11 digits of base 2 and reaches to 65504, [`bf16`] has 8 and
//! reaches as far as `f32`. The types are those of the crate [`half`](https://docs.rs/half).
//!
//! They lie in buffers, structs, parameters and [`Global`](crate::Global)s, and a kernel computes with `f32`:
//!
//! ```
//! use hostcall_device::math::half::{Half, f16};
//! use hostcall_device::{Global, Lane, kernel};
//!
//! /// Adds `factor` times `x` to `y`.
//! #[kernel]
//! fn axpy(lane: &Lane, factor: f32, x: &[f16], y: &[Global<f16>]) {
//!     let i = lane.global_id();
//!     if i < x.len() {
//!         y[i].set(f16::narrow(factor * x[i].widen() + y[i].get().widen()));
//!     }
//! }
//! ```
//!
//! [`Half::widen`] and [`Half::narrow`] are the GPUs' instructions where these have them, and give the same bits on every
//! device, but for NaN's. The types' own operators (`+`, `to_f32` and so on) give the same, by integer operations.

pub use ::half::{bf16, f16};

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::f16 {}
    impl Sealed for super::bf16 {}
}

/// Numbers of 16 bits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither `f16` nor `bf16`",
    label = "no number of 16 bits"
)]
pub trait Half: Copy + sealed::Sealed {
    /// Returns the number as `f32`, exactly.
    fn widen(self) -> f32;
    /// Returns the number that is nearest to an `f32`; of two, the even one. What is too large is infinite.
    fn narrow(number: f32) -> Self;
}

/// The language's own type of the same name, which GPUs have instructions for.
#[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
mod instructions {
    #[inline(always)]
    pub(super) fn widen(bits: u16) -> f32 {
        f16::from_bits(bits) as f32
    }

    #[inline(always)]
    pub(super) fn narrow(number: f32) -> u16 {
        (number as f16).to_bits()
    }
}

impl Half for f16 {
    #[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
    #[inline(always)]
    fn widen(self) -> f32 {
        instructions::widen(self.to_bits())
    }

    #[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
    #[inline(always)]
    fn narrow(number: f32) -> Self {
        Self::from_bits(instructions::narrow(number))
    }

    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    #[inline]
    fn widen(self) -> f32 {
        self.to_f32()
    }

    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    #[inline]
    fn narrow(number: f32) -> Self {
        Self::from_f32(number)
    }
}

impl Half for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        // The upper half of an `f32`: what follows are zeros.
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[cfg(all(target_arch = "nvptx64", target_feature = "sm_80"))]
    #[inline(always)]
    fn narrow(number: f32) -> Self {
        let bits: u16;
        // SAFETY: the instruction reads one register and writes another.
        unsafe {
            core::arch::asm!(
                "cvt.rn.bf16.f32 {}, {};", out(reg16) bits, in(reg32) number,
                options(pure, nomem, nostack),
            );
        }
        Self::from_bits(bits)
    }

    #[cfg(not(all(target_arch = "nvptx64", target_feature = "sm_80")))]
    #[inline]
    fn narrow(number: f32) -> Self {
        Self::from_f32(number)
    }
}
