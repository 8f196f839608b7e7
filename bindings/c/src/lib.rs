//! `libhostcall`: hosts of kernels that call them while they run, as a C library over the crate `hostcall`.
//! `include/hostcall.h` has the interface, with each function's errors, threads and ownership; cbindgen makes it from these
//! sources, and a test compares the two. `cargo cinstall` (cargo-c) installs library, header and a description for
//! `pkg-config`.
//!
//! # Invariant
//!
//! **CALLER**: the caller keeps to the header: a handle is NULL or one that the library gave and that was not freed, a place
//! for a result is NULL or can be written and is used by nobody else, texts end with a zero byte, as many values lie at a
//! pointer as is said, and functions are of their types.
//!
//! Types and functions have the names that C has for them. Functions stand in tables (`functions.rs`), of which come their
//! symbols too. The symbols' versions are declared in `exports.map`, which the build script gives to the linker.
#![allow(non_camel_case_types, reason = "the names are those of the header")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the comments are the header's, and all functions ask for CALLER"
)]

pub mod bodies;
pub mod buffer;
pub mod closure;
pub mod context;
pub mod device;
pub mod error;
mod functions;
pub mod graph;
mod handle;
pub mod image;
pub mod launch;
pub mod llvm;
pub mod llvm_call;
pub mod metrics;
pub mod options;
pub mod post_queue;
pub mod raw;
pub mod rocm;
pub mod service;
pub mod stream;
pub mod trace;

pub use handle::hostcall_free_function;
