//! A buffer's memory, owned by the host.

use super::layout::{Layout, Version};
#[cfg(not(loom))]
use super::packets::{Packets, Parts, PhaseRoot, StackRoot};
use crate::primitive::Ordering;
#[cfg(not(loom))]
use alloc::boxed::Box;
use core::sync::atomic::AtomicBool;

/// The kind of a signal whose value is a word in memory, in HSA's structure of a signal.
#[cfg(not(loom))]
const USER_SIGNAL: u64 = 1;

/// A buffer of packets.
pub struct PacketMemory {
    #[cfg(not(loom))]
    start: core::ptr::NonNull<u8>,
    #[cfg(not(loom))]
    device_address: u64,
    #[cfg(not(loom))]
    owner: Owner,
    #[cfg(loom)]
    parts: loom_memory::Owned,
    layout: Layout,
    /// A consumer serves it.
    served: AtomicBool,
}

#[cfg(not(loom))]
enum Owner {
    Heap,
    Other(#[expect(dead_code, reason = "kept for its drop")] Box<dyn Send + Sync>),
}

// SAFETY: the words are atomics (PACKETS), and the owner is Send and Sync.
#[cfg(not(loom))]
unsafe impl Send for PacketMemory {}
// SAFETY: as above.
#[cfg(not(loom))]
unsafe impl Sync for PacketMemory {}

impl PacketMemory {
    /// Its sizes.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Marks the buffer as one that a consumer serves. Returns `false` when one does already.
    pub fn begin_serving(&self) -> bool {
        !self.served.swap(true, Ordering::AcqRel)
    }

    /// Takes the mark of [`PacketMemory::begin_serving`] off.
    pub fn end_serving(&self) {
        self.served.store(false, Ordering::Release);
    }
}

#[cfg(not(loom))]
impl PacketMemory {
    /// Ordinary memory of this process with a buffer whose packets are all free, for a device that is this process. Pages
    /// that nobody touches cost nothing.
    pub fn allocate(layout: Layout) -> Self {
        let size = Self::heap_layout(&layout);
        // SAFETY: the size is not zero, since every layout has a root.
        let start = unsafe { alloc::alloc::alloc_zeroed(size) };
        let Some(start) = core::ptr::NonNull::new(start) else { alloc::alloc::handle_alloc_error(size) };
        let device_address = start.as_ptr().expose_provenance() as u64;
        let (owner, served) = (Owner::Heap, AtomicBool::new(false));
        let memory = Self { start, device_address, owner, layout, served };
        memory.initialize();
        memory
    }

    fn heap_layout(layout: &Layout) -> core::alloc::Layout {
        core::alloc::Layout::from_size_align(layout.bytes(), super::ALIGN)
            .expect("a layout is less than 2^63 bytes")
    }

    /// Memory that `owner` keeps, such as pages pinned for a GPU. [`PacketMemory::initialize`] makes all packets free.
    ///
    /// # Safety
    /// `start` points to `layout.bytes()` bytes, aligned to [`super::ALIGN`], that stay mapped until the value returned is
    /// dropped, and everybody who accesses them meanwhile does so atomically. The device has them at `device_address`.
    pub unsafe fn from_parts(
        start: core::ptr::NonNull<u8>,
        device_address: u64,
        layout: Layout,
        owner: Box<dyn Send + Sync>,
    ) -> Self {
        let (owner, served) = (Owner::Other(owner), AtomicBool::new(false));
        Self { start, device_address, owner, layout, served }
    }

    /// The address that kernels get for their hidden argument.
    pub fn device_address(&self) -> u64 {
        self.device_address
    }

    /// Makes all packets free and tells the device its places. No device uses the buffer yet.
    pub fn initialize(&self) {
        let layout = &self.layout;
        let at = |place: usize| self.device_address + place as u64;
        let [kind, others @ ..] = self.signal();
        kind.store(USER_SIGNAL, Ordering::Relaxed);
        others.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.reset_doorbell();
        match self.packets().parts {
            Parts::Stacks { root, headers } => {
                root.headers.store(at(layout.headers()), Ordering::Relaxed);
                root.payloads.store(at(layout.payloads()), Ordering::Relaxed);
                root.index_mask.store(layout.index_mask(), Ordering::Relaxed);
                // Packet 0 lies lowest, with a tag: a pointer is never 0.
                let mut top = 0;
                for (index, header) in headers.iter().enumerate() {
                    header.next.store(top, Ordering::Relaxed);
                    header.control.store(0, Ordering::Relaxed);
                    top = if index == 0 { layout.index_mask() + 1 } else { index as u64 };
                }
                root.ready.store(0, Ordering::Relaxed);
                root.free.store(top, Ordering::Release);
            }
            Parts::Phases { root, device, host, occupied, .. } => {
                for words in [device, host, occupied] {
                    words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
                }
                root.device_phases.store(at(layout.device_phases()), Ordering::Relaxed);
                root.host_phases.store(at(layout.host_phases()), Ordering::Relaxed);
                root.occupied.store(at(layout.occupied()), Ordering::Relaxed);
                root.headers.store(at(layout.headers()), Ordering::Relaxed);
                root.payloads.store(at(layout.payloads()), Ordering::Relaxed);
                root.packets.store(layout.packets(), Ordering::Release);
            }
        }
    }

