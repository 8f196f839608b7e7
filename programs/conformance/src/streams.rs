//! Kernels that wait for each other, through services.

use crate::services::{AsyncGate, Echo, Gate, Keys, Launcher, Meter};
use core::alloc::Layout;
use hostcall_device::{Global, Lane, heap, kernel};

/// Waits for gate `key`, on a thread or as a future.
#[kernel]
pub fn stream_pass(lane: &Lane, key: u64, with_futures: u32, out: &[Global<u64>]) {
    let passed = if with_futures == 0 { Gate::pass(key) } else { AsyncGate::pass(key) };
    out[lane.global_id()].set(passed.unwrap());
}

/// Opens gate `key` after some calls.
#[kernel]
pub fn stream_open(lane: &Lane, key: u64) {
    for i in 0..10 {
        assert_eq!(Echo::one(i), Ok(i));
    }
    if lane.global_id() == 0 {
        Keys::open(key).unwrap();
    }
}

/// In one wave: the first lanes wait for what the last lane opens.
#[kernel]
pub fn stream_in_wave(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id();
    let last = id + 1 == lane.grid_lanes();
    // Each workgroup waits for the next one; the grid's last lane waits for nobody.
    if last {
        Keys::open(77).unwrap();
        out[id].set(77);
    } else if lane.local_id() == 0 && lane.workgroup()[0] + 1 < lane.workgroups()[0] {
        out[id].set(Gate::pass(77).unwrap());
    } else {
        out[id].set(Echo::one(77).unwrap());
    }
}

/// Adds up what it finds: `out` must hold `expected` before.
#[kernel]
pub fn stream_step(lane: &Lane, expected: u64, out: &[Global<u64>]) {
    let out = &out[lane.global_id()];
    assert_eq!(out.get(), expected);
    out.set(Echo::one(expected + 1).unwrap());
}

/// Has the host launch another kernel.
#[kernel]
pub fn stream_launch(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id();
    out[id].set(Launcher::launch(id as u64).unwrap());
}

/// Counts itself under `key`.
#[kernel]
pub fn stream_count(_lane: &Lane, key: u64) {
    Meter::next(key).unwrap();
}

/// Of each workgroup one lane waits for gate `key`, with `bytes` bytes of the heap.
#[kernel]
pub fn stream_fill(lane: &Lane, bytes: u64, key: u64, out: &[Global<u64>]) {
    let id = lane.global_id();
    if lane.local_id() == 0 {
        let last = bytes as usize / 8 - 1;
        let memory = heap::alloc(Layout::from_size_align(bytes as usize, 8).unwrap()).cast::<u64>();
        assert!(!memory.is_null());
        // SAFETY: the allocation has so many words, and nobody else has it.
        unsafe { memory.add(last).write(id as u64) };
        assert_eq!(AsyncGate::pass(key), Ok(key));
        // SAFETY: as above.
        assert_eq!(unsafe { memory.add(last).read() }, id as u64);
        // SAFETY: it is used no more.
        assert_eq!(unsafe { heap::dealloc(memory.cast()) }, Ok(()));
    }
    out[id].set(id as u64 + 1);
}
