//! Kernels in a row, which the device takes at once: what differs from replay to replay, failures and cancellations in the
//! middle, changing streams, and the ends of instances and devices.

use super::*;

#[kernel]
fn panic_at(_: &Lane, word: &Global<u64>, place: u64) {
    if word.get() == place {
        panic!("place {place} panics");
    }
}

/// Waits while the word is its place, and says so.
#[kernel]
fn wait_at(lane: &Lane, word: &Global<u64>, place: u64, waits: &Global<u64>) {
    while word.get() == place {
        waits.set(1);
        lane.pause();
    }
}

/// Does so by calls, as long as these are answered.
#[kernel]
fn ask_at(_: &Lane, word: &Global<u64>, place: u64, waits: &Global<u64>) {
    if word.get() == place {
        while Host::count(0).is_ok() {
            waits.set(1);
        }
    }
}

const KERNELS: u64 = 100;

fn row(stream: &Stream, work: impl Fn(u64) -> Result<(), Error>) -> hostcall::graph::Instance {
    let graph = stream.capture(LOCAL, |_| (0..KERNELS).try_for_each(work));
    graph.unwrap().named("row").instantiate().unwrap()
}

/// Each launch of each replay has an id of its own and is found by it, with a list and without.
#[test]
fn each_call_of_a_row_has_its_origin() {
    let (_device, stream, served) = open();
    let instance = row(&stream, |_| call.launch(&stream, ONE, (1u64,)).map(drop));
    instance.upload(&stream).unwrap();
    for _ in 0..50 {
        instance.launch(&stream).unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(served.0.counted.load(Ordering::Relaxed), 50 * KERNELS);
    let origins = served.0.origins.lock().unwrap();
    let mut expected = (1..=50).flat_map(|replay| (0..KERNELS as u32).map(move |node| (replay, node)));
    for origin in origins.iter().map(|origin| origin.as_ref().unwrap()) {
        assert_eq!((&*origin.graph, &*origin.kernel), ("row", "call"));
        assert_eq!(Some((origin.replay, origin.node.numbers()[0])), expected.next());
    }
    assert_eq!(expected.next(), None);
}

#[test]
fn a_panic_in_a_list_names_its_node() {
    let (device, stream, _) = open();
    let (values, word) = (device.alloc_zeroed::<u64>(1).unwrap(), device.alloc_zeroed::<u64>(1).unwrap());
    let graph = stream.capture(LOCAL, |stream| {
        (0..KERNELS / 2).try_for_each(|at| {
            panic_at.launch(stream, ONE, (&word, 2 * at))?;
            add.launch(stream, ONE, (&values, 1u64)).map(drop)
        })
    });
    let instance = graph.unwrap().named("row").instantiate().unwrap();
    instance.upload(&stream).unwrap();
    let mut added = 0;
    for (replay, place) in (1..).zip([56, u64::MAX, 0, 98, 2, u64::MAX]) {
        word.write(&[place]).unwrap();
        let launched = instance.launch(&stream).unwrap();
        let behind = add.launch(&stream, ONE, (&values, 1000u64)).unwrap();
        let told = stream.synchronize();
        if place == u64::MAX {
            told.unwrap();
            added += KERNELS / 2 + 1000;
        } else {
            let text = told.unwrap_err().to_string();
            let begin = format!("row, replay {replay}, node {place} (panic_at): ");
            assert!(text.starts_with(&begin) && text.contains(&format!("place {place} panics")), "{text}");
            assert!(launched.wait().unwrap_err().to_string() == text);
            assert!(behind.wait().is_err(), "what is behind a failure is skipped");
            added += place / 2;
        }
        assert_eq!(values.read().unwrap(), [added]);
    }
}

/// A list that runs is ended, and nothing of it or behind it goes on; then the instance can be launched again. So it is with
/// one that has not begun.
#[test]
fn lists_are_cancelled_and_limited_in_the_middle() {
    let (device, stream, _) = open();
    let [word, is_waiting] = [(); 2].map(|()| device.alloc_zeroed::<u64>(1).unwrap());
    let wait_until_one_waits =
        || eventually(|| is_waiting.read_now().unwrap().is_some_and(|waits| waits == [1]));
    let waits = row(&stream, |at| wait_at.launch(&stream, ONE, (&word, at, &is_waiting)).map(drop));
    let asks = row(&stream, |at| ask_at.launch(&stream, ONE, (&word, at, &is_waiting)).map(drop));
    for instance in [&waits, &asks] {
        instance.upload(&stream).unwrap();
        for place in [57, 0, KERNELS - 1] {
            word.write(&[place]).unwrap();
            is_waiting.write(&[0]).unwrap();
            let running = instance.launch(&stream).unwrap();
            let behind = instance.launch(&stream).unwrap();
            wait_until_one_waits();
            assert!(!running.is_done());
            running.cancel();
            let Err(Error::Replay(failure)) = running.wait() else { panic!("it was cancelled") };
            assert_eq!(failure.cause, NodeFailure::Launch(LaunchFailure::Cancelled));
            assert_eq!(failure.node.numbers()[0], place as u32, "{failure}");
            assert!(stream.synchronize().is_err() && behind.wait().is_err());

            let limited = instance.launch(&stream).unwrap();
            limited.cancel_after(Duration::from_millis(5));
            let Err(Error::Replay(failure)) = limited.wait() else { panic!("its time was up") };
            assert_eq!(failure.cause, NodeFailure::Launch(LaunchFailure::TimedOut));
            assert!(stream.synchronize().is_err());

            word.write(&[u64::MAX]).unwrap();
            instance.launch(&stream).unwrap().wait().unwrap();
            stream.synchronize().unwrap();
        }
    }
    let gate = device.alloc_zeroed::<u64>(1).unwrap();
    wait_for_gate.launch(&stream, ONE, (&gate,)).unwrap();
    let waiting = waits.launch(&stream).unwrap();
    waiting.cancel();
    assert!(gate.write_now(&[1]).unwrap());
    assert!(stream.synchronize().is_err());
    assert!(waiting.wait().is_err());
    waits.launch(&stream).unwrap().wait().unwrap();
}

/// What is set counts for later replays only, whether they are lists or not.
#[test]
fn arguments_are_set_between_replays_of_lists() {
    let (device, stream, _) = open();
    let values = device.alloc_zeroed::<u64>(1).unwrap();
    let build = |by: u64| {
        let graph = stream.capture(LOCAL, |stream| {
            (0..10).try_for_each(|_| add.launch(stream, ONE, (&values, by)).map(drop))?;
            stream.repeated_function(|| ())?;
            (0..10).try_for_each(|_| add.launch(stream, ONE, (&values, by)).map(drop))
        });
        graph.unwrap()
    };
    let graph = build(1);
    let (first, instance) = (graph.find("add").unwrap(), graph.instantiate().unwrap());
    instance.upload(&stream).unwrap();
    let mut expected = 0;
    for round in 0..20u64 {
        // The first half's list is another one then; the second half keeps its own.
        instance.launch(&stream).unwrap();
        instance.set(first, &add, ONE, (&values, 1000 * round)).unwrap();
        if round % 3 == 0 {
            instance.upload(&stream).unwrap();
        }
        for _ in 0..3 {
            instance.launch(&stream).unwrap();
        }
        expected += 20 + 3 * (19 + 1000 * round);
        assert!(instance.update(&build(1)).unwrap());
        if round % 2 == 0 {
            instance.upload(&stream).unwrap();
        }
    }
    assert_eq!(values.read().unwrap(), [expected]);
    stream.synchronize().unwrap();
}

/// Two instances on their own streams, a third on streams that come and go.
#[test]
fn lists_on_several_streams() {
    let (device, _, served) = open();
    let values: Vec<_> = (0..3).map(|_| device.alloc_zeroed::<u64>(1).unwrap()).collect();
    std::thread::scope(|scope| {
        for values in &values[..2] {
            let device = &device;
            scope.spawn(move || {
                let stream = device.stream().unwrap();
                let instance = row(&stream, |at| match at % 10 {
                    0 => call.launch(&stream, ONE, (1u64,)).map(drop),
                    _ => add.launch(&stream, ONE, (values, 1u64)).map(drop),
                });
                for _ in 0..50 {
                    instance.launch(&stream).unwrap();
                }
                stream.synchronize().unwrap();
            });
        }
        let stream = device.stream().unwrap();
        let instance = row(&stream, |_| add.launch(&stream, ONE, (&values[2], 1u64)).map(drop));
        for _ in 0..20 {
            let streams: Vec<_> = (0..10).map(|_| device.stream().unwrap()).collect();
            for stream in &streams {
                instance.upload(stream).unwrap();
                instance.launch(stream).unwrap();
                instance.launch(&streams[0]).unwrap();
            }
        }
        instance.launch(&stream).unwrap().wait().unwrap();
    });
    let sums: Vec<u64> = values.iter().map(|values| values.read().unwrap()[0]).collect();
    assert_eq!(sums, [50 * 90, 50 * 90, 401 * KERNELS]);
    assert_eq!(served.0.counted.load(Ordering::Relaxed), 2 * 50 * 10);
}

/// A device that is closed ends the lists that it has; what their nodes used goes with them.
#[test]
fn a_device_is_closed_with_lists_in_flight() {
    for place in [0, 57] {
        let (device, stream, _) = open();
        let (word, waits) = (device.upload(&[place]).unwrap(), device.alloc_zeroed::<u64>(1).unwrap());
        let instance = row(&stream, |at| wait_at.launch(&stream, ONE, (&word, at, &waits)).map(drop));
        instance.upload(&stream).unwrap();
        let replays: Vec<_> = (0..20).map(|_| instance.launch(&stream).unwrap()).collect();
        std::thread::sleep(Duration::from_millis(2));
        device.close();
        assert!(replays.iter().all(|replay| replay.wait().is_err()));
        assert!(matches!(instance.launch(&stream), Err(Error::Closed)));
    }
    // An instance that is dropped leaves its replays alone.
    let (device, stream, _) = open();
    let values = device.alloc_zeroed::<u64>(1).unwrap();
    let instance = row(&stream, |_| add.launch(&stream, ONE, (&values, 1u64)).map(drop));
    instance.upload(&stream).unwrap();
    for _ in 0..10 {
        instance.launch(&stream).unwrap();
    }
    drop(instance);
    assert_eq!(values.read().unwrap(), [10 * KERNELS]);
}

/// More replays than there are ids for lists: the rest are launched one by one.
#[test]
fn more_replays_wait_than_lists_can_be_told_apart() {
    let (device, stream, _) = open();
    let (values, gate) = (device.alloc_zeroed::<u64>(1).unwrap(), device.alloc_zeroed::<u64>(1).unwrap());
    let instance = row(&stream, |_| add.launch(&stream, ONE, (&values, 1u64)).map(drop));
    instance.upload(&stream).unwrap();
    wait_for_gate.launch(&stream, ONE, (&gate,)).unwrap();
    for _ in 0..600 {
        instance.launch(&stream).unwrap();
    }
    assert!(gate.write_now(&[1]).unwrap());
    assert_eq!(values.read().unwrap(), [600 * KERNELS]);
    stream.synchronize().unwrap();
}

/// A kernel behind one whose waves died in the middle of their calls: there is no slot for it before theirs are restored, which
/// they are when the whole list has ended.
#[test]
fn a_list_ends_with_a_kernel_that_loses_all_slots() {
    let faults = Faults { kill_wave: 1.0, ..Faults::default() };
    let config = SoftwareDeviceConfig { resident_waves: 4, faults, ..SoftwareDeviceConfig::default() };
    let served = Served::default();
    let device = Device::builder("cpu").software(config).service(Host::serve(served)).open().unwrap();
    let stream = device.stream().unwrap();
    let values = device.alloc_zeroed::<u64>(128).unwrap();
    let (dying, adding) = (Grid::new(2, 128), Grid::new(1, 128));
    let graph = stream.capture(LOCAL, |stream| {
        add.launch(stream, adding, (&values, 1u64))?;
        call.launch(stream, dying, (1u64,))?;
        add.launch(stream, adding, (&values, 1u64))?;
        add.launch(stream, adding, (&values, 1u64)).map(drop)
    });
    let instance = graph.unwrap().named("dying").instantiate().unwrap();
    for round in 1..=5 {
        instance.launch(&stream).unwrap();
        let Err(Error::Replay(failure)) = stream.synchronize_for(Duration::from_secs(60)) else {
            panic!("it goes on for ever")
        };
        assert!(failure.to_string().contains("node 1 (call)"), "{failure}");
        assert_eq!(values.read().unwrap(), [round; 128]);
    }
}
