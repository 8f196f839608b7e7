//! An in-order queue of the software device. It has no thread: each operation's end begins the next, on the executor's
//! thread that ended it, or on the one that submits when nothing runs.

use crate::list::{Checked, CpuList};
use crate::memory::{self, pointer};
use crate::{Executor, Launch, LaunchError, LaunchHandle};
use hostcall_abi::launch::{LaunchId, LaunchParams};
use hostcall_locks::Mutex;
use hostcall_seam::{
    BackendError, DeviceAddress, DeviceFault, DeviceFaultKind, Dispatch, DispatchFailure, DispatchOutcome,
    ListDispatch, Mark, Queue, Running,
};
use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// An operation that has not begun.
pub(crate) enum Operation {
    Launch(Box<Launch>, Arc<CpuRunning>),
    /// Copies and fills: runs at once, on the thread that gets to it.
    Copy(Box<dyn FnOnce() + Send>),
    Signal(u64),
    Mark(Arc<CpuMark>),
    /// Waits until another queue has completed this value.
    Wait(Arc<SharedQueue>, u64),
}

#[derive(Default)]
struct State {
    operations: VecDeque<Operation>,
    /// A kernel runs, a signal of another queue is waited for, or a thread is at the operations.
    busy: bool,
}

pub(crate) struct SharedQueue {
    executor: Arc<Executor>,
    state: Mutex<State>,
    completed: AtomicU64,
    /// Queues that go on when `completed` has come to this value.
    dependents: Mutex<Vec<(u64, Arc<SharedQueue>)>>,
    progress: Arc<dyn Fn() + Send + Sync>,
}

pub(crate) struct CpuQueue(Arc<SharedQueue>);

impl CpuQueue {
    pub fn new(executor: Arc<Executor>, progress: Arc<dyn Fn() + Send + Sync>) -> Self {
        let (state, completed, dependents) = Default::default();
        Self(Arc::new(SharedQueue { executor, state, completed, dependents, progress }))
    }

    /// Submits a copy between memory of the device and of the host, which are one here.
    fn submit_copy(
        &self,
        to: *mut u8,
        from: *const u8,
        copy: impl FnOnce(*mut u8, *const u8) + Send + 'static,
    ) -> Result<(), BackendError> {
        let (to, from) = (SendPointer(to), SendPointer(from.cast_mut()));
        self.submit([Operation::Copy(Box::new(move || {
            let (to, from) = ({ to }, { from });
            copy(to.0, from.0);
        }))]);
        Ok(())
    }

    fn submit(&self, operations: impl IntoIterator<Item = Operation>) {
        let mut state = self.0.state.lock();
        state.operations.extend(operations);
        if !state.busy {
            state.busy = true;
            drop(state);
            SharedQueue::work(self.0.clone());
        }
    }
}

impl SharedQueue {
    /// Does the queue's operations until one takes longer or none is left. The caller has set `busy`.
    ///
    /// An operation may let another queue go on, whose operations may let a third, and so on: a thread that is at a
    /// queue's operations comes to those queues afterwards, so that its stack does not grow with their number.
    fn work(this: Arc<Self>) {
        thread_local! {
            /// Queues that go on when the thread has done what it is at; `None` while it is at nothing.
            static NEXT: RefCell<Option<VecDeque<Arc<SharedQueue>>>> = const { RefCell::new(None) };
        }
        let mut queue = Some(this);
        let begin = |next: &RefCell<Option<VecDeque<_>>>| match &mut *next.borrow_mut() {
            Some(next) => next.extend(queue.take()),
            next @ None => *next = Some(VecDeque::new()),
        };
        // A thread that is at its end has no such list any more; what it lets go on, it does one within the other.
        let _ = NEXT.try_with(begin);
        while let Some(this) = queue {
            this.work_off();
            let next = NEXT.try_with(|next| {
                let mut next = next.borrow_mut();
                let queue = next.as_mut().and_then(VecDeque::pop_front);
                if queue.is_none() {
                    *next = None;
                }
                queue
            });
            queue = next.ok().flatten();
        }
    }

    /// Tells that everything before the signal of this value has ended.
    fn complete(&self, value: u64) {
        let ready: Vec<_> = {
            let mut dependents = self.dependents.lock();
            self.completed.store(value, Ordering::Release);
            dependents.extract_if(.., |(wanted, _)| *wanted <= value).collect()
        };
        ready.into_iter().for_each(|(_, queue)| SharedQueue::work(queue));
        (self.progress)();
    }

