//! Calls whose message or reply is longer than a line: through the slot's byte area, or a large area that the
//! call borrows if one is free.
//!
//! The lanes of a packet share the area. A message that does not fit a lane's share travels in pieces, of all
//! lanes that have more at once. Where the shares are tiny, lanes take turns, each with the whole area. A
//! reply that does not fit is read where the host has it, in memory that it lends to the lane.
//!
//! The fences of these calls empty a GPU's first-level cache, so that each value on the stack takes hundreds of cycles to
//! read afterwards. So a message of one packet, as most are, goes through code that is all in one function
//! ([`Exchange::run`]), where what follows the fence is in registers.

use crate::call::{CallOptions, MAX_TYPED_WORDS, enter, site};
use crate::group::Group;
use crate::packet::{self, Head, Held, Look};
use crate::pull::take_lent_in_turn;
use crate::target::{self, Lent};
use core::mem::MaybeUninit;
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::wire::Wire;
use hostcall_abi::word::{
    BytesHead, Kind, LEAST_MESSAGE_TO_FETCH, LEAST_REPLY_TO_PULL, LEAST_REPLY_TO_PUT, Line, REPLY_IS_THERE,
    ReplyAt, bytes_result_words, check_of, reply_bytes_at,
};
use hostcall_channel::device::{Slot, see_put, take_lent};

/// A share is large enough for pieces from so many bytes on.
const LEAST_PIECE: usize = 512;

/// A message: argument words, then slices.
struct Message<'a> {
    words: &'a [u64],
    /// Slices that travel in packets.
    input: &'a [&'a [u8]],
    /// The one slice that stays where it is, if the host fetches it.
    lent: &'a [u8],
}

