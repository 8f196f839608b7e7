//! The runtime's state, from the first `hsa_init` to the last `hsa_shut_down`.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use super::code::{Executable, LoadedCode, Reader};
use super::doorbells::Doorbells;
use super::memory_pools::Notice;
use super::queues::{Queue, QueueMemory};
use super::signals::Signals;
use super::threads::Threads;
use super::waits::Waits;
use super::{Status, status};
use crate::device::{Device, Running};
use crate::memory::Memory;

/// The host's agent.
pub const HOST: u64 = 1;

/// The first GPU agent; the others follow.
pub const FIRST_GPU: u64 = 2;

/// The most GPU agents that `SOFTHSA_AGENTS` can ask for.
const MOST_AGENTS: usize = 8;

/// The most processor threads of an agent.
const MOST_THREADS: usize = 256;

/// An event for the handler that the client registered.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Event {
    kind: u32,
    agent: u64,
    address: u64,
    reason: u32,
}

/// The client's handler of events.
pub type EventHandler = extern "C" fn(*const Event, *mut c_void) -> Status;

/// A pointer of the client's that is only handed back.
#[derive(Clone, Copy, Debug)]
pub struct ClientData(pub *mut c_void);

// SAFETY: this library never reads through the pointer; HSA lets runtimes call handlers on any thread.
unsafe impl Send for ClientData {}
// SAFETY: as for `Send`.
unsafe impl Sync for ClientData {}

impl ClientData {
    /// Returns the pointer.
    pub fn get(self) -> *mut c_void {
        self.0
    }
}

/// The state.
#[derive(Debug)]
pub struct Runtime {
    /// Memory of all agents.
    pub memory: Arc<Memory>,
    gpus: Vec<Running>,
    /// When the system's clock began.
    pub epoch: Instant,
    /// Queues by their addresses.
    pub queues: RwLock<HashMap<u64, Arc<Queue>>>,
    /// Queues that the client processes, by their addresses.
    pub soft_queues: Mutex<HashMap<u64, QueueMemory>>,
    /// Queues by their doorbells' handles.
    pub doorbells: RwLock<HashMap<u64, Arc<Queue>>>,
    /// What looks at queues that sleep.
    pub doorbell_watch: Doorbells,
    /// Executables by handle.
    pub executables: RwLock<HashMap<u64, Arc<Executable>>>,
    /// What is loaded in them.
    pub code: LoadedCode,
    /// Code object readers by handle.
    pub readers: Mutex<HashMap<u64, Reader>>,
    /// Signals.
    pub signals: Signals,
    /// Groups of signals by handle.
    pub signal_groups: Mutex<HashMap<u64, Vec<u64>>>,
    /// The client's functions that wait for signals.
    pub handlers: Waits,
    /// Copies that wait for signals.
    pub copies: Waits,
    /// What clients want to be told of when memory is freed.
    pub deallocations: Mutex<Vec<Notice>>,
    /// The handler of events.
    pub event_handler: Mutex<Option<(EventHandler, ClientData)>>,
    /// What tells the client of events.
    pub threads: Threads,
    next_handle: AtomicU64,
    stopped: AtomicBool,
}

static CURRENT: Mutex<(u32, Option<Arc<Runtime>>)> = Mutex::new((0, None));
static LAST_FAILURE: Mutex<String> = Mutex::new(String::new());
static PRINTS_FAILURES: AtomicBool = AtomicBool::new(true);

/// Whether this process was forked from one that was using the runtime. It has none of the runtime's threads, and any lock
/// may be held for good, so nothing but this is looked at then.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Runs in the forked process, where nobody frees a lock that another thread had.
extern "C" fn note_fork() {
    let is_unused =
        CURRENT.try_lock().is_ok_and(|current| current.1.is_none()) && LAST_FAILURE.try_lock().is_ok();
    if !is_unused {
        FORKED.store(true, Ordering::Relaxed);
    }
}

