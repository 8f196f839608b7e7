//! Finding calls: doorbells are looked at a line of eight at a time, by their top bits alone.

use super::answer::{Answer, Busy, DetachedAnswer};
use super::batch::{Batch, Laps, Shape};
use crate::primitive::{Ordering, fence, prefetch, prefetch_for_write, signs, store_pair};
use crate::region::{Region, SharedMemory};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;
use hostcall_abi::layout::{LINE_WORDS, Spread};
use hostcall_abi::service::Caller;
use hostcall_abi::word::{Kind, MAX_PAIRS, POST_POSITION_BITS, Rung, lap_of, with_lap};

/// What the host remembers of a slot's calls: a cache line.
#[derive(Clone, Default)]
#[repr(align(64))]
struct Mirror {
    request_laps: Laps,
    reply_laps: Laps,
}

/// What the host remembers of a slot's posts.
#[derive(Clone, Copy, Default)]
pub(super) struct PostMirror {
    /// Ring entries taken, ever.
    pub taken: u64,
    /// The post bell when it was looked at last.
    pub bell: u32,
    /// Entries that the ring has; 0 for as many as the layout says.
    pub entries: u32,
}

impl PostMirror {
    pub fn entries(&self, region: Region<'_>) -> u32 {
        if self.entries == 0 { region.layout().ring_entries } else { self.entries }
    }
}

/// What a rung slot turned out to hold.
#[must_use]
pub enum Take {
    /// A call, copied into the batch. It must be answered.
    Call,
    /// A call that does not go with those of the batch. Answer these first, and take it again.
    Full,
    /// Not all words are there yet; look again.
    NotYet,
    /// The call comes after posts: take those up to this position (its low 18 bits), then look again.
    PostsFirst(u32),
    /// The device wrote what is no doorbell. The slot is ignored until [`Scanner::reset`].
    Garbage(u64),
}

/// One consumer's slots.
pub struct Scanner {
    slots: Range<u32>,
    mirrors: Box<[Mirror]>,
    posts: Box<[PostMirror]>,
    /// Per line of doorbells, the lap that each slot's next doorbell has.
    expected: Box<[u8]>,
    /// Per line, the slots that are not looked at: beyond the range, or broken.
    ignored: Box<[u8]>,
    /// Per line, the slots whose call is being answered by another thread.
    busy: Arc<[Busy]>,
}

impl Scanner {
    /// A scanner of the slots `slots` of a fresh region. The range starts at a multiple of eight.
    ///
    /// # Panics
    /// When the range does not start at a multiple of eight.
    pub fn new(slots: Range<u32>) -> Self {
        assert!(slots.start.is_multiple_of(LINE_WORDS as u32), "slots are shared out in lines of eight");
        let count = slots.len();
        let lines = count.div_ceil(LINE_WORDS);
        let mut ignored = alloc::vec![0u8; lines].into_boxed_slice();
        if !count.is_multiple_of(LINE_WORDS) {
            ignored[lines - 1] = u8::MAX << (count % LINE_WORDS);
        }
        Self {
            slots,
            mirrors: alloc::vec![Mirror::default(); count].into_boxed_slice(),
            posts: alloc::vec![PostMirror::default(); count].into_boxed_slice(),
            expected: alloc::vec![u8::MAX; lines].into_boxed_slice(),
            ignored,
            busy: (0..lines).map(|_| Busy::new()).collect(),
        }
    }

