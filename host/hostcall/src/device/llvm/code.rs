//! A program's code on a device, and the memory of its calls.
#![allow(unsafe_code)] // ports lie in pinned memory; variables are read and written by address

use crate::device::core::Core;
use crate::device::error::{Error, ProgramError};
use crate::device::grid::Grid;
use crate::device::stream::Stream;
use hostcall_abi::launch::LaunchId;
use hostcall_seam::{DeviceAddress, Kernel, KernelLimits, Module, Variable};
use hostcall_server::llvm::{Layout, PortMemory};
use std::sync::Arc;

/// A loaded program.
pub(super) struct Code {
    pub core: Arc<Core>,
    pub module: Arc<dyn Module>,
}

impl Code {
    /// Returns the bytes that a variable has now; `None` when there is no such variable.
    pub fn variable(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let Some(Variable { address, bytes }) = self.module.variable(name)? else { return Ok(None) };
        let mut value = vec![0; bytes];
        // SAFETY: the module says that the variable lies there, and no kernel of the program runs.
        unsafe { self.core.backend.read_now(address, &mut value) }?;
        Ok(Some(value))
    }

    /// Sets a variable's first bytes.
    pub fn set_variable(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        match self.module.variable(name)? {
            Some(variable) if variable.bytes >= bytes.len() => {
                // SAFETY: as above.
                Ok(unsafe { self.core.backend.write_now(variable.address, bytes) }?)
            }
            Some(Variable { bytes: has, .. }) => {
                let what = format!("the program's variable {name} has {has} bytes, not {}", bytes.len());
                Err(ProgramError::Variable { what }.into())
            }
            None => Err(ProgramError::Missing { what: format!("variable {name}") }.into()),
        }
    }

    /// Writes to where a pointer of the program's points, which is the program's own memory.
    ///
    /// # Safety
    /// The program keeps `bytes.len()` bytes there.
    pub unsafe fn write_where_pointed(&self, pointer: &str, bytes: &[u8]) -> Result<(), Error> {
        let address = self.variable(pointer)?.and_then(|bytes| bytes.first_chunk().copied());
        match address.map(u64::from_le_bytes) {
            None | Some(0) => {
                let what = format!("the program's pointer {pointer} points to nothing");
                Err(ProgramError::Variable { what }.into())
            }
            Some(address) => {
                // SAFETY: by the caller's promise.
                Ok(unsafe { self.core.backend.write_now(DeviceAddress::new(address), bytes) }?)
            }
        }
    }

    /// Returns the kernel of this name.
    pub fn kernel(&self, name: &'static str) -> Result<ProgramKernel, Error> {
        let code = self.module.kernel(name)?;
        let code = code.ok_or_else(|| ProgramError::Missing { what: format!("kernel `{name}`") })?;
        Ok(ProgramKernel { name, code })
    }
}

/// A kernel of a program.
pub(super) struct ProgramKernel {
    pub name: &'static str,
    code: Arc<dyn Kernel>,
}

impl ProgramKernel {
    pub fn limits(&self) -> KernelLimits {
        self.code.limits()
    }

    /// Puts the kernel on a stream and waits for its end. It gets these arguments, of which `int`s are in the low half.
    ///
    /// # Safety
    /// The kernel takes these arguments, and what they refer to lives until it has ended.
    pub unsafe fn run(&self, stream: &Stream, grid: Grid, arguments: &[u64]) -> Result<(), Error> {
        let mut parts = stream.queue().blank();
        arguments.iter().for_each(|argument| parts.parameters.push(&argument.to_le_bytes()));
        parts.kernel = Some(self.code.clone());
        (parts.workgroups, parts.lanes) = (grid.workgroups, grid.workgroup_size);
        parts.workgroup_bytes = grid.workgroup_memory_bytes;
        // It calls by another protocol, so that hostcall's server does not know it.
        stream.queue().launch(self.name.into(), None, parts, |_, _, _| Ok(LaunchId::NONE))?;
        stream.synchronize()
    }
}

/// Pinned memory for ports.
pub(in crate::device) fn port_memory(core: &Core, layout: Layout) -> Result<PortMemory, Error> {
    let pinned = core.backend.pin(layout.bytes())?;
    let (address, start) = (pinned.address().get(), pinned.host_address());
    // SAFETY: the memory is of this size, zeroed, and its addresses are multiples of 256; nobody else has it.
    Ok(unsafe { PortMemory::from_parts(start, address, layout, Box::new(pinned)) })
}
