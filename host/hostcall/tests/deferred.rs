//! Services that take calls and posts, to answer them later: each lane gets one answer, whoever gives it and whenever.

use hostcall::hostcall_device::{CallError, Global, Lane, kernel, service};
use hostcall::server::{
    DeferredCall, DeferredCalls, DeferredPosts, DeferredService, Handler, OpenCalls, Registration,
};
use hostcall::{Device, DeviceBuffer, Grid, LaunchKernel, Stream};
use hostcall_abi::service::Method;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

#[service(number = 900)]
trait Later {
    fn twice(x: u64) -> u64;
    fn reverse(bytes: &[u8], into: &mut [u8]) -> u64;
    fn note(x: u64);
}

#[allow(clippy::large_enum_variant, reason = "there are a few at a time")]
enum Taken {
    Calls(DeferredCalls),
    Posts(DeferredPosts),
}

/// Sends on what it takes.
struct Takes(Sender<Taken>);

impl DeferredService for Takes {
    fn methods(&self) -> &[Method] {
        Later::METHODS
    }

    fn calls(&self, calls: DeferredCalls) {
        let _ = self.0.send(Taken::Calls(calls));
    }

    fn posts(&self, posts: DeferredPosts) {
        let _ = self.0.send(Taken::Posts(posts));
    }
}

struct Test {
    device: Device,
    stream: Stream,
    out: DeviceBuffer<u64>,
    taken: Receiver<Taken>,
    registration: Registration,
}

impl Test {
    fn new(lanes: usize) -> Self {
        let (sender, taken) = mpsc::channel();
        let device = Device::open("cpu").unwrap();
        let registration = device.server().register(Handler::deferred(Takes(sender))).unwrap();
        let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed(lanes).unwrap());
        Self { device, stream, out, taken, registration }
    }

    fn next_calls(&self) -> DeferredCalls {
        match self.taken.recv_timeout(LONG).expect("lanes call") {
            Taken::Calls(calls) => calls,
            Taken::Posts(_) => panic!("these are posts"),
        }
    }
}

/// Each lane says how its call ended.
#[kernel]
fn call_twice(lane: &Lane, out: &[Global<u64>]) {
    let i = lane.global_id();
    out[i].set(match Later::twice(i as u64) {
        Ok(x) => x,
        Err(CallError::Failed(code)) => 1000 + code as u64,
        Err(CallError::TimedOut) => 2000,
        Err(CallError::Cancelled) => 3000,
        Err(CallError::NoSuchService) => 4000,
        Err(_) => 5000,
    });
}

#[kernel]
fn call_reverse(lane: &Lane, out: &[Global<u64>]) {
    let i = lane.global_id();
    let mut text = [0u8; 3000];
    text.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 + i) as u8);
    let mut back = [0; 3000];
    let sum = Later::reverse(&text, &mut back);
    let is_reversed = back.iter().rev().eq(&text);
    out[i].set(u64::from(is_reversed && sum == Ok((3000, 3000))));
}

#[kernel]
fn post_notes(lane: &Lane, out: &[Global<u64>]) {
    for round in 0..1000 {
        Later::post_note(lane.global_id() as u64 * 1000 + round).unwrap();
    }
    out[lane.global_id()].set(1);
}

fn twice(mut call: DeferredCall) {
    let word = call.begin().expect("the lane waits").words[0];
    call.answer(&[2 * word], &[]);
}

#[test]
fn lanes_are_answered_in_any_order() {
    let test = Test::new(100);
    let launch = call_twice.launch(&test.stream, Grid::new(1, 100), (&test.out,)).unwrap();
    let mut calls: Vec<DeferredCall> = Vec::new();
    while calls.len() < 100 {
        calls.extend(test.next_calls().into_calls());
    }
    assert!(!launch.is_done());
    calls.into_iter().rev().for_each(twice);
    test.stream.synchronize().unwrap();
    assert_eq!(test.out.read().unwrap(), (0..100).map(|i| 2 * i).collect::<Vec<_>>());
}

#[test]
fn bytes_are_read_and_answered_by_whoever_took_them() {
    let test = Test::new(40);
    call_reverse.launch(&test.stream, Grid::new(1, 40), (&test.out,)).unwrap();
    let mut left = 40;
    while left > 0 {
        for mut call in test.next_calls().into_calls() {
            let request = call.begin().expect("the lane waits");
            let (bytes, capacity) =
                (request.bytes.iter().rev().copied().collect::<Vec<_>>(), request.reply_capacity);
            assert_eq!(capacity, 3000);
            call.answer(&[bytes.len() as u64], &bytes);
            left -= 1;
        }
    }
    test.stream.synchronize().unwrap();
    assert_eq!(test.out.read().unwrap(), vec![1; 40]);
}

