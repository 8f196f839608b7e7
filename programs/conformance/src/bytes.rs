//! Messages of bytes.

use crate::services::{Bytes, Echo};
use alloc::vec;
use hostcall_device::{CallError, Global, Lane, kernel};

/// Byte `i` of the pattern `seed`.
pub fn byte(seed: u64, i: usize) -> u8 {
    crate::mix(seed ^ (i as u64 >> 3)).to_le_bytes()[i & 7]
}

/// FNV-1a, the hash of [`Bytes::hash`].
pub fn hash(data: impl IntoIterator<Item = u8>) -> u64 {
    data.into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Each lane sends its part of `data` and gets it back in its part of `room`: `len` bytes, and `step` more for
/// each further lane.
#[kernel]
pub fn bytes_echo(
    lane: &Lane,
    data: &[u8],
    len: u32,
    step: u32,
    most: u32,
    room: &[Global<u8>],
    out: &[Global<u64>],
) {
    let id = lane.global_id();
    let len = (len as usize + step as usize * id) % (most as usize + 1);
    let start = id * most as usize;
    let data = &data[start..start + len];
    // SAFETY: each lane has its own part of the buffer, and the host reads it after the launch.
    let room = unsafe {
        core::slice::from_raw_parts_mut(
            room[start..start + most as usize].as_ptr().cast_mut().cast::<u8>(),
            most as usize,
        )
    };
    assert_eq!(Bytes::hash(data), Ok(hash(data.iter().copied())));
    assert_eq!(Bytes::echo(data, room), Ok((len as u32, len)));
    out[id].set(hash(room[..len].iter().copied()));
}

/// Small messages of different lengths in lanes' own memory, 8 rounds.
#[kernel]
pub fn bytes_small(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id();
    let mut data = [0; 300];
    let mut reply = [0xee; 300];
    for round in 0..8 {
        let len = (crate::mix((id * 8 + round) as u64) % 301) as usize;
        let seed = (id ^ round << 20) as u64;
        for (i, to) in data[..len].iter_mut().enumerate() {
            *to = byte(seed, i);
        }
        assert_eq!(Bytes::echo(&data[..len], &mut reply), Ok((len as u32, len)));
        assert!(reply[..len] == data[..len]);
        assert_eq!(Bytes::make(len as u64, seed, &mut reply), Ok(((), len)));
        assert!(reply[..len] == data[..len]);
        assert_eq!(Echo::one(seed), Ok(seed));
    }
    let mut joined = [0; 16];
    let name = ["", "a", "ßé", "hostcall"][id % 4];
    let ((a, b), len) = Bytes::join(id as u8, name, -(id as i64), &[1, 2, 3], &mut joined).unwrap();
    assert_eq!((a, b, len), (id as u8, -(id as i64), name.len() + 3));
    assert!(joined[..name.len()] == *name.as_bytes() && joined[name.len()..len] == [1, 2, 3]);
    out[id].set(id as u64 + 1);
}

/// Long replies of which the host cannot hold those of all lanes together: each lane asks until it gets one,
/// and no more.
#[kernel]
pub fn bytes_in_turn(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id();
    let mut room = [0; 6000];
    loop {
        match Bytes::make(6000, id as u64, &mut room) {
            Err(CallError::Busy) => lane.pause(),
            made => break assert_eq!(made, Ok(((), 6000))),
        }
    }
    for (i, found) in room.iter().enumerate() {
        assert_eq!(*found, byte(id as u64, i));
    }
    out[id].set(id as u64 + 1);
}

/// Long replies into memory that all lanes have in common, at aligned places and at others, of parts of waves that come one
/// after the other or side by side.
#[kernel]
pub fn bytes_in_parts(lane: &Lane, out: &[Global<u64>]) {
    const MOST: usize = 20_000;
    let id = lane.global_id();
    let mut room = vec![0xee; MOST + 32];
    for round in 0..8 {
        let key = crate::mix((id * 8 + round) as u64);
        if key.is_multiple_of(3) {
            lane.pause();
            continue;
        }
        let len = (key >> 8) as usize % (MOST + 1);
        let at = [0, 16, 1, 8][round % 4];
        assert_eq!(Bytes::make(len as u64, key, &mut room[at..at + len]), Ok(((), len)));
        for (i, found) in room[at..at + len].iter().enumerate() {
            assert_eq!(*found, byte(key, i));
        }
        assert_eq!(room[at + len], 0xee);
        room.fill(0xee);
    }
    out[id].set(id as u64 + 1);
}

/// Replies longer than the caller's room, and messages longer than `limit`, which the server was started with.
#[kernel]
pub fn bytes_too_large(lane: &Lane, data: &[u8], limit: u32, out: &[Global<u64>]) {
    let id = lane.global_id();
    let limit = limit as usize;
    let mut room = [0; 64];
    for len in [65, 1000, limit - 8] {
        assert_eq!(Bytes::make(len as u64, 1, &mut room), Err(CallError::TooLarge));
        assert_eq!(Bytes::make(64, 2, &mut room), Ok(((), 64)));
    }
    assert_eq!(Bytes::make(1, 2, &mut []), Err(CallError::TooLarge));
    assert_eq!(Bytes::make(0, 2, &mut []), Ok(((), 0)));
    assert_eq!(Bytes::hash(&data[..limit + 1]), Err(CallError::TooLarge));
    assert_eq!(Bytes::hash(&data[..limit / 2]), Ok(hash(data[..limit / 2].iter().copied())));
    assert_eq!(Echo::one(id as u64), Ok(id as u64));
    out[id].set(id as u64 + 1);
}
