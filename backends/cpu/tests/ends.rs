//! Lanes that do not end well: the launch says so, and the process and the executor live on.

mod common;
use common::*;
use hostcall_abi::cpu::{CpuLane, ENTRY_DONE, ENTRY_PANICKED, Entry, GETS_NOTHING};
use hostcall_softdev::{Config, Executor, LaunchError, LaunchResult};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Runs `entry` on 3 workgroups of 50 lanes, with a flag that nobody sets; then a grid that must work.
fn end(executor: &Executor, entry: Entry) -> LaunchResult {
    let flag = Arc::new(AtomicBool::new(false));
    let result = run(executor, entry, &flag, params([3, 1, 1], [50, 1, 1]));
    assert_works(executor);
    result
}

/// Lane 41 of workgroup 1 misbehaves, the others wait for each other at a barrier.
fn only_one(lane: *mut CpuLane, arguments: *const u8, misbehave: impl FnOnce() -> u32) -> u32 {
    // SAFETY: launched by `end`.
    let kernel = unsafe { Kernel::<AtomicBool>::new(lane, arguments) };
    if kernel.abi().workgroup[0] == 1 && kernel.index() == 41 {
        return misbehave();
    }
    while !kernel.cancelled() {
        kernel.barrier();
        kernel.pause();
    }
    ENTRY_DONE
}

#[test]
fn stack_overflow_ends_the_launch() {
    fn recurse(depth: u64) -> u64 {
        let frame = std::hint::black_box([depth; 16]);
        if frame[3] == u64::MAX { 0 } else { recurse(depth + 1) + frame[5] }
    }
    unsafe extern "C" fn overflow(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        only_one(lane, arguments, || recurse(0) as u32)
    }
    let executor = executor(|_| ());
    for _ in 0..20 {
        let error = LaunchError::StackOverflow { workgroup: [1, 0, 0], lane: 41 };
        assert_eq!(end(&executor, overflow), Err(error));
    }
}

