//! The device's side: what the lanes of one wave do with their slot.
//!
//! A call by `n` converged lanes, `rank` counting them up from the leader: every lane reads its laps
//! ([`Slot::laps`]); the wave synchronises; the leader rings and the lanes flip the laps ([`Slot::ring`]); every lane
//! writes its line ([`Slot::write_line`]) and polls for its reply ([`Slot::poll_reply`]). The doorbell goes
//! first because the host, once it looks at the slot, waits for the lines anyway.

use crate::primitive::{
    AtomicU32, AtomicU64, Ordering, Owned, OwnedFour, OwnedWord, fence, load_pair, store_pair,
};
use crate::region::Region;
use hostcall_abi::layout::{LAP_WORDS, Spread};
#[cfg(not(loom))]
use hostcall_abi::layout::{SLOT_STATE_BYTES, SlotStateWords};
use hostcall_abi::word::{Doorbell, Line, MAX_POST_WORDS, PostHead, lap_of, with_lap};

/// What the device remembers of a slot, in its own memory: [`hostcall_abi::layout::SlotStateWords`], field for
/// field.
#[repr(C, align(16))]
pub struct SlotState {
    /// Calls, post bell period, post position, post tail seen.
    first: [Owned<u32>; 4],
    post_position_told: Owned<u32>,
    lock: AtomicU32,
    cancelled: Owned<u32>,
    reserved: u32,
    request_laps: [Owned<u32>; LAP_WORDS],
    reply_laps: [Owned<u32>; LAP_WORDS],
    workgroup: Owned<u64>,
    reserved_end: [u64; 3],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<SlotState>() == SLOT_STATE_BYTES);
#[cfg(not(loom))]
const _: () = assert!(core::mem::offset_of!(SlotState, lock) == core::mem::offset_of!(SlotStateWords, lock));
#[cfg(not(loom))]
const _: () =
    assert!(core::mem::offset_of!(SlotState, cancelled) == core::mem::offset_of!(SlotStateWords, cancelled));
#[cfg(not(loom))]
const _: () =
    assert!(core::mem::offset_of!(SlotState, workgroup) == core::mem::offset_of!(SlotStateWords, workgroup));

impl SlotState {
    #[cfg(test)]
    pub(crate) fn zeroed() -> Self {
        let word = |_| Owned::new(0);
        Self {
            first: core::array::from_fn(word),
            post_position_told: word(0),
            lock: AtomicU32::new(0),
            cancelled: word(0),
            reserved: 0,
            request_laps: core::array::from_fn(word),
            reply_laps: core::array::from_fn(word),
            workgroup: Owned::new(0),
            reserved_end: [0; 3],
        }
    }
}

// Places in `SlotState::first`.
const CALLS: usize = 0;
const POST_BELL_PERIOD: usize = 1;
const POST_POSITION: usize = 2;
const POST_TAIL_SEEN: usize = 3;

/// What a call or post has to know of its slot, in one load on a GPU.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    calls: u32,
    post_bell_period: u32,
    /// Whether the wave knows its launch to be cancelled.
    pub cancelled: bool,
    /// Low bits of the entries posted, ever.
    pub post_position: u32,
    post_tail_seen: u32,
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
    /// Calls made before.
    calls: u32,
    /// What the doorbell tells of posts.
    post_position: u32,
}

/// A slot as the wave that holds it sees it.
#[derive(Clone, Copy)]
pub struct Slot<'m> {
    region: Region<'m>,
    slot: u32,
    state: &'m SlotState,
    first: OwnedFour<'m>,
}

impl<'m> Slot<'m> {
    /// The slot of number `slot`.
    ///
    /// # Safety
    /// SLOT-OWNER: the calling lane's wave holds the slot while the value is used, its lanes synchronise
    /// between writes and reads by different lanes, and `state` is the slot's own. `slot` is less than the
    /// layout's slots, and the ranks and counts passed to the methods are less than its lanes.
    #[inline(always)]
    pub unsafe fn new(region: Region<'m>, slot: u32, state: &'m SlotState) -> Self {
        Self { region, slot, state, first: OwnedFour::new(&state.first) }
    }

