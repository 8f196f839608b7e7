//! Lanes that unwind: what their destructors do harms neither other lanes nor the process.

use hostcall::device::SoftwareDeviceConfig;
use hostcall::hostcall_device::{CallError, Lane, kernel, process, time};
use hostcall::{Device, Error, Grid, LaunchFailure, LaunchKernel};
use std::panic::panic_any;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// A device with one thread, on which everything meets.
fn device() -> Device {
    let software = SoftwareDeviceConfig { threads: 1, ..SoftwareDeviceConfig::default() };
    Device::builder("cpu").software(software).open().unwrap()
}

fn assert_works(device: &Device) {
    let stream = device.stream().unwrap();
    call_thrice.launch(&stream, Grid::new(2, 40), ()).unwrap();
    stream.synchronize().unwrap();
}

#[kernel]
fn call_thrice(_lane: &Lane) {
    for _ in 0..3 {
        time::now_ns().unwrap();
    }
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Lanes that sleep in a destructor while they unwind, and calls of [`call_beside`] since the last reset.
static SLEEPERS: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);

/// Panics, and sleeps in a destructor until another launch has made 100 calls.
#[kernel]
fn sleep_while_unwinding(lane: &Lane) {
    let _guard = OnDrop(|| {
        SLEEPERS.fetch_add(1, SeqCst);
        while CALLS.load(SeqCst) < 100 {
            time::sleep(Duration::from_micros(300));
            // Not answered, but not waited for either.
            assert_eq!(time::now_ns(), Err(CallError::Cancelled));
        }
    });
    panic!("lane {} gives up", lane.local_id());
}

/// Calls while the other launch's lanes sleep.
#[kernel]
fn call_beside(_lane: &Lane) {
    while SLEEPERS.load(SeqCst) == 0 {
        time::sleep(Duration::from_micros(100));
    }
    for _ in 0..100 {
        if time::now_ns().is_err() {
            FAILED.fetch_add(1, SeqCst);
        }
        CALLS.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_panic_of_one_launch_fails_no_calls_of_another() {
    let device = device();
    for lanes in [1, 3] {
        SLEEPERS.store(0, SeqCst);
        CALLS.store(0, SeqCst);
        let [panicking, calling] = [device.stream().unwrap(), device.stream().unwrap()];
        sleep_while_unwinding.launch(&panicking, Grid::new(1, lanes), ()).unwrap();
        call_beside.launch(&calling, Grid::new(1, 1), ()).unwrap();
        calling.synchronize().unwrap();
        let ended = panicking.synchronize();
        assert!(
            matches!(
                &ended,
                Err(Error::Launch { failure: LaunchFailure::Panicked { first: Some(_), .. }, .. })
            ),
            "the launch ended with {ended:?}"
        );
        assert_eq!(FAILED.load(SeqCst), 0);
    }
    assert_works(&device);
}

/// Lanes that have something to drop, and lanes that began to unwind.
static GUARDED: AtomicU64 = AtomicU64::new(0);
static UNWINDING: AtomicU64 = AtomicU64::new(0);

/// Lane 0 of each workgroup panics when others have begun, since lanes that have not do not begin after that. The
/// destructors of the others, which the cancellation ends, do what ends a lane of a cancelled launch.
#[kernel]
fn end_in_destructors(lane: &Lane, way: u32) {
    if lane.local_id() == 0 {
        while GUARDED.load(SeqCst) == 0 {
            lane.pause();
        }
        panic!("the first lane gives up");
    }
    let _guard = OnDrop(|| {
        UNWINDING.fetch_add(1, SeqCst);
        match way {
            0 => time::sleep(Duration::from_secs(3600)),
            1 => lane.barrier(),
            2 => lane.pause(),
            3 => _ = time::now_ns(),
            4 => _ = lane.active(),
            5 => assert_eq!(lane.broadcast(7u64, 0), 7),
            _ => process::exit(3),
        }
    });
    GUARDED.fetch_add(1, SeqCst);
    while time::now_ns().is_ok() {
        lane.pause();
    }
    lane.barrier();
}

#[test]
fn destructors_of_cancelled_lanes_do_not_end_the_process() {
    let device = device();
    for way in 0..=6u32 {
        GUARDED.store(0, SeqCst);
        UNWINDING.store(0, SeqCst);
        let stream = device.stream().unwrap();
        end_in_destructors.launch(&stream, Grid::new(2, 40), (way,)).unwrap();
        let ended = stream.synchronize();
        assert!(matches!(&ended, Err(Error::Launch { .. })), "way {way}: the launch ended with {ended:?}");
        assert!(UNWINDING.load(SeqCst) > 0, "way {way}: no lane unwound");
    }
    assert_works(&device);
}

/// Carries another of its kind when its destructor panics.
struct Endless(u32);

impl Drop for Endless {
    fn drop(&mut self) {
        panic_any(Endless(self.0 + 1));
    }
}

#[kernel]
fn panic_with_a_bomb(_lane: &Lane) {
    panic_any(Endless(0));
}

#[test]
fn a_payload_that_panics_ends_the_lane_only() {
    let device = device();
    let stream = device.stream().unwrap();
    panic_with_a_bomb.launch(&stream, Grid::new(2, 40), ()).unwrap();
    let ended = stream.synchronize();
    assert!(
        matches!(&ended, Err(Error::Launch { failure: LaunchFailure::Panicked { first: Some(_), .. }, .. })),
        "the launch ended with {ended:?}"
    );
    assert_works(&device);
}
