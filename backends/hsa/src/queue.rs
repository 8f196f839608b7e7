//! Queues, which do one operation after the other.

use crate::copies::{Copy, CopyInOrder, Side};
use crate::device::Hsa;
use crate::gpu::Gpu;
use crate::kernarg;
use crate::memory::PinnedMemory;
use crate::module::Function;
use crate::packet::Packet;
use crate::ring::{Kept, OwnedSignal, Ring};
use crate::runtime::{Error, FaultKind};
use crate::signal::Watched;
use crate::sys::{self, hsa_amd_profiling_dispatch_time_t, hsa_kernel_dispatch_packet_t};
use hostcall_locks::Mutex;
use hostcall_seam::{Backend, BackendError, DeviceAddress, Dispatch, Mark, Pinned, Running};
use std::any::Any;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Builder;

/// What a queue and its GPU know.
pub(crate) struct QueueState {
    /// Taken by the first operation.
    ring: OnceLock<Arc<Ring>>,
    /// Values that were signalled, each with the operation after which it is reached.
    signalled: Mutex<VecDeque<(i64, u64)>>,
    /// Operations that `reached` takes into account.
    seen: AtomicI64,
    reached: AtomicU64,
}

impl QueueState {
    pub fn ring(&self) -> Option<&Arc<Ring>> {
        self.ring.get()
    }
}

/// A queue. The first operation takes one of the runtime's. Dropping it does not wait.
pub struct Queue {
    gpu: Arc<Gpu>,
    state: Arc<QueueState>,
}

impl Gpu {
    /// Makes a queue.
    pub fn queue(self: &Arc<Self>) -> Queue {
        let state = Arc::new(QueueState {
            ring: OnceLock::new(),
            signalled: Mutex::default(),
            seen: AtomicI64::new(0),
            reached: AtomicU64::new(0),
        });
        self.add_queue(&state);
        Queue { gpu: self.clone(), state }
    }
}

/// A copy that begins when a signal is 0.
struct Waiting {
    gpu: Weak<Gpu>,
    copy: Copy,
    in_order: Arc<CopyInOrder>,
}

/// Called by the runtime when everything before a copy has ended.
unsafe extern "C" fn start_copy(_value: i64, waiting: *mut c_void) -> bool {
    // SAFETY: `Queue::copy_in_order` gave the address of its box, and the runtime calls this once, since it returns false.
    let waiting = unsafe { Box::from_raw(waiting.cast::<Waiting>()) };
    if let Some(gpu) = waiting.gpu.upgrade() {
        // SAFETY: whoever submitted the copy vouched for both sides until it has ended.
        let started = unsafe { waiting.in_order.start(&gpu, &waiting.copy) };
        if let Err(error) = started {
            gpu.faults.note(FaultKind::Other, error.to_string());
        }
        let_go(gpu);
    }
    false
}

/// Lets go of a GPU on a thread of the runtime's. If nobody else has it any more, it ends on another thread:
/// the runtime waits for its own threads when a queue ends.
fn let_go(gpu: Arc<Gpu>) {
    let Some(gpu) = Arc::into_inner(gpu) else { return };
    // Without a thread it stays.
    let gpu = ManuallyDrop::new(gpu);
    let _ = Builder::new().name("hsa end".to_owned()).spawn(move || drop(ManuallyDrop::into_inner(gpu)));
}

impl Queue {
    fn ring(&self) -> Result<&Arc<Ring>, Error> {
        if let Some(ring) = self.state.ring.get() {
            return Ok(ring);
        }
        // One thread takes it.
        let _guard = self.state.signalled.lock();
        if self.state.ring.get().is_none() {
            let ring = self.gpu.take_ring()?;
            // What it did for other queues is no progress of this one.
            self.state.seen.store(ring.ended(), Ordering::Relaxed);
            let _ = self.state.ring.set(ring);
        }
        Ok(self.state.ring.get().expect("it was set"))
    }

