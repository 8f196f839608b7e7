//! Device memory: allocations in the process's own address space, and checked access to them.
//!
//! Device addresses are addresses of the process, as HSA's shared virtual memory has it. Code on the device may
//! compute any address, so every access is looked up in the map of allocations first.
//!
//! **Invariant M.** A [`View`] holds the map's read lock. An allocation leaves the map, and its pages are given back,
//! only under the write lock. So what a view found in the map is mapped for as long as the view lives.
//!
//! Memory that the client pinned (`hsa_amd_memory_lock`) is the client's: it must stay mapped until the client
//! unlocks it, which the C interface demands of its caller.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use crate::exec::Fault;

/// Alignment of allocations.
pub const PAGE: usize = 4096;

/// What an allocation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Memory from a pool.
    Pool,
    /// Segments of a loaded code object.
    Code,
    /// The client's own memory, pinned.
    Pinned,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    bytes: usize,
    purpose: Use,
    /// How the memory was allocated, if this map did it.
    layout: Option<Layout>,
    /// How often the client pinned it.
    pins: usize,
    /// See [`Found::owner`].
    owner: u64,
}

type Regions = BTreeMap<u64, Region>;

/// The map of everything that device code may access.
#[derive(Debug, Default)]
pub struct Memory {
    regions: RwLock<Regions>,
    /// Whom a device's interrupt message wakes.
    interrupts: AtomicU64,
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where the allocation begins.
    pub base: u64,
    /// Its size in bytes.
    pub bytes: usize,
    /// What it is for.
    pub purpose: Use,
    /// Whose it is, by [`Memory::set_owner`]; 0 at first.
    pub owner: u64,
}

impl Memory {
    /// Makes an empty map.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Allocates memory that reads 0, and returns its address; `None` if there is not enough.
    pub fn allocate(&self, bytes: usize, purpose: Use) -> Option<u64> {
        let layout = Layout::from_size_align(bytes.max(1).checked_next_multiple_of(PAGE)?, PAGE).ok()?;
        // SAFETY: the layout has a size of at least one page.
        let pointer = unsafe { alloc_zeroed(layout) };
        if pointer.is_null() {
            return None;
        }
        let address = pointer.expose_provenance() as u64;
        let region = Region { bytes, purpose, layout: Some(layout), pins: 0, owner: 0 };
        self.regions.write().unwrap_or_else(PoisonError::into_inner).insert(address, region);
        Some(address)
    }

    /// Notes whose the allocation is that begins at the address.
    pub fn set_owner(&self, address: u64, owner: u64) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(region) = regions.get_mut(&address) {
            region.owner = owner;
        }
    }

    /// Frees an allocation of that purpose. Returns `false` if none begins at the address.
    pub fn free(&self, address: u64, purpose: Use) -> bool {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        match regions.get(&address) {
            Some(&Region { layout: Some(layout), purpose: found, .. }) if found == purpose => {
                regions.remove(&address);
                // SAFETY: the memory came from `alloc_zeroed` with this layout, and it was in the map until now, so
                // it was not freed. By invariant M nothing reaches it through a view any more.
                unsafe { dealloc(ptr::with_exposed_provenance_mut(address as usize), layout) };
                true
            }
            _ => false,
        }
    }

    /// Pins the client's memory. Returns `false` if it overlaps an allocation in part.
    pub fn pin(&self, address: u64, bytes: usize) -> bool {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let Some(end) = address.checked_add(bytes as u64) else { return false };
        if let Some(region) = regions.get_mut(&address)
            && region.layout.is_none()
        {
            region.bytes = region.bytes.max(bytes);
            region.pins += 1;
            return true;
        }
        if find(&regions, address, bytes).is_some() {
            return true;
        }
        let overlaps = find(&regions, address, 1).is_some() || regions.range(address..end).next().is_some();
        if !overlaps {
            regions.insert(address, Region { bytes, purpose: Use::Pinned, layout: None, pins: 1, owner: 0 });
        }
        !overlaps
    }

    /// Undoes one [`pin`](Self::pin). Returns `false` if no pinned memory begins at the address.
    pub fn unpin(&self, address: u64) -> bool {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let Some(region) = regions.get_mut(&address) else { return false };
        if region.layout.is_some() {
            return false;
        }
        region.pins -= 1;
        if region.pins == 0 {
            regions.remove(&address);
        }
        true
    }

    /// Returns the allocation that holds the address.
    pub fn find(&self, address: u64) -> Option<Found> {
        find(&self.regions.read().unwrap_or_else(PoisonError::into_inner), address, 1)
    }

    /// Opens the map for accesses. Allocating and freeing wait until the view is dropped, so views are short.
    pub fn view(&self) -> View<'_> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        View { regions, last: (0, 0), interrupts: &self.interrupts }
    }

    /// Returns how many interrupt messages the device has sent.
    pub fn interrupts(&self) -> u64 {
        self.interrupts.load(Ordering::Acquire)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let regions = self.regions.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (&address, region) in regions.iter() {
            if let Some(layout) = region.layout {
                // SAFETY: as in `free`; no view outlives the map.
                unsafe { dealloc(ptr::with_exposed_provenance_mut(address as usize), layout) };
            }
        }
    }
}

