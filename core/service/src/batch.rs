//! Calls and posts as handlers get them many at a time: the calls of the lanes of packets that say the same, a run of
//! one wave's posts. The host has copied and checked the words; what they say is still the device's claim.

use crate::caller::{self, Caller};
use crate::service::{Reply, Request, Service};
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::wire::Wire;
use hostcall_abi::word::{
    Line, MAX_PAIRS, MAX_POST_WORDS, Owner, PAYLOAD, PostHead, RequestTag, Rung, TAG_BITS, pairs_for,
};
use hostcall_abi::{MAX_LANES, MAX_WORDS};

/// Lines in pairs without laps, a plane for each pair of a line: pair `j` of the lane of rank `r` is `[j][r]`. The words of
/// requests are whole; those of replies leave their top bits to the meta word, see [`Line`].
pub type Planes = [[[u64; 2]; MAX_LANES]; MAX_PAIRS];

/// The requests of packets that say the same, copied out of shared memory. Their lanes are counted through, packet
/// after packet.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    planes: &'a Planes,
    rung: Rung,
    callers: &'a [Caller],
}

impl<'a> Lines<'a> {
    /// The requests of packets with this doorbell, each from a caller, whose lane is the packet's first one.
    ///
    /// # Panics
    /// When the packets have more than [`MAX_LANES`] lanes together.
    #[inline(always)]
    pub fn new(rung: Rung, planes: &'a Planes, callers: &'a [Caller]) -> Self {
        assert!(callers.len() * rung.lanes() as usize <= MAX_LANES, "too many lanes for one batch");
        Self { planes, rung, callers }
    }

    /// Lanes of all packets.
    #[inline(always)]
    pub fn lanes(&self) -> usize {
        // The bound is known from `new`; here it spares the checks of every place.
        (self.callers.len() * self.rung.lanes() as usize).min(MAX_LANES)
    }

    /// Argument words of each lane.
    #[inline(always)]
    pub fn argument_words(&self) -> usize {
        self.rung.argument_words()
    }

    /// The first `words` argument words of the lane of rank `rank`, which the packets have.
    #[inline(always)]
    fn line(&self, rank: usize, words: usize) -> [u64; MAX_WORDS] {
        let mut line = [0; MAX_WORDS];
        if words == 0 {
            return line;
        }
        // Word 0 shares its pair with the meta word.
        line[0] = self.planes[0][rank][0];
        for pair in 1..pairs_for(words) {
            let [a, b] = self.planes[pair][rank];
            line[2 * pair - 1] = a;
            if 2 * pair < words {
                line[2 * pair] = b;
            }
        }
        line
    }

    /// The argument words of the lane of rank `rank`, and zeros.
    #[inline]
    pub fn words(&self, rank: usize) -> [u64; MAX_WORDS] {
        self.line(rank, self.argument_words())
    }

    /// What the lane of rank `rank` says of itself.
    #[inline]
    pub fn tag(&self, rank: usize) -> RequestTag {
        if self.rung.has_lines() {
            RequestTag::from_bits(self.planes[0][rank][1])
        } else {
            // Such a packet has one lane.
            RequestTag { lane: self.callers[rank].lane, ..RequestTag::default() }
        }
    }

    /// Who the lane of rank `rank` is.
    #[inline]
    pub fn caller(&self, rank: usize) -> Caller {
        Caller { lane: self.tag(rank).lane, ..self.callers[rank / self.rung.lanes() as usize] }
    }
}

/// Room for the replies of as many lanes.
#[derive(Clone, Debug)]
pub struct Replies {
    planes: Planes,
    /// One of them is an error.
    has_errors: bool,
}

impl Replies {
    /// Room for replies; its contents mean nothing yet.
    pub const EMPTY: Self = Self { planes: [[[0; 2]; MAX_LANES]; MAX_PAIRS], has_errors: false };

    /// The replies.
    #[inline(always)]
    pub fn planes(&self) -> &Planes {
        &self.planes
    }

    /// Says whether a lane's reply is an error, since [`Calls::new`] got this room.
    #[inline(always)]
    pub fn has_errors(&self) -> bool {
        self.has_errors
    }

