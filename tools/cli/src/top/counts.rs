//! What `hostcall trace top` shows: counts over some time, made of a trace's events.

use hostcall_trace::{Event, Latencies, Names, Point, PointKind, Streams, TRACE_POINTS, Waiting, escaped};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// A wait that the trace has not confirmed for so long is over, or its server is.
const WAITS_LAST_NS: u64 = 1_000_000_000;

/// Most waits that are remembered.
const MOST_WAITS: usize = 4096;

/// Most trace points that are counted.
const MOST_POINTS: usize = 4096;

/// Slowest callers that are shown.
const MOST_SLOW: usize = 8;

/// What a trace had in some time.
#[derive(Default)]
struct Window {
    latencies: Latencies,
    calls: u64,
    posts: u64,
    streams: BTreeMap<u16, StreamCounts>,
    /// By source and point.
    points: HashMap<(u16, u32), PointCounts>,
}

/// What a trace point said.
#[derive(Clone, Copy, Default)]
struct PointCounts {
    /// How often; of spans, those that ended.
    count: u64,
    /// Time of spans, of all and of the longest.
    time_ns: u64,
    most_ns: u64,
    /// The last value of a counter.
    value: f64,
    /// The last of an event.
    last: Option<Point>,
}

#[derive(Clone, Copy, Default)]
struct StreamCounts {
    bytes: u64,
    records: u64,
    dropped: u64,
    overwritten: u64,
}

/// Counts what a trace has, since its begin and since it was asked last.
#[derive(Default)]
pub struct Counts {
    names: Names,
    streams: Streams,
    window: Window,
    window_began_ns: u64,
    last_ns: u64,
    calls: u64,
    posts: u64,
    failed_calls: u64,
    dropped_calls: u64,
    damaged_bytes: u64,
    missing_blocks: u64,
    of_streams: BTreeMap<u16, StreamCounts>,
    /// How often trace points said something, by source and point.
    of_points: HashMap<(u16, u32), u64>,
    lost_points: u64,
    lost_stream_bytes: u64,
    /// As the trace's end says.
    dropped_others: u64,
    /// By source and slot.
    waits: HashMap<(u16, u32), Waiting>,
    has_ended: bool,
}

/// What is shown: the trace's texts are escaped.
#[derive(Debug, Default)]
pub struct Shown {
    /// Seconds since the trace began, and that the rates are of.
    pub at_s: f64,
    pub over_s: f64,
    pub has_ended: bool,
    pub devices: Vec<String>,
    pub calls: u64,
    pub calls_a_second: f64,
    pub failed_calls: u64,
    pub posts: u64,
    pub posts_a_second: f64,
    pub launches_begun: u64,
    pub launches_open: usize,
    /// Calls by LLVM's and ROCm's protocols, in words, of processes; in a trace they are methods.
    pub others: Vec<String>,
    /// What is lost, in words; nothing is lost without one.
    pub lost: Vec<String>,
    /// Methods, that which took the most time first.
    pub methods: Vec<MethodShown>,
    pub streams: Vec<StreamShown>,
    /// Trace points, those that said the most first.
    pub points: Vec<PointShown>,
    pub waits: Vec<String>,
    pub slowest: Vec<String>,
}

#[derive(Debug, PartialEq)]
pub struct MethodShown {
    pub name: String,
    pub calls_a_second: f64,
    pub posts_a_second: f64,
    /// Time of the calls that ended, for each second: how many waves waited at once, where calls are short.
    pub waiting: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub most_ns: u64,
    pub failed: u64,
}

#[derive(Debug, PartialEq)]
pub struct StreamShown {
    pub name: String,
    pub bytes_a_second: f64,
    pub records_a_second: f64,
    pub bytes: u64,
    pub dropped: u64,
    pub overwritten: u64,
}

/// A trace point that has said something in the time that is shown.
#[derive(Debug, PartialEq)]
pub struct PointShown {
    /// Of an event what it said last: its own text has places for values.
    pub name: String,
    /// `span`, `counter` or `event`.
    pub kind: &'static str,
    pub a_second: f64,
    pub all: u64,
    /// Of spans that ended: how long they took on average, and the longest.
    pub times_ns: Option<[u64; 2]>,
    /// The last value of a counter.
    pub value: Option<f64>,
}

