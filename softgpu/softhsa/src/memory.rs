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

use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use crate::changes::Changes;
use crate::exec::Fault;

/// Alignment of allocations.
pub const PAGE: usize = 4096;

/// What an allocation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Memory from a pool.
    Pool,
    /// The runtime's own: segments of loaded code objects, records of signals, queues.
    Runtime,
    /// The client's own memory, pinned.
    Pinned,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    bytes: usize,
    purpose: Use,
    /// See [`Found::owner`].
    owner: u64,
    /// See [`Found::note`].
    note: u64,
}

type Regions = BTreeMap<u64, Region>;

#[derive(Debug, Default)]
struct Pins {
    /// The sizes of those that begin at an address, the last one last.
    sizes: BTreeMap<u64, Vec<usize>>,
    /// None is longer.
    longest: usize,
}

/// The map of everything that device code may access.
#[derive(Debug)]
pub struct Memory {
    /// No two of them overlap. A pinned one is what pins that overlap make together.
    regions: RwLock<Regions>,
    /// The client's pins. Locked before `regions`.
    pins: Mutex<Pins>,
    /// Bytes that may still be allocated.
    left: AtomicU64,
    /// What waits for changes of memory.
    pub changes: Changes,
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
    /// What [`Memory::set_owner`] noted; 0 at first.
    pub owner: u64,
    /// What [`Memory::set_note`] noted; 0 at first.
    pub note: u64,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new()
    }
}

impl Memory {
    /// Makes an empty map, in which as much can be allocated as the host has memory.
    pub fn new() -> Memory {
        Memory::of_bytes(host_bytes())
    }

    /// Makes an empty map, in which so much can be allocated.
    pub fn of_bytes(most: u64) -> Memory {
        Memory {
            regions: RwLock::default(),
            pins: Mutex::default(),
            left: AtomicU64::new(most),
            changes: Changes::default(),
        }
    }

    /// Allocates memory that reads 0, and returns its address; `None` if there is not enough. It takes memory of the host
    /// where it is accessed first.
    pub fn allocate(&self, bytes: usize, purpose: Use) -> Option<u64> {
        let mapped = mapped_bytes(bytes)?;
        let take = |left: u64| left.checked_sub(mapped as u64);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at an address that the system chooses.
        let pointer = unsafe { libc::mmap(ptr::null_mut(), mapped, protection, flags, -1, 0) };
        if pointer == libc::MAP_FAILED {
            self.left.fetch_add(mapped as u64, Ordering::Relaxed);
            return None;
        }
        let address = pointer.expose_provenance() as u64;
        let region = Region { bytes, purpose, owner: 0, note: 0 };
        self.regions.write().unwrap_or_else(PoisonError::into_inner).insert(address, region);
        Some(address)
    }

