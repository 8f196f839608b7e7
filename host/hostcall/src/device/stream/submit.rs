//! Giving the device what it takes of the operations that wait.
//!
//! A launch behind a call of the driver's finds none of its code in the processor's caches. So what most launches do not
//! need is `#[cold]` or `#[inline(never)]` here, and the code that they do need fits in fewer of the caches' lines.
#![allow(unsafe_code, reason = "dispatches kernels and copies")]

use super::operation::{Before, Listed, Operation, Parts};
use super::queue::{AllRunning, InFlight, State, StreamQueue, Waiting};
use super::step::StepControl;
use crate::device::error::{Error, LaunchFailure, NodeFailure, message_of};
use crate::device::transfer::Transfer;
use crate::device::uses::Dependent;
use crate::device::waiting;
use hostcall_abi::launch::LaunchId;
use hostcall_seam::{BackendError, Dispatch, ListDispatch, OPERATIONS_A_DEVICE, OPERATIONS_A_QUEUE, Running};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Most operations between two signals, so that the host learns in time that there is room for others.
const SIGNAL_EVERY: u64 = 32;

/// Operations that every stream may have with the device, however many the others have.
const ALWAYS: u64 = 2;

impl StreamQueue {
    /// Gives the device what it takes of the operations that wait.
    pub(super) fn pump(&self, state: &mut State) {
        self.count(state);
        if state.waiting.is_empty() {
            return;
        }
        while let Some(next) = state.waiting.pop_front() {
            if let Some(next) = self.take(state, next) {
                state.waiting.push_front(next);
                return;
            }
        }
        self.has_waiting.store(false, Ordering::SeqCst);
    }

    /// Gives the device the operation that is next, before which none waits, or drops it, or begins it. Returns it if it has to
    /// wait.
    pub(super) fn take(&self, state: &mut State, mut next: Waiting) -> Option<Waiting> {
        if state.in_host_function {
            return Some(next);
        }
        let is_over = || self.dead.get().is_some() || self.device.core.closed.load(Ordering::SeqCst);
        if is_over() {
            return self.drop_next(state, next);
        }
        if !state.refused.is_empty() {
            next.before.append(&mut state.refused);
        }
        if !next.before.is_empty() {
            if self.is_held_back(&mut next.before) {
                return Some(next);
            }
            // What it waited for may be over because it was dropped.
            if is_over() {
                return self.drop_next(state, next);
            }
        }
        if next.operation.is_of_host() {
            return self.begin_host_function(state, next);
        }
        let sequence = next.operation.last_sequence();
        if let Some(sequence) = sequence {
            if state.stops.has(sequence) {
                return self.drop_next(state, next);
            }
            if !self.has_restarted(state, next.position) {
                return Some(next);
            }
        }
        if !self.has_room(state) {
            // It may not have been told of all that has ended.
            self.signal(state);
            self.device_queue.poll(state.counted + 1);
            self.count(state);
            if !self.has_room(state) {
                return Some(next);
            }
        }
        if !self.signal_before(&next.operation, state) {
            return Some(next);
        }
        state.taken = sequence.unwrap_or(state.taken);
        let position = next.position;
        self.submit(state, next);
        let wanted = self.wanted.load(Ordering::SeqCst);
        if wanted >= position || state.submitted - state.signalled >= SIGNAL_EVERY {
            self.signal(state);
        }
        if wanted == position {
            self.device_queue.poll(position);
        }
        None
    }

    /// Signals what the device was given last, before something follows that may run for ever, if somebody may ask about it or
    /// does. Returns whether the next operation may follow: the device may have refused the signal, which is asked for again.
    fn signal_before(&self, next: &Operation, state: &mut State) -> bool {
        let is_needed = |last: &InFlight| {
            !last.is_signalled
                && (last.may_be_asked_about(next) || self.wanted.load(Ordering::SeqCst) >= last.position)
        };
        !state.in_flight.back().is_some_and(is_needed) || self.signal(state)
    }

    /// Starts the stream again behind stops that were told before this position was given out, once all that they hold for is
    /// settled. Returns whether what is at the position need not wait for that.
    #[inline]
    fn has_restarted(&self, state: &mut State, position: u64) -> bool {
        state.stops.first_told().is_none_or(|_| self.restart(state, position))
    }

    #[cold]
    fn restart(&self, state: &mut State, position: u64) -> bool {
        while let Some(told) = state.stops.first_told().filter(|told| told.position < position) {
            if self.settled.load(Ordering::Acquire) < told.position {
                self.wanted.fetch_max(told.position, Ordering::SeqCst);
                self.signal(state);
                return false;
            }
            self.words.restart(told.sequence);
            // The next stop may have been made before what comes now, which precedes it.
            state.stops.pass_first().into_iter().for_each(|from| self.words.stop_from(from));
        }
        true
    }

