//! The seam for devices: what a kind of device must give, and what it must promise. Everything else of this crate
//! (streams, typed buffers, launches, servers, programs of other protocols) stands above it and is written once.
//!
//! A [`Backend`] gives memory, [`Module`]s of code and [`Queue`]s. A module gives [`Kernel`]s and variables by their
//! symbols. A queue takes operations and does them one after the other: it dispatches kernels with raw parameter
//! blocks, copies, fills, and signals how far it has come. The seam knows nothing of hostcall's launch parameters,
//! of LLVM's start-up code, nor of a language's types.
//!
//! The traits give raw addresses, and code above them hands these to kernels. So they are `unsafe` to implement:
//! whoever implements one promises what its documentation says under "Promises". [`DeviceBuilder::backend`](crate::device::DeviceBuilder::backend)
//! opens a device over a backend from outside this repository.
//!
//! # Threads
//! Every function may be called from any thread. None may wait for a kernel unless its documentation says so: a
//! kernel may wait for the very thread that calls. Above the seam at most [`OPERATIONS_A_QUEUE`] operations are in a
//! queue that have not been seen to end, so that an implementation need not hold more.

use hostcall_abi::cpu::Entry;
use std::any::Any;
use std::fmt;
use std::fs::File;
use std::ops::RangeInclusive;
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
/// 4. What [`Backend::allocate_for_kernels`] gives is as [`HeapMemory`](crate::services::HeapMemory)
///    promises, and what [`Backend::map_file`] gives as [`FileMapper`](crate::services::FileMapper) does.
pub unsafe trait Backend: Send + Sync + 'static {
    /// Returns what the device is.
    fn properties(&self) -> &Properties;

    /// Allocates zeroed memory of the device, at a multiple of 64.
    ///
    /// # Errors
    /// When there is no room.
    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Memory>, BackendError>;

    /// Allocates zeroed memory that the host and running kernels both reach.
    ///
    /// # Errors
    /// When there is no room.
    fn pin(&self, bytes: usize) -> Result<Arc<dyn Pinned>, BackendError>;

    /// Loads an image that [`crate::image::identify`] says runs on [`Properties::target`]. Lanes of its kernels get
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
    /// when that is neither memory of the device nor pinned memory. Waits for no kernel.
    fn copy_from_lane(&self, from: DeviceAddress, bytes: &mut [u8]) -> bool {
        let _ = (from, bytes);
        false
    }

    /// Has `fill` write where a lane says that it waits for so many bytes. Returns `false`, and has not called `fill`, when the
    /// host's processor does not reach that. The lane does not go on before `fill` has returned, which waits for nothing.
    fn fill_lane(&self, to: DeviceAddress, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        let _ = (to, bytes, fill);
        false
    }

    /// Whether threads of the device call what [`Backend::set_helper`] gives them.
    fn has_helpers(&self) -> bool {
        false
    }

    /// Has threads of the device that have nothing to do call `help`, which does a piece of what lanes wait for without
    /// waiting itself, and says whether there was one. Called once.
    fn set_helper(&self, help: Box<dyn Fn() -> bool + Send + Sync>) {
        let _ = help;
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

    /// Returns something that makes lanes look which wait for long, on a device that lets them sleep. It is called
    /// after an answer.
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

/// A loaded image.
///
/// # Safety
/// Promises: the module's code and variables stay where they are while it, or a kernel of it, lives.
pub unsafe trait Module: Send + Sync {
    /// Returns the kernel with this symbol, or `None` when there is none.
    ///
    /// # Errors
    /// When the device fails.
    fn kernel(&self, symbol: &str) -> Result<Option<Arc<dyn Kernel>>, BackendError>;

    /// Returns where the variable with this symbol lies, or `None` when there is none.
    ///
    /// # Errors
    /// When the device fails.
    fn variable(&self, symbol: &str) -> Result<Option<Variable>, BackendError>;
}

/// A variable of a module, in memory of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Where it begins.
    pub address: DeviceAddress,
    /// How many bytes it has.
    pub bytes: usize,
}

