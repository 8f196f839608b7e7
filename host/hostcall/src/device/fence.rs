//! Fences: when kernels that others launched have ended, and what they posted has been handled.
#![allow(unsafe_code, reason = "streams of others are handles that nobody can check")]

use super::context::Context;
use super::core::Core;
use super::error::Error;
use super::inner::Inner;
use hostcall_abi::launch::LaunchId;
use hostcall_locks::Mutex;
use hostcall_seam as seam;
use hostcall_server::Completion;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use std::{fmt, thread};

/// Pauses between two looks at a fence.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];

/// A place in a stream of others, behind kernels with a [`Context`].
pub struct Fence {
    core: Arc<Core>,
    device: Weak<Inner>,
    launch: LaunchId,
    /// There until it is dropped.
    place: Option<Box<dyn seam::Fence>>,
    /// From when the kernels have ended.
    flush: Mutex<Option<Completion>>,
}

impl Context {
    /// Takes the place in a stream of others behind all that has been submitted to it, and says that kernels run there
    /// ([`Context::attend`]).
    ///
    /// `stream` is the driver's handle: a `CUstream` or `cudaStream_t`, PyTorch's `cuda_stream`, or 0 for the default stream.
    ///
    /// # Safety
    /// It is a stream of the context that the device uses, and nobody destroys it meanwhile.
    ///
    /// # Errors
    /// When the stream is being captured into a graph, the device has no streams of others (only CUDA's have), or it was closed
    /// or has failed.
    pub unsafe fn fence(&self, stream: u64) -> Result<Fence, Error> {
        self.attend()?;
        // SAFETY: as the caller says.
        let place = unsafe { self.core.backend.fence(stream) }?;
        Ok(Fence {
            core: self.core.clone(),
            device: self.device.clone(),
            launch: self.launch_id(),
            place: Some(place),
            flush: Mutex::default(),
        })
    }
}

impl Fence {
    /// Returns whether the kernels before it have ended. Those may still have posts on their way.
    ///
    /// # Errors
    /// When the device failed or was closed.
    pub fn is_reached(&self) -> Result<bool, Error> {
        open(&self.device)?;
        Ok(self.place.as_ref().expect("it is not dropped yet").is_done()?)
    }

    /// Returns whether the kernels before it have ended and their posts have been handled. Posts of a kernel that runs on across
    /// [`Context::renew`] are another launch's, for which it does not wait.
    ///
    /// # Errors
    /// When the device failed or was closed.
    pub fn is_done(&self) -> Result<bool, Error> {
        if !self.is_reached()? {
            return Ok(false);
        }
        let server = &open(&self.device)?.server;
        let mut flush = self.flush.lock();
        let is_flushed = flush.get_or_insert_with(|| server.begin_flush(vec![self.launch])).is_done();
        Ok(is_flushed && server.has_handled_posts(self.launch.into()))
    }

    /// Waits until [`Fence::is_done`]. A handler that runs inline must not call it: it would wait for itself.
    ///
    /// # Errors
    /// When the device failed or was closed.
    pub fn wait(&self) -> Result<(), Error> {
        self.wait_for(Duration::MAX)
    }

    /// Waits like [`Fence::wait`], but not longer than `limit`.
    ///
    /// # Errors
    /// As for [`Fence::wait`], and [`Error::TimedOut`].
    pub fn wait_for(&self, limit: Duration) -> Result<(), Error> {
        let (begin, [mut pause, longest]) = (Instant::now(), PAUSES);
        while !self.is_done()? {
            if begin.elapsed() >= limit {
                return Err(open(&self.device)?.timed_out("the work before the fence", limit, || None));
            }
            thread::sleep(pause);
            pause = longest.min(2 * pause);
        }
        Ok(())
    }
}

fn open(device: &Weak<Inner>) -> Result<Arc<Inner>, Error> {
    let device = device.upgrade().ok_or(Error::Closed)?;
    device.core.check_open()?;
    Ok(device)
}

impl Drop for Fence {
    fn drop(&mut self) {
        // A child that `fork` made takes no lock of its parent's.
        if self.core.is_forked() {
            std::mem::forget(self.place.take());
        }
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").field("launch", &self.launch).finish_non_exhaustive()
    }
}
