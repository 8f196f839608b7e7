//! The heap that kernels allocate from: a table of what they have, over memory that the device can reach.

use super::calling_launch;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::CallError;
use hostcall_channel::{Block, HeapMemory, ProcessMemory};
use hostcall_device::services::{HeapHandler, NOT_ALLOCATED};
use hostcall_locks::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Largest alignment that a kernel may ask for.
const MAX_ALIGN: u64 = 65_536;

/// What each allocation counts beside its bytes, for the table's entry.
const OVERHEAD_BYTES: u64 = 128;

/// What kernels hold of the heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapUse {
    /// Allocations that were not freed.
    pub allocations: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// Who allocated memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeapOwner {
    /// A lane of this launch.
    Launch(LaunchId),
    /// A program of another protocol, whose server has this number.
    Program(u64),
}

impl HeapOwner {
    /// Whether it may free what `owner` allocated: any launch what any launch allocated, since a `static` of a kernel's
    /// program passes memory on from launch to launch, and a program its own.
    fn may_free(self, owner: Self) -> bool {
        match (self, owner) {
            (Self::Launch(_), Self::Launch(_)) => true,
            (Self::Program(one), Self::Program(other)) => one == other,
            (Self::Launch(_), Self::Program(_)) | (Self::Program(_), Self::Launch(_)) => false,
        }
    }
}

struct Held {
    owner: HeapOwner,
    bytes: u64,
    _block: Block,
}

#[derive(Default)]
struct Table {
    held: HashMap<u64, Held>,
    /// Bytes held, [`OVERHEAD_BYTES`] each included.
    charged: u64,
    failed_frees: u64,
}

/// The heap of a device's kernels. Clones are the same heap.
///
/// Memory lives until a lane frees it, or until the heap is dropped with its device. It is not freed when the launch that
/// allocated it ends: a `static` of a kernel's program may hold it (a `Box` in a cell, say), and later launches use that
/// static. So launches that panic or are cancelled leave what their lanes held; [`Heap::held_by`] tells, and the
/// limit bounds it.
#[derive(Clone)]
pub struct Heap {
    /// Empty until the device is known, when it is to be the device's.
    memory: Arc<OnceLock<Arc<dyn HeapMemory>>>,
    limit_bytes: u64,
    table: Arc<Mutex<Table>>,
}

impl Heap {
    /// A heap over `memory` that holds at most `limit_bytes`, some bytes for each allocation included.
    pub fn new(memory: impl HeapMemory, limit_bytes: u64) -> Self {
        let heap = Self::of_device(limit_bytes);
        heap.provide(Arc::new(memory));
        heap
    }

    /// A heap over the memory of the device that opens with it; without a device, over the process's.
    pub fn of_device(limit_bytes: u64) -> Self {
        Self { memory: Arc::default(), limit_bytes, table: Arc::default() }
    }

    /// Gives the heap its memory, unless it has some.
    pub fn provide(&self, memory: Arc<dyn HeapMemory>) {
        let _ = self.memory.set(memory);
    }

    /// What a launch allocated that is not freed.
    pub fn held_by(&self, launch: LaunchId) -> HeapUse {
        let table = self.table.lock();
        table
            .held
            .values()
            .filter(|held| held.owner == HeapOwner::Launch(launch))
            .fold(HeapUse::default(), HeapUse::plus)
    }

    /// How often kernels freed what was not allocated, what was freed before, or what was not theirs.
    pub fn failed_frees(&self) -> u64 {
        self.table.lock().failed_frees
    }
}

impl HeapUse {
    fn plus(self, held: &Held) -> Self {
        Self { allocations: self.allocations + 1, bytes: self.bytes + held.bytes }
    }
}

impl Heap {
    /// Allocates memory for an owner. Returns its address, or 0 when there is none.
    pub(crate) fn allocate_for(&self, owner: HeapOwner, bytes: u64, align: u64) -> u64 {
        debug_assert!(align.is_power_of_two(), "services check what lanes ask for");
        let bytes = bytes.max(1);
        let charge = |table: &Table| {
            let charged = table.charged.checked_add(bytes.checked_add(OVERHEAD_BYTES)?)?;
            (charged <= self.limit_bytes).then_some(charged)
        };
        // Charged before it is allocated, so that calls at the same time keep to the limit together.
        {
            let mut table = self.table.lock();
            let Some(charged) = charge(&table) else { return 0 };
            table.charged = charged;
        }
        let block = self.memory.get_or_init(|| Arc::new(ProcessMemory)).allocate(bytes, align);
        let mut table = self.table.lock();
        let Some(block) = block else {
            table.charged -= bytes + OVERHEAD_BYTES;
            return 0;
        };
        let address = block.address;
        table.held.insert(address, Held { owner, bytes, _block: block });
        address
    }
    /// Frees memory for an owner. Returns `false`, and counts that, when it holds no such memory.
    pub(crate) fn free_of(&self, owner: HeapOwner, address: u64) -> bool {
        let mut table = self.table.lock();
        let freed = match table.held.entry(address) {
            Entry::Occupied(held) if owner.may_free(held.get().owner) => held.remove(),
            _ => {
                table.failed_frees += 1;
                return false;
            }
        };
        table.charged -= freed.bytes + OVERHEAD_BYTES;
        // The memory itself goes back outside the lock.
        drop(table);
        true
    }
}

/// What a program of another protocol has of a heap: the number that its allocations have for an owner. Dropping it frees
/// what the program did not, so it lives until the program's kernels have ended.
pub(crate) struct ProgramMemory {
    pub heap: Heap,
    pub program: u64,
}

