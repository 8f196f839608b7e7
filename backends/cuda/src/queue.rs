//! Queues: streams of the driver, whose progress the host reads from memory.
//!
//! Each [signal](hostcall_seam::Queue::signal) records an event of the driver's at its place, which costs a tenth of a microsecond and nothing
//! between kernels. Other queues wait for that event, and the host asks for it when somebody wants to know. Who waits for
//! what was submitted last needs no call of the driver, so that such a thread never meets a lock that the driver holds for
//! somebody else: [`poll`](hostcall_seam::Queue::poll) has the GPU write the value to a number in pinned memory, which takes two microseconds
//! between kernels. (Streams that wait for such a number hold up others, which share a channel of the GPU with them.)
//!
//! The driver takes only some thousand operations a stream before it blocks, and then it blocks every stream: whoever
//! submits keeps to fewer.

use crate::device::Cuda;
use crate::driver::is_of_thread;
use crate::gpu::{Event, Handle, Stream};
use crate::list::List;
use crate::module::Function;
use crate::quiet::Busy;
use crate::{Error, Gpu};
use cudarc::driver::sys::{self, CUresult};
use hostcall_locks::Mutex;
use hostcall_seam::{
    Backend, BackendError, DeviceAddress, Dispatch, ListDispatch, Mark, Queue as _, Running,
};
use std::any::Any;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Bytes between two queues' numbers: a cache line, so that no queue's writes disturb another's reader.
const WORD_STRIDE: usize = 64;

/// For how long the driver may refuse a queue's signals. Then the GPU is given up: what waits for a signal
/// would wait forever.
const LONGEST_REFUSAL: Duration = Duration::from_secs(1);

/// How long the GPU may take for a write before which nothing is left. A queue that is dropped earlier is taken for one with
/// work.
const LONGEST_WRITE: Duration = Duration::from_millis(100);

/// Numbers in one piece of pinned memory.
const WORDS_A_SLAB: usize = 1024;

/// The numbers of a GPU's queues, in pinned memory that is free when the GPU is dropped (invariant WORDS: a number stays
/// where it is as long as the GPU lives, and belongs to one queue until that gives it back).
#[derive(Default)]
pub(crate) struct Progress {
    slabs: Vec<NonNull<u8>>,
    free: Vec<NonNull<AtomicU64>>,
}

// SAFETY: addresses of memory that belongs to no thread.
unsafe impl Send for Progress {}

impl Progress {
    fn take(&mut self, gpu: &Gpu) -> Result<NonNull<AtomicU64>, Error> {
        if let Some(word) = self.free.pop() {
            return Ok(word);
        }
        let start =
            gpu.pin_for_good(WORD_STRIDE * WORDS_A_SLAB, || "pinning memory for queues".to_string())?;
        self.slabs.push(start);
        // SAFETY: each place lies in the slab, aligned to its stride.
        self.free.extend((0..WORDS_A_SLAB).map(|at| unsafe { start.add(at * WORD_STRIDE) }.cast()));
        Ok(self.free.pop().expect("there are some now"))
    }

    /// Gives out the memory, which is to be freed; every queue is gone.
    pub fn take_slabs(&mut self) -> Vec<NonNull<u8>> {
        self.free.clear();
        std::mem::take(&mut self.slabs)
    }
}

/// A stream of the driver. The first operation makes it. Dropping it does not wait: with work that has not
/// ended, kernels count as running until the process ends, and what waits for their end is not freed any
/// more.
pub struct Queue {
    gpu: Arc<Gpu>,
    stream: OnceLock<Stream>,
    word: NonNull<AtomicU64>,
    /// The largest value that is known to be reached, by the number or by events.
    known: AtomicU64,
    /// Something was submitted after the last signal. Changes under `running`.
    dirty: AtomicBool,
    signalled: AtomicU64,
    /// The lock is taken inside any queue's `running`, and no `running` is taken inside it.
    events: Mutex<Events>,
    /// The last value that the GPU will write to the number. Changes under `running`.
    told: AtomicU64,
    running: Mutex<Work>,
    is_busy: AtomicBool,
}

