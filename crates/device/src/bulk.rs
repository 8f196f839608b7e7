//! Calls whose message or reply is longer than a line: through the slot's bulk area, in pieces if need be.
//!
//! When every lane's message and reply fit its share of the area, one packet carries them all. Otherwise the
//! lanes take turns, each with the whole area.

use crate::call::{CallOptions, MAX_TYPED_WORDS, enter, site};
use crate::group::Group;
use crate::packet::{self, Head};
use crate::target;
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::wire::Wire;
use hostcall_abi::word::{BYTES_RESULT_WORDS, BytesHead, Kind, Line, check_of};
use hostcall_channel::device::Slot;

/// A message: argument words, then slices.
struct Message<'a> {
    words: &'a [u64],
    input: &'a [&'a [u8]],
}

impl Message<'_> {
    fn len(&self) -> usize {
        self.words.len() * 8 + self.input.iter().map(|slice| slice.len()).sum::<usize>()
    }

    /// Writes bytes `from..to` of the message to `at` in the bulk area. `from` and `at` are multiples of 8.
    fn write(&self, slot: Slot<'_>, at: usize, from: usize, to: usize) {
        let mut writer = Writer { slot, at, part: [0; 8], filled: 0 };
        let mut offset = 0;
        let mut put = |bytes: &[u8]| {
            let start = from.clamp(offset, offset + bytes.len()) - offset;
            let end = to.clamp(offset, offset + bytes.len()) - offset;
            writer.put(&bytes[start..end.max(start)]);
            offset += bytes.len();
        };
        for word in self.words {
            put(&word.to_le_bytes());
        }
        for slice in self.input {
            put(slice);
        }
        writer.flush();
    }
}

/// Packs a run of slices into whole words of the bulk area.
struct Writer<'m> {
    slot: Slot<'m>,
    at: usize,
    part: [u8; 8],
    filled: usize,
}

impl Writer<'_> {
    fn put(&mut self, mut bytes: &[u8]) {
        if self.filled > 0 {
            let take = bytes.len().min(8 - self.filled);
            self.part[self.filled..self.filled + take].copy_from_slice(&bytes[..take]);
            self.filled += take;
            bytes = &bytes[take..];
            if self.filled < 8 {
                return;
            }
            self.flush();
        }
        let whole = bytes.len() / 8 * 8;
        self.slot.write_bulk(self.at, &bytes[..whole]);
        self.at += whole;
        self.filled = bytes.len() - whole;
        self.part[..self.filled].copy_from_slice(&bytes[whole..]);
    }

    fn flush(&mut self) {
        self.slot.write_bulk(self.at, &self.part[..self.filled]);
        self.at += self.filled.next_multiple_of(8);
        self.filled = 0;
    }
}

pub(crate) fn call<A: Wire, R: Wire>(
    method: &Method,
    options: CallOptions,
    arguments: &A,
    input: &[&[u8]],
    output: &mut [u8],
) -> Result<(R, usize), CallError> {
    const { assert!(A::WORDS <= MAX_TYPED_WORDS && R::WORDS <= MAX_TYPED_WORDS, "too many words for a call") };
    let mut words = [0; MAX_TYPED_WORDS];
    arguments.to_words(&mut words[..A::WORDS]);
    let message = Message { words: &words[..A::WORDS], input };
    let mut result = [0; MAX_TYPED_WORDS];
    let filled = call_words(method, options, &message, &mut result[..R::WORDS], output)?;
    let result = R::from_words(&result).ok_or(CallError::Malformed)?;
    Ok((result, filled))
}

