//! What the expansions of the macros name. Not for users.

pub use crate::call::{CallOptions, Pending, call, call_with_bytes, post, start};
pub use crate::kernel::finish_main;
pub use crate::kernel::{Kernel, KernelArg, kernel_schema};
pub use crate::print::{Argument, Site, address_of, check_pointer, print, tag_of};
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use crate::target::enter_cpu;
#[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
pub use crate::target::enter_gpu;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use hostcall_abi::batch::{Calls, Posts};
pub use hostcall_abi::cpu::CpuLane;
pub use hostcall_abi::launch::{KernelInfo, LaunchParams};
pub use hostcall_abi::layout::MAGIC;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use hostcall_abi::service::{AsyncReply, AsyncService, OwnedReply, OwnedRequest};
pub use hostcall_abi::service::{Method, Output, Reply, Request, Service, derived_number, number};
pub use hostcall_abi::wire::Wire;
pub use hostcall_abi::{ABI_VERSION, CallError, schema};
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use std::{boxed::Box, string::String, sync::Arc, vec::Vec};

/// The length of a slice as an argument word.
#[inline(always)]
pub fn slice_len(len: usize) -> Result<u32, CallError> {
    u32::try_from(len).map_err(|_| CallError::TooLarge)
}
