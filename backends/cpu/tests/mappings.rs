//! A process's memory mappings: the stacks of lanes leave some to others. In a process of its own, whose stacks it takes.

mod common;
use common::*;
use hostcall_abi::cpu::{CpuLane, ENTRY_DONE};
use hostcall_softdev::LaunchError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Waits until all lanes of its launch have come.
unsafe extern "C" fn meet(lane: *mut CpuLane, arguments: *const u8) -> u32 {
    // SAFETY: launched with this list.
    let kernel = unsafe { Kernel::<(AtomicU64, u64)>::new(lane, arguments) };
    kernel.data.0.fetch_add(1, SeqCst);
    while kernel.data.0.load(SeqCst) < kernel.data.1 && !kernel.cancelled() {
        kernel.pause();
    }
    ENTRY_DONE
}

#[test]
fn a_launch_that_needs_too_many_stacks_fails_and_threads_can_still_start() {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let mappings: u32 = limit.map_or(65_530, |limit| limit.trim().parse().expect("a number"));
    if mappings > 1 << 18 {
        println!("not tried: {mappings} mappings want more memory than a test should take");
        return;
    }
    let lanes = mappings / 2;
    let executor = executor(|config| {
        (config.resident_lanes, config.resident_waves, config.stack_bytes) = (2 * lanes, 2 * lanes, 16 << 10);
        config.cancel_grace = Duration::from_secs(60);
    });
    let met = Arc::new((AtomicU64::new(0), u64::from(lanes)));
    let failed = run(&executor, meet, &met, params([lanes / 64, 1, 1], [64, 1, 1])).unwrap_err();
    let LaunchError::NoStack(sentence) = &failed else { panic!("{failed:?}") };
    assert!(sentence.contains("vm.max_map_count") && sentence.contains("resident_lanes"), "{sentence}");
    let threads: Vec<_> = (0..100).map(|_| std::thread::spawn(|| ())).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it started"));
    // What others left is used again.
    let few = Arc::new((AtomicU64::new(0), 6400u64));
    run(&executor, meet, &few, params([100, 1, 1], [64, 1, 1])).expect("they have stacks");
}
