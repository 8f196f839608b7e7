//! Lanes that are ended in the middle of what they do leave the process as it was: they hold no lock of an allocator or of
//! the standard library, and what a thread remembers of them is not met by other lanes.

mod common;
use common::*;
use hostcall_abi::cpu::{CpuLane, ENTRY_DONE, ENTRY_PANICKED, Entry};
use hostcall_softdev::{Executor, LaunchError};
use std::cell::RefCell;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

/// Ends the process if the tests hang: with a lock of the allocator held, nothing else would.
fn end_if_stuck() {
    static SET: Once = Once::new();
    // SAFETY: has no preconditions.
    SET.call_once(|| _ = unsafe { libc::alarm(3600) });
}

fn prompt() -> Executor {
    end_if_stuck();
    executor(|config| config.cancel_grace = Duration::ZERO)
}

/// Runs an entry that overflows its stack again and again; the process goes on after each.
fn overflow(entry: Entry, rounds: u32) {
    let executor = prompt();
    for _ in 0..rounds {
        let data = Arc::new(AtomicU64::new(0));
        // Without a limit: single steps may take long on a busy machine.
        let result = start(&executor, entry, &data, params([1, 1, 1], [1, 1, 1])).wait(None).unwrap();
        assert_eq!(result, Err(LaunchError::StackOverflow { workgroup: [0; 3], lane: 0 }));
        drop(vec![vec![1u8; 1100]; 200]);
    }
    assert_works(&executor);
}

#[test]
fn overflows_in_the_allocator_end_where_they_left_it() {
    fn recurse(depth: u64) -> u64 {
        let memory = black_box(vec![depth as u8; 1100]);
        if memory[3] == 1 && memory[4] == 2 { 0 } else { recurse(depth + 1) + u64::from(memory[5]) }
    }
    unsafe extern "C" fn entry(_: *mut CpuLane, _: *const u8) -> u32 {
        recurse(0) as u32
    }
    overflow(entry, 30);
}

#[test]
fn overflows_in_a_panic_end_after_it() {
    fn recurse(depth: u64) -> u64 {
        let _ = catch_unwind(|| panic!("{depth}"));
        if black_box(depth) == u64::MAX { 0 } else { recurse(depth + 1) + black_box(depth) }
    }
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a number.
        unsafe { Kernel::<AtomicU64>::new(lane, arguments) }.may_unwind();
        recurse(0) as u32
    }
    // Takes more of the stack than what comes before and after it.
    std::panic::set_hook(Box::new(|_| _ = black_box([0u8; 8000])));
    overflow(entry, 1);
    // The standard library's lock of the hook is free.
    let _ = std::panic::take_hook();
}

/// Cancels a launch of `entry`, whose lanes count themselves when they have begun; the process goes on.
fn cancel(executor: &Executor, entry: Entry, lanes: u32, after: Duration) {
    let started = Arc::new(AtomicU64::new(0));
    let handle = start(executor, entry, &started, params([1, 1, 1], [lanes, 1, 1]));
    while started.load(SeqCst) == 0 {
        std::thread::yield_now();
    }
    std::thread::sleep(after);
    handle.cancel();
    assert_eq!(handle.wait(LONG), Some(Err(LaunchError::Cancelled)));
    drop(vec![vec![1u8; 700]; 200]);
}

fn begin<'a>(lane: *mut CpuLane, arguments: *const u8) -> Kernel<'a, AtomicU64> {
    // SAFETY: launched by `cancel`.
    let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
    kernel.may_unwind();
    kernel.data.fetch_add(1, SeqCst);
    kernel
}

#[test]
fn lanes_that_allocate_are_ended_outside_of_the_allocator() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        begin(lane, arguments);
        loop {
            let mut vectors = Vec::new();
            for bytes in 0..3000usize {
                vectors.push(Vec::<u8>::with_capacity(black_box(bytes)));
            }
        }
    }
    let executor = prompt();
    for round in 0..40 {
        cancel(&executor, entry, 1 + round % 3, Duration::from_micros(u64::from(round * 77)));
    }
    assert_works(&executor);
}

