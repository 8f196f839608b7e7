//! C's format strings, as the C standard and POSIX define them.

use super::arguments::{self, Argument, Type};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// Most arguments that a format can name by position, as in POSIX systems.
const MAX_POSITION: usize = 4096;

/// A parsed format string.
#[derive(Clone, Debug)]
pub struct Format {
    pub(super) text: Vec<u8>,
    pub(super) pieces: Vec<Piece>,
    pub(super) arguments: Vec<Argument>,
    pub(super) null_pointer: &'static str,
}

#[derive(Clone, Debug)]
pub(super) enum Piece {
    /// These bytes of [`Format::text`].
    Text(Range<usize>),
    Conversion(Spec),
}

/// A conversion with all that stands before it.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub flags: Flags,
    pub width: Count,
    pub precision: Option<Count>,
    pub conversion: Conversion,
    pub argument: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    pub left: bool,
    pub plus: bool,
    pub space: bool,
    pub alternate: bool,
    pub zero: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    Fixed(u32),
    Argument(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conversion {
    /// `d` and `i`, of a value with this many bits.
    Signed(u32),
    /// `u`, `o`, `x`, `X`, `b`, `B`: the letter, and the value's bits.
    Unsigned(u8, u32),
    /// `a`, `e`, `f`, `g` and their capitals: the letter.
    Float(u8),
    /// `c`.
    Byte,
    /// `lc`.
    WideCharacter,
    String,
    Pointer,
}

/// Why a text is no format that can be printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Where in the text, in bytes.
    pub offset: usize,
    message: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid printf format at byte {}: {}", self.offset, self.message)
    }
}

impl core::error::Error for ParseError {}

impl Format {
    /// Parses a format, which ends before its first zero byte, or else with `text`.
    ///
    /// # Errors
    /// [`ParseError`] for `%n` and `%ls`, for widths and precisions beyond 2³¹, and when arguments that are named by
    /// position cannot be known: some conversions name none, an argument is named by nobody, or with two types.
    pub fn parse(text: &[u8]) -> Result<Self, ParseError> {
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut parser = Parser { text, at: 0, types: Vec::new(), named: None };
        let mut pieces = Vec::new();
        while parser.at < text.len() {
            let start = parser.at;
            if text[start] == b'%' {
                pieces.push(parser.conversion()?);
            } else {
                let len = text[start..].iter().position(|byte| *byte == b'%');
                parser.at = len.map_or(text.len(), |len| start + len);
                pieces.push(Piece::Text(start..parser.at));
            }
        }
        let types: Option<Vec<Type>> = parser.types.iter().copied().collect();
        let types = types.ok_or(ParseError {
            offset: text.len(),
            message: "a position between others is named by no conversion",
        })?;
        let arguments = arguments::place(types);
        Ok(Self { text: text.to_vec(), pieces, arguments, null_pointer: "(nil)" })
    }

    /// What `%p` prints of a null pointer: glibc's `(nil)` unless it is set. LLVM's libc prints `(nullptr)`.
    #[must_use]
    pub fn null_pointer(mut self, text: &'static str) -> Self {
        self.null_pointer = text;
        self
    }

    /// The arguments that are strings, in the order of their conversions.
    pub(super) fn string_arguments(&self) -> impl Iterator<Item = usize> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Conversion(Spec { conversion: Conversion::String, argument, .. }) => Some(*argument),
            _ => None,
        })
    }
}

/// What `h`, `l` and so on say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    None,
    Long,
    LongDouble,
    /// An integer of so many bits.
    Bits(u32),
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
    /// The arguments' types, `None` where a position is not known yet.
    types: Vec<Option<Type>>,
    /// Whether the format names its arguments by position, once one conversion has shown it.
    named: Option<bool>,
}

