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

/// Ways of [`panic_values`].
pub const VALUES: u32 = 14;

/// Lane `guilty` of the grid panics in one of [`VALUES`] ways, with values that no function of this program has to show. `texts` has
/// six bytes of a text.
#[kernel]
#[allow(clippy::unnecessary_literal_unwrap, reason = "the ways in which programs panic are what is tried")]
pub fn panic_values(lane: &Lane, kind: u32, guilty: u64, texts: &[Global<u8>], out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let is_guilty = Echo::one(id) == Ok(id) && id == guilty;
    if is_guilty {
        let (small, negative, float) = (black_box(7u8), black_box(-3i16), black_box(0.125f32));
        let (letter, truth, word) = (black_box('é'), black_box(true), black_box("a \"word\""));
        match kind {
            0 => panic!("{small} {negative} {float} {letter} {truth} {word} {}", u64::MAX),
            1 => panic!(
                "{small:>5}|{small:#06x}|{negative:+}|{negative:x}|{float:.2}|{float:e}|{word:>12}|{word:-<9.3}"
            ),
            2 => panic!("{letter:?} {word:?} {float:?} {small:08b} {small:o} {id:X} {small:#?}"),
            3 => panic!("{:1$}|{:.*}|{{}}", negative, black_box(6), float),
            4 => core::assert_eq!(id, id + 1),
            5 => core::assert_eq!(small, 8, "of lane {id}: {word}"),
            6 => core::assert_ne!(&&letter, &&'é'),
            7 => Err::<(), CallError>(black_box(CallError::Failed(-5))).unwrap(),
            8 => Err::<(), &str>(word).expect("a word"),
            9 => {
                _ = black_box(&[1, 2, 3][..])
                    .get(black_box(2)..black_box(9))
                    .map_or_else(|| panic!("{}", word), <[i32]>::len)
            }
            10 => _ = black_box(&[1, 2, 3][..])[black_box(3)..black_box(2)].len(),
            11 => _ = black_box(small) / black_box(0),
            12 => {
                // A text that the program does not hold, in memory of the host's or of this lane.
                let mut bytes = [0; 6];
                bytes.iter_mut().zip(texts).for_each(|(to, from)| *to = from.get());
                panic!("from elsewhere: {}", core::str::from_utf8(&bytes).unwrap_or("?"));
            }
            _ => panic!("{}", LONG),
        }
    }
    out[id as usize].set(1 + u64::from(is_guilty));
}

/// More than a device sends of a text.
pub const LONG: &str = match core::str::from_utf8(&[b'l'; 700]) {
    Ok(long) => long,
    Err(_) => "",
};

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
