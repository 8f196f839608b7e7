//! Taking posts of up to 16 words for a consumer that handles them itself.

use super::posts::PostBuffer;
use super::scanner::{PostMirror, Scanner};
use crate::primitive::{AtomicU64, Ordering, fence};
use crate::region::Region;
use hostcall_abi::word::{LAP, MAX_MESSAGE_WORDS, MAX_POST_WORDS, MessageHead, Owner, PostHead};

/// Bits of a post's head in which the posts of a run agree: service, number of words and extra bits.
pub(super) const ALIKE: u64 = 0xffff << 38 | 15 << 54 | 0xffff_ffff;

const _: () = assert!((ALIKE | MessageHead::ALIKE) & LAP == 0);

/// Posts that lie in their ring one after the other, of one wave and with the same tag and number of words. They are copies.
#[derive(Clone, Copy)]
pub struct PostRun<'b> {
    /// Of whole posts.
    entries: &'b [[u64; 2]],
    words: usize,
    tag: u64,
    wave: Owner,
}

impl PostRun<'_> {
    /// The run at the beginning of these entries, of `most` posts at most: one or more. `None` when the first entry is no post's
    /// head, and `Some` without posts when not all of the first post has come.
    #[inline(always)]
    fn first_of(entries: &[[u64; 2]], most: usize, wave: Owner) -> Option<PostRun<'_>> {
        let head = entries[0][1];
        let (words, tag, alike) = match PostHead::from_word(head) {
            Some((post, _)) => {
                (usize::from(post.words), u64::from(post.extra) << 16 | u64::from(post.service), ALIKE)
            }
            None => {
                let (message, _) = MessageHead::from_word(head)?;
                (usize::from(message.words), message.tag.into(), MessageHead::ALIKE)
            }
        };
        let each = PostHead::entries_for(words);
        let are_alike = |post: &&[[u64; 2]]| (post[0][1] ^ head) & alike == 0;
        let count = entries.chunks_exact(each).take(most).take_while(are_alike).count();
        Some(PostRun { entries: &entries[..count * each], words, tag, wave })
    }

    /// Posts of the run.
    #[inline]
    pub fn count(&self) -> usize {
        self.entries.len() / PostHead::entries_for(self.words)
    }

    /// Payload words of each, 0 to 16.
    #[inline]
    pub fn words(&self) -> usize {
        self.words
    }

    /// What the kernel calls them: 48 bits, of posts with more than five words 32.
    #[inline]
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// The wave that posted, which may have ended.
    #[inline]
    pub fn wave(&self) -> Owner {
        self.wave
    }

    /// Puts the words of all posts into `words`, post after post.
    #[inline(always)]
    pub fn read(&self, words: &mut [u64]) {
        // In a few instructions each, of which the compiler makes vectors.
        match self.words {
            0 => {}
            1 => {
                for (to, [word, head]) in words.iter_mut().zip(self.entries) {
                    *to = word | (head >> 58 & 1) << 63;
                }
            }
            2 => self.read_each::<2, 2>(words),
            4 => self.read_each::<4, 3>(words),
            _ => self.read_any(words),
        }
    }

    #[inline(always)]
    fn read_each<const WORDS: usize, const ENTRIES: usize>(&self, words: &mut [u64]) {
        let posts = self.entries.as_chunks::<ENTRIES>().0;
        for (to, post) in words.as_chunks_mut::<WORDS>().0.iter_mut().zip(posts) {
            for (i, to) in to.iter_mut().enumerate() {
                *to = payload(post, i) | (post[0][1] >> (58 + i) & 1) << 63;
            }
        }
    }

    fn read_any(&self, words: &mut [u64]) {
        let posts = self.entries.chunks_exact(PostHead::entries_for(self.words));
        for (to, post) in words.chunks_exact_mut(self.words).zip(posts) {
            let head = post[0][1];
            for (i, to) in to.iter_mut().enumerate() {
                let top = if i < MAX_POST_WORDS { head >> (58 + i) } else { head >> (15 + i) };
                *to = payload(post, i) | (top & 1) << 63;
            }
        }
    }
}

/// A post's word, without its top bit.
#[inline(always)]
fn payload(post: &[[u64; 2]], word: usize) -> u64 {
    if word == 0 { post[0][0] } else { post[word.div_ceil(2)][(word + 1) % 2] }
}

const _: () = assert!(MAX_MESSAGE_WORDS == 16);

/// What a visit to a ring found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunsTaken {
    /// Posts that were handed over.
    pub posts: usize,
    /// Entries that were no post's beginning; each was skipped.
    pub garbage: u32,
    /// Whether any entry was taken.
    pub any: bool,
}

/// How far a ring is taken. The device learns of it when this is dropped: also when whoever gets posts panics, and has those.
struct Progress<'s> {
    mirror: &'s mut PostMirror,
    tail: &'s AtomicU64,
    before: u64,
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.mirror.taken != self.before {
            // Release: the device overwrites the entries once it sees the tail.
            self.tail.store(self.mirror.taken, Ordering::Release);
        }
    }
}

impl Scanner {
    /// Takes the posts that lie ready in a home slot's ring, `most` at most and about
    /// [`ENTRIES_A_VISIT`](super::ENTRIES_A_VISIT) entries, in order and in runs. What the wave wrote before a post, and fenced, is
    /// there when `take` gets it. The scanner's slots are all of the channel's.
    #[inline]
    pub fn take_runs(
        &mut self,
        region: Region<'_>,
        slot: u32,
        buffer: &mut PostBuffer,
        most: usize,
        mut take: impl FnMut(PostRun<'_>),
    ) -> RunsTaken {
        let mut found = RunsTaken::default();
        let copied = self.copy_ready(region, slot, buffer);
        let mut rest = &buffer.entries()[..copied];
        if rest.is_empty() {
            return found;
        }
        // Pairs with the kernel's fence before the post.
        fence(Ordering::Acquire);
        let tail = region.word(region.places().ring_tail(slot));
        let mirror = self.posts_mut(slot);
        let progress = Progress { before: mirror.taken, mirror, tail };
        while let Some(entry) = rest.first()
            && found.posts < most
        {
            let used = match PostRun::first_of(rest, most - found.posts, progress.mirror.owner) {
                Some(run) if run.entries.is_empty() => break, // Its other entries are still on their way.
                Some(run) => {
                    progress.mirror.taken += run.entries.len() as u64;
                    found.posts += run.count();
                    take(run);
                    run.entries.len()
                }
                None => {
                    match Owner::from_entry(*entry) {
                        Some(of_next) => progress.mirror.owner = of_next,
                        None => found.garbage += 1,
                    }
                    progress.mirror.taken += 1;
                    1
                }
            };
            found.any = true;
            rest = &rest[used..];
        }
        found
    }
}
