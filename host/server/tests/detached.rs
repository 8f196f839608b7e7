//! Calls whose launch ends or is cancelled while they are on their way: each is answered once, and the next wave on the slot
//! gets no answer but its own.

use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::{Layout, SlotStateWords};
use hostcall_abi::service::Method;
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{Doorbell, Kind, Line, MAX_POST_WORDS, Owner, PostHead, RequestTag};
use hostcall_channel::SharedMemory;
use hostcall_channel::device::{Laps, Slot, SlotState};
use hostcall_server::{CancelReason, Handler, LaunchRecord, Server};
use hostcall_service::{AsyncReply, AsyncService, OwnedRequest, Reply, Request, Service};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

const LAYOUT: Layout = Layout::small(8, 4, 16, 256);

const BELL: Doorbell = Doorbell {
    service: 300,
    lanes: 1,
    first_lane: 0,
    argument_words: 1,
    result_words: 1,
    check: 0,
    kind: Kind::Words,
    after_posts: false,
    lines: true,
};

/// Gives its argument back, from a thread that is no consumer.
struct Same;

impl Service for Same {
    fn methods(&self) -> &'static [Method] {
        const { &[Method::untyped("Same::same", 300)] }
    }

    fn call(&self, _: usize, request: Request<'_>, reply: &mut dyn Reply) -> Result<(), CallError> {
        reply.words(request.words);
        Ok(())
    }
}

/// Counts posts, and waits at each until its channel is closed.
struct Gated(Mutex<mpsc::Receiver<()>>, Arc<AtomicU64>);

impl Service for Gated {
    fn methods(&self) -> &'static [Method] {
        const { &[Method::untyped("Gated::count", 303)] }
    }

    fn call(&self, _: usize, _: Request<'_>, _: &mut dyn Reply) -> Result<(), CallError> {
        Ok(())
    }

    fn post(&self, _: usize, _: u32, _: Request<'_>) {
        let _ = self.0.lock().unwrap().recv();
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// Never answers.
struct Stuck;

impl AsyncService for Stuck {
    fn methods(&self) -> &'static [Method] {
        const { &[Method::untyped("Stuck::stuck", 301)] }
    }

    fn call(&self, _: usize, _: OwnedRequest) -> AsyncReply {
        Box::pin(std::future::pending())
    }
}

struct Wave {
    memory: Arc<SharedMemory>,
    state: UnsafeCell<SlotStateWords>,
}

impl Wave {
    fn served() -> (Server, Self) {
        let memory = Arc::new(SharedMemory::allocate(LAYOUT.check().unwrap()));
        let server = Server::builder(memory.clone()).service(Same).async_service(Stuck).start().unwrap();
        (server, Self { memory, state: UnsafeCell::default() })
    }

    fn slot(&self) -> Slot<'_> {
        // SAFETY: SLOT-OWNER: this thread alone uses the slot; both state types have one layout.
        unsafe {
            let places = self.memory.region().sizes().slot(3);
            Slot::new(self.memory.region().words(), places, &*(self.state.get() as *const SlotState))
        }
    }

    /// Has the slot from now on.
    fn begin(&self, launch: LaunchId) {
        self.slot().publish_owner(Owner { launch, ..Owner::default() });
    }

    /// Posts a word, without telling the host of it. Returns where the next post is.
    fn post(&self, launch: LaunchId, service: u16) -> u32 {
        let (slot, owner) = (self.slot(), Owner { launch, ..Owner::default() });
        let position = slot.reserve_posts(slot.glance(), 2).unwrap();
        slot.write_owner_entries(position, 1, owner);
        let head = PostHead { service, lane: 0, words: 1, extra: 0 };
        slot.write_post(position.wrapping_add(1), head, &[7; MAX_POST_WORDS]);
        position.wrapping_add(2)
    }

    fn call(&self, word: u64) -> Laps {
        self.call_of(&BELL, word)
    }

    fn call_of(&self, bell: &Doorbell, word: u64) -> Laps {
        let slot = self.slot();
        let laps = slot.laps(slot.glance(), bell, 0);
        slot.ring(bell, laps, 0);
        let line = Line { words: [word, 0, 0, 0, 0, 0, 0], tag: RequestTag::default().to_bits() };
        slot.write_line(bell, laps, 0, &line);
        slot.flip_laps(bell, 0);
        laps
    }

    fn answer(&self, laps: Laps) -> Line {
        let start = Instant::now();
        loop {
            if let Some(reply) = self.slot().poll_reply(&BELL, laps, 0) {
                return reply;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "no answer");
            std::thread::yield_now();
        }
    }

    /// Makes a call and gets its own answer.
    fn answered(&self, word: u64) {
        let reply = self.answer(self.call(word));
        assert_eq!((Status::from_bits(reply.tag), reply.words[0]), (Status::Ok, word));
    }
}

fn pass(steps: u64) {
    for _ in 0..steps % 64 * 8 {
        std::hint::spin_loop();
    }
}

/// Waves that are killed in the middle of a call.
#[test]
fn a_wave_gets_no_answer_of_the_one_before() {
    let (server, mut wave) = Wave::served();
    for launch in 1..2000u64 {
        let id = server.begin(LaunchRecord::default()).unwrap();
        wave.begin(id);
        for word in 0..2 {
            wave.answered(launch << 8 | word);
        }
        // At all stages of the next call.
        wave.call(0);
        pass(launch);
        server.reset(&[3]);
        server.end(id);
        *wave.state.get_mut() = SlotStateWords::default();
    }
}

