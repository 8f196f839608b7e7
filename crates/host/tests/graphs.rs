//! Graphs: capturing, replaying, what breaks a capture, failures in the middle, who keeps what, bodies, caches.

use hostcall::device::{DeviceBuffer, PinnedBuffer};
use hostcall::graph::{
    AllocCache, CaptureMode, Condition, Graph, GraphError, NodeFailure, NodeKind, Origin, captured, origin,
};
use hostcall::hostcall_device::{Global, Lane, kernel, println, service};
use hostcall::services::Builtins;
use hostcall::{
    CallError, Device, Error, Event, Grid, Hostcall, HostcallRef, LaunchFailure, LaunchKernel, Stream,
};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
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

#[test]
fn replays_do_what_was_captured_each_time() {
    let (device, stream, served) = open();
    let grid = Grid::new(2, 40);
    let (values, copy) = (device.alloc_zeroed::<u64>(80).unwrap(), device.alloc_zeroed::<u64>(80).unwrap());
    let (ones, filled) = (device.alloc_zeroed::<u64>(80).unwrap(), device.alloc_zeroed::<u16>(5).unwrap());
    let functions = Arc::new(AtomicU64::new(0));
    assert!(!stream.is_capturing());
    stream.begin_capture(LOCAL).unwrap();
    assert!(stream.is_capturing());
    stream.write(&ones, &[1; 80]).unwrap();
    let launch = add_plain.launch(&stream, grid, (&values, &ones)).unwrap();
    add.launch(&stream, grid, (&values, 2u64)).unwrap();
    stream.copy(&copy, &values).unwrap();
    stream.fill(&filled, 7).unwrap();
    let counter = functions.clone();
    stream.repeated_function(move || _ = counter.fetch_add(1, Ordering::Relaxed)).unwrap();
    call.launch(&stream, ONE, (5u64,)).unwrap();
    let graph = stream.end_capture().unwrap().named("all");
    assert!(!stream.is_capturing() && stream.is_done());
    let kinds: Vec<_> = graph.nodes().map(|(_, kind, _)| kind).collect();
    use NodeKind::{Copy, Fill, Function, Kernel, Write};
    assert_eq!(kinds, [Write, Kernel, Kernel, Copy, Fill, Function, Kernel]);
    // Nothing was done, and what was captured cannot be waited for.
    assert_eq!(values.read().unwrap(), [0; 80]);
    assert_eq!(broken(launch.wait()), GraphError::Captured { what: "a launch" });
    launch.cancel();
    assert!(!launch.is_done());

    let instance = graph.instantiate().unwrap();
    for round in 1..=50u64 {
        let replay = instance.launch(&stream).unwrap();
        assert_eq!(replay.number(), round);
        if round % 10 == 0 {
            replay.wait().unwrap();
            assert_eq!(copy.read().unwrap(), [3 * round; 80]);
        }
    }
    stream.synchronize().unwrap();
    assert_eq!((values.read().unwrap(), filled.read().unwrap()), (vec![150; 80], vec![7; 5]));
    assert_eq!(functions.load(Ordering::Relaxed), 50);
    assert_eq!(served.0.counted.load(Ordering::Relaxed), 250);
    let origins = served.0.origins.lock().unwrap();
    for (round, origin) in (1..).zip(&*origins) {
        let origin = origin.as_ref().unwrap();
        assert_eq!((&*origin.graph, origin.replay, origin.node.numbers()), ("all", round, &[6][..]));
        assert_eq!((&*origin.kernel, origin.turn), ("call", None));
    }
    // One more launch adds one; a launch by itself is no node.
    drop(origins);
    call.launch(&stream, ONE, (1u64,)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(served.0.counted.load(Ordering::Relaxed), 251);
    assert_eq!(served.0.origins.lock().unwrap().last(), Some(&None));
}

#[test]
fn ten_thousand_replays_with_calls() {
    let served = Served::default();
    let device = Device::builder("cpu").inline_service(Host::serve(served.clone())).open().unwrap();
    let stream = device.stream().unwrap();
    let graph = stream
        .capture(LOCAL, |stream| {
            call.launch(stream, ONE, (1u64,))?;
            call.launch(stream, Grid::new(1, 3), (1u64,)).map(drop)
        })
        .unwrap();
    let instance = graph.instantiate().unwrap();
    for _ in 0..10_000 {
        instance.launch(&stream).unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(served.0.counted.load(Ordering::Relaxed), 40_000);
}

#[test]
fn work_forks_and_joins() {
    let (device, stream, _) = open();
    let other = device.stream().unwrap();
    let [a, b] = [(); 2].map(|()| device.alloc_zeroed::<u64>(1).unwrap());
    let graph = stream
        .capture(LOCAL, |stream| {
            add.launch(stream, ONE, (&a, 1u64))?;
            let fork = stream.record()?;
            other.wait_for(&fork)?;
            assert!(other.is_capturing());
            add.launch(&other, ONE, (&b, 10u64))?;
            add.launch(stream, ONE, (&a, 100u64))?;
            stream.wait_for(&other.record()?)?;
            assert_eq!(broken(fork.wait()), GraphError::Captured { what: "an event" });
            add.launch(stream, ONE, (&b, 1000u64)).map(drop)
        })
        .unwrap();
    assert!(!other.is_capturing());
    let dot = graph.to_dot();
    for edge in ["n0 -> n1;", "n0 -> n2;", "n1 -> n3;", "n2 -> n3;"] {
        assert!(dot.contains(edge), "{dot}");
    }
    let instance = graph.instantiate().unwrap();
    for _ in 0..3 {
        instance.launch(&other).unwrap();
    }
    other.synchronize().unwrap();
    assert_eq!((a.read().unwrap(), b.read().unwrap()), (vec![303], vec![3030]));

    // A fork that nobody joins.
    let left = stream.capture(LOCAL, |stream| {
        other.wait_for(&stream.record()?)?;
        add.launch(&other, ONE, (&a, 1u64)).map(drop)
    });
    assert_eq!(broken(left), GraphError::NotJoined { streams: 1 });
    assert!(!other.is_capturing() && !stream.is_capturing());
    add.launch(&other, ONE, (&a, 1u64)).unwrap();
    other.synchronize().unwrap();
    assert_eq!(a.read().unwrap(), [304]);
}

/// Each way to break a capture gives its reason to the call, to later calls and to the end; the streams are usable then.
#[test]
fn broken_captures_say_why() {
    let (device, stream, _) = open();
    let other = device.stream().unwrap();
    let values = device.alloc_zeroed::<u64>(1).unwrap();
    let once = Hostcall::once(&device, |x: u64| x).unwrap();
    let before: Event = other.record().unwrap();
    let empty = Graph::new(&device).instantiate().unwrap();
    type Break<'a> = Box<dyn Fn(&Stream) -> Result<(), Error> + 'a>;
    let cases: Vec<(GraphError, Break<'_>)> = vec![
        (GraphError::Synchronized { call: "synchronize" }, Box::new(Stream::synchronize)),
        (
            GraphError::Synchronized { call: "synchronize_for" },
            Box::new(|stream| stream.synchronize_for(Duration::from_secs(1))),
        ),
        (GraphError::Read, Box::new(|stream| stream.read(&values).map(drop))),
        (
            GraphError::Allocated { call: "alloc_zeroed" },
            Box::new(|_| device.alloc_zeroed::<u64>(1).map(drop)),
        ),
        (GraphError::Allocated { call: "upload" }, Box::new(|_| device.upload(&[1u64]).map(drop))),
        (
            GraphError::Allocated { call: "pinned" },
            Box::new(|_| device.pinned::<u64>(1).map(|_: PinnedBuffer<u64>| ())),
        ),
        (GraphError::SecondCapture, Box::new(|stream| stream.begin_capture(LOCAL))),
        (GraphError::OneShotFunction, Box::new(|stream| stream.host_function(|| ()))),
        (
            GraphError::OneShotClosure { argument: 0, state: once.state() },
            Box::new(|stream| call_closure.launch(stream, ONE, (&once, &values)).map(drop)),
        ),
        (GraphError::ForeignEvent, Box::new(|stream| stream.wait_for(&before))),
        (GraphError::InstanceLaunched, Box::new(|stream| empty.launch(stream).map(drop))),
        (
            GraphError::OtherThread { call: "launch" },
            Box::new(|stream| {
                let launch = || add.launch(stream, ONE, (&values, 1u64)).map(drop);
                std::thread::scope(|scope| scope.spawn(launch).join().unwrap())
            }),
        ),
    ];
    for (why, break_it) in cases {
        stream.begin_capture(LOCAL).unwrap();
        add.launch(&stream, ONE, (&values, 1u64)).unwrap();
        assert_eq!(broken(break_it(&stream)), why);
        assert_eq!(broken(add.launch(&stream, ONE, (&values, 1u64))), why);
        assert_eq!(broken(stream.end_capture()), why);
        assert!(!stream.is_capturing());
        // By the closed form, also when the work ignores the error.
        let graph = stream.capture(LOCAL, |stream| {
            let _ = break_it(stream);
            Ok(())
        });
        assert_eq!(broken(graph), why);
        add.launch(&stream, ONE, (&values, 1u64)).unwrap();
        stream.synchronize().unwrap();
    }
    assert_eq!(broken(stream.end_capture()), GraphError::NotCapturing { call: "end_capture" });

    // What breaks none: another thread's allocations, host copies, other streams' work and waiting for it.
    let graph = stream.capture(LOCAL, |stream| {
        add.launch(stream, ONE, (&values, 1u64))?;
        std::thread::scope(|scope| {
            scope.spawn(|| device.alloc_zeroed::<u64>(1).unwrap());
        });
        values.write(&[3])?;
        add.launch(&other, ONE, (&values, 1u64))?;
        other.synchronize()?;
        assert_eq!(values.read()?, [4]);
        Ok(())
    });
    assert_eq!(graph.unwrap().len(), 1);
    // Global and relaxed captures.
    let of_other_thread = |mode| {
        stream.capture(mode, |stream| {
            let launch = || add.launch(stream, ONE, (&values, 1u64)).map(drop);
            std::thread::scope(|scope| scope.spawn(launch).join().unwrap())?;
            std::thread::scope(|scope| scope.spawn(|| device.alloc_zeroed::<u64>(1)).join().unwrap())
                .map(drop)
        })
    };
    assert_eq!(broken(of_other_thread(CaptureMode::Global)), GraphError::Allocated { call: "alloc_zeroed" });
    assert_eq!(of_other_thread(CaptureMode::Relaxed).unwrap().len(), 1);
    // A refused launch is no captured one, and breaks nothing.
    let graph = stream.capture(LOCAL, |stream| {
        assert!(matches!(add.launch(stream, Grid::new(0, 1), (&values, 1u64)), Err(Error::Refused(_))));
        add.launch(stream, ONE, (&values, 1u64)).map(drop)
    });
    assert_eq!(graph.unwrap().len(), 1);
}

#[test]
fn a_capture_ends_with_a_panic_a_dropped_stream_and_a_closed_device() {
    let (device, stream, _) = open();
    let values = device.alloc_zeroed::<u64>(1).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        stream.capture(LOCAL, |stream| {
            add.launch(stream, ONE, (&values, 1u64))?;
            panic!("in the middle");
        })
    }));
    assert!(panicked.is_err() && !stream.is_capturing());
    add.launch(&stream, ONE, (&values, 1u64)).unwrap();
    stream.synchronize().unwrap();

    let forked = device.stream().unwrap();
    stream.begin_capture(LOCAL).unwrap();
    forked.wait_for(&stream.record().unwrap()).unwrap();
    drop(forked);
    assert_eq!(broken(stream.end_capture()), GraphError::StreamDropped);
    let forked = device.stream().unwrap();
    stream.begin_capture(LOCAL).unwrap();
    forked.wait_for(&stream.record().unwrap()).unwrap();
    assert_eq!(broken(forked.end_capture()), GraphError::EndedElsewhere);
    drop(stream);
    assert!(!forked.is_capturing());
    assert!(device.alloc_zeroed::<u64>(1).is_ok());

    forked.begin_capture(LOCAL).unwrap();
    device.close();
    assert_eq!(broken(add.launch(&forked, ONE, (&values, 1u64))), GraphError::Closed);
    assert_eq!(broken(forked.end_capture()), GraphError::Closed);
}

