//! The channel with both ends in one process.

use crate::device::{Pool, Slot, SlotState};
use crate::host::{Answer, Batch, PostBatch, PostBuffer, Scanner, Take};
use crate::{Region, SharedMemory};
use hostcall_abi::layout::{Layout, Sizes};
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{Doorbell, Kind, Line, PostHead, RequestTag, Rung};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

fn layout() -> Layout {
    Layout { slots: 8, lanes: 64, ring_entries: 256, bulk_bytes: 4096 }.check().unwrap()
}

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
        Self {
            memory: Arc::new(SharedMemory::allocate(layout())),
            state: SlotState::zeroed(),
            scanner: Scanner::new(0..8),
            batch: Batch::new(),
        }
    }

    fn slot(&self) -> Slot<'_> {
        // SAFETY: one thread uses the slot (SLOT-OWNER), which is less than 8.
        unsafe { Slot::new(self.memory.region(), 5, &self.state) }
    }

    /// Looks at slot 5's call, which launch 3 has.
    fn take(&mut self) -> Take {
        self.batch.clear();
        self.scanner.take(self.memory.region(), 5, 3, &mut self.batch)
    }

    /// Takes slot 5's call.
    fn taken(&mut self) -> Answer {
        assert!(matches!(self.take(), Take::Call));
        self.batch.answer(0)
    }

    /// Takes posts of slot 5: what each says of itself, and its words.
    fn take_posts(&mut self, mut take: impl FnMut(PostHead, Vec<u64>)) -> PostBatch {
        self.scanner.take_posts(self.memory.region(), 5, &mut PostBuffer::new(), |head, mut posts| {
            posts.for_each(|words, caller| take(PostHead { lane: caller.lane, ..head }, words.to_vec()));
        })
    }

    fn round_trip(&mut self, doorbell: Doorbell, request: impl Fn(u32) -> Line, detached: bool) {
        let n = u32::from(doorbell.lanes);
        let laps: Vec<_> =
            (0..n).map(|rank| self.slot().laps(self.slot().glance(), &doorbell, rank)).collect();
        for rank in 0..n {
            self.slot().ring(&doorbell, laps[rank as usize], rank);
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

    /// Posts of any size arrive in order, over many laps of the ring.
    #[test]
    fn posts_arrive_in_order(
        sizes in prop::collection::vec((0u8..=5, any::<u64>()), 1..1000),
        same_extra in any::<bool>(),
    ) {
        let mut ends = Ends::new();
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
                ends.slot().look_at_ring_tail();
            };
            ends.slot().write_post(position, head, &payload);
            waiting.push_back((head, payload[..words as usize].to_vec()));
        }
        while !waiting.is_empty() {
            ends.take_posts(|head, words| assert_eq!(Some((head, words)), waiting.pop_front()));
        }
    }

    /// A ring that is longer or shorter in each launch, wherever the last one ended, has just the launch's posts.
    #[test]
    fn rings_are_resized(launches in prop::collection::vec((0u32..3, 0u64..600), 1..20)) {
        let layout = Layout { slots: 8, lanes: 16, ring_entries: 256, bulk_bytes: 4096 }.check().unwrap();
        let (memory, state, mut scanner) =
            (SharedMemory::allocate(layout), SlotState::zeroed(), Scanner::new(0..8));
        let (mut posted, mut taken, mut buffer) = (0, 0, PostBuffer::new());
        for (shorter, count) in launches {
            let ring_entries = 256 >> shorter;
            scanner.resize_ring(memory.region(), 5, ring_entries);
            let sizes = Sizes { layout: Layout { ring_entries, ..layout }, ..layout.into() };
            // SAFETY: the memory's own address and places; one thread uses the slot (SLOT-OWNER), which is less than 8.
            let slot = unsafe { Slot::new(Region::from_address(memory.address(), &sizes), 5, &state) };
            let mut take = || {
                let batch = scanner.take_posts(memory.region(), 5, &mut buffer, |_, mut posts| {
                    posts.for_each(|words, _| {
                        assert_eq!(words[0], taken);
                        taken += 1;
                    });
                });
                assert_eq!(batch.garbage, 0);
                batch.posts
            };
            assert_eq!(take(), 0);
            for _ in 0..count {
                let place = loop {
                    match slot.reserve_posts(slot.glance(), 1) {
                        Some(place) => break place,
                        None => take(),
                    };
                    slot.look_at_ring_tail();
                };
                slot.write_post(place, PostHead { service: 4, lane: 0, words: 1, extra: 0 }, &[posted, 0, 0, 0, 0]);
                posted += 1;
            }
            while take() > 0 {}
            assert_eq!(taken, posted);
        }
    }

    /// Whatever stands in the words that a device writes, the host neither panics nor takes a call twice.
    #[test]
    fn garbage_is_survived(words in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 1..200)) {
        let (mut ends, mut buffer) = (Ends::new(), PostBuffer::new());
        let region = ends.memory.region();
        for (at, word) in words {
            let at = 64 + at.index(layout().words() - 64);
            region.word(at as u32).store(word, crate::primitive::Ordering::Relaxed);
            for slot in 0..8 {
                if ends.scanner.rung(region, 0) & 1 << slot != 0 {
                    match ends.scanner.take(region, slot, 3, &mut ends.batch) {
                        Take::Call => ends.batch.answer(0).all(region, Status::Error(CallError::Malformed)),
                        Take::Full => panic!("the batch is empty"),
                        Take::Garbage(_) => assert!(ends.scanner.is_broken(slot)),
                        Take::NotYet | Take::PostsFirst(_) => {}
                    }
                    ends.batch.clear();
                }
                ends.scanner.take_posts(region, slot, &mut buffer, |head, _| assert!(head.words <= 5));
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
    ends.slot().write_line(&bell, laps, 0, &Line { words: [0; 7], tag: tag.to_bits() });
    assert!(!ends.slot().has_untold_posts(ends.slot().glance()));
    assert!(matches!(ends.take(), Take::PostsFirst(3)));
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
fn bytes_pass_through_the_bulk_area() {
    let mut ends = Ends::new();
    let bell = Doorbell { kind: Kind::Bytes, ..doorbell(4, 3, 2) };
    let laps: Vec<_> = (0..4).map(|rank| ends.slot().laps(ends.slot().glance(), &bell, rank)).collect();
    let share = layout().bulk_share(4);
    for rank in 0..4 {
        ends.slot().write_bulk(rank * share, &[rank as u8 + 1; 1021]);
    }
    ends.slot().publish_bulk();
    for rank in 0..4 {
        ends.slot().ring(&bell, laps[rank as usize], rank);
        ends.slot().write_line(&bell, laps[rank as usize], rank, &Line::default());
    }
    let answer = ends.taken();
    let region = ends.memory.region();
    for rank in 0..4 {
        let mut bytes = [0; 1021];
        answer.read_bulk(region, rank, &mut bytes);
        assert_eq!(bytes, [rank as u8 + 1; 1021]);
        answer.write_bulk(region, rank, &[rank as u8 + 100; 13]);
        answer.lane(region, rank, Status::Ok, &[13, 0]);
    }
    for rank in 0..4 {
        assert!(ends.slot().poll_reply(&bell, laps[rank as usize], rank).is_some());
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
    ends.round_trip(doorbell(2, 7, 7), |_| Line::default(), true);
}
