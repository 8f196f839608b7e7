//! Waves whose lanes come and go: parts of a wave that call side by side, lanes that end early, more waves than slots.

use crate::mix;
use crate::services::{AsyncGate, Echo, Gate, Keys, Meter};
use hostcall_device::{Global, Lane, kernel, process};

/// A number of the lane's wave in the grid.
fn wave_of(lane: &Lane) -> u64 {
    lane.workgroup()[0] as u64 * 64 + u64::from(lane.wave())
}

/// The first lane of each wave waits for what the second opens after it has called `count` times; the others call as often.
#[kernel]
pub fn slots_beside_a_slow_call(lane: &Lane, count: u32, out: &[Global<u64>]) {
    let (id, key) = (lane.global_id() as u64, wave_of(lane));
    if lane.index() == 0 {
        assert_eq!(Gate::pass(key), Ok(key));
    } else {
        for i in 0..u64::from(count) {
            assert_eq!(Echo::two(id, i), Ok((id, i)));
            Meter::post_note(id, i).unwrap();
            if i % 16 == 15 {
                assert_eq!(Meter::noted(id), Ok(i + 1));
            }
        }
        if lane.index() == 1 {
            Keys::open(key).unwrap();
        }
    }
    out[id as usize].set(id + 1);
}

/// The first two lanes of each wave wait for each other in turn, each in a call that the other one ends.
#[kernel]
pub fn slots_wait_for_each_other(lane: &Lane, rounds: u32, out: &[Global<u64>]) {
    let (id, wave) = (lane.global_id() as u64, wave_of(lane));
    for round in 0..u64::from(rounds) {
        let key = (wave << 16 | round) << 1;
        match lane.index() {
            0 => {
                assert_eq!(Gate::pass(key), Ok(key));
                Keys::open(key + 1).unwrap();
            }
            1 => {
                Keys::open(key).unwrap();
                // Another method: lanes that call one method together get their answers together.
                assert_eq!(AsyncGate::pass(key + 1), Ok(key + 1));
            }
            _ => {}
        }
    }
    out[id as usize].set(id + 1);
}

/// Every lane waits for one of two gates, in calls that go apart.
#[kernel]
pub fn slots_all_wait(lane: &Lane, key: u64, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    match lane.index() % 2 {
        0 => assert_eq!(Gate::pass(key), Ok(key)),
        _ => assert_eq!(AsyncGate::pass(key), Ok(key)),
    }
    out[id as usize].set(id + 1);
}

/// Lanes post, call and end, each after a number of rounds of its own; some never do anything.
#[kernel]
pub fn slots_end_one_by_one(lane: &Lane, keys: u64, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let rounds = mix(id) % 5;
    for i in 0..rounds {
        if mix(id + i).is_multiple_of(3) {
            assert_eq!(Echo::one(id << 8 | i), Ok(id << 8 | i));
        }
        Meter::post_note(keys + id, i).unwrap();
    }
    out[id as usize].set(rounds);
}

/// Some lanes panic after a few calls and posts, while the others of their waves call on.
#[kernel]
pub fn slots_panic_in_the_middle(lane: &Lane, seed: u64) {
    let id = lane.global_id() as u64;
    for i in 0..20 {
        if mix(id ^ seed).is_multiple_of(16) && i == mix(id) % 20 {
            panic!("lane {id} has enough");
        }
        if Echo::two(id, i) != Ok((id, i)) {
            return;
        }
        if Meter::post_note1(i).is_err() {
            return;
        }
    }
}

/// Some lanes end the program after a few calls, while the others of their waves call on.
#[kernel]
pub fn slots_exit_in_the_middle(lane: &Lane, seed: u64) {
    let id = lane.global_id() as u64;
    for i in 0..20 {
        if mix(id ^ seed).is_multiple_of(16) && i == mix(id) % 20 {
            process::exit(7);
        }
        if Echo::two(id, i) != Ok((id, i)) {
            return;
        }
    }
}