/// A panic in the middle ends the replay, says where, and the instance can be launched again.
#[test]
fn a_panic_in_the_middle_names_the_node_and_the_replay() {
    let (device, stream, _) = open();
    let (values, word) = (device.alloc_zeroed::<u64>(1).unwrap(), device.alloc_zeroed::<u64>(1).unwrap());
    let functions = Arc::new(AtomicU64::new(0));
    let counter = functions.clone();
    let graph = stream.capture(LOCAL, |stream| {
        add.launch(stream, ONE, (&values, 1u64))?;
        panic_if.launch(stream, ONE, (&word,))?;
        add.launch(stream, ONE, (&values, 1u64))?;
        stream.repeated_function(move || _ = counter.fetch_add(1, Ordering::Relaxed))?;
        add.launch(stream, ONE, (&values, 1u64)).map(drop)
    });
    let instance = graph.unwrap().named("step").instantiate().unwrap();
    let mut expected = 0;
    for round in 1..=20u64 {
        word.write(&[(round % 2) * round]).unwrap();
        let replay = instance.launch(&stream).unwrap();
        let told = stream.synchronize();
        if round % 2 == 0 {
            told.unwrap();
            replay.wait().unwrap();
            expected += 3;
        } else {
            let Err(Error::Replay(failure)) = told else { panic!("{told:?}") };
            let text = failure.to_string();
            assert!(text.starts_with(&format!("step, replay {round}, node 1 (panic_if): ")), "{text}");
            assert!(text.contains(&format!("the word is {round}")), "{text}");
            let panicked =
                |cause: &NodeFailure| matches!(cause, NodeFailure::Launch(LaunchFailure::Panicked { .. }));
            assert!(panicked(&failure.cause), "{failure:?}");
            assert!(matches!(replay.wait(), Err(Error::Replay(same)) if same == failure));
            expected += 1;
        }
        assert_eq!(values.read().unwrap(), [expected]);
    }
    assert_eq!(functions.load(Ordering::Relaxed), 10);
    // Replays behind one that failed are skipped, until the failure was told.
    word.write(&[1]).unwrap();
    let replays = [(); 3].map(|()| instance.launch(&stream).unwrap());
    assert!(matches!(stream.synchronize(), Err(Error::Replay(failure)) if failure.replay == 21));
    for skipped in &replays[1..] {
        let Err(Error::Replay(failure)) = skipped.wait() else { panic!("{skipped:?}") };
        assert_eq!(failure.cause, NodeFailure::Launch(LaunchFailure::Skipped));
    }
}

