//! What others may look at of an open device, while everything in it hangs: nothing here calls a driver or a user's code.

use super::core::Core;
use super::hostcalls::Hostcalls;
use super::wait_table::WaitTable;
use hostcall_locks::Mutex;
use hostcall_server::services::Stdio;
use hostcall_server::{Server, Waiting};
use std::sync::Arc;

/// The parts of a device that can be looked at.
pub(crate) struct Parts {
    pub core: Arc<Core>,
    pub server: Arc<Server>,
    pub hostcalls: Arc<Hostcalls>,
    pub waits: Arc<WaitTable>,
    pub stdio: Arc<Stdio>,
}

/// A device as others look at it. Who looks does not keep the device: its end waits until nobody looks, and drops what is here
/// on the thread that ends it.
pub(crate) struct Look(Mutex<Option<Parts>>);

impl Look {
    pub fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(parts))))
    }

    /// Looks at the device. `None` once it has ended.
    pub fn at<R>(&self, look: impl FnOnce(&Parts) -> R) -> Option<R> {
        self.0.lock().as_ref().map(look)
    }

    /// Has nobody look any more.
    pub fn end(&self) {
        let parts = self.0.lock().take();
        drop(parts);
    }
}

impl Parts {
    /// Returns what waves wait for.
    pub fn waiting(&self) -> Vec<Waiting> {
        let mut waiting = self.server.waiting();
        waiting.extend(self.hostcalls.waiting());
        waiting.extend(self.waits.waiting(&self.server, &self.core.holders));
        waiting
    }
}