/// The part of a call that is the same for all types, so that a kernel has it once.
#[inline(never)]
fn call_words(
    method: &Method,
    options: CallOptions,
    message: &Message<'_>,
    result: &mut [u64],
    output: &mut [u8],
) -> Result<usize, CallError> {
    enter(target::here())?;
    let group = Group::converge(site(method.number, check_of(method.schema), Kind::Bytes));
    let capacity = result.len() * 8 + output.len();
    let (slot, glance) = packet::hold(group);
    let filled = {
        let share = slot.region().layout().bulk_share(group.count);
        let (argument_words, result_words) = (message.words.len(), result.len());
        let lane = Exchange { slot, method, options, argument_words, result_words, capacity };
        if group.all(message.len() <= share && capacity <= share) {
            lane.run(group, message, result, output)
        } else {
            let mut filled = Err(CallError::Malformed);
            for turn in 0..group.count {
                if turn == group.rank {
                    filled = lane.run(Group::alone(), message, result, output);
                }
                group.sync();
            }
            filled
        }
    };
    packet::release(group);
    if glance.cancelled && filled == Err(CallError::Cancelled) {
        target::exit_lane();
    }
    filled
}

struct Exchange<'a> {
    slot: Slot<'static>,
    method: &'a Method,
    options: CallOptions,
    argument_words: usize,
    result_words: usize,
    capacity: usize,
}

impl Exchange<'_> {
    #[inline(never)]
    fn packet(&self, group: Group, kind: Kind, words: [u64; BytesHead::WORDS]) -> Result<Line, CallError> {
        let head = Head {
            service: self.method.number,
            check: check_of(self.method.schema),
            kind,
            argument_words: BytesHead::WORDS as u8,
            result_words: BYTES_RESULT_WORDS as u8,
            timeout_us: self.options.timeout_us,
        };
        let mut line = Line::default();
        line.words[..BytesHead::WORDS].copy_from_slice(&words);
        packet::exchange(self.slot, self.slot.glance(), group, head, line)
    }

    /// Sends the message, in pieces if it is longer than the lane's share, and fetches the reply likewise:
    /// result words into `words`, bytes into `output`. Returns the bytes of `output` that were filled.
    #[inline(never)]
    fn run(
        &self,
        group: Group,
        message: &Message<'_>,
        words: &mut [u64],
        output: &mut [u8],
    ) -> Result<usize, CallError> {
        let share = self.slot.region().layout().bulk_share(group.count);
        let base = group.rank as usize * share;
        let total = message.len();
        let mut sent = 0;
        let mut reply;
        loop {
            let piece = (total - sent).min(share);
            message.write(self.slot, base, sent, sent + piece);
            self.slot.publish_bulk();
            let head = BytesHead {
                piece_bytes: piece as u64,
                total_bytes: total as u64,
                argument_words: self.argument_words as u16,
                reply_capacity: (self.capacity - self.result_words * 8) as u64,
            };
            sent += piece;
            let kind = if sent == total { Kind::Bytes } else { Kind::BytesMore };
            reply = self.packet(group, kind, head.to_words())?;
            if sent == total {
                break;
            }
        }
        let reply_bytes = reply.words[0] as usize;
        if reply_bytes > self.capacity || reply_bytes < self.result_words * 8 {
            return Err(CallError::Malformed);
        }
        let mut taken = 0;
        loop {
            let piece = (reply_bytes - taken).min(share);
            self.take(base, taken, piece, words, output);
            taken += piece;
            if taken == reply_bytes {
                return Ok(reply_bytes - self.result_words * 8);
            }
            // The host overwrites the piece that was just read.
            self.slot.publish_bulk();
            self.packet(group, Kind::BytesFetch, [taken as u64, 0, 0])?;
        }
    }

    /// Takes bytes `from..from + piece` of the reply from the bulk area. `from` is a multiple of 8.
    fn take(&self, base: usize, from: usize, piece: usize, words: &mut [u64], output: &mut [u8]) {
        let words_end = self.result_words * 8;
        let mut at = from;
        while at < words_end && at < from + piece {
            let mut word = [0; 8];
            self.slot.read_bulk(base + at - from, &mut word);
            words[at / 8] = u64::from_le_bytes(word);
            at += 8;
        }
        if at < from + piece {
            self.slot.read_bulk(base + at - from, &mut output[at - words_end..from + piece - words_end]);
        }
    }
}