#[test]
fn lanes_that_wait_in_the_system_are_ended() {
    unsafe extern "C" fn sleep(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        begin(lane, arguments);
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
    unsafe extern "C" fn read(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        begin(lane, arguments);
        let mut ends = [0; 2];
        // SAFETY: both write to memory made for them; nobody else has the pipe.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            libc::read(ends[0], ends.as_mut_ptr().cast(), 1);
        }
        ENTRY_DONE
    }
    static LOCK: Mutex<()> = Mutex::new(());
    unsafe extern "C" fn lock(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        begin(lane, arguments);
        drop(LOCK.lock());
        ENTRY_DONE
    }
    let executor = prompt();
    let held = LOCK.lock();
    for entry in [sleep as Entry, read, lock] {
        cancel(&executor, entry, 1, Duration::from_millis(5));
        cancel(&executor, entry, 3, Duration::from_millis(5));
    }
    drop(held);
    assert_works(&executor);
}

thread_local! {
    static REMEMBERED: RefCell<Bomb> = const { RefCell::new(Bomb) };
}

/// Must not be dropped: the lane that changes it never comes to an end of the change.
struct Bomb;

static BOMBS_DROPPED: AtomicBool = AtomicBool::new(false);

impl Drop for Bomb {
    fn drop(&mut self) {
        BOMBS_DROPPED.store(true, SeqCst);
    }
}

#[test]
fn what_a_thread_remembers_of_an_ended_lane_is_not_met_again() {
    unsafe extern "C" fn change(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        REMEMBERED.with_borrow_mut(|_| {
            begin(lane, arguments);
            loop {
                std::hint::spin_loop();
            }
        })
    }
    unsafe extern "C" fn look(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a counter.
        let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
        if let Err(error) = REMEMBERED.with(|bomb| bomb.try_borrow().map(drop)) {
            eprintln!("{error}");
            return ENTRY_PANICKED;
        }
        kernel.data.fetch_add(1, SeqCst);
        ENTRY_DONE
    }
    end_if_stuck();
    let executor = executor(|config| {
        config.threads = 1;
        config.cancel_grace = Duration::ZERO;
    });
    for _ in 0..20 {
        cancel(&executor, change, 1, Duration::ZERO);
        assert!(!BOMBS_DROPPED.load(SeqCst));
        let looked = Arc::new(AtomicU64::new(0));
        run(&executor, look, &looked, params([2, 1, 1], [40, 1, 1])).expect("no lane finds it borrowed");
        assert_eq!(looked.swap(0, SeqCst), 80);
        // Threads that end well drop what they remember.
        BOMBS_DROPPED.store(false, SeqCst);
    }
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Unwinds, past the panic hook, with `destructor` in the way.
fn unwind(destructor: impl Fn()) -> u32 {
    let body = || {
        let _guard = OnDrop(destructor);
        resume_unwind(Box::new(()))
    };
    catch_unwind(AssertUnwindSafe(body)).map_or(ENTRY_PANICKED, |never: u32| never)
}

/// A lane that waits in a destructor while it unwinds: the others of its thread do not, and say so.
#[test]
fn a_lane_that_unwinds_keeps_that_to_itself() {
    static UNWINDING: AtomicU64 = AtomicU64::new(0);
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with numbers.
        let kernel = unsafe { Kernel::<[AtomicU64; 2]>::new(lane, arguments) };
        kernel.may_unwind();
        let index = kernel.index();
        if index < 4 {
            unwind(|| {
                UNWINDING.fetch_add(1, SeqCst);
                let bit = 1u64 << kernel.lane_index();
                while kernel.data[0].load(SeqCst) < 36 {
                    match index {
                        0 => kernel.sleep(Duration::from_millis(3)),
                        1 => kernel.wait(&AtomicBool::new(true)),
                        2 => assert_eq!(kernel.converge(7), bit),
                        _ => kernel.barrier(),
                    }
                    kernel.pause();
                    kernel.notify();
                    assert!(std::thread::panicking());
                }
            });
        } else {
            while UNWINDING.load(SeqCst) < 4 {
                kernel.pause();
            }
            for _ in 0..20 {
                assert!(!std::thread::panicking(), "lane {index} unwinds, as the thread says");
                kernel.pause();
            }
            kernel.data[0].fetch_add(1, SeqCst);
        }
        kernel.pause();
        assert!(!std::thread::panicking());
        kernel.barrier();
        kernel.data[1].fetch_add(1, SeqCst);
        ENTRY_DONE
    }
    end_if_stuck();
    for threads in [1, 2] {
        let executor = executor(|config| config.threads = threads);
        for _ in 0..5 {
            UNWINDING.store(0, SeqCst);
            let data: Arc<[AtomicU64; 2]> = Arc::default();
            run(&executor, entry, &data, params([1, 1, 1], [40, 1, 1])).expect("no lane finds fault");
            assert_eq!(data[1].load(SeqCst), 40);
        }
    }
}

