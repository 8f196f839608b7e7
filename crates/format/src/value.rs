//! A line's arguments as the host reads them.

use crate::{MAX_ARGUMENTS, tags};
use core::fmt;
use core::ops::Deref;

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
}

/// A line's arguments, decoded. Dereferences to a slice of them.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    values: [Value<'a>; MAX_ARGUMENTS],
    len: usize,
}

impl<'a> Deref for Values<'a> {
    type Target = [Value<'a>];
    fn deref(&self) -> &[Value<'a>] {
        &self.values[..self.len]
    }
}

/// What a device sent is no line's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError;

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the printed line's arguments do not decode as its tags say")
    }
}

impl core::error::Error for DecodeError {}

impl<'a> Values<'a> {
    /// Decodes the words of a posted line.
    ///
    /// # Errors
    /// [`DecodeError`] when tags and words disagree, or a string is among them.
    #[inline]
    pub fn from_words(tags: u64, words: &[u64]) -> Result<Self, DecodeError> {
        Self::decode(tags, words.iter().copied(), &[])
    }

    /// Decodes a line that travelled as bytes.
    ///
    /// # Errors
    /// [`DecodeError`] when tags and bytes disagree.
    pub fn from_bytes(tags: u64, data: &'a [u8]) -> Result<Self, DecodeError> {
        let (words, text) = data.split_at_checked(8 * tags::count(tags)).ok_or(DecodeError)?;
        let words = words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        Self::decode(tags, words, text)
    }

    #[inline]
    fn decode(
        mut tags: u64,
        words: impl ExactSizeIterator<Item = u64>,
        mut text: &'a [u8],
    ) -> Result<Self, DecodeError> {
        let len = words.len();
        if len > MAX_ARGUMENTS {
            return Err(DecodeError);
        }
        let mut values = [Value::Unsigned(0); MAX_ARGUMENTS];
        for (value, word) in values.iter_mut().zip(words) {
            *value = decode_one(tags as u8 & 15, word, &mut text)?;
            tags >>= tags::BITS;
        }
        if tags == 0 && text.is_empty() { Ok(Self { values, len }) } else { Err(DecodeError) }
    }
}

#[inline]
fn decode_one<'a>(tag: u8, word: u64, text: &mut &'a [u8]) -> Result<Value<'a>, DecodeError> {
    fn narrow<T: TryFrom<i64>>(word: u64) -> Result<T, DecodeError> {
        (word as i64).try_into().map_err(|_| DecodeError)
    }
    Ok(match tag {
        tags::UNSIGNED => Value::Unsigned(word),
        tags::I8 => Value::I8(narrow(word)?),
        tags::I16 => Value::I16(narrow(word)?),
        tags::I32 => Value::I32(narrow(word)?),
        tags::I64 => Value::I64(word as i64),
        tags::F32 => Value::F32(f32::from_bits(narrow(word)?)),
        tags::F64 => Value::F64(f64::from_bits(word)),
        tags::BOOL if word <= 1 => Value::Bool(word == 1),
        tags::CHAR => Value::Char(char::from_u32(narrow(word)?).ok_or(DecodeError)?),
        tags::STR => {
            let len = usize::try_from(word).map_err(|_| DecodeError)?;
            let (string, rest) = text.split_at_checked(len).ok_or(DecodeError)?;
            *text = rest;
            Value::Str(core::str::from_utf8(string).map_err(|_| DecodeError)?)
        }
        tags::POINTER => Value::Pointer(word),
        _ => return Err(DecodeError),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_the_link() {
        let kinds = [tags::UNSIGNED, tags::I8, tags::F32, tags::CHAR, tags::POINTER];
        let words = [u64::MAX, -5i64 as u64, u64::from(1.5f32.to_bits()), 'é' as u64, 16];
        let values = Values::from_words(tags::of(&kinds), &words).unwrap();
        let expected =
            [Value::Unsigned(u64::MAX), Value::I8(-5), Value::F32(1.5), Value::Char('é'), Value::Pointer(16)];
        assert_eq!(*values, expected);

        let kinds = [tags::STR, tags::BOOL, tags::STR];
        let mut data = [4u64, 1, 2].map(u64::to_le_bytes).concat();
        data.extend_from_slice("fünt!".as_bytes());
        data.truncate(24 + 6);
        let values = Values::from_bytes(tags::of(&kinds), &data).unwrap();
        assert_eq!(*values, [Value::Str("fün"), Value::Bool(true), Value::Str("t!")]);
        assert!(Values::from_words(0, &[]).unwrap().is_empty());
        assert!(tags::has_str(tags::of(&kinds)) && !tags::has_str(tags::of(&[1, 2])));
    }

    #[test]
    fn garbage_is_refused() {
        for (kinds, words) in [
            (&[tags::BOOL][..], &[2][..]),
            (&[tags::I8], &[128]),
            (&[tags::F32], &[1 << 32]),
            (&[tags::CHAR], &[0xd800]),
            (&[tags::STR], &[1]),
            (&[12], &[0]),
            (&[tags::I64], &[]),
            (&[], &[1]),
            (&[tags::I64, 0, tags::I64], &[1]),
            (&[1; 12], &[0; 13]),
        ] {
            assert!(Values::from_words(tags::of(kinds), words).is_err(), "{kinds:?} {words:?}");
        }
        for data in [&[][..], &[1, 0, 0, 0, 0, 0, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 0, 0xff], &[0; 9], &[0xff; 9]]
        {
            assert!(Values::from_bytes(tags::of(&[tags::STR]), data).is_err(), "{data:?}");
        }
        assert!(Values::from_bytes(u64::MAX, &[0; 200]).is_err());
    }
}
