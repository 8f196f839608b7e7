//! Memory of the GPU, and memory of the host that the GPU reaches.

use crate::gpu::Gpu;
use crate::runtime::Error;
use crate::sys::hsa_amd_memory_pool_t;
use hostcall_seam::{DeviceAddress, Memory, Pinned};
use std::ptr::NonNull;
use std::sync::Arc;

/// What allocations are multiples of.
const WORD_BYTES: usize = 8;

/// A block of a pool, which whoever holds it frees (invariant POOL).
#[derive(Debug)]
pub(crate) struct Block {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is no thread's own, and whoever accesses it does so by its address.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Allocates a block that host and GPU reach at the same address. It holds anything, unless the runtime zeroes it.
    pub fn allocate(gpu: &Gpu, pool: hsa_amd_memory_pool_t, bytes: usize, what: &str) -> Result<Self, Error> {
        let doing = || format!("allocating {bytes} bytes of {what}");
        // Whole words: kernels change single bytes by exchanging the word that these lie in.
        let size = bytes.max(1).checked_next_multiple_of(WORD_BYTES).unwrap_or(bytes);
        let mut start = std::ptr::null_mut();
        let functions = &gpu.runtime().functions;
        // SAFETY: LOADED; the result lives through the call.
        let status = unsafe { (functions.hsa_amd_memory_pool_allocate)(pool, size, 0, &mut start) };
        gpu.runtime().check(status, doing)?;
        let start = NonNull::new(start.cast::<u8>()).expect("the runtime allocated it");
        let block = Self { start, bytes };
        let agents = [gpu.agent()];
        // SAFETY: LOADED; the list lives through the call, and the memory was allocated just now.
        let status = unsafe {
            (functions.hsa_amd_agents_allow_access)(
                1,
                agents.as_ptr(),
                std::ptr::null(),
                start.as_ptr().cast(),
            )
        };
        match gpu.runtime().check(status, doing) {
            Ok(()) => Ok(block),
            Err(error) => {
                block.free(gpu);
                Err(error)
            }
        }
    }

    /// Frees the block, which nobody uses any more.
    pub fn free(self, gpu: &Gpu) {
        // SAFETY: LOADED; `allocate` allocated it, and it is freed once. What the runtime answers changes nothing.
        unsafe { (gpu.runtime().functions.hsa_amd_memory_pool_free)(self.start.as_ptr().cast()) };
    }

    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn address(&self) -> u64 {
        self.start.addr().get() as u64
    }
}

/// Memory of a GPU. Freed when dropped, and after that no kernel may use it.
pub struct DeviceMemory {
    gpu: Arc<Gpu>,
    block: Option<Block>,
}

impl Gpu {
    /// Allocates zeroed memory of the GPU, at a multiple of 4096.
    ///
    /// # Errors
    /// When there is no room.
    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Result<DeviceMemory, Error> {
        self.check()?;
        let block = Block::allocate(self, self.device_pool(), bytes, "GPU memory")?;
        let memory = DeviceMemory { gpu: self.clone(), block: Some(block) };
        if !self.runtime().zeroes_memory {
            // SAFETY: the memory is so long, and nobody has it yet.
            if let Err(failed) = unsafe { self.zero(memory.block().address(), bytes.max(1)) } {
                if failed.goes_on {
                    // It is written yet: nobody else may get it.
                    std::mem::forget(memory);
                }
                return Err(failed.into());
            }
        }
        Ok(memory)
    }
}

impl DeviceMemory {
    fn block(&self) -> &Block {
        self.block.as_ref().expect("it is there until it is dropped")
    }
}

// SAFETY: POOL; zeroed by `Gpu::allocate`, and freed when it is dropped.
unsafe impl Memory for DeviceMemory {
    fn address(&self) -> DeviceAddress {
        DeviceAddress::new(self.block().address())
    }

    fn len(&self) -> usize {
        self.block().len()
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            block.free(&self.gpu);
        }
    }
}

/// Memory of the host that stays in place and is fine-grained: host and kernels see each other's stores at once. Freed when
/// dropped, and after that no kernel may use it.
pub struct PinnedMemory {
    gpu: Arc<Gpu>,
    block: Option<Block>,
}

impl PinnedMemory {
    pub(crate) fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self, Error> {
        gpu.check()?;
        let block = Block::allocate(gpu, gpu.host_pool(), bytes, "pinned memory")?;
        if !gpu.runtime().zeroes_memory {
            // SAFETY: the memory is so long, and new.
            unsafe { block.start().write_bytes(0, bytes) };
        }
        Ok(Self { gpu: gpu.clone(), block: Some(block) })
    }

    fn block(&self) -> &Block {
        self.block.as_ref().expect("it is there until it is dropped")
    }
}

// SAFETY: as above; HSA has such memory at the same address on host and GPU, and it is fine-grained.
unsafe impl Pinned for PinnedMemory {
    fn address(&self) -> DeviceAddress {
        DeviceAddress::new(self.block().address())
    }

    fn host_address(&self) -> NonNull<u8> {
        self.block().start()
    }

    fn len(&self) -> usize {
        self.block().len()
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            block.free(&self.gpu);
        }
    }
}
