//! The channel under loom's model checker: `RUSTFLAGS="--cfg loom" cargo test -p hostcall-channel --release loom`.
//!
//! Each model is one device thread or more and one host thread or more over a channel of the smallest sizes.
//! Loom runs it in every interleaving within the preemption bound, with every value that a relaxed load may
//! return, and reports accesses to an [`Owned`] that race. It does not let a load see a
//! store that runs after it; that the loads of a packet come before the stores that answer it rests on the
//! lap check between them, and for bulk bytes on fences.
//!
//! Loom explores unfair schedules without end when two threads spin while a third could run: in each model at
//! most one does.

use crate::device::{Channel, HomeSlot, Homes, Pool, Slot, SlotState, WaveRecord};
use crate::host::{Answer, Batch, PostBuffer, Scanner, Take, Taken};
use crate::primitive::{AtomicU64, Ordering, Owned};
use crate::{Region, SharedMemory};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::Layout;
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{Doorbell, Kind, Line, MAX_POST_WORDS, Owner, PostHead, RequestTag, lap_of};
use loom::sync::Mutex;
use loom::thread;
use std::sync::Arc;

fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = 10_000;
    builder.check(run);
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

/// The launch of the models with one.
const LAUNCH: LaunchId = LaunchId::new(5, 1);

const OWNER: Owner = Owner { launch: LAUNCH, home: None, wave: 0, workgroup: 0 };

/// A slot of a channel.
///
/// # Safety
/// SLOT-OWNER, which loom checks.
unsafe fn slot_of<'m>(memory: &'m SharedMemory, slot: u32, state: &'m SlotState) -> Slot<'m> {
    // SAFETY: the caller's promise.
    unsafe { Slot::new(memory.region().words(), memory.region().sizes().slot(slot), state) }
}

/// The device's end of a channel of one slot.
struct Device {
    memory: Arc<SharedMemory>,
    state: SlotState,
}

impl Device {
    fn slot(&self) -> Slot<'_> {
        // SAFETY: each model keeps SLOT-OWNER, or loom reports a race; slot 0 is the only one.
        unsafe { slot_of(&self.memory, 0, &self.state) }
    }

    /// One call of the wave: lane `rank` sends `seed + rank` in every word. The replies, or `None` when
    /// `give_up` was true before they came.
    fn call_unless(&self, bell: Doorbell, seed: u64, give_up: impl Fn() -> bool) -> Option<Vec<Line>> {
        let n = u32::from(bell.lanes);
        let slot = self.slot();
        let laps: Vec<_> = (0..n).map(|rank| slot.laps(slot.glance(), &bell, rank)).collect();
        let tag =
            RequestTag { post_position: slot.glance().post_position, ..RequestTag::default() }.to_bits();
        for rank in 0..n {
            slot.ring(&bell, laps[rank as usize], rank);
            slot.flip_laps(&bell, rank);
        }
        for rank in 0..n {
            let line = Line { words: [seed + u64::from(rank); 7], tag };
            slot.write_line(&bell, laps[rank as usize], rank, &line);
        }
        (0..n)
            .map(|rank| {
                loop {
                    let line = match bell.kind {
                        Kind::Bytes => slot.poll_reply_with_bytes(&bell, laps[rank as usize], rank),
                        _ => slot.poll_reply(&bell, laps[rank as usize], rank),
                    };
                    if line.is_some() {
                        return line;
                    }
                    if give_up() {
                        return None;
                    }
                    thread::yield_now();
                }
            })
            .collect()
    }

    /// A call that must be answered as [`Host::answer`] answers.
    fn call(&self, bell: Doorbell, seed: u64) {
        let lines = self.call_unless(bell, seed, || false).expect("it waits until answered");
        check(bell, seed, &lines);
    }

    fn post(&self, words: &[u64]) {
        let head = PostHead { service: 9, lane: 0, words: words.len() as u8, extra: 1 };
        let mut payload = [0; MAX_POST_WORDS];
        payload[..words.len()].copy_from_slice(words);
        loop {
            if let Some(position) =
                self.slot().reserve_posts(self.slot().glance(), PostHead::entries_for(words.len()) as u32)
            {
                return self.slot().write_post(position, head, &payload);
            }
            self.slot().look_at_ring_tail();
            thread::yield_now();
        }
    }
}