    /// Submits an operation of at most so many packets. `make` adds
    /// the packets, of which the last counts the ring's signal down, and what is kept; it is told whether nothing is before
    /// the operation any more.
    fn submit(
        &self,
        packets: usize,
        make: impl FnOnce(&Ring, &mut Vec<Packet>, &mut Kept, bool) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let ring = self.ring()?;
        // Now whoever ends the rings after a failure knows of this one, or the failure is seen here.
        self.gpu.check()?;
        let mut state = ring.lock();
        let freed = ring.reclaim(&self.gpu, &mut state);
        ring.check_room(&self.gpu, &state, packets)?;
        let mut submitted = Vec::with_capacity(packets);
        let is_idle = ring.submitted() == ring.ended();
        let mut kept = Kept::default();
        if let Err(error) = make(ring, &mut submitted, &mut kept, is_idle) {
            // A part of a copy may be on its way.
            match kept.copy.as_ref().is_none_or(|copy| copy.end(&self.gpu)) {
                true => self.gpu.give_back_signals(kept.signals.drain(..)),
                false => std::mem::forget(kept),
            }
            return Err(error);
        }
        ring.submit(&self.gpu, &mut state, &submitted, kept);
        drop(state);
        drop(freed);
        Ok(())
    }

    /// Copies when everything before has ended.
    ///
    /// # Safety
    /// As for [`Copy::start`], until the copy has ended; of `memory`, which is kept until then, it is this queue's.
    unsafe fn copy_in_order(&self, copy: Copy, memory: Option<PinnedMemory>) -> Result<(), Error> {
        self.submit(2, |ring, packets, kept, is_idle| {
            let done = self.gpu.take_signal(Watched::ByRuntime, copy.parts())?;
            kept.signals.push(done);
            kept.memory = memory;
            let in_order = Arc::new(CopyInOrder::new(done));
            kept.copy = Some(in_order.clone());
            if is_idle {
                // SAFETY: by the caller's promise; nothing is before it.
                unsafe { in_order.start(&self.gpu, &copy) }?;
            } else {
                let begin = self.gpu.take_signal(Watched::ByRuntime, 1)?;
                kept.signals.push(begin);
                let waiting = Box::new(Waiting { gpu: Arc::downgrade(&self.gpu), copy, in_order });
                let data = Box::into_raw(waiting);
                let runtime = self.gpu.runtime();
                // SAFETY: LOADED; the handler expects this data, which is its own from now on.
                let status = unsafe {
                    (runtime.functions.hsa_amd_signal_async_handler)(
                        begin.handle,
                        sys::HSA_SIGNAL_CONDITION_EQ,
                        0,
                        Some(start_copy),
                        data.cast(),
                    )
                };
                runtime.check(status, || "submitting a copy".into()).inspect_err(|_| {
                    // SAFETY: the runtime refused it, so that nobody else has it.
                    drop(unsafe { Box::from_raw(data) });
                })?;
                packets.push(Packet::barrier(&[], Some(begin)));
            }
            packets.push(Packet::barrier(&[done], Some(ring.done())));
            Ok(())
        })
    }

    /// Fills with a pattern through a block of pinned memory, which is kept until then.
    ///
    /// # Safety
    /// As for [`hostcall_seam::Queue::write`].
    unsafe fn fill_with(&self, to: u64, pattern: &[u8], bytes: usize) -> Result<(), Error> {
        const MOST_BYTES: usize = 1 << 20;
        let block = self.gpu.pin(bytes.min(MOST_BYTES))?;
        for at in (0..block.len()).step_by(pattern.len()) {
            // SAFETY: the block's length is a multiple of the pattern's, and nobody else has the block.
            unsafe {
                block
                    .host_address()
                    .add(at)
                    .as_ptr()
                    .copy_from_nonoverlapping(pattern.as_ptr(), pattern.len())
            };
        }
        let from = Side::Host(block.host_address().addr().get() as u64);
        let copy = Copy { to: Side::Gpu(to), from, bytes, source_bytes: block.len() };
        // SAFETY: by the caller's promise; the block is kept until the copy has ended.
        unsafe { self.copy_in_order(copy, Some(block)) }
    }

    /// Takes what was reached off the values that were signalled.
    fn advance(&self, ring: &Ring) {
        let mut signalled = self.state.signalled.lock();
        let ended = ring.ended();
        while signalled.front().is_some_and(|(operation, _)| *operation <= ended) {
            let Some((_, value)) = signalled.pop_front() else { break };
            self.state.reached.fetch_max(value, Ordering::Release);
        }
        self.state.seen.fetch_max(ended, Ordering::Relaxed);
    }
}

