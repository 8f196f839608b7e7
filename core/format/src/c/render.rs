//! Rendering: each conversion makes a prefix and a body, and the field around them is padded in one place.

use super::arguments::Values;
use super::parse::{Conversion, Count, Flags, Piece, Spec};
use super::{Format, Layout, float};
use alloc::vec::Vec;
use core::fmt;

/// Most bytes of a line: a device can ask for padding of two billion.
pub const MAX_LINE_BYTES: usize = 1 << 24;

/// Why arguments make no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenderError {
    /// The block of arguments is too short.
    Block {
        /// Bytes of the format's arguments.
        expected: usize,
        /// Bytes of the block.
        given: usize,
    },
    /// As many strings were given, and the format has another number.
    Strings(usize),
    /// This argument of `%lc` is no character.
    Character(u32),
    /// The line is longer than [`MAX_LINE_BYTES`].
    TooLong,
}

impl fmt::Display for RenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block { expected, given } => {
                write!(f, "the printed line's arguments are {expected} bytes, and {given} were sent")
            }
            Self::Strings(given) => write!(f, "the printed line has another number of strings than {given}"),
            Self::Character(code) => write!(f, "{code:#x} is no character that can be printed"),
            Self::TooLong => write!(f, "the printed line is longer than {MAX_LINE_BYTES} bytes"),
        }
    }
}

impl core::error::Error for RenderError {}

impl Format {
    /// Appends the line to `out` and returns its length in bytes. `strings` holds the text for each address of
    /// [`Format::strings`], up to a zero byte or the end, and `None` for null pointers. On error `out` is as before.
    ///
    /// # Errors
    /// [`RenderError`] when block or strings do not fit the format, or the line cannot be made.
    pub fn render<S: AsRef<[u8]>>(
        &self,
        layout: Layout,
        block: &[u8],
        strings: &[Option<S>],
        out: &mut Vec<u8>,
    ) -> Result<usize, RenderError> {
        let values = self.values(layout, block)?;
        if strings.len() != self.string_arguments().count() {
            return Err(RenderError::Strings(strings.len()));
        }
        let mut strings = strings.iter().map(|string| string.as_ref().map(AsRef::as_ref));
        let start = out.len();
        let mut line = Line { out, end: start + MAX_LINE_BYTES, values, null_pointer: self.null_pointer };
        let rendered = self.pieces.iter().try_for_each(|piece| match piece {
            Piece::Text(range) => line.text(&self.text[range.clone()]),
            Piece::Conversion(spec) if spec.conversion == Conversion::String => {
                line.string(spec, strings.next().expect("one for each conversion"))
            }
            Piece::Conversion(spec) => line.value(spec),
        });
        match rendered {
            Ok(()) => Ok(out.len() - start),
            Err(error) => {
                out.truncate(start);
                Err(error)
            }
        }
    }
}

/// A conversion's width, precision and flags, with those that are arguments looked up.
pub(super) struct Options {
    pub flags: Flags,
    pub width: usize,
    pub precision: Option<usize>,
}

impl Options {
    fn new(spec: &Spec, values: Values<'_>) -> Self {
        let mut flags = spec.flags;
        let width = match spec.width {
            Count::Fixed(width) => width,
            Count::Argument(argument) => {
                let width = values.int(argument);
                flags.left |= width < 0;
                width.unsigned_abs()
            }
        };
        let precision = spec.precision.and_then(|precision| match precision {
            Count::Fixed(precision) => Some(precision as usize),
            // A negative one is as if there were none.
            Count::Argument(argument) => usize::try_from(values.int(argument)).ok(),
        });
        Self { flags, width: width as usize, precision }
    }

    /// What stands before a number with this sign.
    pub fn sign(&self, negative: bool) -> &'static str {
        match self.flags {
            _ if negative => "-",
            Flags { plus: true, .. } => "+",
            Flags { space: true, .. } => " ",
            _ => "",
        }
    }
}

/// The line so far.
pub(super) struct Line<'a> {
    out: &'a mut Vec<u8>,
    /// Length that [`Line::out`] must not exceed.
    end: usize,
    values: Values<'a>,
    null_pointer: &'static str,
}

