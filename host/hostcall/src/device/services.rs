//! Services that come and go while kernels run.

use super::{Device, Error, Inner};
use hostcall_server::{Handler, RegisterError, Registration, Statistics, Waiting};
use hostcall_service::{AsyncService, Service};
use std::time::Duration;

/// A wait that is shorter than this looks again and again, and its error reads nothing of the device's.
const LEAST_TO_ASK_CHANNELS: Duration = Duration::from_millis(100);

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
    /// place, and waves that wait for a page no place. Waves of kernels that other compilers made are not
    /// told of while they wait for a page: they keep in registers what they remember.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.inner.waiting()
    }
}

impl Inner {
    pub fn waiting(&self) -> Vec<Waiting> {
        let mut waiting = self.calls();
        waiting.extend(self.core.raw_channels.waiting());
        waiting
    }

    fn calls(&self) -> Vec<Waiting> {
        let mut calls = self.server.waiting();
        calls.extend(self.hostcalls.waiting());
        calls
    }

    /// Returns the error of a wait for what has not ended within a limit: with the call that has waited
    /// longest, which may be what the rest waits for. Where none has waited for half of the limit, a wave that
    /// waits for a page comes first: how long that one has is not known, and asking reads memory of the device.
    pub fn timed_out(&self, what: &'static str, limit: Duration) -> Error {
        let call = self.calls().into_iter().max_by_key(|call| call.waited);
        let is_long = call.as_ref().is_some_and(|call| call.waited >= limit / 2);
        let of_channels = match !is_long && limit >= LEAST_TO_ASK_CHANNELS {
            true => self.core.raw_channels.first_waiting(),
            false => None,
        };
        let longest = of_channels.or(call);
        Error::TimedOut { what, limit, longest: longest.map(Box::new) }
    }
}
