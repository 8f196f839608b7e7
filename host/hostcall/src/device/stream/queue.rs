//! A stream's queue: operations in the host's memory, of which as many as the device takes without blocking are with the
//! device.
//!
//! # Positions
//! Each operation has a position, counted from 1. A position is *reached* once everything up to it has ended on the device,
//! and *settled* once the host has done what follows from it: posts and prints are handled, failures are noted. What was
//! kept alive is dropped soon after.
//!
//! The device tells of positions that are *signalled*. One rule says which: an operation that somebody may ask about is
//! signalled at its place, before the device gets the next one ([`InFlight::may_be_asked_about`]). So what follows it may
//! wait for the host or for another stream for as long as it likes: who waits for the operation goes on. Of operations that
//! nobody can ask about by themselves, each 32nd is signalled, so that there is room for others.
//!
//! # Who does what
//! Whoever pushes an operation submits what the device takes. The rest is submitted by whoever waits for the stream, and
//! by the device's [`Reaper`], a thread that also settles what nobody waits for.
//!
//! # Locks
//! `pushing` is held by whoever gives out positions; `state` is taken inside it, and nothing is taken inside `state` but
//! leaf locks. `settling` is held by whoever settles; who must not wait for users' handlers does not wait for it either.
//! Users' values are dropped after it. No lock of a stream is taken by the server's threads, so that a driver which waits
//! under `state` keeps no call from its answer.
#![allow(unsafe_code, reason = "dispatches kernels and copies")]

use super::launched::{Launch, LaunchState};
use super::operation::{Before, Dispatched, Operation, Parameters, Parts};
use super::prints::Prints;
use super::settle::Patience;
use super::step::StepControl;
use super::stops::Stops;
use crate::device::buffer::Wanted;
use crate::device::error::Error;
use crate::device::inner::Inner;
use crate::device::owners::{Owner, UnitHold};
use crate::device::reaper::Reaper;
use crate::device::uses::{Dependent, Point, Request, Timeline};
use crate::device::words::{STREAMS, StreamWords};
use hostcall_abi::launch::{LaunchId, LaunchIds};
use hostcall_locks::{Condvar, Mutex};
use hostcall_seam::{BackendError, Queue, Running};
use hostcall_server::Completion;
use smallvec::SmallVec;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// An operation that is not with the device.
pub(super) struct Waiting {
    pub(super) position: u64,
    pub(super) before: Vec<Before>,
    pub(super) operation: Operation,
}

/// An operation that is with the device, or has ended and is not settled: until then it is kept, with what it uses.
///
/// An operation that has an owner keeps its code and staged bytes itself; the buffers, and whatever else its arguments refer
/// to, are in a plan. PLAN: who pushes such an operation keeps its plan until that is settled. A unit does so by its end, which
/// is pushed with its operations and settled after them; a step by [`Step::run`](super::step::Step::run), which has the plan, and
/// waits before it returns until what it pushed is settled.
pub(super) struct InFlight {
    pub(super) position: u64,
    pub(super) operation: Operation,
    pub(super) running: AllRunning,
    /// The device tells when this position is reached, whatever follows it.
    pub(super) is_signalled: bool,
}

/// What the device tells of an operation's dispatches.
pub(super) type AllRunning = SmallVec<[Arc<dyn Running>; 1]>;

impl InFlight {
    pub(super) fn new(position: u64, operation: Operation) -> Self {
        Self { position, operation, running: AllRunning::new(), is_signalled: false }
    }

    /// Whether somebody may ask when it has ended, or wait for what it keeps, once `next` follows it: who holds the launch or
    /// has set it a time limit, and who uses the same memory, unless `next` uses that in the same way. (Who came before `next`
    /// has said so: [`Timeline::ask`].) What has an owner is known by its unit's end alone.
    pub(super) fn may_be_asked_about(&self, next: &Operation) -> bool {
        match &self.operation {
            Operation::Launch(Dispatched { parts, state }) => {
                let covered = |old: &Wanted| next.wanted().iter().any(|new| new.covers(old));
                let keeps = !(parts.values.is_empty() && parts.memory.is_empty());
                state.owner.is_none()
                    && (keeps || Arc::strong_count(state) > 1 || !parts.wanted.iter().all(covered))
            }
            Operation::Transfer(transfer) => transfer.owner.is_none(),
            Operation::UnitEnd(_) | Operation::Record(_) => true,
            Operation::List(_) | Operation::HostFunction(_) | Operation::Step(_) | Operation::Wait => false,
        }
    }

