//! Memory of the GPU, and memory of the host that the GPU reaches.
//!
//! The driver fills memory and copies between buffers by kernels of its own, which find no multiprocessor while waves have
//! them all, and a wave may wait for what comes after. So the heap is not cleared, and a buffer that is made while kernels
//! run is cleared by copies of zeros from the host.

use crate::lent::Way;
use crate::quiet::{if_quiet, when_quiet};
use crate::{Error, Gpu};
use cudarc::driver::sys;
use hostcall_seam::{DeviceAddress, Memory, Pinned};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// What allocations are multiples of.
const WORD_BYTES: usize = 8;

/// Bytes that an allocation of so many takes: whole words, since kernels change single bytes by exchanging the word that
/// these lie in.
fn whole_words(bytes: usize) -> usize {
    bytes.max(1).checked_next_multiple_of(WORD_BYTES).unwrap_or(bytes)
}

/// Bytes of the zeros that memory is cleared with beside kernels: a copy of so many takes long enough to hide the next one's start.
const ZEROS_BYTES: usize = 1 << 20;

/// Pinned memory that is zero.
pub(crate) struct Zeros(pub NonNull<u8>);

// SAFETY: an address of memory that belongs to no thread, and that is only read.
unsafe impl Send for Zeros {}

/// Memory of a GPU. Free when dropped, and after that no kernel may use it.
pub struct DeviceMemory {
    gpu: Arc<Gpu>,
    address: u64,
    bytes: usize,
}

impl Gpu {
    /// Allocates zeroed memory of the GPU, at a multiple of 256. Waits for no kernel.
    ///
    /// # Errors
    /// When there is no room.
    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Result<DeviceMemory, Error> {
        let memory = self.allocate_unset(bytes)?;
        self.clear(&memory)?;
        Ok(memory)
    }

    /// Fills new memory with zeros. The driver does so by a kernel, which finds no place while others have the whole GPU, and
    /// they may wait for this very thread. Beside kernels the zeros are copied from the host, which needs none.
    fn clear(&self, memory: &DeviceMemory) -> Result<(), Error> {
        let (start, size) = (memory.address, whole_words(memory.bytes));
        let doing = || format!("clearing {size} bytes of GPU memory");
        let by_kernel = if_quiet(|| {
            // SAFETY: LOADED; the memory has as many bytes, and is nobody else's.
            self.run(doing, || unsafe { sys::cuMemsetD8Async(start, 0, size, self.copies()) })?;
            self.finish_copies(doing)
        });
        if let Some(cleared) = by_kernel {
            return cleared;
        }
        let zeros = self.zeros()?;
        for at in (0..size).step_by(ZEROS_BYTES) {
            let (to, bytes) = (start + at as u64, ZEROS_BYTES.min(size - at));
            // SAFETY: LOADED; as above, and the zeros stay as long as the GPU.
            self.run(doing, || unsafe {
                sys::cuMemcpyHtoDAsync_v2(to, zeros.as_ptr().cast(), bytes, self.copies())
            })?;
        }
        self.finish_copies(doing)
    }

    /// Pinned memory of [`ZEROS_BYTES`] zeros, which nobody writes.
    fn zeros(&self) -> Result<NonNull<u8>, Error> {
        let mut zeros = self.zeros.lock();
        if let Some(Zeros(start)) = *zeros {
            return Ok(start);
        }
        let start = self.pin_for_good(ZEROS_BYTES, || "pinning zeros".to_string())?;
        *zeros = Some(Zeros(start));
        Ok(start)
    }

    /// Allocates memory of the GPU with any content, at a multiple of 256. Waits for no kernel.
    ///
    /// # Errors
    /// When there is no room.
    pub fn allocate_unset(self: &Arc<Self>, bytes: usize) -> Result<DeviceMemory, Error> {
        let doing = || format!("allocating {bytes} bytes of GPU memory");
        let mut address = 0;
        // SAFETY: LOADED; the result lives through the call, the stream as long as the GPU.
        self.run(doing, || unsafe { sys::cuMemAllocAsync(&mut address, whole_words(bytes), self.copies()) })?;
        let memory = DeviceMemory { gpu: self.clone(), address, bytes };
        self.finish_copies(doing)?;
        Ok(memory)
    }

    /// Reads memory that the GPU has at `address`, such as a module's variable.
    ///
    /// # Errors
    /// When a kernel failed before.
    ///
    /// # Safety
    /// The GPU has `bytes.len()` bytes at `address` while this runs.
    pub unsafe fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let len = bytes.len();
        let doing = || format!("reading {len} bytes of GPU memory");
        let to = bytes.as_mut_ptr().cast::<c_void>();
        // SAFETY: LOADED; the caller vouches for the source, and `bytes` is not used before the copy is over.
        self.run(doing, || unsafe { sys::cuMemcpyDtoHAsync_v2(to, address, len, self.copies()) })?;
        self.finish_copies(doing)
    }
}

