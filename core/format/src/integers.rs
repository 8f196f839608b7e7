//! Lines of integers shown by `{}`, as most lines are: what each argument is, how long a line gets at most and how its
//! text lies in blocks is found out once. [`Format::render_words`] takes three times as long for the same.

use crate::parse::{Format, Placeholder};
use crate::{RenderError, tags};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Bytes that are gathered before they are written. Clearing so much costs a run of a few lines little.
const BUFFER: usize = 1 << 10;

/// Bytes of literal text that are copied at once, needed or not.
const BLOCK: usize = 16;

/// Longest line: several fit the buffer.
const MAX_LINE: usize = 256;

/// Longest integer, with its sign.
const MAX_INTEGER: usize = 20;

const E6: u64 = 1_000_000;

/// A format whose placeholders are all `{}`, for integers of known types.
#[derive(Clone, Debug)]
pub struct IntegerLine {
    arguments: usize,
    head: Literal,
    parts: Vec<Part>,
    /// Bytes of the buffer that rendering a line touches at most.
    room: usize,
}

/// An integer and the text that follows it.
#[derive(Clone, Debug)]
struct Part {
    argument: usize,
    /// For a signed type, how many negative values it has; 0 for an unsigned one.
    negatives: u64,
    literal: Literal,
}

/// Text in blocks, the last of which is filled up.
#[derive(Clone, Debug)]
struct Literal {
    len: usize,
    first: [u8; BLOCK],
    others: Box<[[u8; BLOCK]]>,
}

impl Literal {
    fn new(text: &[u8]) -> Self {
        let block = |text: &[u8]| {
            let mut block = [0; BLOCK];
            block[..text.len()].copy_from_slice(text);
            block
        };
        let (first, others) = text.split_at(text.len().min(BLOCK));
        Self { len: text.len(), first: block(first), others: others.chunks(BLOCK).map(block).collect() }
    }
}

impl IntegerLine {
    /// A format for arguments of these types; `None` unless its lines are short, its placeholders `{}` and what they
    /// show integers.
    pub fn new(format: &Format, tags: u64) -> Option<Self> {
        let mut text = format.text.as_bytes();
        let mut literal = |len| {
            let (literal, rest) = text.split_at(len);
            text = rest;
            Literal::new(literal)
        };
        let (first, others) = format.pieces.split_first()?;
        let head = literal(first.text_len);
        let mut before = &first.placeholder;
        let mut parts = Vec::new();
        for piece in others {
            let Placeholder::Plain(argument) = before else { return None };
            let argument = usize::from(*argument);
            let negatives = match tags::get(tags, argument) {
                tags::UNSIGNED => 0,
                tags::I8 => 1 << 7,
                tags::I16 => 1 << 15,
                tags::I32 => 1 << 31,
                tags::I64 => 1 << 63,
                _ => return None,
            };
            parts.push(Part { argument, negatives, literal: literal(piece.text_len) });
            before = &piece.placeholder;
        }
        let room = format.text.len() + MAX_INTEGER * parts.len() + size_of::<Room>();
        let arguments = tags::count(tags);
        let fits = room <= MAX_LINE && parts.iter().all(|part| part.argument < arguments);
        fits.then_some(Self { arguments, head, parts, room })
    }

    /// Arguments of a line.
    pub fn arguments(&self) -> usize {
        self.arguments
    }
}

/// Renders lines of one format, and gives many of them at once to `write`. [`Lines::finish`] gives it the last.
pub struct Lines<'a, W: FnMut(&[u8])> {
    line: &'a IntegerLine,
    buffer: [u8; BUFFER],
    len: usize,
    write: W,
}

impl<'a, W: FnMut(&[u8])> Lines<'a, W> {
    /// No lines.
    #[inline]
    pub fn new(line: &'a IntegerLine, write: W) -> Self {
        Self { line, buffer: [0; BUFFER], len: 0, write }
    }

