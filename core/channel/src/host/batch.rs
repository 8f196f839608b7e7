//! Packets copied out of shared memory, several at a time when they say the same.

use super::answer::Answer;
use super::copies::{copy_lines, store_run};
use crate::region::Region;
use alloc::boxed::Box;
use hostcall_abi::MAX_LANES;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::{LINE_WORDS, Spread};
use hostcall_abi::word::{Kind, MAX_PAIRS, RequestTag, Rung};
use hostcall_service::{Caller, Lines, Planes, Replies};

/// Most packets of a batch: the calls that one line of doorbells tells of. Their answers come when all of their handlers
/// have run, so that more would make the first one wait.
const PACKETS: usize = LINE_WORDS;

/// Laps of a slot's pairs in one direction, one bit a pair, see [`Spread::lap`].
pub(super) type Laps = [u64; MAX_PAIRS];

/// Laps of the pairs in all planes but the first.
pub(super) type Wide = [u64; MAX_PAIRS - 1];

/// The laps of plane `plane`.
#[inline(always)]
fn plane_of(first: u64, wide: &Wide, plane: usize) -> u64 {
    if plane == 0 { first } else { wide[plane - 1] }
}

/// What the packets of a batch have in common.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub rung: Rung,
    pub request: Spread,
    pub reply: Spread,
    /// What each packet flips in its slot's laps.
    pub request_flips: Laps,
    pub reply_flips: Laps,
    /// Packets that may come together.
    most: usize,
    is_short: bool,
}

impl Shape {
    #[inline(never)]
    pub fn new(rung: Rung, wave_lanes: u32) -> Self {
        let rung = rung.from_any_lane();
        let lanes = rung.lanes();
        let request = Spread::request(lanes, rung.request_pairs(), wave_lanes);
        let reply = Spread::reply(lanes, rung.reply_pairs(), wave_lanes);
        Self {
            rung,
            request,
            reply,
            request_flips: core::array::from_fn(|plane| request.plane_flips(plane)),
            reply_flips: core::array::from_fn(|plane| reply.plane_flips(plane)),
            // A packet of bytes has the rest of its message elsewhere.
            most: if rung.kind() == Kind::Words { (MAX_LANES / lanes as usize).min(PACKETS) } else { 1 },
            is_short: rung.kind() == Kind::Words && !rung.has_lines() && reply.is_dense(),
        }
    }

    /// Whether a packet is its doorbell alone, and is answered in the first plane.
    #[inline(always)]
    pub fn is_short(&self) -> bool {
        self.is_short
    }
}

/// Packets to one method, of as many lanes and words each, taken by [`super::Scanner::take`]. Whoever took them answers
/// each, and then clears the batch. Reused from batch to batch: it is 4 KiB.
pub struct Batch {
    pub(super) shape: Shape,
    count: usize,
    callers: [Caller; PACKETS],
    /// Laps of each packet's reply pairs of the first plane when they were used last.
    replies_used: [u64; PACKETS],
    /// Laps of each packet's reply pairs of the other planes, which dense replies do not use.
    replies_used_wide: [Wide; PACKETS],
    planes: Box<Planes>,
}

impl Batch {
    /// An empty batch to take packets into.
    pub fn new() -> Self {
        let rung = Rung::from_word(0, 1).expect("a null call of one lane");
        Self {
            shape: Shape::new(rung, 1),
            count: 0,
            callers: [Caller::default(); PACKETS],
            replies_used: [0; PACKETS],
            replies_used_wide: [Wide::default(); PACKETS],
            planes: Box::new([[[0; 2]; MAX_LANES]; MAX_PAIRS]),
        }
    }

