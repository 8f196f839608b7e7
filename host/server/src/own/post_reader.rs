//! A consumer without a thread: whoever owns it polls, on a thread of his own, and gets the posts themselves.
//!
//! The channel is its alone, with home slots only. No service is looked up and no handler runs: a poll looks at the hints of first
//! posts, at some lines of post bells and some rings in turn and at the rings that are hot, much as a [consumer](super::consumer)
//! does in a pass. Of up to 8 × [`LINES_A_POLL`] slots each poll sees all bells. Calls find nobody who answers them, so they are
//! answered with [`CallError::NoSuchService`]; their doorbells are in the lines that hints and bells make hot.
//!
//! A ring of its own would be no simpler, and slower: with one queue for all waves, as others have it, each post waits for an
//! atomic addition on a word that all share, and posts of a lane alone come one such time after the other. Here a wave that holds a
//! slot posts with stores alone (`queue_posts_per_s_1_lane` of `hostcall bench` stands beside such a queue). The order is that of
//! each wave's posts, and there is none among waves.

use super::consumer::HotRings;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::LINE_WORDS;
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::Owner;
use hostcall_channel::SharedMemory;
use hostcall_channel::host::{Batch, ENTRIES_A_VISIT, PostBuffer, RunsTaken, Scanner, Take, Taken};
use std::sync::Arc;
use std::time::Instant;

/// Lines of post bells that a poll looks at in turn: some 3 ns each where nothing was rung.
const LINES_A_POLL: usize = 16;

/// Rings that are not hot at which a poll looks in turn. A wave that was held up on its way from the clock to its post has not told
/// of it, and may wait for what comes of it: so no ring is left for good. Of 256 slots each is looked at every 64 polls.
const RINGS_A_POLL: u32 = 4;

/// Polls with hot rings between two looks at the clock.
const CLOCK_POLLS: u64 = 16;

/// Posts of one wave that lie one after the other, with the same tag and number of words.
#[derive(Clone, Copy, Debug)]
pub struct PostBatch<'b> {
    words: &'b [u64],
    words_each: usize,
    count: usize,
    tag: u64,
    slot: u32,
    wave: Owner,
}

impl<'b> PostBatch<'b> {
    /// Returns what the kernel has called the posts: the `tag` of `hostcall_post_message`, or the number and the check bits of
    /// [`HOSTCALL_METHOD`](https://github.com/hostcall/hostcall/blob/main/bindings/c/include/hostcall_device.h). It has 48 bits, of
    /// posts with more than five words 32.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Returns how many posts these are.
    #[allow(clippy::len_without_is_empty, reason = "there is one at least")]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns how many words each post has, 0 to 16.
    pub fn words_each(&self) -> usize {
        self.words_each
    }

    /// Returns the words of all posts, post after post.
    pub fn words(&self) -> &'b [u64] {
        self.words
    }

    /// Returns the words of each post, in the order of the wave's posts.
    pub fn posts(&self) -> impl ExactSizeIterator<Item = &'b [u64]> {
        let (words, each) = (self.words, self.words_each);
        (0..self.count).map(move |post| &words[post * each..(post + 1) * each])
    }

    /// Returns the slot through which they came: of posts through one slot each comes after the one before.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Returns the linear index of the workgroup that posted, x fastest.
    pub fn workgroup(&self) -> u32 {
        self.wave.workgroup
    }

    /// Returns the index of the wave in its workgroup.
    pub fn wave(&self) -> u32 {
        self.wave.wave
    }
}

/// What became of the posts to a channel since its reader was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostQueueStatistics {
    /// Posts that were handed over.
    pub posts: u64,
    /// Posts that were dropped: of before a cancellation or a renewal, and those that nobody had read when the queue was closed.
    pub dropped: u64,
    /// Calls, for which it is the wrong place: they were answered with [`CallError::NoSuchService`].
    pub refused_calls: u64,
    /// Words of the device that made no sense and were skipped: memory was overwritten.
    pub garbage: u64,
}

/// Takes the posts of a channel on the thread of whoever polls.
pub struct PostReader {
    memory: Arc<SharedMemory>,
    scanner: Scanner,
    buffer: PostBuffer,
    batch: Batch,
    words: Box<[u64]>,
    rings: HotRings,
    /// The line of post bells whose turn is next.
    line: usize,
    /// The ring whose turn is next.
    ring: u32,
    /// The hot ring at which the next poll begins, if one ended early.
    first: usize,
    polls: u64,
    statistics: PostQueueStatistics,
}

impl PostReader {
    /// Makes the only reader of a fresh channel, which has home slots only.
    pub fn new(memory: Arc<SharedMemory>) -> Self {
        let slots = memory.region().layout().home_slots;
        let scanner = Scanner::new(0..slots, Taken::new(slots));
        Self {
            memory,
            scanner,
            buffer: PostBuffer::new(),
            batch: Batch::new(),
            // A post has no more than two words an entry.
            words: vec![0; 2 * ENTRIES_A_VISIT].into_boxed_slice(),
            rings: HotRings::new(slots as usize),
            line: 0,
            ring: 0,
            first: 0,
            polls: 0,
            statistics: PostQueueStatistics::default(),
        }
    }

