//! Recording trace points of a device whose kernels run already.

use super::error::Error;
use super::inner::Device;
use super::raw::DevicePoints;
use hostcall_abi::launch::LaunchId;
use hostcall_trace::Tracer;
use std::sync::{Arc, Weak};
use wildmatch::WildMatch;

/// Which trace points a recording wants. The default is all of them, of all launches.
///
/// Patterns match a whole name; `*` stands for any characters, `?` for one.
///
/// ```
/// use hostcall::PointFilter;
///
/// let filter = PointFilter::default().name("tile*").name("loss").kernel("train_*");
/// # let _ = filter;
/// ```
#[derive(Clone, Debug, Default)]
pub struct PointFilter {
    names: Vec<WildMatch>,
    kernels: Vec<WildMatch>,
    launch: Option<LaunchId>,
}

impl PointFilter {
    /// Wants points whose name, or an event's format, is so. Several patterns want what one of them does.
    pub fn name(mut self, pattern: &str) -> Self {
        self.names.push(WildMatch::new(pattern));
        self
    }

    /// Wants points of kernels, and of contexts, whose name is so.
    pub fn kernel(mut self, pattern: &str) -> Self {
        self.kernels.push(WildMatch::new(pattern));
        self
    }

    /// Wants points of this launch alone.
    pub fn launch(mut self, launch: LaunchId) -> Self {
        self.launch = Some(launch);
        self
    }

    pub(crate) fn wants_point(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|pattern| pattern.matches(name))
    }

    pub(crate) fn wants_launch(&self, launch: LaunchId, kernel: &str) -> bool {
        self.launch.is_none_or(|wanted| wanted == launch)
            && (self.kernels.is_empty() || self.kernels.iter().any(|pattern| pattern.matches(kernel)))
    }
}

/// Records trace points until it is dropped. It does not keep the device open.
#[must_use = "trace points are recorded as long as it lives"]
pub struct PointRecording {
    points: Weak<DevicePoints>,
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
