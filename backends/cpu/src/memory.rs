//! Memory of the software device: the process's own.

use crate::device::seam::{BackendError, DeviceAddress, Memory, Pinned};
use hostcall_abi::launch::BUFFER_ALIGN;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Alignment that every allocator gives without further ado.
const ALLOCATORS_ALIGN: usize = 16;

/// Zeroed memory whose address kernels and the host use (invariant ALLOCATED: `len` bytes lie at `start` until this is
/// dropped, in the `layout.size()` bytes at `allocation`).
pub(crate) struct CpuMemory {
    start: NonNull<u8>,
    allocation: NonNull<u8>,
    layout: Layout,
    len: usize,
}

// SAFETY: the memory is no thread's own, and whoever accesses it does so by its address.
unsafe impl Send for CpuMemory {}
// SAFETY: as above.
unsafe impl Sync for CpuMemory {}

impl CpuMemory {
    /// Pages that nobody touches take no memory.
    pub fn new(len: usize) -> Result<Self, BackendError> {
        Self::aligned(len, BUFFER_ALIGN)
    }

    /// Memory at a multiple of `align`, a power of two.
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

impl Drop for CpuMemory {
    fn drop(&mut self) {
        // SAFETY: ALLOCATED; nobody uses the memory once its owner is dropped (USERS-KEEP of the seam).
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) };
    }
}

// SAFETY: ALLOCATED, zeroed, at a multiple of `BUFFER_ALIGN`.
unsafe impl Memory for CpuMemory {
    fn address(&self) -> DeviceAddress {
        DeviceAddress::new(self.start.addr().get() as u64)
    }

    fn len(&self) -> usize {
        self.len
    }
}

// SAFETY: as above; host and kernels share an address space.
unsafe impl Pinned for CpuMemory {
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

/// Returns the pointer to memory of the device.
pub(super) fn pointer(address: DeviceAddress) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address.get() as usize)
}

macro_rules! by_width {
    ($width:expr, $atomic:ident => $body:expr) => {
        match $width {
            1 => {
                type $atomic = AtomicU8;
                $body
            }
            2 => {
                type $atomic = AtomicU16;
                $body
            }
            4 => {
                type $atomic = AtomicU32;
                $body
            }
            8 => {
                type $atomic = AtomicU64;
                $body
            }
            width => {
                return Err(BackendError::Refused(format!("numbers have 1, 2, 4 or 8 bytes, not {width}")));
            }
        }
    };
}

/// Stores numbers of `width` bytes, each by an atomic store.
///
/// # Safety
/// As for [`crate::device::seam::Backend::store_words`].
pub(super) unsafe fn store(to: DeviceAddress, bytes: &[u8], width: usize) -> Result<(), BackendError> {
    by_width!(width, Atomic => for (index, number) in bytes.chunks_exact(width).enumerate() {
        // SAFETY: the caller vouches for `bytes.len()` bytes at `to`, a multiple of `width`, accessed atomically.
        let cell = unsafe { Atomic::from_ptr(pointer(to).add(index * width).cast()) };
        cell.store(number_of(number), Ordering::Relaxed);
    });
    Ok(())
}

/// Loads numbers of `width` bytes, each by an atomic load.
///
/// # Safety
/// As for [`crate::device::seam::Backend::load_words`].
pub(super) unsafe fn load(from: DeviceAddress, bytes: &mut [u8], width: usize) -> Result<(), BackendError> {
    by_width!(width, Atomic => for (index, number) in bytes.chunks_exact_mut(width).enumerate() {
        // SAFETY: as in `store`.
        let cell = unsafe { Atomic::from_ptr(pointer(from).add(index * width).cast()) };
        number.copy_from_slice(&cell.load(Ordering::Relaxed).to_le_bytes());
    });
    Ok(())
}

/// Copies words of 8 bytes, each by an atomic load and an atomic store.
///
/// # Safety
/// As for [`crate::device::seam::Queue::read_words`].
pub(super) unsafe fn copy_words(to: *mut u8, from: DeviceAddress, bytes: usize) {
    for at in (0..bytes / 8 * 8).step_by(8) {
        // SAFETY: the caller vouches for `bytes` bytes on both sides, multiples of 8, accessed atomically.
        let (to, from) = unsafe {
            (AtomicU64::from_ptr(to.add(at).cast()), AtomicU64::from_ptr(pointer(from).add(at).cast()))
        };
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The number whose bytes these are, as the width that is asked for.
fn number_of<N: TryFrom<u64>>(bytes: &[u8]) -> N {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    N::try_from(u64::from_le_bytes(word)).unwrap_or_else(|_| unreachable!("as many bytes as the number has"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn memory_is_zeroed_and_aligned() {
        for len in [0, 1, 7, 4096] {
            let memory = CpuMemory::new(len).unwrap();
            assert!(Memory::address(&memory).get().is_multiple_of(256));
            assert_eq!(Memory::len(&memory), len);
            let mut bytes = vec![1; len];
            // SAFETY: the memory is this test's own.
            unsafe { load(Memory::address(&memory), &mut bytes, 1) }.unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
        assert!(matches!(CpuMemory::new(usize::MAX), Err(BackendError::NoMemory { .. })));
    }

    /// A store of one number leaves its neighbours alone, while another thread writes them (S6).
    #[test]
    fn a_number_is_written_without_its_neighbour() {
        let memory = Arc::new(CpuMemory::new(8).unwrap());
        let done = Arc::new(AtomicBool::new(false));
        let rounds = if cfg!(miri) { 50 } else { 200_000 };
        let neighbour = {
            let (memory, done) = (memory.clone(), done.clone());
            std::thread::spawn(move || {
                let at = Memory::address(&*memory).offset(4);
                let mut lost = 0;
                for round in 1..=rounds {
                    let mut read = [0; 4];
                    // SAFETY: both threads access numbers of four bytes atomically.
                    unsafe {
                        store(at, &u32::to_le_bytes(round), 4).unwrap();
                        load(at, &mut read, 4).unwrap();
                    }
                    lost += u32::from(read != u32::to_le_bytes(round));
                }
                done.store(true, Ordering::Release);
                lost
            })
        };
        while !done.load(Ordering::Acquire) {
            // SAFETY: as above.
            unsafe { store(Memory::address(&*memory), &7u32.to_le_bytes(), 4) }.unwrap();
        }
        assert_eq!(neighbour.join().unwrap(), 0);
    }

    #[test]
    fn other_widths_are_refused() {
        let memory = CpuMemory::new(16).unwrap();
        // SAFETY: the memory is this test's own.
        let refused = unsafe { store(Memory::address(&memory), &[0; 12], 3) };
        assert!(matches!(refused, Err(BackendError::Refused(_))));
    }
}
