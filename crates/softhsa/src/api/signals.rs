//! Signals: numbers of 64 bits that host and devices wait for and change.
//!
//! A signal's handle is the address of its record in device memory, whose layout is AMD's, because device code stores
//! to signals directly.
//!
//! **Invariant S.** Records lie in pages that are allocated once and stay allocated as long as the runtime's memory, and
//! a handle is used only after it was found among the live ones. So a signal's value is always mapped.

use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::runtime::{ClientData, Runtime, lock};
use super::{Status, give, report, status};
use crate::memory::{Memory, PAGE, Use};

/// Bytes of a signal's record.
const RECORD: u64 = 64;

/// Where the value is in the record.
const VALUE: u64 = 8;

/// Where the times of the packet are that completed the signal last.
const BEGAN: u64 = 32;
const ENDED: u64 = 40;

/// How long a wait sleeps before it looks again: device code changes values without waking anyone.
const LOOK: Duration = Duration::from_micros(200);

/// How often a wait looks before it sleeps.
const EAGER: u32 = 200;

/// All signals of a runtime.
#[derive(Debug, Default)]
pub struct Signals {
    free: Mutex<Vec<u64>>,
    live: Mutex<HashSet<u64>>,
}

/// A live signal.
#[derive(Clone, Debug)]
pub struct Signal {
    /// The address of its record.
    pub handle: u64,
    /// Keeps the record mapped.
    _memory: Arc<Memory>,
}

impl Signals {
    /// Makes a signal.
    pub fn create(&self, memory: &Arc<Memory>, value: i64) -> Result<Signal, Status> {
        let mut free = lock(&self.free);
        if free.is_empty() {
            let page = memory.allocate(PAGE, Use::Code).ok_or(status::OUT_OF_RESOURCES)?;
            free.extend((0..PAGE as u64 / RECORD).map(|number| page + number * RECORD));
        }
        let handle = free.pop().ok_or(status::OUT_OF_RESOURCES)?;
        lock(&self.live).insert(handle);
        let signal = Signal { handle, _memory: Arc::clone(memory) };
        // The kind says that the signal is one of users.
        signal.word(0).store(1, Ordering::Relaxed);
        for time in [BEGAN, ENDED] {
            signal.word(time).store(0, Ordering::Relaxed);
        }
        signal.value().store(value, Ordering::SeqCst);
        Ok(signal)
    }

    /// Returns a live signal.
    pub fn find(&self, memory: &Arc<Memory>, handle: u64) -> Result<Signal, Status> {
        let live = lock(&self.live).contains(&handle);
        if live { Ok(Signal { handle, _memory: Arc::clone(memory) }) } else { Err(status::INVALID_SIGNAL) }
    }

    /// Ends a signal.
    pub fn destroy(&self, handle: u64) -> Result<(), Status> {
        if !lock(&self.live).remove(&handle) {
            return Err(status::INVALID_SIGNAL);
        }
        lock(&self.free).push(handle);
        Ok(())
    }
}

impl Signal {
    fn word(&self, offset: u64) -> &AtomicI64 {
        let pointer = std::ptr::with_exposed_provenance_mut((self.handle + offset) as usize);
        // SAFETY: by invariant S the record is mapped as long as `self._memory` is; it is aligned to 64 bytes, and it is
        // only accessed with atomic operations.
        unsafe { AtomicI64::from_ptr(pointer) }
    }

    /// Returns the value.
    pub fn value(&self) -> &AtomicI64 {
        self.word(VALUE)
    }

    /// Returns when the packet began and ended that completed the signal last, in ticks of the system's clock.
    pub fn times(&self) -> (u64, u64) {
        let [began, ended] = [BEGAN, ENDED].map(|place| self.word(place).load(Ordering::SeqCst) as u64);
        (began, ended)
    }
}

impl Runtime {
    fn signal(&self, handle: u64) -> Result<Signal, Status> {
        self.signals.find(&self.memory, handle)
    }

    /// Subtracts 1 from the completion signal of a packet, which began at that time, or of a copy, if there is one.
    pub fn complete(&self, handle: u64, began: Option<u64>) {
        if let Ok(signal) = self.signal(handle) {
            if let Some(began) = began {
                signal.word(BEGAN).store(began as i64, Ordering::SeqCst);
                signal.word(ENDED).store(self.now() as i64, Ordering::SeqCst);
            }
            signal.value().fetch_sub(1, Ordering::SeqCst);
            self.signal_changed();
        }
    }

    /// Waits until a signal's value satisfies a condition; at most until `deadline` or the runtime's end. Returns the last
    /// value.
    pub fn wait(&self, signal: &Signal, condition: u32, compare: i64, deadline: Option<Instant>) -> i64 {
        for round in 0u64.. {
            let seen = self.changes();
            let value = signal.value().load(Ordering::SeqCst);
            let is_over = || deadline.is_some_and(|deadline| Instant::now() >= deadline) || self.is_stopped();
            if holds(condition, value, compare) || is_over() {
                return value;
            }
            if round < u64::from(EAGER) {
                std::thread::yield_now();
            } else {
                self.wait_for_change(seen, LOOK);
            }
        }
        unreachable!("the rounds of a wait cannot run out")
    }
}

