//! Graphs: capturing, replaying, what breaks a capture, failures in the middle, who keeps what, bodies, caches.

mod bodies;
mod capture;
mod instances;
mod lists;
mod replays;

use hostcall::device::{DeviceBuffer, Faults, PinnedBuffer, SoftwareDeviceConfig};
use hostcall::graph::{
    AllocCache, CaptureMode, Condition, Graph, GraphError, NodeFailure, NodeId, NodeKind, NodePath, Origin,
    captured, origin,
};
use hostcall::hostcall_device::{Global, Lane, kernel, println, service};
use hostcall::services::Builtins;
use hostcall::{
    CallError, Device, Error, Event, Grid, Hostcall, HostcallRef, LaunchFailure, LaunchKernel, Stream,
};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

const ONE: Grid = Grid::new(1, 1);
const LOCAL: CaptureMode = CaptureMode::ThreadLocal;

#[service]
trait Host {
    /// Counts calls.
    fn count(by: u64) -> u64;
    /// Notes where the call comes from, and says whether to go on.
    fn go_on(turn: u32) -> bool;
    /// Waits for the stream of the test.
    fn wait_for_stream() -> bool;
}

#[derive(Default)]
struct State {
    counted: AtomicU64,
    turns: u32,
    origins: Mutex<Vec<Option<Origin>>>,
    stream: Mutex<Option<Arc<Stream>>>,
}

#[derive(Clone, Default)]
struct Served(Arc<State>);

impl HostHandler for Served {
    fn count(&self, by: u64) -> Result<u64, CallError> {
        self.0.origins.lock().unwrap().push(origin());
        Ok(self.0.counted.fetch_add(by, Ordering::Relaxed))
    }

    fn go_on(&self, turn: u32) -> Result<bool, CallError> {
        self.0.origins.lock().unwrap().push(origin());
        Ok(turn + 1 < self.0.turns)
    }

    fn wait_for_stream(&self) -> Result<bool, CallError> {
        let stream = self.0.stream.lock().unwrap().clone();
        let waited = stream.map(|stream| stream.synchronize());
        Ok(matches!(waited, Some(Err(Error::WouldDeadlock { .. }))))
    }
}

#[kernel]
fn add(lane: &Lane, values: &[Global<u64>], by: u64) {
    let value = &values[lane.global_id()];
    value.set(value.get() + by);
}

mod namesake {
    use hostcall::hostcall_device::{Global, Lane, kernel};

    #[kernel]
    pub fn add(lane: &Lane, values: &[Global<u64>], by: u64) {
        let value = &values[lane.global_id()];
        value.set(value.get() - by);
    }
}

#[kernel]
fn add_plain(lane: &Lane, to: &[Global<u64>], from: &[u64]) {
    let at = lane.global_id();
    to[at].set(to[at].get() + from[at]);
}

#[kernel]
fn call(_: &Lane, by: u64) {
    Host::count(by).unwrap();
}

#[kernel]
fn say(_: &Lane, number: u64) {
    println!("number {number}");
}

#[kernel]
fn panic_if(_: &Lane, word: &Global<u64>) {
    if word.get() != 0 {
        panic!("the word is {}", word.get());
    }
}

#[kernel]
fn call_closure(_: &Lane, closure: HostcallRef<u64, u64>, out: &Global<u64>) {
    out.set(closure.call(out.get()).unwrap());
}

#[kernel]
fn ask(_: &Lane, turn: &Global<u32>, word: &Global<u32>) {
    let go_on = Host::go_on(turn.get()).unwrap();
    turn.set(turn.get() + 1);
    word.set(u32::from(go_on));
}

#[kernel]
fn set_word(_: &Lane, word: &Global<u32>, value: u32) {
    word.set(value);
}

#[kernel]
fn never_ends(lane: &Lane) {
    loop {
        lane.pause();
    }
}

#[kernel]
fn wait_for_gate(lane: &Lane, gate: &Global<u64>) {
    while gate.get() == 0 {
        lane.pause();
    }
}

#[kernel]
fn wait_for_own_stream(_: &Lane, word: &Global<u32>) {
    assert!(Host::wait_for_stream().unwrap(), "the handler was allowed to wait");
    word.set(0);
}

fn open() -> (Device, Stream, Served) {
    let served = Served::default();
    let device = Device::builder("cpu").service(Host::serve(served.clone())).open().unwrap();
    let stream = device.stream().unwrap();
    (device, stream, served)
}

fn broken<T: std::fmt::Debug>(result: Result<T, Error>) -> GraphError {
    match result {
        Err(Error::Graph(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// Another thread may be about to drop what has ended.
fn eventually(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it never happened");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Tells when it is dropped.
struct Told(Arc<AtomicU64>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