/// Returns whether this process was forked from one that used the runtime.
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Returns the text of the last launch that failed, or why the runtime did not start.
pub fn last_failure() -> String {
    if is_forked() {
        return "this process was forked from one that used the software HSA runtime, whose threads it does not have: \
                fork before hsa_init, or start another program"
            .to_owned();
    }
    lock(&LAST_FAILURE).clone()
}

/// Locks a mutex. A panic elsewhere leaves nothing half done that matters here.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runtime {
    /// Counts a user, and starts the runtime for the first one.
    pub fn retain() -> Result<(), Status> {
        if is_forked() {
            return Err(status::OUT_OF_RESOURCES);
        }
        // Before the lock, which a process that is forked meanwhile finds taken for good.
        watch_forks();
        let mut current = lock(&CURRENT);
        if current.1.is_none() {
            current.1 = Some(Arc::new(Runtime::start()?));
        }
        current.0 += 1;
        Ok(())
    }

    /// Ends a user's use. The last one's ends the runtime.
    pub fn release() -> Result<(), Status> {
        if is_forked() {
            return Err(status::NOT_INITIALIZED);
        }
        let mut current = lock(&CURRENT);
        if current.0 == 0 {
            return Err(status::NOT_INITIALIZED);
        }
        current.0 -= 1;
        let ended = if current.0 == 0 { current.1.take() } else { None };
        drop(current);
        if let Some(runtime) = ended {
            runtime.stop();
        }
        Ok(())
    }

    /// Returns the runtime, if it was started.
    pub fn get() -> Result<Arc<Runtime>, Status> {
        if is_forked() {
            return Err(status::NOT_INITIALIZED);
        }
        lock(&CURRENT).1.clone().ok_or(status::NOT_INITIALIZED)
    }

    pub(super) fn start() -> Result<Runtime, Status> {
        let agents = setting("SOFTHSA_AGENTS", 0..=MOST_AGENTS)?.unwrap_or(1);
        if agents == 0 {
            Runtime::note_failure("the software HSA runtime has no GPU, as SOFTHSA_AGENTS=0 asks".to_owned());
            return Err(status::OUT_OF_RESOURCES);
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = setting("SOFTHSA_THREADS", 1..=MOST_THREADS)?.unwrap_or(cpus.min(MOST_THREADS));
        let memory = Arc::new(Memory::new());
        let gpus =
            (0..agents).map(|_| Running::start(Arc::clone(&memory), threads)).collect::<Result<Vec<_>, _>>();
        let gpus = gpus.map_err(|error| {
            Runtime::note_failure(format!(
                "the software HSA runtime cannot start its {threads} threads: {error}"
            ));
            status::OUT_OF_RESOURCES
        })?;
        Ok(Runtime {
            memory,
            gpus,
            epoch: Instant::now(),
            queues: RwLock::default(),
            soft_queues: Mutex::default(),
            doorbells: RwLock::default(),
            doorbell_watch: Doorbells::default(),
            executables: RwLock::default(),
            code: LoadedCode::default(),
            readers: Mutex::default(),
            signals: Signals::default(),
            signal_groups: Mutex::default(),
            handlers: Waits::default(),
            copies: Waits::default(),
            deallocations: Mutex::default(),
            event_handler: Mutex::default(),
            threads: Threads::default(),
            next_handle: AtomicU64::new(1 << 32),
            stopped: AtomicBool::new(false),
        })
    }

    /// Stops queues, devices and all threads: nothing of the runtime's runs any more when this returns, but for the thread
    /// that calls it. Launches and copies that have not ended never do.
    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.memory.changes.note();
        let queues = std::mem::take(&mut *self.queues.write().unwrap_or_else(PoisonError::into_inner));
        self.doorbells.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.doorbell_watch.stop();
        for queue in queues.values() {
            queue.stop();
        }
        self.gpus.iter().for_each(Running::stop);
        // First: a handler that does not want an event leaves it to the queue.
        self.threads.join();
        for queue in queues.values() {
            queue.join_reports();
        }
        self.handlers.stop(self);
        self.copies.stop(self);
    }

    /// Returns whether the last user ended the runtime, so that nothing is waited for any more.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Returns the time of the system's clock, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Returns a handle that no other object has.
    pub fn new_handle(&self) -> u64 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the agents, the host first.
    pub fn agents(&self) -> impl Iterator<Item = u64> {
        [HOST].into_iter().chain((0..self.gpus.len() as u64).map(|number| FIRST_GPU + number))
    }

    /// Returns a GPU agent's device.
    pub fn gpu(&self, agent: u64) -> Result<&Arc<Device>, Status> {
        let number = agent.checked_sub(FIRST_GPU).ok_or(status::INVALID_AGENT)?;
        self.gpus.get(number as usize).map(Running::device).ok_or(status::INVALID_AGENT)
    }

    /// Returns an error if there is no such agent.
    pub fn check_agent(&self, agent: u64) -> Result<(), Status> {
        if agent == HOST { Ok(()) } else { self.gpu(agent).map(drop) }
    }

    /// Calls a function of the client's on a thread of its own.
    pub fn call(&self, name: &str, call: impl FnOnce() + Send + 'static) -> Result<(), Status> {
        self.threads.spawn(name, call).map_err(|_| status::OUT_OF_RESOURCES)
    }

    /// Reports a memory fault to the client's handler, and does `otherwise` if that does not want it. Returns `false` if there
    /// is no handler, or no thread to call it.
    pub fn memory_fault(&self, agent: u64, address: u64, otherwise: impl FnOnce() + Send + 'static) -> bool {
        const MEMORY_FAULT: u32 = 0;
        const PAGE_NOT_PRESENT: u32 = 1;
        let Some((handler, data)) = *lock(&self.event_handler) else { return false };
        let event = Event { kind: MEMORY_FAULT, agent, address: address & !0xfff, reason: PAGE_NOT_PRESENT };
        // The handler may end the process or the runtime, which a device's own thread could not wait for.
        let call = move || {
            if handler(&raw const event, data.get()) != status::SUCCESS {
                otherwise();
            }
        };
        self.call("events", call).is_ok()
    }

    /// Keeps the text of a failure, and prints it unless the client asks for it.
    pub fn note_failure(text: String) {
        if Runtime::prints_failures() {
            eprintln!("softhsa: {text}");
        }
        *lock(&LAST_FAILURE) = text;
    }

    /// Returns whether failures are printed.
    pub fn prints_failures() -> bool {
        PRINTS_FAILURES.load(Ordering::Relaxed)
    }

    /// Leaves it to the client to tell its user of failures, for the rest of the process.
    pub fn keep_failures_unprinted() {
        PRINTS_FAILURES.store(false, Ordering::Relaxed);
    }
}

/// Returns the number that an environment variable has, if it is set.
///
/// # Errors
///
/// It is none of these numbers, which [`Runtime::note_failure`] was told.
fn setting(name: &str, range: RangeInclusive<usize>) -> Result<Option<usize>, Status> {
    let Some(value) = std::env::var_os(name) else { return Ok(None) };
    let number = value.to_str().and_then(|text| text.parse().ok()).filter(|number| range.contains(number));
    if number.is_none() {
        let (least, most) = range.into_inner();
        Runtime::note_failure(format!(
            "{name}={} sets the software HSA runtime up: it must be a number from {least} to {most}",
            value.display()
        ));
        return Err(status::OUT_OF_RESOURCES);
    }
    Ok(number)
}

/// Has the system call [`note_fork`] in forked processes, from the first call on.
fn watch_forks() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    // Not a `Once`, which a process that is forked meanwhile would wait for. Calling the function twice does no harm.
    if !WATCHED.load(Ordering::Acquire) {
        // SAFETY: the function tries locks and stores to an atomic, which a forked process may do. Where the system has no memory to
        // note it, forked processes wait for threads that they do not have.
        unsafe { libc::pthread_atfork(None, None, Some(note_fork)) };
        WATCHED.store(true, Ordering::Release);
    }
}
