//! Trace points of kernels that others launch: where these write.
//!
//! Such kernels come from contexts ([`crate::Context`]), and nobody tells when their waves end. So a page is open for a place, of
//! which each wave has one ([`hostcall_abi::context::PointsParams`]), and records say by themselves that they are there.

use super::Memory;
use crate::device::core::Core;
use crate::device::error::Error;
use crate::device::here::here;
use hostcall_abi::bytes::IntoBytes;
use hostcall_abi::context::{POINTS_BYTES, PointsParams};
use hostcall_abi::raw::RawLayout;
use hostcall_seam::{Backend, BackendError, DeviceAddress, DeviceKind, Memory as DeviceMemory};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Of a channel's pages, but for one that each home slot may have open, the part of which places have one open at most.
const PART_OF_PAGES: u32 = 2;

/// Where kernels of others write trace points of a device.
pub(crate) struct WrittenByOthers {
    /// The channel's, once there is one: kept as long as kernels may write there.
    memory: OnceLock<Arc<Memory>>,
    /// Not kept: kernels may have the address until the process ends.
    backend: Weak<dyn Backend>,
    /// The parameters, and the places behind them.
    block: Arc<dyn DeviceMemory>,
    /// Whether a kernel may have the address.
    may_run: AtomicBool,
}

impl WrittenByOthers {
    /// Places of a channel that is made when points are first recorded.
    pub fn new(core: &Core, layout: RawLayout, home_slots: u32) -> Result<Self, Error> {
        let backend = core.backend.clone();
        let pages = layout.pages().saturating_sub(home_slots) / PART_OF_PAGES;
        let places = home_slots.min(pages).max(1);
        let block = backend.allocate(POINTS_BYTES + places as usize * size_of::<u64>())?;
        let is_software = backend.properties().kind == DeviceKind::Software;
        let params = PointsParams {
            states: block.address().offset(POINTS_BYTES as u64).get(),
            places,
            here: if is_software { here as *const () as u64 } else { 0 },
            ..PointsParams::default()
        };
        // SAFETY: the memory is new, and longer.
        unsafe { backend.write_now(block.address(), params.as_bytes()) }?;
        let backend = Arc::downgrade(&backend);
        Ok(Self { memory: OnceLock::new(), backend, block, may_run: AtomicBool::new(false) })
    }

    /// Says where the channel is, before points are switched on.
    pub fn connect(&self, memory: &Arc<Memory>) -> Result<(), BackendError> {
        let _ = self.memory.set(memory.clone());
        self.store(offset_of!(PointsParams, raw), memory.foreign_params(false).as_bytes(), 8)
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

    /// Returns the address for a context, whose kernels may write there from now on until the process ends.
    pub fn give(&self) -> DeviceAddress {
        self.may_run.store(true, Ordering::SeqCst);
        self.block.address()
    }
}
