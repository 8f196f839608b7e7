//! Tracers, as `hostcall/_trace.py` uses them.

use crate::device::{failed, limit};
use crate::released::DropsFree;
use hostcall::trace::Tracer;
use hostcall::{Device, PointFilter, PointRecording};
use hostcall_locks::Mutex;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::time::Duration;

/// What was counted: calls, posts, and those that were dropped, lost or not written; and a sentence on what was lost.
type Counted = (u64, u64, u64, u64, u64, u64, Option<String>);

/// Writes what kernels say into a file.
#[pyclass(frozen)]
pub struct RawTracer {
    pub tracer: Tracer,
    process: u32,
}

impl Drop for RawTracer {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // In a child that `fork` made the thread that writes is the parent's: the last one would wait for it.
            std::mem::forget(self.tracer.clone());
        }
    }
}

#[pymethods]
impl RawTracer {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let started = py.detach(|| Tracer::builder().file(&path)?.start());
        let tracer =
            started.map_err(|error| failed(format_args!("{} is not written: {error}", path.display())))?;
        Ok(Self { tracer, process: std::process::id() })
    }

    /// Ends the recording, and waits until all is written; without a limit for `None`.
    fn finish(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Counted> {
        if std::process::id() != self.process {
            return Err(failed(
                "the tracer was made before this process was forked, and its file is the parent's",
            ));
        }
        let within = limit(timeout)?.unwrap_or(Duration::MAX);
        let summary = py.detach(|| self.tracer.finish(within));
        let lost = summary.lost();
        Ok((
            summary.calls,
            summary.posts,
            summary.dropped_calls,
            summary.dropped_others,
            summary.lost_points,
            summary.unwritten_calls,
            lost,
        ))
    }
}

/// Records trace points of a device until it is ended or dropped.
#[pyclass(frozen)]
pub struct RawPointRecording(Mutex<Option<DropsFree<PointRecording>>>);

impl RawPointRecording {
    /// Begins to record points whose names match one of `points`, of kernels that match one of `kernels`; all without any.
    pub fn begin(
        device: &Device,
        tracer: &Tracer,
        points: &[String],
        kernels: &[String],
    ) -> Result<Self, hostcall::Error> {
        let filter = points.iter().fold(PointFilter::default(), |filter, name| filter.name(name));
        let filter = kernels.iter().fold(filter, |filter, name| filter.kernel(name));
        let recording = device.record_points(tracer, filter)?;
        Ok(Self(Mutex::new(Some(DropsFree::new(recording)))))
    }
}

#[pymethods]
impl RawPointRecording {
    /// Has points written, or no more.
    fn switch(&self, py: Python<'_>, is_on: bool) -> PyResult<()> {
        py.detach(|| match (&*self.0.lock(), is_on) {
            (None, _) => Err(failed("the recording has ended: begin another one by `Device.record_points`")),
            (Some(recording), true) => recording.resume().map_err(failed),
            (Some(recording), false) => recording.pause().map_err(failed),
        })
    }

    /// Ends it; nothing is done where it has ended.
    fn end(&self, py: Python<'_>) {
        py.detach(|| drop(self.0.lock().take().map(DropsFree::into_inner)));
    }
}
