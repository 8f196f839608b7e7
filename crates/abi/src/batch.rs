//! Calls and posts as handlers get them many at a time: the calls of one packet's lanes, a run of one wave's
//! posts. The host has copied and checked the words; what they say is still the device's claim.

use crate::service::{Caller, Reply, Request, Service};
use crate::status::{CallError, Status};
use crate::wire::Wire;
use crate::word::{Doorbell, MAX_POST_WORDS, PAYLOAD, PostHead, RequestTag, TAG_BITS};
use crate::{MAX_LANES, MAX_WORDS};

/// The pairs of a packet's request, copied out of shared memory: pair `j` of the lane of rank `r` among `n` is
/// pair `j·n + r`.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    pairs: &'a [[u64; 2]],
    doorbell: Doorbell,
}

impl<'a> Lines<'a> {
    /// The lines of a packet with this doorbell.
    ///
    /// # Panics
    /// When `pairs` are fewer than the doorbell says.
    #[inline]
    pub fn new(doorbell: Doorbell, pairs: &'a [[u64; 2]]) -> Self {
        Self { pairs: &pairs[..usize::from(doorbell.lanes) * doorbell.request_pairs()], doorbell }
    }

    /// Lanes of the packet.
    #[inline(always)]
    pub fn lanes(&self) -> u32 {
        u32::from(self.doorbell.lanes)
    }

    /// Argument words of each lane.
    #[inline(always)]
    pub fn argument_words(&self) -> usize {
        usize::from(self.doorbell.argument_words)
    }

    /// The first `N` argument words of the lane of rank `rank`; those that the packet does not have are zero.
    #[inline(always)]
    pub fn words<const N: usize>(&self, rank: u32) -> [u64; N] {
        let (count, lanes) = (self.argument_words().min(N), self.lanes() as usize);
        let mut words = [0; N];
        if count == 0 {
            return words;
        }
        // Word 0 shares its pair with the meta word, where the top bits travel that laps displace.
        let [first, meta] = self.pairs[rank as usize];
        words[0] = first & PAYLOAD;
        for pair in 1..=count / 2 {
            let [a, b] = self.pairs[pair * lanes + rank as usize];
            words[2 * pair - 1] = a & PAYLOAD;
            if 2 * pair < count {
                words[2 * pair] = b & PAYLOAD;
            }
        }
        // Seldom any is set.
        let tops = meta >> TAG_BITS & ((1 << count) - 1);
        if tops != 0 {
            for (i, word) in words.iter_mut().enumerate() {
                *word |= tops >> i << 63;
            }
        }
        words
    }

    /// What the lane of rank `rank` says of itself.
    #[inline(always)]
    pub fn tag(&self, rank: u32) -> RequestTag {
        if self.doorbell.lines {
            RequestTag::from_bits(self.pairs[rank as usize][1])
        } else {
            RequestTag { lane: self.doorbell.first_lane, ..RequestTag::default() }
        }
    }
}

/// The answer to one lane's call, whose result travels in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneReply {
    words: [u64; MAX_WORDS],
    /// Result words that count.
    count: u8,
    /// How the call ended, as it travels.
    status: u64,
}

impl LaneReply {
    /// No result.
    pub const NONE: Self = Self { words: [0; MAX_WORDS], count: 0, status: Status::Ok.to_bits() };

    /// How the call ended.
    pub fn status(&self) -> Status {
        Status::from_bits(self.status)
    }

    /// [`Status::to_bits`] of how the call ended.
    #[inline(always)]
    pub fn status_bits(&self) -> u64 {
        self.status
    }

    #[inline(always)]
    fn fail(&mut self, error: CallError) {
        self.count = 0;
        self.status = Status::Error(error).to_bits();
    }

    /// Result words.
    #[inline(always)]
    pub fn result(&self) -> &[u64] {
        &self.words[..usize::from(self.count).min(MAX_WORDS)]
    }
}

impl Reply for LaneReply {
    fn words(&mut self, words: &[u64]) {
        let count = words.len().min(MAX_WORDS);
        self.words[..count].copy_from_slice(&words[..count]);
        self.count = count as u8;
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), CallError> {
        if bytes.is_empty() { Ok(()) } else { Err(CallError::TooLarge) }
    }
}

/// The calls of one packet's lanes, to be answered one after the other.
pub struct Calls<'a> {
    lines: Lines<'a>,
    caller: Caller,
    replies: &'a mut [LaneReply; MAX_LANES],
    begun: u32,
}

impl<'a> Calls<'a> {
    /// The calls of these lines. `caller.lane` does not matter.
    #[inline]
    pub fn new(lines: Lines<'a>, caller: Caller, replies: &'a mut [LaneReply; MAX_LANES]) -> Self {
        Self { lines, caller, replies, begun: 0 }
    }