    /// Puts a lane's status and words there, of which the lane waits for `count`: more are left out, missing ones
    /// are zero.
    #[inline(never)]
    fn put(&mut self, count: usize, rank: usize, status: Status, words: &[u64]) {
        self.has_errors |= status != Status::Ok;
        let mut line = Line { words: [0; MAX_WORDS], tag: status.to_bits() };
        for (to, from) in line.words[..count].iter_mut().zip(words) {
            *to = *from;
        }
        for (pair, plane) in self.planes.iter_mut().enumerate().take(pairs_for(count)) {
            plane[rank] = line.pair(pair, count);
        }
    }

    /// Puts a result there.
    #[inline(always)]
    fn put_result<R: Wire>(&mut self, count: usize, rank: usize, result: &R) {
        // An array for each way, because one whose address is taken lies in memory.
        if R::WORDS <= 1 && count == R::WORDS {
            let mut words = [0; 1];
            result.to_words(&mut words[..R::WORDS]);
            let [word] = words;
            self.planes[0][rank] = [word & PAYLOAD, Status::Ok.to_bits() | word >> 63 << TAG_BITS];
        } else {
            let mut words = [0; MAX_WORDS];
            result.to_words(&mut words[..R::WORDS]);
            self.put(count, rank, Status::Ok, &words);
        }
    }
}

/// Calls of one method, to be answered one after the other.
pub struct Calls<'a> {
    lines: Lines<'a>,
    replies: &'a mut Replies,
    begun: usize,
}

impl<'a> Calls<'a> {
    /// The calls of these lines.
    #[inline(always)]
    pub fn new(lines: Lines<'a>, replies: &'a mut Replies) -> Self {
        replies.has_errors = false;
        Self { lines, replies, begun: 0 }
    }

    /// Lanes whose calls no handler has begun.
    #[inline(always)]
    pub fn left(&self) -> usize {
        self.lines.lanes() - self.begun
    }

    /// Answers the lanes whose calls no handler has begun: there is no handler for them.
    pub fn refuse(&mut self) {
        for rank in self.begun..self.lines.lanes() {
            self.put(rank, Status::Error(CallError::Malformed), &[]);
        }
        self.begun = self.lines.lanes();
    }

    fn put(&mut self, rank: usize, status: Status, words: &[u64]) {
        self.replies.put(self.lines.rung.result_words(), rank, status, words);
    }

    /// Answers each call that is left with what `handle` makes of its arguments; one whose words are no `A`, or
    /// whose result travels otherwise than in a line, with [`CallError::Malformed`].
    #[inline(always)]
    pub fn answer_each<A: Wire, R: Wire>(&mut self, mut handle: impl FnMut(A) -> Result<R, CallError>) {
        self.answer_ranks(|_, _, arguments| handle(arguments));
    }

    /// As [`Calls::answer_each`], for handlers that ask who calls.
    #[inline(always)]
    pub fn answer_each_from<A: Wire, R: Wire>(
        &mut self,
        mut handle: impl FnMut(&Caller, A) -> Result<R, CallError>,
    ) {
        self.answer_ranks(|lines, rank, arguments| handle(&lines.caller(rank), arguments));
    }

