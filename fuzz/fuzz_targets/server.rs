//! A running server with all built-in services, called by a device that says what it likes: random calls of
//! every method are answered, garbage in other slots disturbs nobody, and the server ends.
#![no_main]

use hostcall::server::{Handler, LaunchRecord, Server};
use hostcall::services::Builtins;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::{Layout, Sizes, SlotStateWords, area_share};
use hostcall_abi::service::{Method, number};
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{Doorbell, Kind, LAP, Line, Owner, PostHead, RequestTag, check_of};
use hostcall_channel::SharedMemory;
use hostcall_channel::device::{Slot, SlotState};
use hostcall_service::{Reply, Request, Service};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

#[path = "../../host/server/tests/fuzz/input.rs"]
mod input;

use input::Input;

const LAYOUT: Layout = Layout { extra_slots: 2, large_areas: 2, ..Layout::small(8, 4, 64, 512) };
/// All slots.
const SLOTS: u32 = LAYOUT.home_slots + LAYOUT.extra_slots;
/// The slot that stays well used.
const GOOD: u32 = 7;
/// A call that has no answer by then will get none.
const HANG: Duration = Duration::from_secs(20);

static FILES: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

struct Increment;

impl Service for Increment {
    fn methods(&self) -> &'static [Method] {
        const { &[Method::untyped("Fuzz::increment", number::USER)] }
    }

    fn call(&self, _: usize, request: Request<'_>, reply: &mut dyn Reply) -> Result<(), CallError> {
        let [word] = request.words else { return Err(CallError::Malformed) };
        reply.words(&[word.wrapping_add(1)]);
        Ok(())
    }
}

impl Input<'_> {
    /// Small numbers more often than large ones.
    fn word(&mut self) -> u64 {
        match self.byte() {
            byte @ 0..0xc0 => byte.into(),
            byte => self.number(byte),
        }
    }
}

struct Run {
    memory: Arc<SharedMemory>,
    server: Server,
    methods: Vec<Method>,
    launch: LaunchId,
    /// The good slot's launch: garbage ends the launch that wrote it.
    good: LaunchId,
    states: [UnsafeCell<SlotStateWords>; SLOTS as usize],
    /// Whose a slot's calls are, once a wave has it.
    owners: [Option<LaunchId>; SLOTS as usize],
    hostile: [bool; SLOTS as usize],
}

impl Run {
    fn new() -> Self {
        let memory = Arc::new(SharedMemory::allocate(LAYOUT.check().expect("the sizes are good")));
        let builtins = Builtins::builder()
            .dir(FILES.path())
            .args(["fuzz"])
            .env("NAME", "value")
            .stdin(&b"some\ninput"[..])
            .stdout(std::io::sink())
            .stderr(std::io::sink())
            .heap(hostcall::services::ProcessMemory, 1 << 20)
            .build()
            .expect("the folder is there");
        let mut builder = Server::builder(memory.clone()).message_limit(1 << 16);
        let mut methods = Vec::new();
        for handler in builtins.services() {
            methods.extend_from_slice(handler.methods());
            builder = builder.handler(handler);
        }
        let increment = Handler::inline(Increment);
        methods.extend_from_slice(increment.methods());
        let server = builder.handler(increment).start().expect("threads start");
        let [launch, good] =
            [0, 1].map(|_| server.begin(LaunchRecord::default()).expect("the first launches"));
        let (states, owners, hostile) = Default::default();
        Self { memory, server, methods, launch, good, states, owners, hostile }
    }

