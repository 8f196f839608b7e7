//! When packets began and ended. The times lie in their completion signals, as AMD's runtime has them.

use std::ffi::c_void;

use super::runtime::Runtime;
use super::{Status, give, report, status};

/// When a packet began and ended, in ticks of the system's clock.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Times {
    begin: u64,
    end: u64,
}

/// Turns the times of a queue's packets on or off. They are always on here.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_profiling_set_profiler_enabled(queue: *mut c_void, _enable: i32) -> Status {
    report(Runtime::get().and_then(|runtime| runtime.queue(queue.addr() as u64)).map(drop))
}

/// Tells when the packet began and ended that completed a signal last.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_profiling_get_dispatch_time(
    agent: u64,
    signal: u64,
    times: *mut Times,
) -> Status {
    let tell = || {
        let runtime = Runtime::get()?;
        runtime.gpu(agent)?;
        let (begin, end) = runtime.signals.find(signal)?.times();
        if end == 0 {
            return Err(status::ERROR);
        }
        // SAFETY: contract C.
        unsafe { give(times, Times { begin, end }) }
    };
    report(tell())
}
