//! The channel with both ends in one process.

use crate::SharedMemory;
use crate::device::{Channel, HomeSlot, Homes, Pool, Slot, SlotState, WaveRecord};
use crate::host::{Answer, Batch, PostBatch, PostBuffer, Scanner, Take, Taken};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::{Layout, RingEntries, area_share};
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{Doorbell, Kind, Line, Owner, PostHead, RequestTag, Rung};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

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

    /// Posts of any size arrive in order, over many laps of the ring.
    #[test]
    fn posts_arrive_in_order(
        sizes in prop::collection::vec((0u8..=5, any::<u64>()), 1..1000),
        same_extra in any::<bool>(),
        asks_ahead in any::<bool>(),
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

/// States for slots that no wave claims.
fn states() -> Vec<SlotState> {
    (0..78).map(|_| SlotState::zeroed()).collect()
}

/// A wave's end: what it leaves is what the slot's next wave finds.
struct Waves {
    memory: Arc<SharedMemory>,
    homes: Vec<HomeSlot>,
    extra_states: Vec<SlotState>,
    extras: Vec<AtomicU64>,
}

impl Waves {
    fn new() -> Self {
        let layout = Layout {
            extra_slots: 70,
            large_areas: 2,
            large_area_bytes: 1 << 16,
            ring_entries: RingEntries { first: 1024, early: 512, other: 256 },
            ..Layout::small(8, 32, 256, 4096)
        };
        let memory = Arc::new(SharedMemory::allocate(layout.check().unwrap()));
        let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        let homes = HomeSlot::all(memory.region());
        let extra_states = (0..layout.extra_slots).map(|_| SlotState::zeroed()).collect();
        Self { memory, homes, extra_states, extras: words(2) }
    }

    fn homes(&self) -> Homes<'_> {
        Homes::new(&self.homes)
    }

    fn channel(&self) -> Channel<'_> {
        Channel::new(self.memory.region(), self.homes(), &self.extra_states, &self.extras, &self.extras[..1])
    }

    /// Ends a wave that has a slot.
    fn end(&self, record: &WaveRecord) {
        // SAFETY: one thread uses the record (SLOT-OWNER).
        unsafe {
            if !record.release_at_once(self.homes(), record.slot().expect("a slot")) {
                record.release(self.channel(), |poll| assert!(poll(), "the wave waits for ever"));
            }
        }
        assert_eq!(record.slot(), None);
    }
}

#[test]
fn waves_claim_slots_and_hand_them_on() {
    let waves = Waves::new();
    let records: Vec<_> = (0..8).map(|_| WaveRecord::new()).collect();
    // SAFETY: one thread uses the records (SLOT-OWNER), also below.
    let unclaimed = unsafe { records[0].held() };
    assert!(unclaimed.glance().is_unready() && !unclaimed.has_room(unclaimed.glance(), 1));
    // The proposed slot, or the next one that is free.
    let slots: Vec<_> = records.iter().map(|record| record.claim(waves.homes(), 6).unwrap()).collect();
    assert_eq!(slots, [6, 7, 0, 1, 2, 3, 4, 5]);
    let late = WaveRecord::new();
    assert_eq!((late.claim(waves.homes(), 3), records[0].claim(waves.homes(), 1)), (None, Some(6)));
    waves.end(&records[4]);
    assert_eq!(late.claim(waves.homes(), u32::MAX), Some(2));
    // SAFETY: as above.
    let held = unsafe { late.held() };
    assert!(held.glance().is_unready() && !held.glance().is_unclaimed());
    held.publish_owner(OWNER);
    assert!(!held.glance().is_unready());
}