#[test]
fn faults_end_the_launch() {
    unsafe extern "C" fn null(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        only_one(lane, arguments, || {
            // SAFETY: none, which is the point: the device must end the lane.
            unsafe { std::ptr::without_provenance_mut::<u32>(16).write_volatile(1) };
            ENTRY_DONE
        })
    }
    let executor = executor(|_| ());
    for _ in 0..20 {
        let error = LaunchError::Fault { signal: libc::SIGSEGV, address: 16, workgroup: [1, 0, 0], lane: 41 };
        assert_eq!(end(&executor, null), Err(error));
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn traps_end_the_launch() {
    unsafe extern "C" fn divide(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        only_one(lane, arguments, || {
            // SAFETY: none, as above: divides by zero.
            unsafe {
                std::arch::asm!("xor {0:e}, {0:e}", "div {0:e}", out(reg) _, inout("eax") 1 => _, inout("edx") 0 => _)
            };
            ENTRY_DONE
        })
    }
    unsafe extern "C" fn illegal(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        only_one(lane, arguments, || {
            // SAFETY: none, as above: no such instruction.
            unsafe { std::arch::asm!("ud2") };
            ENTRY_DONE
        })
    }
    let executor = executor(|_| ());
    for (entry, expected) in [(divide as Entry, libc::SIGFPE), (illegal, libc::SIGILL)] {
        let Err(LaunchError::Fault { signal, workgroup, lane, .. }) = end(&executor, entry) else {
            panic!("the trap was not reported");
        };
        assert_eq!((signal, workgroup, lane), (expected, [1, 0, 0], 41));
    }
}

#[test]
fn panics_are_counted() {
    unsafe extern "C" fn panic(_: *mut CpuLane, _: *const u8) -> u32 {
        ENTRY_PANICKED
    }
    unsafe extern "C" fn panic_once(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        only_one(lane, arguments, || ENTRY_PANICKED)
    }
    let executor = executor(|config| config.threads = 1);
    assert_eq!(end(&executor, panic_once), Err(LaunchError::Panicked { lanes: 1 }));
    // Those that had started when the first ended: its own wave's.
    let Err(LaunchError::Panicked { lanes }) = end(&executor, panic) else { panic!("no panic was reported") };
    assert!((1..=150).contains(&lanes));
}

/// Cancels a launch of `entry` once its lanes run; returns the slots that it left.
fn cancel(executor: &Executor, entry: Entry, lanes: u32) -> Vec<u32> {
    let started = Arc::new(AtomicU64::new(0));
    let handle = start(executor, entry, &started, params([2, 1, 1], [lanes, 1, 1]));
    while started.load(SeqCst) == 0 {
        std::thread::yield_now();
    }
    assert!(!handle.is_done());
    handle.cancel();
    assert_eq!(handle.wait(LONG), Some(Err(LaunchError::Cancelled)));
    assert_works(executor);
    handle.take_abandoned_slots()
}

fn begin<'a>(lane: *mut CpuLane, arguments: *const u8) -> Kernel<'a, AtomicU64> {
    // SAFETY: launched by `cancel`.
    let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
    kernel.data.fetch_add(1, SeqCst);
    kernel
}

#[test]
fn cancel_ends_endless_loops() {
    unsafe extern "C" fn polite(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        while !kernel.cancelled() {
            kernel.pause();
        }
        ENTRY_DONE
    }
    unsafe extern "C" fn deaf(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        loop {
            kernel.pause();
        }
    }
    unsafe extern "C" fn endless(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        begin(lane, arguments);
        loop {
            std::hint::spin_loop();
        }
    }
    unsafe extern "C" fn clock(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        loop {
            kernel.clock_ns();
        }
    }
    unsafe extern "C" fn wait(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        kernel.wait(&AtomicBool::new(false));
        ENTRY_DONE
    }
    let executor = executor(|_| ());
    for lanes in [1, 64] {
        assert_eq!(cancel(&executor, polite, lanes), []);
        for entry in [deaf as Entry, endless, clock, wait] {
            assert!(!cancel(&executor, entry, lanes).is_empty());
        }
    }
}

#[test]
fn cancel_lets_blocked_lanes_go() {
    unsafe extern "C" fn blocked(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        let bit = 1u64 << kernel.lane_index();
        match kernel.index() {
            // Keeps the others where they are.
            0 => {
                while !kernel.cancelled() {
                    kernel.pause();
                }
            }
            1..32 => kernel.barrier(),
            // Ends as the lane that is missed does, which the barrier lets go.
            _ => assert_eq!(kernel.exchange(bit | 1 << 31, 3, kernel.lane_index()), 3),
        }
        assert_eq!(kernel.converge(1), bit);
        assert!(kernel.cancelled());
        ENTRY_DONE
    }
    // Lane 31 of the second wave takes no part in the exchange but waits at the barrier of lane 0.
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched by `cancel`.
        let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
        if kernel.index() == 63 {
            kernel.barrier();
            return ENTRY_DONE;
        }
        // SAFETY: the same arguments.
        unsafe { blocked(lane, arguments) }
    }
    let executor = executor(|config| config.cancel_grace = Duration::from_secs(30));
    assert_eq!(cancel(&executor, entry, 64), []);
}

/// Lanes at a barrier and lanes of the same wave in an operation of the whole wave wait for each other: no time passes
/// before the launch ends.
#[test]
fn lanes_that_wait_for_each_other_end_the_launch() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a counter.
        let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
        kernel.barrier();
        match kernel.index() {
            // These come to both, and let the others go.
            64.. => _ = kernel.exchange(u64::MAX >> 32, 1, GETS_NOTHING),
            0..40 => kernel.barrier(),
            _ => _ = kernel.exchange(u64::MAX >> 32, 1, GETS_NOTHING),
        }
        kernel.data.fetch_add(1, SeqCst);
        ENTRY_DONE
    }
    /// Operations in a row, of which any may be the last of a turn.
    unsafe extern "C" fn many(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a counter.
        let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
        for n in 0..1000 {
            kernel.exchange(u64::MAX >> 32, 1, GETS_NOTHING);
            if n % 7 == 0 {
                kernel.barrier();
            }
        }
        kernel.data.fetch_add(1, SeqCst);
        ENTRY_DONE
    }
    let executor = executor(|_| ());
    let lanes = Arc::new(AtomicU64::new(0));
    for workgroup_lanes in [32, 64, 96] {
        let grid = params([2, 1, 1], [workgroup_lanes, 1, 1]);
        assert!(try_launch(&executor, launch(many, &lanes, grid)).unwrap().wait(LONG).unwrap().is_ok());
    }
    let handle = try_launch(&executor, launch(entry, &lanes, params([1, 1, 1], [96, 1, 1]))).unwrap();
    let error = handle.wait(LONG).unwrap().err().unwrap();
    assert_eq!(error, LaunchError::Stuck { workgroup: [0; 3], at_barrier: 40, exchanging: 24 });
    assert!(error.to_string().contains("40 of its lanes wait at a barrier and 24 in an operation"));
}

