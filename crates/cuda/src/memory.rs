//! Memory of the GPU, and memory of the host that the GPU reaches.

use crate::copies::Way;
use crate::quiet::when_quiet;
use crate::{Error, Gpu};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// What allocations are multiples of.
const WORD_BYTES: usize = 8;

/// Memory of a GPU. Free when dropped, and after that no kernel may use it.
pub struct DeviceMemory {
    gpu: Arc<Gpu>,
    address: u64,
    bytes: usize,
}

impl Gpu {
    /// Allocates zeroed memory of the GPU, at a multiple of 256.
    ///
    /// # Errors
    /// When there is no room.
    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Result<DeviceMemory, Error> {
        let doing = || format!("allocating {bytes} bytes of GPU memory");
        // Whole words: kernels change single bytes by exchanging the word that these lie in.
        let (size, mut address) = (bytes.max(1).checked_next_multiple_of(WORD_BYTES).unwrap_or(bytes), 0);
        // SAFETY: LOADED; the result lives through the call, the stream as long as the GPU.
        self.run(doing, || unsafe { sys::cuMemAllocAsync(&mut address, size, self.copies()) })?;
        let memory = DeviceMemory { gpu: self.clone(), address, bytes };
        // SAFETY: LOADED; the memory is `size` bytes long.
        self.run(doing, || unsafe { sys::cuMemsetD8Async(address, 0, size, self.copies()) })?;
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
        let doing = || format!("reading {} bytes of GPU memory", bytes.len());
        let len = bytes.len();
        let to = bytes.as_ptr().cast_mut().cast::<c_void>();
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
    /// Reads memory that a kernel says to be at `address`. Returns `false`, and has read nothing, if it begins or ends where
    /// there is neither a GPU's memory nor pinned memory. Of files that are mapped nothing is read: where one was cut, the
    /// processor has no page.
    ///
    /// # Errors
    /// When a kernel failed before.
    pub fn read_for_lane(&self, address: u64, bytes: &mut [u8]) -> Result<bool, Error> {
        let kind = self.memory_kind(address, bytes.len());
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

    /// Writes memory that a kernel says the GPU has at `address`. Returns `false`, and has written nothing, if it begins or ends
    /// where this process has no memory of a GPU.
    ///
    /// # Errors
    /// When a kernel failed before.
    pub fn write_for_lane(&self, address: u64, bytes: &[u8]) -> Result<bool, Error> {
        if self.memory_kind(address, bytes.len()) != Some(sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32) {
            return Ok(false);
        }
        // SAFETY: the bytes are only read.
        unsafe { self.lane_copies.run(self, Way::To(address), NonNull::from(bytes).cast(), bytes.len()) }
            .map(|()| true)
    }

    /// What the driver says of memory: where its first and its last byte are.
    fn memory_kind(&self, address: u64, bytes: usize) -> Option<u32> {
        let kind_at = |address| {
            let (mut kind, what) = (0u32, sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
            let doing = || "looking at an address".to_string();
            // SAFETY: LOADED; the attribute is a u32, which lives through the call. The driver looks at the address alone.
            let known = self
                .run(doing, || unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), what, address) });
            known.ok().map(|()| kind)
        };
        let last = address.checked_add((bytes as u64).saturating_sub(1))?;
        let kind = kind_at(address)?;
        (kind_at(last) == Some(kind)).then_some(kind)
    }
}

impl DeviceMemory {
    /// Address on the GPU.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns how many bytes it has.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Says whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: LOADED; it was allocated on this stream and is freed once.
        self.gpu.release(|| unsafe { sys::cuMemFreeAsync(self.address, self.gpu.copies()) });
    }
}

/// Memory of the host that stays in place, so that kernels of every GPU reach it. Free when dropped, or when
/// the last running kernel has ended.
pub struct PinnedMemory {
    gpu: Arc<Gpu>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is no thread's own, and whoever accesses it does so by its address.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemory {}

impl Gpu {
    /// Allocates zeroed pinned memory, at a multiple of 256 and at the same address on host and GPU.
    ///
    /// # Errors
    /// When there is no room, or the GPU has other addresses than the host.
    pub fn pin(self: &Arc<Self>, bytes: usize) -> Result<PinnedMemory, Error> {
        let doing = || format!("pinning {bytes} bytes of the host's memory");
        let (size, mut start) = (bytes.max(1), std::ptr::null_mut());
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: LOADED; the result lives through the call.
        self.run(doing, || unsafe { sys::cuMemHostAlloc(&mut start, size, flags) })?;
        let start = NonNull::new(start.cast::<u8>()).expect("the driver allocated it");
        let memory = PinnedMemory { gpu: self.clone(), start, bytes };
        // SAFETY: the memory is `size` bytes long, and new.
        unsafe { start.write_bytes(0, size) };
        let mut address = 0;
        // SAFETY: LOADED; the result lives through the call.
        self.run(doing, || unsafe {
            sys::cuMemHostGetDevicePointer_v2(&mut address, start.as_ptr().cast(), 0)
        })?;
        if address == start.addr().get() as u64 {
            return Ok(memory);
        }
        Err(Error {
            doing: doing(),
            name: "no unified addressing".into(),
            text:
                "the GPU sees the host's memory at other addresses than the host; use another GPU or driver"
                    .into(),
            is_fault: false,
        })
    }
}

impl PinnedMemory {
    /// Address on the host, and on every GPU.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns how many bytes it has.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Says whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let (gpu, address) = (self.gpu.clone(), self.start.addr().get());
        when_quiet(move || {
            // SAFETY: LOADED; `pin` allocated it, and it is freed once, without a kernel that could use it.
            gpu.release(|| unsafe { sys::cuMemFreeHost(address as *mut c_void) });
            gpu
        });
    }
}
