//! Pinned memory of the host through which copies in a stream's order go: pinning takes long, so that blocks are kept.

use hostcall_locks::Mutex;
use hostcall_seam::{Backend, BackendError, Pinned};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

/// Most bytes that are kept for later copies. Blocks beyond it are freed when their copy has ended.
const MAX_KEPT_BYTES: usize = 64 << 20;

/// Bytes of the smallest block.
const MIN_BLOCK_BYTES: usize = 4096;

/// Blocks that no copy uses.
#[derive(Default)]
pub(crate) struct StagingPool {
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    bytes: usize,
    /// By their sizes, which are powers of two.
    blocks: BTreeMap<usize, Vec<Arc<dyn Pinned>>>,
}

/// A block of pinned memory, of no particular content. It goes back to its pool when dropped.
pub(crate) struct Staging {
    memory: Option<Arc<dyn Pinned>>,
    pool: Arc<StagingPool>,
}

impl StagingPool {
    /// Takes a block of at least `bytes` bytes.
    pub fn take(self: &Arc<Self>, backend: &dyn Backend, bytes: usize) -> Result<Staging, BackendError> {
        let size = bytes.max(MIN_BLOCK_BYTES).checked_next_power_of_two().unwrap_or(bytes);
        let mut free = self.free.lock();
        let kept = free.blocks.get_mut(&size).and_then(Vec::pop);
        if kept.is_some() {
            free.bytes -= size;
        }
        drop(free);
        let memory = match kept {
            Some(memory) => memory,
            None => backend.pin(size)?,
        };
        Ok(Staging { memory: Some(memory), pool: self.clone() })
    }
}

impl Staging {
    /// Returns where the block begins, for the host.
    pub fn host_address(&self) -> NonNull<u8> {
        self.memory.as_ref().expect("it is there until it is dropped").host_address()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        let size = memory.len();
        let mut free = self.pool.free.lock();
        if free.bytes + size <= MAX_KEPT_BYTES {
            free.bytes += size;
            free.blocks.entry(size).or_default().push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_used_again_and_bounded() {
        let backend = hostcall_softdev::Cpu::open(Default::default()).unwrap();
        let pool = Arc::new(StagingPool::default());
        let first = pool.take(&backend, 10).unwrap();
        let address = first.host_address();
        drop(first);
        let again = pool.take(&backend, 4000).unwrap();
        assert_eq!(again.host_address(), address);
        drop(again);
        for bytes in [MAX_KEPT_BYTES, MAX_KEPT_BYTES / 2] {
            drop(pool.take(&backend, bytes).unwrap());
            assert!(pool.free.lock().bytes <= MAX_KEPT_BYTES);
        }
    }
}
