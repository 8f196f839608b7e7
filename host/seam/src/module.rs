//! Code that a device has loaded: modules, and the kernels and variables in them.

use crate::{BackendError, DeviceAddress};
use std::any::Any;
use std::sync::Arc;

/// A loaded image.
///
/// # Safety
/// Promises: the module's code and variables stay where they are while it, or a kernel of it, lives.
pub unsafe trait Module: Send + Sync {
    /// Returns the kernel with this symbol, or `None` when there is none.
    ///
    /// # Errors
    /// When the device fails.
    fn kernel(&self, symbol: &str) -> Result<Option<Arc<dyn Kernel>>, BackendError>;

    /// Returns where the variable with this symbol lies, or `None` when there is none.
    ///
    /// # Errors
    /// When the device fails.
    fn variable(&self, symbol: &str) -> Result<Option<Variable>, BackendError>;
}

/// A variable of a module, in memory of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Where it begins.
    pub address: DeviceAddress,
    /// How many bytes it has.
    pub bytes: usize,
}

/// A kernel that can be dispatched.
///
/// # Safety
/// Promises: the kernel's code stays loaded while it lives.
pub unsafe trait Kernel: Any + Send + Sync {
    /// Returns what a dispatch of it may ask for.
    fn limits(&self) -> KernelLimits;
    /// Returns how many workgroups of so many lanes, each with so many bytes of memory besides what the image declares, run
    /// at once; `None` where the device does not say, or cannot run such workgroups.
    fn resident_workgroups(&self, lanes: u32, workgroup_bytes: u32) -> Option<u32> {
        let _ = (lanes, workgroup_bytes);
        None
    }
    /// Returns what the image says of the kernel's parameters; `None` where images say nothing of them.
    fn parameters(&self) -> Option<KernelParameters> {
        None
    }
}

/// What an image says of a kernel's parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelParameters {
    /// Bytes of each parameter of its own.
    pub bytes: Vec<u32>,
    /// It finds [`HiddenParameters::hostcall_buffer`] in a hidden one, though it may never look at it.
    pub takes_hostcall_buffer: bool,
    /// It finds [`HiddenParameters::heap`] in a hidden one, though it may never look at it.
    pub takes_heap: bool,
    /// It prints to a buffer that the host reads when the kernel has ended, which no dispatch gives.
    pub takes_printf_buffer: bool,
    /// The first parameter, from 0, that no bytes of the host's can be, and what it is, such as "an image".
    pub special: Option<(usize, &'static str)>,
    /// The only lanes in x, y and z that a workgroup of it can have; `None` where any number is allowed.
    pub workgroup: Option<[u32; 3]>,
}

/// What AMD's kernels find in hidden parameters, besides what a dispatch says anyway; 0 where there is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HiddenParameters {
    /// A hostcall buffer of ROCm's protocol.
    pub hostcall_buffer: DeviceAddress,
    /// Where ROCm's device libraries keep the state of their heap: 128 KiB, zeroed before the first kernel.
    pub heap: DeviceAddress,
}

/// What a kernel needs of the device, and what a dispatch of it may ask for at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelLimits {
    /// Registers of each lane; `None` where the device does not say.
    pub registers: Option<u32>,
    /// Bytes of stack of each lane, as far as the compiler knows: not for what it calls through pointers.
    pub stack_bytes: u32,
    /// Bytes of memory that a workgroup has besides what a dispatch asks for.
    pub workgroup_bytes: u32,
    /// Most lanes of a workgroup.
    pub max_lanes: u32,
    /// Most bytes of workgroup memory that a dispatch may ask for.
    pub max_dynamic_workgroup_bytes: u32,
}
