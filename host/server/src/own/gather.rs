//! Services that gather ([`hostcall_service::gather`] says what they promise to handlers): from packets to batches.
//!
//! # Who has a call, and when
//! 1. The consumer detaches the packet, makes its [`Ticket`], has that watched, and pushes the packet, not a lane,
//!    to the method's queue. Where fewer batches are under way than may be, it counts one more and spawns a driver.
//! 2. The driver, a future, takes what waits when it is polled first, so that what came meanwhile is in its batch;
//!    it reads the words and gives the handler's future the batch, which owns the words from then on.
//! 3. Batch, deadlines, cancellations and the server's end race for each lane by the tickets' locks. The first
//!    one answers.
//! 4. When no lane of the batch waits, the driver drops the handler's future, tells who asked by
//!    [`hostcall_service::Wanted`], and takes the next batch. When nothing waits it counts one batch less and ends.
//!
//! # What holds
//! - *No packet is forgotten.* Packets are pushed, and batches counted, under one lock: a queue that has packets has
//!   a driver. One that is dropped before its end (its executor has stopped) answers all that wait in its queue.
//! - *Removed services begin no batch.* `remove` sets the mark and then takes what waits; a consumer looks at the
//!   mark under the queue's lock before it pushes.
//! - *Queues are bounded.* A lane has one open call; packets none of whose lanes wait are taken out once
//!   they may be more than half. Words are charged to the server's memory for messages until no lane of their batch
//!   waits.
//! - No code of a user's runs, and no ticket is dropped, under the queue's lock.

use super::dispatch::{launch_of, record};
use super::job::{self, LaneCall};
use super::registry::{Entry, Kind, Registered};
use super::reply::Filling;
use super::shared::Shared;
use super::ticket::Ticket;
use crate::engine::budget::Charge;
use crate::engine::calls::Call;
use crate::engine::caught::catch;
use crate::engine::executor::{BeginsLater, catch_future};
use crate::engine::handling::set_service;
use hostcall_abi::MAX_LANES;
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::Kind as PacketKind;
use hostcall_channel::host::{Batch as ChannelBatch, Scanner};
use hostcall_locks::Mutex;
use hostcall_service::gather::{GatheredCall, GatheredLanes, Wakers};
use hostcall_service::{Caller, Gather, GatheredCalls, called_by};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Packets in a queue after which answered ones are taken out, beside twice those that were kept.
const FORGET_AFTER: usize = 64;

/// The queues of a service, one a method.
pub(crate) struct Gathering {
    queues: Box<[Mutex<Queue>]>,
    bounds: Gather,
}

#[derive(Default)]
struct Queue {
    packets: VecDeque<Packet>,
    /// Packets after answered ones were taken out last.
    kept: usize,
    /// Drivers that were spawned and have not ended.
    under_way: usize,
}

/// A lane's call, but for its words.
#[derive(Clone, Copy)]
struct Lane {
    rank: u32,
    caller: Caller,
    deadline: Option<Instant>,
}

/// The calls of a packet's lanes.
struct Packet {
    ticket: Arc<Ticket>,
    argument_words: usize,
    /// Those of the lanes side by side; none where the calls came by bytes.
    words: SmallVec<[u64; 4]>,
    lanes: SmallVec<[Lane; 1]>,
    /// The calls that came by bytes, in place of their words.
    unread: Vec<LaneCall>,
    charge: Charge,
}

impl Packet {
    fn bytes(&self) -> usize {
        self.lanes.len() * self.argument_words * size_of::<u64>()
    }

    fn fail(self, error: CallError) {
        self.ticket.fail(error);
    }
}

impl Gathering {
    pub fn new(methods: usize, bounds: Gather) -> Self {
        Self { queues: (0..methods).map(|_| Mutex::default()).collect(), bounds }
    }

    /// Takes all packets that wait.
    fn take_all(&self) -> Vec<Packet> {
        self.queues.iter().flat_map(|queue| std::mem::take(&mut queue.lock().packets)).collect()
    }
}

/// Answers the calls of a service that was removed and that no handler has begun.
pub(super) fn remove(service: &Registered) {
    if let Kind::Gathered { calls, .. } = &service.kind {
        calls.take_all().into_iter().for_each(|packet| packet.fail(CallError::NoSuchService));
    }
}

