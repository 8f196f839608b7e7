//! NVIDIA GPUs through the CUDA driver's API, loaded at run time: nothing of CUDA is needed to build, and a
//! machine without a driver gets a sentence that says so.
//!
//! Made for kernels that run for long and call the host meanwhile: nothing here waits for a running kernel
//! unless it says so. Copies and allocations have a stream of their own, each launch has one too, and what
//! the driver frees only after all kernels is freed when none runs.
//!
//! Everything may be used from any thread.

mod code;
mod driver;
mod gpu;
mod memory;
mod quiet;

pub use code::{Function, Launch, Module};
pub use driver::{Driver, Error};
pub use gpu::{Gpu, GpuInfo};
pub use memory::{DeviceMemory, PinnedMemory};
