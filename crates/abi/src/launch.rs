//! What the host passes to every kernel besides the kernel's own arguments.

use crate::layout::{SLOT_STATE_BYTES, Sizes};

/// First kernel argument of every hostcall kernel, by value. Addresses are the device's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct LaunchParams {
    /// [`crate::ABI_VERSION`].
    pub abi_version: u32,
    /// Tells servers apart: what a static remembers of one channel does not hold for another. Never 0.
    pub epoch: u32,
    /// Number of the launch, unique for the channel, from 1.
    pub launch: u64,
    /// The channel's shared memory ([`Layout::words`](crate::layout::Layout::words) words); 0 when the launch has no channel.
    pub region: u64,
    /// Array of [`crate::layout::SlotStateWords`], one a slot, in memory of the device.
    pub states: u64,
    /// The channel's sizes.
    pub sizes: Sizes,
    /// Slot of the first wave; wave `w` of the launch has slot `slot_base + w`.
    pub slot_base: u32,
    /// Waves that can be resident: slots that the launch has.
    pub slot_count: u32,
    /// First slot of the pool.
    pub pool_base: u32,
    /// Slots in the pool; the same for every launch of the channel.
    pub pool_count: u32,
    /// Bytes of workgroup memory that the kernel may use.
    pub workgroup_memory_bytes: u32,
    /// Lanes of a workgroup in x, y and z.
    pub workgroup_size: [u32; 3],
    /// Workgroups in x, y and z. The physical grid may be smaller: each workgroup then does several.
    pub workgroups: [u32; 3],
    /// Bitmap in memory of the device: the slots of the pool for calls that are waited for later.
    pub pool_bitmap: u64,
    /// AMD: memory of the device for workgroup memory, `workgroup_memory_bytes` a physical workgroup. Else 0.
    pub workgroup_memory: u64,
    /// Pads to a multiple of 16 bytes.
    pub reserved: u64,
}

/// Bytes of [`LaunchParams`].
pub const LAUNCH_PARAMS_BYTES: usize = 160;

const _: () = assert!(size_of::<LaunchParams>() == LAUNCH_PARAMS_BYTES);

/// Bytes that the device crate keeps at the start of a workgroup's shared memory on NVIDIA: the launch's parameters
/// and, of each wave, what the device remembers of its slot.
pub const fn shared_bytes(waves: u32) -> u32 {
    (LAUNCH_PARAMS_BYTES.next_multiple_of(64) + waves as usize * SLOT_STATE_BYTES) as u32
}

/// A slice argument as it lies in the argument block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RawSlice {
    /// Device address of the first element.
    pub address: u64,
    /// Elements.
    pub len: u64,
}

/// What an image says of one kernel: the words of the exported static `hostcall_kernel_info_<name>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct KernelInfo {
    /// [`crate::layout::MAGIC`].
    pub magic: u64,
    /// [`crate::ABI_VERSION`].
    pub abi_version: u64,
    /// Hash of the argument types, see [`crate::schema`].
    pub schema: u64,
    /// Bytes of the argument block.
    pub argument_bytes: u64,
    /// Workgroups in x to launch when nobody says otherwise (programs); 0 for an ordinary kernel.
    pub default_workgroups: u64,
    /// Lanes a workgroup in x to launch when nobody says otherwise.
    pub default_lanes: u64,
    /// Bytes of workgroup memory that the kernel asks for.
    pub workgroup_memory_bytes: u64,
    /// Most lanes that a workgroup may have; 0 for as many as devices take.
    pub max_lanes: u64,
}

/// Name of the kernel that a program's `#[main]` makes.
pub const MAIN_KERNEL: &str = "main";

/// Prefix of a kernel's exported symbol; its name follows.
pub const KERNEL_SYMBOL_PREFIX: &str = "hostcall_kernel_";

/// Prefix of the exported [`KernelInfo`]; the kernel's name follows.
pub const KERNEL_INFO_SYMBOL_PREFIX: &str = "hostcall_kernel_info_";
