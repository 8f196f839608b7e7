//! Calls whose message or reply is longer than a line: through the slot's byte area, or a large area that the
//! call borrows if one is free.
//!
//! The lanes of a packet share the area. A message that does not fit a lane's share travels in pieces, of all
//! lanes that have more at once. Where the shares are tiny, lanes take turns, each with the whole area. A
//! reply that does not fit is read where the host has it, in memory that it lends to the lane.

use crate::call::{CallOptions, MAX_TYPED_WORDS, enter, site};
use crate::group::Group;
use crate::packet::{self, Head, Held, Look};
use crate::pull::take_lent_in_turn;
use crate::target;
use core::mem::MaybeUninit;
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::wire::Wire;
use hostcall_abi::word::{
    BYTES_RESULT_WORDS, BytesHead, Kind, LEAST_MESSAGE_TO_FETCH, LEAST_REPLY_TO_PUT, Line, REPLY_IS_THERE,
    REPLY_PULLED, check_of,
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
    fn lend(&mut self, lanes: u32) {
        if let [slice] = self.input
            && target::HOST_COPIES
            && slice.len() >= LEAST_MESSAGE_TO_FETCH * lanes as usize
            && target::is_global(slice.as_ptr())
        {
            (self.input, self.lent) = (&[], slice);
        }
    }

    /// Bytes that travel in packets.
    fn len(&self) -> usize {
        self.words.len() * 8 + self.input.iter().map(|slice| slice.len()).sum::<usize>()
    }

    /// Writes bytes `from..to` of the message to `at` in the byte area. `from` and `at` are multiples of 8.
    fn write(&self, slot: &Slot<'static>, at: usize, from: usize, to: usize) {
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
    let filled = match output.is_empty() {
        true => call_words::<false>(method, options, message, words, output)?,
        false => call_words::<true>(method, options, message, words, output)?,
    };
    let result = R::from_words(words).ok_or(CallError::Malformed)?;
    Ok((result, filled))
}

/// The part of a call that is the same for all types, so that a kernel has it once; twice, if some of its calls have `output`
/// and others have none.
#[inline(never)]
fn call_words<const HAS_OUTPUT: bool>(
    method: &Method,
    options: CallOptions,
    mut message: Message<'_>,
    result: &mut [u64],
    output: &mut [u8],
) -> Result<usize, CallError> {
    enter(target::here())?;
    let site = site(method.number, check_of(method.schema), Kind::Bytes);
    Group::meet(site, Err(CallError::Malformed), |group| {
        let capacity = result.len() * 8 + output.len();
        let held = packet::hold(group);
        let glance = held.glance;
        let slot = packet::held_slot(group.here, held);
        let (argument_words, result_words) = (message.words.len(), result.len());
        message.lend(group.count);
        let message = &message;
        let bytes_at =
            if message.lent.is_empty() { 0 } else { message.lent.as_ptr().expose_provenance() as u64 };
        let reply_at = if HAS_OUTPUT { reply_place(output, group.count, held.extra().is_none()) } else { 0 };
        let mut lane = Exchange {
            held,
            slot,
            area: None,
            method,
            options,
            argument_words,
            result_words,
            capacity,
            bytes_at,
            reply_at,
        };
        let words_bytes = result.len() * 8;
        // A short reply is worth a large area; a long one comes in a loan in any case.
        let (share, _) = lane.share(group);
        if !group.all(message.len().max(words_bytes + output.len().min(LEAST_PIECE)) <= share) {
            lane.borrow_area(group);
        }
        let (share, _) = lane.share(group);
        let fit = group.all(message.len().max(words_bytes) <= share);
        let filled = if fit || share >= LEAST_PIECE {
            lane.run::<HAS_OUTPUT>(group, fit, message, result, output)
        } else {
            let mut filled = Err(CallError::Malformed);
            for turn in 0..group.count {
                if turn == group.rank {
                    filled = lane.run::<HAS_OUTPUT>(Group::alone(), false, message, result, output);
                }
                group.sync();
            }
            filled
        };
        lane.return_area(group);
        packet::release(group, held);
        // The wave may have given up the slot's call before, whose bytes these may be.
        if glance.cancelled {
            target::exit_lane();
        }
        filled
    })
}

struct Exchange<'a> {
    held: Held,
    slot: Slot<'static>,
    /// The large area in use.
    area: Option<u32>,
    method: &'a Method,
    options: CallOptions,
    argument_words: usize,
    result_words: usize,
    capacity: usize,
    /// [`BytesHead::bytes_at`].
    bytes_at: u64,
    /// [`BytesHead::reply_at`].
    reply_at: u64,
}

/// Where a lane has the host put its reply: nowhere if that is short or lies where copies do not reach. `lanes` ask side by
/// side, and pull one after the other, if their slot `is_home`.
fn reply_place(output: &mut [u8], lanes: u32, is_home: bool) -> u64 {
    let is_worth_it = target::HOST_COPIES && output.len() >= LEAST_REPLY_TO_PUT;
    let start = output.as_mut_ptr();
    if !is_worth_it || !target::is_global(start) {
        return 0;
    }
    let is_long = output.len() >= LEAST_REPLY_TO_PUT * lanes as usize;
    // A loan's bytes begin at a multiple of 64.
    let pulls = is_long && is_home && target::can_pull(0, start);
    start.expose_provenance() as u64 | if pulls { REPLY_PULLED } else { 0 }
}

