use hostcall_abi::status::CallError;
use hostcall_device::services::ClockHandler;
use std::time::{SystemTime, UNIX_EPOCH};

/// The host's clock.
pub(super) struct HostClock;

impl ClockHandler for HostClock {
    fn wall_ns(&self) -> Result<i64, CallError> {
        // Past the year 2262 the nanoseconds no longer fit, and wrap.
        Ok(match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => after.as_nanos() as i64,
            Err(before) => -(before.duration().as_nanos() as i64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_year_is_past_2020() {
        assert!(HostClock.wall_ns().unwrap() > 50 * 365 * 86_400 * 1_000_000_000);
    }
}
