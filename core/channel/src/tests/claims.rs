//! Waves that claim slots, hand them on, and say whose their calls are.

use super::*;
use crate::device::{Channel, HomeSlot, Homes, WaveRecord};
use hostcall_abi::layout::RingEntries;

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
            let slot = record.slot().expect("a slot");
            if !record.release_known(self.homes(), slot) && !record.release_at_once(self.homes(), slot) {
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
    forgotten_behind_a_post(true);
    forgotten_behind_a_post(false);
}

fn forgotten_behind_a_post(is_asked_for: bool) {
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
    slot.set_posted();
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
    // The wave forgets the call, and gives the slot back once the answer is there: while it runs, if somebody asks, or at its end.
    // SAFETY: as above.
    let collect = || unsafe { record.collect_forgotten(waves.channel(), home) };
    record.forget_pending(extra);
    collect();
    assert_eq!(waves.channel().extras_held_by(&[5]), [8 + index], "it is not answered");
    batch.answer(0).all(region, Status::Ok);
    assert!(extra.is_answered() && waves.channel().extras().is_taken(index));
    if is_asked_for {
        collect();
        assert!(!waves.channel().extras().is_taken(index));
    }
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

/// Calls that are their doorbells alone are taken together also where each has a new owner: once its pair is there, and no call of
/// another launch with them.
#[test]
fn short_calls_of_new_owners_are_taken_together() {
    let waves = Waves::new();
    let region = waves.memory.region();
    let mut scanner = Scanner::new(0..78, Taken::new(8));
    let (states, bell, mut batch) = (states(), doorbell(1, 0, 0), Batch::new());
    let call = |at: u32, owner: Owner| {
        // SAFETY: one thread uses the slots (SLOT-OWNER).
        let device = unsafe { Slot::new(region.words(), region.sizes().slot(at), &states[at as usize]) };
        device.publish_owner(owner);
        let laps = device.laps(device.glance(), &bell, 0);
        device.ring(&bell, laps, 0);
        device.flip_laps(&bell, 0);
    };
    // What the batch has had is taken so.
    for at in 0..4 {
        call(at, OWNER);
        assert!(matches!(scanner.take(region, at, &mut batch, |_| true), Take::NewOwner));
        assert!(matches!(scanner.take(region, at, &mut batch, |_| true), Take::Call));
    }
    batch.clear();
    let other = LaunchId::new(4, 1);
    for (at, launch) in [(0, OWNER.launch), (1, other), (2, OWNER.launch), (3, OWNER.launch)] {
        call(at, Owner { launch, ..OWNER });
    }
    let second = region.word(region.places().owner(2) + 1);
    let late = second.swap(
        second.load(crate::primitive::Ordering::Relaxed) ^ 1 << 63,
        crate::primitive::Ordering::Relaxed,
    );
    let new = core::cell::RefCell::new(Vec::new());
    let note = |slot| new.borrow_mut().push(slot);
    assert_eq!(scanner.rung(region, 0), 0b1111);
    assert_eq!(scanner.take_short(region, 0, 0b1111, &mut batch, |_| true, note), 0b0110);
    assert_eq!((batch.count(), scanner.owner(1)), (2, other));
    second.store(late, crate::primitive::Ordering::Relaxed);
    assert_eq!(scanner.take_short(region, 0, 0b0100, &mut batch, |_| true, note), 0);
    assert_eq!((batch.count(), new.take()), (3, vec![0, 1, 3, 2]));
    assert!(matches!(scanner.take(region, 1, &mut batch, |_| true), Take::Call));
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
