//! Spans whose ends a trace has not: their lanes hung, panicked or were ended, or the end was lost.

use crate::record::Point;
use foldhash::HashMap;
use hostcall_abi::trace::PointKind;

/// Most spans that are remembered until they end.
const MOST_OPEN: usize = 1 << 18;

/// What the lanes of a wave have begun.
#[derive(Default)]
struct Open {
    /// Launch, workgroup and wave.
    wave: (u64, u32, u32),
    begins: Vec<Point>,
}

/// The spans that have begun, by what a wave is told apart by: source, slot, and the lane that comes first.
pub(super) struct OpenSpans {
    waves: HashMap<(u16, u32, u8), Open>,
    most: usize,
    count: usize,
    left_out: u64,
}

impl Default for OpenSpans {
    fn default() -> Self {
        Self { waves: HashMap::default(), most: MOST_OPEN, count: 0, left_out: 0 }
    }
}

impl OpenSpans {
    /// Takes a point, and returns the begins of spans that do not end any more: those of a wave whose slot another one has, and
    /// those in a span that ends.
    pub fn note(&mut self, point: &Point) -> Vec<Point> {
        let key = (point.source, point.slot, point.first_lane);
        let is_full = self.count >= self.most;
        if point.kind == PointKind::Begin && is_full {
            self.left_out += 1;
        }
        let is_kept = point.kind == PointKind::Begin && !is_full;
        let open = match self.waves.get_mut(&key) {
            Some(open) => open,
            None if is_kept => self.waves.entry(key).or_default(),
            None => return Vec::new(),
        };
        let wave = (point.launch, point.workgroup, point.wave);
        let mut given_up = Vec::new();
        if open.wave != wave {
            given_up.append(&mut open.begins);
            open.wave = wave;
        }
        let is_begin = |begin: &Point| begin.point == point.point && begin.at_ns == point.began_ns;
        if is_kept {
            open.begins.push(*point);
            self.count += 1;
        } else if point.kind == PointKind::End
            && let Some(at) = open.begins.iter().rposition(is_begin)
        {
            given_up.extend(open.begins.drain(at + 1..));
            open.begins.truncate(at);
            self.count -= 1;
        }
        self.count -= given_up.len();
        if open.begins.is_empty() {
            self.waves.remove(&key);
        }
        given_up
    }

    /// Returns the begins of all others, in the order of their times.
    pub fn take(&mut self) -> Vec<Point> {
        self.count = 0;
        let mut begins: Vec<_> = self.waves.drain().flat_map(|(_, open)| open.begins).collect();
        begins.sort_by_key(|begin| (begin.at_ns, begin.source, begin.slot, begin.first_lane));
        begins
    }

    /// How many spans were too many to remember. Those of them that end are told of all the same.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_without_an_end_are_found() {
        let mut spans = OpenSpans { most: 3, ..OpenSpans::default() };
        let mut note = |kind, point, began_ns, at_ns, wave| {
            let point = Point { kind, point, began_ns, at_ns, wave, ..Point::default() };
            spans.note(&point).iter().map(|begin| (begin.point, begin.at_ns)).collect::<Vec<_>>()
        };
        let (begin, end) = (PointKind::Begin, PointKind::End);
        assert_eq!(note(begin, 1, 10, 10, 0), []);
        assert_eq!(note(begin, 2, 11, 11, 0), []);
        assert_eq!(note(end, 2, 11, 12, 0), []);
        // The inner one's end was lost.
        assert_eq!(note(begin, 3, 13, 13, 0), []);
        assert_eq!(note(end, 1, 10, 14, 0), [(3, 13)]);
        // The begin was lost.
        assert_eq!(note(end, 1, 9, 15, 0), []);
        // Another wave has the slot.
        assert_eq!(note(begin, 1, 16, 16, 0), []);
        assert_eq!(note(PointKind::Event, 9, 17, 17, 1), [(1, 16)]);
        (20..24).for_each(|at| assert_eq!(note(begin, 1, at, at, 1), []));
        assert_eq!(spans.left_out(), 1);
        assert_eq!(spans.take().iter().map(|begin| begin.at_ns).collect::<Vec<_>>(), [20, 21, 22]);
        assert_eq!(spans.take(), []);
    }
}
