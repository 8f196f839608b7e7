//! Rings of AQL packets: the runtime's queues, each with a signal that says how many operations have ended.
//!
//! Each operation ends with a packet that waits for all before it and counts the ring's signal down. So of `submitted`
//! operations those have ended that the signal, from 0 on, has counted.
//!
//! Kernels reach the queue's record and the signal. So the record is read once, when the queue is made
//! (invariant RECORD), and a count that cannot be is a fault of the GPU.

use crate::copies::CopyInOrder;
use crate::faults::{Faults, queue_failed};
use crate::gpu::Gpu;
use crate::kernarg::Segment;
use crate::memory::PinnedMemory;
use crate::module::Function;
use crate::packet::{PACKET_BYTES, Packet};
use crate::runtime::{Error, FaultKind};
use crate::signal::{Signal, Watched};
use crate::sys::{self, hsa_queue_t, hsa_signal_t};
use hostcall_locks::{Mutex, MutexGuard};
use hostcall_seam::Kernel;
use std::any::Any;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Packets of a ring: more than [`crate::Queue`]'s users have in flight.
const PACKETS: u32 = 1024;

/// What an operation in flight keeps.
#[derive(Default)]
pub(crate) struct Kept {
    pub kernel: Option<Arc<dyn Kernel>>,
    pub segment: Option<Segment>,
    pub signals: Vec<Signal>,
    pub memory: Option<PinnedMemory>,
    /// The operation's copy.
    pub copy: Option<Arc<CopyInOrder>>,
    /// The signal of a mark, which lives as long as somebody has it.
    pub mark: Option<Arc<OwnedSignal>>,
}

/// A signal that goes back to its GPU when it is dropped.
pub(crate) struct OwnedSignal {
    pub gpu: Arc<Gpu>,
    pub signal: Signal,
}

impl Drop for OwnedSignal {
    fn drop(&mut self) {
        self.gpu.give_back_signals([self.signal]);
    }
}

/// The part of a ring that changes.
pub(crate) struct RingState {
    /// Packets.
    written: u64,
    in_flight: VecDeque<(i64, Kept)>,
    has_ended: bool,
}

/// A ring.
pub(crate) struct Ring {
    queue: NonNull<hsa_queue_t>,
    /// What the record said when the queue was made.
    slots: NonNull<u8>,
    size: u64,
    doorbell: hsa_signal_t,
    done: Signal,
    /// Operations. Changed under the lock of the state.
    submitted: AtomicI64,
    /// Operations that have ended as far as somebody has seen.
    seen: AtomicI64,
    /// Whether the signal has counted what cannot be.
    has_miscounted: AtomicBool,
    faults: Arc<Faults>,
    state: Mutex<RingState>,
}

