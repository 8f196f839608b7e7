//! AQL queues: rings of packets that a thread of each queue processes in order.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use super::agents::{MOST_LANES, QUEUE_SIZES};
use super::runtime::{ClientData, Runtime, lock};
use super::signals::Signal;
use super::threads::{Threads, join};
use super::{Status, give, report, status};
use crate::changes::{Changes, Pause};
use crate::device::{Failure, Launch, LaunchSpec};
use crate::exec::Fault;
use crate::load::descriptor::{MOST_GROUP_BYTES, MOST_PRIVATE_BYTES};
use crate::memory::{Memory, PAGE, Use, View};

/// Bytes of a packet.
const PACKET: u64 = 64;

/// Places in a queue's record, AMD's `amd_queue_t`.
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

/// The client's function for errors of a queue.
type ErrorCallback = extern "C" fn(Status, *mut c_void, *mut c_void);

/// A queue.
#[derive(Debug)]
pub struct Queue {
    runtime: Weak<Runtime>,
    agent: u64,
    place: QueueMemory,
    size: u64,
    doorbell: Signal,
    callback: Option<(ErrorCallback, ClientData)>,
    stopped: AtomicBool,
    /// Whether the client has destroyed the queue: launches that it stops are not completed.
    destroyed: AtomicBool,
    /// What tells the client of errors.
    reports: Threads,
    /// Packets that the read index does not count yet, by number, and whether each has ended.
    pending: Mutex<BTreeMap<u64, bool>>,
    /// Rings of the doorbell by the host, and ends of launches.
    rung: Changes,
    /// Launches that have not ended: the barrier bit waits for 0.
    running: AtomicUsize,
    launches: Mutex<Vec<Weak<Launch>>>,
    /// The number of the next packet to start.
    next: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The memory of a queue: its record, and a page behind it the ring.
#[derive(Debug)]
struct QueueMemory {
    memory: Arc<Memory>,
    record: u64,
}

impl QueueMemory {
    fn allocate(memory: &Arc<Memory>, packets: u32) -> Result<QueueMemory, Status> {
        let bytes = PAGE + packets as usize * PACKET as usize;
        let record = memory.allocate(bytes, Use::Runtime).ok_or(status::OUT_OF_RESOURCES)?;
        Ok(QueueMemory { memory: Arc::clone(memory), record })
    }

    fn packet(&self, slot: u64) -> u64 {
        self.record + PAGE as u64 + slot * PACKET
    }
}

impl Drop for QueueMemory {
    fn drop(&mut self) {
        self.memory.free_own(self.record);
    }
}

impl Queue {
    fn create(
        runtime: &Arc<Runtime>,
        agent: u64,
        size: u32,
        callback: Option<(ErrorCallback, ClientData)>,
    ) -> Result<Arc<Queue>, Status> {
        runtime.gpu(agent)?;
        if !size.is_power_of_two() || !(QUEUE_SIZES.0..=QUEUE_SIZES.1).contains(&size) {
            return Err(status::INVALID_ARGUMENT);
        }
        let place = QueueMemory::allocate(&runtime.memory, size)?;
        let doorbell = runtime.signals.create(&runtime.memory, -1)?;
        let mut view = runtime.memory.view();
        let written = [
            view.store_u32(place.record + field::FEATURES, 1),
            view.store_u64(place.record + field::BASE, place.packet(0)),
            view.store_u64(place.record + field::DOORBELL, doorbell.handle()),
            view.store_u32(place.record + field::SIZE, size),
            view.store_u64(place.record + field::ID, runtime.new_handle()),
        ];
        let packets = (0..u64::from(size)).map(|slot| view.store_u16(place.packet(slot), packet::INVALID));
        let written = packets.chain(written).collect::<Result<(), Fault>>();
        drop(view);
        let queue = Arc::new(Queue {
            runtime: Arc::downgrade(runtime),
            agent,
            place,
            size: u64::from(size),
            doorbell,
            callback,
            stopped: AtomicBool::new(false),
            destroyed: AtomicBool::new(false),
            reports: Threads::default(),
            pending: Mutex::default(),
            rung: Changes::default(),
            running: AtomicUsize::new(0),
            launches: Mutex::default(),
            next: AtomicU64::new(0),
            thread: Mutex::default(),
        });
        let processor = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("queue".to_owned()).spawn(move || processor.process());
        match (thread, written) {
            (Ok(thread), Ok(())) => {
                *lock(&queue.thread) = Some(thread);
                Ok(queue)
            }
            (Ok(_), Err(_)) => unreachable!("the memory was allocated just now"),
            (Err(_), _) => {
                runtime.signals.destroy(queue.doorbell.handle())?;
                Err(status::OUT_OF_RESOURCES)
            }
        }
    }

