//! A call of few words allocates nothing on the host.
#![allow(unsafe_code, reason = "counts in the global allocator")]

use conformance::calls::call_in_turn;
use conformance::services::Echo;
use hostcall::Grid;
use hostcall_abi::CallError;
use hostcall_abi::service::Method;
use hostcall_conformance::{Context, echo};
use hostcall_service::{Reply, Request, Service};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Allocations of threads that count theirs.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Calls seen.
static CALLS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

#[global_allocator]
static GLOBAL: Counting = Counting;

// SAFETY: everything is the system allocator's, which keeps the trait's promises.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; `alloc` gave the memory.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Counts the allocations of the thread on which its handlers run, which is the consumer, while the calls are
/// neither the first, which fill caches, nor the last.
struct Watched<S>(S);

const SKIPPED: u64 = 1000;
const LANES: u64 = 4 * 40;
const ROUNDS: u64 = 200;

impl<S: Service> Service for Watched<S> {
    fn methods(&self) -> &[Method] {
        self.0.methods()
    }
    fn call(&self, method: usize, request: Request<'_>, reply: &mut dyn Reply) -> Result<(), CallError> {
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        COUNTS.set((SKIPPED..LANES * ROUNDS - 1).contains(&call));
        self.0.call(method, request, reply)
    }
}

#[test]
fn calls_of_words_allocate_nothing() {
    assert_eq!(Echo::METHODS[1].name(), "Echo::one");
    let session = Context::default().open(|device| device.inline_service(Watched(echo()))).unwrap();
    let grid = Grid::new(4, 40);
    let out = session.out(grid, 1).unwrap();
    session.run(call_in_turn, grid, (ROUNDS as u32, &out)).unwrap();
    assert_eq!(CALLS.load(Ordering::Relaxed), LANES * ROUNDS);
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0);
}
