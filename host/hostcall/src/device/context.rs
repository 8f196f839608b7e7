//! Contexts: what kernels get that others launch, so that they can call, post and print.
//!
//! A framework's kernel gets one argument more, the address of a block of 128 bytes in memory of the device
//! ([`hostcall_abi::context`]). Nothing is done for its launch: it may run in any stream of the process, and in replays of a
//! captured graph. Its calls are those of the context's *launch*, which begins with the context and ends with it, and which no
//! other launch notices. Nobody tells hostcall when such kernels run: [`Context::attend`] says that some come soon,
//! [`Context::flush`] that some have ended.
//!
//! Of kernels that hostcall launches itself it knows that. Each launch, and each replay's, is one of its own then:
//!
//! ```text
//!  launched by others                          launched or replayed by hostcall
//!  ───────────────────────────────────────────────────────────────────────────────────────────────────────
//!  the context's block ─► context's launch     the stream's block ─► the launch's own id, which the device
//!  written once, kept for good                 writes there before the kernel, in the stream's order
//! ```
//!
//! The stream's block ([`super::words::StreamWords::context`]) is written and read on the stream alone, so that it is of one launch at
//! a time, also where two streams launch with one context. What keeps the launch and its context together is in the server's table
//! ([`LaunchRecord::context`]): the launch is cancelled with its context, and what it leaves behind (failed checks, calls that
//! reached no service, open files) is the context's.
//!
//! Kernels may come after the context, and after its device: the block and the channel are kept until the process ends. They
//! find an unknown launch or a channel that nobody serves, and their calls end with
//! [`CallError::Cancelled`](hostcall_device::CallError::Cancelled).
#![allow(unsafe_code, reason = "kernels reach the block by its address")]

use super::core::{Core, Kept};
use super::error::{Error, LaunchRefused};
use super::foreign::CurrentLaunch;
use super::inner::{Device, Inner};
use super::raw::RawChannel;
use super::wait_table::WaitTable;
use hostcall_abi::bytes::IntoBytes;
use hostcall_abi::context::{
    CONTEXT_BYTES, ContextParams, LAUNCH_AT, MAGIC, MAJOR, MINOR, POINTS_SHIFT, POINTS_VERSION, WAITS_SHIFT,
};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::{HOME_SLOT_BYTES, LAUNCHES, LayoutError};
use hostcall_abi::raw::{FOREIGN_RAW_BYTES, ForeignRawParams};
use hostcall_abi::waits::WAITS_VERSION;
use hostcall_channel::SharedMemory;
use hostcall_device::kernel::Plain;
use hostcall_device::raw::Policy;
use hostcall_locks::{Mutex, MutexGuard};
use hostcall_seam::{DeviceAddress, DeviceKind, Memory};
use hostcall_server::services::FailedCheck;
use hostcall_server::{CancelReason, LaunchRecord, Server};
use std::fmt;
use std::sync::{Arc, Weak};

/// Slots of the software device that threads of other runtimes claim: its own waves have those of their numbers
/// (SLOT-BY-NUMBER).
pub(super) const CONTEXT_SLOTS: u32 = 64;

/// What kernels with a context's address reach: its block, and the channel that this leads to.
pub(super) struct Reach {
    block: Arc<dyn Memory>,
    _channel: Arc<dyn Memory>,
    _extras: [Arc<dyn Memory>; 3],
    _region: Arc<SharedMemory>,
    _points: Kept,
    _waits: Arc<WaitTable>,
}

/// In the process's name: what kernels may reach although nobody here has it any more.
static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

/// Keeps memory until the process ends, since kernels may still reach it.
pub(super) fn keep(memory: Kept) {
    KEPT.lock().push(memory);
}

/// The same for what may be kept already.
fn keep_once(memory: Kept) {
    let mut kept = KEPT.lock();
    if !kept.iter().any(|known| std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(&memory))) {
        kept.push(memory);
    }
}