#[test]
fn calls_that_an_iterator_has_still_are_cancelled_with_it() {
    let test = Test::new(3);
    call_twice.launch(&test.stream, Grid::new(1, 3), (&test.out,)).unwrap();
    let (mut left, mut first) = (3, None);
    while left > 0 {
        let calls = test.next_calls();
        left -= calls.count();
        let mut calls = calls.into_calls();
        if first.is_none() {
            first = calls.next();
        }
    }
    let first = first.expect("a lane calls");
    let lane = usize::from(first.caller().lane);
    twice(first);
    test.stream.synchronize().unwrap();
    let mut expected = [3000; 3];
    expected[lane] = 2 * lane as u64;
    assert_eq!(test.out.read().unwrap(), expected);
}

#[test]
fn a_lane_gets_the_first_answer_and_no_other() {
    let test = Test::new(64);
    call_twice.launch(&test.stream, Grid::new(1, 64), (&test.out,)).unwrap();
    let (mut count, mut open) = (0, Vec::<OpenCalls>::new());
    let mut late = Vec::new();
    while count < 64 {
        let calls = test.next_calls();
        count += calls.count();
        open.push(calls.open());
        for call in calls.into_calls() {
            match call.caller().lane % 4 {
                0 => call.fail(CallError::Failed(7)),
                1 => drop(call),
                2 => twice(call),
                _ => late.push(call),
            }
        }
    }
    assert_eq!(open.iter().map(|calls| calls.waiting().lanes).sum::<u32>(), 16);
    for calls in &open {
        calls.time_out();
    }
    assert!(!open.iter().any(OpenCalls::is_open));
    for mut call in late {
        assert!(call.begin().is_none(), "nobody waits for it");
        call.answer(&[1], &[]);
    }
    test.stream.synchronize().unwrap();
    let expected = |i: u64| [1007, 3000, 2 * i, 2000][i as usize % 4];
    assert_eq!(test.out.read().unwrap(), (0..64).map(expected).collect::<Vec<_>>());
}

#[test]
fn calls_end_with_their_launch_and_their_service() {
    let Test { device, stream, out, taken, registration } = Test::new(1);
    let next = || match taken.recv_timeout(LONG) {
        Ok(Taken::Calls(calls)) => calls,
        _ => panic!("a lane calls"),
    };
    // A call that waits when its service is removed gets no handler.
    call_twice.launch(&stream, Grid::new(1, 1), (&out,)).unwrap();
    let calls = next();
    registration.remove();
    for mut call in calls.into_calls() {
        assert!(call.begin().is_none());
    }
    stream.synchronize().unwrap();
    assert_eq!(out.read().unwrap(), [4000]);
    // One of a launch that is cancelled has its answer before anybody takes it.
    let (sender, taken) = mpsc::channel();
    device.server().register(Handler::deferred(Takes(sender))).unwrap();
    let launch = call_twice.launch(&stream, Grid::new(1, 1), (&out,)).unwrap();
    let Ok(Taken::Calls(calls)) = taken.recv_timeout(LONG) else { panic!("a lane calls") };
    launch.cancel();
    assert!(stream.synchronize().is_err());
    assert!(!calls.open().is_open());
    calls.fail(CallError::Failed(1));
}

#[test]
fn posts_are_waited_for_until_they_were_handled() {
    let Test { device, stream, out, taken, .. } = Test::new(50);
    post_notes.launch(&stream, Grid::new(1, 50), (&out,)).unwrap();
    let handler = std::thread::spawn(move || {
        let (mut sum, mut count) = (0, 0);
        while count < 50_000 {
            let Ok(Taken::Posts(posts)) = taken.recv_timeout(LONG) else { panic!("lanes post") };
            for post in posts {
                assert_eq!((post.method(), post.words().len()), (2, 1));
                sum += post.words()[0];
                count += 1;
            }
        }
        sum
    });
    stream.synchronize().unwrap();
    assert!(handler.join().unwrap() == (0..50_000).sum::<u64>());
    assert_eq!(device.statistics().refused_posts, 0);
}

/// Panics where it should take calls.
struct Panics;

impl DeferredService for Panics {
    fn methods(&self) -> &[Method] {
        Later::METHODS
    }

    fn calls(&self, _: DeferredCalls) {
        panic!("no calls")
    }

    fn posts(&self, _: DeferredPosts) {
        panic!("no posts")
    }
}

#[test]
fn a_service_that_panics_ends_its_calls_alone() {
    let device = Device::open("cpu").unwrap();
    let registration = device.server().register(Handler::deferred(Panics)).unwrap();
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(8).unwrap());
    call_twice.launch(&stream, Grid::new(1, 8), (&out,)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(out.read().unwrap(), [3000; 8]);
    post_notes.launch(&stream, Grid::new(1, 8), (&out,)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(device.statistics().refused_posts, 8000);
    registration.remove();
}
