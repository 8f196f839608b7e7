//! The memory of a raw channel. Launches keep it, but not the channel.

use super::Placement;
use crate::device::core::Core;
use crate::device::error::Error;
use crate::device::graph::check_allocation;
use hostcall_abi::raw::{
    FOREIGN_STATES, ForeignRawParams, RAW_RING_BYTES, RAW_STATE_BYTES, RawLayout, RawParams, RawRingWords,
    RawStateWords,
};
use hostcall_channel::raw::{RawRegion, Run};
use hostcall_seam::{Backend, BackendError, DeviceAddress, Memory as DeviceMemory, Pinned, Queue};
use std::mem::offset_of;
use std::sync::Arc;

pub(super) const STATE_WORDS: usize = RAW_STATE_BYTES / 8;

/// What staged channels have in memory of the device.
struct Staged {
    pages: Arc<dyn DeviceMemory>,
    /// A copy of the ring of free pages: a wave that takes one reads nothing over the link.
    free: Arc<dyn DeviceMemory>,
}

pub(crate) struct Memory {
    shared: Arc<dyn Pinned>,
    /// The host's pages, which readers read.
    pages: Arc<dyn Pinned>,
    staged: Option<Staged>,
    states: Arc<dyn DeviceMemory>,
    ring: Arc<dyn DeviceMemory>,
    pub layout: RawLayout,
    home_slots: u32,
}

impl Memory {
    /// Allocates it for `call`.
    pub fn new(
        core: &Core,
        layout: RawLayout,
        home_slots: u32,
        placement: Placement,
        call: &'static str,
    ) -> Result<Self, Error> {
        check_allocation(core, call)?;
        let backend = &core.backend;
        let page_bytes = layout.data_words() as usize * 8;
        let staged = match placement {
            Placement::Direct => None,
            Placement::Staged => Some(Staged {
                pages: backend.allocate(page_bytes)?,
                free: backend.allocate(layout.pages() as usize * 8)?,
            }),
        };
        Ok(Self {
            shared: backend.pin(layout.words() as usize * 8)?,
            pages: backend.pin(page_bytes)?,
            staged,
            states: backend.allocate((home_slots + FOREIGN_STATES) as usize * RAW_STATE_BYTES)?,
            ring: backend.allocate(RAW_RING_BYTES)?,
            layout,
            home_slots,
        })
    }

    /// The parameters as kernels take them.
    pub fn params(&self) -> RawParams {
        let shared = self.shared.address();
        let [data, free] = match &self.staged {
            Some(Staged { pages, free }) => [pages.address(), free.address()],
            None => [self.pages.address(), shared.offset(u64::from(self.layout.free_at(0)) * 8)],
        };
        RawParams {
            states: self.states.address().get(),
            ring: self.ring.address().get(),
            shared: shared.get(),
            data: data.get(),
            free: free.get(),
            layout: self.layout,
        }
    }

    /// The parameters for kernels that other compilers made, without what is a launch's own.
    pub fn foreign_params(&self, waits: bool) -> ForeignRawParams {
        self.params().foreign(self.home_slots, waits)
    }

    /// Whether waves fill pages in memory of the device.
    pub fn is_staged(&self) -> bool {
        self.staged.is_some()
    }