/// Keeps other threads from what kernels may still reach, while a child is made by `fork`.
pub(super) fn hold_kept() -> MutexGuard<'static, Vec<Kept>> {
    KEPT.lock()
}

/// A place from which kernels call that others launch: those of CUDA's runtime, PyTorch, Triton, CuPy or HIP, and threads of C on
/// the device `cpu`. Such a kernel takes [its address](Context::address) and goes by the functions of `hostcall_device.h`.
///
/// Dropping it ends the calls of its kernels with `Cancelled`, now and later; their launches go on. A device that had contexts
/// keeps its channel's memory until the process ends, and each context its 128 bytes, since nobody knows whether a
/// captured graph still has the address: make one for each purpose, not one for each launch.
///
/// ```
/// use hostcall::Device;
///
/// let device = Device::open("cpu")?;
/// let context = device.context("training step")?;
/// // An argument of a kernel that a framework launches.
/// let argument: u64 = context.address().get();
/// assert_ne!(argument, 0);
/// # Ok::<(), hostcall::Error>(())
/// ```
pub struct Context {
    pub(super) core: Arc<Core>,
    pub(super) device: Weak<Inner>,
    name: Arc<str>,
    reach: Arc<Reach>,
    launch: Arc<CurrentLaunch>,
}

impl Device {
    /// Makes a context, from which kernels call that others launch. `name` is what reports call them.
    ///
    /// # Errors
    /// When there is no memory, the software device has no slots left beside its waves', too many launches have not ended, or
    /// the device was closed.
    pub fn context(&self, name: &str) -> Result<Context, Error> {
        let inner = &self.inner;
        inner.core.check_open()?;
        let (backend, params) = (&inner.core.backend, &inner.channel_params);
        let layout = params.sizes.layout;
        let is_software = backend.properties().kind == DeviceKind::Software;
        // Waves of the software device have the numbers before.
        let first = if is_software { backend.properties().resident_waves } else { 0 };
        if first >= layout.home_slots {
            return Err(LayoutError::Slots.into());
        }
        let block = backend.allocate(CONTEXT_BYTES)?;
        let name: Arc<str> = name.into();
        let (points, keeps_points) = inner.points.of_others()?;
        let launch = begin(inner, &name)?;
        let written = ContextParams {
            magic: MAGIC,
            major: MAJOR,
            minor: MINOR,
            region: params.region,
            homes: params.homes + u64::from(first) * HOME_SLOT_BYTES as u64,
            home_slots: layout.home_slots - first,
            lanes: layout.lanes,
            launch,
            flags: WAITS_VERSION << WAITS_SHIFT | POINTS_VERSION << POINTS_SHIFT,
            channel: inner.channel.address().get(),
            wake: if is_software { wake_up(&inner.server) } else { [0; 2] },
            points: points.get(),
            waits: inner.waits.address().get(),
            reserved: [0; 6],
        };
        // SAFETY: the memory is new, and as long.
        let done = unsafe { backend.write_now(block.address(), written.as_bytes()) };
        // The software device's streams launch no kernels of others.
        let make_of_streams = || match is_software {
            true => Ok(()),
            false => inner.stream_words.make_contexts(&ContextParams { launch: LaunchId::NONE, ..written }),
        };
        if let Err(error) = done.and_then(|()| make_of_streams()) {
            end(inner, launch);
            return Err(error.into());
        }
        let reach = Arc::new(Reach {
            block,
            _channel: inner.channel.clone(),
            _extras: inner.extras.clone(),
            _region: inner.region.clone(),
            _points: keeps_points,
            _waits: inner.waits.clone(),
        });
        let core = inner.core.clone();
        let launch = Arc::new(CurrentLaunch::new(launch));
        Ok(Context { core, device: Arc::downgrade(inner), name, reach, launch })
    }
}