    /// Looks once where posts are likely, and gives those that lie there to `take`, `most` at most. Returns how many these were.
    /// Posts of launches that are not live are dropped and counted. Posts are taken before `take` gets them: where it panics,
    /// they do not come again.
    pub fn poll(
        &mut self,
        most: usize,
        is_live: impl Fn(LaunchId) -> bool,
        mut take: impl FnMut(PostBatch<'_>),
    ) -> usize {
        self.polls += 1;
        let Self { memory, scanner, rings, .. } = self;
        let slots = memory.region().layout().home_slots;
        scanner.first_calls(memory.region(), |line| {
            let first = (line * LINE_WORDS) as u32;
            (first..slots.min(first + LINE_WORDS as u32)).for_each(|ring| rings.heat(ring));
        });
        for _ in 0..RINGS_A_POLL.min(slots) {
            if scanner.has_entry(memory.region(), self.ring) {
                rings.heat(self.ring);
            }
            self.ring = if self.ring + 1 < slots { self.ring + 1 } else { 0 };
        }
        for _ in 0..LINES_A_POLL.min(self.scanner.lines()) {
            self.look_at_line(self.line);
            self.line = if self.line + 1 < self.scanner.lines() { self.line + 1 } else { 0 };
        }
        let now = self.polls.is_multiple_of(CLOCK_POLLS).then(Instant::now);
        let (mut posts, mut at, mut left) = (0, self.first, self.rings.hot.len());
        if at >= left {
            at = 0;
        }
        self.first = 0;
        while left > 0 && posts < most {
            let ring = self.rings.hot[at].ring;
            let found = self.visit(ring, most - posts, &is_live, &mut take);
            posts += found.posts;
            left -= 1;
            let stays = found.any || self.scanner.expects_posts(ring);
            if !self.rings.judge(at, stays, now) {
                // Another ring is in its place now, which was looked at or is yet to be.
                at = if at < self.rings.hot.len() { at } else { 0 };
                continue;
            }
            at = if at + 1 < self.rings.hot.len() { at + 1 } else { 0 };
        }
        if posts >= most {
            self.first = at;
        }
        posts
    }

    /// Looks at a line's post bells and doorbells.
    #[inline]
    fn look_at_line(&mut self, line: usize) {
        let region = self.memory.region();
        let mut bells = self.scanner.post_bells(region, line);
        while bells != 0 {
            self.rings.heat((line * LINE_WORDS) as u32 + bells.trailing_zeros());
            bells &= bells - 1;
        }
        if self.scanner.rung(region, line) != 0 {
            self.refuse_calls(line);
        }
    }

    /// Takes posts of a ring. Returns how many were handed over, or dropped.
    #[inline]
    fn visit(
        &mut self,
        ring: u32,
        most: usize,
        is_live: &impl Fn(LaunchId) -> bool,
        take: &mut impl FnMut(PostBatch<'_>),
    ) -> RunsTaken {
        let Self { memory, scanner, buffer, words, statistics, .. } = self;
        let mut dropped = 0;
        let mut found = scanner.take_runs(memory.region(), ring, buffer, most, |run| {
            let (count, words_each, wave) = (run.count(), run.words(), run.wave());
            if !is_live(wave.launch) {
                dropped += count;
                return;
            }
            let words = &mut words[..count * words_each];
            run.read(words);
            statistics.posts += count as u64;
            take(PostBatch { words, words_each, count, tag: run.tag(), slot: ring, wave });
        });
        statistics.dropped += dropped as u64;
        statistics.garbage += u64::from(found.garbage);
        found.posts -= dropped;
        found
    }

    /// Answers the calls of a line.
    #[cold]
    fn refuse_calls(&mut self, line: usize) {
        let region = self.memory.region();
        let mut rung = self.scanner.rung(region, line);
        while rung != 0 {
            let slot = self.scanner.first_slot(line) + rung.trailing_zeros();
            rung &= rung - 1;
            // At most: whose it is, then the posts before it, then the call.
            for _ in 0..3 {
                match self.scanner.take(region, slot, &mut self.batch, |_| true) {
                    Take::NewOwner => {}
                    Take::Call | Take::OfDeadLaunch => {
                        self.statistics.refused_calls += 1;
                        self.batch.answer(0).all(region, Status::Error(CallError::NoSuchService));
                        self.batch.clear();
                        break;
                    }
                    Take::Garbage(_) => {
                        self.statistics.garbage += 1;
                        break;
                    }
                    // Its posts are taken first, and its other words come.
                    Take::PostsFirst(home) => {
                        self.rings.heat(home);
                        break;
                    }
                    Take::NotYet | Take::Full => break,
                }
            }
        }
    }

    /// Looks at all post bells and rings. Returns whether posts lie there that were not taken, or waves have announced some: of waves
    /// that have given back their slots, all that they posted.
    pub fn expects_posts(&mut self) -> bool {
        (0..self.scanner.lines()).for_each(|line| self.look_at_line(line));
        let slots = self.scanner.slots();
        let Self { memory, scanner, .. } = self;
        slots.into_iter().any(|slot| scanner.expects_posts(slot) || scanner.has_entry(memory.region(), slot))
    }

    /// Takes what lies in all rings and drops it, as the statistics say.
    pub fn drop_all(&mut self) {
        let mut posts = 0;
        for ring in self.scanner.slots() {
            loop {
                let found = self.visit(ring, usize::MAX, &|_| true, &mut |_| {});
                posts += found.posts as u64;
                if !found.any {
                    break;
                }
            }
        }
        self.statistics.posts -= posts;
        self.statistics.dropped += posts;
    }

    /// Returns what was found so far.
    pub fn statistics(&self) -> PostQueueStatistics {
        self.statistics
    }
}
