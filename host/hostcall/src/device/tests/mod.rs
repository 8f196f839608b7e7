//! What a device asks of its backend, and when.

mod double;
mod uses;

use crate::raw::{Block, Placement, RawChannel, RawStatistics, RawStream};
use crate::{CallError, Device, Error, Grid, LaunchFailure, LaunchKernel};
use double::{Double, Noted};
use hostcall_device::{Global, Lane, kernel, service};
use hostcall_locks::{Condvar, Mutex};
use hostcall_server::WaitsFor;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Longer than anything here takes on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(60);

fn open(noted: Noted) -> (Device, Arc<Noted>) {
    let double = Double::new(noted);
    let noted = double.noted.clone();
    (Device::builder("double").backend(double).open().unwrap(), noted)
}

#[test]
fn every_thread_of_a_device_enters_its_backend() {
    let (device, noted) = open(Noted::default());
    let (ran, runs) = mpsc::channel();
    device.server().call_back(move || ran.send(()).unwrap());
    runs.recv().unwrap();
    let stream = device.stream().unwrap();
    stream.host_function(|| ()).unwrap();
    stream.synchronize().unwrap();
    let expected = ["0", "callback", "function", "reaper", "watchdog"];
    let expected = BTreeSet::from(expected.map(|name| format!("hostcall-{name}")));
    // Threads that started last may enter a little later than this.
    let until = Instant::now() + PATIENCE;
    while *noted.threads.lock() != expected && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(*noted.threads.lock(), expected);
}

#[kernel]
fn nothing(_lane: &Lane) {}

/// A launch costs one dispatch, however large its grid and however many slots there are.
#[test]
fn a_launch_is_one_dispatch() {
    let (device, noted) = open(Noted::default());
    let stream = device.stream().unwrap();
    nothing.launch(&stream, Grid::new(1, 1), ()).unwrap();
    stream.synchronize().unwrap();
    let before = noted.memory_operations();
    for (launches, workgroups) in (2..).zip([1, 65_536, 1]) {
        let launch = nothing.launch(&stream, Grid::new(workgroups, 1), ()).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(noted.kernels().len(), launches);
        assert_eq!(noted.memory_operations(), before);
        // Each begins once, and so gets the next index, and ends once.
        assert_eq!(launch.id().index() as usize, launches - 1);
        assert_eq!(device.server().launches().count(), 0);
    }
}

/// Whoever waits polls, without pauses that grow: a million polls are a matter of a second.
#[test]
fn whoever_waits_polls() {
    let (device, noted) = open(Noted { is_polled: true, ..Noted::default() });
    let stream = device.stream().unwrap();
    for _ in 0..3 {
        noted.unseeing_polls.store(1_000_000, Ordering::SeqCst);
        nothing.launch(&stream, Grid::new(1, 1), ()).unwrap();
        stream.synchronize_for(PATIENCE).unwrap();
        assert_eq!(noted.unseeing_polls.load(Ordering::SeqCst), 0);
    }
}

/// Waits for the test.
#[service]
trait Gate {
    /// Returns once the gate was opened.
    fn pass(gate: u32) -> u32;
    /// The same: lanes that call one method together get their answers together.
    fn pass_alone(gate: u32) -> u32;
}

/// The gates that are open, a bit each.
#[derive(Default)]
struct Gates(Mutex<u32>, Condvar);

impl Gates {
    fn open(&self, gate: u32) {
        *self.0.lock() |= 1 << gate;
        self.1.notify_all();
    }
}

struct GateKeeper(Arc<Gates>);

impl GateHandler for GateKeeper {
    fn pass(&self, gate: u32) -> Result<u32, CallError> {
        let Gates(open, opened) = &*self.0;
        let is_closed = |open: &mut u32| *open >> gate & 1 == 0;
        let passed = opened.wait_timeout_while(open.lock(), 2 * PATIENCE, is_closed);
        if passed.1 { Err(CallError::TimedOut) } else { Ok(gate) }
    }

    fn pass_alone(&self, gate: u32) -> Result<u32, CallError> {
        self.pass(gate)
    }
}

/// The first lane panics once gate 0 is open; the others wait for an answer that does not come.
#[kernel]
fn panics(lane: &Lane, out: &[Global<u32>]) {
    if lane.global_id() == 0 {
        assert_eq!(Gate::pass_alone(0), Ok(0));
        panic!("while another launch is being dispatched");
    }
    let cancelled = Gate::pass(1) == Err(CallError::Cancelled);
    out[lane.global_id()].set(1 + u32::from(cancelled));
}

#[kernel]
fn passes(_lane: &Lane) {
    assert_eq!(Gate::pass(2), Ok(2));
}

