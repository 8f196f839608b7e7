//! How far the clocks of other machines are from this one's: by round trips, of which the shortest counts.
//!
//! A machine that is asked for its time says it somewhere between question and answer. So its clock is known
//! to half of what the round trip took, whatever each of the two ways took of it.

use hostcall_remote::Session;
use serde::{Deserialize, Serialize};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Round trips, and how long each may take.
const ROUND_TRIPS: usize = 16;
const LONGEST: Duration = Duration::from_secs(1);

/// What is asked for.
pub const WHAT: &str = "clock";

/// A machine's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Clock {
    /// By how much it is ahead of this one's, in seconds.
    pub ahead_s: f64,
    /// How far that may be wrong.
    pub within_s: f64,
}

#[derive(Serialize, Deserialize)]
struct Now {
    now_s: f64,
}

impl Clock {
    /// Returns a time of that clock by this one.
    pub fn here(&self, at_s: f64) -> f64 {
        at_s - self.ahead_s
    }

    /// Returns what is known of a clock that was compared twice, for the time between.
    pub fn and(self, later: Self) -> Self {
        let moved_s = (later.ahead_s - self.ahead_s).abs();
        Self {
            ahead_s: f64::midpoint(self.ahead_s, later.ahead_s),
            within_s: self.within_s.max(later.within_s) + moved_s / 2.0,
        }
    }

    /// Returns what round trips say: when each was asked, what the answer said, and when that came, in
    /// seconds.
    fn of(trips: impl IntoIterator<Item = (f64, f64, f64)>) -> Option<Self> {
        let clock = |(asked_s, said_s, answered_s): (f64, f64, f64)| Self {
            ahead_s: said_s - (asked_s + answered_s) / 2.0,
            within_s: (answered_s - asked_s) / 2.0,
        };
        trips.into_iter().map(clock).min_by(|a, b| a.within_s.total_cmp(&b.within_s))
    }
}

/// Returns this machine's time in seconds since 1970.
pub fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Returns the answer to who asks for the time.
pub fn answer() -> Vec<u8> {
    serde_json::to_vec(&Now { now_s: now_s() }).unwrap_or_default()
}

/// Asks an agent. Returns `None` where it does not answer.
pub fn compare(session: &Session, agent: &str) -> Option<Clock> {
    let trip = |_| {
        let (tell, told) = mpsc::sync_channel(1);
        // The time between two looks at the clock, which somebody may set, is that of a clock that nobody
        // sets.
        let (asked_s, begun) = (now_s(), Instant::now());
        let answered = move |bytes: Vec<u8>| {
            let _ = tell.try_send((begun.elapsed(), bytes));
        };
        session.ask(Some(agent), WHAT, Vec::new(), LONGEST, answered).ok()?;
        let (took, bytes) = told.try_recv().ok()?;
        let Now { now_s } =
            crate::wire::read_json(&bytes, 256).ok().filter(|now: &Now| now.now_s.is_finite())?;
        Some((asked_s, now_s, asked_s + took.as_secs_f64()))
    };
    // One that does not answer at all is not asked again.
    Clock::of((0..ROUND_TRIPS).map_while(trip))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_round_trip_counts() {
        assert_eq!(Clock::of([]), None);
        // 5 s ahead: answers take long on the way there, on the way back, and little.
        let trips = [(10.0, 15.9, 11.0), (20.0, 25.1, 21.0), (30.0, 35.001, 30.002)];
        let clock = Clock::of(trips).unwrap();
        assert!((clock.ahead_s - 5.0).abs() <= clock.within_s + 1e-9 && clock.within_s < 0.0011, "{clock:?}");
        assert!((clock.here(35.0) - 30.0).abs() < 0.0011);
        let both = clock.and(Clock { ahead_s: clock.ahead_s + 1.0, within_s: 0.25 });
        assert!((both.ahead_s - clock.ahead_s - 0.5).abs() < 1e-9 && (both.within_s - 0.75).abs() < 1e-9);
    }
}
