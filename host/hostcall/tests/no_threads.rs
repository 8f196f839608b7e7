//! A system that starts no more threads, since this program has a `pthread_create` of its own.
#![allow(unsafe_code, reason = "stands between the standard library and the system")]

use hostcall::{CallError, Device, Global, Grid, Lane, LaunchKernel, kernel, service};
use libc::{c_int, c_void, pthread_attr_t, pthread_t};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// What takes longer hangs.
const LONG: Duration = Duration::from_secs(60);

/// The system refuses threads now.
static REFUSES: AtomicBool = AtomicBool::new(false);

/// How many threads it has refused.
static REFUSED: AtomicUsize = AtomicUsize::new(0);

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;

/// What the standard library starts threads with.
///
/// # Safety
/// As the system's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    if REFUSES.load(Ordering::SeqCst) {
        REFUSED.fetch_add(1, Ordering::SeqCst);
        return libc::EAGAIN;
    }
    // SAFETY: the system's function of this name is of this type; the caller's promise is the one to it.
    unsafe {
        let create = libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr());
        assert!(!create.is_null(), "the system has no threads");
        std::mem::transmute::<*mut c_void, Create>(create)(thread, attributes, start, argument)
    }
}

#[service(crate = hostcall)]
trait Answers {
    fn answer(value: u32) -> u32;
    fn note(value: u32);
}

struct Answering;

impl AnswersAsyncHandler for Answering {
    async fn answer(&self, value: u32) -> Result<u32, CallError> {
        Ok(value + 1)
    }
    async fn note(&self, _value: u32) -> Result<(), CallError> {
        Ok(())
    }
}

/// Calls when it is told to: without threads, and with them.
#[kernel(crate = hostcall)]
fn call_twice(lane: &Lane, told: &[Global<u32>], got: &[Global<u32>]) {
    got[2].set(1);
    for round in 0..2 {
        while told[0].get() <= round {
            lane.pause();
        }
        Answers::post_note(round).unwrap();
        got[round as usize].set(match Answers::answer(round) {
            Ok(answer) => answer,
            Err(CallError::Busy) => 100,
            Err(_) => 200,
        });
    }
}

/// One after the other, since the system is one.
#[test]
fn the_system_refuses_threads() {
    what_needs_a_thread_waits_for_none();
    a_thread_that_was_refused_is_tried_again();
}

/// A host function waits for another one, for which the system had no thread. It goes on when the system has one again, although
/// nobody adds a third.
fn a_thread_that_was_refused_is_tried_again() {
    let device = Device::open("cpu").unwrap();
    let (waiting, other) = (device.stream().unwrap(), device.stream().unwrap());
    let (begins, begun) = mpsc::channel();
    let (calls, called) = mpsc::channel();
    let (ends, ended) = mpsc::channel();
    waiting
        .host_function(move || {
            begins.send(()).unwrap();
            ends.send(called.recv_timeout(LONG)).unwrap();
        })
        .unwrap();
    begun.recv_timeout(LONG).unwrap();
    let refused = REFUSED.load(Ordering::SeqCst);
    REFUSES.store(true, Ordering::SeqCst);
    other.host_function(move || calls.send(()).unwrap()).unwrap();
    let since = Instant::now();
    while REFUSED.load(Ordering::SeqCst) == refused && since.elapsed() < LONG {
        std::thread::yield_now();
    }
    REFUSES.store(false, Ordering::SeqCst);
    ended.recv_timeout(2 * LONG).unwrap().expect("nobody tries to start a thread again");
    other.synchronize_for(LONG).unwrap();
}

/// Host functions run, and calls of async handlers end.
fn what_needs_a_thread_waits_for_none() {
    let device = Device::builder("cpu").async_service(Answers::serve_async(Answering)).open().unwrap();
    let stream = device.stream().unwrap();
    stream.synchronize().unwrap();
    let calling = device.stream().unwrap();
    let (tells, got) = (device.pinned::<u32>(1).unwrap(), device.pinned::<u32>(3).unwrap());
    call_twice.launch(&calling, Grid::new(1, 1), (&tells, &got)).unwrap();
    while got[2].get() == 0 {
        std::thread::yield_now();
    }
    let (go, told) = mpsc::channel();
    let (ends, ended) = mpsc::channel();
    // It is there before threads are refused.
    Builder::new()
        .spawn(move || {
            told.recv().unwrap();
            let (ran, runs) = mpsc::channel();
            stream.host_function(move || ran.send(()).unwrap()).unwrap();
            ends.send((stream.synchronize_for(LONG), runs.try_recv())).unwrap();
        })
        .unwrap();
    REFUSES.store(true, Ordering::SeqCst);
    assert!(Builder::new().spawn(|| ()).is_err());
    go.send(()).unwrap();
    let ended = ended.recv_timeout(2 * LONG);
    tells[0].set(1);
    let begun = Instant::now();
    while got[0].get() == 0 && begun.elapsed() < LONG {
        std::thread::yield_now();
    }
    REFUSES.store(false, Ordering::SeqCst);
    let (synchronized, ran) = ended.expect("the stream hangs");
    synchronized.unwrap();
    ran.unwrap();
    assert_eq!(got[0].get(), 100, "an async handler's call does not end");
    // Threads are tried again.
    tells[0].set(2);
    calling.synchronize_for(LONG).unwrap();
    assert_eq!((got[1].get(), device.statistics().refused_posts), (2, 1));
}
