//! NVIDIA GPUs through the CUDA driver's API, loaded at run time: nothing of CUDA is needed to build, and a
//! machine without a driver gets a sentence that says so.
//!
//! Made for kernels that run for long and call the host meanwhile: nothing here waits for a running kernel
//! unless it says so. Copies that are in no queue's order, and allocations, have a stream of their own; what the driver
//! frees only after all kernels is freed when none runs.
//!
//! Everything may be used from any thread.

mod code;
mod driver;
mod empty;
mod gpu;
mod memory;
mod queue;
mod quiet;

pub use code::{Function, Module};
pub use driver::{Driver, Error, prepare_environment};
pub use empty::EmptyKernel;
pub use gpu::{Gpu, GpuInfo};
pub use memory::{DeviceMemory, PinnedMemory};
pub use queue::{Mark, Queue};
