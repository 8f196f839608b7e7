//! What trace points of a device's kernels say, on its way to the file.
//!
//! ```text
//!  wave (kernel/device/src/trace.rs)     raw channel, DropNewest    .../device/raw/points.rs (host)       file
//!  ────────────────────────────────────────────────────────────────────────────────────────────────────────────
//!  the channel's switch: on? no: goes on
//!  first use: TracePoints::register ──────────────────────────────────► Points: a number, a name ──► names
//!  now and then: now_ns, clock_pair ──────────────────────────────────► DeviceClock: a line     ──► clock
//!  time, head, values ─────────────────► page ────────────────────────► Drain: times on the line ──► points
//! ```
//!
//! The lanes that came to a trace point together write one record, of the first of them. That lane ends a
//! span, wherever the others go; so a lane's spans lie in each other. The end of a span has the begin's time,
//! so that either says which span it is. A wave has the number of a trace point by a call, whose handler has
//! put the name into the tracer's queue: so every record in the file is behind its name. Losses are the
//! channel's (no wave waits for a trace), or the reader's if it meets what is no record; both are counted in
//! front of the page. The thread that reads goes on only when the tracer's queue has room.
//!
//! Kernels that others launch write such records to pages of the same channel, each for all waves that come to its place. So each of
//! their records says of which wave it is, and [`OtherWaves`] gives the waves slots.

use crate::clock::DeviceClock;
use crate::other_waves::{OtherWaves, Parts, Wave};
use crate::queue::{Entry, PointsEntry};
use crate::record::ClockPair;
use crate::tracer::Source;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::trace::{
    IS_ZERO_SHIFT, OF_OTHERS, PointHead, PointKind, record_bytes, wave_of, without_wave,
};
use hostcall_locks::Mutex;
use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Most trace points of a device that get a number.
const MOST_POINTS: usize = 1 << 14;

/// A page of a raw channel, or the part of one that was written: records as [`hostcall_abi::trace`] has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointsPage<'a> {
    /// The home slot of the waves that wrote it.
    pub slot: u32,
    /// Records that were dropped before.
    pub dropped: u64,
    /// The records, with times by the device's clock.
    pub words: &'a [u64],
}

/// How many records there are, of those as a file has them.
fn records_in(records: &[u8]) -> u64 {
    let (words, _) = records.as_chunks::<8>();
    let (mut count, mut at) = (0, 0);
    while let Some(head) = words.get(at + 1).and_then(|head| PointHead::of_word(u64::from_le_bytes(*head))) {
        count += 1;
        at += 2 + head.words.next_multiple_of(2) as usize;
    }
    count
}

/// How often two clocks that are one are read, of which the time counts that took the least.
const LOOKS: usize = 32;

/// So far before a recording's begin its first records may seem to lie, in ns: the device's clock is known by comparisons.
const CLOCKS_APART_NS: i64 = 10_000_000;

#[derive(PartialEq, Eq, Hash)]
struct Key {
    kind: PointKind,
    tags: u64,
    line: u32,
    file: Arc<str>,
    text: Arc<str>,
}

/// The numbers of a device's trace points, the same in all traces: a span may begin in one and end in another.
#[derive(Default)]
pub struct PointNumbers(Mutex<HashMap<Key, u32>>);

impl PointNumbers {
    /// The point's number, the same for the same point. `None` if there are too many.
    fn of(&self, key: Key) -> Option<u32> {
        let mut numbers = self.0.lock();
        let next = numbers.len();
        match numbers.entry(key) {
            MapEntry::Occupied(there) => Some(*there.get()),
            MapEntry::Vacant(_) if next >= MOST_POINTS => None,
            MapEntry::Vacant(place) => Some(*place.insert(next as u32 + 1)),
        }
    }

    /// Whether some point has the number.
    fn has(&self, number: u32) -> bool {
        (1..=self.0.lock().len()).contains(&(number as usize))
    }
}

/// The trace points of a device in a trace: their names, and where its clock's times lie on the trace's time line.
pub struct Points {
    source: Source,
    numbers: Arc<PointNumbers>,
    /// No record of theirs is from before that time of the trace.
    from_ns: i64,
    clock: Mutex<DeviceClock>,
    /// Taken behind the clock.
    others: Mutex<OtherWaves>,
    /// The numbers of points whose names the trace has. Taken behind the others.
    named: Mutex<HashSet<u32>>,
}