impl Counts {
    /// Counts an event.
    pub fn add(&mut self, event: &Event) {
        self.names.note(event);
        self.streams.note(event);
        match event {
            Event::Call(call) => {
                self.seen(call.replied_ns);
                self.calls += 1;
                self.failed_calls += u64::from(call.failed_lanes > 0);
                self.window.calls += 1;
                self.window.latencies.add(&self.names, call);
                let slot = (call.source, call.slot);
                if self.waits.get(&slot).is_some_and(|waiting| call.replied_ns >= waiting.at_ns) {
                    self.waits.remove(&slot);
                }
            }
            Event::Posts(posts) => {
                self.seen(posts.until_ns);
                self.posts = self.posts.saturating_add(posts.count);
                self.window.posts = self.window.posts.saturating_add(posts.count);
                self.window.latencies.add_posts(posts);
            }
            Event::Waiting(waiting) => {
                self.seen(waiting.at_ns);
                let (source, at_ns) = (waiting.source, waiting.at_ns);
                // What is not among those of the server's last look waits no longer.
                self.waits.retain(|(of, _), other| *of != source || other.at_ns >= at_ns);
                if self.waits.len() < MOST_WAITS {
                    self.waits.insert((source, waiting.slot), waiting.clone());
                }
            }
            Event::LaunchBegan { at_ns, .. } => self.seen(*at_ns),
            Event::LaunchEnded { launch, at_ns, .. } => {
                self.seen(*at_ns);
                self.waits.retain(|_, waiting| waiting.launch != *launch);
            }
            Event::Page(page) => {
                let record_bytes =
                    self.streams.get(page.stream).map_or(1, |stream| stream.record_bytes.max(1));
                let bytes = page.bytes.len() as u64;
                for counts in [&mut self.window.streams, &mut self.of_streams] {
                    let counts = counts.entry(page.stream).or_default();
                    counts.bytes += bytes;
                    counts.records += bytes / u64::from(record_bytes);
                    counts.dropped = counts.dropped.saturating_add(page.dropped_before);
                    counts.overwritten = counts.overwritten.saturating_add(page.overwritten_before);
                }
            }
            Event::StreamEnded { stream, totals } => {
                let counts = self.of_streams.entry(*stream).or_default();
                (counts.dropped, counts.overwritten) = (totals.dropped_records, totals.overwritten_bytes);
                self.lost_stream_bytes = self.lost_stream_bytes.saturating_add(totals.lost_bytes);
            }
            Event::Point(point) => self.point(point),
            Event::PointsLost { records, .. } => self.lost_points = self.lost_points.saturating_add(*records),
            Event::Dropped(calls) => self.dropped_calls = self.dropped_calls.saturating_add(*calls),
            Event::Missing(blocks) => self.missing_blocks = self.missing_blocks.saturating_add(*blocks),
            Event::Damaged(bytes) => self.damaged_bytes = self.damaged_bytes.saturating_add(*bytes),
            Event::Ended(totals) => {
                self.seen(totals.ended_ns);
                self.has_ended = true;
                self.dropped_others = totals.dropped_others;
                self.waits.clear();
            }
            _ => {}
        }
    }

    fn point(&mut self, point: &Point) {
        self.seen(point.at_ns);
        let key = (point.source, point.point);
        let is_full = self.of_points.len() >= MOST_POINTS && !self.of_points.contains_key(&key);
        // A span counts once, at its end.
        if point.kind == PointKind::Begin || is_full {
            return;
        }
        *self.of_points.entry(key).or_default() += 1;
        let counts = self.window.points.entry(key).or_default();
        counts.count += 1;
        match point.kind {
            PointKind::End => {
                let time_ns = point.at_ns.saturating_sub(point.began_ns);
                counts.time_ns = counts.time_ns.saturating_add(time_ns);
                counts.most_ns = counts.most_ns.max(time_ns);
            }
            PointKind::Counter => {
                let name = self.names.point(point.source, point.point);
                counts.value = name.map_or(0.0, |name| name.value(point));
            }
            PointKind::Event => counts.last = Some(*point),
            PointKind::Begin => {}
        }
    }

