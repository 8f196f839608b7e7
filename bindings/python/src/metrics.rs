//! What devices have counted, as `hostcall/_metrics.py` gives it.

use hostcall_metrics::prometheus;
use pyo3::prelude::*;

/// A number: the name of its series, its labels, and the value.
type Number = (String, Vec<(&'static str, String)>, f64);

/// Returns all numbers of this process's devices.
#[pyfunction]
pub fn metrics(py: Python<'_>) -> Vec<Number> {
    let samples = py.detach(|| prometheus::samples(&[hostcall::metrics()]));
    samples.into_iter().map(|sample| (sample.name, sample.labels, sample.value)).collect()
}

/// Returns the same as Prometheus scrapes it.
#[pyfunction]
pub fn metrics_text(py: Python<'_>) -> String {
    py.detach(|| prometheus::text(&[hostcall::metrics()]))
}