/// Begins a launch for calls to be of. What a kernel has told of an ended one with the same id is not its.
fn begin(device: &Inner, name: &Arc<str>) -> Result<LaunchId, Error> {
    let record = LaunchRecord { kernel: name.clone(), ..LaunchRecord::default() };
    let limit = LAUNCHES as usize;
    let begun = device.server.begin_context(record);
    let launch = begun.map_err(|_| LaunchRefused::TooManyLaunches { limit })?;
    // What came for the last launch with this id as that ended.
    device.builtins.checks().take(launch);
    device.server.take_unserved(launch);
    Ok(launch)
}

/// Ends a launch that calls were of, and forgets what its kernels have told.
fn end(device: &Inner, launch: LaunchId) {
    device.server.end(launch);
    device.builtins.checks().take(launch);
    device.builtins.reports().take(launch);
    device.waits.free(&*device.core.backend, |of| of == launch);
}

/// Wakes the server whose weak reference lies there.
///
/// # Safety
/// `server` is what [`wake_up`] gave.
unsafe extern "C" fn wake(server: *const Weak<Server>) {
    // SAFETY: the caller's promise; the reference is never dropped.
    if let Some(server) = unsafe { &*server }.upgrade() {
        server.wake();
    }
}

/// Returns a function that wakes the server, and its argument, for code that may call it at any time until the process ends.
fn wake_up(server: &Arc<Server>) -> [u64; 2] {
    let server = Box::leak(Box::new(Arc::downgrade(server)));
    [wake as *const () as u64, std::ptr::from_ref(server) as u64]
}

impl Context {
    /// Returns the address that kernels take, as a 64-bit argument or in a variable of their module. It stays the same.
    pub fn address(&self) -> DeviceAddress {
        self.reach.block.address()
    }

    /// Returns the launch in whose name kernels that others launch with the context call now: [`Context::renew`] begins another
    /// one. What went wrong in launches of hostcall's is told by it too.
    pub fn launch_id(&self) -> LaunchId {
        self.hold().1
    }

    /// Keeps the context from being replaced by another launch meanwhile. Returns the one that it is now.
    fn hold(&self) -> (MutexGuard<'_, Option<LaunchId>>, LaunchId) {
        let current = self.launch.lock();
        let launch = current.expect("the context is there");
        (current, launch)
    }

    /// Returns [the context's launch](Context::launch_id) and those that hostcall has made with it
    /// ([`KernelArgument::context`](crate::rocm::KernelArgument::context)) and that have not ended, replays' among them.
    ///
    /// # Errors
    /// When the device was closed.
    pub fn launch_ids(&self) -> Result<Vec<LaunchId>, Error> {
        let device = self.device()?;
        let (_current, launch) = self.hold();
        Ok(device.server.launches_of_context(launch))
    }

    /// Returns the device, what keeps the memory that the address leads to, and which launch it is.
    pub(super) fn reach(&self) -> (&Arc<Core>, Kept, &Arc<CurrentLaunch>) {
        (&self.core, self.reach.clone(), &self.launch)
    }

    fn device(&self) -> Result<Arc<Inner>, Error> {
        self.core.check_open()?;
        self.device.upgrade().ok_or(Error::Closed)
    }

    /// Says that kernels with the context come soon: whoever looks for calls does it without a pause for a while. Else the first
    /// call after a long silence may wait for 2.2 ms. On the device `cpu` it does nothing that calls do not do.
    ///
    /// # Errors
    /// When the device was closed.
    pub fn attend(&self) -> Result<(), Error> {
        self.device()?.server.attend();
        Ok(())
    }

    /// Waits until the posts have been handled of kernels with the context that have ended. The caller knows that they have: it has
    /// waited for their stream. Calls and prints wait by themselves. A handler that runs inline must not call it: it would wait for
    /// itself.
    ///
    /// # Errors
    /// When the device was closed.
    pub fn flush(&self) -> Result<(), Error> {
        let (launches, server) = (self.launch_ids()?, self.device()?.server.clone());
        server.begin_flush(launches.clone()).wait();
        launches.into_iter().for_each(|launch| server.wait_for_posts(launch.into()));
        Ok(())
    }