impl Exchange<'_> {
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

    #[inline(never)]
    fn packet(&self, group: Group, kind: Kind, words: [u64; BytesHead::WORDS]) -> Result<Line, CallError> {
        let is_short = !target::HOST_COPIES || group.all(self.bytes_at | self.reply_at == 0);
        let head_words = if is_short { BytesHead::SHORT_WORDS } else { BytesHead::WORDS };
        let head = Head {
            service: self.method.number,
            check: check_of(self.method.schema),
            kind,
            argument_words: head_words as u8,
            result_words: BYTES_RESULT_WORDS as u8,
            timeout_us: self.options.timeout_us,
        };
        let mut line = Line::default();
        line.words[..BytesHead::WORDS].copy_from_slice(&words);
        let look = if is_short { Look::AllTheTime } else { Look::WithPauses };
        packet::exchange_by_any(self.held.extra(), &self.slot, group, head, &line, look)
    }

    /// Bytes of the area that each lane of a packet has, and where those of this lane begin.
    fn share(&self, group: Group) -> (usize, usize) {
        let share = self.slot.area_share(group.count);
        (share, group.rank as usize * share)
    }

    /// Sends the next piece of the message: `from` on, as much as there is room for. Returns the reply, and where
    /// the piece ended.
    #[inline(never)]
    fn send(
        &self,
        group: Group,
        kind: Kind,
        message: &Message<'_>,
        from: usize,
    ) -> Result<(Line, usize), CallError> {
        let (share, base) = self.share(group);
        let total = message.len();
        let to = total.min(from + share);
        message.write(&self.slot, base, from, to);
        self.slot.publish_bulk();
        let head = BytesHead {
            begins: from == 0,
            piece_bytes: (to - from) as u32,
            area: self.area,
            total_bytes: (total + message.lent.len()) as u64,
            argument_words: self.argument_words as u16,
            reply_capacity: (self.capacity - self.result_words * 8) as u64,
            bytes_at: self.bytes_at,
            reply_at: self.reply_at,
        };
        self.packet(group, kind, head.to_words()).map(|reply| (reply, to))
    }

    /// Sends the message, in pieces if it is longer than the lane's share, and takes the reply: result words
    /// into `words`, bytes into `output`. Returns the bytes of `output` that were filled. All lanes' messages
    /// `fit` their shares, or it is not known. A reply's bytes lie in the area, in `output` already, or in a loan: see
    /// [`BYTES_RESULT_WORDS`].
    #[inline(never)]
    fn run<const HAS_OUTPUT: bool>(
        &self,
        group: Group,
        fit: bool,
        message: &Message<'_>,
        words: &mut [u64],
        output: &mut [u8],
    ) -> Result<usize, CallError> {
        let sent = if fit { Ok(0) } else { self.send_all_but_last(group, message) };
        let part = if fit { group } else { group.those(sent.is_ok()) };
        let mut taken = sent.and_then(|sent| {
            let (reply, _) = self.send(part, Kind::Bytes, message, sent)?;
            let [total, loan, ..] = reply.words;
            if !self.reply_fits(total) {
                return Err(CallError::Malformed);
            }
            self.take_words(part, words);
            let output = output.get_mut(..total as usize - words.len() * 8).ok_or(CallError::Malformed)?;
            match loan {
                _ if !HAS_OUTPUT => {}
                0 => self.slot.read_bulk(self.share(part).1 + words.len() * 8, output),
                REPLY_IS_THERE => see_put(),
                // SAFETY: LOAN: the host's answer tells of the loan, and that it has as many bytes.
                _ if !self.pulls() => unsafe { take_lent(loan, output, |_, _| 0) },
                _ => return Ok((output, loan)),
            }
            Ok((output, 0))
        });
        // Every lane is done with the area.
        group.sync();
        if HAS_OUTPUT && !group.all(!self.pulls()) {
            let reply = taken.as_mut().ok().filter(|(_, loan)| *loan != 0);
            // SAFETY: as above; `pulls` says that the lane can.
            unsafe { take_lent_in_turn(group, reply.map(|(output, loan)| (*loan, &mut **output))) };
        }
        taken.map(|(output, _)| output.len())
    }

    /// Sends all pieces but each lane's last one, and returns where that begins.
    fn send_all_but_last(&self, group: Group, message: &Message<'_>) -> Result<usize, CallError> {
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
                sent = self.send(part, Kind::BytesMore, message, from).map(|(_, to)| to);
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
    }

    /// Whether the lane takes a reply's bytes out of a loan by [`target::pull`].
    fn pulls(&self) -> bool {
        self.reply_at & REPLY_PULLED != 0
    }
}
