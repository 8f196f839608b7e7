//! Taking posts from the slots' rings.

use super::copies::copy_pairs;
use super::messages::ALIKE;
use super::scanner::{PostMirror, Scanner};
use crate::primitive::{AtomicU64, Ordering, are_equal};
use crate::region::Region;
use alloc::boxed::Box;
use alloc::sync::Arc;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::LINE_WORDS;
use hostcall_abi::word::{Owner, PostHead};
use hostcall_service::Posts;

/// Most ring entries taken in one visit, so that one busy wave does not starve the others.
pub const ENTRIES_A_VISIT: usize = 256;

/// Room for the entries of one visit, reused from visit to visit.
pub struct PostBuffer(Box<[[u64; 2]; ENTRIES_A_VISIT]>);

impl PostBuffer {
    /// An empty buffer.
    pub fn new() -> Self {
        Self(Box::new([[0; 2]; ENTRIES_A_VISIT]))
    }

    pub(super) fn entries(&self) -> &[[u64; 2]; ENTRIES_A_VISIT] {
        &self.0
    }
}

impl Default for PostBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// What a visit to a ring found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostBatch {
    /// Posts taken.
    pub posts: u32,
    /// Entries that said whose the posts after them are.
    pub owners: u32,
    /// Entries that were no post's beginning; each was skipped.
    pub garbage: u32,
    /// Posts that lie ready were not taken.
    pub declined: bool,
}

/// How far the posts of all home slots were handled, whichever consumer takes them: ring entries, ever.
pub struct Taken(Box<[AtomicU64]>);

impl Taken {
    /// Nothing is handled yet.
    pub fn new(home_slots: u32) -> Arc<Self> {
        Arc::new(Self((0..home_slots).map(|_| AtomicU64::new(0)).collect()))
    }

    /// Acquire, pairs with `set`: what came before was handled.
    #[inline]
    pub(super) fn get(&self, slot: u32) -> u64 {
        self.0[slot as usize].load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn set(&self, slot: u32, taken: u64) {
        self.0[slot as usize].store(taken, Ordering::Release);
    }
}

impl Scanner {
    /// The slots of a line whose post bell has changed since the last look: bit `i` is slot
    /// `first_slot(line) + i`.
    #[inline]
    pub fn post_bells(&mut self, region: Region<'_>, line: usize) -> u8 {
        let first = self.first_slot(line);
        if first >= region.layout().home_slots {
            return 0;
        }
        let bells = region.post_bell_line(first as usize / LINE_WORDS);
        if are_equal(bells, &self.bells[line]) {
            return 0;
        }
        let slots = (self.slots().end.min(region.layout().home_slots) - first).min(LINE_WORDS as u32);
        let mut changed = 0;
        for (i, bell) in bells.iter().enumerate().take(slots as usize) {
            let bell = bell.load(Ordering::Relaxed);
            if bell != self.bells[line].0[i] {
                self.bells[line].0[i] = bell;
                changed |= 1 << i;
            }
        }
        changed
    }

    /// Whether the slot's wave said, when [`Scanner::post_bells`] looked last, that it reserved more ring entries than were
    /// taken.
    #[inline]
    pub fn expects_posts(&mut self, slot: u32) -> bool {
        let index = (slot - self.slots().start) as usize;
        let bell = self.bells[index / LINE_WORDS].0[index % LINE_WORDS] as u32;
        bell.wrapping_sub(self.posts_mut(slot).taken as u32).cast_signed() > 0
    }

    /// Takes the posts that lie ready in a home slot's ring, at most about [`ENTRIES_A_VISIT`] entries, in order and in
    /// runs of one launch and of the same service, number of words and extra bits. `take` returns how many posts of a run
    /// it takes, of the wave that posted them; when these are not all, the others and those behind them stay in the ring.
    #[inline]
    pub fn take_posts(
        &mut self,
        region: Region<'_>,
        slot: u32,
        buffer: &mut PostBuffer,
        mut take: impl FnMut(Owner, PostHead, Posts<'_>) -> usize,
    ) -> PostBatch {
        let PostMirror { taken: start, mut owner } = *self.posts_mut(slot);
        let copied = self.copy_ready(region, slot, buffer);
        let mut batch = PostBatch::default();
        let mut rest = &buffer.0[..copied];
        while let Some([word, first]) = rest.first() {
            let Some((head, _)) = PostHead::from_word(*first) else {
                match Owner::from_entry([*word, *first]) {
                    Some(of_next) => {
                        owner = of_next;
                        batch.owners += 1;
                    }
                    None => batch.garbage += 1,
                }
                rest = &rest[1..];
                continue;
            };
            let per = PostHead::entries_for(usize::from(head.words));
            let posts = match per {
                1 => run::<1>(rest, ALIKE),
                2 => run::<2>(rest, ALIKE),
                _ => run::<3>(rest, ALIKE),
            };
            if posts == 0 {
                break; // The last post's other entries are still on their way.
            }
            let (run, others) = rest.split_at(posts * per);
            let taken = Posts::new(run).map_or(posts, |(head, run)| take(owner, head, run).min(posts));
            batch.posts += taken as u32;
            if taken < posts {
                batch.declined = true;
                rest = &rest[taken * per..];
                break;
            }
            rest = others;
        }
        let taken = (copied - rest.len()) as u64;
        if taken > 0 {
            *self.posts_mut(slot) = PostMirror { taken: start + taken, owner };
            self.taken.set(slot, start + taken);
            // Release: the device overwrites the entries once it sees the tail.
            region.word(region.places().ring_tail(slot)).store(start + taken, Ordering::Release);
        }
        batch
    }

    /// Copies the entries that lie ready in a home slot's ring, from the first that was not taken. Returns how many these are.
    #[inline(always)]
    pub(super) fn copy_ready(&mut self, region: Region<'_>, slot: u32, buffer: &mut PostBuffer) -> usize {
        let (ring, base) = (region.layout().ring_entries.of(slot), region.sizes().ring(slot));
        let start = self.posts_mut(slot).taken;
        let mut copied = 0;
        // Once to the ring's end, and once from its beginning.
        while copied < ENTRIES_A_VISIT {
            let position = (start as u32).wrapping_add(copied as u32);
            let at = position & (ring - 1);
            let from = region.pairs(base + 2 * at, (ring - at) as usize);
            let done = copy_pairs(from, &mut buffer.0[copied..], position & ring == 0);
            copied += done;
            if done < from.len() {
                break;
            }
        }
        copied
    }

    /// Goes on as if so many entries of a slot's ring had been taken.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn skip_posts(&mut self, region: Region<'_>, slot: u32, entries: u64) {
        self.posts_mut(slot).taken = entries;
        self.taken.set(slot, entries);
        region.word(region.places().ring_tail(slot)).store(entries, Ordering::Relaxed);
    }