#[test]
fn seeded_faults_repeat() {
    unsafe extern "C" fn wait(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a counter.
        let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
        kernel.wait(&AtomicBool::new(true));
        kernel.notify();
        kernel.data.fetch_add(1, SeqCst);
        ENTRY_DONE
    }
    let outcome = |seed, kill_wave, lose_notifications| {
        let executor = executor(|config: &mut Config| {
            config.threads = 1;
            config.faults.seed = seed;
            config.faults.kill_wave = kill_wave;
            config.faults.lose_notifications = lose_notifications;
        });
        let (lanes, notified) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut launch = launch(wait, &lanes, params([40, 1, 1], [2, 1, 1]));
        let heard = Arc::clone(&notified);
        launch.notify = Arc::new(move || {
            heard.fetch_add(1, SeqCst);
        });
        let handle = try_launch(&executor, launch).unwrap();
        let error = handle.wait(LONG).unwrap().err();
        (error, lanes.load(SeqCst), notified.load(SeqCst), handle.take_abandoned_slots().len())
    };
    assert_eq!(outcome(1, 0.0, 0.0), (None, 80, 80, 0));
    let (error, lanes, notified, _) = outcome(2, 0.0, 0.5);
    assert!(error.is_none() && lanes == 80 && (1..80).contains(&notified));
    let died = outcome(3, 0.1, 0.0);
    assert!(matches!(died.0, Some(LaunchError::WaveDied { .. })) && died.3 > 0);
    assert_eq!(died, outcome(3, 0.1, 0.0));
    assert_ne!(died, outcome(4, 0.1, 0.0));
}

/// A thread that sleeps uses no processor time, and so does one whose lanes wait for long, nearly.
#[test]
fn idle_threads_sleep() {
    fn cpu_time() -> Duration {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes the time to memory made for it.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) }, 0);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }
    // A notification is called on an executor thread, so it can read that thread's clock.
    unsafe extern "C" fn notify(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a counter.
        unsafe { Kernel::<AtomicU64>::new(lane, arguments) }.notify();
        ENTRY_DONE
    }
    let executor = executor(|config| config.threads = 1);
    let used = || {
        let time = Arc::new(AtomicU64::new(0));
        let mut launch = launch(notify, &time, params([1, 1, 1], [1, 1, 1]));
        let written = Arc::clone(&time);
        launch.notify = Arc::new(move || written.store(cpu_time().as_micros() as u64, SeqCst));
        try_launch(&executor, launch).unwrap().wait(LONG).unwrap().unwrap();
        time.load(SeqCst)
    };
    let before = used();
    std::thread::sleep(Duration::from_millis(200));
    assert!(used() - before < 100_000);

    unsafe extern "C" fn wait(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a flag.
        let kernel = unsafe { Kernel::<AtomicBool>::new(lane, arguments) };
        kernel.wait(kernel.data);
        ENTRY_DONE
    }
    let flag = Arc::new(AtomicBool::new(false));
    let before = used();
    let waiting = start(&executor, wait, &flag, params([2, 1, 1], [40, 1, 1]));
    std::thread::sleep(Duration::from_millis(400));
    assert!(used() - before < 200_000);
    flag.store(true, SeqCst);
    executor.waker().wake();
    assert_eq!(waiting.wait(LONG).unwrap().unwrap().lanes, 80);
}

