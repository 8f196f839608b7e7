//! NVIDIA GPUs through the CUDA driver's API, loaded at run time: nothing of CUDA is needed to build, and a
//! machine without a driver gets a sentence that says so.
//!
//! Made for kernels that run for long and call the host meanwhile: nothing here waits for a running kernel
//! unless it says so. Copies that are in no queue's order, and allocations, have a stream of their own; what
//! the driver frees only after all kernels is freed when none runs. Everything may be used from any thread.
//! It knows nothing of hostcall's protocol.
//!
//! Begin at [`Driver`], [`Gpu`] and [`Queue`]; `code.rs` loads code, `link.rs` links it, `list.rs` and `conditional.rs` are kernels of graphs,
//! `copies.rs` copies of lanes' memory.
//!
//! ```no_run
//! use hostcall_cuda::Driver;
//!
//! let driver = Driver::load()?; // a machine without NVIDIA's driver ends here
//! let gpu = driver.open_gpu(driver.gpus()?.remove(0))?;
//! let module = gpu.load(std::fs::read("kernels.cubin")?)?;
//! let kernel = module.function("saxpy")?.expect("the image has a kernel `saxpy`");
//! println!("a lane of it takes {} registers", kernel.registers());
//! let memory = gpu.allocate(1 << 20)?;
//! println!("1 MiB lies at {:#x}", memory.address());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! **LOADED.** Whoever has a [`Driver`], or a reference to its table of functions, may call these: the driver
//! was initialised, and is never unloaded. WORDS stands in `queue.rs`: who has a number of a queue.

mod bare_asks;
mod code;
mod conditional;
mod copies;
mod driver;
mod empty;
mod gpu;
mod link;
mod list;
mod mapped;
mod memory;
mod queue;
mod quiet;

pub use bare_asks::BareAsks;
pub use code::{Function, Module};
pub use conditional::{Body, Condition, Decide};
pub use driver::{Driver, Error, prepare_environment};
pub use empty::{EmptyKernel, EmptyKernels};
pub use gpu::{Gpu, GpuInfo};
pub use list::{List, ListWords, Listed};
pub use mapped::MappedFile;
pub use memory::{DeviceMemory, PinnedMemory};
pub use queue::{Mark, Queue};
