//! The channel with both ends in one process.

use crate::SharedMemory;
use crate::device::{Pool, Slot, SlotState};
use crate::host::{Answer, Batch, PostBatch, PostBuffer, Scanner, Take, Taken};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::{Layout, area_share};
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{Doorbell, Kind, Line, Owner, PostHead, RequestTag, Rung};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

mod claims;

fn layout() -> Layout {
    Layout::small(8, 64, 256, 4096).check().unwrap()
}

/// The launch whose wave has slot 5.
const LAUNCH: LaunchId = LaunchId::new(3, 1);

const OWNER: Owner = Owner { launch: LAUNCH, home: None, wave: 2, workgroup: 77 };

fn doorbell(lanes: u8, argument_words: u8, result_words: u8) -> Doorbell {
    Doorbell {
        service: 300,
        lanes,
        first_lane: 0,
        argument_words,
        result_words,
        check: 7,
        kind: Kind::Words,
        after_posts: false,
        lines: argument_words > 0 || lanes > 1,
    }
}

struct Ends {
    memory: Arc<SharedMemory>,
    state: SlotState,
    scanner: Scanner,
    batch: Batch,
}

impl Ends {
    fn new() -> Self {
        let ends = Self {
            memory: Arc::new(SharedMemory::allocate(layout())),
            state: SlotState::zeroed(),
            scanner: Scanner::new(0..8, Taken::new(8)),
            batch: Batch::new(),
        };
        ends.slot().publish_owner(OWNER);
        ends
    }

    fn slot(&self) -> Slot<'_> {
        // SAFETY: one thread uses the slot (SLOT-OWNER), which is less than 8.
        unsafe { Slot::new(self.memory.region().words(), self.memory.region().sizes().slot(5), &self.state) }
    }

    /// Looks at slot 5's call, of a launch that runs.
    fn take(&mut self) -> Take {
        self.batch.clear();
        let mut take =
            || self.scanner.take(self.memory.region(), 5, &mut self.batch, |launch| launch == LAUNCH);
        match take() {
            Take::NewOwner => take(),
            other => other,
        }
    }

    /// Takes slot 5's call.
    fn taken(&mut self) -> Answer {
        assert!(matches!(self.take(), Take::Call));
        self.batch.answer(0)
    }

    /// Takes posts of slot 5: what each says of itself, and its words.
    fn take_posts(&mut self, mut take: impl FnMut(PostHead, Vec<u64>)) -> PostBatch {
        self.scanner.take_posts(self.memory.region(), 5, &mut PostBuffer::new(), |_, head, mut posts| {
            posts.for_each(|words, caller| take(PostHead { lane: caller.lane, ..head }, words.to_vec()));
            posts.count()
        })
    }

    fn round_trip(&mut self, doorbell: Doorbell, request: impl Fn(u32) -> Line, detached: bool) {
        let n = u32::from(doorbell.lanes);
        let laps: Vec<_> =
            (0..n).map(|rank| self.slot().laps(self.slot().glance(), &doorbell, rank)).collect();
        for rank in 0..n {
            self.slot().ring(&doorbell, laps[rank as usize], rank);
            self.slot().flip_laps(&doorbell, rank);
        }
        for rank in 0..n {
            if doorbell.lines && rank + 1 == n {
                assert_eq!(self.scanner.rung(self.memory.region(), 0), 1 << 5);
                assert!(matches!(self.take(), Take::NotYet));
            }
            self.slot().write_line(&doorbell, laps[rank as usize], rank, &request(rank));
            assert_eq!(self.slot().poll_reply(&doorbell, laps[rank as usize], rank), None);
        }
        assert_eq!(self.scanner.rung(self.memory.region(), 0), 1 << 5);
        let answer = self.taken();
        assert_eq!(Some(self.batch.rung()), Rung::from_word(doorbell.to_word(true), layout().lanes));
        assert_eq!(self.scanner.rung(self.memory.region(), 0), 0);
        let reply = |rank: u32| -> [u64; 7] { core::array::from_fn(|i| !(u64::from(rank) << 32 | i as u64)) };
        if detached {
            let mut answer = self.scanner.detach(&self.memory, answer);
            for rank in 0..n {
                assert_eq!(self.batch.lines().words(rank as usize), request(rank).words);
                answer.lane(rank, Status::Ok, &reply(rank));
            }
        } else {
            for rank in 0..n {
                assert_eq!(self.batch.lines().words(rank as usize), request(rank).words);
                answer.lane(self.memory.region(), rank, Status::Ok, &reply(rank));
            }
        }
        for rank in 0..n {
            let line = self.slot().poll_reply(&doorbell, laps[rank as usize], rank).expect("answered");
            assert_eq!(Status::from_bits(line.tag), Status::Ok);
            let words = doorbell.result_words as usize;
            assert_eq!(line.words[..words], reply(rank)[..words]);
        }
    }
}