    /// Notes whose the allocation is that begins at the address: a pool's handle, or for code an agent's.
    pub fn set_owner(&self, address: u64, owner: u64) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(region) = regions.get_mut(&address) {
            region.owner = owner;
        }
    }

    /// Notes a number of the client's with the allocation or the pinned memory that begins at the address. Returns `false` if
    /// none does.
    pub fn set_note(&self, address: u64, note: u64) -> bool {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        regions.get_mut(&address).map(|region| region.note = note).is_some()
    }

    /// Frees memory from a pool. Returns `false` if none begins at the address.
    pub fn free(&self, address: u64) -> bool {
        self.free_of(address, Use::Pool)
    }

    /// Frees memory of the runtime's own.
    pub(crate) fn free_own(&self, address: u64) {
        self.free_of(address, Use::Runtime);
    }

    fn free_of(&self, address: u64, purpose: Use) -> bool {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        match regions.get(&address) {
            Some(&Region { bytes, purpose: found, .. }) if found == purpose && purpose != Use::Pinned => {
                regions.remove(&address);
                while let Some((&pin, _)) = pins.sizes.range(address..address + bytes as u64).next() {
                    pins.sizes.remove(&pin);
                }
                // SAFETY: the allocation was in the map until now. By invariant M nothing reaches it through a view any more.
                let mapped = unsafe { unmap(address, bytes) };
                self.left.fetch_add(mapped as u64, Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }

    /// Pins the client's memory, or what is in an allocation already. Pins may lie in each other, or overlap: each is
    /// accessible until it is undone itself. Returns `false` if it overlaps an allocation in part.
    ///
    /// # Safety
    ///
    /// The range stays mapped until the pin is undone.
    pub unsafe fn pin(&self, address: u64, bytes: usize) -> bool {
        let Some(end) = address.checked_add(bytes as u64) else { return false };
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let is_allocated = |found: &Found| found.purpose != Use::Pinned;
        if bytes > 0 && find(&regions, address, bytes).filter(is_allocated).is_none() {
            let before = find(&regions, address, 1).filter(is_allocated);
            let mut inside = regions.range(address..end);
            if before.is_some() || inside.any(|(_, region)| region.purpose != Use::Pinned) {
                return false;
            }
            pinned_with(&mut regions, address, end);
        }
        pins.sizes.entry(address).or_default().push(bytes);
        pins.longest = pins.longest.max(bytes);
        true
    }

    /// Undoes the last [`pin`](Self::pin) at the address. Returns `false` if there is none.
    pub fn unpin(&self, address: u64) -> bool {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let Some(at_address) = pins.sizes.get_mut(&address) else { return false };
        let undone = at_address.pop().unwrap_or(0);
        if at_address.is_empty() {
            pins.sizes.remove(&address);
        }
        if let Some(found) = find(&regions, address, 1).filter(|found| found.purpose == Use::Pinned) {
            unpin_in(&mut regions, &pins, found, address, address + undone as u64);
        }
        if pins.sizes.is_empty() {
            pins.longest = 0;
        }
        true
    }

    /// Returns the allocation that holds the address.
    pub fn find(&self, address: u64) -> Option<Found> {
        find(&self.regions.read().unwrap_or_else(PoisonError::into_inner), address, 1)
    }

    /// Opens the map for accesses. Allocating and freeing wait until the view is dropped, so views are short. A thread has
    /// one at a time, and whoever has one allocates, frees, pins and launches nothing, and takes no lock of a device: a
    /// writer that waits holds later readers up.
    pub fn view(&self) -> View<'_> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        View { regions, last: (0, 0), changes: &self.changes }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let regions = self.regions.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (&address, region) in regions.iter().filter(|(_, region)| region.purpose != Use::Pinned) {
            // SAFETY: an allocation of the map; no view outlives that.
            unsafe { unmap(address, region.bytes) };
        }
    }
}

/// Returns the size of the mapping for an allocation.
fn mapped_bytes(bytes: usize) -> Option<usize> {
    bytes.max(1).checked_next_multiple_of(PAGE)
}

/// Gives the pages of an allocation back, and returns how many bytes they were.
///
/// # Safety
///
/// [`Memory::allocate`] mapped the address for so many bytes, and nobody uses it any more.
unsafe fn unmap(address: u64, bytes: usize) -> usize {
    let mapped = mapped_bytes(bytes).unwrap_or(0);
    // SAFETY: by this function's contract.
    unsafe { libc::munmap(ptr::with_exposed_provenance_mut(address as usize), mapped) };
    mapped
}

/// Returns how much memory the host has.
pub fn host_bytes() -> u64 {
    // SAFETY: the function reads and writes nothing of this process.
    let [pages, bytes] =
        [libc::_SC_PHYS_PAGES, libc::_SC_PAGE_SIZE].map(|name| unsafe { libc::sysconf(name) });
    u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(bytes).unwrap_or(0))
}

/// Makes the addresses pinned, together with pinned ones that overlap them.
fn pinned_with(regions: &mut Regions, mut start: u64, mut end: u64) {
    while let Some((&other, region)) = regions.range(..end).next_back()
        && region.purpose == Use::Pinned
        && other + region.bytes as u64 > start
    {
        end = end.max(other + region.bytes as u64);
        start = start.min(other);
        regions.remove(&other);
    }
    regions.insert(start, Region { bytes: (end - start) as usize, purpose: Use::Pinned, owner: 0, note: 0 });
}

/// Leaves of a pinned region what other pins hold than the one that was undone, from `address` to `end`. What
/// lies before and behind that they hold anyway: only pins that begin in it or may reach it are looked at.
fn unpin_in(regions: &mut Regions, pins: &Pins, region: Found, address: u64, end: u64) {
    let region_end = region.base + region.bytes as u64;
    regions.remove(&region.base);
    let mut keep = |start: u64, end: u64| {
        if start < end {
            let kept = Region { bytes: (end - start) as usize, purpose: Use::Pinned, owner: 0, note: 0 };
            regions.insert(start, kept);
        }
    };
    let (mut start, mut held) = (region.base, address);
    let first = address.saturating_sub(pins.longest as u64).max(region.base);
    for (&pin, sizes) in pins.sizes.range(first..end) {
        if pin > held {
            keep(start, held);
            (start, held) = (pin, pin);
        }
        let longest = sizes.iter().max().map_or(0, |longest| *longest as u64);
        held = held.max(pin + longest);
    }
    if held < end {
        keep(start, held);
        start = end;
    }
    keep(start, region_end);
}

