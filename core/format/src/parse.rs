//! Rust's format strings, as `std::fmt` defines them.

use crate::MAX_ARGUMENTS;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// A parsed format string.
#[derive(Clone, Debug)]
pub struct Format {
    /// The literal text of all pieces, one after the other.
    pub(crate) text: String,
    pub(crate) pieces: Vec<Piece>,
}

/// Literal text and the argument that follows it.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Length of the literal in [`Format::text`]; it starts where the last piece's ends.
    pub text_len: usize,
    pub placeholder: Placeholder,
}

#[derive(Clone, Debug)]
pub(crate) enum Placeholder {
    /// The end of the string.
    None,
    /// `{}` for this argument.
    Plain(u8),
    Spec(Spec),
}

#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub argument: u8,
    pub fill: char,
    pub align: Option<Align>,
    pub plus: bool,
    pub alternate: bool,
    pub zero: bool,
    pub width: Count,
    pub precision: Count,
    pub trait_: Trait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Center,
    Right,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    None,
    Fixed(u16),
    Argument(u8),
}

/// The formatting trait that a placeholder's type names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trait {
    Display,
    Debug,
    DebugLowerHex,
    DebugUpperHex,
    LowerHex,
    UpperHex,
    Octal,
    Binary,
    LowerExp,
    UpperExp,
    Pointer,
}

/// Why a text is no format string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Where in the text, in bytes.
    pub offset: usize,
    message: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid format string at byte {}: {}", self.offset, self.message)
    }
}

impl core::error::Error for ParseError {}

impl Format {
    /// Parses a format string whose arguments are positions, not names.
    ///
    /// # Errors
    /// [`ParseError`] when Rust would refuse the string, or it has a name or a position of 12 or more.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::parse_with(text, &mut |_, _| None)
    }

    /// Parses a format string; `resolve` gives the position of the argument of a name, which stands at the
    /// given bytes of `text`.
    ///
    /// # Errors
    /// As [`Format::parse`], but names are errors only if `resolve` gives `None`.
    pub fn parse_with<'t>(
        text: &'t str,
        resolve: &mut dyn FnMut(&'t str, Range<usize>) -> Option<usize>,
    ) -> Result<Self, ParseError> {
        let mut parser = Parser { text, at: 0, next: 0, resolve };
        let mut format = Self { text: String::new(), pieces: Vec::new() };
        let mut text_start = 0;
        loop {
            let rest = &text[parser.at..];
            let literal = rest.find(['{', '}']).unwrap_or(rest.len());
            format.text.push_str(&rest[..literal]);
            parser.at += literal;
            let Some(brace) = parser.bump() else { break };
            if parser.eat(brace) {
                format.text.push(brace);
            } else if brace == '}' {
                return Err(ParseError { offset: parser.at - 1, message: "write `}}` for a `}`" });
            } else {
                let placeholder = parser.placeholder()?;
                format.pieces.push(Piece { text_len: format.text.len() - text_start, placeholder });
                text_start = format.text.len();
            }
        }
        format
            .pieces
            .push(Piece { text_len: format.text.len() - text_start, placeholder: Placeholder::None });
        Ok(format)
    }
}

/// How a format shows an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// As an address, by `{:p}`.
    pub address: bool,
    /// In another way, or as a width or precision.
    pub value: bool,
}

impl Format {
    /// How the argument of this position is shown.
    pub fn uses_of(&self, argument: usize) -> Uses {
        let mut uses = Uses::default();
        let is = |other: u8| usize::from(other) == argument;
        for piece in &self.pieces {
            match &piece.placeholder {
                Placeholder::None => {}
                Placeholder::Plain(shown) => uses.value |= is(*shown),
                Placeholder::Spec(spec) => {
                    let address = spec.trait_ == Trait::Pointer;
                    uses.address |= is(spec.argument) && address;
                    uses.value |= is(spec.argument) && !address;
                    for count in [spec.width, spec.precision] {
                        uses.value |= matches!(count, Count::Argument(shown) if is(shown));
                    }
                }
            }
        }
        uses
    }
}

struct Parser<'t, 'r> {
    text: &'t str,
    at: usize,
    /// The position that the next `{}` takes.
    next: usize,
    resolve: &'r mut dyn FnMut(&'t str, Range<usize>) -> Option<usize>,
}

