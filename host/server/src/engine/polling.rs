//! Threads that find work by looking for it: what is hot in every pass, what is cold in turn, and asleep when
//! there is none.
//!
//! What it costs to find a call does not grow with the number of places where one may be. Places where there
//! was work lately are *hot*, and looked at in every pass; the others are *cold*, and some of them are looked
//! at in each pass. The endpoint of each protocol ([`Endpoint`]) says how long a sleep may be.
//!
//! On machines with few processors, a thread without work for a few microseconds yields its processor between
//! looks: handlers and lanes need it.

pub(crate) use super::attention::{Attention, Endpoint};
use rustix::thread::set_current_timer_slack;
use std::num::NonZero;
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

/// How long a thread without work looks on before it sleeps.
const LOOKS_ON: Duration = Duration::from_micros(50);

/// Serves until [`Endpoint::attend`] says that it is over. Without work the thread looks on for some time and then sleeps, and
/// so it does when it was called for attention: what it was called for may soon bring work.
pub(crate) fn run(endpoint: &mut impl Endpoint, attention: &Attention) {
    attention.begin();
    // Where the system refuses, sleeps are longer.
    let _ = set_current_timer_slack(Some(TIMER_SLACK_NS));
    let yields =
        std::thread::available_parallelism().is_ok_and(|processors| processors.get() <= FEW_PROCESSORS);
    let (mut seen, mut passes) = (u64::MAX, 0u64);
    let mut idle_since: Option<Instant> = None;
    loop {
        let calls = attention.calls();
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
            if idle >= LOOKS_ON && attention.sleep(endpoint, seen, since) {
                idle_since = None;
            } else if yields && idle >= YIELD_AFTER {
                std::thread::yield_now();
            }
        }
    }
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
            scope.spawn(move || run(&mut idles, attention));
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