    /// The launches, if it has some that the server serves.
    pub(super) fn launches(&self) -> Option<LaunchIds> {
        match &self.operation {
            Operation::Launch(launch) if launch.state.is_served() => Some(launch.state.id.into()),
            Operation::List(list) => Some(list.launches),
            _ => None,
        }
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) in_flight: VecDeque<InFlight>,
    /// Last position that is with the device or has ended.
    pub(super) submitted: u64,
    /// Sequence of the last launch that waits no more.
    pub(super) taken: u64,
    pub(super) signalled: u64,
    /// How much of `submitted` was counted off the device's budget.
    pub(super) counted: u64,
    /// A host function runs.
    pub(super) in_host_function: bool,
    /// The step that runs.
    pub(super) step: Option<Arc<StepControl>>,
    /// The first failure since the last `synchronize`.
    pub(super) failed: Option<Error>,
    /// Which launches do not begin.
    pub(super) stops: Stops,
    /// Sequence of the last launch of which it is noted how it ended, or why it will not begin.
    pub(super) ended: u64,
    /// Points of other streams that the device refused to wait for: the next operation waits for them, since those behind it
    /// rely on it.
    pub(super) refused: Vec<Before>,
}

/// What a stream and all that refers to its work share.
pub(crate) struct StreamQueue {
    pub device: Arc<Inner>,
    pub(super) device_queue: Box<dyn Queue>,
    pub(super) words: Arc<StreamWords>,
    pub(super) pushing: Mutex<Pushing>,
    pub(super) state: Mutex<State>,
    /// Last position at which a host function has ended.
    pub(super) done_by_host: AtomicU64,
    /// Somebody waits for a position up to this one: each is signalled as soon as it is submitted.
    pub(super) wanted: AtomicU64,
    /// Operations wait here for room on the device, or for what holds them back. Changes under `state`.
    pub(super) has_waiting: AtomicBool,
    /// First position that was dropped because the device was closed.
    pub(super) dropped_from: AtomicU64,
    pub(super) settled: AtomicU64,
    /// Sequence of the last launch that the device was given of those with a context, of which nobody knows whether they post.
    pub(super) last_with_context: AtomicU64,
    pub(super) prints: Prints,
    pub(super) settling: Mutex<Settling>,
    /// Of launches that were settled, for later ones.
    #[expect(clippy::vec_box, reason = "a launch has its parts in a box")]
    pub(super) spare: Mutex<Vec<Box<Parts>>>,
    /// Notified when a position was settled or the device told of progress.
    pub(super) changed: Condvar,
    pub(super) changes: Mutex<u64>,
    /// The device failed.
    pub(super) dead: OnceLock<BackendError>,
    /// Streams whose operations wait for this one's progress.
    pub(super) dependents: Mutex<Vec<Weak<dyn Dependent>>>,
    /// Points of other streams that operations wait for, until these have ended, in the order of the operations' positions.
    pub(super) depends_on: Mutex<VecDeque<(u64, Vec<Point>)>>,
    pub(super) this: Weak<StreamQueue>,
    /// Steps run work on it: what that uses is entered into the device's order by the stream of the step.
    pub(super) is_inner: bool,
    /// What gets the stream's work while somebody records it in place of doing it.
    pub recorder: Recorder,
}

/// Operations that stand on a stream one behind the other, and an end behind them, by which others know all of them.
pub(crate) struct Unit {
    /// With their positions. A list is taken for several.
    pub operations: Vec<(u64, Operation)>,
    /// The last launch's.
    pub sequence: u64,
    /// What is kept until all are settled.
    pub hold: Box<dyn UnitHold>,
    /// All the memory of the device that they use.
    pub wanted: Arc<[Wanted]>,
    /// What they wait for besides.
    pub after: Option<Point>,
    /// The queue that its steps use.
    pub inner: Option<Arc<StreamQueue>>,
}

/// Where something that records a stream's work in place of doing it is kept. The queue itself does not look at it.
#[derive(Default)]
pub(crate) struct Recorder {
    /// Whether there is one: most streams never look further.
    is_set: AtomicBool,
    recorder: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

impl Recorder {
    pub fn get(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        if self.is_set.load(Ordering::Acquire) { self.recorder.lock().clone() } else { None }
    }

