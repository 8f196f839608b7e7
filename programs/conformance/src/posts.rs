//! Posts.

use crate::services::Meter;
use hostcall_device::{Global, Lane, kernel};

/// Each lane posts 0 to `count` − 1, and then sees by a call that all were taken, in order.
#[kernel]
pub fn post_in_order(lane: &Lane, count: u32, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    for i in 0..u64::from(count) {
        Meter::post_note(id, i).unwrap();
        if i % 1000 == 777 {
            assert_eq!(Meter::noted(id), Ok(i + 1));
        }
    }
    assert_eq!(Meter::noted(id), Ok(count.into()));
    out[id as usize].set(id + 1);
}

/// Posts without a call after them.
#[kernel]
pub fn post_only(lane: &Lane, count: u32) {
    for i in 0..u64::from(count) {
        Meter::post_note(lane.global_id() as u64, i).unwrap();
    }
}

/// Posts of 0 to 20 words, from different branches.
#[kernel]
pub fn post_sizes(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let value = |i: u64| u64::MAX - id - i;
    Meter::post_note0().unwrap();
    if id.is_multiple_of(2) {
        Meter::post_note1(value(0)).unwrap();
    } else {
        Meter::post_note3([value(0), value(1), value(2)]).unwrap();
    }
    Meter::post_note4(core::array::from_fn(|i| value(i as u64))).unwrap();
    Meter::post_note5(core::array::from_fn(|i| value(i as u64))).unwrap();
    Meter::post_note6(core::array::from_fn(|i| value(i as u64))).unwrap();
    Meter::post_note20(core::array::from_fn(|i| value(i as u64))).unwrap();
    out[id as usize].set(id + 1);
}
