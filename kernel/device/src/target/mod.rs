//! What differs between devices. Each target gives the same functions:
//!
//! | item | what |
//! |---|---|
//! | `here`, `Here` | the lane that runs, with the methods below |
//! | `params`, `channel`, `record`, `slot`, `hardware_place`, `proposed_slot`, `workgroup_memory` | the launch's and the channel's parameters, the wave's record, the slot that it has, a number of the place where the wave runs, the slot to claim first, the workgroup's memory |
//! | `lane_index`, `wave_size`, `full`, `wave_lanes`, `index_in_workgroup`, `wave_in_workgroup`, `workgroup_index`, `lanes_in_workgroup` | who the lane is |
//! | `converge`, `same`, `matching`, `ballot`, `all`, `broadcast`, `shuffle_u32`, `shuffle`, `sync` | the wave's operations, on a `Mask` of lanes (`bits` of it) |
//! | `wait`, `wait_with_pauses`, `pass`, `pause`, `notify`, `barrier` | waiting; what `wait` polls asks nothing of its own lane |
//! | `HOST_COPIES`, `Lent`, `LEAST_REPLY_TO_LEND` | memory of lanes that the host's copies reach |
//! | `Staging` | copying bytes of the host's memory, on devices on which a lane does that faster than by loads |
//! | `cancelled`, `unwinding`, `clock_ns` | the rest |
//! | `global` | a pointer to what all lanes have in common, by its address |
//! | `Params` | the launch's parameters, and who the lane is, as the lane's function has them |
//! | `exit_lane`, `sleep`, `bell_period`, `seen`, `IN_STEP`, `LONE_LANES` | the end of a lane, letting time pass, when to ring for posts, a look at a word that may be old, how lanes share, whether calls of one lane go a way of their own |

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod cpu;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use cpu::*;

#[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
mod gpu;
#[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
pub use gpu::*;

#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90"))]
mod bulk_copy;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90"))]
pub(crate) use bulk_copy::*;

#[cfg(not(all(target_arch = "nvptx64", target_feature = "sm_90")))]
mod no_bulk_copy {
    /// Memory through which the lane's wave copies the host's: none.
    #[derive(Clone, Copy)]
    pub(crate) struct Staging;

    impl Staging {
        pub const NONE: Self = Self;

        /// The wave's.
        #[inline(always)]
        pub fn of_wave() -> Self {
            Self
        }

        /// Most bytes of the host's memory that the lane copies sooner than the host does.
        #[inline(always)]
        pub fn most(self) -> u32 {
            0
        }

        /// Copies the first bytes of `to` from the host's memory: none.
        ///
        /// # Safety
        /// Always.
        #[inline(always)]
        pub unsafe fn pull(self, _: u64, _: &mut [u8]) -> usize {
            0
        }
    }
}
#[cfg(not(all(target_arch = "nvptx64", target_feature = "sm_90")))]
pub(crate) use no_bulk_copy::*;

#[cfg(target_arch = "nvptx64")]
mod nvptx;
#[cfg(target_arch = "nvptx64")]
pub(crate) use nvptx::*;

#[cfg(target_arch = "amdgpu")]
mod amdgpu;
#[cfg(target_arch = "amdgpu")]
pub(crate) use amdgpu::*;

pub mod cell;
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) use cell::{
    add_f32, add_f64, load_2_u32, load_2_u64, load_4_u32, store_2_u32, store_2_u64, store_4_u32,
};
#[cfg(target_arch = "nvptx64")]
mod nvptx_cell;
#[cfg(target_arch = "nvptx64")]
pub(crate) use nvptx_cell::{
    add_f32, add_f64, load_2_u32, load_2_u64, load_4_u32, store_2_u32, store_2_u64, store_4_u32,
};

/// The launch's parameters, as the lane's function has them.
#[cfg(target_arch = "amdgpu")]
#[derive(Clone, Copy)]
pub(crate) struct Params;

#[cfg(target_arch = "amdgpu")]
impl Params {
    #[inline(always)]
    pub fn of_wave() -> Self {
        Self
    }

    #[inline(always)]
    pub fn get(self) -> &'static hostcall_abi::launch::LaunchParams {
        here().params()
    }
}

#[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
impl Params {
    /// The lane that has them, which runs.
    #[inline(always)]
    pub fn here(self) -> Here {
        here()
    }
}

/// A device address as a pointer.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub(crate) fn global(address: u64) -> *const u8 {
    address as usize as *const u8
}

/// Whether a lane that has polled so often rings the same doorbell again, in case the host lost the first ring. On NVIDIA
/// so many polls take some 120 ms.
#[cfg(not(target_arch = "amdgpu"))]
#[inline(always)]
pub(crate) fn rings_again(polls: u32, _rang: &mut u64) -> bool {
    polls.is_multiple_of(1 << 16)
}
