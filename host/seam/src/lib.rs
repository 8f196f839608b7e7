//! The seam for devices: what a kind of device must give, and what it must promise. The runtime above (streams, typed
//! buffers, launches, servers, programs of other protocols) is written once.
//!
//! A [`Backend`] gives memory, [`Module`]s of code and [`Queue`]s. A module gives [`Kernel`]s and variables by their
//! symbols. A queue takes operations and does them one after the other: it dispatches kernels with raw parameter
//! blocks, copies, fills, and signals how far it has come. The seam knows nothing of hostcall's launch parameters,
//! of LLVM's start-up code, nor of a language's types.
//!
//! The traits give raw addresses, and code above them hands these to kernels. So they are `unsafe` to implement:
//! whoever implements one promises what its documentation says under "Promises". `DeviceBuilder::backend` of hostcall
//! opens a device over a backend from elsewhere. To write one, begin with [`noop`], which is whole and runs nothing;
//! the backends of hostcall (`backends/cpu`, `cuda`, `hsa`) have the same files:
//!
//! | file | implements |
//! |---|---|
//! | `device.rs` | [`Backend`]; lists and opens its devices |
//! | `memory.rs` | [`Memory`], [`Pinned`] |
//! | `module.rs` | [`Module`], [`Kernel`] |
//! | `queue.rs` | [`Queue`], [`Running`], [`Mark`] |
//! | `list.rs` | [`KernelList`], where the device takes lists |
//! | `lent.rs`, `mapped.rs` | copies of memory that lanes lend; files in place |
//!
//! # Users
//! USERS-KEEP: whoever stands above the seam keeps memory, pinned memory, kernels and lists until every operation that uses
//! them has ended, as [`Queue::completed`] tells, or the device failed for good. So a backend frees them when they are
//! dropped, and asks no queue.
//!
//! # Threads
//! Every function may be called from any thread. None may wait for a kernel unless its documentation says so: a
//! kernel may wait for the very thread that calls. Above the seam at most [`OPERATIONS_A_QUEUE`] operations are in a
//! queue that have not been seen to end, so that an implementation need not hold more.

mod arenas;
mod memory;
mod module;
pub mod noop;
mod queue;

pub use arenas::Arenas;
pub use memory::HostMemory;
pub use module::{HiddenParameters, Kernel, KernelLimits, KernelParameters, Module, Variable};
pub use queue::{
    ConditionalList, Dispatch, DispatchFailure, DispatchOutcome, Hooks, KernelList, LIST_TURN_AT,
    LIST_TURN_OF_AT, LIST_WORDS_BYTES, ListBody, ListDispatch, Mark, Queue, Running,
};

pub use hostcall_abi::cpu::Entry;
use std::any::Any;
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

/// Most operations of one queue that have been submitted and not been seen to end. More wait in the host's memory.
pub const OPERATIONS_A_QUEUE: u64 = 128;

/// Most operations of all queues of a device together, besides a few that each queue may always have.
pub const OPERATIONS_A_DEVICE: u64 = 512;

/// An address in the memory that a device's kernels reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceAddress(u64);

impl DeviceAddress {
    /// The address with this number.
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// The number of the address, as kernels see it.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the address `bytes` bytes further on.
    pub const fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl fmt::Display for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// What went wrong below the seam.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// There is no room for so much memory.
    #[error("there is no room for {bytes} bytes of {what}: {reason}")]
    NoMemory {
        /// What the memory was for, such as "device memory".
        what: &'static str,
        /// Bytes that were asked for.
        bytes: usize,
        /// What the system or the driver answered.
        reason: String,
    },
    /// The image is none of the device's; the sentence says what it is and what to do.
    #[error("{0}")]
    BadImage(String),
    /// The device does not take such an operation: its sizes, or the whole kind of operation. The sentence says why.
    #[error("{0}")]
    Refused(String),
    /// A kernel did what it must not, or the hardware failed. The device does nothing more for this process if
    /// `is_final`.
    #[error("{fault}")]
    Fault {
        /// What happened.
        fault: DeviceFault,
        /// Whether every later operation fails as well.
        is_final: bool,
    },
    /// The driver or the system refused something; the sentence is its own.
    #[error("{0}")]
    Driver(String),
}

/// What a kernel did that it must not, or what failed under it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct DeviceFault {
    /// What kind of fault it is.
    pub kind: DeviceFaultKind,
    /// A sentence: what happened, and which lane or address it was, if the device tells.
    pub reason: String,
}

