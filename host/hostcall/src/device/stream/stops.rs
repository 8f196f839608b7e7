//! Which launches of a stream do not begin, because one before them failed or was ended.
//!
//! A launch that fails or is cancelled stops the stream from its sequence on. The stop is *open* until the launch's end is settled
//! and `synchronize` has told of it; from then on it holds for what had been pushed by then, and what is pushed later begins once
//! all of that is settled.

use smallvec::SmallVec;

/// Launches that do not begin: from this sequence on and, once it was told, up to what had been pushed by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stop {
    from: u64,
    told: Option<Told>,
}

impl Stop {
    /// Whether it is open, or had this launch among those that had been pushed when it was told.
    fn reaches(&self, sequence: u64) -> bool {
        self.told.is_none_or(|told| sequence <= told.sequence)
    }
}

/// The last that had been pushed when a stop was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub sequence: u64,
    pub position: u64,
}

/// A stream's stops, in their order, of which the last one may be open.
#[derive(Default)]
pub(super) struct Stops(SmallVec<[Stop; 1]>);

impl Stops {
    /// Whether no launch is kept from beginning.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps launches from this sequence on from beginning, besides those that do not already.
    pub fn add(&mut self, sequence: u64) {
        match self.0.iter_mut().find(|stop| stop.reaches(sequence)) {
            Some(stop) => stop.from = stop.from.min(sequence),
            None => self.0.push(Stop { from: sequence, told: None }),
        }
    }

    /// Notes that the open stop is told, when this had been pushed; unless it is not known yet how the launch ended that made it:
    /// `ended` is the last launch whose end is settled.
    pub fn tell(&mut self, ended: u64, told: Told) {
        if let Some(stop) = self.0.last_mut().filter(|stop| stop.told.is_none() && stop.from <= ended) {
            stop.told = Some(told);
        }
    }

    /// Whether the launch with this sequence does not begin.
    pub fn has(&self, sequence: u64) -> bool {
        self.0.iter().any(|stop| stop.from <= sequence && stop.reaches(sequence))
    }

    /// Whether the launch with this sequence does not begin because of one before it.
    pub fn has_behind_first(&self, sequence: u64) -> bool {
        self.0.iter().any(|stop| stop.from < sequence && stop.reaches(sequence))
    }

    /// Whether the launch with this sequence does not begin because of a stop that was told.
    pub fn was_told(&self, sequence: u64) -> bool {
        self.0.iter().any(|stop| stop.from < sequence && stop.told.is_some() && stop.reaches(sequence))
    }

    /// Whether what the host does at this position, behind the launch with this sequence, is skipped.
    pub fn skips(&self, sequence: u64, position: u64) -> bool {
        self.0
            .iter()
            .any(|stop| stop.from <= sequence && stop.told.is_none_or(|told| position <= told.position))
    }

    /// What has to be settled before anything behind it begins: the end of the first stop, if that was told.
    pub fn first_told(&self) -> Option<Told> {
        self.0.first()?.told
    }

    /// Forgets the first stop. Returns from where on the next one holds.
    pub fn pass_first(&mut self) -> Option<u64> {
        self.0.remove(0);
        self.0.first().map(|stop| stop.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(sequence: u64, position: u64) -> Told {
        Told { sequence, position }
    }

    fn is_open(stops: &Stops) -> bool {
        stops.has(u64::MAX)
    }

    #[test]
    fn an_open_stop_holds_for_all_from_its_first_launch_on() {
        let mut stops = Stops::default();
        assert!(!is_open(&stops) && !stops.has(1));
        stops.add(5);
        stops.add(3);
        assert!(is_open(&stops) && !stops.has(2) && stops.has(3) && stops.has(1000));
        assert!(!stops.has_behind_first(3) && stops.has_behind_first(4));
    }

    #[test]
    fn a_stop_that_was_told_holds_for_what_had_been_pushed() {
        let mut stops = Stops::default();
        stops.add(3);
        stops.tell(3, told(6, 9));
        assert!(!is_open(&stops) && stops.has(6) && !stops.has(7));
        assert!(stops.skips(6, 9) && !stops.skips(6, 10));
        assert_eq!(stops.first_told(), Some(told(6, 9)));
        // One of those is cancelled, too: it is among them.
        stops.add(4);
        assert!(!is_open(&stops));
    }

    #[test]
    fn a_launch_behind_a_told_stop_stops_the_stream_again() {
        let mut stops = Stops::default();
        stops.add(3);
        stops.tell(3, told(6, 9));
        stops.add(8);
        assert!(is_open(&stops) && stops.has(6) && !stops.has(7) && stops.has(8));
        assert_eq!(stops.pass_first(), Some(8));
        assert!(!stops.has(6) && stops.has(8) && stops.first_told().is_none());
        stops.tell(7, told(9, 20));
        assert!(is_open(&stops), "nobody knows yet how it ended");
        stops.tell(8, told(9, 20));
        assert_eq!(stops.pass_first(), None);
        assert!(!stops.has(8));
    }
}
