//! Kernels that write to raw channels.

use crate::mix;
use crate::services::Echo;
use hostcall_device::raw::{Block, DropNewest, OverwriteOldest, RawStream};
use hostcall_device::{Global, Lane, Plain, kernel};

/// What a lane writes: who it is, and how many it wrote before.
#[derive(Clone, Copy, Debug, Plain, PartialEq, Eq)]
#[repr(C)]
#[hostcall(format = "lane {lane:>5}, step {step}: {check:#018x}")]
pub struct Step {
    pub lane: u32,
    #[hostcall(unit = "steps")]
    pub step: u32,
    pub check: u64,
}

impl Step {
    pub fn new(lane: usize, step: u32) -> Self {
        Self { lane: lane as u32, step, check: mix((lane as u64) << 32 | u64::from(step)) }
    }
}

/// Three words, so that records of a page do not end where it does.
#[derive(Clone, Copy, Debug, Plain, PartialEq, Eq)]
#[repr(C)]
pub struct Triple(pub [u64; 3]);

/// Each lane writes `steps` records, all lanes together.
#[kernel]
pub fn raw_steps(lane: &Lane, steps: u32, to: RawStream<'_, Step, Block>) {
    for step in 0..steps {
        assert!(to.write(lane, &Step::new(lane.global_id(), step)));
    }
}

/// Each lane writes `steps` records where it has gone: some one record, some two, one wave's first lane alone at its end.
#[kernel]
pub fn raw_apart(lane: &Lane, steps: u32, to: RawStream<'_, Step, Block>) {
    let id = lane.global_id();
    let mut step = 0;
    let mut next = || {
        step += 1;
        Step::new(id, step - 1)
    };
    for i in 0..steps {
        if mix(id as u64 ^ u64::from(i)).is_multiple_of(3) {
            assert!(to.write(lane, &next()));
        } else if lane.index().is_multiple_of(2) {
            // A call between them: other parts of the wave write meanwhile.
            assert_eq!(Echo::one(7), Ok(7));
            assert!(to.write(lane, &next()));
        } else {
            assert!(to.write(lane, &next()));
        }
        if i % 7 == 0 {
            to.flush(lane);
        }
    }
    if lane.index() == 0 {
        assert!(to.write(lane, &next()));
    }
}

/// Each wave writes `counts` batches of more and more records, to two channels.
#[kernel]
pub fn raw_batches(
    lane: &Lane,
    counts: u32,
    to: RawStream<'_, Triple, Block>,
    other: RawStream<'_, u64, Block>,
) {
    let wave = (lane.global_id() as u64) / u64::from(lane.wave_size());
    let mut first = 0;
    for count in 0..counts {
        let triple = |i: u32| Triple([wave, first + u64::from(i), mix(first + u64::from(i))]);
        assert!(to.write_all(lane, count, triple));
        assert!(other.write_all(lane, count, |i| first + u64::from(i)));
        first += u64::from(count);
    }
}

/// Each lane writes bytes of several lengths, as the host computes them too.
#[kernel]
pub fn raw_bytes(lane: &Lane, rounds: u32, data: &[u8], to: RawStream<'_, u8, Block>) {
    for round in 0..rounds {
        let len = byte_len(lane.global_id(), round, data.len());
        assert!(to.write_bytes(lane, &data[..len]));
    }
}

/// How many bytes a lane writes.
pub fn byte_len(lane: usize, round: u32, most: usize) -> usize {
    (mix(lane as u64 * 64 + u64::from(round)) % (most as u64 + 1)) as usize
}

/// Writes what is dropped where nobody reads, and counts what was kept.
#[kernel]
pub fn raw_dropped(lane: &Lane, steps: u32, to: RawStream<'_, Step, DropNewest>, kept: &[Global<u64>]) {
    let mut own = 0;
    for step in 0..steps {
        own += u64::from(to.write(lane, &Step::new(lane.global_id(), step)));
    }
    kept[lane.global_id()].set(own);
}

/// Writes what is overwritten where nobody reads.
#[kernel]
pub fn raw_overwritten(lane: &Lane, steps: u32, to: RawStream<'_, Step, OverwriteOldest>) {
    for step in 0..steps {
        assert!(to.write(lane, &Step::new(lane.global_id(), step)));
    }
}

/// The first lane of each workgroup writes a record and waits until the host has read it.
#[kernel]
pub fn raw_seen(lane: &Lane, to: RawStream<'_, u64, Block>, seen: &[Global<u64>]) {
    if lane.local_id() == 0 {
        let workgroup = lane.workgroup()[0] as usize;
        to.write(lane, &(workgroup as u64));
        while seen[workgroup].get() == 0 {
            lane.pause();
        }
        to.write(lane, &(workgroup as u64 | 1 << 32));
        to.flush(lane);
        while seen[workgroup].get() == 1 {
            lane.pause();
        }
    }
}

/// Writes until the launch is cancelled, a record or a batch at a time.
#[kernel]
pub fn raw_for_ever(lane: &Lane, to: RawStream<'_, u64, Block>) {
    loop {
        to.write(lane, &1);
        to.write_all(lane, 100, |_| 2);
        lane.pause();
    }
}

/// Writes a record, and then one lane panics before the wave's end.
#[kernel]
pub fn raw_panics(lane: &Lane, to: RawStream<'_, u64, Block>) {
    to.write(lane, &3);
    assert!(lane.global_id() != 1, "one of them");
}

/// Writes until nobody reads any more.
#[kernel]
pub fn raw_until_dropped(lane: &Lane, to: RawStream<'_, u64, Block>) {
    while to.write(lane, &4) {}
}
