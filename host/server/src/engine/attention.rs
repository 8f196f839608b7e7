//! How a polling thread sleeps, and how others wake it.

use crate::primitive::{AtomicBool, AtomicU64, Ordering, Thread, current, fence, park_timeout};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How others get the attention of a polling thread.
#[derive(Default)]
pub(crate) struct Attention {
    /// Goes up when the thread has to look at something besides its places.
    calls: AtomicU64,
    /// The thread sleeps, so that it has to be woken.
    parked: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Attention {
    /// Makes the calling thread the one that this is for.
    pub fn begin(&self) {
        let _ = self.thread.set(current());
    }

    /// Returns how often the thread was called.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Acquire)
    }

    /// Has the thread look at what changed.
    pub fn call(&self) {
        self.calls.fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        self.wake();
    }

    /// Wakes the thread if it sleeps. A `SeqCst` fence comes between what the caller has stored for it and this.
    ///
    /// This is Dekker's order: the caller stores what there is to find and then looks whether the thread is parked; the
    /// thread stores that it is parked and then looks for work. One of them sees what the other stored.
    #[inline]
    pub fn wake(&self) {
        if self.parked.load(Ordering::Relaxed) && self.parked.swap(false, Ordering::AcqRel) {
            self.unpark();
        }
    }

    /// Wakes the thread in any case.
    pub fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Returns whether the calling thread is the one that this is for.
    pub fn is_of_this_thread(&self) -> bool {
        self.thread.get().is_some_and(|thread| thread.id() == current().id())
    }

    /// Sleeps until a pass finds work or another thread calls for attention. The pass does the work that it finds. Returns
    /// `true` if it found any.
    pub fn sleep(&self, endpoint: &mut impl Endpoint, seen: u64, idle_since: Instant) -> bool {
        self.parked.store(true, Ordering::Relaxed);
        endpoint.set_asleep(true);
        fence(Ordering::SeqCst);
        let (mut worked, mut again) = (false, false);
        while !worked && self.calls() == seen {
            park_timeout(endpoint.longest_sleep(idle_since.elapsed(), again));
            // Before it looks: a wake-up from now on ends the next sleep.
            self.parked.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            worked = endpoint.pass() | endpoint.sweep(again);
            again = true;
        }
        endpoint.set_asleep(false);
        self.parked.store(false, Ordering::Relaxed);
        worked
    }
}

/// What a polling thread serves: the calls of one protocol.
pub(crate) trait Endpoint {
    /// Does what was asked for with [`Attention::call`]. Returns `false` when the thread is to end.
    fn attend(&mut self) -> bool;

    /// Looks at hot places and at some others. Returns whether there was work.
    fn pass(&mut self) -> bool;

    /// Looks at all places where there may be work, after a sleep; `again` from the second such look on since
    /// the thread last had work or was called. Returns whether there was work.
    fn sweep(&mut self, again: bool) -> bool;

    /// Returns whether calls come often, so that a pause would delay them.
    fn is_busy(&self) -> bool;

    /// Tells clients that the thread sleeps, or sleeps no more.
    fn set_asleep(&mut self, _asleep: bool) {}

    /// Returns how long to sleep, at most, when there was no work for `idle`; `again` when the thread has slept before
    /// and found none.
    fn longest_sleep(&mut self, idle: Duration, again: bool) -> Duration;
}
