//! Safe code of kernels breaks no memory: to itself a lane is one thread, and what a lane that was ended by force may have told
//! others of is never used again.

mod common;
use common::*;
use hostcall_abi::cpu::{CpuLane, ENTRY_DONE};
use hostcall_softdev::LaunchError;
use std::cell::Cell;
use std::hint::{black_box, spin_loop};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

thread_local! {
    static COUNTED: Rc<Cell<u64>> = Rc::default();
}

fn spin_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        spin_loop();
    }
}

/// Some lanes keep their threads for long, so that the others go on on other ones.
#[test]
fn a_lane_is_one_thread_to_itself() {
    static ODD: AtomicU64 = AtomicU64::new(0);
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a counter.
        let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
        let (id, first) = (thread::current().id(), COUNTED.with(Rc::clone));
        for _ in 0..6 {
            let counted = COUNTED.with(Rc::clone);
            spin_for(Duration::from_millis(if kernel.index() % 8 == 0 { 12 } else { 0 }));
            kernel.converge(1);
            kernel.pause();
            for _ in 0..2000 {
                drop(black_box(counted.clone()));
                drop(black_box(COUNTED.with(Rc::clone)));
            }
            ODD.fetch_add(u64::from(thread::current().id() != id || !Rc::ptr_eq(&first, &counted)), SeqCst);
        }
        // That of the thread, and the two here at most.
        ODD.fetch_add(u64::from(COUNTED.with(Rc::strong_count) != 2), SeqCst);
        kernel.data.fetch_add(1, SeqCst);
        ENTRY_DONE
    }
    let executor = executor(|config| config.threads = 3);
    let data = Arc::new(AtomicU64::new(0));
    for _ in 0..3 {
        run(&executor, entry, &data, params([2, 1, 1], [32, 1, 1])).expect("the launch ends well");
    }
    assert_eq!((data.load(SeqCst), ODD.load(SeqCst)), (192, 0));
}

/// No two lanes that wait at the same time are the same thread, and each that wait for a lock of the library's for threads
/// waits for the others.
#[test]
fn lanes_that_wait_are_threads_of_their_own() {
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with the list.
        let kernel = unsafe { Kernel::<Mutex<Vec<ThreadId>>>::new(lane, arguments) };
        kernel.data.lock().unwrap().push(thread::current().id());
        kernel.barrier();
        ENTRY_DONE
    }
    let executor = executor(|_| ());
    let ids: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
    run(&executor, entry, &ids, params([1, 1, 1], [64, 1, 1])).expect("the launch ends well");
    let mut ids = ids.lock().unwrap().clone();
    ids.sort_by_key(|id| format!("{id:?}"));
    ids.dedup();
    assert_eq!(ids.len(), 64);
}

/// A lane's scoped thread that goes on when the lane was ended.
#[derive(Default)]
struct Scoped {
    has_begun: AtomicBool,
    stop: AtomicBool,
    wrong: AtomicU64,
    ended: AtomicU64,
}

unsafe extern "C" fn start_scoped(lane: *mut CpuLane, arguments: *const u8) -> u32 {
    // SAFETY: launched with this.
    let kernel = unsafe { Kernel::<Scoped>::new(lane, arguments) };
    // SAFETY: as many bytes as the launch asks for.
    let shared: &[AtomicU64; 8] = unsafe { &*kernel.abi().workgroup_memory.cast() };
    let (mut local, data) = ([0u64; 64], kernel.data);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !data.stop.load(SeqCst) {
                local.iter_mut().for_each(|value| *black_box(value) += 0xdead);
                shared.iter().for_each(|value| value.store(0xdead, SeqCst));
                data.has_begun.store(true, SeqCst);
                thread::sleep(Duration::from_micros(200));
            }
            data.ended.fetch_add(1, SeqCst);
        });
        loop {
            spin_loop();
        }
    })
}

unsafe extern "C" fn look(lane: *mut CpuLane, arguments: *const u8) -> u32 {
    // SAFETY: launched with this.
    let kernel = unsafe { Kernel::<Scoped>::new(lane, arguments) };
    // SAFETY: as many bytes as the launch asks for.
    let shared: &[AtomicU64; 8] = unsafe { &*kernel.abi().workgroup_memory.cast() };
    let mut local = [7u64; 2048];
    let local = black_box(&mut local);
    spin_for(Duration::from_millis(2));
    kernel.barrier();
    let wrong = local.iter().any(|value| *value != 7) || shared.iter().any(|value| value.load(SeqCst) != 0);
    kernel.data.wrong.fetch_add(u64::from(wrong), SeqCst);
    ENTRY_DONE
}

#[test]
fn what_an_ended_lane_told_others_of_is_not_used_again() {
    struct Noted(Arc<AtomicBool>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let executor = executor(|config| {
        config.threads = 1;
        config.cancel_grace = Duration::ZERO;
    });
    let mut grid = params([1, 1, 1], [1, 1, 1]);
    grid.workgroup_memory_bytes = 64;
    for lanes in 1..=2 {
        let (data, is_dropped): (Arc<Scoped>, Arc<AtomicBool>) = Default::default();
        let mut ended = launch(start_scoped, &data, grid);
        ended.keep_alive = Box::new((ended.keep_alive, Noted(is_dropped.clone())));
        let handle = try_launch(&executor, ended).expect("the grid fits");
        while !data.has_begun.load(SeqCst) {
            thread::yield_now();
        }
        handle.cancel();
        assert_eq!(handle.wait(LONG), Some(Err(LaunchError::Cancelled)));
        assert_eq!(handle.forced_lanes(), 1);
        let mut grid = params([4, 1, 1], [8 * lanes, 1, 1]);
        grid.workgroup_memory_bytes = 64;
        run(&executor, look, &data, grid).expect("the launch ends well");
        assert_eq!(data.wrong.load(SeqCst), 0, "lanes whose memory others changed");
        assert!(!is_dropped.load(SeqCst), "what the kernel was given lives on");
        data.stop.store(true, SeqCst);
        while data.ended.load(SeqCst) == 0 {
            thread::yield_now();
        }
    }
}

/// A stack serves the next executor, whose lanes are the same threads.
#[test]
fn stacks_of_an_executor_serve_the_next_one() {
    fn mappings() -> usize {
        std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
    }
    unsafe extern "C" fn entry(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with a counter.
        let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
        kernel.barrier();
        kernel.data.fetch_add(1, SeqCst);
        ENTRY_DONE
    }
    let round = || {
        // A size of its own: other tests take stacks meanwhile.
        let executor = executor(|config| config.stack_bytes = 80 << 10);
        let data = Arc::new(AtomicU64::new(0));
        run(&executor, entry, &data, params([1, 1, 1], [256, 1, 1])).expect("the launch ends well");
        assert_eq!(data.load(SeqCst), 256);
    };
    round();
    let before = mappings();
    (0..4).for_each(|_| round());
    let more = mappings().saturating_sub(before);
    assert!(more < 512, "{more} mappings more");
}
