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
//!   slot, and whenever one lane acts on what another wrote, a wave operation, the slot's lock or (between
//!   holders) a launch or the pool's claim lies between. A lane may look at words that another writes, of which it
//!   then believes only that the launch was cancelled, a hint.
//! - **LAP**: a word is taken only when its lap differs from the word's previous use; each side keeps the laps
//!   of all words in memory of its own.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(abi_unadjusted, asm_experimental_arch, link_llvm_intrinsics),
    allow(internal_features)
)]

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
extern crate alloc;

pub mod device;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub mod host;
pub mod llvm;
mod primitive;
mod region;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use region::Region;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use region::SharedMemory;
