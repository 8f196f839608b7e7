//! Atomic operations on memory that lanes share: of every width, order and scope.
//!
//! ```
//! use hostcall_device::atomic::{Ordering::Relaxed, Scope};
//! use hostcall_device::{Global, Lane, kernel};
//!
//! /// Counts how often each byte occurs, and finds the largest number.
//! #[kernel]
//! fn count(lane: &Lane, bytes: &[u8], counts: &[Global<u32>], x: &[f32], largest: &Global<f32>) {
//!     let i = lane.global_id();
//!     if i < bytes.len() {
//!         counts[bytes[i] as usize].fetch_add(1, Relaxed, Scope::Device);
//!     }
//!     if i < x.len() {
//!         largest.fetch_max(x[i], Relaxed, Scope::Device);
//!     }
//! }
//! ```
//!
//! Rust's own atomics (`AtomicU32` in a buffer) work in kernels, too; but LLVM 22 compiles `swap` and the `fetch_` operations
//! for NVIDIA without their order and with the device's scope. Those of this module are what they say on every device.
//!
//! On NVIDIA an operation of 32 or 64 bits is one instruction, with a fence on each side that its order asks for. Those of 8
//! and 16 bits are loops of Rust's `compare_exchange`, which keeps its order there, with the system's scope; so are additions
//! of floats elsewhere. They exchange the whole word of 32 bits in which the number lies.

use crate::global::{Global, Word};
use crate::target::{
    add_f32, add_f64,
    cell::{Cell, Change, Place, order_of_load},
};
pub use core::sync::atomic::Ordering;

/// For whom an operation is atomic and ordered. A smaller scope can cost less: loads of the workgroup's scope are answered by
/// a multiprocessor's own cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The lanes of the workgroup.
    Workgroup,
    /// All lanes of the device, of any launch.
    Device,
    /// The host and all devices, too. What reads, modifies and writes memory of the host from a GPU behind PCIe is atomic
    /// among the GPU's lanes; a thread of the host that changes the same word of 32 bits (8 bytes for numbers of 64) at the
    /// same time may undo it. Loads, stores and their orders hold for both.
    System,
}

impl Scope {
    #[inline(always)]
    fn place(self) -> Place {
        match self {
            Self::Workgroup => Place::Workgroup,
            Self::Device => Place::Device,
            Self::System => Place::System,
        }
    }
}

/// A number with atomic operations: all that [`Global`] can hold, but for those of `math::half`.
#[diagnostic::on_unimplemented(
    message = "there are no atomic operations on `{Self}`",
    label = "no integer, `f32` or `f64`",
    note = "of a struct the fields that lanes change are `Global`s, each with operations of its own"
)]
pub trait AtomicWord: Word {
    /// Its bits.
    #[doc(hidden)]
    type Bits: Cell + PartialEq;
    #[doc(hidden)]
    fn to_cell(self) -> Self::Bits;
    #[doc(hidden)]
    fn from_cell(bits: Self::Bits) -> Self;
    /// # Safety
    /// As for [`Cell::load`].
    #[doc(hidden)]
    unsafe fn add(at: *mut Self::Bits, value: Self, order: Ordering, place: Place) -> Self;
    /// What 0 less the value is.
    #[doc(hidden)]
    fn negative(self) -> Self;
    /// How the cell becomes the smaller of its number and this one; `None` if it stays as it is.
    #[doc(hidden)]
    fn min_change(self) -> Option<Change>;
    /// How the cell becomes the larger of its number and this one; `None` if it stays as it is.
    #[doc(hidden)]
    fn max_change(self) -> Option<Change>;
}

/// An integer with atomic operations.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no integer, which operations on bits are of",
    label = "no integer",
    note = "the bits of a float are an integer: `Global<u32>` with `f32::to_bits`"
)]
pub trait AtomicInteger: AtomicWord {}