fn check(bell: Doorbell, seed: u64, lines: &[Line]) {
    for (rank, line) in lines.iter().enumerate() {
        let argument = if bell.argument_words > 0 { seed + rank as u64 } else { 0 };
        assert_eq!(Status::from_bits(line.tag), Status::Ok);
        assert!(line.words[..bell.result_words as usize].iter().all(|word| *word == !argument));
    }
}

/// The host's end.
struct Host {
    memory: Arc<SharedMemory>,
    scanner: Scanner,
    batch: Batch,
    posts: Vec<Vec<u64>>,
}

impl Host {
    fn rung(&self) -> bool {
        self.scanner.rung(self.memory.region(), 0) != 0
    }

    /// Looks once for a call, takes the posts that it waits for.
    fn look(&mut self) -> Option<Answer> {
        if !self.rung() {
            return None;
        }
        self.batch.clear();
        match self.scanner.take(self.memory.region(), 0, &mut self.batch, |_| true) {
            Take::Call => return Some(self.batch.answer(0)),
            Take::Full => panic!("the batch is empty"),
            Take::NotYet | Take::NewOwner => {}
            Take::PostsFirst(..) => self.take_posts(),
            Take::OfDeadLaunch => panic!("of a dead launch"),
            Take::Garbage(launch) => panic!("of launch {launch}"),
        }
        None
    }

    fn next_call(&mut self) -> Answer {
        loop {
            if let Some(answer) = self.look() {
                return answer;
            }
            thread::yield_now();
        }
    }

    /// Answers each lane with its argument, inverted.
    fn answer(&mut self, answer: Answer) {
        for rank in 0..answer.lanes() {
            let words = self.batch.lines().words(rank as usize);
            let count = self.batch.rung().argument_words();
            assert!(words[..count].iter().all(|word| *word == words[0]));
            let reply = [!words[0]; 7];
            answer.lane(self.memory.region(), rank, Status::Ok, &reply);
        }
    }

    fn take_posts(&mut self) {
        let posts = &mut self.posts;
        let batch =
            self.scanner.take_posts(self.memory.region(), 0, &mut PostBuffer::new(), |_, _, mut run| {
                run.for_each(|words, _| posts.push(words.to_vec()));
                run.count()
            });
        assert_eq!(batch.garbage, 0);
    }
}

fn ends(lanes: u32) -> (Arc<Device>, Host) {
    let layout = Layout::small(1, lanes, 4 * lanes, 64 * lanes).check().unwrap();
    let memory = Arc::new(SharedMemory::allocate(layout));
    let device = Arc::new(Device { memory: memory.clone(), state: SlotState::zeroed() });
    (
        device,
        Host { memory, scanner: Scanner::new(0..1, Taken::new(1)), batch: Batch::new(), posts: Vec::new() },
    )
}

/// Calls in a row, each answered once and with its own answer, while every lap comes round twice.
#[test]
fn calls_in_a_row() {
    model(3, || {
        let (device, mut host) = ends(1);
        let shapes = [(1, 1), (0, 0), (1, 1), (1, 1), (1, 1)];
        let calls = thread::spawn(move || {
            for (i, (arguments, results)) in (0..).zip(shapes) {
                device.call(doorbell(1, arguments, results), i << 63 | i);
            }
        });
        for _ in shapes {
            let answer = host.next_call();
            host.answer(answer);
        }
        calls.join().unwrap();
        assert!(!host.rung());
    });
}

/// Packets of changing shapes use the same words in different places and laps.
#[test]
fn calls_of_changing_shapes() {
    model(2, || {
        let (device, mut host) = ends(2);
        let shapes = [(2, 1, 1), (1, 3, 2), (2, 0, 3), (2, 2, 0)];
        let calls = thread::spawn(move || {
            for (seed, (lanes, arguments, results)) in (7..).zip(shapes) {
                device.call(doorbell(lanes, arguments, results), seed);
            }
        });
        for _ in shapes {
            let answer = host.next_call();
            host.answer(answer);
        }
        calls.join().unwrap();
        assert!(!host.rung());
    });
}

/// A doorbell that is rung again is still one call.
#[test]
fn ringing_again_is_no_second_call() {
    model(3, || {
        let (device, mut host) = ends(1);
        let calls = thread::spawn(move || {
            let bell = doorbell(1, 1, 1);
            for seed in [4, 5] {
                let laps = device.slot().laps(device.slot().glance(), &bell, 0);
                let again = || {
                    device.slot().ring_again(&bell, laps);
                    false
                };
                check(bell, seed, &device.call_unless(bell, seed, again).unwrap());
            }
        });
        for _ in 0..2 {
            let answer = host.next_call();
            host.answer(answer);
        }
        calls.join().unwrap();
        assert!(!host.rung());
    });
}

