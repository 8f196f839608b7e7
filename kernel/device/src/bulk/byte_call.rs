//! The packets of a call with bytes: pieces of the message out, the reply back.

use super::message::Message;
use super::{Call, MANY};
use crate::group::Group;
use crate::packet::{self, Head, Held, Look};
use crate::pull::take_lent_in_turn;
use crate::target::{self, Lent, Staging};
use hostcall_abi::status::CallError;
use hostcall_abi::word::{
    BytesHead, Kind, LEAST_REPLY_TO_PULL, LEAST_REPLY_TO_PUT, Line, REPLY_IS_THERE, ReplyAt, reply_bytes_at,
};
use hostcall_channel::device::{Slot, take_lent};

/// A share is large enough for pieces from so many bytes on.
const LEAST_PIECE: usize = 512;

/// A group's call on its way. No function that is not inlined gets a reference to it, but where large areas are used: what one
/// leads to lies in memory.
pub(super) struct ByteCall<'a> {
    held: Held,
    slot: Slot<'static>,
    /// The large area in use.
    area: Option<u32>,
    service: u16,
    check: u32,
    timeout_us: u32,
    message: Message<'a>,
    result_words: usize,
    /// Most bytes of the reply, result words included.
    capacity: usize,
    /// What the host fetches, and where it puts the reply: it may until they are dropped.
    lent_message: Lent,
    _lent_room: Lent,
    /// [`BytesHead::reply_at`].
    reply_at: ReplyAt,
    /// What long replies are copied through, if the lane copies them.
    staging: Staging,
}

impl<'a> ByteCall<'a> {
    /// The call of a group that has a slot.
    #[inline(always)]
    pub fn new<const HAS_OUTPUT: bool>(call: &mut Call<'a>, group: Group, held: Held) -> Self {
        let (result_words, output) = (call.result.len(), &mut *call.output);
        let (message, lent_message) = call.message.lend(group.count);
        let is_lent = HAS_OUTPUT && target::HOST_COPIES && output.len() >= target::LEAST_REPLY_TO_LEND;
        let has_staging = HAS_OUTPUT && output.len() >= LEAST_REPLY_TO_PULL && held.extra().is_none();
        let staging = if has_staging { Staging::of_wave() } else { Staging::NONE };
        // Lanes ask side by side, and pull one after the other.
        let pulls = is_lent && output.len() >= LEAST_REPLY_TO_PUT * group.count as usize;
        let most_to_pull = if pulls { staging.most() } else { 0 };
        // What the lane pulls in any case needs no place that is made ready for the host.
        let is_lent = is_lent && (most_to_pull == 0 || output.len() > ReplyAt::LEAST_TO_PULL_ALONE);
        let lent_room = if is_lent { Lent::room(output) } else { Lent::NONE };
        Self {
            held,
            slot: packet::held_slot(group.here, held),
            area: None,
            service: call.service,
            check: call.check,
            timeout_us: call.timeout_us,
            message,
            result_words,
            capacity: result_words * 8 + output.len(),
            reply_at: ReplyAt::new(lent_room.address(), most_to_pull),
            lent_message,
            _lent_room: lent_room,
            staging,
        }
    }