fn find(regions: &Regions, address: u64, bytes: usize) -> Option<Found> {
    let (&base, region) = regions.range(..=address).next_back()?;
    let inside = address - base <= region.bytes as u64 && region.bytes - (address - base) as usize >= bytes;
    inside.then_some(Found { base, bytes: region.bytes, purpose: region.purpose, owner: region.owner })
}

/// Checked access to device memory. See the module's invariant M.
#[derive(Debug)]
pub struct View<'a> {
    regions: RwLockReadGuard<'a, Regions>,
    /// The allocation that the last access found: its first address and the one behind its last.
    last: (u64, u64),
    interrupts: &'a AtomicU64,
}

macro_rules! accesses {
    ($($load:ident, $store:ident, $type:ty, $atomic:ty;)*) => {$(
        /// Loads a number at any address.
        ///
        /// # Errors
        ///
        /// No allocation holds the bytes.
        #[inline]
        pub fn $load(&mut self, address: u64) -> Result<$type, Fault> {
            const BYTES: usize = size_of::<$type>();
            let pointer = self.check(address, BYTES, false)?;
            if address % BYTES as u64 == 0 {
                // SAFETY: the bytes are mapped (invariant M) and aligned; other threads access them atomically or
                // are in a data race of the client's making, as on any device.
                return Ok(unsafe { <$atomic>::from_ptr(pointer.cast()) }.load(Ordering::Relaxed));
            }
            let mut bytes = [0; BYTES];
            self.read_bytes(pointer, &mut bytes);
            Ok(<$type>::from_le_bytes(bytes))
        }

        /// Stores a number at any address.
        ///
        /// # Errors
        ///
        /// No allocation holds the bytes.
        #[inline]
        pub fn $store(&mut self, address: u64, value: $type) -> Result<(), Fault> {
            const BYTES: usize = size_of::<$type>();
            let pointer = self.check(address, BYTES, true)?;
            if address % BYTES as u64 == 0 {
                // SAFETY: as for loads.
                unsafe { <$atomic>::from_ptr(pointer.cast()) }.store(value, Ordering::Relaxed);
            } else {
                self.write_bytes(pointer, &value.to_le_bytes());
            }
            Ok(())
        }
    )*};
}

