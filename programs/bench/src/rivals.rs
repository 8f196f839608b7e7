//! What others do, as small programs of the same language: what a call or a post would cost with their means.

use crate::link::{load, pairs, take};
use core::sync::atomic::AtomicU64;
use hostcall_device::{Global, Lane, kernel};

/// Entries of the queue of [`fifo`].
pub const FIFO_ENTRIES: usize = 1 << 16;

/// Posts through one queue for all lanes: a lane takes its place from a counter in the GPU's memory, and
/// writes its 16 bytes there with release order. `heads[0]` is the counter and `heads[1]` the last tail that a
/// lane has read; `tail` the host writes.
#[kernel(max_lanes = 256)]
pub fn fifo(
    lane: &Lane,
    heads: &[AtomicU64],
    queue: &[Global<u64>],
    tail: &[Global<u64>],
    ns: &[Global<u64>],
    count: u64,
) {
    use core::sync::atomic::Ordering::Relaxed;
    const ENTRIES: u64 = FIFO_ENTRIES as u64;
    let (head, known, tail) = (&heads[0], &heads[1], &tail[0]);
    let queue: &[_; FIFO_ENTRIES] = pairs(queue)[..FIFO_ENTRIES].try_into().unwrap();
    let start = lane.clock_ns();
    for i in 0..count {
        let place = take(head);
        if place >= known.load(Relaxed) + ENTRIES {
            let mut read = 0;
            while place >= read + ENTRIES {
                read = load(tail);
            }
            known.store(read, Relaxed);
        }
        let lap = if (place / ENTRIES).is_multiple_of(2) { 1 << 63 } else { 0 };
        queue[(place % ENTRIES) as usize].store_release([lap | i, lap | 7]);
    }
    ns[lane.global_id()].set(lane.clock_ns() - start);
}

/// `count` lines of three integers by the `printf` of NVIDIA's driver, which shows them when the kernel ends.
#[kernel(max_lanes = 256)]
pub fn device_printf(lane: &Lane, ns: &[Global<u64>], count: u64) {
    let id = lane.global_id();
    let start = lane.clock_ns();
    for i in 0..count {
        printf([lane.index(), id as u32, i as u32]);
    }
    ns[id].set(lane.clock_ns() - start);
}

#[cfg(target_arch = "nvptx64")]
fn printf(numbers: [u32; 3]) {
    unsafe extern "C" {
        fn vprintf(format: *const u8, arguments: *const u32) -> i32;
    }
    // SAFETY: the driver's function of CUDA's programming guide: the format is a C string in global memory, and
    // there is an argument of four bytes for each of its conversions.
    unsafe { vprintf(c"%d %d %d\n".as_ptr().cast(), numbers.as_ptr()) };
}

#[cfg(not(target_arch = "nvptx64"))]
fn printf(_numbers: [u32; 3]) {
    panic!("only NVIDIA's driver has a printf of its own");
}