impl From<BackendError> for DeviceFault {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Fault { fault, .. } => fault,
            other => Self { kind: DeviceFaultKind::Device, reason: other.to_string() },
        }
    }
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceFaultKind {
    /// A lane read or wrote where there is no memory of its own, or where its access was not aligned.
    Memory,
    /// A lane used up its stack.
    StackOverflow,
    /// A lane came to an instruction that the device does not execute, or to a trap.
    Instruction,
    /// A lane computed what the device refuses, such as a division by zero.
    Arithmetic,
    /// A lane wrote what makes no sense into the memory that it shares with the host.
    Channel,
    /// A thread of the host that serves the device's calls failed, which is a bug of hostcall.
    Server,
    /// Hardware, driver or system failed, or did not say what happened.
    Device,
}

/// A device that could be opened, or the reason why it cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The name to open it by.
    pub name: String,
    /// What it is, in words.
    pub description: String,
    /// Why it cannot be used, with what to do; `None` when it can.
    pub unavailable: Option<String>,
}

/// A kind of device, as far as what stands above the seam has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// Kernels are functions of this process, called as [`hostcall_abi::cpu`] says. The first parameter of a dispatch
    /// is the launch's parameters, the second the argument block.
    Software,
    /// NVIDIA: kernels take their parameters by value, and workgroup memory lies behind what the image declares.
    Nvidia,
    /// AMD: kernels take their parameters by value, hostcall's the addresses of theirs ([`Dispatch::by_address`]).
    Amd,
}

/// What a device is. Sizes are those of the whole device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Kind of the device.
    pub kind: DeviceKind,
    /// The product's name.
    pub product: String,
    /// What its images are built for, as `hostcall build --target` takes it: `cpu`, `sm_90`, `gfx942`.
    pub target: String,
    /// Lanes of a full wave, 32 or 64.
    pub wave_size: u32,
    /// Multiprocessors (compute units); on the software device threads.
    pub multiprocessors: u32,
    /// Waves that can be resident at once.
    pub resident_waves: u32,
    /// Most lanes of a workgroup.
    pub max_workgroup_lanes: u32,
    /// Most bytes of memory of a workgroup.
    pub max_workgroup_bytes: u32,
    /// Bytes of its memory; 0 when it has none of its own.
    pub memory_bytes: u64,
    /// Ticks a second of the clock that kernels read.
    pub clock_hz: u64,
    /// Whether lanes of a wave that diverged go on beside each other. Where they do not, a part of a wave that waits for
    /// another part waits for ever.
    pub independent_lanes: bool,
}

/// Where an image is.
#[derive(Clone, Copy, Debug)]
pub enum ImageSource<'a> {
    /// A file, taken literally: no folder is searched for it. `bytes` are its contents.
    File {
        /// Where it lies, with at least one `/`.
        path: &'a Path,
        /// What it holds.
        bytes: &'a [u8],
    },
    /// Bytes in memory.
    Bytes(&'a [u8]),
}

impl<'a> ImageSource<'a> {
    /// Returns the image's bytes.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            ImageSource::File { bytes, .. } | ImageSource::Bytes(bytes) => bytes,
        }
    }
}

/// A device.
///
/// # Safety
/// Promises:
/// 1. Memory, modules and kernels that it gives are its own, and their traits' promises hold.
/// 2. [`Backend::queue`] gives a queue for which [`Queue`]'s promises hold.
/// 3. Dropping the backend does not free what is left of its memory, modules and queues.
/// 4. What [`Backend::allocate_for_kernels`] and [`Backend::map_file`] give stays where it is, for kernels, until its owner is
///    dropped, and nobody else has it but those who map the same file.
/// 5. SLOT-BY-NUMBER, of devices of the kind [`DeviceKind::Software`]: resident waves have different numbers below
///    [`Properties::resident_waves`], which their lanes get as
///    their `proposed_slot` ([`hostcall_abi::cpu`]). Since the device is opened with as many home slots,
///    each wave claims the slot of its number. [`Running::take_lost_slots`] returns numbers of waves that have ended, which no
///    other wave gets before [`Running::restore_slots`].
pub unsafe trait Backend: Any + Send + Sync {
    /// Returns what the device is.
    fn properties(&self) -> &Properties;

    /// Says whether this device's queues copy from memory of `other`, see [`Queue::copy_from`].
    fn reaches(&self, other: &dyn Backend) -> bool {
        let _ = other;
        false
    }

    /// Allocates zeroed memory of the device, at a multiple of [`BUFFER_ALIGN`](hostcall_abi::launch::BUFFER_ALIGN).
    ///
    /// # Errors
    /// When there is no room.
    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Memory>, BackendError>;

