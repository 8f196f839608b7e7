//! Threads. There is the main one alone: a lane's stack is memory that no other wave reaches, so that a reference to it means
//! something else there.

use crate::ffi::CStr;
use crate::io;
use crate::num::NonZero;
use crate::sys::pal::{abi, unsupported};
use crate::thread::ThreadInit;
use crate::time::Duration;

/// A thread that runs beside the main one, of which there is none.
pub struct Thread(!);

pub const DEFAULT_MIN_STACK_SIZE: usize = 64 << 10;

impl Thread {
    pub unsafe fn new(_stack: usize, init: Box<ThreadInit>) -> io::Result<Thread> {
        // What it would run is dropped here, unread.
        let _unread = init;
        unsupported()
    }

    pub fn join(self) {
        self.0
    }
}

/// What a thread that begins would do first, which the compiler else finds nowhere.
#[expect(dead_code)]
fn begin(init: Box<ThreadInit>) {
    drop(init.init());
}

pub fn available_parallelism() -> io::Result<NonZero<usize>> {
    Ok(NonZero::<usize>::MIN)
}

pub fn current_os_id() -> Option<u64> {
    None
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
