//! Holding up threads whose lanes are away, so that they do not take the processor from the others.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

const OPEN: u32 = 0;
const CLOSED: u32 = 1;

/// What a thread waits for, in a signal handler, while its lane is away and it is another's turn to run.
#[derive(Default)]
pub(crate) struct Hold(AtomicU32);

impl Hold {
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) == OPEN
    }

    /// Makes the thread wait where it comes to [`Hold::wait`].
    pub fn close(&self) {
        self.0.store(CLOSED, Ordering::Relaxed);
    }

    /// Lets the thread go on.
    pub fn open(&self) {
        self.0.store(OPEN, Ordering::Relaxed);
        self.futex(libc::FUTEX_WAKE, 1);
    }

    /// Waits until the hold is open. Async-signal-safe, but for `errno`.
    pub fn wait(&self) {
        while !self.is_open() {
            self.futex(libc::FUTEX_WAIT, CLOSED);
        }
    }

    fn futex(&self, operation: i32, value: u32) {
        let no_timeout = ptr::null::<libc::timespec>();
        // SAFETY: the word lives as long as `self`; a wake that finds nobody and a wait that finds another value
        // come back at once.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                operation | libc::FUTEX_PRIVATE_FLAG,
                value,
                no_timeout,
            )
        };
    }
}
