//! Finding calls: doorbells are looked at a line of eight at a time, by their top bits alone.

use super::answer::{Answer, Busy, DetachedAnswer};
use super::batch::{Batch, Laps, Shape, Wide};
use super::posts::Taken;
use crate::primitive::{Line, Ordering, are_equal, fence, load_pair, signs};
use crate::region::{Region, SharedMemory};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::{FIRST_CALL_WORDS, LINE_WORDS, Spread};
use hostcall_abi::word::{Kind, MAX_PAIRS, Owner, POST_POSITION_BITS, Rung, lap_of};
use hostcall_service::Caller;

/// What the host remembers of the calls of a line's slots. A call of few words touches a cache line of each kind that it needs,
/// which it shares with the other seven slots.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Mirror {
    /// Laps of the pairs in the first plane.
    reply_laps: [u64; LINE_WORDS],
    request_laps: [u64; LINE_WORDS],
    owners: [SlotOwner; LINE_WORDS],
}

const _: () = assert!(size_of::<Mirror>() == 3 * 64);

/// Bits of a line's slots.
#[derive(Clone, Copy)]
struct Bits {
    /// The lap that the slot's next doorbell has.
    expected: u8,
    /// The parity of the slot's owner pair when it was read last.
    parity: u8,
    /// The slot is not looked at: it lies beyond the range, or is broken.
    ignored: u8,
}

/// Laps of the pairs in the other planes, which packets of many lanes and words use.
#[derive(Clone, Copy, Default)]
struct WideMirror {
    request_laps: Wide,
    reply_laps: Wide,
}

/// Whose a slot's calls are, as its owner pair said last.
#[derive(Clone, Copy, Default)]
struct SlotOwner {
    launch: LaunchId,
    /// The slot whose posts come before the calls: the slot itself, or the home slot of an extra slot's wave.
    home: u32,
}

impl SlotOwner {
    /// What a slot's owner pair says, whose words have the lap `parity` once they are there. `None` before; `Some(None)` where it
    /// is no owner of this slot.
    #[inline(always)]
    fn read(region: Region<'_>, slot: u32, parity: bool) -> Option<Option<Self>> {
        let pair = load_pair(region.pair(region.places().owner(slot)));
        if pair.iter().any(|word| lap_of(*word) != parity) {
            return None;
        }
        let home_slots = region.layout().home_slots;
        Some(match Owner::from_pair(pair) {
            Some(Owner { launch, home: None, .. }) if slot < home_slots => Some(Self { launch, home: slot }),
            Some(Owner { launch, home: Some(home), .. }) if slot >= home_slots && home < home_slots => {
                Some(Self { launch, home })
            }
            _ => None,
        })
    }
}

/// What the host remembers of a home slot's posts.
#[derive(Clone, Copy, Default)]
pub(super) struct PostMirror {
    /// Ring entries taken, ever.
    pub taken: u64,
    /// Whose the next posts are.
    pub owner: Owner,
}

/// Lines of hints of first calls.
const FIRST_CALL_LINES: usize = FIRST_CALL_WORDS / LINE_WORDS;

/// What a rung slot turned out to hold.
#[must_use]
pub enum Take {
    /// A call, copied into the batch. It must be answered.
    Call,
    /// A call of a launch that has ended or was cancelled, copied into the batch, in which it is alone. It must be answered.
    OfDeadLaunch,
    /// A call that does not go with those of the batch. Answer these first, and take it again.
    Full,
    /// Not all words are there yet; look again.
    NotYet,
    /// Another wave has the slot than the last time. Forget what was kept of its lanes, and take the call.
    NewOwner,
    /// The call comes after posts that this home slot's wave has made: take posts of that slot, then look again.
    PostsFirst(u32),
    /// The device wrote what is no doorbell or no owner. The slot is ignored until its doorbell says something else, which
    /// [`Scanner::look_at_broken`] finds, or [`Scanner::reset`].
    Garbage(LaunchId),
}

/// One consumer's slots.
pub struct Scanner {
    slots: Range<u32>,
    /// Per line.
    bits: Box<[Bits]>,
    mirrors: Box<[Mirror]>,
    /// Per slot.
    wide: Box<[WideMirror]>,
    posts: Box<[PostMirror]>,
    /// Per line, the post bells when they were looked at last.
    pub(super) bells: Box<[Line]>,
    pub(super) taken: Arc<Taken>,
    /// The hints of first calls when they were looked at last.
    first_calls: [Line; FIRST_CALL_LINES],
    /// Per line, the slots whose call is being answered by another thread.
    busy: Arc<[Busy]>,
    /// Slots that are ignored after garbage, and their doorbells then.
    broken: Vec<(u32, u64)>,
}

