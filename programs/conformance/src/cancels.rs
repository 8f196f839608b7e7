//! Waiting, in every way that a lane can wait, until the launch is cancelled.

use crate::services::{Arrivals, AsyncGate, Bytes, Echo, Gate, Meter};
use crate::{bytes::byte, mix};
use alloc::vec::Vec;
use core::array::from_fn;
use core::time::Duration;
use hostcall_device::{Global, HostcallRef, Lane, kernel, println, time};

/// The ways to wait, in the order of their numbers.
pub const WAYS: [&str; 12] = [
    "inline", "blocking", "async", "bytes", "posts", "pending", "barrier", "sleep", "pause", "print",
    "closure", "apart",
];

/// Each lane says that it is there, and waits in way `way` until a call fails or its launch's end ends it. Handlers of
/// `key` do not answer.
#[kernel]
pub fn cancel_wait(lane: &Lane, way: u32, key: u64, remote: HostcallRef<u64, u64>, out: &[Global<u64>]) {
    let id = lane.global_id();
    if Arrivals::arrive(key).is_ok() {
        let way = match way {
            // Any way but the barrier, to which all lanes of a wave have to come.
            11 => match (mix(key ^ id as u64) % 10) as u32 {
                6 => 10,
                way => way,
            },
            way => way,
        };
        wait(lane, way, key, &remote);
    }
    out[id].set(1);
}

fn wait(lane: &Lane, way: u32, key: u64, remote: &HostcallRef<u64, u64>) {
    let id = lane.global_id() as u64;
    match way {
        0 => while Echo::one(id).is_ok() {},
        1 => while Gate::pass(key).is_ok() {},
        2 => while AsyncGate::pass(key).is_ok() {},
        3 => {
            let data: Vec<u8> = (0..mix(key ^ id) as usize % 3000).map(|i| byte(id, i)).collect();
            let mut back = alloc::vec![0; data.len()];
            while let Ok((len, filled)) = Bytes::echo(&data, &mut back) {
                assert!(len as usize == data.len() && filled == data.len() && back == data);
            }
        }
        4 => while Meter::note(key, id).is_ok() {},
        5 => loop {
            let calls: [_; 3] = from_fn(|i| Gate::start_pass(lane, key + (i as u64 & 1)));
            if calls.into_iter().any(|call| call.wait().is_err()) {
                break;
            }
        },
        6 => {
            // Lane 0 keeps the others at the barrier.
            while lane.local_id() == 0 && Gate::pass(key).is_ok() {}
            lane.barrier();
        }
        7 => loop {
            time::sleep(Duration::from_micros(1 + mix(key ^ id) % 300));
        },
        8 => loop {
            lane.pause();
        },
        9 => loop {
            println!("lane {id} of {key}");
            if Echo::zero().is_err() {
                break;
            }
        },
        _ => while remote.call(id).is_ok() {},
    }
}