    /// The view of the channel's memory.
    #[inline(always)]
    pub fn region(&self) -> Region<'m> {
        self.region
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
        let [calls, post_bell_period, post_position, post_tail_seen] = unsafe { self.first.get() };
        // A load of its own, which posts, that do not ask, do without.
        let cancelled = self.get(&self.state.cancelled) != 0;
        Glance { calls, post_bell_period, cancelled, post_position, post_tail_seen }
    }

    /// The laps for the lane of rank `rank` among the packet's lanes.
    #[inline(always)]
    pub fn laps(&self, glance: Glance, doorbell: &Doorbell, rank: u32) -> Laps {
        // The remainder changes nothing, and spares GPU code the panic of a wrong index.
        let next = |words: &[Owned<u32>; LAP_WORDS], pairs| {
            let spread = self.spread(doorbell, pairs);
            (0..pairs).fold(0, |laps, pair| {
                let at = spread.lap(pair as u32, rank);
                let used = self.get(&words[at as usize / 32 % LAP_WORDS]) >> (at % 32) & 1;
                laps | (used as u8 ^ 1) << pair
            })
        };
        Laps {
            request: next(&self.state.request_laps, doorbell.request_pairs()),
            reply: next(&self.state.reply_laps, doorbell.reply_pairs()),
            calls: glance.calls,
            post_position: glance.post_position,
        }
    }

    /// Rings the doorbell, which the leader (rank 0) does, and flips the laps that the packet uses, of
    /// which each lane has some words. Every lane has read its laps before, and all of them come here.
    #[inline(always)]
    pub fn ring(&self, doorbell: &Doorbell, laps: Laps, rank: u32) {
        if rank == 0 {
            self.ring_again(doorbell, laps);
            self.set_first::<CALLS>(laps.calls.wrapping_add(1));
            if doorbell.after_posts {
                self.set(&self.state.post_position_told, laps.post_position);
            }
        }
        let flip = |words: &[Owned<u32>; LAP_WORDS], pairs| {
            let spread = self.spread(doorbell, pairs);
            let mut at = rank;
            while at < spread.lap_words() {
                let (word, flips) = (&words[at as usize % LAP_WORDS], spread.flips(at));
                if flips != 0 {
                    self.set(word, self.get(word) ^ flips);
                }
                at += u32::from(doorbell.lanes);
            }
        };
        flip(&self.state.request_laps, doorbell.request_pairs());
        flip(&self.state.reply_laps, doorbell.reply_pairs());
    }

    #[inline(always)]
    fn spread(&self, doorbell: &Doorbell, pairs: usize) -> Spread {
        Spread::new(doorbell.lanes.into(), pairs, self.region.layout().lanes)
    }

    /// Stores the doorbell once more. Harmless: the host takes a doorbell once per lap.
    #[inline(always)]
    pub fn ring_again(&self, doorbell: &Doorbell, laps: Laps) {
        let at = self.region.places().doorbell(self.slot);
        self.region.word(at).store(doorbell.to_word(laps.calls & 1 == 0), Ordering::Relaxed);
    }

    /// Writes one lane's request line.
    #[inline(always)]
    pub fn write_line(&self, doorbell: &Doorbell, laps: Laps, rank: u32, line: &Line) {
        let places = self.region.places();
        let base = places.request(self.slot) + 2 * rank;
        let step = self.spread(doorbell, doorbell.request_pairs()).step(places.plane);
        for pair in 0..doorbell.request_pairs() {
            let [a, b] = line.pair(pair, doorbell.argument_words as usize);
            let lap = laps.request >> pair & 1 != 0;
            store_pair(self.region.pair(base + pair as u32 * step), [with_lap(a, lap), with_lap(b, lap)]);
        }
    }

    /// The lane's reply, once all of its words are there.
    #[inline(always)]
    pub fn poll_reply(&self, doorbell: &Doorbell, laps: Laps, rank: u32) -> Option<Line> {
        let places = self.region.places();
        let base = places.reply(self.slot) + 2 * rank;
        let step = self.spread(doorbell, doorbell.reply_pairs()).step(places.plane);
        let mut line = Line::default();
        for pair in 0..doorbell.reply_pairs() {
            let lap = laps.reply >> pair & 1 != 0;
            let [a, b] = load_pair(self.region.pair(base + pair as u32 * step));
            if lap_of(a) != lap || lap_of(b) != lap {
                return None;
            }
            line.set_pair(pair, [a, b]);
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
        // Negative after `set_cancelled`.
        let free = self.region.layout().ring_entries.wrapping_sub(used).cast_signed();
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

    /// The same when the ring [has room](Self::has_room).
    #[inline(always)]
    pub fn take_places(&self, glance: Glance, entries: u32) {
        self.set_first::<POST_POSITION>(glance.post_position.wrapping_add(entries));
    }

    /// The leader's part when there was no room: asks how far the host has read. One read over the link.
    #[inline(always)]
    pub fn look_at_ring_tail(&self) {
        let tail = self.region.word(self.region.places().ring_tail(self.slot)).load(Ordering::Relaxed);
        self.set_first::<POST_TAIL_SEEN>(tail as u32);
    }

    /// Writes a post at a reserved place. `head.words` is the number of payload words.
    #[inline(always)]
    pub fn write_post(&self, position: u32, head: PostHead, words: &[u64; MAX_POST_WORDS]) {
        let ring = self.region.layout().ring_entries;
        let base = self.region.places().ring(self.slot);
        for entry in 0..PostHead::entries_for(head.words as usize) {
            let position = position.wrapping_add(entry as u32);
            let lap = position & ring == 0;
            let [a, b] = if entry == 0 {
                [words[0], head.to_word(&words[..head.words as usize])]
            } else {
                [words[2 * entry - 1], words[2 * entry]]
            };
            let pair = self.region.pair_of(base, position & (ring - 1));
            store_pair(pair, [with_lap(a, lap), with_lap(b, lap)]);
        }
    }

    /// The leader's part after posts up to `position` that the host is not [told](Self::is_told) of.
    #[inline(always)]
    pub fn ring_post_bell(&self, period: Option<u32>, position: u32) {
        if let Some(period) = period {
            self.set_first::<POST_BELL_PERIOD>(period);
        }
        let bell = self.region.places().post_bell(self.slot);
        self.region.word(bell).store(position.into(), Ordering::Relaxed);
    }

    /// Writes bytes into the slot's bulk area, `offset` (a multiple of 8) from its start. Before the doorbell
    /// that tells of them comes [`Slot::publish_bulk`].
    #[inline]
    pub fn write_bulk(&self, offset: usize, bytes: &[u8]) {
        self.region.write_bytes(self.region.places().bulk(self.slot) + offset as u32 / 8, bytes);
    }

    /// Orders this lane's bulk bytes, and its reads of a reply's, before the doorbell.
    #[inline(always)]
    pub fn publish_bulk(&self) {
        fence(Ordering::Release);
    }

    /// Reads reply bytes from the bulk area, `offset` (a multiple of 8) from its start, after the reply that
    /// tells of them was seen.
    #[inline]
    pub fn read_bulk(&self, offset: usize, bytes: &mut [u8]) {
        fence(Ordering::Acquire);
        self.region.read_bytes(self.region.places().bulk(self.slot) + offset as u32 / 8, bytes);
    }

    /// Lines a part of a diverged wave up for the slot; one lane does it for its part. Parts get the slot in the order
    /// in which they lined up: one that calls again and again leaves the others no moment to find the slot free in.
    #[inline(always)]
    pub fn line_up(&self) -> Turn {
        let mut lock = self.state.lock.load(Ordering::Relaxed);
        // The upper half wraps without touching the lower one.
        while let Err(now) = self.state.lock.compare_exchange(
            lock,
            lock.wrapping_add(1 << TURN_BITS),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            lock = now;
        }
        Turn(lock >> TURN_BITS)
    }

    /// Whether the part has the slot now, until [`Slot::end_turn`].
    #[inline(always)]
    pub fn has_turn(&self, turn: Turn) -> bool {
        self.state.lock.load(Ordering::Acquire) & TURN_MASK == turn.0
    }

    /// Gives the slot to the wave's next part. Every lane of the part has read its reply.
    #[inline(always)]
    pub fn end_turn(&self) {
        let mut lock = self.state.lock.load(Ordering::Relaxed);
        loop {
            let next = lock & !TURN_MASK | lock.wrapping_add(1) & TURN_MASK;
            match self.state.lock.compare_exchange(lock, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                // Another part lined up.
                Err(now) => lock = now,
            }
        }
    }

    /// Remembers that the wave knows its launch to be cancelled. The host clears the states of a cancelled
    /// launch's slots.
    ///
    /// Posts find no room from now on, so that the way of a post need not look whether it was cancelled.
    pub fn set_cancelled(&self) {
        self.set(&self.state.cancelled, 1);
        let position = self.get(&self.state.first[POST_POSITION]);
        self.set_first::<POST_TAIL_SEEN>(position ^ 1 << 31);
    }

    /// Sets the workgroup that the wave works on.
    #[inline(always)]
    pub fn set_workgroup(&self, workgroup: u64) {
        self.set(&self.state.workgroup, workgroup);
    }

    /// The workgroup that the wave works on.
    #[inline(always)]
    pub fn workgroup(&self) -> u64 {
        self.get(&self.state.workgroup)
    }
}

/// The slots that calls which are waited for later take, one each: a bitmap in the device's own memory, set
/// bits are taken.
#[derive(Clone, Copy)]
pub struct Pool<'m> {
    bitmap: &'m [AtomicU64],
    slots: u32,
}

