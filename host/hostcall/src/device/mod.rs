//! Devices: opening them, their memory, and running kernels on them. [`seam`] is what a kind of device gives: a crate, below
//! the backends.
#![allow(unsafe_code, reason = "memory is shared, written and read by address")]

mod allocate;
mod arguments;
mod buffer;
mod builder;
mod closure_table;
mod closures;
mod context;
mod core;
mod error;
mod event;
mod fence;
mod foreign;
mod forked;
pub mod graph;
mod grid;
mod here;
mod hostcalls;
mod images;
mod inner;
mod launch;
mod llvm;
mod llvm_calls;
mod load;
mod look;
mod metrics;
mod open_devices;
mod owners;
mod point_filter;
mod post_queue;
mod prepare;
pub mod raw;
mod reaper;
mod recording;
mod rocm;
mod services;
mod staging;
mod stream;
#[cfg(test)]
mod tests;
mod transfer;
mod untyped;
mod uses;
mod wait_table;
mod waiting;
pub mod watch;
mod words;
mod work;

pub use arguments::{Arguments, IntoArg, NoBuffer, RawArg};
pub use buffer::{DeviceBuffer, PinnedBuffer};
pub use builder::{DeviceBuilder, devices};
pub use closures::{Hostcall, UntypedHostcall, WireType};
pub use context::Context;
pub use error::{
    BoundsError, CodeObjectError, CrowdedGrid, Error, HostcallState, ImageError, LaunchFailure,
    LaunchRefused, NotContinuous, ProgramError,
};
pub use event::Event;
pub use fence::Fence;
pub use grid::Grid;
pub use hostcall_abi::launch::LaunchId;
pub use hostcall_cuda::prepare_environment;
pub use hostcall_seam as seam;
pub use hostcall_server::{PostBatch, PostQueueStatistics};
pub use hostcall_softdev::{Config as SoftwareDeviceConfig, Faults, Shielded, software_backend};
pub use images::{EmbeddedImage, Image, LoadedKernel, TypedKernel};
pub use inner::{Device, WeakDevice};
pub use launch::LaunchKernel;
pub use llvm::{KernelResources, LlvmCancel, LlvmClient, LlvmProgram, LlvmRun};
pub use point_filter::PointFilter;
pub use post_queue::{PostQueue, PostQueueSizes};
pub use recording::PointRecording;
pub use rocm::{CodeObject, CodeObjectKernel, KernelArgument};
pub use seam::{
    BackendError, DeviceAddress, DeviceFault, DeviceFaultKind, DeviceInfo, DeviceKind, KernelLimits,
    KernelParameters, Properties,
};
pub use stream::{Launch, LaunchOutcome, Readback, Stream};
pub use untyped::{UntypedArgument, ValueType};

use hostcall_server::services::Builtins;
use hostcall_server::{CancelReason, Server, WaitsFor, report_line};
use inner::Inner;
use reaper::Tended as _;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use stream::streams_of;

/// How long [`Device::close`] waits for launches that were cancelled.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

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

    /// Opens all devices of a kind, in the order of their names: those of `cuda` are `cuda:0`, `cuda:1` and so on. `setup` is
    /// called once for each, with its place in the list. What they share, such as the handler of a service, is an `Arc` in
    /// what each gets; streams, buffers, closures and graphs are of one device.
    ///
    /// ```
    /// use hostcall::{CallError, Device, service};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// #[service]
    /// trait Work {
    ///     fn next() -> u64;
    /// }
    ///
    /// /// One queue of work for all devices, which knows which one asks.
    /// struct Queue {
    ///     device: usize,
    ///     next: Arc<AtomicU64>,
    /// }
    ///
    /// impl WorkHandler for Queue {
    ///     fn next(&self) -> Result<u64, CallError> {
    ///         println!("device {} takes a piece of work", self.device);
    ///         Ok(self.next.fetch_add(1, Ordering::Relaxed))
    ///     }
    /// }
    ///
    /// let next = Arc::new(AtomicU64::new(0));
    /// let devices = Device::open_all("cpu", |device, builder| {
    ///     builder.inline_service(Work::serve(Queue { device, next: next.clone() }))
    /// })?;
    /// assert_eq!(devices.len(), 1);
    /// # Ok::<(), hostcall::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no device of this kind, or one cannot be opened: none is open then.
    pub fn open_all(
        kind: &str,
        mut setup: impl FnMut(usize, DeviceBuilder) -> DeviceBuilder,
    ) -> Result<Vec<Self>, Error> {
        let listed = builder::devices_of(kind);
        if listed.is_empty() {
            return Err(Error::NoSuchDevice { name: kind.to_owned() });
        }
        let open = |(place, device): (usize, DeviceInfo)| setup(place, Self::builder(&device.name)).open();
        listed.into_iter().enumerate().map(open).collect()
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

    /// Cancels every launch that has not ended, as [`Launch::cancel`] does.
    pub fn cancel_all(&self) {
        if self.inner.core.is_forked() {
            return;
        }
        for stream in streams_of(&self.inner.core) {
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
        self.inner.core.holders.close();
        let streams = streams_of(&self.inner.core);
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
        self.inner.builtins.sockets().close_all();
    }
}
