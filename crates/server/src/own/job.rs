//! Calls whose handlers may wait: on worker threads or as a future for each lane, and a ticket that answers each lane
//! once, whoever is first: the handler, the lane's deadline, or a cancellation.

use super::bytes;
use super::messages::{Fetched, Unread};
use super::registry::{Entry, Kind};
use super::reply::{ByteReply, Filling, ReplyPlace};
use super::shared::Shared;
use crate::engine::budget::Charge;
use crate::engine::caught::{Panicked, catch};
use crate::engine::executor::{BeginsLater, catch_future};
use crate::engine::handling::set_service;
use crate::engine::trace::Recording;
use crate::engine::watchdog::{Waiting, WaitsFor, Watched};
use crate::engine::workers::Work;
use hostcall_abi::MAX_WORDS;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{Kind as PacketKind, ReplyAt};
use hostcall_channel::host::DetachedAnswer;
use hostcall_service::{AsyncService, Caller, OwnedReply, OwnedRequest, Reply, Request, called_by};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::Level;

/// A lane's call.
pub(crate) struct LaneCall {
    pub request: OwnedRequest,
    /// The request's bytes, if they lie in the byte area still, or where the lane lends them.
    pub unread: Option<Unread>,
    /// The request's bytes, if they were fetched from where the lane lends them.
    pub fetched: Option<Fetched>,
    /// For the request's bytes, while the handler has them.
    pub charge: Option<Charge>,
    /// How long the lane waits, in µs; 0 for as long as it takes.
    pub timeout_us: u32,
}

impl LaneCall {
    /// Returns how many bytes the request is long.
    pub fn request_bytes(&self) -> usize {
        let unread = self.unread.as_ref().map_or(0, |unread| unread.bytes);
        let fetched = self.fetched.as_ref().map_or(0, |fetched| fetched.as_slice().len());
        size_of_val(&*self.request.words) + self.request.bytes.len() + unread + fetched
    }

    /// Gives the handler the bytes that were fetched.
    pub fn put_fetched(&mut self, fetched: Fetched) {
        if let Fetched::InPlace { .. } = fetched {
            // The loan has a charge of its own.
            self.charge = None;
        }
        self.fetched = Some(fetched);
    }

    /// Returns the request, of which all was read.
    pub fn as_request(&self) -> Request<'_> {
        let mut request = self.request.as_request();
        if let Some(fetched) = &self.fetched {
            request.bytes = fetched.as_slice();
        }
        request
    }

    /// Frees what its lane left behind, which the thread that finds calls leaves to others.
    pub fn free_before(&mut self) {
        if let Some(unread) = &mut self.unread {
            unread.before = None;
        }
    }

    /// Frees the request. Its lane is answered after that, so that nothing is counted as held once all have their answers.
    pub fn free(&mut self) {
        self.unread = None;
        self.request.bytes = Vec::new();
        self.fetched = None;
        self.charge = None;
    }
}

/// The right to answer a packet, shared by its lanes' handlers, the watchdog and cancellations.
pub(crate) struct Ticket {
    state: Mutex<Answering>,
    entry: Arc<Entry>,
    slot: u32,
    launch: LaunchId,
    started: Instant,
    shared: Arc<Shared>,
    kind: PacketKind,
    /// Where each lane's reply may go.
    places: SmallVec<[ReplyPlace; 1]>,
    /// The calls that no thread has taken, by their ranks; those that are taken next last.
    left: Mutex<SmallVec<[(u32, LaneCall); 1]>>,
}

/// The calls of a packet's lanes, each with the place of its reply. Most packets that are handed on are of one lane.
pub(crate) type LaneCalls = SmallVec<[(Result<LaneCall, CallError>, ReplyPlace); 1]>;

struct Answering {
    /// `None` when each lane has its answer.
    answer: Option<DetachedAnswer>,
    /// Ranks of the lanes that have no answer, a bit each.
    open: u64,
    /// Ranks of those whose handlers have begun.
    begun: u64,
    /// Ranks of those that have waited for their turn.
    in_turn: u64,
    /// Deadlines of lanes, by their ranks; the first one last.
    deadlines: Vec<(Instant, u32)>,
    /// If there is a tracer.
    recording: Option<Box<Recording>>,
}