/// Answers from other threads, while the scanner looks on. What such a thread did comes before the slot's next
/// call.
#[test]
fn detached_answers() {
    model(2, || {
        let (device, mut host) = ends(1);
        let calls = thread::spawn(move || {
            device.call(doorbell(1, 1, 1), 10);
            device.call(doorbell(1, 1, 1), 11);
            let lines = device.call_unless(doorbell(1, 1, 1), 12, || false).unwrap();
            assert_eq!(Status::from_bits(lines[0].tag), Status::Error(CallError::Cancelled));
            device.call(doorbell(1, 1, 1), 13);
        });
        let mut early = None;
        let done = Arc::new(Owned::new(0));
        for seed in 10..14 {
            let answer = early.take().unwrap_or_else(|| host.next_call());
            assert_eq!(host.batch.lines().words(0)[0], seed);
            // SAFETY: loom checks that no answering thread writes meanwhile.
            assert_eq!(unsafe { done.get() }, (seed - 9) / 2);
            if seed % 2 == 1 {
                host.answer(answer);
                continue;
            }
            let mut detached = host.scanner.detach(&host.memory, answer);
            let done = done.clone();
            let answers = thread::spawn(move || {
                // SAFETY: loom checks that the scanner does not read meanwhile.
                unsafe { done.set(done.get() + 1) };
                if seed == 10 {
                    detached.lane(0, Status::Ok, &[!seed]);
                }
            });
            assert!(early.is_none());
            early = host.look();
            answers.join().unwrap();
        }
        calls.join().unwrap();
        assert!(!host.rung());
    });
}

/// A device that calls again before it has its answer waits until the other thread has answered.
#[test]
fn a_hostile_call_waits_for_a_detached_answer() {
    model(3, || {
        let (device, mut host) = ends(1);
        let bell = doorbell(1, 0, 0);
        device.slot().ring(&bell, device.slot().laps(device.slot().glance(), &bell, 0), 0);
        device.slot().flip_laps(&bell, 0);
        let answer = host.next_call();
        let detached = host.scanner.detach(&host.memory, answer);
        let laps = device.slot().laps(device.slot().glance(), &bell, 0);
        device.slot().ring(&bell, laps, 0);
        device.slot().flip_laps(&bell, 0);
        let answers = thread::spawn(move || drop(detached));
        let early = host.look().is_some();
        if early {
            let reply = host.memory.region().places().reply(0);
            assert!(lap_of(host.memory.region().word(reply).load(Ordering::Relaxed)));
        }
        answers.join().unwrap();
        assert!(early || host.look().is_some());
    });
}

/// More posts than the ring has entries: the device waits for room, the order is kept.
#[test]
fn posts_round_the_ring() {
    model(3, || {
        let (device, mut host) = ends(1);
        let sent: [&[u64]; 6] = [&[1 << 63], &[2, !0], &[], &[4, 5, 6], &[7], &[8]];
        let posts = thread::spawn(move || sent.map(|words| device.post(words)));
        while host.posts.len() < sent.len() {
            host.take_posts();
            thread::yield_now();
        }
        posts.join().unwrap();
        assert_eq!(host.posts, sent);
    });
}

/// The host has seen the posts made before a call when it takes the call, whether it looks for them or not.
#[test]
fn a_call_comes_after_its_posts() {
    for looks_for_posts in [false, true] {
        model(3, move || {
            let (device, mut host) = ends(1);
            let calls = thread::spawn(move || {
                for i in 0..2 {
                    device.post(&[10 * i]);
                    device.post(&[10 * i + 1]);
                    let bell = Doorbell { after_posts: true, lines: true, ..doorbell(1, 0, 0) };
                    device.call(bell, 0);
                }
            });
            for i in 0..2 {
                let answer = loop {
                    if looks_for_posts {
                        host.take_posts();
                    }
                    if let Some(answer) = host.look() {
                        break answer;
                    }
                    thread::yield_now();
                };
                assert_eq!(host.posts, [[0], [1], [10], [11]][..2 * i + 2]);
                host.answer(answer);
            }
            calls.join().unwrap();
        });
    }
}

