//! Trace points of kernels on the software device, and what a trace says of them.

use hostcall::trace::{Event, Names, Point, PointKind, Reader, Tracer};
use hostcall::{Device, Global, Grid, Lane, LaunchKernel, Stream, counter, event, kernel, span};
use std::path::Path;
use std::time::Duration;

/// Two spans, one in the other, a counter and an event.
#[kernel]
fn steps(lane: &Lane, steps: u32, out: &[Global<u32>]) {
    let _whole = span!("whole");
    for step in 0..steps {
        let _step = span!("step");
        counter!("progress", f64::from(step) / 2.0);
        out[lane.global_id()].set(step);
    }
    event!("lane {} has done {steps:>3}", lane.index());
}

/// Spans of parts that diverged; the guards meet again.
#[kernel]
fn apart(lane: &Lane) {
    let part = if lane.index() < 10 { span!("low") } else { span!("high") };
    if lane.index() >= 10 {
        let _inner = span!("inner");
    }
    drop(part);
}

#[kernel]
fn panics(lane: &Lane) {
    let _whole = span!("whole");
    let _inner = span!("inner");
    assert!(lane.index() != 3, "lane 3");
}

/// A number that nobody may ask for where nothing is traced.
fn unasked() -> u32 {
    panic!("it is asked for")
}

#[kernel]
fn unasked_for(_lane: &Lane) {
    counter!("unasked", unasked());
    event!("unasked {}", unasked());
}

/// Traces what runs on a device, and reads it.
fn traced(path: &Path, run: impl FnOnce(&Device, &Stream)) -> (Names, Vec<Event>) {
    let tracer = Tracer::builder().file(path).unwrap().start().unwrap();
    let device = Device::builder("cpu").trace(&tracer).open().unwrap();
    let stream = device.stream().unwrap();
    run(&device, &stream);
    // The device is open: what launches that were waited for have said is there all the same.
    let summary = tracer.finish(Duration::from_secs(60));
    assert_eq!(summary.lost(), None);
    let (mut names, mut events) = (Names::default(), Vec::new());
    let mut reader = Reader::new(std::fs::File::open(path).unwrap()).unwrap();
    for read in reader.by_ref() {
        let read = read.unwrap();
        names.note(&read);
        events.push(read);
    }
    assert!(reader.is_complete());
    (names, events)
}

fn points(events: &[Event]) -> Vec<Point> {
    let of = |event: &Event| if let Event::Point(point) = event { Some(*point) } else { None };
    events.iter().filter_map(of).collect()
}

/// What the records of a wave say, one after the other.
fn said(names: &Names, points: &[Point], workgroup: u32, wave: u32) -> Vec<String> {
    let of_wave = points.iter().filter(|point| (point.workgroup, point.wave) == (workgroup, wave));
    let say = |point: &Point| {
        let name = names.point(point.source, point.point).unwrap();
        let mut text = Vec::new();
        name.print(point, &mut text);
        let text = String::from_utf8(text).unwrap();
        match point.kind {
            PointKind::Begin => format!("{} begins", name.text),
            PointKind::End => format!("{} ends", name.text),
            PointKind::Counter => format!("{} {text}", name.text),
            PointKind::Event => text,
        }
    };
    of_wave.map(say).collect()
}

