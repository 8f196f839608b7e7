//! NVIDIA GPUs through the CUDA driver's API, loaded at run time: nothing of CUDA is needed to build, and a
//! machine without a driver gets a sentence that says so.
//!
//! Made for kernels that run for long and call the host meanwhile: nothing here waits for a running kernel
//! unless it says so. Copies that are in no queue's order, and allocations, have a stream of their own; what
//! the driver frees only after all kernels is freed when none runs. Everything may be used from any thread.
//! It knows nothing of hostcall's protocol.
//!
//! [`Cuda`] is what hostcall opens ([`hostcall_seam`] says what it asks for): `device.rs`, `memory.rs`, `module.rs`,
//! `queue.rs`, `list.rs`, `lent.rs` and `mapped.rs` implement it. `link.rs` links code,
//! `conditional.rs` are bodies of graphs, `gpu.rs` and
//! `driver.rs` the driver, `quiet.rs` frees what the driver frees only beside no kernel. `empty.rs` and `bare_asks.rs`
//! are what benchmarks measure beside.
//!
//! ```no_run
//! use hostcall_cuda::Cuda;
//! use hostcall_seam::{Backend, ImageSource};
//!
//! let gpu = Cuda::open(0)?; // a machine without NVIDIA's driver ends here
//! let module = gpu.load(ImageSource::Bytes(&std::fs::read("kernels.cubin")?), None)?;
//! let kernel = module.kernel("saxpy")?.expect("the image has a kernel `saxpy`");
//! println!("a lane of it takes {:?} registers", kernel.limits().registers);
//! let memory = gpu.allocate(1 << 20)?;
//! println!("1 MiB lies at {}", memory.address());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! **LOADED.** Whoever has a [`Driver`], or a reference to its table of functions, may call these: the driver
//! was initialised, and is never unloaded. WORDS stands in `queue.rs`: who has a number of a queue.

mod bare_asks;
mod conditional;
mod device;
mod driver;
mod empty;
mod fence;
mod gpu;
mod lent;
mod link;
mod list;
mod mapped;
mod memory;
mod module;
mod queue;
mod quiet;

pub use bare_asks::BareAsks;
pub use device::{Cuda, devices};
pub use driver::{Driver, Error, prepare_environment};
pub use empty::{EmptyKernel, EmptyKernels};
pub use gpu::{Gpu, GpuInfo};
pub use memory::{DeviceMemory, PinnedMemory};
pub use module::Module;
pub use queue::Queue;
