//! When floats are rounded.
//!
//! On the software device and on AMD, each `+`, `-`, `*` and `/` of a kernel rounds its result. On NVIDIA the assembler may
//! make one instruction of a product that is added to or subtracted from, as CUDA C++ does: `a * b + c` is rounded once, which is
//! faster and nearer to the exact result, but not the same in the last bit. Sums of products that cancel, such as
//! `a * b - c * d`, differ by as much as the product's rounding error. The functions of [`crate::math`] are not contracted: they
//! give the same bits on every device. Functions of other libraries are, but for those of `libm`.
//!
//! Where a kernel needs the product rounded, it says so:
//!
//! ```
//! use hostcall_device::rounding::product;
//! use hostcall_device::{Global, Lane, kernel};
//!
//! /// The determinants of 2 × 2 matrices, exactly 0 where both columns are the same.
//! #[kernel]
//! fn determinants(lane: &Lane, x: &[[f32; 4]], out: &[Global<f32>]) {
//!     let i = lane.global_id();
//!     if i < x.len() {
//!         let [a, b, c, d] = x[i];
//!         out[i].set(product(a, d) - product(b, c));
//!     }
//! }
//!
//! assert_eq!(product(1.5f64, 2.0), 3.0);
//! ```
//!
//! Where it needs both rounded at once on every device, there is [`Float::mul_add`](crate::math::Float::mul_add).

mod sealed {
    pub trait Sealed: Copy {
        fn product(self, other: Self) -> Self;
    }
}

/// The numbers that have products: `f32` and `f64`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither `f32` nor `f64`",
    label = "its products are exact, or not the hardware's",
    note = "`a * b` is a product of other numbers"
)]
pub trait Number: sealed::Sealed {}

macro_rules! numbers {
    ($($t:ident, $reg:ident, $instruction:literal;)*) => {$(
        impl sealed::Sealed for $t {
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                #[cfg(not(target_arch = "nvptx64"))]
                let product = self * other;
                #[cfg(target_arch = "nvptx64")]
                let product: Self;
                // SAFETY: multiplies, and does nothing else.
                #[cfg(target_arch = "nvptx64")]
                unsafe {
                    core::arch::asm!(concat!($instruction, " {}, {}, {};"), out($reg) product, in($reg) self, in($reg) other,
                        options(pure, nomem, nostack, preserves_flags));
                }
                product
            }
        }
        impl Number for $t {}
    )*};
}

numbers! {
    f32, reg32, "mul.rn.f32";
    f64, reg64, "mul.rn.f64";
}

/// Multiplies, and rounds the product whatever is added to it.
#[inline(always)]
pub fn product<T: Number>(a: T, b: T) -> T {
    a.product(b)
}
