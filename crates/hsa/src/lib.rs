//! AMD GPUs through an HSA runtime, which is loaded at run time: agents, memory, code objects, queues.
//!
//! | file | what |
//! |---|---|
//! | `sys.rs` | types and functions of the official headers, made by `scripts/hsa-bindings` |
//! | `functions.rs` | the table of a runtime's functions |
//! | `runtime.rs` | loading a runtime, and what it answers |
//! | `agent.rs` | which GPUs there are, and their pools of memory |
//! | `attribute.rs` | properties that a runtime tells, with their types |
//! | `gpu.rs` | an open GPU, with what its queues share |
//! | `memory.rs` | memory of the GPU, and memory of the host that the GPU reaches |
//! | `copies.rs` | copies and fills by copy engines |
//! | `signal.rs` | signals |
//! | `code.rs`, `metadata.rs` | code objects, and what they say of their kernels |
//! | `kernarg.rs` | the kernel argument segment, hidden arguments included |
//! | `packet.rs`, `ring.rs`, `queue.rs` | AQL packets, rings of them, and queues in order |
//! | `faults.rs` | memory faults and errors of queues |
//!
//! # Invariants
//! **LOADED.** Whoever has a [`Runtime`] may call its functions: it was initialised, and is never shut down nor unloaded.
//!
//! **ATTRIBUTE.** The headers give an `Attribute<Of, T>`'s number to a property of an `Of`, whose type is
//! `T`. `attribute.rs` alone makes them.
//!
//! **POOL.** Memory of a pool stays allocated as long as the value that owns it, and nobody else has it.
//!
//! **SIGNAL.** A signal is destroyed when its GPU is dropped and no sooner; so its handle, and the address of its value,
//! are good as long as somebody has the GPU. Who takes a signal of the GPU has it alone until it is given back. A signal that
//! a failed operation may still count down is neither used again nor destroyed.
//!
//! **RECORD.** A ring's slots, their number, which is a power of two, and its doorbell are what the runtime's
//! record said before the first kernel. They are the queue's until `Ring::end`; the record may hold anything
//! by then.
//!
//! **KEPT.** What an operation's packets refer to (code, arguments, signals, memory, the copy) is in its `Kept`. That is let
//! go of when the ring's signal has counted the operation, or after `Ring::end`, which keeps the copy from starting or waits
//! for it, and leaks it if neither is possible. A `Kept` may hold the last reference to the GPU, so it is dropped without the
//! ring's lock.

mod agent;
mod attribute;
mod code;
mod copies;
mod faults;
mod functions;
mod gpu;
mod kernarg;
mod memory;
mod metadata;
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
pub use code::{Function, Module};
pub use gpu::Gpu;
pub use memory::{DeviceMemory, PinnedMemory};
pub use queue::{Hidden, Launch, Mark, Queue};
pub use runtime::{Error, FaultKind, LIBRARY, LIBRARY_VARIABLE, Lookup, Runtime};
