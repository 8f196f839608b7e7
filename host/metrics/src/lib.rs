//! What hostcall's devices have counted, for Prometheus and OpenTelemetry. The numbers are those of `hostcall::metrics()` and of
//! `hostcall::watch::metrics(pid)`: counted anyway, and read when somebody asks.
//!
//! ```
//! use hostcall::Device;
//!
//! let device = Device::open("cpu")?;
//! let text = hostcall_metrics::prometheus::text(&[hostcall::metrics()]);
//! assert!(text.contains("hostcall_devices_open{device=\"cpu\"} 1"));
//! # Ok::<(), hostcall::Error>(())
//! ```
//!
//! A program that is to be scraped calls `prometheus::serve` (feature `serve`), one that pushes
//! to a collector `otlp::Push` (feature `otlp`). Neither is needed where `hostcall serve` runs beside it.
//!
//! The series have an end: they are told apart by device, service, method and how a call ended, and by the rank of a job's
//! process; never by processes, launches, addresses or slots.
#![forbid(unsafe_code)]

#[cfg(feature = "serve")]
pub mod http;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod processes;
pub mod prometheus;
mod series;
