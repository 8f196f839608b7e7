//! A GPU: what it is, and its context.

use crate::Error;
use crate::driver::check;
use crate::lent::LaneCopies;
use crate::memory::{UnusedBlocks, Zeros};
use crate::queue::Progress;
use crate::quiet::when_quiet;
use cudarc::driver::sys::{self, CUdevice_attribute, CUresult};
use hostcall_locks::Mutex;
use std::ffi::{CStr, c_char};
use std::sync::{Arc, OnceLock};

/// What is known of a GPU before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Place in the driver's list, from 0.
    pub index: u32,
    /// The product's name.
    pub name: String,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// Major and minor version of what its code can use.
    pub compute_capability: (u32, u32),
    /// Where it is plugged in, such as `0000:4c:00.0`.
    pub pci_bus_id: String,
    /// Most bytes of shared memory that a block can have.
    pub block_shared_bytes: u32,
    /// Whether its memory can be allocated and freed while kernels run.
    pub memory_pools: bool,
    /// Whether its streams write numbers to the host's memory.
    pub stream_writes: bool,
    /// Most threads that one multiprocessor holds at once.
    pub multiprocessor_threads: u32,
    /// Most threads of a block.
    pub block_threads: u32,
    device: sys::CUdevice,
}

impl GpuInfo {
    pub(crate) fn read(index: i32) -> Result<Self, Error> {
        let about = || format!("asking about GPU {index}");
        let mut device = 0;
        // SAFETY: LOADED; the result lives through the call.
        check(unsafe { sys::cuDeviceGet(&mut device, index) }, about)?;
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: as above, of a device that the driver named.
            check(unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) }, about)?;
            Ok(value as u32)
        };
        let text = |get: unsafe fn(*mut c_char, i32, sys::CUdevice) -> CUresult| {
            let mut bytes = [0 as c_char; 256];
            // SAFETY: as above; the driver writes a string of at most this length.
            check(unsafe { get(bytes.as_mut_ptr(), bytes.len() as i32, device) }, about)?;
            // SAFETY: the array was zero, and what the driver writes ends in one.
            Ok(unsafe { CStr::from_ptr(bytes.as_ptr()) }.to_string_lossy().into_owned())
        };
        let mut memory_bytes = 0;
        // SAFETY: as above.
        check(unsafe { sys::cuDeviceTotalMem_v2(&mut memory_bytes, device) }, about)?;
        use CUdevice_attribute::*;
        Ok(Self {
            index: index as u32,
            name: text(sys::cuDeviceGetName)?,
            multiprocessors: attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            memory_bytes: memory_bytes as u64,
            compute_capability: (
                attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            pci_bus_id: text(sys::cuDeviceGetPCIBusId)?.to_ascii_lowercase(),
            block_shared_bytes: attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            memory_pools: attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0,
            stream_writes: attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)? != 0,
            multiprocessor_threads: attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            block_threads: attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            device,
        })
    }
}

/// A handle of the driver's, which any thread may use.
#[derive(Clone, Copy)]
pub(crate) struct Handle<T>(pub *mut T);

// SAFETY: the driver's functions may be called from any thread with any of its handles.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

pub(crate) type Stream = Handle<sys::CUstream_st>;

/// An event of the driver's.
pub(crate) type Event = Handle<sys::CUevent_st>;

/// An open GPU: the process's primary context on it, until the last reference is dropped.
pub struct Gpu {
    info: GpuInfo,
    context: Handle<sys::CUctx_st>,
    /// It is among the users of a [`Context`].
    is_counted: bool,
    /// For copies, allocations and frees, so that they never wait for a kernel. Null until it is made.
    copies: OnceLock<Stream>,
    /// Streams on which nothing runs.
    idle: Mutex<Vec<Stream>>,
    /// Events that nobody waits for any more.
    events: Mutex<Vec<Event>>,
    /// How far queues have come.
    pub(crate) words: Mutex<Progress>,
    /// What memory is cleared with beside kernels, once that was needed.
    pub(crate) zeros: Mutex<Option<Zeros>>,
    /// Pinned blocks that nobody uses.
    pub(crate) unused_blocks: Mutex<UnusedBlocks>,
    loads_functions: bool,
    pub(crate) lane_copies: LaneCopies,
    /// The fault after which the driver refuses everything.
    fault: OnceLock<Error>,
}

