//! Waiting for a word. The waiting lane looks at it now and then, in the device's own memory, so that a wake-up is nothing that
//! would have to be sent. That nobody is said to have been woken is what the library expects of systems that cannot tell.

use super::abi;
use crate::sync::atomic::Atomic;
use crate::sync::atomic::Ordering::Relaxed;
use crate::time::Duration;

pub type Futex = Atomic<Primitive>;
pub type Primitive = u32;
pub type SmallFutex = Atomic<SmallPrimitive>;
pub type SmallPrimitive = u32;

/// Waits until the word is another one than `expected`. Returns `false` if the time was over first.
pub fn futex_wait(futex: &Atomic<u32>, expected: u32, timeout: Option<Duration>) -> bool {
    // Before the program runs, a lane of the software device waits for the one that installs the panic hook.
    while !super::runs() {
        if futex.load(Relaxed) != expected {
            return true;
        }
        crate::hint::spin_loop();
    }
    let timeout_ns = timeout.map_or(u64::MAX, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    // SAFETY: the word is borrowed until the function returns.
    unsafe { abi::wait(futex, expected, timeout_ns) }
}

/// Wakes who waits for the word, who sees for himself that it has changed.
pub fn futex_wake(_futex: &Atomic<u32>) -> bool {
    false
}

pub fn futex_wake_all(_futex: &Atomic<u32>) {}
