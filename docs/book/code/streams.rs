//! The chapter "Streams".

// ANCHOR: kernels
use hostcall::device::LaunchFailure;
use hostcall::{Device, Error, Global, Grid, Lane, LaunchKernel, kernel};
use std::time::Duration;

#[kernel]
fn double(lane: &Lane, x: &[Global<u32>]) {
    let i = lane.global_id();
    if i < x.len() {
        x[i].set(2 * x[i].get());
    }
}

#[kernel]
fn endless(lane: &Lane) {
    while !lane.is_cancelled() {
        lane.pause();
    }
}
// ANCHOR_END: kernels

#[test]
fn work_in_order() -> Result<(), Error> {
    let device = Device::open("cpu")?;
    // ANCHOR: order
    let stream = device.stream()?;
    let x = device.alloc_zeroed::<u32>(1000)?;
    stream.fill(&x, 21)?;
    double.launch(&stream, Grid::lanes(1000), (&x,))?;
    let copy = stream.read(&x)?; // a copy that is waited for later
    stream.host_function(|| println!("all of it is done"))?;
    assert_eq!(copy.wait()?, [42; 1000]);
    stream.synchronize()?;
    // ANCHOR_END: order

    // ANCHOR: events
    let other = device.stream()?;
    double.launch(&stream, Grid::lanes(1000), (&x,))?;
    let doubled = stream.record()?;
    other.wait_for(&doubled)?; // what follows in `other` begins after it; no thread waits
    double.launch(&other, Grid::lanes(1000), (&x,))?;
    other.synchronize()?;
    // ANCHOR_END: events
    assert_eq!(x.read()?, [168; 1000]);
    Ok(())
}

#[test]
fn work_on_all_devices() -> Result<(), Error> {
    // ANCHOR: several
    let devices = Device::open_all("cpu", |_place, device| device.wave_size(64))?;
    let (mut streams, mut last) = (Vec::new(), devices[0].alloc_zeroed::<u32>(1000)?);
    last.write(&[1; 1000])?;
    for device in &devices {
        let (stream, x) = (device.stream()?, device.alloc_zeroed::<u32>(1000)?);
        stream.copy(&x, &last)?; // begins when the other device has written it; no thread waits
        double.launch(&stream, Grid::lanes(1000), (&x,))?;
        streams.push(stream);
        last = x;
    }
    // ANCHOR_END: several
    assert_eq!(last.read()?, vec![1 << devices.len(); 1000]);
    Ok(())
}

#[test]
fn work_ends_when_somebody_asks() -> Result<(), Error> {
    let device = Device::open("cpu")?;
    let stream = device.stream()?;
    endless.launch(&stream, Grid::new(1, 32), ())?;
    // ANCHOR: asked
    let ended = device.clone();
    std::thread::spawn(move || ended.cancel_all()); // or `ctrlc::set_handler(move || ended.cancel_all())`
    match stream.synchronize() {
        Err(Error::Launch { failure: LaunchFailure::Cancelled, .. }) => println!("it was to end"),
        other => panic!("it is endless: {other:?}"),
    }
    // ANCHOR_END: asked
    Ok(())
}

#[test]
fn a_launch_is_cancelled() -> Result<(), Error> {
    let device = Device::open("cpu")?;
    let stream = device.stream()?;
    // ANCHOR: cancel
    let launch = endless.launch(&stream, Grid::new(1, 32), ())?;
    launch.cancel_after(Duration::from_millis(50)); // or `cancel()`, at once
    match stream.synchronize() {
        Err(Error::Launch { failure: LaunchFailure::TimedOut, .. }) => println!("it took too long"),
        other => panic!("it is endless: {other:?}"),
    }
    // ANCHOR_END: cancel
    Ok(())
}
