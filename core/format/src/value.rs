//! A line's arguments as the host reads them.

use crate::tags;
use hostcall_abi::{CallError, Status, io};

/// One argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// An unsigned integer of any size.
    Unsigned(u64),
    /// An `i8`.
    I8(i8),
    /// An `i16`.
    I16(i16),
    /// An `i32`.
    I32(i32),
    /// An `i64` or `isize`.
    I64(i64),
    /// An `f32`.
    F32(f32),
    /// An `f64`.
    F64(f64),
    /// A `bool`.
    Bool(bool),
    /// A `char`.
    Char(char),
    /// A string.
    Str(&'a str),
    /// A pointer's address on the device.
    Pointer(u64),
    /// Why a call failed.
    CallError(CallError),
    /// Why an operation on a file or stream failed.
    IoError(io::Error),
}

impl<'a> Value<'a> {
    /// Decodes an argument word; a string takes its bytes off the front of `text`. `None` when the
    /// word is no value of the tag's type.
    #[inline]
    pub(crate) fn decode(tag: u8, word: u64, text: &mut &'a [u8]) -> Option<Self> {
        fn narrow<T: TryFrom<i64>>(word: u64) -> Option<T> {
            (word as i64).try_into().ok()
        }
        Some(match tag {
            tags::UNSIGNED => Value::Unsigned(word),
            tags::I8 => Value::I8(narrow(word)?),
            tags::I16 => Value::I16(narrow(word)?),
            tags::I32 => Value::I32(narrow(word)?),
            tags::I64 => Value::I64(word as i64),
            tags::F32 => Value::F32(f32::from_bits(narrow(word)?)),
            tags::F64 => Value::F64(f64::from_bits(word)),
            tags::BOOL if word <= 1 => Value::Bool(word == 1),
            tags::CHAR => Value::Char(char::from_u32(narrow(word)?)?),
            tags::STR => {
                let len = usize::try_from(word).ok()?;
                let (string, rest) = text.split_at_checked(len)?;
                *text = rest;
                Value::Str(core::str::from_utf8(string).ok()?)
            }
            tags::POINTER => Value::Pointer(word),
            tags::CALL_ERROR => Value::CallError(call_error(word)?),
            tags::IO_ERROR => Value::IoError(call_error(word)?.into()),
            _ => return None,
        })
    }
}

/// The error that a word is.
fn call_error(word: u64) -> Option<CallError> {
    let status = Status::from_bits(word);
    status.into_result().err().filter(|_| status.to_bits() == word)
}
