//! The memory of a buffer, as words.

use super::layout::SLOT_WORDS;
use crate::primitive::{AtomicU32, AtomicU64};

/// Lanes whose words there are. The model checker has time for one.
#[cfg(not(loom))]
pub(super) const PAYLOAD_LANES: usize = super::LANES as usize;
#[cfg(loom)]
pub(super) const PAYLOAD_LANES: usize = 1;

/// What a kernel's hidden argument points to, with stacks.
#[repr(C)]
pub(super) struct StackRoot {
    /// Addresses, for the device.
    pub headers: AtomicU64,
    pub payloads: AtomicU64,
    pub doorbell: AtomicU64,
    /// Packets that nobody has.
    pub free: AtomicU64,
    /// Packets that wait for the host.
    pub ready: AtomicU64,
    pub index_mask: AtomicU64,
}

/// What a kernel's hidden argument points to, with phases.
#[cfg(not(loom))]
#[repr(C)]
pub(super) struct PhaseRoot {
    /// Addresses, for the device.
    pub device_phases: AtomicU64,
    pub host_phases: AtomicU64,
    pub occupied: AtomicU64,
    pub headers: AtomicU64,
    pub payloads: AtomicU64,
    pub doorbell: AtomicU64,
    pub packets: AtomicU32,
}

/// A packet's header, with stacks.
#[repr(C)]
pub(super) struct StackHeader {
    /// The packet below this one in its stack.
    pub next: AtomicU64,
    pub mask: AtomicU64,
    pub service: AtomicU32,
    /// Bit 0: the packet is not answered.
    pub control: AtomicU32,
}

/// A packet's header, with phases.
#[repr(C)]
pub(super) struct PhaseHeader {
    pub mask: AtomicU64,
    pub service: AtomicU32,
    pub unused: AtomicU32,
}

/// The words of a packet's lanes.
#[repr(C)]
pub(super) struct Payload(pub [[AtomicU64; SLOT_WORDS]; PAYLOAD_LANES]);

/// What differs between the versions.
#[derive(Clone, Copy)]
pub(super) enum Parts<'m> {
    Stacks {
        root: &'m StackRoot,
        headers: &'m [StackHeader],
    },
    Phases {
        #[cfg(not(loom))]
        root: &'m PhaseRoot,
        device: &'m [AtomicU32],
        host: &'m [AtomicU32],
        headers: &'m [PhaseHeader],
        /// One bit a packet; the device's alone.
        occupied: &'m [AtomicU32],
    },
}

/// A view of a buffer's memory (invariant PACKETS).
#[derive(Clone, Copy)]
pub struct Packets<'m> {
    pub(super) parts: Parts<'m>,
    pub(super) payloads: &'m [Payload],
}

impl<'m> Packets<'m> {
    /// Packets of the buffer.
    #[inline]
    pub fn count(&self) -> u32 {
        self.payloads.len() as u32
    }

    /// A lane's words.
    #[inline]
    pub(super) fn lane(&self, packet: u32, lane: u32) -> &'m [AtomicU64; SLOT_WORDS] {
        &self.payloads[packet as usize].0[lane as usize]
    }

    /// A packet's mask and service.
    #[inline]
    pub(super) fn head(&self, packet: u32) -> (&'m AtomicU64, &'m AtomicU32) {
        match self.parts {
            Parts::Stacks { headers, .. } => {
                let header = &headers[packet as usize];
                (&header.mask, &header.service)
            }
            Parts::Phases { headers, .. } => {
                let header = &headers[packet as usize];
                (&header.mask, &header.service)
            }
        }
    }
}
