//! Calls that worker threads handle one after the other, because their service says that they have the same turn.

use hostcall::hostcall_device::{CallError, Global, Lane, kernel, service};
use hostcall::server::WaitsFor;
use hostcall::service::{Reply, Request, Service};
use hostcall::{Device, Grid, LaunchKernel};
use std::array::from_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// A turn of which the service panics when it is asked.
const BROKEN: u64 = 9;

/// Arguments for which the handler panics, and for which it waits for a call of the other of two turns.
const PANICS: u64 = 1000;
const MEETS: u64 = 2000;
/// The handler waits until it may go on.
const WAITS: u64 = 3000;

#[service]
trait InTurn {
    /// Returns `x`, and one more.
    fn next(turn: u64, x: u64) -> u64;
    /// The same by another name: all methods of a service have its turns in common.
    fn succ(turn: u64, x: u64) -> u64;
}

struct Handler {
    /// By turns: whether a call is being handled.
    inside: [AtomicBool; 10],
    overlapping: AtomicU64,
    handled: AtomicU64,
    meeting: Barrier,
    may_go_on: AtomicBool,
}

impl Default for Handler {
    fn default() -> Self {
        Self {
            inside: from_fn(|_| AtomicBool::new(false)),
            overlapping: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            meeting: Barrier::new(2),
            may_go_on: AtomicBool::new(false),
        }
    }
}

impl InTurnHandler for Arc<Handler> {
    fn next(&self, turn: u64, x: u64) -> Result<u64, CallError> {
        let inside = &self.inside[turn as usize];
        if inside.swap(true, Ordering::AcqRel) && turn != BROKEN {
            self.overlapping.fetch_add(1, Ordering::Relaxed);
        }
        match x {
            MEETS => _ = self.meeting.wait(),
            WAITS => {
                while !self.may_go_on.load(Ordering::Acquire) {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            _ => thread::sleep(Duration::from_micros(50)),
        }
        self.handled.fetch_add(1, Ordering::Relaxed);
        inside.store(false, Ordering::Release);
        assert!(x != PANICS, "a handler panics");
        Ok(x + 1)
    }

    fn succ(&self, turn: u64, x: u64) -> Result<u64, CallError> {
        self.next(turn, x)
    }
}

struct WithTurns<S>(S);

impl<S: Service> Service for WithTurns<S> {
    fn methods(&self) -> &[hostcall::hostcall_device::abi::service::Method] {
        self.0.methods()
    }

    fn call(&self, method: usize, request: Request<'_>, reply: &mut dyn Reply) -> Result<(), CallError> {
        self.0.call(method, request, reply)
    }

    fn turn(&self, _: usize, request: Request<'_>) -> Option<u64> {
        assert!(request.words[0] != BROKEN, "a service panics");
        Some(request.words[0])
    }
}

fn serve() -> (Arc<Handler>, Device) {
    let handler = Arc::new(Handler::default());
    let service = WithTurns(InTurn::serve(handler.clone()));
    (handler, Device::builder("cpu").service(service).open().unwrap())
}

/// Each lane calls with its turn and argument, `times` times, and gives what it got last.
#[kernel]
fn ask(lane: &Lane, turns: &[u64], arguments: &[u64], timeouts_us: &[u32], times: u32, got: &[Global<u64>]) {
    let i = lane.global_id();
    for _ in 0..times {
        let service = InTurn::within_us(timeouts_us[i]);
        let result = match i % 2 {
            0 => service.next(turns[i], arguments[i]),
            _ => service.succ(turns[i], arguments[i]),
        };
        got[i].set(match result {
            Ok(x) => x,
            Err(CallError::Panicked) => PANICKED,
            Err(CallError::TimedOut) => TIMED_OUT,
            Err(CallError::NoSuchService) => GONE,
            Err(_) => u64::MAX,
        });
    }
}

const PANICKED: u64 = u64::MAX - 1;
const TIMED_OUT: u64 = u64::MAX - 2;
const GONE: u64 = u64::MAX - 3;

/// Lets lanes call, each in a wave of its own or all in one, and returns what they got.
fn run(
    device: &Device,
    grid: Grid,
    calls: &[(u64, u64, u32)],
    times: u32,
    meanwhile: impl FnOnce(),
) -> Vec<u64> {
    let stream = device.stream().unwrap();
    let column = |of: fn(&(u64, u64, u32)) -> u64| calls.iter().map(of).collect::<Vec<_>>();
    let (turns, arguments) = (column(|call| call.0), column(|call| call.1));
    let timeouts_us: Vec<_> = calls.iter().map(|call| call.2).collect();
    let [turns, arguments] = [turns, arguments].map(|words| device.upload(&words).unwrap());
    let timeouts_us = device.upload(&timeouts_us).unwrap();
    let got = device.alloc_zeroed::<u64>(calls.len()).unwrap();
    ask.launch(&stream, grid, (&turns, &arguments, &timeouts_us, times, &got)).unwrap();
    meanwhile();
    stream.synchronize().unwrap();
    got.read().unwrap()
}

#[test]
fn calls_of_a_turn_are_handled_one_after_the_other() {
    let (handler, device) = serve();
    let calls: Vec<_> = (0..64).map(|i| (i % 5, if i % 13 == 0 { PANICS } else { i }, 0)).collect();
    for grid in [Grid::new(64, 1), Grid::new(1, 64)] {
        let got = run(&device, grid, &calls, 20, || {});
        for (got, (_, x, _)) in got.iter().zip(&calls) {
            assert_eq!(*got, if *x == PANICS { PANICKED } else { x + 1 });
        }
    }
    assert_eq!(handler.overlapping.load(Ordering::Relaxed), 0);
    assert_eq!(handler.handled.load(Ordering::Relaxed), 2 * 64 * 20);
}

#[test]
fn calls_of_other_turns_and_of_none_do_not_wait() {
    let (_, device) = serve();
    // Each waits for the other.
    assert_eq!(run(&device, Grid::new(2, 1), &[(1, MEETS, 0), (2, MEETS, 0)], 1, || {}), [MEETS + 1; 2]);
    // A service that panics where it is asked for the turn.
    let calls = [(BROKEN, MEETS, 0), (BROKEN, MEETS, 0)];
    assert_eq!(run(&device, Grid::new(2, 1), &calls, 1, || {}), [MEETS + 1; 2]);
}

/// A call whose deadline passes while another has its turn is answered then, and never handled.
#[test]
fn a_call_that_waits_for_its_turn_has_a_deadline() {
    let (handler, device) = serve();
    let calls = [(1, WAITS, 0), (1, 5, 20_000), (2, 6, 20_000_000)];
    let go_on = || {
        let start = Instant::now();
        // The call of the other turn is handled, and the deadline passes.
        while handler.handled.load(Ordering::Relaxed) == 0 || start.elapsed() < Duration::from_millis(200) {
            thread::sleep(Duration::from_millis(1));
        }
        handler.may_go_on.store(true, Ordering::Release);
    };
    let got = run(&device, Grid::new(3, 1), &calls, 1, go_on);
    // Either of the two may be the first of their turn.
    match got[1] {
        TIMED_OUT => assert_eq!(handler.handled.load(Ordering::Relaxed), 2),
        got => assert_eq!((got, handler.handled.load(Ordering::Relaxed)), (6, 3)),
    }
    assert_eq!([got[0], got[2]], [WAITS + 1, 7]);
}

#[test]
fn a_launch_that_is_cancelled_leaves_no_turn_taken() {
    let (handler, device) = serve();
    let stream = device.stream().unwrap();
    let lanes = 8;
    let [turns, arguments] = [1, WAITS].map(|word| device.upload(&vec![word; lanes]).unwrap());
    let timeouts_us = device.upload(&vec![0u32; lanes]).unwrap();
    let got = device.alloc_zeroed::<u64>(lanes).unwrap();
    let launch =
        ask.launch(&stream, Grid::new(lanes as u32, 1), (&turns, &arguments, &timeouts_us, 1, &got)).unwrap();
    while !handler.inside[1].load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(1));
    }
    launch.cancel();
    assert!(stream.synchronize().is_err());
    handler.may_go_on.store(true, Ordering::Release);
    assert_eq!(run(&device, Grid::new(1, 1), &[(1, 5, 0)], 1, || {}), [6]);
    assert_eq!(handler.handled.load(Ordering::Relaxed), 2);
}

