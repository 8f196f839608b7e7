//! Lanes that never ask the executor for anything do not hold up the others.

mod common;
use common::*;
use hostcall_abi::cpu::{CpuLane, ENTRY_DONE, Entry};
use hostcall_softdev::{Executor, LaunchError};
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

fn one_thread() -> Executor {
    executor(|config| config.threads = 1)
}

/// The kernel of a launch that [`run_with`] started.
fn begin<'a>(lane: *mut CpuLane, arguments: *const u8) -> Kernel<'a, [AtomicU64; 2]> {
    // SAFETY: launched by `run_with`.
    unsafe { Kernel::new(lane, arguments) }
}

fn run_with(executor: &Executor, entry: Entry, workgroups: u32, lanes: u32) -> [u64; 2] {
    let data: Arc<[AtomicU64; 2]> = Arc::default();
    run(executor, entry, &data, params([workgroups, 1, 1], [lanes, 1, 1])).expect("the launch ends well");
    assert_works(executor);
    [&data[0], &data[1]].map(|word| word.load(SeqCst))
}

#[test]
fn a_lane_sees_what_a_later_lane_of_its_wave_writes() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        if kernel.index() == 5 {
            kernel.data[0].store(1, SeqCst);
        }
        while kernel.data[0].load(SeqCst) == 0 {
            spin_loop();
        }
        kernel.data[1].fetch_add(1, SeqCst);
        ENTRY_DONE
    }
    assert_eq!(run_with(&one_thread(), entry, 1, 32), [1, 32]);
}

#[test]
fn lanes_that_were_away_meet_the_others_again() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        let all = u64::MAX >> 32;
        for round in 1..=3 {
            if kernel.index() % 8 == 3 {
                while kernel.data[0].load(SeqCst) < round {
                    spin_loop();
                }
            }
            if kernel.index() == 31 {
                kernel.data[0].fetch_add(1, SeqCst);
            }
            let values = kernel.exchange_all(all, u64::from(kernel.index()) + round);
            for (index, value) in (0..32).zip(values) {
                assert_eq!(value, index + round);
            }
            kernel.barrier();
        }
        kernel.data[1].fetch_add(1, SeqCst);
        ENTRY_DONE
    }
    assert_eq!(run_with(&one_thread(), entry, 1, 32), [3, 32]);
}

#[test]
fn a_wave_that_spins_lets_other_workgroups_and_launches_run() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        if kernel.abi().workgroup[0] == 0 {
            while kernel.data[0].load(SeqCst) == 0 {
                spin_loop();
            }
        } else {
            kernel.data[1].fetch_add(1, SeqCst);
        }
        ENTRY_DONE
    }
    let executor = one_thread();
    let data: Arc<[AtomicU64; 2]> = Arc::default();
    let spinning = start(&executor, entry, &data, params([3, 1, 1], [40, 1, 1]));
    assert_works(&executor);
    while data[1].load(SeqCst) < 80 {
        std::thread::yield_now();
    }
    assert!(!spinning.is_done());
    data[0].store(1, SeqCst);
    let report = spinning.wait(LONG).expect("it ends").expect("it ends well");
    assert_eq!(report.lanes, 120);
}

#[test]
fn cancelling_ends_lanes_that_are_away() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        kernel.data[0].fetch_add(1, SeqCst);
        if kernel.index() == 9 {
            kernel.barrier();
        }
        loop {
            spin_loop();
        }
    }
    let executor = one_thread();
    let data: Arc<[AtomicU64; 2]> = Arc::default();
    let handle = start(&executor, entry, &data, params([1, 1, 1], [20, 1, 1]));
    // All begin, though none ever gives way.
    while data[0].load(SeqCst) < 20 {
        std::thread::yield_now();
    }
    handle.cancel();
    assert_eq!(handle.wait(LONG), Some(Err(LaunchError::Cancelled)));
    assert_eq!(handle.take_abandoned_slots().len(), 1);
    assert_works(&executor);
}

#[test]
fn faults_and_panics_of_other_lanes_end_a_launch_whose_lanes_spin() {
    unsafe extern "C" fn fault(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        if begin(lane, arguments).index() == 7 {
            // SAFETY: none, which is the point: the device must end the launch.
            unsafe { std::ptr::without_provenance_mut::<u32>(16).write_volatile(1) };
        }
        loop {
            spin_loop();
        }
    }
    unsafe extern "C" fn panic(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        if begin(lane, arguments).index() == 7 {
            return hostcall_abi::cpu::ENTRY_PANICKED;
        }
        loop {
            spin_loop();
        }
    }
    let executor = one_thread();
    for (entry, expected) in [
        (
            fault as Entry,
            LaunchError::Fault { signal: libc::SIGSEGV, address: 16, workgroup: [0; 3], lane: 7 },
        ),
        (panic, LaunchError::Panicked { lanes: 1 }),
    ] {
        let data: Arc<[AtomicU64; 2]> = Arc::default();
        assert_eq!(run(&executor, entry, &data, params([1, 1, 1], [12, 1, 1])), Err(expected));
        assert_works(&executor);
    }
}

/// A lane that is away runs beside the others, so that it faults and ends there as it would on its seat.
#[test]
fn lanes_that_are_away_end_on_their_own() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        if kernel.index() == 0 {
            while kernel.data[0].load(SeqCst) == 0 {
                spin_loop();
            }
            // SAFETY: none, which is the point: the device must end the launch.
            unsafe { std::ptr::without_provenance_mut::<u32>(24).write_volatile(1) };
        }
        kernel.data[0].store(1, SeqCst);
        while !kernel.cancelled() {
            kernel.pause();
        }
        ENTRY_DONE
    }
    let executor = one_thread();
    let data: Arc<[AtomicU64; 2]> = Arc::default();
    let error = LaunchError::Fault { signal: libc::SIGSEGV, address: 24, workgroup: [0; 3], lane: 0 };
    assert_eq!(run(&executor, entry, &data, params([1, 1, 1], [8, 1, 1])), Err(error));
    assert_works(&executor);
}

/// Lanes that leave and come back at any moment lose no operation.
#[test]
fn lanes_that_come_and_go() {
    static SPUN: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        for round in 0..20u64 {
            let start = std::time::Instant::now();
            if (round + u64::from(kernel.index())).is_multiple_of(16) {
                while start.elapsed().as_millis() < 8 {
                    SPUN.fetch_add(1, SeqCst);
                }
            }
            let mask = kernel.converge(round);
            assert!(mask & 1 << kernel.lane_index() != 0);
            kernel.data[0].fetch_add(1, SeqCst);
            kernel.pause();
        }
        kernel.barrier();
        kernel.data[1].fetch_add(1, SeqCst);
        ENTRY_DONE
    }
    let executor = executor(|_| ());
    assert_eq!(run_with(&executor, entry, 2, 40), [1600, 80]);
}

#[test]
fn without_spare_threads_lanes_wait_for_each_other() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        if kernel.index() == 1 {
            kernel.data[0].store(1, SeqCst);
        }
        for _ in 0..1 << 20 {
            spin_loop();
        }
        kernel.data[1].fetch_add(kernel.data[0].load(SeqCst), SeqCst);
        ENTRY_DONE
    }
    let executor = executor(|config| {
        config.threads = 1;
        config.spare_threads = 0;
    });
    assert_eq!(run_with(&executor, entry, 1, 3), [1, 2]);
}