/// Bytes in the bulk area arrive with the doorbell and come back with the reply, also by way of another
/// thread.
#[test]
fn bulk_bytes() {
    model(3, || {
        let (device, mut host) = ends(1);
        let bell = Doorbell { kind: Kind::Bytes, ..doorbell(1, 0, 0) };
        let calls = thread::spawn(move || {
            for round in [1, 2] {
                device.slot().write_bulk(0, &[round; 12]);
                device.slot().publish_bulk();
                device.call(bell, 0);
                let mut reply = [0; 12];
                device.slot().read_bulk(0, &mut reply);
                assert_eq!(reply, [round + 100; 12]);
            }
        });
        for round in [1, 2] {
            let answer = host.next_call();
            let respond = move |region: Region<'_>, answer: &Answer| {
                let mut bytes = alloc::vec::Vec::new();
                answer.append_bytes(region, None, 0, 0, 12, &mut bytes);
                assert_eq!(bytes, [round; 12]);
                answer.write_bytes(region, None, 0, 0, &[round + 100; 12]);
            };
            if round == 1 {
                let mut detached = host.scanner.detach(&host.memory, answer);
                let answers = thread::spawn(move || {
                    respond(detached.region(), detached.answer());
                    detached.rest(Status::Ok);
                });
                answers.join().unwrap();
            } else {
                respond(host.memory.region(), &answer);
                answer.all(host.memory.region(), Status::Ok);
            }
        }
        calls.join().unwrap();
    });
}

/// Lanes that take things of a pool find each as its last holder left it.
#[test]
fn pool() {
    model(3, || {
        let slots = Arc::new([Owned::new(0u32), Owned::new(0u32)]);
        let bitmap = Arc::new([AtomicU64::new(0)]);
        let wave = |claims: u32| {
            let (slots, bitmap) = (slots.clone(), bitmap.clone());
            move || {
                let pool = Pool::new(&bitmap[..], 2);
                for hint in 0..claims {
                    let index = loop {
                        match pool.claim(hint) {
                            Some(index) => break index,
                            None => thread::yield_now(),
                        }
                    };
                    let counter = &slots[index as usize];
                    // SAFETY: the pool gives it to one thread at a time, or loom reports a race.
                    unsafe { counter.set(counter.get() + 1) };
                    pool.release(index);
                }
            }
        };
        let others = [thread::spawn(wave(1)), thread::spawn(wave(1))];
        wave(2)();
        others.into_iter().for_each(|wave| wave.join().unwrap());
        // SAFETY: the other threads have ended.
        assert_eq!(unsafe { slots[0].get() + slots[1].get() }, 4);
        assert_eq!(bitmap[0].load(Ordering::Relaxed), 0);
    });
}

/// Two parts of a diverged wave share a slot by its lock; each gets its own answer. The part that holds the
/// lock runs the host as well.
#[test]
fn lock() {
    model(3, || {
        let (device, host) = ends(1);
        let host = Arc::new(Mutex::new(host));
        let part = |seed: u64| {
            let (device, host) = (device.clone(), host.clone());
            move || {
                for seed in [seed, seed + 1] {
                    let turn = device.slot().line_up();
                    while !device.slot().has_turn(turn) {
                        thread::yield_now();
                    }
                    let answers = || {
                        let mut host = host.lock().unwrap();
                        let answer = host.next_call();
                        host.answer(answer);
                        false
                    };
                    let bell = doorbell(1, 1, 1);
                    check(bell, seed, &device.call_unless(bell, seed, answers).unwrap());
                    device.slot().end_turn();
                }
            }
        };
        let other = thread::spawn(part(20));
        part(30)();
        other.join().unwrap();
    });
}

/// Whenever the server stops, answered calls have their answers and the one that waits gives up.
#[test]
fn stop() {
    for answered in 0..3 {
        model(3, move || {
            let (device, mut host) = ends(1);
            let calls = thread::spawn(move || {
                let mut seed = 30;
                let stopped = || device.slot().words().stopped();
                while let Some(lines) = device.call_unless(doorbell(1, 1, 1), seed, stopped) {
                    check(doorbell(1, 1, 1), seed, &lines);
                    seed += 1;
                }
                seed - 30
            });
            for _ in 0..answered {
                let answer = host.next_call();
                host.answer(answer);
            }
            host.memory.region().stop();
            let late = host.look().map(|answer| host.answer(answer)).is_some();
            assert!(calls.join().unwrap() <= answered + u64::from(late));
        });
    }
}

