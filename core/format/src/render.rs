//! Rendering. A placeholder with options is left to `core::fmt`, which alone knows all its rules; only what
//! cannot be said at run time there, fill and alignment, is done here, and what is slow there, most floats.

use crate::floats::{fixed, shortest};
use crate::parse::{Align, Count, Format, Placeholder, Spec, Trait};
use crate::value::Value;
use crate::{MAX_ARGUMENTS, tags};
use alloc::vec::Vec;
use core::fmt::{self, Write};

/// Most bytes of a line beside the texts that its arguments are: a few bytes of a format ask for 65535 each, and may
/// show a text again and again.
pub const MAX_LINE_BYTES: usize = 1 << 24;

/// Why arguments do not fit a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenderError {
    /// The format has a placeholder for this argument, but there are fewer.
    Missing(usize),
    /// This argument has no such format, as a string has no hexadecimal.
    Type(usize),
    /// This argument is a width or precision, but no unsigned integer up to 65535.
    Count(usize),
    /// What a device sent is no line's arguments, or others than its tags say.
    Decode,
    /// The line has more than [`MAX_LINE_BYTES`] beside its arguments' texts.
    TooLong,
}

impl fmt::Display for RenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(argument) => write!(f, "the printed line has no argument {argument}"),
            Self::Type(argument) => {
                write!(
                    f,
                    "argument {argument} of the printed line cannot be formatted as its placeholder says"
                )
            }
            Self::Count(argument) => {
                write!(f, "argument {argument} of the printed line is a width or precision above 65535")
            }
            Self::Decode => f.write_str("the printed line's arguments do not decode as its tags say"),
            Self::TooLong => write!(f, "the printed line is longer than {MAX_LINE_BYTES} bytes"),
        }
    }
}

impl core::error::Error for RenderError {}

impl Format {
    /// Appends the formatted line to `out`, exactly as `format!` would make it. On error `out` is as before.
    ///
    /// # Errors
    /// [`RenderError`] when the values do not fit the format.
    pub fn render(&self, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<(), RenderError> {
        let text_bytes = |value: &Value<'_>| if let Value::Str(text) = value { text.len() } else { 0 };
        let texts = values.iter().map(text_bytes).fold(0, usize::saturating_add);
        self.render_with(out, texts, |argument| {
            values.get(argument).copied().ok_or(RenderError::Missing(argument))
        })
    }

    /// [`Format::render`] for the words of a posted line, see [`tags`].
    ///
    /// # Errors
    /// [`RenderError`] when the words do not fit the tags or the format, or a string is among them.
    pub fn render_words(&self, tags: u64, words: &[u64], out: &mut Vec<u8>) -> Result<(), RenderError> {
        if tags::count(tags) != words.len() {
            return Err(RenderError::Decode);
        }
        self.render_with(out, 0, |argument| {
            let word = *words.get(argument).ok_or(RenderError::Missing(argument))?;
            Value::decode(tags::get(tags, argument), word, &mut &[][..]).ok_or(RenderError::Decode)
        })
    }

    /// [`Format::render`] for a line that travelled as bytes, see [`tags`].
    ///
    /// # Errors
    /// [`RenderError`] when the bytes do not fit the tags or the format.
    pub fn render_bytes(&self, tags: u64, data: &[u8], out: &mut Vec<u8>) -> Result<(), RenderError> {
        let count = tags::count(tags);
        let (words, mut text) = data.split_at_checked(8 * count).ok_or(RenderError::Decode)?;
        let mut values = [Value::Unsigned(0); MAX_ARGUMENTS];
        for (i, word) in words.as_chunks().0.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            values[i] = Value::decode(tags::get(tags, i), word, &mut text).ok_or(RenderError::Decode)?;
        }
        if text.is_empty() { self.render(&values[..count], out) } else { Err(RenderError::Decode) }
    }

