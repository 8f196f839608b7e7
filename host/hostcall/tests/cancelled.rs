//! Launches that were cancelled and whose lanes ended by themselves, as all lanes do on a GPU: here the server is
//! told, and the software device is not.

use hostcall::hostcall_device::{Lane, kernel, time};
use hostcall::server::{CancelReason, LaunchId};
use hostcall::trace::Tracer;
use hostcall::{Device, Error, Grid, LaunchFailure, LaunchKernel};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The launch that runs, once a call of it was answered.
static CALLED: AtomicU64 = AtomicU64::new(0);

/// Calls until a call fails.
#[kernel]
fn call_on(lane: &Lane) {
    while time::now_ns().is_ok() {
        CALLED.store(lane.launch().to_bits().into(), Ordering::Relaxed);
    }
}

/// The same for a launch of [`call_on_traced`].
static CALLED_BY_TRACED: AtomicU64 = AtomicU64::new(0);

/// Calls until a call fails.
#[kernel]
fn call_on_traced(lane: &Lane) {
    while time::now_ns().is_ok() {
        CALLED_BY_TRACED.store(lane.launch().to_bits().into(), Ordering::Relaxed);
    }
}

/// Calls a few times.
#[kernel]
fn call_thrice(_lane: &Lane) {
    for _ in 0..3 {
        assert!(time::now_ns().is_ok());
    }
}

#[test]
fn a_cancelled_launch_whose_lanes_returned_was_cancelled() {
    let device = Device::builder("cpu").slots(128).open().unwrap();
    let stream = device.stream().unwrap();
    let grid = Grid::new(2, 40);
    for _ in 0..3 {
        CALLED.store(0, Ordering::Relaxed);
        call_on.launch(&stream, grid, ()).unwrap();
        while CALLED.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let launch = LaunchId::from_bits(CALLED.load(Ordering::Relaxed) as u32);
        device.server().cancel(launch, CancelReason::Asked);
        let ended = stream.synchronize();
        assert!(
            matches!(&ended, Err(Error::Launch { failure: LaunchFailure::Cancelled, .. })),
            "the launch ended with {ended:?}"
        );
        // The next launch has the same slots.
        call_thrice.launch(&stream, grid, ()).unwrap();
        stream.synchronize().unwrap();
    }
}

#[test]
fn calls_that_a_cancellation_refuses_are_traced_by_their_names() {
    let tracer = Tracer::builder().start().unwrap();
    let device = Device::builder("cpu").slots(128).trace(&tracer).open().unwrap();
    let stream = device.stream().unwrap();
    CALLED_BY_TRACED.store(0, Ordering::Relaxed);
    call_on_traced.launch(&stream, Grid::new(2, 40), ()).unwrap();
    while CALLED_BY_TRACED.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let launch = LaunchId::from_bits(CALLED_BY_TRACED.load(Ordering::Relaxed) as u32);
    device.server().cancel(launch, CancelReason::Asked);
    stream.synchronize().unwrap_err();
    drop(stream);
    device.close();
    let summary = tracer.finish(Duration::from_secs(60));
    let (mut failed, mut names) = (0, Vec::new());
    for (method, latencies) in summary.latencies.methods() {
        failed += latencies.failed();
        names.push(summary.names.method(method).unwrap().name.to_string());
    }
    assert!(failed > 0 && names == ["Clock::wall_ns"], "{failed} failed, {names:?}");
}
