//! Trace points of kernels that others launch: where these write, and what they have written by now.
//!
//! Such kernels come from contexts ([`crate::Context`]), and nobody tells when their waves end. So a page is open for a place that
//! waves take one after the other ([`hostcall_abi::context::PointsParams`]), and the host learns how far it is written in three
//! ways: from the wave that fills it, from the first wave that writes in a period of the device's clock, and by
//! [`PointsOfOthers::tell`], which looks at the places.

use super::Memory;
use crate::device::core::Core;
use crate::device::error::Error;
use crate::device::here::here;
use crate::device::inner::PointsOfOthers;
use hostcall_abi::bytes::IntoBytes;
use hostcall_abi::context::{MOST_PLACE_PAGE_BYTES, PLACE_BYTES, POINTS_BYTES, PlaceState, PointsParams};
use hostcall_abi::raw::ForeignRawParams;
use hostcall_abi::raw::{Place, RawLayout};
use hostcall_seam::{Backend, BackendError, DeviceAddress, DeviceKind, Memory as DeviceMemory};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Of a channel's pages, but for one that each home slot may have open, the part of which places have one open at most.
const PART_OF_PAGES: u32 = 2;

/// Where kernels of others write trace points of a device.
pub(crate) struct WrittenByOthers {
    /// The channel's, once there is one.
    memory: OnceLock<Arc<Memory>>,
    /// Not kept: kernels may have the address until the process ends.
    backend: Weak<dyn Backend>,
    /// The parameters, and the places behind them.
    block: Arc<dyn DeviceMemory>,
    places: u32,
    /// Whether a kernel may have the address.
    may_run: AtomicBool,
}

impl WrittenByOthers {
    /// Places of a channel that is made when points are first recorded.
    pub fn new(core: &Core, layout: RawLayout, home_slots: u32) -> Result<Self, Error> {
        let backend = core.backend.clone();
        assert!(layout.page_bytes() <= MOST_PLACE_PAGE_BYTES, "pages of which a place counts the bytes");
        let pages = layout.pages().saturating_sub(home_slots) / PART_OF_PAGES;
        let places = home_slots.min(pages).max(1);
        let block = backend.allocate(POINTS_BYTES + places as usize * PLACE_BYTES)?;
        let is_software = backend.properties().kind == DeviceKind::Software;
        let params = PointsParams {
            raw: ForeignRawParams::default(),
            states: block.address().offset(POINTS_BYTES as u64).get(),
            places,
            switch: 0,
            sampled: 0,
            here: if is_software { here as *const () as u64 } else { 0 },
            reserved: [0; 3],
        };
        // SAFETY: the memory is new, and longer.
        unsafe { backend.write_now(block.address(), params.as_bytes()) }?;
        let backend = Arc::downgrade(&backend);
        Ok(Self { memory: OnceLock::new(), backend, block, places, may_run: AtomicBool::new(false) })
    }

    /// Says where the channel is, before points are switched on.
    pub fn connect(&self, memory: &Arc<Memory>) -> Result<(), BackendError> {
        let params = memory.foreign_params(false);
        self.store(offset_of!(PointsParams, raw), params.as_bytes(), 8)?;
        let _ = self.memory.set(memory.clone());
        Ok(())
    }

    /// Says the switch's number, or 0 where points are off.
    pub fn set(&self, switch: u32) -> Result<(), BackendError> {
        self.store(offset_of!(PointsParams, switch), &switch.to_le_bytes(), 4)
    }

    fn store(&self, at: usize, bytes: &[u8], width: usize) -> Result<(), BackendError> {
        // A device that is gone runs no kernel.
        let Some(backend) = self.backend.upgrade() else { return Ok(()) };
        // SAFETY: so many bytes lie there; kernels read them atomically, or after the switch has said that they are there.
        unsafe { backend.store_words(self.block.address().offset(at as u64), bytes, width) }
    }

    /// Whether kernels of others may write at any time.
    pub fn may_write(&self) -> bool {
        self.may_run.load(Ordering::SeqCst)
    }

    /// The words of all places; `None` when the device fails or is gone.
    fn places(&self) -> Option<Vec<[u64; 2]>> {
        let mut bytes = vec![0; self.places as usize * PLACE_BYTES];
        let from = self.block.address().offset(POINTS_BYTES as u64);
        // SAFETY: so many bytes lie there, which kernels access as whole words.
        unsafe { self.backend.upgrade()?.load_words(from, &mut bytes, 8) }.ok()?;
        let words: Vec<_> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        Some(words.as_chunks().0.to_vec())
    }
}

impl PointsOfOthers for WrittenByOthers {
    fn give(&self) -> DeviceAddress {
        self.may_run.store(true, Ordering::SeqCst);
        self.block.address()
    }

    fn tell(&self) {
        let Some(memory) = self.memory.get().filter(|_| self.may_write()) else { return };
        // A wave changes both words of a place while it holds it. What two looks find, one after the other, belongs together.
        let (Some(before), Some(after)) = (self.places(), self.places()) else { return };
        let region = memory.region();
        for (place, _) in before.iter().zip(&after).filter(|(before, after)| before == after) {
            let [state, ticket] = *place;
            if let Some(state) = PlaceState::of_word(state)
                && let Some(page) = state.page.checked_sub(1)
            {
                region.tell_place(page, Place::of_parts(ticket, state.bytes));
            }
        }
    }
}