    /// Packets in the batch.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether no more packets may come.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.count >= self.shape.most
    }

    /// What the packets' doorbells say.
    #[inline(always)]
    pub fn rung(&self) -> Rung {
        self.shape.rung
    }

    /// What the packets' lanes wrote.
    #[inline(always)]
    pub fn lines(&self) -> Lines<'_> {
        Lines::new(self.shape.rung, &self.planes, &self.callers[..self.count])
    }

    /// The ranks of a packet's lanes among those of the batch.
    #[inline(always)]
    pub fn ranks(&self, packet: usize) -> core::ops::Range<usize> {
        let lanes = self.shape.rung.lanes() as usize;
        packet * lanes..(packet + 1) * lanes
    }

    /// The answer to a packet.
    pub fn answer(&self, packet: usize) -> Answer {
        let Shape { rung, reply, .. } = self.shape;
        let [a, b, c] = if reply.is_dense() { Wide::default() } else { self.replies_used_wide[packet] };
        Answer::new(self.callers[packet].slot, rung, reply, [self.replies_used[packet], a, b, c])
    }

    /// Answers every lane of the batch.
    #[inline(always)]
    pub fn answer_all(&self, region: Region<'_>, replies: &Replies) {
        let (places, reply, lanes) = (region.places(), self.shape.reply, self.shape.rung.lanes());
        if (lanes, self.shape.rung.reply_pairs()) == (1, 1) {
            let calls = self.callers.iter().zip(&self.replies_used).zip(&replies.planes()[0]);
            for ((caller, used), pair) in calls.take(self.count) {
                store_run(region.pairs(places.reply(caller.slot), 1), core::slice::from_ref(pair), *used);
            }
            return;
        }
        let step = reply.step(places.plane);
        for (packet, (caller, used)) in
            self.callers.iter().zip(&self.replies_used).take(self.count).enumerate()
        {
            let wide = &self.replies_used_wide[packet];
            let base = places.reply(caller.slot);
            // The highest pair first: when the device sees the first, the others are most likely there.
            for pair in (0..self.shape.rung.reply_pairs()).rev() {
                let to = region.pairs(base + pair as u32 * step, lanes as usize);
                let bit = reply.lap(pair as u32, 0) as usize;
                store_run(
                    to,
                    &replies.planes()[pair][self.ranks(packet)],
                    plane_of(*used, wide, bit / 64) >> (bit % 64),
                );
            }
        }
    }

    /// Forgets the packets, which are all answered.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Whether the batch has packets of this launch, which [`super::Scanner::take`] has found to be live then.
    #[inline(always)]
    pub(super) fn has_any_of(&self, launch: LaunchId) -> bool {
        self.count > 0 && self.callers[0].launch == launch
    }

    /// Copies the lines of one more packet. Whether each word has the lap that comes after its last use.
    #[inline(always)]
    pub(super) fn copy_lines(&mut self, region: &Region<'_>, slot: u32, used: u64, wide: &Wide) -> bool {
        let (places, request, ranks) = (region.places(), self.shape.request, self.ranks(self.count));
        let (base, step) = (places.request(slot), request.step(places.plane));
        let pairs = self.shape.rung.request_pairs();
        let plane = |pair: usize| {
            let bit = request.lap(pair as u32, 0) as usize;
            let used = plane_of(used, wide, bit / 64) >> (bit % 64);
            (region.pairs(base + pair as u32 * step, ranks.len()), used)
        };
        copy_lines(plane, pairs, &mut self.planes, ranks.clone())
    }

    /// The post position that the packet says whose lines were copied last.
    pub(super) fn post_position(&self) -> u32 {
        let first = self.ranks(self.count).start;
        RequestTag::from_bits(self.planes[0][first][1]).post_position
    }

    /// Counts packets without lines, each of which `take` puts into its places, until it has no more or there is no room.
    #[inline(always)]
    pub(super) fn push_each(&mut self, mut take: impl FnMut(&mut Caller, &mut u64) -> bool) {
        let places = self.callers.iter_mut().zip(&mut self.replies_used).take(self.shape.most);
        for (caller, used) in places.skip(self.count) {
            if !take(caller, used) {
                break;
            }
            self.count += 1;
        }
    }

    /// Counts the packet whose lines were copied, if it has any.
    #[inline(always)]
    pub(super) fn push(&mut self, caller: Caller, replies_used: u64, wide: &Wide) {
        self.callers[self.count] = caller;
        self.replies_used[self.count] = replies_used;
        if !self.shape.reply.is_dense() {
            self.replies_used_wide[self.count] = *wide;
        }
        self.count += 1;
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}
