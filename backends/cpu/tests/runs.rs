//! Entries that go on from one lane to the next: each lane runs once, whatever happens to the ones before it.

mod common;
use common::*;
use hostcall_abi::cpu::{CpuLane, ENTRY_DONE, ENTRY_EXITED, ENTRY_PANICKED, Entry};
use hostcall_softdev::LaunchError;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

const LANES: usize = 256;

/// What lanes of one workgroup count.
struct Counts {
    /// How often each lane began.
    begun: [AtomicU32; LANES],
    /// Lanes that came to their ends.
    ended: AtomicU64,
    /// Calls of the entry.
    calls: AtomicU64,
    flag: AtomicBool,
}

impl Counts {
    fn new() -> Arc<Counts> {
        Arc::new(Counts {
            begun: [const { AtomicU32::new(0) }; LANES],
            ended: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            flag: AtomicBool::new(false),
        })
    }

    fn begun(&self) -> u64 {
        self.begun.iter().map(|begun| u64::from(begun.load(SeqCst))).sum()
    }

    fn assert_once(&self, lanes: u32) {
        for (index, begun) in (0..).zip(&self.begun) {
            assert_eq!(begun.load(SeqCst), u32::from(index < lanes), "lane {index} of {lanes}");
        }
        assert_eq!(self.ended.load(SeqCst), lanes.into());
    }
}

/// An entry: counts lanes, and runs `body` on one after the other until that returns a code.
///
/// # Safety
/// The arguments of an entry that was launched with [`Counts`].
unsafe fn each(
    lane: *mut CpuLane,
    arguments: *const u8,
    body: impl Fn(&Kernel<'_, Counts>) -> Option<u32>,
) -> u32 {
    // SAFETY: the caller's promise.
    let kernel = unsafe { Kernel::<Counts>::new(lane, arguments) };
    kernel.data.calls.fetch_add(1, SeqCst);
    loop {
        kernel.data.begun[kernel.index() as usize].fetch_add(1, SeqCst);
        if let Some(code) = body(&kernel) {
            return code;
        }
        kernel.data.ended.fetch_add(1, SeqCst);
        if kernel.cancelled() || !kernel.abi().advance() {
            return ENTRY_DONE;
        }
    }
}

#[test]
fn a_wave_is_one_call() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with counts.
        unsafe { each(lane, arguments, |_| None) }
    }
    for wave_size in [32, 64] {
        let executor = executor(|config| config.wave_size = wave_size);
        for lanes in [1, 31, 32, 33, 64, 65, 100, 255, 256] {
            let counts = Counts::new();
            let report = run(&executor, entry, &counts, params([1, 1, 1], [lanes, 1, 1])).unwrap();
            counts.assert_once(lanes);
            assert_eq!((report.lanes, report.exited_lanes), (lanes.into(), 0));
            assert_eq!(counts.calls.load(SeqCst), lanes.div_ceil(wave_size).into());
        }
    }
}

/// One lane of each wave waits until all others have ended; then it is alone.
#[test]
fn a_lane_waits_for_lanes_that_run_before_and_behind_it() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let body = |kernel: &Kernel<'_, Counts>| {
            let place = kernel.lane_index();
            if place == kernel.abi().wave * 7 % 32 {
                let waves =
                    u64::from(kernel.params().workgroup_size[0]).div_ceil(kernel.abi().wave_size.into());
                let others = u64::from(kernel.params().workgroup_size[0]) - waves;
                if kernel.abi().wave == 1 {
                    // Those before it have ended, and those behind it end before it goes on.
                    assert_eq!(kernel.converge(1), 1 << place);
                }
                while kernel.data.ended.load(SeqCst) < others {
                    kernel.pause();
                }
                kernel.data.flag.store(true, SeqCst);
                kernel.wait(&kernel.data.flag);
                assert_eq!(kernel.converge(2), 1 << place);
                assert_eq!(kernel.exchange(1 << place, 5, place), 5);
                // For the other waves.
                kernel.barrier();
                assert_eq!(kernel.converge(3), 1 << place);
            }
            None
        };
        // SAFETY: launched with counts.
        unsafe { each(lane, arguments, body) }
    }
    for threads in [1, 2] {
        for wave_size in [32, 64] {
            let executor = executor(|config| (config.threads, config.wave_size) = (threads, wave_size));
            let counts = Counts::new();
            run(&executor, entry, &counts, params([1, 1, 1], [256, 1, 1])).unwrap();
            counts.assert_once(256);
        }
    }
}

