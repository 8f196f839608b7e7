//! Kernels with trace points.

use crate::services::Echo;
use hostcall_device::{Lane, counter, event, kernel, span};

/// Each lane begins and ends one span, one in that for each of `steps`, and counts; every third lane makes a call and says so.
#[kernel]
pub fn points(lane: &Lane, steps: u32) {
    let _whole = span!("whole");
    for step in 0..steps {
        let _step = span!("step");
        counter!("step", step);
        if lane.index().is_multiple_of(3) {
            assert_eq!(Echo::one(u64::from(step)), Ok(u64::from(step)));
            event!("workgroup {} was answered {step:#x}, {}", lane.workgroup()[0], -1i8);
        }
    }
}
