//! Streams as queues of the device: many launches, stopping and going on, cancelling, time limits, host functions, closing.

use hostcall::device::{Error, LaunchFailure};
use hostcall::hostcall_device::{Global, Lane, kernel, process};
use hostcall::{Device, Grid, LaunchKernel, Stream};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

#[kernel]
fn count(_: &Lane, counter: &Global<u32>) {
    counter.set(counter.get() + 1);
}

#[kernel]
fn wait_for_gate(lane: &Lane, gate: &Global<u32>) {
    while gate.get() == 0 {
        lane.pause();
    }
}

#[kernel]
fn never_ends(lane: &Lane) {
    loop {
        lane.pause();
    }
}

#[kernel]
fn panic_at(_: &Lane, number: u32) {
    panic!("number {number}");
}

#[kernel]
fn exit_with(_: &Lane, code: i32) {
    process::exit(code);
}

const ONE: Grid = Grid::new(1, 1);

fn cpu() -> Device {
    Device::open("cpu").unwrap()
}

fn failure(result: Result<(), Error>) -> LaunchFailure {
    match result {
        Err(Error::Launch { failure, .. }) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hundred_thousand_launches_wait_in_one_stream() {
    let device = cpu();
    let stream = device.stream().unwrap();
    let gate = device.alloc_zeroed::<u32>(1).unwrap();
    let counter = device.alloc_zeroed::<u32>(1).unwrap();
    wait_for_gate.launch(&stream, ONE, (&gate,)).unwrap();
    let launches = 100_000;
    for _ in 0..launches {
        count.launch(&stream, ONE, (&counter,)).unwrap();
    }
    assert_eq!(counter.read_now().unwrap(), Some(vec![0]));
    assert!(!stream.is_done());
    assert!(gate.write_now(&[1]).unwrap());
    stream.synchronize().unwrap();
    assert_eq!(counter.read().unwrap(), [launches]);
}

#[test]
fn a_thousand_streams_are_cheap() {
    let device = cpu();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let counter = device.alloc_zeroed::<u32>(1000).unwrap();
    let before = threads();
    let streams: Vec<Stream> = (0..1000).map(|_| device.stream().unwrap()).collect();
    for round in 0..3 {
        for (at, stream) in streams.iter().enumerate() {
            let own = counter.part(at..=at).unwrap();
            count.launch(stream, ONE, (&own,)).unwrap();
            if round == 1 {
                let next = &streams[(at + 1) % streams.len()];
                next.wait_for(&stream.record().unwrap()).unwrap();
            }
        }
    }
    for stream in &streams {
        stream.synchronize().unwrap();
    }
    // Other tests of this process have devices of their own.
    assert!(threads() < before + 100);
    assert_eq!(counter.read().unwrap(), vec![3; 1000]);
}

/// A launch that is over leaves its memory to later ones, unless somebody has it yet.
#[test]
fn a_launch_tells_of_itself_after_many_others() {
    let device = cpu();
    let stream = device.stream().unwrap();
    let mut kept = Vec::new();
    for code in 0..400 {
        let launch = exit_with.launch(&stream, ONE, (code,)).unwrap();
        let _ = stream.synchronize();
        if code % 50 == 0 {
            kept.push((code, launch.id(), launch));
        }
    }
    for (code, id, launch) in kept {
        assert_eq!(
            (launch.wait().unwrap().exit_code, launch.id(), launch.kernel()),
            (Some(code), id, "exit_with")
        );
    }
}

/// A failed launch keeps the later ones of its stream from running until it was told of; copies are done all the same.
#[test]
fn a_failure_stops_the_stream_until_it_is_told() {
    let device = cpu();
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let counter = device.alloc_zeroed::<u32>(1).unwrap();
    let copy = device.alloc_zeroed::<u32>(1).unwrap();
    let ran = Arc::new(AtomicBool::new(false));
    for round in 0..20u32 {
        let told = ran.clone();
        count.launch(&stream, ONE, (&counter,)).unwrap();
        let failed = panic_at.launch(&stream, ONE, (round,)).unwrap();
        let skipped = count.launch(&stream, ONE, (&counter,)).unwrap();
        stream.host_function(move || told.store(true, Ordering::Relaxed)).unwrap();
        stream.copy(&copy, &counter).unwrap();
        let skipped_too = count.launch(&stream, ONE, (&counter,)).unwrap();
        match failure(stream.synchronize()) {
            LaunchFailure::Panicked { first: Some(panic), others: 0 } => {
                assert_eq!(panic.message, format!("number {round}"));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(failure(failed.wait().map(drop)), LaunchFailure::Panicked { .. }));
        for launch in [skipped, skipped_too] {
            assert_eq!(failure(launch.wait().map(drop)), LaunchFailure::Skipped);
        }
        assert_eq!((counter.read().unwrap()[0], copy.read().unwrap()[0]), (2 * round + 1, 2 * round + 1));
        // Another stream is not concerned, and this one goes on.
        count.launch(&other, ONE, (&counter,)).unwrap();
        other.synchronize().unwrap();
        stream.synchronize().unwrap();
    }
    assert!(!ran.load(Ordering::Relaxed));
}

/// Who waits for what came before a launch does not let the stream go on behind that launch, which is cancelled meanwhile.
#[test]
fn a_stop_is_told_with_its_launch() {
    let device = cpu();
    let stream = device.stream().unwrap();
    for _ in 0..50 {
        let [gate, counter] = [(); 2].map(|()| device.alloc_zeroed::<u32>(1).unwrap());
        wait_for_gate.launch(&stream, ONE, (&gate,)).unwrap();
        let told = std::thread::scope(|scope| {
            let waits = scope.spawn(|| stream.synchronize());
            std::thread::sleep(Duration::from_millis(2));
            count.launch(&stream, ONE, (&counter,)).unwrap().cancel();
            assert!(gate.write_now(&[1]).unwrap());
            waits.join().unwrap()
        });
        let behind = count.launch(&stream, ONE, (&counter,)).unwrap();
        match told {
            Ok(()) => {
                assert!(matches!(failure(stream.synchronize()), LaunchFailure::Cancelled));
                assert!(matches!(failure(behind.wait().map(drop)), LaunchFailure::Skipped));
            }
            told => {
                assert!(matches!(failure(told), LaunchFailure::Cancelled));
                behind.wait().unwrap();
            }
        }
        stream.synchronize().unwrap();
    }
}

/// Threads that launch, cancel and synchronize the same stream.
#[test]
fn many_threads_stop_one_stream() {
    let device = cpu();
    let (stream, counter) = (&device.stream().unwrap(), &device.alloc_zeroed::<u32>(1).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for step in 0..500 {
                    let launch = count.launch(stream, ONE, (counter,)).unwrap();
                    if step % 10 == thread {
                        launch.cancel();
                    }
                    if step % 10 == 9 {
                        let _ = stream.synchronize();
                    }
                }
            });
        }
    });
    while stream.synchronize().is_err() {}
    count.launch(stream, ONE, (counter,)).unwrap().wait().unwrap();
}

