//! What lanes do together: converge, exchange, barriers, and progress while they diverge.

mod common;
use common::*;
use hostcall_abi::cpu::{CpuLane, ENTRY_DONE, ENTRY_EXITED, GETS_BALLOT, GETS_MATCH, GETS_NOTHING};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Masks(Mutex<Vec<(u64, u64)>>);

impl Masks {
    fn note(&self, site: u64, mask: u64) {
        self.0.lock().unwrap().push((site, mask));
    }
}

/// Odd lanes meet at site 1, even ones at 2, and all at 3.
unsafe extern "C" fn diverge(lane: *mut CpuLane, arguments: *const u8) -> u32 {
    // SAFETY: launched with these masks.
    let kernel = unsafe { Kernel::<Masks>::new(lane, arguments) };
    let site = if kernel.lane_index() % 2 == 1 { 1 } else { 2 };
    kernel.data.note(site, kernel.converge(site));
    kernel.data.note(3, kernel.converge(3));
    ENTRY_DONE
}

#[test]
fn lanes_of_both_branches_meet_again() {
    for wave_size in [32, 64] {
        let executor = executor(|config| config.wave_size = wave_size);
        let masks = Arc::new(Masks::default());
        // A full wave, and a partial one of 13 lanes.
        run(&executor, diverge, &masks, params([1, 1, 1], [wave_size + 13, 1, 1])).unwrap();
        let odd = 0xAAAA_AAAA_AAAA_AAAA;
        let waves = [u64::MAX >> (64 - wave_size), u64::MAX >> (64 - 13)];
        let masks = masks.0.lock().unwrap();
        assert_eq!(masks.len(), 2 * (wave_size as usize + 13));
        for wave in waves {
            for expected in [(1, wave & odd), (2, wave & !odd), (3, wave)] {
                let count = masks.iter().filter(|&&one| one == expected).count();
                assert_eq!(count, expected.1.count_ones() as usize, "{expected:x?}");
            }
        }
    }
}

/// A ballot of who has an index divisible by three, and a sum over the wave.
unsafe extern "C" fn ballot(lane: *mut CpuLane, arguments: *const u8) -> u32 {
    // SAFETY: launched with a counter.
    let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
    let index = kernel.lane_index();
    for round in 0..50 {
        let mask = kernel.converge(round);
        assert_eq!(mask, u64::MAX >> (64 - kernel.abi().wave_lanes));
        let values = kernel.exchange_all(mask, u64::from(index % 3 == 0) | u64::from(index) << 1);
        for (other, &value) in values.iter().enumerate() {
            let expected = u64::from(other % 3 == 0) | (other as u64) << 1;
            assert_eq!(value, if mask >> other & 1 == 1 { expected } else { 0 });
        }
        // Lanes of one exchange may ask for different things.
        let thirds = (0..64).filter(|other| other % 3 == 0).fold(0, |lanes, other| lanes | 1 << other) & mask;
        let gets = [GETS_BALLOT, GETS_MATCH, GETS_NOTHING, 3][index as usize % 4];
        let expected = match gets {
            GETS_BALLOT => thirds,
            GETS_MATCH if index % 3 == 0 => thirds,
            GETS_MATCH => mask & !thirds,
            GETS_NOTHING => 0,
            _ => 1,
        };
        assert_eq!(kernel.exchange(mask, u64::from(index % 3 == 0), gets), expected);
    }
    kernel.data.fetch_add(1, SeqCst);
    ENTRY_DONE
}

#[test]
fn delayed_lanes_split_but_all_come_through() {
    for seed in 0..20 {
        let executor = executor(|config| {
            config.faults.seed = seed;
            config.faults.delay_lanes = 0.5;
        });
        let masks = Arc::new(Masks::default());
        run(&executor, diverge, &masks, params([1, 1, 1], [32, 1, 1])).unwrap();
        let masks = masks.0.lock().unwrap();
        for site in 1..=3 {
            // The groups of a site are apart, and together all that came.
            let groups: HashSet<_> = masks.iter().filter(|one| one.0 == site).map(|one| one.1).collect();
            let came = [0xAAAA_AAAA, 0x5555_5555, 0xFFFF_FFFF][site as usize - 1];
            assert_eq!(groups.iter().fold(0, |all, group| all | group), came);
            assert_eq!(groups.iter().map(|group| group.count_ones()).sum::<u32>(), came.count_ones());
        }
    }
}

#[test]
fn exchanges_give_every_lane_every_value() {
    for wave_size in [32, 64] {
        let executor = executor(|config| config.wave_size = wave_size);
        let done = Arc::new(AtomicU64::new(0));
        run(&executor, ballot, &done, params([3, 1, 1], [100, 1, 1])).unwrap();
        assert_eq!(done.load(SeqCst), 300);
    }
}