#[test]
fn a_function_that_panics_ends_the_replay() {
    let (device, stream, _) = open();
    let values = device.alloc_zeroed::<u64>(1).unwrap();
    let panics = Arc::new(AtomicBool::new(true));
    let flag = panics.clone();
    let graph = stream.capture(LOCAL, |stream| {
        add.launch(stream, ONE, (&values, 1u64))?;
        stream.repeated_function(move || assert!(!flag.load(Ordering::Relaxed), "the flag is set"))?;
        add.launch(stream, ONE, (&values, 1u64)).map(drop)
    });
    let instance = graph.unwrap().instantiate().unwrap();
    instance.launch(&stream).unwrap();
    let Err(Error::Replay(failure)) = stream.synchronize() else { panic!("it was not told") };
    assert_eq!(failure.cause, NodeFailure::Function { message: "the flag is set".into() });
    assert_eq!((failure.node.numbers(), values.read().unwrap()), (&[1][..], vec![1]));
    panics.store(false, Ordering::Relaxed);
    instance.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(values.read().unwrap(), [3]);
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

#[test]
fn an_instance_keeps_what_its_nodes_use() {
    let (device, stream, _) = open();
    let dropped = Arc::new(AtomicU64::new(0));
    let out = device.alloc_zeroed::<u64>(1).unwrap();
    let instance = {
        let scratch = device.alloc_zeroed::<u64>(1).unwrap();
        let told = Told(dropped.clone());
        let closure = Hostcall::continuous(&device, move |x: u64| {
            let _ = &told;
            x + 1
        })
        .unwrap();
        let told = Told(dropped.clone());
        let graph = stream.capture(LOCAL, |stream| {
            stream.write(&scratch, &[41])?;
            call_closure.launch(stream, ONE, (&closure, &scratch))?;
            stream.repeated_function(move || _ = &told)?;
            stream.copy(&out, &scratch)
        });
        graph.unwrap().instantiate().unwrap()
    };
    for _ in 0..3 {
        out.write(&[0]).unwrap();
        instance.launch(&stream).unwrap();
        assert_eq!(out.read().unwrap(), [42]);
    }
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    // A replay on its way keeps it too.
    let gate = device.alloc_zeroed::<u64>(1).unwrap();
    wait_for_gate.launch(&stream, ONE, (&gate,)).unwrap();
    out.write(&[0]).unwrap();
    instance.launch(&stream).unwrap();
    drop(instance);
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    assert!(gate.write_now(&[1]).unwrap());
    stream.synchronize().unwrap();
    assert_eq!(out.read().unwrap(), [42]);
    eventually(|| dropped.load(Ordering::Relaxed) == 2);
}

/// Replays of one instance follow each other on any streams, and conflicting work of others waits for a whole replay.
#[test]
fn replays_are_ordered() {
    let (device, stream, _) = open();
    let others: Vec<_> = (0..4).map(|_| device.stream().unwrap()).collect();
    let (values, from) = (device.alloc_zeroed::<u64>(1).unwrap(), device.upload(&[1u64]).unwrap());
    let graph = stream.capture(LOCAL, |stream| {
        // Both read and write, so that replays beside each other would lose some.
        for _ in 0..5 {
            add_plain.launch(stream, ONE, (&values, &from))?;
        }
        Ok(())
    });
    let instance = graph.unwrap().instantiate().unwrap();
    std::thread::scope(|scope| {
        for other in &others {
            scope.spawn(|| {
                for _ in 0..100 {
                    instance.launch(other).unwrap();
                }
            });
        }
    });
    // The host's copies wait too.
    assert_eq!(values.read().unwrap(), [2000]);
    from.write(&[2]).unwrap();
    instance.launch(&others[0]).unwrap();
    stream.fill(&from, 0).unwrap();
    instance.launch(&others[1]).unwrap();
    assert_eq!(values.read().unwrap(), [2010]);
    for other in &others {
        other.synchronize().unwrap();
    }
}

#[test]
fn nodes_made_by_hand() {
    let (device, stream, _) = open();
    let values = device.alloc_zeroed::<u64>(4).unwrap();
    let mut graph = Graph::new(&device).named("hand");
    assert_eq!((graph.name(), graph.is_empty()), ("hand", true));
    // Added last, done first.
    let double = graph.add_kernel(&add_plain, Grid::new(1, 4), (&values, &values));
    assert!(matches!(double, Err(Error::Refused(_))), "what is read plainly is not written");
    let last = graph.add_kernel(&add, Grid::new(1, 4), (&values, 1u64)).unwrap();
    let first = graph.add_fill(&values, 5).unwrap();
    let middle = graph.add_empty();
    graph.edge(first, middle).unwrap();
    graph.edge(middle, last).unwrap();
    assert_eq!(graph.find("add"), Some(last));
    let instance = graph.instantiate().unwrap();
    instance.launch(&stream).unwrap();
    assert_eq!(values.read().unwrap(), [6; 4]);

    graph.edge(last, first).unwrap();
    assert!(matches!(broken(graph.instantiate()), GraphError::Circle { .. }));
    let mut small = Graph::new(&device);
    assert!(matches!(broken(small.edge(first, last)), GraphError::NoSuchNode { nodes: 0, .. }));
    let once = Hostcall::once(&device, |x: u64| x).unwrap();
    let refused = small.add_kernel(&call_closure, ONE, (&once, &values));
    assert!(matches!(broken(refused), GraphError::OneShotClosure { argument: 0, .. }));
    // Other devices' buffers, graphs and streams.
    let (other, other_stream, _) = open();
    let foreign = other.alloc_zeroed::<u64>(4).unwrap();
    assert!(matches!(small.add_fill(&foreign, 1), Err(Error::OtherDevice { .. })));
    assert!(matches!(small.add_graph(&Graph::new(&other)), Err(Error::OtherDevice { .. })));
    assert!(matches!(instance.launch(&other_stream), Err(Error::OtherDevice { .. })));

    // Graphs in graphs.
    let mut inner = Graph::new(&device);
    inner.add_kernel(&add, Grid::new(1, 4), (&values, 10u64)).unwrap();
    let mut outer = Graph::new(&device);
    let clear = outer.add_fill(&values, 0).unwrap();
    let (one, two) = (outer.add_graph(&inner).unwrap(), outer.add_graph(&inner).unwrap());
    outer.edge(clear, one).unwrap();
    outer.edge(one, two).unwrap();
    let captured = stream.capture(LOCAL, |stream| {
        stream.add_graph(&outer)?;
        add.launch(stream, Grid::new(1, 4), (&values, 1u64)).map(drop)
    });
    captured.unwrap().instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(values.read().unwrap(), [21; 4]);
    assert_eq!(broken(stream.add_graph(&outer)), GraphError::NotCapturing { call: "add_graph" });
    let mut deep = Graph::new(&device);
    for _ in 0..40 {
        let mut around = Graph::new(&device);
        around.add_graph(&deep).unwrap();
        deep = around;
    }
    assert!(matches!(broken(deep.instantiate()), GraphError::TooDeep { .. }));
}

#[test]
fn arguments_are_set_and_graphs_updated() {
    let (device, stream, _) = open();
    let [a, b] = [(); 2].map(|()| device.alloc_zeroed::<u64>(2).unwrap());
    let build = |to: &DeviceBuffer<u64>, by: u64| {
        let graph = stream.capture(LOCAL, |stream| {
            add.launch(stream, ONE, (to, by))?;
            stream.repeated_function(|| ())
        });
        graph.unwrap()
    };
    let graph = build(&a, 1);
    let node = graph.find("add").unwrap();
    let instance = graph.instantiate().unwrap();
    instance.launch(&stream).unwrap();
    instance.set(node, &add, Grid::new(1, 2), (&b, 10u64)).unwrap();
    instance.launch(&stream).unwrap();
    assert_eq!((a.read().unwrap(), b.read().unwrap()), (vec![1, 0], vec![10, 10]));
    let refused = instance.set(node, &call, ONE, (1u64,));
    assert!(matches!(broken(refused), GraphError::OtherKernel { .. }));
    assert!(matches!(instance.set(node, &add, Grid::new(0, 1), (&b, 10u64)), Err(Error::Refused(_))));
    let function = graph.nodes().nth(1).unwrap().0;
    assert!(matches!(broken(instance.set(function, &add, ONE, (&b, 1u64))), GraphError::OtherKernel { .. }));

    assert!(instance.update(&build(&a, 100)));
    instance.launch(&stream).unwrap();
    assert_eq!((a.read().unwrap(), b.read().unwrap()), (vec![101, 0], vec![10, 10]));
    let mut other = build(&a, 1);
    other.add_empty();
    assert!(!instance.update(&other));
    let error = instance.try_update(&other).unwrap_err().to_string();
    assert_eq!(error, "the instance cannot be updated: node 2: there are 2 nodes, and 3 in the new graph");
    let mut other = Graph::new(&device);
    other.add_kernel(&call, ONE, (1u64,)).unwrap();
    let error = instance.try_update(&other).unwrap_err().to_string();
    assert_eq!(error, "the instance cannot be updated: node 0: it launches add, and call in the new graph");
}

#[test]
fn work_is_run_once_where_it_must_be() {
    let (device, stream, _) = open();
    let values = device.alloc_zeroed::<u64>(1).unwrap();
    let (mut scratch, mut runs) = (None, 0);
    let graph = captured(&stream, |stream| {
        runs += 1;
        if scratch.is_none() {
            scratch = Some(device.upload(&[5u64])?);
        }
        add_plain.launch(stream, ONE, (&values, scratch.as_ref().unwrap())).map(drop)
    });
    let graph = graph.unwrap();
    assert_eq!((runs, graph.len(), values.read().unwrap()), (3, 1, vec![5]));
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(values.read().unwrap(), [10]);
    // What is never over; what is no reason to run the work; what the work gives.
    let always = captured(&stream, |_| device.alloc_zeroed::<u64>(1).map(drop));
    assert_eq!(broken(always), GraphError::Allocated { call: "alloc_zeroed" });
    let mut runs = 0;
    let never = captured(&stream, |stream| {
        runs += 1;
        stream.host_function(|| ())
    });
    assert_eq!((broken(never), runs), (GraphError::OneShotFunction, 1));
    assert!(matches!(captured(&stream, |_| Err(Error::Closed)), Err(Error::Closed)));
    let panicked = catch_unwind(AssertUnwindSafe(|| captured(&stream, |_| panic!("in the work"))));
    assert!(panicked.is_err() && !stream.is_capturing());
    stream.synchronize().unwrap();
}

#[test]
fn a_cache_hands_out_the_same_memory() {
    let (device, stream, _) = open();
    let cache = AllocCache::new(&device);
    let work = |stream: &Stream| -> Result<DeviceBuffer<u64>, Error> {
        let (sum, ones) = (device.alloc_zeroed::<u64>(8)?, device.alloc_zeroed::<u64>(8)?);
        stream.fill(&ones, 1)?;
        add_plain.launch(stream, Grid::new(1, 8), (&sum, &ones))?;
        Ok(sum)
    };
    let (mut sum, mut addresses) = (None, Vec::new());
    for _ in 0..3 {
        let graph = cache.with(|| {
            stream.capture(LOCAL, |stream| {
                sum = Some(work(stream)?);
                Ok(())
            })
        });
        let sum = sum.as_ref().unwrap();
        assert_eq!(sum.read().unwrap(), [0; 8], "it is zeroed when it is handed out");
        let instance = graph.unwrap().instantiate().unwrap();
        for _ in 0..4 {
            instance.launch(&stream).unwrap();
        }
        assert_eq!(sum.read().unwrap(), [4; 8]);
        addresses.push(sum.address());
        assert_eq!(broken(cache.clear()), GraphError::CacheInUse { allocations: 2 });
    }
    assert!(addresses.iter().all(|address| *address == addresses[0]) && cache.len() == 2);
    stream.synchronize().unwrap();
    eventually(|| cache.clear().is_ok());
    assert!(cache.is_empty());
    // Under a cache of another device nothing is cached, and the capture breaks.
    let (other, ..) = open();
    let foreign = AllocCache::new(&other);
    let graph = foreign.with(|| stream.capture(LOCAL, |stream| work(stream).map(drop)));
    assert_eq!(broken(graph), GraphError::Allocated { call: "alloc_zeroed" });
    assert!(foreign.is_empty());
}

/// A loop that asks the host: its calls know the turn.
#[test]
fn a_loop_asks_the_host() {
    let served = Served(Arc::new(State { turns: 7, ..State::default() }));
    let device = Device::builder("cpu").service(Host::serve(served.clone())).open().unwrap();
    let stream = device.stream().unwrap();
    let (turn, word) = (device.alloc_zeroed::<u32>(1).unwrap(), device.alloc_zeroed::<u32>(1).unwrap());
    let body = stream.capture(LOCAL, |stream| ask.launch(stream, ONE, (&turn, &word)).map(drop)).unwrap();
    let mut graph = Graph::new(&device).named("loop");
    let begin = graph.add_write(&turn, &[0]).unwrap();
    let set = graph.add_write(&word, &[1]).unwrap();
    let node = graph.add_while(&Condition::word(&word).unwrap(), &body).unwrap();
    graph.edge(begin, set).unwrap();
    graph.edge(set, node).unwrap();
    let instance = graph.instantiate().unwrap();
    for _ in 0..20 {
        instance.launch(&stream).unwrap();
        // Work behind it waits for it.
        add_u32.launch(&stream, ONE, (&turn,)).unwrap();
        assert_eq!(turn.read().unwrap(), [8]);
    }
    stream.synchronize().unwrap();
    let origins = served.0.origins.lock().unwrap();
    for (at, origin) in (0..).zip(&*origins) {
        let origin = origin.as_ref().unwrap();
        assert_eq!((origin.replay, origin.turn), (at / 7 + 1, Some(at % 7)));
        assert_eq!(origin.node.to_string(), "2.0.0");
    }
    assert_eq!(origins.len(), 140);
    assert_eq!(
        broken(Condition::word(&device.alloc_zeroed(2).unwrap()).map(drop)),
        GraphError::Condition { len: 2 }
    );
}

#[kernel]
fn add_u32(_: &Lane, value: &Global<u32>) {
    value.set(value.get() + 1);
}

#[test]
fn bodies_are_chosen() {
    let (device, stream, _) = open();
    let (values, word) = (device.alloc_zeroed::<u64>(1).unwrap(), device.alloc_zeroed::<u32>(1).unwrap());
    let by = |by: u64| {
        let mut graph = Graph::new(&device);
        graph.add_kernel(&add, ONE, (&values, by)).unwrap();
        graph
    };
    let (one, ten, hundred) = (by(1), by(10), by(100));
    let on = Condition::word(&word).unwrap();
    let mut graph = Graph::new(&device);
    let nodes = [
        graph.add_if(&on, &one).unwrap(),
        graph.add_if_else(&on, &ten, &hundred).unwrap(),
        graph.add_switch(&Condition::function(|| 1), &[&one, &ten]).unwrap(),
        graph.add_switch(&Condition::function(|| 9), &[&one, &ten]).unwrap(),
    ];
    nodes.windows(2).for_each(|pair| graph.edge(pair[0], pair[1]).unwrap());
    let instance = graph.instantiate().unwrap();
    for (value, sum) in [(0, 110), (1, 131)] {
        set_word.launch(&stream, ONE, (&word, value)).unwrap();
        instance.launch(&stream).unwrap();
        assert_eq!(values.read().unwrap(), [sum]);
    }
    // A loop in a loop, with functions and a copy in the body.
    let left = Arc::new(AtomicU64::new(0));
    let counter = left.clone();
    let inner_word = device.alloc_zeroed::<u32>(1).unwrap();
    let mut inner = Graph::new(&device);
    let step = inner.add_kernel(&add, ONE, (&values, 1000u64)).unwrap();
    let end = inner.add_fill(&inner_word, 0).unwrap();
    inner.edge(step, end).unwrap();
    let mut outer = Graph::new(&device);
    let set = outer.add_fill(&inner_word, 1).unwrap();
    let inner = outer.add_while(&Condition::word(&inner_word).unwrap(), &inner).unwrap();
    let count = outer.add_function(move || _ = counter.fetch_sub(1, Ordering::Relaxed));
    outer.edge(set, inner).unwrap();
    outer.edge(inner, count).unwrap();
    let mut graph = Graph::new(&device);
    let looked = left.clone();
    graph.add_while(&Condition::function(move || looked.load(Ordering::Relaxed) as u32), &outer).unwrap();
    left.store(5, Ordering::Relaxed);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!((values.read().unwrap(), left.load(Ordering::Relaxed)), (vec![5131], 0));
    // A condition that panics ends the replay.
    let mut graph = Graph::new(&device);
    graph.add_while(&Condition::function(|| panic!("no condition")), &outer).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    let Err(Error::Replay(failure)) = stream.synchronize() else { panic!("it was not told") };
    assert_eq!(failure.cause, NodeFailure::Function { message: "no condition".into() });
}

/// A panic in a body says in which turn; the rest is skipped, and the instance can be launched again.
#[test]
fn a_panic_in_a_body_names_the_turn() {
    let (device, stream, _) = open();
    let (values, word) = (device.alloc_zeroed::<u64>(1).unwrap(), device.alloc_zeroed::<u64>(1).unwrap());
    let turns = Arc::new(AtomicU64::new(0));
    let counter = turns.clone();
    let mut body = Graph::new(&device);
    let add_one = body.add_kernel(&add, ONE, (&word, 0u64)).unwrap();
    let panics = body.add_kernel(&panic_if, ONE, (&word,)).unwrap();
    body.edge(add_one, panics).unwrap();
    let mut graph = Graph::new(&device).named("steps");
    let go_on = Condition::function(move || u32::from(counter.fetch_add(1, Ordering::Relaxed) < 4));
    let node = graph.add_while(&go_on, &body).unwrap();
    let last = graph.add_kernel(&add, ONE, (&values, 1u64)).unwrap();
    graph.edge(node, last).unwrap();
    let instance = graph.instantiate().unwrap();
    instance.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    word.write(&[9]).unwrap();
    turns.store(0, Ordering::Relaxed);
    instance.launch(&stream).unwrap();
    let Err(Error::Replay(failure)) = stream.synchronize() else { panic!("it was not told") };
    let text = failure.to_string();
    assert!(text.starts_with("steps, replay 2, node 0.0.1 (panic_if), turn 0: "), "{text}");
    word.write(&[0]).unwrap();
    turns.store(0, Ordering::Relaxed);
    instance.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(values.read().unwrap(), [2]);
}

fn endless(device: &Device, body: &Graph) -> hostcall::graph::Instance {
    let mut graph = Graph::new(device).named("endless");
    graph.add_while(&Condition::function(|| 1), body).unwrap();
    graph.instantiate().unwrap()
}

/// Cancelling, limits and closing end a loop that goes on for ever: with an empty body, one that calls, one that hangs.
#[test]
fn loops_for_ever_are_ended() {
    let cause = |result: Result<(), Error>| match result {
        Err(Error::Replay(failure)) => failure.cause,
        other => panic!("{other:?}"),
    };
    let (device, stream, served) = open();
    let bodies = [
        Graph::new(&device),
        stream.capture(LOCAL, |stream| call.launch(stream, ONE, (1u64,)).map(drop)).unwrap(),
        stream.capture(LOCAL, |stream| never_ends.launch(stream, ONE, ()).map(drop)).unwrap(),
    ];
    for (number, body) in bodies.iter().enumerate() {
        let instance = endless(&device, body);
        let replay = instance.launch(&stream).unwrap();
        let timed_out = stream.synchronize_for(Duration::from_millis(30));
        assert!(matches!(timed_out, Err(Error::TimedOut { .. })), "{timed_out:?}");
        replay.cancel();
        assert_eq!(cause(replay.wait()), NodeFailure::Launch(LaunchFailure::Cancelled), "body {number}");
        assert!(stream.synchronize().is_err());

        let replay = instance.launch(&stream).unwrap();
        replay.cancel_after(Duration::from_millis(30));
        assert_eq!(
            cause(stream.synchronize()),
            NodeFailure::Launch(LaunchFailure::TimedOut),
            "body {number}"
        );
        assert!(replay.is_done());

        instance.launch(&stream).unwrap();
        let behind = instance.launch(&stream).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        device.cancel_all();
        assert_eq!(cause(stream.synchronize()), NodeFailure::Launch(LaunchFailure::Cancelled));
        assert!(behind.wait().is_err());
        call.launch(&stream, ONE, (1u64,)).unwrap();
        stream.synchronize().unwrap();
    }
    assert!(served.0.counted.load(Ordering::Relaxed) > 3);
    let instance = endless(&device, &bodies[1]);
    instance.launch(&stream).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let begin = Instant::now();
    device.close();
    assert!(begin.elapsed() < Duration::from_secs(4));
    assert!(stream.synchronize().is_err());
    assert!(matches!(instance.launch(&stream), Err(Error::Closed)));
}

#[test]
fn a_handler_does_not_wait_for_its_own_replay() {
    let (device, stream, served) = open();
    let stream = Arc::new(stream);
    let word = device.upload(&[1u32]).unwrap();
    let body =
        stream.capture(LOCAL, |stream| wait_for_own_stream.launch(stream, ONE, (&word,)).map(drop)).unwrap();
    *served.0.stream.lock().unwrap() = Some(stream.clone());
    let mut graph = Graph::new(&device);
    graph.add_while(&Condition::word(&word).unwrap(), &body).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    stream.synchronize().unwrap();
    *served.0.stream.lock().unwrap() = None;
}

/// More loops at once than there are threads of host functions, all with functions in their bodies.
#[test]
fn many_loops_at_once() {
    let (device, stream, _) = open();
    let values = device.alloc_zeroed::<u64>(100).unwrap();
    let streams: Vec<_> = (0..100).map(|_| device.stream().unwrap()).collect();
    for (at, other) in streams.iter().enumerate() {
        let own = values.part(at..=at).unwrap();
        let left = Arc::new(AtomicU64::new(3));
        let mut body = Graph::new(&device);
        let step = body.add_kernel(&add, ONE, (&own, 1u64)).unwrap();
        let counter = left.clone();
        let count = body.add_function(move || _ = counter.fetch_sub(1, Ordering::Relaxed));
        body.edge(step, count).unwrap();
        let mut graph = Graph::new(&device);
        graph.add_while(&Condition::function(move || left.load(Ordering::Relaxed) as u32), &body).unwrap();
        graph.instantiate().unwrap().launch(other).unwrap();
    }
    for other in &streams {
        other.synchronize().unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(values.read().unwrap(), [3; 100]);
}

#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What kernels of a replay print is there when the stream was waited for, in order, also from bodies.
#[test]
fn prints_come_in_order() {
    let output = Output::default();
    let builtins = Builtins::builder().stdin(std::io::empty()).stdout(output.clone()).build().unwrap();
    let device = Device::builder("cpu").builtins(builtins).open().unwrap();
    let stream = device.stream().unwrap();
    let left = Arc::new(AtomicU64::new(0));
    let looked = left.clone();
    let body = stream.capture(LOCAL, |stream| say.launch(stream, ONE, (2u64,)).map(drop)).unwrap();
    let mut looping = Graph::new(&device);
    let go_on = move || u32::from(looked.fetch_add(1, Ordering::Relaxed) % 3 != 2);
    looping.add_while(&Condition::function(go_on), &body).unwrap();
    let graph = stream.capture(LOCAL, |stream| {
        say.launch(stream, ONE, (1u64,))?;
        stream.add_graph(&looping)?;
        say.launch(stream, ONE, (3u64,)).map(drop)
    });
    let instance = graph.unwrap().instantiate().unwrap();
    for _ in 0..5 {
        instance.launch(&stream).unwrap();
        stream.synchronize().unwrap();
    }
    let text = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text, "number 1\nnumber 2\nnumber 2\nnumber 3\n".repeat(5));
}