macro_rules! integers {
    ($($t:ty, $bits:ty, $min:ident, $max:ident;)*) => {$(
        impl AtomicWord for $t {
            type Bits = $bits;
            #[inline(always)]
            fn to_cell(self) -> $bits {
                self as $bits
            }
            #[inline(always)]
            fn from_cell(bits: $bits) -> Self {
                bits as $t
            }
            #[inline(always)]
            unsafe fn add(at: *mut $bits, value: Self, order: Ordering, place: Place) -> Self {
                // SAFETY: the caller's promise.
                unsafe { <$bits>::change(at, Change::Add, value as $bits, order, place) as $t }
            }
            #[inline(always)]
            fn negative(self) -> Self {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn min_change(self) -> Option<Change> {
                Some(Change::$min)
            }
            #[inline(always)]
            fn max_change(self) -> Option<Change> {
                Some(Change::$max)
            }
        }
        impl AtomicInteger for $t {}
    )*};
}

integers! {
    u8, u8, MinUnsigned, MaxUnsigned; u16, u16, MinUnsigned, MaxUnsigned;
    u32, u32, MinUnsigned, MaxUnsigned; u64, u64, MinUnsigned, MaxUnsigned; usize, u64, MinUnsigned, MaxUnsigned;
    i8, u8, MinSigned, MaxSigned; i16, u16, MinSigned, MaxSigned;
    i32, u32, MinSigned, MaxSigned; i64, u64, MinSigned, MaxSigned; isize, u64, MinSigned, MaxSigned;
}

macro_rules! floats {
    ($($t:ty, $bits:ty, $add:ident;)*) => {$(
        impl AtomicWord for $t {
            type Bits = $bits;
            #[inline(always)]
            fn to_cell(self) -> $bits {
                self.to_bits()
            }
            #[inline(always)]
            fn from_cell(bits: $bits) -> Self {
                <$t>::from_bits(bits)
            }
            #[inline(always)]
            unsafe fn add(at: *mut $bits, value: Self, order: Ordering, place: Place) -> Self {
                // SAFETY: the caller's promise.
                unsafe { $add(at, value, order, place) }
            }
            #[inline(always)]
            fn negative(self) -> Self {
                -self
            }
            // The bits of floats are in the order of integers: as signed ones, those of a number that is not negative are
            // less than those of a larger one, and more than those of any negative one. As unsigned ones, those of a
            // negative number are less than those of a smaller one, and more than those of any that is not.
            #[inline(always)]
            fn min_change(self) -> Option<Change> {
                let change = if self.is_sign_negative() { Change::MaxUnsigned } else { Change::MinSigned };
                (!self.is_nan()).then_some(change)
            }
            #[inline(always)]
            fn max_change(self) -> Option<Change> {
                let change = if self.is_sign_negative() { Change::MinUnsigned } else { Change::MaxSigned };
                (!self.is_nan()).then_some(change)
            }
        }
    )*};
}

floats! {
    f32, u32, add_f32;
    f64, u64, add_f64;
}

/// An atomic cell, by its address.
#[derive(Clone, Copy)]
pub(crate) struct Atomic<T: AtomicWord> {
    at: *mut T::Bits,
    place: Place,
}

impl<T: AtomicWord> Atomic<T> {
    /// Names the cell at an address.
    ///
    /// # Safety
    /// As for [`Cell::load`], as long as this is used.
    #[inline(always)]
    pub unsafe fn new(at: *mut T, place: Place) -> Self {
        Self { at: at.cast(), place }
    }

    #[inline(always)]
    pub fn load(self, order: Ordering) -> T {
        // SAFETY: `new`'s promise.
        T::from_cell(unsafe { T::Bits::load(self.at, order, self.place) })
    }

    #[inline(always)]
    pub fn store(self, value: T, order: Ordering) {
        // SAFETY: `new`'s promise.
        unsafe { T::Bits::store(self.at, value.to_cell(), order, self.place) }
    }

    #[inline(always)]
    pub fn change(self, change: Change, value: T, order: Ordering) -> T {
        // SAFETY: `new`'s promise.
        T::from_cell(unsafe { T::Bits::change(self.at, change, value.to_cell(), order, self.place) })
    }

    #[inline(always)]
    pub fn add(self, value: T, order: Ordering) -> T {
        // SAFETY: `new`'s promise.
        unsafe { T::add(self.at, value, order, self.place) }
    }

    /// A change, or a load in its place.
    #[inline(always)]
    pub fn change_if(self, change: Option<Change>, value: T, order: Ordering) -> T {
        match change {
            Some(change) => self.change(change, value, order),
            None => self.load(order_of_load(order)),
        }
    }

    #[inline(always)]
    pub fn compare_exchange(self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T> {
        let (current, new, orders) = (current.to_cell(), new.to_cell(), (success, failure));
        // SAFETY: `new`'s promise.
        let result = unsafe { T::Bits::compare_exchange(self.at, current, new, orders, self.place) };
        result.map(T::from_cell).map_err(T::from_cell)
    }
}

/// The methods of a cell type, whose `atomic` makes an [`Atomic`] of a cell and what follows `order` in the parameters.
macro_rules! methods {
    ($cell:ident, ($($scope:ident: $scope_type:ty)?)) => {
        impl<T: AtomicWord> $cell<T> {
            /// Reads the number.
            ///
            /// # Panics
            /// For the orders `Release` and `AcqRel`, which loads do not have.
            #[inline(always)]
            pub fn load(&self, order: Ordering $(, $scope: $scope_type)?) -> T {
                self.atomic($($scope)?).load(order)
            }

            /// Writes the number.
            ///
            /// # Panics
            /// For the orders `Acquire` and `AcqRel`, which stores do not have.
            #[inline(always)]
            pub fn store(&self, value: T, order: Ordering $(, $scope: $scope_type)?) {
                self.atomic($($scope)?).store(value, order);
            }

            /// Writes the number, and returns what was there.
            #[inline(always)]
            pub fn swap(&self, value: T, order: Ordering $(, $scope: $scope_type)?) -> T {
                self.atomic($($scope)?).change(Change::Swap, value, order)
            }

            /// Writes `new` if the number has the bits of `current`, and returns what was there.
            ///
            /// # Errors
            /// What was there, if it was not `current`.
            ///
            /// # Panics
            /// For the orders `Release` and `AcqRel` of a failure, which is a load.
            #[inline(always)]
            pub fn compare_exchange(
                &self,
                current: T,
                new: T,
                success: Ordering,
                failure: Ordering
                $(, $scope: $scope_type)?
            ) -> Result<T, T> {
                self.atomic($($scope)?).compare_exchange(current, new, success, failure)
            }

            /// Adds, and returns what was there. Integers wrap. A sum of floats that several lanes add to is rounded in
            /// the order in which they come, and so differs from run to run. NVIDIA's GPUs take subnormal `f32`s for zero
            /// here, in the device's memory.
            #[inline(always)]
            pub fn fetch_add(&self, value: T, order: Ordering $(, $scope: $scope_type)?) -> T {
                self.atomic($($scope)?).add(value, order)
            }

            /// Subtracts, as [`Self::fetch_add`] adds.
            #[inline(always)]
            pub fn fetch_sub(&self, value: T, order: Ordering $(, $scope: $scope_type)?) -> T {
                self.atomic($($scope)?).add(value.negative(), order)
            }

            /// Writes the smaller of what is there and `value`, and returns what was there. A `value` of `NaN` changes
            /// nothing, and releases nothing; else floats are in the order of `total_cmp`.
            #[inline(always)]
            pub fn fetch_min(&self, value: T, order: Ordering $(, $scope: $scope_type)?) -> T {
                self.atomic($($scope)?).change_if(value.min_change(), value, order)
            }

            /// Writes the larger, as [`Self::fetch_min`] does the smaller.
            #[inline(always)]
            pub fn fetch_max(&self, value: T, order: Ordering $(, $scope: $scope_type)?) -> T {
                self.atomic($($scope)?).change_if(value.max_change(), value, order)
            }
        }

        impl<T: AtomicInteger> $cell<T> {
            /// Keeps the bits that `value` has, and returns what was there.
            #[inline(always)]
            pub fn fetch_and(&self, value: T, order: Ordering $(, $scope: $scope_type)?) -> T {
                self.atomic($($scope)?).change(Change::And, value, order)
            }

            /// Sets the bits that `value` has, and returns what was there.
            #[inline(always)]
            pub fn fetch_or(&self, value: T, order: Ordering $(, $scope: $scope_type)?) -> T {
                self.atomic($($scope)?).change(Change::Or, value, order)
            }

            /// Turns the bits that `value` has, and returns what was there.
            #[inline(always)]
            pub fn fetch_xor(&self, value: T, order: Ordering $(, $scope: $scope_type)?) -> T {
                self.atomic($($scope)?).change(Change::Xor, value, order)
            }
        }
    };
}
pub(crate) use methods;

impl<T: AtomicWord> Global<T> {
    #[inline(always)]
    fn atomic(&self, scope: Scope) -> Atomic<T> {
        // SAFETY: a live cell, which is accessed atomically only.
        unsafe { Atomic::new(self.as_ptr(), scope.place()) }
    }
}

methods!(Global, (scope: Scope));

#[cfg(test)]
mod tests {
    use super::*;
    use Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
    use Scope::{Device, System, Workgroup};

    #[test]
    fn integers_of_every_width() {
        let small = Global::new(250u8);
        assert_eq!(small.fetch_add(10, Relaxed, Device), 250);
        assert_eq!(small.fetch_sub(5, AcqRel, System), 4);
        assert_eq!(small.load(Acquire, Workgroup), 255);
        let signed = Global::new(-3i16);
        assert_eq!(signed.fetch_max(7, Relaxed, Device), -3);
        assert_eq!(signed.fetch_min(-9, SeqCst, Device), 7);
        assert_eq!(signed.get(), -9);
        let wide = Global::new(-1i64);
        assert_eq!(wide.fetch_min(5, Relaxed, Device), -1);
        assert_eq!(wide.fetch_max(5, Relaxed, Device), -1);
        assert_eq!(wide.swap(6, Relaxed, Device), 5);
        assert_eq!(wide.compare_exchange(6, 7, AcqRel, Acquire, System), Ok(6));
        assert_eq!(wide.compare_exchange(6, 8, AcqRel, Relaxed, System), Err(7));
        let bits = Global::new(0b1100u32);
        assert_eq!(bits.fetch_and(0b0111, Relaxed, Device), 0b1100);
        assert_eq!(bits.fetch_or(0b0001, Relaxed, Device), 0b0100);
        assert_eq!(bits.fetch_xor(0b1111, Relaxed, Device), 0b0101);
        assert_eq!(bits.get(), 0b1010);
    }

    #[test]
    fn floats_are_in_the_order_of_numbers() {
        let numbers = [f32::NEG_INFINITY, -2.5, -1e-40, -0.0, 0.0, 1e-40, 3.0, f32::INFINITY];
        for (i, a) in numbers.into_iter().enumerate() {
            for (j, b) in numbers.into_iter().enumerate() {
                let (smaller, larger) = (Global::new(a), Global::new(a));
                assert_eq!(smaller.fetch_min(b, Relaxed, Device).to_bits(), a.to_bits());
                assert_eq!(larger.fetch_max(b, Relaxed, Device).to_bits(), a.to_bits());
                assert_eq!(smaller.get().to_bits(), numbers[i.min(j)].to_bits(), "{a} {b}");
                assert_eq!(larger.get().to_bits(), numbers[i.max(j)].to_bits(), "{a} {b}");
            }
        }
        let cell = Global::new(1.5f64);
        assert_eq!(cell.fetch_max(f64::NAN, Relaxed, Device), 1.5);
        assert_eq!(cell.fetch_add(0.25, Relaxed, Device), 1.5);
        assert_eq!(cell.fetch_sub(0.5, Relaxed, Device), 1.75);
        assert_eq!(cell.get(), 1.25);
    }
}
