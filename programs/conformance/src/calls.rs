//! Calls of all sizes and types, from all sorts of places in a kernel.

use crate::services::{Bytes, Echo, Event, Meter, NotFound, Point, Types};
use core::array::from_fn;
use hostcall_device::call::{CallOptions, call, call_with_bytes};
use hostcall_device::{Global, Lane, kernel};

/// Values that use all 64 bits, other ones for each lane.
fn values<const N: usize>(id: u64) -> [u64; N] {
    from_fn(|i| crate::mix(id << 8 | i as u64))
}

/// 0 to 64 words there and back.
#[kernel]
pub fn call_words(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let [a, b] = values(id);
    assert_eq!(Echo::zero(), Ok(()));
    assert_eq!(Echo::one(a), Ok(a));
    assert_eq!(Echo::two(a, b), Ok((a, b)));
    assert_eq!(Echo::three(values(id)), Ok(values(id)));
    assert_eq!(Echo::four(values(id)), Ok(values(id)));
    assert_eq!(Echo::five(values(id)), Ok(values(id)));
    assert_eq!(Echo::six(values(id)), Ok(values(id)));
    assert_eq!(Echo::seven(values(id)), Ok(values(id)));
    assert_eq!(Echo::eight(values(id)), Ok(values(id)));
    assert_eq!(Echo::twenty(values(id)), Ok(values(id)));
    assert_eq!(Echo::sixty_four(values(id)), Ok(values(id)));
    assert_eq!(Echo::swallow(values(id)), Ok(()));
    assert_eq!(Echo::produce(), Ok([u64::MAX, 0, 1, 2, 3, 4, 1 << 63]));
    for value in [0, 1, u64::MAX, 1 << 63, i64::MAX as u64] {
        assert_eq!(Echo::seven([value; 7]), Ok([value; 7]));
    }
    out[id as usize].set(id + 1);
}

/// Every type there and back.
#[kernel]
pub fn call_types(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let n = id as u8;
    let unsigned = (n, u16::MAX, u32::MAX - u32::from(n), u64::MAX - id, usize::MAX);
    let (a, b, c, d, e) = unsigned;
    assert_eq!(Types::unsigned(a, b, c, d, e), Ok(unsigned));
    let signed = (-(n as i8 & 0x7f), i16::MIN, -1 - i32::from(n), i64::MIN + id as i64, -5isize);
    let (a, b, c, d, e) = signed;
    assert_eq!(Types::signed(a, b, c, d, e), Ok(signed));
    let other = (-1.5f32 * f32::from(n), f64::MIN_POSITIVE, n.is_multiple_of(2), '\u{10ffff}');
    let (a, b, c, d) = other;
    assert_eq!(Types::other(a, b, c, d), Ok(other));
    let point = Point { x: -7 - i32::from(n), y: f32::from(n) / 4.0 };
    for event in [
        Event::Started,
        Event::Moved { from: point, to: (n, i64::MIN) },
        Event::Failed(None),
        Event::Failed(Some('ß')),
    ] {
        assert_eq!(Types::event(event), Ok(event));
    }
    for value in [None, Some((n, [point, Point { x: 1, y: -0.5 }]))] {
        assert_eq!(Types::nested(value), Ok(value));
    }
    assert_eq!(Types::lookup(id * 2), Ok(Ok(id * 20)));
    assert_eq!(Types::lookup(id * 2 + 1), Ok(Err(NotFound)));
    out[id as usize].set(id + 1);
}

/// `rounds` calls of each lane with a value of its own.
#[kernel]
pub fn call_in_turn(lane: &Lane, rounds: u32, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    for round in 0..u64::from(rounds) {
        assert_eq!(Echo::one(id << 32 | round), Ok(id << 32 | round));
    }
    out[id as usize].set(id + 1);
}

/// 10 + 10 × lane + 10 × workgroup calls of each lane, then calls of some.
#[kernel]
pub fn call_increments(lane: &Lane, out: &[Global<u64>]) {
    let [x, y, z] = lane.workgroup();
    let [width, height, _] = lane.workgroups();
    let workgroup = (z * height + y) * width + x;
    let count = 10 + 10 * lane.local_id() as u64 + 10 * u64::from(workgroup);
    let mut value = 0;
    for _ in 0..count {
        let (next, same) = Echo::two(value + 1, value).unwrap();
        assert_eq!(same, value);
        value = next;
    }
    assert_eq!(value, count);
    if lane.local_id().is_multiple_of(2) {
        assert_eq!(Echo::zero(), Ok(()));
    }
    if lane.local_id().is_multiple_of(3) {
        assert_eq!(Echo::zero(), Ok(()));
        assert_eq!(Echo::zero(), Ok(()));
    }
    out[lane.global_id()].set(value);
}