impl Message<'_> {
    /// Lets the host fetch the slice, if that is worth it and there is one alone: `lanes` send side by side, and the host
    /// fetches for one after the other.
    fn lend(&mut self, lanes: u32) -> Lent {
        if let [slice] = self.input
            && target::HOST_COPIES
            && slice.len() >= LEAST_MESSAGE_TO_FETCH * lanes as usize
        {
            let lent = Lent::message(slice);
            if lent.address() != 0 {
                (self.input, self.lent) = (&[], slice);
            }
            return lent;
        }
        Lent::NONE
    }

    /// The argument words, if they are so few that they travel with the head.
    #[inline(always)]
    fn words_in_line(&self) -> [u64; BytesHead::LINE_WORDS] {
        match *self.words {
            [a] => [a, 0],
            [a, b] => [a, b],
            _ => [0; _],
        }
    }

    /// The argument words otherwise.
    #[inline(always)]
    fn words_in_area(&self) -> &[u64] {
        if self.words.len() <= BytesHead::LINE_WORDS { &[] } else { self.words }
    }

    /// Bytes that travel in the area.
    fn len(&self) -> usize {
        size_of_val(self.words_in_area()) + self.input.iter().map(|slice| slice.len()).sum::<usize>()
    }

    /// Writes the whole message to `at` in the byte area, a multiple of 8.
    #[inline(always)]
    fn write(&self, slot: Slot<'static>, at: usize) {
        match self.input {
            [] => self.write_words(slot, at),
            [slice] => {
                self.write_words(slot, at);
                slot.write_bulk(at + size_of_val(self.words_in_area()), slice);
            }
            _ => self.write_part(&slot, at, 0, self.len()),
        }
    }

    #[inline(always)]
    fn write_words(&self, slot: Slot<'static>, at: usize) {
        for (i, word) in self.words_in_area().iter().enumerate() {
            slot.write_bulk_word(at + i * 8, *word);
        }
    }

    /// Writes bytes `from..to` of the message to `at` in the byte area. `from` and `at` are multiples of 8.
    #[inline(never)]
    fn write_part(&self, slot: &Slot<'static>, at: usize, from: usize, to: usize) {
        let mut writer = Writer { slot, at, part: 0, filled: 0 };
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

/// Room for the most words of a call. All of it zeroed, or copied, would go byte by byte on a GPU.
struct Room([MaybeUninit<u64>; MAX_TYPED_WORDS]);

impl Room {
    #[inline(always)]
    fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; MAX_TYPED_WORDS])
    }

    /// The first `count` words, which are 0.
    #[inline(always)]
    fn zeroed(&mut self, count: usize) -> &mut [u64] {
        let words = &mut self.0[..count];
        for word in &mut *words {
            word.write(0);
        }
        // SAFETY: each was written.
        unsafe { words.assume_init_mut() }
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

#[inline(always)]
pub(crate) fn call<A: Wire, R: Wire>(
    method: &Method,
    options: CallOptions,
    arguments: &A,
    input: &[&[u8]],
    output: &mut [u8],
) -> Result<(R, usize), CallError> {
    const { assert!(A::WORDS <= MAX_TYPED_WORDS && R::WORDS <= MAX_TYPED_WORDS, "too many words for a call") };
    let mut room = Room::new();
    let words = room.zeroed(A::WORDS);
    arguments.to_words(words);
    let message = Message { words, input, lent: &[] };
    let mut room = Room::new();
    let words = room.zeroed(R::WORDS);
    // A kernel that takes no bytes, of which most only send a panic's message, has nothing of what that needs: shared memory
    // among others. No pointers to functions: what one may call, every kernel has that calls by any pointer.
    let (service, check, timeout_us) = (method.number, check_of(method.schema), options.timeout_us);
    const FEW: usize = bytes_result_words(0);
    const MANY: usize = bytes_result_words(MAX_TYPED_WORDS);
    let filled = match (output.is_empty(), bytes_result_words(R::WORDS) == FEW) {
        (true, true) => call_words::<false, FEW>(service, check, timeout_us, message, words, output)?,
        (true, false) => call_words::<false, MANY>(service, check, timeout_us, message, words, output)?,
        (false, true) => call_words::<true, FEW>(service, check, timeout_us, message, words, output)?,
        (false, false) => call_words::<true, MANY>(service, check, timeout_us, message, words, output)?,
    };
    let result = R::from_words(words).ok_or(CallError::Malformed)?;
    Ok((result, filled))
}

/// The part of a call that is the same for all types, so that a kernel has it once; more often, if some of its calls have
/// `output` and others have none, or `ANSWER_WORDS` ([`bytes_result_words`]) differ.
#[inline(never)]
fn call_words<const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(
    service: u16,
    check: u32,
    timeout_us: u32,
    mut message: Message<'_>,
    result: &mut [u64],
    output: &mut [u8],
) -> Result<usize, CallError> {
    enter(target::here())?;
    // Lanes with output and lanes without run code of their own.
    let site = site(service, check, Kind::Bytes) | u64::from(HAS_OUTPUT) << 24;
    Group::meet(site, Err(CallError::Malformed), |group| {
        let capacity = result.len() * 8 + output.len();
        let held = packet::hold(group);
        let glance = held.glance;
        let slot = packet::held_slot(group.here, held);
        let (argument_words, result_words) = (message.words.len(), result.len());
        let lent_message = message.lend(group.count);
        let message = &message;
        let bytes_at = lent_message.address();
        let is_lent = HAS_OUTPUT && target::HOST_COPIES && output.len() >= target::LEAST_REPLY_TO_LEND;
        let lent_room = if is_lent { Lent::room(output) } else { Lent::NONE };
        // Lanes ask side by side, and pull one after the other.
        let pulls =
            is_lent && output.len() >= LEAST_REPLY_TO_PUT * group.count as usize && held.extra().is_none();
        let most_to_pull = if pulls { target::most_to_pull() } else { 0 };
        let reply_at = ReplyAt::new(lent_room.address(), most_to_pull);
        let lane = Exchange {
            held,
            slot,
            area: None,
            service,
            check,
            timeout_us,
            argument_words,
            result_words,
            capacity,
            bytes_at,
            reply_at,
        };
        let (share, _) = lane.share(group);
        let filled = match group.all(lane.least_share(message, output) <= share) {
            true => lane.run::<HAS_OUTPUT, ANSWER_WORDS>(group, message, 0, result, output),
            false => lane.run_large::<HAS_OUTPUT, ANSWER_WORDS>(group, message, result, output),
        };
        packet::release(group, held);
        // The wave may have given up the slot's call before, whose bytes these may be.
        if glance.cancelled {
            target::exit_lane();
        }
        filled
    })
}

struct Exchange {
    held: Held,
    slot: Slot<'static>,
    /// The large area in use.
    area: Option<u32>,
    service: u16,
    check: u32,
    timeout_us: u32,
    argument_words: usize,
    result_words: usize,
    capacity: usize,
    /// [`BytesHead::bytes_at`].
    bytes_at: u64,
    /// [`BytesHead::reply_at`].
    reply_at: ReplyAt,
}

impl Exchange {
    /// Uses a large area for the call, if the channel has one that is free.
    #[inline(never)]
    fn borrow_area(&mut self, group: Group) {
        const NONE: u64 = u64::MAX;
        let channel = packet::channel(group.here);
        let mut area = NONE;
        if group.is_leader() {
            let hint = group.here.hardware_place();
            area = channel.areas().claim(hint).map_or(NONE, u64::from);
        }
        let area = group.of_leader(area);
        if area != NONE {
            let (at, bytes) = channel.area(area as u32);
            self.slot.use_area(at, bytes);
            self.area = Some(area as u32);
        }
    }

    /// Gives the large area back, after every lane is done with it.
    #[inline(never)]
    fn return_area(&self, group: Group) {
        if let Some(area) = self.area {
            group.sync();
            // The host may still write into the area of a call that it has lost.
            if group.is_leader() && !self.slot.is_lost() {
                packet::channel(group.here).areas().release(area);
            }
        }
    }

    /// Sends a packet that says that `from..to` of the message are in the area, and waits for the answer.
    #[inline(always)]
    fn packet<const ANSWER_WORDS: usize>(
        &self,
        group: Group,
        kind: Kind,
        message: &Message<'_>,
        from: usize,
        to: usize,
    ) -> Result<Line, CallError> {
        // As many on each device, so that the code has no loops of unknown length.
        let head_words = if target::HOST_COPIES { BytesHead::WORDS } else { BytesHead::SHORT_WORDS };
        let head = Head {
            service: self.service,
            check: self.check,
            kind,
            argument_words: (head_words + BytesHead::LINE_WORDS) as u8,
            result_words: ANSWER_WORDS as u8,
            timeout_us: self.timeout_us,
        };
        let of_bytes = BytesHead {
            begins: from == 0,
            piece_bytes: (to - from) as u32,
            area: self.area,
            total_bytes: (message.len() + message.lent.len()) as u64,
            argument_words: self.argument_words as u16,
            reply_capacity: (self.capacity - self.result_words * 8) as u64,
            bytes_at: self.bytes_at,
            reply_at: self.reply_at,
        };
        let [a, b, c, d, e] = of_bytes.to_words();
        let [f, g] = message.words_in_line();
        let words = if target::HOST_COPIES { [a, b, c, d, e, f, g] } else { [a, b, c, f, g, 0, 0] };
        let line = Line { words, tag: 0 };
        // What the lane has written goes before the doorbell: to the area, and to memory that it lends.
        if to > from || self.bytes_at != 0 || self.reply_at.address() != 0 {
            self.slot.publish_bulk();
        }
        packet::exchange_by_any(self.held.extra(), self.slot, group, head, line, Look::WithPauses)
    }

    /// Bytes of the area that each lane of a packet has, and where those of this lane begin.
    #[inline(always)]
    fn share(&self, group: Group) -> (usize, usize) {
        let share = self.slot.area_share(group.count);
        (share, group.rank as usize * share)
    }

    /// Bytes of the area that the lane needs for a call of one packet. A short reply is worth a large area; a long one comes
    /// in a loan in any case.
    #[inline(always)]
    fn least_share(&self, message: &Message<'_>, output: &[u8]) -> usize {
        message.len().max(reply_bytes_at(self.result_words) + output.len().min(LEAST_PIECE))
    }

    /// Sends the rest of the message from `from` on, which all lanes' shares have room for, and takes the reply: result words
    /// into `words`, bytes into `output`. Returns the bytes of `output` that were filled.
    #[inline(always)]
    fn run<const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(
        &self,
        group: Group,
        message: &Message<'_>,
        from: usize,
        words: &mut [u64],
        output: &mut [u8],
    ) -> Result<usize, CallError> {
        let (_, base) = self.share(group);
        match from {
            0 => message.write(self.slot, base),
            _ => message.write_part(&self.slot, base, from, message.len()),
        }
        let mut taken = self
            .packet::<ANSWER_WORDS>(group, Kind::Bytes, message, from, message.len())
            .and_then(|reply| self.take::<HAS_OUTPUT, ANSWER_WORDS>(group, reply, words, output));
        // Every lane is done with the area.
        group.sync();
        if HAS_OUTPUT && !group.all(!self.reply_at.pulls()) {
            let reply = taken.as_mut().ok().filter(|(_, loan)| *loan != 0);
            // SAFETY: LOAN: the host's answer tells of the loan, and that it has as many bytes; the lane can pull.
            unsafe { take_lent_in_turn(group, reply.map(|(output, loan)| (*loan, &mut **output))) };
        }
        taken.map(|(output, _)| output.len())
    }

    /// Takes a reply, which lies where [`bytes_result_words`] says: result words into `words`, bytes into the part of `output`
    /// that is returned, unless they are in a loan that is still to be pulled, which is returned too.
    #[inline(always)]
    fn take<'o, const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(
        &self,
        group: Group,
        reply: Line,
        words: &mut [u64],
        output: &'o mut [u8],
    ) -> Result<(&'o mut [u8], u64), CallError> {
        let (is_there, total) = (reply.words[0] & REPLY_IS_THERE != 0, reply.words[0] & !REPLY_IS_THERE);
        if !self.reply_fits(total) {
            return Err(CallError::Malformed);
        }
        let count = words.len();
        let output = output.get_mut(..total as usize - count * 8).ok_or(CallError::Malformed)?;
        // Each word at a place that is known, so that they stay in registers.
        let inline = &reply.words[1..ANSWER_WORDS];
        if !is_there && total <= size_of_val(inline) as u64 {
            for (i, word) in inline.iter().enumerate() {
                match i.checked_sub(count) {
                    None => words[i] = *word,
                    Some(at) if HAS_OUTPUT => {
                        for (at, to) in output.iter_mut().skip(8 * at).take(8).enumerate() {
                            *to = (word >> (8 * at)) as u8;
                        }
                    }
                    Some(_) => {}
                }
            }
            return Ok((output, 0));
        }
        let (place, inline) = (inline[0], &inline[1..]);
        if count <= inline.len() {
            for (i, word) in inline.iter().enumerate() {
                if let Some(to) = words.get_mut(i) {
                    *to = *word;
                }
            }
        } else {
            self.take_words(group, words);
        }
        match place {
            _ if !HAS_OUTPUT => {}
            _ if is_there => see_put(),
            0 => self.take_bytes(group, self.share(group).1 + reply_bytes_at(count), output),
            // SAFETY: LOAN: the host's answer tells of the loan, and that it has as many bytes.
            _ if !self.reply_at.pulls() => unsafe { take_lent(place, output, |_, _| 0) },
            _ => return Ok((output, place)),
        }
        Ok((output, 0))
    }

    /// Does what [`Exchange::run`] does, for messages and replies that some lane's share of the slot's area has no room for: in
    /// a large area, if there is one, in pieces if they do not fit there either, and one lane after the other if their
    /// shares are tiny.
    #[cold]
    #[inline(never)]
    fn run_large<const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(
        mut self,
        group: Group,
        message: &Message<'_>,
        words: &mut [u64],
        output: &mut [u8],
    ) -> Result<usize, CallError> {
        self.borrow_area(group);
        let (share, _) = self.share(group);
        let fit = group.all(message.len().max(words.len() * 8) <= share);
        let filled = if fit || share >= LEAST_PIECE {
            self.run_in_pieces::<HAS_OUTPUT, ANSWER_WORDS>(group, message, words, output)
        } else {
            let mut filled = Err(CallError::Malformed);
            for turn in 0..group.count {
                if turn == group.rank {
                    filled = self.run_in_pieces::<HAS_OUTPUT, ANSWER_WORDS>(
                        Group::alone(),
                        message,
                        words,
                        output,
                    );
                }
                group.sync();
            }
            filled
        };
        self.return_area(group);
        filled
    }

    #[inline(never)]
    fn run_in_pieces<const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(
        &self,
        group: Group,
        message: &Message<'_>,
        words: &mut [u64],
        output: &mut [u8],
    ) -> Result<usize, CallError> {
        let sent = self.send_all_but_last::<ANSWER_WORDS>(group, message);
        let part = group.those(sent.is_ok());
        let filled =
            sent.and_then(|from| self.run::<HAS_OUTPUT, ANSWER_WORDS>(part, message, from, words, output));
        // Every lane is done with the area.
        group.sync();
        filled
    }

    /// Sends all pieces but each lane's last one, and returns where that begins.
    #[inline(always)]
    fn send_all_but_last<const ANSWER_WORDS: usize>(
        &self,
        group: Group,
        message: &Message<'_>,
    ) -> Result<usize, CallError> {
        let (share, _) = self.share(group);
        let mut sent = Ok(0);
        loop {
            group.sync();
            let from = sent.ok().filter(|from| message.len() - from > share);
            let part = group.those(from.is_some());
            if part.count == 0 {
                return sent;
            }
            if let Some(from) = from {
                let (share, base) = self.share(part);
                let to = message.len().min(from + share);
                message.write_part(&self.slot, base, from, to);
                sent = self.packet::<ANSWER_WORDS>(part, Kind::BytesMore, message, from, to).map(|_| to);
            }
        }
    }

    fn reply_fits(&self, bytes: u64) -> bool {
        (self.result_words as u64 * 8..=self.capacity as u64).contains(&bytes)
    }

    /// Takes the reply's result words, which are in the area.
    #[inline(never)]
    fn take_words(&self, group: Group, words: &mut [u64]) {
        let (_, base) = self.share(group);
        for (at, word) in words.iter_mut().enumerate() {
            let mut bytes = [0; 8];
            self.slot.read_bulk(base + at * 8, &mut bytes);
            *word = u64::from_le_bytes(bytes);
        }
        self.slot.publish_bulk();
    }

    /// Takes the reply's bytes, which are in the area from `at` on.
    #[inline(always)]
    fn take_bytes(&self, group: Group, at: usize, output: &mut [u8]) {
        if group.count > 1 || output.len() < LEAST_REPLY_TO_PULL || self.held.extra().is_some() {
            self.slot.read_bulk(at, output);
            return self.slot.publish_bulk();
        }
        let (from, room) = self.slot.see_bulk(at);
        let mut taken = 0;
        if target::most_to_pull() > 0 && output.len() <= room {
            // SAFETY: the bytes are in the area, which begins at a multiple of 16, is one long, and stays the lane's until its next
            // call; the group is the lane alone, which holds the home slot.
            taken = unsafe { target::pull(from, output) };
        }
        if taken < output.len() {
            self.slot.read_bulk(at + taken, &mut output[taken..]);
            self.slot.publish_bulk();
        }
    }
}
