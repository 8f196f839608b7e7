//! Memory that kernels allocate from: what a heap gives out addresses of.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;

/// Where a heap's memory comes from. It is called from the server's threads, so it must not wait for kernels.
///
/// # Safety
/// Promises of each [`Block`] that it returns, as long as [`Block::memory`] lives: [`Block::address`] is a multiple of the
/// alignment; from there on every device of the process has as many bytes that its kernels may read and write, or
/// nothing, so that they fault; and nobody else uses these bytes.
pub unsafe trait HeapMemory: Send + Sync + 'static {
    /// Allocates at least `bytes`, which is not 0, aligned to `align`, a power of two; `None` when there is no
    /// such memory.
    fn allocate(&self, bytes: u64, align: u64) -> Option<Block>;
}

/// Memory that a device can reach.
pub struct Block {
    /// Address on the device.
    pub address: u64,
    /// Keeps the memory: it is free once this is dropped.
    pub memory: Box<dyn Any + Send>,
}

/// Memory of the host's process, for the software device. A GPU's lanes fault when they use it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessMemory;

// SAFETY: the vector owns so many bytes from the address on: it has `spare` more, and aligning leaves out no more than these.
// It is never filled, so that nobody but kernels touches them. A GPU has nothing of its own at the process's addresses.
unsafe impl HeapMemory for ProcessMemory {
    fn allocate(&self, bytes: u64, align: u64) -> Option<Block> {
        let spare = align.saturating_sub(align_of::<u64>() as u64);
        let words = usize::try_from(bytes.checked_add(spare)?.div_ceil(8)).ok()?;
        let mut memory = Vec::<u64>::new();
        memory.try_reserve_exact(words).ok()?;
        let address = memory.as_mut_ptr().expose_provenance() as u64;
        Some(Block { address: address.next_multiple_of(align), memory: Box::new(memory) })
    }
}
