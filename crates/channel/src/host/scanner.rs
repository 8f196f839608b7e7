//! Finding calls: doorbells are looked at a line of eight at a time, by their top bits alone.

use super::answer::{Answer, Busy, DetachedAnswer};
use crate::laps::{self, LAP_WORDS};
use crate::primitive::{Ordering, fence, load_pair, signs};
use crate::region::{Region, SharedMemory};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;
use hostcall_abi::MAX_LANES;
use hostcall_abi::layout::LINE_WORDS;
use hostcall_abi::word::{Doorbell, Kind, Line, POST_POSITION_BITS, RequestTag, lap_of};

/// What the host remembers of a slot.
#[derive(Clone, Default)]
pub(super) struct Mirror {
    request_laps: [u64; LAP_WORDS],
    reply_laps: [u64; LAP_WORDS],
    /// Ring entries taken, ever.
    pub(super) posts_taken: u64,
    /// The post bell when it was looked at last.
    pub(super) post_bell: u64,
}

/// A packet's request, copied out of shared memory. Reused from call to call: 64 lines are 4 KiB.
pub struct Packet {
    /// The doorbell, checked.
    pub doorbell: Doorbell,
    lines: Box<[Line; MAX_LANES]>,
}

impl Packet {
    /// An empty packet to take calls into.
    pub fn new() -> Self {
        let doorbell = Doorbell {
            service: 0,
            lanes: 1,
            first_lane: 0,
            argument_words: 0,
            result_words: 0,
            check: 0,
            kind: Kind::Words,
            after_posts: false,
            lines: false,
        };
        Self { doorbell, lines: Box::new([Line::default(); MAX_LANES]) }
    }

    /// Lanes in the packet.
    #[inline(always)]
    pub fn lanes(&self) -> u32 {
        u32::from(self.doorbell.lanes)
    }

    /// The argument words of the lane of rank `rank`.
    #[inline(always)]
    pub fn words(&self, rank: u32) -> &[u64] {
        &self.lines[rank as usize].words[..self.doorbell.argument_words as usize]
    }

    /// What the lane of rank `rank` says of itself.
    #[inline(always)]
    pub fn tag(&self, rank: u32) -> RequestTag {
        if self.doorbell.lines {
            RequestTag::from_bits(self.lines[rank as usize].tag)
        } else {
            RequestTag { lane: self.doorbell.first_lane, ..RequestTag::default() }
        }
    }
}

impl Default for Packet {
    fn default() -> Self {
        Self::new()
    }
}

/// What a rung slot turned out to hold.
#[must_use]
pub enum Take {
    /// A call, copied into the packet. It must be answered.
    Call(Answer),
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

    pub(super) fn mirror_mut(&mut self, slot: u32) -> &mut Mirror {
        let index = self.index(slot);
        &mut self.mirrors[index]
    }

    /// Takes the call of a slot that [`Scanner::rung`] named.
    #[inline]
    pub fn take(&mut self, region: Region<'_>, slot: u32, packet: &mut Packet) -> Take {
        let layout = region.layout();
        let index = self.index(slot);
        let (line, bit) = (index / LINE_WORDS, 1u8 << (index % LINE_WORDS));
        let word = region.word(layout.doorbell(slot)).load(Ordering::Relaxed);
        if lap_of(word) != (self.expected[line] & bit != 0) {
            return Take::NotYet;
        }
        let Some(doorbell) = Doorbell::from_word(word, layout.lanes) else {
            self.ignored[line] |= bit;
            return Take::Garbage(word);
        };
        let mirror = &mut self.mirrors[index];
        let n = u32::from(doorbell.lanes);
        let pairs = doorbell.request_pairs();
        let base = layout.request(slot);
        for pair in 0..pairs {
            for rank in 0..n {
                let bit = pair as u32 * n + rank;
                let lap = mirror.request_laps[(bit / 64) as usize] >> (bit % 64) & 1 == 0;
                let [a, b] = load_pair(region.pair(base + 2 * bit as usize));
                if lap_of(a) != lap || lap_of(b) != lap {
                    return Take::NotYet;
                }
                packet.lines[rank as usize].set_pair(pair, [a, b]);
            }
        }
        if doorbell.lines {
            for line in &mut packet.lines[..n as usize] {
                line.restore(doorbell.argument_words as usize);
            }
        }
        packet.doorbell = doorbell;
        if doorbell.after_posts {
            let position = packet.tag(0).post_position;
            if position != (mirror.posts_taken & ((1 << POST_POSITION_BITS) - 1)) as u32 {
                return Take::PostsFirst(position);
            }
        }
        if !matches!(doorbell.kind, Kind::Words) {
            // Pairs with the device's release fence before the doorbell: its bulk bytes are there.
            fence(Ordering::Acquire);
        }
        self.expected[line] ^= bit;
        flip(&mut mirror.request_laps, n * pairs as u32);
        let answer = Answer::new(slot, &doorbell, mirror.reply_laps);
        flip(&mut mirror.reply_laps, n * doorbell.reply_pairs() as u32);
        Take::Call(answer)
    }

    /// Makes an answer that another thread gives. Until then the slot is not looked at.
    pub fn detach(&self, memory: &Arc<SharedMemory>, answer: Answer) -> DetachedAnswer {
        let index = self.index(answer.slot());
        let (line, bit) = (index / LINE_WORDS, 1u8 << (index % LINE_WORDS));
        self.busy[line].set(bit);
        DetachedAnswer::new(answer, memory.clone(), self.busy.clone(), line, bit)
    }

    /// Whether the slot was given up after garbage.
    pub fn is_broken(&self, slot: u32) -> bool {
        let index = self.index(slot);
        self.ignored[index / LINE_WORDS] & 1 << (index % LINE_WORDS) != 0
    }

    /// Forgets everything about a slot and clears its words, for a device that forgets its state too. No
    /// wave holds the slot and no answer is outstanding.
    pub fn reset(&mut self, region: Region<'_>, slot: u32) {
        let layout = region.layout();
        let index = self.index(slot);
        let (line, bit) = (index / LINE_WORDS, 1u8 << (index % LINE_WORDS));
        region.word(layout.doorbell(slot)).store(0, Ordering::Relaxed);
        region.word(layout.post_bell(slot)).store(0, Ordering::Relaxed);
        for at in layout.ring_tail(slot)..layout.bulk(slot) {
            region.word(at).store(0, Ordering::Relaxed);
        }
        for at in layout.ring(slot)..layout.ring(slot) + 2 * layout.ring_entries as usize {
            region.word(at).store(0, Ordering::Relaxed);
        }
        self.mirrors[index] = Mirror::default();
        self.expected[line] |= bit;
        self.ignored[line] &= !bit;
        fence(Ordering::Release);
    }
}

fn flip(words: &mut [u64; LAP_WORDS], count: u32) {
    let old = *words;
    laps::flip(|i| old[i], |i, value| words[i] = value, count);
}
