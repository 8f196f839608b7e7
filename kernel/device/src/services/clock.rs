use hostcall_abi::service::number;
use hostcall_macros::service;

/// The host's clocks.
#[service(number = number::CLOCK, internal, rare)]
pub trait Clock {
    /// Nanoseconds since 1970-01-01 00:00 UTC; negative before.
    fn wall_ns() -> i64;
}
