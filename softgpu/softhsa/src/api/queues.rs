//! AQL queues: rings of packets that a thread of each queue processes in order.

mod packets;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use super::agents::{COMPUTE_UNITS, QUEUE_SIZES};
use super::runtime::{ClientData, Runtime, lock};
use super::signals::Signal;
use super::symbols::refuse;
use super::threads::{Threads, join};
use super::{Status, give, report, status};
use crate::changes::{Changes, Pause};
use crate::device::{Failure, Launch};
use crate::exec::Fault;
use crate::memory::{Memory, PAGE, Use, View};
use packets::{Packet, Refused};

/// Bytes of a packet.
const PACKET: u64 = 64;

/// Places in a queue's record, AMD's `amd_queue_t`.
mod field {
    pub const KIND: u64 = 0;
    pub const FEATURES: u64 = 4;
    pub const BASE: u64 = 8;
    pub const DOORBELL: u64 = 16;
    pub const SIZE: u64 = 24;
    pub const ID: u64 = 32;
    pub const WRITE_INDEX: u64 = 56;
    pub const READ_INDEX: u64 = 128;
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
    /// Whether the client has ended the queue: launches that it stops are not completed.
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
pub struct QueueMemory {
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

    /// Writes the record of an empty queue of this type and with these features.
    fn write(
        &self,
        runtime: &Runtime,
        (kind, features): (u32, u32),
        doorbell: u64,
        size: u32,
    ) -> Result<(), Status> {
        let mut view = self.memory.view();
        let written = [
            view.store_u32(self.record + field::KIND, kind),
            view.store_u32(self.record + field::FEATURES, features),
            view.store_u64(self.record + field::BASE, self.packet(0)),
            view.store_u64(self.record + field::DOORBELL, doorbell),
            view.store_u32(self.record + field::SIZE, size),
            view.store_u64(self.record + field::ID, runtime.new_handle()),
        ];
        let packets =
            (0..u64::from(size)).map(|slot| view.store_u16(self.packet(slot), packets::INVALID as u16));
        packets.chain(written).collect::<Result<(), Fault>>().map_err(|_| status::ERROR)
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
        (size, kind): (u32, u32),
        callback: Option<(ErrorCallback, ClientData)>,
    ) -> Result<Arc<Queue>, Status> {
        const KERNEL_DISPATCH: u32 = 1;
        runtime.gpu(agent)?;
        if !size.is_power_of_two() || !(QUEUE_SIZES.0..=QUEUE_SIZES.1).contains(&size) {
            return Err(status::INVALID_ARGUMENT);
        }
        let place = QueueMemory::allocate(&runtime.memory, size)?;
        let doorbell = runtime.signals.create(&runtime.memory, -1)?;
        place.write(runtime, (kind, KERNEL_DISPATCH), doorbell.handle(), size)?;
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
        match thread {
            Ok(thread) => {
                *lock(&queue.thread) = Some(thread);
                Ok(queue)
            }
            Err(_) => {
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

    /// Ends the queue's thread and its launches, of which none is completed any more.
    fn end(&self, runtime: &Runtime) -> Result<(), Status> {
        self.destroyed.store(true, Ordering::SeqCst);
        self.stop();
        let launches: Vec<_> = lock(&self.launches).iter().filter_map(Weak::upgrade).collect();
        runtime.gpu(self.agent)?.stop_launches(&launches);
        // Until they have stopped, launches may read the ring and the record. The runtime's end stops them without a note.
        let mut pause = Pause::default();
        while self.running.load(Ordering::SeqCst) > 0 && !runtime.is_stopped() {
            let seen = self.rung.count();
            if self.running.load(Ordering::SeqCst) > 0 {
                self.rung.wait_or_look(seen, &mut pause);
            }
        }
        Ok(())
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
                Err(Refused { status, text }) => {
                    Runtime::note_failure(text.clone());
                    self.fail(status, &text);
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
        let header = view.load_u32(address).map_err(lost)?;
        std::sync::atomic::fence(Ordering::SeqCst);
        let must_wait = header & packets::BARRIER_BIT != 0 && self.running.load(Ordering::SeqCst) > 0;
        // A client may fill a packet with zeros before it writes it, and rings when it has.
        let is_blank = header == 0 && self.doorbell.value().load(Ordering::SeqCst) < number as i64;
        if packets::kind(header) == packets::INVALID || must_wait || is_blank {
            return Ok(false);
        }
        let mut packet = Packet::default();
        view.read(address, &mut packet.0).map_err(lost)?;
        // Before the packet starts: when it is done the slot is the client's again, which may hold its next packet.
        view.store_u16(address, packets::INVALID as u16).map_err(lost)?;
        drop(view);
        self.next.store(number + 1, Ordering::Relaxed);
        lock(&self.pending).insert(number, false);
        let started = self.start(runtime, number, address, &packet);
        let named = |refused: Refused| Refused {
            text: format!("packet {number} of a queue: {}", refused.text),
            ..refused
        };
        started.map(|()| true).map_err(named)
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
            runtime.complete(done, began);
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
        let text = failure.to_string();
        Runtime::note_failure(text.clone());
        self.stopped.store(true, Ordering::SeqCst);
        let error = match failure.fault {
            Fault::Memory { address, .. } => {
                let (queue, why) = (Arc::downgrade(self), text.clone());
                let otherwise = move || {
                    if let Some(queue) = queue.upgrade() {
                        queue.fail(status::MEMORY_FAULT, &why);
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
        self.fail(error, &text);
    }

    /// Tells the client of an error, after which the queue processes no more packets. A client that gave the queue no
    /// callback would wait for ever: its process ends.
    fn fail(&self, error: Status, text: &str) {
        self.stopped.store(true, Ordering::SeqCst);
        let Some((callback, data)) = self.callback else {
            let why = if Runtime::prints_failures() { String::new() } else { format!(": {text}") };
            eprintln!(
                "softhsa: this process ends, since the queue stopped and has no callback that tells the program of it \
                 (hsa_queue_create takes one){why}"
            );
            std::process::abort();
        };
        let queue = ClientData(std::ptr::with_exposed_provenance_mut(self.place.record as usize));
        // The callback may destroy the queue, which its own thread could not wait for.
        let call = move || callback(error, queue.get(), data.get());
        if let Err(none) = self.reports.spawn("queue errors", call) {
            eprintln!("softhsa: a queue stopped, and no thread is there to say it to the client: {none}");
        }
    }
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
    kind: u32,
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
        let callback = callback.map(|callback| (callback, ClientData(data)));
        let created = Queue::create(&runtime, agent, (size, kind), callback)?;
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

/// Makes a queue whose packets the client processes itself. `features` are what the client's packet processor has.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_soft_queue_create(
    region: u64,
    size: u32,
    kind: u32,
    features: u32,
    doorbell: u64,
    queue: *mut *mut c_void,
) -> Status {
    let create = || {
        let runtime = Runtime::get()?;
        runtime.check_agent(region >> 8).map_err(|_| status::INVALID_REGION)?;
        if queue.is_null() || !size.is_power_of_two() || size > QUEUE_SIZES.1 {
            return Err(status::INVALID_ARGUMENT);
        }
        let place = QueueMemory::allocate(&runtime.memory, size)?;
        place.write(&runtime, (kind, features), runtime.signals.find(doorbell)?.handle(), size)?;
        // SAFETY: contract C.
        unsafe { give(queue, std::ptr::with_exposed_provenance_mut(place.record as usize)) }?;
        lock(&runtime.soft_queues).insert(place.record, place);
        Ok(())
    };
    report(create())
}

/// Stops a queue, which the client destroys later: as [`hsa_queue_destroy`], but its memory stays.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_queue_inactivate(queue: *mut c_void) -> Status {
    let inactivate = |runtime: Arc<Runtime>| {
        let record = queue.addr() as u64;
        if lock(&runtime.soft_queues).contains_key(&record) {
            return Ok(());
        }
        runtime.queue(record)?.end(&runtime)
    };
    report(Runtime::get().and_then(inactivate))
}

/// Ends a queue. Its launches stop, and packets that have not started never start. No completion signal changes any more
/// when this returns, and the client's function for errors is not running, unless that calls this.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_queue_destroy(queue: *mut c_void) -> Status {
    let destroy = |runtime: Arc<Runtime>| {
        let record = queue.addr() as u64;
        if lock(&runtime.soft_queues).remove(&record).is_some() {
            return Ok(());
        }
        let removed = runtime.queues.write().unwrap_or_else(PoisonError::into_inner).remove(&record);
        let removed = removed.ok_or(status::INVALID_QUEUE)?;
        runtime.doorbells.write().unwrap_or_else(PoisonError::into_inner).remove(&removed.doorbell.handle());
        removed.end(&runtime)?;
        removed.join_reports();
        runtime.signals.destroy(removed.doorbell.handle())
    };
    report(Runtime::get().and_then(destroy))
}

/// Changes an index of a queue's record, and returns what it was.
fn index(queue: *const c_void, at: u64, change: impl Fn(u64) -> u64) -> u64 {
    let Ok(runtime) = Runtime::get() else { return 0 };
    let record = queue.addr() as u64;
    if runtime.queue(record).is_err() && !lock(&runtime.soft_queues).contains_key(&record) {
        return 0;
    }
    runtime.memory.view().update_u64(record + at, change).unwrap_or(0)
}

/// Adds to the write index and returns the old one.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_queue_add_write_index_scacq_screl(queue: *const c_void, value: u64) -> u64 {
    index(queue, field::WRITE_INDEX, |index| index.wrapping_add(value))
}

/// Exchanges the write index if it is the expected one, and returns the old one.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_queue_cas_write_index_scacq_screl(
    queue: *const c_void,
    expected: u64,
    value: u64,
) -> u64 {
    index(queue, field::WRITE_INDEX, |index| if index == expected { value } else { index })
}

/// Sets the write index.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_queue_store_write_index_screlease(queue: *const c_void, value: u64) {
    index(queue, field::WRITE_INDEX, |_| value);
}

/// Sets the read index, which is the client's to set in a queue that the client processes.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_queue_store_read_index_screlease(queue: *const c_void, value: u64) {
    index(queue, field::READ_INDEX, |_| value);
}

/// Returns the read index.
pub extern "C" fn hsa_queue_load_read_index_scacquire(queue: *const c_void) -> u64 {
    index(queue, field::READ_INDEX, |index| index)
}

/// Returns the write index.
pub extern "C" fn hsa_queue_load_write_index_scacquire(queue: *const c_void) -> u64 {
    index(queue, field::WRITE_INDEX, |index| index)
}

/// Sets how a queue's work is preferred to that of others, which is a hint: waves of all queues take turns here.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_queue_set_priority(queue: *mut c_void, priority: u32) -> Status {
    const HIGH: u32 = 2;
    let set = |runtime: Arc<Runtime>| {
        runtime.queue(queue.addr() as u64)?;
        if priority > HIGH { Err(status::INVALID_ARGUMENT) } else { Ok(()) }
    };
    report(Runtime::get().and_then(set))
}

/// Tells which compute units a queue's waves are on: they are on all.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_queue_cu_get_mask(
    queue: *const c_void,
    bits: u32,
    mask: *mut u32,
) -> Status {
    let tell = |runtime: Arc<Runtime>| {
        runtime.queue(queue.addr() as u64)?;
        if bits == 0 || !bits.is_multiple_of(32) || mask.is_null() {
            return Err(status::INVALID_ARGUMENT);
        }
        for word in 0..bits / 32 {
            let all = if word < COMPUTE_UNITS / 32 { u32::MAX } else { 0 };
            // SAFETY: contract C says that there are so many bits.
            unsafe { give(mask.add(word as usize), all) }?;
        }
        Ok(())
    };
    report(Runtime::get().and_then(tell))
}

/// Sets which compute units a queue's waves are on: all, as an empty mask says, or one that has all. Other masks are refused.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_queue_cu_set_mask(
    queue: *const c_void,
    bits: u32,
    mask: *const u32,
) -> Status {
    let set = |runtime: Arc<Runtime>| {
        runtime.queue(queue.addr() as u64)?;
        if !bits.is_multiple_of(32) || (bits > 0) == mask.is_null() {
            return Err(status::INVALID_ARGUMENT);
        }
        // SAFETY: contract C says that there are so many bits.
        let word = |index: u32| unsafe { mask.add(index as usize).read_unaligned() };
        let has_all =
            |bits| bits >= COMPUTE_UNITS && (0..COMPUTE_UNITS / 32).all(|index| word(index) == u32::MAX);
        if bits == 0 || has_all(bits) {
            return Ok(());
        }
        Err(refuse("hsa_amd_queue_cu_set_mask", "the waves of a queue are on all compute units"))
    };
    report(Runtime::get().and_then(set))
}