impl<'m> Pool<'m> {
    /// A pool of `slots` slots. `bitmap` has a bit for each.
    #[inline(always)]
    pub fn new(bitmap: &'m [AtomicU64], slots: u32) -> Self {
        Self { bitmap, slots }
    }

    /// The pool whose bitmap lies at `address`.
    ///
    /// # Safety
    /// `slots` bits, rounded up to words, lie there for `'m`, and only pools access them.
    #[cfg(not(loom))]
    #[inline(always)]
    pub unsafe fn from_address(address: u64, slots: u32) -> Self {
        let words = slots.div_ceil(64) as usize;
        // SAFETY: the caller promises so; `AtomicU64` has `u64`'s layout.
        let bitmap = unsafe { core::slice::from_raw_parts(address as usize as *const AtomicU64, words) };
        Self { bitmap, slots }
    }

    /// Takes a free slot's index in the pool, or `None` when all are taken.
    ///
    /// `hint` spreads waves over the bitmap; any number does.
    pub fn claim(&self, hint: u32) -> Option<u32> {
        let words = self.bitmap.len();
        for i in 0..words {
            let at = (hint as usize + i) % words;
            let word = &self.bitmap[at];
            let mut taken = word.load(Ordering::Relaxed);
            loop {
                let bit = taken.trailing_ones();
                let index = at as u32 * 64 + bit;
                if bit == 64 || index >= self.slots {
                    break;
                }
                // Acquire pairs with `release`: the slot's state is as its last holder left it.
                match word.compare_exchange(taken, taken | 1 << bit, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Some(index),
                    Err(now) => taken = now,
                }
            }
        }
        None
    }

    /// Gives a claimed slot back.
    pub fn release(&self, index: u32) {
        let word = &self.bitmap[(index / 64) as usize];
        let mut taken = word.load(Ordering::Relaxed);
        // A compare-exchange because LLVM drops the order of NVPTX's other read-modify-writes.
        while let Err(now) =
            word.compare_exchange(taken, taken & !(1 << (index % 64)), Ordering::Release, Ordering::Relaxed)
        {
            taken = now;
        }
    }
}