impl ProgramMemory {
    /// For a program that has nothing yet.
    pub fn new(heap: &Heap) -> Self {
        static PROGRAMS: AtomicU64 = AtomicU64::new(1);
        Self { heap: heap.clone(), program: PROGRAMS.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for ProgramMemory {
    fn drop(&mut self) {
        let mut table = self.heap.table.lock();
        let of_program = |held: &Held| held.owner == HeapOwner::Program(self.program);
        let left: Vec<Held> =
            table.held.extract_if(|_, held| of_program(held)).map(|(_, held)| held).collect();
        table.charged -= left.iter().map(|held| held.bytes + OVERHEAD_BYTES).sum::<u64>();
        // The memory itself goes back outside the lock.
        drop(table);
        drop(left);
    }
}

/// A heap as the service that lanes call. It is apart from [`Heap`], through which the host's safe code could else free what
/// lanes use.
pub(super) struct HeapService(pub Heap);

impl HeapHandler for HeapService {
    fn allocate(&self, bytes: u64, align: u64) -> Result<u64, CallError> {
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return Ok(0);
        }
        Ok(self.0.allocate_for(HeapOwner::Launch(calling_launch()), bytes, align))
    }

    fn free(&self, address: u64) -> Result<(), CallError> {
        let freed = self.0.free_of(HeapOwner::Launch(calling_launch()), address);
        if freed { Ok(()) } else { Err(CallError::Failed(NOT_ALLOCATED)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: HeapOwner = HeapOwner::Launch(LaunchId::NONE);

    fn heap(limit_bytes: u64) -> Heap {
        Heap::new(ProcessMemory, limit_bytes)
    }

    impl Heap {
        fn allocate(&self, bytes: u64, align: u64) -> u64 {
            HeapService(self.clone()).allocate(bytes, align).unwrap_or(0)
        }

        fn free(&self, address: u64) -> bool {
            self.free_of(LANE, address)
        }
    }

    #[test]
    fn memory_is_aligned_distinct_and_freed_once() {
        let heap = heap(1 << 30);
        let mut addresses = Vec::new();
        for align in (0..=16).map(|bits| 1 << bits) {
            for bytes in [0, 1, 7, 4096] {
                let address = heap.allocate(bytes, align);
                assert!(address != 0 && address.is_multiple_of(align));
                addresses.push((address, bytes.max(1)));
            }
        }
        addresses.sort_unstable();
        assert!(addresses.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        let service = HeapService(heap.clone());
        for (address, _) in &addresses {
            assert_eq!(service.free(*address), Ok(()));
            assert_eq!(service.free(*address), Err(CallError::Failed(NOT_ALLOCATED)));
        }
        assert_eq!(heap.failed_frees(), addresses.len() as u64);
        assert_eq!(heap.held_by(LaunchId::NONE), HeapUse::default());
        assert_eq!(heap.table.lock().charged, 0);
    }

    #[test]
    fn foreign_addresses_are_refused() {
        let heap = heap(1 << 30);
        let address = heap.allocate(64, 8);
        for wrong in [0, 1, address + 8, address - 8, u64::MAX] {
            assert!(!heap.free(wrong));
        }
        assert!(heap.free(address));
    }

    #[test]
    fn huge_and_misshapen_requests_get_nothing() {
        let heap = heap(u64::MAX);
        for (bytes, align) in
            [(u64::MAX, 1), (u64::MAX - OVERHEAD_BYTES, 8), (1 << 62, 8), (8, 0), (8, 3), (8, 1 << 17)]
        {
            assert_eq!(heap.allocate(bytes, align), 0);
        }
        assert_eq!(heap.table.lock().charged, 0);
    }

    #[test]
    fn the_limit_holds_and_a_launch_can_be_cleaned_up() {
        let heap = heap(10 * (1000 + OVERHEAD_BYTES));
        let addresses: Vec<u64> = (0..10).map(|_| heap.allocate(1000, 8)).collect();
        assert!(!addresses.contains(&0));
        assert_eq!(heap.allocate(1, 1), 0);
        assert!(heap.free(addresses[3]));
        assert_eq!(heap.held_by(LaunchId::NONE), HeapUse { allocations: 9, bytes: 9000 });
        assert_eq!(heap.held_by(LaunchId::new(7, 1)), HeapUse::default());
        assert_ne!(heap.allocate(1, 1), 0);
    }

    #[test]
    fn a_programs_memory_goes_with_it() {
        let heap = heap(1 << 20);
        let [one, other] = [1, 2].map(HeapOwner::Program);
        let [ours, others, lanes] = [one, other, LANE].map(|owner| heap.allocate_for(owner, 100, 8));
        assert!(ours != 0 && others != 0 && lanes != 0);
        drop(ProgramMemory { heap: heap.clone(), program: 1 });
        assert!(!heap.free_of(one, ours));
        assert!(heap.free_of(other, others) && heap.free_of(LANE, lanes));
        assert_eq!(heap.table.lock().charged, 0);
    }

    #[test]
    fn nobody_frees_what_is_not_theirs() {
        let heap = heap(1 << 20);
        let launch = |index| HeapOwner::Launch(LaunchId::new(index, 1));
        let [one, other] = [1, 2].map(HeapOwner::Program);
        let of_one = heap.allocate_for(one, 100, 8);
        let of_launch = heap.allocate_for(launch(1), 100, 8);
        for (owner, address) in [(other, of_one), (launch(1), of_one), (one, of_launch)] {
            assert!(!heap.free_of(owner, address));
        }
        assert_eq!((heap.failed_frees(), heap.table.lock().held.len()), (3, 2));
        // A later launch has it from a `static`.
        assert!(heap.free_of(launch(2), of_launch) && heap.free_of(one, of_one));
        assert_eq!(heap.table.lock().charged, 0);
    }
}