impl Gpu {
    /// Writes memory that the GPU has at `address`, such as a module's variable.
    ///
    /// # Errors
    /// When a kernel failed before.
    ///
    /// # Safety
    /// The GPU has `bytes.len()` bytes at `address` while this runs.
    pub unsafe fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        let doing = || format!("writing {} bytes of GPU memory", bytes.len());
        let from = bytes.as_ptr().cast();
        // SAFETY: LOADED; the caller vouches for the target, and `bytes` lives until the copy is over.
        self.run(doing, || unsafe { sys::cuMemcpyHtoDAsync_v2(address, from, bytes.len(), self.copies()) })?;
        self.finish_copies(doing)
    }
}

impl Gpu {
    /// Reads memory that a kernel says to be at `address`. Returns `false`, and has read nothing, if it lies
    /// in no one allocation, be it a GPU's or pinned memory. Of files that are mapped nothing is read: where
    /// one was cut, the processor has no page.
    ///
    /// # Errors
    /// When a kernel failed before.
    ///
    /// # Safety
    /// If an allocation has the bytes, nobody frees it while this runs, and a race with who writes them is
    /// the kernel's to answer for: the kernel's launch vouches for what its lanes say that they lend.
    pub unsafe fn read_for_lane(&self, address: u64, bytes: &mut [u8]) -> Result<bool, Error> {
        let kind = self.kind_of_allocation(address, bytes.len());
        if kind != Some(sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32) {
            let (mut flags, memory) = (0, std::ptr::with_exposed_provenance_mut(address as usize));
            // SAFETY: LOADED; the result lives through the call. The driver looks at the address alone.
            let is_pinned = self.run(
                || "looking at an address".into(),
                || unsafe { sys::cuMemHostGetFlags(&mut flags, memory) },
            );
            if kind.is_none() || is_pinned.is_err() {
                return Ok(false);
            }
        }
        let (host, len) = (NonNull::from(&mut *bytes).cast(), bytes.len());
        // SAFETY: the bytes are this thread's alone.
        unsafe { self.lane_copies.run(self, Way::From(address), host, len) }.map(|()| true)
    }

    /// Writes memory that a kernel says the GPU has at `address`. Returns `false`, and has written nothing,
    /// if it lies in no one allocation of a GPU's memory.
    ///
    /// # Errors
    /// When a kernel failed before.
    ///
    /// # Safety
    /// If an allocation has the bytes, nobody frees it while this runs, and they are the lane's that waits
    /// for them to be written: the kernel's launch vouches for what its lanes say.
    pub unsafe fn write_for_lane(&self, address: u64, bytes: &[u8]) -> Result<bool, Error> {
        if self.kind_of_allocation(address, bytes.len())
            != Some(sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32)
        {
            return Ok(false);
        }
        // SAFETY: the bytes are only read.
        unsafe { self.lane_copies.run(self, Way::To(address), NonNull::from(bytes).cast(), bytes.len()) }
            .map(|()| true)
    }

    /// What kind of memory has all of the bytes in one allocation; `None` if none has.
    fn kind_of_allocation(&self, address: u64, bytes: usize) -> Option<u32> {
        use sys::CUpointer_attribute::{
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        };
        let ask = |what, answer: *mut c_void| {
            let doing = || "looking at an address".to_string();
            // SAFETY: LOADED; the answer is of the attribute's type and lives through the call. The driver
            // looks at the address alone.
            self.run(doing, || unsafe { sys::cuPointerGetAttribute(answer, what, address) }).ok()
        };
        let (mut kind, mut start, mut size) = (0u32, 0u64, 0usize);
        ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw mut kind).cast())?;
        ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, (&raw mut start).cast())?;
        ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE, (&raw mut size).cast())?;
        let end = usize::try_from(address.checked_sub(start)?).ok()?.checked_add(bytes)?;
        (end <= size).then_some(kind)
    }
}

// SAFETY: the driver allocated the memory for this value, zeroed by `Gpu::allocate`, and frees it when it is dropped.
unsafe impl Memory for DeviceMemory {
    fn address(&self) -> DeviceAddress {
        DeviceAddress::new(self.address)
    }

    fn len(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: LOADED; it was allocated on this stream and is freed once.
        self.gpu.release(|| unsafe { sys::cuMemFreeAsync(self.address, self.gpu.copies()) });
    }
}

/// Memory of the host that stays in place, so that kernels of every GPU reach it. No kernel and no copy may
/// use it when it is dropped: while kernels run, for which the driver would wait before it frees the memory,
/// a later [`Gpu::pin`] may get it.
pub struct PinnedMemory {
    gpu: Arc<Gpu>,
    start: NonNull<u8>,
    bytes: usize,
    /// What the driver allocated.
    block_bytes: usize,
}

/// A block may be so many times as long as what is pinned in it.
const MOST_SLACK: usize = 2;

