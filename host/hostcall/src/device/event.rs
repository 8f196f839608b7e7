//! Events: points in a stream's order that other streams and the host can wait for, and that tell the time between them.

use super::core::Core;
use super::error::{Error, GraphError};
use super::graph::CapturedPoint;
use super::stream::StreamQueue;
use hostcall_seam::Mark;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A point in a stream: it happens when all of the stream's work before it is done, and what its kernels printed and posted
/// has been handled. [`super::Stream::record`] makes it. Clones are the same event.
///
/// ```
/// use hostcall::{Device, Global, Grid, Lane, LaunchKernel, kernel};
///
/// #[kernel]
/// fn count(lane: &Lane, out: &[Global<u64>]) {
///     out[lane.global_id()].set(lane.global_id() as u64);
/// }
///
/// let device = Device::open("cpu")?;
/// let (stream, other) = (device.stream()?, device.stream()?);
/// let out = device.alloc_zeroed::<u64>(64)?;
/// let begun = stream.record()?;
/// count.launch(&stream, Grid::new(1, 64), (&out,))?;
/// let ended = stream.record()?;
/// other.wait_for(&ended)?; // what `other` gets from here on comes behind the kernel
/// ended.wait()?;
/// let took = ended.elapsed_since(&begun)?.expect("both have happened");
/// println!("{took:?} on the device");
/// # Ok::<(), hostcall::Error>(())
/// ```
#[derive(Clone)]
pub struct Event {
    pub(super) queue: Arc<StreamQueue>,
    pub(super) position: u64,
    /// Put once the stream has come so far as to submit it.
    pub(super) mark: Arc<OnceLock<Arc<dyn Mark>>>,
    /// It is an event of captured work, which never happens.
    pub(super) captured: Option<CapturedPoint>,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("is_done", &self.is_done()).finish_non_exhaustive()
    }
}

impl Event {
    pub(super) fn core(&self) -> &Arc<Core> {
        &self.queue.device.core
    }

    /// Refuses to wait for an event of captured work.
    fn check_real(&self) -> Result<(), Error> {
        match self.captured {
            Some(_) => Err(GraphError::Captured { what: "an event" }.into()),
            None => Ok(()),
        }
    }

    /// Says whether it has happened.
    pub fn is_done(&self) -> bool {
        self.captured.is_none() && self.queue.is_settled(self.position)
    }

    /// Waits until it has happened. Whether what came before it failed says [`Stream::synchronize`](crate::Stream::synchronize).
    ///
    /// # Errors
    /// When a handler or host function calls this for which the event's stream waits, and when the device was closed before.
    pub fn wait(&self) -> Result<(), Error> {
        self.check_real()?;
        self.queue.wait_for(self.position, "an event's `wait`", None)?;
        self.queue.check_kept(self.position)
    }

    /// Waits until it has happened, at most `limit`.
    ///
    /// # Errors
    /// As for [`Event::wait`], and [`Error::TimedOut`].
    pub fn wait_for(&self, limit: Duration) -> Result<(), Error> {
        self.check_real()?;
        match self.queue.wait_for(self.position, "an event's `wait_for`", Some(limit))? {
            true => self.queue.check_kept(self.position),
            false => Err(self.queue.timed_out("the work before the event", self.position, limit)),
        }
    }

    /// Returns the time on the device from `earlier` to this event; `None` while one of them has not happened, and when its
    /// device failed or was closed before it did. It is zero when this one came first.
    ///
    /// # Errors
    /// When `earlier` is of another device, or the device fails.
    pub fn elapsed_since(&self, earlier: &Event) -> Result<Option<Duration>, Error> {
        self.core().check_own(earlier.core(), "the earlier event")?;
        let (Some(to), Some(from)) = (self.mark.get(), earlier.mark.get()) else { return Ok(None) };
        Ok(to.elapsed_ns_since(&**from)?.map(Duration::from_nanos))
    }
}
