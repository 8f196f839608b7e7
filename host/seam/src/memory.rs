//! Memory of the process as memory of a device.

use crate::{BackendError, DeviceAddress, Memory, Pinned};
use hostcall_abi::launch::BUFFER_ALIGN;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Alignment that every allocator gives without further ado.
const ALLOCATORS_ALIGN: usize = 16;

/// Memory of the process, for devices that have no other: zeroed memory whose address kernels and the host use (invariant ALLOCATED: `len` bytes lie at `start` until this is
/// dropped, in the `layout.size()` bytes at `allocation`).
pub struct HostMemory {
    start: NonNull<u8>,
    allocation: NonNull<u8>,
    layout: Layout,
    len: usize,
}

// SAFETY: the memory is no thread's own, and whoever accesses it does so by its address.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Allocates `len` bytes at a multiple of [`BUFFER_ALIGN`]. Pages that nobody touches take no memory.
    ///
    /// # Errors
    /// When the system has no room.
    pub fn new(len: usize) -> Result<Self, BackendError> {
        Self::aligned(len, BUFFER_ALIGN)
    }

    /// Allocates `len` bytes at a multiple of `align`, a power of two.
    ///
    /// # Errors
    /// As for [`HostMemory::new`].
    pub fn aligned(len: usize, align: usize) -> Result<Self, BackendError> {
        let no_room = |reason: &str| BackendError::NoMemory {
            what: "device memory",
            bytes: len,
            reason: reason.to_string(),
        };
        // With an alignment of the allocator's own, zeroed memory comes from the system as it is, and pages that nobody
        // touches take none.
        let size = len.max(1).checked_add(align).ok_or_else(|| no_room("it is too much"))?;
        let layout =
            Layout::from_size_align(size, ALLOCATORS_ALIGN).map_err(|_| no_room("it is too much"))?;
        // SAFETY: the layout has a size.
        let allocation =
            NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(|| no_room("the system has no more"))?;
        // Kernels get the address as a number.
        let start = allocation.as_ptr().expose_provenance().next_multiple_of(align) - allocation.addr().get();
        // SAFETY: less than `align` bytes further on, which the allocation has besides `len`.
        let start = unsafe { allocation.add(start) };
        Ok(Self { start, allocation, layout, len })
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: ALLOCATED; nobody uses the memory once its owner is dropped (USERS-KEEP).
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) };
    }
}

// SAFETY: ALLOCATED, zeroed, at a multiple of `BUFFER_ALIGN`.
unsafe impl Memory for HostMemory {
    fn address(&self) -> DeviceAddress {
        DeviceAddress::new(self.start.addr().get() as u64)
    }

    fn len(&self) -> usize {
        self.len
    }
}

// SAFETY: as above; host and kernels share an address space.
unsafe impl Pinned for HostMemory {
    fn address(&self) -> DeviceAddress {
        Memory::address(self)
    }

    fn host_address(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_aligned() {
        for len in [0, 1, 7, 4096] {
            let memory = HostMemory::new(len).unwrap();
            assert!(Memory::address(&memory).get().is_multiple_of(256));
            assert_eq!(Memory::len(&memory), len);
            // SAFETY: the memory is this test's own, and has so many bytes.
            let bytes = unsafe { std::slice::from_raw_parts(memory.host_address().as_ptr(), len) };
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
        assert!(matches!(HostMemory::new(usize::MAX), Err(BackendError::NoMemory { .. })));
    }
}
