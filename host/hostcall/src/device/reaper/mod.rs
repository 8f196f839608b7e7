//! A device's reaper: a thread that looks after its streams. It submits what they hold back, settles what nobody waits for, and
//! ends what has a time limit. And the threads of host functions, on which users' values are dropped too.

mod functions;
mod sleep;

use super::error::Error;
use super::uses::Point;
use functions::{Function, HOST_FUNCTION_THREADS, HostFunctions};
use hostcall_abi::launch::LaunchId;
use hostcall_locks::Mutex;
use hostcall_seam::Backend;
use sleep::Sleep;
use std::any::Any;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a reaper looks after: a stream.
pub(crate) trait Tended: Any + Send + Sync {
    /// Submits what can be, looks how far the device has come, and settles what has ended. Returns what is left to do.
    fn tend(&self) -> Left;
    /// Says whether the device tells when it has got on.
    fn calls_progress(&self) -> bool;
    /// Asks the device whether it failed.
    fn check(&self);
    /// Says whether nothing is left to do.
    fn is_idle(&self) -> bool;
    /// Returns the kernel and the point of a launch that is with the device, if it is one of its.
    fn find(&self, launch: LaunchId) -> Option<(String, Point)>;
    /// Returns launches that have to end before one of these points is reached: the oldest, so many of them. Takes the stream's
    /// locks only if one of the points waits for the stream.
    fn launches_before(&self, points: &[Point], most: usize) -> Vec<LaunchId>;
}

/// What a stream has left to do.
pub(crate) struct Left {
    pub waiting: bool,
    pub in_flight: bool,
}

/// The pause between looks while operations wait for room on the device: short beside the time that it takes to do
/// those that it has.
const FEED_EVERY: Duration = Duration::from_micros(50);

/// The pause between looks while something is with the device that nobody may be waiting for.
const SETTLE_EVERY: Duration = Duration::from_millis(2);

/// How often the device is asked whether it failed.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Looks without anything to do after which the thread sleeps until there is something.
const LOOKS_BEFORE_SLEEP: u32 = 50;

/// When something is to be ended.
struct Limit {
    deadline: Instant,
    number: u64,
    /// Says whether `end` has nothing left to end.
    is_over: Box<dyn Fn() -> bool + Send>,
    end: Function,
}

impl PartialEq for Limit {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Limit {}

impl PartialOrd for Limit {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Limit {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.deadline, self.number).cmp(&(other.deadline, other.number))
    }
}

#[derive(Default)]
struct State {
    stopping: bool,
    limits: BinaryHeap<Reverse<Limit>>,
    limits_left: usize,
    next_limit: u64,
    /// What is to be done on the reaper's thread.
    jobs: Vec<Function>,
}

/// What the reaper, its device and its streams share.
pub(crate) struct Reaper {
    /// The device's name.
    device: String,
    backend: Arc<dyn Backend>,
    /// Operations that are with the device, of all streams.
    pub with_device: AtomicU64,
    streams: Mutex<Vec<Weak<dyn Tended>>>,
    /// Streams without an owner that have something left to do.
    orphans: Mutex<Vec<Arc<dyn Tended>>>,
    state: Mutex<State>,
    sleep: Sleep,
    functions: HostFunctions,
}

/// The reaper's thread, as its device holds it.
pub(crate) struct ReaperThread {
    reaper: Arc<Reaper>,
    thread: Option<JoinHandle<()>>,
}

impl ReaperThread {
    pub fn start(device: String, backend: Arc<dyn Backend>) -> Result<(Arc<Reaper>, Self), Error> {
        let reaper = Arc::new(Reaper::new(device, backend));
        let work = reaper.clone();
        let thread = std::thread::Builder::new().name("hostcall-reaper".into()).spawn(move || work.work());
        let thread = thread.map_err(|error| Error::NoThread { what: "a device's streams", error })?;
        Ok((reaper.clone(), Self { reaper, thread: Some(thread) }))
    }
}

