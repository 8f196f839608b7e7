//! What ends and waits in an unlucky order: marks that two operations wait for, cancellations that come late, posts of a
//! launch that begins while an earlier one is settled, handlers that wait for other streams.

use hostcall::device::Launch;
use hostcall::services::Builtins;
use hostcall::{
    CallError, Device, Error, Global, Grid, Hostcall, Lane, LaunchKernel, kernel, println, service,
};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

/// Longer than anything here takes, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[kernel(crate = hostcall)]
fn nothing(_lane: &Lane) {}

#[kernel(crate = hostcall)]
fn set_when(lane: &Lane, flag: &[Global<u32>], out: &[Global<u64>]) {
    while flag[0].get() == 0 {
        lane.pause();
    }
    out[0].set(7);
}

#[test]
fn two_operations_wait_for_one_mark() {
    let device = Device::open("cpu").unwrap();
    let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
    let flag = device.pinned::<u32>(1).unwrap();
    let (x, y) = (device.alloc_zeroed::<u64>(4).unwrap(), device.alloc_zeroed::<u64>(4).unwrap());
    for out in [&x, &y] {
        set_when.launch(&first, Grid::new(1, 1), (&flag, out)).unwrap();
    }
    for (out, value) in [(&x, 1), (&y, 2)] {
        second.fill(out, value).unwrap();
    }
    flag[0].set(1);
    first.synchronize_for(PATIENCE).unwrap();
    second.synchronize_for(PATIENCE).unwrap();
    assert_eq!((x.read().unwrap(), y.read().unwrap()), (vec![1; 4], vec![2; 4]));
}

#[kernel(crate = hostcall)]
fn read_when(lane: &Lane, flag: &[Global<u32>], values: &[u64], out: &[Global<u64>]) {
    while flag[0].get() == 0 {
        lane.pause();
    }
    out[0].set(values[0]);
}

#[kernel(crate = hostcall)]
fn fail(_lane: &Lane) {
    panic!("as it should");
}

/// A launch that was to wait for another stream is skipped: what comes after it in its stream waits all the same.
#[test]
fn what_a_skipped_launch_waits_for_is_waited_for() {
    let device = Device::open("cpu").unwrap();
    let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
    let flag = device.pinned::<u32>(1).unwrap();
    let (values, out) = (device.alloc_zeroed::<u64>(4).unwrap(), device.pinned::<u64>(1).unwrap());
    read_when.launch(&first, Grid::new(1, 1), (&flag, &values, &out)).unwrap();
    assert!(fail.launch(&second, Grid::new(1, 1), ()).unwrap().wait().is_err());
    // Not told of yet, so that it does not begin.
    note_in.launch(&second, Grid::new(1, 1), (&values, 1)).unwrap();
    second.fill(&values, 2).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    flag[0].set(1);
    first.synchronize_for(PATIENCE).unwrap();
    assert_eq!(out[0].get(), 0, "the fill ran beside the kernel");
    assert!(second.synchronize_for(PATIENCE).is_err());
    assert_eq!(values.read().unwrap(), [2; 4]);
}

#[kernel(crate = hostcall)]
fn note_in(_lane: &Lane, out: &[Global<u64>], value: u64) {
    out[0].set(value);
}

#[kernel(crate = hostcall)]
fn pause_some(lane: &Lane, count: u32) {
    for _ in 0..count {
        lane.pause();
    }
}

#[kernel(crate = hostcall)]
fn note(_lane: &Lane, out: &[Global<u64>], value: u64) {
    out[0].set(value);
}

/// After `synchronize` has told of everything, a cancellation of what is over stops nothing.
#[test]
fn a_late_cancellation_stops_no_later_launch() {
    let device = Device::open("cpu").unwrap();
    let (stream, out) = (device.stream().unwrap(), device.pinned::<u64>(1).unwrap());
    let (send, receive) = mpsc::channel::<Launch>();
    let canceller = std::thread::spawn(move || {
        let mut draw = 0u32;
        for launch in receive {
            draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            for _ in 0..draw >> 20 {
                std::hint::spin_loop();
            }
            launch.cancel();
        }
    });
    for round in 1..=3000 {
        send.send(pause_some.launch(&stream, Grid::new(1, 1), (4u32,)).unwrap()).unwrap();
        let _ = stream.synchronize();
        note.launch(&stream, Grid::new(1, 1), (&out, round)).unwrap();
        // The cancellation may have come in between and be told of now; then the launch may have been skipped.
        if stream.synchronize().is_ok() {
            assert_eq!(out[0].get(), round, "a launch did not run, and `synchronize` said that it had");
        }
    }
    drop(send);
    canceller.join().unwrap();
}

#[kernel(crate = hostcall)]
fn print_before_and_after(lane: &Lane, flag: &[Global<u32>]) {
    println!(crate = hostcall, "before");
    while flag[0].get() == 0 {
        lane.pause();
    }
    for line in 0..20u32 {
        println!(crate = hostcall, "line {line}");
    }
}

/// The launch before is settled, and its posts are taken, while the one that prints has begun to.
#[test]
fn no_print_is_lost_that_follows_a_settled_launch() {
    let device = Device::builder("cpu").builtins(silent()).open().unwrap();
    let (stream, flag) = (device.stream().unwrap(), device.pinned::<u32>(1).unwrap());
    for round in 0..40 {
        flag[0].set(0);
        nothing.launch(&stream, Grid::new(1, 1), ()).unwrap();
        print_before_and_after.launch(&stream, Grid::new(4, 32), (&flag,)).unwrap();
        // Time for the device's own thread to settle the first.
        std::thread::sleep(Duration::from_millis(8));
        flag[0].set(1);
        stream.synchronize().unwrap();
        assert_eq!(device.statistics().refused_posts, 0, "round {round}");
    }
}

