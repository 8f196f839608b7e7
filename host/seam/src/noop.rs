//! A backend that is made of nothing but the seam: a device with memory and copies, which runs no kernels.
#![allow(unsafe_code, reason = "promises of the seam; memory is used by its address")]

use hostcall::device::seam::{
    Backend, BackendError, Dispatch, ImageSource, KernelMemory, Mark, Memory, Module, Pinned, Queue, Running,
};
use hostcall::device::{DeviceAddress, DeviceKind, Properties};
use hostcall::{Device, Global, Grid, Hostcall, Lane, LaunchKernel, kernel};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

type Result<T> = std::result::Result<T, BackendError>;

/// What the seam asks of addresses.
const ALIGN: usize = 256;

/// Memory of the process (ALLOCATED: `len` bytes lie at `start`, in the words at `words`, until this is dropped).
struct Words {
    words: NonNull<[u64]>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is no thread's own.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Pages that nobody touches take no memory: a vector's zeros come from the system as they are, which zeros at a
    /// multiple of 256 would not.
    fn new(len: usize) -> Self {
        let words = vec![0u64; (len + ALIGN) / 8 + 1].into_boxed_slice();
        let words = NonNull::from(Box::leak(words));
        let first = words.cast::<u8>();
        let ahead = first.as_ptr().expose_provenance().next_multiple_of(ALIGN) - first.addr().get();
        // SAFETY: less than `ALIGN` bytes further on, which there are besides `len`.
        Self { words, start: unsafe { first.add(ahead) }, len }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the box was leaked when this was made, and nobody uses the memory any more (USERS-KEEP).
        drop(unsafe { Box::from_raw(self.words.as_ptr()) });
    }
}

// SAFETY: ALLOCATED, zeroed, at a multiple of 256.
unsafe impl Memory for Words {
    fn address(&self) -> DeviceAddress {
        DeviceAddress::new(self.start.addr().get() as u64)
    }
    fn len(&self) -> usize {
        self.len
    }
}

// SAFETY: as above; the device has no other memory than the host's.
unsafe impl Pinned for Words {
    fn address(&self) -> DeviceAddress {
        Memory::address(self)
    }
    fn host_address(&self) -> NonNull<u8> {
        self.start
    }
    fn len(&self) -> usize {
        self.len
    }
}

fn pointer(address: DeviceAddress) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address.get() as usize)
}

/// A device that holds data.
struct Shelf(Properties);

// SAFETY: memory is `Words` of its own; there are no modules, kernels and waves, so that nobody accesses numbers while
// they are copied but this test, which does not; queues: see `AtOnce`.
unsafe impl Backend for Shelf {
    fn properties(&self) -> &Properties {
        &self.0
    }
    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Memory>> {
        Ok(Arc::new(Words::new(bytes)))
    }
    fn pin(&self, bytes: usize) -> Result<Arc<dyn Pinned>> {
        Ok(Arc::new(Words::new(bytes)))
    }
    fn load(&self, _: ImageSource<'_>, _: Option<usize>) -> Result<Arc<dyn Module>> {
        Err(BackendError::BadImage("a shelf runs no kernels: open another device for them".into()))
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
        Err(BackendError::Refused(format!("a shelf does not run {}", dispatch.name)))
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

#[kernel]
fn increment(_: &Lane, x: &Global<u32>) {
    x.set(x.get() + 1);
}

#[test]
fn a_device_that_runs_no_kernels_is_a_device() -> std::result::Result<(), hostcall::Error> {
    let properties = Properties {
        kind: DeviceKind::Software,
        product: "a shelf".into(),
        target: "cpu".into(),
        wave_size: 32,
        multiprocessors: 1,
        resident_waves: 64,
        max_workgroup_lanes: 1024,
        max_workgroup_bytes: 1 << 16,
        memory_bytes: 0,
        clock_hz: 1_000_000_000,
        independent_lanes: true,
    };
    let device = Device::builder("shelf").backend(Arc::new(Shelf(properties))).open()?;
    let (stream, other) = (device.stream()?, device.stream()?);
    let (x, y) = (device.upload(&[1u32, 2, 3])?, device.alloc_zeroed::<u32>(3)?);
    stream.copy(&y, &x)?;
    stream.fill(&x, 7)?;
    let filled = stream.record()?;
    other.wait_for(&filled)?;
    assert_eq!(other.read(&x)?.wait()?, [7; 3]);
    assert_eq!(y.read()?, [1, 2, 3]);
    let _closure = Hostcall::continuous(&device, |x: u32| x)?;

    let refused = increment.launch(&stream, Grid::new(1, 1), (&x,)).unwrap_err().to_string();
    assert_eq!(
        refused,
        "kernel increment is in no image for shelf (cpu): its backend does not run the program's own kernels; load an \
         image that `hostcall build --target cpu` built, or open cpu"
    );
    stream.synchronize()?;
    device.close();
    assert!(matches!(device.stream(), Err(hostcall::Error::Closed)));
    // Memory is still there.
    let z = device.upload(&[5u32])?;
    assert_eq!((x.read()?, z.read()?), (vec![7; 3], vec![5]));
    Ok(())
}