#[derive(Default)]
struct Events {
    /// Values that were signalled and are not known to be reached, with their events, in the stream's order.
    signalled: VecDeque<(u64, Event)>,
    /// For later signals, which then need not take the lock of the GPU's.
    spare: Vec<Event>,
}

#[derive(Default)]
struct Work {
    /// Held while something may run.
    busy: Option<Busy>,
    /// Since when the driver refuses signals.
    refused_since: Option<Instant>,
}

// SAFETY: the word is an atomic that stays in place (WORDS).
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Gpu {
    /// Makes a queue.
    ///
    /// # Errors
    /// When there is no pinned memory left.
    pub fn queue(self: &Arc<Self>) -> Result<Queue, Error> {
        let word = self.words.lock().take(self)?;
        Ok(Queue {
            gpu: self.clone(),
            stream: OnceLock::new(),
            word,
            known: AtomicU64::new(0),
            dirty: AtomicBool::new(false),
            signalled: AtomicU64::new(0),
            events: Mutex::default(),
            told: AtomicU64::new(0),
            running: Mutex::default(),
            is_busy: AtomicBool::new(false),
        })
    }
}

impl Queue {
    fn word(&self) -> &AtomicU64 {
        // SAFETY: WORDS; the GPU writes it by whole 8-byte stores.
        unsafe { self.word.as_ref() }
    }

    fn stream(&self) -> Result<sys::CUstream, Error> {
        if let Some(stream) = self.stream.get() {
            return Ok(stream.0);
        }
        let stream = self.gpu.take_stream()?;
        match self.stream.set(stream) {
            Ok(()) => Ok(stream.0),
            Err(spare) => {
                self.gpu.give_back_stream(spare);
                Ok(self.stream.get().expect("another thread made it").0)
            }
        }
    }

    /// Calls the driver with the queue's stream, and notes that something may run.
    pub(crate) fn submit(
        &self,
        doing: impl Fn() -> String,
        operation: impl FnOnce(sys::CUstream) -> CUresult,
    ) -> Result<(), Error> {
        let stream = self.stream()?;
        let mut running = self.running.lock();
        running.busy.get_or_insert_with(Busy::new);
        self.is_busy.store(true, Ordering::Relaxed);
        self.dirty.store(true, Ordering::Relaxed);
        // Under the lock: a signal that comes between would stand for what is not submitted yet.
        let submitted = self.gpu.run(doing, || operation(stream));
        drop(running);
        submitted
    }