#[service(crate = hostcall)]
trait Notes {
    fn note(value: u64);
}

#[kernel(crate = hostcall)]
fn post_one(_lane: &Lane) {
    Notes::post_note(1).unwrap();
}

#[kernel(crate = hostcall)]
fn print_one(_lane: &Lane) {
    println!(crate = hostcall, "a line");
}

/// Waits for a launch of another stream of its device, which prints, before it returns for the first time.
#[derive(Clone, Default)]
struct WaitsForAnother {
    device: Arc<OnceLock<Device>>,
    /// It waits when no post is taken any more.
    is_full: bool,
    waited: Arc<OnceLock<bool>>,
}

impl NotesHandler for WaitsForAnother {
    fn note(&self, _value: u64) -> Result<(), CallError> {
        self.waited.get_or_init(|| {
            let device = self.device.get().unwrap();
            while self.is_full && device.statistics().declined_posts == 0 {
                std::thread::yield_now();
            }
            let stream = device.stream().unwrap();
            let launch = print_one.launch(&stream, Grid::new(1, 1), ()).unwrap();
            launch.wait_for(PATIENCE).is_ok()
        });
        Ok(())
    }
}

fn silent() -> Builtins {
    Builtins::builder().stdout(std::io::sink()).build().unwrap()
}

#[test]
fn a_handler_of_posts_waits_for_another_stream() {
    for is_full in [false, true] {
        let handler = WaitsForAnother { is_full, ..WaitsForAnother::default() };
        let device = Device::builder("cpu").builtins(silent()).service(Notes::serve(handler.clone()));
        let device = device.open().unwrap();
        handler.device.set(device.clone()).ok().unwrap();
        let stream = device.stream().unwrap();
        if is_full {
            post_many.launch(&stream, Grid::new(1, 1), ()).unwrap();
        } else {
            post_one.launch(&stream, Grid::new(1, 1), ()).unwrap();
        }
        stream.synchronize().unwrap();
        assert_eq!(handler.waited.get(), Some(&true), "the handler's launch does not end");
    }
}

/// Returns when it is told to.
#[derive(Clone, Default)]
struct Held {
    begun: Arc<AtomicU32>,
    go_on: Arc<AtomicBool>,
}

impl NotesHandler for Held {
    fn note(&self, _value: u64) -> Result<(), CallError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        while !self.go_on.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

#[kernel(crate = hostcall)]
fn post_many(_lane: &Lane) {
    for _ in 0..6000 {
        Notes::post_note(1).unwrap();
    }
}

/// While posts wait for a handler that does not return, nothing else of the device waits for it.
#[test]
fn posts_that_are_not_handled_hold_up_only_their_stream() {
    let handler = Held::default();
    let device = Device::builder("cpu").builtins(silent()).service(Notes::serve(handler.clone()));
    let device = device.open().unwrap();
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let launch = post_many.launch(&stream, Grid::new(1, 1), ()).unwrap();
    while handler.begun.load(Ordering::SeqCst) == 0 || device.statistics().declined_posts == 0 {
        std::thread::yield_now();
    }
    print_one.launch(&other, Grid::new(1, 1), ()).unwrap();
    other.synchronize_for(PATIENCE).unwrap();
    let limit = Duration::from_millis(50);
    let timed_out = stream.synchronize_for(limit);
    assert!(matches!(timed_out, Err(Error::TimedOut { .. })), "{timed_out:?}");
    assert!(!launch.is_done());
    let (flag, out) = (device.pinned::<u32>(1).unwrap(), device.alloc_zeroed::<u64>(1).unwrap());
    set_when.launch(&other, Grid::new(1, 1), (&flag, &out)).unwrap().cancel_after(limit);
    other.synchronize_for(PATIENCE).unwrap_err();
    handler.go_on.store(true, Ordering::SeqCst);
    stream.synchronize().unwrap();
}

#[kernel(crate = hostcall)]
fn ask(
    lane: &Lane,
    closure: hostcall::hostcall_device::HostcallRef<u32, u32>,
    kept: &[Global<u32>],
    launch: u32,
) {
    while kept[0].get() <= launch {
        lane.pause();
    }
    let _ = closure.call(1);
}

/// Takes a lock when it is dropped.
struct Locks(Arc<Mutex<u32>>);

impl Drop for Locks {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

/// A launch settles launches that have ended, but drops nothing of the user's: the caller may hold what that waits for.
#[test]
fn a_launch_drops_no_value_of_an_earlier_one() {
    const LAUNCHES: u32 = 500;
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let dropped = Arc::new(Mutex::new(0));
    let held = dropped.lock().unwrap();
    // How many launches have the last reference to their closure.
    let kept = device.pinned::<u32>(1).unwrap();
    for launch in 0..LAUNCHES {
        let locks = Locks(dropped.clone());
        let closure =
            Hostcall::continuous(&device, move |x: u32| x + u32::from(Arc::strong_count(&locks.0) == 0));
        ask.launch(&stream, Grid::new(1, 1), (&closure.unwrap(), &kept, launch)).unwrap();
        kept[0].set(launch + 1);
    }
    drop(held);
    stream.synchronize_for(PATIENCE).unwrap();
    drop(stream);
    drop(device);
    // The values are dropped by a thread that outlives the device.
    let begin = Instant::now();
    while *dropped.lock().unwrap() < LAUNCHES {
        assert!(begin.elapsed() < PATIENCE, "{dropped:?} of {LAUNCHES} values are dropped");
        std::thread::yield_now();
    }
}
