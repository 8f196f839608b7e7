use hostcall_abi::service::number;
use hostcall_macros::service;

/// What trace points ask of a host that traces them: see [`mod@crate::trace`].
#[service(number = number::TRACE, internal)]
pub trait TracePoints {
    /// Nanoseconds on the trace's time line.
    fn now_ns() -> u64;
    /// Says that the host's clock showed `host_ns` at a moment between these two of the device's.
    fn clock_pair(before_ns: u64, host_ns: u64, after_ns: u64);
    /// Gives the id, 1 to 2²⁴ − 1, of a trace point; equal ones get equal ids. `kind` is one of
    /// [`crate::abi::trace::PointKind`], `tags` are the types of its values as `hostcall_format::tags` has them. The lane
    /// of this name has posted a text ([`crate::abi::service::number::TEXT`]): of it the first `text_bytes` bytes are the point's
    /// name or format, the rest is the file in which it stands.
    fn register(lane: u64, kind: u32, tags: u64, line: u32, device_ns: u64, text_bytes: u32) -> u32;
}
