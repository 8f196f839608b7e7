//! GPU programs that call the CPU while they run: devices, streams and launches, the server that answers kernels' calls,
//! and the services that come with it. Kernels and services are written with what [`hostcall_device`] has, which is here
//! under the same names.
//!
//! ```
//! use hostcall::{CallError, Device, Global, Grid, Lane, LaunchKernel, kernel, println, service};
//!
//! /// What kernels ask the host for.
//! #[service]
//! trait Prices {
//!     fn of(item: u32) -> Option<u64>;
//! }
//!
//! /// Each lane looks up the price of one item.
//! #[kernel]
//! fn look_up(lane: &Lane, items: &[u32], out: &[Global<u64>]) {
//!     let i = lane.global_id();
//!     match Prices::of(items[i]) {
//!         Ok(Some(price)) => out[i].set(price),
//!         Ok(None) => println!("item {} has no price", items[i]),
//!         Err(error) => panic!("the host did not answer: {error:?}"),
//!     }
//! }
//!
//! /// The host's side: any state, shared by its threads.
//! struct Shop(Vec<u64>);
//!
//! impl PricesHandler for Shop {
//!     fn of(&self, item: u32) -> Result<Option<u64>, CallError> {
//!         Ok(self.0.get(item as usize).copied())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::builder("cpu").service(Prices::serve(Shop(vec![5, 7, 9]))).open()?;
//! let stream = device.stream()?;
//! let items = device.upload(&[2u32, 0, 3])?;
//! let out = device.alloc_zeroed::<u64>(3)?;
//! look_up.launch(&stream, Grid::new(1, 3), (&items, &out))?;
//! stream.synchronize()?; // tells of a lane's panic, if one did
//! assert_eq!(out.read()?, [9, 5, 0]);
//! # Ok(())
//! # }
//! ```
//!
//! | for | there is |
//! |---|---|
//! | a device | [`Device`], [`device::DeviceBuilder`], [`device::devices`] |
//! | memory | [`DeviceBuffer`], [`device::PinnedBuffer`] |
//! | running kernels | [`Stream`], [`LaunchKernel`], [`Grid`], [`device::Launch`], [`Event`] |
//! | replaying work | [`graph`] |
//! | answering calls | [`macro@service`], [`Hostcall`], [`caller`], [`server`] |
//! | printing, files and the rest of a program's world | [`services::Builtins`] |
//! | looking into processes that run | [`watch`] |
//! | seeing what calls take | [`device::DeviceBuilder::trace`], [`trace`] |
//! | images for GPUs | [`embedded_images`], [`device::Image`] |
//! | kernels that others launch | [`Context`] |
//! | their posts, for a thread of one's own | [`PostQueue`](device::PostQueue) |
//! | programs of LLVM's GPU libc | [`device::LlvmProgram`], [`llvm`] |
//! | kernels of HIP and OpenCL C | [`rocm`] |
//!
//! The path of a call on this side: [`server`]'s consumer finds it, its dispatch looks the service up and runs
//! the handler, and the answer goes back through the channel. Every call ends in a result or a status, and a
//! launch's failure has its kernel, message, place and lane.
//!
//! Features, all off by default: `gfx942` has the device of that name, an AMD GPU in software; `half` has
//! numbers of 16 bits; with `tokio` async handlers may run on a runtime of tokio's.
//!
//! # Modules
//! Each module of `device/` uses only those that stand before it here; a test reads the sources (`tests/modules.rs`). Below
//! all stand the crates of the seam and the server. To change something, begin at the page of the module.
//!
//! ```text
//! error, closure_table   what can go wrong, also with graphs; the closures that kernels call
//! uses, staging, grid    who uses memory, in which order; pinned memory of copies; sizes of launches
//! owners, reaper         who gave a stream an operation; the thread that looks after streams, host functions
//! core, open_devices     what outlives an open device; the open devices of the process
//! waiting, words         threads that wait; words that streams and kernels share
//! here, wait_table       what threads of contexts ask; what waves say that they wait for
//! buffer, transfer       memory with its types; copies and fills that were checked
//! images, hostcalls      code; what answers kernels that speak ROCm's protocol
//! llvm_calls             what became of calls by LLVM's protocol
//! metrics, look          what devices count; what others may look at of one
//! point_filter, inner    which trace points somebody wants; an open device
//! stream                 operations in order: pushed, submitted, signalled, settled, waited for, cancelled
//! arguments, prepare     packed arguments; what a launch needs before a stream gets it
//! foreign                kernels of other compilers, as streams launch them and graphs keep them
//! graph                  recorded work, and its replays as units of operations
//! event, work, allocate  what users give streams and ask devices for, which a graph may record
//! load, raw, launch      loading images; raw channels; launching kernels
//! closures, untyped      closures as arguments; launches without types
//! context, fence         what kernels get that others launch; how far their streams have come
//! post_queue             posts of such kernels for a thread of the user's
//! llvm, rocm             programs of LLVM's libc; code objects of other compilers
//! services, recording    services that come and go; trace points of kernels that run
//! watch                  how other processes look into this one
//! forked                 children of `fork`
//! builder                opening a device
//! ```
#![deny(unsafe_code)]

