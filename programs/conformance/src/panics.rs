//! Panics and faults.

use crate::services::{Echo, Gate};
use core::hint::black_box;
use hostcall_device::{CallError, Global, Lane, kernel};

/// The kinds of [`panic_kinds`], in the order of their numbers.
pub const KINDS: [&str; 8] =
    ["panic", "formatted", "index", "unwrap", "expect", "assert", "overflow", "stack-overflow"];

/// Whether `overflow` panics in this build.
pub const CHECKS_OVERFLOW: bool = cfg!(debug_assertions);

/// The line of the `panic!` in [`panic_kinds`].
pub const PANIC_LINE: u32 = line!() + 9;

/// Lane `guilty` of the grid panics in the way of `kind`, between calls of all lanes.
#[kernel]
pub fn panic_kinds(lane: &Lane, kind: u32, guilty: u64, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    assert_eq!(Echo::one(id), Ok(id));
    if id == guilty {
        match kind {
            0 => panic!("the kernel gives up"),
            1 => panic!("lane {id} of {} gives up: {:?}", lane.grid_lanes(), Some(1.5)),
            2 => _ = black_box(&[1, 2, 3][..])[black_box(3)],
            3 => _ = black_box(None::<u32>).unwrap(),
            4 => black_box(Err::<(), u32>(7)).expect("no error"),
            5 => assert!(black_box(id) != guilty),
            6 => _ = black_box(black_box(u32::MAX) + black_box(1)),
            _ => _ = black_box(recurse(id)),
        };
    }
    for _ in 0..100 {
        if Echo::one(id).is_err() {
            return;
        }
    }
    out[id as usize].set(id + 1);
}

#[allow(unconditional_recursion, reason = "its stack ends some time")]
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    recurse(frame[3] + 1) + frame[5]
}

/// Lane `guilty` writes through a null pointer.
#[kernel]
pub fn panic_null_write(lane: &Lane, guilty: u64, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    if id == guilty {
        let nowhere = black_box(core::ptr::null_mut::<u64>());
        // SAFETY: none: the test is about what happens then. `black_box` keeps the compiler from knowing.
        unsafe { nowhere.write_volatile(1) };
    }
    assert_eq!(Echo::one(id), Ok(id));
    out[id as usize].set(id + 1);
}

/// Workgroup 0 waits for gates that nobody opens; lane 0 of workgroup 1 passes its gate and faults. Lanes whose call
/// was cancelled write 1.
#[kernel]
pub fn panic_fault_beside_calls(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    if lane.workgroup()[0] == 0 {
        let cancelled = Gate::pass(id) == Err(CallError::Cancelled);
        out[id as usize].set(if cancelled { 1 } else { 2 });
    } else if lane.local_id() == 0 && Gate::pass(id).is_ok() {
        let nowhere = black_box(core::ptr::null_mut::<u64>());
        // SAFETY: none, as above.
        unsafe { nowhere.write_volatile(1) };
    }
}
