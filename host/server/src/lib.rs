//! hostcall's server: it finds the calls of kernels, runs their handlers, and has the services that come with
//! hostcall. Each call is answered once: by its handler, by its lane's deadline, or because its launch ended.
//! A panic of a handler ends no thread, and a consumer waits for no handler but an inline one.
//!
//! - `own` serves hostcall's own protocol, [`llvm`] that of LLVM's GPU libc, [`rocm`] that of ROCm's device
//!   libraries.
//! - `engine` has what all of them use: worker threads, an executor for async handlers, the watchdog.
//! - [`services`] are printing, files, the heap and the like.
//!
//! Begin at `own/mod.rs`, which follows a call. `hostcall`'s devices start a server for themselves. A runtime
//! of its own starts one beside the memory that its kernels call through:
//!
//! ```
//! use hostcall_abi::layout::Layout;
//! use hostcall_channel::SharedMemory;
//! use hostcall_server::services::Builtins;
//! use hostcall_server::{LaunchRecord, Server};
//! use std::sync::Arc;
//!
//! let memory = Arc::new(SharedMemory::allocate(Layout::small(8, 32, 256, 4096).check()?));
//! let builtins = Builtins::builder().stdout(std::io::stdout()).build()?;
//! let mut server = Server::builder(memory.clone());
//! for handler in builtins.services() {
//!     server = server.handler(handler);
//! }
//! let server = server.start()?;
//!
//! // Each launch has an id, by which waves say whose their calls are.
//! let launch = server.begin(LaunchRecord::default())?;
//! // ... the kernel runs, and its calls are answered ...
//! let cancelled = server.end(launch);
//! assert!(cancelled.is_none() && server.waiting().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod engine;
pub mod llvm;
mod own;
mod primitive;
pub mod rocm;
pub mod services;

pub use engine::LaunchSet;
pub use engine::handling::{Handling, handling};
pub use engine::panics::HandlerPanic;
#[doc(hidden)]
pub use engine::report::{flush as flush_reports, line as report_line};
pub use engine::watchdog::{NO_SLOT, Polled, Waiting, WaitsFor, WavePlace};
pub use own::{
    ByHand, CancelReason, Completion, DeferredCall, DeferredCalls, DeferredPost, DeferredPosts,
    DeferredService, Durations, Handler, LaunchRecord, LaunchWatch, Launches, MethodStatistics, OpenCalls,
    OpenLaunch, PostBatch, PostQueueStatistics, PostReader, ReadyPosts, RegisterError, Registration, Server,
    ServerBuilder, ServerError, Statistics, TooManyLaunches, Unserved, bucket_end_ns, static_name,
};