impl Scanner {
    /// A scanner of the slots `slots` of a fresh region. The range starts at a multiple of eight.
    ///
    /// # Panics
    /// When the range does not start at a multiple of eight.
    pub fn new(slots: Range<u32>, taken: Arc<Taken>) -> Self {
        assert!(slots.start.is_multiple_of(LINE_WORDS as u32), "slots are shared out in lines of eight");
        let count = slots.len();
        let lines = count.div_ceil(LINE_WORDS);
        let mut bits = alloc::vec![Bits { expected: u8::MAX, parity: 0, ignored: 0 }; lines];
        if !count.is_multiple_of(LINE_WORDS) {
            bits[lines - 1].ignored = u8::MAX << (count % LINE_WORDS);
        }
        Self {
            slots,
            bits: bits.into_boxed_slice(),
            mirrors: alloc::vec![Mirror::default(); lines].into_boxed_slice(),
            wide: alloc::vec![WideMirror::default(); count].into_boxed_slice(),
            posts: alloc::vec![PostMirror::default(); count].into_boxed_slice(),
            bells: alloc::vec![Line::default(); lines].into_boxed_slice(),
            taken,
            first_calls: [Line::default(); FIRST_CALL_LINES],
            busy: (0..lines).map(|_| Busy::new()).collect(),
            broken: Vec::new(),
        }
    }

    /// Lines of doorbells in the range.
    pub fn lines(&self) -> usize {
        self.bits.len()
    }

    /// The slots of the range.
    pub fn slots(&self) -> Range<u32> {
        self.slots.clone()
    }

    /// The first slot of a line.
    #[inline(always)]
    pub fn first_slot(&self, line: usize) -> u32 {
        self.slots.start + (line * LINE_WORDS) as u32
    }

    /// The slots of a line that rang: bit `i` is slot `first_slot(line) + i`.
    #[inline(always)]
    pub fn rung(&self, region: Region<'_>, line: usize) -> u8 {
        let signs = signs(region.doorbell_line(self.slots.start as usize / LINE_WORDS + line));
        let Bits { expected, ignored, .. } = self.bits[line];
        let rung = !(signs ^ expected) & !ignored;
        if rung == 0 { 0 } else { rung & !self.busy[line].load() }
    }

    #[inline(always)]
    fn index(&self, slot: u32) -> usize {
        debug_assert!(self.slots.contains(&slot));
        (slot - self.slots.start) as usize
    }

    /// A slot's line, and its bit in the line's bytes.
    #[inline(always)]
    fn place(&self, slot: u32) -> (usize, u8) {
        let index = self.index(slot);
        (index / LINE_WORDS, 1 << (index % LINE_WORDS))
    }

    pub(super) fn posts_mut(&mut self, slot: u32) -> &mut PostMirror {
        let index = self.index(slot);
        &mut self.posts[index]
    }

    /// Asks for the cache lines that taking and answering the calls of these slots of a line touches first, so that they
    /// come at the same time. The calls are most likely as the batch's last. Returns how many slots these are.
    #[inline(always)]
    pub fn prefetch(&self, region: Region<'_>, line: usize, mut rung: u8, batch: &Batch) -> u32 {
        let (first, places) = (self.first_slot(line), region.places());
        // What many lanes wrote lies in line after line, which the processor asks for by itself: to ask for them here, too, made
        // such calls a tenth slower.
        let has_few_lines = batch.rung().has_lines() && batch.shape.request.is_dense();
        let mut count = 0;
        while rung != 0 {
            let (slot, bit) = (first + rung.trailing_zeros(), rung & rung.wrapping_neg());
            rung &= rung - 1;
            count += 1;
            let word = region.word(places.doorbell(slot)).load(Ordering::Relaxed);
            if (word & 1 != 0) != (self.bits[line].parity & bit != 0) {
                region.prefetch(places.owner(slot));
            }
            if has_few_lines {
                region.prefetch(places.request(slot));
            }
            region.prefetch_for_write(places.reply(slot));
        }
        count
    }

