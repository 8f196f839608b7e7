//! Points in streams that others made.

use crate::gpu::Event;
use crate::{Error, Gpu};
use cudarc::driver::sys::{self, CUresult};
use hostcall_seam::BackendError;
use std::ffi::c_void;
use std::sync::Arc;

/// An event of the driver's at a place in a stream that others made.
pub(crate) struct Fence {
    gpu: Arc<Gpu>,
    event: Event,
}

/// While it lives, what this thread asks the driver for ends no capture of another thread's, as it may in a user's thread.
struct Relaxed<'g> {
    gpu: &'g Gpu,
    before: sys::CUstreamCaptureMode,
}

impl<'g> Relaxed<'g> {
    fn enter(gpu: &'g Gpu) -> Result<Self, Error> {
        let mut relaxed = Self { gpu, before: sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED };
        relaxed.exchange()?;
        Ok(relaxed)
    }

    fn exchange(&mut self) -> Result<(), Error> {
        let mode = &mut self.before;
        // SAFETY: LOADED; the mode lives through the call.
        self.gpu.run(
            || "changing a thread's capture mode".into(),
            || unsafe { sys::cuThreadExchangeStreamCaptureMode(mode) },
        )
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        // A driver that fails here fails for whatever comes next too.
        let _ = self.exchange();
    }
}

impl Gpu {
    /// Records an event behind what has been submitted to a stream.
    ///
    /// # Safety
    /// The stream is one of the driver's, of this GPU's primary context, or 0, 1 or 2 (the default ones), and lives through the
    /// call.
    pub(crate) unsafe fn fence(self: &Arc<Self>, stream: u64) -> Result<Fence, BackendError> {
        let _relaxed = Relaxed::enter(self)?;
        let stream: sys::CUstream = std::ptr::with_exposed_provenance_mut::<c_void>(stream as usize).cast();
        let mut capturing = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: LOADED; the caller vouches for the stream, and the result lives through the call.
        let ask = || unsafe { sys::cuStreamIsCapturing(stream, &mut capturing) };
        self.run(|| "looking at a stream of others".into(), ask)?;
        if capturing != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            let what = "the stream is being captured into a graph, and a fence is none of that: take it where the graph is launched";
            return Err(BackendError::Refused(what.into()));
        }
        let fence = Fence { gpu: self.clone(), event: self.take_event()? };
        // SAFETY: LOADED; the caller vouches for the stream, and nobody else has the event.
        let record = || unsafe { sys::cuEventRecord(fence.event.0, stream) };
        self.run(|| "recording an event in a stream of others".into(), record)?;
        Ok(fence)
    }
}

impl hostcall_seam::Fence for Fence {
    fn is_done(&self) -> Result<bool, BackendError> {
        let _relaxed = Relaxed::enter(&self.gpu)?;
        let mut is_done = false;
        let query = || {
            // SAFETY: LOADED, with an event of this GPU.
            let result = unsafe { sys::cuEventQuery(self.event.0) };
            is_done = result == CUresult::CUDA_SUCCESS;
            if result == CUresult::CUDA_ERROR_NOT_READY { CUresult::CUDA_SUCCESS } else { result }
        };
        let asked: Result<(), Error> = self.gpu.run(|| "asking for an event".into(), query);
        Ok(asked.map(|()| is_done)?)
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.gpu.give_back_events([self.event]);
    }
}
