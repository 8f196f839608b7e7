//! Where a device's times lie on the trace's time line.
//!
//! A device's clock is compared each 67 ms or more, by the first wave that comes to a trace point then: it
//! asks for the host's time between two looks at its own clock. Half of what that took is the comparison's
//! error. The last 16 comparisons give the rate.
//!
//! Each comparison corrects the mapping from the last recorded event on; the correction is spread over 100
//! ms, so that times never run backwards. A time that was placed stays where it is. The file has each
//! comparison, its error, and how far the line was off.

use std::collections::VecDeque;

/// Comparisons of the clocks from which the rate is reckoned.
const COMPARED: usize = 16;

/// Time in which a deviation is made up for, in ns.
const MADE_UP_IN_NS: i64 = 100_000_000;

/// Most deviation of the rate while one is made up for, in parts of 10⁹: times never go back.
const MOST_PPB: i64 = 500_000_000;

/// Most deviation of a device's clock that is believed, in parts of 10⁹.
const MOST_DRIFT_PPB: i64 = 1_000_000;

/// Pieces of the line that are kept: for times that come late.
const MOST_PIECES: usize = 1 << 10;

/// A comparison that took this many times as long as the best of the last ones says nothing new.
const NOISY: u64 = 4;

/// What a comparison of the clocks found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compared {
    /// The moment by the device's clock.
    pub device_ns: u64,
    /// The moment on the trace's time line.
    pub host_ns: u64,
    /// How far the two may be apart, since it took a while to ask.
    pub error_ns: u64,
    /// How far the line was away from this until now.
    pub off_ns: i64,
    /// By how much the device's clock is slow, in parts of 10⁹.
    pub drift_ppb: i64,
}

/// A piece of the line.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// The first of the device's times that lie on it.
    from_ns: u64,
    /// A point of the line that the piece is part of.
    device_ns: u64,
    host_ns: i64,
    ppb: i64,
}

impl Piece {
    fn at(&self, device_ns: u64) -> i64 {
        let since = i128::from(device_ns) - i128::from(self.device_ns);
        let moved = since + since * i128::from(self.ppb) / 1_000_000_000;
        i64::try_from(i128::from(self.host_ns) + moved).unwrap_or(if moved < 0 { 0 } else { i64::MAX })
    }
}

/// A line through what comparisons found. Each of a device's times has one place on it for good, and no later time has an
/// earlier place: a new comparison bends the line where no time was placed yet.
#[derive(Default)]
pub(crate) struct DeviceClock {
    pieces: VecDeque<Piece>,
    compared: VecDeque<(u64, u64, u64)>,
    /// The latest time that has a place.
    placed_ns: Option<u64>,
    /// The device's clock is the host's, and this is how far off the line is at most.
    same_within_ns: Option<u64>,
}

impl DeviceClock {
    /// Takes these times for the same, if nothing better is known.
    pub fn guess(&mut self, device_ns: u64, host_ns: u64) {
        if self.pieces.is_empty() {
            self.pieces.push_back(Piece { from_ns: 0, device_ns, host_ns: host_ns as i64, ppb: 0 });
        }
    }

    /// The clock is the host's: the host's time was `host_ns` between two moments of the device's, and the difference stays.
    pub fn set(&mut self, before_ns: u64, host_ns: u64, after_ns: u64) {
        let took_ns = after_ns.saturating_sub(before_ns);
        let piece = Piece { from_ns: 0, device_ns: before_ns + took_ns / 2, host_ns: host_ns as i64, ppb: 0 };
        (self.pieces, self.same_within_ns) = (VecDeque::from([piece]), Some(took_ns.div_ceil(2)));
    }

    /// Returns the place of a device's time. Without any comparison there is none.
    pub fn place(&mut self, device_ns: u64) -> Option<u64> {
        let at = self.at(device_ns)?;
        self.placed_ns = self.placed_ns.max(Some(device_ns));
        Some(at.max(0) as u64)
    }

    /// Returns the place of a device's time, also where it lies before the trace. It is not taken for one that was placed.
    pub fn at(&self, device_ns: u64) -> Option<i64> {
        let behind = self.pieces.partition_point(|piece| piece.from_ns <= device_ns);
        Some(self.pieces.get(behind.saturating_sub(1))?.at(device_ns))
    }

