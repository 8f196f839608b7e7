//! Steps: what the host does in the middle of a unit of operations, while the unit's stream waits.

use super::launched::LaunchState;
use super::queue::StreamQueue;
use crate::device::error::Error;
use hostcall_locks::Mutex;
use hostcall_server::CancelReason;
use std::sync::Arc;

/// What a step does. It gives the failure that its owner has noted.
pub(crate) type RunStep = Box<dyn FnOnce(&StepControl) -> Result<(), Error> + Send>;

/// A step of a unit. Like a launch it has a sequence, from which on nothing of the stream begins if it fails.
pub(crate) struct Step {
    pub state: Arc<LaunchState>,
    /// The queue that its bodies run on, if it has any.
    pub inner: Option<Arc<StreamQueue>>,
    /// `None` once it was begun.
    pub run: Option<RunStep>,
}

/// How a step that runs is ended.
pub(crate) struct StepControl {
    pub sequence: u64,
    inner: Option<Arc<StreamQueue>>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    cancelled: Option<CancelReason>,
    has_ended: bool,
}

impl StepControl {
    pub(super) fn new(step: &LaunchState, inner: Option<Arc<StreamQueue>>) -> Self {
        Self { sequence: step.sequence, inner, progress: Mutex::default() }
    }

    /// Ends the step: first the mark, then what is on the inner queue. A step that has ended leaves the queue to the next
    /// one, so that this is done under the lock that [`StepControl::end`] takes.
    pub fn cancel(&self, why: CancelReason) {
        let mut progress = self.progress.lock();
        if progress.has_ended {
            return;
        }
        progress.cancelled.get_or_insert(why);
        if let Some(inner) = &self.inner {
            inner.cancel_all(why);
        }
    }

    /// Returns why the step is to end.
    pub fn cancelled(&self) -> Option<CancelReason> {
        self.progress.lock().cancelled
    }

    /// Called after each push to the inner queue: whoever cancelled before may not have found it there.
    pub fn after_push(&self) {
        if let (Some(why), Some(inner)) = (self.cancelled(), &self.inner) {
            inner.cancel_all(why);
        }
    }

    /// The step has ended: nobody touches the inner queue for it any more.
    pub(super) fn end(&self) {
        self.progress.lock().has_ended = true;
    }
}
