//! Taking posts of up to 16 words for a consumer that handles them itself.

use super::posts::{PostBuffer, run};
use super::scanner::{PostMirror, Scanner};
use crate::primitive::{AtomicU64, Ordering, fence};
use crate::region::Region;
use hostcall_abi::word::{LAP, MAX_MESSAGE_WORDS, MAX_POST_WORDS, MessageHead, Owner, PostHead, lap_of};

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
        let entries = &entries[..entries.len().min(most.saturating_mul(each))];
        let count = match each {
            1 => run::<1>(entries, alike),
            2 => run::<2>(entries, alike),
            3 => run::<3>(entries, alike),
            _ => {
                let are_alike = |post: &&[[u64; 2]]| (post[0][1] ^ head) & alike == 0;
                entries.chunks_exact(each).take_while(are_alike).count()
            }
        };
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
    /// Returns whether an entry lies ready in a home slot's ring, of which whoever wrote it may not have told.
    #[inline]
    pub fn has_entry(&mut self, region: Region<'_>, slot: u32) -> bool {
        let (ring, position) = (region.layout().ring_entries.of(slot), self.posts_mut(slot).taken as u32);
        let word = region.word(region.sizes().ring(slot) + 2 * (position & (ring - 1)));
        lap_of(word.load(Ordering::Relaxed)) == (position & ring == 0)
    }

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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::posts::Taken;
    use super::*;
    use crate::region::SharedMemory;
    use alloc::vec::Vec;
    use hostcall_abi::launch::LaunchId;
    use hostcall_abi::layout::Layout;
    use hostcall_abi::word::with_lap;

    const RING: u32 = 64;

    struct Ring {
        memory: SharedMemory,
        scanner: Scanner,
        buffer: PostBuffer,
        written: u32,
    }

    impl Ring {
        fn new() -> Self {
            let memory = SharedMemory::allocate(Layout::small(1, 4, RING, 256).check().unwrap());
            let (scanner, buffer) = (Scanner::new(0..1, Taken::new(1)), PostBuffer::new());
            Self { memory, scanner, buffer, written: 0 }
        }

        /// Writes an entry as a device does.
        fn write(&mut self, entry: [u64; 2]) {
            let region = self.memory.region();
            let at = region.sizes().ring(0) + 2 * (self.written % RING);
            for (word, value) in (at..).zip(entry) {
                region.word(word).store(with_lap(value, self.written & RING == 0), Ordering::Relaxed);
            }
            self.written += 1;
        }

        fn post(&mut self, tag: u64, words: &[u64]) {
            let (lane, count) = (self.written as u8 % 64, words.len() as u8);
            let head = match words.len() {
                0..=MAX_POST_WORDS => {
                    let (service, extra) = (tag as u16, (tag >> 16) as u32);
                    PostHead { service, lane, words: count, extra }.to_word(words)
                }
                _ => MessageHead { tag: tag as u32, lane, words: count }.to_word(words),
            };
            self.write([words.first().copied().unwrap_or(0), head]);
            for pair in words.get(1..).unwrap_or(&[]).chunks(2) {
                self.write([pair[0], pair.get(1).copied().unwrap_or(0)]);
            }
        }

        /// Takes posts: of each run the tag, the number of posts and their words.
        fn take(&mut self, most: usize) -> (Vec<(u64, usize, Vec<u64>)>, RunsTaken) {
            let mut all = Vec::new();
            let Self { memory, scanner, buffer, .. } = self;
            let taken = scanner.take_runs(memory.region(), 0, buffer, most, |run| {
                let mut words = alloc::vec![0; run.count() * run.words()];
                run.read(&mut words);
                all.push((run.tag(), run.count(), words));
            });
            (all, taken)
        }

        fn tail(&self) -> u64 {
            self.memory.region().word(self.memory.region().places().ring_tail(0)).load(Ordering::Relaxed)
        }
    }

    fn words(count: usize, seed: u64) -> Vec<u64> {
        (0..count as u64).map(|i| (seed + i).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
    }

    #[test]
    fn posts_of_all_sizes_come_as_they_were_posted() {
        let mut ring = Ring::new();
        // Through the ring's end many times.
        for round in 0..100 {
            for count in 0..=MAX_MESSAGE_WORDS {
                let tag = if count > MAX_POST_WORDS { 0xfedc_ba98 } else { 0x1234_5678_9abc };
                let (one, other) = (words(count, round), words(count, round + 7));
                ring.post(tag, &one);
                ring.post(tag, &other);
                ring.post(tag + 1, &one);
                let (runs, taken) = ring.take(usize::MAX);
                assert_eq!(runs, [(tag, 2, [&one[..], &other].concat()), (tag + 1, 1, one)]);
                assert_eq!(taken, RunsTaken { posts: 3, garbage: 0, any: true });
                assert_eq!(ring.tail(), ring.written.into());
            }
        }
        assert_eq!(ring.take(usize::MAX), (Vec::new(), RunsTaken::default()));
    }

    #[test]
    fn no_more_are_taken_than_asked_for() {
        let mut ring = Ring::new();
        let owner = Owner { launch: LaunchId::new(1, 2), home: None, wave: 3, workgroup: 4 };
        ring.write(owner.to_entry());
        (0..5).for_each(|i| ring.post(1, &words(16, i)));
        let take = |ring: &mut Ring, most| {
            let (runs, taken) = ring.take(most);
            (runs.iter().map(|run| run.1).sum::<usize>(), taken.posts, ring.tail())
        };
        assert_eq!(take(&mut ring, 2), (2, 2, 1 + 18));
        assert_eq!(take(&mut ring, 1), (1, 1, 1 + 27));
        assert_eq!(take(&mut ring, 9), (2, 2, 1 + 45));
    }

    #[test]
    fn what_has_not_come_is_waited_for_and_what_makes_no_sense_is_skipped() {
        let mut ring = Ring::new();
        // A count that no post has, and a message of five words.
        ring.write([1, 7 << 55]);
        ring.write([1, 6 << 55 | 4 << 16]);
        ring.post(1, &[]);
        ring.write([1, MessageHead { tag: 2, lane: 0, words: 6 }.to_word(&[0; 6])]);
        let (runs, taken) = ring.take(usize::MAX);
        assert_eq!((runs, taken.garbage, ring.tail()), (alloc::vec![(1, 1, Vec::new())], 2, 3));
        (0..3).for_each(|_| ring.write([0, 0]));
        assert_eq!(ring.take(usize::MAX).0, [(2, 1, alloc::vec![1, 0, 0, 0, 0, 0])]);
    }

    #[test]
    fn posts_at_which_somebody_panics_are_taken() {
        let mut ring = Ring::new();
        (0..3).for_each(|tag| ring.post(tag, &[tag]));
        let Ring { memory, scanner, buffer, .. } = &mut ring;
        let taking = core::panic::AssertUnwindSafe(|| {
            scanner.take_runs(memory.region(), 0, buffer, usize::MAX, |run| assert_eq!(run.tag(), 0));
        });
        assert!(std::panic::catch_unwind(taking).is_err());
        assert_eq!(ring.tail(), 2);
        assert_eq!(ring.take(usize::MAX).0, [(2, 1, alloc::vec![2])]);
    }
}
