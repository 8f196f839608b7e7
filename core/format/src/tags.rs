//! The types of a line's arguments: four bits each, the first argument's lowest, 0 after the last.
//!
//! An argument is one 64-bit word: an unsigned integer, `bool`, `char` or pointer zero-extended, a signed
//! integer sign-extended, a float's bits, a string's length in bytes, an error's status. A line too long for a post, or with
//! strings, travels as bytes: the words, little-endian, and then the strings one after the other.

use crate::MAX_ARGUMENTS;

/// Bits of a tag.
pub const BITS: u32 = 4;

/// `u8`, `u16`, `u32`, `u64` and `usize`, which print alike.
pub const UNSIGNED: u8 = 1;
/// `i8`. Signed types have tags of their own since `{:x}` shows as many digits as the type has.
pub const I8: u8 = 2;
/// `i16`.
pub const I16: u8 = 3;
/// `i32`.
pub const I32: u8 = 4;
/// `i64` and `isize`.
pub const I64: u8 = 5;
/// `f32`.
pub const F32: u8 = 6;
/// `f64`.
pub const F64: u8 = 7;
/// `bool`.
pub const BOOL: u8 = 8;
/// `char`.
pub const CHAR: u8 = 9;
/// `str`.
pub const STR: u8 = 10;
/// `*const T` and `*mut T`.
pub const POINTER: u8 = 11;
/// [`CallError`](hostcall_abi::CallError).
pub const CALL_ERROR: u8 = 12;
/// [`io::Error`](hostcall_abi::io::Error).
pub const IO_ERROR: u8 = 13;

/// The tags of these arguments.
pub const fn of(arguments: &[u8]) -> u64 {
    let mut tags = 0;
    let mut i = 0;
    while i < arguments.len() {
        tags |= (arguments[i] as u64) << (BITS * i as u32);
        i += 1;
    }
    tags
}

/// The tag of argument `i`, 0 when there is none.
pub const fn get(tags: u64, i: usize) -> u8 {
    if i >= MAX_ARGUMENTS { 0 } else { (tags >> (BITS * i as u32)) as u8 & 15 }
}

/// Arguments that the tags describe, up to the first tag 0.
pub const fn count(tags: u64) -> usize {
    let mut i = 0;
    while get(tags, i) != 0 {
        i += 1;
    }
    i
}

/// Whether a string is among the arguments.
pub const fn has_str(tags: u64) -> bool {
    let mut i = 0;
    while i < MAX_ARGUMENTS {
        if get(tags, i) == STR {
            return true;
        }
        i += 1;
    }
    false
}
