//! The chapter "Traces and raw channels".

use hostcall::raw::{Block, DropNewest, Placement, RawChannel, RawStream};
use hostcall::trace::{Event, Follower, Names, Reader, Tracer};
use hostcall::{Device, Global, Grid, Lane, LaunchKernel, PointFilter, counter, kernel, println};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

#[kernel]
fn greet(lane: &Lane) {
    println!("lane {}", lane.global_id());
}

#[test]
fn calls_are_traced() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.trace");
    // ANCHOR: tracer
    let tracer = Tracer::builder().file(&path)?.start()?;
    let device = Device::builder("cpu").trace(&tracer).open()?;
    let stream = device.stream()?;
    greet.launch(&stream, Grid::new(1, 4), ())?;
    stream.synchronize()?;
    device.close();
    if let Some(lost) = tracer.finish(Duration::from_secs(10)).lost() {
        eprintln!("{lost}"); // otherwise the file is whole
    }
    // ANCHOR_END: tracer
    assert!(std::fs::metadata(&path)?.len() > 0);
    Ok(())
}

#[kernel]
fn polls(lane: &Lane, stop: &[Global<u32>]) {
    while stop[0].get() == 0 {
        counter!("polled by", lane.index());
        lane.pause();
    }
}

#[test]
fn points_are_recorded_for_a_while() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.trace");
    let device = Device::open("cpu")?;
    let (stream, stop) = (device.stream()?, device.pinned::<u32>(1)?);
    polls.launch(&stream, Grid::new(1, 1), (&stop,))?;
    // ANCHOR: record
    let tracer = Tracer::builder().file(&path)?.start()?;
    let recording = device.record_points(&tracer, PointFilter::default().name("poll*"))?;
    std::thread::sleep(Duration::from_millis(50));
    recording.pause()?; // and `resume`
    drop(recording);
    let lost = tracer.finish(Duration::from_secs(10)).lost();
    // ANCHOR_END: record
    assert!(lost.is_none_or(|lost| lost.contains("dropped")));
    stop[0].set(1);
    stream.synchronize()?;
    let seen = Reader::new(File::open(&path)?)?.flatten().any(|event| matches!(event, Event::Point(_)));
    assert!(seen);
    Ok(())
}

// ANCHOR: follow
/// Counts calls by method until the trace ends, or nothing has come for a second.
fn count(path: &Path) -> Result<BTreeMap<String, u64>, Box<dyn std::error::Error>> {
    let mut follower = Follower::new(Reader::new(File::open(path)?)?);
    let (mut names, mut counts) = (Names::default(), BTreeMap::new());
    while let Some(event) = follower.next_within(Duration::from_secs(1))? {
        names.note(&event);
        if let Event::Call(call) = event {
            let method = names.method(call.method).map_or("?", |method| &*method.name);
            *counts.entry(method.to_owned()).or_default() += u64::from(call.lanes);
        }
    }
    Ok(counts)
}
// ANCHOR_END: follow

#[kernel]
fn ask(_: &Lane) {
    assert!(hostcall::hostcall_device::time::now_ns().unwrap() > 0);
}

#[test]
fn a_trace_is_followed() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.trace");
    let tracer = Tracer::builder().file(&path)?.start()?;
    let (counted, of) = std::sync::mpsc::channel();
    let followed = path.clone();
    std::thread::spawn(move || counted.send(count(&followed).map_err(|error| error.to_string())));
    let device = Device::builder("cpu").trace(&tracer).open()?;
    let stream = device.stream()?;
    ask.launch(&stream, Grid::new(1, 4), ())?;
    stream.synchronize()?;
    device.close();
    assert_eq!(tracer.finish(Duration::from_secs(10)).lost(), None);
    // On a machine with much to do it may have given up before the first call.
    of.recv()??;
    assert_eq!(count(&path)?, BTreeMap::from([("Clock::wall_ns".to_owned(), 4)]));
    Ok(())
}

// ANCHOR: bytes
/// Streams text, of which some is lost when nobody reads fast enough.
#[kernel]
fn tell(lane: &Lane, out: RawStream<'_, u64, DropNewest>) {
    for step in 0..1000 {
        out.write(lane, &step);
    }
    out.flush(lane);
}
// ANCHOR_END: bytes

#[test]
fn losses_are_counted() -> Result<(), hostcall::Error> {
    let device = Device::open("cpu")?;
    let stream = device.stream()?;
    // ANCHOR: lost
    let channel = RawChannel::<u64, DropNewest>::new(&device, 16, 128)?;
    tell.launch(&stream, Grid::new(1, 1), (&channel,))?;
    stream.synchronize()?;
    let read: usize = channel.reader().rest().map(|page| page.records().len()).sum();
    assert_eq!(read as u64 + channel.statistics().dropped_records, 1000);
    // ANCHOR_END: lost
    Ok(())
}

// ANCHOR: message
/// Sends the numbers that divide another one.
#[kernel]
fn divisors(lane: &Lane, number: u64, out: RawStream<'_, [u64; 2], Block>) {
    let divisor = lane.global_id() as u64 + 1;
    if number.is_multiple_of(divisor) {
        out.write(lane, &[number, divisor]);
        out.flush(lane);
    }
}
// ANCHOR_END: message

#[test]
fn messages_come_while_a_kernel_runs() -> Result<(), hostcall::Error> {
    let device = Device::open("cpu")?;
    let stream = device.stream()?;
    // ANCHOR: staged
    let channel = RawChannel::<[u64; 2], Block>::placed(&device, Placement::Staged, 64, 4096)?;
    // ANCHOR_END: staged
    // ANCHOR: messages
    let reader = channel.reader();
    divisors.launch(&stream, Grid::new(3, 32), (91, &channel))?;
    // It ends when there were four, or none has come for a second.
    let mut seen: Vec<u64> =
        reader.messages(Duration::from_secs(1)).take(4).map(|[_, divisor]| divisor).collect();
    stream.synchronize()?;
    // ANCHOR_END: messages
    seen.sort();
    assert_eq!(seen, [1, 7, 13, 91]);
    Ok(())
}
