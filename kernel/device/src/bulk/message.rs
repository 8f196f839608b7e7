//! What a call with bytes sends.

use crate::target::{self, Lent};
use hostcall_abi::word::{BytesHead, LEAST_MESSAGE_TO_FETCH};
use hostcall_channel::device::Slot;

/// A message: argument words, then slices. By value everywhere: what a reference leads to lies in memory, and each call's fences
/// empty the cache.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    pub words: &'a [u64],
    /// Slices that travel in packets.
    input: &'a [&'a [u8]],
    /// The one slice that stays where it is, if the host fetches it.
    pub lent: &'a [u8],
    /// Bytes that travel in the area.
    pub bytes: usize,
}

impl<'a> Message<'a> {
    /// Where the call is made, how many slices there are is known, and no loop counts their bytes.
    #[inline(always)]
    pub fn new(words: &'a [u64], input: &'a [&'a [u8]]) -> Self {
        let mut message = Self { words, input, lent: &[], bytes: 0 };
        message.bytes =
            size_of_val(message.words_in_area()) + input.iter().map(|slice| slice.len()).sum::<usize>();
        message
    }

    /// Lets the host fetch the slice, if that is worth it and there is one alone: `lanes` send side by side, and the host
    /// fetches for one after the other.
    #[inline(always)]
    pub fn lend(self, lanes: u32) -> (Self, Lent) {
        if let [slice] = self.input
            && target::HOST_COPIES
            && slice.len() >= LEAST_MESSAGE_TO_FETCH * lanes as usize
        {
            let lent = Lent::message(slice);
            if lent.address() != 0 {
                return (Self { input: &[], lent: slice, bytes: self.bytes - slice.len(), ..self }, lent);
            }
        }
        (self, Lent::NONE)
    }

    /// The argument words, if they are so few that they travel with the head.
    #[inline(always)]
    pub fn words_in_line(self) -> [u64; BytesHead::LINE_WORDS] {
        match *self.words {
            [a] => [a, 0],
            [a, b] => [a, b],
            _ => [0; _],
        }
    }

    /// The argument words otherwise.
    #[inline(always)]
    fn words_in_area(&self) -> &'a [u64] {
        if self.words.len() <= BytesHead::LINE_WORDS { &[] } else { self.words }
    }

    /// Writes the whole message to `at` in the byte area, a multiple of 8.
    #[inline(always)]
    pub fn write(self, slot: Slot<'static>, at: usize) {
        match self.input {
            [] => self.write_words(slot, at),
            [slice] => {
                self.write_words(slot, at);
                slot.write_bulk(at + size_of_val(self.words_in_area()), slice);
            }
            _ => self.write_part(slot, at, 0, self.bytes),
        }
    }

    #[inline(always)]
    fn write_words(self, slot: Slot<'static>, at: usize) {
        for (i, word) in self.words_in_area().iter().enumerate() {
            slot.write_bulk_word(at + i * 8, *word);
        }
    }

    /// Writes bytes `from..to` of the message to `at` in the byte area. `from` and `at` are multiples of 8.
    #[inline(never)]
    pub fn write_part(self, slot: Slot<'static>, at: usize, from: usize, to: usize) {
        let mut writer = Writer { slot: &slot, at, part: 0, filled: 0 };
        let mut offset = 0;
        let mut put = |bytes: &[u8]| {
            let start = from.clamp(offset, offset + bytes.len()) - offset;
            let end = to.clamp(offset, offset + bytes.len()) - offset;
            writer.put(&bytes[start..end.max(start)]);
            offset += bytes.len();
        };
        for word in self.words_in_area() {
            put(&word.to_le_bytes());
        }
        for slice in self.input {
            put(slice);
        }
        writer.flush();
    }
}

/// Packs a run of slices into whole words of the byte area.
struct Writer<'m> {
    slot: &'m Slot<'static>,
    at: usize,
    /// The first bytes of a word, and how many. No array: what is indexed lies on the stack, whose place ptxas takes to be the same
    /// for all lanes that run a function together, which it is not for those that came to it through different functions.
    part: u64,
    filled: usize,
}

impl Writer<'_> {
    fn put(&mut self, mut bytes: &[u8]) {
        if self.filled > 0 {
            let take = bytes.len().min(8 - self.filled);
            self.add(&bytes[..take]);
            bytes = &bytes[take..];
            if self.filled < 8 {
                return;
            }
            self.flush();
        }
        let whole = bytes.len() / 8 * 8;
        self.slot.write_bulk(self.at, &bytes[..whole]);
        self.at += whole;
        self.add(&bytes[whole..]);
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.part |= u64::from(*byte) << (8 * self.filled);
            self.filled += 1;
        }
    }

    fn flush(&mut self) {
        if self.filled > 0 {
            self.slot.write_bulk_word(self.at, self.part);
            self.at += 8;
            (self.part, self.filled) = (0, 0);
        }
    }
}