impl Gpu {
    pub(crate) fn open(info: GpuInfo, loads_functions: bool) -> Result<Arc<Self>, Error> {
        let opening = || format!("opening GPU {}", info.index);
        let lacking = |name: &str, text: &str| {
            let text = format!("{text}; use a newer driver or another GPU");
            Err(Error { doing: opening(), name: name.into(), text, is_fault: false })
        };
        if !info.memory_pools {
            return lacking("no memory pools", "its memory cannot be allocated while kernels run");
        }
        if !info.stream_writes {
            return lacking("no stream writes", "its streams cannot tell the host how far they have come");
        }
        let keep_stacks = sys::CUctx_flags_enum::CU_CTX_LMEM_RESIZE_TO_MAX as u32;
        // SAFETY: LOADED. What it answers does not matter: without the flag, launches that need more stack wait
        // for others more often.
        unsafe { sys::cuDevicePrimaryCtxSetFlags_v2(info.device, keep_stacks) };
        let mut context = std::ptr::null_mut();
        // SAFETY: LOADED; the result lives through the call.
        check(unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, info.device) }, opening)?;
        let is_counted = keep_context(info.device);
        let gpu = Arc::new(Self {
            info,
            context: Handle(context),
            is_counted,
            copies: OnceLock::new(),
            idle: Mutex::default(),
            events: Mutex::default(),
            words: Mutex::default(),
            zeros: Mutex::default(),
            unused_blocks: Mutex::default(),
            loads_functions,
            lane_copies: LaneCopies::default(),
            fault: OnceLock::new(),
        });
        let _ = gpu.copies.set(gpu.new_stream()?);
        gpu.keep_freed_memory()?;
        Ok(gpu)
    }

    /// Lets what this thread asks the driver for leave the streams alone that other threads capture. Else a query, a copy or
    /// an allocation ends such a capture with an error. The GPU's context stays the thread's current one: for
    /// threads that are not a user's.
    pub fn enter_thread(&self) {
        // SAFETY: LOADED; the context is retained while `self` lives. What fails here fails for whatever
        // comes next too.
        let _ = unsafe { sys::cuCtxSetCurrent(self.context.0) };
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: LOADED; the mode lives through the call.
        let relax = || unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
        // A driver that fails here fails for whatever comes next too.
        let _ = self.run(|| "changing a thread's capture mode".into(), relax);
    }

    /// Gives each lane of kernels launched from now on so many bytes of stack, rounded up to 128, unless it has more: the driver
    /// begins with a KiB. It takes memory for all lanes that the GPU can hold at once, on an H200 264 MiB for each KiB, and may
    /// wait for kernels that run.
    ///
    /// # Errors
    /// When the GPU has no such stacks.
    pub fn need_stack_bytes(&self, bytes: usize) -> Result<(), Error> {
        let bytes = bytes.checked_next_multiple_of(128).unwrap_or(bytes);
        // The limit is the context's, which all of a process's `Gpu`s of a device share.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _one = ONE_AT_A_TIME.lock();
        let doing = || format!("giving each lane a stack of {bytes} bytes");
        let (limit, mut has) = (sys::CUlimit::CU_LIMIT_STACK_SIZE, 0);
        // SAFETY: LOADED, with the GPU's context; the result lives through the call.
        self.run(doing, || unsafe { sys::cuCtxGetLimit(&mut has, limit) })?;
        if bytes > has {
            // SAFETY: LOADED, with the GPU's context.
            self.run(doing, || unsafe { sys::cuCtxSetLimit(limit, bytes) })?;
        }
        Ok(())
    }

    /// Lets the driver keep freed memory for the next allocation: giving it back may wait for kernels.
    fn keep_freed_memory(&self) -> Result<(), Error> {
        let doing = || "setting up the GPU's memory pool".to_string();
        let pool = self.memory_pool()?;
        let mut all = u64::MAX;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: LOADED; the attribute is a u64, which lives through the call.
        self.run(doing, || unsafe { sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut all).cast()) })
    }

    /// The pool that memory is allocated from, which is the process's.
    fn memory_pool(&self) -> Result<sys::CUmemoryPool, Error> {
        let mut pool = std::ptr::null_mut();
        let doing = || "finding the GPU's memory pool".to_string();
        // SAFETY: LOADED; the result lives through the call.
        self.run(doing, || unsafe { sys::cuDeviceGetDefaultMemPool(&mut pool, self.info.device) })?;
        Ok(pool)
    }

    /// Its context.
    pub(crate) fn context(&self) -> sys::CUcontext {
        self.context.0
    }

    /// What the GPU is.
    pub fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// Calls the driver with the GPU's context as this thread's, which has its own again afterwards. After a
    /// fault nothing is called any more.
    pub(crate) fn run(
        &self,
        doing: impl Fn() -> String,
        operation: impl FnOnce() -> CUresult,
    ) -> Result<(), Error> {
        if let Some(fault) = self.fault.get() {
            return Err(refused_since(fault, doing()));
        }
        let result = {
            let _inside = Inside::enter(self.context.0, &doing)?;
            check(operation(), doing)
        };
        result.map_err(|error| self.note(error))
    }

    /// Notes an error after which the driver refuses everything.
    #[cold]
    fn note(&self, error: Error) -> Error {
        if error.is_fault {
            let _ = self.fault.set(error.clone());
        }
        error
    }

    /// Says whether the driver refuses everything, after a fault.
    pub(crate) fn has_failed(&self) -> bool {
        self.fault.get().is_some()
    }

    /// Gives the GPU up after an error of which the driver does not say itself that it is final.
    pub(crate) fn fail(&self, error: Error) -> Error {
        self.note(Error { is_fault: true, ..error })
    }

    /// Calls the driver, in this GPU's context, to free something: after a fault there is nothing left to free.
    pub(crate) fn release(&self, operation: impl FnOnce() -> CUresult) {
        let _ = self.run(String::new, operation);
    }

    /// A stream that waits for no other.
    fn new_stream(&self) -> Result<Stream, Error> {
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: LOADED; the result lives through the call.
        self.run(|| "making a CUDA stream".into(), || unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
        Ok(Handle(stream))
    }

    /// The stream of copies, allocations and frees.
    pub(crate) fn copies(&self) -> sys::CUstream {
        self.copies.get().expect("made when the GPU was opened").0
    }

    /// Waits for what was put on the stream of copies.
    pub(crate) fn finish_copies(&self, doing: impl Fn() -> String) -> Result<(), Error> {
        // SAFETY: LOADED, with a stream of this GPU.
        self.run(doing, || unsafe { sys::cuStreamSynchronize(self.copies()) })
    }

    /// Says whether kernels' code can be loaded before their first launch.
    pub(crate) fn loads_functions(&self) -> bool {
        self.loads_functions
    }

    /// A stream on which nothing runs.
    pub(crate) fn take_stream(&self) -> Result<Stream, Error> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| self.new_stream(), Ok)
    }

    pub(crate) fn give_back_stream(&self, stream: Stream) {
        self.idle.lock().push(stream);
    }

    /// Takes an event without a time, which may have been recorded before.
    pub(crate) fn take_event(&self) -> Result<Event, Error> {
        if let Some(event) = self.events.lock().pop() {
            return Ok(event);
        }
        let mut event = std::ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: LOADED; the result lives through the call.
        self.run(|| "making an event".into(), || unsafe { sys::cuEventCreate(&mut event, flags) })?;
        Ok(Handle(event))
    }

    /// Takes events back. What waits for one already goes on when it was to.
    pub(crate) fn give_back_events(&self, events: impl IntoIterator<Item = Event>) {
        self.events.lock().extend(events);
    }
}

