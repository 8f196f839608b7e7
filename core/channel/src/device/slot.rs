//! What the lanes of one wave do with a slot.
//!
//! A call by `n` converged lanes, `rank` counting them up from the leader: every lane reads its laps
//! ([`Slot::laps`]); the wave synchronises; the leader rings ([`Slot::ring`]); every lane writes its line
//! ([`Slot::write_line`]), flips laps ([`Slot::flip_laps`]) and polls for its reply ([`Slot::poll_reply`]).
//! The doorbell goes first because the host, once it looks at the slot, waits for the lines anyway.
//!
//! A post is one to three entries of 16 bytes in the ring of the wave's home slot, each with the lap of its
//! pass. A GPU's wave rings its post bell with the first post in each period of its clock, and before it
//! waits for others or for room in the ring, or ends; the host looks at a ring for longer than that after its
//! last post (`layout::post_bell` has both periods, and an assertion between them). A call that follows posts
//! says how many, and the host takes these first.
//!
//! A look at the ring's tail, over the link, takes a GPU as long as ten posts. So a whole wave that finds the
//! ring full, or that is to ring, has the tail copied into its record meanwhile (`aside.rs`), and knows it
//! the next time.

use super::kept::{Kept, UPPER_PARITY};
use super::state::{BELL, LapRows, POST_BELL_PERIOD, POST_POSITION, POST_TAIL_SEEN, SlotState};
use crate::aside;
#[cfg(not(loom))]
use crate::primitive::cas_on_device;
use crate::primitive::{
    Ordering, Owned, OwnedFour, OwnedWord, acquire_in_wave, acquire_pair, cas_in_wave, end_acquire, fence,
    load_in_wave, load_pair, release_in_wave, store_in_wave, store_pair,
};
use crate::region::Words;
use hostcall_abi::layout::{
    LAP_WORDS, NO_PERIOD, SlotPlaces, Spread, TAIL_ASKED, bell_bits, first_call_word, kept::UPPER_UNKNOWN,
};
use hostcall_abi::word::{Doorbell, Line, MAX_PAIRS, MAX_POST_WORDS, Owner, PostHead, lap_of, with_lap};

// Bits of `SlotState::cancelled`.
const CANCELLED: u32 = 1;
const LOST: u32 = 2;

/// Of [`SlotState`]'s holder: no lane waits for the call. Home slots are far fewer.
const FORGOTTEN: u32 = 1 << 31;

/// Entries of a ring in a GPU's cache line of 128 bytes.
const LINE_ENTRIES: u32 = 8;

/// What a call or post has to know of its slot, in one load on a GPU.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    /// [`bell_bits`].
    bell: u32,
    post_bell_period: u32,
    /// Whether the wave knows its launch to be cancelled.
    pub cancelled: bool,
    /// Low bits of the entries posted, ever.
    pub post_position: u32,
    post_tail_seen: u32,
}

impl Glance {
    /// Whether the wave has no slot, or has published no owner since it claimed the slot: calls have to see to that first.
    #[inline(always)]
    pub fn is_unready(&self) -> bool {
        self.bell & (bell_bits::UNCLAIMED | bell_bits::OWNER_DUE) != 0
    }

    /// Whether the wave has rung for posts since it claimed the slot: then it has said whose its posts are, or a part of it that
    /// has the ring is about to.
    #[inline(always)]
    pub fn has_rung_for_posts(&self) -> bool {
        self.post_bell_period != NO_PERIOD
    }

    /// Whether the wave has no slot.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn is_unclaimed(&self) -> bool {
        self.bell & bell_bits::UNCLAIMED != 0
    }
}

/// Of the lock's word, the lower half is the turn that has the slot, the upper half that of who lines up next.
const TURN_BITS: u32 = 16;
const TURN_MASK: u32 = (1 << TURN_BITS) - 1;

/// A part's place in the line for its wave's slot.
#[derive(Clone, Copy, Debug)]
pub struct Turn(u32);

/// The laps of one lane's next packet.
#[derive(Clone, Copy, Debug)]
pub struct Laps {
    request: u8,
    reply: u8,
    /// [`bell_bits`] of the last doorbell.
    bell: u32,
    /// What the doorbell tells of posts.
    post_position: u32,
}

