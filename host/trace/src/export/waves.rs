//! Spans of waves as slices of tracks.

use super::LeftOut;
use super::tracks::TrackIds;
use crate::record::Point;
use foldhash::HashMap;
use hostcall_abi::trace::PointKind;

/// Most tracks; of others nothing is exported, and it is counted.
const MOST_TRACKS: usize = 1 << 18;

/// Most spans in each other on a track; those in more are left out, and counted.
const MOST_OPEN: usize = 256;

/// What is to be done on a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The innermost slice ends.
    End(u64),
    /// A slice begins.
    Begin(u64),
    /// A counter or an event.
    Value(u64),
}

/// A track: what one wave after the other has said that was in a slot, by one of its lanes.
struct Track {
    uuid: u64,
    /// Launch, workgroup and wave.
    wave: (u64, u32, u32),
    /// Spans that have begun, by point and begin.
    open: Vec<(u32, u64)>,
    last_ns: u64,
}

#[derive(Default)]
pub(super) struct Waves {
    tracks: HashMap<(u16, u32, u8), Track>,
    /// What had no place.
    pub left_out: LeftOut,
}

impl Waves {
    /// Returns the track of a point, whether it is new, and what is to be done there. Slices of a track lie in each other,
    /// whatever a trace says: a lane's spans do, and what is lost of one ends with the span that it was in, or with its wave.
    pub fn steps(&mut self, ids: &mut TrackIds, point: &Point) -> Option<(u64, bool, Vec<Step>)> {
        let key = (point.source, point.slot, point.first_lane);
        let is_new = !self.tracks.contains_key(&key);
        if is_new && self.tracks.len() >= MOST_TRACKS {
            self.left_out.points += 1;
            return None;
        }
        let wave = (point.launch, point.workgroup, point.wave);
        let track = self.tracks.entry(key).or_insert_with(|| Track {
            uuid: ids.next(),
            wave,
            open: Vec::new(),
            last_ns: 0,
        });
        let mut steps = Vec::new();
        if track.wave != wave {
            let last_ns = track.last_ns;
            steps.extend(track.open.drain(..).map(|_| Step::End(last_ns)));
            track.wave = wave;
        }
        let at_ns = point.at_ns.max(track.last_ns);
        track.last_ns = at_ns;
        match point.kind {
            PointKind::Begin if track.open.len() < MOST_OPEN => {
                track.open.push((point.point, point.at_ns));
                steps.push(Step::Begin(at_ns));
            }
            PointKind::Begin => self.left_out.spans += 1,
            PointKind::End => {
                let begun = (point.point, point.began_ns);
                if let Some(at) = track.open.iter().rposition(|open| *open == begun) {
                    steps.extend(track.open.drain(at..).map(|_| Step::End(at_ns)));
                }
            }
            PointKind::Counter | PointKind::Event => steps.push(Step::Value(at_ns)),
        }
        Some((track.uuid, is_new, steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_lie_in_each_other() {
        let (mut ids, mut waves) = (TrackIds::from(0), Waves::default());
        let mut step = |kind, point, began_ns, at_ns, wave| {
            let point = Point { kind, point, began_ns, at_ns, wave, ..Point::default() };
            waves.steps(&mut ids, &point).unwrap().2
        };
        let (begin, end) = (PointKind::Begin, PointKind::End);
        assert_eq!(step(begin, 1, 10, 10, 0), [Step::Begin(10)]);
        assert_eq!(step(begin, 2, 10, 10, 0), [Step::Begin(10)]);
        assert_eq!(step(PointKind::Event, 3, 11, 11, 0), [Step::Value(11)]);
        // The inner span's end was lost, and one comes whose begin was.
        assert_eq!(step(end, 5, 9, 12, 0), []);
        assert_eq!(step(end, 1, 10, 13, 0), [Step::End(13), Step::End(13)]);
        // The wave was killed in a span; another one has its slot.
        assert_eq!(step(begin, 1, 14, 14, 0), [Step::Begin(14)]);
        assert_eq!(step(begin, 1, 20, 20, 1), [Step::End(14), Step::Begin(20)]);
        // Times do not go back on a track.
        assert_eq!(step(end, 1, 20, 19, 1), [Step::End(20)]);
    }

    #[test]
    fn spans_that_are_too_deep_are_counted() {
        let (mut ids, mut waves) = (TrackIds::from(0), Waves::default());
        for at_ns in 0..300 {
            let point = Point { kind: PointKind::Begin, began_ns: at_ns, at_ns, ..Point::default() };
            let is_there = !waves.steps(&mut ids, &point).unwrap().2.is_empty();
            assert_eq!(is_there, at_ns < 256);
        }
        assert_eq!(waves.left_out, LeftOut { spans: 44, points: 0 });
    }
}