/// A driver may block a dispatch until an earlier launch has ended. A launch that panics meanwhile gets its lanes out of
/// their calls all the same, whichever thread is in the dispatch.
fn a_dispatch_waits_for_a_launch_that_panics(by_reaper: bool) {
    let gates = Arc::new(Gates::default());
    let double = Double::new(Noted::default());
    let noted = double.noted.clone();
    let (entered, enters) = mpsc::channel();
    let entered = Mutex::new(entered);
    let before = move |noted: &Noted, kernel: &str| {
        if !kernel.ends_with("nothing") {
            return;
        }
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        entered.lock().send(thread).unwrap();
        let until = Instant::now() + PATIENCE;
        while !noted.has_ended("panics") && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    assert!(noted.before_dispatch.set(Box::new(before)).is_ok());
    let device = Device::builder("double").backend(double).service(Gate::serve(GateKeeper(gates.clone())));
    let device = device.open().unwrap();
    let (first, second) = (device.stream().unwrap(), Arc::new(device.stream().unwrap()));
    let out = device.alloc_zeroed::<u32>(8).unwrap();
    let launch = panics.launch(&first, Grid::new(2, 4), (&out,)).unwrap();
    let dispatcher = if by_reaper {
        // More than a stream may have with the device, so that the last operation is submitted by the reaper, when the first
        // has ended.
        let words = device.alloc_zeroed::<u32>(1).unwrap();
        passes.launch(&second, Grid::new(1, 1), ()).unwrap();
        for _ in 0..super::seam::OPERATIONS_A_QUEUE {
            second.fill(&words, 1).unwrap();
        }
        nothing.launch(&second, Grid::new(1, 1), ()).unwrap();
        gates.open(2);
        None
    } else {
        let second = second.clone();
        Some(std::thread::spawn(move || drop(nothing.launch(&second, Grid::new(1, 1), ()).unwrap())))
    };
    let thread = enters.recv_timeout(PATIENCE).unwrap();
    assert_eq!(thread == "hostcall-reaper", by_reaper);
    // A workgroup that had not begun would not begin any more.
    let until = Instant::now() + PATIENCE / 2;
    let waits = || {
        device.waiting().iter().filter(|call| &*call.kernel == "panics").map(|call| call.lanes).sum::<u32>()
    };
    while waits() != 8 {
        assert!(Instant::now() < until, "not all lanes wait: {:?}", device.waiting());
        std::thread::sleep(Duration::from_millis(1));
    }
    gates.open(0);
    while !noted.has_ended("panics") {
        assert!(Instant::now() < until, "the launch does not end: {:?}", device.waiting());
        std::thread::sleep(Duration::from_millis(1));
    }
    if let Some(dispatcher) = dispatcher {
        dispatcher.join().unwrap();
    }
    let ended = launch.wait();
    assert!(
        matches!(&ended, Err(Error::Launch { failure: LaunchFailure::Panicked { first: Some(_), .. }, .. })),
        "{ended:?}"
    );
    assert!(first.synchronize().is_err());
    second.synchronize().unwrap();
    assert_eq!(out.read().unwrap(), [0, 2, 2, 2, 2, 2, 2, 2]);
    gates.open(1);
}

#[test]
fn a_users_thread_that_dispatches_keeps_no_launch_from_ending() {
    a_dispatch_waits_for_a_launch_that_panics(false);
}

#[test]
fn a_reaper_that_dispatches_keeps_no_launch_from_ending() {
    a_dispatch_waits_for_a_launch_that_panics(true);
}

#[kernel]
fn counts(lane: &Lane, count: u64, out: RawStream<'_, u64, Block>) {
    for i in 0..count {
        out.write(lane, &i);
    }
}

/// Readers get staged pages once they see the end of the copy, and who drops the channel waits for what is on its way.
#[test]
fn staged_pages_come_with_their_copies() {
    let (device, noted) = open(Noted { is_polled: true, ..Noted::default() });
    let stream = device.stream().unwrap();
    let channel = RawChannel::<u64, Block>::placed(&device, Placement::Staged, 64, 128).unwrap();
    let reader = channel.reader();
    for polls in [0, 1, 1000] {
        counts.launch(&stream, Grid::new(1, 1), (1000, &channel)).unwrap();
        stream.synchronize_for(PATIENCE).unwrap();
        noted.unseeing_polls.store(polls, Ordering::SeqCst);
        let mut words = Vec::new();
        for page in reader.rest() {
            assert_eq!(noted.unseeing_polls.load(Ordering::SeqCst), 0);
            words.extend(page.records());
        }
        assert!(words.into_iter().eq(0..1000));
    }
    // A batch has a quarter of the pages, of which there are more.
    counts.launch(&stream, Grid::new(1, 1), (1000, &channel)).unwrap();
    stream.synchronize_for(PATIENCE).unwrap();
    let page = reader.try_next().unwrap();
    noted.unseeing_polls.store(1000, Ordering::SeqCst);
    drop((page, reader, channel));
    assert_eq!(noted.unseeing_polls.load(Ordering::SeqCst), 0);
}

/// What a device that fails does not copy is counted, and its kernels wait for nobody.
#[test]
fn staged_pages_that_cannot_be_copied_are_counted() {
    let (device, noted) = open(Noted::default());
    let stream = device.stream().unwrap();
    let channel = RawChannel::<u64, Block>::placed(&device, Placement::Staged, 64, 128).unwrap();
    let reader = channel.reader();
    let words = |count: u64| {
        counts.launch(&stream, Grid::new(1, 1), (count, &channel)).unwrap();
        stream.synchronize_for(PATIENCE).unwrap();
        reader.rest().map(|page| page.records().len() as u64).sum::<u64>()
    };
    assert_eq!(words(100), 100);
    noted.refuses_words.store(true, Ordering::SeqCst);
    assert_eq!((words(900), channel.statistics().lost_bytes), (0, 900 * 8));
    // More than there are pages for.
    assert_eq!(words(5000), 0);
    let RawStatistics { lost_bytes, dropped_records, .. } = channel.statistics();
    assert!(dropped_records > 0);
    assert_eq!(8 * dropped_records + lost_bytes, 5900 * 8);
}

/// Neither calls nor ends by itself.
#[kernel]
fn spins(lane: &Lane) {
    while !lane.is_cancelled() {
        lane.pause();
    }
}

#[test]
fn a_stream_knows_which_launch_it_is_at() {
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    assert_eq!(stream.queue().under_way(), None);
    let launch = spins.launch(&stream, Grid::new(1, 1), ()).unwrap();
    nothing.launch(&stream, Grid::new(1, 1), ()).unwrap();
    while stream.queue().under_way().is_none() {
        std::thread::yield_now();
    }
    assert_eq!(stream.queue().under_way(), Some(format!("launch {} of spins", launch.id())));
    launch.cancel();
    assert!(stream.synchronize().is_err());
    assert_eq!(stream.queue().under_way(), None);
}

/// Its launch has ended by then, but not what keeps the server from learning of that.
#[test]
fn who_closes_under_an_inline_handler_is_told_of_it() {
    let gates = Arc::new(Gates::default());
    let keeper = Gate::serve(GateKeeper(gates.clone()));
    let device = Device::builder("cpu").inline_service(keeper).open().unwrap();
    let stream = device.stream().unwrap();
    passes.launch(&stream, Grid::new(1, 1), ()).unwrap();
    let is_inline = |waiting: &hostcall_server::Waiting| waiting.waits_for == WaitsFor::InlineHandler;
    while !device.waiting().iter().any(is_inline) {
        std::thread::sleep(Duration::from_millis(1));
    }
    device.cancel_all();
    let (tell, told) = mpsc::channel();
    let here = Arc::downgrade(&device.inner);
    let tell_now = move |line| tell.send(line).unwrap();
    let _closing = super::tell_what_close_waits_for(here.clone(), Duration::ZERO, tell_now);
    let told = told.recv_timeout(PATIENCE).unwrap();
    assert_eq!(told, "`close` of cpu waits for the inline handler of Gate::pass");
    gates.open(2);
    // Nobody is told where it did not take so long.
    let (tell, told) = mpsc::channel::<String>();
    drop(super::tell_what_close_waits_for(here, 2 * PATIENCE, move |line| tell.send(line).unwrap()));
    assert!(told.recv_timeout(PATIENCE).is_err());
    device.close();
}

#[kernel]
fn sets_behind_a_gate(lane: &Lane, gate: &Global<u32>, out: &Global<u32>) {
    while gate.get() == 0 {
        lane.pause();
    }
    out.set(1);
}

#[kernel]
fn adds_ten(_lane: &Lane, out: &Global<u32>) {
    out.set(out.get() + 10);
}

/// What the device refuses to wait for, later work of the stream waits for all the same.
#[test]
fn a_wait_that_was_refused_is_made_for_the_next_operation() {
    let (device, noted) = open(Noted::default());
    let [first, second] = [(); 2].map(|()| device.stream().unwrap());
    let [gate, out] = [(); 2].map(|()| device.alloc_zeroed::<u32>(1).unwrap());
    sets_behind_a_gate.launch(&first, Grid::new(1, 1), (&gate, &out)).unwrap();
    noted.refused_waits.store(1, Ordering::SeqCst);
    second.wait_for(&first.record().unwrap()).unwrap();
    let next = adds_ten.launch(&second, Grid::new(1, 1), (&out,)).unwrap();
    assert!(matches!(next.wait_for(Duration::from_millis(100)), Err(Error::TimedOut { .. })));
    gate.write_now(&[1]).unwrap();
    next.wait().unwrap();
    assert_eq!(out.read().unwrap(), [11]);
    assert!(second.synchronize().is_err(), "the refusal is told");
}
