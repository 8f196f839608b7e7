//! AMD GPUs through an HSA runtime, which is loaded at run time: agents, memory, code objects, queues.
//!
//! | file | what |
//! |---|---|
//! | `device.rs` | [`Hsa`], which hostcall opens; it and `memory.rs`, `module.rs` and `queue.rs` implement [`hostcall_seam`] |
//! | `sys.rs` | types and functions of the official headers, made by `scripts/hsa-bindings` |
//! | `functions.rs` | the table of a runtime's functions |
//! | `runtime.rs` | loading a runtime, and what it answers |
//! | `agent.rs` | which GPUs there are, and their pools of memory |
//! | `attribute.rs` | properties that a runtime tells, with their types |
//! | `gpu.rs` | an open GPU, with what its queues share |
//! | `memory.rs` | memory of the GPU, and memory of the host that the GPU reaches |
//! | `copies.rs` | copies and fills by copy engines |
//! | `signal.rs` | signals |
//! | `module.rs`, `metadata.rs` | code objects, and what they say of their kernels |
//! | `kernarg.rs` | the kernel argument segment, hidden arguments included |
//! | `packet.rs`, `ring.rs`, `queue.rs` | AQL packets, rings of them, and queues in order |
//! | `faults.rs` | memory faults and errors of queues |
//!
//! # How it works
//! The runtime's functions are found by name: in `libhsa-runtime64.so.1` (`amdgpu:N`; `HOSTCALL_HSA_LIBRARY`
//! names another file), or in `softgpu/softhsa`, where this process contains it (`gfx942`). A runtime is
//! initialised once and stays.
//!
//! | memory | pool | who reaches it |
//! |---|---|---|
//! | channel, pinned buffers, staging | the host's, fine-grained | both, at the same address; stores are seen at once |
//! | buffers, slot states, claims, heap, records of waves | the GPU's, coarse-grained (the host's where it has none) | kernels; the host by copies |
//! | kernel arguments | the host's for kernel arguments | kernels; written before the packet |
//!
//! - A queue takes one of the runtime's AQL queues (a *ring*) with its first operation and gives it back when
//!   it is dropped. Every packet has the barrier bit and fences of the system's scope, so operations follow
//!   each other without the host. The header is stored last, with release order; then the doorbell rings. The
//!   last packet of an operation counts the ring's signal down: how far a queue has come is a load of this
//!   signal.
//! - A dispatch has its kernel argument segment to itself until it has ended: arguments, the hidden ones that
//!   its metadata names, and behind these what hostcall's kernels take by address. Workgroup memory is LDS,
//!   whose size the dispatch asks for.
//! - A copy engine does one copy after the other; one that waited for a kernel would keep those away that the
//!   kernel may wait for. So a packet before the copy counts a signal down, the runtime calls back then, the
//!   copy begins, and a packet behind it waits for its signal. Zeros and patterns are copied from host
//!   memory: a kernel that fills the GPU leaves no room for another one.
//! - Faults of memory, and errors of queues, are told on threads of the runtime's. They note the first, with
//!   address and reason. Whoever asks next ends all rings of the GPU, so that nothing runs when memory is
//!   freed, and names the kernels that were first in their rings. The device does nothing more.
//! - HSA has no way to end a dispatch. A cancelled kernel ends by its stream's stop word and by its cancelled
//!   calls.
//!
//! # Invariants
//! **LOADED.** Whoever has a [`Runtime`] may call its functions: it was initialised, and is never shut down
//! nor unloaded.
//!
//! **ATTRIBUTE.** The headers give an `Attribute<Of, T>`'s number to a property of an `Of`, whose type is
//! `T`. `attribute.rs` alone makes them.
//!
//! **POOL.** Memory of a pool stays allocated as long as the value that owns it, and nobody else has it.
//!
//! **SIGNAL.** A signal is destroyed when its GPU is dropped and no sooner; so its handle, and the address of
//! its value, are good as long as somebody has the GPU. Who takes a signal of the GPU has it alone until it
//! is given back. A signal that a failed operation may still count down is neither used again nor destroyed.
//!
//! **RECORD.** A ring's slots, their number, which is a power of two, and its doorbell are what the runtime's
//! record said before the first kernel. They are the queue's until `Ring::end`; the record may hold anything
//! by then.
//!
//! **KEPT.** What an operation's packets refer to (code, arguments, signals, memory, the copy) is in its
//! `Kept`. That is let go of when the ring's signal has counted the operation, or after `Ring::end`, which
//! keeps the copy from starting or waits for it, and leaks it if neither is possible. A `Kept` may hold the
//! last reference to the GPU, so it is dropped without the ring's lock.

mod agent;
mod attribute;
mod copies;
mod device;
mod faults;
mod functions;
mod gpu;
mod kernarg;
mod memory;
mod metadata;
mod module;
mod packet;
mod queue;
mod ring;
mod runtime;
mod signal;
#[allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    dead_code,
    unused_imports,
    reason = "made from the headers, by whose names everything is called"
)]
mod sys;

pub use agent::GpuInfo;
pub use device::{Hsa, Vendor, devices};
pub use gpu::Gpu;
pub use memory::{DeviceMemory, PinnedMemory};
pub use module::Module;
pub use queue::Queue;
pub use runtime::{Error, FaultKind, LIBRARY, LIBRARY_VARIABLE, Lookup, Runtime};