/// What a wave asks ahead says no more room than there is, is not taken after it has learnt of more, and gives a wave none whose
/// launch was cancelled.
#[test]
fn a_ring_is_asked_ahead_how_much_of_it_is_free() {
    let mut ends = Ends::new();
    let entries = layout().ring_entries.of(5);
    let head = PostHead { service: 4, lane: 0, words: 1, extra: 1 };
    let post = |ends: &Ends| {
        let place = ends.slot().reserve_posts(ends.slot().glance(), 1);
        place.inspect(|place| ends.slot().write_post(*place, head, &[7; 5])).is_some()
    };
    let renew = |ends: &Ends| ends.slot().renew_ring_tail(ends.slot().glance(), 1);
    let post_all = |ends: &Ends, posts| (0..posts).for_each(|_| assert!(post(ends)));
    // When half of the ring was posted and read it is asked, and known when the ring is full.
    post_all(&ends, entries / 2);
    assert_eq!(ends.take_posts(|_, _| ()).posts, entries / 2);
    renew(&ends);
    post_all(&ends, entries / 2);
    assert!(!post(&ends));
    renew(&ends);
    post_all(&ends, entries / 2);
    // What was asked for then is no more, and by a look there is no room either.
    assert!(!post(&ends));
    renew(&ends);
    assert!(!post(&ends));
    assert_eq!(ends.take_posts(|_, _| ()).posts, entries);
    renew(&ends);
    post_all(&ends, entries);
    assert_eq!(ends.take_posts(|_, _| ()).posts, entries);
    // What was asked for when the ring had room is less than a look says since.
    ends.slot().look_at_ring_tail();
    assert!(ends.slot().has_room(ends.slot().glance(), entries));
    renew(&ends);
    assert!(ends.slot().has_room(ends.slot().glance(), entries));
    ends.slot().set_cancelled();
    renew(&ends);
    assert!(!post(&ends));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Any sequence of packet shapes works: laps are per word, whatever earlier packets used.
    #[test]
    fn calls_of_every_shape(shapes in prop::collection::vec((1u8..=64, 0u8..=7, 0u8..=7, any::<u64>(), any::<bool>()), 1..40)) {
        let mut ends = Ends::new();
        for (lanes, arguments, results, seed, detached) in shapes {
            let request = |rank: u32| {
                let mut line = Line {
                    words: [0; 7],
                    tag: RequestTag { lane: rank as u8, ..RequestTag::default() }.to_bits(),
                };
                for (i, word) in line.words.iter_mut().enumerate().take(arguments as usize) {
                    *word = seed.rotate_left(rank + 7 * i as u32);
                }
                line
            };
            ends.round_trip(doorbell(lanes, arguments, results), request, detached);
        }
    }

    /// Posts of any size arrive in order, over many laps of the ring, also where the count of its entries begins again.
    #[test]
    fn posts_arrive_in_order(
        sizes in prop::collection::vec((0u8..=5, any::<u64>()), 1..1000),
        same_extra in any::<bool>(),
        asks_ahead in any::<bool>(),
        begins_again in any::<bool>(),
    ) {
        let mut ends = Ends::new();
        if begins_again {
            // The laps are those of the first pass.
            let before = 0u32.wrapping_sub(2 * layout().ring_entries.of(5));
            ends.state = SlotState::after_posts(before);
            ends.scanner.skip_posts(ends.memory.region(), 5, before.into());
        }
        let mut waiting = std::collections::VecDeque::new();
        for (words, seed) in sizes {
            let payload: [u64; 5] = core::array::from_fn(|i| if i < words as usize { seed.rotate_left(9 * i as u32) } else { 0 });
            let extra = if same_extra { 1 } else { seed as u32 };
            let head = PostHead { service: 4, lane: seed as u8 & 63, words, extra };
            let entries = PostHead::entries_for(words as usize) as u32;
            let position = loop {
                if let Some(position) = ends.slot().reserve_posts(ends.slot().glance(), entries) {
                    break position;
                }
                let before = waiting.len();
                let batch = ends.take_posts(|head, words| assert_eq!(Some((head, words)), waiting.pop_front()));
                assert_eq!(before - waiting.len(), batch.posts as usize);
                assert!(batch.posts > 0 && batch.garbage == 0);
                if asks_ahead {
                    ends.slot().renew_ring_tail(ends.slot().glance(), entries);
                } else {
                    ends.slot().look_at_ring_tail();
                }
            };
            ends.slot().write_post(position, head, &payload);
            if asks_ahead && seed % 4 == 0 {
                ends.slot().renew_ring_tail(ends.slot().glance(), 1);
            }
            waiting.push_back((head, payload[..words as usize].to_vec()));
        }
        while !waiting.is_empty() {
            ends.take_posts(|head, words| assert_eq!(Some((head, words)), waiting.pop_front()));
        }
    }

    /// Whatever stands in the words that a device writes, the host neither panics nor takes a call twice.
    #[test]
    fn garbage_is_survived(words in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 1..200)) {
        let (mut ends, mut buffer) = (Ends::new(), PostBuffer::new());
        let region = ends.memory.region();
        for (at, word) in words {
                let first = layout().places().doorbell(0) as usize;
            let at = first + at.index(layout().words() - first);
            region.word(at as u32).store(word, crate::primitive::Ordering::Relaxed);
            for slot in 0..8 {
                if ends.scanner.rung(region, 0) & 1 << slot != 0 {
                    match ends.scanner.take(region, slot, &mut ends.batch, |launch| launch == LAUNCH) {
                        Take::Call | Take::OfDeadLaunch => ends.batch.answer(0).all(region, Status::Error(CallError::Malformed)),
                        Take::Full => panic!("the batch is empty"),
                        Take::Garbage(_) => assert!(ends.scanner.is_ignored(slot)),
                        Take::NotYet | Take::NewOwner | Take::PostsFirst(..) => {}
                    }
                    ends.batch.clear();
                }
                ends.scanner.take_posts(region, slot, &mut buffer, |_, head, posts| {
                    assert!(head.words <= 5);
                    posts.count()
                });
            }
        }
    }
}

