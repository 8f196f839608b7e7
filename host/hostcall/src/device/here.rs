//! What threads that have a context of the software device ask the host's code for.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// The clock of the software device, and the number of the calling thread: threads count up from 0 as they come here first.
///
/// # Safety
/// A `u32` of the caller's lies at `thread`.
pub(crate) unsafe extern "C" fn here(thread: *mut u32) -> u64 {
    static THREADS: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static NUMBER: Cell<Option<u32>> = const { Cell::new(None) };
    }
    // A thread that ends has lost its number, and gets another one.
    let number = NUMBER.try_with(|number| {
        let known = number.get().unwrap_or_else(|| THREADS.fetch_add(1, Ordering::Relaxed));
        number.set(Some(known));
        known
    });
    let number = number.unwrap_or_else(|_| THREADS.fetch_add(1, Ordering::Relaxed));
    // SAFETY: the caller's promise.
    unsafe { thread.write(number) };
    hostcall_softdev::now_ns()
}
