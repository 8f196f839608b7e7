//! Accesses of cells by PTX's instructions.

use super::cell::{Cell, Change, Place};
use super::nvptx::shared_address;
use core::arch::asm;
use core::sync::atomic::Ordering;

/// Runs an instruction on a cell, with the scope of its place.
macro_rules! access {
    ($place:expr, $at:expr, $name:literal, $kind:literal, [$head:literal, $tail:literal], ($($operand:tt)*), $($option:ident),*) => {
        match $place {
            Place::Shared => asm!(concat!($name, ".cta.shared.", $kind, " ", $head, "[{at}]", $tail, ";"),
                at = in(reg32) shared_address($at), $($operand)* options($($option),*)),
            Place::Workgroup => asm!(concat!($name, ".cta.", $kind, " ", $head, "[{at}]", $tail, ";"),
                at = in(reg64) $at, $($operand)* options($($option),*)),
            Place::Device => asm!(concat!($name, ".gpu.", $kind, " ", $head, "[{at}]", $tail, ";"),
                at = in(reg64) $at, $($operand)* options($($option),*)),
            Place::System => asm!(concat!($name, ".sys.", $kind, " ", $head, "[{at}]", $tail, ";"),
                at = in(reg64) $at, $($operand)* options($($option),*)),
        }
    };
}

/// Orders what is before an access with what is after it, as a fence of the scope.
macro_rules! fence {
    ($kind:literal, $place:expr) => {
        // SAFETY: orders accesses, and makes none.
        unsafe {
            match $place {
                Place::Shared | Place::Workgroup => asm!(concat!("fence.", $kind, ".cta;"), options(nostack)),
                Place::Device => asm!(concat!("fence.", $kind, ".gpu;"), options(nostack)),
                Place::System => asm!(concat!("fence.", $kind, ".sys;"), options(nostack)),
            }
        }
    };
}

/// The fence before an access of this order.
#[inline(always)]
fn begin(order: Ordering, place: Place) {
    match order {
        Ordering::Release | Ordering::AcqRel => fence!("acq_rel", place),
        Ordering::SeqCst => fence!("sc", place),
        _ => {}
    }
}

/// The fence behind it.
#[inline(always)]
fn end(order: Ordering, place: Place) {
    if matches!(order, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst) {
        fence!("acq_rel", place);
    }
}

macro_rules! cells {
    ($($t:ty, $reg:ident, [$bits:literal, $add:literal, $umin:literal, $smin:literal, $umax:literal, $smax:literal,
        $and:literal, $or:literal, $xor:literal, $swap:literal, $cas:literal];)*) => {$(
        impl Cell for $t {
            #[inline(always)]
            unsafe fn load(at: *mut Self, order: Ordering, place: Place) -> Self {
                assert!(!matches!(order, Ordering::Release | Ordering::AcqRel), "there is no such load");
                if order == Ordering::SeqCst {
                    begin(order, place);
                }
                let value;
                // SAFETY: the caller's promise.
                unsafe {
                    access!(place, at, "ld.relaxed", $bits, ["{value}, ", ""], (value = out($reg) value,),
                        nostack, preserves_flags, readonly);
                }
                end(order, place);
                value
            }

            #[inline(always)]
            unsafe fn store(at: *mut Self, value: Self, order: Ordering, place: Place) {
                assert!(!matches!(order, Ordering::Acquire | Ordering::AcqRel), "there is no such store");
                begin(order, place);
                // SAFETY: the caller's promise.
                unsafe {
                    access!(place, at, "st.relaxed", $bits, ["", ", {value}"], (value = in($reg) value,),
                        nostack, preserves_flags);
                }
            }

            #[inline(always)]
            unsafe fn change(at: *mut Self, change: Change, value: Self, order: Ordering, place: Place) -> Self {
                begin(order, place);
                let old;
                macro_rules! atom {
                    ($kind:literal) => {
                        // SAFETY: the caller's promise.
                        unsafe {
                            access!(place, at, "atom.relaxed", $kind, ["{old}, ", ", {value}"],
                                (value = in($reg) value, old = out($reg) old,), nostack, preserves_flags)
                        }
                    };
                }
                match change {
                    Change::Add => atom!($add),
                    Change::MinUnsigned => atom!($umin),
                    Change::MinSigned => atom!($smin),
                    Change::MaxUnsigned => atom!($umax),
                    Change::MaxSigned => atom!($smax),
                    Change::And => atom!($and),
                    Change::Or => atom!($or),
                    Change::Xor => atom!($xor),
                    Change::Swap => atom!($swap),
                }
                end(order, place);
                old
            }

            #[inline(always)]
            unsafe fn compare_exchange(
                at: *mut Self,
                current: Self,
                new: Self,
                (success, failure): (Ordering, Ordering),
                place: Place,
            ) -> Result<Self, Self> {
                assert!(!matches!(failure, Ordering::Release | Ordering::AcqRel), "there is no such load");
                begin(if failure == Ordering::SeqCst { failure } else { success }, place);
                let old: Self;
                // SAFETY: the caller's promise.
                unsafe {
                    access!(place, at, "atom.relaxed", $cas, ["{old}, ", ", {current}, {new}"],
                        (current = in($reg) current, new = in($reg) new, old = out($reg) old,), nostack, preserves_flags);
                }
                // A fence more does no harm, and a branch would cost as much.
                end(if failure == Ordering::Relaxed { success } else { failure }, place);
                if old == current { Ok(old) } else { Err(old) }
            }
        }
    )*};
}

