//! How often somebody looks for news.
//!
//! | since the last news | what the thread does |
//! |---|---|
//! | 100 us, or four times the usual gap between news if that is below 5 ms | looks all the time |
//! | longer | sleeps 50 us, then twice as long each time, up to 1 ms |
//! | longer, and a look takes long | sleeps 100 times as long as a look takes, up to 20 ms |
//!
//! One look that was interrupted makes no long sleep: the time that a look is taken to need grows slowly.

use std::time::{Duration, Instant};

/// How long a thread goes on looking after it found something, at least.
const KEEN: Duration = Duration::from_micros(100);

/// Where news have come after each other in less than this, a thread goes on looking for so many times as
/// long: it sees the next ones at once. Once they have stopped it sleeps as if there had been none.
const LONGEST_GAP: Duration = Duration::from_millis(5);
const GAPS_KEEN: u32 = 4;

/// The shortest sleep, and the longest.
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(1);

/// The longest sleep where looks take long, because there are many pages.
const LONGEST_AFTER_LOOK: Duration = Duration::from_millis(20);

/// A thread that found nothing sleeps this many times as long as its look took, at least: so it uses no more than a hundredth
/// of a processor.
const LOOKS_A_SLEEP: u32 = 100;

/// When to look again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    last_news: Instant,
    last_look: Instant,
    /// Between news, on average of the last few.
    gap: Duration,
    /// What a look takes. It grows by little at a time: one that took long may have been interrupted.
    look: Duration,
    sleep: Duration,
}

impl Pace {
    pub fn new() -> Self {
        Self::at(Instant::now())
    }

    fn at(now: Instant) -> Self {
        let gap = 2 * LONGEST_GAP;
        Self { last_news: now, last_look: now, gap, look: Duration::ZERO, sleep: Duration::ZERO }
    }

    /// Notes that somebody looks again who has done something else meanwhile.
    pub fn resume(&mut self) {
        self.last_look = Instant::now();
    }

    /// Notes that a look found something.
    pub fn found(&mut self) {
        self.found_at(Instant::now());
    }

    fn found_at(&mut self, now: Instant) {
        let gap = (now - self.last_news).min(2 * LONGEST_GAP);
        self.gap = (3 * self.gap + gap) / 4;
        (self.last_news, self.sleep) = (now, Duration::ZERO);
    }

    /// Waits before the next look, `longest` at most.
    pub fn wait(&mut self, longest: Duration) {
        match self.next_sleep(Instant::now()) {
            None => std::thread::yield_now(),
            Some(sleep) => std::thread::sleep(sleep.min(longest)),
        }
        self.last_look = Instant::now();
    }

    /// Returns how long to sleep before the next look, if at all.
    fn next_sleep(&mut self, now: Instant) -> Option<Duration> {
        let look = now.saturating_duration_since(self.last_look);
        self.look = look.min(2 * self.look + Duration::from_micros(1));
        let keen = if self.gap < LONGEST_GAP { (GAPS_KEEN * self.gap).max(KEEN) } else { KEEN };
        if now.saturating_duration_since(self.last_news) < keen {
            return None;
        }
        let after_look = (LOOKS_A_SLEEP * self.look).min(LONGEST_AFTER_LOOK);
        self.sleep = (2 * self.sleep).clamp(SHORTEST, LONGEST).max(after_look);
        Some(self.sleep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn news_that_come_again_and_again_are_waited_for_awake() {
        let mut now = Instant::now();
        let mut pace = Pace::at(now);
        for i in 0..20 {
            now += 1000 * US;
            // What comes for the first time after a while is looked for with sleeps between.
            assert_eq!(pace.next_sleep(now).is_none(), i >= 3, "{i}: {pace:?}");
            pace.last_look = now;
            pace.found_at(now);
        }
        // They have stopped.
        now += 3900 * US;
        pace.last_look = now;
        assert_eq!(pace.next_sleep(now), None);
        now += 400 * US;
        pace.last_look = now;
        assert_eq!(pace.next_sleep(now), Some(50 * US));
        assert_eq!(pace.next_sleep(now), Some(100 * US));
    }

    #[test]
    fn news_that_come_seldom_cost_little() {
        let mut now = Instant::now();
        let mut pace = Pace::at(now);
        for _ in 0..20 {
            now += 100_000 * US;
            pace.last_look = now;
            pace.found_at(now);
            now += 101 * US;
            pace.last_look = now;
            assert_eq!(pace.next_sleep(now), Some(50 * US));
        }
    }

    #[test]
    fn a_look_that_was_interrupted_makes_no_long_sleep() {
        let mut now = Instant::now();
        let mut pace = Pace::at(now);
        now += 1000 * US;
        for _ in 0..10 {
            pace.last_look = now;
            now += 2 * US;
            pace.next_sleep(now);
        }
        assert_eq!(pace.next_sleep(now), Some(LONGEST));
        pace.last_look = now;
        now += 10_000 * US;
        assert_eq!(pace.next_sleep(now), Some(LONGEST), "{pace:?}");
        // Looks that all take long are slept after.
        for _ in 0..10 {
            pace.last_look = now;
            now += 150 * US;
            pace.next_sleep(now);
        }
        pace.last_look = now;
        assert_eq!(pace.next_sleep(now + 150 * US), Some(15_000 * US));
    }
}
