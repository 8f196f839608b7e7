//! What a device does one after the other: dispatches, lists of them, copies, and the signals that say how far it has come.

use crate::{Backend, BackendError, DeviceAddress, DeviceFault, HiddenParameters, Kernel};
use std::any::Any;
use std::ops::RangeInclusive;
use std::sync::Arc;

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

/// Bytes of a list's words, at a multiple of 16 in memory of the device: the two of [`ListDispatch::values`], then those at
/// [`LIST_TURN_AT`] and [`LIST_TURN_OF_AT`], which lists that repeat have.
pub const LIST_WORDS_BYTES: u64 = 32;

/// Where the `u64` lies among a list's words that says which turn of a repeated body it is, from 0.
pub const LIST_TURN_AT: u64 = 16;

/// Where the `u64` lies among a list's words that says what the first value was of the dispatch whose turns are counted.
pub const LIST_TURN_OF_AT: u64 = 24;

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
    /// [`ListDispatch::words`] of each dispatch. A list that repeats stores the turn ([`LIST_TURN_AT`]) before the turn
    /// begins. At its first turn a dispatch stores before that whose turns are counted ([`LIST_TURN_OF_AT`]), so that nobody
    /// sees the turn first. A dispatch that may not begin leaves both. A list that repeats may let kernels begin for which there
    /// is no turn, while its words say that they do nothing ([`LIST_SKIPS_AT`](hostcall_abi::launch::LIST_SKIPS_AT)).
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
    /// Where the list's words lie ([`LIST_WORDS_BYTES`]), the first two of which are the `values` that its kernels find; of the
    /// second that is the lower half, once a body that repeats is over. On the software device these are in the launch's
    /// parameters instead, which are made for each dispatch.
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
    /// Lanes that were ended by force, in the middle of their code, which may have told others of all that they could refer to:
    /// what the dispatch used is never freed.
    pub forced_lanes: u64,
}

/// What ended a dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// A point in a queue whose time is taken.
pub trait Mark: Any + Send + Sync {
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
///    ended, and what it wrote to pinned memory and to the host's memory is seen by whoever saw `n`. It does so although
///    what was submitted after that signal never ends.
/// 3. When an operation fails, later ones end too (without having run, if need be), and [`Queue::check`] says why.
pub unsafe trait Queue: Any + Send + Sync {
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
    /// Both sides have so many bytes until the copy has ended; the host's are [`Pinned`](crate::Pinned) memory. Nobody writes the
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

    /// Copies words of 8 bytes from memory of the host to memory of the device, each as a whole, also where the host stores such
    /// words atomically meanwhile, and where kernels load the target's. A kernel that sees a word of the target, and has an
    /// acquire fence behind that, sees what the host did before this call.
    ///
    /// # Errors
    /// When the device failed.
    ///
    /// # Safety
    /// As for [`Queue::write`], but that both sides, multiples of 8, may be accessed atomically by words of 8 bytes.
    unsafe fn write_words(
        &self,
        to: DeviceAddress,
        from: *const u8,
        bytes: usize,
    ) -> Result<(), BackendError> {
        // SAFETY: as in `read_words`.
        unsafe { self.write(to, from, bytes) }
    }

    /// Copies within the device's memory.
    ///
    /// # Errors
    /// When the device failed.
    ///
    /// # Safety
    /// As for [`Queue::write`], with both sides on the device and apart from each other.
    unsafe fn copy(&self, to: DeviceAddress, from: DeviceAddress, bytes: usize) -> Result<(), BackendError>;

    /// Copies to the device's memory from that of another one, which it [reaches](Backend::reaches): as from its own, unless
    /// the queue says otherwise.
    ///
    /// # Errors
    /// When one of the devices failed, or the other one's memory is out of reach.
    ///
    /// # Safety
    /// As for [`Queue::write`], with the source in memory of `device`, which this one reaches.
    unsafe fn copy_from(
        &self,
        device: &dyn Backend,
        to: DeviceAddress,
        from: DeviceAddress,
        bytes: usize,
    ) -> Result<(), BackendError> {
        let _ = device;
        // SAFETY: by the caller's promise; the device reaches the source.
        unsafe { self.copy(to, from, bytes) }
    }

    /// Writes `count` times the bytes of `pattern`, of which there are 1, 2 or 4, to `to`, a multiple of their number.
    ///
    /// # Errors
    /// When the device failed.
    ///
    /// # Safety
    /// As for [`Queue::write`].
    unsafe fn fill(&self, to: DeviceAddress, pattern: &[u8], count: usize) -> Result<(), BackendError>;

    /// Signals `value`, which is larger than the last one: [`Queue::completed`] returns it once everything so far has ended
    /// and somebody has asked by [`Queue::poll`], if the queue does not tell by itself. It costs little beside a dispatch,
    /// since each operation is signalled that somebody may ask about.
    ///
    /// # Errors
    /// When the device failed.
    fn signal(&self, value: u64) -> Result<(), BackendError>;

    /// Returns the last value that was signalled and reached, from 0, as far as it is known. Costs a load, and takes no lock
    /// of a driver.
    fn completed(&self) -> u64;

    /// Looks how far the queue has come, for somebody who waits until [`Queue::completed`] is at least `value`. Returns whether
    /// it has to look again: `false` where `completed` gets there by itself. It may call the driver.
    fn poll(&self, value: u64) -> bool {
        let _ = value;
        false
    }

    /// Says whether the queue calls `progress` (see [`Backend::queue`](crate::Backend::queue)) each time that [`Queue::completed`] has grown.
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

    /// Says whether [`Queue::wait`] works. Where it does not, the host holds operations back that wait for other queues.
    fn can_wait(&self) -> bool {
        false
    }

    /// Lets later operations wait until everything before a signal of another queue of the device has ended, and for nothing
    /// behind that signal. The value was signalled before.
    ///
    /// # Errors
    /// When the queue is another backend's, or the device failed.
    fn wait(&self, other: &dyn Queue, value: u64) -> Result<(), BackendError> {
        let _ = (other, value);
        Err(BackendError::Refused("its queues do not wait for each other".into()))
    }
}