/// Has the calls of packets gather whose words are in their lines.
#[inline(never)]
pub(super) fn batch(shared: &Arc<Shared>, entry: &Arc<Entry>, scanner: &Scanner, batch: &ChannelBatch) {
    let (lines, started) = (batch.lines(), Instant::now());
    let argument_words = lines.argument_words();
    for packet in 0..batch.count() {
        let (launch, mut recording) = (launch_of(batch, packet), record(shared, batch, packet));
        let (mut words, mut lanes) = (SmallVec::new(), SmallVec::new());
        let mut deadlines = Vec::new();
        for (rank, of_batch) in (0..).zip(batch.ranks(packet)) {
            words.extend_from_slice(&lines.words(of_batch)[..argument_words]);
            let tag = lines.tag(of_batch);
            let deadline = deadline(started, tag.timeout_us);
            deadlines.extend(deadline.map(|deadline| (deadline, rank)));
            lanes.push(Lane { rank, caller: lines.caller(of_batch), deadline });
        }
        if let Some(recording) = &mut recording {
            recording.add_bytes(size_of_val(&*words), 0);
        }
        let answer = scanner.detach(&shared.memory, batch.answer(packet));
        let places = lanes.iter().map(|_| Default::default()).collect();
        let kind = PacketKind::Words;
        let ticket = Ticket::new(shared, entry, kind, answer, launch, places, deadlines, recording, started);
        if job::watch(shared, &ticket) {
            let charge = Charge::new(&shared.messages.budget);
            push(shared, entry, Packet { ticket, argument_words, words, lanes, unread: Vec::new(), charge });
        }
    }
}

/// Returns until when a lane waits that says so.
fn deadline(started: Instant, timeout_us: u32) -> Option<Instant> {
    (timeout_us > 0).then(|| started + Duration::from_micros(timeout_us.into()))
}

/// Has the calls of a packet gather which came by bytes, since they have more words than a line.
pub(super) fn calls_by_bytes(
    shared: &Arc<Shared>,
    entry: &Arc<Entry>,
    ticket: Arc<Ticket>,
    calls: SmallVec<[(u32, LaneCall); 1]>,
    started: Instant,
) {
    let Some(argument_words) = calls.first().map(|(_, call)| call.request.words.len()) else { return };
    let mut lanes = SmallVec::new();
    let mut unread = Vec::new();
    for (rank, mut call) in calls {
        let caller = call.request.caller;
        if call.request.words.len() == argument_words {
            lanes.push(Lane { rank, caller, deadline: deadline(started, call.timeout_us) });
            unread.push(call);
        } else {
            call.free();
            ticket.finish(rank, caller, Err(CallError::Malformed));
        }
    }
    let charge = Charge::new(&shared.messages.budget);
    push(shared, entry, Packet { ticket, argument_words, words: SmallVec::new(), lanes, unread, charge });
}

/// Puts a packet into its queue, and begins a batch if one more may be under way.
fn push(shared: &Arc<Shared>, entry: &Arc<Entry>, mut packet: Packet) {
    let Kind::Gathered { calls, .. } = &entry.service.kind else { return };
    if packet.charge.add(packet.bytes() + packet.lanes.len() * size_of::<Lane>()).is_err() {
        return packet.fail(CallError::Busy);
    }
    let mut queue = calls.queues[entry.index].lock();
    if entry.service.is_removed() {
        drop(queue);
        return packet.fail(CallError::NoSuchService);
    }
    queue.packets.push_back(packet);
    let mut gone = VecDeque::new();
    if queue.packets.len() > 2 * queue.kept + FORGET_AFTER {
        let (open, answered) =
            std::mem::take(&mut queue.packets).into_iter().partition(|packet| packet.ticket.is_open());
        (queue.packets, gone) = (open, answered);
        queue.kept = queue.packets.len();
    }
    let begins = queue.under_way < calls.bounds.most_batches();
    queue.under_way += usize::from(begins);
    drop(queue);
    drop(gone);
    if begins {
        let begins =
            BeginsLater::new(Driver { shared: shared.clone(), entry: entry.clone() }, |mut driver| {
                driver.give_up(CallError::Busy);
            });
        shared.engine.futures.spawn(async move { Drives(Some(begins.begin())).all().await });
    }
}

/// Who takes batches out of a method's queue.
struct Driver {
    shared: Arc<Shared>,
    entry: Arc<Entry>,
}

impl Driver {
    fn calls(&self) -> &Gathering {
        let Kind::Gathered { calls, .. } = &self.entry.service.kind else {
            unreachable!("only services that gather have drivers")
        };
        calls
    }

    /// Takes the packets of the next batch. When none waits, this driver is counted no more.
    fn take(&self) -> Option<Vec<Packet>> {
        let (gathering, mut gone) = (self.calls(), Vec::new());
        let mut taken = Vec::<Packet>::new();
        let (mut calls, mut bytes) = (0, 0);
        let mut queue = gathering.queues[self.entry.index].lock();
        while let Some(packet) = queue.packets.front() {
            let is_open = packet.ticket.is_open();
            if is_open && let Some(first) = taken.first() {
                let fits = gathering.bounds.has_room(calls + packet.lanes.len(), bytes + packet.bytes());
                // A method that takes any words may be called with different numbers of them.
                if !fits || packet.argument_words != first.argument_words {
                    break;
                }
            }
            let packet = queue.packets.pop_front().expect("there is a first one");
            if is_open {
                calls += packet.lanes.len();
                bytes += packet.bytes();
                taken.push(packet);
            } else {
                gone.push(packet);
            }
        }
        if taken.is_empty() {
            queue.under_way -= 1;
        }
        drop(queue);
        drop(gone);
        (!taken.is_empty()).then_some(taken)
    }