/// Calls that wait for their turn when their service is removed are not handled any more.
#[test]
fn a_removed_service_begins_none_of_the_calls_that_wait_for_their_turn() {
    let handler = Arc::new(Handler::default());
    let device = Device::open("cpu").unwrap();
    let service = device.register(WithTurns(InTurn::serve(handler.clone()))).unwrap();
    let calls = [(1, WAITS, 0); 6];
    let got = run(&device, Grid::new(6, 1), &calls, 1, || {
        while !handler.inside[1].load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
        // Most of the others have come.
        thread::sleep(Duration::from_millis(20));
        service.remove();
        handler.may_go_on.store(true, Ordering::Release);
    });
    let ended = |what| got.iter().filter(|got| **got == what).count();
    assert_eq!(
        (ended(WAITS + 1), ended(GONE), handler.handled.load(Ordering::Relaxed)),
        (1, 5, 1),
        "{got:?}"
    );
}

/// A report says of one call that its handler runs, and of the others that they wait for their turn.
#[test]
fn reports_tell_which_calls_wait_for_their_turn() {
    let (handler, device) = serve();
    let calls = [(1, WAITS, 0); 3];
    run(&device, Grid::new(3, 1), &calls, 1, || {
        let start = Instant::now();
        loop {
            let waiting = device.waiting();
            let of = |what| waiting.iter().filter(|waiting| waiting.waits_for == what).count();
            if (of(WaitsFor::Handler), of(WaitsFor::Turn)) == (1, 2) {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{waiting:?}");
            thread::sleep(Duration::from_millis(1));
        }
        handler.may_go_on.store(true, Ordering::Release);
    });
}