    /// Wakes the queue's thread.
    pub fn ring(&self) {
        self.rung.note();
    }

    /// Ends the queue's thread. Launches that run go on.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.ring();
        // It may wait for a barrier's signals.
        self.place.memory.changes.note();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            join(thread);
        }
    }

    /// Waits until the client's function for errors has returned, unless that calls this.
    pub fn join_reports(&self) {
        self.reports.join();
    }

    /// Processes packets until the queue stops.
    fn process(self: Arc<Queue>) {
        let mut pause = Pause::default();
        loop {
            // Before the look at whether it is to end, of which the count tells.
            let seen = self.rung.count();
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            let Some(runtime) = self.runtime.upgrade() else { return };
            match self.step(&runtime) {
                Ok(true) => pause = Pause::default(),
                Ok(false) => {
                    drop(runtime);
                    match pause.next_look() {
                        None => std::thread::yield_now(),
                        // `doorbells.rs` looks from then on.
                        Some(Pause::LAST) => self.rung.wait(seen, None),
                        look => self.rung.wait(seen, look),
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

    /// Returns whether there is no packet that has not been started, by what was rung and by the write index. Those who
    /// share a queue ring in any order, and what a kernel stores last may be less than what it stored before. A packet
    /// processor may look before the doorbell is rung.
    fn is_empty(&self, view: &mut View<'_>) -> Result<bool, Fault> {
        let next = self.next.load(Ordering::Relaxed);
        let rung = self.doorbell.value().load(Ordering::SeqCst);
        Ok(rung < next as i64 && view.load_u64(self.place.record + field::WRITE_INDEX)? <= next)
    }

    /// Returns whether there are packets that have not been started; also if that cannot be read, which the queue's thread
    /// reports.
    pub fn has_packets(&self) -> bool {
        !self.is_empty(&mut self.place.memory.view()).unwrap_or(false)
    }

    /// Starts the next packet. Returns `false` if there is none yet, or if it must wait for those before it.
    fn step(self: &Arc<Queue>, runtime: &Arc<Runtime>) -> Result<bool, Refused> {
        let lost = |fault: Fault| Refused { status: status::ERROR, text: format!("a queue's ring: {fault}") };
        let mut view = runtime.memory.view();
        if self.is_empty(&mut view).map_err(lost)? {
            return Ok(false);
        }
        let number = self.next.load(Ordering::Relaxed);
        let address = self.place.packet(number % self.size);
        let header = view.load_u16(address).map_err(lost)?;
        std::sync::atomic::fence(Ordering::SeqCst);
        let must_wait = header & packet::BARRIER_BIT != 0 && self.running.load(Ordering::SeqCst) > 0;
        if header & 255 == packet::INVALID || must_wait {
            return Ok(false);
        }
        let mut bytes = [0; PACKET as usize];
        view.read(address, &mut bytes).map_err(lost)?;
        // Before the packet starts: when it is done the slot is the client's again, which may hold its next packet.
        view.store_u16(address, packet::INVALID).map_err(lost)?;
        drop(view);
        self.next.store(number + 1, Ordering::Relaxed);
        lock(&self.pending).insert(number, false);
        let started = match header & 255 {
            packet::DISPATCH => self.dispatch(runtime, number, address, &bytes),
            packet::BARRIER_AND | packet::BARRIER_OR => self.barrier(runtime, number, &bytes, header & 255),
            kind => refuse(
                status::INVALID_PACKET_FORMAT,
                format!("it is of type {kind}: none that this runtime knows"),
            ),
        };
        let named = |refused: Refused| Refused {
            text: format!("packet {number} of a queue: {}", refused.text),
            ..refused
        };
        started.map(|()| true).map_err(named)
    }

    fn dispatch(
        self: &Arc<Queue>,
        runtime: &Arc<Runtime>,
        number: u64,
        address: u64,
        bytes: &[u8; PACKET as usize],
    ) -> Result<(), Refused> {
        let half = |at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let word = |at: usize| half(at) | half(at + 2) << 16;
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let dimensions = half(2) & 3;
        let workgroup = [half(4), half(6), half(8)];
        let grid = [word(12), word(16), word(20)];
        let (private_bytes, group_bytes, object) = (word(24), word(28), long(32));
        let done = completion(runtime, long(56))?;
        if let Err(text) = check_sizes(dimensions, grid, workgroup) {
            return refuse(status::INVALID_ARGUMENT, text);
        }
        let Some((loaded, kernel)) = runtime.code.kernel(object) else {
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
            queue: self.place.record,
            packet_id: number,
            ..loaded.launch_spec(&kernel, long(40), grid, workgroup)
        };
        self.running.fetch_add(1, Ordering::SeqCst);
        let (queue, began) = (Arc::clone(self), runtime.now());
        let launch = device.launch(spec, move |failure| {
            queue.ended(number, began, done.as_ref(), failure);
            // The code stays loaded until here, even if the client has destroyed its executable.
            drop(loaded);
        });
        let mut launches = lock(&self.launches);
        launches.retain(|launch| launch.strong_count() > 0);
        launches.push(Arc::downgrade(&launch));
        Ok(())
    }

    /// Waits for a barrier packet's signals.
    fn barrier(
        &self,
        runtime: &Arc<Runtime>,
        number: u64,
        bytes: &[u8; PACKET as usize],
        kind: u16,
    ) -> Result<(), Refused> {
        let long =
            |at: usize| bytes[at..at + 8].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        let began = runtime.now();
        let done = completion(runtime, long(56))?;
        let handles = (0..5).map(|index| long(8 + 8 * index)).filter(|&handle| handle != 0);
        let signals = handles.map(|handle| signal(runtime, handle)).collect::<Result<Vec<Signal>, _>>()?;
        let mut pause = Pause::default();
        while !self.stopped.load(Ordering::SeqCst) {
            let seen = runtime.memory.changes.count();
            let mut zeros = signals.iter().map(|signal| signal.value().load(Ordering::SeqCst) == 0);
            let opened = if kind == packet::BARRIER_AND { zeros.all(|z| z) } else { zeros.any(|z| z) };
            if opened || signals.is_empty() {
                self.finish_packet(runtime, number, began, done.as_ref());
                break;
            }
            runtime.memory.changes.wait_or_look(seen, &mut pause);
        }
        Ok(())
    }

    /// Notes a packet's end, moves the read index on and changes the completion signal.
    fn finish_packet(&self, runtime: &Runtime, number: u64, began: u64, done: Option<&Signal>) {
        let mut pending = lock(&self.pending);
        pending.insert(number, true);
        while let Some(entry) = pending.first_entry().filter(|entry| *entry.get()) {
            let read = entry.remove_entry().0 + 1;
            // The record is this queue's own memory.
            let _ = runtime.memory.view().store_u64(self.place.record + field::READ_INDEX, read);
        }
        drop(pending);
        if let Some(done) = done {
            runtime.complete(done, Some(began));
        }
    }

    /// Ends a launch.
    fn ended(self: &Arc<Queue>, number: u64, began: u64, done: Option<&Signal>, failure: Option<Failure>) {
        let Some(runtime) = self.runtime.upgrade() else { return };
        match failure {
            // It may have been stopped in the middle.
            None if self.destroyed.load(Ordering::SeqCst) => {}
            None => self.finish_packet(&runtime, number, began, done),
            Some(failure) => self.launch_failed(&runtime, &failure),
        }
        // Last: whoever destroys the queue returns when nothing runs.
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.ring();
    }

    /// Reports a failed launch: memory faults to the handler of events, others to the queue's callback. The queue
    /// processes no more packets.
    fn launch_failed(self: &Arc<Queue>, runtime: &Runtime, failure: &Failure) {
        Runtime::note_failure(failure.to_string());
        self.stopped.store(true, Ordering::SeqCst);
        let error = match failure.fault {
            Fault::Memory { address, .. } => {
                let queue = Arc::downgrade(self);
                let otherwise = move || {
                    if let Some(queue) = queue.upgrade() {
                        queue.fail(status::MEMORY_FAULT);
                    }
                };
                if runtime.memory_fault(self.agent, address, otherwise) {
                    return;
                }
                status::MEMORY_FAULT
            }
            Fault::Aperture { .. } => status::MEMORY_APERTURE_VIOLATION,
            Fault::Illegal { .. } | Fault::Missing { .. } | Fault::Fetch => status::ILLEGAL_INSTRUCTION,
            Fault::Halt | Fault::Trap { .. } | Fault::Misaligned { .. } => status::EXCEPTION,
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
        let queue = ClientData(std::ptr::with_exposed_provenance_mut(self.place.record as usize));
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

fn refuse<T>(status: Status, text: String) -> Result<T, Refused> {
    Err(Refused { status, text })
}

/// Returns a signal that a packet names.
fn signal(runtime: &Runtime, handle: u64) -> Result<Signal, Refused> {
    let text = || format!("it names {handle:#x}, which is no signal");
    runtime.signals.find(handle).map_err(|status| Refused { status, text: text() })
}

/// Returns a packet's completion signal, if it has one.
fn completion(runtime: &Runtime, handle: u64) -> Result<Option<Signal>, Refused> {
    if handle == 0 { Ok(None) } else { signal(runtime, handle).map(Some) }
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
        runtime.doorbell_watch.start(&runtime)?;
        let created =
            Queue::create(&runtime, agent, size, callback.map(|callback| (callback, ClientData(data))))?;
        // SAFETY: contract C.
        unsafe { give(queue, std::ptr::with_exposed_provenance_mut(created.place.record as usize)) }?;
        let mut doorbells = runtime.doorbells.write().unwrap_or_else(PoisonError::into_inner);
        doorbells.insert(created.doorbell.handle(), Arc::clone(&created));
        drop(doorbells);
        runtime.queues.write().unwrap_or_else(PoisonError::into_inner).insert(created.place.record, created);
        runtime.doorbell_watch.note_queue();
        Ok(())
    };
    report(create())
}

/// Ends a queue. Its launches stop, and packets that have not started never start. No completion signal changes any more
/// when this returns, and the client's function for errors is not running, unless that calls this.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_queue_destroy(queue: *mut c_void) -> Status {
    let destroy = || {
        let runtime = Runtime::get()?;
        let removed =
            runtime.queues.write().unwrap_or_else(PoisonError::into_inner).remove(&(queue.addr() as u64));
        let removed = removed.ok_or(status::INVALID_QUEUE)?;
        runtime.doorbells.write().unwrap_or_else(PoisonError::into_inner).remove(&removed.doorbell.handle());
        removed.destroyed.store(true, Ordering::SeqCst);
        removed.stop();
        let launches: Vec<_> = lock(&removed.launches).iter().filter_map(Weak::upgrade).collect();
        runtime.gpu(removed.agent)?.stop_launches(&launches);
        // Until they have stopped, launches may read the ring and the record. The runtime's end stops them without a note.
        let mut pause = Pause::default();
        while removed.running.load(Ordering::SeqCst) > 0 && !runtime.is_stopped() {
            let seen = removed.rung.count();
            if removed.running.load(Ordering::SeqCst) > 0 {
                removed.rung.wait_or_look(seen, &mut pause);
            }
        }
        removed.join_reports();
        runtime.signals.destroy(removed.doorbell.handle())
    };
    report(destroy())
}

/// Adds to an index of the queue's record, or reads it by adding 0.
fn add_to_index(queue: *const c_void, at: u64, value: u64) -> u64 {
    let Ok(runtime) = Runtime::get() else { return 0 };
    let Ok(queue) = runtime.queue(queue.addr() as u64) else { return 0 };
    let added = runtime.memory.view().update_u64(queue.place.record + at, |index| index.wrapping_add(value));
    added.unwrap_or(0)
}

macro_rules! write_index {
    ($($name:ident),*) => {$(
        /// Adds to the write index and returns the old one.
        ///
        /// # Safety
        ///
        /// Contract C.
        pub unsafe extern "C" fn $name(queue: *const c_void, value: u64) -> u64 {
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
