//! hostcall's host runtime: devices, streams and launches, the server that answers kernels' calls, and the
//! services that come with it.
//!
//! The path of a call on this side: [`server`]'s consumer finds it, its dispatch looks the service up and runs
//! the handler, and the answer goes back through the channel.
#![deny(unsafe_code)]

mod closures;
pub mod device;
pub mod image;

pub mod llvm {
    //! LLVM's RPC protocol: its server, and clients for kernels on a device.
    pub use crate::device::LlvmClient;
    pub use hostcall_server::llvm::*;
}

pub mod server {
    //! The server: it finds the calls of kernels and runs their handlers.
    pub use hostcall_abi::launch::LaunchId;
    pub use hostcall_server::{
        CancelReason, Handler, LaunchRecord, LaunchReport, Launches, RegisterError, Registration, Server,
        ServerBuilder, ServerError, Statistics, TooManyLaunches, Waiting, WaitsFor, WavePlace,
    };
}

pub use closures::{Hostcall, HostcallState, NotContinuous};
pub use device::{Device, DeviceBuffer, Error, Event, Grid, LaunchFailure, LaunchKernel, Stream};
// What kernels and services are written with, so that a package that has both sides needs this crate alone.
pub use hostcall_device;
#[doc(hidden)]
pub use hostcall_device::__private;
pub use hostcall_device::{
    CallError, Global, HostcallRef, Lane, Plain, Wire, Word, eprint, eprintln, kernel, main, print, println,
    service,
};
pub use hostcall_device::{env, fs, heap, io, math, process, time};
pub use hostcall_server::services;
pub use hostcall_service as service;
pub use hostcall_service::caller;
pub use hostcall_service::{Caller, Output};

// The macros name this crate, in packages that depend on it alone.
extern crate self as hostcall;

/// Runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
