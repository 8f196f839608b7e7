//! Threads: waves of the grid, which the device crate gives out.

use crate::ffi::CStr;
use crate::io;
use crate::num::NonZero;
use crate::sync::Arc;
use crate::sync::atomic::Ordering::{Acquire, Release};
use crate::sync::atomic::{Atomic, AtomicU32};
use crate::sys::pal::{abi, checked, futex};
use crate::thread::ThreadInit;
use crate::time::Duration;

/// A thread that was started: the word is 1 once it has ended.
pub struct Thread(Arc<Atomic<u32>>);

/// Most of what a thread has on a GPU's stack, it has in registers.
pub const DEFAULT_MIN_STACK_SIZE: usize = 256 << 10;

/// What a thread begins with.
struct Start {
    init: Box<ThreadInit>,
    has_ended: Arc<Atomic<u32>>,
}

/// A text by which an image is known to start threads (`tools/build`).
static STARTS_THREADS: [u8; 22] = *b"hostcall-std-threads-1";

impl Thread {
    // SAFETY: as the runtime calls it: what the closure borrows lives until the thread is joined.
    pub unsafe fn new(stack_bytes: usize, init: Box<ThreadInit>) -> io::Result<Thread> {
        crate::hint::black_box(&STARTS_THREADS);
        let has_ended = Arc::new(AtomicU32::new(0));
        let start = Box::into_raw(Box::new(Start { init, has_ended: Arc::clone(&has_ended) }));
        // SAFETY: what starts is `__hostcall_std_thread` below, once.
        let started = checked(unsafe { abi::spawn(start.cast(), stack_bytes) });
        if let Err(error) = started {
            // SAFETY: nothing was started, so that the box is nobody else's.
            drop(unsafe { Box::from_raw(start) });
            return Err(error);
        }
        Ok(Thread(has_ended))
    }

    pub fn join(self) {
        while self.0.load(Acquire) == 0 {
            futex::futex_wait(&self.0, 0, None);
        }
    }
}

/// Runs a thread from its begin to its end.
// SAFETY: the device crate calls it, with what `Thread::new` gave.
#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_thread(start: *mut u8) {
    // SAFETY: by the above.
    let Start { init, has_ended } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    let run = init.init();
    run();
    // SAFETY: nothing of the thread follows that has thread-local values.
    unsafe {
        crate::sys::thread_local::key::end_of_thread();
        abi::ended();
    }
    has_ended.store(1, Release);
}

pub fn available_parallelism() -> io::Result<NonZero<usize>> {
    // SAFETY: it may be called at any time.
    Ok(NonZero::new(unsafe { abi::waves() }).unwrap_or(NonZero::<usize>::MIN))
}

pub fn current_os_id() -> Option<u64> {
    // SAFETY: it may be called at any time.
    Some(unsafe { abi::thread_number() }.into())
}

pub fn set_name(_name: &CStr) {}

/// How long a lane gives way that waits for something.
const YIELD_NS: u64 = 1000;

pub fn yield_now() {
    // SAFETY: it may be called at any time.
    unsafe { abi::sleep(YIELD_NS) }
}

pub fn sleep(duration: Duration) {
    // SAFETY: it may be called at any time.
    unsafe { abi::sleep(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)) }
}
