//! The table in which the library's functions stand: what each takes and what it makes. Here is what they share: how
//! arguments are checked, where results and errors go, what becomes of a panic, the symbols, and the declarations of which
//! the header is made.

use crate::error::{Failure, hostcall_status};
use crate::handle::{get, system_text, take, text};
use std::ffi::{OsStr, c_char};
use std::ptr::{null, null_mut};

/// What a function takes: references must be there, and what is in an `Option` or a raw pointer may be NULL.
pub trait Argument {
    /// As C passes it.
    type Passed;
    /// As the function uses it.
    type Used;

    /// Checks it.
    ///
    /// # Safety
    /// CALLER.
    unsafe fn check(passed: Self::Passed, name: &'static str) -> Result<Self::Used, Failure>;
}

macro_rules! arguments {
    ($([$($generic:tt)*] $type:ty: $passed:ty => $used:ty, |$value:ident, $name:ident| $check:expr;)*) => {$(
        impl<$($generic)*> Argument for $type {
            type Passed = $passed;
            type Used = $used;

            unsafe fn check($value: $passed, $name: &'static str) -> Result<$used, Failure> {
                $check
            }
        }
    )*};
}

arguments! {
    ['a, T] &'a T: Option<&'a T> => &'a T, |value, name| get(value, name);
    ['a, T] &'a mut T: Option<&'a mut T> => &'a mut T, |value, name| get(value, name);
    // SAFETY: the caller's promise.
    ['a] &'a str: *const c_char => &'a str, |value, name| unsafe { text(value, name) };
    // SAFETY: the caller's promise.
    ['a] &'a OsStr: *const c_char => &'a OsStr, |value, name| unsafe { system_text(value, name) };
    // SAFETY: the caller's promise: it is NULL or a handle's place. The handle is the function's, and NULL from now on.
    [T] Box<T>: *mut *mut T => Box<T>, |value, name| get(take(unsafe { value.as_mut() }), name);
    [T] Option<T>: Option<T> => Option<T>, |value, _name| Ok(value);
    [T] *const T: *const T => *const T, |value, _name| Ok(value);
    [T] *mut T: *mut T => *mut T, |value, _name| Ok(value);
    [] u32: u32 => u32, |value, _name| Ok(value);
    [] u64: u64 => u64, |value, _name| Ok(value);
    [] usize: usize => usize, |value, _name| Ok(value);
    [] i32: i32 => i32, |value, _name| Ok(value);
    [] bool: bool => bool, |value, _name| Ok(value);
}

/// What a function returns that cannot fail.
pub trait Answer {
    /// What it returns for NULL.
    const NOTHING: Self;
}

macro_rules! answers {
    ($([$($of:ident)?] $type:ty: $nothing:expr;)*) => {
        $(impl$(<$of>)? Answer for $type {
            const NOTHING: Self = $nothing;
        })*
    };
}

answers! {
    [] bool: false;
    [] u32: 0;
    [] u64: 0;
    [] usize: 0;
    [T] *const T: null();
    [T] *mut T: null_mut();
    [] hostcall_status: hostcall_status::Ok;
}

/// Defines functions of the library.
///
/// - `run`: does something that can fail, and returns a status.
/// - `make`: as `run`; gives the caller a handle of the block's value, in the place that is named after `as`.
/// - `begin`: as `make`, where the place may be NULL.
/// - `reply`: as `run`, without a place for an error.
/// - `ask`: returns the block's value, or nothing (0, NULL, false) where an argument is wrong and where the block fails.
/// - `free`: takes a handle, and its value with it; NULL is let be.
///
/// `; state` behind the arguments is a state of the caller's with the function that frees it; more arguments may follow.
macro_rules! functions {
    ($(
        $(#[$doc:meta])*
        $kind:ident $name:ident $arguments:tt $(-> $result:ty $(as $place:ident)?)? $body:block
    )*) => {
        /// The functions as the header's generator reads them.
        #[doc(hidden)]
        pub const DECLARATIONS: &str = concat!($(
            $("#[", stringify!($doc), "]\n",)*
            crate::functions::declare!($kind $name $arguments $($result $(as $place)?)?),
        )*);
        $(crate::functions::define!(
            $kind $name $arguments $($result $(as $place)?)? $body $(#[$doc])*
        );)*
    };
}

macro_rules! declare {
    (free $name:ident($handle:ident: $of:ty)) => {
        crate::functions::declare!(@ $name ($handle: *mut *mut $of) ())
    };
    (ask $name:ident($($argument:ident: $type:ty),* $(,)?) $result:ty) => {
        crate::functions::declare!(@ $name ($($argument: $type),*) ($result))
    };
    (reply $name:ident($($argument:ident: $type:ty),* $(,)?)) => {
        crate::functions::declare!(@ $name ($($argument: $type),*) (hostcall_status))
    };
    (
        $kind:ident
        $name:ident($($argument:ident: $type:ty),* $(,)? $(; $state:ident $(, $more:ident: $of:ty)*)?)
        $($made:ty as $place:ident)?
    ) => {
        crate::functions::declare!(@ $name (
            $($argument: $type,)* $($state: *mut c_void, free_state: hostcall_free_function, $($more: $of,)*)?
            $($place: *mut *mut $made,)? error: *mut *mut hostcall_error
        ) (hostcall_status))
    };
    (@ $name:ident ($($argument:ident: $type:ty),*) ($($result:ty)?)) => {
        concat!(
            "#[unsafe(no_mangle)] pub extern \"C\" fn ", stringify!($name), "(",
            $(stringify!($argument), ": ", stringify!($type), ", ",)* ")", $(" -> ", stringify!($result),)? " {}\n"
        )
    };
}

macro_rules! define {
    (free $name:ident($handle:ident: $of:ty) $body:block $(#[$doc:meta])*) => {
        $(#[$doc])*
        pub unsafe extern "C" fn $name($handle: Option<&mut *mut $of>) {
            crate::handle::answer((), || {
                if let Some($handle) = crate::handle::take($handle) {
                    $body
                }
            });
        }
        crate::functions::export!($name);
    };
    (ask $name:ident($($argument:ident: $type:ty),* $(,)?) $result:ty $body:block $(#[$doc:meta])*) => {
        $(#[$doc])*
        pub unsafe extern "C" fn $name(
            $($argument: <$type as crate::functions::Argument>::Passed),*
        ) -> $result {
            let run = || -> Result<$result, crate::error::Failure> {
                $(let $argument = crate::functions::check!($argument: $type)?;)*
                Ok($body)
            };
            crate::handle::answer(None, || run().ok()).unwrap_or(<$result as crate::functions::Answer>::NOTHING)
        }
        crate::functions::export!($name);
    };
    (reply $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block $(#[$doc:meta])*) => {
        $(#[$doc])*
        pub unsafe extern "C" fn $name(
            $($argument: <$type as crate::functions::Argument>::Passed),*
        ) -> crate::error::hostcall_status {
            crate::error::run(None, || {
                $(let $argument = crate::functions::check!($argument: $type)?;)*
                $body;
                Ok(())
            })
        }
        crate::functions::export!($name);
    };
    (
        $kind:ident
        $name:ident($($argument:ident: $type:ty),* $(,)? $(; $state:ident $(, $more:ident: $of:ty)*)?)
        $($made:ty as $place:ident)?
        $body:block $(#[$doc:meta])*
    ) => {
        $(#[$doc])*
        pub unsafe extern "C" fn $name(
            $($argument: <$type as crate::functions::Argument>::Passed,)*
            $($state: *mut std::ffi::c_void, free_state: crate::handle::hostcall_free_function,
            $($more: <$of as crate::functions::Argument>::Passed,)*)?
            $($place: crate::handle::Out<'_, $made>,)?
            error: crate::handle::Out<'_, crate::error::hostcall_error>,
        ) -> crate::error::hostcall_status {
            $(let $state = crate::handle::State::new($state, free_state);)?
            crate::error::run(error, || {
                // What the function takes is its own, also when it fails.
                $(let $argument = crate::functions::check!($argument: $type);)*
                $(let $place = crate::handle::place::$kind($place, stringify!($place))?;)?
                $(let $argument = $argument?;)*
                $($(let $more = crate::functions::check!($more: $of)?;)*)?
                let made = $body;
                $(let made = crate::handle::put::<$made>($place, made);)?
                Ok(made)
            })
        }
        crate::functions::export!($name);
    };
}

macro_rules! check {
    ($argument:ident: $type:ty) => {
        // SAFETY: CALLER.
        unsafe { <$type as crate::functions::Argument>::check($argument, stringify!($argument)) }
    };
}

/// Makes the symbol of a function: a jump to it, since the assembler accepts a version only where the symbol is defined.
macro_rules! export {
    ($name:ident) => {
        std::arch::global_asm!(
            ".text",
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ", @function"),
            concat!(stringify!($name), ":"),
            #[cfg(target_arch = "x86_64")]
            "jmp {function}",
            #[cfg(target_arch = "aarch64")]
            "b {function}",
            concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            concat!(".symver ", stringify!($name), ", ", stringify!($name), "@@@HOSTCALL_1"),
            function = sym $name,
        );
    };
}

pub(crate) use {check, declare, define, export, functions};
