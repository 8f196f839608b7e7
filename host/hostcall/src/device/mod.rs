//! Devices: opening them, their memory, and running kernels on them. [`seam`] is what a kind of device gives: a crate, below
//! the backends.
#![allow(unsafe_code, reason = "states of slots are written by address; a heap gives addresses")]

mod arguments;
mod buffer;
mod builder;
mod core;
#[cfg(test)]
mod double;
mod error;
mod event;
mod forked;
pub mod graph;
mod grid;
mod images;
mod launch;
mod llvm;
pub mod raw;
mod rocm;
mod services;
mod staging;
mod stream;
#[cfg(test)]
mod tests;
mod transfer;
mod untyped;
mod uses;
#[cfg(test)]
mod uses_tests;
mod waiting;
mod words;

pub(crate) use self::core::Core;
pub use arguments::{Arguments, IntoArg, NoBuffer, RawArg};
pub(crate) use arguments::{Packer, Sealed};
pub use buffer::{DeviceBuffer, PinnedBuffer};
pub use builder::{DeviceBuilder, devices};
pub use error::{BoundsError, Error, ImageError, LaunchFailure, LaunchRefused};
pub use event::Event;
pub use grid::Grid;
pub use hostcall_abi::launch::LaunchId;
pub use hostcall_cuda::prepare_environment;
pub use hostcall_seam as seam;
pub use hostcall_softdev::software_backend;
pub use images::{EmbeddedImage, Image, LoadedKernel, TypedKernel};
pub use launch::LaunchKernel;
pub use llvm::{KernelResources, LlvmCancel, LlvmClient, LlvmProgram, LlvmRun, ProgramError};
pub use rocm::{CodeObject, CodeObjectError, CodeObjectKernel, KernelArgument};
pub use seam::{
    BackendError, DeviceAddress, DeviceFault, DeviceFaultKind, DeviceInfo, DeviceKind, KernelLimits,
    KernelParameters, Properties,
};
pub(crate) use stream::StreamQueue;
pub use stream::{Launch, LaunchOutcome, Readback, Stream};
pub use untyped::{UntypedArgument, ValueType};

pub use hostcall_softdev::{Config as SoftwareDeviceConfig, Faults, Shielded};

use crate::closures::Closures;
use crate::server::{RegisterError, Server};
use crate::services::{Block, Builtins, HeapMemory};
use graph::Origins;
use hostcall_abi::launch::ChannelParams;
use hostcall_channel::device::Channel;
use hostcall_seam::{Hooks, Memory, Running};
use hostcall_server::{CancelReason, WaitsFor, report_line};
use hostcall_trace::{Source, Tracer};
use images::Images;
use raw::TracedPoints;
use rocm::Hostcalls;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use stream::ReaperThread;
use words::StreamWords;

/// A device with its server. Clones are the same device; it closes when the last is dropped.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub core: Arc<Core>,
    pub images: Images,
    pub server: Arc<Server>,
    pub builtins: Builtins,
    pub traced: Option<Traced>,
    /// Reads the trace points of launches that are traced.
    pub points: Option<TracedPoints>,
    /// What kernels read of the channel, as it is in `channel`.
    pub channel_params: ChannelParams,
    /// [`LaunchParams::channel`](hostcall_abi::launch::LaunchParams::channel).
    pub channel: Arc<dyn Memory>,
    /// The device's own memory of extra slots and large areas: states and bitmaps.
    pub _extras: [Arc<dyn Memory>; 3],
    pub stream_words: Arc<StreamWords>,
    /// The launches that are nodes of graphs.
    pub origins: Arc<Origins>,
    pub hooks: Arc<dyn Hooks>,
    /// What answers kernels that speak ROCm's protocol.
    pub hostcalls: Hostcalls,
    closures: Mutex<Option<Closures>>,
    /// The launches that can be ended from outside.
    running: Mutex<HashMap<LaunchId, RunningLaunch>>,
    _reaper: ReaperThread,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What is left of it, such as its buffers, is a closed device's.
        self.core.closed.store(true, Ordering::SeqCst);
    }
}

/// A tracer, and the name that its trace has for the device.
pub(crate) struct Traced {
    tracer: Tracer,
    name: String,
}

impl Traced {
    /// Returns what records calls of this protocol.
    pub fn source(&self, protocol: &'static str) -> Source {
        self.tracer.source(&self.name, protocol)
    }
}

/// A launch that is with a device which can end it.
struct RunningLaunch {
    running: Arc<dyn Running>,
    stream: Weak<StreamQueue>,
    sequence: u64,
}

