//! Functions of the embedding program that kernels may call, by numbers that are no addresses: a device cannot have the
//! host jump anywhere else.

use hostcall_locks::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the numbers begin: at no address of a function.
const FIRST: u64 = 1 << 62;

/// The registered functions, by their numbers.
pub(crate) struct Functions<F>(RwLock<HashMap<u64, F>>);

impl<F> Default for Functions<F> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<F: Clone> Functions<F> {
    /// Adds a function. Returns what kernels call it by.
    pub fn add(&self, function: F) -> u64 {
        /// The next number, which no function of the process has: one that a program gives a kernel of another device never
        /// means another function there.
        static NEXT: AtomicU64 = AtomicU64::new(FIRST);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.0.write().insert(number, function);
        number
    }

    /// Returns the function that kernels call by this.
    pub fn get(&self, number: u64) -> Option<F> {
        self.0.read().get(&number).cloned()
    }
}