    /// Allocates zeroed memory that the host and running kernels both reach. A device that is opened pins its channel, most of
    /// which is never touched: hundreds of megabytes on the software device. So memory that the system clears where it is
    /// touched (that of `mmap`, or of `alloc_zeroed`) is right here and in [`Backend::allocate`], where the device allows
    /// it, and filling it with zeros takes all of it. `alloc_zeroed` of the standard library fills what it is to align to more
    /// than 16 bytes: ask it for some bytes more, and begin at a multiple of the alignment.
    ///
    /// # Errors
    /// When there is no room.
    fn pin(&self, bytes: usize) -> Result<Arc<dyn Pinned>, BackendError>;

    /// Loads an image that hostcall's `image::identify` says runs on [`Properties::target`]. Lanes of its kernels get
    /// stacks of at least `stack_bytes` bytes, if it is given. May wait for running kernels.
    ///
    /// # Errors
    /// When the image is none for the device.
    fn load(
        &self,
        image: ImageSource<'_>,
        stack_bytes: Option<usize>,
    ) -> Result<Arc<dyn Module>, BackendError>;

    /// Makes a queue. `progress` is called after [`Queue::completed`] has grown, by backends of which
    /// [`Queue::calls_progress`] says so.
    ///
    /// # Errors
    /// When the driver has none left.
    fn queue(&self, progress: Arc<dyn Fn() + Send + Sync>) -> Result<Box<dyn Queue>, BackendError>;

    /// Copies to memory of the device at once, in no queue's order. Waits for the copy, and for no kernel.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Safety
    /// `bytes.len()` bytes lie at `to`, and nobody reads or writes them plainly meanwhile.
    unsafe fn write_now(&self, to: DeviceAddress, bytes: &[u8]) -> Result<(), BackendError>;

    /// Copies from memory of the device at once, in no queue's order. Waits for the copy, and for no kernel.
    ///
    /// # Errors
    /// When the device fails. `bytes` are not written any more then.
    ///
    /// # Safety
    /// `bytes.len()` bytes lie at `from`, and nobody writes them meanwhile.
    unsafe fn read_now(&self, from: DeviceAddress, bytes: &mut [u8]) -> Result<(), BackendError>;

    /// Copies numbers of `width` bytes (1, 2, 4 or 8) to `to`, a multiple of it, at once and each as a whole, also
    /// where kernels read and write such numbers atomically meanwhile.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Safety
    /// `bytes.len()` bytes, a multiple of `width`, lie at `to`, and nobody accesses them but atomically with the
    /// same width.
    unsafe fn store_words(&self, to: DeviceAddress, bytes: &[u8], width: usize) -> Result<(), BackendError> {
        let _ = width;
        // SAFETY: a copy engine is no party of the language's memory model; it moves aligned numbers whole. Backends
        // where the host's processor copies override this.
        unsafe { self.write_now(to, bytes) }
    }

    /// Copies numbers of `width` bytes from `from`, as [`Backend::store_words`] does to there.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Safety
    /// As for [`Backend::store_words`].
    unsafe fn load_words(
        &self,
        from: DeviceAddress,
        bytes: &mut [u8],
        width: usize,
    ) -> Result<(), BackendError> {
        let _ = width;
        // SAFETY: as in `store_words`.
        unsafe { self.read_now(from, bytes) }
    }

    /// Copies from where a lane that waits says that it has so many bytes, at once and in no queue's order. Returns `false`
    /// when that is neither memory of the device nor pinned memory, and the call fails then. Waits for no kernel.
    ///
    /// Lanes of GPUs lend each message of 4 KiB and more that is one slice in global memory, so a backend for one has to
    /// implement this. Lanes of the software device lend by numbers, once [`Executor::lent_memory`] was called, which is what
    /// this and [`Backend::copy_to_lane`] read and write then; a backend that leaves both away gets such messages in packets.
    ///
    /// [`Executor::lent_memory`]: https://docs.rs/hostcall-softdev/latest/hostcall_softdev/struct.Executor.html
    fn copy_from_lane(&self, from: DeviceAddress, bytes: &mut [u8]) -> bool {
        let _ = (from, bytes);
        false
    }

    /// Copies to where a lane says that it waits for so many bytes, at once and in no queue's order, if that is memory of the
    /// device's. Returns `false` when it is not, or lanes read the host's memory as fast themselves. Waits for no kernel.
    fn copy_to_lane(&self, to: DeviceAddress, bytes: &[u8]) -> bool {
        let _ = (to, bytes);
        false
    }

    /// Returns a kernel that is a function of this process, if the device can run such.
    fn native_kernel(&self, entry: Entry) -> Option<Arc<dyn Kernel>> {
        let _ = entry;
        None
    }

