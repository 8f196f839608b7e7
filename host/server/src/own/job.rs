//! Calls whose handlers may wait: on worker threads or as a future for each lane. A [`Ticket`] answers each lane once,
//! whoever is first: the handler, the lane's deadline, or a cancellation.

use super::bytes;
use super::deferred::DeferredCalls;
use super::gather;
use super::messages::{Fetched, Unread};
use super::registry::{Entry, Kind};
use super::reply::{Filling, ReplyPlace};
use super::shared::Shared;
use super::ticket::Ticket;
use crate::engine::budget::Charge;
use crate::engine::calls::Call;
use crate::engine::caught::{Panicked, catch};
use crate::engine::executor::{BeginsLater, catch_future};
use crate::engine::handling::set_service;
use crate::engine::trace::Recording;
use crate::engine::watchdog::Watched;
use crate::engine::workers::Work;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::CallError;
use hostcall_abi::word::Kind as PacketKind;
use hostcall_channel::host::DetachedAnswer;
use hostcall_service::{AsyncService, Caller, OwnedReply, OwnedRequest, Reply, Request, called_by};
use smallvec::SmallVec;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

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

/// The calls of a packet's lanes, each with the place of its reply. Most packets that are handed on are of one lane.
pub(crate) type LaneCalls = SmallVec<[(Result<LaneCall, CallError>, ReplyPlace); 1]>;

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
    let deadlines = (0..)
        .zip(&calls)
        .filter_map(|(rank, call)| Some((call.0.as_ref().ok()?.timeout_us, rank)))
        .filter(|(timeout_us, _)| *timeout_us > 0)
        .map(|(timeout_us, rank)| (started + Duration::from_micros(timeout_us.into()), rank))
        .collect();
    let places = calls.iter().map(|(_, place)| *place).collect();
    let ticket = Ticket::new(shared, entry, kind, answer, launch, places, deadlines, recording, started);
    if !watch(shared, &ticket) {
        return;
    }
    let mut lanes = SmallVec::<[_; 1]>::with_capacity(calls.len());
    for (rank, (call, _)) in (0..).zip(calls) {
        match call {
            Ok(call) => lanes.push((rank, call)),
            Err(error) => ticket.finish(rank, Caller::default(), Err(error)),
        }
    }
    match &entry.service.kind {
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
        Kind::Deferred(service) if !lanes.is_empty() => {
            let caller = lanes[0].1.request.caller;
            if catch(|| service.calls(DeferredCalls::new(ticket, lanes))).is_err() {
                shared.handler_panicked(entry, caller);
            }
        }
        Kind::Deferred(_) => {}
        Kind::Gathered { .. } => gather::calls_by_bytes(shared, entry, ticket, lanes, started),
    }
}

/// Puts a ticket under watch. Returns whether the call is to be handled: its launch was not cancelled.
pub(super) fn watch(shared: &Shared, ticket: &Arc<Ticket>) -> bool {
    shared.engine.watchdog.watch(ticket);
    // Whoever cancels marks the launch and then gives up the calls that are watched. One that came between the two is
    // seen here: the watchdog's lock was taken after the mark was set, or the call is among those.
    let is_live = shared.launches.is_live(ticket.launch());
    if !is_live {
        ticket.give_up();
    }
    is_live
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
        self.ticket.waits_for_turn(self.rank);
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
        let share = ticket.places[rank as usize].share;
        let result = called_by(caller, || {
            bytes::run(&ticket.shared, &ticket.entry, &***service, call.as_request(), share)
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

/// Answers a lane whose future is dropped without an answer, since whoever runs it has ended.
struct AnswersAtLast<'a> {
    ticket: &'a Ticket,
    rank: u32,
    caller: Caller,
}

impl Drop for AnswersAtLast<'_> {
    fn drop(&mut self) {
        self.ticket.finish(self.rank, self.caller, Err(CallError::Cancelled));
    }
}

async fn answer_later(begins: BeginsLater<(Arc<Ticket>, u32, LaneCall)>) {
    let (ticket, rank, mut call) = begins.begin();
    let caller = call.request.caller;
    let _at_last = AnswersAtLast { ticket: &ticket, rank, caller };
    let Kind::Async(service) = &ticket.entry.service.kind else { return };
    if !ticket.read(rank, &mut call) || !ticket.begin(rank, &mut call) {
        return;
    }
    let LaneCall { mut request, charge, fetched, .. } = call;
    if let Some(fetched) = fetched {
        request.bytes = fetched.into_vec();
    }
    let capacity = request.reply_capacity;
    // The handler's future is dropped once its lane has another answer: its deadline's, or a cancellation.
    let handled = {
        let mut handles = pin!(call_async(&ticket.shared, &***service, &ticket.entry, request));
        poll_fn(|context| match handles.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => ticket.poll_answered(rank, context).map(|()| None),
        })
        .await
    };
    drop(charge);
    let result = match handled {
        Some(Ok(Ok(reply))) => {
            let share = ticket.places[rank as usize].share;
            let mut filling = Filling::new(&ticket.shared.messages, capacity, share);
            filling.words(&reply.words);
            filling.bytes(&reply.bytes).map(|()| filling.finish())
        }
        Some(Ok(Err(error))) => Err(error),
        Some(Err(_)) => Err(CallError::Panicked),
        None => return,
    };
    ticket.finish(rank, caller, result);
}
