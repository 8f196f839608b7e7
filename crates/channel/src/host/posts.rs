//! Taking posts from the slots' rings.

use super::scanner::Scanner;
use crate::primitive::{Ordering, copy_pairs};
use crate::region::Region;
use alloc::boxed::Box;
use hostcall_abi::batch::Posts;
use hostcall_abi::layout::LINE_WORDS;
use hostcall_abi::word::{LAP, PostHead};

/// Most ring entries taken in one visit, so that one busy wave does not starve the others.
pub const ENTRIES_A_VISIT: usize = 256;

/// Bits of a post's head in which the posts of a run agree: service, number of words and extra bits.
const RUN: u64 = 0xffff << 38 | 15 << 54 | 0xffff_ffff;

/// Room for the entries of one visit, reused from visit to visit.
pub struct PostBuffer(Box<[[u64; 2]; ENTRIES_A_VISIT]>);

impl PostBuffer {
    /// An empty buffer.
    pub fn new() -> Self {
        Self(Box::new([[0; 2]; ENTRIES_A_VISIT]))
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
    /// Entries that were no post's beginning; each was skipped.
    pub garbage: u32,
}

impl Scanner {
    /// The slots of a line whose post bell has changed since the last look: bit `i` is slot
    /// `first_slot(line) + i`.
    #[inline]
    pub fn post_bells(&mut self, region: Region<'_>, line: usize) -> u8 {
        let first = self.first_slot(line);
        let bells = region.post_bell_line(first as usize / LINE_WORDS);
        let slots = (self.slots().end - first).min(LINE_WORDS as u32);
        let mut changed = 0;
        for (i, bell) in bells.iter().enumerate().take(slots as usize) {
            let bell = bell.load(Ordering::Relaxed) as u32;
            let mirror = self.posts_mut(first + i as u32);
            if bell != mirror.bell {
                mirror.bell = bell;
                changed |= 1 << i;
            }
        }
        changed
    }

    /// Whether the slot's wave said that it reserved more ring entries than were taken.
    #[inline]
    pub fn expects_posts(&mut self, slot: u32) -> bool {
        let mirror = self.posts_mut(slot);
        mirror.bell.wrapping_sub(mirror.taken as u32).cast_signed() > 0
    }

    /// Takes the posts that lie ready in a slot's ring, at most about [`ENTRIES_A_VISIT`] entries, in order and in
    /// runs of the same service, number of words and extra bits.
    #[inline]
    pub fn take_posts(
        &mut self,
        region: Region<'_>,
        slot: u32,
        buffer: &mut PostBuffer,
        mut take: impl FnMut(PostHead, Posts<'_>),
    ) -> PostBatch {
        let mirror = self.posts_mut(slot);
        let (ring, start) = (mirror.entries(region), mirror.taken);
        let base = region.places().ring(slot);
        let mut copied = 0;
        // Once to the ring's end, and once from its beginning.
        while copied < ENTRIES_A_VISIT {
            let position = start as u32 + copied as u32;
            let at = position & (ring - 1);
            let from = region.pairs(base + 2 * at, (ring - at) as usize);
            let done = copy_pairs(from, &mut buffer.0[copied..], position & ring == 0);
            copied += done;
            if done < from.len() {
                break;
            }
        }
        let mut batch = PostBatch::default();
        let mut rest = &buffer.0[..copied];
        while let Some([_, first]) = rest.first() {
            let Some((head, _)) = PostHead::from_word(*first) else {
                batch.garbage += 1;
                rest = &rest[1..];
                continue;
            };
            let per = PostHead::entries_for(usize::from(head.words));
            let posts = match per {
                1 => run::<1>(rest),
                2 => run::<2>(rest),
                _ => run::<3>(rest),
            };
            if posts == 0 {
                break; // The last post's other entries are still on their way.
            }
            let (run, others) = rest.split_at(posts * per);
            if let Some((head, run)) = Posts::new(run) {
                take(head, run);
            }
            batch.posts += posts as u32;
            rest = others;
        }
        let taken = (copied - rest.len()) as u64;
        if taken > 0 {
            self.posts_mut(slot).taken += taken;
            // Release: the device overwrites the entries once it sees the tail.
            region.word(region.places().ring_tail(slot)).store(start + taken, Ordering::Release);
        }
        batch
    }
}

/// Posts of `N` entries each, from the first on, whose heads agree in the bits of a run.
#[inline(always)]
fn run<const N: usize>(entries: &[[u64; 2]]) -> usize {
    let posts = entries.as_chunks::<N>().0;
    let Some(first) = posts.first().map(|post| post[0][1]) else { return 0 };
    // One look at all of them: mostly all are one run.
    if posts.iter().fold(0, |differ, post| differ | post[0][1] ^ first) & RUN == 0 {
        posts.len()
    } else {
        posts.iter().take_while(|post| (post[0][1] ^ first) & RUN == 0).count()
    }
}

const _: () = assert!(RUN & LAP == 0);
