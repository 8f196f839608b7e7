//! What devices count by service and method.

use hostcall::watch::{DeviceMetrics, MethodMetrics};
use hostcall::{CallError, Device, Grid, Lane, LaunchKernel, kernel, service};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// What takes longer hangs.
const LONG: Duration = Duration::from_secs(60);

#[service(crate = hostcall)]
trait Sums {
    fn add(value: u32) -> u32;
    fn note(value: u32);
}

struct Adds;

impl SumsHandler for Adds {
    fn add(&self, value: u32) -> Result<u32, CallError> {
        if value % 4 == 3 { Err(CallError::Failed(3)) } else { Ok(value + 1) }
    }
    fn note(&self, _value: u32) -> Result<(), CallError> {
        Ok(())
    }
}

#[service(crate = hostcall)]
trait Slow {
    fn wait() -> u32;
}

/// Says that it waits, and waits for the test.
struct Waits(Mutex<Sender<()>>, Mutex<Receiver<()>>);

impl SlowHandler for Waits {
    fn wait(&self) -> Result<u32, CallError> {
        self.0.lock().unwrap().send(()).unwrap();
        let _ = self.1.lock().unwrap().recv();
        Ok(1)
    }
}

#[kernel(crate = hostcall)]
fn add_and_note(lane: &Lane) {
    let own = lane.global_id() as u32;
    let _ = Sums::add(own);
    Sums::post_note(own).unwrap();
}

#[kernel(crate = hostcall)]
fn wait_long(_: &Lane) {
    let _ = Slow::wait();
}

#[service(crate = hostcall)]
trait Once {
    fn call() -> u32;
}

struct Counts;

impl OnceHandler for Counts {
    fn call(&self) -> Result<u32, CallError> {
        Ok(1)
    }
}

#[kernel(crate = hostcall)]
fn once(_: &Lane) {
    let _ = Once::call();
}

fn method<'a>(metrics: &'a DeviceMetrics, name: &str) -> &'a MethodMetrics {
    metrics.methods.iter().find(|of| of.method == name).expect("the method was called")
}

#[test]
fn calls_are_counted_by_how_they_end() {
    for inline in [true, false] {
        let device = Device::builder("cpu").wave_size(32);
        let device = match inline {
            true => device.inline_service(Sums::serve(Adds)),
            false => device.service(Sums::serve(Adds)),
        };
        let device = device.open().unwrap();
        let stream = device.stream().unwrap();
        for _ in 0..3 {
            add_and_note.launch(&stream, Grid::new(2, 64), ()).unwrap();
        }
        stream.synchronize().unwrap();
        let metrics = device.metrics();
        let add = method(&metrics, "add");
        assert_eq!((add.service.as_str(), add.total(), add.errors()), ("Sums", 3 * 128, 3 * 32));
        assert_eq!((add.calls["ok"], add.calls["failed"]), (3 * 96, 3 * 32));
        // Of inline handlers some are timed, beginning with the first.
        let timed = (add.at_once.total() > 0, add.later.total());
        assert_eq!(timed, if inline { (true, 0) } else { (false, 3 * 128) });
        assert!(add.latency().quantile_s(0.5).is_some());
        assert_eq!((method(&metrics, "note").posts, metrics.posts), (3 * 128, 3 * 128));
        assert_eq!((metrics.launches_ended["ok"], metrics.launches_running), (3, 0));
    }
}

#[test]
fn what_waits_is_counted_until_it_is_over() {
    let ((tell, told), (open, opened)) = (channel(), channel::<()>());
    let waits = Waits(Mutex::new(tell), Mutex::new(opened));
    let device = Device::builder("cpu").service(Slow::serve(waits)).open().unwrap();
    let stream = device.stream().unwrap();
    let launch = wait_long.launch(&stream, Grid::new(1, 1), ()).unwrap();
    told.recv_timeout(LONG).unwrap();
    let metrics = device.metrics();
    let wait = method(&metrics, "wait");
    assert_eq!((wait.waiting, wait.total(), metrics.waiting_calls, metrics.launches_running), (1, 0, 1, 1));
    assert!(wait.oldest_wait_s > 0.0 && metrics.oldest_wait_s >= wait.oldest_wait_s);
    launch.cancel();
    assert!(stream.synchronize().is_err());
    let metrics = device.metrics();
    assert_eq!(method(&metrics, "wait").calls["cancelled"], 1);
    assert_eq!((metrics.waiting_calls, metrics.launches_ended["cancelled"]), (0, 1));
    drop(open);
}

/// Alone of these tests it has a device of this kind.
#[test]
fn devices_that_ended_go_on_counting() {
    let of_kind = || hostcall::metrics().devices.into_iter().find(|device| device.name == "gfx942");
    let run = || {
        let device = Device::open("gfx942").unwrap();
        let registration = device.register_inline(Sums::serve(Adds)).unwrap();
        registration.remove();
        device.register_inline(Sums::serve(Adds)).unwrap();
        assert_eq!(of_kind().unwrap().open, 1);
        device.stream().unwrap().host_function(|| ()).unwrap();
    };
    run();
    run();
    let metrics = of_kind().expect("it is kept");
    assert_eq!((metrics.open, metrics.handler_threads), (0, 0));
}

/// A device that ends while others count is counted once: neither twice nor not at all.
#[test]
fn what_a_device_counted_never_falls_nor_doubles() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    let calls = || -> u64 {
        let methods = hostcall::metrics().devices.into_iter().flat_map(|device| device.methods);
        methods.filter(|method| method.service == "Once").map(|method| method.total()).sum()
    };
    let (made, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..30 {
                let device = Device::builder("cpu").inline_service(Once::serve(Counts)).open().unwrap();
                let stream = device.stream().unwrap();
                // What is counted may be seen from now on.
                made.fetch_add(8, Ordering::SeqCst);
                once.launch(&stream, Grid::new(8, 1), ()).unwrap();
                stream.synchronize().unwrap();
            }
            is_over.store(true, Ordering::SeqCst);
        });
        let mut last = 0;
        while !is_over.load(Ordering::SeqCst) {
            let now = calls();
            assert!(last <= now && now <= made.load(Ordering::SeqCst), "{last} and then {now}");
            last = now;
        }
    });
    assert_eq!(calls(), 240);
}