/// A kernel that can be dispatched.
///
/// # Safety
/// Promises: the kernel's code stays loaded while it lives.
pub unsafe trait Kernel: Any + Send + Sync {
    /// Returns what a dispatch of it may ask for.
    fn limits(&self) -> KernelLimits;
    /// Returns how many workgroups of so many lanes, each with so many bytes of memory besides what the image declares, run
    /// at once; `None` where the device does not say, or cannot run such workgroups.
    fn resident_workgroups(&self, lanes: u32, workgroup_bytes: u32) -> Option<u32> {
        let _ = (lanes, workgroup_bytes);
        None
    }
    /// Returns what the image says of the kernel's parameters; `None` where images say nothing of them.
    fn parameters(&self) -> Option<KernelParameters> {
        None
    }
}

/// What an image says of a kernel's parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelParameters {
    /// Bytes of each parameter of its own.
    pub bytes: Vec<u32>,
    /// It finds [`HiddenParameters::hostcall_buffer`] in a hidden one, though it may never look at it.
    pub takes_hostcall_buffer: bool,
    /// The same of [`HiddenParameters::heap`].
    pub takes_heap: bool,
    /// It prints to a buffer that the host reads when the kernel has ended, which no dispatch gives.
    pub takes_printf_buffer: bool,
    /// The first parameter, from 0, that no bytes of the host's can be, and what it is, such as "an image".
    pub special: Option<(usize, &'static str)>,
    /// The only lanes in x, y and z that a workgroup of it can have; `None` where any number is allowed.
    pub workgroup: Option<[u32; 3]>,
}

/// What AMD's kernels find in hidden parameters, besides what a dispatch says anyway; 0 where there is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HiddenParameters {
    /// A hostcall buffer of ROCm's protocol.
    pub hostcall_buffer: DeviceAddress,
    /// Where ROCm's device libraries keep the state of their heap: 128 KiB, zeroed before the first kernel.
    pub heap: DeviceAddress,
}

/// What a kernel needs of the device, and what a dispatch of it may ask for at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelLimits {
    /// Registers of each lane; `None` where the device does not say.
    pub registers: Option<u32>,
    /// Bytes of stack of each lane, as far as the compiler knows: not for what it calls through pointers.
    pub stack_bytes: u32,
    /// Bytes of memory that a workgroup has besides what a dispatch asks for.
    pub workgroup_bytes: u32,
    /// Most lanes of a workgroup.
    pub max_lanes: u32,
    /// Most bytes of workgroup memory that a dispatch may ask for.
    pub max_dynamic_workgroup_bytes: u32,
}

/// One dispatch of a kernel.
pub struct Dispatch<'a> {
    /// The kernel, of a module of the same backend or its native one.
    pub kernel: &'a Arc<dyn Kernel>,
    /// Its name, for messages.
    pub name: &'a str,
    /// Workgroups in x, y and z.
    pub workgroups: [u32; 3],
    /// Lanes of a workgroup in x, y and z.
    pub lanes: [u32; 3],
    /// Bytes of workgroup memory besides what the image declares.
    pub workgroup_bytes: u32,
    /// The kernel's parameters, each as its bytes: no fewer than the kernel takes. They are copied before
    /// [`Queue::dispatch`] returns. A kernel without parameters of its own may be given empty ones.
    pub parameters: &'a [&'a [u8]],
    /// Whether the kernel takes the address of each parameter's bytes instead of these, which then lie at a multiple of 16
    /// in memory that kernels read, until the dispatch has ended. Only on AMD's GPUs.
    pub by_address: bool,
    /// What the kernel finds in hidden parameters.
    pub hidden: HiddenParameters,
    /// What whoever dispatches knows it by.
    pub token: u64,
    /// What the device tells while the kernel runs.
    pub hooks: &'a Arc<dyn Hooks>,
}

/// Kernels in a row, with their parameters, which queues of the device take as one operation, as often as they are given it.
/// It keeps the kernels' code. Dropping it waits for no kernel, and leaves alone what a queue has taken of it.
pub trait KernelList: Any + Send + Sync {}