fn holds(condition: u32, value: i64, compare: i64) -> bool {
    match condition {
        0 => value == compare,
        1 => value != compare,
        2 => value < compare,
        _ => value >= compare,
    }
}

/// Makes a signal.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_signal_create(
    value: i64,
    _count: u32,
    _consumers: *const u64,
    signal: *mut u64,
) -> Status {
    let create = || {
        let runtime = Runtime::get()?;
        if signal.is_null() {
            return Err(status::INVALID_ARGUMENT);
        }
        let created = runtime.signals.create(&runtime.memory, value)?;
        // SAFETY: contract C.
        unsafe { give(signal, created.handle) }
    };
    report(create())
}

/// Makes a signal.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_signal_create(
    value: i64,
    count: u32,
    consumers: *const u64,
    _attributes: u64,
    signal: *mut u64,
) -> Status {
    // SAFETY: contract C.
    unsafe { hsa_signal_create(value, count, consumers, signal) }
}

/// Gives the address of a signal's value, for polling.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_signal_value_pointer(signal: u64, value: *mut *mut i64) -> Status {
    let tell = || {
        let runtime = Runtime::get()?;
        let found = runtime.signal(signal)?;
        // SAFETY: contract C.
        unsafe { give(value, found.value().as_ptr()) }
    };
    report(tell())
}

/// Ends a signal.
pub extern "C" fn hsa_signal_destroy(signal: u64) -> Status {
    report(Runtime::get().and_then(|runtime| runtime.signals.destroy(signal)))
}

/// Changes a signal's value, and wakes those who wait for it. Handles that are no signals change nothing.
fn change<T>(handle: u64, f: impl FnOnce(&AtomicI64) -> T) -> Option<T> {
    let runtime = Runtime::get().ok()?;
    let signal = runtime.signal(handle).ok()?;
    let result = f(signal.value());
    if let Some(queue) = runtime.queue_of_doorbell(handle) {
        queue.ring();
    }
    runtime.signal_changed();
    Some(result)
}

/// Sets a signal's value, and wakes those who wait for it. A doorbell's value only grows: threads that share a queue ring
/// in any order.
fn store(handle: u64, value: i64, ordering: Ordering) {
    let Ok(runtime) = Runtime::get() else { return };
    let Ok(signal) = runtime.signal(handle) else { return };
    match runtime.queue_of_doorbell(handle) {
        Some(queue) => {
            signal.value().fetch_max(value, Ordering::SeqCst);
            queue.ring();
        }
        None => signal.value().store(value, ordering),
    }
    runtime.signal_changed();
}

macro_rules! stores {
    ($($name:ident($ordering:ident);)*) => {$(
        /// Sets a signal's value.
        pub extern "C" fn $name(signal: u64, value: i64) {
            store(signal, value, Ordering::$ordering);
        }
    )*};
}

stores! {
    hsa_signal_store_relaxed(Relaxed);
    hsa_signal_store_screlease(SeqCst);
    hsa_signal_store_release(SeqCst);
    hsa_signal_silent_store_relaxed(Relaxed);
    hsa_signal_silent_store_screlease(SeqCst);
}

macro_rules! changes {
    ($($name:ident($operation:ident, $ordering:ident);)*) => {$(
        /// Changes a signal's value.
        pub extern "C" fn $name(signal: u64, value: i64) {
            change(signal, |word| word.$operation(value, Ordering::$ordering));
        }
    )*};
}

changes! {
    hsa_signal_add_relaxed(fetch_add, Relaxed);
    hsa_signal_add_scacquire(fetch_add, SeqCst);
    hsa_signal_add_screlease(fetch_add, SeqCst);
    hsa_signal_add_scacq_screl(fetch_add, SeqCst);
    hsa_signal_subtract_relaxed(fetch_sub, Relaxed);
    hsa_signal_subtract_scacquire(fetch_sub, SeqCst);
    hsa_signal_subtract_screlease(fetch_sub, SeqCst);
    hsa_signal_subtract_scacq_screl(fetch_sub, SeqCst);
    hsa_signal_and_scacq_screl(fetch_and, SeqCst);
    hsa_signal_or_scacq_screl(fetch_or, SeqCst);
    hsa_signal_xor_scacq_screl(fetch_xor, SeqCst);
}

/// Exchanges a signal's value and returns the old one.
pub extern "C" fn hsa_signal_exchange_scacq_screl(signal: u64, value: i64) -> i64 {
    change(signal, |word| word.swap(value, Ordering::SeqCst)).unwrap_or(0)
}

