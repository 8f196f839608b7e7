//! Loans: memory for long replies, which a handler fills in place and the device reads there. It is kept for
//! the next reply, since to get memory from the system, and to pin it for a GPU, takes longer than to fill
//! it.
//!
//! ```text
//!  handler                    server                               lane
//!  Output::fill ────────────► takes a loan from its pool
//!    writes, perhaps again
//!  returns ─────────────────► lends it, answers with its address ─► copies the bytes, then stores the first word
//!                             takes it back: the lane calls again
//!                             with bytes, its wave or launch has
//!                             ended, or memory is short and the
//!                             first word says so
//! ```
//!
//! Until it is lent, only the host knows of a loan. So a handler whose lane is not answered any more (a
//! deadline, a cancellation) goes on filling memory that no other call has. Loans for a GPU are pinned side
//! by side, 4 MiB at once, and stay so until the device closes: the driver frees pinned memory only when no
//! kernel runs, and a GPU looks up few large areas faster than many small ones.

use super::budget::{Budget, Charge, OverBudget};
use hostcall_channel::host::{Lent, Loan, LoanMemory};
use hostcall_locks::Mutex;
use std::sync::Arc;

/// Bytes of the smallest loan. Others have powers of two.
const LEAST_BYTES: usize = 4096;

/// Sizes of loans, from [`LEAST_BYTES`] on.
const CLASSES: usize = usize::BITS as usize - LEAST_BYTES.ilog2() as usize;

/// Where replies get their loans, and where these come back to.
pub(crate) struct LoanPool {
    memory: Box<dyn LoanMemory>,
    kept: Mutex<KeptLoans>,
}

struct KeptLoans {
    bytes: usize,
    /// By their sizes; the one that came back last is taken first, since it is in the processor's cache.
    loans: [Vec<Loan>; CLASSES],
}

/// A loan that the host fills. It goes back to its pool when dropped.
pub(crate) struct HeldLoan {
    /// `None` once it was lent.
    loan: Option<Loan>,
    pool: Arc<LoanPool>,
    charge: Option<Charge>,
}

/// A loan that a lane reads. It goes back to its pool when dropped, which is when the lane has read it.
pub(crate) struct LentLoan {
    /// `None` while it is dropped.
    lent: Option<Lent>,
    pool: Arc<LoanPool>,
    _charge: Option<Charge>,
}

impl LoanPool {
    pub fn new(memory: Box<dyn LoanMemory>) -> Arc<Self> {
        let kept = KeptLoans { bytes: 0, loans: std::array::from_fn(|_| Vec::new()) };
        Arc::new(Self { memory, kept: Mutex::new(kept) })
    }

    /// Takes a loan of at least so many bytes, charged to `budget`.
    ///
    /// # Errors
    /// [`OverBudget`] when the budget has not so many, or the system.
    pub fn take(self: &Arc<Self>, budget: &Arc<Budget>, bytes: usize) -> Result<HeldLoan, OverBudget> {
        let size = bytes.max(LEAST_BYTES).checked_next_power_of_two().ok_or(OverBudget)?;
        let mut charge = Charge::new(budget);
        charge.add(bytes)?;
        let mut kept = self.kept.lock();
        let loan = kept.loans[class(size)].pop();
        if loan.is_some() {
            kept.bytes -= size;
        }
        drop(kept);
        let loan = loan.or_else(|| self.allocate(size)).ok_or(OverBudget)?;
        Ok(HeldLoan { loan: Some(loan), pool: self.clone(), charge: Some(charge) })
    }

    /// Gets new memory for a loan, and keeps what comes with it.
    fn allocate(&self, size: usize) -> Option<Loan> {
        let mut loans = self.memory.allocate(size);
        let loan = loans.pop();
        loans.into_iter().for_each(|loan| self.put(loan));
        loan
    }

    /// Copies bytes from where a lane that waits has them, see [`LoanMemory::copy_from_lane`].
    pub fn copy_from_lane(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.memory.copy_from_lane(address, bytes)
    }

    /// Copies bytes to where a lane that waits wants them, see [`LoanMemory::copy_to_lane`].
    pub fn copy_to_lane(&self, bytes: &[u8], address: u64) -> bool {
        self.memory.copy_to_lane(bytes, address)
    }

    fn put(&self, loan: Loan) {
        let size = loan.bytes().len();
        let mut kept = self.kept.lock();
        if kept.bytes.saturating_add(size) <= self.memory.most_kept_bytes() {
            kept.bytes += size;
            kept.loans[class(size)].push(loan);
        }
        // Memory that is not kept is freed after the lock, as `loan` is declared before it.
    }
}

/// The index of a loan's size.
fn class(size: usize) -> usize {
    (size / LEAST_BYTES).ilog2() as usize
}

impl HeldLoan {
    pub fn bytes(&self) -> &[u8] {
        self.loan.as_ref().map_or(&[], Loan::bytes)
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.loan.as_mut().map_or(&mut [], Loan::bytes_mut)
    }

    /// Lends it to the lane whose answer tells of it next, from this thread. Returns its address too.
    pub fn lend(mut self) -> (LentLoan, u64) {
        let lent = self.loan.take().expect("a loan is lent once").lend();
        let address = lent.address();
        let _charge = self.charge.take();
        (LentLoan { lent: Some(lent), pool: self.pool.clone(), _charge }, address)
    }
}

impl Drop for HeldLoan {
    fn drop(&mut self) {
        if let Some(loan) = self.loan.take() {
            self.pool.put(loan);
        }
    }
}

impl LentLoan {
    /// Returns whether the lane says that it has read its reply.
    pub fn is_returned(&self) -> bool {
        self.lent.as_ref().is_none_or(Lent::is_returned)
    }
}

impl Drop for LentLoan {
    fn drop(&mut self) {
        if let Some(lent) = self.lent.take() {
            self.pool.put(lent.take_back());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall_channel::host::ProcessLoans;

    #[test]
    fn a_loan_comes_back() {
        let (pool, budget) = (LoanPool::new(Box::new(ProcessLoans)), Budget::new(10_000, 10_000));
        let mut loan = pool.take(&budget, 5000).unwrap();
        assert_eq!(loan.bytes().len(), 8192);
        loan.bytes_mut().fill(3);
        let at = loan.bytes().as_ptr();
        assert!(pool.take(&budget, 5001).is_err());
        let (lent, address) = loan.lend();
        assert_eq!((address as usize + 64, address % 64), (at as usize, 0));
        assert!(!lent.is_returned());
        drop(lent);
        assert_eq!(budget.held(), 0);
        let again = pool.take(&budget, 8192).unwrap();
        assert_eq!(again.bytes().as_ptr(), at);
        assert_eq!(again.bytes()[..5000], [3; 5000]);
    }
}
