//! A backend for tests: the software device, which notes what is asked of it, and whose queues do it as a test wants.

use hostcall_abi::cpu::Entry;
use hostcall_locks::Mutex;
use hostcall_seam::{
    Backend, BackendError, DeviceAddress, Dispatch, Hooks, ImageSource, Kernel, KernelMemory, Mark, Memory,
    Module, Pinned, Properties, Queue, Running,
};
use hostcall_softdev::{Config, Cpu};
use std::any::Any;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

type BeforeDispatch = Box<dyn Fn(&Noted, &str) + Send + Sync>;

/// What was asked of a [`Double`], and what it does otherwise than the software device.
#[derive(Default)]
pub(crate) struct Noted {
    /// Names of the threads that entered the backend.
    pub threads: Mutex<BTreeSet<String>>,
    pub allocations: AtomicU64,
    pub pins: AtomicU64,
    /// Writes and stores that wait for no queue.
    pub writes: AtomicU64,
    /// What was dispatched, by kernel.
    pub dispatched: Mutex<Vec<(String, Arc<dyn Running>)>>,
    /// Runs inside of each dispatch before it happens, with the kernel's name, and may wait there as a driver does.
    pub before_dispatch: OnceLock<BeforeDispatch>,
    /// The queues tell nobody when they have got on, so that whoever waits polls them, as it does a GPU's.
    pub is_polled: bool,
    /// So many more polls of a queue do not see that it has got on.
    pub unseeing_polls: AtomicU64,
    /// So many more waits of a queue for another one are refused.
    pub refused_waits: AtomicU64,
    /// Queues refuse to copy words to the host.
    pub refuses_words: AtomicBool,
}

impl Noted {
    /// How often memory was asked for or written outside of queues.
    pub fn memory_operations(&self) -> u64 {
        [&self.allocations, &self.pins, &self.writes].map(|count| count.load(Ordering::SeqCst)).iter().sum()
    }

    /// The kernels that were dispatched, in order.
    pub fn kernels(&self) -> Vec<String> {
        self.dispatched.lock().iter().map(|(kernel, _)| kernel.clone()).collect()
    }

    /// Whether the first dispatch of a kernel whose name ends so has ended.
    pub fn has_ended(&self, kernel: &str) -> bool {
        let dispatched = self.dispatched.lock();
        let first = dispatched.iter().find(|(name, _)| name.ends_with(kernel));
        first.is_some_and(|(_, running)| running.outcome().is_some())
    }
}

/// The backend.
pub(crate) struct Double {
    cpu: Cpu,
    pub noted: Arc<Noted>,
}

impl Double {
    pub fn new(noted: Noted) -> Arc<Self> {
        Arc::new(Self { cpu: Cpu::open(Config::default()).unwrap(), noted: Arc::new(noted) })
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::SeqCst);
}

// SAFETY: the software device's promises.
unsafe impl Backend for Double {
    fn properties(&self) -> &Properties {
        self.cpu.properties()
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Memory>, BackendError> {
        count(&self.noted.allocations);
        self.cpu.allocate(bytes)
    }

    fn pin(&self, bytes: usize) -> Result<Arc<dyn Pinned>, BackendError> {
        count(&self.noted.pins);
        self.cpu.pin(bytes)
    }

    fn load(&self, image: ImageSource<'_>, stack: Option<usize>) -> Result<Arc<dyn Module>, BackendError> {
        self.cpu.load(image, stack)
    }

    fn queue(&self, progress: Arc<dyn Fn() + Send + Sync>) -> Result<Box<dyn Queue>, BackendError> {
        let progress: Arc<dyn Fn() + Send + Sync> =
            if self.noted.is_polled { Arc::new(|| ()) } else { progress };
        let queue = self.cpu.queue(progress)?;
        Ok(Box::new(DoubleQueue { queue, noted: self.noted.clone(), seen: AtomicU64::new(0) }))
    }

    unsafe fn write_now(&self, to: DeviceAddress, bytes: &[u8]) -> Result<(), BackendError> {
        count(&self.noted.writes);
        // SAFETY: by the caller's promise.
        unsafe { self.cpu.write_now(to, bytes) }
    }

    unsafe fn read_now(&self, from: DeviceAddress, bytes: &mut [u8]) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        unsafe { self.cpu.read_now(from, bytes) }
    }

    unsafe fn store_words(&self, to: DeviceAddress, bytes: &[u8], width: usize) -> Result<(), BackendError> {
        count(&self.noted.writes);
        // SAFETY: by the caller's promise.
        unsafe { self.cpu.store_words(to, bytes, width) }
    }

