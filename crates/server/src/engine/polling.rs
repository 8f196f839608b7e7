//! Threads that find work by looking for it: what is hot in every pass, what is cold in turn, and asleep when
//! there is none.
//!
//! What it costs to find a call does not grow with the number of places where one may be. Places where there
//! was work lately are *hot*, and looked at in every pass; the others are *cold*, and some of them are looked
//! at in each pass. The endpoint of each protocol ([`Endpoint`]) says how long a sleep may be.
//!
//! On machines with few processors, a thread without work for a few microseconds yields its processor between
//! looks: handlers and lanes need it.

use rustix::thread::set_current_timer_slack;
use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Fruitless looks after which a hot place is cold.
const COOL_AFTER: u16 = 4096;

/// Passes between two looks at the clock while there is no work: it costs as much as a pass.
const CLOCK_PASSES: u64 = 32;

/// How long a thread looks without work before it yields its processor between looks, on machines with at most
/// [`FEW_PROCESSORS`].
const YIELD_AFTER: Duration = Duration::from_micros(5);

/// Most processors of a machine on which threads that look yield: handlers and lanes need these. With more, a thread that
/// yielded would see calls later.
const FEW_PROCESSORS: usize = 4;

/// How much shorter a sleep is than the time without work before it: what sleeps add, at most, to the time after which a call
/// comes that its device cannot wake anybody for.
pub(crate) const SLEEP_PART: u32 = 16;

/// How late the system may end a sleep. The 50 µs that are usual are longer than most sleeps are.
const TIMER_SLACK_NS: NonZero<u64> = NonZero::new(1000).unwrap();

/// Which places are looked at in every pass.
pub(crate) struct HotSet {
    /// With how many looks at them were fruitless one after the other.
    hot: Vec<(u32, u16)>,
    is_hot: Vec<bool>,
    /// The cold place that was looked at last.
    cursor: u32,
}

impl HotSet {
    /// Makes a set of no hot places, of so many.
    pub fn new(places: usize) -> Self {
        Self { hot: Vec::with_capacity(places), is_hot: vec![false; places], cursor: 0 }
    }

    /// Returns how many places there are.
    pub fn len(&self) -> usize {
        self.is_hot.len()
    }

    /// Returns whether no place is hot.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.hot.is_empty()
    }

    /// Returns the hot place at `at`.
    #[inline(always)]
    pub fn get(&self, at: usize) -> Option<u32> {
        self.hot.get(at).map(|(place, _)| *place)
    }

    #[inline(always)]
    pub fn is_hot(&self, place: u32) -> bool {
        self.is_hot[place as usize]
    }

    /// Returns the next place in turn.
    #[inline]
    pub fn next_in_turn(&mut self) -> u32 {
        self.cursor = if self.cursor + 1 < self.is_hot.len() as u32 { self.cursor + 1 } else { 0 };
        self.cursor
    }

    /// Counts a look at the hot place at `at`, and lets it go cold after many fruitless ones. Returns whether it is still
    /// there.
    #[inline]
    pub fn judge(&mut self, at: usize, fruitful: bool) -> bool {
        let (place, fruitless) = &mut self.hot[at];
        *fruitless = if fruitful { 0 } else { *fruitless + 1 };
        if *fruitless <= COOL_AFTER {
            return true;
        }
        self.is_hot[*place as usize] = false;
        self.hot.swap_remove(at);
        false
    }

    /// Lets all places go cold.
    pub fn cool(&mut self) {
        self.hot.drain(..).for_each(|(place, _)| self.is_hot[place as usize] = false);
    }

    /// Makes a place hot.
    pub fn heat(&mut self, place: u32) {
        if !self.is_hot[place as usize] {
            self.is_hot[place as usize] = true;
            self.hot.push((place, 0));
        }
    }
}

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
        self.thread.get().is_some_and(|thread| thread.id() == std::thread::current().id())
    }
}

/// What a polling thread serves: the calls of one protocol.
pub(crate) trait Endpoint {
    /// Does what was asked for with [`Attention::call`]. Returns `false` when the thread is to end.
    fn attend(&mut self) -> bool;

    /// Looks at hot places and at some others. Returns whether there was work.
    fn pass(&mut self) -> bool;

    /// Looks at all places where there may be work, after a sleep; `again` when the one before was no longer than that ago.
    /// Returns whether there was work.
    fn sweep(&mut self, again: bool) -> bool;