cells! {
    u32, reg32, ["b32", "add.u32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32", "exch.b32",
        "cas.b32"];
    u64, reg64, ["b64", "add.u64", "min.u64", "min.s64", "max.u64", "max.s64", "and.b64", "or.b64", "xor.b64", "exch.b64",
        "cas.b64"];
}

macro_rules! add_float {
    ($($name:ident, $t:ty, $bits:ty, $reg:ident, $kind:literal;)*) => {$(
        /// Adds to a float in memory, and returns what it was.
        ///
        /// # Safety
        /// As for [`Cell::load`].
        #[inline(always)]
        pub(crate) unsafe fn $name(at: *mut $bits, value: $t, order: Ordering, place: Place) -> $t {
            begin(order, place);
            let old: $bits;
            // SAFETY: the caller's promise.
            unsafe {
                access!(place, at, "atom.relaxed", $kind, ["{old}, ", ", {value}"],
                    (value = in($reg) value.to_bits(), old = out($reg) old,), nostack, preserves_flags);
            }
            end(order, place);
            <$t>::from_bits(old)
        }
    )*};
}

add_float! {
    add_f32, f32, u32, reg32, "add.f32";
    add_f64, f64, u64, reg64, "add.f64";
}

/// Reads two or four numbers of workgroup memory at once.
macro_rules! vectors {
    ($($load:ident, $store:ident, $t:ty, $count:literal, $reg:ident, $kind:literal, [$($part:ident $at:literal),*], $list:literal;)*) => {$(
        /// Reads numbers of workgroup memory at once.
        ///
        /// # Safety
        /// They lie there, at an address that is a multiple of their size, and are only accessed atomically.
        #[inline(always)]
        pub(crate) unsafe fn $load(at: *mut [$t; $count]) -> [$t; $count] {
            $(let $part;)*
            // SAFETY: the caller's promise.
            unsafe {
                asm!(concat!("ld.relaxed.cta.shared.", $kind, " ", $list, ", [{at}];"),
                    at = in(reg32) shared_address(at), $($part = out($reg) $part,)* options(nostack, preserves_flags, readonly));
            }
            [$($part),*]
        }

        /// Writes numbers to workgroup memory at once.
        ///
        /// # Safety
        /// As for reading them.
        #[inline(always)]
        pub(crate) unsafe fn $store(at: *mut [$t; $count], value: [$t; $count]) {
            // SAFETY: the caller's promise.
            unsafe {
                asm!(concat!("st.relaxed.cta.shared.", $kind, " [{at}], ", $list, ";"),
                    at = in(reg32) shared_address(at), $($part = in($reg) value[$at],)* options(nostack, preserves_flags));
            }
        }
    )*};
}

vectors! {
    load_2_u32, store_2_u32, u32, 2, reg32, "v2.b32", [a 0, b 1], "{{{a}, {b}}}";
    load_4_u32, store_4_u32, u32, 4, reg32, "v4.b32", [a 0, b 1, c 2, d 3], "{{{a}, {b}, {c}, {d}}}";
    load_2_u64, store_2_u64, u64, 2, reg64, "v2.b64", [a 0, b 1], "{{{a}, {b}}}";
}