/// Returns the allocation that holds so many bytes at the address, or pinned memory that does.
fn find(regions: &Regions, address: u64, bytes: usize) -> Option<Found> {
    let (&base, region) = regions.range(..=address).next_back()?;
    let mut end = base + region.bytes as u64;
    let holds = |end: u64| address <= end && end - address >= bytes as u64;
    // The client's pins may lie side by side.
    while !holds(end)
        && region.purpose == Use::Pinned
        && let Some(next) = regions.get(&end).filter(|next| next.purpose == Use::Pinned && next.bytes > 0)
    {
        end += next.bytes as u64;
    }
    let Region { purpose, owner, note, .. } = *region;
    holds(end).then_some(Found { base, bytes: (end - base) as usize, purpose, owner, note })
}

/// Checked access to device memory. See the module's invariant M.
#[derive(Debug)]
pub struct View<'a> {
    regions: RwLockReadGuard<'a, Regions>,
    /// The allocation that the last access found: its first address and the one behind its last.
    last: (u64, u64),
    changes: &'a Changes,
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
                // SAFETY: the bytes are mapped (invariant M) and aligned; other threads access them atomically, if with
                // numbers of another size as on any device, or are in a data race of the client's making.
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
            return Err(Fault::Misaligned { space: "device", address, alignment: bytes as u64 });
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

    /// Says that the device changed a signal.
    pub fn interrupt(&self) {
        self.changes.note();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pins memory of a test's, which stays mapped, or nothing that is mapped elsewhere.
    fn pin(memory: &Memory, address: u64, bytes: usize) -> bool {
        // SAFETY: tests undo the pin, or drop the map, before the memory goes.
        unsafe { memory.pin(address, bytes) }
    }

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
        assert!(memory.free(address));
        assert!(!memory.free(address));
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
            Err(Fault::Misaligned { space: "device", address: address + 2, alignment: 4 })
        );
    }

    #[test]
    fn pinned_memory_is_accessible_until_it_is_unpinned() {
        let memory = Memory::new();
        let value = AtomicU64::new(7);
        let address = ptr::from_ref(&value).expose_provenance() as u64;
        assert!(pin(&memory, address, 8));
        assert!(pin(&memory, address, 8));
        assert_eq!(memory.view().load_u64(address), Ok(7));
        assert!(memory.unpin(address));
        assert_eq!(memory.view().load_u64(address), Ok(7));
        assert!(memory.unpin(address));
        assert!(!memory.unpin(address));
        assert!(memory.view().load_u64(address).is_err());
    }

    #[test]
    fn a_pin_of_nothing_changes_nothing() {
        let memory = Memory::new();
        let value = AtomicU64::new(7);
        let address = ptr::from_ref(&value).expose_provenance() as u64;
        assert!(pin(&memory, address, 8) && pin(&memory, address, 0));
        assert_eq!(memory.view().load_u64(address), Ok(7));
        assert!(memory.unpin(address));
        assert_eq!(memory.view().load_u64(address), Ok(7));
        assert!(memory.unpin(address) && !memory.unpin(address));
        assert!(memory.view().load_u64(address).is_err());
    }

    #[test]
    fn pins_in_pins_are_undone_one_by_one() {
        let memory = Memory::new();
        let values = [const { AtomicU64::new(7) }; 64];
        let at = |index: usize| ptr::from_ref(&values[index]).expose_provenance() as u64;
        let readable = |index: usize| memory.view().load_u64(at(index)).is_ok();
        assert!(pin(&memory, at(0), 512) && pin(&memory, at(8), 64) && pin(&memory, at(0), 8));
        assert!(memory.unpin(at(0)) && readable(63));
        assert!(memory.unpin(at(0)));
        assert_eq!([0, 7, 8, 15, 16].map(readable), [false, false, true, true, false]);
        assert!(pin(&memory, at(12), 256) && pin(&memory, at(4), 64));
        assert_eq!([3, 4, 43, 44].map(readable), [false, true, true, false]);
        assert!(memory.unpin(at(8)));
        assert_eq!([3, 4, 11, 12, 43, 44].map(readable), [false, true, true, true, true, false]);
        assert!(memory.unpin(at(4)) && memory.unpin(at(12)));
        assert!((0..64).all(|index| !readable(index)) && !memory.unpin(at(8)));
    }

    /// Numbers below `end`, one after the other the same in every run.
    fn numbers(end: u64) -> impl FnMut() -> u64 {
        let mut state = 1u64;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % end
        }
    }

    #[test]
    fn what_is_pinned_is_what_pins_hold() {
        const BYTES: u64 = 128;
        let memory = Memory::new();
        let block = vec![0u8; BYTES as usize];
        let base = block.as_ptr().expose_provenance() as u64;
        let (mut number, mut pins) = (numbers(BYTES), Vec::new());
        for _ in 0..5000 {
            let start = number();
            if number() < BYTES / 2 {
                let bytes = (1 + number() % 24).min(BYTES - start);
                assert!(pin(&memory, base + start, bytes as usize));
                pins.push((start, bytes));
            } else {
                let undone = pins.iter().rposition(|&(pin, _)| pin == start);
                assert_eq!(memory.unpin(base + start), undone.is_some());
                undone.map(|undone| pins.remove(undone));
            }
            for byte in 0..BYTES {
                let is_held = pins.iter().any(|&(pin, bytes)| (pin..pin + bytes).contains(&byte));
                assert_eq!(memory.find(base + byte).is_some(), is_held);
            }
        }
    }

    /// It would not end if each pin that is undone had all others entered anew.
    #[test]
    fn many_pins_overlap() {
        let memory = Memory::new();
        let block = vec![0u8; 1 << 20];
        let base = block.as_ptr().expose_provenance() as u64;
        let mut number = numbers(1 << 19);
        let starts: Vec<u64> = (0..20_000).map(|_| base + number()).collect();
        for &start in &starts {
            assert!(pin(&memory, start, 1 + number() as usize));
        }
        assert!(starts.iter().all(|start| memory.unpin(*start)));
        assert!(memory.find(base + (1 << 19)).is_none());
    }

    #[test]
    fn pins_lie_side_by_side() {
        let memory = Memory::new();
        let values = [const { AtomicU64::new(7) }; 8];
        let at = |index: usize| ptr::from_ref(&values[index]).expose_provenance() as u64;
        assert!((0..6).all(|index| pin(&memory, at(index), 8)));
        let mut bytes = [0; 48];
        assert_eq!(memory.view().read(at(0), &mut bytes), Ok(()));
        assert!(memory.view().load_u64(at(1) + 4).is_ok() && memory.view().load_u64(at(5) + 4).is_err());
        assert_eq!(memory.find(at(2)).map(|found| (found.base, found.bytes)), Some((at(2), 8)));
        assert!(memory.unpin(at(2)));
        assert!(memory.view().load_u64(at(1) + 4).is_err() && memory.view().load_u64(at(3) + 4).is_ok());
    }

    #[test]
    fn pins_and_allocations_do_not_overlap_in_part() {
        let memory = Memory::new();
        let address = memory.allocate(2 * PAGE, Use::Pool).expect("there is memory");
        let page = PAGE as u64;
        assert!(!pin(&memory, address - 8, 16) && !pin(&memory, address + page, 2 * PAGE));
        assert!(!pin(&memory, address - 8, 4 * PAGE));
        assert!(pin(&memory, address - 8, 8) && !pin(&memory, address - 8, 16));
        // What is allocated is accessible, and stays so when the pin is undone.
        assert!(pin(&memory, address + page, 8) && memory.unpin(address + page));
        assert_eq!(memory.view().load_u64(address + page), Ok(0));
        assert!(memory.unpin(address - 8));
        assert!(!memory.free(address - 8) && memory.free(address));
    }

    #[test]
    fn as_much_is_allocated_as_there_is() {
        let memory = Memory::of_bytes(3 * PAGE as u64);
        let address = memory.allocate(PAGE + 1, Use::Pool).expect("there is memory");
        assert_eq!(memory.allocate(PAGE + 1, Use::Pool), None);
        assert!(memory.free(address) && memory.allocate(3 * PAGE, Use::Pool).is_some());
        assert_eq!(memory.allocate(usize::MAX, Use::Pool), None);
    }
}
