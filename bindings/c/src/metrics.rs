//! What the devices of this process have counted.

use crate::error::c_text;
use crate::functions::functions;
use ::hostcall_metrics::prometheus::{Sample, samples, text};
use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;

/// What the devices of this process had counted when it was read, also those that have ended. Any thread may use it; it is the
/// caller's, who frees it.
pub struct hostcall_metrics {
    numbers: Vec<(CString, CString, f64)>,
    text: CString,
}

/// A number of a series. The texts live as long as what was read.
#[repr(C)]
pub struct hostcall_metric {
    /// The series' name, such as `hostcall_calls_total`.
    pub name: *const c_char,
    /// Which of the series' numbers it is, such as `device="cpu",service="Shop",method="sell",status="ok"`.
    pub labels: *const c_char,
    /// The number.
    pub value: f64,
}

functions! {
    /// Reads what the devices of this process have counted. Any thread may call it.
    make hostcall_metrics_read() -> hostcall_metrics as metrics {
        let counted = [hostcall::metrics()];
        let number = |sample: Sample| (c_text(&sample.name), c_text(&sample.labels_text()), sample.value);
        hostcall_metrics {
            numbers: samples(&counted).into_iter().map(number).collect(),
            text: c_text(&text(&counted)),
        }
    }

    /// Returns how many numbers there are; 0 for NULL.
    ask hostcall_metrics_count(metrics: &hostcall_metrics) -> usize { metrics.numbers.len() }

    /// Puts the number at `index` into `metric` and returns true, if there is one.
    ask hostcall_metrics_get(
        metrics: &hostcall_metrics,
        index: usize,
        metric: &mut MaybeUninit<hostcall_metric>,
    ) -> bool {
        let Some((name, labels, value)) = metrics.numbers.get(index) else { return Ok(false) };
        metric.write(hostcall_metric { name: name.as_ptr(), labels: labels.as_ptr(), value: *value });
        true
    }

    /// Returns all of it as Prometheus scrapes it, as `text/plain; version=0.0.4`; NULL for NULL. It lives as long as what was
    /// read.
    ask hostcall_metrics_text(metrics: &hostcall_metrics) -> *const c_char { metrics.text.as_ptr() }

    /// Frees what was read and sets the handle to NULL. NULL is let be.
    free hostcall_metrics_free(metrics: hostcall_metrics) { drop(metrics) }
}