impl Ticket {
    /// Answers one lane, unless it has an answer. `answer` returns how the call ended.
    fn answer(&self, rank: u32, answer: impl FnOnce(&mut DetachedAnswer, Option<&mut Recording>) -> Status) {
        let mut state = self.state.lock();
        if state.open >> rank & 1 == 0 {
            return;
        }
        let Answering { answer: detached, recording, open, .. } = &mut *state;
        let Some(detached) = detached else { return };
        let status = answer(detached, recording.as_deref_mut());
        *open &= !(1 << rank);
        let is_last = *open == 0;
        if let Some(recording) = recording {
            recording.lanes_ended(1, status);
            if is_last {
                self.record(recording);
            }
        }
        if is_last {
            state.answer = None;
        }
        drop(state);
        self.shared.answered();
        // A lane may have rung again before the slot was free to be looked at.
        if is_last {
            self.shared.wake();
        }
    }

    /// Records the call. The slot is not free yet, so that no later call of it is recorded before.
    fn record(&self, recording: &mut Recording) {
        let method = &self.entry.method;
        recording.answered(method.name(), method.number().into(), self.launch);
    }

    /// Answers one lane with what its handler made.
    fn finish(&self, rank: u32, caller: Caller, result: Result<ByteReply, CallError>) {
        self.answer(rank, |detached, recording| {
            if let Some(recording) = recording {
                recording.ended(recording.now_ns());
                recording.add_bytes(0, result.as_ref().map_or(0, ByteReply::len));
            }
            let (status, words) = if self.kind == PacketKind::Words {
                match result {
                    Ok(reply) => {
                        detached.lane(rank, Status::Ok, &reply.words);
                        return Status::Ok;
                    }
                    Err(error) => (Status::Error(error), [0; MAX_WORDS]),
                }
            } else {
                let region = detached.region();
                let place = self.places[rank as usize];
                // Under the lock: a lane has its memory for itself again once it is answered.
                bytes::put(&self.shared, region, detached.answer(), place, rank, caller, result)
            };
            detached.lane(rank, status, &words);
            status
        });
    }

    /// Returns whether a lane has no answer.
    fn waits(&self, rank: u32) -> bool {
        self.state.lock().open >> rank & 1 != 0
    }

    /// Notes that a lane's handler begins. Returns whether it is to: the lane has no answer, and the service is there.
    fn begin(&self, rank: u32, call: &mut LaneCall) -> bool {
        let mut state = self.state.lock();
        if state.open >> rank & 1 == 0 {
            return false;
        }
        if self.entry.service.is_removed() {
            drop(state);
            call.free();
            self.finish(rank, call.request.caller, Err(CallError::NoSuchService));
            return false;
        }
        state.begun |= 1 << rank;
        if let Some(recording) = &mut state.recording {
            recording.began(recording.now_ns());
        }
        true
    }

    /// Reads what of a lane's request is unread. Returns whether the lane has no answer.
    fn read(&self, rank: u32, call: &mut LaneCall) -> bool {
        let caller = call.request.caller;
        call.free_before();
        let state = self.state.lock();
        if state.open >> rank & 1 == 0 {
            return false;
        }
        // Under the lock: the lane has the area, and what it lends, for other things once it was answered.
        if let (Some(unread), Some(detached)) = (call.unread.take(), &state.answer) {
            let Unread { area, from, bytes, lent_at, .. } = unread;
            if lent_at == 0 {
                let to = &mut call.request.bytes;
                detached.answer().append_bytes(detached.region(), area, rank, from, bytes, to);
                return true;
            }
            match self.shared.messages.fetch(lent_at, bytes) {
                Ok(fetched) => call.put_fetched(fetched),
                Err(error) => {
                    drop(state);
                    call.free();
                    self.finish(rank, caller, Err(error));
                    return false;
                }
            }
        }
        true
    }
}

impl Watched for Ticket {
    fn is_open(&self) -> bool {
        self.state.lock().answer.is_some()
    }

    fn started(&self) -> Instant {
        self.started
    }

    fn deadline(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        let open = state.open;
        while state.deadlines.pop_if(|(_, rank)| open >> *rank & 1 == 0).is_some() {}
        state.deadlines.last().map(|(deadline, _)| *deadline)
    }