    /// Takes what a comparison found: the host's clock showed `host_ns` between two moments of the device's. Returns `None` if it
    /// took too long to be of use.
    pub fn compare(&mut self, before_ns: u64, host_ns: u64, after_ns: u64) -> Option<Compared> {
        let took_ns = after_ns.checked_sub(before_ns)?;
        if let Some(error_ns) = self.same_within_ns {
            let slack_ns = took_ns / 2 + error_ns + 1;
            let device_ns = before_ns + took_ns / 2;
            let host_there_ns = self.at(device_ns)?.max(0) as u64;
            if host_there_ns.abs_diff(host_ns) <= slack_ns {
                return Some(Compared {
                    device_ns,
                    host_ns: host_there_ns,
                    error_ns,
                    off_ns: 0,
                    drift_ppb: 0,
                });
            }
            self.same_within_ns = None;
        }
        let best_ns = self.compared.iter().map(|(_, _, took_ns)| *took_ns).min();
        if best_ns.is_some_and(|best_ns| took_ns > best_ns.saturating_mul(NOISY).saturating_add(1000)) {
            // A clock that is always this slow to ask is believed in the end.
            self.compared.pop_front();
            return None;
        }
        let device_ns = before_ns + took_ns / 2;
        let off_ns = match self.placed_ns {
            None => 0,
            Some(_) => self.at(device_ns)?.wrapping_sub(host_ns as i64),
        };
        // One that took much longer only gets in the way of a better one.
        self.compared.retain(|(_, _, took)| *took <= took_ns.saturating_mul(NOISY).saturating_add(1000));
        if self.compared.len() == COMPARED {
            self.compared.pop_front();
        }
        self.compared.push_back((device_ns, host_ns, took_ns));
        let (drift_ppb, target) = self.fit();
        match self.placed_ns {
            None => self.pieces = VecDeque::from([target]),
            Some(placed_ns) => {
                let from_ns = placed_ns.max(device_ns);
                let host_ns = self.at(from_ns)?;
                while self.pieces.back().is_some_and(|piece| piece.from_ns >= from_ns) {
                    self.pieces.pop_back();
                }
                let until_ns = from_ns.saturating_add(MADE_UP_IN_NS as u64);
                let ppb = (i128::from(target.at(until_ns)) - i128::from(host_ns) - i128::from(MADE_UP_IN_NS))
                    * 1_000_000_000
                    / i128::from(MADE_UP_IN_NS);
                let ppb = ppb.clamp((-MOST_PPB).into(), MOST_PPB.into()) as i64;
                let bend = Piece { from_ns, device_ns: from_ns, host_ns, ppb };
                let host_ns = bend.at(until_ns);
                let on = Piece { from_ns: until_ns, device_ns: until_ns, host_ns, ppb: drift_ppb };
                self.pieces.extend([bend, on]);
            }
        }
        while self.pieces.len() > MOST_PIECES {
            self.pieces.pop_front();
        }
        Some(Compared { device_ns, host_ns, error_ns: took_ns.div_ceil(2), off_ns, drift_ppb })
    }

    /// The straight line that lies next to the last comparisons, and its rate.
    fn fit(&self) -> (i64, Piece) {
        let count = self.compared.len() as f64;
        let (device_0, host_0, _) = self.compared[0];
        let points = || {
            self.compared.iter().map(|(device, host, _)| {
                (device.wrapping_sub(device_0) as i64 as f64, host.wrapping_sub(host_0) as i64 as f64)
            })
        };
        let (x, y) = points().fold((0.0, 0.0), |(x, y), (a, b)| (x + a / count, y + b / count));
        // Of the two clocks' difference, so that small rates are not lost among large numbers.
        let (mut same, mut apart) = (0.0, 0.0);
        for (a, b) in points() {
            same += (a - x) * (a - x);
            apart += (a - x) * ((b - y) - (a - x));
        }
        // Over less than a second it is the comparisons' own errors that would be seen.
        let is_long = points().next_back().is_some_and(|(a, _)| a >= 1e9);
        let drift = if is_long { apart / same * 1e9 } else { 0.0 };
        let ppb = (drift as i64).clamp(-MOST_DRIFT_PPB, MOST_DRIFT_PPB);
        let device_ns = device_0.wrapping_add(x as i64 as u64);
        (ppb, Piece { from_ns: 0, device_ns, host_ns: (host_0 as i64).wrapping_add(y as i64), ppb })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The device's time at a moment of the host's, of a clock that began far away and is slow by `ppb`.
    fn device(host_ns: u64, ppb: i64) -> u64 {
        let slow = i128::from(host_ns) * i128::from(ppb) / 1_000_000_000;
        1_700_000_000_000_000_000 + (i128::from(host_ns) - slow) as u64
    }

    #[test]
    fn a_slow_clock_is_corrected() {
        for ppb in [0, 40_000, -40_000] {
            let mut clock = DeviceClock::default();
            clock.guess(device(0, ppb), 3000);
            let mut last = None;
            for i in 0..100u64 {
                let at = i * 100_000_000;
                // The host is asked in the middle, a little early or late.
                let (before, after) = (device(at, ppb) - 2000, device(at, ppb) + 2000);
                last = clock.compare(before, at + i * 7919 % 1000, after);
                clock.place(device(at + 50_000_000, ppb));
            }
            let last = last.unwrap();
            assert!((last.drift_ppb - ppb).abs() < 2000, "{last:?}");
            assert!(last.off_ns.abs() < 2000, "{last:?}");
            assert_eq!(last.error_ns, 2000);
            let at = 9_950_000_000;
            let placed = clock.place(device(at, ppb)).unwrap();
            assert!(placed.abs_diff(at) < 2000, "{placed}");
        }
    }

    #[test]
    fn a_comparison_that_was_interrupted_says_nothing() {
        let mut clock = DeviceClock::default();
        assert_eq!(clock.place(5), None);
        assert!(clock.compare(1000, 1_000_000, 3000).is_some());
        assert!(clock.compare(100_000, 1_600_000, 1_100_000).is_none());
        assert!(clock.compare(9, 9, 8).is_none(), "the device's clock went back");
        assert_eq!(clock.place(2000), Some(1_000_000));
    }

    proptest! {
        /// Whatever a device says: places stay, and lie in the order of the times.
        #[test]
        fn places_keep_their_order(steps in proptest::collection::vec((any::<bool>(), 0u64..1 << 62, 0u64..1 << 62, 0u64..1 << 20), 1..60)) {
            let mut clock = DeviceClock::default();
            let mut placed: Vec<(u64, u64)> = Vec::new();
            for (compares, a, b, took) in steps {
                if compares {
                    clock.compare(a, b, a + took);
                } else if let Some(at) = clock.place(a) {
                    placed.push((a, at));
                }
            }
            placed.sort();
            for pair in placed.windows(2) {
                prop_assert!(pair[0].1 <= pair[1].1, "{pair:?}");
            }
            if clock.pieces.len() < MOST_PIECES {
                for (a, at) in placed {
                    prop_assert_eq!(clock.place(a), Some(at));
                }
            }
        }
    }
}
