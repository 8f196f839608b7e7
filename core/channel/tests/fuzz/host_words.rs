//! The body of the fuzz target `host_words`: bytes become a sequence of steps of a device and its host. Some
//! slots are used as the protocol says, in others a hostile device writes what it likes. The host never
//! panics, takes no call whose doorbell's lap did not change, and well-used slots work on.

use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::{Layout, SlotStateWords, area_share};
use hostcall_abi::service::Method;
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{
    Doorbell, Kind, LAP, Line, MAX_POST_WORDS, Owner, PostHead, RequestTag, Rung, lap_of,
};
use hostcall_channel::device::{Laps, Slot, SlotState};
use hostcall_channel::host::{Batch, DetachedAnswer, ENTRIES_A_VISIT, PostBuffer, Scanner, Take, Taken};
use hostcall_channel::{Region, SharedMemory};
use hostcall_service::{Calls, Replies, Reply, Request, Service};
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// More than one line of doorbells, the last one partly used.
const SLOTS: u32 = 9;

/// Those of them that are extra slots.
const EXTRAS: u32 = 2;

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut run = Run::new(&mut input);
    while !input.0.is_empty() {
        run.step(&mut input);
    }
    run.scan(&mut input);
}

/// What is left of the input; zeroes follow its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), if end > 256 { self.byte() } else { 0 }])) % end
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    fn doorbell(&mut self, lanes: u32) -> Doorbell {
        let lanes = 1 + self.below(lanes as usize) as u8;
        let argument_words = self.byte() % 8;
        let after_posts = self.flag();
        Doorbell {
            service: u16::from(self.byte()),
            lanes,
            first_lane: 0,
            argument_words,
            result_words: self.byte() % 8,
            check: 7,
            kind: [Kind::Words, Kind::Bytes, Kind::BytesMore][self.below(3)],
            after_posts,
            lines: argument_words > 0 || lanes > 1 || after_posts || self.flag(),
        }
    }
}

/// A call that the device made.
struct Call {
    doorbell: Doorbell,
    laps: Vec<Laps>,
    lines: Vec<Line>,
    complete: bool,
    /// The host took it, so that answers are this call's and not the one's before.
    taken: bool,
    /// What each lane was answered.
    replies: Vec<Option<(Status, Vec<u64>)>>,
}

#[derive(Default)]
struct Model {
    state: UnsafeCell<SlotStateWords>,
    /// A hostile device wrote to the slot.
    hostile: bool,
    calls: u64,
    call: Option<Call>,
    held: Option<DetachedAnswer>,
    posts: VecDeque<(PostHead, Vec<u64>)>,
    /// Whose the slot's calls are, once somebody has it.
    owner: Option<LaunchId>,
    /// It has called.
    has_called: bool,
}

struct Run {
    memory: Arc<SharedMemory>,
    scanner: Scanner,
    batch: Batch,
    replies: Replies,
    buffer: PostBuffer,
    slots: Vec<Model>,
}

impl Run {
    fn new(input: &mut Input<'_>) -> Self {
        let lanes = [1u32, 3, 8, 64][input.below(4)];
        let per_lane = lanes.next_power_of_two();
        let layout = Layout::small(SLOTS, lanes, 4 * per_lane, 64 * per_lane);
        let layout = Layout { home_slots: SLOTS - EXTRAS, extra_slots: EXTRAS, large_areas: 1, ..layout };
        let layout = layout.check().unwrap();
        let first = if input.flag() { 8 } else { 0 };
        Self {
            memory: Arc::new(SharedMemory::allocate(layout)),
            scanner: Scanner::new(first..SLOTS, Taken::new(SLOTS - EXTRAS)),
            batch: Batch::new(),
            replies: Replies::EMPTY,
            buffer: PostBuffer::new(),
            slots: (0..SLOTS).map(|_| Model::default()).collect(),
        }
    }

    fn layout(&self) -> Layout {
        *self.memory.region().layout()
    }