/// What a thread launched before has ended when its wait returns, whoever else launches and waits, and each failure is told.
#[test]
fn many_threads_synchronize_one_stream() {
    const THREADS: u32 = 8;
    const ROUNDS: u32 = 200;
    let device = cpu();
    let (stream, counter) = (device.stream().unwrap(), device.alloc_zeroed::<u32>(1).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    count.launch(&stream, ONE, (&counter,)).unwrap();
                    stream.synchronize().unwrap();
                    assert!(counter.read_now().unwrap().unwrap()[0] >= round);
                }
            });
        }
    });
    assert_eq!(counter.read().unwrap(), [THREADS * ROUNDS]);
    let launched = panic_at.launch(&stream, ONE, (1,)).unwrap();
    let told = std::thread::scope(|scope| {
        let waits = [(); THREADS as usize].map(|()| scope.spawn(|| stream.synchronize().is_err()));
        waits.map(|wait| wait.join().unwrap())
    });
    assert_eq!(told.iter().filter(|is_told| **is_told).count(), 1, "{told:?}");
    assert!(launched.wait().is_err());
    stream.synchronize().unwrap();
}

#[kernel]
fn panic_behind_gate(lane: &Lane, gate: &Global<u32>) {
    while gate.get() == 0 {
        lane.pause();
    }
    panic!("behind the gate");
}

