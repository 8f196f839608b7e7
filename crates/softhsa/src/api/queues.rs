//! AQL queues: rings of packets that a thread of each queue processes in order.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::agents::{MOST_LANES, QUEUE_SIZES};
use super::runtime::{ClientData, Runtime, lock};
use super::signals::Signal;
use super::threads::Threads;
use super::{Status, give, report, status};
use crate::device::{Failure, Launch, LaunchSpec};
use crate::exec::Fault;
use crate::load::descriptor::{MOST_GROUP_BYTES, MOST_PRIVATE_BYTES};
use crate::memory::Use;

/// Bytes of a packet.
const PACKET: u64 = 64;

/// Bytes of a queue's record, AMD's `amd_queue_t`.
const RECORD: usize = 256;

/// Places in the record.
mod field {
    pub const FEATURES: u64 = 4;
    pub const BASE: u64 = 8;
    pub const DOORBELL: u64 = 16;
    pub const SIZE: u64 = 24;
    pub const ID: u64 = 32;
    pub const WRITE_INDEX: u64 = 56;
    pub const READ_INDEX: u64 = 128;
}

/// Types of packets.
mod packet {
    pub const INVALID: u16 = 1;
    pub const DISPATCH: u16 = 2;
    pub const BARRIER_AND: u16 = 3;
    pub const BARRIER_OR: u16 = 5;
    /// The header's bit that lets the packet wait for all before it.
    pub const BARRIER_BIT: u16 = 1 << 8;
}

/// How long a queue's thread sleeps before it looks at the doorbell again, which device code may ring.
const LOOK: Duration = Duration::from_millis(1);

/// The client's function for errors of a queue.
type ErrorCallback = extern "C" fn(Status, *mut c_void, *mut c_void);

/// A queue.
#[derive(Debug)]
pub struct Queue {
    runtime: Weak<Runtime>,
    agent: u64,
    /// The address of the record.
    record: u64,
    base: u64,
    size: u64,
    doorbell: Signal,
    callback: Option<(ErrorCallback, ClientData)>,
    stopped: AtomicBool,
    /// Whether the client has destroyed the queue: launches that it stops are not completed.
    destroyed: AtomicBool,
    /// What tells the client of errors.
    reports: Threads,
    /// Packets that were started and are not done, by number.
    pending: Mutex<BTreeMap<u64, bool>>,
    rung: Condvar,
    running: AtomicUsize,
    launches: Mutex<Vec<Weak<Launch>>>,
    /// The number of the next packet to start.
    next: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Queue {
    fn create(
        runtime: &Arc<Runtime>,
        agent: u64,
        size: u32,
        callback: Option<(ErrorCallback, ClientData)>,
    ) -> Result<Arc<Queue>, Status> {
        runtime.gpu(agent)?;
        if !size.is_power_of_two() || size > QUEUE_SIZES.1 {
            return Err(status::INVALID_ARGUMENT);
        }
        let memory = &runtime.memory;
        let bytes = size as usize * PACKET as usize;
        let base = memory.allocate(bytes, Use::Code).ok_or(status::OUT_OF_RESOURCES)?;
        let record = memory.allocate(RECORD, Use::Code).ok_or(status::OUT_OF_RESOURCES)?;
        let doorbell = runtime.signals.create(memory, -1)?;
        let number = runtime.new_handle();
        let mut view = memory.view();
        let written = [
            view.store_u32(record + field::FEATURES, 1),
            view.store_u64(record + field::BASE, base),
            view.store_u64(record + field::DOORBELL, doorbell.handle),
            view.store_u32(record + field::SIZE, size),
            view.store_u64(record + field::ID, number),
        ];
        let packets = (0..u64::from(size)).map(|slot| view.store_u16(base + slot * PACKET, packet::INVALID));
        packets.chain(written).collect::<Result<(), Fault>>().map_err(|_| status::ERROR)?;
        drop(view);
        let queue = Arc::new(Queue {
            runtime: Arc::downgrade(runtime),
            agent,
            record,
            base,
            size: u64::from(size),
            doorbell,
            callback,
            stopped: AtomicBool::new(false),
            destroyed: AtomicBool::new(false),
            reports: Threads::default(),
            pending: Mutex::default(),
            rung: Condvar::new(),
            running: AtomicUsize::new(0),
            launches: Mutex::default(),
            next: AtomicU64::new(0),
            thread: Mutex::default(),
        });
        let processor = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("queue".to_owned()).spawn(move || processor.process());
        *lock(&queue.thread) = Some(thread.map_err(|_| status::OUT_OF_RESOURCES)?);
        Ok(queue)
    }

    /// Wakes the queue's thread.
    pub fn ring(&self) {
        drop(lock(&self.pending));
        self.rung.notify_all();
    }

    /// Ends the queue's thread. Launches that run go on.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.ring();
        if let Some(thread) = lock(&self.thread).take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }

