//! Somebody who wants to know of launches for a while: how they begin and end.

use super::launches::{LaunchRecord, Launches};
use hostcall_abi::launch::LaunchId;
use hostcall_locks::Mutex;
use hostcall_trace::Ending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Is told of launches. Nothing in it waits.
pub trait LaunchWatch: Send + Sync {
    /// A launch, or a context, begins, or was there when the watch began: both may be said of one.
    fn began(&self, launch: LaunchId, record: &LaunchRecord);
    /// It has ended. Others may have its id from here on.
    fn ended(&self, launch: LaunchId, ending: Ending);
}

/// The watch of a server's launches, if there is one.
#[derive(Default)]
pub(crate) struct LaunchWatches {
    /// A launch looks at this alone while nobody watches.
    is_there: AtomicBool,
    watch: Mutex<Option<Arc<dyn LaunchWatch>>>,
}

impl LaunchWatches {
    /// Sets the watch, or none, and tells it of the launches that are there.
    pub fn set(&self, watch: Option<Arc<dyn LaunchWatch>>, launches: &Launches) {
        *self.watch.lock() = watch.clone();
        // Launches that begin from here on tell of themselves; those before are in the table.
        self.is_there.store(watch.is_some(), Ordering::SeqCst);
        if let Some(watch) = watch {
            for open in launches.oldest(usize::MAX) {
                watch.began(open.id, &open.record);
            }
        }
    }

    /// Returns the watch. Who begins a launch asks once it is in the table, where a watch that is set later finds it.
    pub fn get(&self) -> Option<Arc<dyn LaunchWatch>> {
        match self.is_there.load(Ordering::SeqCst) {
            true => self.watch.lock().clone(),
            false => None,
        }
    }
}
