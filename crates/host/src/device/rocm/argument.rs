//! Arguments of kernels of code objects.

use crate::device::buffer::{Allocation, Wanted, bytes_of};
use crate::device::error::LaunchRefused;
use crate::device::seam::Pinned;
use crate::device::stream::Parts;
use crate::device::uses::Access;
use crate::device::{Core, DeviceBuffer, Error, PinnedBuffer};
use hostcall_device::Word;
use hostcall_device::kernel::Plain;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// An argument of a kernel of a code object.
#[derive(Clone)]
pub struct KernelArgument {
    bytes: SmallVec<[u8; 16]>,
    memory: Memory,
}

/// What an argument is the address of.
#[derive(Clone)]
enum Memory {
    Nothing,
    Buffer { allocation: Arc<Allocation>, access: Access, bytes: Range<usize> },
    Pinned { core: Arc<Core>, memory: Arc<dyn Pinned> },
}

impl KernelArgument {
    /// A value: a number, or a struct as the kernel's language lays it out.
    pub fn value<T: Plain + Copy>(value: T) -> Self {
        Self { bytes: SmallVec::from_slice(bytes_of(&[value])), memory: Memory::Nothing }
    }

    /// A value as its bytes, as the kernel's language lays it out.
    pub fn bytes(value: &[u8]) -> Self {
        Self { bytes: SmallVec::from_slice(value), memory: Memory::Nothing }
    }

    /// The address of a buffer's values, which are the launch's alone while it runs: what else uses them comes before it or
    /// after.
    pub fn buffer<T: Plain>(buffer: &DeviceBuffer<T>) -> Self {
        Self::of(buffer, Access::Write)
    }

    /// The address of a buffer's values, which nobody writes while the launch runs, nor the kernel: others may read them.
    pub fn input<T: Plain>(buffer: &DeviceBuffer<T>) -> Self {
        Self::of(buffer, Access::Read)
    }

    /// The address of a pinned buffer's values, which host and kernels may access meanwhile.
    pub fn pinned<T: Word>(buffer: &PinnedBuffer<T>) -> Self {
        let memory = Memory::Pinned { core: buffer.core.clone(), memory: buffer.memory.clone() };
        Self { bytes: SmallVec::from_slice(&buffer.address().get().to_le_bytes()), memory }
    }

    fn of<T: Plain>(buffer: &DeviceBuffer<T>, access: Access) -> Self {
        let Wanted { allocation, access, bytes } = buffer.wanted(access);
        let address = buffer.address().get().to_le_bytes();
        Self { bytes: SmallVec::from_slice(&address), memory: Memory::Buffer { allocation, access, bytes } }
    }

    /// Adds the argument at this place to a launch whose kernel takes so many bytes there.
    pub(super) fn pack(
        &self,
        core: &Core,
        place: usize,
        takes: usize,
        parts: &mut Parts,
    ) -> Result<(), Error> {
        let given = self.bytes.len();
        if given != takes {
            return Err(LaunchRefused::ArgumentSize { argument: place, takes, given }.into());
        }
        let check = |of: &Core| {
            let what = format!("argument {place} (the first is 0)");
            let device = core.name.clone();
            if of.is(core) { Ok(()) } else { Err(Error::OtherDevice { what, device }) }
        };
        match &self.memory {
            Memory::Nothing => {}
            Memory::Buffer { allocation, access, bytes } => {
                check(&allocation.core)?;
                let (allocation, bytes) = (allocation.clone(), bytes.clone());
                parts.wanted.push(Wanted { allocation, access: *access, bytes });
            }
            Memory::Pinned { core, memory } => {
                check(core)?;
                parts.keep.push(Arc::new(memory.clone()));
            }
        }
        parts.parameters.push(&self.bytes);
        Ok(())
    }
}

impl std::fmt::Debug for KernelArgument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelArgument").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