/// Pinned blocks that nobody uses (invariant UNUSED: whoever pinned one has dropped it, and no kernel or copy
/// uses it). The driver frees them once no kernel runs.
#[derive(Default)]
pub(crate) struct UnusedBlocks {
    by_bytes: BTreeMap<usize, Vec<NonNull<u8>>>,
    /// They are freed once no kernel runs: `quiet` knows.
    is_noted: bool,
}

// SAFETY: addresses of memory that belongs to no thread.
unsafe impl Send for UnusedBlocks {}

impl UnusedBlocks {
    /// Takes a block of at least `bytes` bytes that is not much longer. Returns where it begins, and its
    /// length.
    fn take(&mut self, bytes: usize) -> Option<(NonNull<u8>, usize)> {
        let longest = bytes.saturating_mul(MOST_SLACK);
        let (&block_bytes, blocks) = self.by_bytes.range_mut(bytes..=longest).next()?;
        let start = blocks.pop().expect("a size has a block");
        if blocks.is_empty() {
            self.by_bytes.remove(&block_bytes);
        }
        Some((start, block_bytes))
    }
}

// SAFETY: the memory is no thread's own, and whoever accesses it does so by its address.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemory {}

impl Gpu {
    /// Allocates zeroed pinned memory, at a multiple of 256 and at the same address on host and GPU: a block
    /// that was dropped while kernels run, or else new memory.
    ///
    /// # Errors
    /// When there is no room, or the GPU has other addresses than the host.
    pub fn pin(self: &Arc<Self>, bytes: usize) -> Result<PinnedMemory, Error> {
        let doing = || format!("pinning {bytes} bytes of the host's memory");
        let block_bytes = bytes.max(1);
        // After a fault none is given out: work that was given up may access it.
        let unused = if self.has_failed() { None } else { self.unused_blocks.lock().take(block_bytes) };
        let (start, block_bytes) = match unused {
            Some((start, block_bytes)) => {
                // SAFETY: UNUSED; the block is at least so long.
                unsafe { start.write_bytes(0, bytes) };
                (start, block_bytes)
            }
            None => (self.pin_for_good(block_bytes, doing)?, block_bytes),
        };
        Ok(PinnedMemory { gpu: self.clone(), start, bytes, block_bytes })
    }
}

impl Gpu {
    /// Frees the blocks that nobody uses. No kernel runs.
    fn free_unused_blocks(&self) {
        let mut unused = self.unused_blocks.lock();
        unused.is_noted = false;
        for start in std::mem::take(&mut unused.by_bytes).into_values().flatten() {
            // SAFETY: LOADED, UNUSED; `pin` allocated it, and it is freed once.
            self.release(|| unsafe { sys::cuMemFreeHost(start.as_ptr().cast()) });
        }
    }

    /// Allocates zeroed pinned memory, at the same address on host and GPU, which lives until somebody frees it.
    pub(crate) fn pin_for_good(
        &self,
        bytes: usize,
        doing: impl Fn() -> String,
    ) -> Result<NonNull<u8>, Error> {
        let mut start = std::ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: LOADED; the result lives through the call.
        self.run(&doing, || unsafe { sys::cuMemHostAlloc(&mut start, bytes, flags) })?;
        let start = NonNull::new(start.cast::<u8>()).expect("the driver allocated it");
        let mut address = 0;
        // SAFETY: LOADED; the result lives through the call.
        let seen = self.run(&doing, || unsafe {
            sys::cuMemHostGetDevicePointer_v2(&mut address, start.as_ptr().cast(), 0)
        });
        if seen.is_err() || address != start.addr().get() as u64 {
            // SAFETY: LOADED; it was allocated above, and nobody has it.
            self.release(|| unsafe { sys::cuMemFreeHost(start.as_ptr().cast()) });
            seen?;
            return Err(Error {
                doing: doing(),
                name: "no unified addressing".into(),
                text:
                    "the GPU sees the host's memory at other addresses than the host; use another GPU or driver"
                        .into(),
                is_fault: false,
            });
        }
        // SAFETY: the memory is this long, and new.
        unsafe { start.write_bytes(0, bytes) };
        Ok(start)
    }
}

// SAFETY: as above; `Gpu::pin` checks that host and GPU have it at the same address.
unsafe impl Pinned for PinnedMemory {
    fn address(&self) -> DeviceAddress {
        DeviceAddress::new(self.start.addr().get() as u64)
    }

    fn host_address(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.bytes
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let mut unused = self.gpu.unused_blocks.lock();
        unused.by_bytes.entry(self.block_bytes).or_default().push(self.start);
        let is_noted = std::mem::replace(&mut unused.is_noted, true);
        drop(unused);
        if !is_noted {
            let gpu = self.gpu.clone();
            when_quiet(move || {
                gpu.free_unused_blocks();
                gpu
            });
        }
    }
}