    /// Appends the line, whose arguments have texts of so many bytes.
    #[inline(always)]
    fn render_with<'a>(
        &self,
        out: &mut Vec<u8>,
        texts: usize,
        value: impl Fn(usize) -> Result<Value<'a>, RenderError>,
    ) -> Result<(), RenderError> {
        let start = out.len();
        let end = start.saturating_add(MAX_LINE_BYTES).saturating_add(texts);
        let mut text = self.text.as_bytes();
        for piece in &self.pieces {
            let (literal, rest) = text.split_at(piece.text_len);
            out.extend_from_slice(literal);
            text = rest;
            let rendered = match &piece.placeholder {
                Placeholder::None => Ok(()),
                Placeholder::Plain(argument) => {
                    let argument = usize::from(*argument);
                    value(argument).and_then(|v| plain(v, out).map_err(|_| RenderError::Type(argument)))
                }
                Placeholder::Spec(spec) => with_options(spec, &value, out),
            };
            let rendered = if out.len() > end { Err(RenderError::TooLong) } else { rendered };
            if let Err(error) = rendered {
                out.truncate(start);
                return Err(error);
            }
        }
        Ok(())
    }
}

type Lookup<'l, 'a> = &'l dyn Fn(usize) -> Result<Value<'a>, RenderError>;

fn count(value: Lookup<'_, '_>, count: Count) -> Result<Option<usize>, RenderError> {
    match count {
        Count::None => Ok(None),
        Count::Fixed(count) => Ok(Some(count.into())),
        Count::Argument(argument) => match value(argument.into())? {
            Value::Unsigned(count @ 0..=0xffff) => Ok(Some(count as usize)),
            _ => Err(RenderError::Count(argument.into())),
        },
    }
}

/// Appends a value as `{}` does.
#[inline]
fn plain(value: Value<'_>, out: &mut Vec<u8>) -> fmt::Result {
    let mut buffer = itoa::Buffer::new();
    let text = match value {
        Value::Unsigned(v) => buffer.format(v),
        Value::I8(v) => buffer.format(v),
        Value::I16(v) => buffer.format(v),
        Value::I32(v) => buffer.format(v),
        Value::I64(v) => buffer.format(v),
        Value::Str(v) => v,
        Value::F32(v) if shortest(v, out) => return Ok(()),
        Value::F64(v) if shortest(v, out) => return Ok(()),
        other => {
            return write!(Bytes(out), "{}", Formatted { value: other, trait_: Trait::Display });
        }
    };
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

fn with_options(spec: &Spec, lookup: Lookup<'_, '_>, out: &mut Vec<u8>) -> Result<(), RenderError> {
    let value = lookup(spec.argument.into())?;
    let width = count(lookup, spec.width)?;
    let precision = count(lookup, spec.precision)?;
    let textual = matches!(value, Value::Str(_) | Value::Char(_) | Value::Bool(_));
    let debug = matches!(spec.trait_, Trait::Debug | Trait::DebugLowerHex | Trait::DebugUpperHex);
    let pointer_padding = matches!(value, Value::Pointer(_)) && spec.alternate;
    let zeros = width.filter(|_| (spec.zero && !textual) || pointer_padding);

    let is_display = matches!(spec.trait_, Trait::Display);
    let float = match value {
        Value::F32(v) => Some(f64::from(v)),
        Value::F64(v) => Some(v),
        _ => None,
    };
    // With a precision, a float's `Debug` is its `Display`.
    let float = float.filter(|_| is_display || debug);

    let start = out.len();
    let mut to = Bytes(out);
    let v = Formatted { value, trait_: spec.trait_ };
    match (spec.plus, spec.alternate, zeros, precision) {
        (false, false, None, None) if is_display => plain(value, to.0),
        (false, false, None, None) => write!(to, "{v}"),
        (false, false, None, Some(p)) if float.is_some_and(|float| fixed(float, p, to.0)) => Ok(()),
        (false, false, None, Some(p)) => write!(to, "{v:.p$}"),
        (false, false, Some(w), None) => write!(to, "{v:0w$}"),
        (false, false, Some(w), Some(p)) => write!(to, "{v:0w$.p$}"),
        (false, true, None, None) => write!(to, "{v:#}"),
        (false, true, None, Some(p)) => write!(to, "{v:#.p$}"),
        (false, true, Some(w), None) => write!(to, "{v:#0w$}"),
        (false, true, Some(w), Some(p)) => write!(to, "{v:#0w$.p$}"),
        (true, false, None, None) => write!(to, "{v:+}"),
        (true, false, None, Some(p)) => write!(to, "{v:+.p$}"),
        (true, false, Some(w), None) => write!(to, "{v:+0w$}"),
        (true, false, Some(w), Some(p)) => write!(to, "{v:+0w$.p$}"),
        (true, true, None, None) => write!(to, "{v:+#}"),
        (true, true, None, Some(p)) => write!(to, "{v:+#.p$}"),
        (true, true, Some(w), None) => write!(to, "{v:+#0w$}"),
        (true, true, Some(w), Some(p)) => write!(to, "{v:+#0w$.p$}"),
    }
    .map_err(|_| RenderError::Type(spec.argument.into()))?;

    // The `Debug` of strings and characters knows no width, and errors know none at all.
    let unpadded = debug && matches!(value, Value::Str(_) | Value::Char(_))
        || matches!(value, Value::CallError(_) | Value::IoError(_));
    if let Some(width) = width
        && zeros.is_none()
        && !unpadded
    {
        let default = if textual { Align::Left } else { Align::Right };
        pad(out, start, width, spec.fill, spec.align.unwrap_or(default));
    }
    Ok(())
}

/// Pads the text from `start` to `width` characters.
fn pad(out: &mut Vec<u8>, start: usize, width: usize, fill: char, align: Align) {
    let is_character_start = |byte: &&u8| **byte & 0xc0 != 0x80;
    let missing = width.saturating_sub(out[start..].iter().filter(is_character_start).count());
    let before = match align {
        Align::Left => 0,
        Align::Center => missing / 2,
        Align::Right => missing,
    };
    let end = out.len();
    let mut encoded = [0; 4];
    let fill = fill.encode_utf8(&mut encoded).as_bytes();
    for _ in 0..missing {
        out.extend_from_slice(fill);
    }
    let text_len = end - start;
    out[start..end + before * fill.len()].rotate_left(text_len);
}

struct Bytes<'a>(&'a mut Vec<u8>);