#[test]
fn a_call_waits_for_the_posts_before_it() {
    let mut ends = Ends::new();
    let head = PostHead { service: 9, lane: 0, words: 1, extra: 0 };
    for i in 0..3 {
        let position = ends.slot().reserve_posts(ends.slot().glance(), 1).unwrap();
        ends.slot().write_post(position, head, &[i, 0, 0, 0, 0]);
    }
    assert!(ends.slot().has_untold_posts(ends.slot().glance()));
    let bell = Doorbell { after_posts: true, lines: true, ..doorbell(1, 0, 0) };
    let laps = ends.slot().laps(ends.slot().glance(), &bell, 0);
    let tag = RequestTag { post_position: ends.slot().glance().post_position, ..RequestTag::default() };
    ends.slot().ring(&bell, laps, 0);
    ends.slot().flip_laps(&bell, 0);
    ends.slot().write_line(&bell, laps, 0, &Line { words: [0; 7], tag: tag.to_bits() });
    assert!(!ends.slot().has_untold_posts(ends.slot().glance()));
    assert!(matches!(ends.take(), Take::PostsFirst(5)));
    assert_eq!(ends.take_posts(|_, _| {}).posts, 3);
    ends.taken().all(ends.memory.region(), Status::Ok);
}

#[test]
fn a_dropped_answer_cancels() {
    let mut ends = Ends::new();
    let bell = doorbell(2, 1, 1);
    let laps = [0, 1].map(|rank| ends.slot().laps(ends.slot().glance(), &bell, rank));
    for (rank, laps) in (0..).zip(laps) {
        ends.slot().ring(&bell, laps, rank);
        ends.slot().flip_laps(&bell, rank);
        ends.slot().write_line(&bell, laps, rank, &Line::default());
    }
    let answer = ends.taken();
    let mut answer = ends.scanner.detach(&ends.memory, answer);
    answer.lane(0, Status::Ok, &[11]);
    drop(answer);
    let status = |rank: usize| {
        let line = ends.slot().poll_reply(&bell, laps[rank], rank as u32).expect("answered");
        (Status::from_bits(line.tag), line.words[0])
    };
    assert_eq!(status(0), (Status::Ok, 11));
    assert_eq!(status(1), (Status::Error(CallError::Cancelled), 0));
}

