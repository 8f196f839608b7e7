//! Devices and contexts, as `hostcall/_device.py` uses them. Whatever waits gives the GIL up.

use crate::channel::RawChannel;
use crate::errors::Errors;
use crate::handling::{ContextOf, Handling, PlaceOf};
use crate::kernels::{RawBuffer, RawCode};
use crate::posts::RawPostQueue;
use crate::queue::Queue;
use crate::released::DropsFree;
use crate::service::{Described, Registered, Served};
use crate::trace::{RawPointRecording, RawTracer};
use crate::{interpreter, watch, xla};
use hostcall::server::{Handler, LaunchId, RegisterError, Waiting, WaitsFor};
use hostcall::services::{Builtins, Sink, Stream};
use hostcall::{CallError, Context, Device, Fence};
use hostcall_locks::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// How long closing waits for a function that runs.
const LONGEST_END: Duration = Duration::from_secs(5);

pub fn failed(error: impl Display) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// The process in which something was made. A child that `fork` makes has its memory, and neither its threads nor the locks that
/// these have: to be asked before a lock is taken.
#[derive(Clone)]
pub struct Process {
    id: u32,
    device: String,
}

impl Process {
    pub fn this(device: &str) -> Self {
        Self { id: std::process::id(), device: device.into() }
    }

    pub fn is_this(&self) -> bool {
        self.id == std::process::id()
    }

    pub fn check(&self) -> PyResult<()> {
        let forked = || failed(hostcall::Error::Forked { device: self.device.clone() });
        if self.is_this() { Ok(()) } else { Err(forked()) }
    }
}

pub fn limit(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let refused = |_| PyValueError::new_err("a timeout is a number of seconds above 0, or None for no limit");
    seconds
        .map(|seconds| Duration::try_from_secs_f64(seconds).map_err(refused))
        .transpose()?
        .map(|limit| {
            if limit.is_zero() { Err(PyValueError::new_err("a timeout is more than 0 s")) } else { Ok(limit) }
        })
        .transpose()
}

/// Refuses a wait for kernels on the thread that calls their functions.
pub fn refuse_wait(interpreter: ThreadId) -> PyResult<()> {
    if thread::current().id() != interpreter {
        return Ok(());
    }
    let what = "a function that kernels call waits for such functions: wait on another thread, or let the kernel's launcher do it";
    Err(PyRuntimeError::new_err(what))
}