/// A failure is told although others push meanwhile what does not end; what they pushed until then does not run, what comes later
/// does.
#[test]
fn a_failure_is_told_while_others_push() {
    let device = cpu();
    let [stream, endless] = [(); 2].map(|()| device.stream().unwrap());
    let [gate, other_gate, counter] = [(); 3].map(|()| device.alloc_zeroed::<u32>(1).unwrap());
    wait_for_gate.launch(&endless, ONE, (&other_gate,)).unwrap();
    let event = endless.record().unwrap();
    panic_behind_gate.launch(&stream, ONE, (&gate,)).unwrap();
    let skipped = std::thread::scope(|scope| {
        let told = scope.spawn(|| stream.synchronize());
        std::thread::sleep(Duration::from_millis(20));
        stream.wait_for(&event).unwrap();
        let skipped = count.launch(&stream, ONE, (&counter,)).unwrap();
        assert!(gate.write_now(&[1]).unwrap());
        assert!(matches!(failure(told.join().unwrap()), LaunchFailure::Panicked { .. }));
        skipped
    });
    let (ran, is_called) =
        (count.launch(&stream, ONE, (&counter,)).unwrap(), Arc::new(AtomicBool::new(false)));
    let call = is_called.clone();
    stream.host_function(move || call.store(true, Ordering::SeqCst)).unwrap();
    assert!(!skipped.is_done() && !ran.is_done());
    assert!(other_gate.write_now(&[1]).unwrap());
    assert!(matches!(failure(skipped.wait().map(drop)), LaunchFailure::Skipped));
    ran.wait().unwrap();
    stream.synchronize().unwrap();
    assert!(is_called.load(Ordering::SeqCst));
    assert_eq!(counter.read().unwrap(), [1]);
}

#[test]
fn an_exit_ends_well_and_stops_the_stream() {
    let device = cpu();
    let stream = device.stream().unwrap();
    let counter = device.alloc_zeroed::<u32>(1).unwrap();
    for code in [0, 7] {
        let exits = exit_with.launch(&stream, Grid::new(4, 40), (code,)).unwrap();
        let skipped = count.launch(&stream, ONE, (&counter,)).unwrap();
        let _ = stream.synchronize();
        assert_eq!(exits.wait().unwrap().exit_code, Some(code));
        assert_eq!(failure(skipped.wait().map(drop)), LaunchFailure::Skipped);
        count.launch(&stream, ONE, (&counter,)).unwrap();
        stream.synchronize().unwrap();
    }
    assert_eq!(counter.read().unwrap(), [2]);
}

#[test]
fn one_launch_is_cancelled() {
    let device = cpu();
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let gate = device.alloc_zeroed::<u32>(1).unwrap();
    let beside = wait_for_gate.launch(&other, ONE, (&gate,)).unwrap();
    // The one that runs, and one that waits behind it.
    let first = never_ends.launch(&stream, Grid::new(2, 40), ()).unwrap();
    first.cancel();
    assert_eq!(failure(first.wait().map(drop)), LaunchFailure::Cancelled);
    assert_eq!(failure(stream.synchronize()), LaunchFailure::Cancelled);
    let first = wait_for_gate.launch(&stream, ONE, (&gate,)).unwrap();
    let counter = device.alloc_zeroed::<u32>(1).unwrap();
    let launches: Vec<_> = (0..1000).map(|_| count.launch(&stream, ONE, (&counter,)).unwrap()).collect();
    launches[500].cancel();
    launches[500].cancel();
    assert!(!beside.is_done() && !first.is_done());
    assert!(gate.write_now(&[1]).unwrap());
    assert_eq!(failure(stream.synchronize()), LaunchFailure::Cancelled);
    first.wait().unwrap();
    launches[499].wait().unwrap();
    assert_eq!(failure(launches[501].wait().map(drop)), LaunchFailure::Skipped);
    assert_eq!(counter.read().unwrap(), [500]);
    // Too late changes nothing.
    launches[3].cancel();
    stream.synchronize().unwrap();
    other.synchronize().unwrap();
}