impl Line<'_> {
    fn text(&mut self, text: &[u8]) -> Result<(), RenderError> {
        if text.len() > self.end - self.out.len() {
            return Err(RenderError::TooLong);
        }
        self.out.extend_from_slice(text);
        Ok(())
    }

    fn repeat(&mut self, byte: u8, count: usize) -> Result<(), RenderError> {
        if count > self.end - self.out.len() {
            return Err(RenderError::TooLong);
        }
        self.out.resize(self.out.len() + count, byte);
        Ok(())
    }

    /// A field of the options' width: sign or `0x`, then as many zeros, then the body and more zeros after it.
    /// `fill_zeros`: the field is filled with zeros, if its flags say so, and not with spaces.
    pub fn field(
        &mut self,
        options: &Options,
        prefix: &[&str],
        zeros: usize,
        body: &[u8],
        fill_zeros: bool,
    ) -> Result<(), RenderError> {
        let prefix_len: usize = prefix.iter().map(|part| part.len()).sum();
        let len = zeros.checked_add(prefix_len + body.len()).ok_or(RenderError::TooLong)?;
        let missing = options.width.saturating_sub(len);
        let Flags { left, zero, .. } = options.flags;
        let inner = if fill_zeros && zero && !left { missing } else { 0 };
        if !left {
            self.repeat(b' ', missing - inner)?;
        }
        for part in prefix {
            self.text(part.as_bytes())?;
        }
        self.repeat(b'0', inner)?;
        self.repeat(b'0', zeros)?;
        self.text(body)?;
        if left { self.repeat(b' ', missing) } else { Ok(()) }
    }

    fn string(&mut self, spec: &Spec, string: Option<&[u8]>) -> Result<(), RenderError> {
        let options = Options::new(spec, self.values);
        let precision = options.precision.unwrap_or(usize::MAX);
        let text = match string {
            Some(string) => {
                let string = &string[..precision.min(string.len())];
                string.split(|byte| *byte == 0).next().unwrap_or_default()
            }
            None if precision < 6 => b"",
            None => b"(null)",
        };
        self.field(&options, &[], 0, text, false)
    }

    fn value(&mut self, spec: &Spec) -> Result<(), RenderError> {
        let options = Options::new(spec, self.values);
        let word = self.values.word(spec.argument);
        match spec.conversion {
            Conversion::Signed(bits) => {
                let unused = 64 - bits;
                let value = (word << unused) as i64 >> unused;
                self.integer(&options, &[options.sign(value < 0)], value.unsigned_abs(), 10)
            }
            Conversion::Unsigned(letter, bits) => {
                self.unsigned(&options, letter, word & (u64::MAX >> (64 - bits)))
            }
            Conversion::Float(letter) => {
                float::float(self, &options, letter, self.values.double(spec.argument))
            }
            Conversion::Byte => self.field(&options, &[], 0, &[word as u8], false),
            Conversion::WideCharacter => {
                let character = char::from_u32(word as u32).ok_or(RenderError::Character(word as u32))?;
                self.field(&options, &[], 0, character.encode_utf8(&mut [0; 4]).as_bytes(), false)
            }
            Conversion::Pointer if word == 0 => {
                self.field(&options, &[], 0, self.null_pointer.as_bytes(), false)
            }
            // glibc gives pointers the signs of signed numbers.
            Conversion::Pointer => self.integer(&options, &[options.sign(false), "0x"], word, 16),
            Conversion::String => unreachable!("strings have text of their own"),
        }
    }

    fn unsigned(&mut self, options: &Options, letter: u8, value: u64) -> Result<(), RenderError> {
        let marked = options.flags.alternate && value != 0;
        match letter {
            b'o' => {
                // `#`: as many digits as make the first a zero.
                let digits = (64 - value.leading_zeros()).div_ceil(3) as usize;
                let least = if options.flags.alternate { digits + 1 } else { 0 };
                self.digits(options, &[], value, 8, options.precision.unwrap_or(1).max(least))
            }
            b'x' => self.integer(options, if marked { &["0x"] } else { &[] }, value, 16),
            b'X' => {
                let start = self.out.len();
                self.integer(options, if marked { &["0x"] } else { &[] }, value, 16)?;
                self.out[start..].make_ascii_uppercase();
                Ok(())
            }
            b'b' => self.integer(options, if marked { &["0b"] } else { &[] }, value, 2),
            b'B' => self.integer(options, if marked { &["0B"] } else { &[] }, value, 2),
            _ => self.integer(options, &[], value, 10),
        }
    }

    fn integer(
        &mut self,
        options: &Options,
        prefix: &[&str],
        value: u64,
        base: u64,
    ) -> Result<(), RenderError> {
        self.digits(options, prefix, value, base, options.precision.unwrap_or(1))
    }

    /// A number of at least `least` digits.
    fn digits(
        &mut self,
        options: &Options,
        prefix: &[&str],
        mut value: u64,
        base: u64,
        least: usize,
    ) -> Result<(), RenderError> {
        let mut digits = [0u8; 64];
        let mut at = digits.len();
        while value != 0 {
            at -= 1;
            digits[at] = b"0123456789abcdef"[(value % base) as usize];
            value /= base;
        }
        let body = &digits[at..];
        let zeros = least.saturating_sub(body.len());
        self.field(options, prefix, zeros, body, options.precision.is_none())
    }
}