    /// Returns whether calls come often, so that a pause would delay them.
    fn is_busy(&self) -> bool;

    /// Tells clients that the thread sleeps, or does no more.
    fn set_asleep(&mut self, _asleep: bool) {}

    /// Returns how long to sleep, at most, when there was no work for `idle`; `again` when the thread has slept before
    /// and found none.
    fn longest_sleep(&mut self, idle: Duration, again: bool) -> Duration;
}

/// Serves until [`Endpoint::attend`] says that it is over. Without work the thread looks on for `spin` and then sleeps, and
/// so it does when it was called for attention: what it was called for may soon bring work.
pub(crate) fn run(endpoint: &mut impl Endpoint, attention: &Attention, spin: Duration) {
    let _ = attention.thread.set(std::thread::current());
    // Where the system refuses, sleeps are longer.
    let _ = set_current_timer_slack(Some(TIMER_SLACK_NS));
    let yields =
        std::thread::available_parallelism().is_ok_and(|processors| processors.get() <= FEW_PROCESSORS);
    let (mut seen, mut passes) = (u64::MAX, 0u64);
    let mut idle_since: Option<Instant> = None;
    loop {
        let calls = attention.calls.load(Ordering::Acquire);
        if calls != seen {
            seen = calls;
            if !endpoint.attend() {
                return;
            }
            idle_since = None;
        }
        passes += 1;
        if endpoint.pass() {
            idle_since = None;
            continue;
        }
        // Where calls come often, the pause would be a tenth of a call.
        if !endpoint.is_busy() {
            std::hint::spin_loop();
        }
        if passes.is_multiple_of(CLOCK_PASSES) {
            let since = *idle_since.get_or_insert_with(Instant::now);
            let idle = since.elapsed();
            if idle >= spin && sleep(endpoint, attention, seen, since) {
                idle_since = None;
            } else if yields && idle >= YIELD_AFTER {
                std::thread::yield_now();
            }
        }
    }
}

/// Sleeps until a pass finds work or another thread calls for attention. The pass does the work that it finds. Returns
/// `true` if it found any.
fn sleep(endpoint: &mut impl Endpoint, attention: &Attention, seen: u64, idle_since: Instant) -> bool {
    attention.parked.store(true, Ordering::SeqCst);
    endpoint.set_asleep(true);
    let (mut worked, mut again) = (false, false);
    while !worked && attention.calls.load(Ordering::SeqCst) == seen {
        std::thread::park_timeout(endpoint.longest_sleep(idle_since.elapsed(), again));
        // Before it looks: a hint from now on ends the next sleep.
        attention.parked.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        worked = endpoint.pass() | endpoint.sweep(again);
        again = true;
    }
    endpoint.set_asleep(false);
    attention.parked.store(false, Ordering::Relaxed);
    worked
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    /// Never has work, sleeps until it is called, and tells for how long it was idle before the first sleep after that.
    struct Idle {
        slept: Sender<Duration>,
        is_told: bool,
        ends_after: u32,
    }

    impl Endpoint for Idle {
        fn attend(&mut self) -> bool {
            (self.ends_after, self.is_told) = (self.ends_after - 1, false);
            self.ends_after > 0
        }

        fn pass(&mut self) -> bool {
            false
        }

        fn sweep(&mut self, _: bool) -> bool {
            false
        }

        fn is_busy(&self) -> bool {
            false
        }

        fn longest_sleep(&mut self, idle: Duration, _: bool) -> Duration {
            if !std::mem::replace(&mut self.is_told, true) {
                self.slept.send(idle).expect("the test listens");
            }
            Duration::from_secs(3600)
        }
    }

    #[test]
    fn a_thread_that_was_called_looks_on_for_a_while() {
        let attention = &Attention::default();
        let (slept, idle) = channel();
        std::thread::scope(|scope| {
            let mut idles = Idle { slept, is_told: false, ends_after: 3 };
            scope.spawn(move || run(&mut idles, attention, Duration::from_micros(50)));
            idle.recv().expect("it sleeps when there is nothing to do");
            std::thread::sleep(Duration::from_millis(20));
            let called = Instant::now();
            attention.call();
            let idle = idle.recv().expect("it sleeps again");
            assert!(idle <= called.elapsed(), "it counts from when it was called");
            attention.call();
        });
    }
}