/// A lane that is ended by force while it unwinds leaves no thread that says that it unwinds.
#[test]
fn lanes_that_unwind_for_ever_are_ended() {
    unsafe extern "C" fn spin(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        unwind(|| {
            kernel.data.fetch_add(1, SeqCst);
            loop {
                std::hint::spin_loop();
            }
        })
    }
    unsafe extern "C" fn sleep(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        unwind(|| {
            loop {
                kernel.sleep(Duration::from_secs(1));
                kernel.wait(&AtomicBool::new(false));
            }
        })
    }
    unsafe extern "C" fn quit(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        if kernel.index() == 0 {
            return unwind(|| {
                kernel.end();
            });
        }
        while !kernel.cancelled() {
            kernel.pause();
        }
        kernel.end()
    }
    unsafe extern "C" fn look(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        assert!(!std::thread::panicking());
        kernel.pause();
        unwind(|| ())
    }
    end_if_stuck();
    let executor = executor(|config| {
        config.threads = 1;
        config.cancel_grace = Duration::ZERO;
    });
    for entry in [spin as Entry, sleep, quit] {
        cancel(&executor, entry, 2, Duration::from_millis(1));
        let looked = Arc::new(AtomicU64::new(0));
        let result = run(&executor, look, &looked, params([1, 1, 1], [32, 1, 1]));
        assert!(matches!(result, Err(LaunchError::Panicked { .. })), "{result:?}");
        assert_works(&executor);
    }
}

/// What a payload's destructor carries when it panics has a destructor that panics, and so on.
struct Endless(u32);

impl Drop for Endless {
    fn drop(&mut self) {
        panic_any(Endless(self.0 + 1));
    }
}

#[test]
fn callbacks_that_panic_stop_nothing() {
    fn bomb() {
        resume_unwind(Box::new(Endless(0)))
    }
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        begin(lane, arguments).notify();
        ENTRY_PANICKED
    }
    end_if_stuck();
    let executor = executor(|_| ());
    let data = Arc::new(AtomicU64::new(0));
    let mut launch = launch(entry, &data, params([2, 1, 1], [40, 1, 1]));
    launch.notify = Arc::new(bomb);
    launch.on_failure = Arc::new(bomb);
    launch.keep_alive = Box::new((launch.keep_alive, OnDrop(bomb)));
    let handle = try_launch(&executor, launch).expect("the grid fits");
    handle.on_done(|_| bomb());
    assert!(matches!(handle.wait(LONG), Some(Err(LaunchError::Panicked { .. }))));
    // Now on this thread.
    handle.on_done(|_| bomb());
    assert_works(&executor);
}

/// Lanes that sleep take next to no time of their thread, and wake in order.
#[test]
fn lanes_that_sleep_leave_the_processor() {
    fn cpu_time() -> Duration {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes the time to memory made for it.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) }, 0);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with numbers.
        let kernel = unsafe { Kernel::<[AtomicU64; 2]>::new(lane, arguments) };
        let start = kernel.clock_ns();
        let before = cpu_time();
        let time = Duration::from_millis(100 + 10 * u64::from(kernel.index()));
        kernel.sleep(time);
        assert!(kernel.clock_ns() - start >= time.as_nanos() as u64);
        assert_eq!(kernel.data[0].fetch_add(1, SeqCst), u64::from(kernel.index()));
        if kernel.index() == 39 {
            kernel.data[1].store((cpu_time() - before).as_micros() as u64, SeqCst);
        }
        ENTRY_DONE
    }
    end_if_stuck();
    let executor = executor(|config| config.threads = 1);
    let data: Arc<[AtomicU64; 2]> = Arc::default();
    run(&executor, entry, &data, params([1, 1, 1], [40, 1, 1])).expect("the lanes wake in order");
    assert!(data[1].load(SeqCst) < 200_000);

    unsafe extern "C" fn for_ever(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        let kernel = begin(lane, arguments);
        kernel.sleep(Duration::from_secs(3600));
        assert!(kernel.cancelled());
        ENTRY_DONE
    }
    let patient = common::executor(|config| config.cancel_grace = Duration::from_secs(60));
    cancel(&patient, for_ever, 3, Duration::from_millis(1));
}
