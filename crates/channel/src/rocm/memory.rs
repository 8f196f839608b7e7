//! A buffer's memory, owned by the host.

use super::layout::{Layout, Version};
#[cfg(not(loom))]
use super::packets::{Packets, Parts, PhaseRoot, StackRoot};
use crate::primitive::Ordering;
#[cfg(not(loom))]
use alloc::boxed::Box;
use core::sync::atomic::AtomicBool;

/// Where a device finds parts of a buffer.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug)]
pub struct DevicePlaces {
    /// The buffer's address on the device.
    pub address: u64,
    /// The handle of a signal that the device counts up when it submits a packet. `None` for the buffer's own, at which
    /// nobody looks: the host polls.
    pub doorbell: Option<u64>,
    /// The address of zeroed words in the device's own memory for [`Layout::occupied`]. `None` for those of the buffer.
    pub occupied: Option<u64>,
}

/// The kind of a signal whose value is a word in memory, in HSA's structure of a signal.
#[cfg(not(loom))]
const USER_SIGNAL: u64 = 1;

/// A buffer of packets.
pub struct PacketMemory {
    #[cfg(not(loom))]
    start: core::ptr::NonNull<u8>,
    #[cfg(not(loom))]
    places: DevicePlaces,
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
        let address = start.as_ptr().expose_provenance() as u64;
        let places = DevicePlaces { address, doorbell: None, occupied: None };
        let memory = Self { start, places, owner: Owner::Heap, layout, served: AtomicBool::new(false) };
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
    /// dropped, and everybody who accesses them meanwhile does so atomically. The device has them, and the other places,
    /// where `places` says.
    pub unsafe fn from_parts(
        start: core::ptr::NonNull<u8>,
        places: DevicePlaces,
        layout: Layout,
        owner: Box<dyn Send + Sync>,
    ) -> Self {
        Self { start, places, owner: Owner::Other(owner), layout, served: AtomicBool::new(false) }
    }

    /// The address that kernels get for their hidden argument.
    pub fn device_address(&self) -> u64 {
        self.places.address
    }

    /// Makes all packets free and tells the device its places. No device uses the buffer yet.
    pub fn initialize(&self) {
        let (layout, base) = (&self.layout, self.places.address);
        let at = |place: usize| base + place as u64;
        let doorbell = self.places.doorbell.unwrap_or(at(layout.signal()));
        let signal = self.word(layout.signal());
        signal[0].store(USER_SIGNAL, Ordering::Relaxed);
        signal[1..].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        match self.packets().parts {
            Parts::Stacks { root, headers } => {
                root.headers.store(at(layout.headers()), Ordering::Relaxed);
                root.payloads.store(at(layout.payloads()), Ordering::Relaxed);
                root.doorbell.store(doorbell, Ordering::Relaxed);
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
            Parts::Phases { device, host, occupied, .. } => {
                // SAFETY: the buffer begins with the root, which is smaller and less aligned than what precedes its
                // signal (PACKETS).
                let root = unsafe { &*self.start.as_ptr().cast::<PhaseRoot>() };
                for words in [device, host, occupied] {
                    words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
                }
                root.device_phases.store(at(layout.device_phases()), Ordering::Relaxed);
                root.host_phases.store(at(layout.host_phases()), Ordering::Relaxed);
                root.occupied.store(self.places.occupied.unwrap_or(at(layout.occupied())), Ordering::Relaxed);
                root.headers.store(at(layout.headers()), Ordering::Relaxed);
                root.payloads.store(at(layout.payloads()), Ordering::Relaxed);
                root.doorbell.store(doorbell, Ordering::Relaxed);
                root.packets.store(layout.packets(), Ordering::Release);
            }
        }
    }

    /// Gives the device another doorbell, `None` for the buffer's own.
    pub fn set_doorbell(&self, doorbell: Option<u64>) {
        let doorbell = doorbell.unwrap_or(self.places.address + self.layout.signal() as u64);
        // The root's word is the third, or the sixth.
        let place = match self.layout.version() {
            Version::Stacks => 2,
            Version::Phases => 5,
        };
        self.word(0)[place].store(doorbell, Ordering::Release);
    }

    /// The 64 bytes at a place of the buffer's head, as words.
    fn word(&self, place: usize) -> &[crate::primitive::AtomicU64; 8] {
        debug_assert!(place + 64 <= 128);
        // SAFETY: PACKETS: the buffer is aligned and has at least the 128 bytes of its head.
        unsafe { &*self.start.as_ptr().add(place).cast() }
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