    /// Whether the lane's share of the slot's area has room for the call in one packet. A short reply is worth a large area; a
    /// long one comes in a loan in any case.
    #[inline(always)]
    pub fn fits_slot(&self, group: Group, output: &[u8]) -> bool {
        let reply = reply_bytes_at(self.result_words) + output.len().min(LEAST_PIECE);
        self.message.bytes.max(reply) <= self.share(group).0
    }

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
    fn packet<const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(
        &self,
        group: Group,
        kind: Kind,
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
            total_bytes: (self.message.bytes + self.message.lent.len()) as u64,
            argument_words: self.message.words.len() as u16,
            reply_capacity: (self.capacity - self.result_words * 8) as u64,
            bytes_at: self.lent_message.address(),
            reply_at: self.reply_at,
        };
        let [a, b, c, d, e] = of_bytes.to_words();
        let [f, g] = self.message.words_in_line();
        let words = if target::HOST_COPIES { [a, b, c, d, e, f, g] } else { [a, b, c, f, g, 0, 0] };
        let line = Line { words, tag: 0 };
        // What the lane has written goes before the doorbell: to the area, and to memory that it lends.
        if to > from || self.lent_message.address() != 0 || self.reply_at.address() != 0 {
            self.slot.publish_bulk();
        }
        // Any other reply is whole in the answer.
        let sees_bytes = HAS_OUTPUT || ANSWER_WORDS == MANY;
        let look =
            Look::WithPauses { sees_bytes, is_lent: HAS_OUTPUT && self.capacity > self.share(group).0 };
        packet::exchange_by_any(self.held.extra(), self.slot, group, head, line, look)
    }

    /// Bytes of the area that each lane of a packet has, and where those of this lane begin.
    #[inline(always)]
    fn share(&self, group: Group) -> (usize, usize) {
        let share = self.slot.area_share(group.count);
        (share, group.rank as usize * share)
    }

    /// Sends the message, which all lanes' shares have room for, and takes the reply: result words
    /// into `words`, bytes into `output`. Returns the bytes of `output` that were filled.
    #[inline(always)]
    pub fn run<const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(
        &self,
        group: Group,
        words: &mut [u64],
        output: &mut [u8],
    ) -> Result<usize, CallError> {
        self.message.write(self.slot, self.share(group).1);
        let reply = self.packet::<HAS_OUTPUT, ANSWER_WORDS>(group, Kind::Bytes, 0, self.message.bytes);
        self.finish::<HAS_OUTPUT, ANSWER_WORDS>(group, reply, words, output)
    }

    /// Takes the reply of a group's last packet, as [`ByteCall::run`] does.
    #[inline(always)]
    fn finish<const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(
        &self,
        group: Group,
        reply: Result<Line, CallError>,
        words: &mut [u64],
        output: &mut [u8],
    ) -> Result<usize, CallError> {
        let mut taken =
            reply.and_then(|reply| self.take::<HAS_OUTPUT, ANSWER_WORDS>(group, reply, words, output));
        // Every lane is done with the area.
        group.sync();
        if HAS_OUTPUT && !group.all(!self.reply_at.pulls()) {
            let reply = taken.as_mut().ok().filter(|(_, loan)| *loan != 0);
            // SAFETY: LOAN: the host's answer tells of the loan, and that it has as many bytes; the lane can pull.
            unsafe {
                take_lent_in_turn(group, self.staging, reply.map(|(output, loan)| (*loan, &mut **output)))
            };
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
                    Some(at) if HAS_OUTPUT => put_word(output, 8 * at, *word),
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
            take_words(self.slot, self.share(group).1, words);
        }
        match place {
            _ if !HAS_OUTPUT || is_there => {}
            0 => self.take_bytes(group, self.share(group).1 + reply_bytes_at(count), output),
            // SAFETY: LOAN: the host's answer tells of the loan, and that it has as many bytes.
            _ if !self.reply_at.pulls() => unsafe { take_lent(place, output, |_, _| 0) },
            _ => return Ok((output, place)),
        }
        Ok((output, 0))
    }

    /// Does what [`ByteCall::run`] does, for messages and replies that some lane's share of the slot's area has no room for: in
    /// a large area, if there is one, in pieces if they do not fit there either, and one lane after the other if their
    /// shares are tiny.
    #[inline(always)]
    pub fn run_large<const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(
        &mut self,
        group: Group,
        words: &mut [u64],
        output: &mut [u8],
    ) -> Result<usize, CallError> {
        self.borrow_area(group);
        let (share, _) = self.share(group);
        let fit = group.all(self.message.bytes.max(words.len() * 8) <= share);
        let filled = if fit || share >= LEAST_PIECE {
            self.run_in_pieces::<HAS_OUTPUT, ANSWER_WORDS>(group, words, output)
        } else {
            let mut filled = Err(CallError::Malformed);
            for turn in 0..group.count {
                if turn == group.rank {
                    filled = self.run_in_pieces::<HAS_OUTPUT, ANSWER_WORDS>(Group::alone(), words, output);
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
        words: &mut [u64],
        output: &mut [u8],
    ) -> Result<usize, CallError> {
        let sent = self.send_all_but_last::<HAS_OUTPUT, ANSWER_WORDS>(group);
        let part = group.those(sent.is_ok());
        let filled = sent.and_then(|from| {
            let reply =
                self.send_piece::<HAS_OUTPUT, ANSWER_WORDS>(part, Kind::Bytes, from, self.message.bytes);
            self.finish::<HAS_OUTPUT, ANSWER_WORDS>(part, reply, words, output)
        });
        // Every lane is done with the area.
        group.sync();
        filled
    }

    /// Sends all pieces but each lane's last one, and returns where that begins.
    #[inline(always)]
    fn send_all_but_last<const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(
        &self,
        group: Group,
    ) -> Result<usize, CallError> {
        let (share, _) = self.share(group);
        let mut sent = Ok(0);
        loop {
            group.sync();
            let from = sent.ok().filter(|from| self.message.bytes - from > share);
            let part = group.those(from.is_some());
            if part.count == 0 {
                return sent;
            }
            if let Some(from) = from {
                let to = self.message.bytes.min(from + self.share(part).0);
                sent =
                    self.send_piece::<HAS_OUTPUT, ANSWER_WORDS>(part, Kind::BytesMore, from, to).map(|_| to);
            }
        }
    }

    /// Writes a part of the message and sends its packet. NVIDIA's assembler takes so long for [`ByteCall::packet`] that what is
    /// rare has one copy of it there.
    #[cfg_attr(target_arch = "nvptx64", cold, inline(never))]
    #[cfg_attr(not(target_arch = "nvptx64"), inline(always))]
    fn send_piece<const HAS_OUTPUT: bool, const ANSWER_WORDS: usize>(
        &self,
        group: Group,
        kind: Kind,
        from: usize,
        to: usize,
    ) -> Result<Line, CallError> {
        self.message.write_part(self.slot, self.share(group).1, from, to);
        self.packet::<HAS_OUTPUT, ANSWER_WORDS>(group, kind, from, to)
    }

    fn reply_fits(&self, bytes: u64) -> bool {
        (self.result_words as u64 * 8..=self.capacity as u64).contains(&bytes)
    }

    /// Takes the reply's bytes, which are in the area from `at` on.
    #[inline(always)]
    fn take_bytes(&self, group: Group, at: usize, output: &mut [u8]) {
        if group.count > 1 || self.staging.most() == 0 {
            self.slot.read_bulk(at, output);
            return self.slot.publish_bulk();
        }
        let (from, room) = self.slot.bulk_at(at);
        let mut taken = 0;
        if output.len() <= room {
            // SAFETY: the bytes are in the area, which begins at a multiple of 16, is one long, and stays the lane's until its next
            // call; the group is the lane alone, which holds the home slot.
            taken = unsafe { self.staging.pull(from, output) };
        }
        if taken < output.len() {
            self.slot.read_bulk(at + taken, &mut output[taken..]);
            self.slot.publish_bulk();
        }
    }
}

/// Takes a reply's result words, which are in the area from `at` on.
#[inline(never)]
fn take_words(slot: Slot<'static>, at: usize, words: &mut [u64]) {
    for (i, word) in words.iter_mut().enumerate() {
        let mut bytes = [0; 8];
        slot.read_bulk(at + i * 8, &mut bytes);
        *word = u64::from_le_bytes(bytes);
    }
    slot.publish_bulk();
}

/// Puts the bytes of a word into `output` from byte `at` on, as far as there are so many.
#[inline(always)]
fn put_word(output: &mut [u8], at: usize, word: u64) {
    let Some(output) = output.get_mut(at..) else { return };
    let to = output.as_mut_ptr().cast::<u64>();
    if output.len() >= 8 && to.is_aligned() {
        // SAFETY: eight bytes are there, and aligned.
        unsafe { to.write(word.to_le()) };
    } else {
        for (i, to) in output.iter_mut().take(8).enumerate() {
            *to = (word >> (8 * i)) as u8;
        }
    }
}