    /// Sets it, unless there is one.
    pub fn set(&self, recorder: Arc<dyn Any + Send + Sync>) -> bool {
        let mut place = self.recorder.lock();
        if place.is_some() {
            return false;
        }
        *place = Some(recorder);
        self.is_set.store(true, Ordering::Release);
        true
    }

    pub fn clear(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        let mut place = self.recorder.lock();
        self.is_set.store(false, Ordering::Release);
        place.take()
    }
}

#[derive(Default)]
pub(super) struct Pushing {
    pub(super) position: u64,
    pub(super) sequence: u64,
    /// Points of other streams that an earlier operation waits for: later ones need not.
    pub(super) awaited: Vec<Point>,
}

#[derive(Default)]
pub(super) struct Settling {
    /// Sequence of the last launch that was settled.
    pub(super) sequence: u64,
    /// The server takes the posts of what had ended by this position.
    pub(super) flush: Option<(Completion, u64)>,
}

/// Launches after which the thread that launches settles those that have ended: then they are still in its caches, and so
/// is the memory that the next ones are made of.
const LAUNCHES_A_SETTLE: u64 = 64;

impl StreamQueue {
    pub fn new(device: &Arc<Inner>) -> Result<Arc<Self>, Error> {
        Self::of_kind(device, false)
    }

    /// The queue of what steps do.
    pub fn inner(device: &Arc<Inner>) -> Result<Arc<Self>, Error> {
        Self::of_kind(device, true)
    }

    fn of_kind(device: &Arc<Inner>, is_inner: bool) -> Result<Arc<Self>, Error> {
        let words = device.stream_words.take().ok_or(Error::TooManyStreams { limit: STREAMS })?;
        // The queue's callback needs the stream, which needs the queue.
        let late: Arc<OnceLock<Weak<StreamQueue>>> = Arc::default();
        let told = late.clone();
        let device_queue = device.core.backend.queue(Arc::new(move || {
            // Maybe under `state`, since a device may have got on at once.
            if let Some(stream) = told.get().and_then(Weak::upgrade) {
                stream.note_change();
            }
        }))?;
        let stream = Arc::new_cyclic(|this| Self {
            device: device.clone(),
            device_queue,
            words: Arc::new(words),
            pushing: Mutex::default(),
            state: Mutex::default(),
            done_by_host: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            has_waiting: AtomicBool::new(false),
            dropped_from: AtomicU64::new(u64::MAX),
            settled: AtomicU64::new(0),
            last_with_context: AtomicU64::new(0),
            prints: Prints::default(),
            settling: Mutex::default(),
            spare: Mutex::default(),
            changed: Condvar::new(),
            changes: Mutex::default(),
            dead: OnceLock::new(),
            dependents: Mutex::default(),
            depends_on: Mutex::default(),
            this: this.clone(),
            is_inner,
            recorder: Recorder::default(),
        });
        let _ = late.set(Arc::downgrade(&stream));
        let tended: Weak<Self> = Arc::downgrade(&stream);
        device.core.reaper.add(tended);
        Ok(stream)
    }

    /// A point of the stream.
    pub fn point(&self, position: u64) -> Point {
        Point { timeline: self.this.clone(), position }
    }

    /// The last position that was given out.
    pub fn last(&self) -> u64 {
        self.pushing.lock().position
    }

    /// The last position that was given out, which is signalled at its place: somebody waits for it, and not for what others
    /// push meanwhile.
    pub fn last_asked(&self) -> u64 {
        let pushing = self.pushing.lock();
        self.wanted.fetch_max(pushing.position, Ordering::SeqCst);
        pushing.position
    }

    /// Puts an operation on the stream, after `before` and what conflicts with what it uses. Returns its position.
    pub fn push(&self, before: Vec<Point>, operation: Operation) -> Result<u64, Error> {
        self.device.core.check_process()?;
        let mut pushing = self.pushing.lock();
        self.check_open()?;
        Ok(self.push_locked(&mut pushing, before, operation))
    }

