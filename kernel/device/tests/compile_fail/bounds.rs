//! Types that a cell, a wave or an operation does not take, with what to use instead.

use hostcall_device::workgroup::Scratch;
use hostcall_device::{Global, Lane, Plain, Shared, kernel, wave};

#[repr(C)]
#[derive(Clone, Copy, Plain)]
struct Pair {
    key: u64,
    value: u64,
}

#[kernel]
fn cells_of_structs(_: &Lane, _pairs: &[Global<Pair>]) {}

#[kernel]
fn wide_cells(_: &Lane, _wide: &[Global<u128>]) {}

#[kernel]
fn shared_structs(_: &Lane, #[workgroup] _pairs: &[Shared<Pair>; 4]) {}

#[kernel]
fn reduces(lane: &Lane, #[workgroup] scratch: &Scratch<u8>, yes: bool) {
    lane.wave_reduce(yes, wave::Or);
    lane.wave_reduce(1.0f32, wave::And);
    lane.workgroup_reduce(scratch, 1u8, wave::Add);
}

fn counts(cells: &[Global<u32>], i: usize) {
    cells[i] += 1;
    cells[i] = 1;
}

#[kernel]
fn writes(_: &Lane, x: &[f32]) {
    x[0] = 1.0;
}

fn main() {}
