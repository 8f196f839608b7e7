//! A code object in device memory.

use std::sync::Arc;

use super::{CodeObject, Kernel, Refused, refuse};
use crate::device::{Device, LaunchSpec};
use crate::memory::{PAGE, Use};

/// A code object that is loaded on a device until this is dropped.
#[derive(Debug)]
pub struct Loaded {
    device: Arc<Device>,
    /// The address of the image's first byte.
    pub address: u64,
    /// The code object.
    pub object: CodeObject,
}

impl Loaded {
    /// Loads a code object.
    ///
    /// # Errors
    ///
    /// It cannot be relocated, or there is not enough memory.
    pub fn load(device: &Arc<Device>, mut object: CodeObject) -> Result<Loaded, Refused> {
        let Some(address) = device.memory.allocate(object.image.len(), Use::Runtime) else {
            refuse!("there is no memory for its {} bytes", object.image.len());
        };
        let copied = object.relocate(address).and_then(|()| {
            // What is 0 stays untouched, and takes none of the host's memory. A view for each page lets others get on.
            let pages = (address..).step_by(PAGE).zip(object.image.chunks(PAGE));
            let mut filled = pages.filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0));
            let copied = filled.try_for_each(|(place, bytes)| device.memory.view().write(place, bytes));
            copied.map_err(|fault| Refused(fault.to_string()))
        });
        if let Err(refused) = copied {
            device.memory.free_own(address);
            return Err(refused);
        }
        for &(offset, bytes) in &object.code {
            let (words, _) = object.image[offset as usize..(offset + bytes) as usize].as_chunks();
            device.code.add(address + offset, words.iter().map(|&word| u32::from_le_bytes(word)).collect());
        }
        Ok(Loaded { device: Arc::clone(device), address, object })
    }

    /// Returns what is added to an address of the file to have that in memory.
    pub fn delta(&self) -> u64 {
        self.address.wrapping_sub(self.object.first)
    }

    /// Returns whether it is loaded on that device.
    pub fn is_on(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// Returns what to launch for a kernel with these arguments and this grid.
    pub fn launch_spec(
        &self,
        kernel: &Kernel,
        kernarg: u64,
        grid: [u32; 3],
        workgroup: [u32; 3],
    ) -> LaunchSpec {
        LaunchSpec {
            name: kernel.symbol.clone(),
            descriptor: kernel.descriptor,
            entry: self.address + kernel.entry_offset,
            kernarg,
            grid,
            workgroup,
            group_bytes: kernel.descriptor.group_bytes,
            private_bytes: kernel.descriptor.private_bytes.next_multiple_of(4),
            packet: 0,
            queue: 0,
            packet_id: 0,
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // First the code: once its memory is free, the address may be another's.
        for &(offset, _) in &self.object.code {
            self.device.code.remove(self.address + offset);
        }
        self.device.memory.free_own(self.address);
    }
}
