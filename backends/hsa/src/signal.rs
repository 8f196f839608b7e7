//! Signals.

use crate::gpu::Gpu;
use crate::runtime::Error;
use crate::sys::{self, hsa_signal_t};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering};

/// Who looks at a signal, besides GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// The host waits for it in the runtime, or has it call a handler.
    ByRuntime,
    /// The host, by reading its value: it raises no interrupt.
    ByValue,
}

/// A signal of a GPU (invariant SIGNAL).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signal {
    pub handle: hsa_signal_t,
    pub watched: Watched,
    value: Option<NonNull<AtomicI64>>,
}

// SAFETY: a handle, and the address of an atomic.
unsafe impl Send for Signal {}
// SAFETY: as above.
unsafe impl Sync for Signal {}

impl Signal {
    /// Makes a signal.
    pub fn create(gpu: &Gpu, watched: Watched, value: i64) -> Result<Self, Error> {
        let runtime = gpu.runtime();
        let attributes = match watched {
            Watched::ByRuntime => 0,
            Watched::ByValue => u64::from(sys::HSA_AMD_SIGNAL_AMD_GPU_ONLY),
        };
        let doing = || "making a signal".to_owned();
        let mut handle = hsa_signal_t { handle: 0 };
        // SAFETY: LOADED; the result lives through the call.
        let status = unsafe {
            (runtime.functions.hsa_amd_signal_create)(value, 0, std::ptr::null(), attributes, &mut handle)
        };
        runtime.check(status, doing)?;
        let mut address = std::ptr::null_mut();
        if watched == Watched::ByValue {
            // SAFETY: LOADED; the signal was made just now, and the result lives through the call.
            let status = unsafe { (runtime.functions.hsa_amd_signal_value_pointer)(handle, &mut address) };
            runtime.check(status, doing).inspect_err(|_| {
                // SAFETY: LOADED; nobody else has the signal.
                unsafe { (runtime.functions.hsa_signal_destroy)(handle) };
            })?;
        }
        Ok(Self { handle, watched, value: NonNull::new(address.cast()) })
    }

    /// Returns the value of a signal that is watched by value, and orders what follows after it.
    pub fn load(&self) -> i64 {
        let value = self.value.expect("signals are read that are watched by value");
        // SAFETY: SIGNAL; the runtime and the GPU change it atomically.
        unsafe { value.as_ref() }.load(Ordering::Acquire)
    }

    /// Sets the value.
    pub fn store(&self, gpu: &Gpu, value: i64) {
        // SAFETY: LOADED and SIGNAL.
        unsafe { (gpu.runtime().functions.hsa_signal_store_screlease)(self.handle, value) };
    }

    /// Waits until it has this value, or a while. Returns whether it has.
    pub fn wait_for(&self, gpu: &Gpu, value: i64) -> bool {
        const WHILE_NS: u64 = 10_000_000;
        // SAFETY: LOADED and SIGNAL.
        let found = unsafe {
            (gpu.runtime().functions.hsa_signal_wait_scacquire)(
                self.handle,
                sys::HSA_SIGNAL_CONDITION_EQ,
                value,
                WHILE_NS,
                sys::HSA_WAIT_STATE_BLOCKED,
            )
        };
        found == value
    }

    /// Ends the signal.
    ///
    /// # Safety
    /// Nobody uses it any more.
    pub unsafe fn destroy(self, gpu: &Gpu) {
        // SAFETY: LOADED; by the caller's promise.
        unsafe { (gpu.runtime().functions.hsa_signal_destroy)(self.handle) };
    }
}
