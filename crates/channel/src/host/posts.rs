//! Taking posts from the slots' rings.

use super::scanner::Scanner;
use crate::primitive::{Ordering, load_pair};
use crate::region::Region;
use hostcall_abi::layout::LINE_WORDS;
use hostcall_abi::word::{MAX_POST_WORDS, PostHead, lap_of};

/// A post, copied out of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Post {
    /// What the post says of itself.
    pub head: PostHead,
    /// Payload; `head.words` of them count.
    pub words: [u64; MAX_POST_WORDS],
}

/// What a visit to a ring found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostBatch {
    /// Posts taken.
    pub posts: u32,
    /// Entries that were no post's beginning; each was skipped.
    pub garbage: u32,
    /// Ring entries taken, ever.
    pub position: u64,
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
            let bell = bell.load(Ordering::Relaxed);
            let mirror = self.mirror_mut(first + i as u32);
            if bell != mirror.post_bell {
                mirror.post_bell = bell;
                changed |= 1 << i;
            }
        }
        changed
    }

    /// Whether the slot's wave said that it reserved more ring entries than were taken.
    #[inline]
    pub fn expects_posts(&mut self, slot: u32) -> bool {
        let mirror = self.mirror_mut(slot);
        mirror.post_bell.wrapping_sub(mirror.posts_taken).cast_signed() > 0
    }

    /// Takes the posts that lie ready in a slot's ring, at most about `limit` entries, in order.
    #[inline]
    pub fn take_posts(
        &mut self,
        region: Region<'_>,
        slot: u32,
        limit: u32,
        mut take: impl FnMut(&Post),
    ) -> PostBatch {
        let layout = *region.layout();
        let mask = u64::from(layout.ring_entries) - 1;
        let shift = layout.ring_entries.trailing_zeros();
        let base = layout.ring(slot);
        let entry = |position: u64| -> Option<[u64; 2]> {
            let [a, b] = load_pair(region.pair(base + 2 * (position & mask) as usize));
            let lap = (position >> shift) & 1 == 0;
            (lap_of(a) == lap && lap_of(b) == lap).then_some([a, b])
        };
        let start = self.mirror_mut(slot).posts_taken;
        let end = start + u64::from(limit);
        let mut position = start;
        let mut batch = PostBatch::default();
        'posts: while position < end {
            let Some([first, head]) = entry(position) else { break };
            let Some((head, tops)) = PostHead::from_word(head) else {
                batch.garbage += 1;
                position += 1;
                continue;
            };
            let mut post = Post { head, words: [first, 0, 0, 0, 0] };
            let entries = PostHead::entries_for(head.words as usize);
            for more in 1..entries {
                let Some([a, b]) = entry(position + more as u64) else { break 'posts };
                post.words[2 * more - 1] = a;
                post.words[2 * more] = b;
            }
            for (i, word) in post.words.iter_mut().enumerate() {
                *word = if i < head.words as usize {
                    *word & !(1 << 63) | u64::from(tops >> i & 1) << 63
                } else {
                    0
                };
            }
            take(&post);
            batch.posts += 1;
            position += entries as u64;
        }
        if position != start {
            self.mirror_mut(slot).posts_taken = position;
            // Release: the device overwrites the entries once it sees the tail.
            region.word(layout.ring_tail(slot)).store(position, Ordering::Release);
        }
        batch.position = position;
        batch
    }
}
