//! Owned values and shared ones print as what they hold.

use crate::print::{Address, Argument};
use alloc::borrow::{Cow, ToOwned};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::sync::Arc;

macro_rules! holders {
    ($([$($generics:tt)*] $t:ty => $held:ty;)*) => {$(
        impl<$($generics)*> Argument for $t {
            const TAG: u8 = <$held>::TAG;
            #[inline(always)]
            fn word(&self) -> u64 {
                let held: &$held = self;
                held.word()
            }
            #[inline(always)]
            fn text(&self) -> &str {
                let held: &$held = self;
                held.text()
            }
        }
    )*};
}

holders! {
    [] String => str;
    [T: Argument + ?Sized] Box<T> => T;
    [T: Argument + ?Sized] Rc<T> => T;
    [T: Argument + ?Sized] Arc<T> => T;
    [T: Argument + ToOwned + ?Sized] Cow<'_, T> => T;
}

macro_rules! pointers {
    ($($t:ident),*) => {$(
        impl<T: ?Sized> Address for $t<T> {
            #[inline(always)]
            fn address(&self) -> u64 {
                core::ptr::from_ref::<T>(self).addr() as u64
            }
        }
    )*};
}

pointers!(Box, Rc, Arc);