/// What the device tells.
struct DeviceHooks {
    server: Arc<Server>,
    device: Weak<Inner>,
}

impl Hooks for DeviceHooks {
    fn notify(&self) {
        self.server.wake();
    }

    fn failed(&self, token: u64) {
        let launch = LaunchId::from_bits(token as u32);
        match self.device.upgrade() {
            Some(device) => device.cancel(launch, CancelReason::Failed),
            None => self.server.cancel(launch, CancelReason::Failed),
        }
    }
}

/// How long [`Device::close`] waits for launches that were cancelled.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// The heap of a device's kernels gets its memory from the device.
struct DeviceHeap(Arc<Core>);

// SAFETY: backends promise it of what they allocate for kernels.
unsafe impl HeapMemory for DeviceHeap {
    fn allocate(&self, bytes: u64, align: u64) -> Option<Block> {
        let memory = self.0.backend.allocate_for_kernels(bytes, align)?;
        Some(Block { address: memory.address.get(), memory: memory.owner })
    }
}

impl Inner {
    fn running(&self) -> MutexGuard<'_, HashMap<LaunchId, RunningLaunch>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a launch is with a device that can end it. Returns why it was cancelled, if that was before it was known, so
    /// that whoever cancelled it did not find it.
    pub fn note_running(
        &self,
        launch: LaunchId,
        running: &Arc<dyn Running>,
        stream: Weak<StreamQueue>,
        sequence: u64,
    ) -> Option<CancelReason> {
        let known = RunningLaunch { running: running.clone(), stream, sequence };
        self.running().insert(launch, known);
        self.server.launches().cancelled(launch)
    }

    /// Forgets a launch that has ended.
    pub fn forget_running(&self, launch: LaunchId) {
        let known = self.running().remove(&launch);
        drop(known);
    }

    pub fn properties(&self) -> &Properties {
        self.core.backend.properties()
    }

    /// Makes slots usable again whose waves were ended in the middle: on a thread of host functions, since the server's
    /// consumers are waited for, whose handlers may want a lock of the caller's.
    pub fn restore_lost_slots(self: &Arc<Self>, ended: &Arc<dyn Running>) {
        let homes = ended.take_lost_slots();
        if !homes.is_empty() && self.properties().kind == DeviceKind::Software {
            let (device, ended) = (self.clone(), ended.clone());
            self.core.reaper.run(Box::new(move || device.restore_slots(&*ended, homes)));
        }
    }

    fn restore_slots(&self, ended: &dyn Running, homes: Vec<u32>) {
        // SAFETY: the parameters are those of this device's channel, whose memory is this process's and lives as long as the
        // device. OWN-SLOT: the waves that claimed the slots were ended, and no other claims them before they are restored.
        unsafe {
            let channel = Channel::from_params(&self.channel_params);
            let mut slots = homes.clone();
            slots.extend(channel.extras_held_by(&homes));
            self.server.reset(&slots);
            channel.forget(&slots);
        }
        ended.restore_slots(&homes);
    }

    /// Ends a launch: its calls get no answers but that, and a device that can ends its lanes. Called from any thread, also
    /// of the server's: it takes no lock under which a driver is called.
    pub fn cancel(&self, launch: LaunchId, why: CancelReason) {
        if launch == LaunchId::NONE {
            return;
        }
        self.server.cancel(launch, why);
        let known = self
            .running()
            .get(&launch)
            .map(|known| (known.running.clone(), known.stream.clone(), known.sequence));
        let Some((running, stream, sequence)) = known else { return };
        if let Some(stream) = stream.upgrade() {
            stream.stop_from(sequence);
        }
        running.cancel();
    }
}

/// Has `tell` called with a sentence for each inline handler that runs after a time, unless what is returned was dropped before.
/// Without a thread for it, nobody is told.
fn tell_what_close_waits_for(
    device: Weak<Inner>,
    after: Duration,
    tell: impl Fn(String) + Send + 'static,
) -> Option<Sender<()>> {
    let (closing, closed) = mpsc::channel();
    let told = move || {
        if closed.recv_timeout(after) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let Some(device) = device.upgrade() else { return };
        let waiting = device.server.waiting().into_iter();
        for waiting in waiting.filter(|waiting| waiting.waits_for == WaitsFor::InlineHandler) {
            tell(format!(
                "`close` of {} waits for the inline handler of {}",
                device.core.name, waiting.service
            ));
        }
    };
    let thread = std::thread::Builder::new().name("hostcall-close".into()).spawn(told);
    thread.is_ok().then_some(closing)
}

