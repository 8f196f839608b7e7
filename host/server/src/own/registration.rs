//! Registering services and removing them while kernels run.

use super::registry::{Handler, RegisterError, Registered, Registry};
use super::shared::{Command, Shared};
use super::{gather, posts};
use crate::engine::polling::Attention;
use std::sync::{Arc, Weak};
use tracing::Level;

/// A service that was registered at a running server, by which it can be removed. Dropping this leaves it registered.
pub struct Registration {
    service: Arc<Registered>,
    shared: Weak<Shared>,
}

impl Registration {
    pub(super) fn add(shared: &Arc<Shared>, handler: Handler) -> Result<Self, RegisterError> {
        let service = shared.change(|registry| registry.add(handler))?;
        Ok(Self { service, shared: Arc::downgrade(shared) })
    }

    /// Removes the service. Handlers that run already finish. When this returns, no more are begun (unless it is called from
    /// a handler that runs inline): calls that wait for a thread end with
    /// [`NoSuchService`](hostcall_abi::CallError::NoSuchService), posts that wait are counted as refused.
    pub fn remove(self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let _ = shared.change(|registry| {
            registry.remove(&self.service);
            Ok(())
        });
        posts::remove(&shared, &self.service);
        gather::remove(&self.service);
        let service = self.service.name();
        shared.engine.log(Level::DEBUG, move || tracing::debug!(service, "a service is removed"));
        // A consumer cannot wait for itself, nor for another one that may wait for it.
        if !shared.consumers.iter().any(Attention::is_of_this_thread) {
            shared.wait_for_consumers();
        }
    }
}

impl Shared {
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Registry) -> Result<T, RegisterError>,
    ) -> Result<T, RegisterError> {
        let mut current = self.registry.lock();
        let mut registry = Registry::clone(&current);
        let changed = change(&mut registry)?;
        let before = std::mem::replace(&mut *current, Arc::new(registry));
        drop(current);
        // It may be the last to have a service, whose `Drop` is a user's.
        drop(before);
        self.call_attention();
        Ok(changed)
    }

    /// Waits until every consumer has done what it had begun, and looked at the registry.
    pub(super) fn wait_for_consumers(&self) {
        // Consumers look at the registry before they look at commands. This one has nothing to do.
        self.command(Command::Nothing);
    }
}