    /// Calls `found` with the lines of slots whose waves left a hint of their first call or post since the last look.
    #[inline(always)]
    pub fn first_calls(&mut self, region: Region<'_>, found: impl FnMut(usize)) {
        if (0..FIRST_CALL_LINES).any(|line| !are_equal(region.first_call_line(line), &self.first_calls[line]))
        {
            self.read_first_calls(region, found);
        }
    }

    #[inline(never)]
    fn read_first_calls(&mut self, region: Region<'_>, mut found: impl FnMut(usize)) {
        for line in 0..FIRST_CALL_LINES {
            for (seen, word) in self.first_calls[line].0.iter_mut().zip(region.first_call_line(line)) {
                let hint = word.load(Ordering::Relaxed);
                if hint == *seen {
                    continue;
                }
                *seen = hint;
                let slot = region.places().slot_of(hint as u32);
                if let Some(slot) = slot.filter(|slot| self.slots.contains(slot)) {
                    found((slot - self.slots.start) as usize / LINE_WORDS);
                }
            }
        }
    }

    /// Asks for a line of doorbells that is looked at soon.
    #[inline(always)]
    pub fn prefetch_line(&self, region: Region<'_>, line: usize) {
        region.prefetch(region.places().doorbell(self.first_slot(line)));
    }

    /// Takes the call of a slot that [`Scanner::rung`] named. `is_live` says whether a launch runs and was not cancelled.
    #[inline(always)]
    pub fn take(
        &mut self,
        region: Region<'_>,
        slot: u32,
        batch: &mut Batch,
        is_live: impl Fn(LaunchId) -> bool,
    ) -> Take {
        let index = self.index(slot);
        let (line, at) = (index / LINE_WORDS, index % LINE_WORDS);
        let (bits, mirror, bit) = (&mut self.bits[line], &mut self.mirrors[line], 1 << at);
        let word = region.word(region.places().doorbell(slot)).load(Ordering::Relaxed);
        if lap_of(word) != (bits.expected & bit != 0) {
            return Take::NotYet;
        }
        let wave_lanes = region.layout().lanes;
        let Some(rung) = Rung::from_word(word, wave_lanes) else {
            return self.give_up(region, slot, word);
        };
        if rung.parity() != (bits.parity & bit != 0) {
            return self.read_owner(region, slot, word);
        }
        let SlotOwner { launch, home } = mirror.owners[at];
        let is_live = batch.has_any_of(launch) || is_live(launch);
        if !is_live && batch.count() > 0 {
            return Take::Full;
        }
        if rung.from_any_lane() != batch.rung() {
            if batch.count() > 0 {
                return Take::Full;
            }
            batch.shape = Shape::new(rung, wave_lanes);
        } else if batch.is_full() {
            return Take::Full;
        }
        let wide = &mut self.wide[index];
        if rung.has_lines() {
            if !batch.copy_lines(&region, slot, mirror.request_laps[at], &wide.request_laps) {
                return Take::NotYet;
            }
            if rung.is_after_posts() {
                let position = batch.post_position();
                let taken = if home == slot { self.posts[index].taken } else { self.taken.get(home) };
                // Other parts of the wave may have posted on, so that more is taken than the call waits for.
                let behind = position.wrapping_sub(taken as u32) % (1 << POST_POSITION_BITS);
                if behind != 0 && behind < 1 << (POST_POSITION_BITS - 1) {
                    return Take::PostsFirst(home);
                }
            }
            mirror.request_laps[at] ^= batch.shape.request_flips[0];
            flip_wide(&mut wide.request_laps, batch.shape.request, &batch.shape.request_flips);
        }
        if rung.kind() != Kind::Words {
            // Pairs with the device's release fence before the doorbell: its bytes are there.
            fence(Ordering::Acquire);
        }
        bits.expected ^= bit;
        let caller = Caller { launch, slot, lane: rung.first_lane() };
        batch.push(caller, mirror.reply_laps[at], &wide.reply_laps);
        mirror.reply_laps[at] ^= batch.shape.reply_flips[0];
        flip_wide(&mut wide.reply_laps, batch.shape.reply, &batch.shape.reply_flips);
        if is_live { Take::Call } else { Take::OfDeadLaunch }
    }

