//! Services that come and go while kernels run.

use super::{Device, Error, Inner};
use hostcall_server::{Handler, RegisterError, Registration, Statistics, Waiting, WaitsFor};
use hostcall_service::{AsyncService, Service};
use std::time::Duration;

impl Device {
    /// Registers a service whose handlers may wait, while kernels run. It stays until [`Registration::remove`], or as
    /// long as the device.
    ///
    /// # Errors
    /// When one of its numbers is taken.
    pub fn register(&self, service: impl Service) -> Result<Registration, RegisterError> {
        self.inner.server.register(Handler::blocking(service))
    }

    /// Registers a service whose handlers never wait and take microseconds: they run at once, on the thread that finds
    /// calls.
    ///
    /// # Errors
    /// When one of its numbers is taken.
    pub fn register_inline(&self, service: impl Service) -> Result<Registration, RegisterError> {
        self.inner.server.register(Handler::inline(service))
    }

    /// Registers a service whose handlers are futures.
    ///
    /// # Errors
    /// When one of its numbers is taken.
    pub fn register_async(&self, service: impl AsyncService) -> Result<Registration, RegisterError> {
        self.inner.server.register(Handler::futures(service))
    }

    /// Returns what the device's server has counted.
    pub fn statistics(&self) -> Statistics {
        self.inner.server.statistics()
    }

    /// Returns what waves wait for on the host now, for a report of what a program hangs on: calls, and
    /// waves that wait for a free page of a raw channel. Calls by ROCm's protocol say neither kernel nor
    /// place, and waves that wait for a page no place.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.inner.waiting()
    }
}

impl Inner {
    pub fn waiting(&self) -> Vec<Waiting> {
        let mut waiting = self.server.waiting();
        waiting.extend(self.hostcalls.waiting());
        waiting.extend(self.core.raw_channels.waiting());
        waiting
    }

    /// Returns the error of a wait for what has not ended within a limit: with the call that has waited longest, which may be
    /// what the rest waits for.
    pub fn timed_out(&self, what: &'static str, limit: Duration) -> Error {
        // Of a wave that waits for a page it is not known for how long: a call that has waited as long as
        // anybody could say is told first.
        let key = |waiting: &Waiting| {
            (waiting.waited.min(limit), waiting.waits_for != WaitsFor::Page, waiting.waited)
        };
        let longest = self.waiting().into_iter().max_by_key(key);
        Error::TimedOut { what, limit, longest: longest.map(Box::new) }
    }
}
