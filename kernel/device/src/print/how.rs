//! Who formats an argument. `print!` asks each of its arguments by the methods of [`ByHost`], on a reference to one of the
//! types below: where the argument's type has what the host needs, these are [`ByHost`]'s; else the compiler finds those
//! of [`ByDevice`], one reference further. In a generic function its bounds decide.

use super::{Address, Argument, Pointer};
use hostcall_format::tags;

/// An argument that is shown as a value.
pub struct AsValue<'a, T: ?Sized>(pub &'a T);

/// An argument that is shown as an address.
pub struct AsAddress<'a, T: ?Sized>(pub &'a T);

/// An argument that is shown both ways.
pub struct AsBoth<'a, T: ?Sized>(pub &'a T);

/// Arguments that the host can format.
pub trait ByHost {
    /// Whether the host formats it.
    #[inline(always)]
    fn hostcall_by_host(&self) -> bool {
        true
    }
    /// The type's tag.
    fn hostcall_tag(&self) -> u8;
    /// The value's word.
    fn hostcall_word(&self) -> u64;
    /// A string's text.
    #[inline(always)]
    fn hostcall_text(&self) -> &str {
        ""
    }
}

/// All arguments. What the methods give is used for no line.
pub trait ByDevice {
    /// Whether the host formats it.
    #[inline(always)]
    fn hostcall_by_host(&self) -> bool {
        false
    }
    /// No tag.
    #[inline(always)]
    fn hostcall_tag(&self) -> u8 {
        0
    }
    /// No word.
    #[inline(always)]
    fn hostcall_word(&self) -> u64 {
        0
    }
    /// No text.
    #[inline(always)]
    fn hostcall_text(&self) -> &str {
        ""
    }
}

impl<T: Argument + ?Sized> ByHost for AsValue<'_, T> {
    #[inline(always)]
    fn hostcall_tag(&self) -> u8 {
        T::TAG
    }
    #[inline(always)]
    fn hostcall_word(&self) -> u64 {
        self.0.word()
    }
    #[inline(always)]
    fn hostcall_text(&self) -> &str {
        self.0.text()
    }
}

impl<T: Address + ?Sized> ByHost for AsAddress<'_, T> {
    #[inline(always)]
    fn hostcall_tag(&self) -> u8 {
        tags::POINTER
    }
    #[inline(always)]
    fn hostcall_word(&self) -> u64 {
        self.0.address()
    }
}

impl<T: Pointer + ?Sized> ByHost for AsBoth<'_, T> {
    #[inline(always)]
    fn hostcall_tag(&self) -> u8 {
        T::TAG
    }
    #[inline(always)]
    fn hostcall_word(&self) -> u64 {
        self.0.word()
    }
}

impl<T: ?Sized> ByDevice for &AsValue<'_, T> {}
impl<T: ?Sized> ByDevice for &AsAddress<'_, T> {}
impl<T: ?Sized> ByDevice for &AsBoth<'_, T> {}