/// One call of counter 1 a wave, of counter 2 a workgroup, of counter 3 a lane.
#[kernel]
pub fn call_once(lane: &Lane, out: &[Global<u64>]) {
    let wave = lane.once_per_wave(|| Meter::next(1).unwrap());
    let workgroup = lane.once_per_workgroup(|| Meter::next(2).unwrap());
    let own = Meter::next(3).unwrap();
    let again = lane.once_per_workgroup(|| workgroup * 3);
    assert_eq!(again, workgroup * 3);
    let i = 3 * lane.global_id();
    out[i].set(wave);
    out[i + 1].set(workgroup);
    out[i + 2].set(own);
}

fn deep(id: u64, depth: u64) -> u64 {
    if depth == 0 {
        return Echo::one(id).unwrap();
    }
    if id >> depth & 1 == 0 { deep(id, depth - 1) } else { deep(id, depth - 1) + Echo::one(1).unwrap() }
}

/// Calls in branches, loops of different lengths, after early returns, and from recursion.
#[kernel]
pub fn call_divergent(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let out = &out[id as usize];
    if id.is_multiple_of(2) {
        assert_eq!(Echo::one(id), Ok(id));
    } else if id.is_multiple_of(3) {
        assert_eq!(Echo::three([id, 1, 2]), Ok([id, 1, 2]));
    } else {
        let data = [id as u8; 40];
        let mut reply = [0; 40];
        let len = id as usize % 40;
        assert_eq!(Bytes::echo(&data[..len], &mut reply), Ok((len as u32, len)));
        assert!(reply[..len] == data[..len]);
        if id.is_multiple_of(5) {
            assert_eq!(Echo::zero(), Ok(()));
        }
    }
    let mut sum = 0;
    for i in 0..id % 13 {
        if i % 2 == id % 2 {
            sum += Echo::one(i).unwrap();
        } else {
            sum += Echo::two(i, id).unwrap().0;
        }
    }
    assert_eq!(sum, (0..id % 13).sum());
    if id % 7 == 3 {
        out.set(id + 1);
        return;
    }
    match id % 4 {
        0 => assert_eq!(Echo::zero(), Ok(())),
        1 => assert_eq!(Echo::seven([id; 7]), Ok([id; 7])),
        2 => assert_eq!(Types::lookup(id), Ok(Ok(id * 10))),
        _ => {}
    }
    assert_eq!(deep(id, 6), id + u64::from((id >> 1 & 0x3f).count_ones()));
    out.set(id + 1);
}

/// Each lane calls the method that it chose, of two services whose calls look alike: lanes that are together call different
/// ones.
#[kernel]
pub fn call_chosen(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let methods = [&Echo::METHODS[1], &Meter::METHODS[0], &Bytes::METHODS[0], &Bytes::METHODS[1]];
    for round in 0..8 {
        let choice = (crate::mix(id + round) % 4) as usize;
        let (method, value) = (methods[choice], id << 8 | round);
        if choice < 2 {
            let expected = if choice == 0 { value } else { 0 };
            assert_eq!(call(method, CallOptions::DEFAULT, &(value,)), Ok(expected));
        } else {
            let (data, mut reply) = (value.to_le_bytes(), [0; 8]);
            let result = call_with_bytes(method, CallOptions::DEFAULT, &(8u32,), &[&data], &mut reply);
            let expected = if choice == 2 { (8, 8) } else { (Bytes::hash(&data).unwrap(), 0) };
            assert_eq!(result, Ok(expected));
            assert!(choice == 3 || reply == data);
        }
    }
    out[id as usize].set(id + 1);
}

/// Writes where each lane is: workgroup, position, wave, index in it.
#[kernel]
pub fn call_positions(lane: &Lane, out: &[Global<u64>]) {
    let pack = |[x, y, z]: [u32; 3]| u64::from(z) << 40 | u64::from(y) << 20 | u64::from(x);
    let i = 4 * lane.global_id();
    out[i].set(Echo::one(pack(lane.workgroup())).unwrap());
    out[i + 1].set(Echo::one(pack(lane.position())).unwrap());
    out[i + 2].set(Echo::one(lane.wave().into()).unwrap());
    out[i + 3].set(Echo::one(lane.index().into()).unwrap());
}
