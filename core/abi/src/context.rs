//! What kernels that others launch find of a channel: one block of 64 bytes in memory of the device, whose address is all that
//! such a kernel has to get.
//!
//! Code of others lies in caches and wheels for years, so this is a promise: a kernel that was compiled with an older header
//! works with a newer host of the same [`MAJOR`], and one of another major version gets a status and touches nothing else. What
//! belongs to it: this block, [`HomeSlotWords`](crate::layout::HomeSlotWords) with
//! [`SlotPlaces`](crate::layout::SlotPlaces), and the words of [`crate::word`] and [`crate::status`].

use crate::launch::LaunchId;

/// First four bytes of a context.
pub const MAGIC: u32 = u32::from_le_bytes(*b"hctx");

/// Changes when code that was compiled before cannot work any more.
pub const MAJOR: u16 = 1;

/// Goes up when something is added that older code need not know.
pub const MINOR: u16 = 1;

/// Bit of [`ContextParams::flags`]: posts may be messages of up to 16 words ([`crate::word::MessageHead`]).
pub const MESSAGES: u32 = 1;

/// A context as kernels find it. Addresses are the device's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct ContextParams {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`MAJOR`].
    pub major: u16,
    /// [`MINOR`].
    pub minor: u16,
    /// The channel's shared memory.
    pub region: u64,
    /// A [`HomeSlotWords`](crate::layout::HomeSlotWords) for each of `home_slots` slots, which waves claim.
    pub homes: u64,
    /// How many these are.
    pub home_slots: u32,
    /// Lanes of a wave.
    pub lanes: u32,
    /// The launch whose calls the kernels' are: the context's. The host changes it when the context is renewed.
    pub launch: LaunchId,
    /// [`MESSAGES`], or 0. It never changes; hosts of minor version 0 wrote 0.
    pub flags: u32,
    /// The channel's [`crate::launch::ChannelParams`]; 0 where Rust's kernels have nothing to look for.
    pub channel: u64,
    /// On the software device a function of one argument that wakes the server, and its argument; else 0.
    pub wake: [u64; 2],
}

/// Bytes of a [`ContextParams`].
pub const CONTEXT_BYTES: usize = size_of::<ContextParams>();

const _: () = assert!(CONTEXT_BYTES == 64);

/// Where [`ContextParams::launch`] lies, in bytes.
pub const LAUNCH_AT: usize = core::mem::offset_of!(ContextParams, launch);