    /// Returns whether the queue has completed this value; otherwise `dependent` goes on when it has.
    fn has_completed(&self, value: u64, dependent: &Arc<SharedQueue>) -> bool {
        let mut dependents = self.dependents.lock();
        if self.completed.load(Ordering::Acquire) >= value {
            return true;
        }
        dependents.push((value, dependent.clone()));
        false
    }

    /// Does the queue's operations, as [`SharedQueue::work`] says.
    fn work_off(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            let Some(operation) = state.operations.pop_front() else {
                state.busy = false;
                return;
            };
            drop(state);
            match operation {
                Operation::Copy(copy) => copy(),
                Operation::Signal(value) => self.complete(value),
                Operation::Mark(mark) => _ = mark.0.set(Instant::now()),
                Operation::Wait(other, value) => {
                    if !other.has_completed(value, self) {
                        return;
                    }
                }
                Operation::Launch(launch, running) => {
                    if running.is_skipped() {
                        running.end(DispatchOutcome::default());
                        continue;
                    }
                    let next = self.clone();
                    // SAFETY: whoever dispatched vouches for entry, parameters and arguments (`Queue::dispatch`).
                    match unsafe { self.executor.launch(*launch) } {
                        Err(error) => running
                            .end(DispatchOutcome { failure: Some(failure(error)), ..Default::default() }),
                        Ok(handle) => {
                            running.begin(handle.clone());
                            let done = handle.clone();
                            handle.on_done(move |result| {
                                let forced_lanes = match result {
                                    Ok(report) if report.exited_lanes == 0 => 0,
                                    _ => done.forced_lanes(),
                                };
                                let failure = result.clone().err().map(failure);
                                running.end(DispatchOutcome { failure, forced_lanes });
                                SharedQueue::work(next);
                            });
                            return;
                        }
                    }
                }
            }
        }
    }
}

fn failure(error: LaunchError) -> DispatchFailure {
    match error {
        LaunchError::Panicked { lanes } => DispatchFailure::Panicked { lanes },
        LaunchError::Cancelled => DispatchFailure::Cancelled,
        other => {
            let kind = match other {
                LaunchError::StackOverflow { .. } => DeviceFaultKind::StackOverflow,
                LaunchError::Fault { signal: libc::SIGFPE, .. } => DeviceFaultKind::Arithmetic,
                LaunchError::Fault { signal: libc::SIGILL, .. } => DeviceFaultKind::Instruction,
                LaunchError::Fault { .. } => DeviceFaultKind::Memory,
                _ => DeviceFaultKind::Device,
            };
            DispatchFailure::Fault(DeviceFault { kind, reason: other.to_string() })
        }
    }
}

/// A dispatch in the queue or on the executor.
pub(crate) struct CpuRunning {
    /// [`WAITS`], [`BEGUN`] or [`CANCELLED`]. Whoever begins the dispatch and whoever cancels it both exchange this one word, so that
    /// the second of them sees the first one's value, and what was done before it: one of them cancels the launch.
    step: AtomicU8,
    /// Set before `step` becomes [`BEGUN`].
    handle: OnceLock<LaunchHandle>,
    outcome: OnceLock<DispatchOutcome>,
    /// Whether a kernel of its list has failed.
    list: Option<Arc<AtomicBool>>,
}

const WAITS: u8 = 0;
const BEGUN: u8 = 1;
const CANCELLED: u8 = 2;

impl CpuRunning {
    pub fn new(list: Option<Arc<AtomicBool>>) -> Self {
        Self { step: AtomicU8::new(WAITS), handle: OnceLock::new(), outcome: OnceLock::new(), list }
    }

    /// Notes that it has begun, and cancels it if it was cancelled before.
    fn begin(&self, handle: LaunchHandle) {
        let handle = self.handle.get_or_init(|| handle);
        if self.step.swap(BEGUN, Ordering::AcqRel) == CANCELLED {
            handle.cancel();
        }
    }

    fn end(&self, outcome: DispatchOutcome) {
        if let Some(has_failed) = &self.list
            && outcome.failure.is_some()
        {
            has_failed.store(true, Ordering::Relaxed);
        }
        let _ = self.outcome.set(outcome);
    }

    /// Says whether it need not be launched, since a kernel before it in its list has failed. It might wait for the slots of
    /// waves that were ended in the middle, which are restored only when the whole list has ended.
    fn is_skipped(&self) -> bool {
        self.list.as_ref().is_some_and(|has_failed| has_failed.load(Ordering::Relaxed))
    }
}

