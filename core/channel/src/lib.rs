//! hostcall's own channel: everything that touches memory which host and device share, in one small crate,
//! written once for both.
//!
//! [`device`] is what a lane does, [`host`] what the server does; each hop of a call has its function in one
//! of them. The words' formats and places are [`hostcall_abi`]'s. [`llvm`] and [`rocm`] are the protocols of
//! others, apart from the rest, [`raw`] is bytes that kernels stream to the host, and [`waits`] says what waves wait for. The host believes no
//! word of a device's before it has copied and checked it. Loom and property tests check the orderings, which
//! ARCHITECTURE.md lists ("Every ordering").
//!
//! Begin with the example below, then with `device/slot.rs` and `host/scanner.rs`, the two ends of a call.
//!
//! # Invariants
//!
//! - **REGION**: a [`Region`] covers `layout.words()` words that stay mapped for its lifetime and are only
//!   accessed atomically.
//! - **SLOT-OWNER**: a slot's [`device::SlotState`], and of a home slot [`device::HomeSlot`] but for its word
//!   and what never changes, is accessed only by the lanes of the wave that holds the slot. Whenever one lane
//!   acts on what another wrote, a wave operation, one of the slot's two locks (one for calls, one for places
//!   in the ring) or, between holders, the exchange of the slot's word lies between.
//!
//!   A lane may look at words that another writes, and then acts on three of them only: that the launch was
//!   cancelled, which is a hint; the post position, of which its own posts are a part in any case; and
//!   whether an extra slot's holder is its own wave.
//! - **LOAN**: the memory of a loan is the host's alone until its answer tells a lane of it, and the lane's
//!   to read until it stores the loan's first word, calls again with bytes, or ends. The lane loads whole
//!   words, the host only writes before and after.
//! - **MAPPED**: a file that the host has mapped for a launch stays mapped, in whole pages, until its lanes
//!   have ended or the one that owns the mapping has dropped it. Lanes load and store whole words and bytes;
//!   others may change the file.
//! - **LAP**: a word is taken only when its lap differs from the word's previous use; each side keeps the
//!   laps of all words in memory of its own.
//!
//! RAW-STATE, RAW-PAGE and RAW-COPY stand in [`raw`], PORTS and PORT-OWNER in [`llvm`], PACKETS and
//! PACKET-OWNER in [`rocm`], WAIT-ENTRY in [`waits`].
//!
//! # Example
//! A call, seen from both ends. Kernels make calls through `hostcall_device`, and `hostcall_server` answers
//! them:
//!
//! ```
//! use hostcall_abi::launch::LaunchId;
//! use hostcall_abi::layout::{Layout, SlotStateWords};
//! use hostcall_abi::word::{Doorbell, Kind, Line, Owner, RequestTag};
//! use hostcall_abi::{CallError, Status};
//! use hostcall_channel::SharedMemory;
//! use hostcall_channel::device::{Slot, SlotState};
//! use hostcall_channel::host::{Batch, Scanner, Take, Taken};
//! use std::cell::UnsafeCell;
//!
//! // Eight slots of waves of 32 lanes.
//! let memory = SharedMemory::allocate(Layout::small(8, 32, 256, 4096).check()?);
//! let region = memory.region();
//! let mut scanner = Scanner::new(0..8, Taken::new(8));
//! let mut batch = Batch::new();
//!
//! // A wave takes slot 3, and its lane 0 calls with the word 42.
//! let state = UnsafeCell::new(SlotStateWords::default());
//! // SAFETY: SLOT-OWNER: this thread alone uses the slot; both types have one layout.
//! let slot = unsafe { Slot::new(region.words(), region.sizes().slot(3), &*(state.get() as *const SlotState)) };
//! slot.publish_owner(Owner { launch: LaunchId::from_bits(1), ..Owner::default() });
//! let bell = Doorbell {
//!     service: 700,
//!     lanes: 1,
//!     first_lane: 0,
//!     argument_words: 1,
//!     result_words: 1,
//!     check: 0,
//!     kind: Kind::Words,
//!     after_posts: false,
//!     lines: true,
//! };
//! let laps = slot.laps(slot.glance(), &bell, 0);
//! slot.ring(&bell, laps, 0);
//! let words = [42, 0, 0, 0, 0, 0, 0];
//! slot.write_line(&bell, laps, 0, &Line { words, tag: RequestTag::default().to_bits() });
//! slot.flip_laps(&bell, 0);
//!
//! // The host finds the doorbell, takes the call and answers it.
//! assert_eq!(scanner.rung(region, 0), 1 << 3);
//! while !matches!(scanner.take(region, 3, &mut batch, |_| true), Take::Call) {}
//! assert_eq!(batch.lines().words(0)[0], 42);
//! batch.answer(0).lane(region, 0, Status::Ok, &[43]);
//! batch.clear();
//!
//! let reply = slot.poll_reply(&bell, laps, 0).expect("the host has answered");
//! assert_eq!((Status::from_bits(reply.tag), reply.words[0]), (Status::Ok, 43));
//! # Ok::<(), hostcall_abi::layout::LayoutError>(())
//! ```
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

mod aside;
pub mod device;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod heap;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub mod host;
pub mod llvm;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod mapping;
mod primitive;
pub mod raw;
mod region;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub mod rocm;
pub mod waits;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use heap::{Block, HeapMemory, ProcessMemory};
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use mapping::FileMapper;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use region::SharedMemory;
pub use region::{Region, Words};