/// What parts of a wave left does not fit a word: the next wave finds all of it beside the word, and nothing of what no holder
/// takes over.
#[test]
fn a_state_that_fits_no_word_goes_on_too() {
    let waves = Waves::new();
    let region = waves.memory.region();
    let (mut scanner, mut batch) = (Scanner::new(0..72, Taken::new(8)), Batch::new());
    let bell = doorbell(9, 1, 1);
    for n in 0..5u32 {
        let record = WaveRecord::new();
        assert_eq!(record.claim(waves.homes(), 2), Some(2));
        // SAFETY: one thread uses the record (SLOT-OWNER).
        let slot = unsafe { record.held() };
        let glance = slot.glance();
        assert!(glance.is_unready() && !slot.is_told(glance, Some(7)) && !slot.has_posted());
        assert_eq!(glance.post_position, n);
        slot.publish_owner(OWNER);
        let position = slot.reserve_posts(glance, 1).unwrap();
        slot.ring_post_bell(Some(7), position + 1);
        let laps: Vec<_> = (0..9).map(|rank| slot.laps(slot.glance(), &bell, rank)).collect();
        slot.ring(&bell, laps[0], 0);
        for (rank, &laps) in laps.iter().enumerate() {
            slot.write_line(&bell, laps, rank as u32, &Line { words: [n.into(); 7], tag: 0 });
            slot.flip_laps(&bell, rank as u32);
        }
        while !matches!(scanner.take(region, 2, &mut batch, |_| true), Take::Call) {}
        assert!(
            laps.iter().enumerate().all(|(rank, &laps)| slot.poll_reply(&bell, laps, rank as u32).is_none())
        );
        batch.answer(0).all(region, Status::Ok);
        batch.clear();
        assert!(
            laps.iter().enumerate().all(|(rank, &laps)| slot.poll_reply(&bell, laps, rank as u32).is_some())
        );
        // SAFETY: as above. What nine lanes did a second time fits again.
        let fits = unsafe { record.release_at_once(waves.homes(), 2) };
        assert_eq!(fits, n % 2 == 1, "wave {n}");
        if !fits {
            waves.end(&record);
        }
    }
}

/// Every claim of a slot is told from the one before, whether the waves between called, posted or did neither.
#[test]
fn the_host_knows_whose_each_call_and_post_is() {
    let waves = Waves::new();
    let region = waves.memory.region();
    let mut scanner = Scanner::new(0..72, Taken::new(8));
    let (mut batch, mut buffer) = (Batch::new(), PostBuffer::new());
    // Some of a run are declined, and come again.
    let mut take_posts = |scanner: &mut Scanner, posts: &mut Vec<(LaunchId, u64)>, n: u32| {
        scanner.take_posts(region, 3, &mut buffer, |owner, _, mut run| {
            let most = posts.len() + 1 + n as usize % 3;
            run.for_each_taken(|words, _| {
                let takes = posts.len() < most;
                if takes {
                    posts.push((owner.launch, words[0]));
                }
                takes
            });
            run.count() - run.left()
        });
    };
    for n in 1..40u32 {
        let owner = Owner { launch: LaunchId::new(n, 1), home: None, wave: n, workgroup: n };
        let (mut expected, mut posts) = (Vec::new(), Vec::new());
        let record = WaveRecord::new();
        assert_eq!(record.claim(waves.homes(), 3), Some(3));
        // SAFETY: one thread uses the record (SLOT-OWNER).
        let slot = unsafe { record.held() };
        if n % 3 == 0 {
            let lanes = 1 + n % 16;
            let owners = slot.owner_entries(slot.glance(), lanes);
            let position = slot.reserve_posts(slot.glance(), owners + 1).unwrap();
            assert!(if lanes < 8 { owners == 1 } else { (position + owners).is_multiple_of(8) });
            slot.write_owner_entries(position, owners, owner);
            let head = PostHead { service: 4, lane: 0, words: 1, extra: 1 };
            slot.write_post(position + owners, head, &[n.into(), 0, 0, 0, 0]);
            slot.set_posted();
            expected.push((owner.launch, u64::from(n)));
        }
        if n % 2 == 0 {
            slot.publish_owner(owner);
            let bell = Doorbell {
                after_posts: slot.has_untold_posts(slot.glance()),
                lines: true,
                ..doorbell(1, 1, 1)
            };
            let laps = slot.laps(slot.glance(), &bell, 0);
            let tag =
                RequestTag { post_position: slot.glance().post_position, ..RequestTag::default() }.to_bits();
            slot.ring(&bell, laps, 0);
            slot.flip_laps(&bell, 0);
            slot.write_line(&bell, laps, 0, &Line { words: [n.into(); 7], tag });
            let mut owners = 0;
            loop {
                match scanner.take(region, 3, &mut batch, |launch| launch == owner.launch) {
                    Take::Call => break,
                    Take::NewOwner => owners += 1,
                    Take::PostsFirst(3) => take_posts(&mut scanner, &mut posts, n),
                    _ => panic!("call {n} is not found"),
                }
            }
            assert_eq!((owners, scanner.owner(3)), (1, owner.launch));
            // The wave's posts came before its call.
            assert_eq!(posts, expected);
            batch.answer(0).all(region, Status::Ok);
            batch.clear();
            assert!(slot.poll_reply(&bell, laps, 0).is_some());
        }
        waves.end(&record);
        // The wave's last posts are announced.
        scanner.post_bells(region, 0);
        assert_eq!(scanner.expects_posts(3), posts != expected);
        while scanner.expects_posts(3) {
            take_posts(&mut scanner, &mut posts, n);
        }
        assert_eq!(posts, expected);
    }
}