pub mod device;
pub mod image;
mod primitive;

pub mod llvm {
    //! LLVM's RPC protocol: its server, and clients for kernels on a device.
    pub use crate::device::LlvmClient;
    pub use hostcall_server::llvm::*;
}

pub mod rocm {
    //! Code objects of AMD's GPUs that HIP's and OpenCL's compilers made, and what answers them: handlers of calls by ROCm's
    //! protocol.
    pub use crate::device::{
        CodeObject, CodeObjectError, CodeObjectKernel, KernelArgument, KernelParameters,
    };
    pub use hostcall_server::rocm::*;
}

pub mod server {
    //! The server: it finds the calls of kernels and runs their handlers.
    pub use hostcall_abi::launch::LaunchId;
    pub use hostcall_server::{
        CancelReason, DeferredCall, DeferredCalls, DeferredPost, DeferredPosts, DeferredService, Handler,
        HandlerPanic, LaunchRecord, Launches, NO_SLOT, OpenCalls, OpenLaunch, Polled, ReadyPosts,
        RegisterError, Registration, Server, ServerBuilder, ServerError, Statistics, TooManyLaunches,
        Unserved, Waiting, WaitsFor, WavePlace, static_name,
    };
}

pub mod raw {
    //! Raw channels: records and bytes that kernels stream to the host while they run.
    pub use crate::device::raw::*;
    pub use hostcall_abi::raw::RawWriter;
    pub use hostcall_device::raw::RawStream;
}

pub use device::watch::own_metrics as metrics;
pub use device::{graph, watch};

pub use device::{
    Context, Device, DeviceBuffer, Error, Event, Fence, Grid, Hostcall, HostcallState, LaunchFailure,
    LaunchKernel, NoBuffer, NotContinuous, PointFilter, PointRecording, Stream, UntypedHostcall, WeakDevice,
    WireType,
};
// What kernels and services are written with, so that a package that has both sides needs this crate alone.
pub use hostcall_device;
#[doc(hidden)]
pub use hostcall_device::__private;
pub use hostcall_device::{
    CallError, Disjoint, Global, HostcallRef, Lane, Plain, Shared, Wire, Word, counter, eprint, eprintln,
    event, kernel, main, print, println, service, span,
};
pub use hostcall_device::{atomic, env, fs, heap, io, math, process, rounding, time, wave, workgroup};
pub use hostcall_server::services;
pub use hostcall_service as service;
pub use hostcall_service::caller;
pub use hostcall_service::{Caller, Gather, Gathered, Output};
pub use hostcall_trace as trace;

// The macros name this crate, in packages that depend on it alone.
extern crate self as hostcall;

/// Runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Runs the examples on the pages of the macros that have a host's part. If the macros' own crate ran them, it
/// would need this one, which cargo would then compile a second time, as part of a compiler's program.
#[cfg(doctest)]
mod macros {
    #[doc = include_str!("../../../kernel/macros/src/examples/kernel.md")]
    struct Kernel;
    #[doc = include_str!("../../../kernel/macros/src/examples/instances.md")]
    struct Instances;
    #[doc = include_str!("../../../kernel/macros/src/examples/service.md")]
    struct Service;
}