    /// The rank of the next lane whose call no handler has begun.
    #[inline(always)]
    pub fn next_rank(&mut self) -> Option<u32> {
        let rank = self.begun;
        (rank < self.lines.lanes()).then(|| {
            self.begun += 1;
            // What it gets if the handler forgets it.
            self.replies[rank as usize].fail(CallError::Malformed);
            rank
        })
    }

    /// Lanes whose calls no handler has begun.
    #[inline]
    pub fn left(&self) -> u32 {
        self.lines.lanes() - self.begun
    }

    /// Answers the lanes whose calls no handler has begun: there is no handler for them.
    pub fn refuse(&mut self) {
        while self.next_rank().is_some() {}
    }

    /// The arguments of the lane of rank `rank`.
    ///
    /// # Errors
    /// [`CallError::Malformed`] when its words are no `A`.
    #[inline(always)]
    pub fn arguments<A: Wire>(&self, rank: u32) -> Result<A, CallError> {
        if self.lines.argument_words() != A::WORDS {
            return Err(CallError::Malformed);
        }
        A::from_words(&self.lines.words::<MAX_WORDS>(rank)[..A::WORDS]).ok_or(CallError::Malformed)
    }

    /// Who calls from the lane of rank `rank`.
    #[inline]
    pub fn caller(&self, rank: u32) -> Caller {
        Caller { lane: self.lines.tag(rank).lane, ..self.caller }
    }

    /// Answers the lane of rank `rank`.
    #[inline(always)]
    pub fn answer<R: Wire>(&mut self, rank: u32, result: Result<R, CallError>) {
        let reply = &mut self.replies[rank as usize];
        match result {
            Ok(result) => {
                result.to_words(&mut reply.words[..R::WORDS]);
                reply.count = R::WORDS as u8;
                reply.status = Status::Ok.to_bits();
            }
            Err(error) => reply.fail(error),
        }
    }

    /// Answers the lane whose handler panicked: the one begun last.
    pub fn panicked(&mut self) {
        if let Some(reply) = (self.begun as usize).checked_sub(1).and_then(|rank| self.replies.get_mut(rank))
        {
            reply.fail(CallError::Panicked);
        }
    }

    /// Gives each call that is left to a service's [`Service::call`].
    pub fn one_by_one<S: Service + ?Sized>(&mut self, service: &S, method: usize) {
        while let Some(rank) = self.next_rank() {
            let words = self.lines.words::<MAX_WORDS>(rank);
            let words = &words[..self.lines.argument_words()];
            let request = Request { words, bytes: &[], reply_capacity: 0, caller: self.caller(rank) };
            let mut reply = LaneReply::NONE;
            if let Err(error) = service.call(method, request, &mut reply) {
                reply.fail(error);
            }
            self.replies[rank as usize] = reply;
        }
    }
}

/// A run of posts of one wave to one method, with the same number of words and the same extra bits.
pub struct Posts<'a> {
    entries: &'a [[u64; 2]],
    words: usize,
    extra: u32,
    caller: Caller,
    begun: usize,
}

impl<'a> Posts<'a> {
    /// The run of these ring entries, each post of as many as the first one's head says. `None` when the first
    /// entry is no head.
    #[inline]
    pub fn new(entries: &'a [[u64; 2]]) -> Option<(PostHead, Self)> {
        let (head, _) = PostHead::from_word(entries.first()?[1])?;
        let (words, caller) = (usize::from(head.words), Caller::default());
        Some((head, Self { entries, words, extra: head.extra, caller, begun: 0 }))
    }

    /// The same run, whose caller is known. `caller.lane` does not matter.
    #[inline]
    pub fn of(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    /// Posts of the run, whether begun or not.
    #[inline]
    pub fn count(&self) -> usize {
        self.entries.len() / PostHead::entries_for(self.words)
    }

    /// Posts that no handler has begun.
    pub fn left(&self) -> usize {
        self.count() - self.begun
    }

    /// The 32 more bits of each post; those of a method with a schema were its check.
    #[inline]
    pub fn extra(&self) -> u32 {
        self.extra
    }

    #[inline(always)]
    fn caller(&self, entries: &[[u64; 2]]) -> Caller {
        Caller { lane: (entries[0][1] >> 32) as u8 & 63, ..self.caller }
    }

    /// Gives the words of each post that is left, and who posted it, to `handle`.
    #[inline]
    pub fn for_each(&mut self, mut handle: impl FnMut(&[u64], Caller)) {
        for post in self.entries.chunks_exact(PostHead::entries_for(self.words)).skip(self.begun) {
            self.begun += 1;
            handle(&payload(post, self.words)[..self.words], self.caller(post));
        }
    }

    /// Gives the arguments of each post that is left to `handle`, and returns how many posts were none: either
    /// all that are left or those whose words are no `A`.
    #[inline(always)]
    pub fn for_each_of<A: Wire>(&mut self, mut handle: impl FnMut(A)) -> usize {
        if self.words != A::WORDS {
            let left = self.left();
            self.begun = self.count();
            return left;
        }
        let posts = self.entries.chunks_exact(const { PostHead::entries_for(A::WORDS) }).skip(self.begun);
        let mut place = Place { at: self.begun, begun: &mut self.begun };
        let mut malformed = 0;
        for post in posts {
            place.at += 1;
            match A::from_words(&payload(post, A::WORDS)[..A::WORDS]) {
                Some(arguments) => handle(arguments),
                None => malformed += 1,
            }
        }
        malformed
    }

    /// Gives each post that is left to a service's [`Service::post`].
    pub fn one_by_one<S: Service + ?Sized>(&mut self, service: &S, method: usize) {
        let extra = self.extra;
        self.for_each(|words, caller| {
            service.post(method, extra, Request { words, bytes: &[], reply_capacity: 0, caller });
        });
    }
}

/// How far a run was handled, kept in a register until its end or a handler's panic.
struct Place<'a> {
    at: usize,
    begun: &'a mut usize,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.begun = self.at;
    }
}

