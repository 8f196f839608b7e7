//! What a hostcall kernel is written with, the same for the software device (CPU), NVIDIA (PTX) and AMD.
//!
//! `target` is all that differs between devices; the path of a call starts in [`call`].
#![cfg_attr(any(not(test), target_arch = "nvptx64", target_arch = "amdgpu"), no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(abi_unadjusted, asm_experimental_arch, link_llvm_intrinsics),
    allow(internal_features)
)]
#![cfg_attr(
    target_arch = "amdgpu",
    feature(abi_unadjusted, core_intrinsics, gpu_intrinsics, link_llvm_intrinsics, stdarch_amdgpu),
    allow(internal_features)
)]

#[cfg(all(not(test), not(any(target_arch = "nvptx64", target_arch = "amdgpu"))))]
extern crate std;

#[cfg(feature = "alloc")]
extern crate alloc;

mod bulk;
pub mod call;
pub mod env;
pub mod fs;
mod global;
mod group;
pub mod heap;
pub mod io;
pub mod kernel;
mod lane;
pub mod llvm;
mod packet;
mod panics;
mod pending;
mod post;
pub mod print;
#[cfg(feature = "alloc")]
mod print_owned;
pub mod process;
mod remote;
pub mod services;
pub mod system;
mod target;
pub mod time;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

// The macros name this crate, also in its own modules.
extern crate self as hostcall_device;

pub use global::{Global, Word};
pub use hostcall_abi as abi;
pub use hostcall_abi::CallError;
pub use hostcall_macros::{Wire, eprint, eprintln, kernel, main, print, println, service};
pub use lane::Lane;
pub use remote::RemoteCall;
