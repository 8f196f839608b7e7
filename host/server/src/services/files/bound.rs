//! How many files may be open at a time.

use rustix::process::{Resource, getrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most files open at a time when nobody says otherwise and the system allows the process more than twice as many.
const MOST_OPEN: usize = 4096;

/// A number of files that may be open at a time, which all tables of a device's files share.
pub(crate) struct Bound {
    most: usize,
    open: Arc<AtomicUsize>,
}

/// The right to have one file open, until it is dropped.
pub(crate) struct Permit(Arc<AtomicUsize>);

impl Bound {
    /// At most so many files.
    pub fn new(most: usize) -> Self {
        Self { most, open: Arc::default() }
    }

    /// Takes the right to open a file; `None` when as many are open as may be.
    pub fn take(&self) -> Option<Permit> {
        let more = |open| (open < self.most).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Permit(self.open.clone()))
    }
}

/// Half of what the system allows the process now: the other half is the program's.
impl Default for Bound {
    fn default() -> Self {
        let allowed = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
        Self::new(allowed.map_or(MOST_OPEN, |limit| (limit / 2).min(MOST_OPEN)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