    fn expire(&self, now: Instant) {
        let mut late = Vec::new();
        let mut state = self.state.lock();
        while let Some((_, rank)) = state.deadlines.pop_if(|(deadline, _)| *deadline <= now) {
            late.push(rank);
        }
        drop(state);
        for &rank in &late {
            let status = Status::Error(CallError::TimedOut);
            self.answer(rank, |detached, _| {
                detached.lane(rank, status, &[]);
                status
            });
        }
        let (launch, slot) = (self.launch, self.slot);
        self.shared.engine.log(Level::DEBUG, move || {
            tracing::debug!(%launch, slot, ranks = ?late, "a call's deadline has passed");
        });
    }

    fn launch(&self) -> LaunchId {
        self.launch
    }

    fn give_up(&self, error: CallError) {
        let mut state = self.state.lock();
        if let Some(mut answer) = state.answer.take() {
            let open = std::mem::take(&mut state.open).count_ones();
            // Lanes that have an answer keep it.
            answer.rest(Status::Error(error));
            if let Some(recording) = &mut state.recording {
                recording.lanes_ended(open, Status::Error(error));
                self.record(recording);
            }
            drop(answer);
            drop(state);
            self.shared.answered();
            self.shared.wake();
        }
    }

    fn slot(&self) -> u32 {
        self.slot
    }

    fn waiting(&self) -> Waiting {
        let (kernel, place) = self.shared.place_of(self.slot, self.launch);
        let state = self.state.lock();
        let is_async = matches!(self.entry.service.kind, Kind::Async(_));
        let waits_for = if is_async || state.open & state.begun != 0 {
            WaitsFor::Handler
        } else if state.open & state.in_turn != 0 {
            WaitsFor::Turn
        } else {
            WaitsFor::Thread
        };
        Waiting {
            device: Arc::default(),
            slot: self.slot,
            launch: self.launch,
            kernel,
            place,
            lanes: state.open.count_ones(),
            service: self.entry.method.name().to_string(),
            waited: self.started.elapsed(),
            waits_for,
        }
    }
}

/// Has the lanes of a packet handled, and answered with errors those that have none to be handled.
pub(crate) fn start(
    shared: &Arc<Shared>,
    entry: &Arc<Entry>,
    kind: PacketKind,
    answer: DetachedAnswer,
    launch: LaunchId,
    calls: LaneCalls,
    mut recording: Option<Recording>,
) {
    if let Some(recording) = &mut recording {
        recording.add_bytes(calls.iter().flat_map(|(call, _)| call).map(LaneCall::request_bytes).sum(), 0);
    }
    let started = Instant::now();
    let (slot, lanes) = (answer.answer().slot(), answer.answer().lanes());
    let mut deadlines: Vec<(Instant, u32)> = (0..)
        .zip(&calls)
        .filter_map(|(rank, call)| Some((call.0.as_ref().ok()?.timeout_us, rank)))
        .filter(|(timeout_us, _)| *timeout_us > 0)
        .map(|(timeout_us, rank)| (started + Duration::from_micros(timeout_us.into()), rank))
        .collect();
    deadlines.sort_unstable_by(|a, b| b.cmp(a));
    let open = u64::MAX >> (64 - lanes);
    let ticket = Arc::new(Ticket {
        state: Mutex::new(Answering {
            answer: Some(answer),
            open,
            begun: 0,
            in_turn: 0,
            deadlines,
            recording: recording.map(Box::new),
        }),
        entry: entry.clone(),
        slot,
        launch,
        started,
        shared: shared.clone(),
        kind,
        places: calls.iter().map(|(_, place)| *place).collect(),
        left: Mutex::default(),
    });
    shared.engine.watchdog.watch(&ticket);
    // Whoever cancels marks the launch and then gives up the calls that are watched. One that came between the two is
    // seen here: the watchdog's lock was taken after the mark was set, or the call is among those.
    if !shared.launches.is_live(launch) {
        return ticket.give_up(CallError::Cancelled);
    }
    let mut lanes = SmallVec::<[_; 1]>::with_capacity(calls.len());
    for (rank, (call, _)) in (0..).zip(calls) {
        match call {
            Ok(call) => lanes.push((rank, call)),
            Err(error) => ticket.finish(rank, Caller::default(), Err(error)),
        }
    }
    match entry.service.kind {
        Kind::Inline(_) | Kind::Blocking(_) => {
            let pieces = lanes.len();
            lanes.reverse();
            *ticket.left.lock() = lanes;
            shared.engine.pool(entry.service.threads).submit(ticket, pieces);
        }
        Kind::Async(_) => {
            for (rank, call) in lanes {
                let begins = BeginsLater::new((ticket.clone(), rank, call), refuse_busy);
                shared.engine.futures.spawn(answer_later(begins));
            }
        }
    }
}

