//! The kernels of `hostcall bench`: each does one thing in a loop and writes how long that took.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]

extern crate alloc;

pub mod bytes;
pub mod compute;
pub mod costs;
pub mod floors;
mod link;
pub mod points;
pub mod rivals;
pub mod traces;

use hostcall_device::{Global, Lane, kernel, println, service};

/// What the benchmarks call.
#[service]
pub trait Bench {
    /// Does nothing.
    fn null();
    /// Takes 56 bytes and gives 8 back: with their laps and statuses 64 bytes in and 16 back.
    fn sum(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64) -> u64;
    /// Takes a post of 12 bytes.
    fn event(value: u64);
}

/// Does nothing.
#[kernel(max_lanes = 256)]
pub fn empty(_: &Lane) {}

/// Does nothing, with buffers of three kinds.
#[kernel(max_lanes = 256)]
pub fn empty_with_buffers(_: &Lane, _plain: &[u64], _shared: &[Global<u64>], _other: &[Global<u64>]) {}

/// `count` calls that do nothing.
#[kernel(max_lanes = 256)]
pub fn null_calls(lane: &Lane, ns: &[Global<u64>], failed: &[Global<u64>], count: u64) {
    let start = lane.clock_ns();
    for _ in 0..count {
        if Bench::null().is_err() {
            failed[lane.global_id()].set(1);
        }
    }
    ns[lane.global_id()].set(lane.clock_ns() - start);
}

/// One call that does nothing.
#[kernel(max_lanes = 256)]
pub fn call_once(_: &Lane, failed: &Global<u64>) {
    if Bench::null().is_err() {
        failed.set(1);
    }
}

/// Has the host count `left` down, and says whether it is 0.
#[kernel(max_lanes = 256)]
pub fn ask_host(_: &Lane, left: &Global<u64>, go_on: &Global<u32>) {
    // A wrong answer ends the loop too early, or never.
    let now = Bench::sum(left.get(), u64::MAX, 0, 0, 0, 0, 0).unwrap_or(0);
    left.set(now);
    go_on.set((now != 0).into());
}

/// Calls that do nothing, one for each value of `times`, to which each call's time goes, in a unit of which `ticks` is told
/// how many the loop took; beside it `ns`, what they are in nanoseconds.
#[kernel(max_lanes = 256)]
pub fn null_call_times(lane: &Lane, ns: &[Global<u64>], ticks: &[Global<u64>], times: &[Global<u64>]) {
    let (start, first) = (lane.clock_ns(), link::ticks(lane));
    let mut before = first;
    for time in times {
        // A wrong answer shows in `null_calls`.
        let _ = Bench::null();
        let after = link::ticks(lane);
        time.set(after - before);
        before = after;
    }
    ticks[0].set(before - first);
    ns[0].set(lane.clock_ns() - start);
}

/// The first two calls of each wave, one wave after the other, so that the second of a workgroup finds the code fetched.
/// `times` has two times for each wave, `turn` whose turn it is; the first comes `after_ns` after the launch's begin.
#[kernel(max_lanes = 256)]
pub fn first_call_times(lane: &Lane, turn: &[Global<u64>], times: &[Global<u64>], after_ns: u64) {
    if lane.index() > 0 {
        return;
    }
    let begin = lane.clock_ns();
    while lane.clock_ns() - begin < after_ns {
        lane.pause();
    }
    let wave = lane.global_id() as u64 / u64::from(lane.wave_size());
    while turn[0].get() != wave {
        lane.pause();
    }
    for time in &times[2 * wave as usize..][..2] {
        let before = link::ticks(lane);
        let _ = Bench::null();
        time.set(link::ticks(lane) - before);
    }
    turn[0].set(wave + 1);
}

/// For each of `count` lines: tells the host in `state[0]` that the line comes, prints it, and waits until the
/// host has seen it and says so in `state[1]`.
#[kernel(max_lanes = 256)]
pub fn lines_in_turn(lane: &Lane, state: &[Global<u64>], count: u64) {
    for i in 1..=count {
        state[0].set(i);
        println!("{}", i);
        while state[1].get() != i {
            lane.pause();
        }
    }
}

/// `count` calls of seven words with one back, checked.
#[kernel(max_lanes = 256)]
pub fn wide_calls(lane: &Lane, ns: &[Global<u64>], failed: &[Global<u64>], count: u64) {
    let id = lane.global_id() as u64;
    let start = lane.clock_ns();
    for i in 0..count {
        if Bench::sum(i, id, 2, 3, 4, 5, u64::MAX) != Ok(i + id + 13) {
            failed[lane.global_id()].set(1);
        }
    }
    ns[lane.global_id()].set(lane.clock_ns() - start);
}

/// `count` posts.
#[kernel(max_lanes = 256)]
pub fn posts(lane: &Lane, ns: &[Global<u64>], failed: &[Global<u64>], count: u64) {
    let start = lane.clock_ns();
    for i in 0..count {
        if Bench::post_event(i).is_err() {
            failed[lane.global_id()].set(1);
        }
    }
    ns[lane.global_id()].set(lane.clock_ns() - start);
}

/// `count` lines of three integers.
#[kernel(max_lanes = 256)]
pub fn lines(lane: &Lane, ns: &[Global<u64>], _failed: &[Global<u64>], count: u64) {
    let id = lane.global_id();
    let start = lane.clock_ns();
    for i in 0..count {
        println!("{} {} {}", lane.index(), id, i);
    }
    ns[lane.global_id()].set(lane.clock_ns() - start);
}
