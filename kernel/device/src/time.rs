//! Time: the host's wall clock, and the device's own.

use crate::services::Clock;
use crate::target;
use core::time::Duration;
use hostcall_abi::CallError;

/// Nanoseconds since 1970-01-01 00:00 UTC by the host's clock; negative before.
///
/// # Errors
/// The call's status.
pub fn now_ns() -> Result<i64, CallError> {
    Clock::wall_ns()
}

/// A moment on the device's own clock, which costs no call.
///
/// ```
/// use hostcall_device::{Lane, kernel, println, time};
///
/// #[kernel]
/// fn measured(lane: &Lane) {
///     let begun = time::Instant::now();
///     time::sleep(core::time::Duration::from_micros(20));
///     println!("lane {}: {} ns", lane.global_id(), begun.elapsed().as_nanos());
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(u64);

impl Instant {
    /// Now.
    pub fn now() -> Self {
        Self(target::here().clock_ns())
    }

    /// Time since the moment; zero if it is not past.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(target::here().clock_ns().saturating_sub(self.0))
    }
}

/// Lets other lanes run until so much time has passed.
pub fn sleep(time: Duration) {
    target::sleep(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}
