//! Grids: who runs, with which identity, where and next to whom.

mod common;
use common::*;
use hostcall_abi::cpu::{CpuLane, ENTRY_DONE};
use hostcall_softdev::LaunchError;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Identity {
    workgroup: [u32; 3],
    wave: u32,
    lane: u32,
    wave_lanes: u32,
    slot: u32,
}

unsafe extern "C" fn identify(lane: *mut CpuLane, arguments: *const u8) -> u32 {
    // SAFETY: launched with this list.
    let kernel = unsafe { Kernel::<Mutex<Vec<Identity>>>::new(lane, arguments) };
    let &CpuLane { workgroup, wave, wave_lanes, proposed_slot: slot, .. } = kernel.abi();
    let lane = kernel.lane_index();
    kernel.data.lock().unwrap().push(Identity { workgroup, wave, lane, wave_lanes, slot });
    ENTRY_DONE
}

#[test]
fn every_lane_runs_once_and_knows_its_place() {
    for wave_size in [32, 64] {
        let executor = executor(|config| config.wave_size = wave_size);
        for (workgroups, size) in [([1, 1, 1], [1, 1, 1]), ([3, 2, 4], [5, 3, 7]), ([7, 1, 2], [64, 2, 1])] {
            let seen = Arc::new(Mutex::new(Vec::<Identity>::new()));
            let report = run(&executor, identify, &seen, params(workgroups, size)).unwrap();
            let seen = seen.lock().unwrap();
            let count = workgroups.iter().product::<u32>() as usize;
            let lanes = size.iter().product::<u32>();
            assert_eq!(seen.len(), count * lanes as usize);
            assert_eq!((report.workgroups, report.lanes), (count as u64, seen.len() as u64));
            let places: HashSet<_> = seen.iter().map(|one| (one.workgroup, one.wave, one.lane)).collect();
            assert_eq!(places.len(), seen.len());
            for one in seen.iter() {
                assert!((0..3).all(|axis| one.workgroup[axis] < workgroups[axis]));
                assert!(one.lane < wave_size && one.wave * wave_size + one.lane < lanes);
                assert_eq!(one.wave_lanes, (lanes - one.wave * wave_size).min(wave_size));
                assert!(one.slot < executor.config().resident_waves);
            }
        }
    }
}

#[test]
fn bad_grids_are_refused() {
    let executor = executor(|config| config.resident_lanes = 512);
    let counter = Arc::new(AtomicU64::new(0));
    let mut much_memory = params([1; 3], [1; 3]);
    much_memory.workgroup_memory_bytes = u32::MAX;
    for bad in [
        params([0, 1, 1], [1, 1, 1]),
        params([1, 1, 1], [1, 0, 1]),
        params([1, 1, 1], [1025, 1, 1]),
        params([1, 1, 1], [u32::MAX; 3]),
        params([u32::MAX, 2, 1], [1, 1, 1]),
        params([1, 1, 1], [513, 1, 1]),
        much_memory,
    ] {
        let refused = try_launch(&executor, launch(count, &counter, bad)).err();
        assert!(matches!(refused, Some(LaunchError::BadGrid(sentence)) if !sentence.is_empty()));
    }
    assert_works(&executor);
    assert_eq!(counter.load(SeqCst), 0);
}

struct Slots {
    in_use: Mutex<HashMap<u32, [u32; 3]>>,
    most: AtomicU64,
}

/// Lane 0 of a wave holds the wave's slot while the wave runs.
unsafe extern "C" fn hold_slot(lane: *mut CpuLane, arguments: *const u8) -> u32 {
    // SAFETY: launched with these slots.
    let kernel = unsafe { Kernel::<Slots>::new(lane, arguments) };
    let (leader, slot) = (kernel.lane_index() == 0, kernel.abi().proposed_slot);
    if leader {
        let mut in_use = kernel.data.in_use.lock().unwrap();
        assert_eq!(in_use.insert(slot, kernel.abi().workgroup), None);
        kernel.data.most.fetch_max(in_use.len() as u64, SeqCst);
    }
    kernel.barrier();
    for _ in 0..3 {
        kernel.pause();
    }
    kernel.barrier();
    if leader {
        kernel.data.in_use.lock().unwrap().remove(&slot);
    }
    ENTRY_DONE
}

#[test]
fn more_workgroups_than_residents() {
    let executor = executor(|config| (config.resident_lanes, config.resident_waves) = (1000, 10));
    let slots = Arc::new(Slots { in_use: Mutex::default(), most: AtomicU64::new(0) });
    let report = run(&executor, hold_slot, &slots, params([300, 1, 1], [70, 1, 1])).unwrap();
    assert_eq!((report.workgroups, report.lanes), (300, 21_000));
    // A workgroup's last waves may hold theirs a little longer than its first, never more than there are.
    assert!((3..=10).contains(&slots.most.load(SeqCst)));
}

#[test]
fn a_thousand_waves() {
    let executor = executor(|_| ());
    for lanes in 1..=8 {
        let counter = Arc::new(AtomicU64::new(0));
        run(&executor, count, &counter, params([1056, 1, 1], [lanes, 1, 1])).unwrap();
        assert_eq!(counter.load(SeqCst), 1056 * u64::from(lanes));
    }
    // All of them resident at once: none ends before every one has begun.
    let met = Arc::new(AtomicU64::new(0));
    unsafe extern "C" fn meet(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a counter.
        let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
        kernel.data.fetch_add(1, SeqCst);
        while kernel.data.load(SeqCst) < 1056 * 5 {
            kernel.pause();
        }
        ENTRY_DONE
    }
    run(&executor, meet, &met, params([1056, 1, 1], [5, 1, 1])).unwrap();
}