    /// Says whether the device has room for one more operation of the stream.
    fn has_room(&self, state: &State) -> bool {
        let own = state.submitted - state.counted;
        let all = self.reaper().with_device.load(Ordering::Relaxed);
        own < OPERATIONS_A_QUEUE && (all < OPERATIONS_A_DEVICE || own < ALWAYS)
    }

    /// Says whether an operation stays with the host, and forgets what it need not wait for any more.
    #[inline(never)]
    fn is_held_back(&self, before: &mut Vec<Before>) -> bool {
        before.retain(|before| match before {
            Before::Gate(point) => {
                let this: Weak<dyn Dependent> = self.this.clone();
                let timeline = point.timeline.upgrade();
                timeline.is_some_and(|timeline| !timeline.tell(point.position, &this))
            }
            Before::Signal(_) => true,
        });
        before.iter().any(|before| matches!(before, Before::Gate(_)))
    }

    /// Takes what has ended off the device's budget.
    pub(super) fn count(&self, state: &mut State) {
        let reached = self.reached().min(state.submitted);
        if reached > state.counted {
            self.reaper().with_device.fetch_sub(reached - state.counted, Ordering::Relaxed);
            state.counted = reached;
        }
    }

    /// Signals the last position that was submitted, unless that was done. Returns whether it is signalled, or need not be.
    #[inline(never)]
    pub(super) fn signal(&self, state: &mut State) -> bool {
        if state.submitted <= state.signalled || state.submitted <= self.done_by_host.load(Ordering::Acquire)
        {
            return true;
        }
        if let Err(error) = self.device_queue.signal(state.submitted) {
            self.note_error(error);
            // Of a device that has failed nobody waits for a signal.
            return self.dead.get().is_some();
        }
        state.signalled = state.submitted;
        let last = state.in_flight.back_mut().filter(|last| last.position == state.submitted);
        last.into_iter().for_each(|last| last.is_signalled = true);
        true
    }

    /// Submits one operation, which is counted whether the device takes it or not.
    pub(super) fn submit(&self, state: &mut State, next: Waiting) {
        let Waiting { position, before, operation } = next;
        let mut running = AllRunning::new();
        let submitted =
            self.wait_before(state, before).and_then(|()| self.submit_operation(&operation, &mut running));
        self.note_submitted(state, position);
        if let Err(error) = submitted {
            self.note_refused(state, &operation, error);
        }
        state.in_flight.push_back(InFlight { running, ..InFlight::new(position, operation) });
    }

    /// Notes that the device did not take an operation.
    #[cold]
    fn note_refused(&self, state: &mut State, operation: &Operation, error: BackendError) {
        match operation {
            _ if let Some(launch) = operation.launch() => {
                launch.outcome.fail(LaunchFailure::NotStarted(error.clone()));
                // What follows in a unit is not given to the device any more.
                if launch.owner.is_some() {
                    state.stops.add(launch.sequence);
                }
            }
            Operation::Transfer(transfer) if let Some(node) = &transfer.owner => {
                let failed = node.owner.fail(NodeFailure::Device(error.clone()));
                state.failed.get_or_insert(failed);
                state.stops.add(node.next);
                state.ended = state.ended.max(node.next);
            }
            _ => {
                if let Operation::Transfer(transfer) = operation
                    && let Transfer::Read { to, .. } = &transfer.what
                {
                    let _ = to.refused.set(error.clone());
                }
                state.failed.get_or_insert(error.clone().into());
            }
        }
        self.note_error(error);
    }

    /// Notes that what is up to this position is with the device, or need not be.
    fn note_submitted(&self, state: &mut State, position: u64) {
        // A list is taken for several operations.
        self.reaper().with_device.fetch_add(position - state.submitted, Ordering::Relaxed);
        state.submitted = position;
    }

    /// Has the device wait for points of other streams. What it refuses the next operation waits for.
    fn wait_before(&self, state: &mut State, before: Vec<Before>) -> Result<(), BackendError> {
        let mut refused = Ok(());
        for before in before {
            let Before::Signal(point) = &before else { continue };
            // A stream that is gone has nothing left to do.
            let Some(timeline) = point.timeline.upgrade() else { continue };
            if let Err(error) = timeline.hold_back(&*self.device_queue, point.position) {
                state.refused.push(before);
                refused = refused.and(Err(error));
            }
        }
        refused
    }