    /// Gives the device the handle of a signal that it counts up when it submits a packet.
    ///
    /// # Safety
    /// The handle is that of a signal, which stays one until [`PacketMemory::reset_doorbell`] or another
    /// `set_doorbell` was called and no kernel has the buffer any more that may have read it before: kernels
    /// add at an address that they compute from the handle.
    pub unsafe fn set_doorbell(&self, doorbell: u64) {
        self.store_doorbell(doorbell);
    }

    /// Has the device count up the buffer's own signal, at which nobody looks: the host polls.
    pub fn reset_doorbell(&self) {
        self.store_doorbell(self.device_address + self.layout.signal() as u64);
    }

    fn store_doorbell(&self, doorbell: u64) {
        let word = match self.packets().parts {
            Parts::Stacks { root, .. } => &root.doorbell,
            Parts::Phases { root, .. } => &root.doorbell,
        };
        word.store(doorbell, Ordering::Release);
    }

    /// The buffer's own signal.
    fn signal(&self) -> &[crate::primitive::AtomicU64; 8] {
        // SAFETY: PACKETS: the layout has 64 bytes there, which are aligned.
        unsafe { &*self.start.as_ptr().add(self.layout.signal()).cast() }
    }

    /// The view of the memory.
    #[inline]
    pub fn packets(&self) -> Packets<'_> {
        let (layout, start) = (&self.layout, self.start.as_ptr());
        let count = layout.packets() as usize;
        // SAFETY: PACKETS: the memory has the layout's bytes and lives as long as `self`; the layout's places are in it,
        // apart from each other and aligned for their words, and all types are atomic words.
        unsafe {
            let parts = match layout.version() {
                Version::Stacks => Parts::Stacks {
                    root: &*start.cast::<StackRoot>(),
                    headers: core::slice::from_raw_parts(start.add(layout.headers()).cast(), count),
                },
                Version::Phases => Parts::Phases {
                    root: &*start.cast::<PhaseRoot>(),
                    device: core::slice::from_raw_parts(start.add(layout.device_phases()).cast(), count),
                    host: core::slice::from_raw_parts(start.add(layout.host_phases()).cast(), count),
                    headers: core::slice::from_raw_parts(start.add(layout.headers()).cast(), count),
                    occupied: core::slice::from_raw_parts(
                        start.add(layout.occupied()).cast(),
                        layout.occupied_words(),
                    ),
                },
            };
            let payloads = core::slice::from_raw_parts(start.add(layout.payloads()).cast(), count);
            Packets { parts, payloads }
        }
    }
}

#[cfg(not(loom))]
impl Drop for PacketMemory {
    fn drop(&mut self) {
        if matches!(self.owner, Owner::Heap) {
            // SAFETY: `allocate` got the memory with the same size and alignment, and nothing borrows it any more.
            unsafe { alloc::alloc::dealloc(self.start.as_ptr(), Self::heap_layout(&self.layout)) };
        }
    }
}

/// Memory of the model checker's.
#[cfg(loom)]
mod loom_memory {
    use super::super::packets::{
        PAYLOAD_LANES, Packets, Parts, Payload, PhaseHeader, StackHeader, StackRoot,
    };
    use super::*;
    use crate::primitive::{AtomicU32, AtomicU64};
    use alloc::vec::Vec;

    pub(super) struct Owned {
        root: StackRoot,
        stack_headers: Vec<StackHeader>,
        phase_headers: Vec<PhaseHeader>,
        device: Vec<AtomicU32>,
        host: Vec<AtomicU32>,
        occupied: Vec<AtomicU32>,
        payloads: Vec<Payload>,
    }

    fn many<T>(count: u32, make: impl Fn(u64) -> T) -> Vec<T> {
        (0..u64::from(count)).map(make).collect()
    }

    impl PacketMemory {
        /// A buffer whose packets are all free.
        pub fn allocate(layout: Layout) -> Self {
            let (count, word, half) = (layout.packets(), AtomicU64::new, AtomicU32::new);
            let step = layout.index_mask() + 1;
            let below = |index: u64| match index {
                0 => 0,
                1 => step,
                _ => index - 1,
            };
            let parts = Owned {
                root: StackRoot {
                    headers: word(0),
                    payloads: word(0),
                    doorbell: word(0),
                    free: word(if count == 1 { step } else { u64::from(count) - 1 }),
                    ready: word(0),
                    index_mask: word(layout.index_mask()),
                },
                stack_headers: many(count, |index| StackHeader {
                    next: word(below(index)),
                    mask: word(0),
                    service: half(0),
                    control: half(0),
                }),
                phase_headers: many(count, |_| PhaseHeader {
                    mask: word(0),
                    service: half(0),
                    unused: half(0),
                }),
                device: many(count, |_| half(0)),
                host: many(count, |_| half(0)),
                occupied: many(layout.occupied_words() as u32, |_| half(0)),
                payloads: many(count, |_| {
                    Payload(core::array::from_fn::<_, PAYLOAD_LANES, _>(|_| {
                        core::array::from_fn(|_| word(0))
                    }))
                }),
            };
            Self { parts, layout, served: AtomicBool::new(false) }
        }

        /// The view of the memory.
        pub fn packets(&self) -> Packets<'_> {
            let owned = &self.parts;
            let parts = match self.layout.version() {
                Version::Stacks => Parts::Stacks { root: &owned.root, headers: &owned.stack_headers },
                Version::Phases => Parts::Phases {
                    device: &owned.device,
                    host: &owned.host,
                    headers: &owned.phase_headers,
                    occupied: &owned.occupied,
                },
            };
            Packets { parts, payloads: &owned.payloads }
        }
    }
}
