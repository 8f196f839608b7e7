//! Signals: numbers of 64 bits that host and devices wait for and change.
//!
//! A signal's handle is the address of its record in device memory, whose layout is AMD's, because device code stores
//! to signals directly.
//!
//! **Invariant S.** Records lie in pages that are allocated once and stay allocated as long as the runtime's memory, which
//! each [`Signal`] keeps: clients free memory of pools only, and nobody frees these pages. A record serves another signal only after the last `Signal` of it is gone. So a signal's value is
//! always mapped, and is that of no other.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::runtime::{ClientData, Runtime, lock};
use super::waits::Waiting;
use super::{Status, give, report, status};
use crate::changes::Pause;
use crate::memory::{Memory, PAGE, Use};

/// Bytes of a signal's record.
const RECORD: u64 = 64;

/// Places in the record.
mod field {
    pub const KIND: u64 = 0;
    pub const VALUE: u64 = 8;
    /// The address to which device code writes the number of the event that it interrupts the host for; no interrupt if it
    /// is 0.
    pub const EVENT_MAILBOX_POINTER: u64 = 16;
    /// The times of the packet or copy that completed the signal last.
    pub const BEGAN: u64 = 32;
    pub const ENDED: u64 = 40;
    /// The mailbox, in a word that AMD's layout reserves.
    pub const MAILBOX: u64 = 56;
}

/// All signals of a runtime.
#[derive(Debug, Default)]
pub struct Signals {
    free: Arc<Mutex<Vec<u64>>>,
    live: RwLock<HashMap<u64, Signal>>,
}

/// A signal, which may have been destroyed.
#[derive(Clone, Debug)]
pub struct Signal(Arc<Record>);

#[derive(Debug)]
struct Record {
    address: u64,
    destroyed: AtomicBool,
    /// Where the address goes in the end.
    free: Arc<Mutex<Vec<u64>>>,
    /// Keeps the record mapped.
    _memory: Arc<Memory>,
}

impl Drop for Record {
    fn drop(&mut self) {
        lock(&self.free).push(self.address);
    }
}

impl Signals {
    /// Makes a signal.
    pub fn create(&self, memory: &Arc<Memory>, value: i64) -> Result<Signal, Status> {
        let mut free = lock(&self.free);
        if free.is_empty() {
            let page = memory.allocate(PAGE, Use::Runtime).ok_or(status::OUT_OF_RESOURCES)?;
            free.extend((0..PAGE as u64 / RECORD).map(|number| page + number * RECORD));
        }
        let address = free.pop().ok_or(status::OUT_OF_RESOURCES)?;
        drop(free);
        let (free, _memory) = (Arc::clone(&self.free), Arc::clone(memory));
        let signal = Signal(Arc::new(Record { address, destroyed: AtomicBool::new(false), free, _memory }));
        // The kind says that the signal is one of users.
        let mailbox = (address + field::MAILBOX) as i64;
        let written =
            [(field::KIND, 1), (field::EVENT_MAILBOX_POINTER, mailbox), (field::BEGAN, 0), (field::ENDED, 0)];
        for (place, number) in written {
            signal.word(place).store(number, Ordering::Relaxed);
        }
        signal.value().store(value, Ordering::SeqCst);
        self.live.write().unwrap_or_else(PoisonError::into_inner).insert(address, signal.clone());
        Ok(signal)
    }

    /// Returns a live signal.
    pub fn find(&self, handle: u64) -> Result<Signal, Status> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.get(&handle).cloned().ok_or(status::INVALID_SIGNAL)
    }

    /// Ends a signal. Whoever has it still may look at it.
    pub fn destroy(&self, handle: u64) -> Result<(), Status> {
        let removed = self.live.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
        removed.ok_or(status::INVALID_SIGNAL)?.0.destroyed.store(true, Ordering::SeqCst);
        Ok(())
    }
}

impl Signal {
    fn word(&self, offset: u64) -> &AtomicI64 {
        let pointer = std::ptr::with_exposed_provenance_mut((self.0.address + offset) as usize);
        // SAFETY: by invariant S the record is mapped; it is aligned to 64 bytes, and it is only accessed with atomic
        // operations.
        unsafe { AtomicI64::from_ptr(pointer) }
    }

    /// Returns the handle: the address of the record.
    pub fn handle(&self) -> u64 {
        self.0.address
    }

    /// Returns whether the client has destroyed it.
    pub fn is_destroyed(&self) -> bool {
        self.0.destroyed.load(Ordering::SeqCst)
    }

    /// Returns the value.
    pub fn value(&self) -> &AtomicI64 {
        self.word(field::VALUE)
    }

    /// Returns when the packet or copy began and ended that completed the signal last, in ticks of the system's clock.
    pub fn times(&self) -> (u64, u64) {
        let [began, ended] =
            [field::BEGAN, field::ENDED].map(|place| self.word(place).load(Ordering::SeqCst) as u64);
        (began, ended)
    }
}

impl Runtime {
    fn signal(&self, handle: u64) -> Result<Signal, Status> {
        self.signals.find(handle)
    }

