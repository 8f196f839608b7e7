//! What differs between devices. Each target gives the same functions:
//!
//! | function | what |
//! |---|---|
//! | `params`, `slot`, `workgroup_memory` | the launch's parameters, the wave's slot, the workgroup's memory |
//! | `lane_index`, `wave_size`, `wave_lanes`, `position`, `wave_in_workgroup` | who the calling lane is |
//! | `converge`, `ballot`, `broadcast`, `sync` | the wave's operations |
//! | `wait`, `pause`, `notify`, `barrier` | waiting; what `wait` polls asks nothing of its own lane |
//! | `exit_lane`, `unwinding`, `clock_ns` | the rest |

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod cpu;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use cpu::*;

#[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
mod gpu;
#[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
pub use gpu::*;

#[cfg(target_arch = "nvptx64")]
mod nvptx;
#[cfg(target_arch = "nvptx64")]
pub(crate) use nvptx::*;

#[cfg(target_arch = "amdgpu")]
mod amdgpu;
#[cfg(target_arch = "amdgpu")]
pub(crate) use amdgpu::*;

/// Bytes at the start of a workgroup's memory that this crate keeps for itself.
pub const RESERVED_WORKGROUP_BYTES: usize = 64;

/// Number of the channel, to tell what a static remembers of one channel from another.
#[inline(always)]
pub(crate) fn epoch() -> u32 {
    params().epoch
}
