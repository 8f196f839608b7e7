//! Allocations that are handed out again.

use crate::device::buffer::Allocation;
use crate::device::core::Core;
use crate::device::error::{Error, GraphError};
use crate::device::inner::Device;
use hostcall_device::kernel::Plain;
use hostcall_locks::Mutex;
use std::any::TypeId;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

thread_local! {
    /// The caches under which the thread allocates, the innermost last.
    static IN_USE: RefCell<Vec<Use>> = const { RefCell::new(Vec::new()) };
}

struct Use {
    cache: Arc<Cached>,
    /// How many allocations it has handed out.
    next: usize,
}

struct Cached {
    core: Arc<Core>,
    /// In the order in which they are handed out.
    allocations: Mutex<Vec<KeptAllocation>>,
}

struct KeptAllocation {
    asked: Asked,
    allocation: Arc<Allocation>,
}

/// What an allocation is asked for. Memory is handed out again for the same alone: uses of one allocation as cells are put
/// in no order, so that its cells must be of one size.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    bytes: usize,
    values: TypeId,
}

impl Asked {
    /// So many bytes of values of a type.
    pub fn new<T: Plain>(bytes: usize) -> Self {
        Self { bytes, values: TypeId::of::<T>() }
    }
}

/// Allocations of a device that are kept, and handed out again in the same order: work that is done again under the cache
/// gets the same memory again. So captured work may allocate, and graphs of the same work use the same memory.
///
/// ```
/// use hostcall::graph::AllocCache;
/// use hostcall::Device;
///
/// let device = Device::open("cpu")?;
/// let cache = AllocCache::new(&device);
/// let first = cache.with(|| device.alloc_zeroed::<u32>(100))?;
/// let again = cache.with(|| device.alloc_zeroed::<u32>(100))?;
/// assert_eq!(first.address(), again.address());
/// # Ok::<(), hostcall::Error>(())
/// ```
///
/// Whoever still has the memory from before has the same memory. It is all zeros when it is handed out: that waits for work
/// that uses it. A replay zeroes nothing by itself; captured work that needs zeros [fills](crate::Stream::fill) the buffer.
pub struct AllocCache {
    cached: Arc<Cached>,
}

impl fmt::Debug for AllocCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocCache").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl AllocCache {
    /// Makes a cache without allocations.
    pub fn new(device: &Device) -> Self {
        let core = device.inner.core.clone();
        Self { cached: Arc::new(Cached { core, allocations: Mutex::default() }) }
    }

    /// Runs `work`, whose [`Device::alloc_zeroed`] and [`Device::upload`] on this thread get memory of the cache, from its
    /// first allocation on. An allocation of another size than the one that is next, or of another type of values, is added
    /// there.
    pub fn with<T>(&self, work: impl FnOnce() -> T) -> T {
        struct InUse(());
        impl Drop for InUse {
            fn drop(&mut self) {
                let used = IN_USE.with_borrow_mut(Vec::pop);
                drop(used);
            }
        }
        IN_USE.with_borrow_mut(|used| used.push(Use { cache: self.cached.clone(), next: 0 }));
        let _in_use = InUse(());
        work()
    }

    /// Returns how many allocations it has.
    pub fn len(&self) -> usize {
        self.cached.allocations.lock().len()
    }

    /// Says whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets its allocations. They are free when nobody else has them.
    ///
    /// # Errors
    /// When graphs use some: their next replay would use other memory than work under the cache. Nothing is forgotten then.
    pub fn clear(&self) -> Result<(), Error> {
        let _forgotten = {
            let mut allocations = self.cached.allocations.lock();
            let is_used = |kept: &&KeptAllocation| kept.allocation.graph_uses.load(Ordering::Relaxed) > 0;
            let used = allocations.iter().filter(is_used).count();
            if used > 0 {
                return Err(GraphError::CacheInUse { allocations: used }.into());
            }
            std::mem::take(&mut *allocations)
        };
        Ok(())
    }
}

/// Returns the thread's next allocation under a cache of this device; `None` when it allocates under none. One that was
/// handed out before has any content; `allocate` makes one that the cache does not have.
pub(crate) fn take_cached(
    core: &Core,
    asked: Asked,
    allocate: impl FnOnce() -> Result<Arc<Allocation>, Error>,
) -> Option<Result<Arc<Allocation>, Error>> {
    let found = IN_USE.with_borrow_mut(|used| {
        let used = used.iter_mut().rev().find(|used| used.cache.core.is(core))?;
        used.next += 1;
        Some((used.cache.clone(), used.next - 1))
    });
    let (cache, at) = found?;
    let kept = cache
        .allocations
        .lock()
        .get(at)
        .filter(|kept| kept.asked == asked)
        .map(|kept| kept.allocation.clone());
    if let Some(kept) = kept {
        return Some(Ok(kept));
    }
    let new = match allocate() {
        Ok(new) => new,
        Err(error) => return Some(Err(error)),
    };
    let mut allocations = cache.allocations.lock();
    let at = at.min(allocations.len());
    allocations.insert(at, KeptAllocation { asked, allocation: new.clone() });
    Some(Ok(new))
}
