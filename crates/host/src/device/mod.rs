//! Devices: opening them, their memory, and running kernels on them.

mod arguments;
mod backend;
mod buffer;
mod builder;
mod cpu;
mod cuda;
mod event;
mod launch;
mod llvm;
mod numbers;
mod slots;
mod stream;

pub use arguments::{Arguments, IntoArg};
pub use buffer::{DeviceBuffer, PinnedBuffer};
pub use builder::{DeviceBuilder, DeviceInfo, devices};
pub use event::Event;
pub use launch::{Grid, Image, LaunchKernel, LoadedKernel};
pub(crate) use llvm::port_memory;
pub use llvm::{KernelResources, LlvmProgram, LlvmRun};
pub use stream::Stream;

pub use hostcall_softdev::{Config as SoftwareDeviceConfig, Faults};

use crate::server::{Server, Stall};
use crate::services::{Builtins, Panic};
use backend::{Backend, Memory, Running};
use hostcall_abi::layout::{Layout, SLOT_STATE_BYTES};
use numbers::LaunchNumbers;
use slots::SlotAllocator;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What can go wrong with a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such device; the sentence says which there are.
    #[error("{0}")]
    NoDevice(String),
    /// The device refused; the sentence says why.
    #[error("{0}")]
    Device(String),
    /// The server did not start.
    #[error(transparent)]
    Server(#[from] crate::server::ServerError),
    /// A launch on the stream failed. Later work of the stream ran all the same.
    #[error("kernel {kernel}: {failure}")]
    Launch {
        /// The kernel's name.
        kernel: String,
        /// Why.
        failure: LaunchFailure,
    },
}

/// Why a launch did not end well.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchFailure {
    /// A lane panicked; the others were cancelled.
    #[error("{}", .0.as_ref().map_or("a lane panicked".to_string(), ToString::to_string))]
    Panicked(Option<Panic>),
    /// A lane did what the device does not allow.
    #[error("{0}")]
    Fault(String),
    /// It was cancelled.
    #[error("the launch was cancelled")]
    Cancelled,
    /// It did not start; the sentence says why.
    #[error("{0}")]
    Refused(String),
}

/// A device with its server. Clones are the same device; it closes when the last is dropped.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub name: String,
    pub backend: Box<dyn Backend>,
    pub layout: Layout,
    pub server: Arc<Server>,
    pub builtins: Builtins,
    pub slots: SlotAllocator,
    pub region_address: u64,
    pub states: Arc<dyn Memory>,
    pub pool_bitmap: Arc<dyn Memory>,
    pub epoch: u32,
    /// The last exit code that a launch reported, or `NO_EXIT_CODE`.
    pub exit_code: AtomicI64,
    pub numbers: LaunchNumbers,
    hostcalls: AtomicU64,
    running: Mutex<HashMap<u64, Arc<dyn Running>>>,
    /// Nothing is launched any more. Written while `running` is locked.
    pub closed: AtomicBool,
}

/// No launch reported an exit code; no `i32` is this.
const NO_EXIT_CODE: i64 = i64::MAX;

impl Inner {
    pub fn running(&self) -> MutexGuard<'_, HashMap<u64, Arc<dyn Running>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the slots' states on the device what they were at first.
    pub fn clear_states(&self, slots: std::ops::Range<u32>) -> Result<(), String> {
        let bytes = SLOT_STATE_BYTES;
        self.states.write(slots.start as usize * bytes, &vec![0; slots.len() * bytes])?;
        self.pool_bitmap.write(slots.start as usize / 8, &[0; slots::POOL_SLOTS as usize / 8])
    }

    pub fn cancel(&self, launch: u64) {
        self.server.cancel(launch);
        if let Some(running) = self.running().get(&launch) {
            running.cancel();
        }
    }
}

impl Device {
    /// Opens a device by name: `cpu` is the software device, `cuda:0` the first NVIDIA GPU, as `cuda` is.
    ///
    /// # Errors
    /// When there is no such device, or it cannot be opened.
    pub fn open(name: &str) -> Result<Self, Error> {
        Self::builder(name).open()
    }

    /// A builder for a device with services, sizes and streams of one's own.
    pub fn builder(name: &str) -> DeviceBuilder {
        DeviceBuilder::new(name)
    }

    /// The name that the device was opened with.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What images for this device are built for, as `hostcall build --target` takes it: `cpu`, `sm_90`.
    pub fn target(&self) -> String {
        self.inner.backend.target()
    }

    /// Lanes of a wave.
    pub fn wave_size(&self) -> u32 {
        self.inner.backend.wave_size()
    }

    /// The device's server: services come and go there while kernels run.
    pub fn server(&self) -> &Server {
        &self.inner.server
    }

    /// The built-in services' state: standard streams, files, heap, reports.
    pub fn builtins(&self) -> &Builtins {
        &self.inner.builtins
    }

    /// Cancels every launch that runs.
    pub fn cancel_all(&self) {
        let launches: Vec<u64> = self.inner.running().keys().copied().collect();
        for launch in launches {
            self.inner.cancel(launch);
        }
    }

    /// Ends the device's work for good: every launch is cancelled, and later ones are refused. Handlers that
    /// wait go on; nobody gets their answers.
    pub fn close(&self) {
        let running = self.inner.running();
        self.inner.closed.store(true, Ordering::Relaxed);
        drop(running);
        self.cancel_all();
    }

    /// The exit code that a launch reported last: the code of a program.
    pub fn exit_code(&self) -> Option<i32> {
        i32::try_from(self.inner.exit_code.load(Ordering::Relaxed)).ok()
    }

    /// What the running launches wait for, for a report before they are cancelled.
    pub fn waiting(&self) -> Vec<Stall> {
        self.inner.server.waiting()
    }

    /// The next number for a closure, counted from 0. See [`crate::Hostcall`].
    pub(crate) fn next_hostcall(&self) -> u64 {
        self.inner.hostcalls.fetch_add(1, Ordering::Relaxed)
    }
}
