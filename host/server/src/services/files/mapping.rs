//! Files that are mapped for kernels.

use super::bound::Permit;
use crate::engine::LaunchSet;
use hostcall_abi::launch::LaunchId;
use hostcall_channel::Block;
use hostcall_locks::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A mapping of a launch's. It ends when this is dropped.
pub(super) struct Mapping {
    pub owner: LaunchId,
    /// `None` for a file that the device does not reach.
    pub _block: Option<Block>,
    pub _permit: Permit,
}

/// The mappings of a device's launches, by their handles.
#[derive(Default)]
pub(super) struct Mappings {
    table: Mutex<HashMap<u64, Mapping>>,
}

impl Mappings {
    /// Adds a mapping and returns its handle.
    pub fn insert(&self, mapping: Mapping) -> u64 {
        /// The last handle in this process: ids of launches are each device's own, so that they alone do not tell whose a
        /// mapping is.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let handle = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        self.table.lock().insert(handle, mapping);
        handle
    }

    /// Takes out the mapping with this handle, if it is that launch's.
    pub fn remove(&self, handle: u64, owner: LaunchId) -> Option<Mapping> {
        let mut mappings = self.table.lock();
        if mappings.get(&handle)?.owner != owner {
            return None;
        }
        mappings.remove(&handle)
    }

    /// Ends the mappings of launches, of which no lane is left. Whoever adds one later has the lock after this, and sees
    /// then that its launch has ended.
    pub fn remove_of(&self, owners: &LaunchSet) {
        let mut table = self.table.lock();
        if table.is_empty() {
            return;
        }
        let ended: Vec<_> = table.extract_if(|_, mapping| owners.contains(mapping.owner)).collect();
        drop(table);
        // To unmap may take a while.
        drop(ended);
    }
}
