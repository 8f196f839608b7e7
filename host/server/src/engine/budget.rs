//! A bound for what a server holds of its clients' messages, all together.

use hostcall_abi::status::CallError;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The budget has not so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverBudget;

impl From<OverBudget> for CallError {
    fn from(_: OverBudget) -> Self {
        CallError::Busy
    }
}

/// How many bytes of messages and replies a server holds at a time, and how many it may.
pub(crate) struct Budget {
    held: AtomicUsize,
    /// Most bytes together.
    most: usize,
    /// Most bytes of one message or reply.
    pub most_each: usize,
}

impl Budget {
    pub fn new(most: usize, most_each: usize) -> Arc<Self> {
        Arc::new(Self { held: AtomicUsize::new(0), most, most_each })
    }

    /// Returns the bytes that are held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns whether no more than half of the bytes are held.
    pub fn has_half(&self) -> bool {
        self.held() <= self.most / 2
    }

    /// Takes as many of so many bytes as there are left.
    fn take_up_to(&self, bytes: usize) -> usize {
        let mut taken = 0;
        let _ = self.held.try_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            taken = bytes.min(self.most.saturating_sub(held));
            Some(held + taken)
        });
        taken
    }

    fn take(&self, bytes: usize) -> Result<(), OverBudget> {
        let taken = self.held.try_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            held.checked_add(bytes).filter(|held| *held <= self.most)
        });
        taken.map(|_| ()).map_err(|_| OverBudget)
    }
}

/// Bytes of a budget, given back when this is dropped.
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Charge {
    /// A charge of nothing.
    pub fn new(budget: &Arc<Budget>) -> Self {
        Self { budget: budget.clone(), bytes: 0 }
    }

    /// Charges so many bytes more.
    pub fn add(&mut self, bytes: usize) -> Result<(), OverBudget> {
        self.budget.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Charge {
    /// Charges as many of so many bytes more as the budget has. Returns how many.
    pub fn add_up_to(&mut self, bytes: usize) -> usize {
        let taken = self.budget.take_up_to(bytes);
        self.bytes += taken;
        taken
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes that are charged to a budget.
pub(crate) struct Charged {
    pub bytes: Vec<u8>,
    /// For as many bytes.
    pub charge: Charge,
}

impl Charged {
    pub fn new(budget: &Arc<Budget>) -> Self {
        Self { bytes: Vec::new(), charge: Charge::new(budget) }
    }

    /// Returns the bytes, and what they are charged with.
    pub fn into_parts(self) -> (Vec<u8>, Charge) {
        (self.bytes, self.charge)
    }
}