// SAFETY: 1. every packet has the barrier bit and fences of the system's scope, and copies have packets before and behind
// them; 2. the signal that counts operations is changed by their last packets; 3. after a failure the GPU's queues are ended,
// and every function says why.
unsafe impl hostcall_seam::Queue for Queue {
    unsafe fn dispatch(&self, launch: &Dispatch<'_>) -> Result<Option<Arc<dyn Running>>, BackendError> {
        let function = Function::of(launch.kernel, &self.gpu)?;
        let refused = |text: &str| Error::own(format!("launching the kernel {}", function.name()), text);
        let mut grid = [0; 3];
        for (axis, lanes) in grid.iter_mut().enumerate() {
            let product = launch.workgroups[axis].checked_mul(launch.lanes[axis]);
            *lanes =
                product.filter(|lanes| *lanes > 0).ok_or_else(|| refused("the grid has no such size"))?;
        }
        let lanes = launch.lanes.iter().try_fold(1u32, |product, lanes| product.checked_mul(*lanes));
        if lanes.is_none_or(|lanes| lanes > function.max_lanes()) {
            return Err(refused("the workgroups are too large for it").into());
        }
        let group_bytes = function.group_bytes().saturating_add(launch.workgroup_bytes);
        self.submit(1, |ring, packets, kept, _| {
            let segment = kernarg::fill(&self.gpu, function, launch, ring.address())?;
            packets.push(Packet::dispatch(hsa_kernel_dispatch_packet_t {
                header: 0,
                setup: kernarg::dimensions(launch) << sys::HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS,
                workgroup_size_x: launch.lanes[0] as u16,
                workgroup_size_y: launch.lanes[1] as u16,
                workgroup_size_z: launch.lanes[2] as u16,
                reserved0: 0,
                grid_size_x: grid[0],
                grid_size_y: grid[1],
                grid_size_z: grid[2],
                private_segment_size: function.private_bytes(),
                group_segment_size: group_bytes,
                kernel_object: function.object(),
                kernarg_address: segment.start().as_ptr().cast(),
                reserved2: 0,
                completion_signal: ring.done().handle,
            }));
            kept.segment = Some(segment);
            kept.kernel = Some(launch.kernel.clone());
            Ok(())
        })?;
        Ok(None)
    }

    unsafe fn write(&self, to: DeviceAddress, from: *const u8, bytes: usize) -> Result<(), BackendError> {
        let from = Side::Host(from.expose_provenance() as u64);
        // SAFETY: by the caller's promise.
        Ok(unsafe { self.copy_in_order(Copy::once(Side::Gpu(to.get()), from, bytes), None) }?)
    }

    unsafe fn read(&self, to: *mut u8, from: DeviceAddress, bytes: usize) -> Result<(), BackendError> {
        let to = Side::Host(to.expose_provenance() as u64);
        // SAFETY: by the caller's promise.
        Ok(unsafe { self.copy_in_order(Copy::once(to, Side::Gpu(from.get()), bytes), None) }?)
    }

    unsafe fn copy(&self, to: DeviceAddress, from: DeviceAddress, bytes: usize) -> Result<(), BackendError> {
        let (to, from) = (Side::Gpu(to.get()), Side::Gpu(from.get()));
        // SAFETY: by the caller's promise.
        Ok(unsafe { self.copy_in_order(Copy::once(to, from, bytes), None) }?)
    }

    unsafe fn copy_from(
        &self,
        device: &dyn Backend,
        to: DeviceAddress,
        from: DeviceAddress,
        bytes: usize,
    ) -> Result<(), BackendError> {
        let device: &dyn Any = device;
        let Some(Hsa { gpu, .. }) = device.downcast_ref() else {
            return Err(BackendError::Refused("it is no device of the runtime's".into()));
        };
        let from = Side::OtherGpu(from.get(), gpu.agent());
        // SAFETY: by the caller's promise.
        Ok(unsafe { self.copy_in_order(Copy::once(Side::Gpu(to.get()), from, bytes), None) }?)
    }

