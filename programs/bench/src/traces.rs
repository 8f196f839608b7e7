//! Kernels that stream to raw channels.

use crate::link::load;
use hostcall_device::raw::{Block, RawStream};
use hostcall_device::{Global, Lane, kernel};

/// A record of 16 bytes: a wave's records fill whole lines.
pub type Pair = [u64; 2];

/// Each wave writes `count` batches of `records` records.
#[kernel(max_lanes = 256)]
pub fn batches(lane: &Lane, records: u64, count: u64, to: RawStream<'_, Pair, Block>) {
    let id = lane.global_id() as u64;
    for batch in 0..count {
        to.write_all(lane, records as u32, |i| [batch << 32 | u64::from(i), id]);
    }
}

/// Each lane writes `count` records, one at a time.
#[kernel(max_lanes = 256)]
pub fn single(lane: &Lane, count: u64, to: RawStream<'_, Pair, Block>) {
    let id = lane.global_id() as u64;
    for i in 0..count {
        to.write(lane, &[i, id]);
    }
}

/// Each lane writes all of `data`, `count` times.
#[kernel(max_lanes = 256)]
pub fn copies(lane: &Lane, data: &[u8], count: u64, to: RawStream<'_, u8, Block>) {
    for _ in 0..count {
        to.write_bytes(lane, data);
    }
}

/// Writes a record, tells the host of it and waits until the host has seen it, `count` times.
#[kernel(max_lanes = 256)]
pub fn seen(
    lane: &Lane,
    seen: &[Global<u64>],
    ns: &[Global<u64>],
    count: u64,
    to: RawStream<'_, Pair, Block>,
) {
    let start = lane.clock_ns();
    for i in 1..=count {
        to.write(lane, &[i, 0]);
        to.flush(lane);
        while load(&seen[0]) != i {}
    }
    ns[lane.global_id()].set(lane.clock_ns() - start);
}
