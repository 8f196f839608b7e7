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
