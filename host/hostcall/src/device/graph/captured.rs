//! Capturing work that must first be done once.

use super::{CaptureMode, Graph};
use crate::device::error::Error;
use crate::device::stream::Stream;

/// Captures what `work` gives the stream. Work that does something at its first run that cannot be captured, such as
/// allocating buffers that it then keeps, is run once without a capture, waited for, and captured again.
/// Buffers that it drops again are captured: see [`CaptureMode`].
///
/// # Errors
/// What `work` gives. When the second capture is broken too, the call that broke it. The stream can be used afterwards.
///
/// ```
/// use hostcall::graph::captured;
/// use hostcall::{Device, DeviceBuffer};
/// use std::cell::OnceCell;
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let scratch = OnceCell::<DeviceBuffer<u32>>::new();
/// let graph = captured(&stream, |stream| {
///     if scratch.get().is_none() {
///         let _ = scratch.set(device.alloc_zeroed(1024)?);
///     }
///     stream.fill(&scratch.get().unwrap(), 7)
/// })?;
/// assert_eq!(graph.len(), 1);
/// # Ok::<(), hostcall::Error>(())
/// ```
pub fn captured(stream: &Stream, mut work: impl FnMut(&Stream) -> Result<(), Error>) -> Result<Graph, Error> {
    match stream.capture(CaptureMode::ThreadLocal, &mut work) {
        Err(Error::Graph(why)) if why.may_be_over() => {}
        other => return other,
    }
    work(stream)?;
    if let Err(Some(error)) = stream.queue().synchronize(None) {
        return Err(error);
    }
    stream.capture(CaptureMode::ThreadLocal, &mut work)
}
