//! Safe code of kernels breaks no memory on the software device, whatever becomes of their lanes, and a child of the process
//! is told that the device is not its own.

use hostcall::device::RawArg;
use hostcall::device::SoftwareDeviceConfig;
use hostcall::hostcall_device::{CallError, Global, Lane, kernel, service};
use hostcall::{Device, Error, Grid, LaunchFailure, LaunchKernel, WeakDevice};
use std::cell::Cell;
use std::hint::{black_box, spin_loop};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

#[service]
trait Echo {
    fn echo(x: u64) -> u64;
}

struct Handler;

impl EchoHandler for Handler {
    fn echo(&self, x: u64) -> Result<u64, CallError> {
        Ok(x)
    }
}

/// A device whose cancelled lanes get no time.
fn open() -> Device {
    let config = SoftwareDeviceConfig { threads: 3, cancel_grace: Duration::ZERO, ..Default::default() };
    Device::builder("cpu").software(config).service(Echo::serve(Handler)).open().unwrap()
}

fn spin_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        spin_loop();
    }
}

thread_local! {
    static SHARED: Rc<Cell<u64>> = Rc::default();
}

/// Keeps what is one thread's alone across calls, in which other lanes run.
#[kernel]
fn keeps(lane: &Lane, wrong: &[Global<u64>]) {
    let id = thread::current().id();
    let is_one = (0..4).all(|_| {
        let shared = SHARED.with(Rc::clone);
        spin_for(Duration::from_millis(if lane.global_id().is_multiple_of(8) { 12 } else { 0 }));
        let called = Echo::echo(1);
        lane.pause();
        (0..2000).for_each(|_| drop(black_box((shared.clone(), SHARED.with(Rc::clone)))));
        called == Ok(1) && Rc::strong_count(&shared) == 2 && thread::current().id() == id
    });
    wrong[lane.global_id()].set(u64::from(!is_one));
}

#[test]
fn a_lane_stays_on_its_thread() {
    let device = open();
    let stream = device.stream().unwrap();
    let wrong = device.alloc_zeroed::<u64>(64).unwrap();
    for _ in 0..2 {
        keeps.launch(&stream, Grid::new(2, 32), (&wrong,)).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(wrong.read().unwrap(), [0; 64]);
    }
}

static STOP: AtomicBool = AtomicBool::new(false);
static BEGUN: AtomicBool = AtomicBool::new(false);
static WRITES: AtomicU64 = AtomicU64::new(0);

/// Its scoped thread goes on when the lane is ended, and writes to the buffer and to the lane's own memory.
#[kernel]
fn scoped(_lane: &Lane, buffer: &[Global<u64>]) {
    let mut local = [0u64; 64];
    thread::scope(|scope| {
        scope.spawn(|| {
            while !STOP.load(Ordering::Relaxed) {
                local.iter_mut().for_each(|value| *black_box(value) += 0xdead);
                (0..buffer.len()).for_each(|at| buffer[at].set(0xdead));
                BEGUN.store(true, Ordering::Relaxed);
                WRITES.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_micros(200));
            }
        });
        loop {
            spin_loop();
        }
    });
}

#[kernel]
fn looks(lane: &Lane, wrong: &[Global<u64>]) {
    let mut local = [7u64; 2048];
    let local = black_box(&mut local);
    spin_for(Duration::from_millis(2));
    wrong[lane.global_id()].set(u64::from(local.iter().any(|value| *value != 7)));
}

#[test]
fn memory_that_an_ended_lane_lent_is_never_used_again() {
    let device = open();
    let stream = device.stream().unwrap();
    let buffer = device.alloc_zeroed::<u64>(50_000).unwrap();
    let launch = scoped.launch(&stream, Grid::new(1, 1), (&buffer,)).unwrap();
    while !BEGUN.load(Ordering::Relaxed) {
        thread::yield_now();
    }
    launch.cancel();
    let ended = stream.synchronize().unwrap_err();
    assert!(matches!(ended, Error::Launch { failure: LaunchFailure::Cancelled, forced_lanes: 1, .. }));
    drop((launch, buffer));
    let before = WRITES.load(Ordering::Relaxed);
    while WRITES.load(Ordering::Relaxed) < before + 10 {
        // Memory of the same size, which the thread must not have.
        let fresh = device.alloc_zeroed::<u64>(50_000).unwrap();
        spin_for(Duration::from_millis(1));
        assert!(fresh.read().unwrap().iter().all(|value| *value == 0));
        let wrong = device.alloc_zeroed::<u64>(64).unwrap();
        looks.launch(&stream, Grid::new(1, 64), (&wrong,)).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(wrong.read().unwrap(), [0; 64]);
    }
    STOP.store(true, Ordering::Relaxed);
}

static SPINS: AtomicBool = AtomicBool::new(false);

#[kernel]
fn spins(_lane: &Lane, _kept: u32) {
    SPINS.store(true, Ordering::Relaxed);
    loop {
        spin_loop();
    }
}

/// Also what other values than buffers keep, and also where nobody waits for the launch, so that the reaper settles it.
#[test]
fn what_was_kept_for_an_ended_lane_is_never_dropped() {
    let device = open();
    let stream = device.stream().unwrap();
    let kept = Arc::new(());
    let weak = Arc::downgrade(&kept);
    // SAFETY: a number is valid whatever lives.
    let argument = unsafe { RawArg::<u32>::new(1, kept) };
    let launch = spins.launch(&stream, Grid::new(1, 1), (&argument,)).unwrap();
    drop(argument);
    while !SPINS.load(Ordering::Relaxed) {
        thread::yield_now();
    }
    launch.cancel();
    drop(launch);
    // Long enough for the reaper and the threads that drop values.
    thread::sleep(Duration::from_millis(300));
    assert!(stream.synchronize().is_err());
    drop((stream, device));
    assert_eq!(weak.strong_count(), 1);
}

