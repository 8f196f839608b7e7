//! Services that come and go while kernels run.

use super::inner::Device;
use super::look::Parts;
use super::metrics::DeviceMetrics;
use hostcall_server::{Handler, RegisterError, Registration, Statistics, Waiting};
use hostcall_service::{AsyncService, Gather, GatheredService, Service};

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

    /// Registers a service whose handlers get the calls of all waves that wait for a method.
    ///
    /// # Errors
    /// When one of its numbers is taken.
    pub fn register_gathered(
        &self,
        service: impl GatheredService,
        bounds: Gather,
    ) -> Result<Registration, RegisterError> {
        self.inner.server.register(Handler::gathered(service, bounds))
    }

    /// Returns what the device's server has counted.
    pub fn statistics(&self) -> Statistics {
        self.inner.server.statistics()
    }

    /// Returns what the device has counted by service and method, as it is told to other processes and exported. In a child
    /// that `fork` made since the device was opened, all of it is zero.
    pub fn metrics(&self) -> DeviceMetrics {
        if self.inner.core.is_forked() {
            return DeviceMetrics::default();
        }
        let of = |parts: &Parts| parts.metrics(&parts.waiting());
        self.inner.look.at(of).expect("a device that somebody has can be looked at")
    }

    /// Returns what waves wait for now, for a report of what a program hangs on: calls, and what waves say themselves, such as
    /// flags ([`hostcall_device::waits`]), free call slots and pages of raw channels. No driver is asked, so that it is there
    /// also where the device hangs. Calls by ROCm's protocol say neither kernel nor place. Waves of kernels that other compilers
    /// made are not told of while they wait for a page.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.inner.waiting()
    }
}