/// The words of the post of these entries.
#[inline(always)]
fn payload(entries: &[[u64; 2]], words: usize) -> [u64; MAX_POST_WORDS] {
    let head = entries[0][1];
    core::array::from_fn(|i| {
        if i >= words {
            return 0;
        }
        let word = if i > 0 && i.is_multiple_of(2) { entries[i / 2][1] } else { entries[i.div_ceil(2)][0] };
        word & PAYLOAD | (head << (5 - i)) & !PAYLOAD
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::{Kind, Line, with_lap};

    #[test]
    fn words_and_tags_come_back_from_a_packets_pairs() {
        let (lanes, argument_words) = (3u8, 5u8);
        let doorbell = Doorbell {
            service: 1,
            lanes,
            first_lane: 0,
            argument_words,
            result_words: 2,
            check: 0,
            kind: Kind::Words,
            after_posts: false,
            lines: true,
        };
        let word = |rank: u32, i: usize| (u64::from(rank) << 8 | i as u64).wrapping_neg() >> (i % 2);
        let mut pairs = [[0; 2]; 9];
        for rank in 0..3u32 {
            let tag = RequestTag { lane: 9 + rank as u8, ..RequestTag::default() }.to_bits();
            let line = Line { words: core::array::from_fn(|i| word(rank, i)), tag };
            for pair in 0..3 {
                pairs[pair * 3 + rank as usize] =
                    line.pair(pair, 5).map(|word| with_lap(word, (rank as usize + pair).is_multiple_of(2)));
            }
        }
        let lines = Lines::new(doorbell, &pairs);
        for rank in 0..3 {
            assert_eq!(lines.words::<5>(rank), core::array::from_fn(|i| word(rank, i)));
            assert_eq!(lines.words::<7>(rank)[5..], [0, 0]);
            assert_eq!(u32::from(lines.tag(rank).lane), 9 + rank);
        }
        let mut replies = [LaneReply::NONE; MAX_LANES];
        let mut calls = Calls::new(lines, Caller::default(), &mut replies);
        assert_eq!(calls.arguments::<(u64, u64)>(0), Err(CallError::Malformed));
        while let Some(rank) = calls.next_rank() {
            let arguments = calls.arguments::<(u64, u64, u64, u64, u64)>(rank);
            calls.answer(rank, arguments.map(|(first, .., last)| (first, last)));
        }
        calls.panicked();
        assert_eq!(replies[1].result(), [word(1, 0), word(1, 4)]);
        assert_eq!(replies[1].status(), Status::Ok);
        assert_eq!(replies[2].status(), Status::Error(CallError::Panicked));
    }

    #[test]
    fn a_run_of_posts_goes_on_after_the_post_that_panicked() {
        let post = |first: u64, lane| {
            let words = [first, !first, first << 1];
            let head = PostHead { service: 7, lane, words: 3, extra: 5 }.to_word(&words);
            [[words[0], head], [words[1], words[2]]].map(|pair| pair.map(|word| with_lap(word, true)))
        };
        let entries = [post(1, 3), post(u64::MAX, 4), post(1 << 62, 5)].concat();
        let (head, run) = Posts::new(&entries).unwrap();
        assert_eq!((head.service, head.lane, head.words, run.count(), run.extra()), (7, 3, 3, 3, 5));
        let mut run = run.of(Caller { launch: 1, slot: 2, lane: 0 });
        let mut seen = Vec::new();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run.for_each_of(|(a, b, c): (u64, u64, u64)| {
                assert_eq!((b, c), (!a, a << 1));
                seen.push(a);
                assert!(seen.len() != 2, "the second post's handler panics");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(run.left(), 1);
        assert_eq!(run.for_each_of(|(a, _, _): (u64, u64, u64)| seen.push(a)), 0);
        assert_eq!(seen, [1, u64::MAX, 1 << 62]);
        let (_, mut run) = Posts::new(&entries).unwrap();
        assert_eq!(run.for_each_of(|_: (u64,)| unreachable!()), 3);
        assert_eq!(run.left(), 0);
    }
}