    unsafe fn load_words(
        &self,
        from: DeviceAddress,
        bytes: &mut [u8],
        width: usize,
    ) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        unsafe { self.cpu.load_words(from, bytes, width) }
    }

    fn copy_from_lane(&self, from: DeviceAddress, bytes: &mut [u8]) -> bool {
        self.cpu.copy_from_lane(from, bytes)
    }

    fn copy_to_lane(&self, to: DeviceAddress, bytes: &[u8]) -> bool {
        self.cpu.copy_to_lane(to, bytes)
    }

    fn native_kernel(&self, entry: Entry) -> Option<Arc<dyn Kernel>> {
        self.cpu.native_kernel(entry)
    }

    fn has_reliable_hints(&self) -> bool {
        self.cpu.has_reliable_hints()
    }

    fn waker(&self) -> Option<Box<dyn Fn() + Send + Sync>> {
        self.cpu.waker()
    }

    fn enter_thread(&self) {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        self.noted.threads.lock().insert(name);
    }

    fn allocate_for_kernels(&self, bytes: u64, align: u64) -> Option<KernelMemory> {
        self.cpu.allocate_for_kernels(bytes, align)
    }
}

/// The hooks of a device that does not tell of failures: what a lane reports has to be enough, as on a GPU.
struct Discreet(Arc<dyn Hooks>);

impl Hooks for Discreet {
    fn notify(&self) {
        self.0.notify();
    }

    fn failed(&self, _token: u64) {}
}

struct DoubleQueue {
    queue: Box<dyn Queue>,
    noted: Arc<Noted>,
    /// What the last poll saw.
    seen: AtomicU64,
}

// SAFETY: the software device's promises; `completed` is behind at times, and never ahead.
unsafe impl Queue for DoubleQueue {
    unsafe fn dispatch(&self, dispatch: &Dispatch<'_>) -> Result<Option<Arc<dyn Running>>, BackendError> {
        if let Some(before) = self.noted.before_dispatch.get() {
            before(&self.noted, dispatch.name);
        }
        let hooks: Arc<dyn Hooks> = Arc::new(Discreet(dispatch.hooks.clone()));
        // SAFETY: by the caller's promise.
        let running = unsafe { self.queue.dispatch(&Dispatch { hooks: &hooks, ..*dispatch }) }?;
        let known = running.clone().expect("the software device knows how a dispatch ends");
        self.noted.dispatched.lock().push((dispatch.name.to_owned(), known));
        Ok(running)
    }

    unsafe fn write(&self, to: DeviceAddress, from: *const u8, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        unsafe { self.queue.write(to, from, bytes) }
    }

    unsafe fn read(&self, to: *mut u8, from: DeviceAddress, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        unsafe { self.queue.read(to, from, bytes) }
    }

    unsafe fn read_words(&self, to: *mut u8, from: DeviceAddress, bytes: usize) -> Result<(), BackendError> {
        if self.noted.refuses_words.load(Ordering::SeqCst) {
            return Err(BackendError::Driver("no more copies".into()));
        }
        // SAFETY: by the caller's promise.
        unsafe { self.queue.read_words(to, from, bytes) }
    }

    unsafe fn write_words(
        &self,
        to: DeviceAddress,
        from: *const u8,
        bytes: usize,
    ) -> Result<(), BackendError> {
        if self.noted.refuses_words.load(Ordering::SeqCst) {
            return Err(BackendError::Driver("no more copies".into()));
        }
        // SAFETY: by the caller's promise.
        unsafe { self.queue.write_words(to, from, bytes) }
    }

    unsafe fn copy(&self, to: DeviceAddress, from: DeviceAddress, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        unsafe { self.queue.copy(to, from, bytes) }
    }

    unsafe fn fill(&self, to: DeviceAddress, pattern: &[u8], count: usize) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        unsafe { self.queue.fill(to, pattern, count) }
    }

    fn signal(&self, value: u64) -> Result<(), BackendError> {
        self.queue.signal(value)
    }

    fn completed(&self) -> u64 {
        let fewer = |polls: u64| polls.checked_sub(1);
        let unseeing = self.noted.unseeing_polls.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer);
        if unseeing.is_err() {
            self.seen.fetch_max(self.queue.completed(), Ordering::SeqCst);
        }
        self.seen.load(Ordering::SeqCst)
    }

    fn calls_progress(&self) -> bool {
        !self.noted.is_polled
    }

    fn check(&self) -> Result<(), BackendError> {
        self.queue.check()
    }

    fn mark(&self) -> Result<Arc<dyn Mark>, BackendError> {
        self.queue.mark()
    }

    fn can_wait(&self) -> bool {
        self.queue.can_wait()
    }

    fn wait(&self, other: &dyn Queue, value: u64) -> Result<(), BackendError> {
        let left = |waits: u64| waits.checked_sub(1);
        if self.noted.refused_waits.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok() {
            return Err(BackendError::Refused("it does not wait now".into()));
        }
        let other: &dyn Any = other;
        let other = other.downcast_ref::<Self>().expect("a device has queues of one kind");
        self.queue.wait(&*other.queue, value)
    }
}