    /// Answers all that waits in the queue, since whoever runs futures has ended.
    fn give_up(&mut self, error: CallError) {
        let mut queue = self.calls().queues[self.entry.index].lock();
        let packets = std::mem::take(&mut queue.packets);
        queue.under_way -= 1;
        drop(queue);
        packets.into_iter().for_each(|packet| packet.fail(error));
    }

    /// Has packets handled as one batch.
    async fn handle(&self, packets: Vec<Packet>) {
        let argument_words = packets[0].argument_words;
        let lanes: usize = packets.iter().map(|packet| packet.lanes.len()).sum();
        let (mut words, mut calls) = (Vec::with_capacity(lanes * argument_words), Vec::with_capacity(lanes));
        let mut of_calls = Vec::with_capacity(lanes);
        let mut tickets = Vec::with_capacity(packets.len());
        for packet in packets {
            let open = packet.ticket.begin_all();
            let mut unread = packet.unread.into_iter();
            for (at, lane) in packet.lanes.iter().enumerate() {
                let call = unread.next();
                if open >> lane.rank & 1 == 0 {
                    continue;
                }
                let mut capacity = 0;
                match call {
                    None => words.extend_from_slice(&packet.words[at * argument_words..][..argument_words]),
                    Some(mut call) => {
                        if !packet.ticket.read(lane.rank, &mut call) {
                            continue;
                        }
                        let has_bytes = !call.as_request().bytes.is_empty();
                        capacity = call.request.reply_capacity;
                        words.extend_from_slice(&call.request.words);
                        call.free();
                        if has_bytes {
                            words.truncate(words.len() - argument_words);
                            packet.ticket.finish(lane.rank, lane.caller, Err(CallError::Malformed));
                            continue;
                        }
                    }
                }
                let Lane { rank, caller, deadline } = *lane;
                calls.push(GatheredCall { caller, deadline, place: calls.len() as u32 });
                of_calls.push(OfCall { ticket: tickets.len() as u32, rank, caller, capacity });
            }
            tickets.push((packet.ticket, packet.charge));
        }
        if calls.is_empty() {
            return;
        }
        let lanes = Arc::new(Lanes {
            shared: self.shared.clone(),
            entry: self.entry.clone(),
            tickets,
            calls: of_calls,
            first_open: AtomicUsize::new(0),
            wakers: Wakers::default(),
            has_panicked: AtomicBool::new(false),
        });
        let calls = GatheredCalls::new(lanes.clone(), argument_words, words, calls);
        let _ends = Ends(&lanes);
        handle(&self.entry, calls, || lanes.panicked(), |context| lanes.poll_answered(context)).await;
    }
}

/// Has a service handle a batch until `poll_over` says that nobody waits for it any more, which ends the handler too.
/// `panicked` is called where the handler panics.
pub(super) async fn handle(
    entry: &Entry,
    calls: GatheredCalls,
    panicked: impl Fn(),
    poll_over: impl Fn(&mut Context<'_>) -> Poll<()>,
) {
    let Kind::Gathered { service, .. } = &entry.service.kind else { return };
    let (name, first) = (entry.method.name(), calls.caller(0));
    set_service(name);
    let around = |poll: &mut dyn FnMut()| {
        set_service(name);
        called_by(first, poll);
    };
    let Ok(future) = catch(|| called_by(first, || service.gathered(entry.index, calls))) else {
        panicked();
        return poll_fn(poll_over).await;
    };
    let mut handler = pin!(catch_future(future, around));
    let mut has_ended = false;
    poll_fn(|context| {
        if !has_ended && let Poll::Ready(result) = handler.as_mut().poll(context) {
            has_ended = true;
            if result.is_err() {
                panicked();
            }
        }
        poll_over(context)
    })
    .await;
}

/// Drives batches until none is left. Where it is dropped before, what waits is answered.
struct Drives(Option<Driver>);

impl Drives {
    async fn all(&mut self) {
        let Some(driver) = &self.0 else { return };
        while let Some(packets) = driver.take() {
            driver.handle(packets).await;
            // A handler that never waits leaves its thread to other futures too.
            futures_lite::future::yield_now().await;
        }
        self.0 = None;
    }
}

impl Drop for Drives {
    fn drop(&mut self) {
        if let Some(mut driver) = self.0.take() {
            driver.give_up(CallError::Cancelled);
        }
    }
}

/// Whose lane a call of a batch is.
struct OfCall {
    /// Which of the batch's tickets.
    ticket: u32,
    rank: u32,
    caller: Caller,
    /// Bytes of reply that the lane takes, if the call came by bytes.
    capacity: usize,
}

/// Ends a batch when its driver has done with it. Where that is dropped before, since whoever runs it has ended, lanes may
/// wait still.
struct Ends<'a>(&'a Lanes);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.end(false);
        self.0.wakers.tell();
    }
}