/// Statistics as (name, number).
type Numbers = Vec<(&'static str, u64)>;
/// Exceptions, how many lanes got no result for such, failed checks, and what was lost.
type Taken = (Vec<Py<PyAny>>, u64, Vec<Check>, Vec<Lost>);
/// What waits: service, kernel, block, wave, lanes, seconds, all of it as a sentence, and what is polled: address, peer and number.
type Waits =
    (String, String, Option<(u32, u32, u32)>, Option<u32>, u32, f64, String, Option<(u64, Option<u32>, u64)>);
/// Calls and posts that reached no function, or got no answer: why (`timed out`, `busy`, `no service`, `types`), the number, the
/// method's name where it has one, how many calls and posts.
pub type Lost = (&'static str, u16, String, u64, u64);
/// A failed check: condition, file, line, block, thread, lane, count.
type Check = (String, String, u32, [u32; 3], [u32; 3], u8, u64);

/// Gives a function of Python's what kernels printed. What it raises is told with the device's.
fn print(output: &Py<PyAny>, errors: &Errors, stream: Stream, text: &[u8]) {
    // Where no interpreter runs any more nobody reads it.
    Python::try_attach(|py| {
        if let Err(error) = output.call1(py, (stream == Stream::Stderr, PyBytes::new(py, text))) {
            errors.keep(LaunchId::NONE, error, 1);
        }
    });
}

#[pyclass(frozen)]
pub struct RawDevice {
    name: String,
    device: Mutex<Option<DropsFree<Device>>>,
    queue: Arc<Queue>,
    handling: Arc<Handling>,
    /// What writes to an output of Python's.
    sink: Option<DropsFree<Sink>>,
    interpreter: ThreadId,
    /// That which opened it.
    process: Process,
}

#[pymethods]
impl RawDevice {
    /// `dump` is the signal at which the stacks of Python's threads are printed. `output` gets what kernels print: whether it is
    /// of the standard error, and the bytes. `tracer` writes what they call into a file.
    #[new]
    fn new(
        py: Python<'_>,
        name: &str,
        refuse: Py<PyAny>,
        submit: Py<PyAny>,
        dump: i32,
        output: Option<Py<PyAny>>,
        tracer: Option<PyRef<'_, RawTracer>>,
    ) -> PyResult<Self> {
        let errors = Arc::<Errors>::default();
        let prints = errors.clone();
        let sink =
            output.map(|output| Sink::callback(move |stream, text| print(&output, &prints, stream, text)));
        let tracer = tracer.map(|tracer| tracer.tracer.clone());
        let device = py.detach(|| {
            let mut builder = Device::builder(name);
            if let Some(sink) = sink.clone() {
                let builtins = Builtins::builder().output(sink).build().map_err(hostcall::Error::Builtins)?;
                builder = builder.builtins(builtins);
            }
            if let Some(tracer) = &tracer {
                builder = builder.trace(tracer);
            }
            builder.open()
        });
        let device = device.map_err(failed)?;
        let place_of: PlaceOf = Arc::new(device.server().knows_place());
        let knows_context = device.server().knows_context();
        let context_of: ContextOf = Arc::new(move |launch| knows_context(launch).0);
        let handling = Handling { errors, place_of, context_of: context_of.clone(), refuse, submit };
        let (handling, queue) = (Arc::new(handling), Arc::new(Queue::new(context_of)));
        let thread = interpreter::start(queue.clone(), handling.clone())?;
        let interpreter = thread.thread().id();
        let this = Self {
            name: name.into(),
            device: Mutex::new(Some(DropsFree::new(device))),
            queue,
            handling,
            sink: sink.map(DropsFree::new),
            interpreter,
            process: Process::this(name),
        };
        // SAFETY: `faulthandler` handles the signal, on this thread, and uses nothing that a thread may hold.
        let dump = move || unsafe {
            libc::raise(dump);
        };
        watch::start(this.queue.clone(), this.name.clone(), dump)?;
        Ok(this)
    }

    /// Records trace points into a tracer's file from now on.
    fn record_points(
        &self,
        py: Python<'_>,
        tracer: PyRef<'_, RawTracer>,
        points: Vec<String>,
        kernels: Vec<String>,
    ) -> PyResult<RawPointRecording> {
        let (device, tracer) = (self.device()?, tracer.tracer.clone());
        py.detach(|| RawPointRecording::begin(&device, &tracer, &points, &kernels)).map_err(failed)
    }

    /// Registers a service for as long as the device is open.
    fn serve(&self, py: Python<'_>, methods: Vec<Described>, timeout: Option<f64>) -> PyResult<()> {
        let served = Arc::new(Served::new(methods, self.queue.clone(), limit(timeout)?)?);
        let device = self.device()?;
        let registered = py.detach(|| device.server().register(Handler::deferred(Registered(served))));
        registered.map(drop).map_err(|error| match error {
            RegisterError::Duplicate { number, name, taken_by } => PyValueError::new_err(format!(
                "{name} cannot have the number {number}, which {taken_by} has: give one of them another one, from 256 to 65535"
            )),
            error => failed(error),
        })
    }

    fn context(&self, py: Python<'_>, name: &str) -> PyResult<RawContext> {
        let device = self.device()?;
        let context = py.detach(|| device.context(name)).map_err(failed)?;
        let (handling, interpreter, context) = (self.handling.clone(), self.interpreter, Arc::new(context));
        xla::note(&self.name, &context);
        let (device, context) = (device.downgrade(), Mutex::new(Some(context)));
        let (queue, lost, process) = (self.queue.clone(), Mutex::default(), self.process.clone());
        Ok(RawContext {
            context,
            device,
            handling,
            queue,
            lost,
            interpreter,
            closed_as: OnceLock::new(),
            process,
        })
    }

    /// Allocates memory that kernels and the host share.
    fn pinned(&self, py: Python<'_>, bytes: usize) -> PyResult<RawBuffer> {
        let device = self.device()?;
        py.detach(|| RawBuffer::new(&device, bytes))
    }

    /// Makes a raw channel.
    fn channel(
        &self,
        py: Python<'_>,
        pages: u32,
        page_bytes: u32,
        policy: &str,
        is_staged: bool,
    ) -> PyResult<RawChannel> {
        let device = self.device()?;
        py.detach(|| RawChannel::new(&device, pages, page_bytes, policy, is_staged))
    }

    /// Makes a post queue.
    fn post_queue(
        &self,
        py: Python<'_>,
        name: &str,
        waves: u32,
        ring_entries: u32,
    ) -> PyResult<RawPostQueue> {
        let device = self.device()?;
        py.detach(|| RawPostQueue::new(&device, name, waves, ring_entries, self.process.clone()))
    }

    /// Loads a code object of another compiler.
    fn load(&self, py: Python<'_>, path: PathBuf) -> PyResult<RawCode> {
        let device = self.device()?;
        py.detach(|| RawCode::load(&device, path, self.interpreter))
    }

    /// Returns product, target and lanes of a wave.
    fn properties(&self) -> PyResult<(String, String, u32)> {
        let device = self.device()?;
        Ok((device.properties().product.clone(), device.target(), device.wave_size()))
    }

    fn statistics(&self) -> PyResult<Numbers> {
        let counted = self.device()?.statistics();
        let (refused, timed_out) = self.queue.lost();
        Ok(vec![
            ("packets", counted.packets),
            ("posts", counted.posts),
            ("refused_posts", counted.refused_posts),
            ("declined_posts", counted.declined_posts),
            ("garbage_posts", counted.garbage_posts),
            ("broken_slots", counted.broken_slots),
            ("refused_calls", refused),
            ("timed_out_calls", timed_out),
        ])
    }

    /// Returns what waits: service, kernel, block and wave, lanes, seconds, all of it as a sentence, and what is polled.
    fn waiting(&self, py: Python<'_>) -> PyResult<Vec<Waits>> {
        let device = self.device()?;
        let waiting = py.detach(|| device.waiting());
        let tuple = |waiting: Waiting| {
            let text = waiting.to_string();
            let Waiting { service, kernel, place, lanes, waited, waits_for, .. } = waiting;
            let polled = match waits_for {
                WaitsFor::Flag(polled) | WaitsFor::Barrier(polled) => {
                    Some((polled.address, polled.peer, polled.sequence))
                }
                _ => None,
            };
            let (block, wave) = place.map(|place| (place.workgroup, place.wave)).unzip();
            (
                service,
                kernel.to_string(),
                block.map(<(u32, u32, u32)>::from),
                wave,
                lanes,
                waited.as_secs_f64(),
                text,
                polled,
            )
        };
        Ok(waiting.into_iter().map(tuple).collect())
    }

    /// Waits until all that kernels printed is written, so many seconds at most. Returns whether it is.
    fn flush_prints(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let device = self.device()?;
        let deadline = limit(timeout)?.and_then(|limit| Instant::now().checked_add(limit));
        let flush = || match deadline {
            None => device.builtins().stdio().flush().map(|()| true),
            Some(deadline) => device.builtins().stdio().flush_until(deadline),
        };
        py.detach(flush).map_err(failed)
    }

    /// Has closing not wait for an output that does not return.
    fn leave_output(&self) {
        std::mem::forget(self.sink.as_deref().cloned());
    }

    /// Takes what functions raised whose callers belong to no open context.
    fn take(&self, py: Python<'_>) -> PyResult<Taken> {
        self.process.check()?;
        let (errors, count) = self.handling.take(py, None);
        Ok((errors, count, Vec::new(), Vec::new()))
    }

    /// Ends everything. Returns whether the function that ran has returned.
    fn close(&self, py: Python<'_>) -> bool {
        let device = self.device.lock().take();
        let is_handler = thread::current().id() == self.interpreter;
        py.detach(|| {
            self.queue.close();
            if let Some(device) = device {
                device.close();
            }
            is_handler || self.queue.wait_for_end(LONGEST_END)
        })
    }
}

impl RawDevice {
    fn device(&self) -> PyResult<Device> {
        self.process.check()?;
        self.device.lock().as_deref().cloned().ok_or_else(|| failed(hostcall::Error::Closed))
    }
}

impl Drop for RawDevice {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // In a child that `fork` made nobody gives locks back that threads had then, and the calls are the parent's.
            std::mem::forget((self.queue.clone(), self.handling.clone(), self.sink.as_deref().cloned()));
            return;
        }
        // Whoever drops it may hold the GIL, for which the threads may wait: they end by themselves.
        self.queue.close();
    }
}