    #[inline(always)]
    fn answer_ranks<A: Wire, R: Wire>(
        &mut self,
        mut handle: impl FnMut(&Lines<'_>, usize, A) -> Result<R, CallError>,
    ) {
        if self.lines.argument_words() != A::WORDS || R::WORDS > MAX_WORDS {
            return self.refuse();
        }
        let lines = self.lines;
        let (lanes, result_words) = (lines.rung.lanes() as usize, lines.rung.result_words());
        let replies = &mut *self.replies;
        let mut answer = |rank| {
            let line = lines.line(rank, A::WORDS);
            let arguments = A::from_words(&line[..A::WORDS]).ok_or(CallError::Malformed);
            let result = arguments.and_then(|arguments| handle(&lines, rank, arguments));
            match result {
                Ok(result) => replies.put_result(result_words, rank, &result),
                Err(error) => replies.put(result_words, rank, Status::Error(error), &[]),
            }
        };
        let mut place = HandledUpTo { at: self.begun, begun: &mut self.begun };
        // Lone lanes' calls that are a doorbell alone are the most frequent.
        if A::WORDS == 0 && !lines.rung.has_lines() {
            for caller in &lines.callers[place.at..] {
                // The bound is known from `Lines::new`; here it spares the check of the place.
                let rank = place.at.min(MAX_LANES - 1);
                place.at += 1;
                caller::set(*caller);
                answer(rank);
            }
            return;
        }
        // Mostly a batch is handled from its first lane on, which needs no division.
        let packet = if place.at > 0 { place.at / lanes } else { 0 };
        let mut end = packet * lanes;
        for caller in &lines.callers[packet..] {
            caller::set(*caller);
            end = (end + lanes).min(MAX_LANES);
            while place.at < end {
                let rank = place.at;
                place.at += 1;
                if lines.rung.has_lines() {
                    caller::set_lane(lines.tag(rank).lane);
                }
                answer(rank);
            }
        }
    }

    /// Answers the lane whose handler panicked: the one begun last.
    pub fn panicked(&mut self) {
        if let Some(rank) = self.begun.checked_sub(1) {
            self.put(rank, Status::Error(CallError::Panicked), &[]);
        }
    }

    /// Gives each call that is left to a service's [`Service::call`].
    pub fn one_by_one<S: Service + ?Sized>(&mut self, service: &S, method: usize) {
        while self.left() > 0 {
            let rank = self.begun;
            self.begun += 1;
            let words = self.lines.words(rank);
            let words = &words[..self.lines.argument_words()];
            let caller = self.lines.caller(rank);
            let request = Request { words, bytes: &[], reply_capacity: 0, caller };
            caller::set(caller);
            let mut reply = ResultWords::default();
            match service.call(method, request, &mut reply) {
                Ok(()) => self.put(rank, Status::Ok, &reply.0),
                Err(error) => self.put(rank, Status::Error(error), &[]),
            }
        }
    }
}

/// The result words of a call whose result travels in a line.
#[derive(Default)]
struct ResultWords([u64; MAX_WORDS]);

impl Reply for ResultWords {
    fn words(&mut self, words: &[u64]) {
        for (to, from) in self.0.iter_mut().zip(words) {
            *to = *from;
        }
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), CallError> {
        if bytes.is_empty() { Ok(()) } else { Err(CallError::TooLarge) }
    }
}

/// A run of posts of one wave to one method, with the same number of words and the same extra bits.
pub struct Posts<'a> {
    entries: &'a [[u64; 2]],
    words: usize,
    extra: u32,
    caller: Caller,
    wave: Owner,
    begun: usize,
    is_declined: bool,
    may_decline: bool,
}

impl<'a> Posts<'a> {
    /// The run of these ring entries, which have no laps, each post of as many as the first one's head says. `None`
    /// when the first entry is no head.
    #[inline]
    pub fn new(entries: &'a [[u64; 2]]) -> Option<(PostHead, Self)> {
        let (head, _) = PostHead::from_word(entries.first()?[1])?;
        let (words, caller) = (usize::from(head.words), Caller::default());
        let (extra, wave) = (head.extra, Owner::default());
        Some((
            head,
            Self { entries, words, extra, caller, wave, begun: 0, is_declined: false, may_decline: true },
        ))
    }

    /// Returns the run with its caller and wave, which are known. `caller.lane` does not matter.
    #[inline]
    pub fn of(self, caller: Caller, wave: Owner) -> Self {
        Self { caller, wave, ..self }
    }

