//! A hundred thousand replays, whose calls are each answered once, take no more memory than ten thousand. A program of its
//! own, since others would take memory meanwhile.

use hostcall::graph::CaptureMode;
use hostcall::hostcall_device::{Lane, kernel, println, service};
use hostcall::services::Builtins;
use hostcall::{CallError, Device, Grid, LaunchKernel};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU64, Ordering};

#[service]
trait Count {
    fn add(by: u64);
}

struct Sum(Arc<AtomicU64>);

impl CountHandler for Sum {
    fn add(&self, by: u64) -> Result<(), CallError> {
        self.0.fetch_add(by, Ordering::Relaxed);
        Ok(())
    }
}

#[kernel]
fn call(lane: &Lane, by: u64) {
    Count::add(by).unwrap();
    if lane.global_id() == 0 {
        println!("{by} is added");
    }
}

/// Bytes that the program has allocated and not freed. What the system has in memory of it depends on how often threads were
/// interrupted, since each has an arena of its own.
static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

struct Counting;

// SAFETY: the system's allocator, whose calls are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_hundred_thousand_replays_take_no_more_memory() {
    let sum = Arc::new(AtomicU64::new(0));
    let builtins = Builtins::builder().stdout(std::io::sink()).build().unwrap();
    let device = Device::builder("cpu").builtins(builtins).inline_service(Count::serve(Sum(sum.clone())));
    let device = device.open().unwrap();
    let stream = device.stream().unwrap();
    let graph = stream.capture(CaptureMode::ThreadLocal, |stream| {
        call.launch(stream, Grid::new(1, 1), (1u64,))?;
        call.launch(stream, Grid::new(1, 3), (1u64,)).map(drop)
    });
    let instance = graph.unwrap().instantiate().unwrap();
    let mut at_first = 0;
    for round in 0..100 {
        for _ in 0..1000 {
            instance.launch(&stream).unwrap();
        }
        stream.synchronize().unwrap();
        if round == 9 {
            at_first = ALLOCATED.load(Ordering::Relaxed);
        }
    }
    assert_eq!(sum.load(Ordering::Relaxed), 400_000);
    // A stream keeps the memory of up to 1024 launches, some 700 bytes each, for the next ones.
    let more = ALLOCATED.load(Ordering::Relaxed) - at_first;
    assert!(more < 2 << 20, "90,000 replays took {more} bytes");
}