    /// Waits until the client's function for errors has returned, unless that calls this.
    pub fn join_reports(&self) {
        self.reports.join();
    }

    /// Processes packets until the queue stops.
    fn process(self: Arc<Queue>) {
        while !self.stopped.load(Ordering::SeqCst) {
            let Some(runtime) = self.runtime.upgrade() else { return };
            match self.step(&runtime) {
                Ok(true) => {}
                Ok(false) => {
                    drop(runtime);
                    let pending = lock(&self.pending);
                    if self.doorbell_behind() && !self.stopped.load(Ordering::SeqCst) {
                        drop(self.rung.wait_timeout(pending, LOOK));
                    }
                }
                Err(refused) => {
                    Runtime::note_failure(refused.text);
                    self.fail(refused.status);
                    return;
                }
            }
        }
    }

    /// Returns whether the doorbell names no packet that has not been started.
    fn doorbell_behind(&self) -> bool {
        self.doorbell.value().load(Ordering::SeqCst) < self.next.load(Ordering::Relaxed) as i64
    }

    /// Starts the next packet. Returns `false` if there is none yet, or if it must wait for those before it.
    fn step(self: &Arc<Queue>, runtime: &Arc<Runtime>) -> Result<bool, Refused> {
        if self.doorbell_behind() {
            return Ok(false);
        }
        let number = self.next.load(Ordering::Relaxed);
        let address = self.base + number % self.size * PACKET;
        let mut view = runtime.memory.view();
        let lost = |fault: Fault| Refused { status: status::ERROR, text: format!("a queue's ring: {fault}") };
        let header = view.load_u16(address).map_err(lost)?;
        std::sync::atomic::fence(Ordering::SeqCst);
        if header & 255 == packet::INVALID {
            drop(view);
            std::thread::yield_now();
            return Ok(false);
        }
        if header & packet::BARRIER_BIT != 0 && self.running.load(Ordering::SeqCst) > 0 {
            drop(view);
            self.wait_for_end();
            return Ok(true);
        }
        let mut bytes = [0; PACKET as usize];
        view.read(address, &mut bytes).map_err(lost)?;
        // Before the packet starts: when it is done the slot is the client's again, which may hold its next packet.
        view.store_u16(address, packet::INVALID).map_err(lost)?;
        drop(view);
        self.next.store(number + 1, Ordering::Relaxed);
        lock(&self.pending).insert(number, false);
        match header & 255 {
            packet::DISPATCH => self.dispatch(runtime, number, address, &bytes).map_err(|refused| {
                Refused { text: format!("packet {number} of a queue: {}", refused.text), ..refused }
            })?,
            packet::BARRIER_AND | packet::BARRIER_OR => self.barrier(runtime, number, &bytes, header & 255),
            kind => {
                let text =
                    format!("packet {number} of a queue is of type {kind}: none that this runtime knows");
                return Err(Refused { status: status::INVALID_PACKET_FORMAT, text });
            }
        }
        Ok(true)
    }

    /// Sleeps until a launch of this queue ends.
    fn wait_for_end(&self) {
        let pending = lock(&self.pending);
        if self.running.load(Ordering::SeqCst) > 0 && !self.stopped.load(Ordering::SeqCst) {
            drop(self.rung.wait_timeout(pending, LOOK));
        }
    }