    /// Returns the run as one whose ring is about to be cleared: what is declined is lost.
    #[inline]
    pub fn of_cleared_ring(self) -> Self {
        Self { may_decline: false, ..self }
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

    /// Returns who posted, apart from the lane.
    #[inline]
    pub fn origin(&self) -> Caller {
        self.caller
    }

    /// Returns the wave that posted, which may have ended: its slot may be another's by now.
    #[inline]
    pub fn wave(&self) -> Owner {
        self.wave
    }

    /// Leaves the posts that no handler has begun in their wave's ring, where they are found again later. Meanwhile the
    /// wave goes on until its ring is full.
    #[inline]
    pub fn decline(&mut self) {
        self.is_declined = true;
    }

    /// Returns whether posts that are declined are found again later. Else the wave's ring is about to be cleared, since the
    /// wave was ended by force: they are refused, and a taker that can goes beyond its bound.
    #[inline]
    pub fn may_decline(&self) -> bool {
        self.may_decline
    }

    /// Returns whether the posts that are left were declined.
    #[inline]
    pub fn is_declined(&self) -> bool {
        self.is_declined
    }

    /// Gives the words of posts that are left, and who posted them, to `handle` while it takes them;
    /// declines the one that it does not take, and those after it. A post at which `handle` panics is
    /// begun, as with [`Posts::for_each`].
    pub fn for_each_taken(&mut self, mut handle: impl FnMut(&[u64], Caller) -> bool) {
        for post in self.entries.chunks_exact(PostHead::entries_for(self.words)).skip(self.begun) {
            // Before the handler: whoever goes on after its panic goes on with the next post.
            self.begun += 1;
            let from = caller_of(self.caller, post);
            caller::set(from);
            if !handle(&payload(post, self.words)[..self.words], from) {
                self.begun -= 1;
                return self.decline();
            }
        }
    }

    /// Gives the words of each post that is left, and who posted it, to `handle`.
    #[inline]
    pub fn for_each(&mut self, mut handle: impl FnMut(&[u64], Caller)) {
        for post in self.entries.chunks_exact(PostHead::entries_for(self.words)).skip(self.begun) {
            self.begun += 1;
            let from = caller_of(self.caller, post);
            caller::set(from);
            handle(&payload(post, self.words)[..self.words], from);
        }
    }

    /// Gives the arguments of each post that is left to `handle`, and returns how many posts were none: either
    /// all that are left or those whose words are no `A`.
    #[inline(always)]
    pub fn for_each_of<A: Wire>(&mut self, mut handle: impl FnMut(A)) -> usize {
        self.for_each_entry(|_, arguments| handle(arguments))
    }

    /// As [`Posts::for_each_of`], for handlers that ask who posts.
    #[inline(always)]
    pub fn for_each_of_from<A: Wire>(&mut self, mut handle: impl FnMut(&Caller, A)) -> usize {
        let of_run = self.caller;
        self.for_each_entry(|post, arguments| handle(&caller_of(of_run, post), arguments))
    }

    #[inline(always)]
    fn for_each_entry<A: Wire>(&mut self, mut handle: impl FnMut(&[[u64; 2]], A)) -> usize {
        if self.words != A::WORDS {
            let left = self.left();
            self.begun = self.count();
            return left;
        }
        let posts = self.entries.chunks_exact(const { PostHead::entries_for(A::WORDS) }).skip(self.begun);
        let from = self.caller;
        let mut place = HandledUpTo { at: self.begun, begun: &mut self.begun };
        let mut malformed = 0;
        caller::set(from);
        for post in posts {
            place.at += 1;
            caller::set_lane(lane_of(post));
            match A::from_words(&payload(post, A::WORDS)[..A::WORDS]) {
                Some(arguments) => handle(post, arguments),
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

/// Returns who made a post, of a run of this caller's, from the post's ring entries.
#[inline(always)]
fn caller_of(run: Caller, post: &[[u64; 2]]) -> Caller {
    Caller { lane: lane_of(post), ..run }
}

/// Returns which lane made a post.
#[inline(always)]
fn lane_of(post: &[[u64; 2]]) -> u8 {
    (post[0][1] >> 32) as u8 & 63
}

/// How far calls or a run were handled, kept in a register until its end or a handler's panic.
struct HandledUpTo<'a> {
    at: usize,
    begun: &'a mut usize,
}

impl Drop for HandledUpTo<'_> {
    fn drop(&mut self) {
        *self.begun = self.at;
    }
}

/// The words of the post of these entries, which have no laps.
#[inline(always)]
fn payload(entries: &[[u64; 2]], words: usize) -> [u64; MAX_POST_WORDS] {
    let head = entries[0][1];
    std::array::from_fn(|i| {
        if i >= words {
            return 0;
        }
        let word = if i > 0 && i.is_multiple_of(2) { entries[i / 2][1] } else { entries[i.div_ceil(2)][0] };
        word | (head << (5 - i)) & !PAYLOAD
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall_abi::launch::LaunchId;
    use hostcall_abi::word::{Doorbell, Kind};

    #[test]
    fn calls_of_several_packets_are_answered_each() {
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
        let rung = Rung::from_word(doorbell.to_word(false), 32).unwrap();
        let word = |rank: u32, i: usize| (u64::from(rank) << 8 | i as u64).wrapping_neg() >> (i % 2);
        // Two packets, of three lanes each.
        let mut planes = [[[0; 2]; MAX_LANES]; MAX_PAIRS];
        for rank in 0..6u32 {
            let tag = RequestTag { lane: 9 + rank as u8, ..RequestTag::default() }.to_bits();
            planes[0][rank as usize] = [word(rank, 0), tag];
            planes[1][rank as usize] = [word(rank, 1), word(rank, 2)];
            planes[2][rank as usize] = [word(rank, 3), word(rank, 4)];
        }
        let callers = [3, 4].map(|slot| Caller { launch: LaunchId::new(1, 1), slot, lane: 0 });
        let lines = Lines::new(rung, &planes, &callers);
        for rank in 0..6 {
            let words = std::array::from_fn(|i| if i < 5 { word(rank, i) } else { 0 });
            assert_eq!(lines.words(rank as usize), words);
            let caller = Caller { launch: LaunchId::new(1, 1), slot: 3 + rank / 3, lane: 9 + rank as u8 };
            assert_eq!(lines.caller(rank as usize), caller);
        }
        let reply = |replies: &Replies, rank: usize| {
            let mut line = Line::default();
            for pair in 0..2 {
                line.set_pair(pair, replies.planes()[pair][rank]);
            }
            line.restore(2);
            (Status::from_bits(line.tag), line.words[..2].to_vec())
        };
        let error = |error| (Status::Error(error), vec![0, 0]);
        let mut replies = Replies::EMPTY;
        let mut calls = Calls::new(lines, &mut replies);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            calls.answer_each(|(first, .., last): (u64, u64, u64, u64, u64)| {
                assert!(first != word(4, 0), "the fifth lane's handler panics");
                Ok((first, last))
            });
        }));
        assert!(panicked.is_err());
        calls.panicked();
        assert_eq!(calls.left(), 1);
        calls.answer_each(|_: (u64, u64, u64, u64, u64)| Err::<(), _>(CallError::Cancelled));
        assert_eq!(calls.left(), 0);
        assert_eq!(reply(&replies, 0), (Status::Ok, vec![word(0, 0), word(0, 4)]));
        assert_eq!(reply(&replies, 3), (Status::Ok, vec![word(3, 0), word(3, 4)]));
        assert_eq!(reply(&replies, 4), error(CallError::Panicked));
        assert_eq!(reply(&replies, 5), error(CallError::Cancelled));
        let mut calls = Calls::new(lines, &mut replies);
        calls.answer_each(|_: (u64, u64)| -> Result<(), _> { unreachable!("the words are five") });
        assert_eq!(reply(&replies, 5), error(CallError::Malformed));
        let mut calls = Calls::new(lines, &mut replies);
        calls.answer_each(|_: (u64, u64, u64, u64, u64)| -> Result<[u64; 8], _> {
            unreachable!("eight do not fit")
        });
        assert_eq!(reply(&replies, 0), error(CallError::Malformed));
    }

    /// Handlers of which one panics, now here and now there, learn who calls, and the others' calls are answered.
    #[test]
    fn calls_go_on_after_the_one_that_panicked() {
        let callers = [3, 4, 5].map(|slot| Caller { launch: LaunchId::new(1, 1), slot, lane: 2 });
        for (lanes, argument_words) in [(1, 0), (1, 1), (3, 0), (3, 1)] {
            let doorbell = Doorbell {
                service: 1,
                lanes,
                first_lane: 2,
                argument_words,
                result_words: 1,
                check: 0,
                kind: Kind::Words,
                after_posts: false,
                lines: lanes > 1 || argument_words > 0,
            };
            let rung = Rung::from_word(doorbell.to_word(false), 32).unwrap();
            let mut planes = [[[0; 2]; MAX_LANES]; MAX_PAIRS];
            let all = callers.len() * usize::from(lanes);
            for (rank, pair) in planes[0].iter_mut().enumerate().take(all) {
                let lane = 2 + rank as u8 % lanes;
                *pair = [rank as u64, RequestTag { lane, ..RequestTag::default() }.to_bits()];
            }
            let lines = Lines::new(rung, &planes, &callers);
            for bad in 0..all {
                let mut replies = Replies::EMPTY;
                let mut calls = Calls::new(lines, &mut replies);
                let mut seen = Vec::new();
                let mut handle = || {
                    seen.push(caller::caller().expect("a lane calls"));
                    assert!(seen.len() != bad + 1, "a handler panics");
                    Ok(seen.len() as u64)
                };
                for left in [all - bad - 1, 0] {
                    let run =
                        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match argument_words {
                            0 => calls.answer_each(|()| handle()),
                            _ => calls.answer_each(|_: u64| handle()),
                        }));
                    assert_eq!(calls.left(), left);
                    if run.is_err() {
                        calls.panicked();
                    }
                }
                assert_eq!(seen, (0..all).map(|rank| lines.caller(rank)).collect::<Vec<_>>());
                for (rank, [word, meta]) in replies.planes()[0].iter().enumerate().take(all) {
                    let error = Status::Error(CallError::Panicked);
                    let expected = if rank == bad { (0, error) } else { (rank as u64 + 1, Status::Ok) };
                    assert_eq!((*word, Status::from_bits(*meta)), expected);
                }
            }
        }
    }

