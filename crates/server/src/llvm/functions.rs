//! Functions of the embedding program that clients may call.

use parking_lot::RwLock;
use std::sync::Arc;

/// A function that clients call: it gets a copy of the caller's bytes, and its result goes back.
pub(super) type HostFunction = Arc<dyn Fn(&mut [u8]) -> u64 + Send + Sync>;

/// Where registered functions begin for clients: no address of a function.
const FIRST: u64 = 1 << 62;

/// The registered functions.
#[derive(Default)]
pub(super) struct HostFunctions(RwLock<Vec<HostFunction>>);

impl HostFunctions {
    /// Adds a function and gives what clients call it by.
    pub fn add(&self, function: impl Fn(&mut [u8]) -> u64 + Send + Sync + 'static) -> u64 {
        let mut functions = self.0.write();
        functions.push(Arc::new(function));
        FIRST + functions.len() as u64 - 1
    }

    /// The function that clients call by this.
    pub fn get(&self, address: u64) -> Option<HostFunction> {
        let index = usize::try_from(address.checked_sub(FIRST)?).ok()?;
        self.0.read().get(index).cloned()
    }
}