impl Running for CpuRunning {
    fn cancel(&self) {
        if self.step.swap(CANCELLED, Ordering::AcqRel) == BEGUN {
            self.handle.get().expect("it has begun").cancel();
        }
    }

    fn outcome(&self) -> Option<DispatchOutcome> {
        self.outcome.get().cloned()
    }

    fn take_lost_slots(&self) -> Vec<u32> {
        self.handle.get().map(LaunchHandle::take_abandoned_slots).unwrap_or_default()
    }

    fn restore_slots(&self, homes: &[u32]) {
        if let Some(handle) = self.handle.get() {
            handle.restore_slots(homes);
        }
    }
}

/// When a queue came to a mark.
pub(crate) struct CpuMark(OnceLock<Instant>);

impl Mark for CpuMark {
    fn elapsed_ns_since(&self, earlier: &dyn Mark) -> Result<Option<u64>, BackendError> {
        let earlier = (earlier as &dyn Any).downcast_ref::<Self>().and_then(|earlier| earlier.0.get());
        let (Some(from), Some(to)) = (earlier, self.0.get()) else { return Ok(None) };
        Ok(Some(to.saturating_duration_since(*from).as_nanos() as u64))
    }
}

/// A pointer that an operation takes to the thread that does it.
struct SendPointer(*mut u8);

// SAFETY: whoever submits the operation vouches that the memory is there and the operation's until it has ended.
unsafe impl Send for SendPointer {}

// SAFETY: 1. one operation at a time is worked on (`busy`), and the next begins after the lock or the callback that ended
// it, which order memory; 2. `completed` is stored with release order after all before it; 3. operations cannot fail but
// by their outcome.
unsafe impl Queue for CpuQueue {
    unsafe fn dispatch(&self, dispatch: &Dispatch<'_>) -> Result<Option<Arc<dyn Running>>, BackendError> {
        let (launch, running) = Checked::new(dispatch)?.launch(dispatch.token, dispatch.hooks, None);
        self.submit([launch]);
        Ok(Some(running))
    }

    unsafe fn dispatch_list(
        &self,
        dispatch: &ListDispatch<'_>,
    ) -> Result<Vec<Arc<dyn Running>>, BackendError> {
        let list: &dyn Any = &**dispatch.list;
        let Some(CpuList(kernels)) = list.downcast_ref::<CpuList>() else {
            return Err(BackendError::Refused("the list is another device's".into()));
        };
        let [sequence, launch] = dispatch.values;
        let has_failed = Arc::new(AtomicBool::new(false));
        let launches = kernels.iter().zip(dispatch.first_token..).map(|(kernel, token)| {
            let mut kernel = kernel.clone();
            let LaunchParams { sequence: place, launch: id, .. } = kernel.params;
            kernel.params.sequence = place + sequence;
            kernel.params.launch = LaunchId::from_bits(id.to_bits() + launch as u32);
            kernel.params.list = 0;
            kernel.launch(token, dispatch.hooks, Some(has_failed.clone()))
        });
        let (operations, running): (Vec<_>, Vec<_>) = launches.unzip();
        self.submit(operations);
        Ok(running)
    }

    unsafe fn write(&self, to: DeviceAddress, from: *const u8, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        self.submit_copy(pointer(to), from, move |to, from| unsafe {
            std::ptr::copy_nonoverlapping(from, to, bytes);
        })
    }

    unsafe fn read(&self, to: *mut u8, from: DeviceAddress, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        self.submit_copy(to, pointer(from), move |to, from| unsafe {
            std::ptr::copy_nonoverlapping(from, to, bytes);
        })
    }

    unsafe fn read_words(&self, to: *mut u8, from: DeviceAddress, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        self.submit_copy(to, pointer(from), move |to, from| unsafe { memory::copy_words(to, from, bytes) })
    }

    unsafe fn write_words(
        &self,
        to: DeviceAddress,
        from: *const u8,
        bytes: usize,
    ) -> Result<(), BackendError> {
        self.submit_copy(pointer(to), from, move |to, from| {
            // For who sees a word.
            fence(Ordering::Release);
            // SAFETY: by the caller's promise.
            unsafe { memory::copy_words(to, from, bytes) }
        })
    }

    unsafe fn copy(&self, to: DeviceAddress, from: DeviceAddress, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        unsafe { self.write(to, pointer(from), bytes) }
    }

