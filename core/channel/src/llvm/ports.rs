//! The shared memory, as words.

use super::AtomicU32;
use super::layout::BUFFER_WORDS;
use crate::primitive::AtomicU64;

/// A view of the shared memory (invariant PORTS).
#[derive(Clone, Copy)]
pub struct Ports<'m> {
    /// Mailbox words that the server writes.
    pub(super) primary: &'m [AtomicU32],
    /// Mailbox words that the client writes.
    pub(super) secondary: &'m [AtomicU32],
    /// Two words a port: the lanes' mask, and the opcode.
    headers: &'m [AtomicU64],
    buffers: &'m [AtomicU64],
    /// Lanes of a wave.
    pub(super) lanes: u32,
}

impl<'m> Ports<'m> {
    /// A view of the memory at these addresses.
    ///
    /// # Safety
    /// PORTS: they point to `ports` mailbox words each, twice as many header words and `ports * lanes` buffers,
    /// aligned for their words, all mapped for `'m` and accessed only atomically.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(super) unsafe fn from_addresses(
        [primary, secondary, headers, buffers]: [usize; 4],
        ports: u32,
        lanes: u32,
    ) -> Self {
        let ports = ports as usize;
        // SAFETY: the caller promises PORTS, and atomics have the layout of their numbers.
        unsafe {
            Self {
                primary: core::slice::from_raw_parts(primary as *const AtomicU32, ports),
                secondary: core::slice::from_raw_parts(secondary as *const AtomicU32, ports),
                headers: core::slice::from_raw_parts(headers as *const AtomicU64, 2 * ports),
                buffers: core::slice::from_raw_parts(
                    buffers as *const AtomicU64,
                    ports * lanes as usize * BUFFER_WORDS,
                ),
                lanes,
            }
        }
    }

    /// Ports.
    #[inline(always)]
    pub fn count(&self) -> u32 {
        self.primary.len() as u32
    }

    /// Lanes of a wave.
    #[inline(always)]
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// A port's header: the lanes' mask, and the opcode.
    #[inline(always)]
    pub(super) fn header(&self, port: u32) -> [&'m AtomicU64; 2] {
        [at(self.headers, 2 * port as usize), at(self.headers, 2 * port as usize + 1)]
    }

    /// A word of a lane's buffer.
    #[inline(always)]
    pub(super) fn word(&self, port: u32, lane: u32, word: usize) -> &'m AtomicU64 {
        let buffer = port as usize * self.lanes as usize + lane as usize;
        at(self.buffers, buffer * BUFFER_WORDS + word)
    }
}

impl<'m> Ports<'m> {
    /// A lane's buffer.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    #[inline(always)]
    pub(super) fn buffer(&self, port: u32, lane: u32) -> &'m [AtomicU64; BUFFER_WORDS] {
        let buffer = port as usize * self.lanes as usize + lane as usize;
        self.buffers[buffer * BUFFER_WORDS..].first_chunk().expect("a buffer has its words")
    }
}

