//! Handlers that ask who calls.

use crate::services::Who;
use hostcall_device::{Global, Lane, kernel};

/// Each lane asks the host which lane of its wave it is, and posts it too.
#[kernel]
pub fn who_calls(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id();
    assert_eq!(Who::lane(id as u64), Ok((id as u64, lane.index())));
    assert_eq!(Who::post_note(lane.index()), Ok(()));
    let mut name = [0; 8];
    assert_eq!(Who::named("lane", &mut name), Ok((lane.index(), 4)));
    out[id].set(id as u64 + 1);
}