impl Points {
    /// The trace points, with these numbers, of the device with this source.
    pub fn new(source: Source, numbers: Arc<PointNumbers>) -> Self {
        let (clock, others, named) = Default::default();
        let from_ns = source.now_ns() as i64 - CLOCKS_APART_NS;
        Self { source, numbers, from_ns, clock, others, named }
    }

    /// What records the device's calls and launches.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the nanoseconds since the trace began.
    pub fn now_ns(&self) -> u64 {
        self.source.now_ns()
    }

    /// Returns a point's number, the same for the same point, and notes the point in the trace if it is new. `tags` are the
    /// types of its values as [`hostcall_format::tags`] has them; the device's clock shows `device_ns` now. `None`
    /// if there are too many points.
    pub fn register(
        &self,
        kind: PointKind,
        tags: u64,
        line: u32,
        device_ns: u64,
        file: &str,
        text: &str,
    ) -> Option<u32> {
        self.clock.lock().guess(device_ns, self.now_ns());
        let (file, text) = (Arc::<str>::from(file), Arc::<str>::from(text));
        let point = self.numbers.of(Key { kind, tags, line, file: file.clone(), text: text.clone() })?;
        let mut named = self.named.lock();
        if named.insert(point) {
            let source = self.source.number();
            self.source.queue().push(Entry::NamedPoint { source, point, kind, tags, line, file, text });
        }
        Some(point)
    }

    /// Says that the device's clock is the host's, which `now_ns` reads: its times are then exact, and comparisons only check
    /// that.
    pub fn has_hosts_clock(&self, now_ns: impl Fn() -> u64) {
        let looks = (0..LOOKS).map(|_| (now_ns(), self.now_ns(), now_ns()));
        let best = looks.min_by_key(|(before_ns, _, after_ns)| after_ns.saturating_sub(*before_ns));
        if let Some((before_ns, host_ns, after_ns)) = best {
            self.clock.lock().set(before_ns, host_ns, after_ns);
        }
    }

    /// Notes that the trace's time was `host_ns` at a moment between these two of the device's clock.
    pub fn compare_clocks(&self, before_ns: u64, host_ns: u64, after_ns: u64) {
        if let Some(compared) = self.clock.lock().compare(before_ns, host_ns, after_ns) {
            let (device_ns, host_ns) = (compared.device_ns, compared.host_ns);
            let (error_ns, off_ns, drift_ppb) = (compared.error_ns, compared.off_ns, compared.drift_ppb);
            let source = self.source.number();
            let pair = ClockPair { source, device_ns, host_ns, error_ns, off_ns, drift_ppb };
            self.source.queue().push(Entry::Clock(pair));
        }
    }

    /// Returns whether the tracer takes more pages now. Its queue is bounded; who has pages keeps them until then.
    pub fn has_room(&self) -> bool {
        self.source.queue().has_room()
    }

    /// Records a page, of launches that are `wanted`; records of those of which that says nothing count as lost. What is no record in it counts as one that was lost, and so does all that is
    /// behind it. Records of points that the trace has no name of belong to one that has ended, and so do those from before it
    /// began: a wave on a GPU that goes on tells late of what it has recorded last.
    pub fn page(&self, page: &PointsPage<'_>, mut wanted: impl FnMut(LaunchId) -> Option<bool>) {
        let (mut rest, mut lost) = (page.words, page.dropped);
        let mut parts = Parts::new(page.slot);
        let mut clock = self.clock.lock();
        let mut others = self.others.lock();
        let named = self.named.lock();
        while !rest.is_empty() {
            let is_here = |point| named.contains(&point) || !self.numbers.has(point);
            let taken = Self::put(&mut clock, &mut others, is_here, self.from_ns, rest, &mut parts);
            let Some(behind) = taken else {
                lost = lost.saturating_add(1);
                break;
            };
            rest = behind;
        }
        drop((clock, others, named));
        let source = self.source.number();
        let tell = |Wave { launch, slot, workgroup, wave }, lost, records| {
            let points = PointsEntry { source, launch, slot, workgroup, wave, lost, records };
            self.source.queue().push_points(points);
        };
        for (wave, records) in parts.waves {
            match wanted(wave.launch) {
                Some(true) => tell(wave, std::mem::take(&mut lost), records),
                Some(false) => {}
                None => lost = lost.saturating_add(records_in(&records)),
            }
        }
        if lost > 0 {
            tell(Wave { slot: page.slot, ..Wave::default() }, lost, Vec::new());
        }
    }

