//! Cases of the suite over a backend from outside: the software device, wrapped. It counts what is dispatched.

use hostcall::device::seam::{
    Backend, BackendError, ConditionalList, Dispatch, Entry, ImageSource, Kernel, KernelList, KernelMemory,
    ListDispatch, Mark, Memory, Module, Pinned, Queue, Running,
};
use hostcall::device::{DeviceAddress, Properties, software_backend};
use hostcall_conformance::{CASES, Context, MakeBackend};
use std::any::Any;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Result<T> = std::result::Result<T, BackendError>;

/// The backend that is wrapped, and the count.
struct Counting {
    inner: Arc<dyn Backend>,
    dispatches: Arc<AtomicU64>,
}

// SAFETY: each function hands its call on, and so the wrapped backend's promises hold.
unsafe impl Backend for Counting {
    fn properties(&self) -> &Properties {
        self.inner.properties()
    }
    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Memory>> {
        self.inner.allocate(bytes)
    }
    fn pin(&self, bytes: usize) -> Result<Arc<dyn Pinned>> {
        self.inner.pin(bytes)
    }
    fn load(&self, image: ImageSource<'_>, stack_bytes: Option<usize>) -> Result<Arc<dyn Module>> {
        self.inner.load(image, stack_bytes)
    }
    fn queue(&self, progress: Arc<dyn Fn() + Send + Sync>) -> Result<Box<dyn Queue>> {
        let dispatches = self.dispatches.clone();
        Ok(Box::new(CountingQueue { inner: self.inner.queue(progress)?, dispatches }))
    }
    unsafe fn write_now(&self, to: DeviceAddress, bytes: &[u8]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.write_now(to, bytes) }
    }
    unsafe fn read_now(&self, from: DeviceAddress, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.read_now(from, bytes) }
    }
    unsafe fn store_words(&self, to: DeviceAddress, bytes: &[u8], width: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.store_words(to, bytes, width) }
    }
    unsafe fn load_words(&self, from: DeviceAddress, bytes: &mut [u8], width: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.load_words(from, bytes, width) }
    }
    fn copy_from_lane(&self, from: DeviceAddress, bytes: &mut [u8]) -> bool {
        self.inner.copy_from_lane(from, bytes)
    }
    fn copy_to_lane(&self, to: DeviceAddress, bytes: &[u8]) -> bool {
        self.inner.copy_to_lane(to, bytes)
    }
    fn native_kernel(&self, entry: Entry) -> Option<Arc<dyn Kernel>> {
        self.inner.native_kernel(entry)
    }
    unsafe fn list(&self, dispatches: &[Dispatch<'_>]) -> Result<Option<Arc<dyn KernelList>>> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.list(dispatches) }
    }
    unsafe fn conditional_list(&self, list: &ConditionalList<'_>) -> Result<Option<Arc<dyn KernelList>>> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.conditional_list(list) }
    }
    fn has_reliable_hints(&self) -> bool {
        self.inner.has_reliable_hints()
    }
    fn waker(&self) -> Option<Box<dyn Fn() + Send + Sync>> {
        self.inner.waker()
    }
    fn enter_thread(&self) {
        self.inner.enter_thread();
    }
    fn allocate_list_words(&self, bytes: u64) -> Option<KernelMemory> {
        self.inner.allocate_list_words(bytes)
    }
    fn allocate_for_kernels(&self, bytes: u64, align: u64) -> Option<KernelMemory> {
        self.inner.allocate_for_kernels(bytes, align)
    }
    fn map_file(&self, file: &File, len: u64, writable: bool) -> Option<KernelMemory> {
        self.inner.map_file(file, len, writable)
    }
}

struct CountingQueue {
    inner: Box<dyn Queue>,
    dispatches: Arc<AtomicU64>,
}

// SAFETY: as for the backend.
unsafe impl Queue for CountingQueue {
    unsafe fn dispatch(&self, dispatch: &Dispatch<'_>) -> Result<Option<Arc<dyn Running>>> {
        self.dispatches.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { self.inner.dispatch(dispatch) }
    }
    unsafe fn dispatch_list(&self, dispatch: &ListDispatch<'_>) -> Result<Vec<Arc<dyn Running>>> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.dispatch_list(dispatch) }
    }
    unsafe fn write(&self, to: DeviceAddress, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.write(to, from, bytes) }
    }
    unsafe fn read(&self, to: *mut u8, from: DeviceAddress, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.read(to, from, bytes) }
    }
    unsafe fn read_words(&self, to: *mut u8, from: DeviceAddress, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.read_words(to, from, bytes) }
    }
    unsafe fn write_words(&self, to: DeviceAddress, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.write_words(to, from, bytes) }
    }
    unsafe fn copy(&self, to: DeviceAddress, from: DeviceAddress, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.copy(to, from, bytes) }
    }
    unsafe fn fill(&self, to: DeviceAddress, pattern: &[u8], count: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.fill(to, pattern, count) }
    }
    fn signal(&self, value: u64) -> Result<()> {
        self.inner.signal(value)
    }
    fn completed(&self) -> u64 {
        self.inner.completed()
    }
    fn poll(&self, value: u64) -> bool {
        self.inner.poll(value)
    }
    fn calls_progress(&self) -> bool {
        self.inner.calls_progress()
    }
    fn check(&self) -> Result<()> {
        self.inner.check()
    }
    fn mark(&self) -> Result<Arc<dyn Mark>> {
        self.inner.mark()
    }
    fn can_wait(&self) -> bool {
        self.inner.can_wait()
    }
    fn wait(&self, other: &dyn Queue, value: u64) -> Result<()> {
        let other: &dyn Any = other;
        let Some(other) = other.downcast_ref::<Self>() else {
            return Err(BackendError::Refused("the queue is another device's".into()));
        };
        self.inner.wait(&*other.inner, value)
    }
}

#[test]
fn cases_run_over_a_backend_from_outside() {
    let dispatches = Arc::<AtomicU64>::default();
    let counted = dispatches.clone();
    let make = MakeBackend(Arc::new(move |config| {
        let inner = software_backend(config).map_err(|error| error.to_string())?;
        Ok(Arc::new(Counting { inner, dispatches: counted.clone() }))
    }));
    let context = Context { backend: Some(make), ..Context::default() };
    let quick = [
        "bytes::lengths",
        "bytes::in_parts",
        "calls::few_slots",
        "calls::types",
        "graphs::replays",
        "streams::events",
    ];
    let cases = CASES.iter().filter(|case| quick.contains(&case.name));
    let failures: Vec<_> = cases.filter_map(|case| Some((case.name, context.run(case.run).err()?))).collect();
    assert!(failures.is_empty(), "{failures:?}");
    assert!(dispatches.load(Ordering::Relaxed) > 0);
}