impl View<'_> {
    /// Returns a pointer to the bytes if one allocation holds them all.
    #[inline]
    fn check(&mut self, address: u64, bytes: usize, write: bool) -> Result<*mut u8, Fault> {
        let (first, end) = self.last;
        if address >= first && address <= end && end - address >= bytes as u64 {
            return Ok(ptr::with_exposed_provenance_mut(address as usize));
        }
        let found = find(&self.regions, address, bytes).ok_or(Fault::Memory { address, write })?;
        self.last = (found.base, found.base + found.bytes as u64);
        Ok(ptr::with_exposed_provenance_mut(address as usize))
    }

    accesses! {
        load_u8, store_u8, u8, AtomicU8;
        load_u16, store_u16, u16, AtomicU16;
        load_u32, store_u32, u32, AtomicU32;
        load_u64, store_u64, u64, AtomicU64;
    }

    #[cold]
    fn read_bytes(&self, pointer: *mut u8, bytes: &mut [u8]) {
        for (offset, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: `check` found all of the bytes mapped (invariant M).
            *byte = unsafe { AtomicU8::from_ptr(pointer.add(offset)) }.load(Ordering::Relaxed);
        }
    }

    #[cold]
    fn write_bytes(&self, pointer: *mut u8, bytes: &[u8]) {
        for (offset, byte) in bytes.iter().enumerate() {
            // SAFETY: as in `read_bytes`.
            unsafe { AtomicU8::from_ptr(pointer.add(offset)) }.store(*byte, Ordering::Relaxed);
        }
    }

    /// Changes a number of 32 bits atomically, and returns the old one.
    ///
    /// # Errors
    ///
    /// No allocation holds the bytes, or the address is no multiple of 4.
    pub fn update_u32(&mut self, address: u64, f: impl Fn(u32) -> u32) -> Result<u32, Fault> {
        let pointer = self.check_atomic(address, 4)?;
        // SAFETY: the bytes are mapped (invariant M) and aligned.
        let atomic = unsafe { AtomicU32::from_ptr(pointer.cast()) };
        let update = atomic.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(f(old)));
        Ok(update.unwrap_or_else(|old| old))
    }

    /// Changes a number of 64 bits atomically, and returns the old one.
    ///
    /// # Errors
    ///
    /// No allocation holds the bytes, or the address is no multiple of 8.
    pub fn update_u64(&mut self, address: u64, f: impl Fn(u64) -> u64) -> Result<u64, Fault> {
        let pointer = self.check_atomic(address, 8)?;
        // SAFETY: the bytes are mapped (invariant M) and aligned.
        let atomic = unsafe { AtomicU64::from_ptr(pointer.cast()) };
        let update = atomic.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(f(old)));
        Ok(update.unwrap_or_else(|old| old))
    }

    fn check_atomic(&mut self, address: u64, bytes: usize) -> Result<*mut u8, Fault> {
        if !address.is_multiple_of(bytes as u64) {
            return Err(Fault::Misaligned { address, alignment: bytes as u64 });
        }
        self.check(address, bytes, true)
    }

    /// Copies bytes out of device memory.
    ///
    /// # Errors
    ///
    /// No allocation holds all of the bytes.
    pub fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let pointer = self.check(address, bytes.len(), false)?;
        self.read_bytes(pointer, bytes);
        Ok(())
    }

    /// Copies bytes into device memory.
    ///
    /// # Errors
    ///
    /// No allocation holds all of the bytes.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let pointer = self.check(address, bytes.len(), true)?;
        self.write_bytes(pointer, bytes);
        Ok(())
    }

    /// Counts an interrupt message of the device.
    pub fn interrupt(&self, _: u32) {
        self.interrupts.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_outside_of_allocations_are_faults() {
        let memory = Memory::new();
        let address = memory.allocate(100, Use::Pool).expect("there is memory");
        let mut view = memory.view();
        assert_eq!(view.load_u32(address + 96), Ok(0));
        let fault = Fault::Memory { address: address + 97, write: false };
        assert_eq!(view.load_u32(address + 97), Err(fault));
        assert_eq!(
            view.store_u8(address + 100, 1),
            Err(Fault::Memory { address: address + 100, write: true })
        );
        assert!(view.load_u8(0).is_err());
        assert!(view.load_u64(u64::MAX - 3).is_err());
        drop(view);
        assert!(memory.free(address, Use::Pool));
        assert!(!memory.free(address, Use::Pool));
        assert!(memory.view().load_u8(address).is_err());
    }

    #[test]
    fn numbers_at_any_address_are_stored_and_loaded() {
        let memory = Memory::new();
        let address = memory.allocate(64, Use::Pool).expect("there is memory");
        let mut view = memory.view();
        for offset in 0..8 {
            view.store_u64(address + offset, 0x1122_3344_5566_7788).expect("it is inside");
            assert_eq!(view.load_u64(address + offset), Ok(0x1122_3344_5566_7788));
            assert_eq!(view.load_u16(address + offset + 1), Ok(0x6677));
        }
        assert_eq!(
            view.update_u32(address + 2, |old| old),
            Err(Fault::Misaligned { address: address + 2, alignment: 4 })
        );
    }

    #[test]
    fn pinned_memory_is_accessible_until_it_is_unpinned() {
        let memory = Memory::new();
        let value = AtomicU64::new(7);
        let address = ptr::from_ref(&value).expose_provenance() as u64;
        assert!(memory.pin(address, 8));
        assert!(memory.pin(address, 8));
        assert_eq!(memory.view().load_u64(address), Ok(7));
        assert!(memory.unpin(address));
        assert_eq!(memory.view().load_u64(address), Ok(7));
        assert!(memory.unpin(address));
        assert!(!memory.unpin(address));
        assert!(memory.view().load_u64(address).is_err());
    }
}
