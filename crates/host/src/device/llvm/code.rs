//! What a device gives for a program's code, and the memory of its calls.
#![allow(unsafe_code)] // ports lie in pinned memory

use super::super::backend::Running;
use super::super::{Error, Grid, Inner, LaunchFailure};
use super::KernelResources;
use crate::llvm::{Layout, PortMemory};
use std::ptr::NonNull;

/// A program's code on a device.
pub(crate) trait ProgramCode: Send + Sync {
    /// The bytes that a variable has now; `None` when there is no such variable.
    fn variable(&self, name: &str) -> Result<Option<Vec<u8>>, String>;
    /// Sets a variable's first bytes.
    fn set_variable(&self, name: &str, bytes: &[u8]) -> Result<(), String>;
    /// Writes to where a variable points, which is the code's own memory.
    fn write_where_pointed(&self, pointer: &str, bytes: &[u8]) -> Result<(), String>;
    /// Ticks a second of the clock that the program reads.
    fn clock_hz(&self) -> u64;
    /// The kernel of this name.
    fn kernel(&self, name: &str) -> Result<Box<dyn ProgramKernel>, String>;
}

/// A kernel of a program.
pub(crate) trait ProgramKernel: Send + Sync {
    /// What it needs.
    fn resources(&self) -> KernelResources;
    /// Starts it with these arguments, of which `int`s are in the low half.
    fn start(&self, grid: Grid, arguments: &mut [u64]) -> Result<Box<dyn Running>, LaunchFailure>;
}

/// Pinned memory for ports.
pub(crate) fn port_memory(device: &Inner, layout: Layout) -> Result<PortMemory, Error> {
    let pinned = device.backend.pin(layout.bytes()).map_err(Error::Device)?;
    let address = pinned.address();
    let start = NonNull::new(pinned.host_address()).expect("memory is never at address 0");
    // SAFETY: the memory is of this size, zeroed, and its addresses are multiples of 256; nobody else has it.
    Ok(unsafe { PortMemory::from_parts(start, address, layout, Box::new(pinned)) })
}
