//! The block of arguments: which there are, where they lie, and their values.

use super::{Format, Layout, RenderError};
use alloc::vec::Vec;

/// The types that C's default argument promotions leave, by what matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// 4 bytes.
    Int,
    /// 8 bytes: `long`, `long long`, `size_t`, `intmax_t`, `ptrdiff_t`.
    Long,
    /// 8 bytes; `long double` too, which devices do not have.
    Double,
    /// 8 bytes.
    Pointer,
}

impl Type {
    fn bytes(self) -> usize {
        if self == Type::Int { 4 } else { 8 }
    }
}

/// An argument's type and its places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Argument {
    type_: Type,
    natural: usize,
    packed: usize,
    word: usize,
}

impl Argument {
    fn at(&self, layout: Layout) -> usize {
        match layout {
            Layout::Natural => self.natural,
            Layout::Packed => self.packed,
            Layout::Words => 8 * self.word,
        }
    }

    fn end(&self, layout: Layout) -> usize {
        match layout {
            Layout::Natural | Layout::Packed => self.at(layout) + self.type_.bytes(),
            Layout::Words => self.at(layout) + 8,
        }
    }
}

/// Places arguments of these types, in their order.
pub(super) fn place(types: impl IntoIterator<Item = Type>) -> Vec<Argument> {
    let (mut natural, mut packed, mut word) = (0usize, 0, 0);
    let place = |type_: Type| {
        let bytes = type_.bytes();
        let argument = Argument { type_, natural: natural.next_multiple_of(bytes), packed, word };
        natural = argument.natural + bytes;
        packed += bytes;
        word += 1;
        argument
    };
    types.into_iter().map(place).collect()
}

/// A block of the right length.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    arguments: &'a [Argument],
    layout: Layout,
    block: &'a [u8],
}

impl Values<'_> {
    fn bytes<const N: usize>(&self, argument: usize) -> [u8; N] {
        let at = self.arguments[argument].at(self.layout);
        *self.block[at..].first_chunk().expect("the block's length was checked")
    }

    /// An `int`.
    pub fn int(&self, argument: usize) -> i32 {
        i32::from_le_bytes(self.bytes(argument))
    }

    /// An argument of 8 bytes, or an `int` with its sign.
    pub fn word(&self, argument: usize) -> u64 {
        match self.arguments[argument].type_ {
            Type::Int => i64::from(self.int(argument)) as u64,
            _ => u64::from_le_bytes(self.bytes(argument)),
        }
    }

    /// A `double`.
    pub fn double(&self, argument: usize) -> f64 {
        f64::from_bits(self.word(argument))
    }
}

impl Format {
    /// Bytes of the block of arguments.
    pub fn block_bytes(&self, layout: Layout) -> usize {
        self.arguments.last().map_or(0, |last| last.end(layout))
    }

    /// The addresses of the strings to print, in the order of their conversions; 0 is C's null pointer.
    ///
    /// # Errors
    /// [`RenderError::Block`] when the block is shorter than [`Format::block_bytes`].
    pub fn strings(&self, layout: Layout, block: &[u8]) -> Result<Vec<u64>, RenderError> {
        let values = self.values(layout, block)?;
        Ok(self.string_arguments().map(|argument| values.word(argument)).collect())
    }

    pub(super) fn values<'a>(&'a self, layout: Layout, block: &'a [u8]) -> Result<Values<'a>, RenderError> {
        let expected = self.block_bytes(layout);
        if block.len() < expected {
            return Err(RenderError::Block { expected, given: block.len() });
        }
        Ok(Values { arguments: &self.arguments, layout, block })
    }

    /// Appends the line to `out` and returns its length in bytes. Each argument has a word of `words`, but that of a string
    /// is its text, which a zero byte ends, in whole words; words that are left do not matter. On error `out` is as before.
    ///
    /// # Errors
    /// [`RenderError`] when there are too few words, or the line cannot be made.
    pub fn render_words(&self, words: &[u64], out: &mut Vec<u8>) -> Result<usize, RenderError> {
        let mut is_string = alloc::vec![false; self.arguments.len()];
        self.string_arguments().for_each(|argument| is_string[argument] = true);
        let mut block = Vec::with_capacity(self.block_bytes(Layout::Words));
        let mut texts = alloc::vec![Vec::new(); self.arguments.len()];
        let mut rest = words;
        for (is_string, text) in is_string.iter().zip(&mut texts) {
            let Some((word, after)) = rest.split_first() else { break };
            block.extend_from_slice(&word.to_le_bytes());
            if *is_string {
                text.extend(rest.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0));
                rest = rest.get(text.len() / 8 + 1..).unwrap_or_default();
            } else {
                rest = after;
            }
        }
        let strings: Vec<Option<&[u8]>> =
            self.string_arguments().map(|argument| Some(&*texts[argument])).collect();
        self.render(Layout::Words, &block, &strings, out)
    }
}