impl Device {
    /// Opens a device by name: `cpu` is the software device, `cuda:0` the first NVIDIA GPU, as `cuda` is,
    /// `amdgpu:0` the first AMD GPU of ROCm, and `gfx942` an AMD GPU in software
    /// (where the program was built with the feature `gfx942`).
    ///
    /// # Errors
    /// When there is no such device, or it cannot be opened.
    pub fn open(name: &str) -> Result<Self, Error> {
        Self::builder(name).open()
    }

    /// A builder for a device with services, sizes and streams of one's own.
    ///
    /// ```
    /// use hostcall::{CallError, Device, service};
    ///
    /// #[service]
    /// trait Names {
    ///     fn len_of(id: u32) -> Option<u64>;
    /// }
    ///
    /// struct Table(Vec<&'static str>);
    ///
    /// impl NamesHandler for Table {
    ///     fn len_of(&self, id: u32) -> Result<Option<u64>, CallError> {
    ///         Ok(self.0.get(id as usize).map(|name| name.len() as u64))
    ///     }
    /// }
    ///
    /// let device = Device::builder("cpu")
    ///     .wave_size(64)
    ///     .service(Names::serve(Table(vec!["lane", "wave"])))
    ///     .server(|server| server.handler_threads(4).message_limit(1 << 20))
    ///     .open()?;
    /// assert_eq!((device.target().as_str(), device.wave_size()), ("cpu", 64));
    /// # Ok::<(), hostcall::Error>(())
    /// ```
    pub fn builder(name: &str) -> DeviceBuilder {
        DeviceBuilder::new(name)
    }

    /// The name that the device was opened with.
    pub fn name(&self) -> &str {
        &self.inner.core.name
    }

    /// What images for this device are built for, as `hostcall build --target` takes it: `cpu`, `sm_90`, `gfx942`.
    pub fn target(&self) -> String {
        self.inner.properties().target.clone()
    }

    /// Lanes of a wave.
    pub fn wave_size(&self) -> u32 {
        self.inner.properties().wave_size
    }

    /// Returns what the device is: its kind, product and sizes.
    pub fn properties(&self) -> &Properties {
        self.inner.properties()
    }

    /// Returns the device's server, for tests and benchmarks of it.
    #[doc(hidden)]
    pub fn server(&self) -> &Server {
        &self.inner.server
    }

    /// The built-in services' state: standard streams, files, heap, reports.
    pub fn builtins(&self) -> &Builtins {
        &self.inner.builtins
    }

    /// Cancels every launch that has not ended.
    pub fn cancel_all(&self) {
        if self.inner.core.is_forked() {
            return;
        }
        for stream in self.inner.core.streams() {
            stream.cancel_all(CancelReason::Asked);
        }
    }

    /// Ends the device's work for good: every launch is cancelled, operations that are not with the device are dropped
    /// (who waits for these gets [`Error::Closed`]), and later ones are refused. Futures of async handlers are dropped; other handlers that wait go on, and nobody gets their
    /// answers. Waits until all launches have ended,
    /// at most five seconds: a GPU's kernel that neither calls nor looks cannot be ended. An inline handler is waited for
    /// without a limit, since it keeps the thread by which the server learns of ended launches; a line on the standard error
    /// names it after five seconds. Files that kernels left open are closed. Buffers can still be made, read and written.
    ///
    /// Does nothing in a child that `fork` made since the device was opened.
    pub fn close(&self) {
        if self.inner.core.is_forked() {
            return;
        }
        self.inner.core.closed.store(true, Ordering::SeqCst);
        let streams = self.inner.core.streams();
        for stream in &streams {
            stream.cancel_all(CancelReason::Closed);
        }
        let is_idle = streams.iter().all(|stream| stream.is_idle());
        let device = Arc::downgrade(&self.inner);
        let _closing = (!is_idle).then(|| tell_what_close_waits_for(device, CLOSE_WAIT, report_line));
        let deadline = Some(Instant::now() + CLOSE_WAIT);
        for stream in &streams {
            let last = stream.last();
            // What other threads wait for ends, since it is cancelled: only this thread's own kernel does not.
            if !waiting::is_held_here(&stream.point(last)) {
                stream.wait_limited(last, deadline);
            }
        }
        self.inner.builtins.files().close_all();
    }

    /// Returns the table of the device's closures, whose service is registered when the first is made.
    pub(crate) fn closures(&self) -> Result<Closures, RegisterError> {
        let mut closures = self.inner.closures.lock().unwrap_or_else(PoisonError::into_inner);
        if closures.is_none() {
            *closures = Some(Closures::register(self.server())?);
        }
        Ok(closures.clone().expect("set above"))
    }
}
