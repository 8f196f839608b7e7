//! Cells of device memory that many lanes read and write.

use crate::plain::Plain;
use core::cell::UnsafeCell;
use core::fmt;

mod sealed {
    pub trait Sealed {}
}

/// A number that the hardware reads and writes whole.
#[diagnostic::on_unimplemented(
    message = "lanes do not read and write a `{Self}` whole",
    label = "no number of at most 64 bits",
    note = "make cells of its fields, as in `struct Bin {{ count: Global<u32>, sum: Global<f32> }}` with `#[derive(Plain)]`, \
            and take `&[Bin]`"
)]
pub trait Word: Plain + Copy + Send + sealed::Sealed {
    /// Reads the cell by a relaxed atomic load.
    #[doc(hidden)]
    fn load(cell: &Global<Self>) -> Self;
    /// Writes the cell by a relaxed atomic store.
    #[doc(hidden)]
    fn store(cell: &Global<Self>, value: Self);
}

/// A number in memory that all lanes of a launch (and other launches) may read and write at any time.
///
/// Each access is one relaxed atomic load or store: never torn, never a data race, and ordered with nothing.
/// It costs what a plain access of the device's memory costs, but on the software device a loop over cells does not become
/// vector instructions; on a GPU no cache of a multiprocessor answers a read, which the host and other lanes may have written. [`Global::load`] with a narrower scope may be answered there. A `Global<T>` has the
/// layout of its `T`.
#[repr(transparent)]
pub struct Global<T>(UnsafeCell<T>);

// SAFETY: every access to the inner value through a shared reference is atomic (the impls of `Word`).
unsafe impl<T: Word> Sync for Global<T> {}

impl<T: Word> Global<T> {
    /// A cell with this value.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Address of the number, which is accessed atomically only.
    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.get()
    }

    /// The value.
    #[inline(always)]
    pub fn get(&self) -> T {
        T::load(self)
    }

    /// Sets the value.
    #[inline(always)]
    pub fn set(&self, value: T) {
        T::store(self, value);
    }
}

impl<T: Word + Default> Default for Global<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Word + fmt::Debug> fmt::Debug for Global<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Global").field(&self.get()).finish()
    }
}

/// What a cell is changed by in place: nothing.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a cell is not changed by `+=` and the like, since other lanes may write it at the same time",
    label = "not an operation of cells",
    note = "`x.set(x.get() + y)` changes a cell that only this lane writes; `x.fetch_add(y, Ordering::Relaxed, Scope::Device)`, \
            of a `Shared` cell without the scope, one that several lanes write"
)]
pub trait InPlace {}

macro_rules! refuse_in_place {
    ($cell:ident, $bound:ident: $($operation:ident $method:ident)*) => {$(
        #[doc(hidden)]
        impl<T: $bound, U: $crate::global::InPlace> core::ops::$operation<U> for $cell<T> {
            fn $method(&mut self, _: U) {
                unreachable!("no type has the trait")
            }
        }
    )*};
    ($cell:ident, $bound:ident) => {
        $crate::global::refuse_in_place!($cell, $bound: AddAssign add_assign SubAssign sub_assign MulAssign mul_assign
            DivAssign div_assign RemAssign rem_assign BitAndAssign bitand_assign BitOrAssign bitor_assign
            BitXorAssign bitxor_assign);
    };
}
pub(crate) use refuse_in_place;

refuse_in_place!(Global, Word);

macro_rules! words {
    ($($t:ty, $atomic:ident, $bits:ty, $to:expr, $from:expr;)*) => {$(
        impl sealed::Sealed for $t {}
        impl Word for $t {
            #[inline(always)]
            fn load(cell: &Global<Self>) -> Self {
                // SAFETY: the pointer comes from a live cell, which is aligned for `$t` and so for the atomic
                // of the same size (asserted below), and all shared access is atomic.
                let atomic = unsafe { core::sync::atomic::$atomic::from_ptr(cell.0.get().cast::<$bits>()) };
                $from(atomic.load(core::sync::atomic::Ordering::Relaxed))
            }
            #[inline(always)]
            fn store(cell: &Global<Self>, value: Self) {
                // SAFETY: as in `load`.
                let atomic = unsafe { core::sync::atomic::$atomic::from_ptr(cell.0.get().cast::<$bits>()) };
                atomic.store($to(value), core::sync::atomic::Ordering::Relaxed);
            }
        }
        const _: () = assert!(align_of::<$t>() >= align_of::<core::sync::atomic::$atomic>());
    )*};
}

use core::convert::identity;

words! {
    u8, AtomicU8, u8, identity, identity;
    u16, AtomicU16, u16, identity, identity;
    u32, AtomicU32, u32, identity, identity;
    u64, AtomicU64, u64, identity, identity;
    usize, AtomicUsize, usize, identity, identity;
    i8, AtomicI8, i8, identity, identity;
    i16, AtomicI16, i16, identity, identity;
    i32, AtomicI32, i32, identity, identity;
    i64, AtomicI64, i64, identity, identity;
    isize, AtomicIsize, isize, identity, identity;
    f32, AtomicU32, u32, f32::to_bits, f32::from_bits;
    f64, AtomicU64, u64, f64::to_bits, f64::from_bits;
}

#[cfg(feature = "half")]
words! {
    half::f16, AtomicU16, u16, half::f16::to_bits, half::f16::from_bits;
    half::bf16, AtomicU16, u16, half::bf16::to_bits, half::bf16::from_bits;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_keeps_its_value() {
        let cells = [Global::new(1.5f32), Global::default()];
        cells[1].set(cells[0].get() + 1.0);
        assert_eq!(cells[1].get(), 2.5);
        let small = Global::new(7u8);
        small.set(small.get() ^ 0xf8);
        assert_eq!(small.get(), 255);
    }
}
