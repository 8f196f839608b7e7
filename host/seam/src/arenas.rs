//! Pieces of large blocks of GPU memory, for kernels' allocations and what each launch needs: they cost no call of the
//! driver, unless they are larger than half a block.

use crate::{DeviceAddress, KernelMemory, Memory};
use hostcall_locks::Mutex;
use offset_allocator::{Allocation, Allocator};
use std::sync::Arc;

/// Bytes of a block; what is larger than half of it gets memory of its own.
const ARENA_BYTES: u64 = 64 << 20;

/// Pieces are of multiples of this, and aligned to it.
const UNIT: u64 = 16;

struct Arena {
    memory: Arc<dyn Memory>,
    space: Allocator,
}

type Shared = Arc<Mutex<Vec<Arena>>>;

/// Allocates so many bytes of GPU memory.
type Allocate = Box<dyn Fn(usize) -> Option<Arc<dyn Memory>> + Send + Sync>;

/// Pieces of large blocks. A backend whose driver allocates slowly, or waits for kernels, gives its kernels memory from these.
pub struct Arenas {
    allocate: Allocate,
    arenas: Shared,
}

impl Arenas {
    /// Arenas of which the first is there from the start: a kernel's first allocation waits for no driver, and tools
    /// like compute-sanitizer, which know the memory of before a launch, know it.
    pub fn new(allocate: Allocate) -> Self {
        let first = Arena::new(&allocate);
        Self { allocate, arenas: Arc::new(Mutex::new(first.into_iter().collect())) }
    }
}

impl Arena {
    fn new(allocate: &Allocate) -> Option<Self> {
        let memory = allocate(ARENA_BYTES as usize)?;
        Some(Self { memory, space: Allocator::new((ARENA_BYTES / UNIT) as u32) })
    }
}

/// A part of an arena, free when dropped.
struct Piece {
    arenas: Shared,
    arena: usize,
    allocation: Allocation,
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.arenas.lock()[self.arena].space.free(self.allocation);
    }
}

impl Arenas {
    /// Allocates at least `bytes`, aligned to `align`, a power of two. Waits for no kernel.
    pub fn allocate(&self, bytes: u64, align: u64) -> Option<KernelMemory> {
        let size = bytes.checked_add(align.saturating_sub(UNIT))?;
        if size > ARENA_BYTES / 2 {
            let memory = (self.allocate)(usize::try_from(size).ok()?)?;
            let address = DeviceAddress::new(memory.address().get().next_multiple_of(align));
            return Some(KernelMemory { address, owner: Box::new(memory) });
        }
        let units = size.div_ceil(UNIT) as u32;
        let mut arenas = self.arenas.lock();
        let found = arenas
            .iter_mut()
            .enumerate()
            .find_map(|(arena, place)| Some((arena, place.space.allocate(units)?)));
        let (arena, allocation) = match found {
            Some(found) => found,
            None => {
                let mut arena = Arena::new(&self.allocate)?;
                let allocation = arena.space.allocate(units)?;
                arenas.push(arena);
                (arenas.len() - 1, allocation)
            }
        };
        let start = arenas[arena].memory.address().get() + u64::from(allocation.offset) * UNIT;
        let piece = Piece { arenas: self.arenas.clone(), arena, allocation };
        let address = DeviceAddress::new(start.next_multiple_of(align));
        Some(KernelMemory { address, owner: Box::new(piece) })
    }
}