/// All lanes give way, some of them more than once, so that no two share a stack.
#[test]
fn lanes_that_all_wait_meet() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let body = |kernel: &Kernel<'_, Counts>| {
            if kernel.lane_index() % 3 == 1 {
                kernel.pause();
            }
            let all = u64::MAX >> (64 - kernel.abi().wave_lanes);
            assert_eq!(kernel.converge(1), all);
            let values = kernel.exchange_all(all, u64::from(kernel.lane_index()));
            assert!((0..kernel.abi().wave_lanes).all(|lane| values[lane as usize] == u64::from(lane)));
            kernel.barrier();
            None
        };
        // SAFETY: launched with counts.
        unsafe { each(lane, arguments, body) }
    }
    for wave_size in [32, 64] {
        let executor = executor(|config| config.wave_size = wave_size);
        let counts = Counts::new();
        run(&executor, entry, &counts, params([1, 1, 1], [200, 1, 1])).unwrap();
        counts.assert_once(200);
    }
}

#[test]
fn delayed_lanes_run_once() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let body = |kernel: &Kernel<'_, Counts>| {
            if kernel.index().is_multiple_of(5) {
                kernel.converge(1);
            }
            None
        };
        // SAFETY: launched with counts.
        unsafe { each(lane, arguments, body) }
    }
    for seed in 0..10 {
        let executor = executor(|config| {
            config.faults.seed = seed;
            config.faults.delay_lanes = 0.3;
        });
        let counts = Counts::new();
        run(&executor, entry, &counts, params([1, 1, 1], [150, 1, 1])).unwrap();
        counts.assert_once(150);
    }
}

/// Lanes that never ask for anything, in the middle of a wave: those behind them begin elsewhere, and none of them twice.
#[test]
fn lanes_that_spin_leave_the_others_to_their_seat() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let body = |kernel: &Kernel<'_, Counts>| {
            let last = kernel.abi().wave_lanes - 1;
            if kernel.lane_index() == last {
                kernel.data.flag.store(true, SeqCst);
            } else if kernel.lane_index() % 6 == 5 {
                while !kernel.data.flag.load(SeqCst) {
                    spin_loop();
                }
                if kernel.lane_index() == 11 {
                    kernel.pause();
                }
            }
            None
        };
        // SAFETY: launched with counts.
        unsafe { each(lane, arguments, body) }
    }
    let executor = executor(|config| config.threads = 1);
    for _ in 0..5 {
        let counts = Counts::new();
        let report = run(&executor, entry, &counts, params([1, 1, 1], [32, 1, 1])).unwrap();
        counts.assert_once(32);
        assert_eq!(report.lanes, 32);
        assert_works(&executor);
    }
}

/// Signals come at any moment of many short lanes, between two of them too.
#[test]
fn long_runs_of_short_lanes_run_each_lane_once() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let body = |_: &Kernel<'_, Counts>| {
            let start = std::time::Instant::now();
            while start.elapsed().as_micros() < 400 {}
            None
        };
        // SAFETY: launched with counts.
        unsafe { each(lane, arguments, body) }
    }
    let executor = executor(|config| config.threads = 1);
    for _ in 0..3 {
        let counts = Counts::new();
        run(&executor, entry, &counts, params([1, 1, 1], [256, 1, 1])).unwrap();
        counts.assert_once(256);
    }
}

#[test]
fn a_lane_that_exits_lets_the_next_ones_run() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let body = |kernel: &Kernel<'_, Counts>| (kernel.index() % 10 == 3).then_some(ENTRY_EXITED);
        // SAFETY: launched with counts.
        unsafe { each(lane, arguments, body) }
    }
    let executor = executor(|_| ());
    let counts = Counts::new();
    let report = run(&executor, entry, &counts, params([1, 1, 1], [100, 1, 1])).unwrap();
    assert_eq!((counts.begun(), counts.ended.load(SeqCst)), (100, 90));
    assert_eq!((report.lanes, report.exited_lanes), (100, 10));
}