    /// Returns whether the next post of a home slot's ring is of one of these launches, or a launch of them has posts behind
    /// it that lie ready.
    pub fn holds_posts_of(
        &mut self,
        region: Region<'_>,
        slot: u32,
        buffer: &mut PostBuffer,
        is_one: impl Fn(LaunchId) -> bool,
    ) -> bool {
        let (ring, base) = (region.layout().ring_entries.of(slot), region.sizes().ring(slot));
        let PostMirror { taken: start, owner } = *self.posts_mut(slot);
        if is_one(owner.launch) {
            return true;
        }
        let (mut looked, mut left_of_post) = (0, 0);
        while looked < ring {
            let position = (start as u32).wrapping_add(looked);
            let at = position & (ring - 1);
            let count = (ring - at).min(ring - looked).min(ENTRIES_A_VISIT as u32) as usize;
            let from = region.pairs(base + 2 * at, count);
            let ready = copy_pairs(from, &mut buffer.0[..], position & ring == 0);
            for [word, first] in &buffer.0[..ready] {
                if left_of_post > 0 {
                    left_of_post -= 1;
                } else if let Some((head, _)) = PostHead::from_word(*first) {
                    left_of_post = PostHead::entries_for(usize::from(head.words)) - 1;
                } else if Owner::from_entry([*word, *first]).is_some_and(|owner| is_one(owner.launch)) {
                    return true;
                }
            }
            looked += ready as u32;
            if ready < count {
                break;
            }
        }
        false
    }
}

impl Region<'_> {
    /// Whose posts come next in a slot's ring of which `taken` entries were taken, if an entry that says so does.
    pub(super) fn owner_in_ring(&self, slot: u32, taken: u64) -> Option<Owner> {
        if slot >= self.layout().home_slots {
            return None;
        }
        let (ring, base, position) =
            (self.layout().ring_entries.of(slot), self.sizes().ring(slot), taken as u32);
        let (pair, mut entry) = (self.pairs(base + 2 * (position & (ring - 1)), 1), [[0; 2]]);
        let is_ready = copy_pairs(pair, &mut entry, position & ring == 0) == 1;
        if !is_ready || PostHead::from_word(entry[0][1]).is_some() {
            return None;
        }
        Owner::from_entry(entry[0])
    }

    /// How many entries lie ready in a home slot's ring and were not taken, and how many it has: for reports, which may be
    /// wrong, since the ring goes on meanwhile.
    pub fn ready_posts(&self, slot: u32) -> [u32; 2] {
        let (ring, base) = (self.layout().ring_entries.of(slot), self.sizes().ring(slot));
        let taken = self.word(self.places().ring_tail(slot)).load(Ordering::Relaxed) as u32;
        let is_ready = |entry: &u32| {
            let position = taken.wrapping_add(*entry);
            let pair = &self.pairs(base + 2 * (position & (ring - 1)), 1);
            copy_pairs(pair, &mut [[0; 2]], position & ring == 0) == 1
        };
        [(0..ring).take_while(is_ready).count() as u32, ring]
    }
}

/// Returns how many posts of `N` entries each, from the first on, have heads that agree in the bits `alike`.
#[inline(always)]
pub(super) fn run<const N: usize>(entries: &[[u64; 2]], alike: u64) -> usize {
    let posts = entries.as_chunks::<N>().0;
    let Some(first) = posts.first().map(|post| post[0][1]) else { return 0 };
    let differs = |posts: &[[[u64; 2]; N]]| {
        posts.iter().fold(0, |differ, post| differ | post[0][1] ^ first) & alike != 0
    };
    // A look at as many as a wave posts: mostly all are one run, but who claims a slot for each post has an owner before the next.
    let same = posts.chunks(32).take_while(|posts| !differs(posts)).map(<[_]>::len).sum();
    same + posts[same..].iter().take_while(|post| (post[0][1] ^ first) & alike == 0).count()
}