/// A call through an extra slot comes after the posts of its wave's home slot.
#[test]
fn extra_slots_wait_for_the_home_slots_posts() {
    let waves = Waves::new();
    let region = waves.memory.region();
    let taken = Taken::new(8);
    let (mut homes, mut extras) = (Scanner::new(0..8, taken.clone()), Scanner::new(8..78, taken));
    let (mut batch, mut buffer) = (Batch::new(), PostBuffer::new());
    let record = WaveRecord::new();
    let home = record.claim(waves.homes(), 5).unwrap();
    // SAFETY: one thread uses the record and the slots (SLOT-OWNER), also below.
    let slot = unsafe { record.held() };
    let position = slot.reserve_posts(slot.glance(), 1).unwrap();
    slot.write_post(position, PostHead { service: 4, lane: 0, words: 0, extra: 1 }, &[0; 5]);
    let index = waves.channel().extras().claim(1).unwrap();
    // SAFETY: as above.
    let extra = unsafe { waves.channel().extra(index) };
    extra.set_holder(home, 1);
    extra.publish_owner(Owner { home: Some(home), ..OWNER });
    record.begin_pending();
    let bell = Doorbell { after_posts: true, lines: true, ..doorbell(1, 0, 0) };
    let laps = extra.laps(extra.glance(), &bell, 0);
    extra.ring(&bell, laps, 0);
    extra.flip_laps(&bell, 0);
    let tag = RequestTag { post_position: slot.glance().post_position, ..RequestTag::default() }.to_bits();
    extra.write_line(&bell, laps, 0, &Line { words: [0; 7], tag });
    let mut take = |batch: &mut Batch| extras.take(region, 8 + index, batch, |launch| launch == LAUNCH);
    assert!(matches!(take(&mut batch), Take::NewOwner));
    assert!(matches!(take(&mut batch), Take::PostsFirst(5)));
    assert_eq!(homes.take_posts(region, 5, &mut buffer, |_, _, posts| posts.count()).posts, 1);
    assert!(matches!(take(&mut batch), Take::Call) && !extra.is_answered());
    batch.answer(0).all(region, Status::Ok);
    // The wave forgets the call, and its end gives the slot back.
    assert!(extra.is_answered() && waves.channel().extras().is_taken(index));
    assert_eq!(waves.channel().extras_held_by(&[5]), [8 + index]);
    waves.end(&record);
    assert!(!waves.channel().extras().is_taken(index));
    assert_eq!(waves.channel().extras_held_by(&[5]), [0; 0]);
}

/// Owners that make no sense give the slot up, and are no panic: unknown bits, a home slot for a home slot, none for an extra
/// one, one that there is not.
#[test]
fn bad_owners_break_a_slot() {
    for (slot, home, garbage) in [(3, Some(1), 0), (9, None, 0), (9, Some(8), 0), (3, None, 1 << 60)] {
        let waves = Waves::new();
        let region = waves.memory.region();
        let mut scanner = Scanner::new(0..78, Taken::new(8));
        let states = states();
        // SAFETY: one thread uses the slot (SLOT-OWNER).
        let device = unsafe { Slot::new(region.words(), region.sizes().slot(slot), &states[slot as usize]) };
        device.publish_owner(Owner { home, ..OWNER });
        let word = region.word(region.places().owner(slot));
        word.fetch_or(garbage, crate::primitive::Ordering::Relaxed);
        let bell = doorbell(1, 0, 0);
        device.ring(&bell, device.laps(device.glance(), &bell, 0), 0);
        device.flip_laps(&bell, 0);
        let mut batch = Batch::new();
        let named = if garbage == 0 { LAUNCH } else { LaunchId::NONE };
        let taken = scanner.take(region, slot, &mut batch, |_| true);
        assert!(matches!(taken, Take::Garbage(launch) if launch == named));
        assert!(scanner.is_ignored(slot) && scanner.rung(region, slot as usize / 8) == 0);
    }
}