    /// Subtracts 1 from the completion signal of a packet or a copy that began at that time.
    pub fn complete(&self, signal: &Signal, began: u64) {
        signal.word(field::BEGAN).store(began as i64, Ordering::SeqCst);
        signal.word(field::ENDED).store(self.now() as i64, Ordering::SeqCst);
        signal.value().fetch_sub(1, Ordering::SeqCst);
        self.memory.changes.note();
    }

    /// Waits until the value of one of the signals satisfies its condition; at most until `deadline` or the runtime's end.
    /// Returns which one it is, and its value.
    fn wait_any(&self, waited: &[Condition], deadline: Option<Instant>) -> Option<(usize, i64)> {
        let mut pause = Pause::default();
        loop {
            let seen = self.memory.changes.count();
            let values = waited.iter().map(|condition| condition.signal.value().load(Ordering::SeqCst));
            let held = values.enumerate().find(|(index, value)| waited[*index].holds(*value));
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if held.is_some() || left == Some(Duration::ZERO) || self.is_stopped() {
                return held;
            }
            match pause.next_look() {
                Some(look) => self.memory.changes.wait(seen, Some(left.map_or(look, |left| look.min(left)))),
                None => std::thread::yield_now(),
            }
        }
    }
}

/// What a signal's value is waited for to be.
#[derive(Clone, Debug)]
pub struct Condition {
    /// The signal.
    pub signal: Signal,
    /// The number of HSA's condition.
    pub condition: u32,
    /// What the value is compared with.
    pub compare: i64,
}

impl Condition {
    /// Returns whether a value satisfies the condition.
    pub fn holds(&self, value: i64) -> bool {
        match self.condition {
            0 => value == self.compare,
            1 => value != self.compare,
            2 => value < self.compare,
            _ => value >= self.compare,
        }
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
        unsafe { give(signal, created.handle()) }
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

/// Ends a signal. Handlers of it are not called any more. A queue's doorbell ends with the queue.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_signal_destroy(signal: u64) -> Status {
    let destroy = |runtime: Arc<Runtime>| {
        if runtime.queue_of_doorbell(signal).is_some() {
            return Err(status::INVALID_ARGUMENT);
        }
        runtime.signals.destroy(signal)?;
        // Handlers of the signal are let go of.
        runtime.memory.changes.note();
        Ok(())
    };
    report(Runtime::get().and_then(destroy))
}

/// Changes a signal's value, and wakes those who wait for it. Handles that are no signals change nothing.
fn change<T>(handle: u64, f: impl FnOnce(&AtomicI64) -> T) -> Option<T> {
    let runtime = Runtime::get().ok()?;
    let signal = runtime.signal(handle).ok()?;
    let result = f(signal.value());
    if let Some(queue) = runtime.queue_of_doorbell(handle) {
        queue.ring();
    }
    runtime.memory.changes.note();
    Some(result)
}

/// Sets a signal's value, and wakes those who wait for it. A doorbell's value only grows: threads that share a queue ring
/// in any order.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_signal_store_screlease(signal: u64, value: i64) {
    let Ok(runtime) = Runtime::get() else { return };
    let Ok(found) = runtime.signal(signal) else { return };
    match runtime.queue_of_doorbell(signal) {
        Some(queue) => {
            found.value().fetch_max(value, Ordering::SeqCst);
            queue.ring();
        }
        None => found.value().store(value, Ordering::SeqCst),
    }
    runtime.memory.changes.note();
}

macro_rules! changes {
    ($($name:ident($operation:ident);)*) => {$(
        /// Changes a signal's value.
        ///
        /// # Safety
        ///
        /// Contract C.
        pub unsafe extern "C" fn $name(signal: u64, value: i64) {
            change(signal, |word| word.$operation(value, Ordering::SeqCst));
        }
    )*};
}

changes! {
    hsa_signal_add_scacq_screl(fetch_add);
    hsa_signal_subtract_scacq_screl(fetch_sub);
    hsa_signal_and_scacq_screl(fetch_and);
    hsa_signal_or_scacq_screl(fetch_or);
    hsa_signal_xor_scacq_screl(fetch_xor);
}

/// Exchanges a signal's value and returns the old one.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_signal_exchange_scacq_screl(signal: u64, value: i64) -> i64 {
    change(signal, |word| word.swap(value, Ordering::SeqCst)).unwrap_or(0)
}

/// Exchanges a signal's value if it is the expected one, and returns the old one.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_signal_cas_scacq_screl(signal: u64, expected: i64, value: i64) -> i64 {
    let exchange = |word: &AtomicI64| {
        let exchanged = word.compare_exchange(expected, value, Ordering::SeqCst, Ordering::SeqCst);
        exchanged.unwrap_or_else(|old| old)
    };
    change(signal, exchange).unwrap_or(0)
}

/// Returns a signal's value, and orders what follows after it.
pub extern "C" fn hsa_signal_load_scacquire(signal: u64) -> i64 {
    let signal = Runtime::get().and_then(|runtime| runtime.signal(signal));
    signal.map_or(0, |signal| signal.value().load(Ordering::SeqCst))
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
    let waited = [Condition { signal, condition, compare }];
    let held = runtime.wait_any(&waited, deadline);
    held.map_or_else(|| waited[0].signal.value().load(Ordering::SeqCst), |(_, value)| value)
}