    /// Appends the first record, if its point `is_here` and its time is not before `from_ns`, with its times on the trace's time line. Returns what is behind it.
    fn put<'w>(
        clock: &mut DeviceClock,
        others: &mut OtherWaves,
        is_here: impl Fn(u32) -> bool,
        from_ns: i64,
        words: &'w [u64],
        to: &mut Parts,
    ) -> Option<&'w [u64]> {
        let head = PointHead::of_word(*words.get(1)?)?;
        let (record, rest) = words.split_at_checked(record_bytes(head.words) as usize / 8)?;
        if !is_here(head.point) {
            return Some(rest);
        }
        if clock.at(record[0])? < from_ns {
            return Some(rest);
        }
        let at_ns = clock.place(record[0])?;
        let (launch, workgroup) = (LaunchId::from_bits(record[2] as u32), (record[2] >> 32) as u32);
        let wave = Wave { launch, slot: to.slot, workgroup, wave: wave_of(record[1]) };
        let is_of_others = record[1] & OF_OTHERS != 0;
        let to = to.of(if is_of_others { others.slot_of(wave, head.kind) } else { wave });
        let is_zero = |i: usize| is_of_others && record[1] >> (IS_ZERO_SHIFT as usize + i) & 1 != 0;
        let value = |i: usize| if is_zero(i) { 0 } else { record[3 + i] };
        to.extend(at_ns.to_le_bytes());
        to.extend(without_wave(record[1]).to_le_bytes());
        if head.kind == PointKind::End {
            // It is not later than the end, whatever the device says.
            let began_ns = clock.place(value(0))?.min(at_ns);
            to.extend(began_ns.to_le_bytes());
        } else {
            (0..head.words as usize).for_each(|i| to.extend(value(i).to_le_bytes()));
        }
        // Records of a file are of whole pairs, too.
        if head.words % 2 != 0 {
            to.extend([0; 8]);
        }
        Some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Reader, Tracer};
    use std::time::Duration;

    /// Points of a trace whose records say times of their own.
    fn unbounded(source: Source, numbers: Arc<PointNumbers>) -> Points {
        Points { from_ns: i64::MIN, ..Points::new(source, numbers) }
    }

    fn head(kind: PointKind, point: u32, words: u32) -> u64 {
        PointHead { kind, point, words, lanes: 32, first_lane: 1 }.of_wave(1)
    }

    /// Calls that compare clocks take as long as the host takes to answer, which is nothing that times hang on.
    #[test]
    fn the_hosts_own_clock_is_not_bent() {
        let tracer = Tracer::builder().writer(std::io::sink()).start().unwrap();
        let points = unbounded(tracer.source("cpu", "hostcall"), Arc::default());
        let far = 1 << 40;
        points.has_hosts_clock(|| points.now_ns() + far);
        let place = |device_ns| points.clock.lock().place(device_ns).unwrap();
        let error_ns = place(far + 1_000_000).abs_diff(1_000_000);
        for moment_ns in (2_000_000..100_000_000).step_by(1_000_000) {
            points.compare_clocks(far + moment_ns, moment_ns + 900_000, far + moment_ns + 1_000_000);
            assert_eq!(place(far + moment_ns + 500_000).abs_diff(moment_ns + 500_000), error_ns);
        }
        // A clock that turns out to be another one is compared as others are.
        points.compare_clocks(far + 200_000_000, 900_000_000, far + 200_000_100);
        points.compare_clocks(far + 900_000_000, 1_600_000_000, far + 900_000_100);
        assert!(place(far + 2_000_000_000) > 2_020_000_000);
    }

    #[test]
    fn records_are_read_back_with_times_of_the_trace() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("points.trace");
        let tracer = Tracer::builder().file(&file).unwrap().start().unwrap();
        let points = unbounded(tracer.source("cpu", "hostcall"), Arc::default());
        let register = |kind, tags, text| points.register(kind, tags, 7, 1000, "kernel.rs", text).unwrap();
        let span = register(PointKind::Begin, 0, "step");
        let event = register(PointKind::Event, 0x11, "{} of {:#x}");
        assert_eq!(register(PointKind::Begin, 0, "step"), span);
        // The device's clock is 10,000 ns behind.
        points.compare_clocks(90_000, 100_100, 90_200);
        let words = [
            [100_000, head(PointKind::Begin, span, 0), 2 << 32 | 9, 0].as_slice(),
            &[100_500, head(PointKind::Event, event, 2), 2 << 32 | 9, 3, 255, 0],
            &[101_000, head(PointKind::End, span, 1), 2 << 32 | 9, 100_000],
            &[0, 0, 0, 0],
        ]
        .concat();
        points.page(&PointsPage { slot: 5, dropped: 4, words: &words }, |_| Some(true));
        let summary = tracer.finish(Duration::from_secs(60));
        assert_eq!(summary.lost_points, 5);
        assert!(summary.lost().unwrap().starts_with("5 records of kernels"));

        let mut names = crate::Names::default();
        let (mut seen, mut lost, mut pairs) = (Vec::new(), 0, Vec::new());
        for read in Reader::new(std::fs::File::open(&file).unwrap()).unwrap() {
            let read = read.unwrap();
            names.note(&read);
            match read {
                Event::Point(point) => seen.push(point),
                Event::PointsLost { records, .. } => lost += records,
                Event::Clock(pair) => pairs.push(pair),
                Event::Damaged(_) | Event::Missing(_) => panic!("{read:?}"),
                _ => {}
            }
        }
        assert_eq!((lost, pairs.len(), pairs[0].within_ns()), (5, 1, 100));
        let times: Vec<_> = seen.iter().map(|point| (point.kind, point.began_ns, point.at_ns)).collect();
        let expected = [
            (PointKind::Begin, 110_000, 110_000),
            (PointKind::Event, 110_500, 110_500),
            (PointKind::End, 110_000, 111_000),
        ];
        assert_eq!(times, expected);
        assert!(seen.iter().all(|point| (point.slot, point.workgroup, point.wave) == (5, 2, 1)));
        assert!(seen.iter().all(|point| (point.lanes, point.first_lane) == (32, 1)));
        let mut text = Vec::new();
        names.point(0, seen[1].point).unwrap().print(&seen[1], &mut text);
        assert_eq!(String::from_utf8(text).unwrap(), "3 of 0xff");
        let name = names.point(0, seen[0].point).unwrap();
        assert_eq!((&*name.text, &*name.file, name.line), ("step", "kernel.rs", 7));
    }

    /// A span that began in one trace ends in another, where nobody knows of it; and one of a launch that is not wanted is left out.
    #[test]
    fn records_of_other_traces_and_launches_are_left_out() {
        let (tracer, later) = (Tracer::builder().start().unwrap(), Tracer::builder().start().unwrap());
        let numbers = Arc::<PointNumbers>::default();
        let of = |tracer: &Tracer| unbounded(tracer.source("cpu", "hostcall"), numbers.clone());
        let (first, second) = (of(&tracer), of(&later));
        let register =
            |points: &Points, text| points.register(PointKind::Begin, 0, 7, 1000, "kernel.rs", text).unwrap();
        let span = register(&first, "first");
        assert_eq!((register(&second, "second"), register(&first, "first")), (span + 1, span));
        let launch = LaunchId::new(3, 1);
        let words = |point| [100_000, head(PointKind::End, point, 1), u64::from(launch.to_bits()), 90_000];
        let put = |words: &[u64]| {
            let mut asked = 0;
            let page = PointsPage { words, ..PointsPage::default() };
            second.page(&page, |of| {
                asked += u32::from(of == launch);
                Some(false)
            });
            asked
        };
        assert_eq!((put(&words(span)), put(&words(span + 1)), put(&words(span + 2))), (0, 1, 1));
        assert_eq!(later.finish(Duration::from_secs(60)).lost_points, 0);
    }

    /// Two waves of kernels of others write to one page: each has a slot of its own, in which its span ends.
    #[test]
    fn records_of_others_say_whose_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("points.trace");
        let tracer = Tracer::builder().file(&file).unwrap().start().unwrap();
        let points = unbounded(tracer.source("cpu", "hostcall"), Arc::default());
        let span = points.register(PointKind::Begin, 0, 7, 1000, "k.cu", "step").unwrap();
        let event = points.register(PointKind::Event, 0x11, 8, 1000, "k.cu", "{} of {}").unwrap();
        points.compare_clocks(90_000, 100_100, 90_200);
        let other = |kind, point, words, wave| {
            PointHead { kind, point, words, lanes: 32, first_lane: 1 }.of_wave(wave) | OF_OTHERS
        };
        let words = [
            [100_000, other(PointKind::Begin, span, 0, 1), 6 << 32 | 9, 0].as_slice(),
            &[100_100, other(PointKind::Begin, span, 0, 2), 7 << 32 | 9, 0],
            &[100_200, other(PointKind::Event, event, 2, 1), 6 << 32 | 9, 3, 4, 0],
            &[100_300, other(PointKind::End, span, 1, 1), 6 << 32 | 9, 100_000],
            &[100_400, other(PointKind::End, span, 1, 2), 7 << 32 | 9, 100_100],
            // Half a record.
            &[100_500, other(PointKind::Event, event, 2, 1), 6 << 32 | 9, 3],
        ]
        .concat();
        points.page(&PointsPage { slot: 5, words: &words, ..PointsPage::default() }, |_| Some(true));
        assert_eq!(tracer.finish(Duration::from_secs(60)).lost_points, 1);
        let mut seen = Vec::new();
        for read in Reader::new(std::fs::File::open(&file).unwrap()).unwrap() {
            if let Event::Point(point) = read.unwrap() {
                let writer = (point.slot, point.workgroup, point.wave);
                seen.push((writer, point.kind, point.began_ns, point.at_ns, point.words().to_vec()));
            }
        }
        let [first, second] = [(6, 6, 1), (7, 7, 2)];
        let expected = [
            (first, PointKind::Begin, 110_000, 110_000, vec![]),
            (first, PointKind::Event, 110_200, 110_200, vec![3, 4]),
            (first, PointKind::End, 110_000, 110_300, vec![]),
            (second, PointKind::Begin, 110_100, 110_100, vec![]),
            (second, PointKind::End, 110_100, 110_400, vec![]),
        ];
        assert_eq!(seen, expected);
    }

    /// A wave on a GPU tells of its last records with its next one, which may be of a later recording.
    #[test]
    fn records_from_before_the_trace_are_left_out() {
        let tracer = Tracer::builder().start().unwrap();
        let points = Points::new(tracer.source("cpu", "hostcall"), Arc::default());
        let minute_ns = 60_000_000_000;
        points.has_hosts_clock(|| points.now_ns() + 2 * minute_ns);
        let event = points.register(PointKind::Event, 0, 7, 0, "kernel.rs", "late").unwrap();
        let now_ns = points.now_ns() + 2 * minute_ns;
        let records =
            [now_ns - minute_ns, now_ns].map(|at_ns| [at_ns, head(PointKind::Event, event, 0), 9, 0]);
        let mut asked = 0;
        let page = PointsPage { words: records.as_flattened(), ..PointsPage::default() };
        points.page(&page, |_| {
            asked += 1;
            Some(true)
        });
        let summary = tracer.finish(Duration::from_secs(60));
        assert_eq!((asked, summary.lost_points), (1, 0));
    }

    /// What devices say that they have dropped is added up, whatever they say.
    #[test]
    fn numbers_of_lost_records_do_not_overflow() {
        let tracer = Tracer::builder().start().unwrap();
        let points = Points::new(tracer.source("cpu", "hostcall"), Arc::default());
        for slot in 0..2 {
            points.page(&PointsPage { slot, dropped: 1 << 63, ..PointsPage::default() }, |_| Some(true));
        }
        assert_eq!(tracer.finish(Duration::from_secs(60)).lost_points, u64::MAX);
    }
}