    pub fn region(&self) -> RawRegion<'_> {
        let address = |memory: &dyn Pinned| memory.host_address().as_ptr().expose_provenance() as u64;
        // SAFETY: the memories have so many words, aligned to 256 bytes, as long as `self`; host, kernels and copy engines
        // access them as raw channels do.
        unsafe { RawRegion::from_addresses(address(&*self.shared), address(&*self.pages), self.layout) }
    }

    /// Has a queue copy bytes of the device's pages to the host's.
    ///
    /// # Panics
    /// When the run does not lie in the pages, or they are not staged.
    ///
    /// # Safety
    /// RAW-COPY; the memory lives until the copy has ended.
    pub unsafe fn copy(&self, queue: &dyn Queue, run: Run) -> Result<(), BackendError> {
        let staged = &self.staged.as_ref().expect("staged pages").pages;
        let end = run.from.checked_add(run.bytes).expect("a run of the pages");
        assert!(end <= staged.len().min(self.pages.len()) as u64 && (run.from | run.bytes).is_multiple_of(8));
        // SAFETY: the bytes lie in the pages, as checked.
        let to = unsafe { self.pages.host_address().add(run.from as usize) };
        // SAFETY: both sides have so many words, by the caller's promise until the copy has ended; waves and readers access
        // them atomically.
        unsafe { queue.read_words(to.as_ptr(), staged.address().offset(run.from), run.bytes as usize) }
    }

    /// Has a queue copy entries of the ring of free pages to the device, from these positions.
    ///
    /// # Panics
    /// When pages are not staged, or there are fewer entries.
    ///
    /// # Safety
    /// The memory lives until the copy has ended.
    pub unsafe fn copy_free(&self, queue: &dyn Queue, from: u64, entries: u64) -> Result<(), BackendError> {
        let free = &self.staged.as_ref().expect("staged pages").free;
        let pages = u64::from(self.layout.pages());
        assert!(entries <= pages, "entries of the ring");
        let place = u64::from(self.layout.place_in_ring(from));
        let first = entries.min(pages - place);
        for (place, entries) in [(place, first), (0, entries - first)] {
            if entries == 0 {
                continue;
            }
            // SAFETY: the ring lies in the control words, from its first entry on.
            let from = unsafe { self.shared.host_address().add(self.layout.free_at(place) as usize * 8) };
            // SAFETY: both sides have so many words, by the caller's promise until the copy has ended; the host and waves
            // access them atomically.
            unsafe {
                queue.write_words(free.address().offset(place * 8), from.as_ptr(), entries as usize * 8)
            }?;
        }
        Ok(())
    }

    /// A word of a state; `None` when the device fails.
    pub fn state_word(&self, backend: &dyn Backend, slot: u32, word: usize) -> Option<u64> {
        let at = slot as usize * RAW_STATE_BYTES + word * 8;
        assert!(at + 8 <= self.states.len(), "a state that the channel has");
        let [value] = self.load(backend, self.states.address().offset(at as u64))?;
        Some(value)
    }

    /// All states; `None` when the device fails.
    pub fn states(&self, backend: &dyn Backend) -> Option<Vec<[u64; STATE_WORDS]>> {
        let mut bytes = vec![0; self.states.len()];
        // SAFETY: so many bytes lie there, which waves write as whole words or halves of them.
        unsafe { backend.load_words(self.states.address(), &mut bytes, 8) }.ok()?;
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>();
        Some(words.as_chunks().0.to_vec())
    }

    /// Notes in a slot's state that no page is open for it. What fails is a device that is gone.
    pub fn forget_page(&self, backend: &dyn Backend, slot: u32) {
        let at = slot as usize * RAW_STATE_BYTES + offset_of!(RawStateWords, page);
        assert!(at + 4 <= self.states.len(), "a state that the channel has");
        // SAFETY: the state lies there, and no wave has the slot.
        let _ = unsafe { backend.store_words(self.states.address().offset(at as u64), &[0; 4], 4) };
    }

    /// How waves share the free pages; `None` when the device fails.
    pub fn ring(&self, backend: &dyn Backend) -> Option<RawRingWords> {
        let [head, known] = self.load(backend, self.ring.address())?;
        Some(RawRingWords { head, known })
    }

    fn load<const N: usize>(&self, backend: &dyn Backend, at: DeviceAddress) -> Option<[u64; N]> {
        let mut words = [0u8; 16];
        let bytes = &mut words[..8 * N];
        // SAFETY: words of the channel's lie there, which waves access atomically or which no wave has.
        unsafe { backend.load_words(at, bytes, 8) }.ok()?;
        Some(std::array::from_fn(|i| u64::from_le_bytes(bytes.as_chunks().0[i])))
    }
}