    fn word(&self, at: u32) -> &AtomicU64 {
        let at = at as usize;
        assert!(at < self.layout().words());
        // SAFETY: REGION: the word is mapped while `self.memory` is, and only accessed atomically.
        unsafe { &*(self.memory.address() as *const AtomicU64).add(at) }
    }

    fn device(&self, slot: u32) -> Slot<'_> {
        let state = self.slots[slot as usize].state.get() as *const SlotState;
        // SAFETY: SLOT-OWNER: this thread alone uses the slots, each with its own state; both state types have
        // one layout.
        unsafe { Slot::new(self.memory.region().words(), self.memory.region().sizes().slot(slot), &*state) }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let action = input.byte() % 10;
        let slots = self.scanner.slots();
        let slot = slots.start + input.below(slots.len()) as u32;
        match action {
            0 => self.scan(input),
            1 => self.call(slot, input),
            2 => self.complete(slot),
            3 => self.poll(slot),
            4 => self.post(slot, input),
            5 => self.take_posts(slot),
            6 => self.answer_held(slot, input),
            7 => self.reset(slot),
            8 if input.flag() => self.next_owner(slot, input),
            _ => self.scribble(slot, input),
        }
    }

    /// Another wave has the slot from now on.
    fn next_owner(&mut self, slot: u32, input: &mut Input<'_>) {
        let model = &self.slots[slot as usize];
        // A wave publishes its owner pair before a call, and not otherwise.
        if model.call.is_some() || model.owner.is_some() && !model.has_called {
            return;
        }
        let homes = SLOTS - EXTRAS;
        let home = (slot >= homes).then(|| input.below(homes as usize) as u32);
        let launch = LaunchId::new(input.byte().into(), 1);
        self.device(slot).publish_owner(Owner { launch, home, wave: 1, workgroup: 2 });
        let model = &mut self.slots[slot as usize];
        (model.owner, model.has_called) = (Some(launch), false);
    }

    /// A hostile device writes a word of its own or of the host's.
    fn scribble(&mut self, slot: u32, input: &mut Input<'_>) {
        let (layout, places) = (self.layout(), self.layout().places());
        let lines = |base: u32, input: &mut Input<'_>| {
            base + input.below(4) as u32 * places.plane + input.below(2 * layout.lanes as usize) as u32
        };
        let at = match input.byte() % 8 {
            0..4 => places.doorbell(slot),
            4 => lines(places.request(slot), input),
            5 if slot < SLOTS - EXTRAS => {
                let ring = self.memory.region().sizes().ring(slot);
                ring + input.below(2 * layout.ring_entries.of(slot) as usize) as u32
            }
            5 => places.owner(slot) + u32::from(input.flag()),
            6 => places.doorbell(SLOTS), // Belongs to no slot.
            _ => match input.byte() % 4 {
                0 if slot < SLOTS - EXTRAS => places.ring_tail(slot),
                1 if slot < SLOTS - EXTRAS => places.post_bell(slot),
                0 | 1 => places.large_area(0),
                2 => lines(places.reply(slot), input),
                _ => places.area(slot) + input.below(layout.area_bytes as usize / 8) as u32,
            },
        };
        let value = match input.byte() % 4 {
            0 => self.word(at).load(Ordering::Relaxed) ^ LAP,
            1 => input.doorbell(layout.lanes).to_word(input.flag()),
            2 => LAP | u64::from(input.byte()) << 55 | u64::from(input.byte()),
            _ => input.word(),
        };
        self.word(at).store(value, Ordering::Relaxed);
        self.slots[slot as usize].hostile = true;
    }

    fn call(&mut self, slot: u32, input: &mut Input<'_>) {
        if self.slots[slot as usize].call.is_some() {
            return;
        }
        if self.slots[slot as usize].owner.is_none() {
            self.next_owner(slot, input);
        }
        let mut doorbell = input.doorbell(self.layout().lanes);
        let seed = input.word();
        let complete = input.flag();
        // Only a home slot's own posts are modelled.
        doorbell.after_posts &= slot < SLOTS - EXTRAS;
        let device = self.device(slot);
        let share = area_share(self.layout().area_bytes, doorbell.lanes.into());
        let laps: Vec<_> =
            (0..doorbell.lanes.into()).map(|rank| device.laps(device.glance(), &doorbell, rank)).collect();
        let lines: Vec<_> = (0..doorbell.lanes)
            .map(|rank| {
                let mut words = [0; 7];
                for (i, word) in words.iter_mut().enumerate().take(doorbell.argument_words.into()) {
                    *word = seed.rotate_left(u32::from(rank) + 9 * i as u32);
                }
                let tag = RequestTag {
                    lane: rank,
                    timeout_us: seed as u32,
                    post_position: device.glance().post_position & 0x3_ffff,
                };
                Line { words, tag: tag.to_bits() }
            })
            .collect();
        if doorbell.kind != Kind::Words {
            for (rank, line) in lines.iter().enumerate() {
                device.write_bulk(rank * share, &bytes_of(line));
            }
            device.publish_bulk();
        }
        for (rank, laps) in (0..).zip(&laps) {
            device.ring(&doorbell, *laps, rank);
            device.flip_laps(&doorbell, rank);
        }
        let replies = lines.iter().map(|_| None).collect();
        let call = Call { doorbell, laps, lines, complete: !doorbell.lines, taken: false, replies };
        (self.slots[slot as usize].call, self.slots[slot as usize].has_called) = (Some(call), true);
        if complete {
            self.complete(slot);
        }
    }

    /// Writes the lines of a call that only rang so far.
    fn complete(&mut self, slot: u32) {
        let device = self.device(slot);
        let Some(call) = &self.slots[slot as usize].call else { return };
        if !call.complete {
            for (rank, line) in call.lines.iter().enumerate() {
                device.write_line(&call.doorbell, call.laps[rank], rank as u32, line);
            }
        }
        self.slots[slot as usize].call.as_mut().expect("seen above").complete = true;
    }

    /// The device looks for its replies.
    fn poll(&mut self, slot: u32) {
        let device = self.device(slot);
        let model = &self.slots[slot as usize];
        let Some(call) = &model.call else { return };
        for (rank, expected) in call.replies.iter().enumerate() {
            let reply = device.poll_reply(&call.doorbell, call.laps[rank], rank as u32);
            if !model.hostile {
                let got = reply.map(|line| {
                    (Status::from_bits(line.tag), line.words[..call.doorbell.result_words.into()].to_vec())
                });
                assert_eq!(&got, expected);
            }
        }
        if model.hostile || call.replies.iter().all(Option::is_some) {
            self.slots[slot as usize].call = None;
        }
    }

    fn post(&mut self, slot: u32, input: &mut Input<'_>) {
        let count = input.byte() % (MAX_POST_WORDS as u8 + 1);
        let mut words = [0; MAX_POST_WORDS];
        words[..count.into()].fill_with(|| input.word());
        let model = &self.slots[slot as usize];
        if model.hostile || model.call.is_some() || slot >= SLOTS - EXTRAS {
            return;
        }
        let head = PostHead { service: 4, lane: 0, words: count, extra: input.byte().into() };
        let device = self.device(slot);
        device.look_at_ring_tail();
        if let Some(position) =
            device.reserve_posts(device.glance(), PostHead::entries_for(count.into()) as u32)
        {
            device.write_post(position, head, &words);
            let words = words[..count.into()].to_vec();
            self.slots[slot as usize].posts.push_back((head, words));
        }
    }

    fn take_posts(&mut self, slot: u32) {
        if slot >= SLOTS - EXTRAS {
            return;
        }
        let model = &mut self.slots[slot as usize];
        let region = self.memory.region();
        let batch = self.scanner.take_posts(region, slot, &mut self.buffer, |_, head, mut posts| {
            posts.for_each(|words, caller| {
                assert!(words.len() <= MAX_POST_WORDS && words.len() == usize::from(head.words));
                if !model.hostile {
                    let head = PostHead { lane: caller.lane, ..head };
                    assert_eq!(Some((head, words.to_vec())), model.posts.pop_front());
                }
            });
            posts.count()
        });
        assert!((batch.posts + batch.owners + batch.garbage) as usize <= ENTRIES_A_VISIT);
        assert!(model.hostile || batch.garbage == 0);
    }

    fn scan(&mut self, input: &mut Input<'_>) {
        let memory = self.memory.clone();
        for line in 0..self.scanner.lines() {
            let rung = self.scanner.rung(memory.region(), line);
            for bit in (0..8).filter(|bit| rung >> bit & 1 != 0) {
                let slot = self.scanner.first_slot(line) + bit;
                assert!(self.scanner.slots().contains(&slot));
                assert!(self.slots[slot as usize].held.is_none() && !self.scanner.is_ignored(slot));
                self.take(memory.region(), slot, input);
            }
            // The host answers before it looks at other lines.
            self.answer(input);
        }
    }

    fn take(&mut self, region: Region<'_>, slot: u32, input: &mut Input<'_>) {
        let bell = self.word(self.layout().places().doorbell(slot)).load(Ordering::Relaxed);
        let model = &mut self.slots[slot as usize];
        let call = model.call.as_ref().filter(|_| !model.hostile);
        let dead = LaunchId::new(7, 1);
        match self.scanner.take(region, slot, &mut self.batch, |launch| launch != dead) {
            take @ (Take::Call | Take::OfDeadLaunch) => {
                assert_eq!(matches!(take, Take::OfDeadLaunch), self.scanner.owner(slot) == dead);
                let is_dead = matches!(take, Take::OfDeadLaunch);
                assert!(!is_dead || self.batch.count() == 1);
                assert_eq!(lap_of(bell), model.calls.is_multiple_of(2), "the doorbell's lap has not changed");
                model.calls += 1;
                let rung = Rung::from_word(bell, region.layout().lanes).expect("a doorbell");
                let (lines, ranks) = (self.batch.lines(), self.batch.ranks(self.batch.count() - 1));
                assert_eq!((self.batch.rung(), ranks.len()), (rung.from_any_lane(), rung.lanes() as usize));
                if !model.hostile {
                    let call = call.expect("the device called");
                    assert!(call.complete && call.doorbell.to_word(lap_of(bell)) == bell & !1);
                    assert!(!call.doorbell.after_posts || model.posts.is_empty());
                    for (rank, line) in ranks.zip(&call.lines) {
                        assert_eq!(lines.words(rank), line.words);
                        let caller = lines.caller(rank);
                        assert_eq!((Some(caller.launch), caller.slot), (model.owner, slot));
                        if call.doorbell.lines {
                            assert_eq!(lines.tag(rank).to_bits(), line.tag);
                        } else {
                            assert_eq!(caller.lane, call.doorbell.first_lane);
                        }
                    }
                }
                if let Some(call) = &mut model.call {
                    call.taken = true;
                }
                if is_dead || input.flag() {
                    self.answer(input);
                }
            }
            Take::NewOwner => {
                if !model.hostile {
                    assert_eq!(Some(self.scanner.owner(slot)), model.owner);
                }
                self.take(region, slot, input);
            }
            Take::Full => {
                assert!(self.batch.count() > 0);
                self.answer(input);
                self.take(region, slot, input);
            }
            Take::NotYet => assert!(call.is_none_or(|call| !call.complete)),
            Take::PostsFirst(home) => {
                assert!(call.is_none_or(|call| call.doorbell.after_posts && !model.posts.is_empty()));
                if input.flag() && self.scanner.slots().contains(&home) {
                    self.take_posts(home);
                }
            }
            Take::Garbage(_) => {
                assert!(model.hostile && self.scanner.is_ignored(slot));
            }
        }
    }

    /// Answers the batch: all lanes at once as a service does, or packet by packet.
    fn answer(&mut self, input: &mut Input<'_>) {
        let region = self.memory.region();
        let answers: Vec<_> = (0..self.batch.count()).map(|packet| self.batch.answer(packet)).collect();
        let replier = Replier(input.word());
        let at_once = self.batch.rung().kind() == Kind::Words && input.flag();
        if at_once {
            Calls::new(self.batch.lines(), &mut self.replies).one_by_one(&replier, 0);
            self.batch.answer_all(region, &self.replies);
        }
        for (packet, answer) in answers.into_iter().enumerate() {
            let model = &mut self.slots[answer.slot() as usize];
            if at_once {
                for (rank, place) in (0..).zip(self.batch.ranks(packet)) {
                    let (status, words) = replier.reply(&self.batch.lines().words(place));
                    let words = if status == Status::Ok { &words[..] } else { &[] };
                    record(&mut model.call, rank, status, words);
                }
                continue;
            }
            if self.batch.rung().kind() != Kind::Words {
                for rank in 0..answer.lanes() {
                    let mut bytes = Vec::new();
                    let area = input.flag().then_some(input.byte().into());
                    if area.is_some() {
                        // A device names any large area.
                        let share = answer.area_share(region, area).unwrap_or(0).min(64);
                        answer.append_bytes(region, area, rank, 0, share, &mut bytes);
                        bytes.clear();
                    }
                    answer.append_bytes(region, None, rank, 0, 64, &mut bytes);
                    if let Some(call) = model.call.as_ref().filter(|_| !model.hostile) {
                        assert_eq!(bytes, bytes_of(&call.lines[rank as usize]));
                    }
                    answer.write_bytes(region, None, rank, 0, &bytes);
                }
            }
            if input.flag() {
                model.held = Some(self.scanner.detach(&self.memory, answer));
                continue;
            }
            let seed = input.word();
            for rank in 0..answer.lanes() {
                let (status, words) = reply(seed, rank);
                answer.lane(region, rank, status, &words);
                record(&mut model.call, rank, status, &words);
            }
        }
        self.batch.clear();
    }

    /// Another thread answers some lanes and then perhaps gives the answer up.
    fn answer_held(&mut self, slot: u32, input: &mut Input<'_>) {
        let model = &mut self.slots[slot as usize];
        let Some(held) = &mut model.held else { return };
        let seed = input.word();
        for rank in (0..held.answer().lanes()).filter(|rank| seed >> rank & 1 != 0) {
            let (status, words) = reply(seed, rank);
            held.lane(rank, status, &words);
            record(&mut model.call, rank, status, &words);
        }
        if input.flag() {
            for rank in 0..held.answer().lanes() {
                record(&mut model.call, rank, Status::Error(CallError::Cancelled), &[]);
            }
            model.held = None;
        }
    }

    fn reset(&mut self, slot: u32) {
        if self.slots[slot as usize].held.is_none() {
            self.scanner.reset(self.memory.region(), slot);
            self.slots[slot as usize] = Model::default();
        }
    }
}