/// The last reference to a cancelled launch may be the last one to its executor, too: both go.
#[test]
fn a_launch_may_hold_its_executor() {
    /// Dropped in this order.
    struct Held {
        _executor: Arc<Executor>,
        _dropped: Arc<()>,
    }
    for round in 0..10 {
        // Lanes that are ended by force keep what is theirs.
        let executor = Arc::new(executor(|config| config.cancel_grace = LONG.unwrap()));
        let dropped = Arc::new(());
        let held = Held { _executor: Arc::clone(&executor), _dropped: Arc::clone(&dropped) };
        let flag = Arc::new(AtomicBool::new(false));
        let mut launch = launch(pause_until, &flag, params([1, 1, 1], [3, 1, 1]));
        launch.notify = Arc::new(move || _ = &held);
        let handle = try_launch(&executor, launch).unwrap();
        std::thread::sleep(Duration::from_millis(round));
        handle.cancel();
        assert_eq!(handle.wait(LONG), Some(Err(LaunchError::Cancelled)));
        drop((handle, executor));
        let begun = std::time::Instant::now();
        while Arc::strong_count(&dropped) > 1 {
            assert!(begun.elapsed() < LONG.unwrap(), "the executor is still there");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What somebody else says of slots gives no wave the slot of another one.
#[test]
fn only_slots_that_were_taken_are_restored_and_once() {
    unsafe extern "C" fn fault(_: *mut CpuLane, _: *const u8) -> u32 {
        // SAFETY: none, as above.
        unsafe { std::ptr::without_provenance_mut::<u32>(16).write_volatile(1) };
        ENTRY_DONE
    }
    /// Each wave of a workgroup notes the slot that it would claim, while all of them run.
    unsafe extern "C" fn note(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a list.
        let kernel = unsafe { Kernel::<Mutex<Vec<u32>>>::new(lane, arguments) };
        if kernel.lane_index() == 0 {
            kernel.data.lock().unwrap().push(kernel.abi().proposed_slot);
        }
        kernel.barrier();
        ENTRY_DONE
    }
    const WAVES: u32 = 8;
    let executor = executor(|config| config.resident_waves = WAVES);
    let lanes = executor.config().wave_size;
    let noted = |waves: u32| {
        let slots = Arc::new(Mutex::new(Vec::<u32>::new()));
        run(&executor, note, &slots, params([1, 1, 1], [waves * lanes, 1, 1])).unwrap();
        let mut slots = std::mem::take(&mut *slots.lock().unwrap());
        slots.sort();
        slots
    };
    let flag = Arc::new(AtomicBool::new(false));
    let faulty = start(&executor, fault, &flag, params([1, 1, 1], [1, 1, 1]));
    assert!(faulty.wait(LONG).unwrap().is_err());
    let other =
        start(&executor, note, &Arc::new(Mutex::new(Vec::<u32>::new())), params([1, 1, 1], [1, 1, 1]));
    other.wait(LONG).unwrap().unwrap();
    // Not taken yet.
    faulty.restore_slots(&(0..WAVES).collect::<Vec<_>>());
    let [lost] = faulty.take_abandoned_slots()[..] else { panic!("one wave was lost") };
    let all = [lost, lost, (lost + 1) % WAVES, 1_000_000];
    other.restore_slots(&all);
    assert_eq!(noted(WAVES - 1), (0..WAVES).filter(|slot| *slot != lost).collect::<Vec<_>>());
    for _ in 0..2 {
        faulty.restore_slots(&all);
        assert_eq!(noted(WAVES), (0..WAVES).collect::<Vec<_>>());
    }
}