/// What ends a launch names the lane that it happened to, and the lanes before that one have run.
#[test]
fn a_lane_that_ends_badly_is_named() {
    fn recurse(depth: u64) -> u64 {
        let frame = std::hint::black_box([depth; 16]);
        if frame[3] == u64::MAX { 0 } else { recurse(depth + 1) + frame[5] }
    }
    fn at_41(lane: *mut CpuLane, arguments: *const u8, end: fn() -> u32) -> u32 {
        // SAFETY: launched with counts.
        unsafe { each(lane, arguments, |kernel| (kernel.index() == 41).then(end)) }
    }
    unsafe extern "C" fn panic(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        at_41(lane, arguments, || ENTRY_PANICKED)
    }
    unsafe extern "C" fn overflow(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        at_41(lane, arguments, || recurse(0) as u32)
    }
    unsafe extern "C" fn fault(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        at_41(lane, arguments, || {
            // SAFETY: none, which is the point: the device must end the lane.
            unsafe { std::ptr::without_provenance_mut::<u32>(16).write_volatile(1) };
            ENTRY_DONE
        })
    }
    let executor = executor(|config| config.threads = 1);
    let workgroup = [0; 3];
    for (entry, error, slots) in [
        (panic as Entry, LaunchError::Panicked { lanes: 1 }, 0),
        (overflow, LaunchError::StackOverflow { workgroup, lane: 41 }, 1),
        (fault, LaunchError::Fault { signal: libc::SIGSEGV, address: 16, workgroup, lane: 41 }, 1),
    ] {
        for _ in 0..10 {
            let counts = Counts::new();
            let handle = start(&executor, entry, &counts, params([1, 1, 1], [64, 1, 1]));
            assert_eq!(handle.wait(LONG), Some(Err(error.clone())));
            assert_eq!(counts.ended.load(SeqCst), 41);
            assert_eq!(handle.take_abandoned_slots().len(), slots);
            assert_works(&executor);
        }
    }
}

/// Of what a lane has lent and not taken back nothing is left for the lane behind it.
#[test]
fn lanes_lend_nothing_to_those_behind_them() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        static BYTES: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
        let body = |kernel: &Kernel<'_, Counts>| {
            for _ in 0..2 {
                let bytes = std::ptr::slice_from_raw_parts_mut(BYTES.as_ptr().cast_mut().cast::<u8>(), 128);
                // SAFETY: nobody writes what is lent for reading.
                assert_ne!(unsafe { kernel.lend(bytes, false) }, 0);
            }
            None
        };
        // SAFETY: launched with counts.
        unsafe { each(lane, arguments, body) }
    }
    let executor = executor(|_| ());
    let _memory = executor.lent_memory();
    let counts = Counts::new();
    run(&executor, entry, &counts, params([1, 1, 1], [70, 1, 1])).unwrap();
    counts.assert_once(70);
}

/// A grid that would take minutes, of lanes that next to nothing is known of.
#[test]
fn cancelling_ends_a_grid_of_short_lanes() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a counter.
        let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
        loop {
            kernel.data.fetch_add(1, SeqCst);
            if kernel.cancelled() || !kernel.abi().advance() {
                return ENTRY_DONE;
            }
        }
    }
    let executor = executor(|_| ());
    for _ in 0..3 {
        let counter = Arc::new(AtomicU64::new(0));
        let handle = start(&executor, entry, &counter, params([4_000_000, 1, 1], [1024, 1, 1]));
        while counter.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        // Others begin beside it.
        assert_works(&executor);
        handle.cancel();
        assert_eq!(handle.wait(LONG), Some(Err(LaunchError::Cancelled)));
        // It holds no wave's slot, and no memory of the executor's.
        assert_eq!(handle.take_abandoned_slots(), []);
        assert_works(&executor);
    }
}

/// A seat has the room for workgroups that have not begun when a wave dies: these do not begin.
#[test]
fn no_workgroup_begins_once_a_wave_has_died() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a counter.
        let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
        // Dies where it waits.
        if kernel.data.fetch_add(1, SeqCst) == 20_000 {
            kernel.wait(&AtomicBool::new(true));
        }
        ENTRY_DONE
    }
    let executor = executor(|config| {
        config.threads = 1;
        config.faults.kill_wave = 1.0;
    });
    for _ in 0..3 {
        let counter = Arc::new(AtomicU64::new(0));
        let handle = start(&executor, entry, &counter, params([100_000, 1, 1], [1, 1, 1]));
        let result = handle.wait(LONG).unwrap();
        assert_eq!(result, Err(LaunchError::WaveDied { workgroup: [20_000, 0, 0], wave: 0 }));
        assert_eq!(counter.load(SeqCst), 20_001);
        assert_eq!(handle.take_abandoned_slots().len(), 1);
        assert_works(&executor);
    }
}
