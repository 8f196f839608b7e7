//! Recordings of trace points that begin and end while kernels run.

use hostcall::device::{PinnedBuffer, SoftwareDeviceConfig};
use hostcall::trace::{Event, Names, Point, PointKind, Reader, Summary, Tracer};
use hostcall::{
    Device, Error, Global, Grid, Lane, LaunchKernel, PointFilter, Stream, counter, event, kernel, span,
};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs until it is told to stop, and counts its rounds.
#[kernel]
fn rounds(lane: &Lane, stop: &[Global<u32>], rounds: &[Global<u64>]) {
    let mut round = 0u64;
    while stop[0].get() == 0 {
        {
            let _round = span!("round");
            let _inner = span!("inner");
            counter!("number", round);
        }
        event!("round {round} is over");
        round += 1;
        rounds[lane.global_id()].set(round);
        lane.pause();
    }
}

struct Running {
    device: Device,
    stream: Stream,
    stop: PinnedBuffer<u32>,
    rounds: PinnedBuffer<u64>,
}

impl Running {
    fn begin(workgroups: u32) -> Self {
        let device = Device::open("cpu").unwrap();
        let (stream, stop) = (device.stream().unwrap(), device.pinned::<u32>(1).unwrap());
        let counts = device.pinned::<u64>(workgroups as usize).unwrap();
        rounds.launch(&stream, Grid::new(workgroups, 1), (&stop, &counts)).unwrap();
        let running = Self { device, stream, stop, rounds: counts };
        running.goes_on();
        running
    }

    /// Waits until each wave has begun and ended two more rounds.
    fn goes_on(&self) {
        let begin = Instant::now();
        for round in self.rounds.iter() {
            let before = round.get();
            while round.get() < before + 3 {
                assert!(begin.elapsed() < PATIENCE, "the kernel does not go on");
                thread::yield_now();
            }
        }
    }

    fn end(self) {
        self.stop[0].set(1);
        self.stream.synchronize_for(PATIENCE).unwrap();
    }
}

struct Recorded {
    names: Names,
    points: Vec<Point>,
    summary: Summary,
}

impl Recorded {
    fn read(path: &Path, tracer: &Tracer) -> Self {
        let summary = tracer.finish(PATIENCE);
        let (mut names, mut points) = (Names::default(), Vec::new());
        for read in Reader::new(std::fs::File::open(path).unwrap()).unwrap() {
            let read = read.unwrap();
            names.note(&read);
            if let Event::Point(point) = read {
                points.push(point);
            }
        }
        Self { names, points, summary }
    }

    /// How many records there are of each point.
    fn counts(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        for point in &self.points {
            let text = &self.names.point(point.source, point.point).unwrap().text;
            *counts.entry(text.to_string()).or_default() += 1;
        }
        counts
    }
}

fn file(folder: &tempfile::TempDir, name: &str) -> (PathBuf, Tracer) {
    let path = folder.path().join(name);
    let tracer = Tracer::builder().file(&path).unwrap().start().unwrap();
    (path, tracer)
}

/// A span whose begin is there has its end, and the other way round.
fn check_spans(points: &[Point]) {
    let mut open: HashMap<(u32, u32, u32, u64), u32> = HashMap::new();
    for point in points {
        let key = (point.workgroup, point.wave, point.point, point.began_ns);
        match point.kind {
            PointKind::Begin => *open.entry(key).or_default() += 1,
            PointKind::End => {
                let of = open.get_mut(&key).unwrap_or_else(|| panic!("{point:?} has no begin"));
                *of -= 1;
            }
            _ => {}
        }
    }
    assert!(open.values().all(|left| *left == 0), "spans without ends: {open:?}");
}

#[test]
fn points_are_switched_in_a_running_launch_without_half_a_span() {
    const WORKGROUPS: u32 = 3;
    let folder = tempfile::tempdir().unwrap();
    let running = Running::begin(WORKGROUPS);
    let (path, tracer) = file(&folder, "toggled.trace");
    let recording = running.device.record_points(&tracer, PointFilter::default()).unwrap();
    for time in 0..1000 {
        recording.pause().unwrap();
        if time % 100 == 0 {
            running.goes_on();
        }
        recording.resume().unwrap();
        if time % 10 == 0 {
            running.goes_on();
        }
    }
    recording.pause().unwrap();
    running.end();
    drop(recording);
    let recorded = Recorded::read(&path, &tracer);
    if recorded.summary.lost_points == 0 {
        check_spans(&recorded.points);
    }
    let counts = recorded.counts();
    for name in ["round", "inner", "number", "round {0} is over"] {
        assert!(counts.get(name).is_some_and(|count| *count >= 100 * WORKGROUPS as usize), "{counts:?}");
    }
    let kernels =
        recorded.points.iter().map(|point| recorded.names.launch(point.launch).unwrap().kernel.clone());
    assert!(kernels.into_iter().all(|kernel| &*kernel == "rounds"));
}

