//! What kernels that others launch find of a channel: one block of 128 bytes in memory of the device, whose address is all that
//! such a kernel has to get.
//!
//! Code of others lies in caches and wheels for years, so this is a promise: a kernel that was compiled with an older header
//! works with a newer host of the same [`MAJOR`], and one of another major version gets a status and touches nothing else. What
//! belongs to it: this block, [`HomeSlotWords`](crate::layout::HomeSlotWords) with
//! [`SlotPlaces`](crate::layout::SlotPlaces), and the words of [`crate::word`] and [`crate::status`].

use crate::launch::LaunchId;
use crate::raw::ForeignRawParams;

/// First four bytes of a context.
pub const MAGIC: u32 = u32::from_le_bytes(*b"hctx");

/// Changes when code that was compiled before cannot work any more.
pub const MAJOR: u16 = 1;

/// Goes up when something is added that older code need not know.
///
/// - 1: [`ContextParams::flags`], and the block has 128 bytes, where it had 64.
/// - 2: [`ContextParams::waits`].
pub const MINOR: u16 = 2;

/// Bit of [`ContextParams::flags`]: posts may be messages of up to 16 words ([`crate::word::MessageHead`]).
pub const MESSAGES: u32 = 1;

/// Bits of [`ContextParams::flags`] with [`POINTS_VERSION`] where trace points write, else 0.
pub const POINTS_SHIFT: u32 = 8;

/// Bits of [`ContextParams::flags`] with [`WAITS_VERSION`](crate::waits::WAITS_VERSION) where waits are told, else 0.
pub const WAITS_SHIFT: u32 = 16;

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
    /// The launch whose calls the kernels' are: the context's, which the host changes when it is renewed; in the block of a stream of
    /// hostcall's the one that runs, which the device changes before it.
    pub launch: LaunchId,
    /// [`MESSAGES`], [`POINTS_VERSION`] from bit [`POINTS_SHIFT`] on, and [`WAITS_VERSION`](crate::waits::WAITS_VERSION) from bit
    /// [`WAITS_SHIFT`] on, eight bits each. They never change; hosts of minor version 0 wrote 0.
    pub flags: u32,
    /// The channel's [`crate::launch::ChannelParams`]; 0 where Rust's kernels have nothing to look for.
    pub channel: u64,
    /// On the software device a function of one argument that wakes the server, and its argument; else 0.
    pub wake: [u64; 2],
    /// The device's [`PointsParams`]; 0 where it has none.
    pub points: u64,
    /// The device's [`WaitParams`](crate::waits::WaitParams), if waits are told.
    pub waits: u64,
    /// Zeros.
    pub reserved: [u64; 6],
}

/// Bytes of a [`ContextParams`].
pub const CONTEXT_BYTES: usize = size_of::<ContextParams>();

const _: () = assert!(CONTEXT_BYTES == 128);

/// Where [`ContextParams::launch`] lies, in bytes.
pub const LAUNCH_AT: usize = core::mem::offset_of!(ContextParams, launch);

/// How trace points of such kernels are written ([`PointsParams`], [`crate::trace`], [`crate::raw`]). Changes when code that was
/// compiled before would write them wrongly: that finds a number which it does not know, and writes none.
pub const POINTS_VERSION: u32 = 2;

/// Where trace points of kernels go that others launch: a raw channel, and words that their waves share. In memory of the device,
/// the same for all contexts of a device.
///
/// Such a wave has no home slot, and nobody is told when it ends. So a page is open for a *place*, of which each wave has one by its
/// number in the device. A wave takes room for its record by adding to the place's word, and stores the record, of which each word
/// says by itself that it is there ([`crate::trace`]): it waits for nobody, and nothing orders its stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(128))]
pub struct PointsParams {
    /// The channel. Its pages are of no launch: each record says of which it is.
    pub raw: ForeignRawParams,
    /// A word for each of so many `places`. In its lower half it has the open page plus one in bits 0–15 (0 for none), how many looks
    /// for a free page are left out in bits 16–23, and [`PLACE_OPENING`]; in its upper half how much of the page was given out, in units
    /// of 16 bytes, which goes on where the page has no more. Zero at first.
    pub states: u64,
    /// How many these are.
    pub places: u32,
    /// Zero.
    pub reserved: u32,
    /// On the software device a function that returns the clock in ns and stores the calling thread's number (from 0 on) to the
    /// 32-bit word at its argument; else 0.
    pub here: u64,
    /// The tick of the device's clock ([`SAMPLE_LOG2`]) in which it was compared with the host's last. Kernels change it.
    pub sampled: u64,
    /// Zeros.
    pub unused: [u64; 3],
    /// The number of the device's [`PointSwitch`](crate::trace::PointSwitch) while trace points write, else 0. The host changes it
    /// while kernels run, and what kernels remember of one number (those of trace points) does not hold for others. It has a line of
    /// its own: a look at it takes the line out of an NVIDIA GPU's nearest cache, with what else lies there.
    pub switch: u32,
    /// Zero.
    pub unused_switch: u32,
    /// Zeros.
    pub unused_line: [u64; 15],
}

/// Bytes of a [`PointsParams`].
pub const POINTS_BYTES: usize = size_of::<PointsParams>();

const _: () = assert!(POINTS_BYTES == 256 && core::mem::offset_of!(PointsParams, switch) == 128);

/// A place's word while a wave opens another page. Who exchanges this into the word and gets one without it has the place until it
/// stores another.
pub const PLACE_OPENING: u64 = 1 << 31;

/// Nanoseconds of a tick of [`PointsParams::sampled`], as a power of two: 67 ms.
pub const SAMPLE_LOG2: u32 = 26;