/// The lanes of a batch.
struct Lanes {
    shared: Arc<Shared>,
    entry: Arc<Entry>,
    /// The packets, with the charges for their words.
    tickets: Vec<(Arc<Ticket>, Charge)>,
    calls: Vec<OfCall>,
    /// All tickets before this one have all their answers.
    first_open: AtomicUsize,
    wakers: Wakers,
    /// A panic of the handler was told of.
    has_panicked: AtomicBool,
}

impl Lanes {
    /// Returns the first of the tickets that have a lane that waits.
    fn first_open(&self) -> Option<&Ticket> {
        let from = self.first_open.load(Ordering::Relaxed);
        let open = self.tickets[from..].iter().position(|(ticket, _)| ticket.is_open());
        let at = open.map_or(self.tickets.len(), |open| from + open);
        self.first_open.fetch_max(at, Ordering::Relaxed);
        self.tickets.get(at).map(|(ticket, _)| &**ticket)
    }

    /// Waits until all lanes have their answers. One future may.
    fn poll_answered(&self, context: &mut Context<'_>) -> Poll<()> {
        while let Some(ticket) = self.first_open() {
            if ticket.poll_all_answered(context).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// Tells of a panic of the handler, once.
    fn panicked(&self) {
        if !self.has_panicked.swap(true, Ordering::Relaxed) {
            self.shared.handler_panicked(&self.entry, self.calls[0].caller);
        }
    }

    /// Answers the call at a place, with its result words.
    fn answer_by_bytes(&self, place: u32, status: Status, words: &[u64]) {
        let OfCall { ticket, rank, caller, capacity } = self.calls[place as usize];
        let ticket = &self.tickets[ticket as usize].0;
        let share = ticket.places[rank as usize].share;
        let result = status.into_result().map(|()| {
            let mut filling = Filling::new(&self.shared.messages, capacity, share);
            hostcall_service::Reply::words(&mut filling, words);
            filling.finish()
        });
        ticket.finish(rank, caller, result);
    }
}

impl GatheredLanes for Lanes {
    fn answer(&self, places: &[u32], statuses: &[Status], words: &[u64]) {
        let width = words.len().checked_div(places.len()).unwrap_or(0);
        let words_of = |at: usize| match statuses[at] {
            Status::Ok => &words[at * width..(at + 1) * width],
            Status::Error(_) => &[],
        };
        let mut at = 0;
        while at < places.len() {
            let first = &self.calls[places[at] as usize];
            let ticket = &self.tickets[first.ticket as usize].0;
            if !ticket.is_of_words() {
                self.answer_by_bytes(places[at], statuses[at], words_of(at));
                at += 1;
                continue;
            }
            // The calls of one packet that follow each other are answered together.
            let (mut ranks, mut of_ranks) = (0u64, [0u32; MAX_LANES]);
            while at < places.len() {
                let call = &self.calls[places[at] as usize];
                let bit = 1 << call.rank;
                if call.ticket != first.ticket || ranks & bit != 0 {
                    break;
                }
                ranks |= bit;
                of_ranks[call.rank as usize] = at as u32;
                at += 1;
            }
            ticket.finish_words(ranks, |rank| {
                let at = of_ranks[rank as usize] as usize;
                (statuses[at], words_of(at))
            });
        }
    }

    fn waits(&self, place: u32) -> bool {
        let OfCall { ticket, rank, .. } = self.calls[place as usize];
        self.tickets[ticket as usize].0.waits(rank)
    }

    fn is_wanted(&self) -> bool {
        self.first_open().is_some()
    }

    fn wake_when_unwanted(&self, id: u64, waker: &Waker) {
        self.wakers.set(id, waker);
    }

    fn forget_waker(&self, id: u64) {
        self.wakers.forget(id);
    }

    fn end(&self, panicked: bool) {
        if panicked && self.is_wanted() {
            self.panicked();
        }
        let error = if panicked { CallError::Panicked } else { CallError::Cancelled };
        self.tickets.iter().filter(|(ticket, _)| ticket.is_open()).for_each(|(ticket, _)| ticket.fail(error));
    }
}
