//! What the lanes of a workgroup share and compute together, and atomic operations.

use crate::mix;
use crate::waves::numbers;
use core::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use hostcall_device::atomic::{AtomicInteger, AtomicWord, Scope};
use hostcall_device::wave::{Add, Max, Min, WaveNumber};
use hostcall_device::workgroup::Scratch;
use hostcall_device::{Global, Lane, Shared, kernel};

/// Elements of the fixed array of [`workgroup_arrays`].
pub const FIXED: usize = 70;

/// Lanes write arrays that are fixed and sized at launch, and read what others wrote: the lane `7 * i + 3` further. One array
/// has cells of four numbers each.
#[kernel]
pub fn workgroup_arrays(
    lane: &Lane,
    #[workgroup] bytes: &[Shared<u8>; FIXED],
    #[workgroup] quads: &[Shared<[f32; 4]>; 128],
    values: &[u64],
    #[workgroup] rest: &[Shared<u64>],
    out: &[Global<u64>],
) {
    // All of the memory is the parameters'.
    assert!(lane.workgroup_memory::<u64>().is_empty());
    let [width, height, depth] = lane.workgroup_size();
    let (lanes, at) = ((width * height * depth) as usize, lane.local_id());
    for round in 0..3 {
        let value = values[lane.global_id()] + round;
        if let Some(cell) = bytes.get(at) {
            cell.set(value as u8);
        }
        if let Some(cell) = quads.get(at) {
            let first = (value % 1000) as f32;
            cell.set([first, first + 0.5, -first, 2.0]);
        }
        rest[at].set(value);
        lane.barrier();
        let other = (at * 7 + 3) % lanes;
        let mut sum = rest[other].get();
        if let Some(cell) = bytes.get(other) {
            assert_eq!(cell.get(), sum as u8);
        }
        if let Some(cell) = quads.get(other) {
            let first = (sum % 1000) as f32;
            assert!(cell.get() == [first, first + 0.5, -first, 2.0]);
        }
        sum += rest.len() as u64;
        lane.barrier();
        out[lane.global_id()].set(sum);
    }
}

/// Words that [`together`] puts for a type.
pub const TOGETHER: usize = 6;
/// Words that [`workgroup_numbers`] writes a lane.
pub const WORDS: usize = 6 * TOGETHER;

fn together<T: WaveNumber>(lane: &Lane, scratch: &Scratch<T>, value: T, put: &mut impl FnMut(u64)) {
    // One after the other, with the same memory.
    put(lane.workgroup_reduce(scratch, value, Add).to_raw_bits());
    put(lane.workgroup_scan(scratch, value, Add).to_raw_bits());
    put(lane.workgroup_reduce(scratch, value, Min).to_raw_bits());
    put(lane.workgroup_scan_exclusive(scratch, value, Add).to_raw_bits());
    put(lane.workgroup_scan_exclusive(scratch, value, Max).to_raw_bits());
    put(lane.workgroup_reduce(scratch, value, Max).to_raw_bits());
}

/// Reductions and scans of the workgroup's lanes.
#[kernel]
pub fn workgroup_numbers(
    lane: &Lane,
    #[workgroup] a: &Scratch<u32>,
    #[workgroup] b: &Scratch<i32>,
    #[workgroup] c: &Scratch<u64>,
    #[workgroup] d: &Scratch<i64>,
    #[workgroup] e: &Scratch<f32>,
    #[workgroup] f: &Scratch<f64>,
    out: &[Global<u64>],
) {
    let id = lane.global_id();
    let mut at = id * WORDS;
    let mut put = |word: u64| {
        out[at].set(word);
        at += 1;
    };
    let brought = numbers(id as u64);
    together(lane, a, brought.0, &mut put);
    together(lane, b, brought.1, &mut put);
    together(lane, c, brought.2, &mut put);
    together(lane, d, brought.3, &mut put);
    together(lane, e, brought.4, &mut put);
    together(lane, f, brought.5, &mut put);
}

/// Bins of [`workgroup_histogram`].
pub const BINS: usize = 37;

