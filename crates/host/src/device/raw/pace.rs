//! How often somebody looks for news.

use std::time::{Duration, Instant};

/// How long a thread goes on looking after it found something.
const KEEN: Duration = Duration::from_micros(100);

/// The longest sleep.
const LONGEST: Duration = Duration::from_millis(1);

/// The longest sleep after a look that took long, perhaps because the system ran something else.
const LONGEST_AFTER_LOOK: Duration = Duration::from_millis(20);

/// A thread that found nothing sleeps this many times as long as its look took, at least: so it uses no more than a hundredth
/// of a processor.
const LOOKS_A_SLEEP: u32 = 100;

/// When to look again.
pub(super) struct Pace {
    last_news: Instant,
    last_look: Instant,
    sleep: Duration,
}

impl Pace {
    pub fn new() -> Self {
        let now = Instant::now();
        Self { last_news: now, last_look: now, sleep: Duration::ZERO }
    }

    /// Notes that a look found something.
    pub fn found(&mut self) {
        (self.last_news, self.sleep) = (Instant::now(), Duration::ZERO);
    }

    /// Waits before the next look, `longest` at most.
    pub fn wait(&mut self, longest: Duration) {
        let now = Instant::now();
        if now - self.last_news < KEEN {
            std::thread::yield_now();
        } else {
            let look = now - self.last_look;
            let after_look = (LOOKS_A_SLEEP * look).min(LONGEST_AFTER_LOOK);
            self.sleep = (2 * self.sleep).clamp(KEEN / 2, LONGEST).max(after_look);
            std::thread::sleep(self.sleep.min(longest));
        }
        self.last_look = Instant::now();
    }
}