    /// Makes a list of dispatches, whose tokens and hooks do not count. `None` where dispatches one by one take the device no
    /// longer. May wait for running kernels.
    ///
    /// # Errors
    /// As for [`Queue::dispatch`], and when there is no room for the list.
    ///
    /// # Safety
    /// As for [`Queue::dispatch`], for each time that a queue is given the list.
    unsafe fn list(&self, dispatches: &[Dispatch<'_>]) -> Result<Option<Arc<dyn KernelList>>, BackendError> {
        let _ = dispatches;
        Ok(None)
    }

    /// Makes a list of bodies, which the device skips or repeats by itself. `None` where it cannot. May wait for running
    /// kernels.
    ///
    /// # Errors
    /// As for [`Backend::list`].
    ///
    /// # Safety
    /// As for [`Backend::list`], and the list's words are those of each dispatch of it.
    unsafe fn conditional_list(
        &self,
        list: &ConditionalList<'_>,
    ) -> Result<Option<Arc<dyn KernelList>>, BackendError> {
        let _ = list;
        Ok(None)
    }

    /// Says whether a wave that rings a doorbell, while the channel's header says that the host sleeps, always calls
    /// [`Hooks::notify`].
    fn has_reliable_hints(&self) -> bool {
        false
    }

    /// Marks the place behind what has been submitted to a stream of the driver's that others made.
    ///
    /// # Safety
    /// The stream is a handle of the driver's for a stream of the context that the device uses, and lives through the call.
    ///
    /// # Errors
    /// When the device knows no such streams, the stream is being captured, or the driver refuses.
    unsafe fn fence(&self, stream: u64) -> Result<Box<dyn Fence>, BackendError> {
        let _ = stream;
        Err(BackendError::Refused("streams that others make are known on CUDA's devices alone".into()))
    }

    /// Returns something that makes lanes look which wait for long, on a device that lets them sleep. It is called
    /// after an answer that a worker thread or a future gave; lanes that wait for an inline handler look again
    /// by themselves.
    fn waker(&self) -> Option<Box<dyn Fn() + Send + Sync>> {
        None
    }

    /// Called by each thread of hostcall's own before it may call the backend, for drivers that treat threads differently:
    /// what this thread does is no part of what a user's threads do.
    fn enter_thread(&self) {}

    /// Allocates memory of the device for the words of a list, at a multiple of 16. May wait for running kernels. `None` when
    /// there is no room.
    fn allocate_list_words(&self, bytes: u64) -> Option<KernelMemory> {
        self.allocate_for_kernels(bytes, 16)
    }

    /// Allocates memory of the device while kernels run, for their heap. Waits for no kernel.
    fn allocate_for_kernels(&self, bytes: u64, align: u64) -> Option<KernelMemory>;

    /// Maps the first `len` bytes of a file, of which there are some, where kernels read them in place, and
    /// write them if the mapping is `writable`. Waits for no kernel. `None` when the device, the driver or
    /// the file does not allow it.
    fn map_file(&self, file: &File, len: u64, writable: bool) -> Option<KernelMemory> {
        let _ = (file, len, writable);
        None
    }
}

/// A place in a stream that others made.
pub trait Fence: Send + Sync {
    /// Returns whether all before it has ended.
    ///
    /// # Errors
    /// When the device failed.
    fn is_done(&self) -> Result<bool, BackendError>;
}

/// Memory that kernels allocate.
pub struct KernelMemory {
    /// Where it begins.
    pub address: DeviceAddress,
    /// Keeps the memory: it is free once this is dropped.
    pub owner: Box<dyn Any + Send>,
}

/// Memory of a device. It is free when dropped.
///
/// # Safety
/// Promises: as long as the value lives, kernels of the device can read and write [`Memory::len`] bytes from
/// [`Memory::address`] on, a multiple of 256, and nobody else has this memory. It was all zeros.
pub unsafe trait Memory: Send + Sync {
    /// Returns where it begins.
    fn address(&self) -> DeviceAddress;
    /// Returns how many bytes it has.
    fn len(&self) -> usize;
    /// Says whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Memory that host and kernels both reach at any time. It is free when dropped.
///
/// # Safety
/// Promises: as for [`Memory`], and the host reads and writes the same bytes from [`Pinned::host_address`] on. Atomic
/// loads and stores of up to 8 bytes, aligned, are whole on both sides.
pub unsafe trait Pinned: Send + Sync {
    /// Returns where it begins, for kernels.
    fn address(&self) -> DeviceAddress;
    /// Returns where it begins, for the host.
    fn host_address(&self) -> NonNull<u8>;
    /// Returns how many bytes it has.
    fn len(&self) -> usize;
    /// Says whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