    fn dispatch(
        self: &Arc<Queue>,
        runtime: &Arc<Runtime>,
        number: u64,
        address: u64,
        bytes: &[u8; PACKET as usize],
    ) -> Result<(), Refused> {
        let refuse = |status: Status, text: String| Err(Refused { status, text });
        let half = |at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let word = |at: usize| half(at) | half(at + 2) << 16;
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let dimensions = half(2) & 3;
        let workgroup = [half(4), half(6), half(8)];
        let grid = [word(12), word(16), word(20)];
        let (private_bytes, group_bytes, object, done) = (word(24), word(28), long(32), long(56));
        if let Err(text) = check_sizes(dimensions, grid, workgroup) {
            return refuse(status::INVALID_ARGUMENT, text);
        }
        let Some((loaded, kernel)) = runtime.kernel(object) else {
            return refuse(
                status::INVALID_CODE_OBJECT,
                format!("no loaded kernel's descriptor is at {object:#x}"),
            );
        };
        let name = &kernel.symbol;
        let device =
            runtime.gpu(self.agent).map_err(|status| Refused { status, text: "no such agent".to_owned() })?;
        if !loaded.is_on(device) {
            return refuse(
                status::INVALID_CODE_OBJECT,
                format!("the kernel {name} is loaded on another agent"),
            );
        }
        let group_bytes = group_bytes.max(kernel.descriptor.group_bytes);
        let private_bytes = private_bytes.max(kernel.descriptor.private_bytes);
        if group_bytes > MOST_GROUP_BYTES || private_bytes > MOST_PRIVATE_BYTES {
            let text = format!(
                "the kernel {name} is to have {group_bytes} bytes of local memory and {private_bytes} of scratch a lane; \
                 {MOST_GROUP_BYTES} and {MOST_PRIVATE_BYTES} are the most"
            );
            return refuse(status::INVALID_ALLOCATION, text);
        }
        let spec = LaunchSpec {
            group_bytes,
            private_bytes,
            packet: address,
            queue: self.record,
            packet_id: number,
            ..loaded.launch_spec(&kernel, long(40), grid, workgroup)
        };
        self.running.fetch_add(1, Ordering::SeqCst);
        let (queue, began) = (Arc::clone(self), runtime.now());
        let launch = device.launch(spec, move |failure| {
            queue.ended(number, began, done, failure);
            // The code stays loaded until here, even if the client has destroyed its executable.
            drop(loaded);
        });
        let mut launches = lock(&self.launches);
        launches.retain(|launch| launch.strong_count() > 0);
        launches.push(Arc::downgrade(&launch));
        Ok(())
    }

    /// Waits for a barrier packet's signals.
    fn barrier(&self, runtime: &Arc<Runtime>, number: u64, bytes: &[u8; PACKET as usize], kind: u16) {
        let long =
            |at: usize| bytes[at..at + 8].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        let handles = (0..5).map(|index| long(8 + 8 * index)).filter(|&handle| handle != 0);
        let began = runtime.now();
        let signals: Vec<Signal> =
            handles.filter_map(|handle| runtime.signals.find(&runtime.memory, handle).ok()).collect();
        while !self.stopped.load(Ordering::SeqCst) {
            let seen = runtime.changes();
            let mut zeros = signals.iter().map(|signal| signal.value().load(Ordering::SeqCst) == 0);
            let opened = if kind == packet::BARRIER_AND { zeros.all(|z| z) } else { zeros.any(|z| z) };
            if opened || signals.is_empty() {
                return self.finish_packet(runtime, number, began, long(56));
            }
            runtime.wait_for_change(seen, LOOK);
        }
    }

    /// Notes a packet's end, moves the read index on and changes the completion signal.
    fn finish_packet(&self, runtime: &Runtime, number: u64, began: u64, done: u64) {
        let mut pending = lock(&self.pending);
        pending.insert(number, true);
        while let Some(entry) = pending.first_entry().filter(|entry| *entry.get()) {
            let read = entry.remove_entry().0 + 1;
            // The record is this queue's own memory.
            let _ = runtime.memory.view().store_u64(self.record + field::READ_INDEX, read);
        }
        drop(pending);
        if done != 0 {
            runtime.complete(done, Some(began));
        }
    }

