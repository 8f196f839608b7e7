//! A backend that does nothing: a device with memory and copies, which runs no kernels. It is whole, and a first page for
//! whoever writes a backend: each function that a device needs is here, and each that has a default is left away.
//!
//! ```
//! use hostcall_seam::noop::Noop;
//! use hostcall_seam::{Backend, Queue};
//! use std::sync::Arc;
//!
//! let device = Noop::new();
//! let (memory, pinned) = (device.allocate(8)?, device.pin(8)?);
//! let queue = device.queue(Arc::new(|| ()))?;
//! // SAFETY: both sides have 8 bytes, and are this program's alone.
//! unsafe {
//!     queue.fill(memory.address(), &[7], 8)?;
//!     queue.read(pinned.host_address().as_ptr(), memory.address(), 8)?;
//! }
//! queue.signal(1)?;
//! assert_eq!(queue.completed(), 1);
//! // SAFETY: the copy has ended.
//! assert_eq!(unsafe { pinned.host_address().cast::<[u8; 8]>().read() }, [7; 8]);
//! # Ok::<(), hostcall_seam::BackendError>(())
//! ```

use crate::{
    Backend, BackendError, DeviceAddress, DeviceKind, Dispatch, HostMemory, ImageSource, KernelMemory, Mark,
    Memory, Module, Pinned, Properties, Queue, Running,
};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

type Result<T> = std::result::Result<T, BackendError>;

fn pointer(address: DeviceAddress) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address.get() as usize)
}

/// A device that holds data and runs no kernels.
pub struct Noop(Properties);

impl Noop {
    /// Makes one of the kind [`DeviceKind::Software`].
    pub fn new() -> Self {
        Self(Properties {
            kind: DeviceKind::Software,
            product: "a device that runs no kernels".into(),
            target: "cpu".into(),
            wave_size: 32,
            multiprocessors: 1,
            resident_waves: 64,
            max_workgroup_lanes: 1024,
            max_workgroup_bytes: 1 << 16,
            memory_bytes: 0,
            clock_hz: 1_000_000_000,
            independent_lanes: true,
        })
    }
}

impl Default for Noop {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: 1. memory is `HostMemory` of its own, and there are no modules and kernels; 2. queues: see `AtOnce`; 3. memory is the
// process's; 4. there is none for kernels; 5. there are no waves. Since no kernel runs, nobody accesses numbers while they are
// copied as bytes.
unsafe impl Backend for Noop {
    fn properties(&self) -> &Properties {
        &self.0
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Memory>> {
        Ok(Arc::new(HostMemory::new(bytes)?))
    }

    fn pin(&self, bytes: usize) -> Result<Arc<dyn Pinned>> {
        Ok(Arc::new(HostMemory::new(bytes)?))
    }

    fn load(&self, _: ImageSource<'_>, _: Option<usize>) -> Result<Arc<dyn Module>> {
        Err(BackendError::BadImage("it runs no kernels: open another device for them".into()))
    }

    fn queue(&self, _: Arc<dyn Fn() + Send + Sync>) -> Result<Box<dyn Queue>> {
        Ok(Box::new(AtOnce::default()))
    }

    unsafe fn write_now(&self, to: DeviceAddress, bytes: &[u8]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { pointer(to).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    unsafe fn read_now(&self, from: DeviceAddress, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { pointer(from).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn allocate_for_kernels(&self, _: u64, _: u64) -> Option<KernelMemory> {
        None
    }
}

/// A queue that does everything while it is asked to: there is nothing in it that takes longer.
#[derive(Default)]
struct AtOnce(AtomicU64);

struct Then(Instant);

impl Mark for Then {
    fn elapsed_ns_since(&self, earlier: &dyn Mark) -> Result<Option<u64>> {
        let earlier: &dyn Any = earlier;
        Ok(earlier.downcast_ref::<Self>().map(|earlier| self.0.duration_since(earlier.0).as_nanos() as u64))
    }
}

// SAFETY: whatever was submitted has ended when the next is.
unsafe impl Queue for AtOnce {
    unsafe fn dispatch(&self, dispatch: &Dispatch<'_>) -> Result<Option<Arc<dyn Running>>> {
        Err(BackendError::Refused(format!("it does not run {}", dispatch.name)))
    }

    unsafe fn write(&self, to: DeviceAddress, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { pointer(to).copy_from_nonoverlapping(from, bytes) };
        Ok(())
    }

    unsafe fn read(&self, to: *mut u8, from: DeviceAddress, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { pointer(from).copy_to_nonoverlapping(to, bytes) };
        Ok(())
    }

    unsafe fn copy(&self, to: DeviceAddress, from: DeviceAddress, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { pointer(to).copy_from_nonoverlapping(pointer(from), bytes) };
        Ok(())
    }

    unsafe fn fill(&self, to: DeviceAddress, pattern: &[u8], count: usize) -> Result<()> {
        for at in (0..count * pattern.len()).step_by(pattern.len()) {
            // SAFETY: the caller's promise.
            unsafe { pointer(to).add(at).copy_from_nonoverlapping(pattern.as_ptr(), pattern.len()) };
        }
        Ok(())
    }

    fn signal(&self, value: u64) -> Result<()> {
        self.0.store(value, Ordering::Release);
        Ok(())
    }

    fn completed(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn calls_progress(&self) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn mark(&self) -> Result<Arc<dyn Mark>> {
        Ok(Arc::new(Then(Instant::now())))
    }
}
