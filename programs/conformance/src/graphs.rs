//! Kernels that graphs replay.

use crate::services::Echo;
use hostcall_device::{Global, Lane, kernel, println, service};

/// Tells which turn a loop is in.
#[service]
pub trait Turns {
    fn next(turn: u64) -> u64;
}

/// Adds one, as the host tells it.
#[kernel]
pub fn graph_add(lane: &Lane, out: &[Global<u64>]) {
    let out = &out[lane.global_id()];
    out.set(Echo::one(out.get() + 1).unwrap());
}

/// Moves each number 257 places on, and counts it up. It neither calls nor panics.
#[kernel]
pub fn graph_move(lane: &Lane, from: &[u64], to: &[Global<u64>]) {
    let place = (lane.global_id() + 257) % from.len().max(1);
    if let (Some(from), Some(to)) = (from.get(lane.global_id()), to.get(place)) {
        to.set(from + 1);
    }
}

/// Prints a number.
#[kernel]
pub fn graph_print(_lane: &Lane, number: u64) {
    println!("node {number}");
}

/// Panics in the last lane, beside calls of the others, if the word is not 0.
#[kernel]
pub fn graph_panic(lane: &Lane, word: &Global<u64>) {
    let id = lane.global_id() as u64;
    assert_eq!(Echo::one(id), Ok(id));
    if word.get() != 0 && id + 1 == lane.grid_lanes() as u64 {
        panic!("the word is set");
    }
}

/// One turn of a loop: asks the host what comes after `turn`, and goes on until that is 10.
#[kernel]
pub fn graph_ask(lane: &Lane, turn: &Global<u64>, go_on: &Global<u32>) {
    if lane.global_id() == 0 {
        let next = Echo::one(turn.get() + 1).unwrap();
        turn.set(next);
        go_on.set(u32::from(next < 10));
    }
}

/// One turn of a loop, as [`graph_ask`], which tells the host its turn, and panics in one of them.
#[kernel]
pub fn graph_turn(lane: &Lane, turn: &Global<u64>, go_on: &Global<u32>, panics_in: u64) {
    if lane.global_id() == 0 {
        let now = turn.get();
        let next = Turns::next(now).unwrap();
        assert!(now != panics_in, "turn {now} panics");
        turn.set(next);
        go_on.set(u32::from(next < 10));
    }
}
