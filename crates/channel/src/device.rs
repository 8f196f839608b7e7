//! The device's side: what the lanes of one wave do with their slot.
//!
//! A call by `n` converged lanes, `rank` counting them up from the leader: every lane reads its laps
//! ([`Slot::laps`]); the wave synchronises; the leader flips the laps and rings ([`Slot::ring`]); every lane
//! writes its line ([`Slot::write_line`]) and polls for its reply ([`Slot::poll_reply`]). The doorbell goes
//! first because the host, once it looks at the slot, waits for the lines anyway.

use crate::laps::{self, LAP_WORDS};
use crate::primitive::{AtomicU64, Ordering, OwnedWord, fence, load_pair, store_pair};
use crate::region::Region;
#[cfg(not(loom))]
use hostcall_abi::layout::{SLOT_STATE_WORDS, SlotStateWords};
use hostcall_abi::word::{Doorbell, Line, MAX_POST_WORDS, PostHead, lap_of, with_lap};

/// What the device remembers of a slot, in its own memory: [`hostcall_abi::layout::SlotStateWords`], word for
/// word.
#[repr(C)]
pub struct SlotState {
    request_laps: [OwnedWord; LAP_WORDS],
    reply_laps: [OwnedWord; LAP_WORDS],
    calls: OwnedWord,
    post_position: OwnedWord,
    post_tail_seen: OwnedWord,
    post_position_told: OwnedWord,
    lock: AtomicU64,
    workgroup: OwnedWord,
    cancelled_launch: OwnedWord,
    post_bell_clock: OwnedWord,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<SlotState>() == size_of::<SlotStateWords>());
#[cfg(not(loom))]
const _: () = assert!(size_of::<SlotState>() == SLOT_STATE_WORDS * 8);
#[cfg(not(loom))]
const _: () = assert!(core::mem::offset_of!(SlotState, lock) == core::mem::offset_of!(SlotStateWords, lock));

impl SlotState {
    #[cfg(test)]
    pub(crate) fn zeroed() -> Self {
        let word = |_| OwnedWord::new(0);
        Self {
            request_laps: core::array::from_fn(word),
            reply_laps: core::array::from_fn(word),
            calls: word(0),
            post_position: word(0),
            post_tail_seen: word(0),
            post_position_told: word(0),
            lock: AtomicU64::new(0),
            workgroup: word(0),
            cancelled_launch: word(0),
            post_bell_clock: word(0),
        }
    }
}

/// The laps of one lane's next packet.
#[derive(Clone, Copy, Debug)]
pub struct Laps {
    request: u8,
    reply: u8,
    doorbell: bool,
}