    /// Ends a launch.
    fn ended(&self, number: u64, began: u64, done: u64, failure: Option<Failure>) {
        let Some(runtime) = self.runtime.upgrade() else { return };
        match failure {
            // It may have been stopped in the middle.
            None if self.destroyed.load(Ordering::SeqCst) => {}
            None => self.finish_packet(&runtime, number, began, done),
            Some(failure) => self.launch_failed(&runtime, &failure),
        }
        // Last: whoever destroys the queue gives the record back when nothing runs.
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.ring();
    }

    /// Reports a failed launch: memory faults to the handler of events, others to the queue's callback. The queue
    /// processes no more packets.
    fn launch_failed(&self, runtime: &Runtime, failure: &Failure) {
        Runtime::note_failure(failure.to_string());
        self.stopped.store(true, Ordering::SeqCst);
        let error = match failure.fault {
            Fault::Memory { address, .. } => {
                if runtime.memory_fault(self.agent, address) {
                    return;
                }
                status::MEMORY_FAULT
            }
            Fault::Aperture { .. } => status::MEMORY_APERTURE_VIOLATION,
            Fault::Illegal { .. } | Fault::Missing { .. } | Fault::Fetch => status::ILLEGAL_INSTRUCTION,
            Fault::Trap { .. } | Fault::Misaligned { .. } => status::EXCEPTION,
        };
        self.fail(error);
    }

    /// Tells the client of an error, after which the queue processes no more packets.
    fn fail(&self, error: Status) {
        self.stopped.store(true, Ordering::SeqCst);
        let Some((callback, data)) = self.callback else {
            let text = super::status_text(error).map_or("", |text| text.to_str().unwrap_or(""));
            eprintln!("softhsa: a queue without a callback for errors stopped: {text}");
            return;
        };
        let queue = ClientData(std::ptr::with_exposed_provenance_mut(self.record as usize));
        // The callback may destroy the queue, which its own thread could not wait for.
        let call = move || callback(error, queue.get(), data.get());
        if let Err(none) = self.reports.spawn("queue errors", call) {
            eprintln!("softhsa: a queue stopped, and no thread is there to say it to the client: {none}");
        }
    }
}

/// Why a packet is not processed.
#[derive(Debug)]
struct Refused {
    status: Status,
    text: String,
}

/// Checks the sizes of a dispatch packet. Returns what cannot be.
fn check_sizes(dimensions: u32, grid: [u32; 3], workgroup: [u32; 3]) -> Result<(), String> {
    if dimensions == 0 {
        return Err("a dispatch of no dimensions".to_owned());
    }
    let lanes: u64 = workgroup.iter().map(|&lanes| u64::from(lanes)).product();
    if lanes == 0 || lanes > u64::from(MOST_LANES) {
        return Err(format!(
            "a workgroup of {workgroup:?} lanes; {MOST_LANES} are the most, and 1 the least"
        ));
    }
    if grid.iter().try_fold(1u64, |product, &lanes| product.checked_mul(lanes.into())).is_none_or(|n| n == 0)
    {
        return Err(format!("a grid of {grid:?} lanes"));
    }
    if (dimensions as usize..3).any(|axis| grid[axis] > 1 || workgroup[axis] > 1) {
        return Err(format!("a grid of {grid:?} lanes, of which only {dimensions} dimensions count"));
    }
    Ok(())
}

impl Runtime {
    /// Returns the queue whose doorbell the signal is, if it is one.
    pub fn queue_of_doorbell(&self, signal: u64) -> Option<Arc<Queue>> {
        let doorbells = self.doorbells.read().unwrap_or_else(PoisonError::into_inner);
        doorbells.get(&signal).cloned()
    }

    /// Returns the queue whose record is at the address.
    pub fn queue(&self, record: u64) -> Result<Arc<Queue>, Status> {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        queues.get(&record).cloned().ok_or(status::INVALID_QUEUE)
    }
}