#[test]
fn what_is_not_wanted_is_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::begin(2);
    let of = |name: &str, filter: PointFilter| {
        let (path, tracer) = file(&folder, name);
        let recording = running.device.record_points(&tracer, filter).unwrap();
        running.goes_on();
        running.goes_on();
        drop(recording);
        let recorded = Recorded::read(&path, &tracer);
        assert!(recorded.summary.is_whole);
        let mut names: Vec<_> = recorded.counts().into_keys().collect();
        names.sort();
        names
    };
    let filter = PointFilter::default;
    assert_eq!(of("1", filter().name("num*").name("inner")), ["inner", "number"]);
    assert_eq!(of("2", filter().name("r*")), ["round", "round {0} is over"]);
    assert_eq!(of("3", filter().name("nothing")), [""; 0]);
    assert_eq!(of("4", filter().kernel("round?").name("number")), ["number"]);
    assert_eq!(of("5", filter().kernel("other*")), [""; 0]);
    assert_eq!(of("6", filter()), ["inner", "number", "round", "round {0} is over"]);
    running.end();
}

#[test]
fn one_launch_of_several_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::begin(1);
    let other = running.device.stream().unwrap();
    let counts = running.device.pinned::<u64>(1).unwrap();
    let launch = rounds.launch(&other, Grid::new(1, 1), (&running.stop, &counts)).unwrap();
    let (path, tracer) = file(&folder, "one.trace");
    let filter = PointFilter::default().launch(launch.id());
    let recording = running.device.record_points(&tracer, filter).unwrap();
    let begin = Instant::now();
    while counts[0].get() < 100 {
        assert!(begin.elapsed() < PATIENCE);
        thread::yield_now();
    }
    running.goes_on();
    drop(recording);
    running.stop[0].set(1);
    other.synchronize_for(PATIENCE).unwrap();
    running.end();
    let recorded = Recorded::read(&path, &tracer);
    let launches: std::collections::HashSet<_> = recorded.points.iter().map(|point| point.launch).collect();
    assert_eq!(launches.len(), 1);
    assert!(!recorded.points.is_empty());
}

#[test]
fn a_device_has_one_recording_at_a_time() {
    let tracer = Tracer::builder().writer(std::io::sink()).start().unwrap();
    let device = Device::open("cpu").unwrap();
    let record = |device: &Device| device.record_points(&tracer, PointFilter::default());
    let first = record(&device).unwrap();
    assert!(matches!(record(&device), Err(Error::PointsRecorded { .. })));
    drop(first);
    let second = record(&device).unwrap();
    let traced = Device::builder("cpu").trace(&tracer).open().unwrap();
    assert!(matches!(record(&traced), Err(Error::PointsRecorded { .. })));
    // A device may be gone before its recording.
    drop(device);
    assert!(matches!(second.pause(), Ok(()) | Err(Error::Closed)));
    drop(second);
    let closed = Device::open("cpu").unwrap();
    let recording = record(&closed).unwrap();
    closed.close();
    assert!(matches!(recording.pause(), Err(Error::Closed)));
    drop(recording);
    assert!(matches!(record(&closed), Err(Error::Closed)));
}

/// Two devices of one process run the same code, whose points remember what they were told.
#[test]
fn devices_are_switched_each_for_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (Running::begin(1), Running::begin(1));
    let (path, tracer) = file(&folder, "one.trace");
    let (path_of_other, tracer_of_other) = file(&folder, "other.trace");
    let recording = one.device.record_points(&tracer, PointFilter::default().name("number")).unwrap();
    let inner = PointFilter::default().name("inner");
    let recording_of_other = other.device.record_points(&tracer_of_other, inner).unwrap();
    for _ in 0..20 {
        one.goes_on();
        other.goes_on();
    }
    drop((recording, recording_of_other));
    one.end();
    other.end();
    for (path, tracer, wanted) in [(path, tracer, "number"), (path_of_other, tracer_of_other, "inner")] {
        let counts = Recorded::read(&path, &tracer).counts();
        assert_eq!(counts.keys().collect::<Vec<_>>(), [wanted]);
    }
}