#[test]
fn one_launch_waits_for_another_beside_it() {
    unsafe extern "C" fn set(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a flag.
        unsafe { Kernel::<AtomicBool>::new(lane, arguments) }.data.store(true, SeqCst);
        ENTRY_DONE
    }
    unsafe extern "C" fn wait(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a flag.
        let kernel = unsafe { Kernel::<AtomicBool>::new(lane, arguments) };
        kernel.wait(kernel.data);
        ENTRY_DONE
    }
    for threads in [1, 2] {
        let executor = executor(|config| config.threads = threads);
        for waiter in [pause_until, wait] {
            let flag = Arc::new(AtomicBool::new(false));
            let first = start(&executor, waiter, &flag, params([3, 1, 1], [33, 1, 1]));
            assert!(first.wait(Some(Duration::from_millis(20))).is_none());
            run(&executor, set, &flag, params([1, 1, 1], [1, 1, 1])).unwrap();
            first.wait(LONG).unwrap().unwrap();
        }
    }
}

#[test]
fn a_stuck_thread_does_not_keep_workgroups_from_others() {
    // Until the flag is set, one thread is stuck in a lane and the other's lanes always get on.
    unsafe extern "C" fn stuck(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a flag.
        let kernel = unsafe { Kernel::<AtomicBool>::new(lane, arguments) };
        while !kernel.data.load(SeqCst) {
            std::hint::spin_loop();
        }
        ENTRY_DONE
    }
    unsafe extern "C" fn busy(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a flag.
        let kernel = unsafe { Kernel::<AtomicBool>::new(lane, arguments) };
        while !kernel.data.load(SeqCst) {
            kernel.converge(1);
        }
        ENTRY_DONE
    }
    let executor = executor(|_| ());
    let flag = Arc::new(AtomicBool::new(false));
    let stuck = start(&executor, stuck, &flag, params([1, 1, 1], [1, 1, 1]));
    let busy = start(&executor, busy, &flag, params([1, 1, 1], [2, 1, 1]));
    assert_works(&executor);
    flag.store(true, SeqCst);
    stuck.wait(LONG).unwrap().unwrap();
    busy.wait(LONG).unwrap().unwrap();
}

#[test]
fn arguments_and_memory_are_aligned_and_zero() {
    unsafe extern "C" fn check(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a counter.
        let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
        assert_eq!(arguments as usize % 16, 0);
        let memory = kernel.abi().workgroup_memory;
        assert_eq!(memory as usize % 64, 0);
        let bytes = kernel.params().workgroup_memory_bytes as usize;
        if kernel.index() == 0 {
            // SAFETY: the workgroup's memory, whose other lanes wait at the barrier.
            let memory = unsafe { std::slice::from_raw_parts_mut(memory, bytes) };
            assert!(memory.iter().all(|&byte| byte == 0));
            memory.fill(7);
        }
        kernel.barrier();
        // SAFETY: nobody writes after the barrier.
        let memory = unsafe { std::slice::from_raw_parts(memory, bytes) };
        kernel.data.fetch_add(memory.iter().map(|&byte| u64::from(byte)).sum(), SeqCst);
        ENTRY_DONE
    }
    let executor = executor(|_| ());
    let sum = Arc::new(AtomicU64::new(0));
    let mut params = params([20, 1, 1], [40, 1, 1]);
    params.workgroup_memory_bytes = 100;
    run(&executor, check, &sum, params).unwrap();
    assert_eq!(sum.load(SeqCst), 20 * 40 * 700);
}

#[test]
fn handles_tell_when_a_launch_is_done() {
    let executor = executor(|_| ());
    let flag = Arc::new(AtomicBool::new(false));
    let handle = start(&executor, pause_until, &flag, params([1, 1, 1], [1, 1, 1]));
    let (sender, receiver) = std::sync::mpsc::channel();
    let late = sender.clone();
    let kept = Arc::downgrade(&flag);
    handle.on_done(move |result| sender.send((result.is_ok(), kept.strong_count())).unwrap());
    assert!(!handle.is_done());
    flag.store(true, SeqCst);
    // Done means that what the launch kept alive was let go: one reference is left, the test's own.
    assert_eq!(receiver.recv().unwrap(), (true, 1));
    assert!(handle.wait(LONG).unwrap().is_ok() && handle.is_done());
    handle.on_done(move |result| late.send((result.is_ok(), 0)).unwrap());
    assert_eq!(receiver.recv().unwrap(), (true, 0));
    handle.cancel();
    assert!(handle.wait(LONG).unwrap().is_ok());
}

#[test]
fn dropping_the_executor_cancels() {
    let executor = executor(|_| ());
    let flag = Arc::new(AtomicBool::new(false));
    let handle = start(&executor, pause_until, &flag, params([50, 1, 1], [64, 1, 1]));
    drop(executor);
    assert_eq!(handle.wait(LONG), Some(Err(LaunchError::Cancelled)));
}
