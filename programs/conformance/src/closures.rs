//! Closures of the host as kernels' arguments.

use crate::services::Echo;
use hostcall_device::{CallError, Global, HostcallRef, Lane, kernel};

/// Each lane calls a closure.
#[kernel]
pub fn closure_call(lane: &Lane, remote: HostcallRef<(u64, u64), u64>, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    assert_eq!(Echo::one(id), Ok(id));
    out[id as usize].set(remote.call((id, 1)).unwrap());
}

/// Calls two closures in turn until they are finished: writes how many calls were answered.
#[kernel]
pub fn closure_until_finished(
    lane: &Lane,
    first: HostcallRef<u64, u64>,
    second: HostcallRef<u64, u64>,
    out: &[Global<u64>],
) {
    let mut answers = 0;
    for remote in [&first, &second] {
        loop {
            match remote.call(answers) {
                Ok(same) => assert_eq!(same, answers),
                Err(error) => break assert_eq!(error, CallError::NoSuchService),
            }
            answers += 1;
        }
    }
    out[lane.global_id()].set(answers);
}