/// Counts in workgroup memory, then in the device's; and finds the least and the largest number.
#[kernel]
pub fn workgroup_histogram(
    lane: &Lane,
    #[workgroup] counts: &[Shared<u32>; BINS],
    #[workgroup] ends: &[Shared<f32>; 2],
    #[workgroup] sum: &Shared<f64>,
    values: &[u64],
    all: &[Global<u32>],
    all_ends: &[Global<f32>],
    all_sum: &Global<f64>,
) {
    let [width, height, depth] = lane.workgroup_size();
    let (lanes, at) = ((width * height * depth) as usize, lane.local_id());
    for bin in (at..BINS).step_by(lanes) {
        counts[bin].set(0);
    }
    if at == 0 {
        ends[0].set(f32::INFINITY);
        ends[1].set(f32::NEG_INFINITY);
        sum.set(0.0);
    }
    lane.barrier();
    let value = values[lane.global_id()];
    counts[(value % BINS as u64) as usize].fetch_add(1, Relaxed);
    let number = (value % 2001) as f32 - 1000.0;
    ends[0].fetch_min(number, Relaxed);
    ends[1].fetch_max(number, Relaxed);
    sum.fetch_add(number.into(), Relaxed);
    lane.barrier();
    for bin in (at..BINS).step_by(lanes) {
        all[bin].fetch_add(counts[bin].get(), Relaxed, Scope::Device);
    }
    if at == 0 {
        all_ends[0].fetch_min(ends[0].get(), Relaxed, Scope::Device);
        all_ends[1].fetch_max(ends[1].get(), Relaxed, Scope::Device);
        all_sum.fetch_sub(-sum.get(), Relaxed, Scope::Device);
    }
}

/// Wave after wave adds to a number that is not atomic by itself, told to by a word in workgroup memory.
#[kernel]
pub fn workgroup_in_turn(lane: &Lane, #[workgroup] turn: &Shared<u32>, total: &[Global<u64>]) {
    if lane.local_id() == 0 {
        turn.set(0);
    }
    lane.barrier();
    let total = &total[lane.workgroup()[0] as usize];
    if lane.index() == 0 {
        while turn.load(Acquire) != lane.wave() {
            lane.pause();
        }
        total.set(total.get() * 3 + u64::from(lane.wave()) + 1);
        turn.store(lane.wave() + 1, Release);
    }
}

/// The first lanes come to another barrier than the others.
#[kernel]
#[allow(clippy::if_same_then_else, reason = "they are two places in the source")]
pub fn workgroup_missing(lane: &Lane, first: u32) {
    if lane.local_id() < first as usize {
        lane.barrier();
    } else {
        lane.barrier();
    }
}

/// The first lanes come to a barrier, the others to a reduction.
#[kernel]
pub fn workgroup_apart(lane: &Lane, first: u32, #[workgroup] scratch: &Scratch<u32>, out: &[Global<u32>]) {
    if lane.local_id() < first as usize {
        lane.barrier();
    } else {
        out[lane.global_id()].set(lane.workgroup_reduce(scratch, 1, Add));
    }
}

const SCOPES: [Scope; 3] = [Scope::Workgroup, Scope::Device, Scope::System];
const ORDERS: [Ordering; 5] = [Relaxed, Acquire, Release, AcqRel, SeqCst];

/// The orders of a load and of a store that go with another operation's.
fn halves(order: Ordering) -> (Ordering, Ordering) {
    match order {
        Acquire => (Acquire, Relaxed),
        Release => (Relaxed, Release),
        AcqRel => (Acquire, Release),
        order => (order, order),
    }
}

/// Each operation by each order and scope, on a cell that no other lane has.
fn alone<T: AtomicInteger + PartialEq>(cell: &Global<T>, of: impl Fn(i8) -> T) {
    for scope in SCOPES {
        for order in ORDERS {
            let (load, store) = halves(order);
            cell.store(of(12), store, scope);
            assert!(cell.load(load, scope) == of(12));
            assert!(cell.swap(of(11), order, scope) == of(12));
            assert!(cell.compare_exchange(of(12), of(6), order, load, scope) == Err(of(11)));
            assert!(cell.compare_exchange(of(11), of(12), order, load, scope) == Ok(of(11)));
            assert!(cell.fetch_add(of(10), order, scope) == of(12));
            assert!(cell.fetch_sub(of(10), order, scope) == of(22));
            assert!(cell.fetch_min(of(10), order, scope) == of(12));
            assert!(cell.fetch_max(of(12), order, scope) == of(10));
            assert!(cell.fetch_and(of(10), order, scope) == of(12));
            assert!(cell.fetch_or(of(6), order, scope) == of(8));
            assert!(cell.fetch_xor(of(10), order, scope) == of(14));
            assert!(cell.get() == of(4));
        }
    }
}

