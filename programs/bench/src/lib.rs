//! The kernels of `hostcall bench`: each does one thing in a loop and writes how long that took.
#![no_std]

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

/// Each lane flips a flag in host memory and waits until the host has flipped it back, `count` times. The
/// first word of lane `i` is at `8 * i`, so that lanes have cache lines of their own.
#[kernel]
pub fn flag_ping_pong(
    lane: &Lane,
    request: &[Global<u64>],
    reply: &[Global<u64>],
    ns: &[Global<u64>],
    count: u64,
) {
    let at = lane.global_id() * 8;
    let start = lane.clock_ns();
    for i in 1..=count {
        request[at].set(i);
        while reply[at].get() != i {}
    }
    ns[lane.global_id()].set(lane.clock_ns() - start);
}

/// Each lane stores two words, flag and value, in each of its two 16-byte places, and waits for 16 bytes back:
/// what a whole wave's call cannot do without.
#[kernel]
pub fn pair_ping_pong(
    lane: &Lane,
    request: &[Global<u64>],
    reply: &[Global<u64>],
    ns: &[Global<u64>],
    count: u64,
) {
    let at = lane.global_id() * 2;
    let start = lane.clock_ns();
    for i in 1..=count {
        request[at].set(i);
        request[at + 1].set(i);
        while reply[at].get() != i || reply[at + 1].get() != i {}
        lane.active();
    }
    ns[lane.global_id()].set(lane.clock_ns() - start);
}

/// `count` calls that do nothing.
#[kernel]
pub fn null_calls(lane: &Lane, ns: &[Global<u64>], failed: &[Global<u64>], count: u64) {
    let start = lane.clock_ns();
    for _ in 0..count {
        if Bench::null().is_err() {
            failed[lane.global_id()].set(1);
        }
    }
    ns[lane.global_id()].set(lane.clock_ns() - start);
}

/// `count` calls of seven words with one back, checked.
#[kernel]
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
#[kernel]
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
#[kernel]
pub fn lines(lane: &Lane, ns: &[Global<u64>], _failed: &[Global<u64>], count: u64) {
    let id = lane.global_id();
    let start = lane.clock_ns();
    for i in 0..count {
        println!("{} {} {}", lane.index(), id, i);
    }
    ns[lane.global_id()].set(lane.clock_ns() - start);
}
