//! Capturing: forks and joins, what breaks a capture, work that must first run once.

use super::*;

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

/// Errors name what was called.
#[test]
fn channels_break_captures_by_their_own_names() {
    use hostcall::raw::{Block, Placement, RawChannel};
    let (device, stream, _) = open();
    let made = || RawChannel::<u64, Block>::new(&device, 16, 4096).map(drop);
    let placed = || RawChannel::<u64, Block>::placed(&device, Placement::Staged, 16, 4096).map(drop);
    assert_eq!(broken(stream.capture(LOCAL, |_| made())), GraphError::Allocated { call: "RawChannel::new" });
    assert_eq!(
        broken(stream.capture(LOCAL, |_| placed())),
        GraphError::Allocated { call: "RawChannel::placed" }
    );
    made().unwrap();
    placed().unwrap();
}

/// Each way to break a capture gives its reason to the call and to the end, and later calls are told that it is broken; the
/// streams are usable then.
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
        let later = GraphError::Broken { why: Box::new(why.clone()) };
        assert_eq!(broken(add.launch(&stream, ONE, (&values, 1u64))), later);
        assert_eq!(broken(stream.begin_capture(LOCAL)), later);
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
    let kept = std::cell::RefCell::new(Vec::new());
    // What is never over; what is no reason to run the work; what the work gives.
    let always = captured(&stream, |_| {
        kept.borrow_mut().push(device.alloc_zeroed::<u64>(1)?);
        Ok(())
    });
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

/// Memory that is allocated and dropped in a capture has its first values at each replay, and is the graph's.
#[test]
fn memory_is_allocated_and_dropped_in_captures() {
    let (device, stream, _) = open();
    let values = device.alloc_zeroed::<u64>(4).unwrap();
    let grid = Grid::new(1, 4);
    for mode in [LOCAL, CaptureMode::Global] {
        values.write(&[0; 4]).unwrap();
        let mut addresses = Vec::new();
        let graph = stream.capture(mode, |stream| {
            for by in 1..=3 {
                // 1 to 4 and as many times `by`.
                let first = device.upload(&[1u64, 2, 3, 4])?;
                let sum = device.alloc_zeroed::<u64>(4)?;
                addresses.extend([first.address(), sum.address()]);
                add_plain.launch(stream, grid, (&sum, &first))?;
                add.launch(stream, grid, (&sum, by))?;
                add_plain.launch(stream, grid, (&values, &sum))?;
                for refused in [sum.read().map(drop), first.write(&[0; 4]), sum.read_now().map(drop)] {
                    assert!(matches!(broken(refused), GraphError::CapturedMemory { .. }));
                }
            }
            Ok(())
        });
        assert_eq!(graph.as_ref().unwrap().len(), 15);
        // What was dropped is handed out again.
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), 2);
        let instance = graph.unwrap().instantiate().unwrap();
        for _ in 0..5 {
            instance.launch(&stream).unwrap();
        }
        let expected = [1u64, 2, 3, 4].map(|first| 5 * (3 * first + 1 + 2 + 3));
        assert_eq!(values.read().unwrap(), expected);
        stream.synchronize().unwrap();
    }
}

/// Memory that outlives its capture breaks it, and is then as any other; so is an allocation that could be of two captures.
#[test]
fn memory_that_outlives_its_capture_breaks_it() {
    let (device, stream, _) = open();
    let mut kept = None;
    let graph = stream.capture(LOCAL, |stream| {
        let buffer = device.upload(&[7u64])?;
        add.launch(stream, ONE, (&buffer, 1u64))?;
        kept = Some(buffer);
        Ok(())
    });
    assert_eq!(broken(graph), GraphError::Allocated { call: "upload" });
    let kept = kept.unwrap();
    assert_eq!(kept.read().unwrap(), [7]);
    add.launch(&stream, ONE, (&kept, 1u64)).unwrap();
    assert_eq!(kept.read().unwrap(), [8]);

    let other = device.stream().unwrap();
    for stream in [&stream, &other] {
        stream.begin_capture(LOCAL).unwrap();
    }
    let why = GraphError::Allocated { call: "alloc_zeroed" };
    assert_eq!(broken(device.alloc_zeroed::<u64>(1)), why);
    assert_eq!([&stream, &other].map(|stream| broken(stream.end_capture())), [why.clone(), why]);
    // A condition's word may be the graph's own: it is 0 when each replay begins.
    let body = Graph::new(&device);
    let graph = stream.capture(LOCAL, |stream| {
        let word = device.alloc_zeroed::<u32>(1)?;
        let mut looping = Graph::new(&device);
        looping.add_while(&Condition::word(&word)?, &body)?;
        stream.add_graph(&looping)
    });
    graph.unwrap().instantiate().unwrap().launch(&stream).unwrap().wait().unwrap();
}

#[test]
fn captures_that_other_threads_end_are_over() {
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let start = Barrier::new(3);
    let turns = || {
        let mut kept = Vec::new();
        start.wait();
        for _ in 0..100_000 {
            // Each may end what the other one began.
            let _ = stream.begin_capture(CaptureMode::Global);
            kept.extend(stream.record());
            let _ = stream.end_capture();
        }
        kept
    };
    let kept = std::thread::scope(|scope| [(); 3].map(|()| scope.spawn(turns)).map(|turns| turns.join()));
    let _ = stream.end_capture();
    assert!(!stream.is_capturing());
    // The events have their captures, which concern no allocation any more.
    device.alloc_zeroed::<u64>(1).unwrap();
    stream.synchronize().unwrap();
    drop(kept);
}
