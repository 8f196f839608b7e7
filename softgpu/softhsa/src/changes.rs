//! How threads wait for what others change, and for how long for what may change without a word.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Counts changes of signals, for those who wait for one: changes by the host, and interrupt messages, by which a device
/// says that it changed a signal.
///
/// Who waits takes the [`count`](Self::count) first, then looks at what it waits for, and then [`wait`](Self::wait)s: a change
/// that is noted in between ends the wait at once. Waits may end without a change.
#[derive(Debug, Default)]
pub struct Changes {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Changes {
    /// Notes a change, and wakes those who wait.
    pub fn note(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Returns how many changes were noted.
    pub fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets no change be noted, and nobody look, for as long as the result lives.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Sized {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until another change is noted than those that `seen` counts, or for the pause's next time.
    pub fn wait_or_look(&self, seen: u64, pause: &mut Pause) {
        match pause.next_look() {
            Some(timeout) => self.wait(seen, Some(timeout)),
            None => std::thread::yield_now(),
        }
    }

    /// Waits until another change is noted than those that `seen` counts, but not longer than `timeout`, if there is one.
    pub fn wait(&self, seen: u64, timeout: Option<Duration>) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        if *count != seen {
            return;
        }
        match timeout {
            Some(timeout) => drop(self.changed.wait_timeout(count, timeout)),
            None => drop(self.changed.wait(count)),
        }
    }
}

/// How long those sleep who wait for what may change without a note, as when device code stores to a signal: the longer,
/// the longer they have waited: 200 looks without a sleep, for which [`Pause::next_look`] returns `None`, then 50 µs, and twice
/// as long after each fourth look.
#[derive(Debug, Default)]
pub struct Pause(u32);

impl Pause {
    /// The longest time. A hundred wakes a second take no noticeable part of a processor.
    pub const LAST: Duration = Duration::from_millis(10);

    /// Returns how long to sleep before the next look.
    pub fn next_look(&mut self) -> Option<Duration> {
        /// Looks without a sleep, which take tens of microseconds.
        const EAGER: u32 = 200;
        const FIRST: Duration = Duration::from_micros(50);
        self.0 = self.0.saturating_add(1);
        let doubled = 1u32.checked_shl(self.0.checked_sub(EAGER)? / 4).unwrap_or(u32::MAX);
        Some(FIRST.saturating_mul(doubled.max(1)).min(Self::LAST))
    }
}