/// A launch that is cancelled before its turn stops what is behind it, and nothing before it.
#[test]
fn a_cancelled_launch_stops_what_is_behind_it() {
    let device = cpu();
    let stream = device.stream().unwrap();
    let (gate, counter) = (device.alloc_zeroed::<u32>(1).unwrap(), device.alloc_zeroed::<u32>(1).unwrap());
    let ran = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let note = |function: usize| {
        let told = ran[function].clone();
        stream.host_function(move || told.store(true, Ordering::Relaxed)).unwrap();
    };
    wait_for_gate.launch(&stream, ONE, (&gate,)).unwrap();
    note(0);
    let before = count.launch(&stream, ONE, (&counter,)).unwrap();
    let cancelled = count.launch(&stream, ONE, (&counter,)).unwrap();
    note(1);
    cancelled.cancel();
    assert!(gate.write_now(&[1]).unwrap());
    assert_eq!(failure(stream.synchronize()), LaunchFailure::Cancelled);
    before.wait().unwrap();
    assert_eq!(ran.map(|ran| ran.load(Ordering::Relaxed)), [true, false]);
    assert_eq!(counter.read().unwrap(), [1]);
}

#[test]
fn time_limits_end_launches_and_waits() {
    let device = cpu();
    let stream = device.stream().unwrap();
    let launch = never_ends.launch(&stream, ONE, ()).unwrap();
    let limit = Duration::from_millis(20);
    let timed_out = stream.synchronize_for(limit).unwrap_err();
    assert!(matches!(timed_out, Error::TimedOut { .. }));
    assert!(
        timed_out.to_string().contains("; it goes on: wait longer, or cancel its launches"),
        "{timed_out}"
    );
    assert!(matches!(launch.wait_for(limit), Err(Error::TimedOut { .. })));
    assert!(matches!(stream.record().unwrap().wait_for(limit), Err(Error::TimedOut { .. })));
    launch.cancel_after(limit);
    assert_eq!(failure(stream.synchronize()), LaunchFailure::TimedOut);
    // A limit that does not strike, and one for a launch that has not begun.
    let first = never_ends.launch(&stream, ONE, ()).unwrap();
    let second = never_ends.launch(&stream, ONE, ()).unwrap();
    second.cancel_after(Duration::from_millis(5));
    first.cancel_after(Duration::from_millis(40));
    assert_eq!(failure(stream.synchronize()), LaunchFailure::TimedOut);
    assert_eq!(failure(second.wait().map(drop)), LaunchFailure::TimedOut);
    stream.synchronize_for(Duration::from_secs(60)).unwrap();
}

/// Set for the process whose stream is dropped.
const CHILD: &str = "HOSTCALL_TEST_DROPS";