    /// Takes those of a line's calls that [`Scanner::take`] would add to the batch at once, and that are their doorbells alone
    /// and answered in the first plane, in a few instructions each. Returns the slots whose calls are left. `has_new_owner` is what
    /// [`Take::NewOwner`] asks for.
    #[inline(always)]
    pub fn take_short(
        &mut self,
        region: Region<'_>,
        line: usize,
        rung: u8,
        batch: &mut Batch,
        is_live: impl Fn(LaunchId) -> bool,
        has_new_owner: impl Fn(u32),
    ) -> u8 {
        if !batch.shape.is_short() {
            return rung;
        }
        let first = self.first_slot(line);
        let bells = region.doorbell_line(first as usize / LINE_WORDS);
        let (bits, mirror) = (&mut self.bits[line], &mut self.mirrors[line]);
        let launch = mirror.owners[rung.trailing_zeros() as usize % LINE_WORDS].launch;
        if batch.count() == 0 && !is_live(launch) || batch.count() > 0 && !batch.has_any_of(launch) {
            return rung;
        }
        let (same, flips, lanes) = (batch.rung(), batch.shape.reply_flips[0], region.layout().lanes);
        let (mut left, mut taken) = (rung, 0);
        batch.push_each(|caller, used| {
            while left != 0 {
                let at = left.trailing_zeros() as usize % LINE_WORDS;
                left &= left - 1;
                let word = bells[at].load(Ordering::Relaxed);
                let (slot, lap, parity) = (first + at as u32, bits.expected >> at & 1 != 0, word & 1 != 0);
                // A doorbell that differs from a good one in lap, parity and lane only is one too, if there is such a lane.
                let lane = same.lane_of(word, lap, parity).filter(|lane| u32::from(*lane) < lanes);
                if lane.is_some() && parity != (bits.parity >> at & 1 != 0) {
                    let Some(Some(owner)) = SlotOwner::read(region, slot, parity) else { continue };
                    mirror.owners[at] = owner;
                    bits.parity ^= 1 << at;
                    has_new_owner(slot);
                }
                if let Some(lane) = lane
                    && mirror.owners[at].launch == launch
                {
                    *caller = Caller { launch, slot, lane };
                    *used = mirror.reply_laps[at];
                    mirror.reply_laps[at] ^= flips;
                    taken |= 1 << at;
                    return true;
                }
            }
            false
        });
        bits.expected ^= taken;
        rung ^ taken
    }

    /// Reads whose a slot's calls are from now on: its doorbell, `word`, has another parity than the last one.
    #[cold]
    #[inline(never)]
    fn read_owner(&mut self, region: Region<'_>, slot: u32, word: u64) -> Take {
        let (line, bit) = self.place(slot);
        let owner = match SlotOwner::read(region, slot, self.bits[line].parity & bit == 0) {
            None => return Take::NotYet,
            Some(None) => return self.give_up(region, slot, word),
            Some(Some(owner)) => owner,
        };
        *self.owner_mut(slot) = owner;
        self.bits[line].parity ^= bit;
        Take::NewOwner
    }

    /// Ignores a slot whose device wrote what makes no sense. It is the launch's that the owner pair names, also when the
    /// pair was not read before: a new wave may have the slot, and the launch of the one before may have ended well.
    #[cold]
    fn give_up(&mut self, region: Region<'_>, slot: u32, word: u64) -> Take {
        let (line, bit) = self.place(slot);
        self.bits[line].ignored |= bit;
        self.broken.push((slot, word));
        let pair = load_pair(region.pair(region.places().owner(slot)));
        let named = Owner::from_pair(pair).filter(|_| lap_of(pair[0]) == lap_of(pair[1]));
        Take::Garbage(named.map_or(self.owner(slot), |owner| owner.launch))
    }

    /// Looks again at slots that were broken, if their doorbells are others now: a wave that waits rings again, and so does
    /// the next that has the slot.
    #[inline(always)]
    pub fn look_at_broken(&mut self, region: Region<'_>) {
        if !self.broken.is_empty() {
            self.mend(region);
        }
    }

    #[cold]
    #[inline(never)]
    fn mend(&mut self, region: Region<'_>) {
        let (bits, first) = (&mut self.bits, self.slots.start);
        self.broken.retain(|(slot, garbage)| {
            let is_same = region.word(region.places().doorbell(*slot)).load(Ordering::Relaxed) == *garbage;
            if !is_same {
                let index = (slot - first) as usize;
                bits[index / LINE_WORDS].ignored &= !(1 << (index % LINE_WORDS));
            }
            is_same
        });
    }

    /// The launch whose the slot's calls are, as its device said last.
    pub fn owner(&self, slot: u32) -> LaunchId {
        let index = self.index(slot);
        self.mirrors[index / LINE_WORDS].owners[index % LINE_WORDS].launch
    }