    fn slot(&self, slot: u32) -> Slot<'_> {
        let state = self.states[slot as usize].get() as *const SlotState;
        // SAFETY: REGION: the memory's own places. SLOT-OWNER: this thread alone uses the slots, each with its own
        // state; both state types have one layout.
        unsafe { Slot::new(self.memory.region().words(), self.memory.region().sizes().slot(slot), &*state) }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let action = input.byte();
        // The slot that stays well used is not among them.
        let slot = [0, 1, 2, 3, 4, 5, 6, 8, 9][usize::from(action >> 4) % 9];
        match action & 15 {
            0..8 => self.call(slot, input),
            8..10 => self.post(slot, input),
            10 => self.flush(),
            11 => self.reset(slot),
            12 => self.increment(),
            13 => self.end(),
            _ => self.scribble(slot, input),
        }
    }

    fn scribble(&mut self, slot: u32, input: &mut Input<'_>) {
        self.hostile[slot as usize] = true;
        // What an extra slot has no words for is a home slot's.
        self.hostile[(slot % LAYOUT.home_slots) as usize] = true;
        let places = LAYOUT.places();
        let (kind, word) = (input.byte(), input.word() as u32);
        let at = match kind {
            0..0x80 => places.doorbell(slot),
            0x80..0xa0 => places.post_bell(slot % LAYOUT.home_slots),
            0xa0..0xb0 => places.ring_tail(slot % LAYOUT.home_slots),
            0xb0..0xc0 => Sizes::from(LAYOUT).ring(slot % LAYOUT.home_slots) + word % 128,
            0xc0..0xc8 => places.area(slot) + word % (LAYOUT.area_bytes / 8),
            0xc8..0xd0 => places.owner(slot) + word % 2,
            0xd0..0xf0 => places.request(slot) + word % 4 * places.plane + (word >> 8) % (2 * LAYOUT.lanes),
            _ => places.reply(slot) + word % 4 * places.plane + (word >> 8) % (2 * LAYOUT.lanes),
        };
        // SAFETY: REGION: the word is one of the slot's and only accessed atomically.
        let word = unsafe { &*(self.memory.address() as *const AtomicU64).add(at as usize) };
        match input.byte() & 1 {
            0 => word.fetch_xor(LAP | input.word(), Ordering::Relaxed),
            _ => word.swap(input.word(), Ordering::Relaxed),
        };
    }

    fn call(&mut self, slot: u32, input: &mut Input<'_>) {
        let lanes = 1 + input.byte() % LAYOUT.lanes as u8;
        let method = self.methods[usize::from(input.byte()) % self.methods.len()];
        let shape = input.byte();
        let doorbell = Doorbell {
            service: if shape == 255 { u16::from(input.byte()) << 8 } else { method.number() },
            lanes,
            first_lane: 0,
            argument_words: shape & 7,
            result_words: shape >> 3 & 7,
            check: check_of(method.schema()),
            kind: [Kind::Words, Kind::Bytes, Kind::BytesMore][usize::from(shape >> 6) % 3],
            after_posts: slot < LAYOUT.home_slots
                && self.slot(slot).has_untold_posts(self.slot(slot).glance()),
            lines: true,
        };
        let words = std::array::from_fn(|i| if i < usize::from(shape & 7) { input.word() } else { 0 });
        let bytes: [u8; 64] = std::array::from_fn(|i| if i < 24 { input.byte() } else { b'/' });
        self.exchange(slot, &doorbell, words, &bytes);
    }

    /// Makes a call; its answer, if the slot is well used.
    fn exchange(&mut self, slot: u32, bell: &Doorbell, words: [u64; 7], bytes: &[u8]) -> Option<Line> {
        let launch = if slot == GOOD { self.good } else { self.launch };
        if self.owners[slot as usize] != Some(launch) {
            self.owners[slot as usize] = Some(launch);
            let home = (slot >= LAYOUT.home_slots).then_some(0);
            self.slot(slot).publish_owner(Owner { launch, home, wave: 0, workgroup: 1 });
        }
        let device = self.slot(slot);
        let ranks = 0..u32::from(bell.lanes);
        let laps: Vec<_> = ranks.clone().map(|rank| device.laps(device.glance(), bell, rank)).collect();
        if bell.kind != Kind::Words {
            for rank in ranks.clone() {
                device.write_bulk(rank as usize * area_share(LAYOUT.area_bytes, bell.lanes.into()), bytes);
            }
            device.publish_bulk();
        }
        for (rank, laps) in (0..).zip(&laps) {
            device.ring(bell, *laps, rank);
            device.flip_laps(bell, rank);
        }
        for rank in ranks.clone() {
            let post_position = device.glance().post_position;
            let tag = RequestTag { lane: rank as u8, timeout_us: 0, post_position }.to_bits();
            device.write_line(bell, laps[rank as usize], rank, &Line { words, tag });
        }
        self.server.wake();
        let mut first = None;
        if !self.hostile[slot as usize] {
            let start = Instant::now();
            for rank in ranks.rev() {
                first = loop {
                    if let Some(line) = device.poll_reply(bell, laps[rank as usize], rank) {
                        break Some(line);
                    }
                    assert!(start.elapsed() < HANG, "no answer to {bell:?} {words:?}");
                    std::thread::yield_now();
                };
            }
        }
        first
    }

    fn post(&self, slot: u32, input: &mut Input<'_>) {
        let method = self.methods[usize::from(input.byte()) % self.methods.len()];
        let count = input.byte() % 6;
        let words = std::array::from_fn(|i| if i < usize::from(count) { input.word() } else { 0 });
        let head =
            PostHead { service: method.number(), lane: 0, words: count, extra: check_of(method.schema()) };
        if self.hostile[slot as usize] || slot >= LAYOUT.home_slots {
            return;
        }
        let (slot, entries) = (self.slot(slot), PostHead::entries_for(count.into()) as u32);
        if let Some(position) = slot.reserve_posts(slot.glance(), entries) {
            slot.write_post(position, head, &words);
            slot.ring_post_bell(None, position.wrapping_add(entries));
            self.server.wake();
        }
    }

    /// The slot's wave is killed; another may have the slot.
    fn reset(&mut self, slot: u32) {
        self.server.reset(&[slot]);
        self.states[slot as usize] = Default::default();
        (self.owners[slot as usize], self.hostile[slot as usize]) = (None, false);
    }

    fn flush(&self) {
        self.server.begin_flush(vec![self.launch, self.good]).wait();
    }

    /// The launch ends; waves of another one have the slots.
    fn end(&mut self) {
        self.flush();
        self.server.end(self.launch);
        self.launch = self.server.begin(LaunchRecord::default()).expect("one launch runs");
    }

    fn increment(&mut self) {
        let bell = Doorbell {
            service: number::USER,
            lanes: 1,
            first_lane: 0,
            argument_words: 1,
            result_words: 1,
            check: 0,
            kind: Kind::Words,
            after_posts: false,
            lines: true,
        };
        let line = self.exchange(GOOD, &bell, [41; 7], &[]).expect("the slot is well used");
        assert_eq!((Status::from_bits(line.tag), line.words[0]), (Status::Ok, 42));
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let mut run = Run::new();
    while !input.bytes.is_empty() {
        run.step(&mut input);
    }
    run.increment();
});