impl Drop for ReaperThread {
    fn drop(&mut self) {
        self.reaper.state.lock().stopping = true;
        self.reaper.wake();
        self.reaper.functions.stop();
        // It may hold the last reference to its device for a moment, and cannot wait for itself.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Reaper {
    fn new(device: String, backend: Arc<dyn Backend>) -> Self {
        Self {
            device,
            backend,
            with_device: AtomicU64::new(0),
            streams: Mutex::default(),
            orphans: Mutex::default(),
            state: Mutex::default(),
            sleep: Sleep::default(),
            functions: HostFunctions::default(),
        }
    }

    pub fn add(&self, stream: Weak<dyn Tended>) {
        self.streams.lock().push(stream);
    }

    /// Keeps a stream until it has nothing left to do.
    pub fn adopt(&self, stream: Arc<dyn Tended>) {
        self.orphans.lock().push(stream);
        self.wake();
    }

    /// The streams that somebody has.
    pub fn streams(&self) -> Vec<Arc<dyn Tended>> {
        self.streams.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the kernel and the point of a launch that is with the device.
    pub fn find(&self, launch: LaunchId) -> Option<(String, Point)> {
        self.streams().iter().find_map(|stream| stream.find(launch))
    }

    /// Notes that something was submitted, and whether something was held back.
    pub fn note_work(&self, is_left: bool) {
        self.sleep.note_work(is_left);
    }

    /// Has the thread look at all streams now.
    pub fn wake(&self) {
        self.sleep.wake();
    }

    /// Has `end` called when `deadline` has come. That may be forgotten once `is_over` returns `true`.
    pub fn limit(
        &self,
        deadline: Instant,
        is_over: impl Fn() -> bool + Send + 'static,
        end: impl FnOnce() + Send + 'static,
    ) {
        let mut state = self.state.lock();
        let number = state.next_limit;
        state.next_limit += 1;
        // Those of what has ended go when there are twice as many as were left the last time.
        if state.limits.len() >= 2 * state.limits_left + 64 {
            state.limits.retain(|Reverse(limit)| !(limit.is_over)());
            state.limits_left = state.limits.len();
        }
        let (is_over, end) = (Box::new(is_over), Box::new(end));
        state.limits.push(Reverse(Limit { deadline, number, is_over, end }));
        drop(state);
        self.wake();
    }

    /// Runs a job soon on the reaper's thread: one of hostcall's own, which waits for nobody.
    pub fn run_soon(&self, job: impl FnOnce() + Send + 'static) {
        self.state.lock().jobs.push(Box::new(job));
        self.wake();
    }

    fn work(self: &Arc<Self>) {
        self.backend.enter_thread();
        let (mut idle, mut checked) = (0u32, Instant::now());
        loop {
            let may_sleep = idle >= LOOKS_BEFORE_SLEEP;
            self.sleep.begin_look(may_sleep);
            let jobs = std::mem::take(&mut self.state.lock().jobs);
            jobs.into_iter().for_each(|job| job());
            if self.functions.needs_thread_still(Instant::now()) {
                self.start_function_thread();
            }
            self.run_function_without_threads();
            let streams = self.streams();
            let (mut feeding, mut busy) = (false, false);
            let check = checked.elapsed() > CHECK_EVERY;
            for stream in &streams {
                let Left { waiting, in_flight } = stream.tend();
                busy |= waiting || in_flight;
                if !stream.calls_progress() {
                    feeding |= waiting;
                    if check && in_flight {
                        stream.check();
                    }
                }
            }
            if check {
                checked = Instant::now();
            }
            drop(streams);
            self.streams.lock().retain(|stream| stream.strong_count() > 0);
            // Dropped outside the lock: the last reference to a device may be among them.
            let finished: Vec<_> = self.orphans.lock().extract_if(.., |stream| stream.is_idle()).collect();
            drop(finished);
            self.end_limited();
            self.tell_stall();
            busy |= self.functions.are_held_up();

            idle = if busy { 0 } else { idle + 1 };
            let state = self.state.lock();
            if state.stopping {
                return;
            }
            let limit = state
                .limits
                .peek()
                .map(|Reverse(limit)| limit.deadline.saturating_duration_since(Instant::now()));
            drop(state);
            let pause = match (feeding, busy || !may_sleep) {
                (true, _) => Some(FEED_EVERY),
                (false, true) => Some(SETTLE_EVERY),
                (false, false) => None,
            };
            let pause = match (pause, limit) {
                (Some(pause), Some(limit)) => Some(pause.min(limit)),
                (pause, limit) => pause.or(limit),
            };
            if self.sleep.sleep(pause) {
                idle = 0;
            }
        }
    }

    /// Ends what has no time left.
    fn end_limited(&self) {
        loop {
            let mut state = self.state.lock();
            let is_due = state.limits.peek().is_some_and(|Reverse(limit)| limit.deadline <= Instant::now());
            let Some(Reverse(limit)) = (if is_due { state.limits.pop() } else { None }) else { return };
            drop(state);
            (limit.end)();
        }
    }

    /// Tells that host functions wait for the bound on their threads.
    fn tell_stall(&self) {
        let Some(waiting) = self.functions.take_stall() else { return };
        hostcall_server::report_line(format_args!(
            "{waiting} host function{} of {} wait for a thread: {HOST_FUNCTION_THREADS} run, which is the most, and none has \
             returned for a second. One that waits for a function that has not begun waits for ever",
            if waiting == 1 { "" } else { "s" },
            self.device,
        ));
    }

    /// Runs a host function on a thread of its own, or of another one that has ended. It catches its panics.
    pub fn run(self: &Arc<Self>, function: Function) {
        if self.functions.add(function) {
            self.start_function_thread();
        }
    }

    /// Starts a thread of host functions.
    fn start_function_thread(self: &Arc<Self>) {
        let this = self.clone();
        let work = move || {
            this.backend.enter_thread();
            this.functions.work();
        };
        let thread = std::thread::Builder::new().name("hostcall-function".into());
        let Err(error) = thread.spawn(work) else { return };
        if let Some(threads) = self.functions.has_not_started() {
            tell_refused(&self.device, &error, threads);
        }
        // The reaper tries again, or does it if no other thread does: not the caller, who may hold locks.
        self.wake();
    }

    /// Runs a host function that waits when there is no thread for such.
    fn run_function_without_threads(&self) {
        if let Some(function) = self.functions.take_without_threads() {
            function();
            self.wake();
        }
    }
}

/// Tells that the system starts no thread of host functions of a device, beside those that run.
fn tell_refused(device: &str, error: &std::io::Error, threads: usize) {
    let who = match threads {
        0 => "the device's own thread runs them one after the other".to_owned(),
        1 => "1 goes on".to_owned(),
        _ => format!("{threads} go on"),
    };
    hostcall_server::report_line(format_args!(
        "the system starts no more threads of host functions of {device} ({error}): {who}. One that waits for a function that \
         has not begun waits until the system does"
    ));
}
