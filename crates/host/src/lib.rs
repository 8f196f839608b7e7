//! hostcall's host runtime: devices, streams and launches, the server that answers kernels' calls, and the
//! services that come with it.
//!
//! The path of a call on this side: [`server`]'s consumer finds it, its dispatch looks the service up and runs
//! the handler, and the answer goes back through the channel.
#![deny(unsafe_code)]

pub mod device;
mod hostcall;
pub mod image;
pub mod llvm;
pub mod server;
pub mod services;

pub use device::{Device, DeviceBuffer, Error, Event, Grid, LaunchFailure, LaunchKernel, Stream};
pub use hostcall::Hostcall;
pub use hostcall_device;

/// Runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