    /// Puts an operation on the stream for a caller that holds `pushing` and has found the device open. If the device was
    /// closed since, the operation is dropped when its turn comes.
    pub(super) fn push_locked(
        &self,
        pushing: &mut Pushing,
        mut before: Vec<Point>,
        operation: Operation,
    ) -> u64 {
        let position = pushing.position + 1;
        if !self.is_inner && !operation.wanted().is_empty() {
            let requests: SmallVec<[Request<'_>; 4]> =
                operation.wanted().iter().map(Wanted::request).collect();
            let (own, point) = (&self.device.core, self.point(position));
            let other = operation.wanted().iter().find(|wanted| !own.is(&wanted.allocation.core));
            before.extend(match other {
                None => own.order.enter(&point, &requests),
                Some(other) => own.order.enter_both(&other.allocation.core.order, &point, &requests),
            });
        }
        pushing.position = position;
        // Points that are reached meanwhile are forgotten when an operation has some to wait for.
        let before = match before.is_empty() {
            true => Vec::new(),
            false => self.not_awaited(pushing, position, before, operation.is_of_host()),
        };
        self.give_one(Waiting { position, before, operation });
        position
    }

    /// What the operation at `position` has to wait for of `before`, as the device or the host waits for it.
    fn not_awaited(
        &self,
        pushing: &mut Pushing,
        position: u64,
        mut before: Vec<Point>,
        is_of_host: bool,
    ) -> Vec<Before> {
        pushing.awaited.retain(|awaited| !awaited.is_reached());
        before.retain(|point| {
            let is_of = |other: &&mut Point| other.is_of(&point.timeline);
            !point.is_reached()
                && match pushing.awaited.iter_mut().find(is_of) {
                    Some(awaited) if awaited.position >= point.position => false,
                    Some(awaited) => {
                        awaited.position = point.position;
                        true
                    }
                    None => {
                        pushing.awaited.push(point.clone());
                        true
                    }
                }
        });
        if !before.is_empty() {
            let mut depends_on = self.depends_on.lock();
            self.forget_ended(&mut depends_on);
            depends_on.push_back((position, before.clone()));
        }
        let before = before.into_iter().map(|point| {
            let timeline = point.timeline.upgrade().filter(|timeline| {
                !is_of_host && timeline.device() == self.device.core.id() && self.device_queue.can_wait()
            });
            match timeline.is_some_and(|timeline| timeline.is_signalled(point.position)) {
                true => Before::Signal(point),
                false => Before::Gate(point),
            }
        });
        before.collect()
    }

    /// Forgets what operations wait for that have ended. A step depends on all that its inner queue ever gets, which is
    /// over for this stream once the step has ended: that queue goes on with others.
    pub(super) fn forget_ended(&self, depends_on: &mut VecDeque<(u64, Vec<Point>)>) {
        while depends_on.front().is_some_and(|(position, _)| self.has_reached(*position)) {
            depends_on.pop_front();
        }
    }

    /// Adds one operation whose position was given out. It goes to the device without a place in the queue when none waits.
    fn give_one(&self, next: Waiting) {
        self.give_by(|state| {
            // Those that wait go first.
            self.pump(state);
            let left = if state.waiting.is_empty() { self.take(state, next) } else { Some(next) };
            if let Some(left) = left {
                state.waiting.push_back(left);
            }
        });
    }

    /// Adds operations as `give` does, and tells the reaper of them.
    #[inline]
    fn give_by(&self, give: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        give(&mut state);
        let is_left = !state.waiting.is_empty();
        self.has_waiting.store(is_left, Ordering::SeqCst);
        drop(state);
        self.reaper().note_work(is_left);
    }

    /// Puts a unit on the stream: either all of it or nothing. `make` gets the last position and the last sequence that were
    /// given out, makes the unit of those that follow, and does not fail once the unit is made.
    pub fn push_unit<R>(&self, make: impl FnOnce(u64, u64) -> Result<(Unit, R), Error>) -> Result<R, Error> {
        self.device.core.check_process()?;
        let mut pushing = self.pushing.lock();
        self.check_open()?;
        let last = pushing.position;
        let (unit, made) = make(last, pushing.sequence)?;
        let Unit { operations, sequence, hold, wanted, after, inner } = unit;
        let end = operations.last().map_or(last, |(position, _)| *position) + 1;
        // Nothing fails from here on: others may wait for the unit's end.
        let requests: Vec<Request<'_>> = wanted.iter().map(Wanted::request).collect();
        let own = self.point(end);
        let mut waits = match requests.is_empty() {
            true => Vec::new(),
            false => self.device.core.order.enter(&own, &requests),
        };
        waits.extend(after.filter(|after| !after.is_of(&own.timeline)));
        (pushing.position, pushing.sequence) = (end, sequence);
        let operations: Vec<Waiting> = operations
            .into_iter()
            .chain([(end, Operation::UnitEnd(hold))])
            .map(|(position, operation)| {
                let points = std::mem::take(&mut waits);
                let before = self.not_awaited(&mut pushing, position, points, operation.is_of_host());
                Waiting { position, before, operation }
            })
            .collect();
        if let Some(inner) = inner {
            // A thread that work of the inner queue waits for must not wait for the stream.
            let steps = operations.iter().filter(|waiting| waiting.operation.is_of_host());
            let mut depends_on = self.depends_on.lock();
            depends_on.extend(steps.map(|waiting| (waiting.position, vec![inner.point(u64::MAX)])));
        }
        self.give_by(|state| {
            state.waiting.extend(operations);
            self.pump(state);
        });
        drop(pushing);
        if end / LAUNCHES_A_SETTLE > (last + 1) / LAUNCHES_A_SETTLE {
            self.settle(u64::MAX, Patience::None);
        }
        Ok(made)
    }

    /// The sequence that the next launch will have, of a queue that one thread uses.
    pub fn next_sequence(&self) -> u64 {
        self.pushing.lock().sequence + 1
    }

    pub fn this(&self) -> Weak<Self> {
        self.this.clone()
    }

    /// The words that the stream shares with its launches.
    pub fn words(&self) -> &Arc<StreamWords> {
        &self.words
    }

    /// Parts to make a launch of.
    pub fn blank(&self) -> Box<Parts> {
        self.spare.lock().pop().unwrap_or_default()
    }

    /// Puts a launch on the stream, which is the work of an owner's if it is a part of something larger. `begin` gets its
    /// sequence and stop and post words, adds the parameters that only then are known, and returns its id.
    pub fn launch(
        self: &Arc<Self>,
        kernel: Arc<str>,
        owner: Option<Arc<dyn Owner>>,
        mut parts: Box<Parts>,
        begin: impl FnOnce(&mut Parameters, u64, &StreamWords) -> Result<LaunchId, Error>,
    ) -> Result<Launch, Error> {
        self.device.core.check_process()?;
        let mut pushing = self.pushing.lock();
        self.check_open()?;
        let sequence = pushing.sequence + 1;
        let id = begin(&mut parts.parameters, sequence, &self.words)?;
        if let Some(owner) = &owner {
            self.device.owners.enter(id, owner.clone());
        }
        pushing.sequence = sequence;
        let position = pushing.position + 1;
        let (is_foreign, has_context) = (parts.runs_to_end, parts.has_context);
        let new = LaunchState::new(kernel, id, sequence, position);
        let state = LaunchState { is_foreign, has_context, owner, ..new }.shared(parts.spare_state.take());
        let dispatched = Dispatched { parts, state: state.clone() };
        self.push_locked(&mut pushing, Vec::new(), Operation::Launch(dispatched));
        drop(pushing);
        if sequence.is_multiple_of(LAUNCHES_A_SETTLE) {
            self.device_queue.poll(self.settled.load(Ordering::Acquire) + 1);
            self.settle(u64::MAX, Patience::None);
        }
        Ok(Launch { queue: self.clone(), state })
    }

    pub fn check_open(&self) -> Result<(), Error> {
        if let Some(error) = self.dead.get() {
            return Err(error.clone().into());
        }
        self.device.core.check_open()
    }

    /// The last position that has ended on the device.
    pub(super) fn reached(&self) -> u64 {
        if self.dead.get().is_some() {
            return u64::MAX;
        }
        self.device_queue.completed().max(self.done_by_host.load(Ordering::Acquire))
    }

    /// Wakes those who wait for the stream, and the reaper if others go on by it.
    pub(super) fn note_change(&self) {
        *self.changes.lock() += 1;
        self.changed.notify_all();
        if self.has_waiting.load(Ordering::SeqCst) || !self.dependents.lock().is_empty() {
            self.reaper().wake();
        }
    }

    /// Goes on, since what held operations back may be over; not under any stream's `state`.
    pub(super) fn progressed(&self) {
        {
            let mut state = self.state.lock();
            self.pump(&mut state);
        }
        self.note_change();
    }

    pub(super) fn reaper(&self) -> &Arc<Reaper> {
        &self.device.core.reaper
    }
}