/// Kernels in bodies that a word decides about. It is looked at when the first body would begin and, in a list that repeats,
/// after each turn.
pub struct ConditionalList<'a> {
    /// The bodies, one after the other.
    pub bodies: Vec<ListBody<'a>>,
    /// Whether the body, of which there is one then, is done again as long as its word is like this.
    pub repeats: bool,
    /// A `u32` in memory of the device.
    pub word: DeviceAddress,
    /// Two `u64` in memory of the device: no body begins, nor is repeated, once one of them is at most [`ConditionalList::last`]
    /// and the first of [`ListDispatch::values`] together.
    pub stop_at: DeviceAddress,
    /// See there.
    pub last: u64,
    /// [`ListDispatch::words`] of each dispatch. Behind the two lie two more `u64`: which turn of a repeated body it is, from 0,
    /// and the first value of the dispatch that this was counted in. They are stored before the turn begins; a dispatch
    /// that may not begin leaves them.
    pub words: DeviceAddress,
}

/// A body of a [`ConditionalList`].
pub struct ListBody<'a> {
    /// Its kernels, one after the other.
    pub kernels: &'a [Dispatch<'a>],
    /// What the word is when the body is done.
    pub when: RangeInclusive<u32>,
}

/// One dispatch of all kernels of a list.
pub struct ListDispatch<'a> {
    /// The list, of the same backend.
    pub list: &'a Arc<dyn KernelList>,
    /// Where the kernels of this list find `values`: two words in memory of the device, at a multiple of 16. On the software
    /// device they are in the launch's parameters instead, which are made for each dispatch.
    pub words: DeviceAddress,
    /// What is written there in the queue's order before the first kernel begins.
    pub values: [u64; 2],
    /// [`Dispatch::token`] of the first kernel; those of the others follow it.
    pub first_token: u64,
    /// [`Dispatch::hooks`] of all.
    pub hooks: &'a Arc<dyn Hooks>,
}

/// What a device tells of its running kernels. Its functions are quick and do not panic.
pub trait Hooks: Send + Sync {
    /// Hints that a lane has rung, so that there may be work for the server.
    fn notify(&self);
    /// Says that a lane of the dispatch with this token failed, and that the device ends the others, which have not ended
    /// yet.
    fn failed(&self, token: u64);
}

/// A dispatch on its way, on a device that can end it from outside or knows how each ended.
pub trait Running: Send + Sync {
    /// Asks for the end. It may come later, or by force.
    fn cancel(&self);
    /// Returns how the dispatch ended; `None` while it has not ended.
    fn outcome(&self) -> Option<DispatchOutcome>;
    /// Takes the home slots of waves that were ended in the middle, so that calls may be in flight on them. No other wave gets
    /// them before [`Running::restore_slots`].
    fn take_lost_slots(&self) -> Vec<u32> {
        Vec::new()
    }
    /// Lets waves have such slots again, which are as if nobody had ever claimed them.
    fn restore_slots(&self, homes: &[u32]) {
        let _ = homes;
    }
}

/// How a dispatch ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DispatchOutcome {
    /// What ended it, if it did not end by itself.
    pub failure: Option<DispatchFailure>,
}

/// What ended a dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DispatchFailure {
    /// So many lanes came back with a panic.
    Panicked {
        /// How many.
        lanes: u64,
    },
    /// A lane did what the device does not allow.
    Fault(DeviceFault),
    /// It was cancelled.
    Cancelled,
}

/// A point in a queue, for other queues to wait for and for measuring.
pub trait Mark: Any + Send + Sync {
    /// Says whether everything before it is done.
    ///
    /// # Errors
    /// When the device failed.
    fn is_done(&self) -> Result<bool, BackendError>;
    /// Returns the nanoseconds from `earlier`, a mark of the same device, to this one; `None` while one is not done, or
    /// when `earlier` is another device's.
    ///
    /// # Errors
    /// When the device failed.
    fn elapsed_ns_since(&self, earlier: &dyn Mark) -> Result<Option<u64>, BackendError>;
}