/// A cancelled launch's wave gives up waiting; that of another launch is answered.
#[test]
fn cancel() {
    for cancelled in [LAUNCH, LaunchId::new(6, 1)] {
        model(3, move || {
            let (device, mut host) = ends(1);
            let calls = thread::spawn(move || {
                let bell = doorbell(1, 1, 1);
                let lines = device.call_unless(bell, 40, || device.slot().words().cancelled(LAUNCH));
                lines.map(|lines| check(bell, 40, &lines)).is_some()
            });
            host.memory.region().set_cancelled(cancelled, true);
            if cancelled != LAUNCH {
                let answer = host.next_call();
                host.answer(answer);
            }
            assert_eq!(calls.join().unwrap(), cancelled != LAUNCH);
        });
    }
}

/// A device of a few home slots and one extra slot, whose waves claim them.
struct Waves {
    memory: Arc<SharedMemory>,
    homes: Vec<HomeSlot>,
    extra_states: [SlotState; 1],
    extras: [AtomicU64; 1],
    areas: [AtomicU64; 0],
}

impl Waves {
    fn new(home_slots: u32) -> (Arc<Self>, Host) {
        let layout = Layout { extra_slots: 1, ..Layout::small(home_slots, 1, 4, 64) }.check().unwrap();
        let memory = Arc::new(SharedMemory::allocate(layout));
        let waves = Self {
            memory: memory.clone(),
            homes: HomeSlot::all(memory.region()),
            extra_states: [SlotState::zeroed()],
            extras: [AtomicU64::new(0)],
            areas: [],
        };
        let scanner = Scanner::new(0..layout.slots(), Taken::new(home_slots));
        (Arc::new(waves), Host { memory, scanner, batch: Batch::new(), posts: Vec::new() })
    }

    fn channel(&self) -> Channel<'_> {
        Channel::new(
            self.memory.region(),
            Homes::new(&self.homes),
            &self.extra_states,
            &self.extras,
            &self.areas,
        )
    }

    /// Claims a slot for the wave of this record.
    fn claim(&self, record: &WaveRecord) -> u32 {
        loop {
            match record.claim(Homes::new(&self.homes), 0) {
                Some(slot) => return slot,
                None => thread::yield_now(),
            }
        }
    }

    /// A null call through a slot that the caller has for itself.
    fn call(&self, slot: Slot<'_>, posts_before: Option<u32>) {
        self.call_and(slot, posts_before, thread::yield_now);
    }

    /// The same, with what to do while there is no reply.
    fn call_and(&self, slot: Slot<'_>, posts_before: Option<u32>, mut meanwhile: impl FnMut()) {
        let after_posts = posts_before.is_some();
        let bell = Doorbell { after_posts, lines: after_posts, ..doorbell(1, 0, 0) };
        let laps = slot.laps(slot.glance(), &bell, 0);
        slot.ring(&bell, laps, 0);
        slot.flip_laps(&bell, 0);
        if let Some(post_position) = posts_before {
            let tag = RequestTag { post_position, ..RequestTag::default() }.to_bits();
            slot.write_line(&bell, laps, 0, &Line { words: [0; 7], tag });
        }
        while slot.poll_reply(&bell, laps, 0).is_none() {
            meanwhile();
        }
    }
}

/// One post at the ring's next place.
fn post(slot: Slot<'_>, word: u64) {
    let position = slot.reserve_posts(slot.glance(), 1).expect("the ring has room");
    slot.write_post(position, PostHead { service: 9, lane: 0, words: 1, extra: 1 }, &[word, 0, 0, 0, 0]);
}

fn wait(poll: &mut dyn FnMut() -> bool) {
    while !poll() {
        thread::yield_now();
    }
}

/// Two waves have one slot after the other: the second finds its state as the first left it, and the host knows whose each
/// call is, though nothing is done between them.
#[test]
fn a_slot_goes_from_wave_to_wave() {
    model(2, || {
        let (waves, host) = Waves::new(1);
        // Each wave looks for its call itself: a thread that looks would wait in turn with the wave that waits for the slot.
        let host = Arc::new(Mutex::new((host, 0)));
        let wave = |index: u32| {
            let (waves, host) = (waves.clone(), host.clone());
            move || {
                let record = WaveRecord::new();
                waves.claim(&record);
                // SAFETY: SLOT-OWNER, or loom reports a race.
                let slot = unsafe { record.held_in(waves.channel()) };
                slot.publish_owner(Owner { launch: LaunchId::new(index, 1), ..OWNER });
                waves.call_and(slot, None, || {
                    let (host, seen) = &mut *host.lock().unwrap();
                    // The first look may find the new owner only.
                    if let Some(answer) = host.look() {
                        *seen |= 1 << host.batch.lines().caller(0).launch.index();
                        host.answer(answer);
                    }
                });
                // SAFETY: as above.
                unsafe {
                    if index == 1 || !record.release_at_once(Homes::new(&waves.homes), 0) {
                        record.release(waves.channel(), wait);
                    }
                }
            }
        };
        let other = thread::spawn(wave(1));
        wave(2)();
        other.join().unwrap();
        assert_eq!(host.lock().unwrap().1, 6);
    });
}

