//! Bodies that are skipped, chosen or repeated.

use super::*;

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
    let bytes = device.alloc_zeroed::<u8>(12).unwrap();
    for part in [0..3, 0..8, 1..5] {
        let error = GraphError::ConditionBytes { bytes: part.len() };
        assert_eq!(broken(Condition::word_bytes(&bytes.part(part).unwrap()).map(drop)), error);
    }
    Condition::word_bytes(&bytes.part(4..8).unwrap()).unwrap();
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
    assert!(begin.elapsed() < Duration::from_secs(60));
    assert!(stream.synchronize().is_err());
    assert!(matches!(instance.launch(&stream), Err(Error::Closed)));
}

#[kernel]
fn spin(lane: &Lane, runs: &Global<u64>) {
    runs.set(1);
    while !lane.is_cancelled() {
        lane.pause();
    }
}

/// Who cancels learns which node ran then, also where those before it have not been settled, and where the node ends as soon as
/// it looks.
#[test]
fn cancelled_replays_name_the_node_that_ran() {
    let (device, stream, _) = open();
    let [values, runs] = [(); 2].map(|()| device.alloc_zeroed::<u64>(1).unwrap());
    let three = stream.capture(LOCAL, |stream| {
        add.launch(stream, ONE, (&values, 1))?;
        add.launch(stream, ONE, (&values, 1))?;
        spin.launch(stream, ONE, (&runs,))?;
        add.launch(stream, ONE, (&values, 100)).map(drop)
    });
    let three = three.unwrap();
    let instances = [three.instantiate().unwrap(), endless(&device, &three)];
    for round in 0..20 {
        for (instance, node) in instances.iter().zip([&[2][..], &[0, 0, 2]]) {
            runs.write(&[0]).unwrap();
            let replay = instance.launch(&stream).unwrap();
            eventually(|| runs.read_now().unwrap().is_some_and(|runs| runs == [1]));
            let cause = match round % 2 {
                0 => {
                    replay.cancel();
                    LaunchFailure::Cancelled
                }
                _ => {
                    replay.cancel_after(Duration::from_millis(2));
                    LaunchFailure::TimedOut
                }
            };
            let Err(Error::Replay(failure)) = stream.synchronize() else { panic!("it was cancelled") };
            assert_eq!((failure.node.numbers(), &*failure.what), (node, "spin"), "{failure}");
            assert_eq!(failure.cause, NodeFailure::Launch(cause));
        }
    }
    assert_eq!(values.read().unwrap(), [80]);
}

/// Nor are nodes named that had ended where something else lies between them and the one that ran; and what is behind the replay
/// does not begin.
#[test]
fn rows_that_had_ended_are_not_named() {
    let (device, stream, _) = open();
    let [values, runs, other] = [(); 3].map(|()| device.alloc_zeroed::<u64>(1).unwrap());
    let rows = stream.capture(LOCAL, |stream| {
        add.launch(stream, ONE, (&values, 1))?;
        add.launch(stream, ONE, (&values, 1))?;
        stream.fill(&other, 7)?;
        spin.launch(stream, ONE, (&runs,))?;
        stream.fill(&other, 8)?;
        add.launch(stream, ONE, (&values, 100)).map(drop)
    });
    let instance = rows.unwrap().instantiate().unwrap();
    for _ in 0..20 {
        runs.write(&[0]).unwrap();
        let replay = instance.launch(&stream).unwrap();
        let behind = add.launch(&stream, ONE, (&values, 1000)).unwrap();
        eventually(|| runs.read_now().unwrap().is_some_and(|runs| runs == [1]));
        replay.cancel();
        let Err(Error::Replay(failure)) = stream.synchronize() else { panic!("it was cancelled") };
        assert_eq!((failure.node.numbers(), &*failure.what), (&[3][..], "spin"), "{failure}");
        assert!(behind.wait().is_err());
    }
    assert_eq!(values.read().unwrap(), [40]);
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

#[kernel]
fn wait_for_first(lane: &Lane, gates: &[Global<u64>]) {
    while gates[0].get() == 0 {
        lane.pause();
    }
}

/// What is on the stream of a replay that has ended waits for no later replay of the instance.
#[test]
fn a_handler_waits_for_the_stream_of_an_earlier_replay() {
    let (device, first, _) = open();
    let (first, second) = (Arc::new(first), device.stream().unwrap());
    let gate: PinnedBuffer<u64> = device.pinned(1).unwrap();
    let (calls, waited) = (AtomicU64::new(0), Arc::new(Mutex::new(None)));
    let closure = Hostcall::continuous(&device, {
        let (first, gate, waited) = (first.clone(), gate.clone(), waited.clone());
        move |value: u64| {
            if calls.fetch_add(1, Ordering::Relaxed) == 1 {
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        std::thread::sleep(Duration::from_millis(50));
                        gate[0].set(1);
                    });
                    *waited.lock().unwrap() = Some(first.synchronize());
                });
            }
            value + 1
        }
    })
    .unwrap();
    let values = device.alloc_zeroed::<u64>(1).unwrap();
    let mut body = Graph::new(&device);
    body.add_kernel(&call_closure, ONE, (&closure, &values)).unwrap();
    let mut graph = Graph::new(&device);
    graph.add_if(&Condition::function(|| 1), &body).unwrap();
    let instance = graph.instantiate().unwrap();
    instance.launch(&first).unwrap();
    first.synchronize().unwrap();
    wait_for_first.launch(&first, ONE, (&gate,)).unwrap();
    instance.launch(&second).unwrap();
    second.synchronize().unwrap();
    waited.lock().unwrap().take().unwrap().unwrap();
    assert_eq!(values.read().unwrap(), [2]);
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