fn alone_float<T: AtomicWord + PartialEq>(cell: &Global<T>, of: impl Fn(i8) -> T) {
    for scope in SCOPES {
        for order in ORDERS {
            let (load, store) = halves(order);
            cell.store(of(-12), store, scope);
            assert!(cell.load(load, scope) == of(-12));
            assert!(cell.swap(of(11), order, scope) == of(-12));
            assert!(cell.compare_exchange(of(12), of(6), order, load, scope) == Err(of(11)));
            assert!(cell.compare_exchange(of(11), of(12), order, load, scope) == Ok(of(11)));
            assert!(cell.fetch_add(of(10), order, scope) == of(12));
            assert!(cell.fetch_sub(of(30), order, scope) == of(22));
            assert!(cell.fetch_min(of(-10), order, scope) == of(-8));
            assert!(cell.fetch_max(of(-11), order, scope) == of(-10));
            assert!(cell.fetch_max(of(12), order, scope) == of(-10));
            assert!(cell.fetch_min(of(13), order, scope) == of(12));
            assert!(cell.get() == of(12));
        }
    }
}

/// Atomic operations on cells that no other lane has. All of a word's neighbours are some lane's.
#[kernel]
pub fn atomics_alone(
    lane: &Lane,
    bytes: &[Global<u8>],
    halves: &[Global<i16>],
    words: &[Global<u32>],
    signed: &[Global<i32>],
    long: &[Global<u64>],
    long_signed: &[Global<i64>],
    floats: &[Global<f32>],
    doubles: &[Global<f64>],
) {
    let i = lane.global_id();
    alone(&bytes[i], |x| x as u8);
    alone(&halves[i], i16::from);
    alone(&words[i], |x| x as u32);
    alone(&signed[i], i32::from);
    alone(&long[i], |x| x as u64);
    alone(&long_signed[i], i64::from);
    alone_float(&floats[i], f32::from);
    alone_float(&doubles[i], f64::from);
}

/// What all lanes make of the same cells: sums, ends, bits, and additions by `compare_exchange`.
#[kernel]
pub fn atomics_together(
    lane: &Lane,
    words: &[Global<u32>],
    long: &[Global<u64>],
    bytes: &[Global<u8>],
    floats: &[Global<f32>],
    doubles: &[Global<f64>],
) {
    let id = lane.global_id() as u64;
    let (bits, small) = (mix(id), (mix(id) % 2001) as f32 - 1000.0);
    words[0].fetch_add(id as u32, Relaxed, Scope::Device);
    words[1].fetch_max(bits as u32, AcqRel, Scope::Device);
    words[2].fetch_min(bits as u32, Relaxed, Scope::System);
    words[3].fetch_xor(bits as u32, Relaxed, Scope::Device);
    long[0].fetch_add(bits, Relaxed, Scope::System);
    long[1].fetch_max(bits, Relaxed, Scope::Device);
    long[2].fetch_or(1 << (bits % 64), SeqCst, Scope::Device);
    let mut old = long[3].get();
    while let Err(now) = long[3].compare_exchange(old, old + id, Relaxed, Relaxed, Scope::Device) {
        old = now;
    }
    bytes[0].fetch_add(bits as u8, Relaxed, Scope::Device);
    bytes[1].fetch_add(1, Relaxed, Scope::Device);
    bytes[2].fetch_max(bits as u8, Relaxed, Scope::Device);
    floats[0].fetch_add(small, Relaxed, Scope::Device);
    floats[1].fetch_max(small, Relaxed, Scope::Device);
    floats[2].fetch_min(small, Relaxed, Scope::Device);
    doubles[0].fetch_sub(small.into(), Relaxed, Scope::System);
    doubles[1].fetch_min(small.into(), Relaxed, Scope::Device);
}