/// Makes a queue.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_queue_create(
    agent: u64,
    size: u32,
    _kind: u32,
    callback: Option<ErrorCallback>,
    data: *mut c_void,
    _private_bytes: u32,
    _group_bytes: u32,
    queue: *mut *mut c_void,
) -> Status {
    let create = || {
        let runtime = Runtime::get()?;
        if queue.is_null() {
            return Err(status::INVALID_ARGUMENT);
        }
        let created =
            Queue::create(&runtime, agent, size, callback.map(|callback| (callback, ClientData(data))))?;
        // SAFETY: contract C.
        unsafe { give(queue, std::ptr::with_exposed_provenance_mut(created.record as usize)) }?;
        let mut doorbells = runtime.doorbells.write().unwrap_or_else(PoisonError::into_inner);
        doorbells.insert(created.doorbell.handle, Arc::clone(&created));
        drop(doorbells);
        runtime.queues.write().unwrap_or_else(PoisonError::into_inner).insert(created.record, created);
        Ok(())
    };
    report(create())
}

/// Ends a queue. Its launches stop, and packets that have not started never start. No completion signal changes any more
/// when this returns, and the client's function for errors is not running, unless that calls this.
pub extern "C" fn hsa_queue_destroy(queue: *mut c_void) -> Status {
    let destroy = || {
        let runtime = Runtime::get()?;
        let removed =
            runtime.queues.write().unwrap_or_else(PoisonError::into_inner).remove(&(queue.addr() as u64));
        let removed = removed.ok_or(status::INVALID_QUEUE)?;
        runtime.doorbells.write().unwrap_or_else(PoisonError::into_inner).remove(&removed.doorbell.handle);
        removed.destroyed.store(true, Ordering::SeqCst);
        removed.stop();
        let launches: Vec<_> = lock(&removed.launches).iter().filter_map(Weak::upgrade).collect();
        runtime.gpu(removed.agent)?.stop_launches(&launches);
        // Until they have stopped, launches may read the ring and the record.
        while removed.running.load(Ordering::SeqCst) > 0 && !runtime.is_stopped() {
            let pending = lock(&removed.pending);
            drop(removed.rung.wait_timeout(pending, LOOK));
        }
        removed.join_reports();
        runtime.signals.destroy(removed.doorbell.handle)?;
        runtime.memory.free(removed.base, Use::Code);
        runtime.memory.free(removed.record, Use::Code);
        Ok(())
    };
    report(destroy())
}

/// Adds to an index of the queue's record, or reads it by adding 0.
fn add_to_index(queue: *const c_void, at: u64, value: u64) -> u64 {
    let Ok(runtime) = Runtime::get() else { return 0 };
    let Ok(queue) = runtime.queue(queue.addr() as u64) else { return 0 };
    let added = runtime.memory.view().update_u64(queue.record + at, |index| index.wrapping_add(value));
    added.unwrap_or(0)
}

macro_rules! write_index {
    ($($name:ident),*) => {$(
        /// Adds to the write index and returns the old one.
        pub extern "C" fn $name(queue: *const c_void, value: u64) -> u64 {
            add_to_index(queue, field::WRITE_INDEX, value)
        }
    )*};
}

write_index!(
    hsa_queue_add_write_index_relaxed,
    hsa_queue_add_write_index_scacquire,
    hsa_queue_add_write_index_screlease,
    hsa_queue_add_write_index_scacq_screl
);

/// Returns the read index.
pub extern "C" fn hsa_queue_load_read_index_scacquire(queue: *const c_void) -> u64 {
    add_to_index(queue, field::READ_INDEX, 0)
}

/// Returns the read index.
pub extern "C" fn hsa_queue_load_read_index_relaxed(queue: *const c_void) -> u64 {
    add_to_index(queue, field::READ_INDEX, 0)
}

/// Returns the write index.
pub extern "C" fn hsa_queue_load_write_index_scacquire(queue: *const c_void) -> u64 {
    add_to_index(queue, field::WRITE_INDEX, 0)
}

/// Returns the write index.
pub extern "C" fn hsa_queue_load_write_index_relaxed(queue: *const c_void) -> u64 {
    add_to_index(queue, field::WRITE_INDEX, 0)
}