/// An in-order queue of a device. Dropping it does not wait: what was submitted goes on.
///
/// # Safety
/// Promises:
/// 1. An operation begins after everything before it in the queue has ended, and sees what that wrote. The host does
///    not take part between two dispatches, and no thread that calls the backend between any two operations.
/// 2. [`Queue::completed`] returns `n` only after everything that was submitted before [`Queue::signal`]`(n)` has
///    ended, and what it wrote to pinned memory and to the host's memory is seen by whoever saw `n`.
/// 3. When an operation fails, later ones end too (without having run, if need be), and [`Queue::check`] says why.
pub unsafe trait Queue: Send + Sync {
    /// Dispatches a kernel. `None` is given by devices that cannot end a dispatch, nor say how one ended besides
    /// [`Queue::check`].
    ///
    /// # Errors
    /// When the kernel is another backend's, or does not fit the device. Nothing was submitted then.
    ///
    /// # Safety
    /// The parameters are those that the kernel takes, and what they refer to is the kernel's to use until the dispatch
    /// has ended.
    unsafe fn dispatch(&self, dispatch: &Dispatch<'_>) -> Result<Option<Arc<dyn Running>>, BackendError>;

    /// Dispatches the kernels of a list, one after the other. Returns for each what [`Queue::dispatch`] would, or nothing at all
    /// where that is `None`.
    ///
    /// # Errors
    /// When the list is another backend's. Nothing was submitted then, or the device failed.
    ///
    /// # Safety
    /// As for [`Queue::dispatch`]; nobody else writes the list's words, or gives a queue the list, until all kernels have
    /// ended or in another order than this queue's.
    unsafe fn dispatch_list(
        &self,
        dispatch: &ListDispatch<'_>,
    ) -> Result<Vec<Arc<dyn Running>>, BackendError> {
        let _ = dispatch;
        Err(BackendError::Refused("the device takes no lists of kernels".into()))
    }

    /// Copies from memory of the host to memory of the device.
    ///
    /// # Errors
    /// When the device failed.
    ///
    /// # Safety
    /// Both sides have so many bytes until the copy has ended; the host's are [`Pinned`] memory. Nobody writes the
    /// source or accesses the target meanwhile.
    unsafe fn write(&self, to: DeviceAddress, from: *const u8, bytes: usize) -> Result<(), BackendError>;

    /// Copies from memory of the device to memory of the host.
    ///
    /// # Errors
    /// When the device failed.
    ///
    /// # Safety
    /// As for [`Queue::write`], the other way round.
    unsafe fn read(&self, to: *mut u8, from: DeviceAddress, bytes: usize) -> Result<(), BackendError>;

    /// Copies words of 8 bytes from memory of the device to memory of the host, each as a whole, also where kernels store such
    /// words atomically meanwhile, and where the host loads the target's.
    ///
    /// # Errors
    /// When the device failed.
    ///
    /// # Safety
    /// As for [`Queue::read`], but that both sides, multiples of 8, may be accessed atomically by words of 8 bytes.
    unsafe fn read_words(&self, to: *mut u8, from: DeviceAddress, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: a copy engine is no party of the language's memory model; it moves aligned words whole. Backends
        // where the host's processor copies override this.
        unsafe { self.read(to, from, bytes) }
    }

    /// Copies within the device's memory.
    ///
    /// # Errors
    /// When the device failed.
    ///
    /// # Safety
    /// As for [`Queue::write`], with both sides on the device and apart from each other.
    unsafe fn copy(&self, to: DeviceAddress, from: DeviceAddress, bytes: usize) -> Result<(), BackendError>;

    /// Writes `count` times the bytes of `pattern`, of which there are 1, 2 or 4, to `to`, a multiple of their number.
    ///
    /// # Errors
    /// When the device failed.
    ///
    /// # Safety
    /// As for [`Queue::write`].
    unsafe fn fill(&self, to: DeviceAddress, pattern: &[u8], count: usize) -> Result<(), BackendError>;

    /// Lets [`Queue::completed`] return `value` once everything so far has ended. Values grow.
    ///
    /// # Errors
    /// When the device failed.
    fn signal(&self, value: u64) -> Result<(), BackendError>;

    /// Returns the last value that was signalled, from 0. Costs a load, and takes no lock of a driver.
    fn completed(&self) -> u64;

    /// Says whether the queue calls `progress` (see [`Backend::queue`]) each time that [`Queue::completed`] has grown.
    fn calls_progress(&self) -> bool;

    /// Asks whether the device failed. Called now and then while a signal is long in coming.
    ///
    /// # Errors
    /// What failed.
    fn check(&self) -> Result<(), BackendError>;

    /// Puts a mark.
    ///
    /// # Errors
    /// When the device failed.
    fn mark(&self) -> Result<Arc<dyn Mark>, BackendError>;

    /// Lets later operations wait for a mark of another queue of the device.
    ///
    /// # Errors
    /// When the mark is another backend's, or the device failed.
    fn wait(&self, mark: &Arc<dyn Mark>) -> Result<(), BackendError>;
}