/// A wave whose first doorbell makes no sense: its launch is told of, not that of the wave before.
#[test]
fn a_broken_slot_is_its_owners() {
    let waves = Waves::new();
    let region = waves.memory.region();
    let mut scanner = Scanner::new(0..78, Taken::new(8));
    let states = states();
    // SAFETY: one thread uses the slot (SLOT-OWNER).
    let device = unsafe { Slot::new(region.words(), region.sizes().slot(3), &states[3]) };
    let (bell, mut batch) = (doorbell(1, 0, 0), Batch::new());
    let ring = || {
        let laps = device.laps(device.glance(), &bell, 0);
        device.ring(&bell, laps, 0);
        device.flip_laps(&bell, 0);
        laps
    };
    device.publish_owner(OWNER);
    ring();
    assert!(matches!(scanner.take(region, 3, &mut batch, |_| true), Take::NewOwner));
    assert!(matches!(scanner.take(region, 3, &mut batch, |_| true), Take::Call));
    batch.answer(0).all(region, Status::Ok);
    let next = LaunchId::new(LAUNCH.index() + 1, 1);
    device.publish_owner(Owner { launch: next, ..OWNER });
    let laps = ring();
    let word = region.word(region.places().doorbell(3));
    word.fetch_or(u64::MAX >> 1, crate::primitive::Ordering::Relaxed);
    let taken = scanner.take(region, 3, &mut Batch::new(), |_| true);
    assert!(matches!(taken, Take::Garbage(launch) if launch == next));
    scanner.look_at_broken(region);
    assert_eq!((scanner.rung(region, 0), scanner.is_ignored(3)), (0, true));
    // The wave that waits rings again.
    device.ring_again(&bell, laps);
    scanner.look_at_broken(region);
    assert_eq!((scanner.rung(region, 0), scanner.is_ignored(3)), (1 << 3, false));
    assert!(matches!(scanner.take(region, 3, &mut Batch::new(), |_| true), Take::NewOwner));
    assert!(matches!(scanner.take(region, 3, &mut Batch::new(), |_| true), Take::Call));
}

/// A call whose owner pair is not all there yet is looked at again; one of a launch that nobody knows is alone in its batch.
#[test]
fn calls_wait_for_their_owner() {
    let waves = Waves::new();
    let region = waves.memory.region();
    let mut scanner = Scanner::new(0..78, Taken::new(8));
    let states = states();
    // SAFETY: one thread uses the slot (SLOT-OWNER).
    let device = unsafe { Slot::new(region.words(), region.sizes().slot(0), &states[0]) };
    device.publish_owner(OWNER);
    let second = region.word(region.places().owner(0) + 1);
    let late = second.swap(0, crate::primitive::Ordering::Relaxed);
    let bell = doorbell(1, 0, 0);
    device.ring(&bell, device.laps(device.glance(), &bell, 0), 0);
    device.flip_laps(&bell, 0);
    let mut batch = Batch::new();
    let mut take = |batch: &mut Batch| scanner.take(region, 0, batch, |_| false);
    assert!(matches!(take(&mut batch), Take::NotYet));
    second.store(late, crate::primitive::Ordering::Relaxed);
    assert!(matches!(take(&mut batch), Take::NewOwner));
    assert!(matches!(take(&mut batch), Take::OfDeadLaunch));
    assert_eq!(batch.count(), 1);
}

/// A wave that claimed a slot and has not rung is one that the host expects calls or posts of: it goes on looking at the
/// slot's line, since the wave's hint comes once.
#[test]
fn claimed_slots_are_expected_to_ring() {
    let waves = Waves::new();
    let region = waves.memory.region();
    let scanner = Scanner::new(0..78, Taken::new(8));
    let states = states();
    // SAFETY: one thread uses the slots (SLOT-OWNER), also below.
    let slot = |at: u32| unsafe { Slot::new(region.words(), region.sizes().slot(at), &states[at as usize]) };
    let owners = |line| scanner.owners(region, line).collect::<Vec<_>>();
    assert!(owners(0).is_empty() && owners(1).is_empty());
    slot(2).write_owner_entries(0, 1, OWNER);
    assert_eq!(owners(0), [OWNER.launch]);
    slot(9).publish_owner(Owner { home: Some(2), ..OWNER });
    assert_eq!(owners(1), [OWNER.launch]);
}