/// Two parts of a wave come to their first call at once: one of them claims the slot for both, and each sees what it was claimed
/// with. The part that ends last releases it.
#[test]
fn two_parts_claim_at_once() {
    model(3, || {
        let (waves, _host) = Waves::new(1);
        let record = Arc::new(WaveRecord::new());
        let part = |lane: u64| {
            let (waves, record) = (waves.clone(), record.clone());
            move || {
                assert_eq!(waves.claim(&record), 0);
                // SAFETY: SLOT-OWNER, or loom reports a race.
                let slot = unsafe { record.held_in(waves.channel()) };
                while !slot.try_lock() {
                    thread::yield_now();
                }
                if slot.glance().is_unready() {
                    slot.publish_owner(OWNER);
                }
                slot.end_turn();
                if record.end(lane, 3) {
                    // SAFETY: as above.
                    unsafe { record.release(waves.channel(), wait) };
                }
            }
        };
        let other = thread::spawn(part(1));
        part(2)();
        other.join().unwrap();
        assert_eq!((record.slot(), waves.homes[0].is_claimed()), (None, false));
        // The pair was published once.
        let pair = waves.memory.region().word(waves.memory.region().places().owner(0));
        assert!(lap_of(pair.load(Ordering::Relaxed)));
    });
}

/// A call through an extra slot is found after the posts of its wave's home slot, whichever the host looks at first.
#[test]
fn an_extra_slots_call_comes_after_the_posts() {
    model(2, || {
        let (waves, mut host) = Waves::new(1);
        let wave = thread::spawn({
            let waves = waves.clone();
            move || {
                let record = WaveRecord::new();
                let home = waves.claim(&record);
                // SAFETY: SLOT-OWNER, or loom reports a race.
                let slot = unsafe { record.held_in(waves.channel()) };
                post(slot, 7);
                let index = waves.channel().extras().claim(home).expect("nobody else has one");
                // SAFETY: as above.
                let extra = unsafe { waves.channel().extra(index) };
                extra.publish_owner(Owner { home: Some(home), ..OWNER });
                waves.call(extra, Some(slot.glance().post_position));
                waves.channel().extras().release(index);
                // SAFETY: as above.
                unsafe { record.release(waves.channel(), wait) };
            }
        });
        let region_of = host.memory.clone();
        loop {
            host.batch.clear();
            let region = region_of.region();
            let rung = host.scanner.rung(region, 0) & 2 != 0;
            let take = rung.then(|| host.scanner.take(region, 1, &mut host.batch, |_| true));
            match take {
                Some(Take::Call) => break,
                Some(Take::PostsFirst(home)) => {
                    assert_eq!(home, 0);
                    host.take_posts();
                }
                _ => thread::yield_now(),
            }
        }
        assert_eq!(host.posts, [[7]]);
        host.batch.answer(0).all(region_of.region(), Status::Ok);
        wave.join().unwrap();
    });
}

/// A wave that ends with posts that it has not announced announces them: once it has ended, the host finds them by the bell.
#[test]
fn a_wave_that_ends_announces_its_posts() {
    model(3, || {
        let (waves, mut host) = Waves::new(1);
        let wave = thread::spawn({
            let waves = waves.clone();
            move || {
                for word in [1, 2] {
                    let record = WaveRecord::new();
                    waves.claim(&record);
                    // SAFETY: SLOT-OWNER, or loom reports a race.
                    post(unsafe { record.held_in(waves.channel()) }, word);
                    // SAFETY: as above.
                    unsafe { record.release(waves.channel(), wait) };
                }
            }
        });
        wave.join().unwrap();
        let memory = host.memory.clone();
        host.scanner.post_bells(memory.region(), 0);
        while host.scanner.expects_posts(0) {
            host.take_posts();
        }
        assert_eq!(host.posts, [[1], [2]]);
    });
}