#[test]
fn bytes_pass_through_the_byte_area() {
    let mut ends = Ends::new();
    let bell = Doorbell { kind: Kind::Bytes, ..doorbell(4, 3, 2) };
    let laps: Vec<_> = (0..4).map(|rank| ends.slot().laps(ends.slot().glance(), &bell, rank)).collect();
    let share = area_share(layout().area_bytes, 4);
    for rank in 0..4 {
        ends.slot().write_bulk(rank * share, &[rank as u8 + 1; 1021]);
    }
    ends.slot().publish_bulk();
    for rank in 0..4 {
        ends.slot().ring(&bell, laps[rank as usize], rank);
        ends.slot().flip_laps(&bell, rank);
        ends.slot().write_line(&bell, laps[rank as usize], rank, &Line::default());
    }
    let answer = ends.taken();
    let region = ends.memory.region();
    for rank in 0..4 {
        let mut bytes = vec![7];
        answer.append_bytes(region, None, rank, 0, 1021, &mut bytes);
        assert_eq!((bytes[0], &bytes[1..]), (7, &[rank as u8 + 1; 1021][..]));
        answer.append_bytes(region, None, rank, 1016, 5, &mut bytes);
        assert_eq!(bytes[1022..], [rank as u8 + 1; 5]);
        answer.write_bytes(region, None, rank, 0, &[rank as u8 + 100; 13]);
        answer.lane(region, rank, Status::Ok, &[13, 0]);
    }
    for rank in 0..4 {
        assert!(ends.slot().poll_reply_with_bytes(&bell, laps[rank as usize], rank).is_some());
        let mut bytes = [0; 13];
        ends.slot().read_bulk(rank as usize * share, &mut bytes);
        assert_eq!(bytes, [rank as u8 + 100; 13]);
    }
}

/// A part that calls again and again lets one that came meanwhile go first.
#[test]
fn parts_of_a_wave_take_turns() {
    let ends = Ends::new();
    let slot = ends.slot();
    // Past where the turns' numbers wrap.
    for _ in 0..70_000 {
        let busy = slot.line_up();
        assert!(slot.has_turn(busy));
        let other = slot.line_up();
        assert!(!slot.has_turn(other));
        slot.end_turn();
        let again = slot.line_up();
        assert!(slot.has_turn(other) && !slot.has_turn(again));
        slot.end_turn();
        assert!(slot.has_turn(again));
        slot.end_turn();
    }
}

/// At words that begin a pair and at others, and from and to slices that begin anywhere.
#[test]
fn bulk_bytes_are_copied_at_any_alignment() {
    let ends = Ends::new();
    let bytes: Vec<u8> = (0..400usize).map(|i| (i * 7 + i / 256) as u8).collect();
    for (offset, start) in [(0, 0), (8, 0), (16, 3), (24, 8), (8, 9)] {
        for len in 0..390 {
            let bytes = &bytes[start..start + len];
            ends.slot().write_bulk(offset, bytes);
            for to in [0, 1, 8] {
                let mut back = vec![0xee; to + len + 1];
                ends.slot().read_bulk(offset, &mut back[to..to + len]);
                assert_eq!(&back[to..to + len], bytes);
                assert_eq!(back[to + len], 0xee);
            }
        }
    }
}

#[test]
fn a_pool_gives_each_slot_once() {
    let bitmap: Vec<AtomicU64> = (0..2).map(|_| AtomicU64::new(0)).collect();
    let pool = Pool::new(&bitmap, 70);
    let mut taken: Vec<u32> = (0..70).map(|i| pool.claim(i).unwrap()).collect();
    assert_eq!(pool.claim(0), None);
    taken.sort_unstable();
    assert_eq!(taken, (0..70).collect::<Vec<_>>());
    pool.release(69);
    assert_eq!(pool.claim(0), Some(69));
}

#[test]
fn a_reset_slot_starts_again() {
    let mut ends = Ends::new();
    ends.round_trip(doorbell(3, 2, 3), |_| Line::default(), false);
    let word = ends.memory.region().word(layout().places().doorbell(5));
    word.store(1 << 63 >> 1 | 15, crate::primitive::Ordering::Relaxed);
    assert!(matches!(ends.take(), Take::Garbage(_)));
    assert_eq!(ends.scanner.rung(ends.memory.region(), 0), 0);
    ends.scanner.reset(ends.memory.region(), 5);
    ends.state = SlotState::zeroed();
    ends.slot().publish_owner(OWNER);
    ends.round_trip(doorbell(2, 7, 7), |_| Line::default(), true);
}
