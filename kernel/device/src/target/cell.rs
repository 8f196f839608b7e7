//! Atomic accesses of a cell of memory, by order and scope.
//!
//! On NVIDIA Rust's own atomics have the scope of the system. LLVM 22 drops order and scope of those that read, modify and
//! write, and the build writes back the strongest order that a function asks of a kind of them; so accesses of 32 and 64 bits
//! are instructions here. Their orders are made of fences, which is what the hardware makes of orders, too.

use core::sync::atomic::Ordering;

/// What a cell is shared with, and for [`Place::Shared`] where it lies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Workgroup memory, which nobody else has.
    Shared,
    /// Memory of any kind, for accesses of the workgroup's lanes.
    Workgroup,
    /// Memory of any kind, for accesses of the device's lanes.
    Device,
    /// Memory of any kind, for accesses of the device's lanes and the host.
    System,
}

/// What becomes of a value and an operand.
#[derive(Clone, Copy)]
pub enum Change {
    Add,
    MinUnsigned,
    MinSigned,
    MaxUnsigned,
    MaxSigned,
    And,
    Or,
    Xor,
    Swap,
}

/// Bits of a number in memory.
pub trait Cell: Copy {
    /// Reads the cell.
    ///
    /// # Safety
    /// A cell of this size lies there, which is only accessed atomically; for [`Place::Shared`], in workgroup memory.
    unsafe fn load(at: *mut Self, order: Ordering, place: Place) -> Self;

    /// Writes the cell.
    ///
    /// # Safety
    /// As for [`Cell::load`].
    unsafe fn store(at: *mut Self, value: Self, order: Ordering, place: Place);

    /// Changes the cell, and returns what it was.
    ///
    /// # Safety
    /// As for [`Cell::load`].
    unsafe fn change(at: *mut Self, change: Change, value: Self, order: Ordering, place: Place) -> Self;

    /// Sets the cell to `new` if it is `current`. Returns what it was.
    ///
    /// # Errors
    /// What the cell was, if not `current`.
    ///
    /// # Safety
    /// As for [`Cell::load`].
    unsafe fn compare_exchange(
        at: *mut Self,
        current: Self,
        new: Self,
        orders: (Ordering, Ordering),
        place: Place,
    ) -> Result<Self, Self>;
}

/// The order of a load of the same strength, for a change that ends without a store.
pub(crate) fn order_of_load(order: Ordering) -> Ordering {
    match order {
        Ordering::Relaxed | Ordering::Release => Ordering::Relaxed,
        Ordering::SeqCst => Ordering::SeqCst,
        _ => Ordering::Acquire,
    }
}

/// Cells that Rust's own atomics access, whose scope is the whole system.
macro_rules! by_core {
    ($($t:ty, $signed:ty, $atomic:ident;)*) => {$(
        impl Cell for $t {
            #[inline(always)]
            unsafe fn load(at: *mut Self, order: Ordering, _: Place) -> Self {
                // SAFETY: the caller's promise.
                unsafe { core::sync::atomic::$atomic::from_ptr(at) }.load(order)
            }
            #[inline(always)]
            unsafe fn store(at: *mut Self, value: Self, order: Ordering, _: Place) {
                // SAFETY: the caller's promise.
                unsafe { core::sync::atomic::$atomic::from_ptr(at) }.store(value, order);
            }
            #[inline(always)]
            unsafe fn change(at: *mut Self, change: Change, value: Self, order: Ordering, place: Place) -> Self {
                // SAFETY: the caller's promise.
                let mut old = unsafe { Self::load(at, Ordering::Relaxed, place) };
                loop {
                    let new = match change {
                        Change::Add => old.wrapping_add(value),
                        Change::MinUnsigned => old.min(value),
                        Change::MinSigned => (old as $signed).min(value as $signed) as $t,
                        Change::MaxUnsigned => old.max(value),
                        Change::MaxSigned => (old as $signed).max(value as $signed) as $t,
                        Change::And => old & value,
                        Change::Or => old | value,
                        Change::Xor => old ^ value,
                        Change::Swap => value,
                    };
                    let orders = (order, order_of_load(order));
                    // SAFETY: the caller's promise.
                    match unsafe { Self::compare_exchange(at, old, new, orders, place) } {
                        Ok(old) => return old,
                        Err(now) => old = now,
                    }
                }
            }
            #[inline(always)]
            unsafe fn compare_exchange(
                at: *mut Self,
                current: Self,
                new: Self,
                (success, failure): (Ordering, Ordering),
                _: Place,
            ) -> Result<Self, Self> {
                // SAFETY: the caller's promise.
                unsafe { core::sync::atomic::$atomic::from_ptr(at) }.compare_exchange(current, new, success, failure)
            }
        }
    )*};
}

