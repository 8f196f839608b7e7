//! A panic's message as a device sends it that does not format: the template and the values that `core::fmt` would have made a
//! text of.
//!
//! What such messages travel in, posts of [`PIECE_BYTES`] bytes, carries printed lines with texts too ([`LINE_HEAD_BYTES`]).
//!
//! A message is a byte that says which of two it is, and
//!
//! | byte | then |
//! |---|---|
//! | [`TEXT`] | a text |
//! | [`TEMPLATE`] | a text that is the template as the compiler writes it; a byte, how many arguments there are; the arguments |
//!
//! A text is its length in bytes (two, little-endian) and its bytes. An argument is a [`Tag`] (two bytes) and, of
//! [`Tag::COUNT`], a `u16`; of [`STR`](tags::STR), a text; of [`Tag::ARGUMENTS`], a message; of [`Tag::UNKNOWN`], nothing; of any
//! other, its word ([`tags`]) of eight bytes.

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
use crate::tags;

/// A message without values.
pub const TEXT: u8 = 0;
/// A template with its values.
pub const TEMPLATE: u8 = 1;

/// Most bytes of a message's texts that are sent: the template, and each value that is a text.
pub const MOST_TEXT_BYTES: usize = 512;

/// Bytes of a post of a panic or of another text in pieces. The number of such a post in its text is in bits 0–15 of its 32 extra
/// bits ([`next_piece`]), how many of its bytes count in bits 16–23, and bit 31 says that it is the last.
pub const PIECE_BYTES: usize = 40;

/// Bit of a post's extra ones: the text's last post.
pub const LAST: u32 = 1 << 31;

/// Most posts of a panic, and of a text that a call is about.
pub const MOST_PIECES: u32 = 256;

/// The number of the post behind the one with this number. Only a text's first post has number 0.
#[inline(always)]
pub const fn next_piece(piece: u32) -> u32 {
    if piece == 0xffff { 1 } else { piece + 1 }
}

/// Bytes of a printed line in pieces before its values: a word with its format's id in bits 0–31 and in the others how many bytes
/// follow the head, and one with the types of its arguments ([`crate::tags`]). The values' words follow, eight bytes each, and then
/// the bytes of the texts among them.
pub const LINE_HEAD_BYTES: usize = 16;

/// Most bytes of a printed line's values and texts. Of a longer line its device sends nothing but its length.
pub const MOST_LINE_BYTES: usize = 64 << 20;

/// What a panic's first bytes are: line, column, the lane's index in the workgroup, the workgroup's index, and the grid's workgroups
/// in x and y, four bytes each. The file's name follows, a text, and then the message.
pub const HEAD_WORDS: usize = 6;

/// What the function that formats a value is given, and how it shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub u16);

impl Tag {
    /// A value that only a function of the program can show.
    pub const UNKNOWN: Self = Self(0);
    /// A width or precision.
    pub const COUNT: Self = Self(u16::MAX);
    /// Kind of a `&dyn Debug`, whose table has the function.
    pub const DYN: u8 = 14;
    /// Kind of another message.
    pub const ARGUMENTS: u8 = 15;

    /// A value of this kind ([`tags`], or one of the kinds above), of `1 << size_log2` bytes where it is
    /// [`UNSIGNED`](tags::UNSIGNED), behind so many references (7 at most), which the trait of this number shows.
    pub const fn new(kind: u8, trait_: u8, size_log2: u8, references: u8) -> Self {
        Self(kind as u16 | (trait_ as u16) << 4 | (size_log2 as u16) << 8 | (references as u16) << 10)
    }

    /// The value's kind.
    #[inline(always)]
    pub const fn kind(self) -> u8 {
        self.0 as u8 & 15
    }

    /// The trait's number, one of [`TRAITS`].
    pub const fn trait_number(self) -> u8 {
        (self.0 >> 4) as u8 & 15
    }

    /// Bytes of an unsigned integer, as a power of two.
    #[inline(always)]
    pub const fn size_log2(self) -> u8 {
        (self.0 >> 8) as u8 & 3
    }

