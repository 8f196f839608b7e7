//! A program whose allocator is its own: lanes that are ended by force leave the allocator's lock free.

mod common;
use common::*;
use hostcall_abi::cpu::CpuLane;
use hostcall_softdev::{LaunchError, Shielded};
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// The system's memory behind a lock, which is held for so long that most interruptions find it held.
struct Locked(AtomicBool);

impl Locked {
    fn locked<R>(&self, work: impl FnOnce() -> R) -> R {
        while self.0.swap(true, SeqCst) {
            std::thread::yield_now();
        }
        let result = work();
        for _ in 0..30 {
            black_box(());
        }
        self.0.store(false, SeqCst);
        result
    }
}

// SAFETY: the system's memory.
unsafe impl GlobalAlloc for Locked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's promise.
        self.locked(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: by the caller's promise.
        self.locked(|| unsafe { System.dealloc(memory, layout) });
    }
}

#[global_allocator]
static ALLOCATOR: Shielded<Locked> = Shielded::new(Locked(AtomicBool::new(false)));

/// Ends the process if it hangs: with the allocator's lock held, nothing else would.
fn end_if_stuck() {
    // SAFETY: has no preconditions.
    unsafe { libc::alarm(600) };
}

/// One test: two would wait for each other's lanes at the allocator.
#[test]
fn lanes_are_ended_outside_of_a_shielded_allocator() {
    unsafe extern "C" fn allocate(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched below, with a number.
        let kernel = unsafe { Kernel::<AtomicU64>::new(lane, arguments) };
        kernel.data.fetch_add(1, SeqCst);
        loop {
            drop(black_box(Box::new([0u8; 100])));
        }
    }
    fn recurse(depth: u64) -> u64 {
        let memory = black_box(vec![depth as u8; 1100]);
        if memory[3] == 1 && memory[4] == 2 { 0 } else { recurse(depth + 1) + u64::from(memory[5]) }
    }
    unsafe extern "C" fn overflow(_: *mut CpuLane, _: *const u8) -> u32 {
        recurse(0) as u32
    }
    end_if_stuck();
    let executor = executor(|config| config.cancel_grace = Duration::ZERO);
    for round in 0..12u32 {
        let started = Arc::new(AtomicU64::new(0));
        let handle = start(&executor, allocate, &started, params([1, 1, 1], [1 + round % 3, 1, 1]));
        while started.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_micros(u64::from(round * 251)));
        handle.cancel();
        assert_eq!(handle.wait(LONG), Some(Err(LaunchError::Cancelled)));
        drop(vec![vec![1u8; 700]; 200]);
        let handle = start(&executor, overflow, &started, params([1, 1, 1], [1, 1, 1]));
        let error = LaunchError::StackOverflow { workgroup: [0; 3], lane: 0 };
        assert_eq!(handle.wait(None), Some(Err(error)));
        drop(vec![vec![1u8; 1100]; 200]);
    }
    assert_works(&executor);
}