by_core! {
    u8, i8, AtomicU8;
    u16, i16, AtomicU16;
}

/// Operations on cells in one instruction, where Rust's own atomics are what they say.
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! in_one {
    ($($t:ty, $atomic:ident, $signed:ident, $s:ty;)*) => {$(
        impl Cell for $t {
            #[inline(always)]
            unsafe fn load(at: *mut Self, order: Ordering, _: Place) -> Self {
                // SAFETY: the caller's promise.
                unsafe { core::sync::atomic::$atomic::from_ptr(at) }.load(order)
            }
            #[inline(always)]
            unsafe fn store(at: *mut Self, value: Self, order: Ordering, _: Place) {
                // SAFETY: the caller's promise.
                unsafe { core::sync::atomic::$atomic::from_ptr(at) }.store(value, order);
            }
            #[inline(always)]
            unsafe fn change(at: *mut Self, change: Change, value: Self, order: Ordering, _: Place) -> Self {
                // SAFETY: the caller's promise; both atomics have the same layout.
                let (cell, signed) = unsafe {
                    (core::sync::atomic::$atomic::from_ptr(at), core::sync::atomic::$signed::from_ptr(at.cast()))
                };
                match change {
                    Change::Add => cell.fetch_add(value, order),
                    Change::MinUnsigned => cell.fetch_min(value, order),
                    Change::MinSigned => signed.fetch_min(value as $s, order) as $t,
                    Change::MaxUnsigned => cell.fetch_max(value, order),
                    Change::MaxSigned => signed.fetch_max(value as $s, order) as $t,
                    Change::And => cell.fetch_and(value, order),
                    Change::Or => cell.fetch_or(value, order),
                    Change::Xor => cell.fetch_xor(value, order),
                    Change::Swap => cell.swap(value, order),
                }
            }
            #[inline(always)]
            unsafe fn compare_exchange(
                at: *mut Self,
                current: Self,
                new: Self,
                (success, failure): (Ordering, Ordering),
                _: Place,
            ) -> Result<Self, Self> {
                // SAFETY: the caller's promise.
                unsafe { core::sync::atomic::$atomic::from_ptr(at) }.compare_exchange(current, new, success, failure)
            }
        }
    )*};
}

#[cfg(not(target_arch = "nvptx64"))]
in_one! {
    u32, AtomicU32, AtomicI32, i32;
    u64, AtomicU64, AtomicI64, i64;
}

#[cfg(not(target_arch = "nvptx64"))]
macro_rules! add_float {
    ($($name:ident, $t:ty, $bits:ty;)*) => {$(
        /// Adds to a float in memory, and returns what it was.
        ///
        /// # Safety
        /// As for [`Cell::load`].
        #[inline(always)]
        pub(crate) unsafe fn $name(at: *mut $bits, value: $t, order: Ordering, place: Place) -> $t {
            // SAFETY: the caller's promise.
            let mut old = unsafe { <$bits>::load(at, Ordering::Relaxed, place) };
            loop {
                let new = (<$t>::from_bits(old) + value).to_bits();
                // SAFETY: the caller's promise.
                match unsafe { <$bits>::compare_exchange(at, old, new, (order, order_of_load(order)), place) } {
                    Ok(old) => return <$t>::from_bits(old),
                    Err(now) => old = now,
                }
            }
        }
    )*};
}

#[cfg(not(target_arch = "nvptx64"))]
add_float! {
    add_f32, f32, u32;
    add_f64, f64, u64;
}

/// Numbers of workgroup memory, one after the other: NVIDIA alone reads and writes several at once.
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! vectors {
    ($($load:ident, $store:ident, $t:ty, $count:literal;)*) => {$(
        /// Reads numbers of workgroup memory.
        ///
        /// # Safety
        /// They lie there, and are only accessed atomically.
        #[inline(always)]
        pub(crate) unsafe fn $load(at: *mut [$t; $count]) -> [$t; $count] {
            // SAFETY: the caller's promise.
            core::array::from_fn(|i| unsafe {
                <$t>::load(at.cast::<$t>().add(i), Ordering::Relaxed, Place::Shared)
            })
        }

        /// Writes numbers to workgroup memory.
        ///
        /// # Safety
        /// As for reading them.
        #[inline(always)]
        pub(crate) unsafe fn $store(at: *mut [$t; $count], value: [$t; $count]) {
            for (i, value) in value.into_iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { <$t>::store(at.cast::<$t>().add(i), value, Ordering::Relaxed, Place::Shared) };
            }
        }
    )*};
}

#[cfg(not(target_arch = "nvptx64"))]
vectors! {
    load_2_u32, store_2_u32, u32, 2;
    load_4_u32, store_4_u32, u32, 4;
    load_2_u64, store_2_u64, u64, 2;
}