/// Exchanges a signal's value if it is the expected one, and returns the old one.
pub extern "C" fn hsa_signal_cas_scacq_screl(signal: u64, expected: i64, value: i64) -> i64 {
    let exchange = |word: &AtomicI64| {
        let exchanged = word.compare_exchange(expected, value, Ordering::SeqCst, Ordering::SeqCst);
        exchanged.unwrap_or_else(|old| old)
    };
    change(signal, exchange).unwrap_or(0)
}

fn load(handle: u64, ordering: Ordering) -> i64 {
    let signal = Runtime::get().and_then(|runtime| runtime.signal(handle));
    signal.map_or(0, |signal| signal.value().load(ordering))
}

/// Returns a signal's value.
pub extern "C" fn hsa_signal_load_relaxed(signal: u64) -> i64 {
    load(signal, Ordering::Relaxed)
}

/// Returns a signal's value, and orders what follows after it.
pub extern "C" fn hsa_signal_load_scacquire(signal: u64) -> i64 {
    load(signal, Ordering::SeqCst)
}

/// Waits until a signal's value satisfies a condition, or for `timeout` nanoseconds, and returns the last value.
pub extern "C" fn hsa_signal_wait_scacquire(
    signal: u64,
    condition: u32,
    compare: i64,
    timeout: u64,
    _: u32,
) -> i64 {
    let Ok(runtime) = Runtime::get() else { return 0 };
    let Ok(signal) = runtime.signal(signal) else { return 0 };
    let deadline = Instant::now().checked_add(Duration::from_nanos(timeout));
    runtime.wait(&signal, condition, compare, deadline)
}

/// Waits as [`hsa_signal_wait_scacquire`] does.
pub extern "C" fn hsa_signal_wait_relaxed(
    signal: u64,
    condition: u32,
    compare: i64,
    timeout: u64,
    state: u32,
) -> i64 {
    hsa_signal_wait_scacquire(signal, condition, compare, timeout, state)
}

/// A function of the client's that is called when a signal's value satisfies a condition.
type Handler = extern "C" fn(i64, *mut c_void) -> bool;

#[derive(Clone, Debug)]
struct Waiting {
    signal: Signal,
    condition: u32,
    compare: i64,
    handler: Handler,
    data: ClientData,
}

/// What waits for signals on a thread of the runtime's.
#[derive(Debug, Default)]
pub struct AsyncHandlers {
    waiting: Arc<Mutex<Vec<Waiting>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stopped: Arc<std::sync::atomic::AtomicBool>,
}

impl AsyncHandlers {
    /// Ends the thread. A handler that runs is waited for, unless it is the one that ends the runtime.
    pub fn stop(&self, runtime: &Runtime) {
        self.stopped.store(true, Ordering::SeqCst);
        runtime.signal_changed();
        if let Some(thread) = lock(&self.thread).take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }

    fn add(&self, runtime: &Arc<Runtime>, waiting: Waiting) -> Result<(), Status> {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            let (list, stopped) = (Arc::clone(&self.waiting), Arc::clone(&self.stopped));
            let weak = Arc::downgrade(runtime);
            let run = move || {
                while let Some(runtime) = weak.upgrade().filter(|_| !stopped.load(Ordering::SeqCst)) {
                    let seen = runtime.changes();
                    call_handlers(&list);
                    runtime.wait_for_change(seen, LOOK);
                }
            };
            let spawned = std::thread::Builder::new().name("signal handlers".to_owned()).spawn(run);
            *thread = Some(spawned.map_err(|_| status::OUT_OF_RESOURCES)?);
        }
        drop(thread);
        // What is refused is not noted: whoever asked frees it.
        lock(&self.waiting).push(waiting);
        runtime.signal_changed();
        Ok(())
    }
}

/// Calls the handlers whose conditions hold. Those that return `false` are not called again.
fn call_handlers(list: &Mutex<Vec<Waiting>>) {
    // Handlers may add others, so the list is not locked while they run.
    let (ready, waiting) = {
        let mut list = lock(list);
        let all = std::mem::take(&mut *list);
        all.into_iter().partition::<Vec<_>, _>(|entry| {
            holds(entry.condition, entry.signal.value().load(Ordering::SeqCst), entry.compare)
        })
    };
    lock(list).extend(waiting);
    for entry in ready {
        let value = entry.signal.value().load(Ordering::SeqCst);
        if (entry.handler)(value, entry.data.get()) {
            lock(list).push(entry);
        }
    }
}

/// Calls a function of the client's when a signal's value satisfies a condition.
pub extern "C" fn hsa_amd_signal_async_handler(
    signal: u64,
    condition: u32,
    compare: i64,
    handler: Option<Handler>,
    data: *mut c_void,
) -> Status {
    let add = || {
        let runtime = Runtime::get()?;
        let signal = runtime.signal(signal)?;
        let handler = handler.ok_or(status::INVALID_ARGUMENT)?;
        let waiting = Waiting { signal, condition, compare, handler, data: ClientData(data) };
        runtime.handlers.add(&runtime, waiting)
    };
    report(add())
}