/// What is answered after a fault.
#[cold]
fn refused_since(fault: &Error, doing: String) -> Error {
    let text = format!("the GPU cannot be used any more by this process since {}", fault.doing);
    Error { doing, text: format!("{text}: {}", fault.text), ..fault.clone() }
}

/// A context is this thread's current one while it lives. The thread then has the one of before again, as programs that use
/// CUDA themselves rely on; one that had none keeps it, so that the next call need not set it.
struct Inside {
    before: sys::CUcontext,
    is_other: bool,
}

impl Inside {
    fn enter(context: sys::CUcontext, doing: impl Fn() -> String) -> Result<Self, Error> {
        let mut before = std::ptr::null_mut();
        // SAFETY: LOADED; the result lives through the call.
        check(unsafe { sys::cuCtxGetCurrent(&mut before) }, &doing)?;
        if before != context {
            // SAFETY: LOADED; whoever calls this holds the context.
            check(unsafe { sys::cuCtxSetCurrent(context) }, doing)?;
        }
        Ok(Self { before, is_other: !before.is_null() && before != context })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.is_other {
            // SAFETY: LOADED; the driver refuses a context that is gone.
            let _ = unsafe { sys::cuCtxSetCurrent(self.before) };
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let streams = std::mem::take(&mut *self.idle.lock());
        for stream in streams.into_iter().chain(self.copies.get().copied()).chain(self.lane_copies.streams())
        {
            // SAFETY: LOADED; every user of the stream held the GPU, so that nobody is left.
            self.release(|| unsafe { sys::cuStreamDestroy_v2(stream.0) });
        }
        for event in std::mem::take(&mut *self.events.lock()) {
            // SAFETY: LOADED; made by `take_event`, and nobody is left who records it.
            self.release(|| unsafe { sys::cuEventDestroy_v2(event.0) });
        }
        let zeros = self.zeros.get_mut().take();
        let mut pinned: Vec<_> =
            self.words.lock().take_slabs().into_iter().map(|slab| Handle(slab.as_ptr())).collect();
        pinned.extend(zeros.map(|Zeros(start)| Handle(start.as_ptr())));
        // After a fault there is nothing left to free.
        if !self.has_failed() && !pinned.is_empty() {
            free_when_quiet(self.info.device, pinned);
        }
        let (is_last, is_kept) = match self.is_counted {
            true => let_go(self.info.device, self.has_failed()),
            false => (false, true),
        };
        if is_last && let Ok(pool) = self.memory_pool() {
            // SAFETY: LOADED. Nothing of this process runs on the GPU, so that it waits for no kernel.
            self.release(|| unsafe { sys::cuMemPoolTrimTo(pool, 0) });
        }
        for _ in 0..1 + u32::from(!is_kept) {
            // SAFETY: LOADED; retained by `open` and `keep_context`, and nobody is left who uses it.
            let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.info.device) };
        }
    }
}

