//! Calls of all kinds in random order.

use crate::mix;
use crate::services::{Ledger, SlowLedger};
use core::array::from_fn;
use hostcall_device::{CallError, Global, Lane, kernel};

/// The value that lane `id` sends with call `sequence`.
pub fn value(id: u64, sequence: u64) -> u64 {
    mix(id << 40 ^ sequence)
}

/// What the host answers to `value`.
pub fn answer(value: u64) -> u64 {
    value.rotate_left(17) ^ 0x5555
}

/// Longest message of bytes.
pub const MAX_BYTES: usize = 700;

/// `rounds` calls of each lane, of random kinds, which all carry a number of their own; `out` holds how many
/// were answered. Lane numbers count up from `first`.
#[kernel]
pub fn stress(lane: &Lane, first: u64, rounds: u64, seed: u64, out: &[Global<u64>]) {
    let id = first + lane.global_id() as u64;
    let out = &out[lane.global_id()];
    let mut random = mix(seed ^ id);
    let mut sequence = 0;
    while sequence < rounds {
        random = mix(random);
        let result = match random % 64 {
            0..8 => Ledger::post_note(id, sequence, value(id, sequence)).map(|()| 1),
            8..12 => pending(lane, id, sequence, (random >> 8) % 4 + 1, rounds),
            12 => slow(id, sequence),
            13 => message(id, sequence, (random >> 8) as usize % (MAX_BYTES + 1)),
            14 => {
                for _ in 0..random >> 8 & 31 {
                    lane.pause();
                }
                Ok(0)
            }
            _ => call(id, sequence),
        };
        match result {
            Ok(answered) => sequence += answered,
            Err(error) => {
                assert_eq!(error, CallError::Cancelled);
                break;
            }
        }
        out.set(sequence);
    }
}

fn check(id: u64, sequence: u64, answered: u64) {
    assert_eq!(answered, answer(value(id, sequence)), "another call's answer");
}

fn call(id: u64, sequence: u64) -> Result<u64, CallError> {
    check(id, sequence, Ledger::call(id, sequence, value(id, sequence))?);
    Ok(1)
}

fn slow(id: u64, sequence: u64) -> Result<u64, CallError> {
    check(id, sequence, SlowLedger::call(id, sequence, value(id, sequence))?);
    Ok(1)
}

fn pending(lane: &Lane, id: u64, sequence: u64, count: u64, rounds: u64) -> Result<u64, CallError> {
    let count = count.min(rounds - sequence);
    let calls: [_; 4] = from_fn(|i| {
        let sequence = sequence + i as u64;
        ((i as u64) < count).then(|| Ledger::start_call(lane, id, sequence, value(id, sequence)))
    });
    for (i, call) in calls.into_iter().enumerate().rev() {
        if let Some(call) = call {
            check(id, sequence + i as u64, call.wait()?);
        }
    }
    Ok(count)
}

fn message(id: u64, sequence: u64, len: usize) -> Result<u64, CallError> {
    let seed = value(id, sequence);
    let mut data = [0; MAX_BYTES];
    for (i, to) in data[..len].iter_mut().enumerate() {
        *to = crate::bytes::byte(seed, i);
    }
    let mut reply = [0; MAX_BYTES];
    let (answered, filled) = SlowLedger::bytes(id, sequence, &data[..len], &mut reply)?;
    assert_eq!(answered, answer(len as u64));
    assert!(filled == len && reply[..len] == data[..len], "another message's reply");
    Ok(1)
}
