//! Kernels' parameters of every kind and number, instances of generic kernels, and two kernels of one name.

use hostcall_device::atomic::{Ordering, Scope};
use hostcall_device::math::Float;
use hostcall_device::{Global, HostcallRef, Lane, Plain, Word, kernel, wave};

/// A struct as a parameter and in a buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Plain)]
pub struct Step {
    pub factor: u64,
    pub counts: [u16; 2],
    pub offset: i32,
}

/// Every kind of parameter, more than eight of them: writes a number that depends on each.
#[kernel]
#[allow(clippy::too_many_arguments, reason = "it is what the case is about")]
pub fn of_every_kind(
    lane: &Lane,
    step: Step,
    negative: bool,
    pair: (u8, u64, bool),
    numbers: [u32; 3],
    byte: i8,
    float: f32,
    double: f64,
    steps: &[Step],
    first: &Step,
    out: &[Global<u64>],
) {
    let i = lane.global_id();
    let mut sum = step.factor * i as u64 + u64::from(step.counts[1]) + step.offset as u64;
    sum += u64::from(pair.0) + pair.1 + u64::from(pair.2) + u64::from(numbers[2]) + byte as u64;
    sum += float as u64 + double as u64 + steps[i % steps.len()].factor + first.offset as u64;
    out[i].set(if negative { sum.wrapping_neg() } else { sum });
}

/// The key of an [`Entry`] without one.
pub const NO_KEY: u64 = u64::MAX;

/// An entry of a table, whose cells the host writes too.
#[repr(C)]
#[derive(Debug, Plain)]
pub struct Entry<T: Word> {
    pub key: Global<u64>,
    pub sums: [Global<T>; 2],
}

/// Adds each lane's number to the entry of its key, one of five, and writes the largest number of the lanes that came along.
#[kernel(instances(table_f64 = <f64>))]
pub fn table<T: Float>(lane: &Lane, entries: &[Entry<T>], out: &[Global<u64>]) {
    let i = lane.global_id();
    let key = i as u64 % 5;
    let mut at = i % entries.len();
    while let Err(other) =
        entries[at].key.compare_exchange(NO_KEY, key, Ordering::Relaxed, Ordering::Relaxed, Scope::Device)
    {
        if other == key {
            break;
        }
        at = (at + 1) % entries.len();
    }
    let half = T::from_f64(i as f64) / (T::ONE + T::ONE);
    for sum in &entries[at].sums {
        sum.fetch_add(half, Ordering::Relaxed, Scope::Device);
    }
    let largest = lane.wave_reduce(i, wave::with(0, |a, b| if a > b { a } else { b }));
    out[i].set(largest as u64);
}

macro_rules! many {
    ($($at:literal $parameter:ident)*) => {
        /// More parameters than a tuple has: writes the sum of each times its place, which is that of the buffer too.
        #[kernel]
        #[allow(clippy::too_many_arguments, reason = "it is what the case is about")]
        pub fn many(lane: &Lane, first: u8, $($parameter: u32,)* wide: u64, from: &[u64], out: &[Global<u64>]) {
            let i = lane.global_id();
            let numbers = u64::from(first) $(+ $at * u64::from($parameter))*;
            out[i].set(numbers + 35 * wide + 36 * from[i]);
        }
    };
}

many! {
    1 a 2 b 3 c 4 d 5 e 6 f 7 g 8 h 9 i_ 10 j 11 k 12 l 13 m 14 n 15 o 16 p 17 q 18 r 19 s 20 t 21 u 22 v 23 w 24 x 25 y
    26 z 27 aa 28 bb 29 cc 30 dd 31 ee 32 ff 33 gg 34 hh
}

/// Reads what is there: `from`, or the lane's place; adds the one value. Writes a value, and where it is wanted a cell.
#[kernel]
pub fn optional(
    lane: &Lane,
    from: Option<&[u64]>,
    add: Option<&u64>,
    out: &[Global<u64>],
    copies: Option<&[Global<u64>]>,
) {
    let i = lane.global_id();
    let value = match from {
        Some([]) => 1000,
        Some(from) => from[i],
        None => i as u64,
    };
    let value = value + add.copied().unwrap_or(0);
    out[i].set(value);
    if let Some(copies) = copies {
        copies[i].set(value + 1);
    }
}

/// Adds `by` to each of `N` values that follow each other: of a lane.
#[kernel(instances(add_u64_3 = <u64, 3>, add_f32_2 = <f32, 2>))]
pub fn add<T: Word + Plain + core::ops::Add<Output = T>, const N: usize>(
    lane: &Lane,
    by: T,
    values: &[Global<T>],
) {
    for value in &values[N * lane.global_id()..][..N] {
        value.set(value.get() + by);
    }
}

/// Writes ten times what it reads.
#[kernel]
pub fn halves(lane: &Lane, from: &[u64], to: &[Global<u64>]) {
    let i = lane.global_id();
    to[i].set(10 * from[i]);
}

/// What hosts in C pass: a struct, structs in a buffer, a closure, and cells in memory that the host reads meanwhile.
#[kernel]
pub fn of_other_languages(
    lane: &Lane,
    step: Step,
    steps: &[Step],
    remote: HostcallRef<(u64, u64), u64>,
    out: &[Global<u64>],
    more: Option<&[Step]>,
    absent: Option<&u32>,
) {
    let i = lane.global_id();
    let of_step = step.factor * i as u64 + u64::from(step.counts[1]) + step.offset as u64;
    let of_step = of_step + more.map_or(0, |more| 10_000 * more.len() as u64) + absent.map_or(0, |_| 1 << 40);
    let answer = remote.call((of_step, steps[i % steps.len()].factor)).unwrap_or(u64::MAX);
    out[i].set(answer);
}

pub mod first {
    use super::*;

    #[kernel]
    pub fn same_name(lane: &Lane, out: &[Global<u64>]) {
        out[lane.global_id()].set(1);
    }
}

pub mod second {
    use super::*;

    #[kernel]
    pub fn same_name(lane: &Lane, out: &[Global<u64>]) {
        out[lane.global_id()].set(2);
    }
}
