//! hostcall's own channel: everything that touches memory which host and device share.
//!
//! [`device`] is what a lane does, [`host`] what the server does; each hop of a call has its function in
//! one of them. The words' formats and places are [`hostcall_abi`]'s. [`llvm`] is LLVM's protocol, apart from
//! the rest.
//!
//! # Invariants
//!
//! - **REGION**: a [`Region`] covers `layout.words()` words that stay mapped for its lifetime and are only
//!   accessed atomically.
//! - **SLOT-OWNER**: a slot's [`device::SlotState`] is accessed only by the lanes of the wave that holds the
//!   slot, and whenever one lane acts on what another wrote, a wave operation, one of the slot's two locks (one for calls, one
//!   for places in the ring) or, between holders, the slot's claim lies between. A lane may look at words that another
//!   writes, of which it then acts on three only: that the launch was cancelled, a hint; the post position, of which its
//!   own posts are a part in any case; and whether an extra slot's holder is its own wave.
//! - **LAP**: a word is taken only when its lap differs from the word's previous use; each side keeps the laps
//!   of all words in memory of its own.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(abi_unadjusted, asm_experimental_arch, link_llvm_intrinsics),
    allow(internal_features, reason = "the features that GPUs need are the compiler's own")
)]

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
extern crate alloc;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
extern crate std;

pub mod device;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod heap;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub mod host;
pub mod llvm;
mod primitive;
mod region;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use heap::{Block, HeapMemory, ProcessMemory};
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use region::SharedMemory;
pub use region::{Region, Words};