    fn seen(&mut self, ns: u64) {
        self.last_ns = self.last_ns.max(ns);
    }

    /// Returns what the trace had since this was called last, `elapsed` ago.
    ///
    /// A trace that is read faster than it was written has more of its own time in that: rates are by what is
    /// longer.
    pub fn take(&mut self, elapsed: Duration) -> Shown {
        let own_ns = self.last_ns.saturating_sub(self.window_began_ns);
        let over_s = Duration::from_nanos(own_ns).max(elapsed).as_secs_f64().max(1e-9);
        let window = std::mem::take(&mut self.window);
        self.window_began_ns = self.last_ns;
        let rate = |count: u64| count as f64 / over_s;
        let mut methods: Vec<_> = window
            .latencies
            .methods()
            .map(|(method, of)| MethodShown {
                name: self.method(method),
                calls_a_second: rate(of.calls()),
                posts_a_second: rate(of.posts()),
                waiting: of.time_ns() as f64 / 1e9 / over_s,
                p50_ns: of.quantile_ns(0.5),
                p99_ns: of.quantile_ns(0.99),
                most_ns: of.quantile_ns(1.0),
                failed: of.failed(),
            })
            .collect();
        methods.sort_by(|a, b| b.waiting.total_cmp(&a.waiting).then_with(|| a.name.cmp(&b.name)));
        Shown {
            at_s: self.last_ns as f64 / 1e9,
            over_s,
            has_ended: self.has_ended,
            devices: self
                .names
                .sources()
                .map(|(_, device, protocol)| format!("{} ({})", escaped(device), escaped(protocol)))
                .collect(),
            calls: self.calls,
            calls_a_second: rate(window.calls),
            failed_calls: self.failed_calls,
            posts: self.posts,
            posts_a_second: rate(window.posts),
            launches_begun: self.names.launches_begun(),
            launches_open: self.names.launches_open(),
            others: Vec::new(),
            lost: self.lost(),
            methods,
            streams: self.streams_shown(&window, over_s),
            points: self.points_shown(&window, over_s),
            waits: self.waits_shown(),
            slowest: self.slowest_shown(&window.latencies),
        }
    }

    /// The name of a method.
    fn method(&self, method: u32) -> String {
        escaped(self.names.method(method).map_or("?", |method| &method.name)).into_owned()
    }

    fn lost(&self) -> Vec<String> {
        let lost = [
            (self.dropped_calls, "calls were dropped"),
            (self.dropped_others, "launches, posts or names were dropped"),
            (self.missing_blocks, "blocks of the file are missing"),
            (self.damaged_bytes, "bytes of the file are damaged"),
            (self.lost_points, "records of trace points were dropped"),
            (self.lost_stream_bytes, "bytes of streams could not be read or written"),
        ];
        lost.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
    }

    fn streams_shown(&self, window: &Window, over_s: f64) -> Vec<StreamShown> {
        let shown = self.streams.iter().map(|(number, stream)| {
            let of_window = window.streams.get(&number).copied().unwrap_or_default();
            let of_all = self.of_streams.get(&number).copied().unwrap_or_default();
            StreamShown {
                name: escaped(&stream.name).into_owned(),
                bytes_a_second: of_window.bytes as f64 / over_s,
                records_a_second: of_window.records as f64 / over_s,
                bytes: of_all.bytes,
                dropped: of_all.dropped,
                overwritten: of_all.overwritten,
            }
        });
        shown.collect()
    }