/// A slot as the wave that holds it sees it.
#[derive(Clone, Copy)]
pub struct Slot<'m> {
    region: Region<'m>,
    slot: u32,
    state: &'m SlotState,
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
        Self { region, slot, state }
    }

    /// The view of the channel's memory.
    #[inline(always)]
    pub fn region(&self) -> Region<'m> {
        self.region
    }

    /// The slot's number.
    #[inline(always)]
    pub fn number(&self) -> u32 {
        self.slot
    }

    #[inline(always)]
    fn get(&self, word: &OwnedWord) -> u64 {
        // SAFETY: SLOT-OWNER, promised to `new`.
        unsafe { word.get() }
    }

    #[inline(always)]
    fn set(&self, word: &OwnedWord, value: u64) {
        // SAFETY: SLOT-OWNER, promised to `new`.
        unsafe { word.set(value) }
    }

    /// The laps for the lane of rank `rank` among the packet's lanes.
    #[inline(always)]
    pub fn laps(&self, doorbell: &Doorbell, rank: u32) -> Laps {
        let n = u32::from(doorbell.lanes);
        Laps {
            request: laps::next(
                |i| self.get(&self.state.request_laps[i % LAP_WORDS]),
                n,
                rank,
                doorbell.request_pairs(),
            ),
            reply: laps::next(
                |i| self.get(&self.state.reply_laps[i % LAP_WORDS]),
                n,
                rank,
                doorbell.reply_pairs(),
            ),
            doorbell: self.get(&self.state.calls) & 1 == 0,
        }
    }

    /// The leader's part: flips the laps that the packet uses and rings the doorbell. Every lane has read its
    /// laps before.
    #[inline(always)]
    pub fn ring(&self, doorbell: &Doorbell, laps: Laps) {
        let n = u32::from(doorbell.lanes);
        let flip = |words: &[OwnedWord; LAP_WORDS], count| {
            // The remainder changes nothing, and spares GPU code the panic of a wrong index.
            let word = |i: usize| &words[i % LAP_WORDS];
            laps::flip(|i| self.get(word(i)), |i, value| self.set(word(i), value), count);
        };
        flip(&self.state.request_laps, n * doorbell.request_pairs() as u32);
        flip(&self.state.reply_laps, n * doorbell.reply_pairs() as u32);
        self.set(&self.state.calls, self.get(&self.state.calls) + 1);
        self.set(&self.state.post_position_told, self.get(&self.state.post_position));
        self.ring_again(doorbell, laps);
    }

    /// Stores the doorbell once more. Harmless: the host takes a doorbell once per lap.
    #[inline(always)]
    pub fn ring_again(&self, doorbell: &Doorbell, laps: Laps) {
        self.region
            .word(self.region.layout().doorbell(self.slot))
            .store(doorbell.to_word(laps.doorbell), Ordering::Relaxed);
    }

    /// Writes one lane's request line.
    #[inline(always)]
    pub fn write_line(&self, doorbell: &Doorbell, laps: Laps, rank: u32, line: &Line) {
        let base = self.region.layout().request(self.slot);
        for pair in 0..doorbell.request_pairs() {
            let [a, b] = line.pair(pair, doorbell.argument_words as usize);
            let lap = laps.request >> pair & 1 != 0;
            let at = base + 2 * (pair * doorbell.lanes as usize + rank as usize);
            store_pair(self.region.pair(at), [with_lap(a, lap), with_lap(b, lap)]);
        }
    }

    /// The lane's reply, once all of its words are there.
    #[inline(always)]
    pub fn poll_reply(&self, doorbell: &Doorbell, laps: Laps, rank: u32) -> Option<Line> {
        let base = self.region.layout().reply(self.slot);
        let mut line = Line::default();
        for pair in 0..doorbell.reply_pairs() {
            let lap = laps.reply >> pair & 1 != 0;
            let at = base + 2 * (pair * doorbell.lanes as usize + rank as usize);
            let [a, b] = load_pair(self.region.pair(at));
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
    pub fn has_untold_posts(&self) -> bool {
        self.get(&self.state.post_position) != self.get(&self.state.post_position_told)
    }

    /// Entries posted, ever.
    #[inline(always)]
    pub fn post_position(&self) -> u64 {
        self.get(&self.state.post_position)
    }

    /// The leader's part of a post: reserves `entries` places in the ring and returns the first, or `None`
    /// while the host has not made room.
    #[inline(always)]
    pub fn reserve_posts(&self, entries: u32) -> Option<u64> {
        let position = self.get(&self.state.post_position);
        let end = position + u64::from(entries);
        let ring = u64::from(self.region.layout().ring_entries);
        if end > self.get(&self.state.post_tail_seen) + ring {
            let tail = self.region.word(self.region.layout().ring_tail(self.slot)).load(Ordering::Relaxed);
            self.set(&self.state.post_tail_seen, tail);
            if end > tail + ring {
                return None;
            }
        }
        self.set(&self.state.post_position, end);
        Some(position)
    }

    /// Writes a post at a reserved place. `head.words` is the number of payload words.
    #[inline(always)]
    pub fn write_post(&self, position: u64, head: PostHead, words: &[u64; MAX_POST_WORDS]) {
        let layout = self.region.layout();
        let ring = u64::from(layout.ring_entries);
        let base = layout.ring(self.slot);
        for entry in 0..PostHead::entries_for(head.words as usize) {
            let position = position + entry as u64;
            let lap = (position / ring).is_multiple_of(2);
            let [a, b] = if entry == 0 {
                [words[0], head.to_word(&words[..head.words as usize])]
            } else {
                [words[2 * entry - 1], words[2 * entry]]
            };
            let at = base + 2 * (position % ring) as usize;
            store_pair(self.region.pair(at), [with_lap(a, lap), with_lap(b, lap)]);
        }
    }

    /// The leader's part after a post: tells the host, unless it was told in the last `quiet` ticks of the
    /// device's clock, for which the host goes on looking by itself.
    #[inline(always)]
    pub fn ring_post_bell(&self, clock: u64, quiet: u64) {
        if quiet == 0 || clock.wrapping_sub(self.get(&self.state.post_bell_clock)) > quiet {
            self.set(&self.state.post_bell_clock, clock);
            let bell = self.region.layout().post_bell(self.slot);
            self.region.word(bell).store(self.get(&self.state.post_position), Ordering::Relaxed);
        }
    }

    /// Writes bytes into the slot's bulk area, `offset` (a multiple of 8) from its start. Before the doorbell
    /// that tells of them comes [`Slot::publish_bulk`].
    #[inline(always)]
    pub fn write_bulk(&self, offset: usize, bytes: &[u8]) {
        self.region.write_bytes(self.region.layout().bulk(self.slot) + offset / 8, bytes);
    }

    /// Orders this lane's bulk bytes, and its reads of a reply's, before the doorbell.
    #[inline(always)]
    pub fn publish_bulk(&self) {
        fence(Ordering::Release);
    }

    /// Reads reply bytes from the bulk area, `offset` (a multiple of 8) from its start, after the reply that
    /// tells of them was seen.
    #[inline(always)]
    pub fn read_bulk(&self, offset: usize, bytes: &mut [u8]) {
        fence(Ordering::Acquire);
        self.region.read_bytes(self.region.layout().bulk(self.slot) + offset / 8, bytes);
    }

    /// Takes the slot for one part of a diverged wave. One lane tries for its part; another part may hold it.
    #[inline(always)]
    pub fn try_lock(&self) -> bool {
        self.state.lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives the slot to the wave's other parts. Every lane of the part has read its reply.
    #[inline(always)]
    pub fn unlock(&self) {
        self.state.lock.store(0, Ordering::Release);
    }

    /// Remembers that the wave knows its launch `launch` to be cancelled.
    #[inline(always)]
    pub fn set_cancelled(&self, launch: u64) {
        self.set(&self.state.cancelled_launch, launch);
    }

    /// Whether the wave knows launch `launch` to be cancelled.
    #[inline(always)]
    pub fn knows_cancelled(&self, launch: u64) -> bool {
        self.get(&self.state.cancelled_launch) == launch
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