fn bytes_of(line: &Line) -> [u8; 64] {
    let mut bytes = [line.tag as u8; 64];
    bytes[..8].copy_from_slice(&line.words[0].to_le_bytes());
    bytes
}

/// Answers calls by what their words say.
struct Replier(u64);

impl Replier {
    fn reply(&self, words: &[u64]) -> (Status, [u64; 7]) {
        reply(words.iter().fold(self.0, |seed, word| seed.rotate_left(9) ^ word), 0)
    }
}

impl Service for Replier {
    fn methods(&self) -> &[Method] {
        &[]
    }

    fn call(&self, _: usize, request: Request<'_>, to: &mut dyn Reply) -> Result<(), CallError> {
        let mut words = [0; 7];
        words[..request.words.len()].copy_from_slice(request.words);
        let (status, words) = self.reply(&words);
        to.words(&words);
        status.into_result()
    }
}

fn reply(seed: u64, rank: u32) -> (Status, [u64; 7]) {
    let status = if seed & 1 == 0 { Status::Ok } else { Status::Error(CallError::Failed(seed as i32)) };
    (status, std::array::from_fn(|i| seed.rotate_left(rank + 8 * i as u32)))
}

/// Remembers a lane's first answer.
fn record(call: &mut Option<Call>, rank: u32, status: Status, words: &[u64]) {
    if let Some(call) = call
        && call.taken
        && let Some(slot) = call.replies.get_mut(rank as usize)
    {
        let mut words = words.to_vec();
        words.resize(call.doorbell.result_words.into(), 0);
        slot.get_or_insert((status, words));
    }
}