    pub(super) fn submit_operation(
        &self,
        operation: &Operation,
        running: &mut AllRunning,
    ) -> Result<(), BackendError> {
        let queue = &self.device_queue;
        match operation {
            Operation::Launch(launch) => {
                let Parts {
                    kernel, workgroups, lanes, workgroup_bytes, parameters, by_address, hidden, ..
                } = &*launch.parts;
                let dispatch = Dispatch {
                    kernel: kernel.as_ref().expect("whoever made the launch gave its kernel"),
                    name: &launch.state.kernel,
                    workgroups: *workgroups,
                    lanes: *lanes,
                    workgroup_bytes: *workgroup_bytes,
                    parameters: &parameters.slices(),
                    by_address: *by_address,
                    hidden: *hidden,
                    token: launch.state.id.to_bits().into(),
                    hooks: &self.device.hooks,
                };
                if launch.state.has_context {
                    self.last_with_context.fetch_max(launch.state.sequence, Ordering::SeqCst);
                    let (to, id) = (self.words.context_launch(), launch.state.id.to_bits().to_le_bytes());
                    // SAFETY: the word is the stream's, which its kernels alone read: those before have ended when this is done
                    // (`words.rs`).
                    unsafe { queue.fill(to, &id, 1) }?;
                }
                // SAFETY: whoever made the launch gave the parameters that its kernel takes (`launch.rs`, `llvm`). What they
                // refer to is kept until the operation is settled: by its `InFlight`, or, of a node, by PLAN.
                running.extend(unsafe { queue.dispatch(&dispatch) }?);
                // Those that the server does not serve are ended through the stream.
                if let Some(running) = running.first().filter(|_| launch.state.is_served()) {
                    self.note_endable(launch.state.id, launch.state.sequence, running);
                }
                Ok(())
            }
            other => self.submit_other(other, running),
        }
    }

    /// Submits what is no single launch.
    #[inline(never)]
    fn submit_other(&self, operation: &Operation, running: &mut AllRunning) -> Result<(), BackendError> {
        let queue = &self.device_queue;
        match operation {
            Operation::List(listed) => {
                let Listed { list, words, launches, first, .. } = &**listed;
                let dispatch = ListDispatch {
                    list,
                    words: *words,
                    values: [first.sequence, first.id.to_bits().into()],
                    first_token: first.id.to_bits().into(),
                    hooks: &self.device.hooks,
                };
                // SAFETY: whoever made the list gave the parameters that the kernels take; what they refer to is kept by PLAN until the
                // operation is settled. The list is this stream's, and its dispatches follow each
                // other.
                running.extend(unsafe { queue.dispatch_list(&dispatch) }?);
                for ((id, sequence), running) in launches.ids().zip(first.sequence..).zip(&*running) {
                    self.note_endable(id, sequence, running);
                }
                Ok(())
            }
            Operation::Transfer(transfer) if transfer.what.bytes() == 0 => Ok(()),
            // SAFETY: the parts lie in buffers and pinned memory that are kept until the operation is settled, by its `InFlight` or,
            // of a node, by PLAN; and the device's order keeps others away.
            Operation::Transfer(transfer) => unsafe {
                match &transfer.what {
                    Transfer::Write { to, from, bytes } => {
                        queue.write(*to, from.host_address().as_ptr(), *bytes)
                    }
                    Transfer::Read { to, from, bytes } => {
                        queue.read(to.staging.host_address().as_ptr(), *from, *bytes)
                    }
                    Transfer::Copy { to, from, bytes, of: None } => queue.copy(*to, *from, *bytes),
                    Transfer::Copy { to, from, bytes, of: Some(of) } => {
                        queue.copy_from(&**of, *to, *from, *bytes)
                    }
                    Transfer::Fill { to, pattern, count } => queue.fill(*to, pattern, *count),
                }
            },
            Operation::Record(place) => {
                let _ = place.set(queue.mark()?);
                Ok(())
            }
            Operation::Launch(_)
            | Operation::HostFunction(_)
            | Operation::Step(_)
            | Operation::UnitEnd(_)
            | Operation::Wait => Ok(()),
        }
    }

    /// Notes that a launch is with a device that can end it.
    #[inline(never)]
    fn note_endable(&self, id: LaunchId, sequence: u64, running: &Arc<dyn Running>) {
        let cancelled = self.device.note_endable(id, running, &self.words, sequence);
        // Not here: it takes many locks.
        if let Some(why) = cancelled {
            let device = self.device.clone();
            self.reaper().run_soon(move || device.cancel(id, why));
        }
    }

