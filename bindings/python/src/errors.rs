//! What functions raised, kept until somebody waits for the work that made them.

use hostcall_abi::launch::LaunchId;
use hostcall_locks::Mutex;
use pyo3::prelude::*;
use std::collections::HashMap;

/// Most exceptions of a launch or context that are kept; the others are counted. Each keeps its frames alive.
const MOST_KEPT: usize = 8;
/// Most launches with exceptions of their own. Those of others are told with the device's.
const MOST_LAUNCHES: usize = 1024;

#[derive(Default)]
pub struct Kept {
    pub first: Vec<PyErr>,
    pub count: u64,
}

#[derive(Default)]
pub struct Errors(Mutex<HashMap<LaunchId, Kept>>);

impl Errors {
    /// Returns whether another exception of the launch would be kept, and not only counted.
    pub fn wants(&self, launch: LaunchId) -> bool {
        self.0.lock().get(&launch).is_none_or(|kept| kept.first.len() < MOST_KEPT)
    }

    /// Keeps an exception for which `count` lanes got no result.
    pub fn keep(&self, launch: LaunchId, error: PyErr, count: u64) {
        let mut launches = self.0.lock();
        let is_new = !launches.contains_key(&launch);
        let key = if is_new && launches.len() >= MOST_LAUNCHES { LaunchId::NONE } else { launch };
        let kept = launches.entry(key).or_default();
        kept.count += count;
        let left = if kept.first.len() < MOST_KEPT {
            kept.first.push(error);
            None
        } else {
            Some(error)
        };
        drop(launches);
        // Its drop may run code of Python's.
        drop(left);
    }

    /// Takes what was kept of a launch.
    pub fn take(&self, launch: LaunchId) -> Kept {
        self.0.lock().remove(&launch).unwrap_or_default()
    }

    /// Takes what was kept of all launches.
    pub fn take_all(&self) -> Kept {
        let all = std::mem::take(&mut *self.0.lock());
        all.into_values().fold(Kept::default(), |mut sum, kept| {
            sum.count += kept.count;
            sum.first.extend(kept.first);
            sum
        })
    }

    /// Has what was kept of one launch told with another's.
    pub fn rename(&self, from: LaunchId, to: LaunchId) {
        let mut launches = self.0.lock();
        let Some(mut kept) = launches.remove(&from) else { return };
        // A function may have raised for the new one already.
        let later = launches.remove(&to).unwrap_or_default();
        kept.count += later.count;
        kept.first.extend(later.first);
        let over = kept.first.split_off(kept.first.len().min(MOST_KEPT));
        launches.insert(to, kept);
        drop(launches);
        // Their drops may run code of Python's.
        drop(over);
    }
}
