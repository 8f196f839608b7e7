//! What the link allows: the same traffic as hostcall's, with nothing in the way.

use crate::link::{load, pairs, store, ticks};
use hostcall_device::{Disjoint, Global, Lane, kernel};

/// The top bit of a word: says which turn it is of.
const LAP: u64 = 1 << 63;

/// A lane flips a flag in host memory and waits until the host has flipped it back, `count` times.
#[kernel(max_lanes = 256)]
pub fn flag_ping_pong(
    lane: &Lane,
    request: &[Global<u64>],
    reply: &[Global<u64>],
    ns: &[Global<u64>],
    count: u64,
) {
    let (request, reply) = (&request[lane.global_id()], &reply[lane.global_id()]);
    let start = lane.clock_ns();
    for i in 1..=count {
        store(request, i);
        while load(reply) != i {}
    }
    ns[lane.global_id()].set(lane.clock_ns() - start);
}

/// Loads on their way at a time in [`overlapped_ping_pong`].
const LOADS: usize = 4;

/// As [`flag_ping_pong`], but the next look at the reply begins before the last one's answer has come:
/// `apart` ticks after it.
#[kernel(max_lanes = 256)]
pub fn overlapped_ping_pong(
    lane: &Lane,
    request: &[Global<u64>],
    reply: &[Global<u64>],
    ns: &[Global<u64>],
    count: u64,
    apart: u64,
) {
    let (request, reply) = (&request[lane.global_id()], &reply[lane.global_id()]);
    let start = lane.clock_ns();
    let mut seen = [0; LOADS];
    for value in &mut seen {
        *value = load(reply);
        let begin = ticks(lane);
        while ticks(lane) - begin < apart {}
    }
    let mut i = 0;
    'turns: loop {
        for value in &mut seen {
            if *value == i {
                i += 1;
                if i > count {
                    break 'turns;
                }
                store(request, i);
            }
            *value = load(reply);
        }
    }
    ns[lane.global_id()].set(lane.clock_ns() - start);
}

/// Each lane of a wave stores 16 bytes and waits for 16 bytes back, each word with its flag, `count` times.
#[kernel(max_lanes = 256)]
pub fn pair_ping_pong(
    lane: &Lane,
    request: &[Global<u64>],
    reply: &[Global<u64>],
    ns: &[Global<u64>],
    count: u64,
) {
    let id = lane.global_id();
    let (request, reply) = (&pairs(request)[id], &pairs(reply)[id]);
    let start = lane.clock_ns();
    for i in 1..=count {
        request.store([i, i]);
        while reply.load() != [i, i] {}
        // The lanes of a call go on together too.
        lane.active();
    }
    ns[id].set(lane.clock_ns() - start);
}

/// Calls with no dispatch and no status: each wave has a doorbell, a word that counts its calls, and each
/// lane `words` (1 or 8) words of its own in host memory and 16 bytes for the answer. The lap of call `i` is
/// its lowest bit.
#[kernel(max_lanes = 256)]
pub fn bare_calls(
    lane: &Lane,
    bells: &[Global<u32>],
    requests: &[Global<u64>],
    replies: &[Global<u64>],
    ns: &[Global<u64>],
    words: u32,
    count: u64,
) {
    let id = lane.global_id();
    let lanes = lane.workgroup_size()[0] as usize;
    let waves = lanes.div_ceil(lane.wave_size() as usize);
    let wave = lane.workgroup()[0] as usize * waves + lane.wave() as usize;
    let place = wave * lane.wave_size() as usize + lane.index() as usize;
    let (bell, first) = (&bells[wave], &requests[8 * place]);
    let request: &[_; 4] = pairs(requests)[4 * place..][..4].try_into().unwrap();
    let reply = &pairs(replies)[place];
    let start = lane.clock_ns();
    for i in 1..=count {
        let lap = i << 63;
        if lane.index() == 0 {
            bell.set(i as u32);
        }
        if words == 1 {
            store(first, lap | i);
        } else {
            request[0].store([lap | i, lap | 1]);
            request[1].store([lap | 2, lap | 3]);
            request[2].store([lap | 4, lap | 5]);
            request[3].store([lap | 6, lap | 7]);
        }
        while reply.load() != [lap | (i + 1), lap | 7] {}
        lane.active();
    }
    ns[id].set(lane.clock_ns() - start);
}

/// Posts with no dispatch: each wave has a ring of `entries` (a power of two) entries of 16 bytes in host memory, whose
/// words bear the lap of the ring's pass, and the host tells in `tails`, a cache line a wave, how far it has read.
#[kernel(max_lanes = 256)]
pub fn bare_posts(
    lane: &Lane,
    rings: &[Global<u64>],
    tails: &[Global<u64>],
    ns: &[Global<u64>],
    entries: u32,
    count: u64,
) {
    let id = lane.global_id();
    let in_workgroup = lane.workgroup_size()[0];
    let wave = lane.workgroup()[0] * in_workgroup.div_ceil(lane.wave_size()) + lane.wave();
    let lanes = in_workgroup.min(lane.wave_size());
    let ring = &pairs(rings)[wave as usize * entries as usize..][..entries as usize];
    let tail = &tails[8 * wave as usize];
    let (mut known, mut position) = (0u32, 0u32);
    let start = lane.clock_ns();
    for i in 0..count {
        while position.wrapping_sub(known) + lanes > entries {
            known = load(tail) as u32;
        }
        let at = position + lane.index();
        let lap = if at & entries == 0 { LAP } else { 0 };
        ring[(at & (entries - 1)) as usize].store([lap | i, lap | u64::from(lane.index())]);
        position = position.wrapping_add(lanes);
    }
    ns[id].set(lane.clock_ns() - start);
}

/// All lanes together fill `words` with 16-byte stores, `count` times.
#[kernel]
pub fn stores(lane: &Lane, words: &[Global<u64>], ns: &[Global<u64>], count: u64) {
    let (id, step, words) = (lane.global_id(), lane.grid_lanes(), pairs(words));
    let start = lane.clock_ns();
    for i in 0..count {
        for pair in words[id..].iter().step_by(step) {
            pair.store([i, id as u64]);
        }
    }
    ns[id].set(lane.clock_ns() - start);
}

/// Each lane stores to its share of the pairs, plainly.
#[kernel(max_lanes = 256)]
pub fn fills(lane: &Lane, value: u64, mut to: Disjoint<'_, [u64; 2]>) {
    for (i, pair) in to.share(lane) {
        *pair = [value, i as u64];
    }
}
