//! Replays: what they do each time, in which order, and what a failure in the middle does.

use super::*;

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

/// A service that was removed after the capture fails the calls of replays, by name of the node, until it is back.
#[test]
fn replays_need_their_services() {
    let served = Served::default();
    let device = Device::builder("cpu").open().unwrap();
    let stream = device.stream().unwrap();
    let service = device.register_inline(Host::serve(served.clone())).unwrap();
    let graph = stream.capture(LOCAL, |stream| call.launch(stream, ONE, (1u64,)).map(drop)).unwrap();
    let instance = graph.named("step").instantiate().unwrap();
    instance.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    service.remove();
    instance.launch(&stream).unwrap();
    let told = stream.synchronize().unwrap_err().to_string();
    assert!(told.starts_with("step, replay 2, node 0 (call): ") && told.contains("NoSuchService"), "{told}");
    let _service = device.register_inline(Host::serve(served.clone())).unwrap();
    instance.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(served.0.counted.load(Ordering::Relaxed), 2);
}