    unsafe fn fill(&self, to: DeviceAddress, pattern: &[u8], count: usize) -> Result<(), BackendError> {
        if !matches!(pattern.len(), 1 | 2 | 4) {
            return Err(Error::own("filling memory", "a pattern has 1, 2 or 4 bytes").into());
        }
        let Some(bytes) = pattern.len().checked_mul(count) else {
            return Err(Error::own("filling memory", "no memory has so many bytes").into());
        };
        // SAFETY: by the caller's promise.
        let filled = unsafe {
            match pattern.iter().all(|byte| *byte == 0) {
                true => self.copy_in_order(self.gpu.zeroing(to.get(), bytes), None),
                false => self.fill_with(to.get(), pattern, bytes),
            }
        };
        Ok(filled?)
    }

    /// It takes no packet: each operation's last one counts.
    fn signal(&self, value: u64) -> Result<(), BackendError> {
        let Some(ring) = self.state.ring.get() else {
            self.state.reached.fetch_max(value, Ordering::Release);
            return Ok(());
        };
        // One lock for both, so that the values of two threads stand in the order of their operations.
        let mut signalled = self.state.signalled.lock();
        signalled.push_back((ring.submitted(), value));
        drop(signalled);
        self.advance(ring);
        Ok(())
    }

    fn completed(&self) -> u64 {
        if let Some(ring) = self.state.ring.get()
            && ring.ended() != self.state.seen.load(Ordering::Relaxed)
        {
            self.advance(ring);
        }
        self.state.reached.load(Ordering::Acquire)
    }

    fn calls_progress(&self) -> bool {
        false
    }

    fn check(&self) -> Result<(), BackendError> {
        Ok(self.gpu.check()?)
    }

    fn mark(&self) -> Result<Arc<dyn Mark>, BackendError> {
        let signal = self.gpu.take_signal(Watched::ByValue, 1)?;
        let signal = Arc::new(OwnedSignal { gpu: self.gpu.clone(), signal });
        self.submit(2, |ring, packets, kept, _| {
            packets.push(Packet::barrier(&[], Some(signal.signal)));
            packets.push(Packet::barrier(&[], Some(ring.done())));
            kept.mark = Some(signal.clone());
            Ok(())
        })?;
        Ok(Arc::new(TimedSignal { signal }))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(ring) = self.state.ring.get() {
            // The ring is the GPU's now, and what operations keep keeps the GPU.
            let freed = ring.reclaim(&self.gpu, &mut ring.lock());
            self.gpu.give_back_ring(ring.clone());
            drop(freed);
        }
    }
}

/// A point in a queue whose time is taken.
struct TimedSignal {
    signal: Arc<OwnedSignal>,
}

impl TimedSignal {
    fn is_done(&self) -> Result<bool, Error> {
        match self.signal.signal.load() {
            0 => Ok(true),
            _ => self.signal.gpu.check().map(|()| false),
        }
    }

    /// When it was done, in ticks of the system's clock.
    fn ended(&self) -> Result<u64, Error> {
        let OwnedSignal { gpu, signal } = &*self.signal;
        let mut times = hsa_amd_profiling_dispatch_time_t { start: 0, end: 0 };
        // SAFETY: LOADED and SIGNAL; the result lives through the call.
        let status = unsafe {
            (gpu.runtime().functions.hsa_amd_profiling_get_dispatch_time)(
                gpu.agent(),
                signal.handle,
                &mut times,
            )
        };
        gpu.runtime().check(status, || "asking for an event's time".into()).map(|()| times.end)
    }
}

impl Mark for TimedSignal {
    fn elapsed_ns_since(&self, earlier: &dyn Mark) -> Result<Option<u64>, BackendError> {
        let Some(earlier) = (earlier as &dyn Any).downcast_ref::<Self>() else { return Ok(None) };
        let same = Arc::ptr_eq(&self.signal.gpu, &earlier.signal.gpu);
        if !same || !earlier.is_done()? || !self.is_done()? {
            return Ok(None);
        }
        let ticks = self.ended()?.saturating_sub(earlier.ended()?);
        let hertz = self.signal.gpu.runtime().timestamp_hertz()?;
        Ok(Some((u128::from(ticks) * 1_000_000_000 / u128::from(hertz.max(1))) as u64))
    }
}
