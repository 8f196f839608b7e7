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

mod bytes;
mod calls;
mod claims;
mod posts;
mod waits;

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
