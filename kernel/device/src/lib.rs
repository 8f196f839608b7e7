//! What a hostcall kernel is written with, the same for the software device (CPU), NVIDIA (PTX) and AMD.
//!
//! A package of kernels depends on this crate alone, is `no_std`, and is compiled for each device; a host program has all
//! of it through `hostcall`, under the same names.
//!
//! ```
//! use hostcall_device::math::Float;
//! use hostcall_device::{Global, Lane, kernel, println};
//!
//! /// Square roots, and a word about the numbers that have none.
//! #[kernel]
//! fn roots(lane: &Lane, x: &[f32], out: &[Global<f32>]) {
//!     let i = lane.global_id(); // this lane among all of the grid
//!     if i >= x.len() {
//!         return;
//!     }
//!     if x[i] < 0.0 {
//!         println!("number {i} is negative: {}", x[i]);
//!     }
//!     out[i].set(Float::sqrt(x[i]));
//! }
//! ```
//!
//! | for | there is |
//! |---|---|
//! | kernels and programs | [`macro@kernel`], [`macro@main`], [`Lane`], [`kernel::KernelArg`] |
//! | memory that lanes share | [`Global`], [`macro@Plain`] for structs; [`atomic`] operations on it |
//! | memory of which each lane has a part | [`Disjoint`], [`Lane::share`] |
//! | what a workgroup has in common | [`workgroup`]: typed memory, reductions, scans; [`Lane::barrier`] |
//! | calls of the host | [`macro@service`], [`macro@Wire`], [`HostcallRef`], [`call`] |
//! | streams of records to the host | [`raw`] |
//! | spans, counters and events for a trace | [`mod@trace`]: [`span!`], [`counter!`], [`event!`] |
//! | text and files | [`println!`], [`io`], [`fs`] |
//! | the rest of a program's world | [`mod@env`], [`heap`], [`process`], [`time`] |
//! | what a wave computes together | [`wave`], [`Lane::wave_reduce`], [`Lane::shuffle`] |
//! | mathematics | [`math`]; [`rounding`] says when floats are rounded |
//!
//! `target` is all that differs between devices; the path of a call starts in [`call`].
//!
//! # Invariants
//! Those of the channel are listed in [`hostcall_channel`]. SHARES stands in `disjoint.rs`: which lane accesses which elements of
//! a [`Disjoint`]. CURRENT stands in `target/cpu.rs`: which lane a thread of the software device is on.
#![cfg_attr(any(not(test), target_arch = "nvptx64", target_arch = "amdgpu"), no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(
        abi_unadjusted,
        asm_experimental_arch,
        core_float_math,
        f16,
        link_llvm_intrinsics,
        nvptx_target_feature
    ),
    allow(internal_features, reason = "the features that GPUs need are the compiler's own")
)]
#![cfg_attr(
    target_arch = "amdgpu",
    feature(
        abi_unadjusted,
        core_float_math,
        core_intrinsics,
        f16,
        gpu_intrinsics,
        link_llvm_intrinsics,
        stdarch_amdgpu
    ),
    allow(internal_features, reason = "the features that GPUs need are the compiler's own")
)]
#![cfg_attr(
    all(feature = "rust-std", not(any(target_arch = "nvptx64", target_arch = "amdgpu"))),
    feature(thread_local)
)]

#[cfg(all(not(test), not(any(target_arch = "nvptx64", target_arch = "amdgpu"))))]
extern crate std;

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod atomic;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod backtrace;
mod block_on;
mod bulk;
pub mod call;
mod disjoint;
pub mod env;
pub mod fs;
mod global;
mod group;
pub mod heap;
mod hostcall;
pub mod io;
pub mod kernel;
mod lane;
pub mod llvm;
mod map;
pub mod math;
mod packet;
mod panics;
mod pending;
mod pieces;
mod plain;
mod post;
pub mod print;
#[cfg(feature = "alloc")]
mod print_owned;
pub mod process;
mod pull;
pub mod raw;
pub mod rounding;
#[cfg(feature = "rust-std")]
mod rust_std;
pub mod services;
pub mod system;
mod target;
pub mod time;
pub mod trace;
pub mod waits;
pub mod wave;
pub mod workgroup;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

// The macros name this crate, also in its own modules.
extern crate self as hostcall_device;

pub use disjoint::Disjoint;
pub use global::{Global, Word};
pub use hostcall::HostcallRef;
pub use hostcall_abi as abi;
pub use hostcall_abi::{CallError, wire::Wire};
pub use hostcall_macros::{Plain, Wire, eprint, eprintln, event, kernel, main, print, println, service};
pub use lane::Lane;
pub use plain::Plain;
pub use workgroup::Shared;
