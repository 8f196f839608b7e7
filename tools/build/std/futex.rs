//! Waiting for a word. One lane runs the program, so that nobody changes a word that it waits for: a wait that is not in vain
//! is over at once. What waits in vain waits as a deadlocked thread does, until its time is over or the launch is ended.

use crate::sync::atomic::Atomic;
use crate::sync::atomic::Ordering::Relaxed;
use crate::time::{Duration, Instant};

pub type Futex = Atomic<Primitive>;
pub type Primitive = u32;
pub type SmallFutex = Atomic<SmallPrimitive>;
pub type SmallPrimitive = u32;

/// Waits until the word is another one than `expected`. Returns `false` if the time was over first.
pub fn futex_wait(futex: &Atomic<u32>, expected: u32, timeout: Option<Duration>) -> bool {
    let begun = timeout.map(|timeout| (Instant::now(), timeout));
    while futex.load(Relaxed) == expected {
        if begun.is_some_and(|(begun, timeout)| begun.elapsed() >= timeout) {
            return false;
        }
        // Before the program runs, a lane of the software device waits for the one that installs the panic hook.
        if super::runs() {
            crate::sys::thread::yield_now();
        } else {
            crate::hint::spin_loop();
        }
    }
    true
}

/// Wakes who waits for the word, of whom there is nobody.
pub fn futex_wake(_futex: &Atomic<u32>) -> bool {
    false
}

pub fn futex_wake_all(_futex: &Atomic<u32>) {}