#[test]
fn waves_say_what_they_do() {
    let folder = tempfile::tempdir().unwrap();
    let (names, events) = traced(&folder.path().join("points.trace"), |device, stream| {
        let out = device.alloc_zeroed::<u32>(3 * 64).unwrap();
        steps.launch(stream, Grid::new(3, 64), (2, &out)).unwrap();
        stream.synchronize().unwrap();
    });
    let points = points(&events);
    for (workgroup, wave) in [(0, 0), (0, 1), (2, 1)] {
        let expected = [
            "whole begins",
            "step begins",
            "progress 0",
            "step ends",
            "step begins",
            "progress 0.5",
            "step ends",
            "lane 0 has done   2",
            "whole ends",
        ];
        assert_eq!(said(&names, &points, workgroup, wave), expected);
    }
    assert_eq!(points.len(), 6 * 9);
    assert!(points.iter().all(|point| (point.lanes, point.first_lane) == (32, 0)));
    assert!(
        points
            .iter()
            .all(|point| names.launch(point.launch).is_some_and(|launch| &*launch.kernel == "steps"))
    );
    // All of it happened between the launch's begin and end, as far as the clocks are known.
    let within_ns = events.iter().filter_map(|event| match event {
        Event::Clock(pair) => Some(pair.within_ns()),
        _ => None,
    });
    let within_ns = within_ns.max().expect("the clocks were compared");
    let began_ns = names.launch(points[0].launch).unwrap().began_ns;
    let ended_ns = events.iter().find_map(|event| match event {
        Event::LaunchEnded { at_ns, .. } => Some(*at_ns),
        _ => None,
    });
    let ended_ns = ended_ns.expect("the launch has ended");
    for point in &points {
        let is_within = point.at_ns + within_ns >= began_ns && point.at_ns <= ended_ns + within_ns;
        assert!(
            is_within && point.began_ns <= point.at_ns,
            "{point:?}, {began_ns} to {ended_ns} ± {within_ns}"
        );
    }
}

#[test]
fn spans_of_parts_end_with_their_first_lanes() {
    let folder = tempfile::tempdir().unwrap();
    let (names, events) = traced(&folder.path().join("points.trace"), |_, stream| {
        apart.launch(stream, Grid::new(1, 32), ()).unwrap();
        stream.synchronize().unwrap();
    });
    let points = points(&events);
    for (name, first_lane, lanes) in [("low", 0, 10), ("high", 10, 22), ("inner", 10, 22)] {
        let is_it = |point: &&Point| &*names.point(point.source, point.point).unwrap().text == name;
        let both: Vec<_> = points.iter().filter(is_it).collect();
        let kinds: Vec<_> = both.iter().map(|point| (point.kind, point.first_lane)).collect();
        assert_eq!(kinds, [(PointKind::Begin, first_lane), (PointKind::End, first_lane)], "{name}");
        assert_eq!((both[0].lanes, both[1].began_ns), (lanes, both[0].at_ns), "{name}");
    }
    assert_eq!(points.len(), 6);
}

#[test]
fn a_wave_that_panics_leaves_its_spans_open() {
    let folder = tempfile::tempdir().unwrap();
    let (names, events) = traced(&folder.path().join("points.trace"), |_, stream| {
        panics.launch(stream, Grid::new(1, 32), ()).unwrap();
        assert!(stream.synchronize().unwrap_err().to_string().contains("lane 3"));
    });
    let said = said(&names, &points(&events), 0, 0);
    assert_eq!(said[..2], ["whole begins", "inner begins"]);
}

#[test]
fn nothing_is_asked_where_nothing_is_traced() {
    // Calls are counted, but there is no file for what kernels say.
    let tracer = Tracer::builder().start().unwrap();
    for device in [Device::builder("cpu"), Device::builder("cpu").trace(&tracer)] {
        let device = device.open().unwrap();
        let stream = device.stream().unwrap();
        unasked_for.launch(&stream, Grid::new(1, 32), ()).unwrap();
        stream.synchronize().unwrap();
    }
}

/// More than there are pages for: what does not fit is counted, and the rest is told.
#[kernel]
fn floods(_lane: &Lane, times: u32) {
    for time in 0..times {
        event!("{time} and so on");
    }
}

#[test]
fn what_is_lost_is_counted() {
    const TIMES: u64 = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("points.trace");
    let tracer = Tracer::builder().file(&path).unwrap().queue_calls(4).start().unwrap();
    let device = Device::builder("cpu").slots(64).trace(&tracer).open().unwrap();
    let stream = device.stream().unwrap();
    floods.launch(&stream, Grid::new(64, 1), (TIMES as u32,)).unwrap();
    stream.synchronize().unwrap();
    let summary = tracer.finish(Duration::from_secs(60));
    let (mut seen, mut lost) = (0, 0);
    for read in Reader::new(std::fs::File::open(&path).unwrap()).unwrap() {
        match read.unwrap() {
            Event::Point(_) => seen += 1,
            Event::PointsLost { records, .. } => lost += records,
            _ => {}
        }
    }
    assert_eq!((seen + lost, summary.lost_points), (64 * TIMES, lost));
}
