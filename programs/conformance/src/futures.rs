//! Futures: several calls of a lane on their way, by combinators that others wrote.

use crate::services::{Echo, Gate};
use embassy_futures::join::join3;
use embassy_futures::select::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use hostcall_device::{CallError, Global, Lane, kernel};

/// Each lane waits for three calls at a time.
#[kernel]
pub fn futures_joined(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    lane.block_on(async {
        for round in 0..8 {
            let calls = join3(
                Echo::start_one(lane, id),
                Echo::start_two(lane, id, round),
                Echo::start_seven(lane, [id; 7]),
            );
            assert_eq!(Echo::one(round), Ok(round));
            assert_eq!(calls.await, (Ok(id), Ok((id, round)), Ok([id; 7])));
        }
    });
    out[id as usize].set(id + 1);
}

/// Each lane has `count` calls open, and takes their answers as they come.
#[kernel]
pub fn futures_unordered(lane: &Lane, count: u64, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let sum = lane.block_on(async {
        let calls: FuturesUnordered<_> = (0..count).map(|i| Echo::start_one(lane, id + i)).collect();
        calls.fold(0, async |sum, reply| sum + reply.unwrap()).await
    });
    assert_eq!(sum, count * id + count * (count - 1) / 2);
    out[id as usize].set(id + 1);
}

/// Each lane forgets calls that are answered late: more than there are slots.
#[kernel]
pub fn futures_chosen(lane: &Lane, rounds: u64, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    lane.block_on(async {
        for round in 0..rounds {
            let late = Gate::within_us(500).start_pass(lane, id);
            match select(late, Echo::start_one(lane, round)).await {
                Either::First(late) => assert_eq!(late, Err(CallError::TimedOut)),
                Either::Second(reply) => assert_eq!(reply, Ok(round)),
            }
        }
        assert_eq!(Gate::within_us(500).start_pass(lane, id).await, Err(CallError::TimedOut));
    });
    out[id as usize].set(id + 1);
}

/// Waits for a call that nobody answers, beside one that is answered.
#[kernel]
pub fn futures_for_ever(lane: &Lane) {
    lane.block_on(async {
        assert_eq!(Echo::start_one(lane, 1).await, Ok(1));
        let _ = Gate::start_pass(lane, lane.global_id() as u64).await;
    });
}