    /// Takes what was told of checks that have failed (`hostcall_check`) in kernels with the context, since it was made or renewed:
    /// each place once, with how many threads found it. A line on the standard error has said so too. Of kernels that have ended
    /// all is there after a [flush](Context::flush).
    ///
    /// # Errors
    /// When the device was closed.
    pub fn failed_checks(&self) -> Result<Vec<FailedCheck>, Error> {
        let device = self.device()?;
        let (_current, launch) = self.hold();
        Ok(device.builtins.checks().take(launch))
    }

    /// Returns a raw channel as kernels with the context take it: the bytes of a `struct hostcall_raw_stream` of
    /// `hostcall_device.h`, which a kernel has as an argument by value, or reads where its host has put them. What such a kernel
    /// does not close is the host's once the context is renewed or dropped: wait before for kernels that write. A wave that
    /// waits for a page does so until one comes or the channel is dropped, also when the context is cancelled.
    ///
    /// Nobody knows whether a captured graph still has these bytes, so the channel's memory is kept until the process ends:
    /// make one channel for each purpose, not one for each launch.
    ///
    /// # Errors
    /// When the device was closed, or the channel is another device's.
    pub fn raw_stream<T: Plain, P: Policy>(
        &self,
        channel: &RawChannel<T, P>,
    ) -> Result<[u8; FOREIGN_RAW_BYTES], Error> {
        self.core.check_open()?;
        let (core, memory, params) = channel.foreign();
        self.core.check_own(&core, "the raw channel")?;
        keep_once(memory);
        // Under the lock: it is no launch's that has ended.
        let (_current, launch) = self.hold();
        channel.note_context(launch);
        let params = ForeignRawParams { launch, ..params };
        Ok(params.as_bytes().try_into().expect("as many bytes as they have"))
    }

    /// Ends the calls of kernels with the context with `Cancelled`: those that wait, and all that come until it is
    /// [renewed](Context::renew). A kernel that does not call runs on, and a launch of hostcall's does not fail by it.
    ///
    /// # Errors
    /// When the device was closed.
    pub fn cancel(&self) -> Result<(), Error> {
        let device = self.device()?;
        let (_current, launch) = self.hold();
        device.server.cancel(launch, CancelReason::Asked);
        Ok(())
    }

    /// Has calls answered again after [`Context::cancel`], or after a failure that ended them. Calls of kernels that run
    /// meanwhile may still be cancelled; those of launches and replays that hostcall was given before are.
    ///
    /// # Errors
    /// When the device was closed or fails, or too many launches have not ended.
    pub fn renew(&self) -> Result<(), Error> {
        let device = self.device()?;
        let (mut current, launch) = self.hold();
        let next = begin(&device, &self.name)?;
        let at = self.address().offset(LAUNCH_AT as u64);
        // SAFETY: the block lies there, and kernels access the word atomically.
        let stored = unsafe { device.core.backend.store_words(at, &next.to_bits().to_le_bytes(), 4) };
        let over = match stored {
            Ok(()) => {
                *current = Some(next);
                device.server.hand_over(launch, next);
                launch
            }
            Err(_) => next,
        };
        // Launches that begin with the context wait for the lock.
        drop(current);
        end(&device, over);
        Ok(stored?)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // A child that `fork` made takes no lock of its parent's, and has none of its kernels.
        if self.core.is_forked() {
            return;
        }
        keep(self.reach.clone());
        // Launches that begin from now on have no context.
        let launch = self.launch.lock().take();
        if let Some((device, launch)) = self.device.upgrade().zip(launch) {
            device.server.cancel(launch, CancelReason::Closed);
            end(&device, launch);
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("name", &self.name)
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}