    /// Lines of doorbells in the range.
    pub fn lines(&self) -> usize {
        self.expected.len()
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
        let rung = !(signs ^ self.expected[line]) & !self.ignored[line];
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

    /// Asks for the cache lines that taking and answering a slot's call touches first, so that those of several slots
    /// come at the same time. The call is most likely as the batch's last.
    #[inline(always)]
    pub fn prefetch(&self, region: Region<'_>, slot: u32, batch: &Batch) {
        if batch.rung().has_lines() {
            prefetch(region.word(region.places().request(slot)));
        }
        prefetch_for_write(region.word(region.places().reply(slot)));
    }

    /// Asks for a line of doorbells that is looked at soon.
    #[inline(always)]
    pub fn prefetch_line(&self, region: Region<'_>, line: usize) {
        prefetch(&region.doorbell_line(self.slots.start as usize / LINE_WORDS + line)[0]);
    }

    /// Takes the call of a slot that [`Scanner::rung`] named and launch `launch` has.
    #[inline(always)]
    pub fn take(&mut self, region: Region<'_>, slot: u32, launch: u64, batch: &mut Batch) -> Take {
        let (index, (line, bit)) = (self.index(slot), self.place(slot));
        let word = region.word(region.places().doorbell(slot)).load(Ordering::Relaxed);
        if lap_of(word) != (self.expected[line] & bit != 0) {
            return Take::NotYet;
        }
        let wave_lanes = region.layout().lanes;
        let Some(rung) = Rung::from_word(word, wave_lanes) else {
            self.ignored[line] |= bit;
            return Take::Garbage(word);
        };
        if rung.from_any_lane() != batch.rung() {
            if batch.count() > 0 {
                return Take::Full;
            }
            batch.shape = Shape::new(rung, wave_lanes);
        } else if !batch.has_room() {
            return Take::Full;
        }
        let mirror = &mut self.mirrors[index];
        if rung.has_lines() {
            if !batch.copy_lines(region, slot, &mirror.request_laps) {
                return Take::NotYet;
            }
            if rung.is_after_posts() {
                let position = batch.post_position();
                if position != (self.posts[index].taken & ((1 << POST_POSITION_BITS) - 1)) as u32 {
                    return Take::PostsFirst(position);
                }
            }
            flip(&mut mirror.request_laps, batch.shape.request);
        }
        if rung.kind() != Kind::Words {
            // Pairs with the device's release fence before the doorbell: its bulk bytes are there.
            fence(Ordering::Acquire);
        }
        self.expected[line] ^= bit;
        batch.push(Caller { launch, slot, lane: rung.first_lane() }, &mirror.reply_laps);
        flip(&mut mirror.reply_laps, batch.shape.reply);
        Take::Call
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

    /// Lets a slot's ring have `entries` entries from now on: a power of two, not more than the layout says. No wave holds
    /// the slot, and all of its posts were taken.
    pub fn resize_ring(&mut self, region: Region<'_>, slot: u32, entries: u32) {
        let index = self.index(slot);
        let posts = &mut self.posts[index];
        if posts.entries(region) == entries {
            return;
        }
        posts.entries = entries;
        if posts.taken == 0 {
            return; // Zeros are no posts of the first pass.
        }
        let begin = posts.taken as u32;
        for position in (0..entries).map(|i| begin.wrapping_add(i)) {
            // What is no post of the pass in which the place comes next.
            let none = with_lap(0, position & entries != 0);
            let at = region.places().ring(slot) + 2 * (position & (entries - 1));
            store_pair(region.pair(at), [none, none]);
        }
        fence(Ordering::Release);
    }

    /// Whether nothing is left to do for a slot: no call has rung or is being answered, and it was not given up.
    pub fn is_quiet(&self, region: Region<'_>, slot: u32) -> bool {
        let (line, bit) = self.place(slot);
        (self.rung(region, line) | self.busy[line].load() | self.ignored[line]) & bit == 0
    }

    /// Whether the slot was given up after garbage.
    pub fn is_broken(&self, slot: u32) -> bool {
        let (line, bit) = self.place(slot);
        self.ignored[line] & bit != 0
    }

    /// Forgets everything about a slot and clears its words, for a device that forgets its state too. No
    /// wave holds the slot and no answer is outstanding.
    pub fn reset(&mut self, region: Region<'_>, slot: u32) {
        let places = region.places();
        let (index, (line, bit)) = (self.index(slot), self.place(slot));
        region.word(places.doorbell(slot)).store(0, Ordering::Relaxed);
        region.word(places.post_bell(slot)).store(0, Ordering::Relaxed);
        region.word(places.ring_tail(slot)).store(0, Ordering::Relaxed);
        for plane in 0..MAX_PAIRS as u32 {
            for base in [places.reply(slot), places.request(slot)] {
                let base = base + plane * places.plane;
                for at in base..base + 2 * region.layout().lanes {
                    region.word(at).store(0, Ordering::Relaxed);
                }
            }
        }
        for at in places.ring(slot)..places.ring(slot) + 2 * region.layout().ring_entries {
            region.word(at).store(0, Ordering::Relaxed);
        }
        self.mirrors[index] = Mirror::default();
        self.posts[index] = PostMirror { entries: self.posts[index].entries, ..PostMirror::default() };
        self.expected[line] |= bit;
        self.ignored[line] &= !bit;
        fence(Ordering::Release);
    }
}

#[inline(always)]
fn flip(laps: &mut Laps, spread: Spread) {
    laps[0] ^= spread.plane_flips(0);
    if !spread.is_dense() {
        for (plane, laps) in laps.iter_mut().enumerate().skip(1) {
            *laps ^= spread.plane_flips(plane);
        }
    }
}