impl<'t> Parser<'t, '_> {
    fn error<T>(&self, message: &'static str) -> Result<T, ParseError> {
        Err(ParseError { offset: self.at, message })
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn eat(&mut self, expected: char) -> bool {
        let found = self.peek() == Some(expected);
        if found {
            self.at += expected.len_utf8();
        }
        found
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'t str {
        let rest = &self.text[self.at..];
        let taken = &rest[..rest.find(|c| !accept(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    fn argument(&self, position: usize) -> Result<u8, ParseError> {
        if position < MAX_ARGUMENTS {
            Ok(position as u8)
        } else {
            self.error("a line has 12 arguments at most: print it in two")
        }
    }

    fn next_argument(&mut self) -> Result<u8, ParseError> {
        self.next += 1;
        self.argument(self.next - 1)
    }

    fn number(&mut self, digits: &str) -> Result<u16, ParseError> {
        digits.parse().or_else(|_| self.error("a number in a format string is 65535 at most"))
    }

    /// A position or name, if one stands here.
    fn explicit_argument(&mut self) -> Result<Option<u8>, ParseError> {
        let start = self.at;
        let word = self.take_while(|c| c.is_alphanumeric() || c == '_');
        if word.is_empty() {
            return Ok(None);
        }
        let position = if word.starts_with(|c: char| c.is_ascii_digit()) {
            usize::from(self.number(word)?)
        } else {
            match (self.resolve)(word, start..self.at) {
                Some(position) => position,
                None => return Err(ParseError { offset: start, message: "no argument has this name" }),
            }
        };
        self.argument(position).map(Some)
    }

    /// A number or an argument followed by `$`; takes nothing when neither stands here.
    fn count(&mut self) -> Result<Count, ParseError> {
        let start = self.at;
        let word = self.take_while(|c| c.is_alphanumeric() || c == '_');
        let dollar = self.peek() == Some('$');
        self.at = start;
        if dollar && !word.is_empty() {
            let argument = self.explicit_argument()?;
            self.at += 1;
            return Ok(argument.map_or(Count::None, Count::Argument));
        }
        match self.take_while(|c| c.is_ascii_digit()) {
            "" => Ok(Count::None),
            digits => Ok(Count::Fixed(self.number(digits)?)),
        }
    }

    /// The rest of a placeholder, whose `{` is taken.
    fn placeholder(&mut self) -> Result<Placeholder, ParseError> {
        let argument = self.explicit_argument()?;
        self.take_while(char::is_whitespace);
        let mut spec = Spec {
            argument: 0,
            fill: ' ',
            align: None,
            plus: false,
            alternate: false,
            zero: false,
            width: Count::None,
            precision: Count::None,
            trait_: Trait::Display,
        };
        let plain = !self.eat(':');
        if !plain {
            self.spec(&mut spec)?;
            self.take_while(char::is_whitespace);
        }
        if !self.eat('}') {
            return self.error("expected `}`");
        }
        // After the spec: `.*` takes its argument before the value.
        spec.argument = match argument {
            Some(argument) => argument,
            None => self.next_argument()?,
        };
        Ok(if plain { Placeholder::Plain(spec.argument) } else { Placeholder::Spec(spec) })
    }

    fn spec(&mut self, spec: &mut Spec) -> Result<(), ParseError> {
        let start = self.at;
        if let Some(fill) = self.bump()
            && let Some(align) = self.align()
        {
            (spec.fill, spec.align) = (fill, Some(align));
        } else {
            self.at = start;
            spec.align = self.align();
        }
        spec.plus = self.eat('+');
        if !spec.plus {
            self.eat('-'); // accepted and without meaning, as in `std::fmt`
        }
        spec.alternate = self.eat('#');
        if self.peek() == Some('0') && !self.text[self.at..].starts_with("0$") {
            self.at += 1;
            spec.zero = true;
        }
        spec.width = self.count()?;
        if self.eat('.') {
            spec.precision =
                if self.eat('*') { Count::Argument(self.next_argument()?) } else { self.count()? };
            if spec.precision == Count::None {
                return self.error("expected a precision after `.`");
            }
        }
        let at = self.at;
        spec.trait_ = match self.take_while(|c| c.is_alphanumeric() || c == '_' || c == '?') {
            "" => Trait::Display,
            "?" => Trait::Debug,
            "x?" => Trait::DebugLowerHex,
            "X?" => Trait::DebugUpperHex,
            "x" => Trait::LowerHex,
            "X" => Trait::UpperHex,
            "o" => Trait::Octal,
            "b" => Trait::Binary,
            "e" => Trait::LowerExp,
            "E" => Trait::UpperExp,
            "p" => Trait::Pointer,
            _ => return Err(ParseError { offset: at, message: "unknown format type" }),
        };
        Ok(())
    }

    fn align(&mut self) -> Option<Align> {
        let align = match self.peek()? {
            '<' => Align::Left,
            '^' => Align::Center,
            '>' => Align::Right,
            _ => return None,
        };
        self.at += 1;
        Some(align)
    }
}