    fn owner_mut(&mut self, slot: u32) -> &mut SlotOwner {
        let index = self.index(slot);
        &mut self.mirrors[index / LINE_WORDS].owners[index % LINE_WORDS]
    }

    /// The launches whose the calls and posts of a line's slots are, as far as the device has said: also of slots that were
    /// claimed and have not rung.
    pub fn owners(&self, region: Region<'_>, line: usize) -> impl Iterator<Item = LaunchId> {
        let slots = line * LINE_WORDS..self.posts.len().min((line + 1) * LINE_WORDS);
        let each = slots.flat_map(move |index| {
            let (slot, posts) = (self.slots.start + index as u32, self.posts[index]);
            let next_calls = Owner::from_pair(load_pair(region.pair(region.places().owner(slot))));
            let next_posts = region.owner_in_ring(slot, posts.taken);
            let next =
                [next_calls, next_posts].map(|owner| owner.map_or(LaunchId::NONE, |owner| owner.launch));
            [self.owner(slot), posts.owner.launch].into_iter().chain(next)
        });
        each.filter(|launch| *launch != LaunchId::NONE)
    }

    /// What a slot's doorbell says now, for reports. `None` when it is no doorbell.
    pub fn doorbell(&self, region: Region<'_>, slot: u32) -> Option<Rung> {
        let word = region.word(region.places().doorbell(slot)).load(Ordering::Relaxed);
        Rung::from_word(word, region.layout().lanes)
    }

    /// Makes an answer that another thread gives. Until then the slot is not looked at.
    pub fn detach(&self, memory: &Arc<SharedMemory>, answer: Answer) -> DetachedAnswer {
        let (line, bit) = self.place(answer.slot());
        self.busy[line].set(bit);
        DetachedAnswer::new(answer, memory.clone(), self.busy.clone(), line, bit)
    }

    /// Looks at a slot no more, until it is reset.
    pub fn ignore(&mut self, slot: u32) {
        let (line, bit) = self.place(slot);
        self.bits[line].ignored |= bit;
        self.broken.retain(|(broken, _)| *broken != slot);
    }

    /// Returns whether nobody looks at the slot's calls: it held garbage, or [`Scanner::ignore`] was called for it.
    pub fn is_ignored(&self, slot: u32) -> bool {
        let (line, bit) = self.place(slot);
        self.bits[line].ignored & bit != 0
    }

    /// Forgets everything about a slot and clears its words, for a device that forgets its state too. No
    /// wave holds the slot and no answer is outstanding.
    pub fn reset(&mut self, region: Region<'_>, slot: u32) {
        let (sizes, places) = (region.sizes(), region.places());
        let (index, (line, bit)) = (self.index(slot), self.place(slot));
        let clear = |at: u32, words: u32| {
            (at..at + words).for_each(|at| region.word(at).store(0, Ordering::Relaxed));
        };
        clear(places.doorbell(slot), 1);
        clear(places.owner(slot), 2);
        for plane in 0..MAX_PAIRS as u32 {
            clear(places.reply(slot) + plane * places.plane, 2 * sizes.layout.lanes);
            clear(places.request(slot) + plane * places.plane, 2 * sizes.layout.lanes);
        }
        if slot < sizes.layout.home_slots {
            clear(places.post_bell(slot), 1);
            clear(places.ring_tail(slot), 1);
            clear(sizes.ring(slot), 2 * sizes.layout.ring_entries.of(slot));
            self.taken.set(slot, 0);
        }
        let (bits, mirror, at) = (&mut self.bits[line], &mut self.mirrors[line], index % LINE_WORDS);
        (mirror.request_laps[at], mirror.reply_laps[at]) = (0, 0);
        mirror.owners[at] = SlotOwner::default();
        self.wide[index] = WideMirror::default();
        self.posts[index] = PostMirror::default();
        self.bells[line].0[at] = 0;
        self.broken.retain(|(broken, _)| *broken != slot);
        bits.expected |= bit;
        bits.parity &= !bit;
        bits.ignored &= !bit;
        fence(Ordering::Release);
    }
}

#[inline(always)]
fn flip_wide(laps: &mut Wide, spread: Spread, flips: &Laps) {
    if !spread.is_dense() {
        for (laps, flips) in laps.iter_mut().zip(&flips[1..]) {
            *laps ^= flips;
        }
    }
}