/// A wave has ended well and has left posts, and the next one that has its slot is killed before anybody has looked at them.
#[test]
fn posts_of_the_wave_before_one_that_was_killed_are_handled() {
    let (server, mut wave) = Wave::served();
    let count = Arc::<AtomicU64>::default();
    let (_, open) = mpsc::channel();
    server.register(Handler::inline(Gated(Mutex::new(open), count.clone()))).unwrap();
    for round in 1..=50 {
        let launches = [(); 2].map(|()| server.begin(LaunchRecord::default()).unwrap());
        wave.begin(launches[0]);
        wave.post(launches[0], 303);
        wave.begin(launches[1]);
        server.cancel(launches[1], CancelReason::Asked);
        server.reset(&[3]);
        *wave.state.get_mut() = SlotStateWords::default();
        assert_eq!(count.load(Ordering::Relaxed), round);
        for launch in launches {
            server.end(launch);
        }
    }
    assert_eq!(server.statistics().refused_posts, 0);
}

/// The queue of the service is full and its handler waits, so that posts stay in the ring of a wave that has ended well. The
/// next one that has the slot is killed: nobody waits for the handler, and all posts are handled in the end.
#[test]
fn posts_without_room_before_a_killed_wave_are_handled() {
    let (server, mut wave) = Wave::served();
    let count = Arc::<AtomicU64>::default();
    let (open, gate) = mpsc::channel();
    server.register(Handler::blocking(Gated(Mutex::new(gate), count.clone()))).unwrap();
    let launches = [(); 2].map(|()| server.begin(LaunchRecord::default()).unwrap());
    wave.begin(launches[0]);
    let (mut posted, start) = (0, Instant::now());
    while server.statistics().declined_posts == 0 {
        if wave.slot().has_room(wave.slot().glance(), 2) {
            let next = wave.post(launches[0], 303);
            wave.slot().ring_post_bell(None, next);
            posted += 1;
        } else {
            wave.slot().look_at_ring_tail();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{posted} posts found room");
    }
    wave.begin(launches[1]);
    server.cancel(launches[1], CancelReason::Asked);
    server.reset(&[3]);
    *wave.state.get_mut() = SlotStateWords::default();
    assert_eq!(count.load(Ordering::Relaxed), 0);
    drop(open);
    while count.load(Ordering::Relaxed) < posted {
        assert!(start.elapsed() < Duration::from_secs(120), "{count:?} of {posted}");
        std::thread::yield_now();
    }
    for launch in launches {
        server.end(launch);
    }
    assert_eq!((server.statistics().refused_posts, count.load(Ordering::Relaxed)), (0, posted));
}

/// A call is on its way to a handler that never answers, and is cancelled at any stage of that.
#[test]
fn a_cancellation_misses_no_call() {
    let (server, wave) = Wave::served();
    let stuck = Doorbell { service: 301, ..BELL };
    for n in 0..5000 {
        let id = server.begin(LaunchRecord::default()).unwrap();
        wave.begin(id);
        let laps = wave.call_of(&stuck, n);
        pass(n);
        server.cancel(id, CancelReason::Asked);
        assert_eq!(Status::from_bits(wave.answer(laps).tag), Status::Error(CallError::Cancelled));
        assert_eq!(server.end(id), Some(CancelReason::Asked));
    }
}

/// Calls of launches that nobody knows, or that have ended, are answered, and those of others go on.
#[test]
fn calls_of_unknown_launches_are_refused() {
    let (server, wave) = Wave::served();
    let id = server.begin(LaunchRecord::default()).unwrap();
    for (owner, status) in [
        (LaunchId::NONE, Status::Error(CallError::Cancelled)),
        (id, Status::Ok),
        (LaunchId::new(id.index(), id.generation() + 1), Status::Error(CallError::Cancelled)),
        (id, Status::Ok),
    ] {
        wave.begin(owner);
        assert_eq!(Status::from_bits(wave.answer(wave.call(8)).tag), status);
    }
    server.end(id);
    assert_eq!(Status::from_bits(wave.answer(wave.call(8)).tag), Status::Error(CallError::Cancelled));
}

/// What the device wrote is no call: its launch is told, and once the device writes one, it is answered.
#[test]
fn a_broken_slot_ends_its_launch_and_is_used_again() {
    let memory = Arc::new(SharedMemory::allocate(LAYOUT.check().unwrap()));
    let (told, tells) = mpsc::channel();
    let server = Server::builder(memory.clone()).service(Same);
    let server = server.on_fault(move |launch, why| told.send((launch, why.to_owned())).unwrap());
    let server = server.start().unwrap();
    let wave = Wave { memory: memory.clone(), state: UnsafeCell::default() };
    for _ in 0..20 {
        let id = server.begin(LaunchRecord::default()).unwrap();
        wave.begin(id);
        wave.answered(5);
        memory.region().break_doorbell(3);
        let (launch, why) = tells.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(launch == id && why.contains("what is no call"));
        assert_eq!(server.take_fault(id), Some(why));
        // The wave knows nothing of it.
        let status = Status::from_bits(wave.answer(wave.call(6)).tag);
        assert_eq!(status, Status::Error(CallError::Cancelled));
        assert_eq!(server.end(id), Some(CancelReason::BrokenSlot));
    }
}