    /// Records the event of a signal.
    fn record(&self, events: &mut Events, value: u64) -> Result<(), Error> {
        let stream = self.stream()?;
        let event = match events.spare.pop() {
            Some(event) => event,
            None => self.gpu.take_event()?,
        };
        // SAFETY: LOADED, with an event that nobody else has and a stream of this GPU.
        match self.gpu.run(|| "signalling".into(), || unsafe { sys::cuEventRecord(event.0, stream) }) {
            Ok(()) => events.signalled.push_back((value, event)),
            Err(error) => {
                events.spare.push(event);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives the GPU up when the driver has refused signals for long.
    fn judge_refusal(&self, running: &mut Work, signalled: Result<(), Error>) -> Result<(), Error> {
        let Err(error) = signalled else {
            running.refused_since = None;
            return Ok(());
        };
        let since = *running.refused_since.get_or_insert_with(Instant::now);
        Err(if since.elapsed() > LONGEST_REFUSAL { self.gpu.fail(error) } else { error })
    }

    /// Asks the driver for the events of values that are not known to be reached, in their order.
    fn look(&self) {
        let mut events = self.events.lock();
        let mut known = self.known.load(Ordering::Acquire).max(self.word().load(Ordering::Acquire));
        while let Some((value, event)) = events.signalled.front() {
            if *value > known {
                let mut is_done = true;
                let query = || {
                    // SAFETY: LOADED, with an event of this GPU.
                    let result = unsafe { sys::cuEventQuery(event.0) };
                    is_done = result == CUresult::CUDA_SUCCESS;
                    // What failed says `check`.
                    CUresult::CUDA_SUCCESS
                };
                if self.gpu.run(|| "asking for an event".into(), query).is_err() || !is_done {
                    break;
                }
                known = *value;
            }
            let ended = events.signalled.pop_front();
            events.spare.extend(ended.map(|(_, event)| event));
        }
        self.known.fetch_max(known, Ordering::AcqRel);
    }

    /// Has the GPU write `value` to the number once it is reached, if it was signalled last and nothing was submitted since.
    /// Returns whether it will.
    fn tell(&self, value: u64) -> bool {
        let Some(stream) = self.stream.get() else { return false };
        let mut running = self.running.lock();
        let is_last = self.signalled.load(Ordering::Relaxed) == value && !self.dirty.load(Ordering::Relaxed);
        if !is_last || running.busy.is_none() {
            return false;
        }
        if self.told.load(Ordering::Relaxed) < value {
            let address = self.word.addr().get() as u64;
            // The default flag orders all earlier writes of the stream before this one.
            // SAFETY: LOADED; the word stays in place (WORDS), at the same address on host and GPU (`pin_for_good`
            // checks that).
            let write = || unsafe { sys::cuStreamWriteValue64_v2(stream.0, address, value, 0) };
            let told = self.gpu.run(|| "signalling".into(), write);
            if self.judge_refusal(&mut running, told).is_err() {
                return false;
            }
            self.told.store(value, Ordering::Release);
        }
        true
    }

    /// Returns whether the GPU has written what it was told to. All before that has ended, so that it comes at once.
    fn has_written(&self) -> bool {
        let (begin, told) = (Instant::now(), self.told.load(Ordering::Relaxed));
        while self.word().load(Ordering::Acquire) < told {
            if begin.elapsed() > LONGEST_WRITE {
                return false;
            }
            std::hint::spin_loop();
        }
        true
    }

    /// Notes that nothing runs any more, if that is so.
    fn note_idle(&self) {
        let mut running = self.running.lock();
        let signalled = self.signalled.load(Ordering::Relaxed);
        let known = self.known.load(Ordering::Acquire);
        if !self.dirty.load(Ordering::Relaxed) && known == signalled && self.has_written() {
            self.is_busy.store(false, Ordering::Relaxed);
            let ended = running.busy.take();
            let mut events = self.events.lock();
            let Events { signalled, spare } = &mut *events;
            spare.extend(signalled.drain(..).map(|(_, event)| event));
            drop(events);
            drop(running);
            // May free what waited for the end of all kernels.
            drop(ended);
        }
    }
}

// SAFETY: 1. a stream of the driver does one thing after the other by itself; 2. numbers are written and events
// recorded in the stream's order, after all earlier writes; 3. after a failure the driver runs nothing, and `check` asks it.
unsafe impl hostcall_seam::Queue for Queue {
    unsafe fn dispatch(&self, dispatch: &Dispatch<'_>) -> Result<Option<Arc<dyn Running>>, BackendError> {
        let function = Function::of(dispatch.kernel, &self.gpu)?;
        let Dispatch { workgroups, lanes, workgroup_bytes, parameters, .. } = *dispatch;
        // The driver copies from here as many bytes as the kernel's parameter has, which is no more: see `Dispatch`.
        let address = |parameter: &&[u8]| parameter.as_ptr().cast_mut().cast::<c_void>();
        let (mut few, mut many) = ([std::ptr::null_mut(); 4], Vec::new());
        let addresses = if parameters.len() <= few.len() {
            few.iter_mut().zip(parameters).for_each(|(place, parameter)| *place = address(parameter));
            &mut few[..]
        } else {
            many.extend(parameters.iter().map(address));
            &mut many
        };
        let ([x, y, z], [across, down, deep]) = (lanes, workgroups);
        let (arguments, extra) = (addresses.as_mut_ptr(), std::ptr::null_mut());
        let doing = || "launching the kernel".to_string();
        // SAFETY: LOADED; the caller vouches for the arguments, and whoever submits keeps the kernel until it has ended
        // (USERS-KEEP).
        self.submit(doing, |stream| unsafe {
            sys::cuLaunchKernel(
                function.handle(),
                across,
                down,
                deep,
                x,
                y,
                z,
                workgroup_bytes,
                stream,
                arguments,
                extra,
            )
        })?;
        Ok(None)
    }

    unsafe fn dispatch_list(
        &self,
        dispatch: &ListDispatch<'_>,
    ) -> Result<Vec<Arc<dyn Running>>, BackendError> {
        let list: &dyn Any = &**dispatch.list;
        match list.downcast_ref::<List>() {
            Some(list) if Arc::ptr_eq(list.gpu(), &self.gpu) => {
                // SAFETY: by the caller's promise; whoever submits keeps the list until its kernels have ended (USERS-KEEP).
                unsafe { self.launch_list(list, dispatch.words.get(), dispatch.values) }?;
                Ok(Vec::new())
            }
            _ => Err(BackendError::Refused("the list is another device's".into())),
        }
    }

    unsafe fn write(&self, to: DeviceAddress, from: *const u8, bytes: usize) -> Result<(), BackendError> {
        let doing = || format!("copying {bytes} bytes to the GPU");
        // SAFETY: LOADED; the caller vouches for both sides.
        let copy = |stream| unsafe { sys::cuMemcpyHtoDAsync_v2(to.get(), from.cast(), bytes, stream) };
        Ok(self.submit(doing, copy)?)
    }

    unsafe fn read(&self, to: *mut u8, from: DeviceAddress, bytes: usize) -> Result<(), BackendError> {
        let doing = || format!("copying {bytes} bytes from the GPU");
        // SAFETY: LOADED; the caller vouches for both sides.
        let copy = |stream| unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from.get(), bytes, stream) };
        Ok(self.submit(doing, copy)?)
    }

    unsafe fn copy(&self, to: DeviceAddress, from: DeviceAddress, bytes: usize) -> Result<(), BackendError> {
        let doing = || format!("copying {bytes} bytes on the GPU");
        // SAFETY: LOADED; the caller vouches for both sides.
        let copy = |stream| unsafe { sys::cuMemcpyDtoDAsync_v2(to.get(), from.get(), bytes, stream) };
        Ok(self.submit(doing, copy)?)
    }

    unsafe fn copy_from(
        &self,
        device: &dyn Backend,
        to: DeviceAddress,
        from: DeviceAddress,
        bytes: usize,
    ) -> Result<(), BackendError> {
        let device: &dyn Any = device;
        let Some(Cuda { gpu, .. }) = device.downcast_ref() else {
            return Err(BackendError::Refused("it is no device of the driver's".into()));
        };
        let doing = || format!("copying {bytes} bytes from another GPU");
        let (own, other) = (self.gpu.context(), gpu.context());
        let (to, from) = (to.get(), from.get());
        // SAFETY: LOADED, with contexts that both GPUs retain; the caller vouches for both sides.
        let copy = |stream| unsafe { sys::cuMemcpyPeerAsync(to, own, from, other, bytes, stream) };
        Ok(self.submit(doing, copy)?)
    }

    unsafe fn fill(&self, to: DeviceAddress, pattern: &[u8], count: usize) -> Result<(), BackendError> {
        let (to, doing) = (to.get(), || format!("filling {} bytes on the GPU", pattern.len() * count));
        // SAFETY: LOADED; the caller vouches for the target.
        let fill = |stream| unsafe {
            match *pattern {
                [a] => sys::cuMemsetD8Async(to, a, count, stream),
                [a, b] => sys::cuMemsetD16Async(to, u16::from_le_bytes([a, b]), count, stream),
                [a, b, c, d] => sys::cuMemsetD32Async(to, u32::from_le_bytes([a, b, c, d]), count, stream),
                _ => CUresult::CUDA_ERROR_INVALID_VALUE,
            }
        };
        Ok(self.submit(doing, fill)?)
    }

    /// The GPU is given up when the driver goes on refusing for a second.
    fn signal(&self, value: u64) -> Result<(), BackendError> {
        // Under the lock, so that the last signal is the one that covers everything.
        let mut running = self.running.lock();
        let mut events = self.events.lock();
        running.busy.get_or_insert_with(Busy::new);
        self.is_busy.store(true, Ordering::Relaxed);
        let recorded = self.record(&mut events, value);
        self.judge_refusal(&mut running, recorded)?;
        self.signalled.store(value, Ordering::Relaxed);
        self.dirty.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn completed(&self) -> u64 {
        let known = self.known.load(Ordering::Acquire);
        if known == self.signalled.load(Ordering::Relaxed) && !self.is_busy.load(Ordering::Relaxed) {
            return known;
        }
        let value = self.word().load(Ordering::Acquire);
        let known =
            if value > known { self.known.fetch_max(value, Ordering::AcqRel).max(value) } else { known };
        // What was submitted after the last signal may run for long.
        let is_all = known == self.signalled.load(Ordering::Relaxed) && !self.dirty.load(Ordering::Relaxed);
        if is_all && self.is_busy.load(Ordering::Relaxed) {
            self.note_idle();
        }
        known
    }

    /// No more looks are needed when the GPU will write the value, which it is told to if nothing lies behind that signal.
    fn poll(&self, value: u64) -> bool {
        if self.told.load(Ordering::Acquire) == value {
            return false;
        }
        self.look();
        self.completed() < value && !self.tell(value)
    }

    fn calls_progress(&self) -> bool {
        false
    }

    /// Whatever else than "ready" or "not ready" the driver says of the stream, it will say again, so that the GPU is given
    /// up.
    fn check(&self) -> Result<(), BackendError> {
        let Some(stream) = self.stream.get() else { return Ok(()) };
        let mut is_final = false;
        let asked = self.gpu.run(
            || "running the kernel".into(),
            || {
                // SAFETY: LOADED, with the queue's stream.
                match unsafe { sys::cuStreamQuery(stream.0) } {
                    CUresult::CUDA_ERROR_NOT_READY => CUresult::CUDA_SUCCESS,
                    result => {
                        is_final = !is_of_thread(result);
                        result
                    }
                }
            },
        );
        Ok(asked.map_err(|error| if is_final { self.gpu.fail(error) } else { error })?)
    }

    fn mark(&self) -> Result<Arc<dyn Mark>, BackendError> {
        let mut event = std::ptr::null_mut();
        let (doing, flags) = (|| "making an event".to_string(), sys::CUevent_flags::CU_EVENT_DEFAULT as u32);
        // SAFETY: LOADED; the result lives through the call.
        self.gpu.run(doing, || unsafe { sys::cuEventCreate(&mut event, flags) })?;
        let mark = TimedEvent { gpu: self.gpu.clone(), event: Handle(event) };
        // SAFETY: LOADED, with an event and a stream of this GPU.
        self.submit(|| "recording an event".into(), |stream| unsafe { sys::cuEventRecord(event, stream) })?;
        Ok(Arc::new(mark))
    }

    fn can_wait(&self) -> bool {
        true
    }

    fn wait(&self, other: &dyn hostcall_seam::Queue, value: u64) -> Result<(), BackendError> {
        let other: &dyn Any = other;
        let other = other.downcast_ref::<Self>().filter(|other| Arc::ptr_eq(&self.gpu, &other.gpu));
        let other = other.ok_or_else(|| BackendError::Refused("the queue is another device's".into()))?;
        let doing = || "waiting for another stream".to_string();
        let wait = |stream| {
            // Under the lock: the event is the signal's until it is taken off the list, once that is reached. Not a later one:
            // what lies between the two may never end.
            let events = other.events.lock();
            match events.signalled.iter().find(|(signalled, _)| *signalled == value) {
                // SAFETY: LOADED, with an event and a stream of this GPU.
                Some((_, event)) => unsafe { sys::cuStreamWaitEvent(stream, event.0, 0) },
                None => CUresult::CUDA_SUCCESS,
            }
        };
        Ok(self.submit(doing, wait)?)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.look();
        self.completed();
        let is_running = self.is_busy.load(Ordering::Relaxed);
        let Events { signalled, spare } = std::mem::take(&mut *self.events.lock());
        self.gpu.give_back_events(signalled.into_iter().map(|(_, event)| event).chain(spare));
        let Some(stream) = self.stream.take() else {
            self.gpu.words.lock().free.push(self.word);
            return;
        };
        if is_running {
            // The driver destroys it once its work has ended. The word is lost, since the GPU may write it yet.
            // SAFETY: LOADED; made by this queue, which uses it no more.
            self.gpu.release(|| unsafe { sys::cuStreamDestroy_v2(stream.0) });
            // Nobody learns when that is, so that kernels count as running from now on: else what is freed
            // next would wait for them. After a fault none runs.
            if !self.gpu.has_failed() {
                std::mem::forget(self.running.lock().busy.take());
            }
        } else {
            self.word().store(0, Ordering::Relaxed);
            self.gpu.words.lock().free.push(self.word);
            self.gpu.give_back_stream(stream);
        }
    }
}

/// A point in a queue whose time is taken.
struct TimedEvent {
    gpu: Arc<Gpu>,
    event: Handle<sys::CUevent_st>,
}

impl TimedEvent {
    fn is_done(&self) -> Result<bool, Error> {
        let mut done = true;
        self.gpu.run(
            || "asking for an event".into(),
            || {
                // SAFETY: LOADED, with an event of this GPU.
                match unsafe { sys::cuEventQuery(self.event.0) } {
                    CUresult::CUDA_ERROR_NOT_READY => {
                        done = false;
                        CUresult::CUDA_SUCCESS
                    }
                    result => result,
                }
            },
        )?;
        Ok(done)
    }
}

impl Mark for TimedEvent {
    /// The clock ticks every half microsecond.
    fn elapsed_ns_since(&self, earlier: &dyn Mark) -> Result<Option<u64>, BackendError> {
        let Some(earlier) = (earlier as &dyn Any).downcast_ref::<Self>() else { return Ok(None) };
        if !Arc::ptr_eq(&self.gpu, &earlier.gpu) || !earlier.is_done()? || !self.is_done()? {
            return Ok(None);
        }
        let mut milliseconds = 0.0f32;
        type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> CUresult;
        // The symbol that every driver has; the bindings know the name of the newest only.
        // SAFETY: LOADED, and the function has this type in every version.
        let elapsed = unsafe { sys::culib().get::<ElapsedTime>(b"cuEventElapsedTime") }
            .expect("`Driver::load` found it");
        let (doing, from, to) = (|| "measuring time".to_string(), earlier.event.0, self.event.0);
        // SAFETY: LOADED, with events of this GPU that have happened; the result lives through the call.
        self.gpu.run(doing, || unsafe { elapsed(&mut milliseconds, from, to) })?;
        Ok(Some((f64::from(milliseconds.max(0.0)) * 1e6) as u64))
    }
}

impl Drop for TimedEvent {
    fn drop(&mut self) {
        // SAFETY: LOADED; made by a queue. The driver keeps it until it was recorded.
        self.gpu.release(|| unsafe { sys::cuEventDestroy_v2(self.event.0) });
    }
}