/// Frees pinned memory of a [`Gpu`] that goes. Kernels of others may run, for which the driver would wait.
fn free_when_quiet(device: sys::CUdevice, pinned: Vec<Handle<u8>>) {
    let mut context = std::ptr::null_mut();
    // SAFETY: LOADED; the result lives through the call.
    if unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) } != CUresult::CUDA_SUCCESS {
        return;
    }
    let context = Handle(context);
    when_quiet(move || {
        let Handle(context) = { context };
        if let Ok(_inside) = Inside::enter(context, String::new) {
            for Handle(start) in pinned {
                // SAFETY: LOADED; `pin_for_good` allocated it, and all who knew of it held the GPU.
                unsafe { sys::cuMemFreeHost(start.cast()) };
            }
        }
        // SAFETY: LOADED; retained above.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(device) };
    });
}

/// A context of the process.
struct Context {
    device: sys::CUdevice,
    /// How many [`Gpu`]s have it.
    users: u32,
    /// A kernel failed in it: it is good for nothing any more.
    has_failed: bool,
}

/// The process's contexts, each retained once more than its [`Gpu`]s do: to make one takes the driver half a second, to end
/// it a third.
static CONTEXTS: Mutex<Vec<Context>> = Mutex::new(Vec::new());

/// Keeps the context of a device, which the caller has retained, until the process ends. Returns whether it
/// could, so that the caller counts as a user.
fn keep_context(device: sys::CUdevice) -> bool {
    let mut contexts = CONTEXTS.lock();
    match contexts.iter_mut().find(|context| context.device == device) {
        Some(context) => {
            context.users += 1;
            true
        }
        None => {
            let mut context = std::ptr::null_mut();
            // SAFETY: LOADED; the result lives through the call.
            let kept = unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) };
            let is_kept = kept == CUresult::CUDA_SUCCESS;
            if is_kept {
                contexts.push(Context { device, users: 1, has_failed: false });
            }
            is_kept
        }
    }
}

/// Notes that a [`Gpu`] goes that [`keep_context`] counted. Returns whether it was the last with the device's
/// context, and whether that stays.
fn let_go(device: sys::CUdevice, has_failed: bool) -> (bool, bool) {
    let mut contexts = CONTEXTS.lock();
    // It is there, since it has a user.
    let Some(at) = contexts.iter().position(|context| context.device == device) else { return (false, true) };
    contexts[at].users -= 1;
    contexts[at].has_failed |= has_failed;
    let is_last = contexts[at].users == 0;
    let ends = is_last && contexts[at].has_failed;
    if ends {
        contexts.swap_remove(at);
    }
    (is_last, !ends)
}