/// A slot as the wave that holds it sees it.
#[derive(Clone, Copy)]
pub struct Slot<'m> {
    words: Words<'m>,
    places: SlotPlaces,
    state: &'m SlotState,
    first: OwnedFour<'m>,
}

impl<'m> Slot<'m> {
    /// The slot whose words have these places.
    ///
    /// # Safety
    /// SLOT-OWNER: the calling lane's wave holds the slot while the value is used, its lanes synchronise
    /// between writes and reads by different lanes, and `state` is the slot's own. The channel's layout gave the places,
    /// and the ranks and counts passed to the methods are less than its lanes.
    #[inline(always)]
    pub unsafe fn new(words: Words<'m>, places: SlotPlaces, state: &'m SlotState) -> Self {
        Self { words, places, state, first: OwnedFour::new(&state.first) }
    }

    /// The view of the channel's memory.
    #[inline(always)]
    pub fn words(&self) -> Words<'m> {
        self.words
    }

    /// Lets byte messages use another area than the slot's own.
    #[inline]
    pub fn use_area(&mut self, at: u32, bytes: u32) {
        (self.places.area, self.places.area_bytes) = (at, bytes);
    }

    /// Bytes of the byte area that each lane of an `n`-lane packet has.
    #[inline(always)]
    pub fn area_share(&self, n: u32) -> usize {
        hostcall_abi::layout::area_share(self.places.area_bytes, n)
    }

    #[inline(always)]
    fn get<T: OwnedWord>(&self, word: &Owned<T>) -> T {
        // SAFETY: SLOT-OWNER, promised to `new`.
        unsafe { word.get() }
    }

    #[inline(always)]
    fn set<T: OwnedWord>(&self, word: &Owned<T>, value: T) {
        // SAFETY: SLOT-OWNER, promised to `new`.
        unsafe { word.set(value) }
    }

    #[inline(always)]
    fn set_first<const I: usize>(&self, value: u32) {
        // SAFETY: SLOT-OWNER, promised to `new`.
        unsafe { self.first.set::<I>(value) }
    }

    /// Looks at what the next call or post depends on, which holds until the wave's next.
    #[inline(always)]
    pub fn glance(&self) -> Glance {
        // SAFETY: SLOT-OWNER, promised to `new`.
        let [bell, post_bell_period, post_position, post_tail_seen] = unsafe { self.first.get() };
        // A load of its own, which posts, that do not ask, do without.
        let cancelled = self.get(&self.state.cancelled) != 0;
        Glance { bell, post_bell_period, cancelled, post_position, post_tail_seen }
    }

    /// The laps for the lane of rank `rank` among the packet's lanes.
    #[inline(always)]
    pub fn laps(&self, glance: Glance, doorbell: &Doorbell, rank: u32) -> Laps {
        // The remainder changes nothing, and spares GPU code the panic of a wrong index.
        let next = |words: &LapRows, spread: Spread, pairs| {
            (0..pairs).fold(0, |laps, pair| {
                let at = spread.lap(pair as u32, rank);
                let used = self.get(&words.as_flattened()[at as usize / 32 % LAP_WORDS]) >> (at % 32) & 1;
                laps | (used as u8 ^ 1) << pair
            })
        };
        Laps {
            request: next(&self.state.request_laps, self.request(doorbell), doorbell.request_pairs()),
            reply: next(&self.state.reply_laps, self.reply(doorbell), doorbell.reply_pairs()),
            bell: glance.bell,
            post_position: glance.post_position,
        }
    }

    /// Rings the doorbell, which the leader (rank 0) does. Every lane has read its laps before.
    #[inline(always)]
    pub fn ring(&self, doorbell: &Doorbell, laps: Laps, rank: u32) {
        if rank == 0 {
            self.ring_again(doorbell, laps);
            self.set_first::<BELL>(laps.bell ^ bell_bits::LAP);
            if doorbell.after_posts {
                self.set(&self.state.post_position_told, laps.post_position);
            }
        }
    }

    /// Flips the laps that the packet uses, of which each lane has some words. Every lane calls it once,
    /// after the leader has rung and after its own line: the host waits for that, and not for the laps.
    #[inline(always)]
    pub fn flip_laps(&self, doorbell: &Doorbell, rank: u32) {
        let flip = |words: &LapRows, spread: Spread| {
            let mut at = rank;
            while at < spread.lap_words() {
                let (word, flips) = (&words.as_flattened()[at as usize % LAP_WORDS], spread.flips(at));
                if flips != 0 {
                    self.set(word, self.get(word) ^ flips);
                }
                at += u32::from(doorbell.lanes);
            }
        };
        flip(&self.state.request_laps, self.request(doorbell));
        flip(&self.state.reply_laps, self.reply(doorbell));
        if rank == 0 {
            let upper = self.get(&self.state.kept_upper);
            let flipped = match Kept::upper_flips(self.request(doorbell), self.reply(doorbell)) {
                Some(flips) => upper ^ flips,
                None => UPPER_UNKNOWN,
            };
            self.set(&self.state.kept_upper, flipped);
        }
    }

    /// How the pairs of a packet's request lie.
    #[inline(always)]
    fn request(&self, doorbell: &Doorbell) -> Spread {
        Spread::request(doorbell.lanes.into(), doorbell.request_pairs(), self.wave_lanes())
    }

    /// How those of its reply lie.
    #[inline(always)]
    fn reply(&self, doorbell: &Doorbell) -> Spread {
        Spread::reply(doorbell.lanes.into(), doorbell.reply_pairs(), self.wave_lanes())
    }

    #[inline(always)]
    fn wave_lanes(&self) -> u32 {
        // Every wave of an NVIDIA GPU has 32 lanes.
        if cfg!(target_arch = "nvptx64") { 32 } else { self.places.lanes }
    }

    /// Stores the doorbell once more. Harmless: the host takes a doorbell once per lap.
    #[inline(always)]
    pub fn ring_again(&self, doorbell: &Doorbell, laps: Laps) {
        let lap_and_parity =
            u64::from(!laps.bell & bell_bits::LAP) << 32 | u64::from(laps.bell & bell_bits::PARITY);
        let word = doorbell.to_word(false) | lap_and_parity;
        self.words.word(self.places.doorbell).store(word, Ordering::Relaxed);
    }

    /// Writes one lane's request line.
    #[inline(always)]
    pub fn write_line(&self, doorbell: &Doorbell, laps: Laps, rank: u32, line: &Line) {
        let base = self.places.request + 2 * rank;
        let step = self.request(doorbell).step(self.places.plane);
        for pair in 0..doorbell.request_pairs() {
            let [a, b] = line.pair(pair, doorbell.argument_words as usize);
            let lap = laps.request >> pair & 1 != 0;
            store_pair(self.words.pair(base + pair as u32 * step), [with_lap(a, lap), with_lap(b, lap)]);
        }
    }

    /// The lane's reply, once all of its words are there.
    #[inline(always)]
    pub fn poll_reply(&self, doorbell: &Doorbell, laps: Laps, rank: u32) -> Option<Line> {
        self.poll(doorbell, laps, rank, false)
    }

    /// The lane's reply, once all of its words are there. The bytes that it tells of, in the byte area or elsewhere, are visible
    /// then.
    #[inline(always)]
    pub fn poll_reply_with_bytes(&self, doorbell: &Doorbell, laps: Laps, rank: u32) -> Option<Line> {
        self.poll(doorbell, laps, rank, true)
    }

    #[inline(always)]
    fn poll(&self, doorbell: &Doorbell, laps: Laps, rank: u32, sees_bytes: bool) -> Option<Line> {
        let base = self.places.reply + 2 * rank;
        let count = doorbell.reply_pairs();
        let step = self.reply(doorbell).step(self.places.plane);
        let mut pairs = [[0; 2]; MAX_PAIRS];
        let at = |pair: usize| self.words.pair(base + pair as u32 * step);
        let load = |pair: usize| load_pair(at(pair));
        // The last one that a look loads at once.
        let load_last = |pair: usize| if sees_bytes { acquire_pair(at(pair)) } else { load(pair) };
        let is_there = |pair: usize, [a, b]: [u64; 2]| {
            let lap = laps.reply >> pair & 1 != 0;
            lap_of(a) == lap && lap_of(b) == lap
        };
        // A GPU looks at two pairs in the time of one, and at more in twice that. Many lanes would fill the link with a second one
        // in each look.
        let is_alone = doorbell.lanes == 1;
        if count > 1 && is_alone {
            pairs[0] = load(0);
            pairs[1] = load_last(1);
        } else {
            pairs[0] = load_last(0);
        }
        if !is_there(0, pairs[0]) {
            return None;
        }
        if count > 1 && !is_alone {
            pairs[1] = load(1);
        }
        for (pair, value) in pairs.iter_mut().enumerate().take(count).skip(2) {
            *value = load(pair);
        }
        let mut line = Line::default();
        let mut all = true;
        for (pair, value) in pairs.into_iter().enumerate().take(count) {
            all &= is_there(pair, value);
            line.set_pair(pair, value);
        }
        if !all {
            return None;
        }
        if sees_bytes {
            end_acquire();
        }
        line.restore(doorbell.result_words as usize);
        Some(line)
    }

    /// Whether posts were made that no doorbell has told the host of yet.
    #[inline(always)]
    pub fn has_untold_posts(&self, glance: Glance) -> bool {
        glance.post_position != self.get(&self.state.post_position_told)
    }

    /// Whether the ring has room for `entries` places, as far as the device knows.
    #[inline(always)]
    pub fn has_room(&self, glance: Glance, entries: u32) -> bool {
        let used = glance.post_position.wrapping_sub(glance.post_tail_seen);
        // Negative after `set_cancelled`, and before the wave has a slot.
        let free = self.places.ring_entries.wrapping_sub(used).cast_signed();
        free >= entries.cast_signed()
    }

    /// Whether posts in this period of the device's clock need no bell, because the wave rang in it already: periods are
    /// shorter than the host goes on looking by itself. In no period (`None`) they always do.
    #[inline(always)]
    pub fn is_told(&self, glance: Glance, period: Option<u32>) -> bool {
        period == Some(glance.post_bell_period)
    }

    /// The leader's part of a post: reserves `entries` places in the ring and returns the first, or `None`
    /// while the host has not made room.
    #[inline(always)]
    pub fn reserve_posts(&self, glance: Glance, entries: u32) -> Option<u32> {
        if !self.has_room(glance, entries) {
            return None;
        }
        self.take_places(glance, entries);
        Some(glance.post_position)
    }

    /// The same when the ring [has room](Self::has_room). All lanes of a group may do it together, since each writes the same.
    #[inline(always)]
    pub fn take_places(&self, glance: Glance, entries: u32) {
        self.set_first::<POST_POSITION>(glance.post_position.wrapping_add(entries));
    }

    /// The leader's part when there was no room: asks how far the host has read. One read over the link.
    #[inline(always)]
    pub fn look_at_ring_tail(&self) {
        let tail = self.words.word(self.places.ring_tail).load(Ordering::Relaxed);
        self.set_first::<POST_TAIL_SEEN>(tail as u32);
    }

    /// Has the leader of a whole wave learn how far the host has read, as it asked before, or, if `entries` have no room even so,
    /// by a look. Then it asks again, so that the answer is on its way while the wave posts on. A wave whose host is behind does
    /// not: it waits in any case.
    #[inline(always)]
    pub fn renew_ring_tail(&self, mut glance: Glance, entries: u32) {
        if !aside::ARE_THERE || self.is_cancelled() {
            return;
        }
        if self.get(&self.state.posted) == TAIL_ASKED {
            // SAFETY: SLOT-OWNER, promised to `new`: the leader of a whole wave is always the same lane, which has asked.
            let copy = unsafe { aside::end(&self.state.tail_copy) };
            self.learn_tail(&mut glance, copy[self.places.ring_tail as usize % 2] as u32);
            self.set_posted();
        }
        if !self.has_room(glance, entries) {
            self.learn_tail(
                &mut glance,
                self.words.word(self.places.ring_tail).load(Ordering::Relaxed) as u32,
            );
        }
        if self.has_room(glance, entries) {
            let from = self.words.pair(self.places.ring_tail & !1);
            // SAFETY: SLOT-OWNER: the same lane reads it, as above, and waits before it ends.
            unsafe { aside::begin(from, &self.state.tail_copy) };
            self.set(&self.state.posted, TAIL_ASKED);
        }
    }

    /// Remembers how far the host has read, unless the wave knows that it has read further.
    #[inline(always)]
    fn learn_tail(&self, glance: &mut Glance, tail: u32) {
        let seen = glance.post_tail_seen;
        if tail.wrapping_sub(seen) <= glance.post_position.wrapping_sub(seen) {
            self.set_first::<POST_TAIL_SEEN>(tail);
            glance.post_tail_seen = tail;
        }
    }

    /// Writes a post at a reserved place. `head.words` is the number of payload words.
    #[inline(always)]
    pub fn write_post(&self, position: u32, head: PostHead, words: &[u64; MAX_POST_WORDS]) {
        let (ring, base) = (self.places.ring_entries, self.places.ring);
        for entry in 0..PostHead::entries_for(head.words as usize) {
            let position = position.wrapping_add(entry as u32);
            let lap = position & ring == 0;
            let [a, b] = if entry == 0 {
                [words[0], head.to_word(&words[..head.words as usize])]
            } else {
                [words[2 * entry - 1], words[2 * entry]]
            };
            let pair = self.words.pair_of(base, position & (ring - 1));
            store_pair(pair, [with_lap(a, lap), with_lap(b, lap)]);
        }
    }

    /// The leader's part after posts up to `position` that the host is not [told](Self::is_told) of.
    #[inline(always)]
    pub fn ring_post_bell(&self, period: Option<u32>, position: u32) {
        if let Some(period) = period {
            self.set_first::<POST_BELL_PERIOD>(period);
        }
        self.set(&self.state.post_position_announced, position);
        self.words.word(self.places.post_bell).store(position.into(), Ordering::Relaxed);
    }

    /// Writes bytes into the slot's byte area, `offset` (a multiple of 8) from its start. Before the doorbell
    /// that tells of them comes [`Slot::publish_bulk`].
    #[inline]
    pub fn write_bulk(&self, offset: usize, bytes: &[u8]) {
        // A copy, whose address is taken in the slot's place: a slot that lies in registers stays there.
        let words = self.words;
        words.write_bytes(self.places.area + offset as u32 / 8, bytes);
    }

    /// Writes eight bytes of the byte area, `offset` (a multiple of 8) from its start, as the number whose bytes they are.
    #[inline(always)]
    pub fn write_bulk_word(&self, offset: usize, word: u64) {
        self.words.word(self.places.area + offset as u32 / 8).store(word.to_le(), Ordering::Relaxed);
    }

    /// Orders this lane's bulk bytes, or its reads of a reply's, before the next doorbell.
    #[inline(always)]
    pub fn publish_bulk(&self) {
        fence(Ordering::Release);
    }

    /// Reads reply bytes from the byte area, `offset` (a multiple of 8) from its start, after [`Slot::poll_reply_with_bytes`]
    /// has returned the reply that tells of them.
    #[inline]
    pub fn read_bulk(&self, offset: usize, bytes: &mut [u8]) {
        let words = self.words;
        words.read_bytes(self.places.area + offset as u32 / 8, bytes);
    }

    /// Where reply bytes are: address and count of the byte area's bytes from `offset` on.
    #[inline]
    pub fn bulk_at(&self, offset: usize) -> (u64, usize) {
        let at = self.words.word(self.places.area + offset as u32 / 8);
        (core::ptr::from_ref(at).expose_provenance() as u64, self.places.area_bytes as usize - offset)
    }

    /// Publishes whose the slot's calls are from now on, before the first call of a claim. One lane does it, while its
    /// part has the slot for itself.
    pub fn publish_owner(&self, owner: Owner) {
        // SAFETY: SLOT-OWNER, promised to `new`.
        let [bell, ..] = unsafe { self.first.get() };
        let bell = (bell ^ bell_bits::PARITY) & !bell_bits::OWNER_DUE;
        let lap = bell & bell_bits::PARITY != 0;
        let [first, second] = owner.to_pair();
        store_pair(self.words.pair(self.places.owner), [with_lap(first, lap), with_lap(second, lap)]);
        self.leave_hint(u32::from(lap) << 1);
        self.set_first::<BELL>(bell);
        self.set(&self.state.kept_upper, self.get(&self.state.kept_upper) ^ UPPER_PARITY);
    }

    /// Leaves a hint for a host that does not look at every slot all the time. `change` differs from that of the slot's
    /// hint before.
    fn leave_hint(&self, change: u32) {
        let hint = u64::from(change) << 32 | u64::from(self.places.doorbell);
        self.words.word(first_call_word(self.places.doorbell)).store(hint, Ordering::Relaxed);
    }

    /// Whether the wave has posted since it claimed the slot.
    #[inline(always)]
    pub fn has_posted(&self) -> bool {
        self.get(&self.state.posted) != 0
    }

    /// Remembers that the wave has posted since it claimed the slot.
    #[inline(always)]
    pub fn set_posted(&self) {
        self.set(&self.state.posted, 1);
    }

    /// Remembers that stores or loads of the wave may be on their way when it ends, though it was answered.
    #[inline(always)]
    pub fn set_needs_fence(&self) {
        self.set(&self.state.needs_fence, 1);
    }

    /// How many entries say whose the slot's posts are, before the first post of a claim, which `lanes` lanes make together:
    /// so many that the posts of many lanes begin a cache line, if the ring has room. Lines that a wave stores in parts
    /// take the link and the host twice as long.
    pub fn owner_entries(&self, glance: Glance, lanes: u32) -> u32 {
        let alone = lanes < LINE_ENTRIES || self.places.ring_entries < 4 * LINE_ENTRIES;
        if alone { 1 } else { LINE_ENTRIES - glance.post_position % LINE_ENTRIES }
    }

    /// Writes whose the slot's posts are from now on into `count` reserved entries, before the first post of a claim.
    pub fn write_owner_entries(&self, position: u32, count: u32, owner: Owner) {
        let ring = self.places.ring_entries;
        for entry in 0..count {
            let position = position.wrapping_add(entry);
            let lap = position & ring == 0;
            let pair = self.words.pair_of(self.places.ring, position & (ring - 1));
            store_pair(pair, owner.to_entry().map(|word| with_lap(word, lap)));
        }
        self.leave_hint(position << 1 | 1);
    }

    /// Rings the post bell if posts were made that it has not told the host of: before the wave waits or ends.
    #[inline]
    pub fn announce_posts(&self) {
        // SAFETY: SLOT-OWNER, promised to `new`.
        let [_, period, position, _] = unsafe { self.first.get() };
        if position != self.get(&self.state.post_position_announced) {
            self.ring_post_bell(Some(period), position);
        }
    }

    /// Lines a part of a diverged wave up for the slot; one lane does it for its part. Parts get the slot in the order
    /// in which they lined up: one that calls again and again leaves the others no moment to find the slot free in.
    #[inline(always)]
    pub fn line_up(&self) -> Turn {
        let mut lock = load_in_wave(&self.state.call_lock);
        // The upper half wraps without touching the lower one.
        while let Err(now) = cas_in_wave(&self.state.call_lock, lock, lock.wrapping_add(1 << TURN_BITS)) {
            lock = now;
        }
        Turn(lock >> TURN_BITS)
    }

    /// Takes the slot for a part of a wave which has just claimed it, so that no other part knows of it.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(super) fn begin_turn(&self) {
        self.state.call_lock.store(1 << TURN_BITS, Ordering::Relaxed);
    }

    /// Takes the slot for a part of a diverged wave, if no other part has it or lines up for it.
    #[inline(always)]
    pub fn try_lock(&self) -> bool {
        let mut lock = load_in_wave(&self.state.call_lock);
        while lock & TURN_MASK == lock >> TURN_BITS {
            match acquire_in_wave(&self.state.call_lock, lock, lock.wrapping_add(1 << TURN_BITS)) {
                Ok(_) => return true,
                Err(now) => lock = now,
            }
        }
        false
    }

    /// Whether the part has the slot now, until [`Slot::end_turn`].
    #[inline(always)]
    pub fn has_turn(&self, turn: Turn) -> bool {
        load_in_wave(&self.state.call_lock) & TURN_MASK == turn.0
    }

    /// Gives the slot to the wave's next part. Every lane of the part has read its reply.
    #[inline(always)]
    pub fn end_turn(&self) {
        let mut lock = load_in_wave(&self.state.call_lock);
        loop {
            let next = lock & !TURN_MASK | lock.wrapping_add(1) & TURN_MASK;
            match release_in_wave(&self.state.call_lock, lock, next) {
                Ok(_) => return,
                // Another part lined up.
                Err(now) => lock = now,
            }
        }
    }

    /// Takes the ring for a part of a diverged wave, if no other part reserves places in it.
    #[inline(always)]
    pub fn try_lock_ring(&self) -> bool {
        acquire_in_wave(&self.state.post_lock, 0, 1).is_ok()
    }

    /// Gives the ring to the wave's other parts.
    #[inline(always)]
    pub fn unlock_ring(&self) {
        store_in_wave(&self.state.post_lock, 0);
    }

    /// Puts the state at `address` in front of those of raw channels that the wave's end looks at; `next` becomes the address of
    /// the one that was first.
    ///
    /// # Safety
    /// The calling lane alone accesses `next`.
    #[cfg(not(loom))]
    pub(crate) unsafe fn link_raw(&self, address: u64, next: &Owned<u64>) {
        let mut first = self.state.raw_states.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller's promise.
            unsafe { next.set(first) };
            match cas_on_device(&self.state.raw_states, first, address) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Remembers that the wave knows its launch to be cancelled. The first post of a wave after it finds no room, so that
    /// the way of a post need not look whether it was cancelled.
    pub fn set_cancelled(&self) {
        self.set(&self.state.cancelled, self.get(&self.state.cancelled) | CANCELLED);
        let position = self.get(&self.state.first[POST_POSITION]);
        self.set_first::<POST_TAIL_SEEN>(position ^ 1 << 31);
    }

    /// Whether the wave knows its launch to be cancelled.
    #[inline(always)]
    pub fn is_cancelled(&self) -> bool {
        self.get(&self.state.cancelled) != 0
    }

    /// Remembers that the host never answered the slot's call, of a launch that is over. Were it to answer another wave's, the
    /// two would not agree on the words that come next.
    pub fn set_lost(&self) {
        self.set(&self.state.cancelled, self.get(&self.state.cancelled) | LOST);
    }

    /// Whether the slot is never used again.
    pub fn is_lost(&self) -> bool {
        self.get(&self.state.cancelled) & LOST != 0
    }

    /// Remembers, of an extra slot, who has it and what its call waits for.
    pub fn set_holder(&self, home: u32, reply_pairs: u32) {
        self.set(&self.state.holder, home + 1);
        self.set(&self.state.reply_pairs, reply_pairs);
    }

    /// Whether the extra slot is held by the wave with this home slot.
    pub fn is_held_by(&self, home: u32) -> bool {
        self.get(&self.state.holder) & !FORGOTTEN == home + 1
    }

    /// Notes that no lane waits for the extra slot's call any more.
    pub(super) fn forget(&self) {
        self.set(&self.state.holder, self.get(&self.state.holder) | FORGOTTEN);
    }

    /// Whether the wave with this home slot holds the extra slot for a call that was forgotten.
    pub(super) fn is_forgotten_by(&self, home: u32) -> bool {
        self.get(&self.state.holder) == (home + 1) | FORGOTTEN
    }

    /// Forgets who holds the extra slot.
    pub fn clear_holder(&self) {
        self.set(&self.state.holder, 0);
    }

    /// Whether the last call of an extra slot, which one lane made, was answered.
    pub fn is_answered(&self) -> bool {
        let pairs = self.get(&self.state.reply_pairs);
        let spread = Spread::reply(1, pairs as usize, self.places.lanes);
        (0..pairs).all(|pair| {
            let at = spread.lap(pair, 0);
            // The lap of the last use.
            let used = self.get(&self.state.reply_laps.as_flattened()[at as usize / 32 % LAP_WORDS])
                >> (at % 32)
                & 1
                != 0;
            let words = load_pair(self.words.pair(self.places.reply + pair * spread.step(self.places.plane)));
            words.iter().all(|word| lap_of(*word) == used)
        })
    }
}