#[pyclass(frozen)]
pub struct RawContext {
    context: Mutex<Option<Arc<Context>>>,
    device: hostcall::WeakDevice,
    handling: Arc<Handling>,
    queue: Arc<Queue>,
    /// What was lost before the context was renewed.
    lost: Mutex<Vec<Lost>>,
    interpreter: ThreadId,
    /// Under which launch functions may have raised before it was closed.
    closed_as: OnceLock<LaunchId>,
    process: Process,
}

#[pymethods]
impl RawContext {
    fn address(&self) -> PyResult<u64> {
        Ok(self.context()?.address().get())
    }

    fn attend(&self) -> PyResult<()> {
        self.context()?.attend().map_err(failed)
    }

    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let context = self.context()?;
        py.detach(|| context.cancel()).map_err(failed)
    }

    fn renew(&self, py: Python<'_>) -> PyResult<()> {
        let context = self.context()?;
        let before = context.launch_id();
        self.lost.lock().extend(self.lost_of(before));
        py.detach(|| context.renew()).map_err(failed)?;
        self.handling.errors.rename(before, context.launch_id());
        Ok(())
    }

    /// Waits until posts were handled of kernels that have ended, and before, with a fence, until those before it have ended.
    fn flush(&self, py: Python<'_>, timeout: Option<f64>, fence: Option<&RawFence>) -> PyResult<()> {
        refuse_wait(self.interpreter)?;
        self.process.check()?;
        let deadline = limit(timeout)?.and_then(|limit| Instant::now().checked_add(limit));
        if let Some(RawFence(fence)) = fence {
            let kernels = "kernels before it have not ended, or their posts wait for their functions still";
            return wait(py, deadline, kernels, || fence.is_done().map_err(failed));
        }
        let launches = self.context()?.launch_ids().map_err(failed)?;
        let device = self.device.upgrade().ok_or_else(|| failed(hostcall::Error::Closed))?;
        let taken = Mutex::new(device.server().begin_flush(launches.clone()));
        wait(py, deadline, "posts wait for their functions still", || {
            let are_handled = |launch: &LaunchId| device.server().has_handled_posts((*launch).into());
            Ok(taken.lock().is_done() && launches.iter().all(are_handled))
        })
    }

    /// Takes the place in a stream of CUDA's behind what has been submitted to it.
    fn fence(&self, py: Python<'_>, stream: u64) -> PyResult<RawFence> {
        let context = self.context()?;
        // SAFETY: who says from Python which stream it is vouches for it, as with every foreign function.
        py.detach(|| unsafe { context.fence(stream) }).map(RawFence).map_err(failed)
    }

    fn take(&self, py: Python<'_>) -> PyResult<Taken> {
        self.process.check()?;
        let context = self.context.lock().clone();
        let launch = context.as_ref().map(|context| context.launch_id()).or(self.closed_as.get().copied());
        let (errors, count) =
            launch.map_or_else(Default::default, |launch| self.handling.take(py, Some(launch)));
        let checks = context.and_then(|context| context.failed_checks().ok()).unwrap_or_default();
        let checks = checks.into_iter().map(|check| {
            (check.condition, check.file, check.line, check.block, check.thread, check.lane, check.count)
        });
        let mut lost = std::mem::take(&mut *self.lost.lock());
        lost.extend(launch.into_iter().flat_map(|launch| self.lost_of(launch)));
        Ok((errors, count, checks.collect(), lost))
    }

    fn close(&self, py: Python<'_>) {
        if !self.process.is_this() {
            return;
        }
        // By itself: the guard would last as long as the block, and who waits for it may hold the GIL.
        let taken = self.context.lock().take();
        if let Some(context) = taken {
            let _ = self.closed_as.set(context.launch_id());
            py.detach(|| drop(context));
        }
    }
}

