//! The server: consumer threads that find calls, and what runs their handlers.
//!
//! A call's hops: `consumer` finds it, `dispatch` looks its service up in the `registry` and runs an
//! inline handler at once, or makes a `job` that a worker thread or the async executor answers. The
//! `watchdog` keeps deadlines and reports calls that do not move.

mod bytes;
mod consumer;
mod control;
mod dispatch;
mod job;
mod registry;
mod watchdog;

pub use control::{Server, ServerBuilder, ServerError, Statistics};
pub use registry::{Handler, Mode, RegisterError};
pub use watchdog::{Stall, StallState};