    #[test]
    fn a_run_of_posts_goes_on_after_the_post_that_panicked() {
        let post = |first: u64, lane| {
            let words = [first, !first, first << 1];
            let head = PostHead { service: 7, lane, words: 3, extra: 5 }.to_word(&words);
            [[words[0], head], [words[1], words[2]]].map(|pair| pair.map(|word| word & PAYLOAD))
        };
        let entries = [post(1, 3), post(u64::MAX, 4), post(1 << 62, 5)].concat();
        let (head, run) = Posts::new(&entries).unwrap();
        assert_eq!((head.service, head.lane, head.words, run.count(), run.extra()), (7, 3, 3, 3, 5));
        let mut run = run.of(Caller { launch: LaunchId::new(1, 1), slot: 2, lane: 0 }, Owner::default());
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

    #[test]
    fn a_run_whose_posts_may_be_declined_goes_on_after_the_one_that_panicked() {
        let entries = [1, 2, 3, 4].map(|word| {
            let head = PostHead { service: 7, lane: word as u8, words: 1, extra: 0 }.to_word(&[word]);
            [word, head & PAYLOAD]
        });
        let of = Caller { launch: LaunchId::new(1, 1), slot: 2, lane: 0 };
        let (_, run) = Posts::new(&entries).unwrap();
        let mut run = run.of(of, Owner::default());
        let mut seen = Vec::new();
        let mut handle = |words: &[u64], from: Caller| {
            assert_eq!((caller::caller(), u64::from(from.lane)), (Some(from), words[0]));
            seen.push(words[0]);
            assert!(words[0] != 2, "the second post's handler panics");
            words[0] != 4
        };
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run.for_each_taken(&mut handle);
        }));
        assert!(panicked.is_err() && !run.is_declined());
        assert_eq!(run.left(), 2);
        run.for_each_taken(&mut handle);
        assert_eq!((run.left(), run.is_declined()), (1, true));
        assert_eq!(seen, [1, 2, 3, 4]);
    }
}