    unsafe fn fill(&self, to: DeviceAddress, pattern: &[u8], count: usize) -> Result<(), BackendError> {
        let to = SendPointer(pointer(to));
        let pattern = pattern.to_vec();
        self.submit([Operation::Copy(Box::new(move || {
            let to = { to };
            for index in 0..count {
                // SAFETY: by the caller's promise there is room for the pattern `count` times.
                unsafe {
                    let at = to.0.add(index * pattern.len());
                    std::ptr::copy_nonoverlapping(pattern.as_ptr(), at, pattern.len());
                }
            }
        }))]);
        Ok(())
    }

    fn signal(&self, value: u64) -> Result<(), BackendError> {
        self.submit([Operation::Signal(value)]);
        Ok(())
    }

    fn completed(&self) -> u64 {
        self.0.completed.load(Ordering::Acquire)
    }

    fn calls_progress(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn mark(&self) -> Result<Arc<dyn Mark>, BackendError> {
        let mark = Arc::new(CpuMark(OnceLock::new()));
        self.submit([Operation::Mark(mark.clone())]);
        Ok(mark)
    }

    fn can_wait(&self) -> bool {
        true
    }

    fn wait(&self, other: &dyn Queue, value: u64) -> Result<(), BackendError> {
        let other: &dyn Any = other;
        let other = other
            .downcast_ref::<Self>()
            .ok_or_else(|| BackendError::Refused("the queue is another device's".into()))?;
        self.submit([Operation::Wait(other.0.clone(), value)]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use hostcall_abi::cpu::{CpuLane, ENTRY_DONE};

    /// Whoever comes second, the one that begins a launch or the one that cancels it, ends it.
    #[test]
    fn a_launch_that_is_cancelled_as_it_begins_ends() {
        unsafe extern "C" fn spin(lane: *mut CpuLane, _: *const u8) -> u32 {
            // SAFETY: the executor's lane, whose flag lives as long.
            while !unsafe { &*(*lane).cancelled }.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            ENTRY_DONE
        }
        let executor = Arc::new(Executor::new(Config { threads: 1, ..Config::default() }).unwrap());
        let rounds = if cfg!(miri) { 1 } else { 300 };
        for _ in 0..rounds {
            let launch = Launch {
                entry: spin,
                arguments: Vec::new(),
                params: LaunchParams { workgroups: [1; 3], workgroup_size: [1; 3], ..Default::default() },
                keep_alive: Box::new(()),
                notify: Arc::new(|| ()),
                on_failure: Arc::new(|| ()),
            };
            let (running, queue) =
                (Arc::new(CpuRunning::new(None)), CpuQueue::new(executor.clone(), Arc::new(|| {})));
            let begin = Operation::Launch(Box::new(launch), running.clone());
            std::thread::scope(|scope| {
                scope.spawn(|| running.cancel());
                queue.submit([begin]);
            });
            queue.signal(1).unwrap();
            while queue.completed() == 0 {
                std::thread::yield_now();
            }
            let failure = running.outcome().unwrap().failure;
            assert_eq!(failure, Some(DispatchFailure::Cancelled));
        }
    }

    /// Each of many queues waits for the one before; they go on after each other when the first has completed its value.
    #[test]
    fn a_chain_of_queues_needs_no_deep_stack() {
        const QUEUES: u64 = 50_000;
        let executor = Arc::new(Executor::new(Config { threads: 1, ..Config::default() }).unwrap());
        let queue = || CpuQueue::new(executor.clone(), Arc::new(|| {}));
        let first = queue();
        let mut queues: Vec<CpuQueue> = Vec::new();
        for _ in 0..QUEUES {
            let next = queue();
            next.wait(queues.last().unwrap_or(&first), 1).unwrap();
            next.signal(1).unwrap();
            queues.push(next);
        }
        assert!(queues.iter().all(|queue| queue.completed() == 0));
        first.signal(1).unwrap();
        assert!(queues.iter().all(|queue| queue.completed() == 1));
    }

    /// What another queue waits for is one signal of it, and not what follows that.
    #[test]
    fn a_queue_waits_for_a_signal_alone() {
        let executor = Arc::new(Executor::new(Config { threads: 1, ..Config::default() }).unwrap());
        let [first, second, third] = [(); 3].map(|()| CpuQueue::new(executor.clone(), Arc::new(|| {})));
        second.signal(1).unwrap();
        second.wait(&first, 1).unwrap();
        second.signal(2).unwrap();
        third.wait(&second, 1).unwrap();
        third.signal(1).unwrap();
        third.wait(&second, 2).unwrap();
        third.signal(2).unwrap();
        assert_eq!((second.completed(), third.completed()), (1, 1));
        first.signal(1).unwrap();
        assert_eq!((second.completed(), third.completed()), (2, 2));
    }
}