    /// Renders a line whose arguments are these words, as [`Format::render_words`] does. On error it leaves none.
    ///
    /// # Errors
    /// [`RenderError::Decode`] when the words are not as many as the tags, or one that is shown is out of its type's
    /// range.
    #[inline(always)]
    pub fn push(&mut self, words: &[u64]) -> Result<(), RenderError> {
        let line = self.line;
        if words.len() != line.arguments {
            return Err(RenderError::Decode);
        }
        if self.len + line.room > BUFFER {
            (self.write)(&self.buffer[..self.len]);
            self.len = 0;
        }
        let buffer = &mut self.buffer;
        let mut at = put_literal(buffer, self.len, &line.head);
        for part in &line.parts {
            let word = words[part.argument];
            let mut magnitude = word;
            if part.negatives != 0 {
                if word.wrapping_add(part.negatives) > (part.negatives << 1).wrapping_sub(1) {
                    return Err(RenderError::Decode);
                }
                magnitude = word.cast_signed().unsigned_abs();
                buffer[at] = b'-';
                at += usize::from(word.cast_signed() < 0);
            }
            if magnitude >= E6 {
                at = put_large(buffer, at, magnitude);
                at = put_literal(buffer, at, &part.literal);
                continue;
            }
            let room = room(buffer, at);
            let len = put_small(room, magnitude);
            room[len..len + BLOCK].copy_from_slice(&part.literal.first);
            if part.literal.len > BLOCK {
                put_others(buffer, at + len + BLOCK, &part.literal);
            }
            at += len + part.literal.len;
        }
        self.len = at;
        Ok(())
    }

    /// Gives the last lines to `write`.
    #[inline]
    pub fn finish(mut self) {
        if self.len > 0 {
            (self.write)(&self.buffer[..self.len]);
        }
    }
}

/// Where an integer below 10⁶ and a block go; its bounds are checked once for both.
type Room = [u8; 7 + BLOCK];

#[inline(always)]
fn room(buffer: &mut [u8; BUFFER], at: usize) -> &mut Room {
    buffer[at..].first_chunk_mut().expect("a line has room")
}

#[inline(always)]
fn put_literal(buffer: &mut [u8; BUFFER], at: usize, literal: &Literal) -> usize {
    buffer[at..at + BLOCK].copy_from_slice(&literal.first);
    if literal.len > BLOCK {
        put_others(buffer, at + BLOCK, literal);
    }
    at + literal.len
}

#[inline(always)]
fn put_others(buffer: &mut [u8; BUFFER], mut at: usize, literal: &Literal) {
    for block in &literal.others {
        buffer[at..at + BLOCK].copy_from_slice(block);
        at += BLOCK;
    }
}

/// Writes an integer of more than six digits. Returns where it ends.
#[inline(never)]
fn put_large(buffer: &mut [u8; BUFFER], at: usize, value: u64) -> usize {
    let (high, low) = (value / E6, value % E6);
    let at = if high < E6 { at + put_small(room(buffer, at), high) } else { put_large(buffer, at, high) };
    let room = room(buffer, at);
    put(room, 0, three_digits(low / 1000));
    put(room, 3, three_digits(low % 1000));
    at + 6
}

/// Writes an integer below 10⁶. Returns its length; what is written behind it means nothing.
#[inline(always)]
fn put_small(room: &mut Room, value: u64) -> usize {
    if value < 1000 {
        return put_leading(room, value);
    }
    let len = put_leading(room, value / 1000);
    put(room, len, three_digits(value % 1000));
    len + 3
}

/// Writes an integer below 1000 as [`put_small`] does.
#[inline(always)]
fn put_leading(room: &mut Room, value: u64) -> usize {
    let digits = three_digits(value);
    let zeros = (digits >> 24 & 3) as usize;
    put(room, 0, digits >> (8 * zeros));
    3 - zeros
}

#[inline(always)]
fn put(room: &mut Room, at: usize, text: u32) {
    room[at..at + 4].copy_from_slice(&text.to_le_bytes());
}

/// Three digits, the first in the lowest byte, and in the highest how many leading zeros they have; the last digit is
/// none.
#[inline(always)]
fn three_digits(value: u64) -> u32 {
    THREE_DIGITS[value as usize]
}

static THREE_DIGITS: [u32; 1000] = {
    let mut table = [0; 1000];
    let mut i = 0;
    while i < table.len() {
        let zeros = if i < 10 { 2 } else { (i < 100) as u8 };
        table[i] = u32::from_le_bytes([
            b'0' + (i / 100) as u8,
            b'0' + (i / 10 % 10) as u8,
            b'0' + (i % 10) as u8,
            zeros,
        ]);
        i += 1;
    }
    table
};
