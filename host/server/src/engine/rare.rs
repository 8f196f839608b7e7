//! What is there only after something rare: that there is nothing is found without a lock, since it is asked at the end of each
//! launch.

use hostcall_locks::{Condvar, Mutex};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value that may have nothing in it, behind a lock.
#[derive(Default)]
pub(crate) struct Rare<T> {
    value: Mutex<T>,
    /// Changes under the lock.
    has_some: AtomicBool,
}

/// What may have nothing in it, as its default does.
pub(crate) trait MayBeEmpty: Default {
    fn has_some(&self) -> bool;
}

impl<T: MayBeEmpty> Rare<T> {
    /// Changes the value.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.value.lock();
        let result = change(&mut value);
        self.has_some.store(value.has_some(), Ordering::Release);
        result
    }

    /// Changes the value if there is something in it. Sees what was put there before anything that the caller has seen.
    pub fn change_some<R>(&self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.has_some.load(Ordering::Acquire).then(|| self.change(change))
    }

    /// Waits while `condition` holds. Who changes the value signals `changed`.
    pub fn wait_while(&self, changed: &Condvar, condition: impl FnMut(&mut T) -> bool) {
        drop(changed.wait_while(self.value.lock(), condition));
    }
}

impl<K, V> MayBeEmpty for HashMap<K, V> {
    fn has_some(&self) -> bool {
        !self.is_empty()
    }
}

impl<T> MayBeEmpty for HashSet<T> {
    fn has_some(&self) -> bool {
        !self.is_empty()
    }
}

impl<T> MayBeEmpty for Option<T> {
    fn has_some(&self) -> bool {
        self.is_some()
    }
}