impl Parser<'_> {
    fn error<T>(&self, message: &'static str) -> Result<T, ParseError> {
        Err(ParseError { offset: self.at, message })
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// A decimal number, 0 when there is none.
    fn number(&mut self) -> Result<u32, ParseError> {
        let mut number = 0u32;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            let next = number.checked_mul(10).and_then(|n| n.checked_add(u32::from(digit - b'0')));
            number = match next.filter(|n| *n < i32::MAX as u32) {
                Some(next) => next,
                None => return self.error("a number is too large"),
            };
            self.at += 1;
        }
        Ok(number)
    }

    /// `N$`, if it stands here.
    fn position(&mut self) -> Result<Option<usize>, ParseError> {
        let start = self.at;
        let digits = self.text[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 || self.text.get(start + digits) != Some(&b'$') {
            return Ok(None);
        }
        match self.number()? as usize {
            position @ 1..=MAX_POSITION => {
                self.at += 1;
                Ok(Some(position - 1))
            }
            _ => self.error("positions are from 1 to 4096"),
        }
    }

    /// The argument at `position`, or else the next one, which is of this type.
    fn argument(&mut self, position: Option<usize>, type_: Type) -> Result<usize, ParseError> {
        if *self.named.get_or_insert(position.is_some()) != position.is_some() {
            return self.error("either all conversions name their arguments' positions or none does");
        }
        let argument = position.unwrap_or(self.types.len());
        if argument >= self.types.len() {
            self.types.resize(argument + 1, None);
        }
        if *self.types[argument].get_or_insert(type_) != type_ {
            return self.error("an argument has two types");
        }
        Ok(argument)
    }

    fn flags(&mut self) -> Flags {
        let mut flags = Flags::default();
        loop {
            match self.peek() {
                Some(b'-') => flags.left = true,
                Some(b'+') => flags.plus = true,
                Some(b' ') => flags.space = true,
                Some(b'#') => flags.alternate = true,
                Some(b'0') => flags.zero = true,
                // Groups digits as the locale says: the C locale not at all.
                Some(b'\'') => {}
                _ => return flags,
            }
            self.at += 1;
        }
    }

    fn count(&mut self) -> Result<Count, ParseError> {
        if !self.eat(b'*') {
            return self.number().map(Count::Fixed);
        }
        let position = self.position()?;
        self.argument(position, Type::Int).map(Count::Argument)
    }

    fn length(&mut self) -> Result<Length, ParseError> {
        let twice = |parser: &mut Self, letter, once, twice| {
            parser.at += 1;
            Length::Bits(if parser.eat(letter) { twice } else { once })
        };
        Ok(match self.peek() {
            Some(b'h') => twice(self, b'h', 16, 8),
            Some(b'l') => {
                self.at += 1;
                if self.eat(b'l') { Length::Bits(64) } else { Length::Long }
            }
            Some(b'j' | b'z' | b't') => twice(self, 0, 64, 64),
            Some(b'L') => {
                self.at += 1;
                Length::LongDouble
            }
            // C23: integers of an exact width, or of the fast type for it.
            Some(b'w') => {
                let start = self.at;
                self.at += 1;
                let fast = self.eat(b'f');
                match self.number()? {
                    8 => Length::Bits(8),
                    bits @ (16 | 32) => Length::Bits(if fast { 64 } else { bits }),
                    64 => Length::Bits(64),
                    _ => {
                        self.at = start;
                        Length::None
                    }
                }
            }
            _ => Length::None,
        })
    }

    fn conversion(&mut self) -> Result<Piece, ParseError> {
        let start = self.at;
        self.at += 1;
        let position = self.position()?;
        let flags = self.flags();
        let width = self.count()?;
        let precision = if self.eat(b'.') { Some(self.count()?) } else { None };
        let length = self.length()?;
        let bits = match length {
            Length::None => 32,
            Length::Long | Length::LongDouble => 64,
            Length::Bits(bits) => bits,
        };
        let integer = if bits == 64 { Type::Long } else { Type::Int };
        let (conversion, type_) = match self.peek() {
            Some(b'd' | b'i') => (Conversion::Signed(bits), integer),
            Some(letter @ (b'u' | b'o' | b'x' | b'X' | b'b' | b'B')) => {
                (Conversion::Unsigned(letter, bits), integer)
            }
            Some(letter @ (b'a' | b'A' | b'e' | b'E' | b'f' | b'F' | b'g' | b'G')) => {
                (Conversion::Float(letter), Type::Double)
            }
            Some(b'c') if length == Length::Long => (Conversion::WideCharacter, Type::Int),
            Some(b'c') => (Conversion::Byte, Type::Int),
            Some(b's') if length == Length::Long => {
                return self.error("`%ls` cannot be printed: wide strings are not sent");
            }
            Some(b's') => (Conversion::String, Type::Pointer),
            Some(b'p') => (Conversion::Pointer, Type::Pointer),
            Some(b'n') => return self.error("`%n` is refused: it would write to memory"),
            Some(b'%') => {
                self.at += 1;
                return Ok(Piece::Text(self.at - 1..self.at));
            }
            other => {
                self.at += usize::from(other.is_some());
                return Ok(Piece::Text(start..self.at));
            }
        };
        let argument = self.argument(position, type_)?;
        self.at += 1;
        Ok(Piece::Conversion(Spec { flags, width, precision, conversion, argument }))
    }
}
