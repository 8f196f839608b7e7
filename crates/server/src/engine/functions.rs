//! Functions of the embedding program that kernels may call, by numbers that are no addresses: a device cannot have the
//! host jump anywhere else.

use parking_lot::RwLock;

/// Where the numbers begin: at no address of a function.
const FIRST: u64 = 1 << 62;

/// The registered functions.
pub(crate) struct Functions<F>(RwLock<Vec<F>>);

impl<F> Default for Functions<F> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<F: Clone> Functions<F> {
    /// Adds a function. Returns what kernels call it by.
    pub fn add(&self, function: F) -> u64 {
        let mut functions = self.0.write();
        functions.push(function);
        FIRST + functions.len() as u64 - 1
    }

    /// Returns the function that kernels call by this.
    pub fn get(&self, number: u64) -> Option<F> {
        let index = usize::try_from(number.checked_sub(FIRST)?).ok()?;
        self.0.read().get(index).cloned()
    }
}
