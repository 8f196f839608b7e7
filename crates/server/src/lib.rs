//! hostcall's server: it finds the calls of kernels, runs their handlers, and has the services that come with hostcall.
//!
//! - `own` serves hostcall's own protocol, [`llvm`] that of LLVM's GPU libc.
//! - `engine` has what both use: worker threads, an executor for async handlers, the watchdog.
//! - [`services`] are printing, files, the heap and the like.
#![forbid(unsafe_code)]

mod engine;
pub mod llvm;
mod own;
pub mod services;

pub use engine::handling::{Handling, handling};
pub use engine::watchdog::{Waiting, WaitsFor, WavePlace};
pub use own::{
    ByHand, CancelReason, Completion, Handler, LaunchRecord, LaunchReport, Launches, RegisterError,
    Registration, Server, ServerBuilder, ServerError, Statistics, TooManyLaunches,
};