    fn points_shown(&self, window: &Window, over_s: f64) -> Vec<PointShown> {
        let shown = window.points.iter().filter_map(|((source, point), counts)| {
            let name = self.names.point(*source, *point)?;
            let (kind, times_ns, value) = match name.kind {
                PointKind::Begin | PointKind::End => {
                    ("span", Some([counts.time_ns / counts.count.max(1), counts.most_ns]), None)
                }
                PointKind::Counter => ("counter", None, Some(counts.value)),
                PointKind::Event => ("event", None, None),
            };
            let all = self.of_points.get(&(*source, *point)).copied().unwrap_or_default();
            let mut text = name.text.as_bytes().to_vec();
            if let Some(point) = &counts.last {
                text.clear();
                name.print(point, &mut text);
            }
            let name = escaped(&String::from_utf8_lossy(&text)).into_owned();
            let a_second = counts.count as f64 / over_s;
            Some(PointShown { name, kind, a_second, all, times_ns, value })
        });
        let mut shown: Vec<_> = shown.collect();
        shown.sort_by(|a, b| b.a_second.total_cmp(&a.a_second).then_with(|| a.name.cmp(&b.name)));
        shown
    }

    /// The calls that wait, the longest waits first.
    fn waits_shown(&self) -> Vec<String> {
        let mut waits: Vec<_> =
            self.waits.values().filter(|it| it.at_ns.saturating_add(WAITS_LAST_NS) >= self.last_ns).collect();
        waits.sort_by_key(|waiting| (std::cmp::Reverse(waiting.waited_ns), waiting.slot));
        let line = |waiting: &&Waiting| {
            let Waiting { waited_ns, launch, slot, place, lanes, waits_for, method, source, .. } = *waiting;
            let kernel = self.names.launch(*launch).map_or(Arc::default(), |launch| launch.kernel.clone());
            let place = place
                .map_or(String::new(), |([x, y, z], wave)| format!(" workgroup ({x}, {y}, {z}) wave {wave}"));
            let device = self.names.source(*source).map_or("?", |(device, _)| device);
            let seconds = *waited_ns as f64 / 1e9;
            let of = if kernel.is_empty() { String::new() } else { format!(" {kernel}") };
            format!(
                "{method} for {seconds:.1} s, for {waits_for}: {device}{of}{place} slot {slot}, {lanes} lanes"
            )
        };
        waits.iter().map(|waiting| escaped(&line(waiting)).into_owned()).collect()
    }

