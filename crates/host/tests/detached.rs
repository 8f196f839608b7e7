//! Slots that are taken from a launch whose calls are on their way: the next launch on them gets no answer but its own.

use hostcall::server::Server;
use hostcall_abi::layout::{Layout, SlotStateWords};
use hostcall_abi::service::{Method, Reply, Request, Service};
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{Doorbell, Kind, Line, RequestTag};
use hostcall_channel::SharedMemory;
use hostcall_channel::device::{Laps, Slot, SlotState};
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LAYOUT: Layout = Layout { slots: 8, lanes: 4, ring_entries: 16, bulk_bytes: 256 };

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
        &[Method { name: "Same::same", number: 300, schema: 0 }]
    }

    fn call(&self, _: usize, request: Request<'_>, reply: &mut dyn Reply) -> Result<(), CallError> {
        reply.words(request.words);
        Ok(())
    }
}

struct Wave {
    memory: Arc<SharedMemory>,
    state: UnsafeCell<SlotStateWords>,
}

impl Wave {
    fn served() -> (Server, Self) {
        let memory = Arc::new(SharedMemory::allocate(LAYOUT.check().unwrap()));
        let server = Server::builder(memory.clone()).service(Same).start().unwrap();
        (server, Self { memory, state: UnsafeCell::default() })
    }

    fn slot(&self) -> Slot<'_> {
        // SAFETY: SLOT-OWNER: this thread alone uses the slot; both state types have one layout.
        unsafe { Slot::new(self.memory.region(), 3, &*(self.state.get() as *const SlotState)) }
    }

    fn call(&self, word: u64) -> Laps {
        let slot = self.slot();
        let laps = slot.laps(slot.glance(), &BELL, 0);
        slot.ring(&BELL, laps, 0);
        let line = Line { words: [word, 0, 0, 0, 0, 0, 0], tag: RequestTag::default().to_bits() };
        slot.write_line(&BELL, laps, 0, &line);
        laps
    }

    /// Makes a call and gets its own answer.
    fn answered(&self, word: u64) {
        let laps = self.call(word);
        let start = Instant::now();
        let reply = loop {
            if let Some(reply) = self.slot().poll_reply(&BELL, laps, 0) {
                break reply;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "no answer to {word:#x}");
            std::thread::yield_now();
        };
        assert_eq!((Status::from_bits(reply.tag), reply.words[0]), (Status::Ok, word));
    }
}

#[test]
fn a_launch_gets_no_answer_of_the_one_before() {
    let (server, mut wave) = Wave::served();
    for launch in 1..2000u64 {
        server.attach(0..8, launch);
        for word in 0..2 {
            wave.answered(launch << 8 | word);
        }
        // At all stages of the next call.
        wave.call(0);
        for _ in 0..launch % 64 * 8 {
            std::hint::spin_loop();
        }
        assert!(!server.detach(0..8, false));
        *wave.state.get_mut() = SlotStateWords::default();
    }
}

/// A launch that says that it ended in order, and has not waited for a call: what comes of that is not the next launch's.
#[test]
fn forgotten_calls_are_noticed() {
    let (server, mut wave) = Wave::served();
    for launch in 1..200u64 {
        server.attach(0..8, launch);
        assert!(server.flush(0..8));
        wave.answered(launch);
        // It rings and writes no line.
        let slot = wave.slot();
        slot.ring(&BELL, slot.laps(slot.glance(), &BELL, 0), 0);
        assert!(!server.flush(0..8));
        assert!(!server.detach(0..8, false));
        *wave.state.get_mut() = SlotStateWords::default();
    }
}