#[inline(always)]
pub(super) fn at<T>(words: &[T], index: usize) -> &T {
    #[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
    // SAFETY: a device computes `index` from a port that it opened, its own lane and words of a buffer, which
    // the slices cover (PORTS); the check would cost registers in every kernel.
    return unsafe { words.get_unchecked(index) };
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    &words[index]
}

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod memory {
    use super::super::layout::Layout;
    use super::*;
    use crate::primitive::Ordering;
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    #[cfg(not(loom))]
    use core::ptr::NonNull;
    use std::sync::{Mutex, PoisonError};

    /// Shared memory of LLVM's protocol, owned by the host.
    pub struct PortMemory {
        #[cfg(not(loom))]
        start: NonNull<u8>,
        #[cfg(not(loom))]
        device_address: u64,
        #[cfg(loom)]
        words: Words,
        layout: Layout,
        #[cfg(not(loom))]
        owner: Owner,
        /// What clients use besides.
        kept: Mutex<Vec<Box<dyn Send>>>,
    }

    #[cfg(not(loom))]
    enum Owner {
        Heap,
        Other(#[expect(dead_code, reason = "kept for its drop")] Box<dyn Send + Sync>),
    }

    #[cfg(loom)]
    struct Words {
        primary: Vec<AtomicU32>,
        secondary: Vec<AtomicU32>,
        headers: Vec<AtomicU64>,
        buffers: Vec<AtomicU64>,
    }

    // SAFETY: the words are atomics (PORTS), the owner is Send and Sync, and a lock is around the rest, which is Send.
    #[cfg(not(loom))]
    unsafe impl Send for PortMemory {}
    // SAFETY: as above.
    #[cfg(not(loom))]
    unsafe impl Sync for PortMemory {}

    impl PortMemory {
        /// Ordinary memory of this process, for a device that is this process. Pages that nobody touches cost
        /// nothing.
        #[cfg(not(loom))]
        pub fn allocate(layout: Layout) -> Self {
            let size = Self::heap_layout(&layout);
            // SAFETY: the size is not zero, since every layout has a port.
            let start = unsafe { alloc::alloc::alloc_zeroed(size) };
            let Some(start) = NonNull::new(start) else { alloc::alloc::handle_alloc_error(size) };
            let device_address = start.as_ptr().expose_provenance() as u64;
            Self { start, device_address, layout, owner: Owner::Heap, kept: Mutex::default() }
        }

        #[cfg(not(loom))]
        fn heap_layout(layout: &Layout) -> core::alloc::Layout {
            core::alloc::Layout::from_size_align(layout.bytes(), 64)
                .expect("a layout is less than 2^63 bytes")
        }

        /// Memory that `owner` keeps, such as pages pinned for a GPU.
        ///
        /// # Safety
        /// `start` points to `layout.bytes()` zeroed bytes, 64-byte aligned, that stay mapped until `owner` is
        /// dropped, and nothing but this protocol accesses them. The device has them at `device_address`.
        #[cfg(not(loom))]
        pub unsafe fn from_parts(
            start: NonNull<u8>,
            device_address: u64,
            layout: Layout,
            owner: Box<dyn Send + Sync>,
        ) -> Self {
            Self { start, device_address, layout, owner: Owner::Other(owner), kept: Mutex::default() }
        }

        /// Memory of loom's.
        #[cfg(loom)]
        pub fn allocate(layout: Layout) -> Self {
            let ports = layout.ports() as usize;
            let small = || (0..ports).map(|_| AtomicU32::new(0)).collect();
            let large = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
            let words = Words {
                primary: small(),
                secondary: small(),
                headers: large(2 * ports),
                buffers: large(ports * layout.lanes() as usize * BUFFER_WORDS),
            };
            Self { words, layout, kept: Mutex::default() }
        }

        /// Keeps `what` for as long as the memory lives. Whoever launches a client's kernels keeps the memory until they
        /// have ended, so they may use what is kept here to their end.
        pub fn keep(&self, what: impl Send + 'static) {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(what));
        }

        /// Returns whether nobody has used a port yet, as the memory tells.
        pub fn is_new(&self) -> bool {
            let Ports { primary, secondary, .. } = self.ports();
            primary.iter().chain(secondary).all(|word| word.load(Ordering::Relaxed) == 0)
        }

        /// Its sizes.
        pub fn layout(&self) -> &Layout {
            &self.layout
        }

        /// The view of the memory.
        #[inline]
        pub fn ports(&self) -> Ports<'_> {
            #[cfg(not(loom))]
            {
                let places = [
                    self.layout.primary(),
                    self.layout.secondary(),
                    self.layout.headers(),
                    self.layout.buffers(),
                ];
                let address = self.start.as_ptr().expose_provenance();
                // SAFETY: the memory has the layout's bytes and lives as long as `self`, zeroed at first and
                // since then accessed only as atomics.
                unsafe {
                    Ports::from_addresses(
                        places.map(|place| address + place),
                        self.layout.ports(),
                        self.layout.lanes(),
                    )
                }
            }
            #[cfg(loom)]
            Ports {
                primary: &self.words.primary,
                secondary: &self.words.secondary,
                headers: &self.words.headers,
                buffers: &self.words.buffers,
                lanes: self.layout.lanes(),
            }
        }

        /// Returns the address on the device.
        #[cfg(not(loom))]
        pub fn device_address(&self) -> u64 {
            self.device_address
        }

        /// The client object that the device finds the memory by.
        #[cfg(not(loom))]
        pub fn client_object(&self) -> Vec<u8> {
            self.layout.client_object(self.device_address)
        }
    }

    #[cfg(not(loom))]
    impl Drop for PortMemory {
        fn drop(&mut self) {
            if matches!(self.owner, Owner::Heap) {
                // SAFETY: `allocate` got the memory with the same size and alignment, and nothing borrows it
                // any more.
                unsafe { alloc::alloc::dealloc(self.start.as_ptr(), Self::heap_layout(&self.layout)) };
            }
        }
    }
}

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use memory::PortMemory;