/// Waits until something is done, and looks for signals meanwhile. `what` has not happened at the deadline.
pub fn wait(
    py: Python<'_>,
    deadline: Option<Instant>,
    what: &str,
    is_done: impl Fn() -> PyResult<bool> + Sync,
) -> PyResult<()> {
    loop {
        let until = Instant::now() + Duration::from_millis(50);
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        let is_over = py.detach(|| {
            let mut pause = Duration::from_micros(20);
            while !is_done()? {
                if Instant::now() >= until {
                    return Ok(false);
                }
                thread::sleep(pause);
                pause = (2 * pause).min(Duration::from_millis(1));
            }
            Ok::<_, PyErr>(true)
        })?;
        py.check_signals()?;
        if is_over {
            return Ok(());
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(PyTimeoutError::new_err(what.to_owned()));
        }
    }
}

/// A place in a stream of CUDA's.
#[pyclass(frozen)]
pub struct RawFence(Fence);

#[pymethods]
impl RawFence {
    fn is_done(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.0.is_done()).map_err(failed)
    }
}

impl RawContext {
    /// Takes what was lost of a launch's calls and posts.
    fn lost_of(&self, launch: LaunchId) -> Vec<Lost> {
        let mut lost = self.queue.take_lost(launch);
        let unserved =
            self.device.upgrade().map(|device| device.server().take_unserved(launch)).unwrap_or_default();
        lost.extend(unserved.into_iter().map(|found| {
            let why = match found.error {
                CallError::TypeMismatch => "types",
                _ => "no service",
            };
            (why, found.number, String::new(), found.calls, found.posts)
        }));
        lost
    }

    pub fn context(&self) -> PyResult<Arc<Context>> {
        self.process.check()?;
        let context = self.context.lock().clone();
        context.ok_or_else(|| PyRuntimeError::new_err("the context was closed: make another one"))
    }
}
