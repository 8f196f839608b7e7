//! Tracers, as `hostcall/_trace.py` uses them.

use crate::device::{failed, limit};
use hostcall::trace::Tracer;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::time::Duration;

/// What was counted: calls, posts, and those that were dropped, lost or not written; and a sentence on what was lost.
type Counted = (u64, u64, u64, u64, u64, u64, Option<String>);

/// Writes what kernels say into a file.
#[pyclass(frozen)]
pub struct RawTracer(pub Tracer);

#[pymethods]
impl RawTracer {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let started = py.detach(|| Tracer::builder().file(&path)?.start());
        started.map(Self).map_err(|error| failed(format_args!("{} is not written: {error}", path.display())))
    }

    /// Ends the recording, and waits until all is written; without a limit for `None`.
    fn finish(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Counted> {
        let within = limit(timeout)?.unwrap_or(Duration::MAX);
        let summary = py.detach(|| self.0.finish(within));
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