/// Reads the arrays of a wait for one of `count` signals. Returns what is waited for with the places in the arrays: handles that
/// are no signals hold nothing up.
///
/// # Safety
///
/// The pointers are null or valid for reads of `count` entries.
unsafe fn conditions(
    runtime: &Runtime,
    count: usize,
    signals: *const u64,
    conditions: *const u32,
    compares: *const i64,
) -> Option<(Vec<usize>, Vec<Condition>)> {
    if signals.is_null() || conditions.is_null() || compares.is_null() {
        return None;
    }
    let condition = |index: usize| {
        // SAFETY: the index is less than `count`; the rest by this function's contract.
        let (handle, condition, compare) = unsafe {
            (
                signals.add(index).read_unaligned(),
                conditions.add(index).read_unaligned(),
                compares.add(index).read_unaligned(),
            )
        };
        let signal = runtime.signal(handle).ok()?;
        Some((index, Condition { signal, condition, compare }))
    };
    Some((0..count).filter_map(condition).unzip())
}

/// Waits until the value of one of the signals satisfies its condition, or for `timeout` nanoseconds. Returns which one it
/// is; `u32::MAX` if none is, or if there is nothing to wait for.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_signal_wait_any(
    count: u32,
    signals: *const u64,
    expected: *const u32,
    compares: *const i64,
    timeout: u64,
    _: u32,
    value: *mut i64,
) -> u32 {
    const NONE: u32 = u32::MAX;
    let Ok(runtime) = Runtime::get() else { return NONE };
    // SAFETY: contract C.
    let read = unsafe { conditions(&runtime, count as usize, signals, expected, compares) };
    let Some((places, waited)) = read.filter(|(places, _)| !places.is_empty()) else { return NONE };
    let deadline = Instant::now().checked_add(Duration::from_nanos(timeout));
    let Some((index, seen)) = runtime.wait_any(&waited, deadline) else { return NONE };
    // SAFETY: contract C; a client that does not want the value gives no place for it.
    let _ = unsafe { give(value, seen) };
    places[index] as u32
}

/// Makes a group of signals to wait for.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_signal_group_create(
    count: u32,
    signals: *const u64,
    _consumers: u32,
    _agents: *const u64,
    group: *mut u64,
) -> Status {
    let create = || {
        let runtime = Runtime::get()?;
        if count == 0 || signals.is_null() {
            return Err(status::INVALID_ARGUMENT);
        }
        // SAFETY: contract C says that there are `count` signals.
        let members = (0..count as usize).map(|index| unsafe { signals.add(index).read_unaligned() });
        let members = members.map(|member| runtime.signal(member).map(|_| member));
        let members = members.collect::<Result<Vec<_>, _>>()?;
        let handle = runtime.new_handle();
        // SAFETY: contract C.
        unsafe { give(group, handle) }?;
        lock(&runtime.signal_groups).insert(handle, members);
        Ok(())
    };
    report(create())
}

/// Ends a group of signals.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_signal_group_destroy(group: u64) -> Status {
    let destroy = |runtime: Arc<Runtime>| {
        lock(&runtime.signal_groups).remove(&group).map(drop).ok_or(status::INVALID_SIGNAL_GROUP)
    };
    report(Runtime::get().and_then(destroy))
}

/// Waits until the value of one of a group's signals satisfies its condition, and gives the signal and its value.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_signal_group_wait_any_scacquire(
    group: u64,
    expected: *const u32,
    compares: *const i64,
    _: u32,
    signal: *mut u64,
    value: *mut i64,
) -> Status {
    let wait = || {
        let runtime = Runtime::get()?;
        let members = lock(&runtime.signal_groups).get(&group).cloned();
        let members = members.ok_or(status::INVALID_SIGNAL_GROUP)?;
        // SAFETY: contract C says that there are as many conditions and values as signals of the group.
        let read = unsafe { conditions(&runtime, members.len(), members.as_ptr(), expected, compares) };
        let (places, waited) = read.ok_or(status::INVALID_ARGUMENT)?;
        if places.is_empty() {
            return Err(status::INVALID_SIGNAL);
        }
        let (index, seen) = runtime.wait_any(&waited, None).ok_or(status::NOT_INITIALIZED)?;
        // SAFETY: contract C.
        unsafe {
            give(signal, members[places[index]])?;
            give(value, seen)
        }
    };
    report(wait())
}

/// A function of the client's that is called when a signal's value satisfies a condition.
type Handler = extern "C" fn(i64, *mut c_void) -> bool;

/// Calls a function of the client's when a signal's value satisfies a condition, and again for as long as it returns `true`.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_signal_async_handler(
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
        let data = ClientData(data);
        let run = Box::new(move |value| handler(value, data.get()));
        let conditions = vec![Condition { signal, condition, compare }];
        runtime.handlers.add(&runtime, Waiting { conditions, ends_with_signals: true, run })
    };
    report(add())
}