/// Says little, and ends.
#[kernel]
fn short(_: &Lane) {
    let _whole = span!("whole");
    event!("half of it");
}

/// Says something, and goes on until its launch is cancelled.
#[kernel]
fn goes_on(lane: &Lane, began: &[Global<u32>]) {
    event!("began");
    began[lane.global_id()].set(1);
    loop {
        lane.pause();
    }
}

/// Waits until each lane has begun.
fn wait_for_all(began: &PinnedBuffer<u32>) {
    let begin = Instant::now();
    while began.iter().any(|began| began.get() == 0) {
        assert!(begin.elapsed() < PATIENCE, "the kernel does not begin");
        thread::yield_now();
    }
}

/// Waves that hold a slot one after the other share a page, and each record says whose it is.
#[test]
fn short_waves_share_pages() {
    const WORKGROUPS: u32 = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let (path, tracer) = file(&folder, "short.trace");
    let device = Device::builder("cpu").trace(&tracer).open().unwrap();
    let stream = device.stream().unwrap();
    for _ in 0..2 {
        short.launch(&stream, Grid::new(WORKGROUPS, 1), ()).unwrap();
        stream.synchronize_for(PATIENCE).unwrap();
    }
    drop((stream, device));
    let recorded = Recorded::read(&path, &tracer);
    let all = 2 * WORKGROUPS as usize;
    assert_eq!(recorded.summary.lost_points, 0);
    assert_eq!(recorded.counts(), HashMap::from([("whole".into(), 2 * all), ("half of it".into(), all)]));
    check_spans(&recorded.points);
    let mut of: HashMap<_, usize> = HashMap::new();
    recorded.points.iter().for_each(|point| *of.entry((point.launch, point.workgroup)).or_default() += 1);
    assert_eq!(of.len(), all);
    assert!(of.values().all(|count| *count == 3));
}

#[test]
fn what_cancelled_waves_said_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let (path, tracer) = file(&folder, "cancelled.trace");
    let device = Device::builder("cpu").trace(&tracer).open().unwrap();
    let (stream, began) = (device.stream().unwrap(), device.pinned::<u32>(4).unwrap());
    let launch = goes_on.launch(&stream, Grid::new(4, 1), (&began,)).unwrap();
    wait_for_all(&began);
    launch.cancel();
    stream.synchronize_for(PATIENCE).unwrap_err();
    drop((stream, device));
    let recorded = Recorded::read(&path, &tracer);
    assert_eq!(recorded.counts(), HashMap::from([("began".into(), 4)]));
}

/// Writes as fast as it can, without a call at which it could end.
#[kernel]
fn writes_on(lane: &Lane, began: &[Global<u32>]) {
    began[lane.global_id()].set(1);
    for round in 0u64.. {
        event!("{} {} {} {} {round}", round, round, round, round);
    }
}

/// Lanes that are ended by force anywhere, also while they take a page, leave the pages to those that come after them.
#[test]
fn lanes_that_are_ended_by_force_lose_no_pages() {
    const LAUNCHES: u32 = 700;
    let folder = tempfile::tempdir().unwrap();
    let config = SoftwareDeviceConfig { cancel_grace: Duration::from_micros(100), ..Default::default() };
    let device = Device::builder("cpu").software(config).open().unwrap();
    let (stream, began) = (device.stream().unwrap(), device.pinned::<u32>(3).unwrap());
    let (_, tracer) = file(&folder, "forced.trace");
    let recording = device.record_points(&tracer, PointFilter::default()).unwrap();
    for _ in 0..LAUNCHES {
        began.iter().for_each(|began| began.set(0));
        let launch = writes_on.launch(&stream, Grid::new(3, 1), (&began,)).unwrap();
        wait_for_all(&began);
        launch.cancel();
        stream.synchronize_for(PATIENCE).unwrap_err();
    }
    drop(recording);
    drop(tracer);
    let (path, tracer) = file(&folder, "after.trace");
    let recording = device.record_points(&tracer, PointFilter::default()).unwrap();
    short.launch(&stream, Grid::new(20_000, 1), ()).unwrap();
    stream.synchronize_for(PATIENCE).unwrap();
    drop(recording);
    drop((stream, device));
    let recorded = Recorded::read(&path, &tracer);
    assert_eq!(recorded.summary.lost_points, 0);
    assert_eq!(recorded.counts(), HashMap::from([("whole".into(), 40_000), ("half of it".into(), 20_000)]));
}