    /// References to follow from the one that the function gets.
    #[inline(always)]
    pub const fn references(self) -> u8 {
        (self.0 >> 10) as u8 & 7
    }
}

/// Traits that show values, by their numbers.
pub const TRAITS: [&str; 9] =
    ["Display", "Debug", "LowerHex", "UpperHex", "Octal", "Binary", "LowerExp", "UpperExp", "Pointer"];

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use on_host::{Panic, panic};

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod on_host {
    use super::*;
    use crate::parse::{Align, Count, Format, Piece, Placeholder, Spec, Trait};
    use crate::{MAX_ARGUMENTS, Value};
    use alloc::string::String;
    use alloc::vec::Vec;

    /// What stands for a value that is not known.
    const NOT_SHOWN: &str = "{a value that this kernel does not format}";

    /// What stands for the rest of a message that does not decode.
    const UNREADABLE: &str = "a panic whose message cannot be read";

    /// A panic that a device has sent.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Panic<'a> {
        /// See [`HEAD_WORDS`].
        pub head: [u32; HEAD_WORDS],
        /// The source file.
        pub file: &'a str,
        /// The message, formatted.
        pub message: String,
    }

    /// Reads a panic. Of a message that makes no sense it says so; `None` if not even place and lane are there.
    pub fn panic(bytes: &[u8]) -> Option<Panic<'_>> {
        let mut bytes = Bytes(bytes);
        let mut head = [0; HEAD_WORDS];
        for word in &mut head {
            *word = u32::from_le_bytes(bytes.take()?);
        }
        let file = core::str::from_utf8(bytes.text()?).ok()?;
        let message = bytes.message(0).unwrap_or_else(|| UNREADABLE.into());
        Some(Panic { head, file, message })
    }

    /// Bytes that are not read yet.
    struct Bytes<'a>(&'a [u8]);

    /// An argument as it was sent.
    enum Argument<'a> {
        Value(Trait, Value<'a>),
        Message(String),
        Unknown,
    }

    impl<'a> Bytes<'a> {
        fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
            let (first, rest) = self.0.split_first_chunk()?;
            self.0 = rest;
            Some(*first)
        }

        fn text(&mut self) -> Option<&'a [u8]> {
            let len = u16::from_le_bytes(self.take()?);
            let (text, rest) = self.0.split_at_checked(len.into())?;
            self.0 = rest;
            Some(text)
        }

        /// A message, `depth` deep in others.
        fn message(&mut self, depth: u32) -> Option<String> {
            let [kind] = self.take()?;
            let text = self.text()?;
            if kind == TEXT {
                return Some(String::from_utf8_lossy(text).into_owned());
            }
            let [count] = self.take()?;
            if kind != TEMPLATE || usize::from(count) > MAX_ARGUMENTS || depth > 1 {
                return None;
            }
            let mut arguments = Vec::new();
            for _ in 0..count {
                arguments.push(self.argument(depth)?);
            }
            let format = Format::of_template(text, |argument| match arguments.get(argument) {
                Some(Argument::Value(trait_, _)) => *trait_,
                _ => Trait::Display,
            })?;
            let values: Vec<_> = arguments.iter().map(Argument::value).collect();
            let mut message = Vec::new();
            format.render(&values, &mut message).ok()?;
            Some(String::from_utf8_lossy(&message).into_owned())
        }

        fn argument(&mut self, depth: u32) -> Option<Argument<'a>> {
            let tag = Tag(u16::from_le_bytes(self.take()?));
            if tag == Tag::COUNT {
                let count = u16::from_le_bytes(self.take()?);
                return Some(Argument::Value(Trait::Display, Value::Unsigned(count.into())));
            }
            let trait_ = trait_of(tag.trait_number())?;
            Some(match tag.kind() {
                0 => Argument::Unknown,
                Tag::ARGUMENTS => Argument::Message(self.message(depth + 1)?),
                tags::STR => {
                    let text = self.text()?;
                    // It may have been cut within a character.
                    let whole = match core::str::from_utf8(text) {
                        Ok(text) => text,
                        Err(error) => core::str::from_utf8(&text[..error.valid_up_to()]).ok()?,
                    };
                    Argument::Value(trait_, Value::Str(whole))
                }
                kind => {
                    let word = u64::from_le_bytes(self.take()?);
                    Argument::Value(trait_, Value::decode(kind, word, &mut &[][..])?)
                }
            })
        }
    }

    impl Argument<'_> {
        fn value(&self) -> Value<'_> {
            match self {
                Self::Value(_, value) => *value,
                Self::Message(message) => Value::Str(message),
                Self::Unknown => Value::Str(NOT_SHOWN),
            }
        }
    }

    fn trait_of(number: u8) -> Option<Trait> {
        use Trait::*;
        let traits = [Display, Debug, LowerHex, UpperHex, Octal, Binary, LowerExp, UpperExp, Pointer];
        traits.get(usize::from(number)).copied()
    }

    impl Format {
        /// The format of a template as Rust 1.96's compiler writes it (`core::fmt::Arguments`), whose arguments are shown by the
        /// trait that `trait_of` gives. `None` if it is none, or has too many arguments.
        fn of_template(template: &[u8], trait_of: impl Fn(usize) -> Trait) -> Option<Self> {
            let mut bytes = Bytes(template);
            let mut format = Self { text: String::new(), pieces: Vec::new() };
            let (mut text_start, mut next) = (0, 0u16);
            loop {
                let [kind] = bytes.take()?;
                let literal = match kind {
                    0 => break,
                    1..0x80 => {
                        let (text, rest) = bytes.0.split_at_checked(kind.into())?;
                        bytes.0 = rest;
                        text
                    }
                    0x80 => bytes.text()?,
                    0xc0.. => {
                        let placeholder = bytes.placeholder(kind, &mut next, &trait_of)?;
                        format.pieces.push(Piece { text_len: format.text.len() - text_start, placeholder });
                        text_start = format.text.len();
                        continue;
                    }
                    _ => return None,
                };
                format.text.push_str(core::str::from_utf8(literal).ok()?);
            }
            format
                .pieces
                .push(Piece { text_len: format.text.len() - text_start, placeholder: Placeholder::None });
            Some(format)
        }
    }

    impl Bytes<'_> {
        fn placeholder(
            &mut self,
            kind: u8,
            next: &mut u16,
            trait_of: impl Fn(usize) -> Trait,
        ) -> Option<Placeholder> {
            const PLAIN: u32 = ' ' as u32 | 3 << 29;
            let mut number = |bit: u8| -> Option<u16> {
                Some(if kind & bit != 0 { u16::from_le_bytes(self.take()?) } else { 0 })
            };
            let flags = if kind & 1 != 0 {
                let [low, high] = [number(1)?, number(1)?];
                u32::from(low) | u32::from(high) << 16
            } else {
                PLAIN
            };
            let [width, precision, index] = [number(2)?, number(4)?, number(8)?];
            let argument = if kind & 8 != 0 { index } else { *next };
            *next = argument.checked_add(1)?;
            let small =
                |argument: u16| u8::try_from(argument).ok().filter(|a| usize::from(*a) < MAX_ARGUMENTS);
            let count = |bit: u8, indirect: u8, count: u16| {
                Some(match (kind & bit != 0, kind & indirect != 0) {
                    (false, _) => Count::None,
                    (true, false) => Count::Fixed(count),
                    (true, true) => Count::Argument(small(count)?),
                })
            };
            let flag = |bit: u32| flags >> bit & 1 != 0;
            let trait_ = match trait_of(argument.into()) {
                Trait::Debug if flag(25) => Trait::DebugLowerHex,
                Trait::Debug if flag(26) => Trait::DebugUpperHex,
                trait_ => trait_,
            };
            Some(Placeholder::Spec(Spec {
                argument: small(argument)?,
                fill: char::from_u32(flags & 0x1f_ffff)?,
                align: match flags >> 29 & 3 {
                    0 => Some(Align::Left),
                    1 => Some(Align::Right),
                    2 => Some(Align::Center),
                    _ => None,
                },
                plus: flag(21),
                alternate: flag(23),
                zero: flag(24),
                width: count(2, 16, width)?,
                precision: count(4, 32, precision)?,
                trait_,
            }))
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use alloc::{format, vec};

        fn text(text: &[u8]) -> Vec<u8> {
            [&(text.len() as u16).to_le_bytes()[..], text].concat()
        }

        fn word(tag: Tag, word: u64) -> Vec<u8> {
            [&tag.0.to_le_bytes()[..], &word.to_le_bytes()].concat()
        }

        fn templated(template: &[u8], arguments: &[Vec<u8>]) -> Vec<u8> {
            [vec![TEMPLATE], text(template), vec![arguments.len() as u8], arguments.concat()].concat()
        }

        fn message(message: &[u8]) -> String {
            let head = [7, 9, 3, 21, 8, 2].map(u32::to_le_bytes).concat();
            let bytes = [head, text(b"src/lib.rs"), message.to_vec()].concat();
            let panic = panic(&bytes).unwrap();
            assert_eq!((panic.head, panic.file), ([7, 9, 3, 21, 8, 2], "src/lib.rs"));
            // Cut anywhere, it is no panic, or one whose message cannot be read.
            for len in 0..bytes.len() {
                let cut = super::panic(&bytes[..len]);
                assert!(cut.is_none_or(|cut| cut.message == UNREADABLE), "{len}");
            }
            panic.message
        }

        #[test]
        fn messages_are_formatted_as_rust_does() {
            let number = |trait_| Tag::new(tags::UNSIGNED, trait_, 3, 0);
            let simple = [&[4][..], b"lane", &[0xc0, 1], b"/", &[0xc0, 0]].concat();
            assert_eq!(message(&templated(&simple, &[word(number(0), 3), word(number(2), 255)])), "lane3/ff");
            // `{0:>+5}{0:#06x}{0:1$}`: a value that two traits show is sent twice.
            let right = (' ' as u32 | 1 << 29 | 1 << 21 | 1 << 27).to_le_bytes();
            let hex = (' ' as u32 | 3 << 29 | 1 << 23 | 1 << 24 | 1 << 27).to_le_bytes();
            let options =
                [&[0xc3][..], &right, &[5, 0], &[0xcb], &hex, &[6, 0, 2, 0], &[0xda, 1, 0, 0, 0, 0]].concat();
            let count = [Tag::COUNT.0.to_le_bytes(), [7, 0]].concat();
            let arguments = [word(number(0), 42), count, word(number(2), 42)];
            assert_eq!(message(&templated(&options, &arguments)), "  +420x002a     42");
            let debug = Tag::new(tags::STR, 1, 0, 1).0.to_le_bytes();
            let quoted = [&debug[..], &text("a\"é".as_bytes())].concat();
            assert_eq!(message(&templated(&[0xc0, 0], &[quoted])), r#""a\"é""#);
            let float = word(Tag::new(tags::F32, 1, 0, 0), 1.5f32.to_bits().into());
            let inner =
                [Tag::new(Tag::ARGUMENTS, 0, 0, 0).0.to_le_bytes().to_vec(), templated(&[0xc0, 0], &[float])];
            let unknown = Tag::UNKNOWN.0.to_le_bytes().to_vec();
            let outer = templated(&[0xc0, 1, b' ', 0xc0, 0], &[inner.concat(), unknown]);
            assert_eq!(message(&outer), format!("1.5 {NOT_SHOWN}"));
            assert_eq!(message(&[&[TEXT][..], &text(b"gives up")].concat()), "gives up");
        }

        #[test]
        fn what_makes_no_sense_is_said_to() {
            for bad in [
                &[2, 0, 0, 0][..],
                &[TEMPLATE, 1, 0, 0x81, 0],
                &[TEMPLATE, 1, 0, 0xc0, 0],
                &[TEMPLATE, 1, 0, 0, 13],
            ] {
                assert_eq!(message(bad), UNREADABLE, "{bad:?}");
            }
            // An argument that is not there.
            assert_eq!(message(&templated(&[0xc0, 0], &[])), UNREADABLE);
            assert_eq!(panic(&[0; 20]), None);
        }
    }
}
