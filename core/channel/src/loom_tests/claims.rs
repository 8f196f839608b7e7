//! Slots that waves and parts of waves have one after the other.

use super::*;

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
                    let homes = Homes::new(&waves.homes);
                    let is_released =
                        index != 1 && (record.release_known(homes, 0) || record.release_at_once(homes, 0));
                    if !is_released {
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
