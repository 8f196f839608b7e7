//! Kernels' parameters of every kind, and two kernels of one name.

use hostcall_device::{Global, HostcallRef, Lane, Plain, kernel};

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

/// What hosts in C pass: a struct, structs in a buffer, a closure, and cells in memory that the host reads meanwhile.
#[kernel]
pub fn of_other_languages(
    lane: &Lane,
    step: Step,
    steps: &[Step],
    remote: HostcallRef<(u64, u64), u64>,
    out: &[Global<u64>],
) {
    let i = lane.global_id();
    let of_step = step.factor * i as u64 + u64::from(step.counts[1]) + step.offset as u64;
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