#[test]
fn a_dropped_stream_says_that_it_waits() {
    if std::env::var_os(CHILD).is_some() {
        let stream = cpu().stream().unwrap();
        never_ends.launch(&stream, ONE, ()).unwrap().cancel_after(Duration::from_secs(60));
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_dropped_stream_says_that_it_waits", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said = lines.find(|line| line.contains("a stream of cpu was dropped"));
    child.kill().unwrap();
    child.wait().unwrap();
    let said = said.unwrap();
    assert!(
        said.contains("still waits for launch 0.1 of never_ends after 5s: cancel its launches"),
        "{said}"
    );
}

/// Set for the process whose standard error nobody reads.
const UNREAD: &str = "HOSTCALL_TEST_UNREAD";

/// What a dropped stream has to say waits for its turn on a thread of its own, however long the pipe is full.
#[test]
fn a_standard_error_that_nobody_reads_holds_no_drop_up() {
    if std::env::var_os(UNREAD).is_some() {
        let device = cpu();
        let stream = device.stream().unwrap();
        never_ends.launch(&stream, ONE, ()).unwrap().cancel();
        let written = Arc::new(AtomicU32::new(0));
        let counts = written.clone();
        std::thread::spawn(move || {
            while std::io::stderr().write_all(&[b'.'; 1024]).is_ok() {
                counts.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut before = 0;
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let now = written.load(Ordering::Relaxed);
            if now > 0 && now == before {
                break;
            }
            before = now;
        }
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_standard_error_that_nobody_reads_holds_no_drop_up", "--nocapture"])
        .env(UNREAD, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let ended = loop {
        match child.try_wait().unwrap() {
            None if begun.elapsed() < Duration::from_secs(60) => {
                std::thread::sleep(Duration::from_millis(10))
            }
            ended => break ended,
        }
    };
    let _ = child.kill();
    child.wait().unwrap();
    assert!(ended.expect("the drop waits for who reads the standard error").success());
}

#[test]
fn host_functions_run_in_order_and_may_wait_for_others() {
    let device = cpu();
    let (one, two) = (device.stream().unwrap(), device.stream().unwrap());
    let counter = device.alloc_zeroed::<u32>(1).unwrap();
    let (sender, receiver) = mpsc::channel();
    let seen = Arc::new(AtomicU32::new(0));
    for step in 0..50 {
        let (sender, seen) = (sender.clone(), seen.clone());
        one.host_function(move || {
            assert_eq!(seen.swap(step + 1, Ordering::Relaxed), step);
            sender.send(()).unwrap();
        })
        .unwrap();
        count.launch(&one, ONE, (&counter,)).unwrap();
    }
    // One that waits for the host functions of another stream.
    two.host_function(move || (0..50).for_each(|_| receiver.recv().unwrap())).unwrap();
    two.synchronize().unwrap();
    one.synchronize().unwrap();
    assert_eq!((seen.load(Ordering::Relaxed), counter.read().unwrap()[0]), (50, 50));
}

/// A host function that waits for its own stream gets an error that names both.
#[test]
fn a_host_function_that_would_wait_for_itself_is_refused() {
    let device = cpu();
    let stream = Arc::new(device.stream().unwrap());
    let other = device.stream().unwrap();
    let (own, counter) = (stream.clone(), device.alloc_zeroed::<u32>(1).unwrap());
    let read = counter.clone();
    let (sender, told) = mpsc::channel();
    let (launched, go) = mpsc::channel();
    stream
        .host_function(move || {
            // The counter is the launch's once that is behind this function.
            go.recv().unwrap();
            sender.send(own.synchronize()).unwrap();
            sender.send(read.read().map(drop)).unwrap();
        })
        .unwrap();
    count.launch(&stream, ONE, (&counter,)).unwrap();
    launched.send(()).unwrap();
    // Another stream's work that waits for this one's.
    other.wait_for(&stream.record().unwrap()).unwrap();
    for _ in 0..2 {
        let refused = told.recv().unwrap();
        assert!(matches!(&refused, Err(Error::WouldDeadlock { .. })), "{refused:?}");
        assert!(refused.unwrap_err().to_string().contains("host function"));
    }
    other.synchronize().unwrap();
}

/// What users' values do when they are dropped stops nothing.
#[test]
fn values_that_panic_when_dropped_stop_nothing() {
    struct Bomb(Arc<AtomicU32>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("dropped");
        }
    }
    let device = cpu();
    let stream = device.stream().unwrap();
    let dropped = Arc::new(AtomicU32::new(0));
    let bomb = Bomb(dropped.clone());
    stream.host_function(move || drop(bomb)).unwrap();
    assert!(matches!(stream.synchronize(), Err(Error::HostFunction { .. })));
    // One that is never called, since the stream was stopped.
    let bomb = Bomb(dropped.clone());
    panic_at.launch(&stream, ONE, (1,)).unwrap();
    stream.host_function(move || drop(bomb)).unwrap();
    assert!(stream.synchronize().is_err());
    let counter = device.alloc_zeroed::<u32>(1).unwrap();
    count.launch(&stream, ONE, (&counter,)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(counter.read().unwrap(), [1]);
    while dropped.load(Ordering::Relaxed) < 2 {
        std::thread::yield_now();
    }
}

/// Nobody who waits for a stream or asks for it waits for what users' values do when they are dropped.
#[test]
fn a_value_that_waits_when_it_is_dropped_holds_nobody_up() {
    struct Waits(mpsc::Receiver<()>);
    impl Drop for Waits {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }
    let device = cpu();
    let stream = device.stream().unwrap();
    let mut goes_on = Vec::new();
    for asks in [false, true] {
        let (go_on, waits) = mpsc::channel();
        let waits = Waits(waits);
        goes_on.push(go_on);
        panic_at.launch(&stream, ONE, (1,)).unwrap();
        // It is never called, since the stream was stopped.
        stream.host_function(move || drop(waits)).unwrap();
        while asks && !stream.is_done() {
            std::thread::yield_now();
        }
        assert!(stream.synchronize().is_err());
    }
}

/// Nobody synchronizes: what launches keep is dropped all the same.
#[test]
fn what_nobody_waits_for_is_cleared_away() {
    let device = cpu();
    let stream = device.stream().unwrap();
    let counter = device.alloc_zeroed::<u32>(1).unwrap();
    let launch = count.launch(&stream, ONE, (&counter,)).unwrap();
    while !launch.is_done() {
        std::thread::yield_now();
    }
    let event = stream.record().unwrap();
    while !event.is_done() {
        std::thread::yield_now();
    }
    assert_eq!(launch.wait().unwrap().exit_code, None);
}

#[test]
fn a_closed_device_ends_everything() {
    let device = cpu();
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let running = never_ends.launch(&stream, Grid::new(3, 40), ()).unwrap();
    let waiting: Vec<_> = (0..1000).map(|_| never_ends.launch(&stream, ONE, ()).unwrap()).collect();
    let called = Arc::new(AtomicBool::new(false));
    let told = called.clone();
    stream.host_function(move || told.store(true, Ordering::Relaxed)).unwrap();
    other.wait_for(&stream.record().unwrap()).unwrap();
    let value = device.alloc_zeroed::<u32>(1).unwrap();
    let read = stream.read(&value).unwrap();
    device.close();
    assert!(running.is_done());
    for launch in waiting.iter().chain([&running]) {
        assert!(launch.wait().is_err());
    }
    assert!(matches!(read.wait(), Err(Error::Closed)));
    assert!(!called.load(Ordering::Relaxed));
    assert!(stream.synchronize().is_err());
    let ended = other.synchronize();
    assert!(matches!(ended, Err(Error::Closed)), "its wait was dropped: {ended:?}");
    assert!(matches!(count.launch(&stream, ONE, (&value,)), Err(Error::Closed)));
    assert!(matches!(stream.record(), Err(Error::Closed)));
    assert!(matches!(device.stream(), Err(Error::Closed)));
}

/// Streams and devices that go while work is in flight.
#[test]
fn dropped_streams_finish_their_work() {
    let device = cpu();
    let counter = device.alloc_zeroed::<u32>(1).unwrap();
    for _ in 0..50 {
        let stream = device.stream().unwrap();
        (0..20).for_each(|_| drop(count.launch(&stream, ONE, (&counter,)).unwrap()));
    }
    let stream = device.stream().unwrap();
    count.launch(&stream, ONE, (&counter,)).unwrap();
    drop(device);
    drop(stream);
    assert_eq!(counter.read().unwrap(), [1001]);
}