static LOCK: Mutex<u64> = Mutex::new(0);

#[kernel]
fn holds(_lane: &Lane, begun: &[Global<u64>]) {
    let mut guard = LOCK.lock().unwrap();
    begun[0].set(1);
    loop {
        *black_box(&mut *guard) += 1;
    }
}

#[test]
fn a_lane_that_was_ended_may_hold_locks_and_the_error_says_so() {
    let device = open();
    let stream = device.stream().unwrap();
    let begun = device.alloc_zeroed::<u64>(1).unwrap();
    let launch = holds.launch(&stream, Grid::new(1, 1), (&begun,)).unwrap();
    while begun.read_now().unwrap().unwrap() != [1] {
        thread::yield_now();
    }
    launch.cancel();
    let ended = stream.synchronize().unwrap_err().to_string();
    assert_eq!(
        ended,
        "kernel holds: the launch was cancelled; a lane was ended by force: locks of the program that its code held stay \
         locked, and what it could refer to (its stack, the launch's buffers) is never freed"
    );
    assert!(LOCK.try_lock().is_err());
}

/// Counts what is dropped of a service that knows its own device.
struct Knows(Arc<OnceLock<WeakDevice>>, Arc<AtomicU64>);

impl EchoHandler for Knows {
    fn echo(&self, x: u64) -> Result<u64, CallError> {
        let device = self.0.get().and_then(WeakDevice::upgrade).ok_or(CallError::Failed(1))?;
        Ok(x + u64::from(device.wave_size()))
    }
}

impl Drop for Knows {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[kernel]
fn asks(lane: &Lane, out: &[Global<u64>]) {
    out[lane.global_id()].set(Echo::echo(1).unwrap_or(0));
}

#[test]
fn a_service_that_knows_its_device_does_not_keep_it() {
    let (own, dropped) = (Arc::<OnceLock<WeakDevice>>::default(), Arc::<AtomicU64>::default());
    let service = Echo::serve(Knows(own.clone(), dropped.clone()));
    let device = Device::builder("cpu").service(service).open().unwrap();
    own.set(device.downgrade()).ok().unwrap();
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(1).unwrap());
    asks.launch(&stream, Grid::new(1, 1), (&out,)).unwrap();
    assert_eq!(out.read().unwrap(), [1 + u64::from(device.wave_size())]);
    drop((stream, out, device));
    // A thread that looks after the launch's end may hold the device for a moment yet.
    let begun = Instant::now();
    while dropped.load(Ordering::Relaxed) == 0 && begun.elapsed() < Duration::from_secs(60) {
        thread::yield_now();
    }
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    assert!(own.get().unwrap().upgrade().is_none());
}

#[kernel]
fn nothing(_lane: &Lane) {}

/// Returns the status of a child of this process that runs `work`, for a minute at most.
fn status_of_child(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child calls what is tested, and `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: have no preconditions. The first ends a child that hangs.
        unsafe {
            libc::alarm(60);
            libc::_exit(work())
        };
    }
    let mut status = 0;
    // SAFETY: writes the status of this process's child to memory made for it.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

#[test]
fn a_child_is_told_that_the_device_is_not_its_own() {
    let device = open();
    let stream = device.stream().unwrap();
    let buffer = device.alloc_zeroed::<u64>(4).unwrap();
    let launch = nothing.launch(&stream, Grid::new(1, 1), ()).unwrap();
    let event = stream.record().unwrap();
    stream.synchronize().unwrap();
    let mut own = Some((device, stream, buffer, launch, event));
    let status = status_of_child(|| {
        let (device, stream, buffer, launch, event) = own.as_ref().unwrap();
        let told = [
            nothing.launch(stream, Grid::new(1, 1), ()).map(drop),
            stream.synchronize(),
            stream.synchronize_for(Duration::from_secs(1)),
            stream.record().map(drop),
            event.wait(),
            launch.wait().map(drop),
            buffer.read().map(drop),
            buffer.write(&[1; 4]),
            device.stream().map(drop),
            device.alloc_zeroed::<u64>(1).map(drop),
            device.pinned::<u64>(1).map(drop),
            buffer.read_now().map(drop),
            buffer.write_now(&[1; 4]).map(drop),
            device.add_images(&[]),
        ];
        let place = told.iter().position(|told| !matches!(told, Err(Error::Forked { .. })));
        if let Some(place) = place {
            return 1 + place as i32;
        }
        launch.cancel();
        device.cancel_all();
        device.close();
        drop(own.take());
        0
    });
    assert_eq!(status, 0, "the child's status");
    // The parent's device goes on.
    let (_device, stream, ..) = own.unwrap();
    nothing.launch(&stream, Grid::new(1, 1), ()).unwrap();
    stream.synchronize().unwrap();
}

/// Forks while other threads launch, so that some of them hold locks of the process. They start no threads meanwhile: the standard
/// library has a lock for that, which a child cannot use then.
#[test]
fn a_child_opens_a_device_of_its_own() {
    let work = |device: &Device| -> Result<(), Error> {
        let stream = device.stream()?;
        for _ in 0..10 {
            nothing.launch(&stream, Grid::new(2, 64), ())?;
            stream.synchronize()?;
        }
        Ok(())
    };
    let devices = [open(), open()];
    devices.iter().for_each(|device| work(device).unwrap());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for device in &devices {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    work(device).unwrap();
                }
            });
        }
        let statuses = (0..40).map(|_| status_of_child(|| i32::from(work(&open()).is_err())));
        let failed = statuses.enumerate().find(|(_, status)| *status != 0);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(failed, None, "the child and its status");
    });
}
