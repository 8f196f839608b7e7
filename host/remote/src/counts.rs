//! What a session counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a session has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counted {
    /// Questions sent: messages with a batch of calls.
    pub questions: u64,
    /// The calls of those.
    pub calls: u64,
    /// Calls that ended with `Unreachable`: they were not sent.
    pub unreachable: u64,
    /// Calls that ended with `MayHaveRun`: they were sent, and no answer came.
    pub may_have_run: u64,
    /// Questions that were answered here.
    pub answered: u64,
    /// Questions that were refused here: of another version, malformed, twice the same, or too many at once.
    pub refused: u64,
    /// Questions that were not answered here since nobody waited for it any more.
    pub unwanted: u64,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub questions: AtomicU64,
    pub calls: AtomicU64,
    pub unreachable: AtomicU64,
    pub may_have_run: AtomicU64,
    pub answered: AtomicU64,
    pub refused: AtomicU64,
    pub unwanted: AtomicU64,
}

impl Counts {
    pub fn get(&self) -> Counted {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counted {
            questions: of(&self.questions),
            calls: of(&self.calls),
            unreachable: of(&self.unreachable),
            may_have_run: of(&self.may_have_run),
            answered: of(&self.answered),
            refused: of(&self.refused),
            unwanted: of(&self.unwanted),
        }
    }
}

/// Counts more.
pub(crate) fn add(count: &AtomicU64, more: usize) {
    count.fetch_add(more as u64, Ordering::Relaxed);
}
