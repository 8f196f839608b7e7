//! When packets and copies began and ended. The times lie in their completion signals, as AMD's runtime has them.

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

/// Turns the times of copies on or off. They are always on here.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_profiling_async_copy_enable(_enable: bool) -> Status {
    report(Runtime::get().map(drop))
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
    match Runtime::get().and_then(|runtime| runtime.gpu(agent).map(drop)) {
        // SAFETY: contract C.
        Ok(()) => unsafe { hsa_amd_profiling_get_async_copy_time(signal, times) },
        Err(status) => status,
    }
}

/// Tells when the copy began and ended that completed a signal last.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_profiling_get_async_copy_time(signal: u64, times: *mut Times) -> Status {
    let tell = || {
        let (begin, end) = Runtime::get()?.signals.find(signal)?.times();
        if end == 0 {
            return Err(status::ERROR);
        }
        // SAFETY: contract C.
        unsafe { give(times, Times { begin, end }) }
    };
    report(tell())
}

/// Converts a time of an agent to the system's clock, which is the agents', too.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_profiling_convert_tick_to_system_domain(
    agent: u64,
    tick: u64,
    system: *mut u64,
) -> Status {
    let convert = || {
        Runtime::get()?.gpu(agent)?;
        // SAFETY: contract C.
        unsafe { give(system, tick) }
    };
    report(convert())
}
