//! Events: points in a stream's order that other streams and the host can wait for.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Something that happens once: everything before it in its stream is done. Clones are the same event.
#[derive(Clone, Default)]
pub struct Event {
    state: Arc<(Mutex<bool>, Condvar)>,
}

impl Event {
    /// An event that has not happened.
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn set(&self) {
        *self.state.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.state.1.notify_all();
    }

    /// Whether it has happened.
    pub fn is_done(&self) -> bool {
        *self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has happened.
    pub fn wait(&self) {
        let mut done = self.state.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !*done {
            done = self.state.1.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