impl Work for Ticket {
    fn run_next(self: Arc<Self>) {
        let Some((rank, mut call)) = self.left.lock().pop() else { return };
        let (Kind::Inline(service) | Kind::Blocking(service)) = &self.entry.service.kind else { return };
        if !self.read(rank, &mut call) {
            return;
        }
        let turn = catch(|| service.turn(self.entry.index, call.as_request())).ok().flatten();
        let (of_service, shared) = (Arc::as_ptr(&self.entry.service).addr(), self.shared.clone());
        let call = ReadCall { ticket: self, rank, call };
        match turn {
            None => call.handle(),
            Some(turn) => shared.turns.handle((of_service, turn), call),
        }
    }

    fn is_wanted(&self) -> bool {
        self.is_open()
    }
}

/// A lane's call of which all is there to be handled.
pub(crate) struct ReadCall {
    ticket: Arc<Ticket>,
    rank: u32,
    call: LaneCall,
}

impl ReadCall {
    /// Returns whether its lane waits for it still.
    pub fn is_wanted(&self) -> bool {
        self.ticket.waits(self.rank)
    }

    /// Notes that it waits for its turn, for reports.
    pub fn waits_for_turn(&self) {
        self.ticket.state.lock().in_turn |= 1 << self.rank;
    }

    /// Answers it, which nobody handles.
    pub fn cancel(mut self) {
        self.call.free();
        self.ticket.finish(self.rank, self.call.request.caller, Err(CallError::Cancelled));
    }

    /// Handles it on this thread, which may wait, if its lane waits still.
    pub fn handle(self) {
        let Self { ticket, rank, mut call } = self;
        let (Kind::Inline(service) | Kind::Blocking(service)) = &ticket.entry.service.kind else { return };
        if !ticket.begin(rank, &mut call) {
            return;
        }
        let caller = call.request.caller;
        set_service(ticket.entry.method.name());
        let place = ticket.places[rank as usize];
        let result = called_by(caller, || {
            bytes::run(&ticket.shared, &ticket.entry, &***service, call.as_request(), place)
        });
        call.free();
        ticket.finish(rank, caller, result);
    }
}

/// Answers a lane whose future was dropped before it began.
fn refuse_busy((ticket, rank, mut call): (Arc<Ticket>, u32, LaneCall)) {
    call.free();
    ticket.finish(rank, call.request.caller, Err(CallError::Busy));
}

/// Has an async service handle a call or a post of a method.
///
/// # Errors
/// [`Panicked`] when the handler does.
pub(super) async fn call_async(
    shared: &Shared,
    service: &dyn AsyncService,
    entry: &Entry,
    request: OwnedRequest,
) -> Result<Result<OwnedReply, CallError>, Panicked> {
    let (name, caller) = (entry.method.name(), request.caller);
    set_service(name);
    let around = |poll: &mut dyn FnMut()| {
        set_service(name);
        called_by(caller, poll);
    };
    let result = match catch(|| called_by(caller, || service.call(entry.index, request))) {
        Ok(future) => catch_future(future, around).await,
        Err(panicked) => Err(panicked),
    };
    if result.is_err() {
        shared.handler_panicked(entry, caller);
    }
    result
}

async fn answer_later(begins: BeginsLater<(Arc<Ticket>, u32, LaneCall)>) {
    let (ticket, rank, mut call) = begins.begin();
    let Kind::Async(service) = &ticket.entry.service.kind else { return };
    if !ticket.read(rank, &mut call) || !ticket.begin(rank, &mut call) {
        return;
    }
    let LaneCall { mut request, charge, fetched, .. } = call;
    if let Some(fetched) = fetched {
        request.bytes = fetched.into_vec();
    }
    let (caller, capacity) = (request.caller, request.reply_capacity);
    let result = call_async(&ticket.shared, &***service, &ticket.entry, request).await;
    drop(charge);
    let result = match result {
        Ok(Ok(reply)) => {
            let place = ReplyPlace { wanted_at: ReplyAt::NONE, ..ticket.places[rank as usize] };
            let mut filling = Filling::new(&ticket.shared.messages, capacity, place);
            filling.words(&reply.words);
            filling.bytes(&reply.bytes).map(|()| filling.finish())
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(CallError::Panicked),
    };
    ticket.finish(rank, caller, result);
}
