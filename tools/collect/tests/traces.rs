//! Traces of ranks that are processes of their own, in one file: what followed each other does so there.

mod common;

use common::{Program, address, collect, job, start};
use hostcall::trace::{Reader, Tracer};
use hostcall::{Device, Grid, Lane, LaunchKernel, PointFilter, event, kernel};
use hostcall_trace::export::Joined;
use std::fs::File;
use std::io::{BufRead, stdin};
use std::time::Duration;

#[kernel(crate = hostcall)]
fn tick(_: &Lane, rank: u64, number: u64) {
    event!("tick {number} of rank {rank}");
}

/// A rank, whose kernel has an event for each line that it is told.
#[test]
#[ignore = "the other test runs it as a process of its own"]
fn rank() {
    let Ok(rank) = std::env::var("HOSTCALL_RANK") else { return };
    let rank: u64 = rank.parse().unwrap();
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    println!("READY");
    for (line, number) in stdin().lock().lines().zip(0u64..) {
        line.unwrap();
        tick.launch(&stream, Grid::new(1, 1), (rank, number)).unwrap().wait().unwrap();
        println!("TICK {number}.");
    }
}

/// Reads a number of protobuf's, and leaves what is behind it.
fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    number
}

/// Returns the fields of a message of protobuf's: their numbers, and what they have as a number or as bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let length = match key & 7 {
            0 => {
                found.push((key >> 3, varint(&mut bytes), &[][..]));
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            other => panic!("wire type {other}"),
        };
        found.push((key >> 3, 0, &bytes[..length]));
        bytes = &bytes[length..];
    }
    found
}

/// Returns when each event was, in ns, and its text; and the names of the file's processes.
fn events(file: &[u8]) -> (Vec<(u64, String)>, Vec<String>) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (mut events, mut names) = (Vec::new(), Vec::new());
    for (_, _, packet) in fields(file) {
        let packet = fields(packet);
        let at_ns = packet.iter().find(|field| field.0 == 8).map_or(0, |field| field.1);
        for (of, _, inner) in &packet {
            let inner = fields(inner);
            match of {
                // A TrackEvent whose type is INSTANT, with its name.
                11 if inner.iter().any(|field| (field.0, field.1) == (9, 3)) => {
                    let name = inner.iter().find(|field| field.0 == 23).unwrap();
                    events.push((at_ns, text(name.2)));
                }
                // A TrackDescriptor with a process, with its name.
                60 => {
                    let process = inner.iter().filter(|field| field.0 == 3);
                    let name = process.flat_map(|process| fields(process.2)).filter(|field| field.0 == 6);
                    names.extend(name.map(|name| text(name.2)));
                }
                _ => {}
            }
        }
    }
    (events, names)
}

#[test]
fn events_of_two_ranks_are_in_order() {
    let (job, address) = (job("traces"), address());
    let _collects = collect(&["--job", &job, "--listen", &address]);
    let ranks = [0, 1].map(|rank| start(&job, rank, "ticks"));
    let agent = |host: &str, rank: &Program| {
        rank.wait_for("READY");
        collect(&["--job", &job, "--connect", &address, "--host", host, &rank.pid().to_string()])
    };
    let _agents = [agent("node-a", &ranks[0]), agent("node-b", &ranks[1])];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.pftrace");
    let file = file.to_str().unwrap();
    // Again, until both agents are there.
    let mut told = 0;
    let (said, bytes) = common::until(|| {
        let asks = collect(&["--job", &job, "--connect", &address, "--trace", file, "--for", "1"]);
        // Each tick begins when the one before it has ended, in the other process.
        while !asks.has_ended() {
            for rank in &ranks {
                rank.write("\n");
                rank.wait_for(&format!("TICK {told}."));
            }
            told += 1;
        }
        let is_whole = asks.code() == Some(0) && asks.said().contains(" has 2 ranks\n");
        is_whole.then(|| (asks.said(), std::fs::read(file).unwrap()))
    });
    let (events, names) = events(&bytes);
    println!("{said}{} events", events.len());
    for name in ["rank 0 on node-a: cpu", "rank 1 on node-b: cpu"] {
        assert!(names.iter().any(|found| found.starts_with(name)), "{names:?}");
    }
    // How far each clock may be wrong, as it is said.
    let errors = said
        .lines()
        .filter_map(|line| line.split_once("give or take ")?.1.strip_suffix(" ms")?.parse::<f64>().ok());
    let errors: Vec<f64> = errors.collect();
    assert_eq!(errors.len(), 2, "{said}");
    let within_ns = ((errors[0] + errors[1]) * 1e6) as u64;
    // By their numbers: the order in which they were.
    let order = |text: &str| -> (u64, u64) {
        let words: Vec<&str> = text.split(' ').collect();
        (words[1].parse().unwrap(), words[4].parse().unwrap())
    };
    let mut ticks: Vec<_> = events.iter().map(|(at_ns, text)| (order(text), *at_ns)).collect();
    ticks.sort_unstable();
    for rank in [0, 1] {
        assert!(ticks.iter().filter(|(order, _)| order.1 == rank).count() > 2, "{said} {ticks:?}");
    }
    for pair in ticks.windows(2) {
        let ((before, before_ns), (after, after_ns)) = (pair[0], pair[1]);
        assert!(
            before_ns < after_ns + within_ns,
            "{before:?} at {before_ns}, {after:?} at {after_ns}, {said}"
        );
    }
}

/// What a clock is ahead is taken from the times of its machine, exactly.
#[test]
fn clocks_that_differ_are_aligned() {
    const AHEAD_NS: u64 = 5_000_000_123;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rank.trace");
    let tracer = Tracer::builder().file(&path).unwrap().start().unwrap();
    let device = Device::open("cpu").unwrap();
    let recording = device.record_points(&tracer, PointFilter::default()).unwrap();
    tick.launch(&device.stream().unwrap(), Grid::new(1, 1), (0, 0)).unwrap().wait().unwrap();
    drop(recording);
    tracer.finish(Duration::from_secs(60));
    let read = || Reader::new(File::open(&path).unwrap()).unwrap();
    // The same trace of two machines, of which the second one's clock is ahead: so it was before.
    let mut file = Vec::new();
    let mut joined = Joined::new(&mut file, read().header().began_unix_ns - AHEAD_NS);
    joined.add(&mut read(), "first", 0).unwrap();
    joined.add(&mut read(), "second", AHEAD_NS as i64).unwrap();
    let (events, names) = events(&file);
    let [(first_ns, first), (second_ns, second)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((first_ns - second_ns, first), (AHEAD_NS, second));
    assert_eq!(names, ["first: cpu (hostcall)", "second: cpu (hostcall)"]);
}