// SAFETY: the runtime's queue may be used from any thread; packets are written under the lock.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    pub fn create(gpu: &Gpu) -> Result<Self, Error> {
        gpu.check()?;
        let functions = &gpu.runtime().functions;
        let done = gpu.take_signal(Watched::ByValue, 0)?;
        let packets = PACKETS.min(gpu.info().queue_packets);
        let mut queue = std::ptr::null_mut();
        // SAFETY: LOADED; the callback expects this data, and the result lives through the call.
        let status = unsafe {
            (functions.hsa_queue_create)(
                gpu.agent(),
                packets,
                sys::HSA_QUEUE_TYPE_MULTI,
                Some(queue_failed),
                gpu.faults.as_data(),
                u32::MAX,
                u32::MAX,
                &mut queue,
            )
        };
        let made = gpu.runtime().check(status, || "making a queue".into());
        if made.is_err() {
            gpu.give_back_signals([done]);
        }
        made?;
        let queue = NonNull::new(queue).expect("the runtime made it");
        // SAFETY: the queue was made just now, and no kernel knows of it.
        let (slots, size, doorbell) = unsafe {
            let record = queue.as_ref();
            (record.base_address, u64::from(record.size), record.doorbell_signal)
        };
        let ring = Self {
            queue,
            slots: NonNull::new(slots.cast()).expect("a queue has slots"),
            size,
            doorbell,
            done,
            submitted: AtomicI64::new(0),
            seen: AtomicI64::new(0),
            has_miscounted: AtomicBool::new(false),
            faults: gpu.faults.clone(),
            state: Mutex::new(RingState { written: 0, in_flight: VecDeque::new(), has_ended: false }),
        };
        // SAFETY: LOADED; the queue was made just now. Without it marks tell no times.
        unsafe { (functions.hsa_amd_profiling_set_profiler_enabled)(queue.as_ptr(), 1) };
        Ok(ring)
    }

    pub fn lock(&self) -> MutexGuard<'_, RingState> {
        self.state.lock()
    }

    /// The signal that each operation's last packet counts down.
    pub fn done(&self) -> Signal {
        self.done
    }

    /// The queue's address, as kernels that ask for it see it.
    pub fn address(&self) -> u64 {
        self.queue.addr().get() as u64
    }

    /// Returns how many operations were submitted.
    pub fn submitted(&self) -> i64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// Returns how many operations have ended. Two loads while none ends. A count that went back, or is of
    /// more operations than were submitted, is noted as a fault of the GPU, and none is believed any more.
    pub fn ended(&self) -> i64 {
        // Before the signal, whose count grows: it is none of less then.
        let seen = self.seen.load(Ordering::Acquire);
        let counted = self.done.load().wrapping_neg();
        if counted == seen || self.has_miscounted.load(Ordering::Relaxed) {
            return seen;
        }
        let submitted = self.submitted();
        if counted < seen || counted > submitted {
            self.has_miscounted.store(true, Ordering::Relaxed);
            let text = format!(
                "a kernel wrote to the signal that counts its queue's operations: it says that {counted} of \
                 {submitted} have ended, after {seen} that had"
            );
            self.faults.note(FaultKind::Other, text);
            return seen;
        }
        self.seen.fetch_max(counted, Ordering::AcqRel).max(counted)
    }

    /// Gives back what ended operations kept (KEPT), and returns what is to be dropped without the lock.
    pub fn reclaim(&self, gpu: &Gpu, state: &mut RingState) -> Vec<Kept> {
        let ended = self.ended();
        let mut freed = Vec::new();
        while state.in_flight.front().is_some_and(|(operation, _)| *operation <= ended) {
            let Some((_, mut kept)) = state.in_flight.pop_front() else { break };
            gpu.give_back_signals(kept.signals.drain(..));
            if let Some(segment) = kept.segment.take() {
                gpu.segments.give_back(gpu, segment);
            }
            freed.push(kept);
        }
        freed
    }

    /// Says whether no operation keeps anything.
    pub fn has_nothing_in_flight(&self) -> bool {
        self.lock().in_flight.is_empty()
    }

    /// Says whether nothing is in flight, and something can be.
    pub fn is_idle(&self, gpu: &Gpu) -> bool {
        let mut state = self.lock();
        let freed = self.reclaim(gpu, &mut state);
        let idle = !state.has_ended && self.submitted() == self.ended();
        drop(state);
        drop(freed);
        idle
    }

    /// Fails unless so many packets have room.
    pub fn check_room(&self, gpu: &Gpu, state: &RingState, packets: usize) -> Result<(), Error> {
        if state.has_ended {
            let failed = gpu.check().err();
            return Err(failed.unwrap_or_else(|| Error::own("submitting work", "the queue has ended")));
        }
        let functions = &gpu.runtime().functions;
        // SAFETY: LOADED; the queue has not ended, and ends under the lock that the caller holds.
        let read = unsafe { (functions.hsa_queue_load_read_index_scacquire)(self.queue.as_ptr()) };
        // An index that a kernel wrote may be anything: at worst packets are lost that are in flight.
        if (state.written + packets as u64).wrapping_sub(read) <= self.size {
            return Ok(());
        }
        Err(Error::own("submitting work", "the queue is full: wait for some of its work"))
    }

    /// Submits an operation's packets, of which the last counts [`Ring::done`] down. [`Ring::check_room`] said under the same
    /// lock that there is room for them.
    pub fn submit(&self, gpu: &Gpu, state: &mut RingState, packets: &[Packet], kept: Kept) {
        let functions = &gpu.runtime().functions;
        let queue = self.queue.as_ptr();
        let operation = self.submitted() + 1;
        state.in_flight.push_back((operation, kept));
        // Before the packets, which the GPU may take as soon as they are there, also before the doorbell: the signal counts no
        // operation that is not counted here.
        self.submitted.store(operation, Ordering::Release);
        // What the index was before is known: a kernel may have written something else to it.
        // SAFETY: LOADED; the lock keeps others from the index.
        unsafe { (functions.hsa_queue_add_write_index_relaxed)(queue, packets.len() as u64) };
        for (packet, index) in packets.iter().zip(state.written..) {
            // SAFETY: RECORD; the slot is one of the queue's.
            let slot = unsafe { self.slots.add((index & (self.size - 1)) as usize * PACKET_BYTES) };
            write_packet(slot.as_ptr(), packet);
        }
        state.written += packets.len() as u64;
        // SAFETY: LOADED and RECORD; the queue has not ended.
        unsafe { (functions.hsa_signal_store_screlease)(self.doorbell, state.written as i64 - 1) };
    }

    /// The kernel of the first operation that has not ended.
    pub fn running_kernel(&self) -> Option<String> {
        let state = self.lock();
        let ended = self.ended();
        let mut left = state.in_flight.iter().filter(|(operation, _)| *operation > ended);
        let (_, kept) = left.next()?;
        let kernel: &dyn Any = &**kept.kernel.as_ref()?;
        Some(kernel.downcast_ref::<Function>()?.name().to_owned())
    }

    /// Ends the ring, and what runs of it. What its operations kept is dropped, but for their signals: a handler may be
    /// registered for one that nobody will count down any more.
    pub fn end(&self, gpu: &Gpu) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.has_ended, true) {
            return;
        }
        // SAFETY: LOADED; nobody uses the queue once `has_ended` says so.
        unsafe { (gpu.runtime().functions.hsa_queue_destroy)(self.queue.as_ptr()) };
        let in_flight = std::mem::take(&mut state.in_flight);
        drop(state);
        for (_, mut kept) in in_flight {
            if kept.copy.as_ref().is_some_and(|copy| !copy.end(gpu)) {
                std::mem::forget(kept);
                continue;
            }
            if let Some(segment) = kept.segment.take() {
                gpu.segments.give_back(gpu, segment);
            }
        }
    }
}

/// Writes a packet to a slot of a ring, the header last.
fn write_packet(slot: *mut u8, packet: &Packet) {
    let (words, Packet([first, rest @ ..])) = (slot.cast::<u64>(), packet);
    for (at, word) in (1..).zip(rest) {
        // SAFETY: the slot has 64 bytes, aligned, which are this thread's until the header says what the packet is.
        unsafe { AtomicU64::from_ptr(words.add(at)) }.store(*word, Ordering::Relaxed);
    }
    let (header, sizes) = (*first as u32, (*first >> 32) as u32);
    let halves = slot.cast::<u32>();
    // SAFETY: as above.
    unsafe { AtomicU32::from_ptr(halves.add(1)) }.store(sizes, Ordering::Relaxed);
    // SAFETY: as above. Pairs with the packet processor's acquire: who sees the header sees the packet.
    unsafe { AtomicU32::from_ptr(halves) }.store(header, Ordering::Release);
}