#[test]
fn lanes_that_end_leave_converge_and_exchange() {
    unsafe extern "C" fn leave(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a counter.
        let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
        let all = kernel.converge(1);
        let index = kernel.lane_index();
        // Half of the lanes that were counted on end instead.
        if index >= 16 {
            kernel.pause();
            return ENTRY_EXITED;
        }
        let values = kernel.exchange_all(all, 5);
        assert!((0..64).all(|lane| values[lane] == if lane < 16 { 5 } else { 0 }));
        assert_eq!(kernel.converge(2), 0xFFFF);
        kernel.data.fetch_add(1, SeqCst);
        ENTRY_DONE
    }
    let executor = executor(|_| ());
    let done = Arc::new(AtomicU64::new(0));
    let report = run(&executor, leave, &done, params([2, 1, 1], [32, 1, 1])).unwrap();
    assert_eq!((done.load(SeqCst), report.exited_lanes), (32, 32));
}

#[test]
fn lanes_wait_for_each_other_through_memory() {
    // Lane 0 converges (as a call does) while the others pause for what it does next: nobody may hold it back.
    unsafe extern "C" fn depend(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a counter.
        let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
        let turn = u64::from(kernel.lane_index());
        for round in 0..10 {
            while kernel.data.load(SeqCst) != round * u64::from(kernel.abi().wave_lanes) + turn {
                kernel.pause();
            }
            assert_eq!(kernel.converge(round), 1 << turn);
            kernel.data.fetch_add(1, SeqCst);
        }
        ENTRY_DONE
    }
    let executor = executor(|_| ());
    let turn = Arc::new(AtomicU64::new(0));
    run(&executor, depend, &turn, params([1, 1, 1], [20, 1, 1])).unwrap();
    assert_eq!(turn.load(SeqCst), 200);
}

#[test]
fn a_loop_that_reads_the_clock_lets_others_run() {
    unsafe extern "C" fn clock(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a flag.
        let kernel = unsafe { Kernel::<AtomicBool>::new(lane, arguments) };
        let start = kernel.clock_ns();
        if kernel.index() == 39 {
            kernel.data.store(true, SeqCst);
        }
        while !kernel.data.load(SeqCst) {
            assert!(kernel.clock_ns() >= start);
        }
        ENTRY_DONE
    }
    let executor = executor(|config| config.threads = 1);
    run(&executor, clock, &Arc::new(AtomicBool::new(false)), params([1, 1, 1], [40, 1, 1])).unwrap();
}

/// Every lane adds one before the barrier and sees all that had not ended after it.
unsafe extern "C" fn rounds(lane: *mut CpuLane, arguments: *const u8) -> u32 {
    // SAFETY: launched with a counter, as a workgroup of 150 lanes.
    let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
    let mut expected = 0;
    for round in 0..100 {
        // Lane n takes part in n rounds at most.
        if kernel.index() < round {
            return ENTRY_DONE;
        }
        kernel.data.fetch_add(1, SeqCst);
        kernel.barrier();
        expected += u64::from(150 - round);
        assert_eq!(kernel.data.load(SeqCst), expected);
        kernel.barrier();
    }
    ENTRY_DONE
}

#[test]
fn barriers_do_not_count_ended_lanes() {
    for delay_lanes in [0.0, 0.3] {
        let executor = executor(|config| config.faults.delay_lanes = delay_lanes);
        run(&executor, rounds, &Arc::new(AtomicU64::new(0)), params([1, 1, 1], [150, 1, 1])).unwrap();
    }
}

#[test]
fn replies_that_come_apart_keep_lanes_together() {
    // Each lane waits for its own flag; another thread sets them in an order of its own.
    struct Replies {
        flags: Vec<AtomicBool>,
        done: AtomicU64,
    }
    unsafe extern "C" fn call(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with these replies.
        let kernel = unsafe { Kernel::<Replies>::new(lane, arguments) };
        for round in 0..20 {
            let mask = kernel.converge(7);
            assert_ne!(mask >> kernel.lane_index() & 1, 0);
            kernel.wait(&kernel.data.flags[(round * 64 + kernel.index()) as usize]);
        }
        kernel.data.done.fetch_add(1, SeqCst);
        ENTRY_DONE
    }
    let executor = executor(|_| ());
    let flags = (0..20 * 64).map(|_| AtomicBool::new(false)).collect();
    let replies = Arc::new(Replies { flags, done: AtomicU64::new(0) });
    let handle = start(&executor, call, &replies, params([1, 1, 1], [64, 1, 1]));
    for index in 0..replies.flags.len() {
        replies.flags[index ^ 0x2A].store(true, SeqCst);
    }
    handle.wait(LONG).unwrap().unwrap();
    assert_eq!(replies.done.load(SeqCst), 64);
}