impl Write for Bytes<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// A value whose `Display` is another formatting trait of it, with all the formatter's options.
struct Formatted<'a> {
    value: Value<'a>,
    trait_: Trait,
}

impl fmt::Display for Formatted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        macro_rules! integer {
            ($v:ident) => {
                match self.trait_ {
                    Trait::Display | Trait::Debug => fmt::Display::fmt(&$v, f),
                    Trait::LowerHex | Trait::DebugLowerHex => fmt::LowerHex::fmt(&$v, f),
                    Trait::UpperHex | Trait::DebugUpperHex => fmt::UpperHex::fmt(&$v, f),
                    Trait::Octal => fmt::Octal::fmt(&$v, f),
                    Trait::Binary => fmt::Binary::fmt(&$v, f),
                    Trait::LowerExp => fmt::LowerExp::fmt(&$v, f),
                    Trait::UpperExp => fmt::UpperExp::fmt(&$v, f),
                    Trait::Pointer => Err(fmt::Error),
                }
            };
        }
        macro_rules! other {
            ($v:expr $(, $also:ident)*) => {
                match self.trait_ {
                    Trait::Display => fmt::Display::fmt(&$v, f),
                    Trait::Debug | Trait::DebugLowerHex | Trait::DebugUpperHex => fmt::Debug::fmt(&$v, f),
                    $(Trait::$also => fmt::$also::fmt(&$v, f),)*
                    _ => Err(fmt::Error),
                }
            };
        }
        match self.value {
            Value::Unsigned(v) => integer!(v),
            Value::I8(v) => integer!(v),
            Value::I16(v) => integer!(v),
            Value::I32(v) => integer!(v),
            Value::I64(v) => integer!(v),
            Value::F32(v) => other!(v, LowerExp, UpperExp),
            Value::F64(v) => other!(v, LowerExp, UpperExp),
            Value::Bool(v) => other!(v),
            Value::Char(v) => other!(v),
            Value::Str(v) => other!(*v),
            Value::CallError(v) => other!(v),
            Value::IoError(v) => other!(v),
            Value::Pointer(v) => match self.trait_ {
                Trait::Pointer | Trait::Debug | Trait::DebugLowerHex | Trait::DebugUpperHex => {
                    fmt::Pointer::fmt(&core::ptr::without_provenance::<()>(v as usize), f)
                }
                _ => Err(fmt::Error),
            },
        }
    }
}