    /// Drops the operation that is next without doing it: the stream was stopped, or the device closed or failed. Returns it if
    /// it has to wait.
    #[cold]
    fn drop_next(&self, state: &mut State, next: Waiting) -> Option<Waiting> {
        if self.dead.get().is_none() && !self.signal_before(&next.operation, state) {
            return Some(next);
        }
        let Waiting { position, before, operation } = next;
        if self.dead.get().is_none()
            && let Err(error) = self.wait_before(state, before)
        {
            self.note_error(error);
        }
        if self.device.core.closed.load(Ordering::SeqCst) {
            self.dropped_from.fetch_min(position, Ordering::SeqCst);
        }
        if let Some(launch) = operation.launch() {
            state.taken = operation.last_sequence().unwrap_or(launch.sequence);
            let failure = match self.dead.get() {
                Some(error) => LaunchFailure::Fault(error.clone().into()),
                None if self.device.core.closed.load(Ordering::SeqCst) => LaunchFailure::Cancelled,
                None => LaunchFailure::Skipped,
            };
            launch.outcome.fail(failure);
        }
        self.note_submitted(state, position);
        // What is a user's of it is dropped when it is settled, under no lock.
        state.in_flight.push_back(InFlight::new(position, operation));
        if self.dead.get().is_none() {
            let is_last = state.waiting.is_empty();
            if is_last || state.submitted - state.signalled >= SIGNAL_EVERY {
                self.signal(state);
            }
        }
        None
    }

    /// Begins the host function that is next, or skips it, once everything before it is settled. Returns it before that.
    #[inline(never)]
    fn begin_host_function(&self, state: &mut State, next: Waiting) -> Option<Waiting> {
        let position = next.position;
        if self.settled.load(Ordering::Acquire) + 1 < position {
            self.wanted.fetch_max(position - 1, Ordering::SeqCst);
            self.signal(state);
            return Some(next);
        }
        // A launch that was cancelled before its turn stops what is behind it only, and a step also itself.
        let last = next.operation.launch().map_or(state.taken, |step| step.sequence);
        if state.stops.skips(last, position) {
            return self.drop_next(state, next);
        }
        // All before it is settled.
        self.has_restarted(state, position);
        let (work, begun): (Box<dyn FnOnce() -> Result<(), Error> + Send>, _) = match next.operation {
            Operation::HostFunction(function) => {
                let work = move || {
                    function();
                    Ok(())
                };
                (Box::new(work), Operation::Wait)
            }
            Operation::Step(mut step) => {
                state.taken = step.state.sequence;
                let control = Arc::new(StepControl::new(&step.state, step.inner.take()));
                state.step = Some(control.clone());
                let run = step.run.take();
                let work = move || {
                    let outcome = run.map_or(Ok(()), |run| run(&control));
                    control.end();
                    outcome
                };
                (Box::new(work), Operation::Step(step))
            }
            _ => unreachable!("the device does the others"),
        };
        state.in_host_function = true;
        let stream = self.this.upgrade().expect("it is borrowed");
        self.reaper().run(Box::new(move || {
            let point = stream.point(position);
            let outcome = {
                let _inside = waiting::enter_host_function(&point);
                catch_unwind(AssertUnwindSafe(work))
            };
            let failed = match outcome {
                Ok(outcome) => outcome.err(),
                Err(payload) => Some(Error::HostFunction { message: message_of(payload) }),
            };
            let mut state = stream.state.lock();
            state.in_host_function = false;
            state.step = None;
            stream.note_submitted(&mut state, position);
            if let Some(error) = failed {
                if let Operation::Step(step) = &begun {
                    // The replay has its failure; what follows is skipped.
                    step.state.outcome.fail(LaunchFailure::Cancelled);
                    state.stops.add(step.state.sequence);
                }
                state.failed.get_or_insert(error);
            }
            state.in_flight.push_back(InFlight::new(position, begun));
            stream.done_by_host.fetch_max(position, Ordering::Release);
            drop(state);
            stream.progressed();
        }));
        None
    }

    /// Asks for a signal of a position, so that it is seen when it has ended. Returns whether the caller has to ask again until
    /// then.
    pub(super) fn want(&self, position: u64) -> bool {
        self.wanted.fetch_max(position, Ordering::SeqCst);
        let mut state = self.state.lock();
        self.pump(&mut state);
        if state.submitted < position {
            return true;
        }
        if state.signalled < position {
            self.signal(&mut state);
        }
        drop(state);
        self.device_queue.poll(position)
    }

    /// Notes what the device answered. After a final fault nothing that is with it goes on; what else it may be is tried
    /// again.
    pub(super) fn note_error(&self, error: BackendError) {
        if let BackendError::Fault { is_final: true, .. } = error {
            let _ = self.dead.set(error);
        }
    }
}
