//! Streams: work in order, beside the work of other streams.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | [`Stream`] itself, and values on their way to the host. What users call is in `work.rs` of devices, since a graph may record it |
//! | `queue.rs` | the queue behind it: positions, pushing operations |
//! | `submit.rs` | giving the device what it takes |
//! | `settle.rs` | what follows from what has ended |
//! | `wait.rs` | waiting |
//! | `stop.rs`, `stops.rs` | ending launches early; which launches do not begin therefore |
//! | `timeline.rs` | a stream as other streams, buffers and the reaper see it |
//! | `operation.rs` | what a stream does |
//! | `prints.rs` | how much of the output is waited for with a position |
//! | `launched.rs` | launches as those who made them hold them |
//! | `step.rs` | what the host does in the middle of a unit |
//!
//! A stream knows nothing of graphs. A replay is a *unit*: operations that are pushed together, with an end behind them
//! ([`Unit`]). Who gave an operation is its owner ([`owners`](super::owners)), which is told of its failure.
#![allow(unsafe_code, reason = "reads pinned memory")]

mod launched;
mod operation;
mod prints;
mod queue;
mod settle;
mod step;
mod stop;
mod stops;
mod submit;
mod timeline;
mod wait;

pub(crate) use launched::LaunchState;
pub use launched::{Launch, LaunchOutcome};
pub(crate) use operation::{Dispatched, Listed, Operation, Parameters, Parts, TransferOwner, Transferring};
pub(crate) use queue::{StreamQueue, Unit};
pub(crate) use settle::ON_FAILURE;
pub(crate) use step::{Step, StepControl};

use super::buffer::values_of;
use super::core::Core;
use super::error::Error;
use super::inner::Inner;
use super::transfer::Readable;
use hostcall_device::kernel::Plain;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The streams of a device that somebody has.
pub(crate) fn streams_of(core: &Core) -> Vec<Arc<StreamQueue>> {
    let streams = core.reaper.streams().into_iter();
    let streams = streams.map(|stream| stream as Arc<dyn Any + Send + Sync>);
    streams.filter_map(|stream| stream.downcast().ok()).collect()
}

/// An in-order queue of a device's work.
///
/// Launches follow each other on the device without the host between them. A launch that panicked, exited, or was
/// cancelled or stopped keeps later launches and host functions of the stream from running, until
/// [`Stream::synchronize`] has told of it; copies and fills are done all the same. Then the stream goes on.
///
/// While a stream [captures](Stream::capture), what it is given is recorded for a [`Graph`](crate::graph::Graph) and not
/// done.
///
/// Streams are cheap: a stream without work takes some hundred bytes and no thread, and the number of operations that wait
/// in one is bounded by memory and by the 131,072 launches that a device can tell apart. At most 128 operations of a
/// stream, and 512 of a device, are with the device at once; the others wait in the host's memory.
///
/// Dropping a stream waits for its work, since kernels use memory of the host, and writes a failure that nobody asked for to
/// the standard error; after 5 seconds it writes that it waits. So cancel launches that do not end before. In a handler, in a
/// host function and in a panic it does not wait: the work goes on.
///
/// ```
/// use hostcall::{Device, Global, Grid, Lane, LaunchKernel, kernel};
///
/// #[kernel]
/// fn add(lane: &Lane, more: u32, out: &[Global<u32>]) {
///     let cell = &out[lane.global_id()];
///     cell.set(cell.get() + more);
/// }
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let (numbers, copy) = (device.alloc_zeroed::<u32>(4)?, device.alloc_zeroed::<u32>(4)?);
/// stream.write(&numbers, &[1, 2, 3, 4])?; // taken at once, copied in the stream's order
/// add.launch(&stream, Grid::new(1, 4), (10, &numbers))?;
/// stream.copy(&copy, &numbers)?;
/// stream.fill(&numbers, 7)?;
/// let copied = stream.read(&copy)?;
/// assert_eq!(copied.wait()?, [11, 12, 13, 14]);
/// stream.synchronize()?; // tells of what failed
/// assert_eq!(numbers.read()?, [7; 4]);
/// # Ok::<(), hostcall::Error>(())
/// ```
pub struct Stream {
    pub(super) queue: Arc<StreamQueue>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("device", &self.core().name).finish_non_exhaustive()
    }
}

impl Stream {
    pub(super) fn queue(&self) -> &Arc<StreamQueue> {
        &self.queue
    }

    pub(super) fn device(&self) -> &Arc<Inner> {
        &self.queue.device
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.queue.device.core
    }
}

/// Values on their way to the host. Dropping it drops the values.
pub struct Readback<T: Plain> {
    pub(super) queue: Arc<StreamQueue>,
    pub(super) position: u64,
    pub(super) memory: Arc<Readable>,
    pub(super) len: usize,
    pub(super) values: PhantomData<fn() -> T>,
}

impl<T: Plain> fmt::Debug for Readback<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readback").field("is_done", &self.is_done()).finish_non_exhaustive()
    }
}

impl<T: Plain> Readback<T> {
    /// Says whether the values are there.
    pub fn is_done(&self) -> bool {
        self.queue.is_settled(self.position)
    }

    /// Waits for the values.
    ///
    /// # Errors
    /// When the device failed or was closed before it copied them, or a handler or host function calls this for which the
    /// stream waits.
    pub fn wait(self) -> Result<Vec<T>, Error> {
        self.queue.wait_for(self.position, "a readback's `wait`", None)?;
        self.queue.check_done(self.position)?;
        if let Some(error) = self.memory.refused.get() {
            return Err(error.clone().into());
        }
        // SAFETY: as many bytes lie there, and the copy that wrote them has ended.
        let bytes = unsafe {
            let from = self.memory.staging.host_address().as_ptr().cast_const();
            std::slice::from_raw_parts(from, self.len * size_of::<T>())
        };
        Ok(values_of(bytes, self.len))
    }
}
