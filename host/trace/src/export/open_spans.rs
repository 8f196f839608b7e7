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
    /// A begin was earlier than the one before it.
    is_unsorted: bool,
}

impl Open {
    fn push(&mut self, begin: &Point) {
        self.is_unsorted |= self.begins.last().is_some_and(|last| last.at_ns > begin.at_ns);
        self.begins.push(*begin);
    }

    /// Returns the place of the begin that this is the end of. Where ends were lost, many are open: begins
    /// are looked for by their times, which hardly ever go back.
    fn begin_of(&self, end: &Point) -> Option<usize> {
        let from = |place: &dyn Fn(&Point) -> bool| self.begins.partition_point(place);
        let (from, to) = match self.is_unsorted {
            true => (0, self.begins.len()),
            false => (from(&|begin| begin.at_ns < end.began_ns), from(&|begin| begin.at_ns <= end.began_ns)),
        };
        let is_begin = |begin: &Point| begin.point == end.point && begin.at_ns == end.began_ns;
        self.begins[from..to].iter().rposition(is_begin).map(|at| from + at)
    }
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
            (open.wave, open.is_unsorted) = (wave, false);
        }
        if is_kept {
            open.push(point);
            self.count += 1;
        } else if point.kind == PointKind::End
            && let Some(at) = open.begin_of(point)
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

    /// Whatever the order of times is, an end is that of the last begin that it names; ends that name none
    /// take no longer where many are open.
    #[test]
    fn ends_find_their_begins_among_many() {
        let mut spans = OpenSpans::default();
        let mut note = |kind, began_ns, at_ns, wave| {
            spans.note(&Point { kind, began_ns, at_ns, wave, ..Point::default() }).len()
        };
        let (begin, end) = (PointKind::Begin, PointKind::End);
        for at in [10, 20, 20, 15, 30] {
            assert_eq!(note(begin, at, at, 0), 0);
        }
        assert_eq!([note(end, 20, 40, 0), note(end, 12, 41, 0), note(end, 10, 42, 0)], [2, 0, 1]);
        let open = 200_000;
        (0..open).for_each(|at| _ = note(begin, 2 * at, 2 * at, 1));
        assert!((0..open).all(|at| note(end, 2 * at + 1, 2 * open, 1) == 0));
        assert_eq!(note(end, 2, 2 * open, 1), open as usize - 2);
    }
}