    fn slowest_shown(&self, latencies: &Latencies) -> Vec<String> {
        let of = |(method, of): (u32, &hostcall_trace::MethodLatencies)| {
            let name = self.method(method);
            of.slowest().iter().map(|call| (call.latency_ns, format!("{name}: {call}"))).collect::<Vec<_>>()
        };
        // What the trace itself costs is not what is looked for.
        let is_own = |method: u32| self.names.method(method).is_some_and(|it| it.service() == TRACE_POINTS);
        let mut slowest: Vec<_> =
            latencies.methods().filter(|(method, _)| !is_own(*method)).flat_map(of).collect();
        slowest.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        slowest.into_iter().take(MOST_SLOW).map(|(_, line)| line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall_trace::{Call, Page, Posts, StreamTotals, Totals};

    /// The tags of one `i64`, as trace files have them.
    const I64_TAG: u64 = 5;

    fn call(slot: u32, method: u32, from_ms: u64, to_ms: u64) -> Event {
        let ns = |ms: u64| ms * 1_000_000;
        Event::Call(Call { slot, method, replied_ns: ns(to_ms), ..Call::at(ns(from_ms)) })
    }

    fn begun() -> Counts {
        let mut counts = Counts::default();
        for event in [
            Event::Source { source: 0, device: "cpu".into(), protocol: "hostcall".into() },
            Event::Method { method: 1, number: 300, name: "Shop::price".into() },
            Event::Method { method: 2, number: 301, name: "Shop::sold".into() },
            Event::LaunchBegan {
                launch: 1,
                source: 0,
                at_ns: 0,
                workgroups: [1, 1, 1],
                kernel: "sell".into(),
                id: Default::default(),
            },
        ] {
            counts.add(&event);
        }
        counts
    }

    #[test]
    fn rates_are_of_the_time_since_the_last_look() {
        let mut counts = begun();
        counts.add(&call(0, 1, 0, 500));
        counts.add(&call(1, 2, 100, 110));
        counts.add(&Event::Posts(Posts {
            from_ns: 0,
            until_ns: 2_000_000_000,
            count: 40,
            method: 2,
            source: 0,
        }));
        // Two seconds of the trace were read in no time.
        let shown = counts.take(Duration::from_millis(1));
        assert_eq!((shown.calls, shown.calls_a_second, shown.posts_a_second), (2, 1.0, 20.0));
        let names: Vec<_> = shown.methods.iter().map(|method| (&*method.name, method.waiting)).collect();
        assert_eq!(names, [("Shop::price", 0.25), ("Shop::sold", 0.005)], "the slowest first");
        assert!(shown.slowest[0].starts_with("Shop::price: "), "{:?}", shown.slowest);
        assert_eq!((shown.launches_begun, shown.launches_open), (1, 1));
        // The trace's own calls are methods, and no slow callers.
        counts.add(&Event::Method { method: 3, number: 9, name: "TracePoints::register".into() });
        counts.add(&call(0, 3, 2000, 2900));
        let shown = counts.take(Duration::from_millis(1));
        assert_eq!((shown.methods.len(), shown.slowest.len()), (1, 0), "{shown:?}");
        // Nothing since.
        let shown = counts.take(Duration::from_secs(1));
        assert_eq!((shown.calls, shown.calls_a_second, shown.methods.len()), (3, 0.0, 0));
    }

    #[test]
    fn any_number_of_launches_is_counted() {
        let mut counts = begun();
        for launch in 2..=10_000 {
            counts.add(&Event::LaunchBegan {
                launch,
                source: 0,
                at_ns: 0,
                workgroups: [1, 1, 1],
                kernel: "sell".into(),
                id: Default::default(),
            });
        }
        for launch in (1..=6000).chain(5990..=6000) {
            counts.add(&Event::LaunchEnded { launch, at_ns: 1, ending: Default::default() });
        }
        let shown = counts.take(Duration::from_secs(1));
        assert_eq!((shown.launches_begun, shown.launches_open), (10_000, 4000));
    }

    #[test]
    fn a_launch_that_outlasts_many_others_is_counted_until_it_ends() {
        let mut counts = begun();
        let ended = |launch| Event::LaunchEnded { launch, at_ns: 1, ending: Default::default() };
        for launch in 2..=(1 << 18) + 1 {
            counts.add(&Event::LaunchBegan {
                launch,
                source: 0,
                at_ns: 0,
                workgroups: [1, 1, 1],
                kernel: "short".into(),
                id: Default::default(),
            });
            counts.add(&ended(launch));
        }
        assert_eq!(counts.take(Duration::from_secs(1)).launches_open, 1);
        counts.add(&ended(1));
        assert_eq!(counts.take(Duration::from_secs(1)).launches_open, 0);
    }

    #[test]
    fn methods_past_the_bound_are_one() {
        let mut counts = begun();
        (0..1000).for_each(|method| counts.add(&call(0, method, 0, 2)));
        let shown = counts.take(Duration::from_secs(1));
        assert_eq!(shown.methods.len(), 257);
        let waiting: f64 = shown.methods.iter().map(|method| method.waiting).sum();
        assert!((waiting - 2.0).abs() < 1e-6, "{waiting}");
    }

    #[test]
    fn who_waits_is_shown_until_it_has_its_answer() {
        let mut counts = begun();
        let waiting = |slot, at_ms: u64| {
            Event::Waiting(Waiting {
                at_ns: at_ms * 1_000_000,
                waited_ns: 1_500_000_000,
                launch: 1,
                slot,
                place: Some(([4, 0, 0], 2)),
                lanes: 32,
                method: "Shop::price".into(),
                ..Waiting::default()
            })
        };
        counts.add(&waiting(7, 2000));
        counts.add(&waiting(8, 2000));
        let expected = |slot| {
            format!(
                "Shop::price for 1.5 s, for its handler: cpu sell workgroup (4, 0, 0) wave 2 slot {slot}, 32 lanes"
            )
        };
        assert_eq!(counts.take(Duration::ZERO).waits, [expected(7), expected(8)]);
        counts.add(&call(7, 1, 500, 2010));
        assert_eq!(counts.take(Duration::ZERO).waits, [expected(8)]);
        // A later look that does not name it.
        counts.add(&waiting(9, 2250));
        assert_eq!(counts.take(Duration::ZERO).waits, [expected(9)]);
        counts.add(&Event::Ended(Totals::default()));
        let shown = counts.take(Duration::ZERO);
        assert!(shown.waits.is_empty() && shown.has_ended);
    }

    #[test]
    fn trace_points_have_rates_times_and_values() {
        let mut counts = begun();
        let named = |point, kind, tags, text: &str| Event::NamedPoint {
            source: 0,
            point,
            kind,
            tags,
            line: 1,
            file: "kernel.rs".into(),
            text: text.into(),
        };
        counts.add(&named(1, PointKind::Begin, 0, "step"));
        counts.add(&named(2, PointKind::Counter, I64_TAG, "change"));
        counts.add(&named(3, PointKind::Event, I64_TAG, "settled at {}"));
        let said = |point, kind, began_ns, at_ns, value: i64| {
            let values = std::array::from_fn(|i| if i == 0 { value as u64 } else { 0 });
            Event::Point(Point { point, kind, began_ns, at_ns, count: 1, values, ..Point::default() })
        };
        for at_ns in [100, 200] {
            counts.add(&said(1, PointKind::Begin, at_ns, at_ns, 0));
            counts.add(&said(1, PointKind::End, at_ns, 2 * at_ns, 0));
        }
        counts.add(&said(3, PointKind::Event, 300, 300, 7));
        (1..=4).for_each(|i| counts.add(&said(2, PointKind::Counter, 300, 300, 2 - 5 * i)));
        // One whose name the trace has not said.
        counts.add(&said(9, PointKind::Event, 300, 300, 0));
        counts.add(&Event::PointsLost { source: 0, records: 6 });
        let shown = counts.take(Duration::from_secs(2));
        let point = |name: &str, kind, a_second, all, times_ns, value| PointShown {
            name: name.into(),
            kind,
            a_second,
            all,
            times_ns,
            value,
        };
        let expected = [
            point("change", "counter", 2.0, 4, None, Some(-18.0)),
            point("step", "span", 1.0, 2, Some([150, 200]), None),
            point("settled at 7", "event", 0.5, 1, None, None),
        ];
        assert_eq!(shown.points, expected, "those that said the most first");
        assert_eq!(shown.lost, ["6 records of trace points were dropped"]);
        (8..=9).for_each(|value| counts.add(&said(3, PointKind::Event, 400, 400, value)));
        let shown = counts.take(Duration::from_secs(1));
        assert_eq!(shown.points, [point("settled at 9", "event", 2.0, 3, None, None)], "what it said last");
    }

    #[test]
    fn streams_have_rates_and_losses() {
        let mut counts = begun();
        counts.add(&Event::Stream {
            stream: 3,
            record_bytes: 16,
            schema: 1,
            name: "accesses".into(),
            policy: "drop newest".into(),
            descriptor: None,
        });
        let page = Page { stream: 3, dropped_before: 5, bytes: vec![0; 320].into(), ..Page::default() };
        counts.add(&Event::Page(page));
        let shown = counts.take(Duration::from_secs(2));
        let expected = StreamShown {
            name: "accesses".into(),
            bytes_a_second: 160.0,
            records_a_second: 10.0,
            bytes: 320,
            dropped: 5,
            overwritten: 0,
        };
        assert_eq!((shown.streams, shown.lost), (vec![expected], vec![]));
        let totals = StreamTotals { dropped_records: 6, lost_bytes: 16, ..StreamTotals::default() };
        counts.add(&Event::StreamEnded { stream: 3, totals });
        counts.add(&Event::Ended(Totals { dropped_others: 4, ..Totals::default() }));
        let shown = counts.take(Duration::from_secs(2));
        assert_eq!(
            shown.lost,
            ["4 launches, posts or names were dropped", "16 bytes of streams could not be read or written"]
        );
    }
}
