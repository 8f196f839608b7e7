//! Recording trace points of a device whose kernels run already.

use super::error::Error;
use super::inner::{Device, DevicePoints};
use super::point_filter::PointFilter;
use hostcall_trace::Tracer;
use std::sync::{Arc, Weak};

/// Records trace points until it is dropped. It does not keep the device open.
#[must_use = "trace points are recorded as long as it lives"]
pub struct PointRecording {
    points: Weak<dyn DevicePoints>,
    number: u64,
}

impl Device {
    /// Records trace points ([`hostcall_device::trace`]) from now on, also of kernels that run: until the recording is
    /// [paused](PointRecording::pause) or dropped. Kernels need no other build, and no other launch.
    ///
    /// A launch is in the trace from when the first of its points is met. Calls and posts are recorded only by a tracer that the
    /// device was [opened with](super::DeviceBuilder::trace), whose file has all trace points already. Memory of up to 64 MiB, that
    /// host and device share, is taken when points are first recorded, and kept until the device closes.
    ///
    /// ```
    /// use hostcall::trace::Tracer;
    /// use hostcall::{Device, Global, Grid, Lane, LaunchKernel, PointFilter, counter, kernel};
    /// use std::time::Duration;
    ///
    /// #[kernel]
    /// fn polls(lane: &Lane, stop: &[Global<u32>]) {
    ///     while stop[0].get() == 0 {
    ///         counter!("polled by", lane.index());
    ///         lane.pause();
    ///     }
    /// }
    ///
    /// let device = Device::open("cpu")?;
    /// let (stream, stop) = (device.stream()?, device.pinned::<u32>(1)?);
    /// polls.launch(&stream, Grid::new(1, 1), (&stop,))?;
    /// let tracer = Tracer::builder().writer(std::io::sink()).start()?;
    /// let recording = device.record_points(&tracer, PointFilter::default().name("polled*"))?;
    /// std::thread::sleep(Duration::from_millis(10));
    /// drop(recording);
    /// assert_eq!(tracer.finish(Duration::from_secs(10)).lost(), None);
    /// stop[0].set(1);
    /// stream.synchronize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When points of the device are recorded already, the device has no memory left or was closed, or a stream captures that this
    /// breaks.
    pub fn record_points(&self, tracer: &Tracer, filter: PointFilter) -> Result<PointRecording, Error> {
        let inner = &self.inner;
        inner.core.check_open()?;
        let source = tracer.source(&tracer.name_device(&inner.core.name), "hostcall");
        let number = inner.points.begin(&inner.server, tracer, source, false, filter)?;
        Ok(PointRecording { points: Arc::downgrade(&inner.points), number })
    }
}

impl PointRecording {
    /// Has points written no more, but for the ends of spans that were begun.
    ///
    /// # Errors
    /// When the device fails or was closed.
    pub fn pause(&self) -> Result<(), Error> {
        self.switch(false)
    }

    /// Has points written again.
    ///
    /// # Errors
    /// When the device fails or was closed.
    pub fn resume(&self) -> Result<(), Error> {
        self.switch(true)
    }

    /// Says whether the device has ended, and the recording with it.
    pub(crate) fn is_over(&self) -> bool {
        self.points.strong_count() == 0
    }

    fn switch(&self, is_on: bool) -> Result<(), Error> {
        self.points.upgrade().ok_or(Error::Closed)?.switch(self.number, is_on)
    }
}

impl Drop for PointRecording {
    fn drop(&mut self) {
        if let Some(points) = self.points.upgrade() {
            points.end(self.number);
        }
    }
}
