//! Calls that are waited for later.

use crate::services::{Echo, Gate, Keys};
use core::array::from_fn;
use hostcall_device::{Global, Lane, kernel};

/// Each lane starts eight calls, makes others in between, and waits in an order of its own.
#[kernel]
pub fn pending_order(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    for round in 0..8 {
        let mut calls: [_; 8] = from_fn(|i| Some(Echo::start_one(lane, id << 8 | i as u64)));
        assert_eq!(Echo::one(id), Ok(id));
        for step in 0..8 {
            let i = (step * (2 * round + 1) + id as usize) % 8;
            let call = calls[i].take().unwrap();
            assert_eq!(call.wait(), Ok(id << 8 | i as u64));
            if step == 3 {
                assert_eq!(Echo::two(id, 3), Ok((id, 3)));
            }
        }
    }
    out[id as usize].set(id + 1);
}

/// Starts calls that nobody waits for.
#[kernel]
pub fn pending_dropped(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    for i in 0..100 {
        drop(Echo::start_one(lane, i));
        if i % 3 == id % 3 {
            let kept = Echo::start_seven(lane, [id; 7]);
            drop(Echo::start_zero(lane));
            assert_eq!(kept.wait(), Ok([id; 7]));
        }
    }
    out[id as usize].set(id + 1);
}

/// Starts a call that is answered only after the next one.
#[kernel]
pub fn pending_beside(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let pass = Gate::start_pass(lane, id);
    assert!(!pass.is_ready());
    assert_eq!(Keys::open(id), Ok(()));
    while !pass.is_ready() {
        lane.pause();
    }
    assert_eq!(pass.wait(), Ok(id));
    out[id as usize].set(id + 1);
}

/// Starts a call that nobody answers, and ends without waiting for it.
#[kernel]
pub fn pending_forgotten(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    core::mem::forget(Gate::start_pass(lane, id));
    out[id as usize].set(id + 1);
}
