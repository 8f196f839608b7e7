//! The chapter "Traces and raw channels".

use hostcall::raw::{DropNewest, RawChannel, RawStream};
use hostcall::trace::Tracer;
use hostcall::{Device, Grid, Lane, LaunchKernel, kernel, println};

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
    drop(tracer); // the file is whole
    // ANCHOR_END: tracer
    assert!(std::fs::metadata(&path)?.len() > 0);
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
