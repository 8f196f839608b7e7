//! Files that are mapped for kernels.

use super::bound::Permit;
use crate::engine::LaunchSet;
use hostcall_abi::launch::LaunchId;
use hostcall_channel::Block;
use parking_lot::Mutex;
use std::collections::HashMap;

/// A mapping of a launch's. It ends when this is dropped.
pub(super) struct Mapping {
    pub owner: LaunchId,
    /// `None` for a file that the device does not reach.
    pub _block: Option<Block>,
    pub _permit: Permit,
}

/// The mappings of all launches, by their handles, which are counted up.
#[derive(Default)]
pub(super) struct Mappings {
    table: Mutex<(u64, HashMap<u64, Mapping>)>,
}

impl Mappings {
    /// Adds a mapping and returns its handle.
    pub fn insert(&self, mapping: Mapping) -> u64 {
        let (last, mappings) = &mut *self.table.lock();
        *last += 1;
        mappings.insert(*last, mapping);
        *last
    }

    /// Takes out the mapping with this handle, if it is that launch's.
    pub fn remove(&self, handle: u64, owner: LaunchId) -> Option<Mapping> {
        let (_, mappings) = &mut *self.table.lock();
        if mappings.get(&handle)?.owner != owner {
            return None;
        }
        mappings.remove(&handle)
    }

    /// Ends the mappings of launches, of which no lane is left. Whoever adds one later has the lock after this, and sees
    /// then that its launch has ended.
    pub fn remove_of(&self, owners: &LaunchSet) {
        let mut table = self.table.lock();
        if table.1.is_empty() {
            return;
        }
        let ended: Vec<_> = table.1.extract_if(|_, mapping| owners.contains(mapping.owner)).collect();
        drop(table);
        // To unmap may take a while.
        drop(ended);
    }
}
